/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_args.h"

#define MAX_TEXT 40 /* shown of a wrong value */

double sim_arg_number(const char *option, const char *text, double low, double high)
{
    char *end;
    double value;

    errno = 0;
    value = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0) {
        value /= 100;
        end++;
    }
    if (end == text || *end != '\0' || errno != 0 || !(value >= low && value <= high)) {
        sim_fail(2, "--%s takes a number from %g to %g, not \"%.*s\".", option, low, high, MAX_TEXT,
                 text);
    }
    return value;
}

uint64_t sim_arg_count(const char *option, const char *text, uint64_t low, uint64_t high)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < low || value > high) {
        sim_fail(2, "--%s takes a whole number from %llu to %llu, not \"%.*s\".", option,
                 (unsigned long long)low, (unsigned long long)high, MAX_TEXT, text);
    }
    return value;
}

/* The next word of a list, which is copied; NULL after the last. */
static const char *next_word(const char *option, const char *text, char *word, size_t size)
{
    size_t length = strcspn(text, ",");

    if (length == 0 || length >= size) {
        sim_fail(2, "--%s has an empty or overlong value in \"%.*s\".", option, MAX_TEXT, text);
    }
    memcpy(word, text, length);
    word[length] = '\0';
    return text[length] == ',' ? text + length + 1 : NULL;
}

sim_list sim_arg_list(const char *option, const char *text, double low, double high)
{
    sim_list list = {.count = 0};

    for (; text != NULL && list.count < SIM_LIST; list.count++) {
        text = next_word(option, text, list.text[list.count], sizeof(list.text[0]));
        list.value[list.count] = sim_arg_number(option, list.text[list.count], low, high);
    }
    if (text != NULL) {
        sim_fail(2, "--%s takes %d values at most.", option, SIM_LIST);
    }
    return list;
}

static _Noreturn void unknown_name(const char *option, const char *word, const char *const *names,
                                   int count)
{
    char known[200] = "";
    size_t used = 0;

    for (int i = 0; i < count && used < sizeof(known); i++) {
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s, ", names[i]);
    }
    sim_fail(2, "--%s takes %sor all, not \"%s\".", option, known, word);
}

unsigned sim_arg_names(const char *option, const char *text, const char *const *names, int count)
{
    unsigned found = 0;
    char word[MAX_TEXT];

    if (strcmp(text, "all") == 0) {
        return (1U << count) - 1;
    }
    while (text != NULL) {
        int i = 0;

        text = next_word(option, text, word, sizeof(word));
        while (i < count && strcmp(names[i], word) != 0) {
            i++;
        }
        if (i == count) {
            unknown_name(option, word, names, count);
        }
        found |= 1U << i;
    }
    return found;
}

sim_common sim_common_defaults(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return (sim_common){.effort = {.width = 0.01,
                                   .floor = 0.001,
                                   .min_runs = 200,
                                   .max_runs = 100000,
                                   .threads = cores < 1                 ? 1
                                              : cores > SIM_MAX_THREADS ? SIM_MAX_THREADS
                                                                        : (uint32_t)cores,
                                   .seed = 1,
                                   .progress = isatty(STDERR_FILENO)}};
}

bool sim_common_take(sim_common *common, int option, const char *value)
{
    sim_effort *e = &common->effort;

    switch (option) {
    case 1000:
        e->width = sim_arg_number("width", value, 0, 1);
        return true;
    case 1001:
        e->floor = sim_arg_number("floor", value, 0, 1);
        return true;
    case 1002:
        e->min_runs = (uint32_t)sim_arg_count("min-runs", value, 2, 100000000);
        return true;
    case 1003:
        e->max_runs = (uint32_t)sim_arg_count("max-runs", value, 2, 100000000);
        return true;
    case 1004:
        e->threads = (uint32_t)sim_arg_count("threads", value, 1, SIM_MAX_THREADS);
        return true;
    case 1005:
        e->seed = sim_arg_count("seed", value, 0, UINT64_MAX);
        return true;
    case 1006:
        e->progress = false;
        return true;
    case 1007:
        common->csv = true;
        return true;
    default:
        return false;
    }
}

void sim_common_check(const sim_common *common)
{
    if (common->effort.min_runs > common->effort.max_runs) {
        sim_fail(2, "--min-runs is %u, more than --max-runs, which is %u.", common->effort.min_runs,
                 common->effort.max_runs);
    }
}

int sim_arg_next(int argc, char **argv, const struct option *options)
{
    int at = optind, option;

    opterr = 0;
    option = getopt_long(argc, argv, "+:h", options, NULL);
    if (option == ':') {
        sim_fail(2, "%s needs a value; see seven-sim --help.", argv[at]);
    }
    if (option == '?') {
        sim_fail(2, "There is no option \"%.*s\", or it takes no value; see seven-sim --help.",
                 MAX_TEXT, argv[at]);
    }
    if (option == -1 && optind < argc) {
        sim_fail(2, "There is no use for \"%.*s\"; see seven-sim --help.", MAX_TEXT, argv[optind]);
    }
    return option;
}
