/* SPDX-License-Identifier: Apache-2.0 */
/* Any sequence of calls on pools of any shape, broken ones included: summaries and counts are right
 * after each. */
#include <string.h>

#include "internal.h"
#include "pool_unit.h"

/* ---- any sequence of calls -------------------------------------------------------------- */

/* A player calls at random, with tickets old and new. */
typedef struct player {
    seven_pool *pool;
    seven_rng rng;
    uint64_t now;
    seven_ticket *tickets; /* the last few it was given */
    uint32_t room, given;
} player;

static void use_ticket(player *p, uint64_t what)
{
    seven_ticket t = p->tickets[seven_below(&p->rng, p->room)];

    switch (what) {
    case 0:
        seven_leave(p->pool, t);
        break;
    case 1:
        seven_pause(p->pool, t, p->now);
        break;
    case 2:
        seven_resume(p->pool, t, p->now);
        break;
    case 3:
        seven_progress(p->pool, t, p->now, seven_below(&p->rng, S));
        break;
    default:
        seven_serve(p->pool, t, p->now);
    }
}

/* One call; returns what came of it, for replays. */
static uint64_t play(player *p)
{
    uint64_t what = seven_below(&p->rng, 13), verdict;
    seven_ticket t = {0};

    p->now += seven_below(&p->rng, 20000);
    if (what < 6) {
        use_ticket(p, what);
        return what;
    }
    if (what == 6) {
        verdict = seven_relieve(p->pool, &p->rng, p->now,
                                p->now & 1 ? SEVEN_BY_LAW : SEVEN_OVERDUE_ONLY, &t);
        return verdict << 60 | t.slot;
    }
    if (what == 7) {
        seven_learn(p->pool, seven_below(&p->rng, 3 * S), p->now);
        return seven_t_m(p->pool);
    }
    if (what == 8 && p->given > 0) {
        t = p->tickets[seven_below(&p->rng, p->given < p->room ? p->given : p->room)];
        if (!seven_readmit(p->pool, p->now, &t)) {
            return t.serial;
        }
        verdict = SEVEN_ADMITTED;
    } else {
        verdict = seven_admit(p->pool, &p->rng, p->now, &t);
    }
    if (verdict != SEVEN_REFUSED) {
        p->tickets[p->given++ % p->room] = t;
    }
    return verdict << 60 | (uint64_t)t.slot << 32 | t.serial;
}

static player player_of(const seven_policy *policy, uint64_t seed)
{
    player p = {.pool = pool_make(policy), .now = T0, .room = policy->places + policy->places / 2};

    p.room = p.room < 2000 ? p.room : 2000;
    p.tickets = calloc(p.room, sizeof(*p.tickets));
    seven_seed(&p.rng, seed);
    return p;
}

static void player_end(player *p)
{
    free(p->tickets);
    free(p->pool);
}

static seven_pool *copy_of(const seven_pool *pool)
{
    size_t size = seven_size(seven_pool_policy(pool));

    return memcpy(aligned_alloc(64, size), (const void *)pool, size);
}

/* True if every summary is what it is when worked out anew: free places always, others once a draw
 * is about to look. */
static bool exact(const seven_pool *pool)
{
    const seven_policy *policy = seven_pool_policy(pool);
    size_t tree = pool->nodes * sizeof(uint64_t), trees = SUMMARIES * tree;
    seven_pool *anew = copy_of(pool), *drawn = copy_of(pool);
    bool same;

    memset((void *)&anew->words[policy->places], 0xaa, trees);
    if (!weighted(pool)) {
        memset((void *)node_at(anew, BY_WEIGHT, 0, 0), 0, tree);
    }
    seven_repair(anew);
    atomic_store(&anew->freshness, FRESH);
    freshen(drawn);
    atomic_store(&anew->repairs, atomic_load(&drawn->repairs));
    same = memcmp((const void *)node_at(anew, BY_COUNT, 0, 0),
                  (const void *)&pool->words[policy->places], tree) == 0 &&
           memcmp((const void *)anew, (const void *)drawn, seven_size(policy)) == 0;
    free(anew);
    free(drawn);
    return same;
}

#ifdef SANITIZED
#define MOST 65537
#else
#define MOST SEVEN_MAX_PLACES
#endif

static const uint32_t shapes[] = {1, 2, 15, 16, 17, 255, 256, 257, 4096, MOST};
#define SHAPES 10

START_TEST(summaries_stay_exact)
{
    seven_policy policy = policy_of(shapes[_i / 3], (enum seven_strategy)(_i % 3));
    uint32_t calls = policy.places > 10000 ? 3000 : load(20000);
    player p;

    policy.t_m_us = _i % 2 ? T_M : 0;
    p = player_of(&policy, (uint64_t)_i);
    for (uint32_t i = 1; i <= calls; i++) {
        play(&p);
        if ((i & (i - 1)) == 0 || (i % 500 == 0 && policy.places < 1000)) {
            ck_assert(exact(p.pool));
        }
    }
    ck_assert(exact(p.pool));
    player_end(&p);
}
END_TEST

/* While many places are free the trees for draws are left as they are, and that is noted; a draw
 * brings them up to date, unless a place changes meanwhile. */
START_TEST(summaries_are_left_while_many_places_are_free)
{
    enum { K = 40 };
    seven_policy policy = policy_of(K, (enum seven_strategy)_i);
    seven_pool *pool = pool_make(&policy);
    seven_ticket tickets[K], loser;
    seven_rng rng;

    seven_seed(&rng, 3);
    for (uint32_t i = 0; i < K; i++) {
        seven_admit(pool, &rng, T0 + i * S, &tickets[i]);
        seven_serve(pool, tickets[i], T0 + i * S);
        ck_assert_uint_eq(atomic_load(&pool->freshness), STALE);
        ck_assert(exact(pool));
    }
    ck_assert(seven_relieve(pool, &rng, T0 + 500 * S, SEVEN_OVERDUE_ONLY, &loser));
    ck_assert_uint_eq(loser.slot, tickets[0].slot);
    ck_assert_uint_eq(atomic_load(&pool->freshness), FRESH);

    /* Few are free: they are kept up to date. */
    ck_assert(seven_leave(pool, tickets[1]));
    ck_assert_uint_eq(atomic_load(&pool->freshness), FRESH);
    ck_assert(exact(pool));
    ck_assert(seven_relieve(pool, &rng, T0 + 500 * S, SEVEN_OVERDUE_ONLY, &loser));
    ck_assert_uint_eq(loser.slot, tickets[2].slot);

    for (uint32_t i = 3; i < 20; i++) {
        seven_leave(pool, tickets[i]);
    }
    ck_assert_uint_eq(atomic_load(&pool->freshness), STALE);
    ck_assert(seven_relieve(pool, &rng, T0 + 500 * S, SEVEN_OVERDUE_ONLY, &loser));
    ck_assert_uint_eq(loser.slot, tickets[20].slot);
    ck_assert_uint_eq(atomic_load(&pool->freshness), STALE); /* by the loser's own leaving */

    /* Another repairs, and has read this place. */
    atomic_store(&pool->freshness, FIRST_REPAIR + 1000);
    ck_assert(seven_leave(pool, tickets[21]));
    ck_assert_uint_eq(atomic_load(&pool->freshness), STALE);
    free(pool);
}
END_TEST

/* What the pool tells adds up, and with what its places say. */
START_TEST(counts_add_up)
{
    seven_policy policy = policy_of(30, (enum seven_strategy)_i);
    player p = player_of(&policy, 5);
    uint32_t given[3] = {0}, relieved = 0;
    seven_census census;
    seven_tally tally;

    for (uint32_t i = 0; i < load(20000); i++) {
        uint32_t before = seven_free(p.pool), given_before = p.given;
        uint64_t result = play(&p);

        given[result >> 60 == SEVEN_ADMITTED && p.given > given_before ? 1 : 0]++;
        given[2] += result >> 60 == SEVEN_REPLACED;
        relieved += p.given == given_before && result >> 60 == 1;
        seven_survey(p.pool, p.now, &census);
        ck_assert_uint_eq(census.free, seven_free(p.pool));
        ck_assert_uint_eq(census.free + census.waiting + census.served + census.busy, 30);
        ck_assert_uint_le(census.overdue, census.served);
        ck_assert_int_le(abs((int)before - (int)census.free), 1);
    }
    seven_count(p.pool, &tally);
    ck_assert_uint_eq(tally.admitted, given[1]);
    ck_assert_uint_eq(tally.replaced, given[2]);
    ck_assert_uint_eq(tally.relieved, relieved);
    ck_assert_uint_gt(tally.refused, 0);
    ck_assert_uint_gt(tally.relieved, 0);
    player_end(&p);
}
END_TEST

START_TEST(equal_seeds_and_calls_replay)
{
    seven_policy policy = policy_of(40, (enum seven_strategy)(_i % 3));
    player a, b;

    policy.tournament = _i < 3 ? 0 : 3;
    policy.t_m_us = 0;
    a = player_of(&policy, 77);
    b = player_of(&policy, 77);
    for (uint32_t i = 0; i < load(20000); i++) {
        ck_assert_uint_eq(play(&a), play(&b));
    }
    ck_assert_mem_eq((void *)a.pool, (void *)b.pool, seven_size(&policy));
    player_end(&a);
    player_end(&b);
}
END_TEST

/* ---- shapes ----------------------------------------------------------------------------- */

START_TEST(every_place_is_given_once_and_comes_back)
{
    seven_policy policy = policy_of(shapes[_i], SEVEN_ROULETTE);
    uint8_t *given = calloc(policy.places, 1);
    seven_ticket *tickets = calloc(policy.places, sizeof(*tickets)), extra;
    uint32_t wrong = 0, k = policy.places;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);

    for (uint32_t i = 0; i < k; i++) {
        wrong += tickets[i].slot != i || given[tickets[i].slot]++ != 0;
    }
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &extra), SEVEN_REPLACED);
    tickets[extra.slot] = extra;
    for (uint32_t i = 0; i < k; i++) {
        wrong += !seven_leave(pool, tickets[i]) || seven_free(pool) != i + 1;
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert(exact(pool));
    free(pool);
    free(tickets);
    free(given);
}
END_TEST

START_TEST(a_pool_is_as_large_as_its_size_says)
{
    seven_policy policy = policy_of(shapes[_i], SEVEN_ROULETTE);
    size_t size = seven_size(&policy);
    unsigned char *block = aligned_alloc(64, size + 64);
    seven_pool *pool;

    ck_assert_uint_eq(size % 64, 0);
    memset(block, 0xa5, size + 64);
    pool = seven_init(block, &policy);
    ck_assert_uint_eq(seven_free(pool), policy.places);
    ck_assert_uint_eq(block[size], 0xa5);
    ck_assert_uint_eq(seven_pool_policy(pool)->tournament,
                      policy.places > 1 ? policy.places / 2 : 1);
    free(block);
}
END_TEST

/* ---- repair ----------------------------------------------------------------------------- */

/* Places changed by processes that died over it, and nodes that hold anything. */
START_TEST(repair_heals_whatever_is_broken)
{
    seven_policy policy = policy_of(shapes[_i], SEVEN_ROULETTE);
    player p = player_of(&policy, 3);
    uint64_t *nodes = (uint64_t *)&p.pool->words[policy.places];
    uint32_t trees = weighted(p.pool) ? SUMMARIES : BY_WEIGHT; /* that are in use */

    for (int i = 0; i < 200; i++) {
        play(&p);
    }
    for (uint32_t i = 0; i < policy.places; i += 1 + i / 3) {
        p.pool->words[i] =
            word_make(i, (enum seven_state)seven_below(&p.rng, 4), (int64_t)(T0 + i));
    }
    for (uint32_t i = 0; i < trees * p.pool->nodes; i += 1 + i / 5) {
        nodes[i] = seven_below(&p.rng, UINT64_MAX);
    }
    seven_repair(p.pool);
    ck_assert(exact(p.pool));
    player_end(&p);
}
END_TEST

/* A death in the middle, and life goes on: nothing fails, and repair makes it whole. */
START_TEST(calls_go_on_while_summaries_are_broken)
{
    seven_policy policy = policy_of(50, (enum seven_strategy)_i);
    player p = player_of(&policy, 3);

    for (uint32_t i = 0; i < load(20000); i++) {
        uint64_t slot = seven_below(&p.rng, 50), state = seven_below(&p.rng, 4);

        if (i % 10 == 0) {
            p.pool->words[slot] = word_make(word_serial(p.pool->words[slot]) + 1,
                                            (enum seven_state)state, ticks(p.now));
        }
        if (i % 1000 == 0) {
            seven_repair(p.pool);
            ck_assert(exact(p.pool));
        }
        play(&p);
    }
    player_end(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sequence");
    TCase *calls = unit_case(suite, "calls");

    tcase_add_loop_test(calls, summaries_stay_exact, 0, 3 * SHAPES);
    tcase_add_loop_test(calls, summaries_are_left_while_many_places_are_free, 0, 3);
    tcase_add_loop_test(calls, counts_add_up, 0, 3);
    tcase_add_loop_test(calls, equal_seeds_and_calls_replay, 0, 6);
    tcase_add_loop_test(calls, every_place_is_given_once_and_comes_back, 0, SHAPES);
    tcase_add_loop_test(calls, a_pool_is_as_large_as_its_size_says, 0, SHAPES);
    tcase_add_loop_test(calls, repair_heals_whatever_is_broken, 0, SHAPES);
    tcase_add_loop_test(calls, calls_go_on_while_summaries_are_broken, 0, 3);
    return unit_run(suite);
}
