/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_M is learned from whoever completes. Here honest clients are lognormal about 5 ms, and an
 * attacker completes too, as slowly as it likes. What the design promises of t_M, and is asserted:
 *
 * - It follows factor times the quantile of what all who complete take, within the noise of the
 *   steps and the quarter octaves it is published in: NOISE.
 * - An attacker that is a share s of those who complete can hide s of the distribution and no more:
 *   t_M stays under factor times the honest quantile q / (1 - s), however long it takes: under
 *   1.5 times that on average, under 3 times that at any moment.
 * - In a second the estimate moves an octave at most, either way, whatever the attacker's rate; so
 *   a burst as short is worth that octave, and honest clients take it back as fast.
 */
#include <math.h>
#include <string.h>

#include "internal.h"
#include "unit.h"

#define S UINT64_C(1000000)
#define T0 (1000 * S)
#define HONEST_US 5000.0
#define OCTAVES 0.7 /* the honest clients' standard deviation */
#define NOISE 2.0

typedef struct scene {
    seven_pool *pool;
    seven_rng rng;
    uint64_t now;
    uint64_t highest; /* t_M, since reset */
    double octaves;   /* log2 of t_M, summed up over the clients since reset */
    uint32_t clients;
} scene;

static seven_policy policy_of(double quantile)
{
    seven_policy policy;

    seven_policy_defaults(&policy, 50);
    policy.strategy = SEVEN_TOURNAMENT;
    policy.learning.quantile = quantile;
    return policy;
}

static scene scene_of(const seven_policy *policy)
{
    scene s = {.pool = pool_make(policy), .now = T0};

    seven_seed(&s.rng, 12);
    return s;
}

/* A normal variable, near enough: the sum of twelve uniform ones. */
static double normal(seven_rng *rng)
{
    double sum = -6;

    for (int i = 0; i < 12; i++) {
        sum += seven_unit(rng);
    }
    return sum;
}

/* What a share q of the honest do not exceed, found by bisection of the normal distribution. */
static double honest_quantile(double q)
{
    double low = -8, high = 8;

    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        *(0.5 * erfc(-middle / sqrt(2)) < q ? &low : &high) = middle;
    }
    return HONEST_US * exp2(OCTAVES * low);
}

/* A second in which so many honest clients and attackers complete, in random order. */
static void second(scene *s, uint32_t honest, uint32_t attackers, uint64_t attack_us)
{
    uint32_t all = honest + attackers;

    for (uint32_t left = all; left > 0; left--) {
        bool is_honest = seven_below(&s->rng, left) < honest;
        double us = HONEST_US * exp2(OCTAVES * normal(&s->rng));

        honest -= is_honest;
        s->now += S / all;
        seven_learn(s->pool, is_honest ? (uint64_t)us : attack_us, s->now);
        s->octaves += log2((double)seven_t_m(s->pool));
        s->clients++;
        if (seven_t_m(s->pool) > s->highest) {
            s->highest = seven_t_m(s->pool);
        }
    }
    s->now = (s->now / S + 1) * S;
}

static void seconds(scene *s, uint32_t count, uint32_t honest, uint32_t attackers,
                    uint64_t attack_us)
{
    for (uint32_t i = 0; i < count; i++) {
        second(s, honest, attackers, attack_us);
    }
}

static double octaves_off(uint64_t t_m, double expected)
{
    return fabs(log2((double)t_m / expected));
}

/* ---- honest clients --------------------------------------------------------------------- */

START_TEST(t_m_starts_low)
{
    seven_policy policy = policy_of(0.5);
    scene s = scene_of(&policy);

    ck_assert_uint_eq(seven_t_m(s.pool), policy.learning.min_us);
    free(s.pool);
}
END_TEST

START_TEST(t_m_follows_the_quantile)
{
    static const double quantiles[] = {0.5, 0.75, 0.9, 0.95};
    static const uint32_t rates[] = {5, 30, 1000};
    seven_policy policy = policy_of(quantiles[_i % 4]);
    double expected = policy.learning.factor * honest_quantile(quantiles[_i % 4]), sum = 0;
    scene s = scene_of(&policy);

    seconds(&s, 100, rates[_i / 4], 0, 0);
    for (int i = 0; i < 200; i++) {
        second(&s, rates[_i / 4], 0, 0);
        sum += log2((double)seven_t_m(s.pool));
        ck_assert_double_le(octaves_off(seven_t_m(s.pool), expected), log2(NOISE));
    }
    ck_assert_double_le(fabs(sum / 200 - log2(expected)), 0.3);
    free(s.pool);
}
END_TEST

/* From the bottom up to clients that take a hundred times as long, and back. */
START_TEST(t_m_follows_a_change)
{
    seven_policy policy = policy_of(0.5);
    scene s = scene_of(&policy);

    seconds(&s, 20, 0, 100, 500000);
    ck_assert_double_le(octaves_off(seven_t_m(s.pool), 4 * 500000), 0.5);
    seconds(&s, 20, 100, 0, 0);
    ck_assert_double_le(octaves_off(seven_t_m(s.pool), 4 * HONEST_US), 0.5);
    free(s.pool);
}
END_TEST

START_TEST(t_m_stays_within_its_bounds)
{
    seven_policy policy = policy_of(_i ? 0.95 : 0.5);
    scene s = scene_of(&policy);

    for (int i = 0; i < 100; i++) {
        second(&s, 0, 100, i < 50 ? UINT64_MAX : 0);
        ck_assert_uint_ge(seven_t_m(s.pool), policy.learning.min_us);
        ck_assert_uint_le(seven_t_m(s.pool), policy.learning.max_us);
        if (i == 49) {
            ck_assert_double_le(octaves_off(seven_t_m(s.pool), (double)policy.learning.max_us),
                                0.25);
        }
    }
    ck_assert_double_le(octaves_off(seven_t_m(s.pool), (double)policy.learning.min_us), 0.25);
    free(s.pool);
}
END_TEST

START_TEST(equal_bounds_fix_t_m)
{
    seven_policy policy = policy_of(0.5);
    scene s;

    policy.learning.min_us = policy.learning.max_us = 77777;
    s = scene_of(&policy);
    for (int i = 0; i < 100; i++) {
        second(&s, 50, 50, i % 2 ? UINT64_MAX : 0);
        ck_assert_uint_eq(seven_t_m(s.pool), 77777);
    }
    free(s.pool);
}
END_TEST

START_TEST(a_fixed_t_m_learns_nothing)
{
    seven_policy policy = policy_of(0.5);
    scene s;

    policy.t_m_us = 123456;
    s = scene_of(&policy);
    seconds(&s, 10, 100, 100, UINT64_MAX);
    ck_assert_uint_eq(seven_t_m(s.pool), 123456);
    free(s.pool);
}
END_TEST

/* Roulette's weights depend on t_M: they are those of the new one as soon as it changes. */
START_TEST(weights_follow_t_m)
{
    seven_policy policy = policy_of(0.5);
    uint32_t changes = 0;
    seven_ticket t;
    scene s;

    policy.strategy = SEVEN_ROULETTE;
    s = scene_of(&policy);
    for (uint64_t i = 0; i < 50; i++) {
        ck_assert_int_eq(seven_admit(s.pool, &s.rng, T0, &t), SEVEN_ADMITTED);
        ck_assert(seven_serve(s.pool, t, T0 - i * 10000));
    }
    for (int i = 0; i < 300; i++) {
        uint64_t before = seven_t_m(s.pool), root = root_load(s.pool, BY_WEIGHT);

        seven_learn(s.pool, i < 150 ? S : 0, s.now += S / 2);
        changes += seven_t_m(s.pool) != before;
        ck_assert((seven_t_m(s.pool) != before) == (root_load(s.pool, BY_WEIGHT) != root));
        root = root_load(s.pool, BY_WEIGHT);
        seven_repair(s.pool);
        ck_assert_uint_eq(root_load(s.pool, BY_WEIGHT), root);
    }
    ck_assert_uint_gt(changes, 10);
    free(s.pool);
}
END_TEST

/* ---- how fast --------------------------------------------------------------------------- */

/* The estimate moves an octave a second at most; t_M is published within 3/8 octave of it. */
START_TEST(a_second_moves_t_m_by_an_octave)
{
    static const double quantiles[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999};
    seven_policy policy = policy_of(quantiles[_i]);
    scene s;

    policy.learning.min_us = 1000;
    policy.learning.max_us = SEVEN_MAX_TIME_US;
    s = scene_of(&policy);
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t before = seven_t_m(s.pool);

        second(&s, 0, 20000, i < 50 ? UINT64_MAX : 0);
        ck_assert_double_le(octaves_off(seven_t_m(s.pool), (double)before), 1.375);
        if (i == 19) { /* and up to an octave it does move */
            ck_assert_double_ge(octaves_off(seven_t_m(s.pool), 1000), 19);
        }
    }
    ck_assert_double_le(octaves_off(seven_t_m(s.pool), (double)policy.learning.min_us), 3);
    free(s.pool);
}
END_TEST

/* ---- attackers -------------------------------------------------------------------------- */

/* How far an attacker of that share of those who complete can move t_M. */
static double worst(const seven_policy *policy, double share)
{
    double q = policy->learning.quantile / (1 - share);

    return policy->learning.factor * honest_quantile(q < 0.9999 ? q : 0.9999);
}

typedef struct attack {
    double quantile;
    uint32_t honest, attackers;
} attack;

static const attack attacks[] = {{0.5, 30, 3},     {0.5, 30, 12},  {0.5, 60, 40},
                                 {0.5, 1000, 600}, {0.75, 90, 10}, {0.9, 95, 5}};

/* A minority, all the time: before an attack, and from the server's start. */
START_TEST(a_minority_cannot_teach_t_m)
{
    const attack *a = &attacks[_i];
    seven_policy policy = policy_of(a->quantile);
    double share = (double)a->attackers / (a->honest + a->attackers);
    scene s = scene_of(&policy);

    seconds(&s, 600, a->honest, a->attackers, 60 * S);
    ck_assert_double_le((double)s.highest, worst(&policy, share) * 3);
    ck_assert_double_le(exp2(s.octaves / s.clients), worst(&policy, share) * 1.5);
    free(s.pool);
}
END_TEST

/* Ten times the honest rate in bursts of a second, after ten quiet ones: each is worth an octave
 * at most, gone before the next. */
START_TEST(bursts_are_worth_an_octave)
{
    seven_policy policy = policy_of(0.5);
    double calm = policy.learning.factor * HONEST_US * NOISE;
    scene s = scene_of(&policy);

    seconds(&s, 60, 30, 0, 0);
    for (int i = 0; i < 50; i++) {
        s.highest = 0;
        second(&s, 30, 300, 60 * S);
        ck_assert_double_le((double)s.highest, 2 * calm);
        seconds(&s, 5, 30, 0, 0);
        s.highest = 0;
        seconds(&s, 5, 30, 0, 0);
        ck_assert_double_le((double)s.highest, calm);
    }
    free(s.pool);
}
END_TEST

/* A majority does teach it, an octave a second; once it stops, as many seconds undo it. */
START_TEST(t_m_recovers_from_a_majority)
{
    seven_policy policy = policy_of(0.5);
    double calm = policy.learning.factor * HONEST_US;
    scene s = scene_of(&policy);
    uint32_t needed = 0;

    seconds(&s, 60, 30, 0, 0);
    seconds(&s, 60, 3, 300, 60 * S);
    ck_assert_double_le(octaves_off(seven_t_m(s.pool), (double)policy.learning.max_us), 0.25);
    while ((double)seven_t_m(s.pool) > calm * NOISE) {
        second(&s, 30, 0, 0);
        needed++;
    }
    ck_assert_uint_le(needed, 2 + (uint32_t)log2((double)policy.learning.max_us / calm));
    free(s.pool);
}
END_TEST

/* A server that starts under attack: at first only attackers complete. */
START_TEST(a_start_under_attack_recovers)
{
    seven_policy policy = policy_of(0.5);
    scene s = scene_of(&policy);

    seconds(&s, 20, 0, 100, 60 * S);
    seconds(&s, 60, 60, 20, 60 * S);
    ck_assert_double_le((double)seven_t_m(s.pool), worst(&policy, 0.25) * NOISE);
    free(s.pool);
}
END_TEST

/* Completing fast is no way to harm the honest either: t_M stays at its least or above. */
START_TEST(a_fast_minority_cannot_lower_t_m_far)
{
    seven_policy policy = policy_of(0.5);
    double share = 0.3, least = policy.learning.factor * honest_quantile((0.5 - share) / 0.7);
    scene s = scene_of(&policy);

    policy.learning.min_us = 1000;
    free(s.pool);
    s = scene_of(&policy);
    seconds(&s, 60, 70, 30, 0);
    for (int i = 0; i < 100; i++) {
        second(&s, 70, 30, 0);
        ck_assert_double_ge((double)seven_t_m(s.pool), least / NOISE);
    }
    free(s.pool);
}
END_TEST

/* A new pool goes on from what another learned, within its own bounds. */
START_TEST(a_new_pool_recalls_t_m)
{
    seven_policy policy = policy_of(0.5);
    scene old = scene_of(&policy), new;
    uint64_t learned;

    seconds(&old, 20, 100, 0, 0);
    learned = seven_t_m(old.pool);
    ck_assert_uint_gt(learned, policy.learning.min_us);
    policy.places = 7;
    policy.strategy = SEVEN_ROULETTE;
    new = scene_of(&policy);
    seven_recall(new.pool, 0);
    ck_assert_uint_eq(seven_t_m(new.pool), policy.learning.min_us);
    seven_recall(new.pool, learned);
    ck_assert_uint_eq(seven_t_m(new.pool), learned);
    seconds(&new, 5, 100, 0, 0);
    ck_assert_double_le(fabs(log2((double)seven_t_m(new.pool) / (double)learned)), 1);
    seven_recall(new.pool, UINT64_MAX);
    ck_assert_uint_eq(seven_t_m(new.pool), policy.learning.max_us);
    seven_recall(new.pool, 1);
    ck_assert_uint_eq(seven_t_m(new.pool), policy.learning.min_us);
    free(new.pool);
    policy.t_m_us = 5000;
    new = scene_of(&policy);
    seven_recall(new.pool, learned);
    ck_assert_uint_eq(seven_t_m(new.pool), 5000);
    free(new.pool);
    free(old.pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("learn");
    TCase *honest = unit_case(suite, "honest"), *attacked = unit_case(suite, "attacked");

    tcase_add_test(honest, t_m_starts_low);
    tcase_add_loop_test(honest, t_m_follows_the_quantile, 0, 12);
    tcase_add_test(honest, t_m_follows_a_change);
    tcase_add_loop_test(honest, t_m_stays_within_its_bounds, 0, 2);
    tcase_add_test(honest, equal_bounds_fix_t_m);
    tcase_add_test(honest, a_fixed_t_m_learns_nothing);
    tcase_add_test(honest, weights_follow_t_m);
    tcase_add_test(honest, a_new_pool_recalls_t_m);
    tcase_add_loop_test(attacked, a_second_moves_t_m_by_an_octave, 0, 6);
    tcase_add_loop_test(attacked, a_minority_cannot_teach_t_m, 0, 6);
    tcase_add_test(attacked, bursts_are_worth_an_octave);
    tcase_add_test(attacked, t_m_recovers_from_a_majority);
    tcase_add_test(attacked, a_start_under_attack_recovers);
    tcase_add_test(attacked, a_fast_minority_cannot_lower_t_m_far);
    return unit_run(suite);
}
