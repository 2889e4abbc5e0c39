/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call being set up: an INVITE from a client, its server and its client transaction.
 *
 * The server transaction takes in what the caller sends again and its ACK of an error. The client
 * transaction sends the INVITE again and tells us if there is no answer; it is let go with the
 * first response, after which it has nothing more to send (RFC 3261 17.1.1.2): kept to the end, it
 * and its messages would stay for timer D, 32 s, ten times what the call itself takes. So nta does
 * not get to know that response for one of its own (see parser.c): it finds its way by our branch,
 * as all later ones do, must come from the server, and errors we ACK ourselves.
 */
#include <stdlib.h>
#include <string.h>

#include "proxy_internal.h"

#define TRY_AGAIN_US (2 * SECOND_US) /* how long a place is kept after 401 or 407 */

struct invite {
    proxy *p;
    call *call;
    nta_incoming_t *in;  /* NULL once the caller has its final answer */
    nta_outgoing_t *out; /* NULL before it is sent, and after the first response */
    msg_t *sent;         /* the INVITE as sent; NULL before, and once it was challenged */
    url_t *next;
    char branch[BRANCH_SIZE];
    bool cancelled;             /* by the caller */
    bool cancel;                /* we want it cancelled */
    bool cancel_sent;           /* which must wait for a first answer (RFC 3261 9.1) */
    struct invite_list *list;   /* those held or challenged, or NULL */
    struct invite *later, **at; /* in it */
};

static void append(struct invite_list *list, struct invite *i)
{
    i->list = list;
    i->later = NULL;
    i->at = list->first != NULL ? list->end : &list->first;
    *i->at = i;
    list->end = &i->later;
}

static void take_off(struct invite *i)
{
    if (i->list == NULL) {
        return;
    }
    *i->at = i->later;
    if (i->later != NULL) {
        i->later->at = i->at;
    } else {
        i->list->end = i->at;
    }
    i->list = NULL;
}

/* Lets the transactions and messages go. */
static void let_go(struct invite *i)
{
    take_off(i);
    if (i->in != NULL) {
        nta_incoming_bind(i->in, NULL, NULL);
        nta_incoming_destroy(i->in);
    }
    if (i->out != NULL) {
        nta_outgoing_destroy(i->out);
    }
    msg_destroy(i->sent);
    i->in = NULL;
    i->out = NULL;
    i->sent = NULL;
    i->p->trim_us = proxy_now_us();
    i->p->trims = 0;
}

static void forget(struct invite *i)
{
    let_go(i);
    i->call->work = NULL;
    free(i);
}

void invite_forget(call *c)
{
    if (c->work != NULL) {
        forget(c->work);
    }
}

/* ---- CANCEL and ACK ---------------------------------------------------------------------- */

/* With the branch, Route and Request-URI of the INVITE (RFC 3261 9.1, 17.1.1.3). */
static msg_t *hop_by_hop(struct invite *i, sip_method_t method, const char *name,
                         const sip_to_t *to)
{
    msg_t *msg = nta_msg_create(i->p->agent, 0);
    sip_t *old = sip_object(i->sent), *sip = sip_object(msg);
    sip_via_t via[1];

    if (sip == NULL || old == NULL || old->sip_via == NULL) {
        msg_destroy(msg);
        return NULL;
    }
    *via = *old->sip_via;
    via->v_next = NULL;
    sip->sip_request = sip_request_create(msg_home(msg), method, name,
                                          (url_string_t *)old->sip_request->rq_url, NULL);
    sip->sip_cseq = sip_cseq_create(msg_home(msg), old->sip_cseq->cs_seq, (unsigned)method, name);
    sip_add_tl(msg, sip, SIPTAG_VIA(via), SIPTAG_FROM(old->sip_from), SIPTAG_TO(to),
               SIPTAG_CALL_ID(old->sip_call_id),
               TAG_IF(old->sip_route, SIPTAG_ROUTE(old->sip_route)), SIPTAG_MAX_FORWARDS_STR("70"),
               TAG_END());
    return msg;
}

static void send_cancel(struct invite *i)
{
    msg_t *msg = hop_by_hop(i, SIP_METHOD_CANCEL, sip_object(i->sent)->sip_to);

    i->cancel_sent = true;
    if (msg != NULL &&
        nta_outgoing_mcreate(i->p->agent, NULL, NULL, (url_string_t *)i->next, msg,
                             NTATAG_BRANCH_KEY(i->branch), NTATAG_USER_VIA(1), TAG_END()) == NULL) {
        msg_destroy(msg);
    }
}

static void send_ack(struct invite *i, const sip_t *response)
{
    msg_t *msg = hop_by_hop(i, SIP_METHOD_ACK, response->sip_to);

    if (msg != NULL) {
        send_own(i->p, msg, i->next, i->branch);
    }
}

/* The ACK of an error that came again, after all else is forgotten: the server knows it by its
 * branch. */
static void ack_again(proxy *p, const sip_t *response)
{
    msg_t *msg = nta_msg_create(p->agent, 0);
    sip_t *sip = sip_object(msg);
    sip_via_t via[1];

    if (sip == NULL) {
        return;
    }
    *via = *response->sip_via;
    via->v_next = NULL;
    sip->sip_request = sip_request_create(msg_home(msg), SIP_METHOD_ACK,
                                          (url_string_t *)response->sip_to->a_url, NULL);
    sip->sip_cseq = sip_cseq_create(msg_home(msg), response->sip_cseq->cs_seq, SIP_METHOD_ACK);
    sip_add_tl(msg, sip, SIPTAG_VIA(via), SIPTAG_FROM(response->sip_from),
               SIPTAG_TO(response->sip_to), SIPTAG_CALL_ID(response->sip_call_id),
               SIPTAG_MAX_FORWARDS_STR("70"), TAG_END());
    send_own(p, msg, p->server_url, via->v_branch);
}

/* The caller has its answer; what is left is to see the server end it, too. */
static void cancel(struct invite *i)
{
    i->cancel = true;
    if (!i->cancel_sent && i->out == NULL) {
        send_cancel(i); /* else with the first provisional response */
    }
    call_due(i->p->calls, i->call, proxy_now_us() + 64 * i->p->config->t1_us);
}

static void reply(struct invite *i, int status, const char *phrase)
{
    sip_retry_after_t after[1];

    if (i->in != NULL) {
        nta_incoming_bind(i->in, NULL, NULL);
        nta_incoming_treply(i->in, status, phrase,
                            TAG_IF(status == 503, SIPTAG_RETRY_AFTER(retry_after(i->p, after))),
                            TAG_END());
        nta_incoming_destroy(i->in);
        i->in = NULL;
    }
}

void invite_abandon(proxy *p, call *c, int status, const char *phrase, enum proxy_end end)
{
    struct invite *i = c->work;

    place_leave(p, c, end);
    if (i == NULL) { /* there was no memory for it */
        call_free(p->calls, c);
        return;
    }
    reply(i, status, phrase);
    if (i->sent == NULL) { /* HELD or CHALLENGED: nothing is at the server */
        forget(i);
        call_free(p->calls, c);
        return;
    }
    c->state = CALL_ENDING;
    c->cause = (uint8_t)end;
    c->since_us = proxy_now_us();
    p->ending++;
    cancel(i);
}

void invite_due(proxy *p, call *c)
{
    struct invite *i = c->work;

    if (c->state == CALL_ENDING) { /* the CANCEL was not answered, nor the INVITE */
        forget(i);
        end_done(p, c);
    } else if (c->state == CALL_CHALLENGED) {
        invite_abandon(p, c, SIP_408_REQUEST_TIMEOUT, END_FAILED);
    } else if (i->cancelled) {
        invite_abandon(p, c, SIP_487_REQUEST_CANCELLED, END_CANCELLED);
    } else {
        invite_abandon(p, c, SIP_408_REQUEST_TIMEOUT, END_TIMEOUT);
    }
}

/* The caller's CANCEL; nta has answered it. */
static int on_cancel(struct invite *i, nta_incoming_t *in, sip_t const *sip)
{
    proxy *p;
    call *c;

    (void)in;
    if (i == NULL || sip == NULL || sip->sip_request == NULL ||
        sip->sip_request->rq_method != sip_method_cancel || i->cancelled) {
        return 0;
    }
    p = i->p;
    c = i->call;
    i->cancelled = true;
    if (i->sent == NULL) {
        invite_abandon(p, c, SIP_487_REQUEST_CANCELLED, END_CANCELLED);
    } else {
        cancel(i);
    }
    return 0;
}

/* ---- responses --------------------------------------------------------------------------- */

/* Hands the response to the server transaction, as it came but for our Via; takes the message. */
static void pass_on(struct invite *i, msg_t *msg)
{
    sip_t *sip = sip_object(msg);
    int status = sip->sip_status->st_status;
    bool ingress;
    unsigned listener;

    if (nta_msg_is_internal(msg) || !branch_read(i->p, sip, &ingress, &listener)) {
        if (status >= 200) {
            nta_incoming_treply(i->in, status, sip->sip_status->st_phrase, TAG_END());
        }
        msg_destroy(msg);
        return;
    }
    if (status < 200 && sip->sip_rseq == NULL &&
        sip_has_feature(sip_object(i->sent)->sip_require, "100rel")) {
        send_response(i->p, msg, sip, listener); /* nta would make it a reliable one of its own */
        return;
    }
    sip_via_remove(msg, sip);
    if (nta_incoming_mreply(i->in, msg) >= 0) {
        i->p->count.forwarded++;
    }
}

static void provisional(struct invite *i, msg_t *msg)
{
    if (i->cancel && !i->cancel_sent) {
        send_cancel(i);
    }
    if (sip_object(msg)->sip_status->st_status == 100 || i->in == NULL) {
        msg_destroy(msg);
        return;
    }
    if (!i->cancel) { /* timer C starts again (RFC 3261 16.7 step 2) */
        call_due(i->p->calls, i->call, proxy_now_us() + i->p->config->ring_us);
    }
    pass_on(i, msg);
}

static void succeeded(struct invite *i, msg_t *msg)
{
    proxy *p = i->p;
    call *c = i->call;
    bool wanted = i->in != NULL, known = dialog_answered(p, c, sip_object(msg));

    if (wanted) {
        pass_on(i, msg);
    } else {
        msg_destroy(msg);
    }
    forget(i);
    if (!wanted) { /* it crossed our CANCEL */
        end_callee(p, c, (enum proxy_end)c->cause);
    } else if (!known) { /* what it says is too long to be kept */
        end_call(p, c, END_FAILED);
    } else {
        call_due(p->calls, c, proxy_now_us() + 64 * p->config->t1_us); /* timer H */
    }
}

static enum proxy_end end_of(int status, bool internal)
{
    return status == 487 ? END_CANCELLED : status == 408 && internal ? END_TIMEOUT : END_FAILED;
}

static void failed(struct invite *i, msg_t *msg)
{
    proxy *p = i->p;
    call *c = i->call;
    int status = sip_object(msg)->sip_status->st_status;
    bool again = (status == 401 || status == 407) && c->state == CALL_WAITING && !i->cancelled;
    enum proxy_end end = end_of(status, nta_msg_is_internal(msg));

    if (i->in == NULL) {
        if (c->cause == END_CUT_WAITING && !nta_msg_is_internal(msg)) {
            end_confirmed(p, c->since_us);
        }
        msg_destroy(msg);
        forget(i);
        end_done(p, c);
        return;
    }
    pass_on(i, msg);
    if (again) {
        let_go(i);
        append(&p->challenged[c->exempt], i);
        c->state = CALL_CHALLENGED;
        c->since_us = proxy_now_us();
        call_due(p->calls, c, c->since_us + TRY_AGAIN_US);
        return;
    }
    forget(i);
    place_leave(p, c, end);
    call_free(p->calls, c);
}

static void on_status(struct invite *i, msg_t *msg)
{
    int status = sip_object(msg)->sip_status->st_status;

    if (status < 200) {
        provisional(i, msg);
    } else if (status < 300) {
        succeeded(i, msg);
    } else {
        failed(i, msg);
    }
}

/* There was no response, and nta made one: 408, or 503 if it cannot be sent. */
static int on_no_response(void *magic, nta_outgoing_t *out, sip_t const *sip)
{
    struct invite *i = magic;
    msg_t *msg = nta_outgoing_getresponse(out);

    if (i == NULL || sip == NULL || sip->sip_status == NULL || msg == NULL ||
        sip->sip_status->st_status < 300) {
        msg_destroy(msg);
        return 0;
    }
    failed(i, msg);
    return 0;
}

/* The call that such a response belongs to, by the branch that only we could have made. */
static struct invite *invite_of(proxy *p, const sip_t *sip)
{
    for (call *c = NULL;
         (c = call_alike(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, c)) != NULL;) {
        struct invite *i = c->answered || c->parent != NULL ? NULL : c->work;

        if (i != NULL && i->sent != NULL && strcmp(i->branch, sip->sip_via->v_branch) == 0) {
            return i;
        }
    }
    return NULL;
}

bool invite_came_by(const call *c, const sip_via_t *via)
{
    const struct invite *i = c->answered || c->parent != NULL ? NULL : c->work;

    for (; i != NULL && i->sent != NULL && via != NULL; via = via->v_next) {
        if (via->v_branch != NULL && strcmp(via->v_branch, i->branch) == 0) {
            return true;
        }
    }
    return false;
}

bool invite_response(proxy *p, msg_t *msg, sip_t *sip)
{
    struct invite *i = invite_of(p, sip);
    int status = sip->sip_status->st_status;

    if (i != NULL) {
        if (i->out != NULL) {
            nta_outgoing_destroy(i->out);
            i->out = NULL;
        }
        if (status >= 300) {
            send_ack(i, sip);
        }
        on_status(i, msg);
        return true;
    }
    if (status >= 200 && status < 300) {
        return false;
    }
    if (status >= 300) {
        ack_again(p, sip);
    }
    msg_destroy(msg);
    return true;
}

/* ---- the INVITE -------------------------------------------------------------------------- */

static bool forward(struct invite *i)
{
    proxy *p = i->p;
    msg_t *msg = nta_incoming_getrequest(i->in);
    int from = listener_for(p, i->next, 0);

    i->out = nta_outgoing_mcreate(
        p->agent, on_no_response, i, (url_string_t *)i->next, msg, NTATAG_BRANCH_KEY(i->branch),
        TAG_IF(from >= 0, TPTAG_IDENT(p->listeners[from >= 0 ? from : 0].ident)), TAG_END());
    if (i->out == NULL) {
        msg_destroy(msg);
        return false;
    }
    i->sent = nta_incoming_getrequest(i->in);
    p->count.forwarded++;
    i->call->state = CALL_WAITING;
    call_due(p->calls, i->call, proxy_now_us() + p->config->ring_us);
    return true;
}

static void forward_or_fail(struct invite *i)
{
    if (!forward(i)) {
        invite_abandon(i->p, i->call, SIP_500_INTERNAL_SERVER_ERROR, END_FAILED);
    }
}

void invite_round(proxy *p)
{
    while (p->held.first != NULL) {
        struct invite *i = p->held.first;

        take_off(i);
        forward_or_fail(i);
    }
}

uint32_t invite_held(const proxy *p)
{
    uint32_t count = 0;

    for (const struct invite *i = p->held.first; i != NULL; i = i->later) {
        count++;
    }
    return count;
}

/* The server transaction, the 100 that stops the caller's retransmissions, and on it goes. */
static void begin(proxy *p, hop *h, call *c)
{
    struct invite *i = calloc(1, sizeof *i);

    if (i == NULL || !hop_record_route(p, h, &c->caller, p->server_url)) {
        free(i);
        place_leave(p, c, END_FAILED);
        call_free(p->calls, c);
        answer(p, h->msg, SIP_500_INTERNAL_SERVER_ERROR, false);
        return;
    }
    i->p = p;
    i->call = c;
    i->next = p->server_url;
    branch_of(p, h, true, i->branch);
    c->work = i;
    i->in = nta_incoming_create(
        p->agent, NULL, h->msg, h->sip,
        NTATAG_TPORT(tport_delivered_by(nta_agent_tports(p->agent), h->msg)), TAG_END());
    if (i->in == NULL) {
        invite_abandon(p, c, SIP_500_INTERNAL_SERVER_ERROR, END_FAILED);
        return;
    }
    nta_incoming_bind(i->in, on_cancel, i);
    nta_incoming_treply(i->in, SIP_100_TRYING, TAG_END());
    if (p->config->forward_round) {
        c->state = CALL_HELD;
        append(&p->held, i);
    } else {
        forward_or_fail(i);
    }
}

/* ---- is it a new call -------------------------------------------------------------------- */

/* What is kept of the INVITE. */
static void texts_of(const hop *h, span texts[CALL_TEXTS])
{
    const sip_t *sip = h->sip;
    su_home_t *home = msg_home(h->msg);

    memset(texts, 0, CALL_TEXTS * sizeof(span));
    texts[TEXT_CALL_ID] = span_of(sip->sip_call_id->i_id);
    texts[TEXT_FROM] = span_of_url(home, sip->sip_from->a_url);
    texts[TEXT_FROM_TAG] = span_of(sip->sip_from->a_tag);
    texts[TEXT_TO] = span_of_url(home, sip->sip_to->a_url);
    if (sip->sip_contact != NULL) {
        texts[TEXT_CALLER] = span_of_url(home, sip->sip_contact->m_url);
    }
    texts[TEXT_CALLER_ROUTE] = span_of_routes(home, sip->sip_record_route, NULL, false);
}

static bool fill(proxy *p, const hop *h, call *c, uint64_t key)
{
    const sip_t *sip = h->sip;
    span texts[CALL_TEXTS];

    texts_of(h, texts);
    for (int i = TEXT_TO; i < CALL_TEXTS; i++) {
        if (texts[i].text == NULL) {
            texts[i] = span_of("");
        }
        if (!call_set(p->calls, c, (enum call_text)i, texts[i])) {
            return false;
        }
    }
    c->invite_key = key;
    c->invite_cseq = c->cseq[SIDE_CALLER] = sip->sip_cseq->cs_seq;
    c->direct = sip->sip_via->v_next == NULL && sip->sip_record_route == NULL;
    c->caller = h->source;
    c->caller.leg = FLOW_INGRESS;
    c->since_us = proxy_now_us();
    return true;
}

/* The next try of a caller that was challenged has its place already. */
static bool second_try(proxy *p, hop *h, uint64_t key)
{
    const sip_t *sip = h->sip;

    for (call *c = NULL;
         (c = call_alike(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, c)) != NULL;) {
        if (c->state == CALL_CHALLENGED && sip->sip_cseq->cs_seq > c->invite_cseq) {
            if (!fill(p, h, c, key)) {
                return false;
            }
            invite_forget(c);
            begin(p, h, c);
            return true;
        }
    }
    return false;
}

/* One that we had already: its server transaction is over, or it would not come here. */
static bool retransmitted(proxy *p, const hop *h, uint64_t key)
{
    const sip_t *sip = h->sip;

    for (call *c = NULL;
         (c = call_alike(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, c)) != NULL;) {
        if (c->invite_key == key ||
            (c->invite_key == 0 && c->invite_cseq == sip->sip_cseq->cs_seq)) { /* from before */
            return true;
        }
    }
    return false;
}

static void refuse(proxy *p, hop *h)
{
    unsigned status = p->config->refuse;

    answer(p, h->msg, (int)status, sip_status_phrase((int)status),
           status == 480 || status == 486 || status == 503 || status == 600);
}

static bool is_exempt(const proxy *p, const hop *h)
{
    return config_exempt_addr(p->config, &msg_addr(h->msg)->su_sa) ||
           config_exempt_caller(p->config, h->sip->sip_from->a_url) ||
           config_exempt_callee(p->config, h->sip->sip_request->rq_url);
}

/* A call that was challenged is not up at the server. Its place waits for its next try, unless
 * somebody wants it before: else whoever cannot authenticate could keep places by asking. */
static void make_room(proxy *p, bool exempt)
{
    struct invite *oldest = exempt ? p->challenged[true].first : NULL;

    if (exempt && p->exempt_up < p->config->exempt_calls) {
        return;
    }
    if (oldest == NULL && seven_free(p->pool) == 0) {
        oldest = p->challenged[false].first;
    }
    if (oldest != NULL) {
        invite_abandon(p, oldest->call, SIP_408_REQUEST_TIMEOUT, END_FAILED);
    }
}

static void newcomer(proxy *p, hop *h, uint64_t key)
{
    span texts[CALL_TEXTS];
    call *c, *victim;
    bool exempt;

    texts_of(h, texts);
    if ((c = call_add(p->calls, texts)) == NULL || !fill(p, h, c, key)) {
        if (c != NULL) {
            call_free(p->calls, c);
        }
        answer(p, h->msg, SIP_513_MESSAGE_TOO_LARGE, false);
        return;
    }
    exempt = is_exempt(p, h);
    make_room(p, exempt);
    if (!place_take(p, c, exempt, &victim)) {
        call_free(p->calls, c);
        refusals_add(p->refusals, key, proxy_now_us());
        refuse(p, h);
        return;
    }
    c->state = p->config->forward_round ? CALL_HELD : CALL_WAITING;
    if (victim != NULL) {
        end_victim(p, victim);
    }
    begin(p, h, c);
}

void invite_start(proxy *p, hop *h)
{
    uint64_t key = refusals_key(p->refusals, h->sip);

    if (h->sip->sip_cseq->cs_seq > CALL_MAX_CSEQ) {
        p->count.undroppable++;
        answer(p, h->msg, 400, "CSeq Too High", false);
    } else if (retransmitted(p, h, key)) {
        msg_destroy(h->msg);
    } else if (refusals_has(p->refusals, key, proxy_now_us())) {
        refuse(p, h);
    } else if (p->count.stopping) {
        p->count.refused_stopping++;
        answer(p, h->msg, SIP_503_SERVICE_UNAVAILABLE, true);
    } else if (!second_try(p, h, key)) {
        newcomer(p, h, key);
    }
}
