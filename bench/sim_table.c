/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, as text and as CSV with the columns that the public model's figures have. */
#include <math.h>
#include <stdio.h>

#include "sim.h"

const char *const sim_defence_names[SIM_DEFENCES] = {"none", "uniform", "roulette", "tournament",
                                                     "oldest"};
const char *const sim_length_names[SIM_LENGTHS] = {"exponential", "lognormal_coded",
                                                   "lognormal_corrected"};
const char *const sim_share_names[SIM_SHARES] = {"17", "33", "50", "67", "83"};

double sim_share(int share)
{
    static const double shares[SIM_SHARES] = {1.0 / 6, 1.0 / 3, 1.0 / 2, 2.0 / 3, 5.0 / 6};

    return shares[share];
}

void sim_table_head(bool csv, bool wide)
{
    if (csv) {
        printf("model,rate_per_unit,strategy,duration,attacker_share,complete,complete_ci,"
               "incomplete,incomplete_ci,unsuccessful,unsuccessful_ci,runs%s\n",
               wide ? ",cut_after,cut_after_ci,width_reached" : "");
        return;
    }
    printf("%-14s %5s  %-10s  %-19s %3s   %-16s %-16s %-16s %-14s %7s\n", "model", "rate",
           "strategy", "call lengths", "att", "complete", "incomplete", "unsuccessful",
           "cut after, s", "runs");
}

static void figure(const sim_result *result, enum sim_figure f, int decimals, int width)
{
    char text[40];

    if (result->said[f] == 0) {
        snprintf(text, sizeof(text), "-");
    } else {
        snprintf(text, sizeof(text), "%.*f +-%.*f", decimals, result->mean[f], decimals,
                 result->half[f]);
    }
    printf(" %-*s", width, text);
}

static void csv_row(bool wide, const sim_row *row, const sim_result *result)
{
    printf("%s,%.10g,%s,%s,%s", row->model, row->rate, row->strategy, row->lengths, row->share);
    for (int f = SIM_COMPLETE; f <= SIM_UNSUCCESSFUL; f++) {
        printf(",%.4f,%.4f", result->mean[f], result->half[f]);
    }
    printf(",%u", result->runs);
    if (wide && result->said[SIM_LASTED] > 0) {
        printf(",%.3f,%.3f", result->mean[SIM_LASTED], result->half[SIM_LASTED]);
    } else if (wide) {
        printf(",,");
    }
    printf("%s\n", !wide ? "" : result->reached ? ",yes" : ",no");
}

void sim_table_row(bool csv, bool wide, const sim_row *row, const sim_result *result)
{
    if (csv) {
        csv_row(wide, row, result);
    } else {
        printf("%-14s %5.4g  %-10s  %-19s %3s  ", row->model, row->rate, row->strategy,
               row->lengths, row->share);
        figure(result, SIM_COMPLETE, 4, 16);
        figure(result, SIM_INCOMPLETE, 4, 16);
        figure(result, SIM_UNSUCCESSFUL, 4, 16);
        figure(result, SIM_LASTED, 2, 14);
        printf(" %7u%s\n", result->runs, result->reached ? "" : " *");
    }
    fflush(stdout);
}

void sim_table_end(bool csv)
{
    if (!csv) {
        printf("Shares of honest calls, means over runs, with half of their 99 %% confidence "
               "intervals; att: attackers' share of the calls, %%. * the wanted width was not "
               "reached.\n");
    }
}
