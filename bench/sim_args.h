/* SPDX-License-Identifier: Apache-2.0 */
/**
 * seven-sim's command line. A value that is not as it should be ends the program with a sentence
 * that names its option, and exit status 2; nothing is clamped.
 */
#ifndef SIM_ARGS_H
#define SIM_ARGS_H

#include <getopt.h>

#include "sim.h"

#define SIM_LIST 16 /* values that one option takes at most */

/** One value or several, and as they were written. */
typedef struct sim_list {
    double value[SIM_LIST];
    char text[SIM_LIST][24];
    int count;
} sim_list;

/** A number from low to high; with a % sign it is a hundredth. */
double sim_arg_number(const char *option, const char *text, double low, double high);

/** A whole number from low to high. */
uint64_t sim_arg_count(const char *option, const char *text, uint64_t low, uint64_t high);

/** Numbers with commas between them. */
sim_list sim_arg_list(const char *option, const char *text, double low, double high);

/** Names with commas between them, or "all": a bit for each. */
unsigned sim_arg_names(const char *option, const char *text, const char *const *names, int count);

/** The options that every command has; shorts are from 1000 on. */
#define SIM_EFFORT_OPTIONS                                                                         \
    {"width", required_argument, NULL, 1000}, {"floor", required_argument, NULL, 1001},            \
        {"min-runs", required_argument, NULL, 1002}, {"max-runs", required_argument, NULL, 1003},  \
        {"threads", required_argument, NULL, 1004}, {"seed", required_argument, NULL, 1005},       \
        {"quiet", no_argument, NULL, 1006}, {"csv", no_argument, NULL, 1007},                      \
    {                                                                                              \
        "help", no_argument, NULL, 'h'                                                             \
    }

/** What the commands share beyond sim_effort. */
typedef struct sim_common {
    sim_effort effort;
    bool csv;
} sim_common;

sim_common sim_common_defaults(void);

/** Takes one of SIM_EFFORT_OPTIONS; false if it is another. */
bool sim_common_take(sim_common *common, int option, const char *value);

/** What is wrong with them together, as a sentence, or the end of the program. */
void sim_common_check(const sim_common *common);

/** getopt_long(), with our sentences. -1 at the end. */
int sim_arg_next(int argc, char **argv, const struct option *options);

/** The commands; each returns an exit status. */
int sim_command_calls(int argc, char **argv);
int sim_command_bound(int argc, char **argv);
int sim_command_speed(int argc, char **argv);
int sim_command_http(int argc, char **argv);

#endif
