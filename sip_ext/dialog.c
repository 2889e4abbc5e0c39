/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call in progress: what passes in its dialog is watched, so that we know where its parties are,
 * which CSeq they have used, and when it is over.
 *
 * It is over when the server has seen the BYE of a party and it was answered. Two parties of one
 * mind could otherwise end the call with each other, or only for our eyes, and keep it at the
 * server: so a BYE counts if its tags are the dialog's, it passed the server, and the answer that
 * comes back from there is one that ends a dialog (RFC 3261 12.2.1.2, 15.1.1).
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proxy_internal.h"

#define SESSION_SLACK_US (32 * SECOND_US) /* RFC 4028 section 10 has at most this */

/* ---- keeping it ---------------------------------------------------------------------------- */

void dialog_store(proxy *p, call *c)
{
    static char bytes[CALL_MAX_TEXT + 1024];
    struct timespec wall;
    size_t length;

    c->changed = false;
    if (p->store == NULL || !c->answered || (c->state != CALL_WAITING && c->state != CALL_INCALL)) {
        return;
    }
    if (c->parent != NULL && c->parent->id == 0) { /* forks have higher numbers */
        c->parent->id = ++p->next_id;
    }
    if (c->id == 0) {
        c->id = ++p->next_id;
    }
    clock_gettime(CLOCK_REALTIME, &wall);
    length = call_pack(c, proxy_now_us(),
                       (uint64_t)wall.tv_sec * SECOND_US + (uint64_t)wall.tv_nsec / 1000, bytes,
                       sizeof bytes);
    c->stored = true;
    p->commit = true;
    if (length == 0 || !store_put(p->store, c->id, bytes, length)) {
        p->count.store_errors++;
    }
}

void dialog_unstore(proxy *p, call *c)
{
    if (p->store != NULL && c->stored) {
        c->stored = false;
        p->commit = true;
        store_delete(p->store, c->id);
    }
}

void dialog_commit(proxy *p)
{
    if (p->commit) {
        p->commit = false;
        if (!store_commit(p->store)) {
            p->count.store_errors++;
        }
    }
}

/* ---- the answer to the INVITE ---------------------------------------------------------------- */

/* Our entry in a Record-Route that the caller's INVITE was given; in a pair, the first. */
static const sip_record_route_t *own_entry(proxy *p, const sip_t *sip)
{
    const sip_record_route_t *found = NULL;
    bool run = false;
    flow token;

    for (const sip_record_route_t *r = sip->sip_record_route; r != NULL; r = r->r_next) {
        bool own = r->r_url->url_user != NULL && is_ours(p, r->r_url) &&
                   flow_read(&token, p->key, sip->sip_call_id->i_id, r->r_url->url_user) &&
                   token.leg == FLOW_INGRESS;

        if (own && !run) {
            found = r;
        }
        run = own;
    }
    return found;
}

/* The server is the first hop towards the callee if it said so itself when it sent the INVITE on;
 * if it did not send it on, but is a party itself; or if the 2xx shows it, in the entry next to
 * ours. */
static bool first_is_server(const proxy *p, const call *c, const sip_t *sip,
                            const sip_record_route_t *own)
{
    const sip_record_route_t *next = NULL;
    flow host = {0};

    if (*call_text(c, TEXT_SERVER_ROUTE) != 0 || !c->onward) {
        return true;
    }
    for (const sip_record_route_t *r = sip->sip_record_route; r != NULL && r != own;
         r = r->r_next) {
        next = r;
    }
    if (next != NULL && own != NULL) {
        return is_server(p, next->r_url) ||
               (!flow_parse_host(&host, next->r_url->url_host) && !is_ours(p, next->r_url));
    }
    return sip->sip_contact != NULL && is_server(p, sip->sip_contact->m_url);
}

static void session_from(call *c, const sip_t *sip)
{
    c->session_s = sip->sip_session_expires != NULL && sip->sip_session_expires->x_delta <= 86400
                       ? (uint32_t)sip->sip_session_expires->x_delta
                       : 0;
}

/* Whose BYE is not answered yet stays due for that. */
static void arm(proxy *p, call *c)
{
    if (c->bye_cseq[SIDE_CALLER] == 0 && c->bye_cseq[SIDE_CALLEE] == 0) {
        call_due(p->calls, c, c->session_us);
    }
}

static void arm_session(proxy *p, call *c)
{
    c->session_us =
        c->session_s != 0 ? proxy_now_us() + c->session_s * SECOND_US + SESSION_SLACK_US : 0;
    arm(p, c);
}

/* A BYE that is not answered ends the call all the same; another BYE does not put that off, nor
 * what else is due before. */
static void arm_bye(proxy *p, call *c)
{
    uint64_t due = proxy_now_us() + 64 * p->config->t1_us + SECOND_US;

    if (c->due_us == 0 || c->due_us > due) {
        call_due(p->calls, c, due);
    }
}

static bool callee_of(proxy *p, call *c, const sip_t *sip)
{
    su_home_t home[1] = {SU_HOME_INIT(home)};
    const sip_record_route_t *own = own_entry(p, sip);
    span route;
    bool ok;

    su_home_init(home);
    route = span_of_routes(home, own != NULL ? sip->sip_record_route : NULL, own, true);
    ok = call_set(p->calls, c, TEXT_TO_TAG, span_of(sip->sip_to->a_tag)) &&
         (sip->sip_contact == NULL ||
          call_set(p->calls, c, TEXT_CALLEE, span_of_url(home, sip->sip_contact->m_url))) &&
         call_set(p->calls, c, TEXT_CALLEE_ROUTE, route);
    c->behind_server = first_is_server(p, c, sip, own);
    su_home_deinit(home);
    return ok;
}

bool dialog_answered(proxy *p, call *c, const sip_t *sip)
{
    c->answered = true;
    session_from(c, sip);
    if (!callee_of(p, c, sip)) {
        return false;
    }
    dialog_store(p, c);
    dialog_commit(p);
    return true;
}

/* Another 2xx to the same INVITE: the server forked it. All its dialogs are one call. */
static bool forked(proxy *p, const sip_t *sip)
{
    call *c = call_alike(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, NULL), *fork;
    span texts[CALL_TEXTS];

    while (c != NULL && (c->parent != NULL || c->invite_cseq != sip->sip_cseq->cs_seq ||
                         !c->answered || c->state == CALL_ENDING)) {
        c = call_alike(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, c);
    }
    if (c == NULL) {
        return false;
    }
    for (int i = 0; i < CALL_TEXTS; i++) {
        texts[i] = (span){.text = call_text(c, (enum call_text)i),
                          .length = call_text_length(c, (enum call_text)i)};
    }
    texts[TEXT_TO_TAG] = span_of(sip->sip_to->a_tag);
    if ((fork = call_add_fork(p->calls, c, texts)) == NULL) {
        return false;
    }
    fork->state = CALL_WAITING;
    fork->invite_cseq = c->invite_cseq;
    fork->cseq[SIDE_CALLER] = c->cseq[SIDE_CALLER];
    fork->caller = c->caller;
    fork->direct = c->direct;
    fork->onward = c->onward;
    fork->since_us = proxy_now_us();
    return dialog_answered(p, fork, sip);
}

/* ---- its end --------------------------------------------------------------------------------- */

static void in_progress(proxy *p, call *c)
{
    c->state = CALL_INCALL;
    c->since_us = proxy_now_us();
    place_serve(p, c, c->since_us);
}

/* The first of its forks becomes the call. */
static void promote(proxy *p, call *c)
{
    call *fork = c->fork, was = *c;

    dialog_unstore(p, fork);
    c->text = fork->text;
    memcpy(c->at, fork->at, sizeof c->at);
    memcpy(c->cseq, fork->cseq, sizeof c->cseq);
    memcpy(c->bye_cseq, fork->bye_cseq, sizeof c->bye_cseq);
    c->behind_server = fork->behind_server;
    c->session_s = fork->session_s;
    c->session_us = fork->session_us;
    fork->text = was.text;
    memcpy(fork->at, was.at, sizeof fork->at);
    call_due(p->calls, c, fork->due_us);
    if (c->state == CALL_WAITING && fork->state == CALL_INCALL) {
        in_progress(p, c);
    }
    call_free(p->calls, fork);
    dialog_store(p, c);
}

void dialog_over(proxy *p, call *c, enum proxy_end end)
{
    uint64_t now = proxy_now_us();

    dialog_unstore(p, c);
    if (c->parent != NULL) {
        call_free(p->calls, c);
        return;
    }
    if (c->fork != NULL) {
        promote(p, c);
        return;
    }
    if (end == END_COMPLETED && c->state == CALL_INCALL && now > c->since_us) {
        seven_learn(p->pool, now - c->since_us, now);
    }
    place_leave(p, c, end);
    call_free(p->calls, c);
}

void dialog_due(proxy *p, call *c)
{
    if (c->parent != NULL) {
        dialog_over(p, c, END_VANISHED);
        return;
    }
    end_call(p, c, c->state == CALL_INCALL ? END_VANISHED : END_NO_ACK);
}

/* ---- requests ----------------------------------------------------------------------------- */

static void confirmed(proxy *p, const hop *h, call *c)
{
    if (!c->answered || c->state != CALL_WAITING || h->sip->sip_cseq->cs_seq != c->invite_cseq) {
        return;
    }
    in_progress(p, c);
    if (c->bye_cseq[SIDE_CALLER] == 0 && c->bye_cseq[SIDE_CALLEE] == 0) {
        arm_session(p, c);
    }
    dialog_store(p, c);
}

/* A request that the server sees, and takes for one of the party that it names. */
static bool counts(const proxy *p, const hop *h, const call *c, enum call_side from,
                   const url_t *next)
{
    flow host = {0};
    su_home_t home[1] = {SU_HOME_INIT(home)};
    url_t *callee;
    bool same;

    if (!c->behind_server) {
        return true;
    }
    if (from == SIDE_CALLEE) {
        return h->from_server;
    }
    if (is_server(p, next) || !flow_parse_host(&host, next->url_host)) {
        return true;
    }
    if (c->onward) {
        return false;
    }
    /* A server that is a party itself may give another of its addresses as its contact. */
    su_home_init(home);
    callee = url_make(home, call_text(c, TEXT_CALLEE));
    same = callee != NULL && same_place(next, callee);
    su_home_deinit(home);
    return same;
}

/* True if a request that comes from a client bears the route that the server wrote for it. By what
 * is in there, a server may know its dialogs: without it, a BYE goes to the other party and ends
 * nothing at the server. */
static bool by_the_book(const proxy *p, const hop *h, const call *c, enum call_side from)
{
    su_home_t *home = msg_home(h->msg);
    const char *text = call_text(c, TEXT_SERVER_ROUTE);
    sip_route_t *wrote = *text != 0 ? sip_route_make(home, text) : NULL;
    const char *expected[MAX_ROUTES];
    const sip_route_t *r = h->sip->sip_route;
    size_t count = 0;

    if (h->from_server || !c->behind_server) {
        return true;
    }
    if (wrote == NULL && from == SIDE_CALLER) { /* it did not send the INVITE on through us */
        wrote = sip_route_make(home, call_text(c, TEXT_CALLEE_ROUTE));
        if (wrote != NULL && is_server(p, wrote->r_url)) {
            wrote->r_next = NULL;
        } else {
            wrote = NULL;
        }
    }
    for (; wrote != NULL && count < MAX_ROUTES; wrote = wrote->r_next) {
        expected[count++] = url_as_string(home, wrote->r_url);
    }
    for (size_t i = 0; i < count; i++, r = r->r_next) {
        const char *wanted = expected[from == SIDE_CALLER ? i : count - 1 - i];

        if (r == NULL || wanted == NULL || strcmp(wanted, url_as_string(home, r->r_url)) != 0) {
            return false;
        }
    }
    return true;
}

/* Where a party asks to be found from now on; it counts once its request is answered 2xx. False: it
 * is too long to be kept. */
static bool refresh_asked(proxy *p, const hop *h, call *c, enum call_side from)
{
    enum call_text target = from == SIDE_CALLER ? TEXT_CALLER : TEXT_CALLEE;
    enum call_text next = from == SIDE_CALLER ? TEXT_CALLER_NEXT : TEXT_CALLEE_NEXT;
    span contact;

    if (h->sip->sip_contact == NULL) {
        return true;
    }
    contact = span_of_url(msg_home(h->msg), h->sip->sip_contact->m_url);
    if (strcmp(contact.text, call_text(c, target)) != 0) {
        if (!call_set(p->calls, c, next, contact)) {
            return false;
        }
        c->next_cseq[from] = h->sip->sip_cseq->cs_seq;
    }
    return true;
}

/* A BYE of a call that is up. */
static void bye_seen(proxy *p, const hop *h, call *c, enum call_side from, const url_t *next)
{
    c->doubted = c->doubted || !by_the_book(p, h, c, from);
    if (counts(p, h, c, from, next)) {
        arm_bye(p, c);
        c->bye_cseq[from] = h->sip->sip_cseq->cs_seq;
    }
}

int dialog_request(proxy *p, hop *h, call *c, enum call_side from, const url_t *next)
{
    sip_method_t method = h->sip->sip_request->rq_method;
    uint32_t cseq = h->sip->sip_cseq->cs_seq;

    if (method == sip_method_ack) {
        if (from == SIDE_CALLER) {
            confirmed(p, h, c);
        }
        return 0;
    }
    if (method == sip_method_cancel) {
        return 0;
    }
    if (cseq > c->cseq[from]) {
        c->cseq[from] = cseq;
        c->changed = true;
    }
    if ((method == sip_method_invite || method == sip_method_update) &&
        counts(p, h, c, from, next) && !refresh_asked(p, h, c, from)) {
        return 513;
    }
    if (method == sip_method_bye && c->answered && c->state == CALL_ENDING &&
        h->from_server == (from == SIDE_CALLEE)) {
        return 200; /* it crossed ours (which may come by here again, on its way to the callee) */
    }
    if (method == sip_method_bye && c->answered && c->state != CALL_ENDING) {
        bye_seen(p, h, c, from, next);
    } else if (c->changed) {
        dialog_store(p, c);
    }
    return 0;
}

/* ---- responses ----------------------------------------------------------------------------- */

static void bye_answered(proxy *p, call *c, enum call_side from, const sip_t *sip, bool from_server)
{
    int status = sip->sip_status->st_status;

    if (status < 200 || c->bye_cseq[from] == 0 || c->bye_cseq[from] != sip->sip_cseq->cs_seq ||
        c->state == CALL_ENDING || c->work != NULL ||
        (from == SIDE_CALLER && c->behind_server && !from_server)) {
        return;
    }
    if (status >= 300 && status != 481 && status != 408) {
        c->bye_cseq[from] = 0;
        if (c->state == CALL_INCALL) {
            arm(p, c);
        }
    } else if (c->doubted && c->parent == NULL) {
        end_call(p, c, END_COMPLETED); /* with a BYE of our own, that the server knows */
    } else {
        dialog_over(p, c, END_COMPLETED);
    }
}

/* Both targets as they are from now on, and the session's interval. */
static void refreshed(proxy *p, call *c, enum call_side from, const sip_t *sip)
{
    enum call_text asked = from == SIDE_CALLER ? TEXT_CALLER_NEXT : TEXT_CALLEE_NEXT;
    enum call_text target = from == SIDE_CALLER ? TEXT_CALLER : TEXT_CALLEE;
    enum call_text other = from == SIDE_CALLER ? TEXT_CALLEE : TEXT_CALLER;
    su_home_t home[1] = {SU_HOME_INIT(home)};

    su_home_init(home);
    if (c->next_cseq[from] == sip->sip_cseq->cs_seq && c->next_cseq[from] != 0) {
        call_set(p->calls, c, target, span_of(su_strdup(home, call_text(c, asked))));
        call_set(p->calls, c, asked, span_of(""));
        c->next_cseq[from] = 0;
    }
    if (sip->sip_contact != NULL) {
        call_set(p->calls, c, other, span_of_url(home, sip->sip_contact->m_url));
    }
    su_home_deinit(home);
    if (c->state == CALL_INCALL && c->bye_cseq[0] == 0 && c->bye_cseq[1] == 0) {
        session_from(c, sip);
        arm_session(p, c);
    }
    if (c->changed) {
        dialog_store(p, c);
    }
}

/* The 2xx of a call that we do not know: sent to a caller that was told otherwise long ago. Nobody
 * will ACK it, so the callee ends it. Right after a start it may be one that was ringing before. */
static bool too_late(const proxy *p)
{
    return proxy_now_us() - p->started_us > 128 * p->config->t1_us;
}

bool dialog_response(proxy *p, sip_t *sip, bool from_server, bool ingress)
{
    sip_method_t method = sip->sip_cseq->cs_method;
    int status = sip->sip_status->st_status;
    enum call_side from;
    call *c;

    if (method != sip_method_bye &&
        (status < 200 || status >= 300 ||
         (method != sip_method_invite && method != sip_method_update))) {
        return true;
    }
    c = call_find(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, sip->sip_to->a_tag,
                  &from);
    if (method == sip_method_bye) {
        if (c != NULL) {
            bye_answered(p, c, from, sip, from_server);
        }
        return true;
    }
    if (!ingress) {
        if (c != NULL && c->answered) {
            refreshed(p, c, from, sip);
        }
        return true;
    }
    if (c == NULL || !c->answered) {
        return from_server && (forked(p, sip) || (c == NULL && !too_late(p)));
    }
    if (c->state == CALL_ENDING) {
        end_ack(p, c);
        return false;
    }
    return true;
}
