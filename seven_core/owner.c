/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose places they are. A place that is won by one process may have to be taken up with, or given
 * back for, another; so beside each place stands its owner: serial (32 bits) | owner (32 bits).
 */
#include "internal.h"

static _Atomic uint64_t *owner_word(seven_pool *pool, uint32_t slot)
{
    return &pool->words[owner_index(pool, slot)];
}

static uint64_t owner_load(const seven_pool *pool, uint32_t slot)
{
    return atomic_load(&pool->words[owner_index(pool, slot)]);
}

/* True if serial a was given out after b; serials wrap. */
static bool later(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << (32 - SERIAL_BITS)) > 0;
}

void seven_own(seven_pool *pool, seven_ticket ticket, uint32_t owner)
{
    _Atomic uint64_t *word = owner_word(pool, ticket.slot);
    uint64_t old = atomic_load(word);

    /* Losing to a later holder's record means that ours is no longer wanted. */
    do {
        if (later((uint32_t)(old >> 32), ticket.serial)) {
            return;
        }
    } while (!atomic_compare_exchange_weak(word, &old, (uint64_t)ticket.serial << 32 | owner));
}

uint32_t seven_owner(const seven_pool *pool, uint32_t slot)
{
    return (uint32_t)owner_load(pool, slot);
}

uint64_t seven_lost_us(const seven_pool *pool, uint32_t slot)
{
    return atomic_load_explicit(&pool->words[owner_index(pool, slot) + 1], memory_order_relaxed);
}

uint32_t seven_reclaim(seven_pool *pool, uint64_t now_us, uint64_t orphan_us,
                       bool (*gone)(const void *context, uint32_t owner), const void *context)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < pool->policy.places; slot++) {
        seven_ticket ticket;
        uint64_t owner = owner_load(pool, slot);
        bool known;

        if (seven_holder(pool, slot, &ticket) == SEVEN_FREE) {
            continue;
        }
        known = (uint32_t)(owner >> 32) == ticket.serial;
        if (known ? gone(context, (uint32_t)owner) : seven_age(pool, ticket, now_us) > orphan_us) {
            count += seven_leave(pool, ticket);
        }
    }
    seven_repair(pool);
    return count;
}
