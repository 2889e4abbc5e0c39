/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 2018 paper's public model, followed to the letter, faults included, so that its figures are
 * met for the right reason. It does NOT use seven_core, on purpose: the public model departs from
 * what the papers' text says and from what the core does in nearly every decision:
 *
 * - The n-th newcomer of a round that finds the places taken is let in with 24/(24+n), not with
 *   24/(24+n-1): the first is refused one time in 25.
 * - Each decision draws its victim twice. One is removed from the server, the other is told. Who
 * was removed and never told talks on for ever and counts as complete; who was told and not removed
 *   is incomplete, yet holds its line.
 * - An entrant of a tournament, and the entrant taken out of the urn, are two draws as well.
 * - A weight is a whole number, one more than d rounded down for the overdue, from the INVITE's
 * age; the newest entry's weight is one less than its due.
 * - Service begins for all at once, at the round's end, and a call is connected 0.3 later even if
 * it was put out meanwhile: then it never ends and counts as complete.
 * - Arrivals are at equal intervals and coincide; what comes at equal times is served last in,
 * first out. A run stops at the first event from time 40 on, but a rewrite engine that is fair to
 * its rules lets up to three events out of the queue after that, so a caller or two are counted
 * that never did anything.
 *
 * With `single`, each decision is one draw: the removed is told, and a tournament has distinct
 * entrants. The rest stays.
 */
#include <math.h>
#include <string.h>

#include "sim.h"
#include "sim_queue.h"
#include "sim_random.h"

#define LINES 24
#define ENTRANTS 12
#define MAX_FACTOR 2
#define MAX_LINES (LINES * MAX_FACTOR)
#define T_M 5.0
#define P_IN 2
#define P_WAIT 8
#define ALPHA 1.89
#define DELAY 0.1
#define RINGING_DELAY 0.3
#define END 40.0
#define TOO_LATE (END + 4) /* no such event can matter */
#define MAX_CALLERS 2048
#define MAX_EVENTS 4096

/* Events, with the number of the rewrite rule that takes them: who is honest comes first. */
enum event { SPAWN, INVITE, BYE, TICK, TRYING, REFUSAL, RINGING, ACK };
enum rule {
    STOP,
    ON_INVITE,
    ON_BYE,
    ON_REMOVE,
    ON_UPDATE,
    ON_TICK,
    CLIENT_CALLS,
    CLIENT_TRYING,
    CLIENT_RINGING,
    CLIENT_DROPPED,
    CLIENT_ACK,
    CLIENT_DROPPED_2, /* while it is inviting */
    CLIENT_OTHER,
    CLIENT_DROPPED_3, /* when it is incomplete already */
    CLIENT_ACK_2,
    ATTACKER_CALLS,
    ATTACKER_TRYING,
    ATTACKER_RINGING,
    ATTACKER_DROPPED, /* these two need no flag: they go on after the stop */
    ATTACKER_DROPPED_2
};

enum status { NOTHING, INVITING, CONNECTED, FINISHED, INCOMPLETE };

/* A line's entry: WAITING while first == last. */
typedef struct entry {
    uint32_t caller;
    double first, last;
    double decay; /* e^(-alpha * first / t_M) */
} entry;

typedef struct run {
    const sim_published *cell;
    seven_rng *rng;
    sim_stack queue;
    double now, mu, sigma, interval[2]; /* of honest [0], attackers [1] */
    uint32_t lines, held, asked;        /* asked: what the tick finds in its set of requests */
    uint32_t callers[2];
    double pmod;
    enum rule last_rule;
    bool stuck; /* an event that nothing takes is out: no further one comes */
    entry held_by[MAX_LINES];
    unsigned char status[MAX_CALLERS], lies_in[MAX_CALLERS];
    sim_event events[MAX_EVENTS];
} run;

/* Callers have numbers: even ones are honest. */
static bool is_attacker(uint32_t caller)
{
    return caller % 2;
}

static uint64_t bits_of(double time)
{
    uint64_t bits;

    memcpy(&bits, &time, sizeof(bits));
    return bits;
}

static double time_of(uint64_t bits)
{
    double time;

    memcpy(&time, &bits, sizeof(time));
    return time;
}

static void schedule(run *r, double time, enum event event, uint32_t caller)
{
    if (time < TOO_LATE) {
        stack_push(&r->queue, bits_of(time), (uint32_t)event << 16 | caller);
    }
}

/* ---- P2 -------------------------------------------------------------------------------------- */

/* The upper end of a weight's interval less its lower end: a tournament compares these. growth is
 * e^(alpha * now / t_M). */
static double spread(const run *r, const entry *e, double growth)
{
    if (e->first == e->last) {
        return P_WAIT - 1;
    }
    if (r->now - e->first <= T_M) {
        return P_IN - 1;
    }
    return floor(P_WAIT + growth * e->decay);
}

static uint32_t roulette(run *r, double growth)
{
    double weights[MAX_LINES] = {0}, total = 0, drawn;
    uint32_t i = 0;

    for (uint32_t j = 0; j < r->held; j++) {
        weights[j] = spread(r, &r->held_by[j], growth) + 1;
        total += weights[j];
    }
    drawn = floor(seven_unit(r->rng) * (total - 1));
    while (i + 1 < r->held && drawn >= weights[i]) {
        drawn -= weights[i++];
    }
    return i;
}

/* The urn loses another entrant than the one that is drawn, unless each decision is one draw. */
static uint32_t tournament(run *r, double growth)
{
    uint32_t urn[MAX_LINES], best = 0;
    double highest = 0;

    for (uint32_t i = 0; i < r->held; i++) {
        urn[i] = i;
    }
    for (uint32_t left = r->held; left > r->held - ENTRANTS; left--) {
        uint32_t at = (uint32_t)seven_below(r->rng, left);
        uint32_t out = r->cell->single ? at : (uint32_t)seven_below(r->rng, left);
        double of = spread(r, &r->held_by[urn[at]], growth);

        if (of > highest) {
            highest = of;
            best = urn[at];
        }
        urn[out] = urn[left - 1];
    }
    return best;
}

static uint32_t draw(run *r, double growth)
{
    switch (r->cell->defence) {
    case SIM_ROULETTE:
        return roulette(r, growth);
    case SIM_TOURNAMENT:
        return tournament(r, growth);
    default:
        return (uint32_t)seven_below(r->rng, r->held);
    }
}

/* ---- the server ----------------------------------------------------------------------------- */

static void enter(run *r, uint32_t caller)
{
    r->held_by[r->held++] = (entry){
        .caller = caller, .first = r->now, .last = r->now, .decay = exp(-ALPHA * r->now / T_M)};
    r->lies_in[caller] = 1;
    r->asked++;
    if (r->now > END - 2 * DELAY) { /* TRYING changes nothing but who is first at the end */
        schedule(r, r->now + DELAY, TRYING, caller);
    }
    if (r->cell->defence == SIM_NONE) {
        schedule(r, r->now + RINGING_DELAY, RINGING, caller);
    }
}

static void remove_entry(run *r, uint32_t at)
{
    r->lies_in[r->held_by[at].caller] = 0;
    memmove(&r->held_by[at], &r->held_by[at + 1], (--r->held - at) * sizeof(entry));
}

static void tell(run *r, uint32_t caller)
{
    r->last_rule = ATTACKER_DROPPED_2;
    if (!is_attacker(caller)) {
        r->last_rule = r->status[caller] == INVITING    ? CLIENT_DROPPED_2
                       : r->status[caller] == CONNECTED ? CLIENT_DROPPED
                                                        : CLIENT_DROPPED_3;
        if (r->status[caller] == CONNECTED) {
            r->status[caller] = INCOMPLETE;
        }
    } else if (r->status[caller] == INVITING) {
        r->last_rule = ATTACKER_DROPPED;
    }
}

static void on_invite(run *r, uint32_t caller)
{
    r->last_rule = ON_INVITE;
    if (r->held < r->lines) {
        enter(r, caller);
        return;
    }
    if (r->cell->defence != SIM_NONE && seven_unit(r->rng) < r->lines / r->pmod) {
        double growth = exp(ALPHA * r->now / T_M);
        uint32_t removed = draw(r, growth);
        uint32_t told = r->held_by[r->cell->single ? removed : draw(r, growth)].caller;

        remove_entry(r, removed);
        enter(r, caller);
        tell(r, told);
    } else if (r->now > END - 2 * DELAY) { /* to be refused changes nothing, as TRYING does not */
        schedule(r, r->now + DELAY, REFUSAL, caller);
    }
    r->pmod += 1;
}

static void on_bye(run *r, uint32_t caller)
{
    r->last_rule = ON_BYE;
    if (r->lies_in[caller]) {
        uint32_t at = 0;

        while (r->held_by[at].caller != caller) {
            at++;
        }
        remove_entry(r, at);
        schedule(r, r->now + DELAY, ACK, caller);
    }
}

/* All WAITING ones are served. Returns how many. */
static uint32_t on_tick(run *r)
{
    uint32_t served = 0;

    r->last_rule = ON_TICK;
    r->pmod = r->lines + 1;
    for (uint32_t i = 0; r->asked > 0 && i < r->held; i++) {
        entry *e = &r->held_by[i];

        if (e->first == e->last) {
            schedule(r, r->now + RINGING_DELAY, RINGING, e->caller);
            e->last = r->now;
            served++;
        }
    }
    schedule(r, r->now + r->cell->round_s, TICK, 0);
    if (served > 0) {
        r->asked = 0;
        r->last_rule = ON_REMOVE;
    }
    return served;
}

/* ---- callers -------------------------------------------------------------------------------- */

/* A caller comes into being, and its next one is scheduled. Returns its number. */
static uint32_t spawn(run *r, uint32_t class)
{
    uint32_t caller = 2 * r->callers[class]++ + class;

    r->status[caller] = NOTHING;
    r->lies_in[caller] = 0;
    schedule(r, r->now + r->interval[class], SPAWN, class);
    return caller;
}

static void call(run *r, uint32_t caller)
{
    r->last_rule = is_attacker(caller) ? ATTACKER_CALLS : CLIENT_CALLS;
    r->status[caller] = INVITING;
    schedule(r, r->now + DELAY, INVITE, caller);
}

static void on_ringing(run *r, uint32_t caller)
{
    r->last_rule = is_attacker(caller) ? ATTACKER_RINGING : CLIENT_RINGING;
    r->status[caller] = CONNECTED;
    if (!is_attacker(caller)) {
        double length = r->cell->lengths == SIM_EXPONENTIAL
                            ? draw_exponential(r->rng, T_M)
                            : draw_lognormal(r->rng, r->mu, r->sigma);

        schedule(r, r->now + length, BYE, caller);
    }
}

static void on_ack(run *r, uint32_t caller)
{
    r->last_rule = r->status[caller] == CONNECTED ? CLIENT_ACK : CLIENT_ACK_2;
    if (r->status[caller] == CONNECTED) {
        r->status[caller] = FINISHED;
    }
}

static void act(run *r, enum event event, uint32_t caller)
{
    switch (event) {
    case SPAWN:
        call(r, spawn(r, caller));
        break;
    case INVITE:
        on_invite(r, caller);
        break;
    case BYE:
        on_bye(r, caller);
        break;
    case TICK:
        on_tick(r);
        break;
    case TRYING:
        r->last_rule = is_attacker(caller) ? ATTACKER_TRYING : CLIENT_TRYING;
        break;
    case REFUSAL:
        tell(r, caller);
        break;
    case RINGING:
        on_ringing(r, caller);
        break;
    case ACK:
        on_ack(r, caller);
        break;
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The rule that would take an event: the order in which a fair engine tries them. */
static enum rule rule_of(const run *r, enum event event, uint32_t caller)
{
    bool attacker = is_attacker(caller), inviting = r->status[caller] == INVITING;

    switch (event) {
    case SPAWN:
        return attacker ? ATTACKER_CALLS : CLIENT_CALLS;
    case INVITE:
        return ON_INVITE;
    case BYE:
        return ON_BYE;
    case TICK:
        return ON_TICK;
    case TRYING:
        return attacker ? ATTACKER_TRYING : CLIENT_TRYING;
    case REFUSAL:
        return attacker ? (inviting ? ATTACKER_DROPPED : ATTACKER_DROPPED_2) : CLIENT_DROPPED_2;
    case RINGING:
        return attacker ? ATTACKER_RINGING : CLIENT_RINGING;
    case ACK:
        return CLIENT_ACK;
    }
    return STOP;
}

/* The next event comes out of the queue and is not acted upon: but a spawn is an equation and not a
 * rule, so its caller exists. Attackers' notices need no flag, so one more comes out after each. */
static void surface(run *r)
{
    for (int i = 0; i < MAX_EVENTS && r->queue.count > 0; i++) {
        sim_event e = stack_pop(&r->queue);
        enum event event = (enum event)((e.what & UINT32_MAX) >> 16);

        r->now = time_of(e.key);
        if (event == SPAWN) {
            spawn(r, (uint32_t)e.what & 0xffff);
            return;
        }
        if (rule_of(r, event, (uint32_t)e.what & 0xffff) < ATTACKER_DROPPED) {
            return;
        }
    }
}

/* The first event from END on is out: its rule and the one that stops compete, and the engine tries
 * from the rule after the one that it last used. So it may be acted upon, and the next, until the
 * stop has its turn; then one more is out. */
static void end(run *r, enum event event, uint32_t caller)
{
    for (;;) {
        bool spawned = event == SPAWN;
        uint32_t who = spawned ? spawn(r, caller) : caller;
        enum rule rule = rule_of(r, event, who);
        sim_event next;

        if (rule <= r->last_rule) {
            surface(r);
            if (rule >= ATTACKER_DROPPED) {
                surface(r);
            }
            return;
        }
        if (spawned) {
            call(r, who);
        } else if (event == TICK) {
            if (on_tick(r) > 0) {
                return; /* what the tick put first in the queue is all that comes out */
            }
        } else {
            act(r, event, who);
        }
        next = stack_pop(&r->queue);
        r->now = time_of(next.key);
        event = (enum event)((next.what & UINT32_MAX) >> 16);
        caller = (uint32_t)next.what & 0xffff;
    }
}

static void simulate(run *r)
{
    for (;;) {
        sim_event e = stack_pop(&r->queue);
        enum event event = (enum event)((e.what & UINT32_MAX) >> 16);
        uint32_t caller = (uint32_t)e.what & 0xffff;

        r->now = time_of(e.key);
        if (r->now >= END) {
            end(r, event, caller);
            return;
        }
        act(r, event, caller);
    }
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* The interval between a class's callers, in the public model's own arithmetic: whose coincide, and
 * in what order, is a matter of rounding. */
static double interval_of(const sim_published *cell, int share)
{
    double k = cell->factor * cell->scale;
    double parts[SIM_SHARES] = {k / 6.0, k / 3.0, k / 2.0, (2.0 * k) / 3.0, (5.0 * k) / 6.0};
    double rho = cell->factor * 120.0 / 4800.0;

    return 1.0 / (rho * parts[share]);
}

static void begin(run *r, const sim_published *cell, seven_rng *rng)
{
    r->cell = cell;
    r->rng = rng;
    r->queue = (sim_stack){.heap = r->events};
    r->lines = LINES * cell->factor;
    r->held = r->asked = r->callers[0] = r->callers[1] = 0;
    r->pmod = 1;
    r->last_rule = STOP;
    r->interval[0] = interval_of(cell, SIM_SHARES - 1 - cell->share);
    r->interval[1] = interval_of(cell, cell->share);
    lognormal_of(cell->lengths, T_M, &r->mu, &r->sigma);
    schedule(r, 0.05, SPAWN, 1);
    schedule(r, 0.05, SPAWN, 0);
    if (cell->defence != SIM_NONE) {
        schedule(r, cell->round_s, TICK, 0);
    }
}

static uint64_t run_published(const void *cell, seven_rng *rng, void *scratch, double *figures)
{
    run *r = scratch;
    uint32_t with[INCOMPLETE + 1] = {0};
    double clients;

    begin(r, cell, rng);
    simulate(r);
    for (uint32_t i = 0; i < 2 * r->callers[0]; i += 2) { /* honest callers have even numbers */
        with[r->status[i]]++;
    }
    clients = r->callers[0];
    figures[SIM_COMPLETE] = (with[FINISHED] + with[CONNECTED]) / clients;
    figures[SIM_INCOMPLETE] = with[INCOMPLETE] / clients;
    figures[SIM_UNSUCCESSFUL] = with[INVITING] / clients;
    figures[SIM_LASTED] = NAN; /* the public model's figure is none: it divides absolute times */
    return r->callers[0] + r->callers[1];
}

sim_model sim_published_model(void)
{
    return (sim_model){.run = run_published, .scratch = sizeof(run)};
}
