/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event queues: 4-ary heaps in memory of the caller's, with no allocation. A node's four children
 * lie beside each other, so a step down is one or two cache lines.
 */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

#include <stdint.h>

/* ---- one event a slot --------------------------------------------------------------------- */

/* The next event of each slot, if it has one: setting another moves it. Events at equal times come
 * in an order that depends on the past and on nothing else. */
typedef struct sim_slots {
    uint64_t *keys;  /* 4-ary heap of times */
    uint32_t *slots; /* whose they are */
    uint32_t *where; /* of each slot, its place in the heap + 1; 0: it has none */
    uint32_t count;
} sim_slots;

static inline void slots_put(sim_slots *q, uint32_t i, uint64_t key, uint32_t slot)
{
    q->keys[i] = key;
    q->slots[i] = slot;
    q->where[slot] = i + 1;
}

static inline void slots_up(sim_slots *q, uint32_t i, uint64_t key, uint32_t slot)
{
    while (i > 0) {
        uint32_t parent = (i - 1) / 4;

        if (q->keys[parent] <= key) {
            break;
        }
        slots_put(q, i, q->keys[parent], q->slots[parent]);
        i = parent;
    }
    slots_put(q, i, key, slot);
}

static inline void slots_down(sim_slots *q, uint32_t i, uint64_t key, uint32_t slot)
{
    for (;;) {
        uint32_t child = 4 * i + 1, least = child, end = child + 4;

        if (child >= q->count) {
            break;
        }
        end = end < q->count ? end : q->count;
        while (++child < end) {
            least = q->keys[child] < q->keys[least] ? child : least;
        }
        if (q->keys[least] >= key) {
            break;
        }
        slots_put(q, i, q->keys[least], q->slots[least]);
        i = least;
    }
    slots_put(q, i, key, slot);
}

/* Sets the time of a slot's next event, instead of the one it had. */
static inline void slots_set(sim_slots *q, uint32_t slot, uint64_t key)
{
    uint32_t at = q->where[slot];

    if (at == 0) {
        slots_up(q, q->count++, key, slot);
    } else if (key < q->keys[at - 1]) {
        slots_up(q, at - 1, key, slot);
    } else {
        slots_down(q, at - 1, key, slot);
    }
}

/* The slot has no next event. */
static inline void slots_clear(sim_slots *q, uint32_t slot)
{
    uint32_t at = q->where[slot], last, mover;
    uint64_t key;

    if (at == 0) {
        return;
    }
    q->where[slot] = 0;
    last = --q->count;
    if (at - 1 == last) {
        return;
    }
    key = q->keys[last];
    mover = q->slots[last];
    if (at > 1 && key < q->keys[(at - 2) / 4]) {
        slots_up(q, at - 1, key, mover);
    } else {
        slots_down(q, at - 1, key, mover);
    }
}

static inline uint64_t slots_time(const sim_slots *q)
{
    return q->count > 0 ? q->keys[0] : UINT64_MAX;
}

/* ---- any number of events, the newest first among equals ------------------------------------ */

typedef struct sim_event {
    uint64_t key;  /* the bits of a time that is not negative: they are ordered as it is */
    uint64_t what; /* ~(order of insertion) in the upper half, the caller's in the lower */
} sim_event;

typedef struct sim_stack {
    sim_event *heap;
    uint32_t count, inserted;
} sim_stack;

static inline int stack_before(const sim_event *a, const sim_event *b)
{
    return a->key != b->key ? a->key < b->key : a->what < b->what;
}

static inline void stack_push(sim_stack *q, uint64_t key, uint32_t what)
{
    sim_event e = {key, (uint64_t)~q->inserted++ << 32 | what};
    uint32_t i = q->count++;

    while (i > 0 && stack_before(&e, &q->heap[(i - 1) / 4])) {
        q->heap[i] = q->heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    q->heap[i] = e;
}

/* There must be one. */
static inline sim_event stack_pop(sim_stack *q)
{
    sim_event first = q->heap[0], last = q->heap[--q->count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 4 * i + 1, least = child, end = child + 4;

        if (child >= q->count) {
            break;
        }
        end = end < q->count ? end : q->count;
        while (++child < end) {
            least = stack_before(&q->heap[child], &q->heap[least]) ? child : least;
        }
        if (!stack_before(&q->heap[least], &last)) {
            break;
        }
        q->heap[i] = q->heap[least];
        i = least;
    }
    q->heap[i] = last;
    return first;
}

#endif
