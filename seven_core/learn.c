/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_M, learned from clients that completed (attackers do not).
 *
 * The estimate is of a quantile q, by stochastic approximation (Robbins and Monro, 1951) of the
 * logarithm: a client that took longer moves it up by q * STEP, one that took less down by
 * (1 - q) * STEP, so it rests where a share q took less. How much longer does not matter, so a few
 * who take extremely long weigh no more than a few who take a little long. In a second it moves no
 * further than an octave from where it was as that second began, however many ask. What counts is
 * how far it got, not the way there and back: else, where many ask, both ways would be used up in
 * each second and a wrong estimate stay wrong.
 *
 * One word: estimate (22 bits, octaves of a microsecond / 65536) | what it was as the second began
 * (22 bits) | that second (20 bits).
 *
 * t_M is published in quarter octaves with hysteresis, since each change makes roulette weigh all
 * holders anew.
 */
#include <math.h>

#include "internal.h"

#define OCTAVE 65536
#define STEP 8192 /* an eighth of an octave */
#define SECOND_BITS 20
#define SECOND_MASK ((UINT64_C(1) << SECOND_BITS) - 1)
#define ESTIMATE_BITS 22
#define ESTIMATE_MASK ((UINT64_C(1) << ESTIMATE_BITS) - 1)
#define LATE 16U /* seconds that a caller's clock may be behind another's */

uint64_t seven_t_m(const seven_pool *pool)
{
    return atomic_load_explicit(&pool->t_m_us, memory_order_relaxed);
}

/* Where the estimate may lie: its factor-fold is t_M. */
static int64_t to_scale(const seven_learning *l, uint64_t t_m_us)
{
    double octaves = log2((double)t_m_us / l->factor);

    return octaves > 0 ? (int64_t)(octaves * OCTAVE) : 0;
}

static int64_t clip(const seven_learning *l, int64_t estimate)
{
    int64_t low = to_scale(l, l->min_us), high = to_scale(l, l->max_us);

    return estimate < low ? low : estimate > high ? high : estimate;
}

static void publish(seven_pool *pool, int64_t estimate)
{
    const seven_learning *l = &pool->policy.learning;
    double exact = exp2((double)estimate / OCTAVE) * l->factor;
    double now = (double)seven_t_m(pool);
    double quarter = exp2(round(log2(exact) * 4) / 4);

    if (fabs(log2(exact / now)) <= 0.25) {
        return;
    }
    quarter = quarter < (double)l->min_us ? (double)l->min_us : quarter;
    quarter = quarter > (double)l->max_us ? (double)l->max_us : quarter;
    atomic_store(&pool->t_m_us, (uint64_t)quarter);
    if (weighted(pool)) {
        seven_repair(pool);
    }
}

void seven_recall(seven_pool *pool, uint64_t t_m_us)
{
    const seven_learning *l = &pool->policy.learning;
    uint64_t estimate;

    if (pool->policy.t_m_us != 0 || t_m_us == 0) {
        return;
    }
    t_m_us = t_m_us < l->min_us ? l->min_us : t_m_us > l->max_us ? l->max_us : t_m_us;
    estimate = (uint64_t)to_scale(l, t_m_us);
    /* The second as it is: the first client to be learned from begins its own. */
    atomic_store(&pool->learned, estimate << (64 - ESTIMATE_BITS) | estimate << SECOND_BITS);
    atomic_store(&pool->t_m_us, t_m_us);
    if (weighted(pool)) {
        seven_repair(pool);
    }
}

/* One client's step; never less than the smallest, or a quantile near 0 or 1 could not be left. */
static int64_t step(const seven_learning *l, int64_t estimate, uint64_t waited_us)
{
    if ((double)waited_us > exp2((double)estimate / OCTAVE)) {
        return (int64_t)ceil(l->quantile * STEP);
    }
    return -(int64_t)ceil((1 - l->quantile) * STEP);
}

/* The word after a client has been learned from. */
static uint64_t follow(const seven_learning *l, uint64_t word, uint64_t waited_us, uint64_t second)
{
    int64_t estimate = clip(l, (int64_t)(word >> (64 - ESTIMATE_BITS)));
    int64_t begin = clip(l, (int64_t)(word >> SECOND_BITS & ESTIMATE_MASK));

    if (((word - second) & SECOND_MASK) >= LATE) {
        begin = estimate;
    } else {
        second = word & SECOND_MASK;
    }
    estimate = clip(l, estimate + step(l, estimate, waited_us));
    estimate = estimate > begin + OCTAVE ? begin + OCTAVE : estimate;
    estimate = estimate < begin - OCTAVE ? begin - OCTAVE : estimate;
    return (uint64_t)estimate << (64 - ESTIMATE_BITS) | (uint64_t)begin << SECOND_BITS | second;
}

void seven_learn(seven_pool *pool, uint64_t waited_us, uint64_t now_us)
{
    uint64_t old = atomic_load(&pool->learned), new, second = now_us / 1000000 & SECOND_MASK;

    if (pool->policy.t_m_us != 0) {
        return;
    }
    /* A lost race means another client's time was learned first: learn ours from there. */
    do {
        new = follow(&pool->policy.learning, old, waited_us, second);
        if (new == old) {
            return; /* at its lowest, as it mostly is */
        }
    } while (!atomic_compare_exchange_weak(&pool->learned, &old, new));
    publish(pool, (int64_t)(new >> (64 - ESTIMATE_BITS)));
}
