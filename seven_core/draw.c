/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P2: who makes room. Each draw is exact, and needs time that grows with the logarithm of k.
 *
 * - A full pool's random slot is a random holder: uniform, and tournaments of few, just look.
 * - Of a large tournament only the winner's rank is drawn; the summaries BY_AGE find who has it.
 * - Roulette: d is at most c + E, with c = max(p_wait, p_in) and E = scale * e^(alpha * age / t_M).
 *   A candidate drawn in proportion to c + E is kept with probability d / (c + E). The c part is
 *   uniform. The E part descends through BY_WEIGHT: as time passes all E grow by the same factor,
 *   so the weights' proportions stay as they were. A weight is E / scale at the clock's zero. In a
 *   pool of few places, all d are added up instead.
 *
 * Draws reject what does not qualify (free, busy, changed meanwhile) and draw again; after
 * MAX_REJECTIONS they count who qualifies instead, which is as exact and costs O(k). Tournaments
 * whose entrants would mostly all be busy draw how many are not, and then those.
 */
#include <math.h>

#include "internal.h"

#define MAX_REJECTIONS 256
#define BLIND_TRIES 8
#define SAMPLE_MAX 2048U /* entrants drawn one by one at most */
#define FEW 64U          /* far more than ever are, where a quarter is to be expected */
#define NOWHERE UINT32_MAX

#define WEIGHT_ONE (UINT64_C(1) << 63)
#define WEIGHT_STEPS (1 << 20)                   /* to a doubling */
#define WEIGHT_GAP (UINT64_C(64) * WEIGHT_STEPS) /* from where on the lesser does not count */

#define DROP_LOG2 900 /* log2 of the greatest drop factors that are added up as they are */

/* ---- weights ---------------------------------------------------------------------------- */

/* log2 of e^(alpha * ticks / t_M). */
static double growth(const seven_pool *pool)
{
    return pool->policy.alpha * 1.4426950408889634 * SEVEN_TICK_US / (double)seven_t_m(pool);
}

uint64_t weigh(const seven_pool *pool, int64_t start)
{
    return WEIGHT_ONE - (uint64_t)((double)start * growth(pool) * WEIGHT_STEPS);
}

/* The weights of a node's children over the greatest of them; returns their sum. */
static double shares(const seven_pool *pool, uint32_t level, uint32_t index, double *share,
                     uint64_t *greatest)
{
    uint32_t children = children_of(pool, level, index);
    uint64_t weight[FANOUT];
    double total = 0;

    *greatest = 0;
    for (uint32_t i = 0; i < children; i++) {
        weight[i] = summary_of(pool, BY_WEIGHT, level, index * FANOUT + i);
        *greatest = weight[i] > *greatest ? weight[i] : *greatest;
    }
    for (uint32_t i = 0; i < children; i++) {
        uint64_t gap = *greatest - weight[i];

        share[i] = weight[i] == 0 || gap > WEIGHT_GAP ? 0 : exp2(-(double)gap / WEIGHT_STEPS);
        total += share[i];
    }
    return total;
}

uint64_t weight_sum(const seven_pool *pool, uint32_t level, uint32_t index)
{
    uint64_t greatest;
    double share[FANOUT], total = shares(pool, level, index, share, &greatest);

    return greatest == 0 ? 0 : greatest + (uint64_t)(log2(total) * WEIGHT_STEPS);
}

/* ---- descents --------------------------------------------------------------------------- */

/* Parts of a BY_COUNT. */
typedef uint64_t part_of(uint64_t count);

static uint64_t free_part(uint64_t count)
{
    return count_of(count, SEVEN_FREE);
}

static uint64_t waiting_part(uint64_t count)
{
    return count_of(count, SEVEN_WAITING);
}

static uint64_t served_part(uint64_t count)
{
    return count_of(count, SEVEN_SERVED);
}

static uint64_t droppable_part(uint64_t count)
{
    return waiting_part(count) + served_part(count);
}

/* A child of a node, drawn in proportion to a part of its count; false if all are zero. */
static bool child_by_count(const seven_pool *pool, seven_rng *rng, uint32_t level, uint32_t *index,
                           part_of *part)
{
    uint32_t children = children_of(pool, level, *index);
    uint64_t count[FANOUT], total = 0, r;

    for (uint32_t i = 0; i < children; i++) {
        count[i] = part(summary_of(pool, BY_COUNT, level, *index * FANOUT + i));
        total += count[i];
    }
    if (total == 0) {
        return false;
    }
    r = seven_below(rng, total);
    for (uint32_t i = 0; i < children; i++) {
        if (r < count[i]) {
            *index = *index * FANOUT + i;
            return true;
        }
        r -= count[i];
    }
    return false;
}

/* A place drawn uniformly among those that a part of BY_COUNT counts. A summary that promises what
 * is no longer there belongs to somebody who is about to correct it, or died: correct it too. */
static bool by_count(seven_pool *pool, seven_rng *rng, uint32_t *slot, part_of *part)
{
    for (int i = 0; i < MAX_REJECTIONS; i++) {
        uint32_t level = pool->levels, index = 0;

        if (part(root_load(pool, BY_COUNT)) == 0) {
            return false;
        }
        while (level > 0 && child_by_count(pool, rng, level - 1, &index, part)) {
            level--;
        }
        if (level == 0) {
            *slot = index;
            return true;
        }
        while (level-- > 0) {
            index *= FANOUT; /* a place below the node that disagrees */
        }
        summarise(pool, index);
    }
    return false;
}

bool draw_free(seven_pool *pool, seven_rng *rng, uint32_t *slot, uint64_t *word)
{
    while (by_count(pool, rng, slot, free_part)) {
        *word = place_load(pool, *slot);
        if (word_state(*word) == SEVEN_FREE) {
            return true; /* else another took it meanwhile */
        }
        summarise(pool, *slot);
    }
    return false;
}

/* A place drawn in proportion to its weight; false if there is none in service. */
static bool by_weight(const seven_pool *pool, seven_rng *rng, uint32_t *slot)
{
    uint32_t index = 0;

    for (uint32_t level = pool->levels; level-- > 0;) {
        uint32_t children = children_of(pool, level, index), i;
        uint64_t greatest;
        double share[FANOUT] = {0};
        double r = seven_unit(rng) * shares(pool, level, index, share, &greatest);

        if (greatest == 0) {
            return false;
        }
        for (i = 0; i < children - 1 && r >= share[i]; i++) {
            r -= share[i];
        }
        index = index * FANOUT + i;
    }
    *slot = index;
    return true;
}

/* ---- who qualifies ---------------------------------------------------------------------- */

static bool overdue(const seven_pool *pool, uint64_t word, int64_t now)
{
    return word_state(word) == SEVEN_SERVED && now - word_start(word) > ticks(seven_t_m(pool));
}

static bool droppable(const seven_pool *pool, uint64_t word, int64_t now)
{
    (void)pool;
    (void)now;
    return word_state(word) == SEVEN_SERVED || word_state(word) == SEVEN_WAITING;
}

static bool young(const seven_pool *pool, uint64_t word, int64_t now)
{
    return word_state(word) == SEVEN_SERVED && !overdue(pool, word, now);
}

static bool young_or_waiting(const seven_pool *pool, uint64_t word, int64_t now)
{
    return droppable(pool, word, now) && !overdue(pool, word, now);
}

static bool busy(const seven_pool *pool, uint64_t word, int64_t now)
{
    (void)pool;
    (void)now;
    return word_state(word) == SEVEN_BUSY;
}

typedef bool qualifies(const seven_pool *pool, uint64_t word, int64_t now);

/* A place drawn uniformly among those that qualify, by counting them. */
static bool by_census(const seven_pool *pool, seven_rng *rng, int64_t now, qualifies *ok,
                      uint32_t *slot, uint64_t *word)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < pool->policy.places; i++) {
        uint64_t w = place_load(pool, i);

        if (ok(pool, w, now) && seven_below(rng, ++count) == 0) {
            *slot = i;
            *word = w;
        }
    }
    return count > 0;
}

/* A place drawn uniformly among those that qualify, all of which a part of BY_COUNT counts, or most
 * places do. A random place is the cheapest to look at; where few qualify, that part knows them. */
static bool by_lot(seven_pool *pool, seven_rng *rng, int64_t now, qualifies *ok, part_of *part,
                   uint32_t *slot, uint64_t *word)
{
    for (int i = 0; i < MAX_REJECTIONS; i++) {
        if (i < BLIND_TRIES || part == NULL || !by_count(pool, rng, slot, part)) {
            *slot = (uint32_t)seven_below(rng, pool->policy.places);
        }
        *word = place_load(pool, *slot);
        if (ok(pool, *word, now)) {
            return true;
        }
    }
    return by_census(pool, rng, now, ok, slot, word);
}

/* ---- by rank ---------------------------------------------------------------------------- */

/* A class is all holders in service with the same start; its key is BY_AGE's upper part, so an
 * older class has the higher key. */

/* The highest key under bound below a node, with how many have it; 0 if there is none. A node whose
 * own key is under the bound answers for all below it, so this looks only along the paths to
 * holders at or above the bound. */
static uint64_t class_under(const seven_pool *pool, uint32_t level, uint32_t index, uint64_t bound)
{
    uint64_t age = summary_of(pool, BY_AGE, level, index), best = 0;
    uint32_t children;

    if (age == 0 || age >> AGE_SHIFT < bound) {
        return age;
    }
    if (level == 0) {
        return 0;
    }
    children = children_of(pool, level - 1, index);
    for (uint32_t i = 0; i < children; i++) {
        uint64_t a = class_under(pool, level - 1, index * FANOUT + i, bound);

        if (a >> AGE_SHIFT != best >> AGE_SHIFT) {
            best = a > best ? a : best;
        } else {
            best += a & TIES_MASK;
        }
    }
    return best;
}

/* Finds the holder number *nth of a class below a node; counts *nth down past the others. Where a
 * node promises a member that nobody below it is, *slot is a place below, and false returned. */
static bool class_member(const seven_pool *pool, uint32_t level, uint32_t index, uint64_t key,
                         uint64_t *nth, uint32_t *slot)
{
    uint64_t age = summary_of(pool, BY_AGE, level, index);
    uint32_t children;

    if (age >> AGE_SHIFT < key) {
        return false;
    }
    if (age >> AGE_SHIFT == key && *nth >= (age & TIES_MASK)) {
        *nth -= age & TIES_MASK;
        return false;
    }
    if (level == 0) {
        *slot = index;
        return age >> AGE_SHIFT == key;
    }
    children = children_of(pool, level - 1, index);
    for (uint32_t i = 0; i < children; i++) {
        if (class_member(pool, level - 1, index * FANOUT + i, key, nth, slot)) {
            return true;
        }
    }
    if (age >> AGE_SHIFT == key && *slot == NOWHERE) {
        *slot = index * (1U << 4 * level);
    }
    return false;
}

static bool class_overdue(const seven_pool *pool, uint64_t class, int64_t now)
{
    int64_t start = (int64_t)(START_MASK - (class >> AGE_SHIFT));

    return class != 0 && now - start > ticks(seven_t_m(pool));
}

/* A holder of the class, by lot. A class that has changed meanwhile is brought up to date. */
static bool from_class(seven_pool *pool, seven_rng *rng, uint64_t class, uint32_t *slot,
                       uint64_t *word)
{
    uint64_t nth = seven_below(rng, class & TIES_MASK);

    *slot = NOWHERE;
    if (class_member(pool, pool->levels, 0, class >> AGE_SHIFT, &nth, slot)) {
        *word = place_load(pool, *slot);
        if (droppable(pool, *word, 0)) {
            return true;
        }
    }
    if (*slot != NOWHERE) {
        summarise(pool, *slot);
    }
    return false;
}

bool draw_overdue(seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot, uint64_t *word)
{
    freshen(pool);
    for (int i = 0; i < MAX_REJECTIONS; i++) {
        uint64_t class = root_load(pool, BY_AGE);

        if (!class_overdue(pool, class, now)) {
            return false;
        }
        if (from_class(pool, rng, class, slot, word) && overdue(pool, *word, now)) {
            return true;
        }
    }
    seven_repair(pool); /* a summary nobody corrects: a process died over it */
    return by_census(pool, rng, now, overdue, slot, word);
}

/* The rank, from the oldest, of a tournament's winner: each holder in turn is an entrant or not. */
static uint64_t winner_rank(const seven_pool *pool, seven_rng *rng)
{
    uint64_t k = pool->policy.places, n = pool->policy.tournament, rank = 0;

    while (seven_below(rng, k - rank) >= n) {
        rank++;
    }
    return rank;
}

static bool from_waiting(seven_pool *pool, seven_rng *rng, uint32_t *slot, uint64_t *word)
{
    if (!by_count(pool, rng, slot, waiting_part)) {
        return false;
    }
    *word = place_load(pool, *slot);
    return word_state(*word) == SEVEN_WAITING;
}

/* The holder at that rank by drop factor, ties by lot. Highest are the overdue, the older the
 * higher; then those waiting and the young, in the order of p_wait and p_in. False if the rank is
 * a busy holder's, or the places changed meanwhile. */
static bool by_rank(seven_pool *pool, seven_rng *rng, int64_t now, uint64_t rank, uint32_t *slot,
                    uint64_t *word)
{
    const seven_policy *policy = &pool->policy;
    uint64_t bound = UINT64_C(1) << START_BITS, class, count, old = 0, served, waiting;

    while (class_overdue(pool, class = class_under(pool, pool->levels, 0, bound), now)) {
        if (rank < (class & TIES_MASK)) {
            return from_class(pool, rng, class, slot, word);
        }
        rank -= class & TIES_MASK;
        old += class & TIES_MASK;
        bound = class >> AGE_SHIFT;
    }
    count = root_load(pool, BY_COUNT);
    waiting = waiting_part(count);
    served = served_part(count);
    if (rank >= waiting + served - (old < served ? old : served)) {
        return false;
    }
    if (policy->p_wait == policy->p_in) {
        return by_lot(pool, rng, now, young_or_waiting, droppable_part, slot, word);
    }
    if (policy->p_wait > policy->p_in ? rank < waiting : rank >= served - old) {
        return from_waiting(pool, rng, slot, word);
    }
    return by_lot(pool, rng, now, young, served_part, slot, word);
}

/* ---- tournaments of few ----------------------------------------------------------------- */

/* Open addressing over the entrants drawn so far. */
static bool enter(uint32_t *table, uint32_t size, uint32_t slot)
{
    uint32_t i = (slot * UINT32_C(2654435769)) & (size - 1);

    while (table[i] != 0) {
        if (table[i] == slot + 1) {
            return false;
        }
        i = (i + 1) & (size - 1);
    }
    table[i] = slot + 1;
    return true;
}

/* Orders holders as their drop factors do, which may be more than a double can hold; 0 if none. */
static int64_t standing(const seven_pool *pool, uint64_t word, int64_t now)
{
    const seven_policy *p = &pool->policy;

    if (!droppable(pool, word, now)) {
        return 0;
    }
    if (overdue(pool, word, now)) {
        return 2 + now - word_start(word); /* over 2: an overdue age is positive */
    }
    return word_state(word) == SEVEN_WAITING ? 1 + (p->p_wait >= p->p_in)
                                             : 1 + (p->p_in >= p->p_wait);
}

/* The entrant with the highest drop factor, ties by lot; false if all are busy. */
static bool highest(const seven_pool *pool, seven_rng *rng, int64_t now, const uint32_t *entrants,
                    uint32_t count, uint32_t *slot, uint64_t *word)
{
    uint64_t ties = 0;
    int64_t best = 1;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t w = place_load(pool, entrants[i]);
        int64_t d = standing(pool, w, now);

        if (d < best) {
            continue;
        }
        ties = d > best ? 1 : ties + 1;
        best = d;
        if (seven_below(rng, ties) == 0) {
            *slot = entrants[i];
            *word = w;
        }
    }
    return ties > 0;
}

/* Draws n distinct places (Floyd's sampling: Bentley, 1987). */
static bool by_sample(const seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot,
                      uint64_t *word)
{
    uint32_t table[2 * SAMPLE_MAX], entrants[SAMPLE_MAX], size = 1, n = pool->policy.tournament;

    while (size < 2 * n) {
        size *= 2;
    }
    for (uint32_t i = 0; i < size; i++) {
        table[i] = 0;
    }
    for (uint32_t i = 0, j = pool->policy.places - n; i < n; i++, j++) {
        entrants[i] = (uint32_t)seven_below(rng, (uint64_t)j + 1);
        if (!enter(table, size, entrants[i])) {
            entrants[i] = j;
            enter(table, size, j);
        }
    }
    return highest(pool, rng, now, entrants, n, slot, word);
}

/* ---- tournaments of hardly any who may be dropped --------------------------------------- */

/* How many of the entrants are droppable, if m places are, given that one is: hypergeometric. */
static uint32_t droppable_entrants(const seven_pool *pool, seven_rng *rng, uint64_t m)
{
    uint64_t n = pool->policy.tournament, busy = pool->policy.places - m;
    double odds = 1, total = 1;
    uint32_t count = 1;

    for (uint32_t j = 1; j < FEW && j < m && j < n; j++) {
        odds *= (double)(m - j) * (double)(n - j) / ((double)(j + 1) * (double)(busy - n + j + 1));
        total += odds;
        if (seven_unit(rng) * total < odds) {
            count = j + 1;
        }
    }
    return count;
}

/* Draws only those entrants that may be dropped. */
static bool by_few(seven_pool *pool, seven_rng *rng, int64_t now, uint64_t m, uint32_t *slot,
                   uint64_t *word)
{
    uint32_t entrants[FEW], count = droppable_entrants(pool, rng, m), drawn = 0;

    for (int i = 0; i < MAX_REJECTIONS && drawn < count; i++) {
        uint32_t other = 0;

        if (!by_count(pool, rng, &entrants[drawn], droppable_part)) {
            return false;
        }
        while (entrants[other] != entrants[drawn]) {
            other++;
        }
        drawn += other == drawn;
    }
    return highest(pool, rng, now, entrants, drawn, slot, word);
}

static bool draw_tournament(seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot,
                            uint64_t *word)
{
    uint64_t n = pool->policy.tournament, ranks = pool->policy.places / n;

    /* Sampling looks at n places. The winner's rank is k/n on average, and finding it looks along
     * as many paths for each rank above it. */
    bool sample = n <= SAMPLE_MAX && n <= 4 * ranks * ranks;
    uint64_t m = droppable_part(root_load(pool, BY_COUNT));

    if (m > 0 && 4 * m * n < pool->policy.places && by_few(pool, rng, now, m, slot, word)) {
        return true;
    }

    /* Where all entrants are busy, the tournament is held again. */
    for (int i = 0; i < MAX_REJECTIONS; i++) {
        if (sample ? by_sample(pool, rng, now, slot, word)
                   : by_rank(pool, rng, now, winner_rank(pool, rng), slot, word)) {
            return true;
        }
    }
    return false;
}

/* ---- roulette --------------------------------------------------------------------------- */

/* The probability that the E part proposes: E's sum over that of c and E. */
static double weighted_share(const seven_pool *pool, int64_t now, double c)
{
    uint64_t sum = root_load(pool, BY_WEIGHT);
    double gap;

    if (sum == 0) {
        return 0;
    }
    gap = log2(c * (double)droppable_part(root_load(pool, BY_COUNT))) - log2(pool->policy.scale) -
          (double)(int64_t)(sum - weigh(pool, now)) / WEIGHT_STEPS;
    return 1 / (1 + exp2(gap));
}

/* d / (c + E), the probability that a candidate is kept. */
static double keep(const seven_pool *pool, uint64_t word, int64_t now, double c)
{
    const seven_policy *p = &pool->policy;
    double e;

    if (word_state(word) == SEVEN_WAITING) {
        return p->p_wait / c;
    }
    if (word_state(word) != SEVEN_SERVED) {
        return 0;
    }
    e = p->scale * exp2((double)(now - word_start(word)) * growth(pool));
    if (!overdue(pool, word, now)) {
        return p->p_in / (c + e);
    }
    return e > 1e100 ? 1 : (p->p_wait + e) / (c + e);
}

/* 0, or where drop factors are more than a double can hold, log2 of what to divide them all by. */
static double excess(const seven_pool *pool, int64_t now)
{
    int64_t oldest = (int64_t)(START_MASK - (root_load(pool, BY_AGE) >> AGE_SHIFT));
    double log = (double)(now - oldest) * growth(pool) + log2(pool->policy.scale);

    return log > DROP_LOG2 ? log - DROP_LOG2 : 0;
}

/* The words of count places from first on, and their drop factors over 2^shift; returns the sum. */
static double drop_factors(const seven_pool *pool, int64_t now, double shift, uint32_t first,
                           uint32_t count, uint64_t *words, double *d)
{
    const seven_policy *p = &pool->policy;
    double rate = growth(pool), scale = log2(p->scale) - shift, unit = exp2(-shift), sum = 0;
    int64_t t_m = ticks(seven_t_m(pool));

    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = place_load(pool, first + i);
        int64_t age = now - word_start(word);

        if (word_state(word) == SEVEN_WAITING) {
            d[i] = p->p_wait * unit;
        } else if (word_state(word) != SEVEN_SERVED) {
            d[i] = 0;
        } else if (age <= t_m) {
            d[i] = p->p_in * unit;
        } else {
            d[i] = p->p_wait * unit + exp2((double)age * rate + scale);
        }
        words[i] = word;
        sum += d[i];
    }
    return sum;
}

/* Roulette by adding up all drop factors. Of each run of places one may become the victim instead
 * of those before it, with the probability of the run's share in all so far. */
static bool roulette_census(const seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot,
                            uint64_t *word)
{
    double shift = excess(pool, now), total = 0;
    uint32_t places = pool->policy.places;
    bool found = false;

    for (uint32_t first = 0; first < places; first += FEW_PLACES) {
        uint32_t count = places - first < FEW_PLACES ? places - first : FEW_PLACES;
        uint64_t words[FEW_PLACES];
        double d[FEW_PLACES], r, sum = drop_factors(pool, now, shift, first, count, words, d);

        total += sum;
        r = seven_unit(rng) * total;
        for (uint32_t i = 0; i < count && r < sum; i++) {
            if (d[i] > 0) {
                *slot = first + i;
                *word = words[i];
                found = true;
                if (r < d[i]) {
                    break;
                }
                r -= d[i];
            }
        }
    }
    return found;
}

static bool draw_roulette(seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot,
                          uint64_t *word)
{
    double c = pool->policy.p_wait > pool->policy.p_in ? pool->policy.p_wait : pool->policy.p_in;

    for (int i = 0; i < MAX_REJECTIONS && weighted(pool); i++) {
        if (seven_unit(rng) >= weighted_share(pool, now, c)) {
            if (!by_lot(pool, rng, now, droppable, droppable_part, slot, word)) {
                return false;
            }
        } else if (by_weight(pool, rng, slot)) {
            *word = place_load(pool, *slot);
        } else {
            continue;
        }
        if (seven_unit(rng) < keep(pool, *word, now, c)) {
            return true;
        }
    }
    return roulette_census(pool, rng, now, slot, word);
}

bool draw_victim(seven_pool *pool, seven_rng *rng, int64_t now, uint32_t *slot, uint64_t *word)
{
    bool found = false;

    freshen(pool);
    if (droppable_part(root_load(pool, BY_COUNT)) == 0 &&
        by_lot(pool, rng, now, busy, NULL, slot, word)) {
        return true;
    }
    switch (pool->policy.strategy) {
    case SEVEN_UNIFORM:
        break;
    case SEVEN_ROULETTE:
        found = draw_roulette(pool, rng, now, slot, word);
        break;
    case SEVEN_TOURNAMENT:
        found = draw_tournament(pool, rng, now, slot, word);
        break;
    }
    return found || by_lot(pool, rng, now, droppable, droppable_part, slot, word) ||
           by_lot(pool, rng, now, busy, NULL, slot, word);
}
