/* SPDX-License-Identifier: Apache-2.0 */
/* The places: the core's pool and which call is at which place, and the places of the exempt. */
#include <stdio.h>
#include <stdlib.h>

#include "proxy_internal.h"

/* ---- calls without a place ----------------------------------------------------------------- */

#define NOT_IN_LINE UINT32_MAX

/* c goes on without a place; at says where in the line for one it stands. */
static void put_aside(proxy *p, call *c, uint32_t at)
{
    c->placed = false;
    c->unplaced = true;
    c->ticket.slot = at;
    p->unplaced++;
}

static void put_in(proxy *p, call *c, seven_ticket ticket)
{
    if (c->unplaced) {
        c->unplaced = false;
        p->unplaced--;
    }
    c->ticket = ticket;
    c->placed = true;
    p->slots[ticket.slot] = c;
    if (c->state == CALL_INCALL) {
        seven_serve(p->pool, ticket, c->since_us);
    }
}

/* A place is free: it goes to the first in line, so that newcomers find the places taken for as
 * long as more calls are up than there are places. */
static void hand_on(proxy *p, seven_ticket ticket)
{
    while (p->line_first < p->line_end) {
        call *c = p->line[p->line_first++];

        if (c != NULL && seven_readmit(p->pool, proxy_now_us(), &ticket)) {
            put_in(p, c, ticket);
            return;
        }
    }
}

static void leave_line(proxy *p, call *c)
{
    c->unplaced = false;
    p->unplaced--;
    if (c->ticket.slot != NOT_IN_LINE) {
        p->line[c->ticket.slot] = NULL;
    }
}

/* ---- places -------------------------------------------------------------------------------- */

/* detect_only: the newcomer whom the core would refuse, and the victim, go on without a place: in
 * what is watched they are gone, so that they are not in line for another one. */
static bool observe(proxy *p, call *c, enum seven_verdict verdict, call *loser)
{
    if (verdict == SEVEN_REFUSED) {
        p->count.would_refuse++;
        log_limited(&p->limits[LIMIT_REFUSED], LOG_NOTICE, "would refuse a call");
        put_aside(p, c, NOT_IN_LINE);
    } else {
        p->count.would_cut++;
        log_limited(&p->limits[LIMIT_CUT], LOG_NOTICE, "would end a call of %llu s",
                    (unsigned long long)((proxy_now_us() - loser->since_us) / SECOND_US));
        put_aside(p, loser, NOT_IN_LINE);
    }
    return true;
}

bool place_take(proxy *p, call *c, bool exempt, call **victim)
{
    enum seven_verdict verdict;
    seven_ticket ticket;

    *victim = NULL;
    if (exempt && p->exempt_up < p->config->exempt_calls) {
        p->exempt_up++;
        c->exempt = true;
        c->placed = true;
        p->count.started++;
        return true;
    }
    verdict = seven_admit(p->pool, &p->rng, proxy_now_us(), &ticket);
    if (verdict == SEVEN_REFUSED) {
        p->count.refused += !p->config->detect_only;
        return p->config->detect_only && observe(p, c, verdict, NULL);
    }
    p->count.started++;
    if (verdict == SEVEN_REPLACED) {
        call *loser = p->slots[ticket.slot];

        p->count.replaced += !p->config->detect_only;
        if (p->config->detect_only) {
            observe(p, c, verdict, loser);
        } else {
            loser->placed = false;
            *victim = loser;
        }
    }
    put_in(p, c, ticket);
    return true;
}

void place_serve(proxy *p, call *c, uint64_t since_us)
{
    if (c->placed && !c->exempt) {
        seven_serve(p->pool, c->ticket, since_us);
    }
}

void place_leave(proxy *p, call *c, enum proxy_end end)
{
    p->count.ended[end]++;
    if (c->unplaced) {
        leave_line(p, c);
    }
    if (!c->placed) {
        return;
    }
    c->placed = false;
    if (c->exempt) {
        p->exempt_up--;
    } else {
        seven_leave(p->pool, c->ticket);
        p->slots[c->ticket.slot] = NULL;
        hand_on(p, c->ticket);
    }
}

uint32_t place_lacking(const proxy *p)
{
    uint32_t exempt = p->config->exempt_calls;

    return p->unplaced + (p->exempt_up > exempt ? p->exempt_up - exempt : 0);
}

/* ---- into a new pool -------------------------------------------------------------------- */

struct list {
    call **calls;
    uint32_t count;
};

static bool collect(void *context, call *c)
{
    struct list *list = context;

    if (c->state != CALL_ENDING) {
        list->calls[list->count++] = c;
    }
    return true;
}

static int oldest_first(const void *a, const void *b)
{
    uint64_t x = (*(call *const *)a)->since_us, y = (*(call *const *)b)->since_us;

    return x < y ? -1 : x > y ? 1 : 0;
}

/* An exempt call stays one, though there are fewer places for those: it is nobody's victim. */
static bool put_back(proxy *p, call *c)
{
    seven_ticket ticket;

    if (c->exempt) {
        p->exempt_up++;
        c->placed = true;
        return true;
    }
    if (seven_free(p->pool) == 0 ||
        seven_admit(p->pool, &p->rng, proxy_now_us(), &ticket) != SEVEN_ADMITTED) {
        return false;
    }
    put_in(p, c, ticket);
    return true;
}

/* The oldest have places first: then they can be somebody's victim. Who is left over stands in
 * line. */
static void put_all_back(proxy *p, struct list *list)
{
    p->exempt_up = p->unplaced = 0;
    p->line_first = p->line_end = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        call *c = list->calls[i];

        c->placed = c->unplaced = false;
        if (!put_back(p, c)) {
            put_aside(p, c, p->line_end);
            list->calls[p->line_end++] = c;
        }
    }
    p->line = list->calls;
}

bool place_pool(proxy *p, const seven_policy *policy, char *error, size_t error_size)
{
    uint64_t learned = p->pool != NULL ? seven_t_m(p->pool) : 0;
    void *block = aligned_alloc(64, seven_size(policy));
    call **slots = calloc(policy->places, sizeof(call *));
    struct list list = {.calls = calloc(calls_count(p->calls) + 1, sizeof(call *))};

    if (block == NULL || slots == NULL || list.calls == NULL) {
        free(block);
        free(slots);
        free(list.calls);
        snprintf(error, error_size, "there is no memory for %u calls", policy->places);
        return false;
    }
    free(p->pool_block);
    free(p->slots);
    free(p->line);
    p->pool_block = block;
    p->pool = seven_init(block, policy);
    p->slots = slots;
    seven_recall(p->pool, learned);
    calls_each(p->calls, collect, &list);
    qsort(list.calls, list.count, sizeof(call *), oldest_first);
    put_all_back(p, &list);
    return true;
}
