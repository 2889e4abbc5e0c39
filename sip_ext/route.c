/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a request goes (RFC 3261 section 16).
 *
 * What comes from the server goes where it says. What comes from clients goes to the server, unless
 * it is within a dialog that was set up through us, which its Route entry with our token shows: so
 * we are nobody's relay to elsewhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parser.h"
#include "proxy_internal.h"

static uint16_t port_of(const char *text, uint16_t otherwise)
{
    unsigned long port = text != NULL && *text != 0 ? strtoul(text, NULL, 10) : otherwise;

    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

static const char *transport_param(const url_t *url, char text[16])
{
    if (url->url_params == NULL || url_param(url->url_params, "transport", text, 16) < 1) {
        return url->url_type == url_sips ? "tls" : NULL;
    }
    return text;
}

static uint16_t url_port_of(const url_t *url)
{
    char text[16];
    const char *transport = transport_param(url, text);

    return port_of(url->url_port,
                   transport != NULL && su_casematch(transport, "tls") ? 5061 : 5060);
}

bool is_sip(const url_t *url)
{
    return url->url_type == url_sip || url->url_type == url_sips;
}

bool same_place(const url_t *a, const url_t *b)
{
    flow host = {0};

    if (!is_sip(a) || !is_sip(b) || a->url_host == NULL || url_port_of(a) != url_port_of(b)) {
        return false;
    }
    return flow_parse_host(&host, a->url_host) ? flow_is_host(&host, b->url_host)
                                               : su_casematch(a->url_host, b->url_host);
}

bool is_ours(const proxy *p, const url_t *url)
{
    flow host = {0};

    if (!is_sip(url) || !flow_parse_host(&host, url->url_host)) {
        return false;
    }
    for (unsigned i = 0; i < p->listener_count; i++) {
        if (flow_same_host(&host, &p->listeners[i].address) &&
            url_port_of(url) == p->listeners[i].address.port) {
            return true;
        }
    }
    return false;
}

bool is_server(const proxy *p, const url_t *url)
{
    return is_sip(url) && flow_is_host(&p->server, url->url_host) &&
           url_port_of(url) == p->server.port;
}

/* ---- where a message came from ---------------------------------------------------------- */

static uint8_t transport_of(const char *name)
{
    return su_casematch(name, "udp")   ? CONFIG_UDP
           : su_casematch(name, "tcp") ? CONFIG_TCP
                                       : CONFIG_TLS;
}

/* By its address and port: on one host, others have that address, too. Over TCP it may call from
 * any port, and says in its Via which one is its own. */
static bool sent_by_server(const proxy *p, const hop *h)
{
    const sip_via_t *via = h->sip->sip_via;

    if (!flow_same_host(&h->source, &p->server)) {
        return false;
    }
    if (h->source.port == p->server.port) {
        return true;
    }
    if (h->source.transport == CONFIG_UDP) {
        return false;
    }
    if (h->sip->sip_request == NULL) {
        return true; /* on a connection that it made */
    }
    return via != NULL && flow_is_host(&p->server, via->v_host) &&
           port_of(via->v_port, h->source.transport == CONFIG_TLS ? 5061 : 5060) == p->server.port;
}

void hop_read(proxy *p, hop *h, msg_t *msg, sip_t *sip)
{
    tport_t *tport = tport_delivered_by(nta_agent_tports(p->agent), msg);
    const tp_name_t *name = tport != NULL ? tport_name(tport) : NULL;

    *h = (hop){.msg = msg, .sip = sip};
    flow_set(&h->source, &msg_addr(msg)->su_sa);
    tport = tport != NULL && tport_is_secondary(tport) ? tport_parent(tport) : tport;
    for (unsigned i = 0; i < p->listener_count; i++) {
        if (p->listeners[i].tport == tport) {
            h->listener = i;
        }
    }
    h->source.transport = name != NULL ? transport_of(name->tpn_proto) : CONFIG_UDP;
    h->source.listener = (uint8_t)h->listener;
    h->from_server = sent_by_server(p, h);
}

/* ---- 16.3 ------------------------------------------------------------------------------- */

#define MOST_FORWARDS 255U /* RFC 3261 20.22 */

int hop_validate(proxy *p, hop *h)
{
    sip_max_forwards_t *left = h->sip->sip_max_forwards;

    (void)p;
    if (left != NULL && left->mf_count > MOST_FORWARDS) { /* as if it had none (RFC 4475 3.1.2.4) */
        left->mf_count = 70;
        msg_fragment_clear(left->mf_common);
        return 0;
    }
    if (left == NULL) {
        left = sip_max_forwards_make(msg_home(h->msg), "70");
        return left == NULL ||
                       msg_header_insert(h->msg, (msg_pub_t *)h->sip, (msg_header_t *)left) < 0
                   ? 500
                   : 0;
    }
    if (left->mf_count == 0) {
        return 483;
    }
    if (h->sip->sip_proxy_require != NULL && h->sip->sip_request->rq_method != sip_method_ack &&
        h->sip->sip_request->rq_method != sip_method_cancel) {
        return 420;
    }
    left->mf_count--;
    msg_fragment_clear(left->mf_common);
    return 0;
}

/* ---- 16.4 ------------------------------------------------------------------------------- */

static bool has_token(proxy *p, hop *h, const url_t *url)
{
    return url->url_user != NULL &&
           flow_read(&h->token, p->key, h->sip->sip_call_id->i_id, url->url_user);
}

/* The last hop is a strict router: it put our entry into the Request-URI, and the target behind the
 * Route. */
static void undo_strict(proxy *p, hop *h)
{
    sip_request_t *rq = h->sip->sip_request;
    sip_route_t *last = h->sip->sip_route;
    url_t *url;

    if (last == NULL || !is_ours(p, rq->rq_url) || !has_token(p, h, rq->rq_url)) {
        return;
    }
    while (last->r_next != NULL) {
        last = last->r_next;
    }
    if ((url = url_hdup(msg_home(h->msg), last->r_url)) != NULL) {
        *rq->rq_url = *url;
        msg_fragment_clear(rq->rq_common);
        msg_header_remove(h->msg, (msg_pub_t *)h->sip, (msg_header_t *)last);
        h->passes++;
    }
}

void hop_preprocess(proxy *p, hop *h)
{
    sip_t *sip = h->sip;
    bool pair = false;

    undo_strict(p, h);
    while (sip->sip_route != NULL && is_ours(p, sip->sip_route->r_url)) {
        const url_t *url = sip->sip_route->r_url;
        bool twin = url->url_params != NULL && url_has_param(url, "r2");

        if (has_token(p, h, url)) {
            h->passes += !pair;
        }
        pair = twin && !pair;
        sip_route_remove(h->msg, sip);
    }
    if (sip->sip_to->a_tag == NULL) {
        h->passes = 0;
    }
}

/* ---- 16.5, 16.6 ------------------------------------------------------------------------- */

bool unreachable(const url_t *contact, const flow *seen)
{
    flow host = {0};
    size_t length;

    if (seen->family == 0 || contact->url_host == NULL || flow_is_host(seen, contact->url_host)) {
        return false;
    }
    if (flow_parse_host(&host, contact->url_host)) {
        return flow_is_private(&host);
    }
    length = strlen(contact->url_host);
    return strchr(contact->url_host, '.') == NULL ||
           (length > 8 && su_casematch(contact->url_host + length - 8, ".invalid"));
}

bool connected(const proxy *p, const flow *f)
{
    char host[INET6_ADDRSTRLEN], port[8];
    const char *name = config_transport_name((enum config_transport)f->transport);
    tp_name_t to = {.tpn_proto = name, .tpn_port = port, .tpn_canon = host, .tpn_host = host};
    tport_t *tport;

    if (f->family == 0 || f->transport == CONFIG_UDP) {
        return false;
    }
    flow_host(f, host);
    snprintf(port, sizeof port, "%u", f->port);
    tport = tport_by_name(nta_agent_tports(p->agent), &to);
    return tport != NULL && tport_is_secondary(tport);
}

url_t *url_to_flow(su_home_t *home, const flow *f)
{
    char host[INET6_ADDRSTRLEN];

    flow_host(f, host);
    return url_hdup(
        home,
        URL_STRING_MAKE(
            su_sprintf(home, f->family == 6 ? "sip:[%s]:%u;transport=%s" : "sip:%s:%u;transport=%s",
                       host, f->port, config_transport_name((enum config_transport)f->transport)))
            ->us_url);
}

url_t *url_to(su_home_t *home, const url_t *url)
{
    char text[16], maddr[64];
    const char *transport = transport_param(url, text);
    flow host = {0};
    url_t *to = su_zalloc(home, sizeof *to);

    if (to == NULL || !is_sip(url) || url->url_host == NULL) {
        return NULL;
    }
    url_init(to, (enum url_type_e)url->url_type);
    to->url_host = url->url_host;
    to->url_port = url->url_port;
    if (url->url_params != NULL && url_param(url->url_params, "maddr", maddr, sizeof maddr) > 1) {
        to->url_host = su_strdup(home, maddr);
    }
    if (transport == NULL && flow_parse_host(&host, to->url_host)) {
        transport = "udp";
    }
    if (transport != NULL) {
        to->url_params = su_sprintf(home, "transport=%s", transport);
    }
    return to;
}

/* The next hop is a strict router: the target goes behind the Route, its first entry becomes the
 * Request-URI (16.6 step 6). */
static url_t *to_strict(hop *h)
{
    sip_t *sip = h->sip;
    su_home_t *home = msg_home(h->msg);
    sip_route_t last[1];
    url_t *first = url_hdup(home, sip->sip_route->r_url);

    sip_route_init(last);
    *last->r_url = *sip->sip_request->rq_url;
    if (first == NULL || sip_add_dup(h->msg, sip, (sip_header_t *)last) < 0) {
        return NULL;
    }
    sip_route_remove(h->msg, sip);
    *sip->sip_request->rq_url = *first;
    msg_fragment_clear(sip->sip_request->rq_common);
    return url_to(home, first);
}

url_t *hop_next(proxy *p, hop *h)
{
    sip_t *sip = h->sip;
    su_home_t *home = msg_home(h->msg);
    const url_t *target = sip->sip_request->rq_url;
    bool outward = h->from_server || h->passes > 1;

    if (!h->from_server && h->passes == 0) {
        return p->server_url;
    }
    if (sip->sip_route != NULL) {
        return url_has_param(sip->sip_route->r_url, "lr") ? url_to(home, sip->sip_route->r_url)
                                                          : to_strict(h);
    }
    if (is_ours(p, target)) {
        return h->from_server ? NULL : p->server_url;
    }
    if (outward && h->passes > 0 && (connected(p, &h->token) || unreachable(target, &h->token))) {
        return url_to_flow(home, &h->token);
    }
    return url_to(home, target);
}

int listener_for(const proxy *p, const url_t *next, unsigned preferred)
{
    char text[16];
    const char *transport = transport_param(next, text);
    uint8_t wanted = transport != NULL ? transport_of(transport) : CONFIG_UDP;
    flow host = {0};
    bool numeric = flow_parse_host(&host, next->url_host);

    for (unsigned i = 0; i <= p->listener_count; i++) {
        unsigned at = i == 0 ? preferred : i - 1;
        const flow *own = &p->listeners[at < p->listener_count ? at : 0].address;

        if (at < p->listener_count && own->transport == wanted &&
            (!numeric || own->family == host.family)) {
            return (int)at;
        }
    }
    return -1;
}

/* ---- 16.6 step 4 ------------------------------------------------------------------------ */

static bool add_record_route(hop *h, const struct listener *l, const char *token, bool two)
{
    sip_record_route_t *rr = sip_record_route_format(
        msg_home(h->msg), "<%s:%s@%s%s>", l->address.transport == CONFIG_TLS ? "sips" : "sip",
        token, l->uri, two ? ";r2=on" : "");

    return rr != NULL && msg_header_insert(h->msg, (msg_pub_t *)h->sip, (msg_header_t *)rr) >= 0;
}

bool hop_record_route(proxy *p, hop *h, const flow *outer, const url_t *next)
{
    int sending = listener_for(p, next, h->listener);
    char token[FLOW_TOKEN];
    bool two = sending >= 0 && (unsigned)sending != h->listener;

    flow_write(outer, p->key, h->sip->sip_call_id->i_id, token);
    return add_record_route(h, &p->listeners[h->listener], token, two) &&
           (!two || add_record_route(h, &p->listeners[sending], token, two));
}

/* ---- branches --------------------------------------------------------------------------- */

/* An INVITE, its CANCEL and the ACK of its error come with the same branch, and get the same; what
 * comes without one of RFC 3261 is told apart by the Call-ID, From-tag and CSeq. All of it comes
 * back in the response, so that we know those that belong to what we sent. */
static void write_branch(const proxy *p, const sip_t *sip, const sip_via_t *via, bool ingress,
                         unsigned listener, char branch[BRANCH_SIZE])
{
    char kind = ingress ? 'i' : 'o', at = (char)listener;
    siphash s;

    siphash_start(&s, p->key);
    siphash_add(&s, "branch", 7);
    siphash_add(&s, &kind, 1);
    siphash_add(&s, &at, 1);
    siphash_text(&s, via->v_branch);
    siphash_text(&s, via->v_host);
    siphash_text(&s, via->v_port);
    /* Where the answer goes is not for who answers to say. */
    siphash_text(&s, via->v_received);
    siphash_text(&s, via->v_rport);
    siphash_text(&s, via->v_maddr);
    if (via->v_branch == NULL || !su_casenmatch(via->v_branch, "z9hG4bK", 7)) {
        siphash_text(&s, sip->sip_call_id->i_id);
        siphash_text(&s, sip->sip_from->a_tag);
        siphash_add(&s, &sip->sip_cseq->cs_seq, sizeof sip->sip_cseq->cs_seq);
    }
    snprintf(branch, BRANCH_SIZE, PARSER_BRANCH "%c%02x%016llx", kind, listener & 0xffU,
             (unsigned long long)siphash_end(&s));
}

void branch_of(const proxy *p, const hop *h, bool ingress, char branch[BRANCH_SIZE])
{
    write_branch(p, h->sip, h->sip->sip_via, ingress, h->listener, branch);
}

bool branch_read(const proxy *p, const sip_t *sip, bool *ingress, unsigned *listener)
{
    const char *branch = sip->sip_via->v_branch;
    char digits[3] = {0}, right[BRANCH_SIZE];

    if (branch == NULL || strlen(branch) != 27 || strncmp(branch, PARSER_BRANCH, 8) != 0 ||
        sip->sip_via->v_next == NULL) {
        return false;
    }
    *ingress = branch[8] == 'i';
    memcpy(digits, branch + 9, 2);
    *listener = (unsigned)strtoul(digits, NULL, 16);
    if (*listener >= p->listener_count) {
        return false;
    }
    write_branch(p, sip, sip->sip_via->v_next, *ingress, *listener, right);
    return strcmp(branch, right) == 0;
}
