/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <sofia-sip/msg.h>
#include <sofia-sip/sip_parser.h>
#include <sofia-sip/su.h>

#include "proxy_internal.h"
#include "unit.h"

static proxy p;
static su_home_t home[1];

static void listener(unsigned at, const char *host, uint16_t port, uint8_t transport)
{
    struct listener *l = &p.listeners[at];

    ck_assert(flow_parse_host(&l->address, host));
    l->address.port = port;
    l->address.transport = transport;
    snprintf(l->uri, sizeof l->uri, "%s:%u%s;lr", host, port,
             transport == CONFIG_TCP ? ";transport=tcp" : "");
    p.listener_count = at + 1;
}

static void setup(void)
{
    su_init();
    su_home_init(home);
    memset(&p, 0, sizeof p);
    memcpy(p.key, "0123456789abcdef", sizeof p.key);
    listener(0, "192.0.2.1", 5060, CONFIG_UDP);
    listener(1, "192.0.2.1", 5060, CONFIG_TCP);
    listener(2, "[2001:db8::1]", 5080, CONFIG_UDP);
    ck_assert(flow_parse_host(&p.server, "192.0.2.9"));
    p.server.port = 5070;
    p.server_url = url_to_flow(home, &p.server);
}

static void teardown(void)
{
    su_home_deinit(home);
    su_deinit();
}

/* A request under way, with these lines besides the ones that each has. */
static hop request(const char *uri, const char *lines, bool from_server)
{
    char text[4000];
    hop h = {.from_server = from_server};

    snprintf(text, sizeof text,
             "INFO %s SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.1;branch=z9hG4bK1\r\n%s"
             "From: <sip:a@x>;tag=1\r\nTo: <sip:b@x>;tag=2\r\nCall-ID: id\r\nCSeq: 1 INFO\r\n"
             "Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n",
             uri, lines);
    h.msg = msg_make(sip_default_mclass(), MSG_DO_EXTRACT_COPY, text, (ssize_t)strlen(text));
    h.sip = sip_object(h.msg);
    ck_assert_ptr_nonnull(h.sip->sip_request);
    return h;
}

static const char *token_of(const char *call_id, const char *host, uint16_t port)
{
    static char token[FLOW_TOKEN];
    flow f = {.port = port};

    ck_assert(flow_parse_host(&f, host));
    flow_write(&f, p.key, call_id, token);
    return token;
}

/* Where it goes, as "host:port". */
static const char *goes(hop *h)
{
    static char text[200];
    url_t *next;

    hop_preprocess(&p, h);
    next = hop_next(&p, h);
    snprintf(text, sizeof text, "%s:%s", next != NULL ? next->url_host : "nowhere",
             next != NULL && next->url_port != NULL ? next->url_port : "");
    return text;
}

START_TEST(from_a_client_to_the_server)
{
    static const char *const lines[] = {
        "", "Route: <sip:192.0.2.1;lr>\r\n", "Route: <sip:203.0.113.5;lr>\r\n",
        "Route: <sip:192.0.2.1;lr>, <sip:203.0.113.5;lr>\r\n",
        "Route: <sip:AAAAAAAAAAAAAAAAAAAAAA@192.0.2.1;lr>, <sip:203.0.113.5;lr>\r\n"};

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        hop h = request("sip:b@203.0.113.7", lines[i], false);

        ck_assert_str_eq(goes(&h), "192.0.2.9:5070");
        msg_destroy(h.msg);
    }
}
END_TEST

/* Another call's token opens nothing. */
START_TEST(in_a_dialog_where_it_says)
{
    char lines[300];
    hop h;

    snprintf(lines, sizeof lines, "Route: <sip:%s@192.0.2.1;lr>, <sip:203.0.113.5:5099;lr>\r\n",
             token_of("id", "198.51.100.1", 5060));
    h = request("sip:b@203.0.113.7", lines, false);
    ck_assert_str_eq(goes(&h), "203.0.113.5:5099");
    ck_assert_str_eq(h.sip->sip_request->rq_url->url_host, "203.0.113.7");
    msg_destroy(h.msg);
    snprintf(lines, sizeof lines, "Route: <sip:%s@192.0.2.1;lr>, <sip:203.0.113.5:5099;lr>\r\n",
             token_of("other", "198.51.100.1", 5060));
    h = request("sip:b@203.0.113.7", lines, false);
    ck_assert_str_eq(goes(&h), "192.0.2.9:5070");
    msg_destroy(h.msg);
}
END_TEST

START_TEST(from_the_server_where_it_says)
{
    hop h = request("sip:b@203.0.113.7:5071", "", true);

    ck_assert_str_eq(goes(&h), "203.0.113.7:5071");
    msg_destroy(h.msg);
    h = request("sip:b@203.0.113.7", "Route: <sip:192.0.2.1;lr>, <sip:203.0.113.5;lr>\r\n", true);
    ck_assert_str_eq(goes(&h), "203.0.113.5:");
    msg_destroy(h.msg);
    h = request("sip:b@192.0.2.1", "", true); /* to ourselves, and no further */
    ck_assert_str_eq(goes(&h), "nowhere:");
    msg_destroy(h.msg);
}
END_TEST

START_TEST(behind_a_nat)
{
    static const struct {
        const char *contact, *next;
    } cases[] = {{"sip:b@10.1.2.3:5062", "198.51.100.7:40000"},
                 {"sip:b@x7.invalid", "198.51.100.7:40000"},
                 {"sip:b@phone", "198.51.100.7:40000"},
                 {"sip:b@198.51.100.7:5062", "198.51.100.7:5062"},
                 {"sip:b@203.0.113.4:5062", "203.0.113.4:5062"},
                 {"sip:b@phone.example.org", "phone.example.org:"}};
    char lines[300];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hop h;

        snprintf(lines, sizeof lines, "Route: <sip:%s@192.0.2.1;lr>\r\n",
                 token_of("id", "198.51.100.7", 40000));
        h = request(cases[i].contact, lines, true);
        ck_assert_str_eq(goes(&h), cases[i].next);
        msg_destroy(h.msg);
    }
}
END_TEST

/* RFC 3261 16.12.1.2, both ways. */
START_TEST(strict_routers)
{
    char uri[200];
    hop h;

    snprintf(uri, sizeof uri, "sip:%s@192.0.2.1;lr", token_of("id", "198.51.100.1", 5060));
    h = request(uri, "Route: <sip:203.0.113.5;lr>, <sip:b@203.0.113.7>\r\n", false);
    ck_assert_str_eq(goes(&h), "203.0.113.5:");
    ck_assert_str_eq(h.sip->sip_request->rq_url->url_host, "203.0.113.7");
    ck_assert_ptr_null(h.sip->sip_route->r_next);
    msg_destroy(h.msg);
    h = request("sip:b@203.0.113.7", "Route: <sip:203.0.113.5>, <sip:203.0.113.6>\r\n", true);
    ck_assert_str_eq(goes(&h), "203.0.113.5:");
    ck_assert_str_eq(h.sip->sip_request->rq_url->url_host, "203.0.113.5");
    ck_assert_str_eq(h.sip->sip_route->r_url->url_host, "203.0.113.6");
    ck_assert_str_eq(h.sip->sip_route->r_next->r_url->url_host, "203.0.113.7");
    msg_destroy(h.msg);
}
END_TEST

START_TEST(pair_counts_as_one_pass)
{
    char lines[400];
    const char *token = token_of("id", "198.51.100.7", 40000);
    hop h;

    snprintf(lines, sizeof lines,
             "Route: <sip:%s@192.0.2.1;lr;r2=on>, <sip:%s@192.0.2.1;transport=tcp;lr;r2=on>\r\n",
             token, token);
    h = request("sip:b@192.0.2.9:5070", lines, false);
    ck_assert_str_eq(goes(&h), "192.0.2.9:5070");
    ck_assert_uint_eq(h.passes, 1);
    ck_assert_ptr_null(h.sip->sip_route);
    msg_destroy(h.msg);
}
END_TEST

START_TEST(max_forwards)
{
    hop h = request("sip:b@x", "", false);

    ck_assert_int_eq(hop_validate(&p, &h), 0);
    ck_assert_uint_eq(h.sip->sip_max_forwards->mf_count, 69);
    h.sip->sip_max_forwards->mf_count = 256;
    ck_assert_int_eq(hop_validate(&p, &h), 0);
    ck_assert_uint_eq(h.sip->sip_max_forwards->mf_count, 70);
    h.sip->sip_max_forwards->mf_count = 0;
    ck_assert_int_eq(hop_validate(&p, &h), 483);
    msg_header_remove(h.msg, (msg_pub_t *)h.sip, (msg_header_t *)h.sip->sip_max_forwards);
    ck_assert_int_eq(hop_validate(&p, &h), 0);
    ck_assert_uint_eq(h.sip->sip_max_forwards->mf_count, 70);
    msg_destroy(h.msg);
    h = request("sip:b@x", "Proxy-Require: foo\r\n", false);
    ck_assert_int_eq(hop_validate(&p, &h), 420);
    msg_destroy(h.msg);
}
END_TEST

static hop response(const char *own, const char *theirs)
{
    char text[1000];
    hop h = {0};

    snprintf(text, sizeof text,
             "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=%s\r\nVia: %s\r\n"
             "From: <sip:a@x>;tag=1\r\nTo: <sip:b@x>;tag=2\r\nCall-ID: id\r\nCSeq: 1 INFO\r\n"
             "Content-Length: 0\r\n\r\n",
             own, theirs);
    h.msg = msg_make(sip_default_mclass(), 0, text, (ssize_t)strlen(text));
    h.sip = sip_object(h.msg);
    return h;
}

/* Only what answers a request of ours has a branch that is right for the next Via. */
START_TEST(branches)
{
    hop h = request("sip:b@x", "", false), r;
    char branch[BRANCH_SIZE], bad[BRANCH_SIZE];
    bool ingress = false;
    unsigned at = 9;

    h.listener = 2;
    branch_of(&p, &h, true, branch);
    r = response(branch, "SIP/2.0/UDP 198.51.100.1;branch=z9hG4bK1");
    ck_assert(branch_read(&p, r.sip, &ingress, &at));
    ck_assert(ingress);
    ck_assert_uint_eq(at, 2);
    msg_destroy(r.msg);
    r = response(branch, "SIP/2.0/UDP 198.51.100.2;branch=z9hG4bK1");
    ck_assert(!branch_read(&p, r.sip, &ingress, &at));
    msg_destroy(r.msg);
    /* Nor may who answers say where the answer goes. */
    for (int i = 0; i < 3; i++) {
        static const char *const elsewhere[] = {"received=10.0.0.1", "rport=3", "maddr=10.0.0.1"};
        char via[200];

        snprintf(via, sizeof via, "SIP/2.0/UDP 198.51.100.1;branch=z9hG4bK1;%s", elsewhere[i]);
        r = response(branch, via);
        ck_assert(!branch_read(&p, r.sip, &ingress, &at));
        msg_destroy(r.msg);
    }
    for (size_t i = 0; branch[i] != 0; i++) {
        memcpy(bad, branch, sizeof bad);
        bad[i] = bad[i] == '0' ? '1' : '0';
        r = response(bad, "SIP/2.0/UDP 198.51.100.1;branch=z9hG4bK1");
        ck_assert(!branch_read(&p, r.sip, &ingress, &at));
        msg_destroy(r.msg);
    }
    msg_destroy(h.msg);
}
END_TEST

START_TEST(listeners)
{
    url_t *u = url_make(home, "sip:203.0.113.5;transport=udp");

    ck_assert_int_eq(listener_for(&p, u, 0), 0);
    ck_assert_int_eq(listener_for(&p, u, 200), 0); /* of another configuration */
    u = url_make(home, "sip:203.0.113.5;transport=tcp");
    ck_assert_int_eq(listener_for(&p, u, 0), 1);
    u = url_make(home, "sip:[2001:db8::9];transport=udp");
    ck_assert_int_eq(listener_for(&p, u, 0), 2);
    u = url_make(home, "sip:[2001:db8::9];transport=tcp");
    ck_assert_int_eq(listener_for(&p, u, 0), -1);
    u = url_make(home, "sips:203.0.113.5");
    ck_assert_int_eq(listener_for(&p, u, 0), -1);
    ck_assert(is_ours(&p, url_make(home, "sip:x@192.0.2.1")));
    ck_assert(is_ours(&p, url_make(home, "sip:[2001:db8:0::1]:5080")));
    ck_assert(!is_ours(&p, url_make(home, "sip:192.0.2.1:5061")));
    ck_assert(!is_ours(&p, url_make(home, "tel:+358")));
    ck_assert(is_server(&p, url_make(home, "sip:192.0.2.9:5070;lr")));
    ck_assert(!is_server(&p, url_make(home, "sip:192.0.2.9")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sip_route");
    TCase *tcase = unit_case(suite, "route");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, from_a_client_to_the_server);
    tcase_add_test(tcase, in_a_dialog_where_it_says);
    tcase_add_test(tcase, from_the_server_where_it_says);
    tcase_add_test(tcase, behind_a_nat);
    tcase_add_test(tcase, strict_routers);
    tcase_add_test(tcase, pair_counts_as_one_pass);
    tcase_add_test(tcase, max_forwards);
    tcase_add_test(tcase, branches);
    tcase_add_test(tcase, listeners);
    return unit_run(suite);
}
