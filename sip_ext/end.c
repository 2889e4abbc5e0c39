/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending a call: a BYE to each side, as if from the other (RFC 3261 12.2.1.1), sent again until it
 * is answered. Only the server's side says that the call is over: there it took the place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy_internal.h"

#define TRIES 3
#define EPISODE_US (60 * SECOND_US)
#define LAST_CSEQ (CALL_MAX_CSEQ + 60000) /* above all that are let through */
#define SURPLUS                                                                                    \
    1000 /* of calls that end at a time, beyond which a caller's BYE is sent only once */

struct ending {
    proxy *p;
    call *call;
    nta_outgoing_t *bye[2]; /* by side that gets it; NULL: done */
    uint8_t tries[2];
    uint64_t decided_us;
    bool confirmed; /* by the server's side */
};

static void send_bye(struct ending *e, enum call_side to);

/* ---- requests of our own -------------------------------------------------------------------- */

/* Where the dialog's requests to one side go: the first of the route set, or the target. */
static url_t *towards(proxy *p, const call *c, enum call_side to, su_home_t *home,
                      const url_t *target, const sip_route_t *route)
{
    if (route != NULL) {
        return url_to(home, route->r_url);
    }
    if (to == SIDE_CALLEE) {
        /* A 2xx that lost our Record-Route on its way says nothing of the server's either. */
        return c->behind_server || target == NULL ? p->server_url : url_to(home, target);
    }
    if (target == NULL ||
        (c->direct && (connected(p, &c->caller) || unreachable(target, &c->caller)))) {
        return url_to_flow(home, &c->caller);
    }
    return url_to(home, target);
}

/* The route set towards a side. What the server wrote itself must be the first of the callee's: a
 * callee can have changed it in the 2xx, to have our BYE go round the server. */
static const char *route_text(const call *c, enum call_side to)
{
    const char *route = call_text(c, to == SIDE_CALLER ? TEXT_CALLER_ROUTE : TEXT_CALLEE_ROUTE);
    const char *server = call_text(c, TEXT_SERVER_ROUTE);

    if (to == SIDE_CALLEE && strncmp(route, server, strlen(server)) != 0) {
        return server;
    }
    return route;
}

/* A server that sent the INVITE on past us wrote a route that only the 2xx shows, and a callee can
 * have taken it away. With the server's address for a route it still gets the BYE, and knows the
 * dialog by its tags. */
static bool route_is_lost(const proxy *p, const call *c, const url_t *target,
                          const sip_route_t *route)
{
    return c->behind_server && !c->onward && *call_text(c, TEXT_SERVER_ROUTE) == 0 &&
           (route == NULL || !is_server(p, route->r_url)) &&
           (target == NULL || !is_server(p, target));
}

static char *name_addr(su_home_t *home, const char *uri, const char *tag)
{
    return su_sprintf(home, *tag != 0 ? "<%s>;tag=%s" : "<%s>", uri, tag);
}

/* Puts From, To, Call-ID, CSeq, Route and request line into a message; returns where it goes. */
static url_t *address(proxy *p, const call *c, enum call_side to, sip_method_t method,
                      const char *name, uint32_t cseq, msg_t *msg)
{
    su_home_t *home = msg_home(msg);
    sip_t *sip = sip_object(msg);
    const char *caller = name_addr(home, call_text(c, TEXT_FROM), call_text(c, TEXT_FROM_TAG));
    const char *callee = name_addr(home, call_text(c, TEXT_TO), call_text(c, TEXT_TO_TAG));
    const char *text = call_text(c, to == SIDE_CALLER ? TEXT_CALLER : TEXT_CALLEE);
    url_t *target = *text != 0 ? url_make(home, text) : NULL;
    sip_route_t *route = *route_text(c, to) != 0 ? sip_route_make(home, route_text(c, to)) : NULL;
    url_t *next;

    if (to == SIDE_CALLEE && route_is_lost(p, c, target, route)) {
        sip_route_t *server = sip_route_format(home, "<%s;lr>", url_as_string(home, p->server_url));

        if (server != NULL) {
            server->r_next = route;
            route = server;
        }
    }
    next = towards(p, c, to, home, target, route);
    if (target == NULL) { /* no Contact */
        target = url_make(home, call_text(c, to == SIDE_CALLER ? TEXT_FROM : TEXT_TO));
    }
    if (target == NULL || next == NULL) {
        return NULL;
    }
    if (route != NULL && !url_has_param(route->r_url, "lr")) { /* strict (12.2.1.1) */
        sip_route_t *last = sip_route_format(home, "<%s>", url_as_string(home, target)), *r = route;

        while (r->r_next != NULL) {
            r = r->r_next;
        }
        r->r_next = last;
        target = route->r_url;
        route = route->r_next;
    }
    sip->sip_request = sip_request_create(home, method, name, (url_string_t *)target, NULL);
    sip->sip_cseq = sip_cseq_create(home, cseq, (unsigned)method, name);
    if (sip_add_tl(msg, sip, TAG_IF(route, SIPTAG_ROUTE(route)),
                   SIPTAG_FROM_STR(to == SIDE_CALLEE ? caller : callee),
                   SIPTAG_TO_STR(to == SIDE_CALLEE ? callee : caller),
                   SIPTAG_CALL_ID_STR(call_text(c, TEXT_CALL_ID)), SIPTAG_MAX_FORWARDS_STR("70"),
                   TAG_END()) < 0) {
        return NULL;
    }
    return next;
}

void end_ack(proxy *p, const call *c)
{
    msg_t *msg = nta_msg_create(p->agent, 0);
    url_t *next = address(p, c, SIDE_CALLEE, SIP_METHOD_ACK, c->invite_cseq, msg);

    if (next == NULL) {
        msg_destroy(msg);
    } else {
        send_own(p, msg, next, NULL);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

void end_forget(call *c)
{
    struct ending *e = c->work;

    if (c->state == CALL_ENDING && e != NULL) {
        for (int side = 0; side < 2; side++) {
            if (e->bye[side] != NULL) {
                nta_outgoing_bind(e->bye[side], NULL, NULL);
                nta_outgoing_destroy(e->bye[side]);
            }
        }
        c->work = NULL;
        free(e);
    }
}

void end_done(proxy *p, call *c)
{
    end_forget(c);
    p->ending--;
    call_free(p->calls, c);
}

/* There is nothing more to do: its place is another's. One line an episode. */
static void refused(proxy *p, int status)
{
    uint64_t now = proxy_now_us();

    p->count.cut_refused++;
    if (now > p->refused_us + EPISODE_US) {
        log_say(LOG_WARNING,
                "a BYE to a call that has lost its place was answered %d: the server may have more "
                "calls than it should; cut_refused counts them",
                status);
    }
    p->refused_us = now;
}

void end_confirmed(proxy *p, uint64_t decided_us)
{
    uint64_t took = proxy_now_us() - decided_us;

    seven_note(&p->cut_us, took);
    p->count.cut_within_1s += took <= SECOND_US;
}

static void confirm(struct ending *e, int status)
{
    if (e->confirmed) {
        return;
    }
    e->confirmed = true;
    if (e->call->cause == END_COMPLETED) {
        return; /* nobody's victim; it was over, or is now */
    }
    if (status >= 300 && status != 481 && status != 408) {
        refused(e->p, status);
    }
    end_confirmed(e->p, e->decided_us);
}

static void finish(struct ending *e)
{
    if (e->bye[SIDE_CALLER] == NULL && e->bye[SIDE_CALLEE] == NULL) {
        end_done(e->p, e->call);
    }
}

static int on_answer(void *magic, nta_outgoing_t *out, sip_t const *sip)
{
    struct ending *e = magic;
    enum call_side to;
    int status = sip != NULL && sip->sip_status != NULL ? sip->sip_status->st_status : 408;

    if (e == NULL || status < 200) {
        return 0;
    }
    to = out == e->bye[SIDE_CALLER] ? SIDE_CALLER : SIDE_CALLEE;
    e->bye[to] = NULL;
    nta_outgoing_destroy(out);
    if ((status == 500 || status == 503) && e->tries[to] < TRIES) {
        send_bye(e, to); /* a request of the party's own came first: a higher CSeq */
    } else if (to == SIDE_CALLEE) {
        confirm(e, status);
    }
    finish(e);
    return 0;
}

/* A try after the first leaves room for what its party may have sent meanwhile; the last one also
 * for what it may have sent in a way that we did not know for this call's. */
static uint32_t bye_cseq(const struct ending *e, enum call_side to)
{
    uint32_t used = e->call->cseq[to == SIDE_CALLEE ? SIDE_CALLER : SIDE_CALLEE];

    return e->tries[to] == 0 ? used + 1 : e->tries[to] == 1 ? used + 100 : LAST_CSEQ;
}

static const char *reason_of(enum proxy_end end)
{
    switch (end) {
    case END_COMPLETED:
        return "Q.850;cause=16;text=\"Terminated\"";
    case END_NO_ACK:
        return "SIP;cause=408;text=\"No ACK\"";
    case END_VANISHED:
        return "SIP;cause=408;text=\"Session Expired\"";
    case END_CANCELLED:
        return "SIP;cause=487;text=\"Request Cancelled\"";
    default:
        return "SIP;cause=503;text=\"Server Full\"";
    }
}

static msg_t *make_bye(proxy *p, const call *c, enum call_side to, uint32_t cseq, url_t **next)
{
    msg_t *msg = nta_msg_create(p->agent, 0);

    *next = address(p, c, to, SIP_METHOD_BYE, cseq, msg);
    if (*next == NULL) {
        msg_destroy(msg);
        return NULL;
    }
    sip_add_tl(msg, sip_object(msg), SIPTAG_REASON_STR(reason_of((enum proxy_end)c->cause)),
               TAG_END());
    return msg;
}

static void send_bye(struct ending *e, enum call_side to)
{
    proxy *p = e->p;
    url_t *next;
    msg_t *msg = make_bye(p, e->call, to, bye_cseq(e, to), &next);
    int from = msg != NULL ? listener_for(p, next, e->call->caller.listener) : -1;
    const char *ident = from >= 0 ? p->listeners[from].ident : NULL;

    e->tries[to]++;
    if (msg == NULL) {
        return;
    }
    if (to == SIDE_CALLER && p->ending > p->count.places + SURPLUS) {
        send_own(p, msg, next, NULL);
        return;
    }
    e->bye[to] = nta_outgoing_mcreate(p->agent, on_answer, e, (url_string_t *)next, msg,
                                      TAG_IF(ident, TPTAG_IDENT(ident)), TAG_END());
    if (e->bye[to] == NULL) {
        msg_destroy(msg);
    }
}

/* A second 2xx's dialog: no more depends on it, so it is sent and forgotten. */
static void end_fork(proxy *p, call *c, const call *fork)
{
    for (int to = 0; to < 2; to++) {
        call as = *fork;
        url_t *next;
        msg_t *msg;

        as.cause = c->cause;
        msg = make_bye(p, &as, (enum call_side)to, as.cseq[1 - to] + 1, &next);
        if (msg != NULL && nta_outgoing_mcreate(p->agent, NULL, NULL, (url_string_t *)next, msg,
                                                TAG_END()) == NULL) {
            msg_destroy(msg);
        }
    }
}

static void end_forks(proxy *p, call *c)
{
    while (c->fork != NULL) {
        call *fork = c->fork;

        end_fork(p, c, fork);
        dialog_unstore(p, fork);
        call_free(p->calls, fork);
    }
}

static void end_sides(proxy *p, call *c, enum proxy_end end, bool both)
{
    struct ending *e = calloc(1, sizeof *e);
    bool acked = c->state == CALL_INCALL;

    call_due(p->calls, c, 0);
    if (c->state != CALL_ENDING) {
        place_leave(p, c, end);
        c->state = CALL_ENDING;
        c->cause = (uint8_t)end;
        c->since_us = proxy_now_us();
        p->ending++;
    }
    dialog_unstore(p, c);
    end_forks(p, c);
    if (!acked) {
        end_ack(p, c);
    }
    if (e == NULL) {
        end_done(p, c);
        return;
    }
    *e = (struct ending){.p = p, .call = c, .decided_us = c->since_us};
    c->work = e;
    send_bye(e, SIDE_CALLEE);
    if (both) {
        send_bye(e, SIDE_CALLER);
    }
    finish(e);
}

void end_call(proxy *p, call *c, enum proxy_end end)
{
    end_sides(p, c, end, true);
}

void end_callee(proxy *p, call *c, enum proxy_end end)
{
    end_sides(p, c, end, false);
}

void end_victim(proxy *p, call *c)
{
    uint64_t age = (proxy_now_us() - c->since_us) / SECOND_US;

    log_limited(&p->limits[LIMIT_CUT], LOG_INFO, "a call of %llu s makes room for a new one",
                (unsigned long long)age);
    if (c->answered) {
        end_call(p, c, c->state == CALL_INCALL ? END_CUT_INCALL : END_CUT_WAITING);
        return;
    }
    invite_abandon(p, c, SIP_503_SERVICE_UNAVAILABLE, END_CUT_WAITING);
}
