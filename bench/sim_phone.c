/* SPDX-License-Identifier: Apache-2.0 */
/* seven-sim's commands on telephone calls: calls, --as-published, bound and --speed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim_args.h"

/* Which cells there are to do. */
typedef struct plan {
    sim_common common;
    sim_calls base;
    unsigned defences, lengths, forwards; /* bits */
    sim_list shares, rates;
    bool published, wide, round_given;
    const char *drawn; /* an option about the calls to draw, if one was given */
    const char *calls; /* a file with an experiment's calls */
} plan;

static const char *const forward_names[] = {"now", "round"};

enum {
    STRATEGY = 1,
    LENGTH,
    SHARE,
    RATE,
    PLACES,
    T_M,
    ROUND,
    FORWARD,
    DELAY,
    RING,
    HORIZON,
    WARM_UP,
    DRAIN,
    FIXED,
    WIDE,
    ENTRANTS,
    CALLS,
    AS_PUBLISHED
};

static const struct option options[] = {{"strategy", required_argument, NULL, STRATEGY},
                                        {"length", required_argument, NULL, LENGTH},
                                        {"share", required_argument, NULL, SHARE},
                                        {"rate", required_argument, NULL, RATE},
                                        {"places", required_argument, NULL, PLACES},
                                        {"t-m", required_argument, NULL, T_M},
                                        {"round", required_argument, NULL, ROUND},
                                        {"forward", required_argument, NULL, FORWARD},
                                        {"delay", required_argument, NULL, DELAY},
                                        {"ring", required_argument, NULL, RING},
                                        {"horizon", required_argument, NULL, HORIZON},
                                        {"warm-up", required_argument, NULL, WARM_UP},
                                        {"drain", no_argument, NULL, DRAIN},
                                        {"fixed", no_argument, NULL, FIXED},
                                        {"wide", no_argument, NULL, WIDE},
                                        {"entrants", required_argument, NULL, ENTRANTS},
                                        {"calls", required_argument, NULL, CALLS},
                                        {"as-published", no_argument, NULL, AS_PUBLISHED},
                                        SIM_EFFORT_OPTIONS,
                                        {NULL, 0, NULL, 0}};

/* A share as it is written: 17 means 1/6. */
static double share_of(const char *text, double percent)
{
    for (int i = 0; i < SIM_SHARES; i++) {
        if (strcmp(text, sim_share_names[i]) == 0) {
            return sim_share(i);
        }
    }
    return percent / 100;
}

static void take(plan *p, int option, const char *value)
{
    sim_calls *c = &p->base;

    switch (option) {
    case STRATEGY:
        p->defences = sim_arg_names("strategy", value, sim_defence_names, SIM_DEFENCES);
        break;
    case LENGTH:
        p->drawn = "--length";
        p->lengths = sim_arg_names("length", value, sim_length_names, SIM_LENGTHS);
        break;
    case SHARE:
        p->drawn = "--share";
        p->shares = sim_arg_list("share", value, 0, 99);
        break;
    case RATE:
        p->drawn = "--rate";
        p->rates = sim_arg_list("rate", value, 1e-3, 1e7);
        break;
    case PLACES:
        c->places = (uint32_t)sim_arg_count("places", value, 1, SEVEN_MAX_PLACES);
        break;
    case T_M:
        c->t_m_s = sim_arg_number("t-m", value, 0.001, 86400);
        break;
    case ROUND:
        c->round_s = sim_arg_number("round", value, 0.001, 86400);
        p->round_given = true;
        break;
    case FORWARD:
        p->forwards =
            strcmp(value, "both") == 0 ? 3 : sim_arg_names("forward", value, forward_names, 2);
        break;
    case DELAY:
        c->delay_s = sim_arg_number("delay", value, 0, 1000);
        break;
    case RING:
        c->ring_s = sim_arg_number("ring", value, 0, 1000);
        break;
    case HORIZON:
        c->horizon_s = sim_arg_number("horizon", value, 0.1, 1e6);
        break;
    case WARM_UP:
        c->warm_up_s = sim_arg_number("warm-up", value, 0, 1e6);
        break;
    case DRAIN:
        c->drain = true;
        break;
    case FIXED:
        p->drawn = "--fixed";
        c->fixed = true;
        break;
    case WIDE:
        p->wide = true;
        break;
    case ENTRANTS:
        c->entrants = (uint32_t)sim_arg_count("entrants", value, 1, SEVEN_MAX_PLACES);
        break;
    case CALLS:
        p->calls = value;
        break;
    default:
        p->published = true;
    }
}

/* Text of one number, as a list. */
static sim_list list_of(const char *option, const char *text)
{
    return sim_arg_list(option, text, 0, 1e9);
}

static plan plan_of(int argc, char **argv, plan p)
{
    int option;

    while ((option = sim_arg_next(argc, argv, options)) != -1) {
        if (!sim_common_take(&p.common, option, optarg)) {
            take(&p, option, optarg);
        }
    }
    sim_common_check(&p.common);
    if (p.base.warm_up_s >= p.base.horizon_s) {
        sim_fail(2,
                 "--warm-up is %g s, not less than --horizon, which is %g s: no call would count.",
                 p.base.warm_up_s, p.base.horizon_s);
    }
    if (p.base.entrants > p.base.places) {
        sim_fail(2, "--entrants is %u, more than --places, which is %u.", p.base.entrants,
                 p.base.places);
    }
    if (p.base.entrants > 0 && (p.published || !(p.defences >> SIM_TOURNAMENT & 1))) {
        sim_fail(2, "--entrants is for our own tournaments: %s.",
                 p.published ? "the public model has k/2" : "--strategy names none");
    }
    if (p.calls != NULL && (p.drawn != NULL || p.published)) {
        sim_fail(2, "%s has no meaning where --calls says what calls there are.",
                 p.drawn != NULL ? p.drawn : "--as-published");
    }
    return p;
}

static plan plan_defaults(void)
{
    plan p = {.common = sim_common_defaults(),
              .defences = (1U << SIM_DEFENCES) - 1,
              .lengths = (1U << SIM_LENGTHS) - 1,
              .forwards = 1,
              .shares = list_of("share", "17,33,50,67,83"),
              .rates = list_of("rate", "4.75")};

    sim_calls_defaults(&p.base);
    return p;
}

static void progress_end(const plan *p)
{
    if (p->common.effort.progress) {
        fprintf(stderr, "\r\033[K");
    }
}

static void one_cell(const plan *p, const sim_model *model, const void *cell, const sim_row *row)
{
    char label[120];
    sim_result result;

    snprintf(label, sizeof(label), "%s %s %s %s%%", row->model, row->strategy, row->lengths,
             row->share);
    result = sim_check(model, cell, &p->common.effort, label);
    progress_end(p);
    sim_table_row(p->common.csv, p->wide, row, &result);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void calls_cell(const plan *p, const sim_calls *cell, const char *lengths, const char *share)
{
    sim_row row = {.model = cell->by_round ? "seven_round" : "seven_now",
                   .strategy = sim_defence_names[cell->defence],
                   .lengths = lengths,
                   .share = share,
                   .rate = cell->rate};
    sim_model model = sim_calls_model(cell);

    one_cell(p, &model, cell, &row);
}

static void calls_cells(const plan *p, sim_calls cell)
{
    if (cell.load != NULL) {
        calls_cell(p, &cell, "given", "given");
        return;
    }
    for (unsigned l = 0; l < SIM_LENGTHS; l++) {
        for (int i = 0; p->lengths >> l & 1 && i < p->shares.count; i++) {
            cell.lengths = (enum sim_lengths)l;
            cell.share = share_of(p->shares.text[i], p->shares.value[i]);
            calls_cell(p, &cell, sim_length_names[l], p->shares.text[i]);
        }
    }
}

static void calls_table(const plan *p)
{
    for (unsigned f = 0; f < 2; f++) {
        for (int r = 0; r < p->rates.count; r++) {
            for (unsigned d = 0; d < SIM_DEFENCES; d++) {
                sim_calls cell = p->base;

                cell.by_round = f == 1;
                cell.rate = p->rates.value[r];
                cell.defence = (enum sim_defence)d;
                if (p->forwards >> f & 1 && p->defences >> d & 1) {
                    calls_cells(p, cell);
                }
            }
        }
    }
}

/* New calls a second, in all loads together. */
static double rate_of(const sim_load *load)
{
    double seconds = 0;

    for (uint32_t i = 0; i < load->loads; i++) {
        seconds += (double)load->calls[load->ends[i] - 1].begins_us / 1e6;
    }
    return seconds > 0 ? (double)load->ends[load->loads - 1] / seconds : 0;
}

/* ---- the public model ----------------------------------------------------------------------- */

static int named_share(const char *text)
{
    for (int i = 0; i < SIM_SHARES; i++) {
        if (strcmp(text, sim_share_names[i]) == 0) {
            return i;
        }
    }
    sim_fail(2, "--share with --as-published is one of 17, 33, 50, 67 and 83, not \"%s\".", text);
}

static const char *published_name(const sim_published *cell)
{
    if (cell->single) {
        return "single_select";
    }
    if (cell->factor == 2) {
        return "as_coded_factor2";
    }
    return cell->round_s < 0.2 ? "as_coded_Ts0.1" : "as_coded";
}

static void published_cells(const plan *p, sim_published cell, double rate)
{
    sim_model model = sim_published_model();

    for (int i = 0; i < p->shares.count; i++) {
        sim_row row = {.model = published_name(&cell),
                       .strategy = sim_defence_names[cell.defence],
                       .lengths = sim_length_names[cell.lengths],
                       .share = p->shares.text[i],
                       .rate = rate};

        cell.share = named_share(p->shares.text[i]);
        one_cell(p, &model, &cell, &row);
    }
}

/* A rate with the public model's K and factor. */
static sim_published published_of(const plan *p, double rate)
{
    sim_published cell = {.factor = 1, .round_s = p->base.round_s};

    if (rate == 4.75) {
        cell.scale = 190;
    } else if (rate == 8.125) {
        cell.scale = 325;
    } else if (rate == 19) {
        cell.scale = 190;
        cell.factor = 2;
    } else {
        sim_fail(2, "--rate with --as-published is 4.75, 8.125 or 19, not %g.", rate);
    }
    return cell;
}

static void published_table(const plan *p)
{
    for (int single = 0; single < 2; single++) {
        for (int r = 0; r < p->rates.count; r++) {
            for (unsigned d = 0; d <= SIM_TOURNAMENT; d++) {
                for (unsigned l = 0; l < SIM_LENGTHS; l++) {
                    sim_published cell = published_of(p, p->rates.value[r]);

                    cell.single = single;
                    cell.defence = (enum sim_defence)d;
                    cell.lengths = (enum sim_lengths)l;
                    if (p->defences >> d & 1 && p->lengths >> l & 1 &&
                        (!single || (d != SIM_NONE && p->rates.value[r] == 4.75))) {
                        published_cells(p, cell, cell.factor == 2 ? 4.75 : p->rates.value[r]);
                    }
                }
            }
        }
    }
}

int sim_command_calls(int argc, char **argv)
{
    plan p = plan_defaults();
    bool both_rates = true;
    sim_load load;

    for (int i = 1; i < argc; i++) {
        both_rates &= strncmp(argv[i], "--rate", 6) != 0;
    }
    p = plan_of(argc, argv, p);
    if (p.published && both_rates) {
        p.rates = list_of("rate", "4.75,8.125");
    }
    if (p.published && !p.round_given) {
        p.base.round_s = 0.2;
    }
    if (p.published && p.defences == 1U << SIM_OLDEST) {
        sim_fail(2, "--as-published has no strategy oldest: the public model does not know it.");
    }
    if (p.calls != NULL) {
        load = sim_load_read(p.calls);
        p.base.load = &load;
        p.rates.value[0] = rate_of(&load);
    }
    sim_table_head(p.common.csv, p.wide);
    if (p.published) {
        published_table(&p);
    } else {
        calls_table(&p);
    }
    sim_table_end(p.common.csv);
    return EXIT_SUCCESS;
}

/* ---- the bound ------------------------------------------------------------------------------ */

static void bound_row(const plan *p, const sim_calls *cell, const char *share)
{
    sim_model model = sim_calls_model(cell);
    const char *lengths = sim_length_names[cell->lengths];
    sim_result result = sim_check(&model, cell, &p->common.effort, lengths);
    double age, bound = sim_bound(cell, &age), off = result.mean[SIM_COMPLETE] - bound;

    progress_end(p);
    if (p->common.csv) {
        printf("%s,%s,%u,%.2f,%.4f,%.4f,%.4f,%.4f,%u\n", lengths, share, cell->places, age, bound,
               result.mean[SIM_COMPLETE], result.half[SIM_COMPLETE], off, result.runs);
    } else {
        printf("%-19s %3s %7u %8.2f %8.4f %8.4f +-%.4f %+8.2f %7u\n", lengths, share, cell->places,
               age, bound, result.mean[SIM_COMPLETE], result.half[SIM_COMPLETE], 100 * off,
               result.runs);
    }
    fflush(stdout);
}

/* The bound's own conditions: nothing but holding a place takes time, and nobody is refused. It
 * takes places as a fluid, so it is met where they are many; the rate grows with them. */
int sim_command_bound(int argc, char **argv)
{
    plan p = plan_defaults();
    double load;

    load = p.rates.value[0] / p.base.places;
    p.lengths = 1U << SIM_EXPONENTIAL | 1U << SIM_LOGNORMAL_CORRECTED;
    p.base = (sim_calls){.places = 2400,
                         .t_m_s = 5,
                         .horizon_s = 60,
                         .warm_up_s = 40,
                         .defence = SIM_OLDEST,
                         .drain = true,
                         .no_gate = true};
    p.common.effort.floor = 0.002;
    p.common.effort.width = 0.002;
    p.common.effort.min_runs = 16;
    p = plan_of(argc, argv, p);
    if (p.calls != NULL || p.base.entrants > 0) {
        sim_fail(2, "bound takes no --%s: it is about oldest-first and drawn calls.",
                 p.calls != NULL ? "calls" : "entrants");
    }
    p.base.rate = load * p.base.places;
    if (p.common.csv) {
        printf("call_lengths,attackers_share,places,oldest_first_cut_age,honest_complete_bound,"
               "complete,complete_ci,difference,runs\n");
    } else {
        printf("%-19s %3s %7s %8s %8s %17s %8s %7s\n", "call lengths", "att", "places", "cut age",
               "bound", "simulated", "off, pp", "runs");
    }
    for (unsigned l = 0; l < SIM_LENGTHS; l++) {
        for (int i = 0; p.lengths >> l & 1 && i < p.shares.count; i++) {
            p.base.lengths = (enum sim_lengths)l;
            p.base.share = share_of(p.shares.text[i], p.shares.value[i]);
            bound_row(&p, &p.base, p.shares.text[i]);
        }
    }
    return EXIT_SUCCESS;
}

/* ---- speed ---------------------------------------------------------------------------------- */

static double processor_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The best of a few tries: others' work on the machine makes one slower, never faster. */
static void speed_row(const char *name, const sim_model *model, const void *cell)
{
    sim_effort effort = {.min_runs = 4000, .max_runs = 4000, .threads = 1, .seed = 1};
    double best = 0, per_run = 0;

    for (int i = 0; i < 5; i++) {
        double began = processor_s(), took;
        sim_result result = sim_check(model, cell, &effort, name);

        took = processor_s() - began;
        if (result.calls / took > best) {
            best = result.calls / took;
            per_run = took / result.runs;
        }
    }
    printf("%-28s %9.2f %12.1f\n", name, best / 1e6, per_run * 1e6);
    fflush(stdout);
}

int sim_command_speed(int argc, char **argv)
{
    sim_model published = sim_published_model();
    sim_published as_coded = {.scale = 325, .factor = 1, .share = 2, .round_s = 0.2};
    sim_calls cell;
    char name[40];

    if (argc > 1) {
        sim_fail(2, "--speed takes no other option, such as \"%.40s\".", argv[1]);
    }
    printf("One core, 50 %% attackers, exponential lengths.\n%-28s %9s %12s\n", "", "M calls/s",
           "us a run");
    for (unsigned d = 0; d < SIM_DEFENCES; d++) {
        sim_model model;

        sim_calls_defaults(&cell);
        cell.defence = (enum sim_defence)d;
        model = sim_calls_model(&cell);
        snprintf(name, sizeof(name), "seven_core, %s", sim_defence_names[d]);
        speed_row(name, &model, &cell);
    }
    for (unsigned d = 0; d <= SIM_TOURNAMENT; d++) {
        as_coded.defence = (enum sim_defence)d;
        snprintf(name, sizeof(name), "as published, K=325, %s", sim_defence_names[d]);
        speed_row(name, &published, &as_coded);
    }
    return EXIT_SUCCESS;
}
