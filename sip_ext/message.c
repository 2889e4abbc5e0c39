/* SPDX-License-Identifier: Apache-2.0 */
/* Sending what needs no transaction (RFC 3261 section 16.11), and small parts of messages. */
#include <stdio.h>
#include <string.h>

#include "proxy_internal.h"

/* Sends without a transaction. NULL: it could not be sent, and the message is the caller's still
 * (nta_msg_tsend() would lose it then). */
static bool send_once(proxy *p, msg_t *msg, const url_t *next, const char *branch, bool own_via,
                      unsigned listener)
{
    int from = listener_for(p, next, listener);
    nta_outgoing_t *sent = nta_outgoing_mcreate(
        p->agent, NULL, NULL, (const url_string_t *)next, msg, NTATAG_STATELESS(1),
        TAG_IF(branch, NTATAG_BRANCH_KEY(branch)), TAG_IF(own_via, NTATAG_USER_VIA(1)),
        TAG_IF(from >= 0, TPTAG_IDENT(p->listeners[from >= 0 ? from : 0].ident)), TAG_END());

    return sent != NULL;
}

void send_own(proxy *p, msg_t *msg, const url_t *next, const char *branch)
{
    if (!send_once(p, msg, next, branch, branch != NULL, 0)) {
        msg_destroy(msg);
    }
}

void send_request(proxy *p, hop *h, const url_t *next, bool ingress)
{
    char branch[BRANCH_SIZE];

    branch_of(p, h, ingress, branch);
    if (send_once(p, h->msg, next, branch, false, h->listener)) {
        p->count.forwarded++;
        return;
    }
    if (h->sip->sip_via != NULL && h->sip->sip_via->v_branch != NULL &&
        strcmp(h->sip->sip_via->v_branch, branch) == 0) {
        sip_via_remove(h->msg, h->sip);
    }
    answer(p, h->msg, SIP_503_SERVICE_UNAVAILABLE, false);
}

void send_response(proxy *p, msg_t *msg, sip_t *sip, unsigned listener)
{
    static const char *const protocol[] = {"SIP/2.0/UDP", "SIP/2.0/TCP", "SIP/2.0/TLS"};
    const struct listener *l = &p->listeners[listener];
    tport_t *tport = NULL;

    if (su_casematch(sip->sip_via->v_next->v_protocol, protocol[l->address.transport])) {
        tport = l->tport;
    }
    if (nta_msg_tsend(p->agent, msg, NULL, TAG_IF(tport, NTATAG_TPORT(tport)), TAG_END()) >= 0) {
        p->count.forwarded++;
    }
}

void own_tag(const proxy *p, const sip_t *sip, char tag[24])
{
    siphash h;

    siphash_start(&h, p->key);
    siphash_add(&h, "tag", 4);
    siphash_text(&h, sip->sip_call_id->i_id);
    siphash_text(&h, sip->sip_from->a_tag);
    siphash_add(&h, &sip->sip_cseq->cs_seq, sizeof sip->sip_cseq->cs_seq);
    snprintf(tag, 24, "seven%016llx", (unsigned long long)siphash_end(&h));
}

sip_retry_after_t *retry_after(const proxy *p, sip_retry_after_t r[1])
{
    sip_retry_after_init(r);
    r->af_delta = p->config->retry_after;
    return r;
}

void answer(proxy *p, msg_t *msg, int status, const char *phrase, bool with_retry_after)
{
    sip_t *sip = sip_object(msg);
    sip_retry_after_t after[1];
    char tag[24];
    sip_unsupported_t unsupported[1];
    bool list = status == 420 && sip->sip_proxy_require != NULL;

    if (sip->sip_request->rq_method == sip_method_ack) {
        msg_destroy(msg);
        return;
    }
    if (sip->sip_to != NULL && sip->sip_to->a_tag == NULL) {
        own_tag(p, sip, tag);
        sip_to_tag(msg_home(msg), sip->sip_to, tag);
    }
    sip_unsupported_init(unsupported);
    if (list) {
        unsupported->k_items = sip->sip_proxy_require->k_items;
    }
    nta_msg_treply(p->agent, msg, status, phrase, TAG_IF(list, SIPTAG_UNSUPPORTED(unsupported)),
                   TAG_IF(with_retry_after, SIPTAG_RETRY_AFTER(retry_after(p, after))), TAG_END());
}

span span_of_url(su_home_t *home, const url_t *url)
{
    return span_of(url_as_string(home, url));
}

span span_of_routes(su_home_t *home, const sip_record_route_t *first,
                    const sip_record_route_t *last, bool reversed)
{
    const char *uri[MAX_ROUTES];
    size_t count = 0, length = 0;
    char *list, *end;
    span too_long = span_of(NULL);

    for (; first != NULL && first != last; first = first->r_next) {
        if (count == MAX_ROUTES || (uri[count] = url_as_string(home, first->r_url)) == NULL) {
            too_long.length = CALL_MAX_TEXT + 1;
            return too_long;
        }
        length += strlen(uri[count++]) + 4;
    }
    if (count == 0 || (list = end = su_alloc(home, (isize_t)length + 1)) == NULL) {
        return span_of(NULL);
    }
    for (size_t i = 0; i < count; i++) {
        end += sprintf(end, "%s<%s>", i == 0 ? "" : ", ", uri[reversed ? count - 1 - i : i]);
    }
    return (span){.text = list, .length = (size_t)(end - list)};
}
