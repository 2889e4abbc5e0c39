/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P2 against a reference that looks at every place. The reference is written from the law, not from
 * draw.c: it takes no more from internal.h than how a place's word is laid out.
 */
#include <string.h>

#include "internal.h"
#include "unit.h"

#define NOW (INT64_C(1) << 32) /* in ticks: a clock of two weeks */

/* ---- the reference ---------------------------------------------------------------------- */

typedef struct holder {
    enum seven_state state;
    int64_t age; /* ticks */
} holder;

static holder holder_at(const seven_pool *pool, uint32_t slot, int64_t now)
{
    uint64_t word = atomic_load(&pool->words[slot]);
    enum seven_state state = word_state(word);
    int64_t start = word_start(word);

    return (holder){state, state == SEVEN_BUSY ? start - BUSY_BIAS : now - start};
}

/* The drop factor. A long double holds e^11000, so ages up to thousands of t_M stay apart. */
static long double naive_d(const seven_policy *p, uint64_t t_m_us, holder h)
{
    long double age_us = (long double)h.age * SEVEN_TICK_US;

    if (h.state == SEVEN_WAITING) {
        return p->p_wait;
    }
    if (h.state != SEVEN_SERVED) {
        return 0;
    }
    if (age_us <= (long double)t_m_us) {
        return p->p_in;
    }
    return p->p_wait + p->scale * expl(p->alpha * age_us / (long double)t_m_us);
}

/* none[a] is C(k - a, n) / C(k, n): the odds that n entrants of k include none of a. */
static long double *none_of(uint32_t k, uint32_t n)
{
    long double *none = calloc(k + 1, sizeof(*none));

    none[0] = 1;
    for (uint32_t a = 0; a < k && k - a > n; a++) {
        none[a + 1] = none[a] * (k - a - n) / (k - a);
    }
    return none;
}

static void tournament_odds(const long double *d, uint32_t k, uint32_t n, double *odds)
{
    long double *none = none_of(k, n);
    uint32_t busy = 0;

    for (uint32_t i = 0; i < k; i++) {
        busy += d[i] <= 0;
    }
    for (uint32_t i = 0; i < k; i++) {
        uint32_t above = 0, ties = 0;

        for (uint32_t j = 0; j < k; j++) {
            above += d[j] > d[i];
            ties += d[j] == d[i];
        }
        odds[i] = d[i] <= 0
                      ? 0
                      : (double)((none[above] - none[above + ties]) / ties / (1 - none[k - busy]));
    }
    free(none);
}

static void share_out(const long double *share, uint32_t k, double *odds)
{
    long double total = 0;

    for (uint32_t i = 0; i < k; i++) {
        total += share[i];
    }
    for (uint32_t i = 0; i < k; i++) {
        odds[i] = (double)(share[i] / total);
    }
}

/* Each place's odds to be drawn. Who is busy is drawn only if all are. */
static void naive_odds(const seven_pool *pool, int64_t now, double *odds)
{
    const seven_policy *p = seven_pool_policy(pool);
    uint32_t k = p->places, busy = 0;
    long double *d = calloc(k, sizeof(*d));

    for (uint32_t i = 0; i < k; i++) {
        d[i] = naive_d(p, seven_t_m(pool), holder_at(pool, i, now));
        busy += d[i] <= 0;
    }
    for (uint32_t i = 0; i < k && (busy == k || p->strategy == SEVEN_UNIFORM); i++) {
        d[i] = busy == k || d[i] > 0;
    }
    if (p->strategy == SEVEN_TOURNAMENT && busy < k) {
        tournament_odds(d, k, p->tournament, odds);
    } else {
        share_out(d, k, odds);
    }
    free(d);
}

/* ---- pools in a state ------------------------------------------------------------------- */

/* Changes a place as a process does that dies before it tells the summaries. */
static void set(seven_pool *pool, uint32_t slot, enum seven_state state, int64_t age)
{
    int64_t start = state == SEVEN_BUSY ? age + BUSY_BIAS : NOW - age;

    atomic_store(&pool->words[slot], word_make(1, state, state == SEVEN_FREE ? 0 : start));
}

enum state_of_all {
    MIXED,
    SPREAD,
    EDGES,
    TIED_OVERDUE,
    TWO_CLASSES,
    VERY_OLD,
    ONE_OLD,
    HALF_WAITING,
    ALL_WAITING,
    ALL_YOUNG,
    IN_CREDIT,
    HALF_BUSY,
    FEW_NOT_BUSY,
    ALL_BUSY,
    STATES_OF_ALL
};

/* The state and age of one place of a pool with t_M in ticks. */
static holder one_of(enum state_of_all all, seven_rng *rng, uint32_t slot, uint32_t k, int64_t t_m)
{
    int64_t r = (int64_t)seven_below(rng, UINT32_MAX), spread = r % (4 * t_m);

    switch (all) {
    case MIXED: /* waiting, busy, or in service with many ties */
        return (holder){r % 5 == 0   ? SEVEN_WAITING
                        : r % 5 == 1 ? SEVEN_BUSY
                                     : SEVEN_SERVED,
                        r % 7 * t_m / 2};
    case SPREAD:
        return (holder){SEVEN_SERVED, spread};
    case EDGES: /* on either side of t_M */
        return (holder){SEVEN_SERVED, t_m + r % 4 - 1};
    case TIED_OVERDUE:
        return (holder){SEVEN_SERVED, t_m + 1};
    case TWO_CLASSES:
        return (holder){SEVEN_SERVED, r % 2 ? t_m + 1 : 2 * t_m};
    case VERY_OLD: /* where the drop factor is more than a double can hold */
        return (holder){SEVEN_SERVED, (400 + r % 5 * 10) * t_m};
    case ONE_OLD:
        return (holder){SEVEN_SERVED, slot == k / 3 ? 1000 * t_m : r % t_m};
    case HALF_WAITING:
        return (holder){slot % 2 ? SEVEN_WAITING : SEVEN_SERVED, spread};
    case ALL_WAITING:
        return (holder){SEVEN_WAITING, spread};
    case ALL_YOUNG:
        return (holder){SEVEN_SERVED, r % (t_m + 1)};
    case IN_CREDIT:
        return (holder){SEVEN_SERVED, spread - 2 * t_m};
    case HALF_BUSY:
        return (holder){slot % 2 ? SEVEN_BUSY : SEVEN_SERVED, spread};
    case FEW_NOT_BUSY:
        return (holder){slot % 13 == 0 ? SEVEN_SERVED : SEVEN_BUSY, spread};
    case ALL_BUSY:
    case STATES_OF_ALL:
        break;
    }
    return (holder){SEVEN_BUSY, spread};
}

static void set_all(seven_pool *pool, enum state_of_all all, uint64_t seed)
{
    uint32_t k = seven_pool_policy(pool)->places;
    seven_rng rng;

    seven_seed(&rng, seed);
    for (uint32_t i = 0; i < k; i++) {
        holder h = one_of(all, &rng, i, k, ticks(seven_t_m(pool)));

        set(pool, i, h.state, h.age);
    }
    seven_repair(pool);
}

static seven_policy policy_of(enum seven_strategy strategy, uint32_t places, uint32_t n)
{
    seven_policy policy;

    seven_policy_defaults(&policy, places);
    policy.strategy = strategy;
    policy.tournament = n;
    policy.t_m_us = 100000;
    return policy;
}

/* ---- comparing -------------------------------------------------------------------------- */

/* Draws, and compares place by place. */
static double disagreement(seven_pool *pool, uint64_t seed, uint32_t draws)
{
    uint32_t k = seven_pool_policy(pool)->places, *seen = calloc(k, sizeof(*seen)), slot, lost = 0;
    double *odds = calloc(k, sizeof(*odds)), result;
    seven_rng rng;
    uint64_t word;

    naive_odds(pool, NOW, odds);
    seven_seed(&rng, seed);
    for (uint32_t i = 0; i < draws; i++) {
        lost += !draw_victim(pool, &rng, NOW, &slot, &word) || word != pool->words[slot];
        seen[slot]++;
    }
    ck_assert_uint_eq(lost, 0);
    result = chi_square(odds, seen, k, draws);
    free(seen);
    free(odds);
    return result;
}

/* The orders of p_wait and p_in. */
static const double waits_and_ins[][2] = {{8, 2}, {5, 5}, {2, 4}};
static const uint32_t shapes[] = {1, 2, 3, 15, 16, 17, 40, 255, 256, 257};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void check_draw(seven_policy policy, enum state_of_all all, uint32_t draws)
{
    for (size_t i = 0; i < 3; i++) {
        seven_pool *pool;
        double off;

        policy.p_wait = waits_and_ins[i][0];
        policy.p_in = waits_and_ins[i][1];
        pool = pool_make(&policy);
        set_all(pool, all, policy.places);
        off = disagreement(pool, 1000 * policy.places + policy.tournament, draws);
        ck_assert_msg(off <= 1, "state %u, k %u, n %u, p_wait %g, p_in %g: chi-square is %g limits",
                      all, policy.places, policy.tournament, policy.p_wait, policy.p_in, off);
        free(pool);
    }
}

START_TEST(uniform_is_exact)
{
    for (size_t i = 0; i < SHAPES; i++) {
        check_draw(policy_of(SEVEN_UNIFORM, shapes[i], 0), (enum state_of_all)_i, load(10000));
    }
}
END_TEST

START_TEST(roulette_is_exact)
{
    for (size_t i = 0; i < SHAPES; i++) {
        check_draw(policy_of(SEVEN_ROULETTE, shapes[i], 0), (enum state_of_all)_i, load(10000));
    }
}
END_TEST

/* n = 1, 2, k/2, one more than is sampled, k. Of 40 places 20 are drawn by rank and 18 sampled. */
START_TEST(tournament_is_exact)
{
    for (size_t i = 0; i < SHAPES; i++) {
        uint32_t k = shapes[i], n[] = {1, 2, 18, k / 2, k / 2 + 1, k - 1, k};

        for (size_t j = 0; j < sizeof(n) / sizeof(n[0]); j++) {
            if (n[j] >= 1 && n[j] <= k) {
                check_draw(policy_of(SEVEN_TOURNAMENT, k, n[j]), (enum state_of_all)_i, load(5000));
            }
        }
    }
}
END_TEST

/* The same with so many draws that a bias of a percent shows. */
START_TEST(many_draws_are_exact)
{
    static const enum state_of_all states[] = {MIXED,     SPREAD,    HALF_WAITING,
                                               IN_CREDIT, HALF_BUSY, ALL_YOUNG};

    for (size_t i = 0; i < 6; i++) {
        check_draw(policy_of(SEVEN_UNIFORM, 24, 0), states[i], load(300000));
        check_draw(policy_of(SEVEN_ROULETTE, 24, 0), states[i], load(300000));
        check_draw(policy_of(SEVEN_ROULETTE, FEW_PLACES + 1, 0), states[i], load(300000));
        check_draw(policy_of(SEVEN_TOURNAMENT, 24, 3), states[i], load(300000));
        check_draw(policy_of(SEVEN_TOURNAMENT, 24, 14), states[i], load(300000));
    }
}
END_TEST

/* A t_M of few ticks, and not a whole number of them: roulette's two ways must mean the same. */
START_TEST(roulette_is_exact_for_a_short_t_m)
{
    static const enum state_of_all states[] = {SPREAD, HALF_BUSY, FEW_NOT_BUSY};
    seven_policy policy = policy_of(SEVEN_ROULETTE, 520, 0);

    policy.t_m_us = 1000;
    check_draw(policy, states[_i], load(30000));
}
END_TEST

/* So few who are not busy that rejection would give up, or tournaments have seldom two of them. */
START_TEST(few_among_many_busy_are_exact)
{
    static const enum seven_strategy strategies[] = {SEVEN_UNIFORM,    SEVEN_ROULETTE,
                                                     SEVEN_TOURNAMENT, SEVEN_TOURNAMENT,
                                                     SEVEN_TOURNAMENT, SEVEN_TOURNAMENT};
    static const uint32_t n[] = {0, 0, 2, 20, 80, 700};
    seven_policy policy = policy_of(strategies[_i], 1000, n[_i]);
    seven_pool *pool;

    policy.t_m_us = 1000;
    pool = pool_make(&policy);
    set_all(pool, ALL_BUSY, 1);
    for (int64_t i = 0; i < 12; i++) {
        set(pool, (uint32_t)i * 90, i % 4 == 0 ? SEVEN_WAITING : SEVEN_SERVED, i);
        if (i == 2 || i == 11) {
            seven_repair(pool);
            ck_assert_double_le(disagreement(pool, 1, load(200000)), 1);
        }
    }
    free(pool);
}
END_TEST

/* Weights are relative to the clock's zero: an age counts the same years later; where few places
 * have none, too. */
START_TEST(roulette_is_exact_after_years)
{
    static const uint64_t t_m_us[] = {1000, 10000, 5000000};
    static const double alpha[] = {1.89, 20, 0.01};
    const uint32_t k = _i < 9 ? 4 : FEW_PLACES + 12;
    int64_t late = INT64_C(8) * 365 * 86400 * 1000000 / SEVEN_TICK_US - 1;
    seven_policy policy = policy_of(SEVEN_ROULETTE, k, 0);
    double odds[FEW_PLACES + 12];
    seven_pool *pool;
    seven_rng rng;

    policy.t_m_us = t_m_us[_i % 3];
    policy.alpha = alpha[_i / 3 % 3];
    policy.p_in = 1;
    pool = pool_make(&policy);
    seven_seed(&rng, 3);
    for (int64_t shift = late - NOW;; shift = -NOW + 100000) {
        uint32_t seen[FEW_PLACES + 12] = {0}, slot, draws = load(30000), lost = 0;
        uint64_t word;

        for (uint32_t i = 0; i < k; i++) {
            set(pool, i, SEVEN_SERVED, i % 4 * ticks(policy.t_m_us) / 2 - shift);
        }
        seven_repair(pool);
        naive_odds(pool, NOW + shift, odds);
        for (uint32_t i = 0; i < draws; i++) {
            lost += !draw_victim(pool, &rng, NOW + shift, &slot, &word);
            seen[slot]++;
        }
        ck_assert_uint_eq(lost, 0);
        ck_assert_double_le(chi_square(odds, seen, k, draws), 1);
        if (shift < 0) {
            break;
        }
    }
    free(pool);
}
END_TEST

/* ---- large pools ------------------------------------------------------------------------ */

/* Of a large pool, classes of places are compared, and where in the pool the victim was. */
#define PARTS 8U

typedef struct big_case {
    enum seven_strategy strategy;
    uint32_t n;
    enum state_of_all all;
    uint32_t draws;
} big_case;

static const big_case big_cases[] = {
    {SEVEN_UNIFORM, 0, MIXED, 20000},         {SEVEN_ROULETTE, 0, MIXED, 20000},
    {SEVEN_ROULETTE, 0, ONE_OLD, 5000},       {SEVEN_ROULETTE, 0, ALL_YOUNG, 20000},
    {SEVEN_ROULETTE, 0, TWO_CLASSES, 5000},   {SEVEN_TOURNAMENT, 2, MIXED, 20000},
    {SEVEN_TOURNAMENT, 2048, MIXED, 200},     {SEVEN_TOURNAMENT, 2049, MIXED, 2000},
    {SEVEN_TOURNAMENT, 0, MIXED, 20000},      {SEVEN_TOURNAMENT, 0, TIED_OVERDUE, 20000},
    {SEVEN_TOURNAMENT, 0, ALL_YOUNG, 20000},  {SEVEN_TOURNAMENT, 0, ONE_OLD, 20000},
    {SEVEN_TOURNAMENT, 0, TWO_CLASSES, 20000}};
#define BIG_CASES (sizeof(big_cases) / sizeof(big_cases[0]))

/* Places with the same drop factor. */
typedef struct group {
    long double d;
    uint32_t size, part[PARTS];
} group;

#define MOST_GROUPS 16U

/* Groups the places; of[] tells each its group. Returns how many groups there are. */
static uint32_t group_all(const seven_pool *pool, group *groups, uint8_t *of)
{
    const seven_policy *p = seven_pool_policy(pool);
    uint32_t count = 0;

    for (uint32_t i = 0; i < p->places; i++) {
        long double d = naive_d(p, seven_t_m(pool), holder_at(pool, i, NOW));
        uint8_t g = 0;

        while (g < count && groups[g].d != d) {
            g++;
        }
        if (g == count) {
            ck_assert_uint_lt(count, MOST_GROUPS);
            groups[count++] = (group){.d = d};
        }
        groups[g].size++;
        groups[g].part[i / (p->places / PARTS)]++;
        of[i] = g;
    }
    return count;
}

/* The odds of each member of group g. */
static double member_odds(const seven_policy *p, const group *groups, uint32_t count, uint32_t g)
{
    uint32_t above = 0, held = 0, size = groups[g].size;
    long double total = 0, *none = none_of(p->places, p->tournament), result = 0;

    for (uint32_t i = 0; i < count; i++) {
        above += groups[i].d > groups[g].d ? groups[i].size : 0;
        held += groups[i].d > 0 ? groups[i].size : 0;
        total += groups[i].d * groups[i].size;
    }
    switch (p->strategy) {
    case SEVEN_UNIFORM:
        result = 1.0L / held;
        break;
    case SEVEN_ROULETTE:
        result = groups[g].d / total;
        break;
    case SEVEN_TOURNAMENT:
        result = (none[above] - none[above + size]) / size / (1 - none[held]);
        break;
    }
    free(none);
    return groups[g].d > 0 ? (double)result : 0;
}

static double big_disagreement(seven_pool *pool, uint32_t draws)
{
    const seven_policy *p = seven_pool_policy(pool);
    group groups[MOST_GROUPS];
    uint8_t *of = calloc(p->places, sizeof(*of));
    uint32_t count = group_all(pool, groups, of), seen[MOST_GROUPS * PARTS] = {0}, slot, lost = 0;
    double odds[MOST_GROUPS * PARTS];
    seven_rng rng;
    uint64_t word;

    for (uint32_t g = 0; g < count; g++) {
        double each = member_odds(p, groups, count, g);

        for (uint32_t part = 0; part < PARTS; part++) {
            odds[g * PARTS + part] = each * groups[g].part[part];
        }
    }
    seven_seed(&rng, draws);
    for (uint32_t i = 0; i < draws; i++) {
        lost += !draw_victim(pool, &rng, NOW, &slot, &word);
        seen[of[slot] * PARTS + slot / (p->places / PARTS)]++;
    }
    free(of);
    ck_assert_uint_eq(lost, 0);
    return chi_square(odds, seen, count * PARTS, draws);
}

START_TEST(large_pools_are_exact)
{
    const big_case *c = &big_cases[_i];
    uint32_t places = UNIT_LOAD < 100 ? 65536 : SEVEN_MAX_PLACES;
    seven_policy policy = policy_of(c->strategy, places, c->n);
    seven_pool *pool = pool_make(&policy);

    set_all(pool, c->all, 1);
    ck_assert_double_le(big_disagreement(pool, load(c->draws)), 1);
    free(pool);
}
END_TEST

/* ---- through seven_admit ---------------------------------------------------------------- */

/* A state made by calls alone, and decisions made by newcomers, each in the same pool: the block is
 * put back as it was. */
static seven_pool *played(const seven_policy *policy)
{
    seven_pool *pool = pool_make(policy);
    uint64_t now = (uint64_t)NOW * SEVEN_TICK_US;
    seven_ticket ticket;
    seven_rng rng;

    seven_seed(&rng, 9);
    for (uint32_t i = 0; i < policy->places; i++) {
        uint64_t begin = now - (i / 2) * policy->t_m_us / 3;

        ck_assert_int_eq(seven_admit(pool, &rng, begin, &ticket), SEVEN_ADMITTED);
        if (i % 4 != 0) {
            ck_assert(seven_serve(pool, ticket, begin));
        }
        if (i % 5 == 0) {
            ck_assert(seven_progress(pool, ticket, now, policy->t_m_us));
        }
        if (i % 7 == 0) {
            ck_assert(seven_pause(pool, ticket, now));
        }
    }
    return pool;
}

START_TEST(newcomers_replace_by_the_law)
{
    static const enum seven_strategy strategies[] = {SEVEN_UNIFORM, SEVEN_ROULETTE,
                                                     SEVEN_TOURNAMENT, SEVEN_TOURNAMENT};
    static const uint32_t n[] = {0, 0, 2, 25};
    seven_policy policy = policy_of(strategies[_i], 50, n[_i]);
    size_t size = seven_size(&policy);
    seven_pool *pool = played(&policy);
    void *saved = malloc(size);
    uint32_t seen[50] = {0}, draws = load(50000), refused = 0;
    double odds[50];
    seven_ticket ticket;
    seven_rng rng;

    memcpy(saved, pool, size);
    naive_odds(pool, NOW, odds);
    seven_seed(&rng, 11);
    for (uint32_t i = 0; i < draws; i++) {
        memcpy((void *)pool, saved, size);
        refused +=
            seven_admit(pool, &rng, (uint64_t)NOW * SEVEN_TICK_US, &ticket) != SEVEN_REPLACED;
        seen[ticket.slot]++;
    }
    ck_assert_uint_eq(refused, 0);
    ck_assert_double_le(chi_square(odds, seen, 50, draws), 1);
    free(saved);
    free(pool);
}
END_TEST

/* ---- free places and the overdue -------------------------------------------------------- */

START_TEST(free_places_are_drawn_alike)
{
    static const uint32_t k[] = {1, 2, 16, 17, 257};
    seven_policy policy = policy_of(SEVEN_UNIFORM, k[_i], 0);
    seven_pool *pool = pool_make(&policy);
    uint32_t seen[257] = {0}, slot, draws = load(20000), count = 0, lost = 0;
    double odds[257] = {0};
    seven_rng rng;
    uint64_t word;

    set_all(pool, SPREAD, 1);
    for (uint32_t i = 0; i < k[_i]; i += 1 + i / 8) {
        set(pool, i, SEVEN_FREE, 0);
        odds[i] = 1;
        count++;
    }
    seven_repair(pool);
    for (uint32_t i = 0; i < k[_i]; i++) {
        odds[i] /= count;
    }
    seven_seed(&rng, 2);
    for (uint32_t i = 0; i < draws; i++) {
        lost += !draw_free(pool, &rng, &slot, &word);
        seen[slot]++;
    }
    ck_assert_uint_eq(lost, 0);
    ck_assert_double_le(chi_square(odds, seen, k[_i], draws), 1);
    free(pool);
}
END_TEST

START_TEST(the_longest_overdue_is_drawn_ties_by_lot)
{
    seven_policy policy = policy_of(SEVEN_UNIFORM, 300, 0);
    seven_pool *pool = pool_make(&policy);
    uint32_t seen[300] = {0}, slot, draws = load(20000), lost = 0;
    double odds[300] = {0};
    seven_rng rng;
    uint64_t word;

    set_all(pool, MIXED, 1);
    for (uint32_t i = 3; i < 300; i += 99) {
        set(pool, i, SEVEN_SERVED, 100 * ticks(policy.t_m_us));
        odds[i] = 1.0 / 3;
    }
    seven_repair(pool);
    seven_seed(&rng, 2);
    for (uint32_t i = 0; i < draws; i++) {
        lost += !draw_overdue(pool, &rng, NOW, &slot, &word);
        seen[slot]++;
    }
    ck_assert_uint_eq(lost, 0);
    ck_assert_double_le(chi_square(odds, seen, 300, draws), 1);
    free(pool);
}
END_TEST

START_TEST(none_is_overdue_up_to_t_m)
{
    seven_policy policy = policy_of(SEVEN_UNIFORM, 20, 0);
    seven_pool *pool = pool_make(&policy);
    seven_rng rng;
    uint32_t slot;
    uint64_t word;

    seven_seed(&rng, 2);
    for (uint32_t i = 0; i < 20; i++) {
        set(pool, i, i % 2 ? SEVEN_WAITING : SEVEN_SERVED, ticks(policy.t_m_us));
    }
    set(pool, 1, SEVEN_BUSY, 10 * ticks(policy.t_m_us));
    seven_repair(pool);
    ck_assert(!draw_overdue(pool, &rng, NOW, &slot, &word));
    ck_assert(draw_overdue(pool, &rng, NOW + 1, &slot, &word));
    ck_assert_uint_eq(slot % 2, 0);
    free(pool);
}
END_TEST

/* ---- broken summaries ------------------------------------------------------------------- */

/* Any state of all the places, with summaries of another: as if as many processes had died. */
static seven_pool *broken(seven_policy policy, enum state_of_all told, enum state_of_all true_now)
{
    seven_pool *pool = pool_make(&policy);
    seven_rng rng;

    set_all(pool, told, 1);
    seven_seed(&rng, 2);
    for (uint32_t i = 0; i < policy.places; i++) {
        holder h = one_of(true_now, &rng, i, policy.places, ticks(policy.t_m_us));

        set(pool, i, h.state, h.age);
    }
    return pool;
}

static const enum seven_strategy all_strategies[] = {SEVEN_UNIFORM, SEVEN_ROULETTE,
                                                     SEVEN_TOURNAMENT};

/* However wrong the summaries, somebody is drawn; the law holds again once they are repaired. */
START_TEST(draws_work_with_broken_summaries)
{
    static const uint32_t k[] = {1, 16, 17, 300};
    uint32_t slot, lost = 0;
    uint64_t word;
    seven_rng rng;

    seven_seed(&rng, 4);
    for (int told = 0; told < STATES_OF_ALL; told++) {
        for (int now = 0; now < STATES_OF_ALL; now++) {
            seven_policy policy = policy_of(all_strategies[_i % 3], k[_i / 3], 0);
            seven_pool *pool = broken(policy, (enum state_of_all)told, (enum state_of_all)now);

            for (int i = 0; i < 20; i++) {
                lost += !draw_victim(pool, &rng, NOW, &slot, &word) || word != pool->words[slot];
            }
            ck_assert_msg(lost == 0, "told %d, now %d: %u lost", told, now, lost);
            seven_repair(pool);
            ck_assert_double_le(disagreement(pool, 5, load(2000)), 1);
            free(pool);
        }
    }
}
END_TEST

/* The oldest left, and whoever freed its place died: the next draws correct what still tells of it,
 * and the law holds without seven_repair(). */
START_TEST(draws_heal_a_place_that_is_gone)
{
    seven_policy policy = policy_of(SEVEN_TOURNAMENT, 300, 300);
    seven_pool *pool = pool_make(&policy);
    seven_rng rng;
    uint32_t slot;
    uint64_t word;

    set_all(pool, ALL_YOUNG, 1);
    set(pool, 77, SEVEN_SERVED, 1000 * ticks(policy.t_m_us));
    set(pool, 290, SEVEN_SERVED, 500 * ticks(policy.t_m_us));
    seven_repair(pool);
    set(pool, 77, SEVEN_WAITING, 0);
    seven_seed(&rng, 4);
    for (int i = 0; i < 3; i++) {
        ck_assert(draw_victim(pool, &rng, NOW, &slot, &word));
        ck_assert_uint_eq(slot, 290);
    }
    free(pool);
}
END_TEST

/* The same where the death left only a higher node behind. */
START_TEST(draws_heal_a_higher_node)
{
    seven_policy policy = policy_of(SEVEN_TOURNAMENT, 300, 300);
    seven_pool *pool = pool_make(&policy);
    uint64_t level_0;
    seven_rng rng;
    uint32_t slot;
    uint64_t word;

    set_all(pool, ALL_YOUNG, 1);
    set(pool, 290, SEVEN_SERVED, 500 * ticks(policy.t_m_us));
    seven_repair(pool);
    level_0 = node_load(pool, BY_AGE, 0, 77 / FANOUT);
    word = atomic_load(&pool->words[77]);
    set(pool, 77, SEVEN_SERVED, 1000 * ticks(policy.t_m_us));
    seven_repair(pool);
    atomic_store(&pool->words[77], word);
    atomic_store(node_at(pool, BY_AGE, 0, 77 / FANOUT), level_0);
    seven_seed(&rng, 4);
    for (int i = 0; i < 3; i++) {
        ck_assert(draw_victim(pool, &rng, NOW, &slot, &word));
        ck_assert_uint_eq(slot, 290);
    }
    free(pool);
}
END_TEST

START_TEST(free_places_that_are_gone_heal)
{
    seven_policy policy = policy_of(SEVEN_UNIFORM, 300, 0);
    seven_pool *pool = pool_make(&policy);
    seven_rng rng;
    uint32_t slot;
    uint64_t word;

    set_all(pool, ALL_YOUNG, 1);
    atomic_store(node_at(pool, BY_COUNT, pool->levels - 1, 0),
                 node_load(pool, BY_COUNT, pool->levels - 1, 0) + (UINT64_C(1) << SEVEN_FREE));
    ck_assert_uint_ne(seven_free(pool), 0);
    seven_seed(&rng, 4);
    ck_assert(!draw_free(pool, &rng, &slot, &word));
    ck_assert_uint_eq(seven_free(pool), 0);
    free(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draw");
    TCase *law = unit_case(suite, "law"), *other = unit_case(suite, "other");

    tcase_add_loop_test(law, uniform_is_exact, 0, STATES_OF_ALL);
    tcase_add_loop_test(law, roulette_is_exact, 0, STATES_OF_ALL);
    tcase_add_loop_test(law, tournament_is_exact, 0, STATES_OF_ALL);
    tcase_add_test(law, many_draws_are_exact);
    tcase_add_loop_test(law, roulette_is_exact_for_a_short_t_m, 0, 3);
    tcase_add_loop_test(law, few_among_many_busy_are_exact, 0, 6);
    tcase_add_loop_test(law, roulette_is_exact_after_years, 0, 18);
    tcase_add_loop_test(law, large_pools_are_exact, 0, BIG_CASES);
    tcase_add_loop_test(law, newcomers_replace_by_the_law, 0, 4);
    tcase_add_loop_test(other, free_places_are_drawn_alike, 0, 5);
    tcase_add_test(other, the_longest_overdue_is_drawn_ties_by_lot);
    tcase_add_test(other, none_is_overdue_up_to_t_m);
    tcase_add_loop_test(other, draws_work_with_broken_summaries, 0, 12);
    tcase_add_test(other, draws_heal_a_place_that_is_gone);
    tcase_add_test(other, draws_heal_a_higher_node);
    tcase_add_test(other, free_places_that_are_gone_heal);
    return unit_run(suite);
}
