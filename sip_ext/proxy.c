/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in, and the life of the proxy: opening, the clock's ticks, reloading, figures. */
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "proxy_internal.h"
#include "parser.h"

#define TICK_MS 100
/* Bytes, with all that is added on the way, and what the library keeps beside it, which depends on
 * how the message arrived: one of 64 kB has room for both. */
#define MAX_MESSAGE 131072
#define YEAR_US (UINT64_C(365) * 86400 * SECOND_US)
#define KEY_NAME "key"
#define T_M_NAME "t_m"
#define REMEMBER_US (10 * SECOND_US) /* at most so often */
#define SPIN_US 50                   /* a turn of the event loop that is shorter did nothing */
#define REST_NS 300000L              /* and then it rests */

/* Two years ahead of the system's, so that calls of before a restart have a start. */
uint64_t proxy_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 2 * YEAR_US + (uint64_t)now.tv_sec * SECOND_US + (uint64_t)now.tv_nsec / 1000;
}

/* ---- requests ----------------------------------------------------------------------------- */

/* The ACK of an error that we sent without a transaction. */
static bool acks_ours(const proxy *p, const sip_t *sip)
{
    char tag[24];

    if (sip->sip_to->a_tag == NULL) {
        return false;
    }
    own_tag(p, sip, tag);
    return strcmp(tag, sip->sip_to->a_tag) == 0;
}

/* Whoever is to be found later where it is now. */
static bool starts_dialog(sip_method_t method)
{
    return method == sip_method_invite || method == sip_method_subscribe ||
           method == sip_method_refer;
}

static bool record_route(proxy *p, hop *h, const url_t *next)
{
    flow outer = h->source;

    outer.leg = FLOW_INGRESS;
    if (h->from_server) {
        char transport[8] = "udp";
        int to = listener_for(p, next, h->listener);

        outer.leg = call_alike(p->calls, h->sip->sip_call_id->i_id, h->sip->sip_from->a_tag, NULL)
                        ? FLOW_ONWARD
                        : FLOW_EGRESS;
        memset(&outer.family, 0, sizeof outer - offsetof(flow, family));
        if (flow_parse_host(&outer, next->url_host)) {
            url_param(next->url_params, "transport", transport, sizeof transport);
            outer.transport = su_casematch(transport, "udp")   ? CONFIG_UDP
                              : su_casematch(transport, "tcp") ? CONFIG_TCP
                                                               : CONFIG_TLS;
            outer.port =
                (uint16_t)strtoul(next->url_port != NULL ? next->url_port : "5060", NULL, 10);
            outer.listener = (uint8_t)(to >= 0 ? to : 0);
        }
    }
    return hop_record_route(p, h, &outer, next);
}

/* The server sends the INVITE of a call on through us: the Record-Route that it wrote is its word
 * for how to reach it, before the callee could change it. */
static void learn_server_route(proxy *p, const hop *h)
{
    const sip_t *sip = h->sip;
    const sip_record_route_t *own = sip->sip_record_route;
    call *c = call_alike(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, NULL);

    while (own != NULL && !is_ours(p, own->r_url)) {
        own = own->r_next;
    }
    for (; c != NULL; c = call_alike(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, c)) {
        if (!invite_came_by(c, sip->sip_via)) {
            continue; /* another with the same Call-ID and tag */
        }
        c->onward = true;
        if (own != NULL && own != sip->sip_record_route) {
            call_set(p->calls, c, TEXT_SERVER_ROUTE,
                     span_of_routes(msg_home(h->msg), sip->sip_record_route, own, true));
        }
    }
}

/* A CSeq beyond which none is left for a BYE. In a dialog that we do not know, too: servers may
 * take tags for the same that we do not. */
static bool undroppable(const hop *h)
{
    sip_method_t method = h->sip->sip_request->rq_method;

    return method != sip_method_ack && method != sip_method_cancel &&
           h->sip->sip_cseq->cs_seq > CALL_MAX_CSEQ;
}

static void pass(proxy *p, hop *h)
{
    const sip_t *sip = h->sip;
    sip_method_t method = sip->sip_request->rq_method;
    bool fresh = sip->sip_to->a_tag == NULL;
    url_t *next = hop_next(p, h);
    enum call_side from;
    call *c;
    int status;

    if (next == NULL) {
        status = is_sip(sip->sip_request->rq_url) ? 404 : 416;
        answer(p, h->msg, status, sip_status_phrase(status), false);
        return;
    }
    if (!fresh && undroppable(h)) {
        p->count.undroppable++;
        answer(p, h->msg, 400, "CSeq Too High", false);
        return;
    }
    if (!fresh &&
        (c = call_find(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, sip->sip_to->a_tag,
                       &from)) != NULL &&
        (status = dialog_request(p, h, c, from, next)) != 0) {
        answer(p, h->msg, status, sip_status_phrase(status), false);
        return;
    }
    if (fresh && h->from_server && method == sip_method_invite) {
        learn_server_route(p, h);
    }
    if (fresh && starts_dialog(method) && !record_route(p, h, next)) {
        answer(p, h->msg, SIP_500_INTERNAL_SERVER_ERROR, false);
        return;
    }
    send_request(p, h, next, fresh && method == sip_method_cancel && !h->from_server);
}

/* An INVITE from a client starts a call, unless it is within one: its tags are those of a call that
 * was answered, or our token shows a dialog that the server began, of which we keep nothing. Else a
 * tag of one's own making, or the token of a call that is over, would be a call without a place. */
static bool starts_call(proxy *p, const hop *h)
{
    const sip_t *sip = h->sip;
    enum call_side from;
    const call *c;

    if (sip->sip_request->rq_method != sip_method_invite || h->from_server) {
        return false;
    }
    if (sip->sip_to->a_tag == NULL) {
        return true;
    }
    c = call_find(p->calls, sip->sip_call_id->i_id, sip->sip_from->a_tag, sip->sip_to->a_tag,
                  &from);
    return c != NULL ? !c->answered : h->passes == 0 || h->token.leg != FLOW_EGRESS;
}

static void on_request(proxy *p, msg_t *msg, sip_t *sip)
{
    hop h;
    int status;

    p->count.requests++;
    hop_read(p, &h, msg, sip);
    if (sip->sip_request->rq_method == sip_method_ack && acks_ours(p, sip)) {
        msg_destroy(msg);
        return;
    }
    if ((status = hop_validate(p, &h)) != 0) {
        p->count.looped += status == 483;
        answer(p, msg, status, sip_status_phrase(status), false);
        return;
    }
    hop_preprocess(p, &h);
    if (starts_call(p, &h)) {
        invite_start(p, &h);
    } else {
        pass(p, &h);
    }
}

/* ---- responses ---------------------------------------------------------------------------- */

static void on_late_response(proxy *p, msg_t *msg, sip_t *sip)
{
    hop h;
    bool ingress;
    unsigned listener;

    p->count.responses++;
    parser_branch(sip);
    if (sip->sip_via == NULL || !branch_read(p, sip, &ingress, &listener)) {
        msg_destroy(msg);
        return;
    }
    hop_read(p, &h, msg, sip);
    if (ingress && sip->sip_cseq->cs_method == sip_method_invite &&
        (!h.from_server || invite_response(p, msg, sip))) {
        if (!h.from_server) {
            msg_destroy(msg); /* a callee that has seen our branch may pretend to be the server */
        }
        return;
    }
    if (dialog_response(p, sip, h.from_server, ingress)) {
        send_response(p, msg, sip, listener);
    } else {
        msg_destroy(msg);
    }
}

static int on_message(proxy *p, nta_agent_t *agent, msg_t *msg, sip_t *sip)
{
    (void)agent;
    if (sip->sip_request != NULL) {
        on_request(p, msg, sip);
    } else if (sip->sip_status != NULL) {
        on_late_response(p, msg, sip);
    } else {
        msg_destroy(msg);
    }
    return 0;
}

/* ---- the clock ---------------------------------------------------------------------------- */

static void look_idle(proxy *p)
{
    void (*idle)(void *) = p->idle;

    if (idle != NULL && calls_count(p->calls) == 0) {
        p->idle = NULL;
        idle(p->idle_context);
    }
}

/* What transactions leave in the heap goes back to the system once no call was set up for some
 * seconds, and again when the last of them has timed out; the calls are not in that heap. */
static void trim(proxy *p, uint64_t now)
{
    static const uint64_t quiet_us[] = {5 * SECOND_US, 40 * SECOND_US};

    if (p->trims < 2 && now > p->trim_us + quiet_us[p->trims]) {
        p->trims++;
        malloc_trim(0);
    }
}

/* What t_M was before, if it is to be learned and the store has it. */
static void recall(proxy *p)
{
    if (p->store != NULL && p->config->policy.t_m_us == 0 &&
        store_get(p->store, T_M_NAME, &p->stored_t_m, sizeof p->stored_t_m) ==
            sizeof p->stored_t_m) {
        seven_recall(p->pool, p->stored_t_m);
    }
}

/* Now and then, and at the end. */
static void remember(proxy *p)
{
    uint64_t t_m = p->pool != NULL ? seven_t_m(p->pool) : p->stored_t_m;

    if (p->store != NULL && t_m != p->stored_t_m && p->config->policy.t_m_us == 0) {
        p->stored_t_m = t_m;
        if (!store_set(p->store, T_M_NAME, &t_m, sizeof t_m)) {
            p->count.store_errors++;
        }
    }
}

static void on_tick(proxy *p, su_timer_t *timer, proxy *same)
{
    uint64_t now = proxy_now_us();
    call *c;

    (void)p;
    (void)timer;
    while ((c = calls_due(same->calls, now)) != NULL) {
        if (c->parent == NULL && (!c->answered || c->state == CALL_CHALLENGED)) {
            invite_due(same, c);
        } else {
            dialog_due(same, c);
        }
    }
    if (now > same->remembered_us + REMEMBER_US) {
        same->remembered_us = now;
        remember(same);
    }
    trim(same, now);
    look_idle(same);
}

/* The end of the core's round: now, when a new one begins. */
static void on_round(proxy *p, su_timer_t *timer, proxy *same)
{
    (void)p;
    (void)timer;
    same->round_armed = false;
    invite_round(same);
}

/* The event loop rounds the time to its next timer down to milliseconds, and would turn round and
 * round for the last one. */
static void rest(proxy *p)
{
    uint64_t now = proxy_now_us(), seen = p->count.requests + p->count.responses;

    if (seen == p->last_seen && now - p->last_turn_us < SPIN_US) {
        struct timespec moment = {.tv_nsec = REST_NS};

        nanosleep(&moment, NULL);
        now = proxy_now_us();
    }
    p->last_seen = seen;
    p->last_turn_us = now;
}

static void before_poll(su_prepoll_magic_t *magic, su_root_t *root)
{
    proxy *p = (proxy *)magic;

    (void)root;
    rest(p);
    dialog_commit(p);
    if (p->held.first != NULL && !p->round_armed) {
        uint64_t round = p->config->policy.round_us, now = proxy_now_us();

        p->round_armed = true;
        su_timer_set_interval(p->round, on_round, p,
                              (su_duration_t)((round - now % round + 999) / 1000));
    }
}

/* ---- opening ------------------------------------------------------------------------------- */

static bool open_listener(proxy *p, const config_address *a, char *error, size_t size)
{
    struct listener *l = &p->listeners[p->listener_count];
    const char *transport = config_transport_name(a->transport);
    char url[128];

    snprintf(l->ident, sizeof l->ident, "l%u", p->listener_count);
    snprintf(l->host, sizeof l->host, a->ipv6 ? "[%s]" : "%s", a->host);
    snprintf(l->port, sizeof l->port, "%u", a->port);
    snprintf(l->uri, sizeof l->uri, a->ipv6 ? "[%s]:%u%s;lr" : "%s:%u%s;lr", a->host, a->port,
             a->transport == CONFIG_TCP ? ";transport=tcp" : "");
    flow_set(&l->address, &a->sockaddr.any);
    l->address.transport = (uint8_t)a->transport;
    snprintf(url, sizeof url, "%s:%s:%s;transport=%s", a->transport == CONFIG_TLS ? "sips" : "sip",
             l->host, l->port, transport);
    /* Its STUN server leaks memory, and nobody has asked for one. */
    if (nta_agent_add_tport(p->agent, URL_STRING_MAKE(url), TPTAG_STUN_SERVER(0),
                            TPTAG_IDENT(l->ident), TPTAG_SERVER(1), TPTAG_SDWN_ERROR(0),
                            TPTAG_QUEUESIZE(256),
                            TAG_IF(p->config->tls_certificates != NULL,
                                   TPTAG_CERTIFICATE(p->config->tls_certificates)),
                            TAG_END()) < 0) {
        snprintf(error, size, "%s:%s:%s cannot be listened on: %s", transport, l->host, l->port,
                 strerror(su_errno()));
        return false;
    }
    for (tport_t *t = tport_primaries(nta_agent_tports(p->agent)); t != NULL; t = tport_next(t)) {
        const char *ident = tport_name(t)->tpn_ident;

        if (ident != NULL && strcmp(ident, l->ident) == 0) {
            l->tport = t;
        }
    }
    p->listener_count++;
    return true;
}

static bool open_all(proxy *p, char *error, size_t size)
{
    const config *c = p->config;
    unsigned t1 = (unsigned)(c->t1_us / 1000);

    p->class = parser_create();
    p->agent = nta_agent_create(
        p->root, (url_string_t *)-1, on_message, p, NTATAG_MCLASS(p->class), NTATAG_UA(0),
        NTATAG_MERGE_482(0), NTATAG_CANCEL_487(0), NTATAG_PASS_100(1), NTATAG_EXTRA_100(0),
        NTATAG_PASS_408(1), NTATAG_SIPFLAGS(MSG_DO_EXTRACT_COPY), NTATAG_UDP_MTU(65535),
        NTATAG_MAXSIZE(MAX_MESSAGE), NTATAG_SIP_T1(t1), NTATAG_SIP_T2(8 * t1),
        NTATAG_SIP_T4(2 * t1), NTATAG_SIP_T1X64(64 * t1), NTATAG_TIMER_C(NTA_TIME_MAX),
        NTATAG_SERVER_RPORT(1), NTATAG_CLIENT_RPORT(1),
        NTATAG_BAD_REQ_MASK(sip_mask_request | sip_mask_proxy | sip_mask_ua),
        NTATAG_BAD_RESP_MASK(sip_mask_response), TAG_END());
    if (p->class == NULL || p->agent == NULL) {
        snprintf(error, size, "the SIP stack cannot start");
        return false;
    }
    if (c->listens > MAX_LISTENERS) {
        snprintf(error, size, "there can be at most %d addresses to listen on", MAX_LISTENERS);
        return false;
    }
    for (size_t i = 0; i < c->listens; i++) {
        if (!open_listener(p, &c->listen[i], error, size)) {
            return false;
        }
    }
    flow_set(&p->server, &c->server.sockaddr.any);
    p->server.transport = (uint8_t)c->server.transport;
    p->server_url = url_to_flow(p->home, &p->server);
    if (listener_for(p, p->server_url, 0) < 0) {
        snprintf(error, size, "server is %s over IPv%d, and no address of that kind is listened on",
                 config_transport_name(c->server.transport), c->server.ipv6 ? 6 : 4);
        return false;
    }
    return true;
}

/* The key survives with the calls that its tokens belong to. */
static bool get_key(proxy *p)
{
    if (p->store != NULL && store_get(p->store, KEY_NAME, p->key, sizeof p->key) == sizeof p->key) {
        return true;
    }
    return getrandom(p->key, sizeof p->key, 0) == (ssize_t)sizeof p->key &&
           (p->store == NULL || store_set(p->store, KEY_NAME, p->key, sizeof p->key));
}

/* ---- calls from before ----------------------------------------------------------------------- */

static bool restore_one(void *context, uint64_t key, const void *value, size_t length)
{
    proxy *p = context;
    struct timespec wall;
    call *c;

    clock_gettime(CLOCK_REALTIME, &wall);
    c = call_unpack(p->calls, proxy_now_us(),
                    (uint64_t)wall.tv_sec * SECOND_US + (uint64_t)wall.tv_nsec / 1000, value,
                    length);
    p->next_id = key > p->next_id ? key : p->next_id;
    if (c == NULL) {
        p->count.store_errors++;
        return true;
    }
    c->id = key;
    p->count.restored += c->parent == NULL;
    if (c->session_s != 0) {
        call_due(p->calls, c, proxy_now_us() + (c->session_s + UINT64_C(32)) * SECOND_US);
    }
    return true;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void quiet(void)
{
    su_log_t *logs[3] = {nta_log, tport_log, su_log_default};

    for (size_t i = 0; i < 3; i++) {
        /* Its lines are not limited, and peers can cause them. */
        su_log_set_level(logs[i], log_wants(LOG_DEBUG) ? 9 : 0);
    }
}

static bool start(proxy *p, char *error, size_t size)
{
    uint64_t seed;
    uint32_t places = p->config->policy.places;

    quiet();
    p->calls = calls_create(places + p->config->exempt_calls, proxy_now_us());
    p->refusals = refusals_create();
    p->tick = su_timer_create(su_root_task(p->root), TICK_MS);
    p->round = su_timer_create(su_root_task(p->root), TICK_MS);
    if (p->calls == NULL || p->refusals == NULL || p->tick == NULL || p->round == NULL ||
        getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed || !get_key(p)) {
        snprintf(error, size, "there is no memory for the calls, or no key for them");
        return false;
    }
    seven_seed(&p->rng, seed);
    p->count.places = places;
    if (!open_all(p, error, size)) {
        return false;
    }
    if (p->store != NULL && !store_each(p->store, restore_one, p)) {
        snprintf(error, size, "the calls in the store cannot be read");
        return false;
    }
    if (!place_pool(p, &p->config->policy, error, size)) {
        return false;
    }
    recall(p);
    return su_timer_set_for_ever(p->tick, on_tick, p) == 0 &&
           su_root_add_prepoll(p->root, before_poll, (su_prepoll_magic_t *)p) == 0;
}

proxy *proxy_create(su_root_t *root, const config *c, store *s, char *error, size_t error_size)
{
    proxy *p = calloc(1, sizeof *p);

    snprintf(error, error_size, "the proxy cannot start");
    if (p == NULL) {
        return NULL;
    }
    su_home_init(p->home);
    p->root = root;
    p->config = c;
    p->store = s;
    p->started_us = proxy_now_us();
    if (!start(p, error, error_size)) {
        proxy_destroy(p);
        return NULL;
    }
    error[0] = 0;
    return p;
}

/* Another k or strategy needs another pool, in which the calls take their places again. So does the
 * end of detect_only: who was only said to have lost its place is up, and counts. */
static bool needs_pool(const proxy *p, const config *c)
{
    return !seven_policy_equal(&c->policy, &p->config->policy) ||
           (p->config->detect_only && !c->detect_only && p->unplaced > 0);
}

static bool replace_pool(proxy *p, const config *c, char *error, size_t error_size)
{
    seven_tally old;

    seven_count(p->pool, &old);
    if (!place_pool(p, &c->policy, error, error_size)) {
        return false;
    }
    p->before.admitted += old.admitted;
    p->before.replaced += old.replaced;
    p->before.refused += old.refused;
    return true;
}

bool proxy_reload(proxy *p, const config *c, char *error, size_t error_size)
{
    if (needs_pool(p, c) && !replace_pool(p, c, error, error_size)) {
        return false;
    }
    p->config = c;
    p->count.places = c->policy.places;
    if (!c->forward_round) {
        invite_round(p);
    }
    return true;
}

void proxy_stop(proxy *p, void (*idle)(void *context), void *context)
{
    p->count.stopping = true;
    p->idle = idle;
    p->idle_context = context;
    look_idle(p);
}

static bool forget(void *context, call *c)
{
    (void)context;
    if (c->answered) {
        end_forget(c);
    } else {
        invite_forget(c);
    }
    return true;
}

void proxy_destroy(proxy *p)
{
    if (p == NULL) {
        return;
    }
    su_root_remove_prepoll(p->root);
    su_timer_destroy(p->tick);
    su_timer_destroy(p->round);
    if (p->calls != NULL) {
        calls_each(p->calls, forget, p);
    }
    remember(p);
    nta_agent_destroy(p->agent);
    calls_destroy(p->calls);
    refusals_destroy(p->refusals);
    free(p->class);
    free(p->pool_block);
    free(p->slots);
    free(p->line);
    su_home_deinit(p->home);
    free(p);
}

/* ---- figures -------------------------------------------------------------------------------- */

const char *proxy_end_name(enum proxy_end end)
{
    static const char *const names[END_REASONS] = {
        [END_COMPLETED] = "completed",     [END_FAILED] = "failed",
        [END_CANCELLED] = "cancelled",     [END_TIMEOUT] = "timeout",
        [END_NO_ACK] = "no_ack",           [END_VANISHED] = "vanished",
        [END_CUT_WAITING] = "cut_waiting", [END_CUT_INCALL] = "cut_incall"};

    return end < END_REASONS ? names[end] : "unknown";
}

void proxy_get_status(const proxy *p, proxy_status *status)
{
    const seven_policy *policy = seven_pool_policy(p->pool);
    uint64_t now = proxy_now_us();
    usize_t bad = 0, requests = 0, responses = 0;
    seven_census census;

    seven_survey(p->pool, now, &census);
    *status = p->count;
    status->waiting = census.waiting;
    status->incall = census.served + census.busy;
    status->overdue = census.overdue;
    status->held = invite_held(p);
    status->ending = p->ending;
    status->exempt_places = p->config->exempt_calls;
    status->exempt = p->exempt_up;
    status->unplaced = place_lacking(p);
    status->t_m_us = seven_t_m(p->pool);
    status->t_m_learned = policy->t_m_us == 0;
    status->pmod = seven_pmod(p->pool, now);
    status->strategy = policy->strategy;
    status->tournament = policy->tournament;
    status->detect_only = p->config->detect_only;
    status->bytes_per_call =
        calls_count(p->calls) > 0 ? calls_bytes(p->calls) / calls_count(p->calls) : 0;
    status->uptime_us = now - p->started_us;
    nta_agent_get_stats(p->agent, NTATAG_S_BAD_MESSAGE_REF(bad),
                        NTATAG_S_RECV_REQUEST_REF(requests), NTATAG_S_RECV_RESPONSE_REF(responses),
                        TAG_END());
    status->malformed = bad;
    status->requests = requests;
    status->responses = responses;
}

void proxy_tally(const proxy *p, seven_tally *tally)
{
    seven_count(p->pool, tally);
    tally->admitted += p->before.admitted;
    tally->replaced += p->before.replaced;
    tally->refused += p->before.refused;
}

const seven_histogram *proxy_cut_times(const proxy *p)
{
    return &p->cut_us;
}

struct visit {
    bool (*each)(void *context, const proxy_call *call);
    void *context;
    uint64_t now_us;
};

static bool show(void *context, call *c)
{
    static const char *const names[] = {[CALL_HELD] = "held",
                                        [CALL_WAITING] = "waiting",
                                        [CALL_CHALLENGED] = "challenged",
                                        [CALL_INCALL] = "incall",
                                        [CALL_ENDING] = "ending"};
    const struct visit *v = context;
    proxy_call shown = {.state = names[c->state],
                        .exempt = c->exempt,
                        .age_us = v->now_us > c->since_us ? v->now_us - c->since_us : 0,
                        .from = call_text(c, TEXT_FROM),
                        .to = call_text(c, TEXT_TO),
                        .call_id = call_text(c, TEXT_CALL_ID)};

    return v->each(v->context, &shown);
}

void proxy_each_call(const proxy *p, bool (*each)(void *context, const proxy_call *call),
                     void *context)
{
    struct visit v = {.each = each, .context = context, .now_us = proxy_now_us()};

    calls_each(p->calls, show, &v);
}
