/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_M, learned from clients that completed (attackers do not).
 *
 * The estimate is of a quantile q, by stochastic approximation (Robbins and Monro, 1951) of the
 * logarithm: a client that took longer moves it up by q * STEP, one that took less down by
 * (1 - q) * STEP, so it rests where a share q took less. How much longer does not matter, so a few
 * who take extremely long weigh no more than a few who take a little long. In a second it moves by
 * no more than an octave either way, however many ask.
 *
 * One word: estimate (22 bits, octaves of a microsecond / 65536) | second (18 bits) | how far it
 * rose in that second (12 bits, octaves / 1024) | how far it fell (12 bits).
 *
 * t_M is published in quarter octaves with hysteresis, since each change makes roulette weigh all
 * holders anew.
 */
#include <math.h>

#include "internal.h"

#define OCTAVE 65536
#define STEP (OCTAVE / 8)
#define MOVED_UNIT (OCTAVE / 1024)
#define MOVED_MAX 1024U /* an octave */
#define SECOND_MASK ((UINT64_C(1) << 18) - 1)
#define MOVED_MASK ((UINT64_C(1) << 12) - 1)

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
    if (pool->policy.strategy == SEVEN_ROULETTE) {
        seven_repair(pool);
    }
}

void seven_learn(seven_pool *pool, uint64_t waited_us, uint64_t now_us)
{
    const seven_learning *l = &pool->policy.learning;
    uint64_t old = atomic_load(&pool->learned), new, second = now_us / 1000000 & SECOND_MASK;
    int64_t estimate;

    if (pool->policy.t_m_us != 0) {
        return;
    }
    /* A lost race means another client's time was learned first: learn ours from there. */
    do {
        uint64_t rose = old >> 12 & MOVED_MASK, fell = old & MOVED_MASK;
        int64_t before = clip(l, (int64_t)(old >> 42));
        bool up = (double)waited_us > exp2((double)before / OCTAVE);
        int64_t step = (int64_t)(up ? l->quantile * STEP : (1 - l->quantile) * STEP);

        if ((old >> 24 & SECOND_MASK) != second) {
            rose = fell = 0;
        }
        estimate = clip(l, up ? before + step : before - step);
        if (estimate == before || (up ? rose : fell) >= MOVED_MAX) {
            return;
        }
        *(up ? &rose : &fell) += (uint64_t)(step / MOVED_UNIT);
        new = (uint64_t)estimate << 42 | second << 24 | (rose & MOVED_MASK) << 12 |
              (fell & MOVED_MASK);
    } while (!atomic_compare_exchange_weak(&pool->learned, &old, new));
    publish(pool, estimate);
}
