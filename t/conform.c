/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the core over sequences of operations drawn by lot, and writes each with its decisions as a
 * question to the formal model (t/model/conform.maude, which says how it is written): what would
 * you have decided?
 *
 *     conform SEED COUNT
 *
 * Small pools, all strategies, many odd parameters; times at the edges of rounds and of t_M, far
 * ahead, and a little back. t_M is fixed. Half of what holders do is done by those who have lost.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { MAX_K = 60, MAX_OPS = 240, OWNERS = 4, RECORD = 21, MAX_TEXT = 48 };

typedef struct sequence {
    seven_pool *pool;
    seven_rng *lot, rng; /* what this program draws by; what the core does */
    uint64_t now;
    seven_ticket tickets[MAX_OPS];
    uint32_t given, ops;
    char asked[MAX_OPS * RECORD + 1], said[MAX_OPS * MAX_TEXT + MAX_K * 24 + 64];
    size_t length; /* of said */
} sequence;

static uint64_t below(sequence *s, uint64_t n)
{
    return seven_below(s->lot, n);
}

static uint64_t one_of(sequence *s, const uint64_t *values, size_t count)
{
    return values[below(s, count)];
}

/* ---- parameters ------------------------------------------------------------------------- */

static uint32_t draw_k(sequence *s)
{
    uint64_t kind = below(s, 100);

    return (uint32_t)(kind < 54   ? 1 + below(s, 6)
                      : kind < 76 ? 7 + below(s, 6)
                      : kind < 86 ? 13 + below(s, 4)
                      : kind < 91 ? 17 + below(s, FEW_PLACES - 16)
                                  : FEW_PLACES + 1 + below(s, MAX_K - FEW_PLACES));
}

static void draw_drop_factor(sequence *s, seven_policy *p)
{
    static const double d[][4] = {
        {8, 2, 1.89, 0.453}, {8, 2, 1.89, 0.453}, {2, 8, 1.89, 0.453}, {5, 5, 1.89, 0.453},
        {8, 2, 20, 0.453},   {8, 0.02, 0.5, 0.1}, {1, 3, 5, 1e-6},     {0.7, 0.3, 0.001, 900},
    };
    uint64_t i = below(s, sizeof(d) / sizeof(d[0]));

    p->p_wait = d[i][0];
    p->p_in = d[i][1];
    p->alpha = d[i][2];
    p->scale = d[i][3];
    p->p_wait += below(s, 4) == 0 ? seven_unit(s->lot) : 0;
}

static void draw_policy(sequence *s, seven_policy *p)
{
    static const uint64_t rounds[] = {1000, 1024, 2560, 100000, 100000, 123457};
    static const uint64_t t_ms[] = {1000, 1024, 10000, 10240, 300001, 5000000};
    static const uint64_t credits[] = {0, 100000, 2000000};
    uint32_t k;

    do {
        k = draw_k(s);
        seven_policy_defaults(p, k);
        draw_drop_factor(s, p);
    } while (seven_policy_error(p) != NULL);
    p->strategy = (enum seven_strategy)below(s, 3);
    if (below(s, 4) == 0) {
        p->strategy = SEVEN_TOURNAMENT;
    }
    if (k > FEW_PLACES && below(s, 2)) {
        p->strategy = SEVEN_ROULETTE; /* with weights */
    }
    p->tournament = below(s, 3) == 0 ? 0 : (uint32_t)(1 + below(s, k));
    if (below(s, 6) == 0) {
        p->tournament = below(s, 2) ? 1 : k;
    }
    if (k > 16 && below(s, 2)) {
        p->tournament = (uint32_t)(1 + below(s, 3));
    }
    p->round_us = one_of(s, rounds, sizeof(rounds) / sizeof(rounds[0]));
    p->t_m_us = one_of(s, t_ms, sizeof(t_ms) / sizeof(t_ms[0]));
    p->credit_us = one_of(s, credits, sizeof(credits) / sizeof(credits[0]));
    p->admit_as = below(s, 2) ? SEVEN_WAITING : SEVEN_SERVED;
}

/* ---- time ------------------------------------------------------------------------------- */

/* Moves the clock: not at all, a little, to an edge, far, or back. */
static void move_clock(sequence *s)
{
    const seven_policy *p = seven_pool_policy(s->pool);
    uint64_t word, round = p->round_us, t_m = p->t_m_us, kind = below(s, 20);
    uint64_t to_round = round - s->now % round;

    if (kind < 7) {
        return;
    }
    if (kind < 11) {
        s->now += below(s, round / 4);
    } else if (kind < 13) {
        s->now += to_round - below(s, 2); /* the last of this round, or the first of the next */
    } else if (kind < 16) {
        /* A holder's last tick that is not past t_M, or its first that is. */
        word = place_load(s->pool, (uint32_t)below(s, p->places));
        if (word_state(word) == SEVEN_SERVED) {
            int64_t tick = word_start(word) + ticks(t_m) + (int64_t)below(s, 2);

            s->now = (uint64_t)tick * SEVEN_TICK_US + below(s, SEVEN_TICK_US);
        }
    } else if (kind < 18) {
        s->now += below(s, 2 * t_m);
    } else if (kind < 19) {
        s->now += below(s, 8) * t_m * (below(s, 8) == 0 ? 100 : 1);
    } else {
        uint64_t back = below(s, 2 * round);

        s->now -= back < s->now ? back : 0;
    }
}

/* ---- operations ------------------------------------------------------------------------- */

static void say(sequence *s, const char *what, uint64_t a, bool with_b, uint64_t b)
{
    s->length += (size_t)snprintf(s->said + s->length, sizeof(s->said) - s->length,
                                  with_b ? "%s%" PRIu64 "#%" PRIu64 : "%s%" PRIu64, what, a, b);
}

static void say_only(sequence *s, const char *what)
{
    s->length += (size_t)snprintf(s->said + s->length, sizeof(s->said) - s->length, "%s", what);
}

/* Which ticket, counted back from the latest; for the most part one that still holds. */
static uint32_t draw_ticket(sequence *s)
{
    uint32_t i = s->given > 0 ? (uint32_t)below(s, s->given) : 0;

    for (uint32_t tries = 0; s->given > 0 && tries < 4 && below(s, 4) > 0; tries++) {
        if (seven_holds(s->pool, s->tickets[s->given - 1 - i])) {
            break;
        }
        i = (uint32_t)below(s, s->given);
    }
    return i;
}

static bool gone(const void *context, uint32_t owner)
{
    return *(const uint64_t *)context >> owner & 1;
}

static void admit(sequence *s)
{
    seven_ticket t;

    switch (seven_admit(s->pool, &s->rng, s->now, &t)) {
    case SEVEN_REFUSED:
        say_only(s, "R");
        return;
    case SEVEN_ADMITTED:
        say(s, "A", t.slot, true, t.serial);
        break;
    case SEVEN_REPLACED:
        say(s, "P", t.slot, true, t.serial);
        break;
    }
    s->tickets[s->given++] = t;
}

/* The place of a former ticket again. */
static void readmit(sequence *s, seven_ticket t)
{
    if (seven_readmit(s->pool, s->now, &t)) {
        say(s, "B", t.slot, true, t.serial);
        s->tickets[s->given++] = t;
    } else {
        say_only(s, "R");
    }
}

static void relieve(sequence *s, enum seven_relief relief)
{
    seven_ticket t;

    if (seven_relieve(s->pool, &s->rng, s->now, relief, &t)) {
        say(s, "V", t.slot, true, t.serial);
    } else {
        say_only(s, "N");
    }
}

/* What a holder does; what came of it, and the place's word then. */
static void act(sequence *s, char op, seven_ticket t, uint64_t paid)
{
    bool held = op == 's'   ? seven_serve(s->pool, t, s->now)
                : op == 'p' ? seven_pause(s->pool, t, s->now)
                : op == 'r' ? seven_resume(s->pool, t, s->now)
                : op == 'g' ? seven_progress(s->pool, t, s->now, paid)
                            : seven_leave(s->pool, t);

    say(s, held ? "T" : "F", place_load(s->pool, t.slot), false, 0);
}

static uint64_t draw_argument(sequence *s, char op)
{
    switch (op) {
    case 'o':
        return below(s, OWNERS);
    case 'c':
        return below(s, 1 << OWNERS) << 20 | below(s, 1 << 20);
    case 'g':
        return below(s, below(s, 2) ? 20000 : 4000000);
    default:
        return 0;
    }
}

/* One operation, with that ticket, counted back from the latest, where it needs one. */
static void operate(sequence *s, char op, uint32_t i)
{
    /* By law and with nobody there, the core takes long to find that out. */
    if (op == 'w' && seven_free(s->pool) == seven_pool_policy(s->pool)->places && below(s, 20)) {
        op = 'v';
    }

    seven_ticket t = s->given > 0 ? s->tickets[s->given - 1 - i] : (seven_ticket){0};
    uint64_t argument = draw_argument(s, op), mask = argument >> 20;

    snprintf(s->asked + RECORD * s->ops++, RECORD + 1, "%c%012" PRIx64 "%02" PRIx32 "%06" PRIx64,
             op, s->now, i, argument);
    switch (op) {
    case 'a':
        admit(s);
        break;
    case 'b':
        readmit(s, t);
        break;
    case 'v':
        relieve(s, SEVEN_OVERDUE_ONLY);
        break;
    case 'w':
        relieve(s, SEVEN_BY_LAW);
        break;
    case 'o':
        seven_own(s->pool, t, (uint32_t)argument);
        say(s, "O", seven_owner(s->pool, t.slot), false, 0);
        break;
    case 'c':
        say(s, "C", seven_reclaim(s->pool, s->now, argument & 0xfffff, gone, &mask), false, 0);
        break;
    default:
        act(s, op, t, argument);
    }
    say(s, ",", seven_pmod(s->pool, s->now), false, 0);
    say(s, ",", seven_pool_policy(s->pool)->places - seven_free(s->pool), false, 0);
    say_only(s, " ");
}

/* ---- a sequence ------------------------------------------------------------------------- */

/* First newcomers until it is full, for the most part; then of everything. */
static void play(sequence *s)
{
    static const char ops[] = "aaaaaaaaaaaabssssppprrggllvwwooc", quiet[] = "aaaaaaso";
    uint32_t k = seven_pool_policy(s->pool)->places;
    uint32_t fill = below(s, 8) ? k : (uint32_t)below(s, k), rest = 12 + (uint32_t)below(s, 17);
    bool pausing = below(s, k > 16 ? 2 : 6) == 0; /* nearly all become busy */

    for (uint32_t i = 0; i < fill + rest; i++) {
        const char *set = i < fill ? quiet : ops;

        move_clock(s);
        operate(s, s->given == 0 ? "aavw"[below(s, 4)] : set[below(s, strlen(set))],
                draw_ticket(s));
        if (pausing && i < fill && s->given > 0 && below(s, 16)) {
            operate(s, 's', 0);
            operate(s, 'p', 0);
        }
    }
    seven_rng after = s->rng;
    uint64_t gate = atomic_load(&s->pool->gate);

    say(s, "", gate, false, 0);
    say(s, " ", seven_below(&after, UINT32_MAX), false, 0);
    for (uint32_t i = 0; i < k; i++) {
        say(s, " ", place_load(s->pool, i), false, 0);
    }
}

static void ask(const sequence *s, uint64_t seed)
{
    static const char *const strategies[] = {"uniform", "roulette", "tournament"};
    const seven_policy *p = seven_pool_policy(s->pool);

    printf("red check(policy(%" PRIu32 ", %" PRIu64 ", %s, %" PRIu32
           ", %.17e, %.17e, %.17e, %.17e, "
           "%" PRIu64 ", %" PRIu64 ", %s), %" PRIu64 ", \"%s\", \"%s\") .\n",
           p->places, p->round_us, strategies[p->strategy], p->tournament, p->p_wait, p->p_in,
           p->alpha, p->scale, p->t_m_us, p->credit_us,
           p->admit_as == SEVEN_WAITING ? "waiting" : "served", seed, s->asked, s->said);
}

static bool one(seven_rng *lot)
{
    static sequence s;
    seven_policy policy;
    uint64_t seed;
    void *block;

    s = (sequence){.lot = lot};
    draw_policy(&s, &policy);
    block = aligned_alloc(64, seven_size(&policy));
    if (block == NULL) {
        return false;
    }
    s.pool = seven_init(block, &policy);
    seed = below(&s, UINT64_MAX);
    seven_seed(&s.rng, seed);
    s.now = below(&s, 8) ? below(&s, UINT64_C(1) << 40) : below(&s, 4096);
    play(&s);
    ask(&s, seed);
    free(block);
    return true;
}

int main(int argc, char **argv)
{
    seven_rng lot;
    unsigned long count;

    if (argc != 3) {
        fputs("usage: conform SEED COUNT\n", stderr);
        return EXIT_FAILURE;
    }
    seven_seed(&lot, strtoull(argv[1], NULL, 10));
    count = strtoul(argv[2], NULL, 10);
    for (unsigned long i = 0; i < count; i++) {
        if (!one(&lot)) {
            fputs("conform: no memory\n", stderr);
            return EXIT_FAILURE;
        }
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
