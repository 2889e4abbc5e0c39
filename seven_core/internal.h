/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of seven_core share: the layout of a pool, and its summaries. */
#ifndef SEVEN_INTERNAL_H
#define SEVEN_INTERNAL_H

#include <stdatomic.h>

#include "seven.h"

/* A place is one word: serial | state | start. Start is the tick at which the age that counts was
 * zero; while BUSY, it is that age itself plus BUSY_BIAS, since the clock stands. */
#define START_BITS 40
#define STATE_BITS 2
#define SERIAL_BITS 22
#define START_MASK ((UINT64_C(1) << START_BITS) - 1)
#define SERIAL_MASK ((UINT32_C(1) << SERIAL_BITS) - 1)
#define BUSY_BIAS (INT64_C(1) << (START_BITS - 1))

/* Places are summed up in trees of FANOUT children a node, one kind of summary a tree. */
#define FANOUT 16U
#define MAX_LEVELS 5U /* 16^5 = SEVEN_MAX_PLACES */

enum summary {
    BY_COUNT,  /* free places, waiting holders, holders in service: COUNT_BITS each */
    BY_AGE,    /* the oldest holder in service: (START_MASK - start) | how many are as old */
    BY_WEIGHT, /* sum of e^(alpha * age / t_M) in service, at an arbitrary time: see weighted() */
    SUMMARIES
};
#define COUNT_BITS 21
#define AGE_SHIFT (64 - START_BITS)
#define TIES_MASK ((UINT64_C(1) << AGE_SHIFT) - 1)

/* Of all trees but BY_COUNT: one of these, or the number of a repair that is under way. */
enum freshness { FRESH, STALE, FIRST_REPAIR };

struct seven_pool {
    seven_policy policy;
    uint32_t levels;             /* of nodes above the places; the last has one node */
    uint32_t width[MAX_LEVELS];  /* nodes in each level, lowest first */
    uint32_t offset[MAX_LEVELS]; /* of each level in a tree */
    uint32_t nodes;              /* in one tree */
    _Atomic uint32_t freshness;  /* of the trees that draws need; changes seldom */
    _Atomic uint32_t repairs;    /* of stale trees, so far */
    /* Changed by all; each on a line of its own, apart from what only is read. */
    _Alignas(64) _Atomic uint64_t gate;    /* round (40 bits) | PMod (24 bits) */
    _Alignas(64) _Atomic uint64_t learned; /* see learn.c */
    _Atomic uint64_t t_m_us;               /* t_M in use */
    _Alignas(64) _Atomic uint64_t admitted;
    _Alignas(64) _Atomic uint64_t replaced;
    _Atomic uint64_t refused, relieved;
    /* The places, then SUMMARIES trees, then for each place its owner and when it was last lost. */
    _Alignas(64) _Atomic uint64_t words[];
};

static inline uint32_t word_serial(uint64_t word)
{
    return (uint32_t)(word >> (START_BITS + STATE_BITS));
}

static inline enum seven_state word_state(uint64_t word)
{
    return (enum seven_state)((word >> START_BITS) & 3);
}

static inline int64_t word_start(uint64_t word)
{
    return (int64_t)(word & START_MASK);
}

static inline uint64_t word_make(uint32_t serial, enum seven_state state, int64_t start)
{
    return (uint64_t)(serial & SERIAL_MASK) << (START_BITS + STATE_BITS) |
           (uint64_t)state << START_BITS | ((uint64_t)start & START_MASK);
}

static inline int64_t ticks(uint64_t us)
{
    return (int64_t)(us / SEVEN_TICK_US);
}

static inline uint64_t place_load(const seven_pool *pool, uint32_t slot)
{
    return atomic_load(&pool->words[slot]);
}

static inline _Atomic uint64_t *node_at(seven_pool *pool, enum summary kind, uint32_t level,
                                        uint32_t index)
{
    return &pool->words[pool->policy.places + kind * pool->nodes + pool->offset[level] + index];
}

static inline uint64_t node_load(const seven_pool *pool, enum summary kind, uint32_t level,
                                 uint32_t index)
{
    return atomic_load(
        &pool->words[pool->policy.places + kind * pool->nodes + pool->offset[level] + index]);
}

static inline size_t owner_index(const seven_pool *pool, uint32_t slot)
{
    return pool->policy.places + (size_t)SUMMARIES * pool->nodes + 2 * (size_t)slot;
}

static inline uint64_t root_load(const seven_pool *pool, enum summary kind)
{
    return node_load(pool, kind, pool->levels - 1, 0);
}

/* Up to so many places, roulette adds up all drop factors at each draw, and keeps no weights: that
 * takes less than keeping them, and nothing while nobody is drawn. */
#define FEW_PLACES 48U
static inline bool weighted(const seven_pool *pool)
{
    return pool->policy.strategy == SEVEN_ROULETTE && pool->policy.places > FEW_PLACES;
}

/* How many children a node has; those of level 0 are places. */
static inline uint32_t children_of(const seven_pool *pool, uint32_t level, uint32_t index)
{
    uint32_t below = level == 0 ? pool->policy.places : pool->width[level - 1];
    uint32_t left = below - index * FANOUT;

    return left < FANOUT ? left : FANOUT;
}

/* How many places in a state a value of BY_COUNT tells of: SEVEN_FREE, WAITING or SERVED. */
static inline uint64_t count_of(uint64_t count, enum seven_state state)
{
    return count >> (COUNT_BITS * state) & ((UINT64_C(1) << COUNT_BITS) - 1);
}

/* Brings all summaries above a place up to date, also where only a higher one is wrong. */
void summarise(seven_pool *pool, uint32_t slot);

/* Before a draw: works out anew the summaries that were not kept up to date. */
void freshen(seven_pool *pool);

/* A weight, or a sum of some, is its logarithm to base 2 in steps of 2^-20, plus 2^63; 0 is none.
 * One weight is at most 1, and at least 2^-(2^43): alpha 20, t_M 1 ms, after eight years. */
uint64_t weigh(const seven_pool *pool, int64_t start);

/* draw.c: what a node of BY_WEIGHT should be, from its children. */
uint64_t weight_sum(const seven_pool *pool, uint32_t level, uint32_t index);

/* What a place that holds this word contributes. */
static inline uint64_t contribution(const seven_pool *pool, enum summary kind, uint64_t word)
{
    enum seven_state state = word_state(word);

    switch (kind) {
    case BY_COUNT:
        return state == SEVEN_BUSY ? 0 : UINT64_C(1) << (COUNT_BITS * state);
    case BY_AGE:
        return state == SEVEN_SERVED ? (START_MASK - (word & START_MASK)) << AGE_SHIFT | 1 : 0;
    case BY_WEIGHT:
        return state == SEVEN_SERVED ? weigh(pool, word_start(word)) : 0;
    case SUMMARIES:
        break;
    }
    return 0;
}

/* What one place, or a whole node, contributes to its parent. */
static inline uint64_t summary_of(const seven_pool *pool, enum summary kind, uint32_t level,
                                  uint32_t index)
{
    return level == 0 ? contribution(pool, kind, place_load(pool, index))
                      : node_load(pool, kind, level - 1, index);
}

/* draw.c: the victim by P2; *word is what its place held. False if there is nobody to draw. */
bool draw_victim(seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot, uint64_t *word);

/* draw.c: the holder longest in service, ties by lot; false if none is past t_M. */
bool draw_overdue(seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot, uint64_t *word);

/* draw.c: one of the free places, by lot. */
bool draw_free(seven_pool *pool, seven_rng *rng, uint32_t *slot, uint64_t *word);

/* The drop factor with t_M in ticks, for ages that may be negative. */
double drop_factor(const seven_policy *policy, double t_m, enum seven_state state, int64_t age);

#endif
