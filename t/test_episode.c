/* SPDX-License-Identifier: Apache-2.0 */
#include "episode.h"
#include "unit.h"

#define S UINT64_C(1000000)

static enum seven_news follow(seven_episode *episode, uint64_t replaced, uint64_t now)
{
    seven_tally tally = {.admitted = 10 * replaced, .replaced = replaced};

    return seven_follow(episode, &tally, now, S, 5 * S);
}

START_TEST(nothing_happens_nothing_is_said)
{
    seven_episode episode = {0};

    for (uint64_t t = 1; t < 100; t++) {
        ck_assert_int_eq(follow(&episode, 0, t * S), SEVEN_NO_NEWS);
    }
}
END_TEST

START_TEST(one_warning_and_one_end)
{
    seven_episode episode = {0};
    int full = 0, over = 0;

    for (uint64_t t = 0; t < 600; t++) { /* a decision every 100 ms for 30 s, then calm */
        switch (follow(&episode, t < 300 ? t : 300, 100 * S + t * S / 10)) {
        case SEVEN_FULL:
            full++;
            ck_assert_uint_eq(t, 11); /* the first decision is seen at 1 */
            break;
        case SEVEN_OVER:
            over++;
            ck_assert_uint_eq(seven_episode_tally(&episode).replaced, 300);
            ck_assert_uint_eq(seven_episode_tally(&episode).admitted, 3000);
            break;
        case SEVEN_NO_NEWS:
            break;
        }
    }
    ck_assert_int_eq(full, 1);
    ck_assert_int_eq(over, 1);
}
END_TEST

START_TEST(the_next_one_counts_from_its_beginning)
{
    seven_episode episode = {0};

    follow(&episode, 7, 10 * S);
    ck_assert_int_eq(follow(&episode, 8, 11 * S), SEVEN_FULL);
    ck_assert_int_eq(follow(&episode, 8, 16 * S), SEVEN_OVER);
    follow(&episode, 9, 30 * S);
    ck_assert_int_eq(follow(&episode, 11, 31 * S), SEVEN_FULL);
    ck_assert_uint_eq(seven_episode_tally(&episode).replaced, 3);
}
END_TEST

START_TEST(a_single_decision_is_no_news)
{
    seven_episode episode = {0};

    ck_assert_int_eq(follow(&episode, 1, 10 * S), SEVEN_NO_NEWS);
    for (uint64_t t = 20; t < 30; t++) {
        ck_assert_int_eq(follow(&episode, 1, t * S), SEVEN_NO_NEWS);
    }
}
END_TEST

START_TEST(a_clock_behind_ends_nothing)
{
    seven_episode episode = {0};

    follow(&episode, 1, 10 * S);
    ck_assert_int_eq(follow(&episode, 2, 11 * S), SEVEN_FULL);
    ck_assert_int_eq(follow(&episode, 2, 11 * S - 1), SEVEN_NO_NEWS);
    ck_assert_int_eq(follow(&episode, 2, 9 * S), SEVEN_NO_NEWS);
    ck_assert_int_eq(follow(&episode, 2, 16 * S), SEVEN_OVER);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("episode");
    TCase *tcase = unit_case(suite, "episode");

    tcase_add_test(tcase, nothing_happens_nothing_is_said);
    tcase_add_test(tcase, one_warning_and_one_end);
    tcase_add_test(tcase, the_next_one_counts_from_its_beginning);
    tcase_add_test(tcase, a_single_decision_is_no_news);
    tcase_add_test(tcase, a_clock_behind_ends_nothing);
    return unit_run(suite);
}
