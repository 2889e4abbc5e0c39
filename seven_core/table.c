/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

enum { FREE, LIVE, PINNED };
#define NO_TICKET UINT64_MAX

static bool claim(seven_entry *entry)
{
    int expected = FREE;

    /* A lost race means that another thing took the entry. */
    return atomic_load_explicit(&entry->state, memory_order_relaxed) == FREE &&
           atomic_compare_exchange_strong(&entry->state, &expected, PINNED);
}

int seven_enter(seven_table *table, void *thing, int *hint)
{
    for (int i = 0; i < table->size; i++) {
        int n = (*hint + i) % table->size, used = atomic_load(&table->used);

        if (!claim(&table->entries[n])) {
            continue;
        }
        table->entries[n].thing = thing;
        atomic_store(&table->entries[n].ticket, NO_TICKET);
        /* A lost race means that another raised it: it may be high enough. */
        while (used <= n && !atomic_compare_exchange_weak(&table->used, &used, n + 1)) {
        }
        atomic_store(&table->entries[n].state, LIVE);
        *hint = n;
        return n;
    }
    return -1;
}

bool seven_pin(seven_entry *entry)
{
    int expected = LIVE;

    return atomic_compare_exchange_strong(&entry->state, &expected, PINNED);
}

void seven_unpin(seven_entry *entry)
{
    atomic_store(&entry->state, LIVE);
}

void seven_remove(seven_entry *entry)
{
    entry->thing = NULL;
    atomic_store(&entry->ticket, NO_TICKET);
    atomic_store(&entry->state, FREE);
}

void seven_entry_set(seven_entry *entry, const seven_ticket *ticket)
{
    atomic_store(&entry->ticket,
                 ticket == NULL ? NO_TICKET : (uint64_t)ticket->slot << 32 | ticket->serial);
}

bool seven_entry_ticket(const seven_entry *entry, seven_ticket *ticket)
{
    uint64_t packed = atomic_load(&entry->ticket);

    *ticket = (seven_ticket){.slot = (uint32_t)(packed >> 32), .serial = (uint32_t)packed};
    return packed != NO_TICKET;
}
