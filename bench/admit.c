/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a decision costs in a full pool as k grows: seven_admit() for each strategy, in states that
 * include the worst ones. Growth from k = 10^3 to 10^6 has to be no more than fourfold.
 *
 * Each decision is the first of its round (time goes on by T_S each), so P1 lets every one in and
 * each draws a victim. A decision changes the pool, so after k/20 at most the block is put back as
 * it was, from a copy, and only decisions are timed. The one holder that is drawn before all others
 * is put back after each decision, somewhere else. T_M is an hour, so that the time that passes
 * does not change the state. A figure is the median of REPEATS rounds, in which all k take turns,
 * of this thread's processor time: another's turns do not count, though what it does to the caches
 * does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

#define REPEATS 7
#define DECISIONS 20000U /* in each repetition */
#define HOUR_US UINT64_C(3600000000)
#define T0 (1000 * HOUR_US)
#define ROUND_US 1000
#define TARGET 4.0

static const uint32_t sizes[] = {1000, 10000, 100000, 1000000};
#define SIZES 4

enum state { SPREAD, TIED, ONE_OLD, YOUNG, HALF_WAITING, HALF_BUSY, ONE_NOT_BUSY, STATES };

static const char *const state_names[] = {"ages spread to 4 t_M",
                                          "all tied and overdue",
                                          "one very old, the rest young",
                                          "all young",
                                          "half waiting",
                                          "half busy",
                                          "all busy but one"};

typedef struct strategy {
    const char *name;
    enum seven_strategy strategy;
    uint32_t entrants, divisor; /* n, or else n = k / divisor */
} strategy;

static const strategy strategies[] = {{"uniform", SEVEN_UNIFORM, 1, 0},
                                      {"roulette", SEVEN_ROULETTE, 1, 0},
                                      {"tournament k/2", SEVEN_TOURNAMENT, 0, 2},
                                      {"tournament 2", SEVEN_TOURNAMENT, 2, 0},
                                      {"tournament k", SEVEN_TOURNAMENT, 0, 1}};
#define STRATEGIES 5

/* A pool in a state, and what puts it back. */
typedef struct bench {
    seven_pool *pool;
    void *saved;
    size_t size;
    enum state state;
    uint32_t k;
    uint64_t now;
    seven_rng rng;
} bench;

static uint64_t nanoseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *claim(size_t size)
{
    void *block = aligned_alloc(64, size);

    if (block == NULL) {
        perror("bench");
        exit(EXIT_FAILURE);
    }
    return block;
}

/* ---- states ----------------------------------------------------------------------------- */

/* The word of a place, in that state at time T0. */
static uint64_t word_of(enum state state, uint32_t slot, uint32_t k, seven_rng *rng)
{
    int64_t t_m = ticks(HOUR_US), age = (int64_t)seven_below(rng, 4 * (uint64_t)t_m);
    int64_t young = age / 5, now = ticks(T0);
    uint64_t busy = word_make(1, SEVEN_BUSY, age + BUSY_BIAS);

    switch (state) {
    case SPREAD:
        return word_make(1, SEVEN_SERVED, now - age);
    case TIED:
        return word_make(1, SEVEN_SERVED, now - 2 * t_m);
    case ONE_OLD:
        return word_make(1, SEVEN_SERVED, now - (slot == k / 2 ? 100 * t_m : young));
    case YOUNG:
        return word_make(1, SEVEN_SERVED, now - young);
    case HALF_WAITING:
        return word_make(1, slot % 2 ? SEVEN_WAITING : SEVEN_SERVED, now - age);
    case HALF_BUSY:
        return slot % 2 ? busy : word_make(1, SEVEN_SERVED, now - age);
    case ONE_NOT_BUSY:
    case STATES:
        break;
    }
    return slot == k / 2 ? word_make(1, SEVEN_SERVED, now - age) : busy;
}

static seven_policy policy_of(const strategy *s, uint32_t k)
{
    seven_policy policy;

    seven_policy_defaults(&policy, k);
    policy.strategy = s->strategy;
    policy.tournament = s->divisor ? k / s->divisor : s->entrants;
    policy.t_m_us = HOUR_US;
    policy.round_us = ROUND_US;
    policy.admit_as = SEVEN_SERVED;
    return policy;
}

static bench bench_make(const strategy *s, enum state state, uint32_t k)
{
    seven_policy policy = policy_of(s, k);
    bench b = {.state = state, .k = k, .now = T0, .size = seven_size(&policy)};

    if (seven_policy_error(&policy) != NULL) {
        fprintf(stderr, "bench: %s\n", seven_policy_error(&policy));
        exit(EXIT_FAILURE);
    }
    seven_seed(&b.rng, k);
    b.pool = seven_init(claim(b.size), &policy);
    for (uint32_t i = 0; i < k; i++) {
        atomic_store(&b.pool->words[i], word_of(state, i, k, &b.rng));
    }
    seven_repair(b.pool);
    b.saved = claim(b.size);
    memcpy(b.saved, (void *)b.pool, b.size);
    return b;
}

static void bench_end(bench *b)
{
    free(b->pool);
    free(b->saved);
}

/* ---- measuring -------------------------------------------------------------------------- */

/* True if a single decision is likely to use the state up. */
static bool worn_by_one(const bench *b)
{
    const seven_policy *p = seven_pool_policy(b->pool);
    bool by_age = p->strategy == SEVEN_ROULETTE ||
                  (p->strategy == SEVEN_TOURNAMENT && p->tournament >= b->k / 2);

    return b->state == ONE_NOT_BUSY || (b->state == ONE_OLD && by_age);
}

/* Nanoseconds that count decisions in a row take. */
static uint64_t decide(bench *b, uint32_t count)
{
    uint64_t begin = nanoseconds();
    uint32_t failed = 0;
    seven_ticket t;

    for (uint32_t i = 0; i < count; i++) {
        b->now += ROUND_US;
        failed += seven_admit(b->pool, &b->rng, b->now, &t) != SEVEN_REPLACED;
    }
    if (failed > 0) {
        fprintf(stderr, "bench: %u newcomers were not let in\n", failed);
        exit(EXIT_FAILURE);
    }
    return nanoseconds() - begin;
}

static void put_back(bench *b)
{
    memcpy((void *)b->pool, b->saved, b->size);
    b->now = T0;
}

/* Makes a place what the special one was, and what was special what the others are. */
static void move_special(bench *b, uint32_t *special)
{
    uint64_t other = word_of(b->state, 0, b->k, &b->rng);

    atomic_store(&b->pool->words[*special], other);
    summarise(b->pool, *special);
    *special = (uint32_t)seven_below(&b->rng, b->k);
    atomic_store(&b->pool->words[*special], word_of(b->state, b->k / 2, b->k, &b->rng));
    summarise(b->pool, *special);
}

/* What reading the clock twice takes. */
static double clock_cost(void)
{
    uint64_t sum = 0;

    for (int i = 0; i < 10000; i++) {
        uint64_t begin = nanoseconds();
        sum += nanoseconds() - begin;
    }
    return (double)sum / 10000;
}

/* One decision at a time, with the state made anew between them. */
static double measure_singly(bench *b)
{
    uint32_t special = b->k / 2, count = DECISIONS / 4;
    uint64_t sum = 0;

    put_back(b);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t before = atomic_load(&b->pool->words[special]);

        sum += decide(b, 1);
        if (atomic_load(&b->pool->words[special]) != before || i % 8 == 0) {
            move_special(b, &special);
        }
        if (i % (b->k / 20) == 0) {
            put_back(b);
            special = b->k / 2;
        }
    }
    return (double)sum / count - clock_cost();
}

/* Nanoseconds a decision. */
static double measure(bench *b)
{
    uint32_t batch = b->k / 20 < DECISIONS ? b->k / 20 : DECISIONS, done = 0;
    uint64_t sum = 0;

    if (worn_by_one(b)) {
        return measure_singly(b);
    }
    for (; done < DECISIONS; done += batch) {
        put_back(b);
        sum += decide(b, batch);
    }
    return (double)sum / done;
}

/* Newcomers who find a place, and leave, in a pool half empty. */
static double measure_quiet(bench *b)
{
    uint64_t begin;
    seven_ticket t;

    put_back(b);
    for (uint32_t i = 0; i < b->k; i += 2) {
        seven_holder(b->pool, i, &t);
        seven_leave(b->pool, t);
    }
    begin = nanoseconds();
    for (uint32_t i = 0; i < DECISIONS; i++) {
        if (seven_admit(b->pool, &b->rng, b->now, &t) != SEVEN_ADMITTED ||
            !seven_leave(b->pool, t)) {
            fprintf(stderr, "bench: no free place in a pool half empty\n");
            exit(EXIT_FAILURE);
        }
    }
    return (double)(nanoseconds() - begin) / DECISIONS;
}

/* The same decision by looking at every place. */
static double measure_scan(bench *b)
{
    const seven_policy *p = seven_pool_policy(b->pool);
    uint32_t count = b->k < 100000 ? 2000 : 20;
    uint64_t begin = nanoseconds();
    volatile uint32_t victim = 0;

    for (uint32_t i = 0; i < count; i++) {
        double total = 0;

        for (uint32_t slot = 0; slot < b->k; slot++) {
            uint64_t word = place_load(b->pool, slot);
            double d = drop_factor(p, (double)ticks(p->t_m_us), word_state(word),
                                   ticks(T0) - word_start(word));

            total += d;
            if (seven_unit(&b->rng) * total < d) {
                victim = slot;
            }
        }
    }
    (void)victim;
    return (double)(nanoseconds() - begin) / count;
}

/* ---- the table -------------------------------------------------------------------------- */

static FILE *csv;
static uint32_t failures;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_row(const char *name, const char *state, const double *ns, bool judged)
{
    double growth = ns[SIZES - 1] / ns[0];
    const char *verdict = !judged ? "" : growth <= TARGET ? "PASS" : "FAIL";

    failures += judged && growth > TARGET;
    printf("%-15s %-29s", name, state);
    for (int i = 0; i < SIZES; i++) {
        printf(" %11.0f", ns[i]);
    }
    printf(" %8.2f  %s%s\n", growth, judged ? "<= 4.0  " : "", verdict);
    fflush(stdout);
    if (csv != NULL) {
        fprintf(csv, "%s,%s,%.1f,%.1f,%.1f,%.1f,%.3f,%s\n", name, state, ns[0], ns[1], ns[2], ns[3],
                growth, verdict);
    }
}

static void run(const strategy *s, const char *name, enum state state, const char *state_name,
                double (*measured)(bench *), bool judged)
{
    double ns[SIZES][REPEATS], median[SIZES];
    bench b[SIZES];

    for (int i = 0; i < SIZES; i++) {
        b[i] = bench_make(s, state, sizes[i]);
    }
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int i = 0; i < SIZES; i++) {
            ns[i][repeat] = measured(&b[i]);
        }
    }
    for (int i = 0; i < SIZES; i++) {
        qsort(ns[i], REPEATS, sizeof(ns[i][0]), by_size);
        median[i] = ns[i][REPEATS / 2];
        bench_end(&b[i]);
    }
    print_row(name, state_name, median, judged);
}

static void print_head(void)
{
    printf("seven_admit in a full pool, nanoseconds a decision; each is let in (one a round)\n");
    printf("%-15s %-29s %11s %11s %11s %11s %8s\n", "strategy", "state", "k = 10^3", "10^4", "10^5",
           "10^6", "growth");
    if (csv != NULL) {
        fprintf(csv, "strategy,state,ns_1e3,ns_1e4,ns_1e5,ns_1e6,growth,verdict\n");
    }
}

static void run_all(void)
{
    for (int s = 0; s < STRATEGIES; s++) {
        for (int state = 0; state < STATES; state++) {
            run(&strategies[s], strategies[s].name, (enum state)state, state_names[state], measure,
                true);
        }
    }
    run(&strategies[1], "(a scan)", SPREAD, state_names[SPREAD], measure_scan, false);
    run(&strategies[1], "admit and leave", SPREAD, "half empty", measure_quiet, false);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--csv") == 0) {
        csv = fopen(argv[2], "w");
    }
    if (argc != 1 && csv == NULL) {
        fprintf(stderr, "usage: %s [--csv FILE]\n", argv[0]);
        return EXIT_FAILURE;
    }
    print_head();
    run_all();
    printf("%u of %d grow more than fourfold\n", failures, STRATEGIES * STATES);
    if (csv != NULL && fclose(csv) != 0) {
        perror(argv[2]);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
