/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers that mod_seven protects, one or many behind a balancer: seven_core decides, as it does in
 * httpd, and this file only says when.
 *
 * - An honest client holds a place from its connection on. The clock runs while it keeps a worker
 *   waiting (its need), stands while the server is at work, and then it leaves: served. In the 2014
 *   model all that is ready is served at the round's end.
 * - An attacker holds its place until it loses it (slowloris), or for hold_s (a slow POST comes to
 *   its end). Attackers come at a rate of their own, whatever becomes of them.
 * - The reserve is kept as in mod_seven: by two at most as a newcomer comes in, and by all every
 *   few milliseconds. t_M is fixed, or learned from the honest clients that were served.
 * - Without a defence, who finds every place taken is refused.
 *
 * Each place of each server has a number, and one next event at most.
 */
#include <stdlib.h>

#include "sim.h"
#include "sim_queue.h"
#include "sim_random.h"

#define SECOND 1e6
#define KEEP_US 5000      /* how often the reserve is kept, under attack */
#define BY_NEWCOMER 2     /* places that a newcomer frees, at most */
#define MAX_ALL (1 << 24) /* places of all servers */
#define LONGEST_AGE_S 1e6 /* of what the places are filled with as it begins */

typedef struct client {
    uint64_t came_us;
    seven_ticket ticket;
    bool honest, counts, at_work;
} client;

typedef struct server {
    seven_pool *pool;
    uint32_t held; /* without a defence */
    uint32_t reserved;
    uint64_t kept_us; /* when the reserve was last kept */
} server;

typedef struct run {
    const sim_http *cell;
    seven_rng *rng;
    server *servers;
    client *clients;
    uint32_t *unused; /* without a defence: of each server, places from held on are free */
    sim_slots queue;
    double mu, next_s, rate;
    uint32_t turn;
    uint64_t begin_us, end_us, round_us, arrived;
    uint64_t counted, served, cut, refused;
    double waited_s;
} run;

void sim_http_defaults(sim_http *cell)
{
    *cell = (sim_http){.servers = 1,
                       .places = 180,
                       .honest = 30,
                       .attack = 300,
                       .defence = SIM_TOURNAMENT,
                       .need_s = 0.02,
                       .spread = 0.5,
                       .handler_s = 0.005,
                       .round_s = 0.1,
                       .reserve = 0.05,
                       .warm_up_s = 1,
                       .count = 2000,
                       .prefilled = true};
}

static seven_policy policy_of(const sim_http *cell)
{
    seven_policy policy;

    seven_policy_defaults(&policy, cell->places);
    policy.round_us = (uint64_t)llround(cell->round_s * SECOND);
    policy.t_m_us = (uint64_t)llround(cell->t_m_s * SECOND);
    policy.admit_as = SEVEN_SERVED; /* a client is on the clock from its first moment */
    switch (cell->defence) {
    case SIM_UNIFORM:
        policy.strategy = SEVEN_UNIFORM;
        break;
    case SIM_ROULETTE:
        policy.strategy = SEVEN_ROULETTE;
        break;
    case SIM_OLDEST:
        policy.tournament = cell->places;
        policy.t_m_us = 1000;
        break;
    case SIM_NONE:
    case SIM_TOURNAMENT:
    case SIM_DEFENCES:
        break;
    }
    return policy;
}

/* Where each part lies in a thread's memory, and how much it is. */
typedef struct layout {
    size_t servers, pools, clients, keys, slots, where, unused, size;
} layout;

static layout lay_out(const sim_http *cell)
{
    seven_policy policy = policy_of(cell);
    size_t n = cell->servers, all = n * cell->places;
    layout l = {.size = 0};

    l.servers = part(&l.size, n * sizeof(server));
    l.pools = part(&l.size, n * seven_size(&policy));
    l.clients = part(&l.size, all * sizeof(client));
    l.keys = part(&l.size, all * sizeof(uint64_t));
    l.slots = part(&l.size, all * sizeof(uint32_t));
    l.where = part(&l.size, all * sizeof(uint32_t));
    l.unused = part(&l.size, all * sizeof(uint32_t));
    return l;
}

static void settle(run *r, char *memory)
{
    const sim_http *cell = r->cell;
    seven_policy policy = policy_of(cell);
    layout l = lay_out(cell);
    uint32_t all = cell->servers * cell->places;

    r->servers = (void *)(memory + l.servers);
    r->clients = (void *)(memory + l.clients);
    r->queue.keys = (void *)(memory + l.keys);
    r->queue.slots = (void *)(memory + l.slots);
    r->queue.where = (void *)(memory + l.where);
    r->unused = (void *)(memory + l.unused);
    for (uint32_t i = 0; i < cell->servers; i++) {
        void *block = memory + l.pools + i * seven_size(&policy);

        r->servers[i] = (server){.pool = seven_init(block, &policy),
                                 .reserved = (uint32_t)ceil(cell->reserve * cell->places)};
    }
    for (uint32_t i = 0; i < all; i++) {
        r->queue.where[i] = 0;
        r->unused[i] = i % cell->places;
    }
}

/* ---- clients -------------------------------------------------------------------------------- */

static bool defended(const run *r)
{
    return r->cell->defence != SIM_NONE;
}

static uint64_t later(double s)
{
    return (uint64_t)(s * SECOND);
}

static uint64_t draw_need(run *r)
{
    const sim_http *cell = r->cell;

    return later(cell->spread > 0 ? draw_lognormal(r->rng, r->mu, cell->spread) : cell->need_s);
}

/* A newcomer has a place. */
static void hold(run *r, uint32_t number, seven_ticket ticket, bool honest, bool counts,
                 uint64_t now)
{
    uint64_t end = now + (honest ? draw_need(r) : later(r->cell->hold_s));

    r->clients[number] =
        (client){.came_us = now, .ticket = ticket, .honest = honest, .counts = counts};
    if (honest && r->cell->by_round) {
        end = (end / r->round_us + 1) * r->round_us;
    }
    if (honest || r->cell->hold_s > 0) {
        slots_set(&r->queue, number, end);
    } else {
        slots_clear(&r->queue, number);
    }
}

/* Its place is gone. */
static void lose(run *r, uint32_t number)
{
    r->cut += r->clients[number].counts;
    slots_clear(&r->queue, number);
}

static void leave(run *r, uint32_t number, uint64_t now)
{
    client *c = &r->clients[number];
    server *s = &r->servers[number / r->cell->places];

    slots_clear(&r->queue, number);
    if (defended(r)) {
        seven_leave(s->pool, c->ticket);
    } else {
        r->unused[number - c->ticket.slot + --s->held] = c->ticket.slot;
    }
    if (c->counts) {
        r->served++;
        r->waited_s += (double)(now - c->came_us) / SECOND;
    }
}

/* A client's next event: its request is there, its response is sent, or an attacker is done. */
static void proceed(run *r, uint32_t number, uint64_t now)
{
    client *c = &r->clients[number];
    server *s = &r->servers[number / r->cell->places];

    if (!c->honest || c->at_work) {
        leave(r, number, now);
        return;
    }
    if (defended(r)) {
        seven_learn(s->pool, now - c->came_us, now);
        seven_pause(s->pool, c->ticket, now);
    }
    if (r->cell->handler_s > 0) {
        c->at_work = true;
        slots_set(&r->queue, number, now + later(r->cell->handler_s));
    } else {
        leave(r, number, now);
    }
}

/* ---- servers -------------------------------------------------------------------------------- */

/* Frees places ahead of need, from holders past t_M, while fewer than the reserve are free. */
static void keep_reserve(run *r, uint32_t index, uint64_t now, uint32_t most)
{
    server *s = &r->servers[index];
    seven_ticket loser;

    while (most-- > 0 && seven_free(s->pool) < s->reserved &&
           seven_relieve(s->pool, r->rng, now, SEVEN_OVERDUE_ONLY, &loser)) {
        lose(r, index * r->cell->places + loser.slot);
    }
}

/* A newcomer asks a server; true if it has a place. */
static bool ask(run *r, uint32_t index, bool honest, bool counts, uint64_t now)
{
    server *s = &r->servers[index];
    uint32_t first = index * r->cell->places;
    enum seven_verdict verdict;
    seven_ticket ticket;

    if (!defended(r)) {
        if (s->held == r->cell->places) {
            return false;
        }
        ticket = (seven_ticket){r->unused[first + s->held++], 0};
        hold(r, first + ticket.slot, ticket, honest, counts, now);
        return true;
    }
    if (s->kept_us + KEEP_US <= now) { /* at the last such moment before now */
        s->kept_us = now - now % KEEP_US;
        keep_reserve(r, index, s->kept_us, s->reserved);
    }
    verdict = seven_admit(s->pool, r->rng, now, &ticket);
    if (verdict == SEVEN_REFUSED) {
        return false;
    }
    if (verdict == SEVEN_REPLACED) {
        lose(r, first + ticket.slot);
    }
    hold(r, first + ticket.slot, ticket, honest, counts, now);
    keep_reserve(r, index, now, BY_NEWCOMER);
    return true;
}

static uint32_t load_of(const run *r, uint32_t index)
{
    const server *s = &r->servers[index];

    return defended(r) ? r->cell->places - seven_free(s->pool) : s->held;
}

/* The balancer's choice. */
static uint32_t choose(run *r)
{
    uint32_t n = r->cell->servers, best = r->turn++ % n;

    if (r->cell->balance == SIM_LEAST_CONNECTIONS) {
        uint32_t least = load_of(r, best);

        for (uint32_t i = 1, first = best; i < n && least > 0; i++) {
            uint32_t index = (first + i) % n, load = load_of(r, index);

            if (load < least) {
                least = load;
                best = index;
            }
        }
    }
    return best;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void arrive(run *r, uint64_t now)
{
    bool honest = seven_unit(r->rng) * r->rate < r->cell->honest;
    bool counts = honest && now >= r->begin_us && now < r->end_us;

    r->next_s += draw_exponential(r->rng, 1 / r->rate);
    r->arrived++;
    r->counted += counts;
    if (!ask(r, choose(r), honest, counts, now)) {
        r->refused += counts;
    }
}

/* Attackers hold every place, the oldest as old as they would get. Returns the time then. */
static double fill(run *r)
{
    const sim_http *cell = r->cell;
    double all = (double)cell->places * cell->servers;
    double age = cell->attack > 0 ? all / cell->attack : 0;

    age = age < LONGEST_AGE_S ? age : LONGEST_AGE_S;
    for (uint32_t slot = 0; slot < cell->places; slot++) {
        for (uint32_t i = 0; i < cell->servers; i++) {
            uint64_t then = later(age * slot / cell->places);

            if (defended(r)) {
                seven_ticket ticket;

                seven_admit(r->servers[i].pool, r->rng, then, &ticket);
                hold(r, i * cell->places + ticket.slot, ticket, false, false, then);
            } else {
                ask(r, i, false, false, then);
            }
        }
    }
    return age;
}

/* How long honest clients count: until there should be enough, for whole rounds, and for two at
 * least, since P1 favours those who come early in one. */
static uint64_t window_us(const sim_http *cell)
{
    double rounds = ceil(cell->count / cell->honest / cell->round_s);

    return later((rounds > 2 ? rounds : 2) * cell->round_s);
}

static uint64_t run_http(const void *cell, seven_rng *rng, void *scratch, double *figures)
{
    run r = {.cell = cell, .rng = rng};
    double count;

    settle(&r, scratch);
    r.rate = r.cell->honest + r.cell->attack;
    r.round_us = later(r.cell->round_s);
    r.mu = log(r.cell->need_s) - r.cell->spread * r.cell->spread / 2;
    r.next_s = r.cell->prefilled ? fill(&r) : 0;
    r.begin_us = later(r.next_s + r.cell->warm_up_s);
    r.end_us = r.begin_us + window_us(cell);
    for (;;) {
        uint64_t arrival = later(r.next_s), event = slots_time(&r.queue);

        if (arrival >= r.end_us && r.served + r.cut + r.refused == r.counted) {
            break;
        }
        if (event <= arrival) {
            proceed(&r, r.queue.slots[0], event);
        } else {
            arrive(&r, arrival);
        }
    }
    count = r.counted > 0 ? (double)r.counted : NAN;
    figures[SIM_COMPLETE] = (double)r.served / count;
    figures[SIM_INCOMPLETE] = (double)r.cut / count;
    figures[SIM_UNSUCCESSFUL] = (double)r.refused / count;
    figures[SIM_LASTED] = r.served > 0 ? r.waited_s / (double)r.served : NAN;
    return r.arrived;
}

sim_model sim_http_model(const sim_http *cell)
{
    seven_policy policy = policy_of(cell);
    const char *wrong = seven_policy_error(&policy);

    if ((double)cell->servers * cell->places > MAX_ALL) {
        sim_fail(2, "--servers %u of --places %u are more than %d places in all.", cell->servers,
                 cell->places, MAX_ALL);
    }
    if (wrong != NULL) {
        sim_fail(2, "%c%s.", wrong[0] - 'a' + 'A', wrong + 1);
    }
    return (sim_model){.run = run_http, .scratch = lay_out(cell).size};
}
