/* SPDX-License-Identifier: Apache-2.0 */
/**
 * seven-sim: discrete-event simulation of the strategy, and statistical model checking on top of
 * it.
 *
 *     sim_main.c       the command line               sim_calls.c      calls, on seven_core
 *     sim_check.c      how many runs are enough       sim_published.c  the public model
 *     sim_table.c      text and CSV                   sim_http.c       httpds, on seven_core
 *     sim_queue.h      event queues                   sim_random.h     what is drawn
 *
 * Conventions: times are seconds (a double named _s) or microseconds (an integer named _us); a
 * model's time unit is a second. Shares are from 0 to 1. A run depends on its cell and on its
 * generator's seed, and on nothing else.
 */
#ifndef SIM_H
#define SIM_H

#include "seven.h"

#define SIM_FIGURES 4
#define SIM_MAX_THREADS 256

/** What is measured in each run. NAN: this run says nothing about it. */
enum sim_figure {
    SIM_COMPLETE,     /* honest calls that ended, or still go on, as their callers meant */
    SIM_INCOMPLETE,   /* cut while talking */
    SIM_UNSUCCESSFUL, /* never connected */
    SIM_LASTED        /* seconds that a cut call had lasted; in sim_http.c, seconds to service */
};

/* ---- statistical model checking --------------------------------------------------------- */

/** How often to run, and on how many processors. */
typedef struct sim_effort {
    double width;      /* half of the 99 % interval is at most this share of its figure ... */
    double floor;      /* ... or at most this */
    uint32_t min_runs; /* at least 2 */
    uint32_t max_runs;
    uint32_t threads;
    uint64_t seed;
    bool progress; /* a line on a terminal */
} sim_effort;

/** Means over runs and half of their 99 % confidence intervals (normal approximation). */
typedef struct sim_result {
    double mean[SIM_FIGURES], half[SIM_FIGURES];
    uint32_t said[SIM_FIGURES]; /* how many runs had something to say of it */
    uint32_t runs;
    bool reached; /* the wanted width, before max_runs */
    double calls; /* simulated in all, honest and attackers' */
} sim_result;

/** A model: one run of a cell. Returns how many calls were simulated. */
typedef struct sim_model {
    uint64_t (*run)(const void *cell, seven_rng *rng, void *scratch, double *figures);
    size_t scratch; /* bytes that a thread needs, aligned to 64 */
} sim_model;

/**
 * Runs a cell until its figures are known well enough. Run number i has a seed made of the effort's
 * seed and i; runs are looked at in batches that depend on what was found and not on the threads,
 * so the result does not either. label is for the line of progress.
 */
sim_result sim_check(const sim_model *model, const void *cell, const sim_effort *effort,
                     const char *label);

/** What a run's generator is seeded with. */
uint64_t sim_seed(uint64_t seed, uint64_t run);

/** Ends the program with a sentence on stderr and exit status 2 (wrong input) or 1. */
_Noreturn void sim_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Memory for good, aligned to 64, or the end of the program. */
void *sim_claim(size_t size);

/* ---- telephone calls -------------------------------------------------------------------- */

enum sim_defence {
    SIM_NONE, /* whoever finds the places taken is refused */
    SIM_UNIFORM,
    SIM_ROULETTE,
    SIM_TOURNAMENT,
    SIM_OLDEST, /* the call in service longest is cut: the bound for policies that know ages only */
    SIM_DEFENCES
};

enum sim_lengths { SIM_EXPONENTIAL, SIM_LOGNORMAL_CODED, SIM_LOGNORMAL_CORRECTED, SIM_LENGTHS };

extern const char *const sim_defence_names[SIM_DEFENCES];
extern const char *const sim_length_names[SIM_LENGTHS];

#define SIM_SHARES 5
extern const char *const sim_share_names[SIM_SHARES]; /* 17, 33, 50, 67, 83 */
double sim_share(int share);                          /* 1/6, 1/3, 1/2, 2/3, 5/6 */

/** A call of a load that is given instead of drawn. */
typedef struct sim_call {
    uint64_t begins_us; /* in order */
    uint64_t lasts_us;  /* from the answer on; SIM_FOREVER: an attacker's */
} sim_call;

#define SIM_FOREVER UINT64_MAX

/** The calls of one experiment: of several loads, one after the other, each on a server of its own
 * that is empty as it begins. */
typedef struct sim_load {
    sim_call *calls;
    size_t *ends; /* of each load, one past its last call */
    uint32_t loads;
} sim_load;

/** Reads it from a file; see seven-sim --help. Ends the program with a sentence if anything is
 * wrong. What it returns is never freed. */
sim_load sim_load_read(const char *path);

/** A cell of the call attack: honest calls of mean t_m_s, attackers' that never end. */
typedef struct sim_calls {
    uint32_t places;
    uint32_t entrants; /* of a tournament; 0: k/2 */
    double rate;       /* new calls a second, honest and attackers' */
    double share;
    enum sim_defence defence;
    enum sim_lengths lengths;
    double t_m_s, round_s;
    double delay_s;   /* between a caller and the server, each way */
    double ring_s;    /* from the server's INVITE to the callee's answer */
    double horizon_s; /* calls that begin from warm_up_s on and before it count */
    double warm_up_s;
    bool by_round;        /* newcomers wait for the round's end, as published */
    bool fixed;           /* arrivals at equal intervals; else Poisson */
    bool drain;           /* go on until each call that counts is decided */
    bool no_gate;         /* P1 refuses nobody: each newcomer is the first of a round */
    const sim_load *load; /* these calls, in each run; NULL: they are drawn. Not with `fixed` */
} sim_calls;

void sim_calls_defaults(sim_calls *cell);
sim_model sim_calls_model(const sim_calls *cell);

/** The share of honest calls that oldest-first lets end, and the age at which it cuts: find L with
 * h * E[min(D, L)] + a * L = k; the share is P(D <= L). Refusals not counted. */
double sim_bound(const sim_calls *cell, double *age_s);

/* ---- the public model ------------------------------------------------------------------- */

/** A cell of the 2018 paper's public model. */
typedef struct sim_published {
    double scale; /* K: 190 or 325 */
    uint32_t factor;
    int share;
    enum sim_defence defence;
    enum sim_lengths lengths;
    double round_s;
    bool single; /* one draw a decision, where the public model has several */
} sim_published;

sim_model sim_published_model(void);

/* ---- httpds ----------------------------------------------------------------------------- */

enum sim_balance { SIM_ROUND_ROBIN, SIM_LEAST_CONNECTIONS };

/** A cell of the HTTP attack: servers of k places each, behind a balancer. */
typedef struct sim_http {
    uint32_t servers, places; /* places of each server */
    double honest, attack;    /* new connections a second, in all */
    enum sim_defence defence;
    enum sim_balance balance;
    double need_s;         /* mean time that an honest client keeps a worker waiting */
    double spread;         /* sigma of its logarithm; 0: always need_s */
    double handler_s;      /* then the server is at work for it (the clock stands) */
    double round_s, t_m_s; /* t_M 0: learned */
    double reserve;        /* share of the places kept free; 0: the published law alone */
    double hold_s;         /* an attacker ends by itself after that long; 0: never */
    double warm_up_s;
    uint32_t count; /* honest clients that count in each run, about */
    bool prefilled; /* the attackers hold every place as it begins */
    bool by_round;  /* served at the round's end, as in the 2014 model */
} sim_http;

void sim_http_defaults(sim_http *cell);
sim_model sim_http_model(const sim_http *cell);

/* ---- output ----------------------------------------------------------------------------- */

/** One line of a table. */
typedef struct sim_row {
    const char *model, *strategy, *lengths, *share;
    double rate;
} sim_row;

void sim_table_head(bool csv, bool wide);
void sim_table_row(bool csv, bool wide, const sim_row *row, const sim_result *result);
void sim_table_end(bool csv);

/** Takes that many bytes of a block, in whole cache lines; returns where they begin. */
static inline size_t part(size_t *offset, size_t size)
{
    size_t at = *offset;

    *offset += (size + 63) & ~(size_t)63;
    return at;
}

#endif
