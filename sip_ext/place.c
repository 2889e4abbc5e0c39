/* SPDX-License-Identifier: Apache-2.0 */
/* The places: the core's pool and which call is at which place, and the places of the exempt. */
#include <stdio.h>
#include <stdlib.h>

#include "proxy_internal.h"

bool place_pool(proxy *p, const seven_policy *policy, char *error, size_t error_size)
{
    void *block = aligned_alloc(64, seven_size(policy));
    call **slots = calloc(policy->places, sizeof(call *));

    if (block == NULL || slots == NULL) {
        free(block);
        free(slots);
        snprintf(error, error_size, "there is no memory for %u calls", policy->places);
        return false;
    }
    free(p->pool_block);
    free(p->slots);
    p->pool_block = block;
    p->pool = seven_init(block, policy);
    p->slots = slots;
    return true;
}

/* detect_only: the newcomer whom the core would refuse, and the victim, go on without a place, as
 * if the server had more of them. */
static bool observe(proxy *p, call *c, enum seven_verdict verdict, call *loser)
{
    if (verdict == SEVEN_REFUSED) {
        p->count.would_refuse++;
        log_limited(&p->limits[LIMIT_REFUSED], LOG_NOTICE, "would refuse a call");
    } else {
        p->count.would_cut++;
        log_limited(&p->limits[LIMIT_CUT], LOG_NOTICE, "would end a call of %llu s",
                    (unsigned long long)((proxy_now_us() - loser->since_us) / SECOND_US));
        loser->placed = false;
    }
    (void)c;
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
    c->ticket = ticket;
    c->placed = true;
    p->slots[ticket.slot] = c;
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
    if (!c->placed) {
        return;
    }
    c->placed = false;
    if (c->exempt) {
        p->exempt_up--;
    } else {
        seven_leave(p->pool, c->ticket);
        p->slots[c->ticket.slot] = NULL;
    }
}

/* ---- into a new pool -------------------------------------------------------------------- */

struct list {
    call **calls;
    size_t count;
};

static bool collect(void *context, call *c)
{
    struct list *list = context;

    if (c->state != CALL_ENDING) {
        list->calls[list->count++] = c;
    }
    return true;
}

static int youngest_first(const void *a, const void *b)
{
    uint64_t x = (*(call *const *)a)->since_us, y = (*(call *const *)b)->since_us;

    return x < y ? 1 : x > y ? -1 : 0;
}

static bool put_back(proxy *p, call *c)
{
    seven_ticket ticket;

    if (c->exempt && p->exempt_up < p->config->exempt_calls) {
        p->exempt_up++;
        c->placed = true;
        return true;
    }
    c->exempt = false;
    if (seven_free(p->pool) == 0 ||
        seven_admit(p->pool, &p->rng, proxy_now_us(), &ticket) != SEVEN_ADMITTED) {
        return false;
    }
    c->ticket = ticket;
    c->placed = true;
    p->slots[ticket.slot] = c;
    if (c->state == CALL_INCALL) {
        seven_serve(p->pool, ticket, c->since_us);
    }
    return true;
}

void place_all(proxy *p, void (*over)(proxy *p, call *c))
{
    struct list list = {.calls = calloc(calls_count(p->calls) + 1, sizeof(call *))};

    if (list.calls == NULL) {
        return;
    }
    calls_each(p->calls, collect, &list);
    qsort(list.calls, list.count, sizeof(call *), youngest_first);
    for (size_t i = 0; i < list.count; i++) {
        list.calls[i]->placed = false;
        if (!put_back(p, list.calls[i])) {
            over(p, list.calls[i]);
        }
    }
    free(list.calls);
}
