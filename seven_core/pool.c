/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places, and P1.
 *
 * A place changes by one compare-and-swap on its word; whoever wins it owns the change:
 *
 *            admit                     serve                  pause
 *     FREE ---------> WAITING -------------------> SERVED <---------> BUSY
 *       ^  (or straight to SERVED: admit_as)         |       resume     |
 *       '------------------ leave, relieve ----------'------------------'
 *     A newcomer's replacement overwrites any held state, with the next serial.
 *
 * Finding a place among k without looking at all k: above the places stand trees of FANOUT
 * children a node, each node a summary of its children. After a change, summarise() works out each
 * node above the place from its children, and stops where nothing changed. A summary is a function
 * of what is below it and nothing else, so it heals: whoever finds one that disagrees with its
 * children works it out again, and so does seven_repair(). No decision rests on a summary alone:
 * it ends in a compare-and-swap on the place itself. (The idea of summaries that any thread can
 * refresh is Jayanti's f-arrays, 2002.)
 *
 * While many places are free nobody is drawn, and only free places are counted: the other trees are
 * left as they are and said to be stale, and the next draw works them out anew.
 */
#include <math.h>
#include <string.h>

#include "internal.h"

#define ROUND_BITS 40
#define PMOD_BITS 24
#define PMOD_MAX ((UINT64_C(1) << PMOD_BITS) - 1)

/* Races a decision may lose before the newcomer is refused. Each is lost to somebody who won. */
#define MAX_ATTEMPTS 1000

#define REPAIRS (UINT32_C(1) << 31) /* numbers, until one is used again */

#define LARGE 4 /* levels of a pool that no cache holds: over 16^3 places */

/* ---- layout ----------------------------------------------------------------------------- */

/* Fills in the shape of the trees; returns how many words the pool needs. */
static size_t lay_out(const seven_policy *policy, uint32_t *levels, uint32_t *width,
                      uint32_t *offset)
{
    uint32_t below = policy->places, nodes = 0, level = 0;

    do {
        width[level] = (below + FANOUT - 1) / FANOUT;
        offset[level] = nodes;
        nodes += width[level];
        below = width[level++];
    } while (below > 1);
    *levels = level;
    return nodes;
}

size_t seven_size(const seven_policy *policy)
{
    uint32_t levels, width[MAX_LEVELS], offset[MAX_LEVELS];
    size_t nodes = lay_out(policy, &levels, width, offset);
    size_t words = 3 * (size_t)policy->places + SUMMARIES * nodes;
    size_t size = sizeof(seven_pool) + words * sizeof(_Atomic uint64_t);

    return (size + 63) & ~(size_t)63;
}

seven_pool *seven_init(void *block, const seven_policy *policy)
{
    seven_pool *pool = block;

    memset(block, 0, seven_size(policy));
    pool->policy = *policy;
    if (policy->tournament == 0) {
        pool->policy.tournament = policy->places > 1 ? policy->places / 2 : 1;
    }
    pool->nodes = (uint32_t)lay_out(policy, &pool->levels, pool->width, pool->offset);
    atomic_store(&pool->t_m_us, policy->t_m_us ? policy->t_m_us : policy->learning.min_us);
    seven_repair(pool);
    return pool;
}

const seven_policy *seven_pool_policy(const seven_pool *pool)
{
    return &pool->policy;
}

/* ---- summaries -------------------------------------------------------------------------- */

static inline uint64_t combine(enum summary kind, uint64_t a, uint64_t b)
{
    switch (kind) {
    case BY_COUNT:
        return a + b;
    case BY_AGE:
        if (a >> AGE_SHIFT != b >> AGE_SHIFT) {
            return a > b ? a : b;
        }
        return a + (b & TIES_MASK);
    case BY_WEIGHT: /* weight_sum() */
    case SUMMARIES:
        break;
    }
    return 0;
}

static inline uint64_t work_out(const seven_pool *pool, enum summary kind, uint32_t level,
                                uint32_t index)
{
    uint32_t children = children_of(pool, level, index);
    uint64_t sum = 0;

    if (kind == BY_WEIGHT) {
        return weight_sum(pool, level, index);
    }
    for (uint32_t i = 0; i < children; i++) {
        sum = combine(kind, sum, summary_of(pool, kind, level, index * FANOUT + i));
    }
    return sum;
}

/* Makes one node agree with its children; true if it did not. Others may change the children, or
 * refresh this node, meanwhile: then the loop works it out again, so that the last to write has
 * seen all that was there. Losing means another wrote something newer. */
static bool refresh(seven_pool *pool, enum summary kind, uint32_t level, uint32_t index)
{
    _Atomic uint64_t *node = node_at(pool, kind, level, index);
    bool changed = false;

    for (;;) {
        uint64_t old = atomic_load(node);
        uint64_t sum = work_out(pool, kind, level, index);

        if (sum == old) {
            return changed;
        }
        changed |= atomic_compare_exchange_strong(node, &old, sum);
    }
}

static bool in_use(const seven_pool *pool, enum summary kind)
{
    return kind != BY_WEIGHT || weighted(pool);
}

static void refresh_above(seven_pool *pool, enum summary kind, uint32_t slot, bool all)
{
    uint32_t index = slot / FANOUT;

    for (uint32_t level = 0; level < pool->levels; level++) {
        if (!refresh(pool, kind, level, index) && !all) {
            break; /* whoever made it so goes on up */
        }
        index /= FANOUT;
    }
}

void summarise(seven_pool *pool, uint32_t slot)
{
    for (unsigned kind = 0; kind < SUMMARIES; kind++) {
        if (in_use(pool, kind)) {
            refresh_above(pool, kind, slot, true);
        }
    }
}

void seven_repair(seven_pool *pool)
{
    for (uint32_t level = 0; level < pool->levels; level++) {
        for (uint32_t index = 0; index < pool->width[level]; index++) {
            for (unsigned kind = 0; kind < SUMMARIES; kind++) {
                if (in_use(pool, kind)) {
                    refresh(pool, kind, level, index);
                }
            }
        }
    }
}

/* Whether so many places are free that a draw is not to be expected. */
static bool roomy(const seven_pool *pool)
{
    return seven_free(pool) > pool->policy.places / 4;
}

/* A change of a place that the trees for draws were not told of. A tree that is being repaired may
 * have been read before the change: then it has to be repaired again. */
static void leave_stale(seven_pool *pool)
{
    if (atomic_load(&pool->freshness) != STALE) {
        atomic_store(&pool->freshness, STALE);
    }
}

/* Several may do this at once, each for itself. A place that changes meanwhile says STALE; so does,
 * in effect, another repair with its own number: either way the exchange at the end is lost, and
 * only a repair that nothing came after makes the trees FRESH. */
void freshen(seven_pool *pool)
{
    uint32_t mine;

    if (atomic_load(&pool->freshness) == FRESH) {
        return;
    }
    mine = FIRST_REPAIR + atomic_fetch_add(&pool->repairs, 1) % REPAIRS;
    atomic_store(&pool->freshness, mine);
    seven_repair(pool);
    atomic_compare_exchange_strong(&pool->freshness, &mine, FRESH);
}

/* ---- P1 --------------------------------------------------------------------------------- */

/* Counts a newcomer that found the places taken; returns PMod before it. A lost race means another
 * newcomer was counted first: count again. A clock behind the gate's round counts in that one. */
static uint64_t gate_pass(seven_pool *pool, uint64_t now_us)
{
    uint64_t now_round = now_us / pool->policy.round_us;
    uint64_t old = atomic_load(&pool->gate), round, pmod;

    do {
        round = old >> PMOD_BITS;
        pmod = old & PMOD_MAX;
        if (round < now_round) {
            round = now_round;
            pmod = 0;
        }
    } while (!atomic_compare_exchange_weak(
        &pool->gate, &old, round << PMOD_BITS | (pmod < PMOD_MAX ? pmod + 1 : pmod)));
    return pmod;
}

uint64_t seven_pmod(const seven_pool *pool, uint64_t now_us)
{
    uint64_t gate = atomic_load(&pool->gate);

    return gate >> PMOD_BITS < now_us / pool->policy.round_us ? 0 : gate & PMOD_MAX;
}

static bool let_in(seven_pool *pool, seven_rng *rng, uint64_t now_us)
{
    uint64_t k = pool->policy.places;

    return seven_below(rng, k + gate_pass(pool, now_us)) < k;
}

/* ---- changing a place ------------------------------------------------------------------- */

/* Reads what taking a place is about to touch. In a large pool none of it is in a cache, and to
 * wait for all of it at once is shorter than for one after another. */
static void touch(const seven_pool *pool, uint32_t slot)
{
    uint32_t first = slot - slot % FANOUT, half = first + FANOUT / 2;

    if (pool->levels < LARGE) {
        return;
    }
    place_load(pool, first);
    place_load(pool, half < pool->policy.places ? half : first);
    node_load(pool, BY_AGE, 0, slot / FANOUT);
    atomic_load_explicit(&pool->words[owner_index(pool, slot)], memory_order_relaxed);
}

/* Swaps a place's word, then brings the summaries up to date. False if another was faster. */
static bool swap(seven_pool *pool, uint32_t slot, uint64_t old, uint64_t new)
{
    if (!atomic_compare_exchange_strong(&pool->words[slot], &old, new)) {
        return false;
    }
    if (contribution(pool, BY_COUNT, old) != contribution(pool, BY_COUNT, new)) {
        refresh_above(pool, BY_COUNT, slot, false);
    }
    if (roomy(pool)) {
        leave_stale(pool);
        return true;
    }
    for (unsigned kind = BY_COUNT + 1; kind < SUMMARIES; kind++) {
        if (in_use(pool, kind) && contribution(pool, kind, old) != contribution(pool, kind, new)) {
            refresh_above(pool, kind, slot, false);
        }
    }
    return true;
}

static bool take(seven_pool *pool, uint32_t slot, uint64_t old, int64_t now, seven_ticket *ticket)
{
    uint32_t serial = (word_serial(old) + 1) & SERIAL_MASK;

    touch(pool, slot);
    if (!swap(pool, slot, old, word_make(serial, pool->policy.admit_as, now))) {
        return false;
    }
    *ticket = (seven_ticket){.slot = slot, .serial = serial};
    return true;
}

static void lost(seven_pool *pool, uint32_t slot, uint64_t now_us)
{
    atomic_store_explicit(&pool->words[owner_index(pool, slot) + 1], now_us, memory_order_relaxed);
}

enum seven_verdict seven_admit(seven_pool *pool, seven_rng *rng, uint64_t now_us,
                               seven_ticket *ticket)
{
    bool passed = false;
    uint32_t slot;
    uint64_t word;

    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        if (draw_free(pool, rng, &slot, &word)) {
            if (take(pool, slot, word, ticks(now_us), ticket)) {
                atomic_fetch_add_explicit(&pool->admitted, 1, memory_order_relaxed);
                return SEVEN_ADMITTED;
            }
            continue;
        }
        if (!passed && !let_in(pool, rng, now_us)) {
            break;
        }
        passed = true;
        if (draw_victim(pool, rng, ticks(now_us), &slot, &word) &&
            take(pool, slot, word, ticks(now_us), ticket)) {
            atomic_fetch_add_explicit(&pool->replaced, 1, memory_order_relaxed);
            lost(pool, slot, now_us);
            return SEVEN_REPLACED;
        }
    }
    atomic_fetch_add_explicit(&pool->refused, 1, memory_order_relaxed);
    return SEVEN_REFUSED;
}

bool seven_readmit(seven_pool *pool, uint64_t now_us, seven_ticket *ticket)
{
    uint64_t word = place_load(pool, ticket->slot);

    if (word_state(word) != SEVEN_FREE || !take(pool, ticket->slot, word, ticks(now_us), ticket)) {
        return false;
    }
    atomic_fetch_add_explicit(&pool->admitted, 1, memory_order_relaxed);
    return true;
}

/* The place's word while the ticket's holder has it. */
static bool held(const seven_pool *pool, seven_ticket ticket, uint64_t *word)
{
    *word = place_load(pool, ticket.slot);
    return word_state(*word) != SEVEN_FREE && word_serial(*word) == ticket.serial;
}

/* The next four change a place that a newcomer may take, or progress may move, at any time: each
 * tries again from what the place then holds, and ends once the holder has lost it. */

bool seven_serve(seven_pool *pool, seven_ticket ticket, uint64_t now_us)
{
    uint64_t word;

    while (held(pool, ticket, &word)) {
        if (word_state(word) != SEVEN_WAITING) {
            return true;
        }
        if (swap(pool, ticket.slot, word, word_make(ticket.serial, SEVEN_SERVED, ticks(now_us)))) {
            return true;
        }
    }
    return false;
}

bool seven_pause(seven_pool *pool, seven_ticket ticket, uint64_t now_us)
{
    uint64_t word;

    while (held(pool, ticket, &word)) {
        int64_t age = ticks(now_us) - word_start(word);

        if (word_state(word) != SEVEN_SERVED) {
            return true;
        }
        if (swap(pool, ticket.slot, word, word_make(ticket.serial, SEVEN_BUSY, age + BUSY_BIAS))) {
            return true;
        }
    }
    return false;
}

bool seven_resume(seven_pool *pool, seven_ticket ticket, uint64_t now_us)
{
    uint64_t word;

    while (held(pool, ticket, &word)) {
        int64_t start = ticks(now_us) - (word_start(word) - BUSY_BIAS);

        if (word_state(word) != SEVEN_BUSY) {
            return true;
        }
        start = start > 0 ? start : 0;
        if (swap(pool, ticket.slot, word, word_make(ticket.serial, SEVEN_SERVED, start))) {
            return true;
        }
    }
    return false;
}

/* The start field of a holder whose age falls by paid, to no less than -credit. */
static int64_t pay(const seven_pool *pool, uint64_t word, int64_t now, int64_t paid)
{
    int64_t credit = ticks(pool->policy.credit_us);
    int64_t start = word_start(word);

    if (word_state(word) == SEVEN_BUSY) {
        int64_t age = start - BUSY_BIAS - paid;
        return (age > -credit ? age : -credit) + BUSY_BIAS;
    }
    start += paid;
    return start < now + credit ? start : now + credit;
}

bool seven_progress(seven_pool *pool, seven_ticket ticket, uint64_t now_us, uint64_t paid_us)
{
    int64_t paid = ticks(paid_us < SEVEN_MAX_TIME_US ? paid_us : SEVEN_MAX_TIME_US);
    uint64_t word;

    while (held(pool, ticket, &word)) {
        enum seven_state state = word_state(word);
        int64_t start = pay(pool, word, ticks(now_us), paid);

        if (state == SEVEN_WAITING || start == word_start(word)) {
            return true;
        }
        if (swap(pool, ticket.slot, word, word_make(ticket.serial, state, start))) {
            return true;
        }
    }
    return false;
}

bool seven_leave(seven_pool *pool, seven_ticket ticket)
{
    uint64_t word;

    while (held(pool, ticket, &word)) {
        if (swap(pool, ticket.slot, word, word_make(ticket.serial, SEVEN_FREE, 0))) {
            return true;
        }
    }
    return false;
}

bool seven_relieve(seven_pool *pool, seven_rng *rng, uint64_t now_us, enum seven_relief relief,
                   seven_ticket *loser)
{
    bool passed = false;
    uint32_t slot;
    uint64_t word;

    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        if (!draw_overdue(pool, rng, ticks(now_us), &slot, &word)) {
            /* Only with somebody to relieve is it a newcomer's turn that is spent. */
            if (relief == SEVEN_OVERDUE_ONLY ||
                !draw_victim(pool, rng, ticks(now_us), &slot, &word) ||
                word_state(word) == SEVEN_BUSY || (!passed && !let_in(pool, rng, now_us))) {
                return false;
            }
            passed = true;
        }
        /* A lost race means the holder left, moved on or was replaced: look again. */
        if (swap(pool, slot, word, word_make(word_serial(word), SEVEN_FREE, 0))) {
            atomic_fetch_add_explicit(&pool->relieved, 1, memory_order_relaxed);
            lost(pool, slot, now_us);
            *loser = (seven_ticket){.slot = slot, .serial = word_serial(word)};
            return true;
        }
    }
    return false;
}

/* ---- looking ---------------------------------------------------------------------------- */

bool seven_holds(const seven_pool *pool, seven_ticket ticket)
{
    uint64_t word;

    return held(pool, ticket, &word);
}

enum seven_state seven_holder(const seven_pool *pool, uint32_t slot, seven_ticket *ticket)
{
    uint64_t word = place_load(pool, slot);

    *ticket = (seven_ticket){.slot = slot, .serial = word_serial(word)};
    return word_state(word);
}

static int64_t age_of(uint64_t word, int64_t now)
{
    return word_state(word) == SEVEN_BUSY ? word_start(word) - BUSY_BIAS : now - word_start(word);
}

uint64_t seven_age(const seven_pool *pool, seven_ticket ticket, uint64_t now_us)
{
    uint64_t word;
    int64_t age;

    if (!held(pool, ticket, &word)) {
        return 0;
    }
    age = age_of(word, ticks(now_us));
    return age > 0 ? (uint64_t)age * SEVEN_TICK_US : 0;
}

uint32_t seven_free(const seven_pool *pool)
{
    return (uint32_t)count_of(root_load(pool, BY_COUNT), SEVEN_FREE);
}

void seven_count(const seven_pool *pool, seven_tally *tally)
{
    tally->admitted = atomic_load_explicit(&pool->admitted, memory_order_relaxed);
    tally->replaced = atomic_load_explicit(&pool->replaced, memory_order_relaxed);
    tally->refused = atomic_load_explicit(&pool->refused, memory_order_relaxed);
    tally->relieved = atomic_load_explicit(&pool->relieved, memory_order_relaxed);
}

void seven_survey(const seven_pool *pool, uint64_t now_us, seven_census *census)
{
    int64_t t_m = ticks(seven_t_m(pool));

    *census = (seven_census){0};
    for (uint32_t slot = 0; slot < pool->policy.places; slot++) {
        uint64_t word = place_load(pool, slot);

        switch (word_state(word)) {
        case SEVEN_FREE:
            census->free++;
            break;
        case SEVEN_WAITING:
            census->waiting++;
            break;
        case SEVEN_SERVED:
            census->served++;
            census->overdue += age_of(word, ticks(now_us)) > t_m;
            break;
        case SEVEN_BUSY:
            census->busy++;
            break;
        }
    }
}
