/* SPDX-License-Identifier: Apache-2.0 */
/* seven-sim http. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_args.h"

typedef struct plan {
    sim_common common;
    sim_http base;
    unsigned defences, balances; /* bits */
    sim_list places, servers, attacks, loads, reserves;
    double honest_share; /* 0: base.honest is given */
} plan;

static const char *const balance_names[] = {"rr", "lc"};

enum {
    STRATEGY = 1,
    PLACES,
    SERVERS,
    BALANCE,
    ATTACK,
    HONEST,
    HONEST_SHARE,
    LOAD,
    NEED,
    SPREAD,
    HANDLER,
    HOLD,
    ROUND,
    T_M,
    RESERVE,
    WARM_UP,
    COUNT,
    EMPTY,
    AS_2014
};

static const struct option options[] = {{"strategy", required_argument, NULL, STRATEGY},
                                        {"places", required_argument, NULL, PLACES},
                                        {"servers", required_argument, NULL, SERVERS},
                                        {"balance", required_argument, NULL, BALANCE},
                                        {"attack", required_argument, NULL, ATTACK},
                                        {"honest", required_argument, NULL, HONEST},
                                        {"honest-share", required_argument, NULL, HONEST_SHARE},
                                        {"load", required_argument, NULL, LOAD},
                                        {"need", required_argument, NULL, NEED},
                                        {"spread", required_argument, NULL, SPREAD},
                                        {"handler", required_argument, NULL, HANDLER},
                                        {"hold", required_argument, NULL, HOLD},
                                        {"round", required_argument, NULL, ROUND},
                                        {"t-m", required_argument, NULL, T_M},
                                        {"reserve", required_argument, NULL, RESERVE},
                                        {"warm-up", required_argument, NULL, WARM_UP},
                                        {"count", required_argument, NULL, COUNT},
                                        {"empty", no_argument, NULL, EMPTY},
                                        {"as-2014", no_argument, NULL, AS_2014},
                                        SIM_EFFORT_OPTIONS,
                                        {NULL, 0, NULL, 0}};

static sim_list one(double value)
{
    sim_list list = {.value = {value}, .count = 1};

    return list;
}

/* The 2014 model: a client is ready 0.2 after it came, and served at the round's end; an attacker
 * sends a little in time, so that it never times out. */
static void as_2014(plan *p)
{
    p->base.honest = 5;
    p->base.need_s = 0.2;
    p->base.spread = 0;
    p->base.handler_s = 0;
    p->base.round_s = 0.4;
    p->base.t_m_s = 0.4;
    p->base.warm_up_s = 0;
    p->base.count = 200;
    p->base.by_round = true;
    p->base.prefilled = false;
    p->places = one(12);
    p->attacks = one(7);
    p->reserves = one(0);
}

static void take_time(plan *p, int option, const char *value)
{
    sim_http *h = &p->base;

    switch (option) {
    case NEED:
        h->need_s = sim_arg_number("need", value, 1e-6, 1e4);
        break;
    case SPREAD:
        h->spread = sim_arg_number("spread", value, 0, 5);
        break;
    case HANDLER:
        h->handler_s = sim_arg_number("handler", value, 0, 1e4);
        break;
    case HOLD:
        h->hold_s = sim_arg_number("hold", value, 0, 1e6);
        break;
    case ROUND:
        h->round_s = sim_arg_number("round", value, 0.001, 86400);
        break;
    case T_M:
        h->t_m_s = strcmp(value, "auto") == 0 ? 0 : sim_arg_number("t-m", value, 0.001, 86400);
        break;
    default:
        h->warm_up_s = sim_arg_number("warm-up", value, 0, 1e6);
    }
}

static void take(plan *p, int option, const char *value)
{
    switch (option) {
    case STRATEGY:
        p->defences = sim_arg_names("strategy", value, sim_defence_names, SIM_DEFENCES);
        break;
    case PLACES:
        p->places = sim_arg_list("places", value, 1, SEVEN_MAX_PLACES);
        break;
    case SERVERS:
        p->servers = sim_arg_list("servers", value, 1, 1000);
        break;
    case BALANCE:
        p->balances = sim_arg_names("balance", value, balance_names, 2);
        break;
    case ATTACK:
        p->attacks = sim_arg_list("attack", value, 0, 1e8);
        p->loads.count = 0;
        break;
    case HONEST:
        p->base.honest = sim_arg_number("honest", value, 1e-3, 1e8);
        p->honest_share = 0;
        break;
    case HONEST_SHARE:
        p->honest_share = sim_arg_number("honest-share", value, 1e-6, 1);
        break;
    case LOAD:
        p->loads = sim_arg_list("load", value, 1e-6, 1e6);
        break;
    case RESERVE:
        p->reserves = sim_arg_list("reserve", value, 0, 0.5);
        break;
    case COUNT:
        p->base.count = (uint32_t)sim_arg_count("count", value, 1, 100000000);
        break;
    case EMPTY:
        p->base.prefilled = false;
        break;
    case AS_2014:
        as_2014(p);
        break;
    default:
        take_time(p, option, value);
    }
}

static void row(const plan *p, const sim_http *cell)
{
    sim_model model = sim_http_model(cell);
    const char *strategy = sim_defence_names[cell->defence];
    double load = (cell->honest + cell->attack) * cell->round_s / cell->places / cell->servers;
    sim_result r = sim_check(&model, cell, &p->common.effort, strategy);
    const char *format =
        p->common.csv
            ? "%s,%u,%s,%u,%.10g,%.10g,%.6g,%.6g,%.5f,%.5f,%.5f,%.5f,%.5f,%.5f,%.5f,%.5f,%u\n"
            : "%-10s %7u %2s %7u %9.5g %9.5g %8.4g %7.3g %7.4f +-%.4f %7.4f +-%.4f %7.4f +-%.4f "
              "%7.4f +-%.4f %5u\n";

    if (p->common.effort.progress) {
        fprintf(stderr, "\r\033[K");
    }
    printf(format, strategy, cell->servers, balance_names[cell->balance], cell->places,
           cell->honest, cell->attack, load, cell->reserve, r.mean[0], r.half[0], r.mean[1],
           r.half[1], r.mean[2], r.half[2], r.mean[3], r.half[3], r.runs);
    fflush(stdout);
}

/* Fills in the rates and does one cell. */
static void with_rates(const plan *p, sim_http cell, double attack_or_load)
{
    double all = (double)cell.places * cell.servers;

    if (p->loads.count > 0) { /* newcomers a round and place */
        double rate = attack_or_load * all / cell.round_s;

        cell.honest = p->honest_share > 0 ? rate * p->honest_share : cell.honest;
        cell.attack = rate - cell.honest;
        if (cell.attack < 0) {
            sim_fail(2, "--load %g leaves no room for %g honest clients a second.", attack_or_load,
                     cell.honest);
        }
    } else {
        cell.attack = attack_or_load;
        if (p->honest_share >= 1) {
            sim_fail(2, "--honest-share 1 leaves no room for --attack.");
        }
        if (p->honest_share > 0) {
            cell.honest = cell.attack * p->honest_share / (1 - p->honest_share);
        }
    }
    if (!(cell.honest > 0)) {
        sim_fail(2, "There are no honest clients to count: give --honest, or more --attack.");
    }
    row(p, &cell);
}

static void with_places(const plan *p, sim_http cell)
{
    const sim_list *rates = p->loads.count > 0 ? &p->loads : &p->attacks;

    for (int r = 0; r < p->reserves.count; r++) {
        for (int a = 0; a < rates->count; a++) {
            cell.reserve = p->reserves.value[r];
            with_rates(p, cell, rates->value[a]);
        }
    }
}

static void table(const plan *p)
{
    for (unsigned d = 0; d < SIM_DEFENCES; d++) {
        for (int s = 0; s < p->servers.count; s++) {
            for (unsigned b = 0; b < 2; b++) {
                for (int k = 0; k < p->places.count; k++) {
                    sim_http cell = p->base;

                    cell.defence = (enum sim_defence)d;
                    cell.servers = (uint32_t)p->servers.value[s];
                    cell.balance = (enum sim_balance)b;
                    cell.places = (uint32_t)p->places.value[k];
                    if (p->defences >> d & 1 && p->balances >> b & 1) {
                        with_places(p, cell);
                    }
                }
            }
        }
    }
}

int sim_command_http(int argc, char **argv)
{
    plan p = {.common = sim_common_defaults(),
              .defences = 1U << SIM_TOURNAMENT,
              .balances = 1,
              .servers = one(1)};
    int option;

    sim_http_defaults(&p.base);
    p.places = one(p.base.places);
    p.attacks = one(p.base.attack);
    p.reserves = one(p.base.reserve);
    p.common.effort.min_runs = 20;
    p.common.effort.max_runs = 1000;
    while ((option = sim_arg_next(argc, argv, options)) != -1) {
        if (!sim_common_take(&p.common, option, optarg)) {
            take(&p, option, optarg);
        }
    }
    sim_common_check(&p.common);
    if (p.common.csv) {
        printf("strategy,servers,balance,places,honest,attack,load,reserve,served,served_ci,cut,"
               "cut_ci,refused,refused_ci,seconds_to_service,seconds_to_service_ci,runs\n");
    } else {
        printf("%-10s %7s %2s %7s %9s %9s %8s %7s %16s %16s %16s %16s %5s\n", "strategy", "servers",
               "lb", "places", "honest/s", "attack/s", "load", "reserve", "served", "cut",
               "refused", "to service, s", "runs");
    }
    table(&p);
    return EXIT_SUCCESS;
}
