/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "flow.h"
#include "siphash.h"
#include "unit.h"

static const uint8_t key[SIPHASH_KEY] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* The vectors of the reference implementation's paper and of its test: of no bytes, and of 15. */
START_TEST(siphash_vectors)
{
    uint8_t input[15];
    siphash h;

    siphash_start(&h, key);
    ck_assert_uint_eq(siphash_end(&h), UINT64_C(0x726fdb47dd0e0e31));
    for (uint8_t i = 0; i < sizeof input; i++) {
        input[i] = i;
    }
    siphash_start(&h, key);
    siphash_add(&h, input, sizeof input);
    ck_assert_uint_eq(siphash_end(&h), UINT64_C(0xa129ca6149be45e5));
    for (size_t cut = 0; cut <= sizeof input; cut++) { /* in two parts */
        siphash_start(&h, key);
        siphash_add(&h, input, cut);
        siphash_add(&h, input + cut, sizeof input - cut);
        ck_assert_uint_eq(siphash_end(&h), UINT64_C(0xa129ca6149be45e5));
    }
}
END_TEST

static flow make(const char *host, uint16_t port)
{
    flow f = {.leg = FLOW_INGRESS, .transport = 1, .listener = 3, .port = port};

    ck_assert(flow_parse_host(&f, host));
    return f;
}

START_TEST(token_and_back)
{
    static const char *const hosts[] = {"192.0.2.7", "2001:db8::7", "0.0.0.0", "255.255.255.255"};

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        flow f = make(hosts[i], (uint16_t)(1 + 21000 * i)), back;
        char token[FLOW_TOKEN];

        flow_write(&f, key, "call-id", token);
        ck_assert_uint_eq(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                        "0123456789-_"),
                          strlen(token));
        ck_assert(flow_read(&back, key, "call-id", token));
        ck_assert(flow_same(&f, &back));
        ck_assert_uint_eq(back.leg, FLOW_INGRESS);
        ck_assert_uint_eq(back.listener, 3);
    }
}
END_TEST

START_TEST(token_without_an_address)
{
    flow f = {.leg = FLOW_EGRESS}, back;
    char token[FLOW_TOKEN];

    flow_write(&f, key, "call-id", token);
    ck_assert(flow_read(&back, key, "call-id", token));
    ck_assert_uint_eq(back.family, 0);
    ck_assert_uint_eq(back.leg, FLOW_EGRESS);
}
END_TEST

/* Not with another key, for another call, changed in any digit, cut or longer. */
START_TEST(forged)
{
    static const char digits[] = "ABab09-_";
    flow f = make("192.0.2.7", 5060), back = {0};
    uint8_t other[SIPHASH_KEY] = {1};
    char token[FLOW_TOKEN + 8], bad[FLOW_TOKEN + 8];

    flow_write(&f, key, "call-id", token);
    ck_assert(!flow_read(&back, other, "call-id", token));
    ck_assert(!flow_read(&back, key, "call-Id", token));
    ck_assert(!flow_read(&back, key, NULL, token));
    ck_assert(!flow_read(&back, key, "call-id", NULL));
    ck_assert(!flow_read(&back, key, "call-id", ""));
    for (size_t at = 0; token[at + 1] != 0; at++) {
        for (size_t d = 0; digits[d] != 0; d++) {
            memcpy(bad, token, sizeof token);
            bad[at] = digits[d];
            ck_assert(flow_read(&back, key, "call-id", bad) == (strcmp(bad, token) == 0));
        }
        memcpy(bad, token, sizeof token);
        bad[at] = 0;
        ck_assert(!flow_read(&back, key, "call-id", bad));
        bad[at] = '%';
        ck_assert(!flow_read(&back, key, "call-id", bad));
    }
    memset(bad, 'A', sizeof bad - 1);
    bad[sizeof bad - 1] = 0;
    ck_assert(!flow_read(&back, key, "call-id", bad));
}
END_TEST

START_TEST(addresses)
{
    flow f = make("192.0.2.7", 5060), mapped = {.transport = 1};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(5060)};
    char text[INET6_ADDRSTRLEN];

    ck_assert_int_eq(inet_pton(AF_INET6, "::ffff:192.0.2.7", &in6.sin6_addr), 1);
    flow_set(&mapped, (struct sockaddr *)&in6);
    ck_assert(flow_same(&f, &mapped));
    ck_assert_str_eq(flow_host(&mapped, text), "192.0.2.7");
    ck_assert(flow_is_host(&f, "192.0.2.7"));
    ck_assert(!flow_is_host(&f, "192.0.2.8"));
    ck_assert(!flow_is_host(&f, "example.org"));
    ck_assert(!flow_is_host(&f, NULL));
    f = make("[2001:db8::1]", 1);
    ck_assert(flow_is_host(&f, "[2001:DB8:0::1]"));
    ck_assert(flow_is_host(&f, "2001:db8::1"));
    ck_assert(!flow_parse_host(&f, "[2001:db8::1"));
    ck_assert(!flow_parse_host(&f, ""));
}
END_TEST

START_TEST(private_ones)
{
    static const char *const inside[] = {"10.1.2.3",   "172.16.0.1",  "172.31.9.9", "192.168.1.1",
                                         "100.64.0.1", "169.254.1.1", "127.0.0.1",  "fd00::1",
                                         "fe80::1",    "::1"};
    static const char *const outside[] = {"11.0.0.1",    "172.32.0.1", "192.169.0.1",
                                          "100.128.0.1", "8.8.8.8",    "2001:db8::1"};

    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        flow f = make(inside[i], 1);
        ck_assert_msg(flow_is_private(&f), "%s", inside[i]);
    }
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        flow f = make(outside[i], 1);
        ck_assert_msg(!flow_is_private(&f), "%s", outside[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sip_flow");
    TCase *tcase = unit_case(suite, "flow");

    tcase_add_test(tcase, siphash_vectors);
    tcase_add_test(tcase, token_and_back);
    tcase_add_test(tcase, token_without_an_address);
    tcase_add_test(tcase, forged);
    tcase_add_test(tcase, addresses);
    tcase_add_test(tcase, private_ones);
    return unit_run(suite);
}
