/* SPDX-License-Identifier: Apache-2.0 */
/* seven-sim: which command it is, and the help. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_args.h"

static const char help[] =
    "seven-sim simulates the strategy that mod_seven and seven-sip share, by their very code.\n"
    "\n"
    "  seven-sim [calls] [OPTIONS]     callers that never hang up, against a server of k lines\n"
    "  seven-sim --as-published        the same as the 2018 paper's public model has it, faults\n"
    "                                  included (rows as_coded), and with one draw a decision\n"
    "                                  (single_select)\n"
    "  seven-sim bound [OPTIONS]       oldest-first, beside the computed bound for policies that\n"
    "                                  know ages only\n"
    "  seven-sim http [OPTIONS]        slow clients, against httpds, one or many\n"
    "  seven-sim --speed               simulated calls a second on one core\n"
    "\n"
    "How much is done (every command):\n"
    "  --width 1%       run until half of each figure's 99 % interval is at most this share of it\n"
    "  --floor 0.001    ... or at most this\n"
    "  --min-runs 200   --max-runs 100000\n"
    "  --threads N      all cores unless given; the table does not depend on it\n"
    "  --seed 1         equal seeds, equal tables\n"
    "  --csv            comma-separated values, with the columns of the public model's table\n"
    "  --quiet          no line of progress (there is none anyway where stderr is no terminal)\n"
    "\n"
    "Calls and bound (times in seconds):\n"
    "  --strategy all   none, uniform, roulette, tournament, oldest; several with commas\n"
    "  --length all     exponential, lognormal_coded, lognormal_corrected\n"
    "  --share 17,33,50,67,83     attackers' share of the calls, %; these mean 1/6 ... 5/6\n"
    "  --rate 4.75      new calls a second, honest and attackers'\n"
    "  --places 24      k              --t-m 5          t_M, and the honest calls' mean\n"
    "  --round 0.1      T_S            --forward now    or round, or both: as seven-sip's\n"
    "  --delay 0.1      network        --ring 0.3       until the callee answers\n"
    "  --horizon 40     calls that begin before it count; --warm-up 0: and not before this\n"
    "  --drain          go on until all that count are decided; else those that talk are complete\n"
    "  --fixed          arrivals at equal intervals; else Poisson\n"
    "  --wide           CSV has how long cut calls lasted, too\n"
    "  --entrants N     of a tournament; k/2 unless given\n"
    "  --calls FILE     an experiment's calls instead of drawn ones, a line each and in order:\n"
    "                   load,begins_ms,lasts_ms, where lasts_ms is \"forever\" for an attacker's,\n"
    "                   and loads, numbered from 1, have an empty server each. Every run is of\n"
    "                   all loads; runs differ in what the strategy draws.\n"
    "  --as-published takes --strategy, --length, --share, --rate (4.75, 8.125, and 19: factor 2)\n"
    "  and --round (0.2).\n"
    "\n"
    "http (several values with commas give a line each):\n"
    "  --strategy tournament      as above\n"
    "  --places 180     of each server          --servers 1\n"
    "  --balance rr     or lc: round robin, least connections\n"
    "  --attack 300     new attack connections a second, in all\n"
    "  --honest 30      honest ones; or --honest-share: of all connections\n"
    "  --load L         instead of --attack: newcomers a round and place, (attack + honest) T_S/k\n"
    "  --need 0.02      mean time that an honest client keeps a worker waiting\n"
    "  --spread 0.5     sigma of its logarithm\n"
    "  --handler 0.005  then the server is at work for it\n"
    "  --hold 0         an attacker ends by itself after that long; 0: never\n"
    "  --round 0.1      T_S            --t-m auto       t_M: learned, or seconds\n"
    "  --reserve 5%     of the places; 0 is the published law alone\n"
    "  --warm-up 1      --count 2000   honest clients that count in each run,\n"
    "                   at least; for whole rounds\n"
    "  --empty          begin with free places; else attackers hold all\n"
    "  --as-2014        the 2014 model: 12 places, T_S 0.4, 7 attackers to 5 honest clients\n";

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*command)(int argc, char **argv);
    } commands[] = {{"calls", sim_command_calls},
                    {"bound", sim_command_bound},
                    {"http", sim_command_http},
                    {"--speed", sim_command_speed}};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            return EXIT_SUCCESS;
        }
    }
    for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].command(argc - 1, argv + 1);
        }
    }
    if (argc > 1 && argv[1][0] != '-') {
        sim_fail(2,
                 "There is no command \"%.40s\": it is calls, bound or http; see seven-sim --help.",
                 argv[1]);
    }
    return sim_command_calls(argc, argv);
}
