/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinated call attack on a server that seven-sip protects: seven_core decides, once a call,
 * and this file only says when. What happens to a call that is let in:
 *
 *     INVITE at the server        a                          WAITING
 *     it goes to the callee       a, or the round's end      (forward = now, or round)
 *     the callee answers          ring later
 *     the caller hears of it      delay later: it talks
 *     its ACK is at the server    delay later                INCALL (SERVED), and d's clock starts
 *     the caller hangs up         its length after it began to talk
 *     its BYE is at the server    delay later                the place is free
 *
 * Attackers' calls are alike but never end. Who loses its place hears of it delay later: if it hung
 * up before, it is complete all the same; if it did not talk yet, it is unsuccessful. A slot has
 * one next event at most, its ACK and then its BYE, and the place's state tells which.
 */
#include <stdlib.h>

#include "sim.h"
#include "sim_queue.h"
#include "sim_random.h"

#define SECOND 1e6
#define NEVER UINT64_MAX
#define LONGEST_S 1e7 /* no call is longer: the clock of a run must not end */

/* A call, at its place's slot. */
typedef struct call {
    uint64_t talk_us, hangup_us; /* at its caller */
    seven_ticket ticket;
    bool counts; /* honest, and of the time that is looked at */
} call;

typedef struct run {
    const sim_calls *cell;
    seven_rng *rng;
    seven_pool *pool;
    call *calls;
    sim_slots queue;
    uint32_t *unused, held; /* without a defence: slots from held on are free */
    double mu, sigma;
    uint64_t delay_us, ring_us, round_us, begin_us, end_us;
    double next_s[2]; /* the next honest, the next attacker; Poisson: the next in [0] */
    const sim_call *given, *given_end; /* the calls to come, if they are not drawn */
    uint64_t arrived, complete, cut, never, undecided;
    double lasted_s;
} run;

void sim_calls_defaults(sim_calls *cell)
{
    *cell = (sim_calls){.places = 24,
                        .rate = 4.75,
                        .share = 0.5,
                        .defence = SIM_TOURNAMENT,
                        .t_m_s = 5,
                        .round_s = 0.1,
                        .delay_s = 0.1,
                        .ring_s = 0.3,
                        .horizon_s = 40};
}

static seven_policy policy_of(const sim_calls *cell)
{
    seven_policy policy;

    seven_policy_defaults(&policy, cell->places);
    policy.round_us = (uint64_t)llround(cell->round_s * SECOND);
    policy.t_m_us = (uint64_t)llround(cell->t_m_s * SECOND);
    if (cell->no_gate) {
        policy.round_us = 1000; /* so short that each newcomer is its first */
    }
    switch (cell->defence) {
    case SIM_UNIFORM:
        policy.strategy = SEVEN_UNIFORM;
        break;
    case SIM_ROULETTE:
        policy.strategy = SEVEN_ROULETTE;
        break;
    case SIM_OLDEST: /* all enter the tournament, and past t_M d grows with age */
        policy.tournament = cell->places;
        policy.t_m_us = 1000;
        break;
    case SIM_TOURNAMENT:
        policy.tournament = cell->entrants > 0 ? cell->entrants : policy.tournament;
        break;
    case SIM_NONE:
    case SIM_DEFENCES:
        break;
    }
    return policy;
}

/* ---- scratch memory: the run, its pool, calls and queue -------------------------------------- */

/* Where each part lies in a thread's memory, and how much it is. */
typedef struct layout {
    size_t pool, calls, keys, slots, where, unused, size;
} layout;

static layout lay_out(const sim_calls *cell)
{
    seven_policy policy = policy_of(cell);
    size_t k = cell->places;
    layout l = {.size = 0};

    l.pool = part(&l.size, seven_size(&policy));
    l.calls = part(&l.size, k * sizeof(call));
    l.keys = part(&l.size, k * sizeof(uint64_t));
    l.slots = part(&l.size, k * sizeof(uint32_t));
    l.where = part(&l.size, k * sizeof(uint32_t));
    l.unused = part(&l.size, k * sizeof(uint32_t));
    return l;
}

static void settle(run *r, char *memory)
{
    seven_policy policy = policy_of(r->cell);
    layout l = lay_out(r->cell);

    r->pool = seven_init(memory + l.pool, &policy);
    r->calls = (void *)(memory + l.calls);
    r->queue.keys = (void *)(memory + l.keys);
    r->queue.slots = (void *)(memory + l.slots);
    r->queue.where = (void *)(memory + l.where);
    r->unused = (void *)(memory + l.unused);
    r->queue.count = 0;
    r->held = 0;
    r->undecided = 0;
    for (uint32_t i = 0; i < r->cell->places; i++) {
        r->queue.where[i] = 0;
        r->unused[i] = i;
    }
}

/* ---- arrivals ------------------------------------------------------------------------------- */

static void arrivals_begin(run *r)
{
    const sim_calls *cell = r->cell;

    if (cell->fixed) { /* each class at equal intervals, the first at random within one */
        r->next_s[0] = seven_unit(r->rng) / (cell->rate * (1 - cell->share));
        r->next_s[1] = cell->share > 0 ? seven_unit(r->rng) / (cell->rate * cell->share) : INFINITY;
    } else {
        r->next_s[0] = draw_exponential(r->rng, 1 / cell->rate);
    }
}

/* When the next INVITE is at the server. */
static uint64_t arrival_us(const run *r)
{
    double next = r->cell->fixed && r->next_s[1] < r->next_s[0] ? r->next_s[1] : r->next_s[0];

    if (r->cell->load != NULL) {
        return r->given < r->given_end ? r->given->begins_us + r->delay_us : NEVER;
    }
    return (uint64_t)(next * SECOND) + r->delay_us;
}

/* Whose call it is; draws the one after. */
static bool arrival_is_honest(run *r)
{
    const sim_calls *cell = r->cell;

    if (cell->load != NULL) {
        return r->given++->lasts_us != SIM_FOREVER;
    }
    if (!cell->fixed) {
        r->next_s[0] += draw_exponential(r->rng, 1 / cell->rate);
        return seven_unit(r->rng) >= cell->share;
    }
    if (r->next_s[1] < r->next_s[0]) {
        r->next_s[1] += 1 / (cell->rate * cell->share);
        return false;
    }
    r->next_s[0] += 1 / (cell->rate * (1 - cell->share));
    return true;
}

/* ---- what becomes of calls ------------------------------------------------------------------ */

/* Of the honest call that has just arrived. */
static uint64_t length_us(run *r)
{
    double s;

    if (r->cell->load != NULL) {
        return r->given[-1].lasts_us;
    }
    s = r->cell->lengths == SIM_EXPONENTIAL ? draw_exponential(r->rng, r->cell->t_m_s)
                                            : draw_lognormal(r->rng, r->mu, r->sigma);
    return (uint64_t)((s < LONGEST_S ? s : LONGEST_S) * SECOND);
}

/* It lost its place, and hears of it delay later. */
static void lose(run *r, call *loser, uint64_t now)
{
    uint64_t hears = now + r->delay_us;

    if (!loser->counts) {
        return;
    }
    r->undecided--;
    if (hears >= loser->hangup_us) {
        r->complete++;
    } else if (hears >= loser->talk_us) {
        r->cut++;
        r->lasted_s += (double)(hears - loser->talk_us) / SECOND;
    } else {
        r->never++;
    }
}

static void connect(run *r, uint32_t slot, seven_ticket ticket, bool honest, bool counts,
                    uint64_t now)
{
    uint64_t sent = r->cell->by_round ? (now / r->round_us + 1) * r->round_us : now;
    uint64_t talk = sent + r->ring_us + r->delay_us;

    r->calls[slot] =
        (call){.talk_us = talk, .hangup_us = NEVER, .ticket = ticket, .counts = counts};
    if (honest) {
        r->calls[slot].hangup_us = talk + length_us(r);
    }
    slots_set(&r->queue, slot, talk + r->delay_us);
}

static void invite_undefended(run *r, bool honest, bool counts, uint64_t now)
{
    if (r->held == r->cell->places) {
        r->never += counts;
        return;
    }
    r->undecided += counts;
    connect(r, r->unused[r->held++], (seven_ticket){0, 0}, honest, counts, now);
}

static void invite(run *r, uint64_t now)
{
    bool honest = arrival_is_honest(r);
    uint64_t spawned = now - r->delay_us;
    bool counts = honest && spawned >= r->begin_us && spawned < r->end_us;
    seven_ticket ticket;

    if (r->cell->defence == SIM_NONE) {
        invite_undefended(r, honest, counts, now);
        return;
    }
    switch (seven_admit(r->pool, r->rng, now, &ticket)) {
    case SEVEN_REFUSED:
        r->never += counts;
        return;
    case SEVEN_REPLACED:
        lose(r, &r->calls[ticket.slot], now);
        break;
    case SEVEN_ADMITTED:
        break;
    }
    r->undecided += counts;
    connect(r, ticket.slot, ticket, honest, counts, now);
}

/* A slot's next event: its ACK, or its BYE. */
static void proceed(run *r, uint32_t slot, uint64_t now)
{
    call *c = &r->calls[slot];
    uint64_t bye = c->hangup_us == NEVER ? NEVER : c->hangup_us + r->delay_us;

    if (now == c->talk_us + r->delay_us && bye > now) {
        if (r->cell->defence != SIM_NONE) {
            seven_serve(r->pool, c->ticket, now);
        }
        if (bye == NEVER) {
            slots_clear(&r->queue, slot);
        } else {
            slots_set(&r->queue, slot, bye);
        }
        return;
    }
    slots_clear(&r->queue, slot);
    if (r->cell->defence == SIM_NONE) {
        r->unused[--r->held] = slot;
    } else {
        seven_leave(r->pool, c->ticket);
    }
    r->complete += c->counts;
    r->undecided -= c->counts;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void simulate(run *r)
{
    uint64_t last = r->cell->drain ? 20 * r->end_us : r->end_us;

    for (;;) {
        uint64_t arrival = arrival_us(r), event = slots_time(&r->queue);
        uint64_t now = event <= arrival ? event : arrival;

        if (now >= last || (now >= r->end_us + r->delay_us && r->undecided == 0)) {
            return;
        }
        if (event <= arrival) {
            proceed(r, r->queue.slots[0], now);
        } else {
            invite(r, now);
            r->arrived++;
        }
    }
}

/* Calls that go on are complete so far; those being set up say nothing. */
static void close_books(run *r)
{
    for (uint32_t i = 0; i < r->queue.count; i++) {
        const call *c = &r->calls[r->queue.slots[i]];

        r->complete += c->counts && c->talk_us < r->end_us;
    }
}

/* From an empty server on; what became of calls is added up. */
static void run_once(run *r, void *scratch)
{
    settle(r, scratch);
    arrivals_begin(r);
    simulate(r);
    close_books(r);
}

static uint64_t run_calls(const void *cell, seven_rng *rng, void *scratch, double *figures)
{
    run r = {.cell = cell, .rng = rng};
    const sim_load *load = r.cell->load;
    double decided;

    lognormal_of(r.cell->lengths, r.cell->t_m_s, &r.mu, &r.sigma);
    r.delay_us = (uint64_t)llround(r.cell->delay_s * SECOND);
    r.ring_us = (uint64_t)llround(r.cell->ring_s * SECOND);
    r.round_us = (uint64_t)llround(r.cell->round_s * SECOND);
    r.begin_us = (uint64_t)llround(r.cell->warm_up_s * SECOND);
    r.end_us = (uint64_t)llround(r.cell->horizon_s * SECOND);
    for (uint32_t i = 0; i < (load != NULL ? load->loads : 1); i++) {
        if (load != NULL) {
            r.given = load->calls + (i > 0 ? load->ends[i - 1] : 0);
            r.given_end = load->calls + load->ends[i];
        }
        run_once(&r, scratch);
    }
    decided = (double)(r.complete + r.cut + r.never);
    figures[SIM_COMPLETE] = decided > 0 ? (double)r.complete / decided : NAN;
    figures[SIM_INCOMPLETE] = decided > 0 ? (double)r.cut / decided : NAN;
    figures[SIM_UNSUCCESSFUL] = decided > 0 ? (double)r.never / decided : NAN;
    figures[SIM_LASTED] = r.cut > 0 ? r.lasted_s / (double)r.cut : NAN;
    return r.arrived;
}

sim_model sim_calls_model(const sim_calls *cell)
{
    seven_policy policy = policy_of(cell);
    const char *wrong = seven_policy_error(&policy);

    if (wrong != NULL) {
        sim_fail(2, "%c%s.", wrong[0] - 'a' + 'A', wrong + 1);
    }
    return (sim_model){.run = run_calls, .scratch = lay_out(cell).size};
}

/* ---- the bound ------------------------------------------------------------------------------ */

static double normal_cdf(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

/* The share of calls that last no longer than that, and the mean of min(length, that). */
static double lengths_below(const sim_calls *cell, double age, double *mean)
{
    double mu, sigma, below;

    if (cell->lengths == SIM_EXPONENTIAL) {
        below = 1 - exp(-age / cell->t_m_s);
        *mean = cell->t_m_s * below;
        return below;
    }
    lognormal_of(cell->lengths, cell->t_m_s, &mu, &sigma);
    below = normal_cdf((log(age) - mu) / sigma);
    *mean = cell->t_m_s * normal_cdf((log(age) - mu) / sigma - sigma) + age * (1 - below);
    return below;
}

double sim_bound(const sim_calls *cell, double *age_s)
{
    double low = 0, high = 1e9, mean, below = 0;

    for (int i = 0; i < 200; i++) {
        double age = (low + high) / 2;

        below = lengths_below(cell, age, &mean);
        if (cell->rate * ((1 - cell->share) * mean + cell->share * age) > cell->places) {
            high = age;
        } else {
            low = age;
        }
    }
    *age_s = low;
    return below;
}
