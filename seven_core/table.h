/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The things of one process that another of its threads, a watcher, may have to act on at any
 * time: it must find each whole, or not at all.
 *
 * An entry is FREE, LIVE or PINNED. The owner enters and removes its thing; whoever pins an entry
 * keeps the other side out, for a few instructions and a system call, and never waits meanwhile.
 * There is no lock, and entering and removing is one compare-and-swap where nobody is in the way.
 */
#ifndef SEVEN_TABLE_H
#define SEVEN_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "seven.h"

typedef struct seven_entry {
    _Atomic int state;
    _Atomic uint64_t ticket; /* of the place that the thing holds, packed; or none */
    void *thing;             /* while it is pinned */
} seven_entry;

typedef struct seven_table {
    seven_entry *entries; /* the caller's, zeroed */
    int size;
    _Atomic int used; /* one past the highest entry ever used */
} seven_table;

/** Enters a thing, looking first at *hint, a thread's own. Returns its number, or -1 if full. */
int seven_enter(seven_table *table, void *thing, int *hint);

/** Pins an entry, to look at its thing. False if it is free, or pinned by the other side. */
bool seven_pin(seven_entry *entry);

void seven_unpin(seven_entry *entry);

/** Makes a pinned entry free. */
void seven_remove(seven_entry *entry);

/** Says which place the thing holds; NULL: none. */
void seven_entry_set(seven_entry *entry, const seven_ticket *ticket);

/** The ticket of the place it holds; false if none. */
bool seven_entry_ticket(const seven_entry *entry, seven_ticket *ticket);

#endif
