/* webbots: picks the mode. */
#include "webbots.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} modes[] = {
    {"honest", mode_honest, "open-loop clients that ask for a page"},
    {"upload", mode_upload, "open-loop clients that upload slowly"},
    {"relay", mode_relay, "a TCP relay that puts a distance in between"},
    {"idle", mode_idle, "opens tunnels through a server and holds them"},
    {"echo", mode_echo, "a small backend for proxied requests and tunnels"},
    {"attack", mode_attack, "a simple slow attacker, for tests"},
};

static void print_modes(FILE *out)
{
    fprintf(out, "usage: webbots MODE [options]; webbots MODE --help\n");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        fprintf(out, "  %-8s %s\n", modes[i].name, modes[i].help);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        usage_error("Name a mode first; webbots --help lists them.");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_modes(stdout);
        return 0;
    }
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(argv[1], modes[i].name) == 0)
            return modes[i].run(argc, argv);
    usage_error("There is no mode '%s'; webbots --help lists them.", argv[1]);
}
