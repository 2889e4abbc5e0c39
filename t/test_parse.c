/* SPDX-License-Identifier: Apache-2.0 */
#include "parse.h"
#include "unit.h"

START_TEST(numbers)
{
    long n = 7;

    ck_assert(seven_parse_number("0", 0, 9, &n) && n == 0);
    ck_assert(seven_parse_number("9", 0, 9, &n) && n == 9);
    n = 7;
    static const char *const bad[] = {
        "", "10", "-1", "+1", " 1", "1 ", "1x", "0x1", "1.0", "%", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_msg(!seven_parse_number(bad[i], 0, 9, &n) && n == 7, "%s", bad[i]);
    }
}
END_TEST

START_TEST(amounts)
{
    long n = 7;
    bool percent = false;

    ck_assert(seven_parse_amount("180", 1, 1000, &n, &percent) && n == 180 && !percent);
    ck_assert(seven_parse_amount("100%", 1, 1000, &n, &percent) && n == 100 && percent);
    ck_assert(seven_parse_amount("0", 0, 1000, &n, &percent) && n == 0 && !percent);
    static const char *const bad[] = {"0",    "0%", "101%", "1001", "50%%",
                                      "50 %", "%",  "",     "-5%",  "x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_msg(!seven_parse_amount(bad[i], 1, 1000, &n, &percent), "%s", bad[i]);
    }
}
END_TEST

START_TEST(times)
{
    static const struct {
        const char *text;
        uint64_t us;
    } good[] = {
        {"1ms", 1000},           {"100MS", 100000}, {"2s", 2000000},           {"3min", 180000000},
        {"24h", 86400000000ULL}, {"007s", 7000000}, {"86400s", 86400000000ULL}};
    static const char *const bad[] = {"",     "1",      "ms",   "0s",  "1000us",
                                      "25h",  "86401s", "1.5s", "-1s", "1 s",
                                      "1sec", "1m",     " 1s",  "1s ", "9223372036854775807h",
                                      "1mS2"};
    uint64_t us = 0;

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        ck_assert_msg(seven_parse_time(good[i].text, &us) && us == good[i].us, "%s", good[i].text);
    }
    us = 5;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_msg(!seven_parse_time(bad[i], &us) && us == 5, "%s", bad[i]);
    }
}
END_TEST

START_TEST(strategies)
{
    static const enum seven_strategy all[] = {SEVEN_UNIFORM, SEVEN_ROULETTE, SEVEN_TOURNAMENT};
    enum seven_strategy strategy;

    for (size_t i = 0; i < 3; i++) {
        ck_assert(seven_parse_strategy(seven_strategy_name(all[i]), &strategy));
        ck_assert_int_eq(strategy, all[i]);
    }
    ck_assert(seven_parse_strategy("RouLette", &strategy) && strategy == SEVEN_ROULETTE);
    ck_assert(!seven_parse_strategy("roulett", &strategy));
    ck_assert(!seven_parse_strategy("roulettes", &strategy));
    ck_assert(!seven_parse_strategy("", &strategy));
}
END_TEST

START_TEST(drop_factors)
{
    static const char *const bad[] = {"",          "wait",      "wait=", "wait=x",
                                      "wait=1x",   "wait= 1",   "in 2",  "beta=1",
                                      "alpha=nan", "scale=inf", "=1",    "wait=1 in=2"};
    seven_policy policy;

    seven_policy_defaults(&policy, 10);
    ck_assert(seven_parse_drop_factor("wait=16", &policy) && policy.p_wait == 16);
    ck_assert(seven_parse_drop_factor("in=0.5", &policy) && policy.p_in == 0.5);
    ck_assert(seven_parse_drop_factor("ALPHA=2", &policy) && policy.alpha == 2);
    ck_assert(seven_parse_drop_factor("scale=1e-1", &policy) && policy.scale == 0.1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_msg(!seven_parse_drop_factor(bad[i], &policy), "%s", bad[i]);
    }
    ck_assert(policy.p_wait == 16 && policy.p_in == 0.5 && policy.alpha == 2 &&
              policy.scale == 0.1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parse");
    TCase *tcase = unit_case(suite, "parse");

    tcase_add_test(tcase, numbers);
    tcase_add_test(tcase, amounts);
    tcase_add_test(tcase, times);
    tcase_add_test(tcase, strategies);
    tcase_add_test(tcase, drop_factors);
    return unit_run(suite);
}
