/* SPDX-License-Identifier: Apache-2.0 */
/* An experiment's calls, from a file: see seven-sim --help. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MOST_CALLS 10000000
#define LONGEST_MS 1000000000000ULL /* so that no sum of times overflows */
#define MAX_LINE 80

typedef struct reader {
    const char *path;
    FILE *file;
    unsigned long line;
    size_t calls, room;
} reader;

static _Noreturn void wrong(const reader *in, const char *what)
{
    sim_fail(2, "%s, line %lu: %s.", in->path, in->line, what);
}

/* A whole number, and what comes after it. */
static uint64_t take_number(const reader *in, char **text, char after, const char *what)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(*text, &end, 10);
    if (**text < '0' || **text > '9' || *end != after || errno != 0 || value > LONGEST_MS) {
        wrong(in, what);
    }
    *text = end + (after != '\0');
    return value;
}

static sim_call take_call(const reader *in, char *text, uint64_t *load)
{
    sim_call call;

    *load = take_number(in, &text, ',', "a line begins with the number of a load, and a comma");
    call.begins_us = 1000 * take_number(in, &text, ',', "when a call begins is in whole ms");
    if (strcmp(text, "forever") == 0) {
        call.lasts_us = SIM_FOREVER;
    } else {
        call.lasts_us =
            1000 * take_number(in, &text, '\0', "how long a call lasts is in whole ms, or forever");
    }
    return call;
}

static void *grow(void *block, size_t size)
{
    void *bigger = realloc(block, size);

    if (bigger == NULL) {
        sim_fail(1, "There is no memory for so many calls.");
    }
    return bigger;
}

static void add(const reader *in, sim_load *load, sim_call call, uint64_t number)
{
    bool follows = number == load->loads && load->loads > 0;

    if (!follows && number != load->loads + 1U) {
        wrong(in, "loads are numbered from 1, without a gap");
    }
    if (follows && call.begins_us < load->calls[in->calls - 1].begins_us) {
        wrong(in, "it begins before the call of the line above");
    }
    if (!follows) {
        load->ends = grow(load->ends, ++load->loads * sizeof(*load->ends));
    }
    load->calls[in->calls] = call;
    load->ends[load->loads - 1] = in->calls + 1;
}

sim_load sim_load_read(const char *path)
{
    reader in = {.path = path, .file = fopen(path, "r")};
    sim_load load = {NULL, NULL, 0};
    char line[MAX_LINE];

    if (in.file == NULL) {
        sim_fail(2, "%s cannot be read: %s.", path, strerror(errno));
    }
    while (fgets(line, sizeof(line), in.file) != NULL) {
        uint64_t number;
        sim_call call;

        in.line++;
        if (strlen(line) == sizeof(line) - 1) {
            wrong(&in, "it is too long");
        }
        line[strcspn(line, "\n")] = '\0';
        call = take_call(&in, line, &number);
        if (in.calls == MOST_CALLS) {
            wrong(&in, "there are too many calls");
        }
        if (in.calls == in.room) {
            in.room = in.room > 0 ? 2 * in.room : 1024;
            load.calls = grow(load.calls, in.room * sizeof(*load.calls));
        }
        add(&in, &load, call, number);
        in.calls++;
    }
    if (ferror(in.file) || load.loads == 0) {
        sim_fail(2, "%s %s.", path, ferror(in.file) ? "cannot be read" : "has no calls");
    }
    fclose(in.file);
    return load;
}
