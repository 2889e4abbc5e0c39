/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "unit.h"

#define S UINT64_C(1000000)

static seven_policy fixed(double p_wait, double p_in, uint64_t t_m_us)
{
    seven_policy policy;

    seven_policy_defaults(&policy, 10);
    policy.p_wait = p_wait;
    policy.p_in = p_in;
    policy.t_m_us = t_m_us;
    return policy;
}

/* ---- the drop factor -------------------------------------------------------------------- */

/* The 2018 paper's table, t_M = 5, two decimals, truncated. */
START_TEST(drop_factor_is_the_papers)
{
    static const struct {
        uint64_t age;
        int hundredths;
    } table[] = {{0, 200}, {1, 200}, {5, 200}, {6, 1237}, {8, 1731}, {10, 2784}};
    seven_policy policy = fixed(8, 2, 5 * S);

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        double d = seven_drop_factor(&policy, 5 * S, SEVEN_SERVED, table[i].age * S);

        ck_assert_int_eq((int)(d * 100), table[i].hundredths);
    }
}
END_TEST

START_TEST(drop_factor_while_waiting_is_p_wait)
{
    seven_policy policy = fixed(8, 2, 5 * S);

    ck_assert_double_eq(seven_drop_factor(&policy, 5 * S, SEVEN_WAITING, 0), 8);
    ck_assert_double_eq(seven_drop_factor(&policy, 5 * S, SEVEN_WAITING, 1000 * S), 8);
}
END_TEST

START_TEST(drop_factor_of_busy_and_free_is_0)
{
    seven_policy policy = fixed(8, 2, 5 * S);

    ck_assert_double_eq(seven_drop_factor(&policy, 5 * S, SEVEN_BUSY, 1000 * S), 0);
    ck_assert_double_eq(seven_drop_factor(&policy, 5 * S, SEVEN_FREE, 1000 * S), 0);
}
END_TEST

START_TEST(drop_factor_jumps_just_past_t_m)
{
    seven_policy policy = fixed(8, 2, 5 * S);
    double past = seven_drop_factor(&policy, 5 * S, SEVEN_SERVED, 5 * S + 1);

    ck_assert_double_eq(seven_drop_factor(&policy, 5 * S, SEVEN_SERVED, 5 * S), 2);
    ck_assert_double_eq_tol(past, 8 + 0.453 * exp(1.89), 1e-5);
}
END_TEST

START_TEST(drop_factor_grows_with_age)
{
    seven_policy policy = fixed(8, 2, 5 * S);

    for (uint64_t age = 5 * S + 1; age < 100 * S; age += S / 10) {
        ck_assert_double_gt(seven_drop_factor(&policy, 5 * S, SEVEN_SERVED, age + S / 10),
                            seven_drop_factor(&policy, 5 * S, SEVEN_SERVED, age));
    }
}
END_TEST

START_TEST(drop_factor_takes_any_t_m_and_parameters)
{
    seven_policy policy = fixed(3, 1, 2 * S);

    policy.alpha = 0.5;
    policy.scale = 2;
    ck_assert_double_eq_tol(seven_drop_factor(&policy, 2 * S, SEVEN_SERVED, 6 * S),
                            3 + 2 * exp(0.5 * 3), 1e-12);
    ck_assert_double_eq_tol(seven_drop_factor(&policy, 4 * S, SEVEN_SERVED, 6 * S),
                            3 + 2 * exp(0.5 * 1.5), 1e-12);
}
END_TEST

/* ---- defaults --------------------------------------------------------------------------- */

START_TEST(defaults_are_the_papers_and_without_error)
{
    static const uint32_t places[] = {1, 2, 180, SEVEN_MAX_PLACES};
    seven_policy policy;

    for (size_t i = 0; i < 4; i++) {
        seven_policy_defaults(&policy, places[i]);
        ck_assert_ptr_null(seven_policy_error(&policy));
    }
    ck_assert_uint_eq(policy.places, SEVEN_MAX_PLACES);
    ck_assert_uint_eq(policy.round_us, 100000);
    ck_assert_uint_eq(policy.strategy, SEVEN_TOURNAMENT);
    ck_assert_double_eq(policy.p_wait, 8);
    ck_assert_double_eq(policy.p_in, 2);
    ck_assert_double_eq(policy.alpha, 1.89);
    ck_assert_double_eq(policy.scale, 0.453);
    ck_assert_uint_eq(policy.t_m_us, 0);
}
END_TEST

/* ---- what is wrong ---------------------------------------------------------------------- */

/* The one field of a policy that a case changes, by its place in the policy. */
enum type { U32, U64, REAL, STRATEGY, STATE };

typedef struct field_case {
    size_t offset;
    enum type type;
    double wrong, right; /* neighbours across the boundary */
    const char *sentence;
} field_case;

#define AT(field) offsetof(seven_policy, field)
#define K "the number of places must be from 1 to 1048576"
#define ROUND "the round must be from 1 ms to 1 day"
#define T_M "t_M must be from 1 ms to 1 day"
#define WAIT "the drop factor while waiting must be over 0 and at most 1000000"
#define IN "the drop factor in service must be over 0 and at most 1000000"
#define SCALE "the drop factor's scale must be over 0 and at most 1000000"
#define ALPHA "the drop factor's alpha must be over 0 and at most 20"
#define QUANTILE "the quantile that t_M is learned from must be between 0 and 1"
#define FACTOR "the factor that t_M is learned with must be from 1 to 1000"
#define BOUNDS "t_M must be learned within bounds of 1 ms to 1 day, the lower first"
#define EXCEEDS                                                                                    \
    "the drop factor in service must not exceed the one just past t_M, wait + scale * e^alpha"
#define DAY 86400e6

/* The policy has 10 places, t_M fixed at 1 s where it is not learned, p_wait 8. */
static const field_case fixed_cases[] = {
    {AT(places), U32, 0, 10, K},
    {AT(places), U32, 1048577, 1048576, K},
    {AT(places), U32, UINT32_MAX, 1048576, K},
    {AT(round_us), U64, 0, 1000, ROUND},
    {AT(round_us), U64, 999, 1000, ROUND},
    {AT(round_us), U64, DAY + 1, DAY, ROUND},
    {AT(strategy), STRATEGY, 3, 2, "the strategy must be uniform, roulette or tournament"},
    {AT(strategy), STRATEGY, 99, 0, "the strategy must be uniform, roulette or tournament"},
    {AT(tournament), U32, 11, 10, "a tournament cannot have more entrants than there are places"},
    {AT(t_m_us), U64, 999, 1000, T_M},
    {AT(t_m_us), U64, 1, 0, T_M},
    {AT(t_m_us), U64, DAY + 1, DAY, T_M},
    {AT(credit_us), U64, DAY + 1, DAY, "the credit for progress must be at most 1 day"},
    {AT(admit_as), STATE, 0, 1, "a newcomer must be admitted as waiting or as served"},
    {AT(admit_as), STATE, 3, 2, "a newcomer must be admitted as waiting or as served"},
    {AT(p_wait), REAL, 0, 0.01, WAIT},
    {AT(p_wait), REAL, -1, 0.01, WAIT},
    {AT(p_wait), REAL, 1000000.1, 1000000, WAIT},
    {AT(p_wait), REAL, NAN, 8, WAIT},
    {AT(p_wait), REAL, INFINITY, 8, WAIT},
    {AT(p_in), REAL, 0, 1e-9, IN},
    {AT(p_in), REAL, -1, 1e-9, IN},
    {AT(p_in), REAL, 1000000.1, 2, IN},
    {AT(p_in), REAL, NAN, 2, IN},
    {AT(alpha), REAL, -0.001, 0.001, ALPHA},
    {AT(alpha), REAL, 0, 0.001, ALPHA},
    {AT(alpha), REAL, 20.001, 20, ALPHA},
    {AT(alpha), REAL, NAN, 1, ALPHA},
    {AT(scale), REAL, 0, 1e-9, SCALE},
    {AT(scale), REAL, 1000000.1, 1000000, SCALE},
    {AT(scale), REAL, NAN, 1, SCALE},
    {AT(p_in), REAL, 11, 10.99, EXCEEDS}, /* 8 + 0.453 * e^1.89 = 10.9988 */
};

static const field_case learned_cases[] = {
    {AT(learning.quantile), REAL, 0, 0.001, QUANTILE},
    {AT(learning.quantile), REAL, 1, 0.999, QUANTILE},
    {AT(learning.quantile), REAL, NAN, 0.5, QUANTILE},
    {AT(learning.factor), REAL, 0.999, 1, FACTOR},
    {AT(learning.factor), REAL, 1000.1, 1000, FACTOR},
    {AT(learning.factor), REAL, NAN, 4, FACTOR},
    {AT(learning.min_us), U64, 999, 1000, BOUNDS},
    {AT(learning.min_us), U64, 5000001, 5000000, BOUNDS},
    {AT(learning.max_us), U64, DAY + 1, DAY, BOUNDS},
    {AT(learning.max_us), U64, 9999, 10000, BOUNDS},
};

static void put(seven_policy *policy, const field_case *c, double value)
{
    void *at = (char *)policy + c->offset;

    switch (c->type) {
    case U32:
        *(uint32_t *)at = (uint32_t)value;
        break;
    case U64:
        *(uint64_t *)at = (uint64_t)value;
        break;
    case REAL:
        *(double *)at = value;
        break;
    case STRATEGY:
        *(enum seven_strategy *)at = (enum seven_strategy)(int)value;
        break;
    case STATE:
        *(enum seven_state *)at = (enum seven_state)(int)value;
        break;
    }
}

static void check_boundary(seven_policy policy, const field_case *c)
{
    put(&policy, c, c->wrong);
    ck_assert_pstr_eq(seven_policy_error(&policy), c->sentence);
    put(&policy, c, c->right);
    ck_assert_pstr_eq(seven_policy_error(&policy), NULL);
}

START_TEST(a_wrong_field_is_a_sentence)
{
    check_boundary(fixed(8, 2, S), &fixed_cases[_i]);
}
END_TEST

START_TEST(a_wrong_field_of_learning_is_a_sentence)
{
    seven_policy policy = fixed(8, 2, S);

    put(&policy, &learned_cases[_i], learned_cases[_i].wrong);
    ck_assert_ptr_null(seven_policy_error(&policy)); /* t_M is fixed: learning is not used */
    check_boundary(fixed(8, 2, 0), &learned_cases[_i]);
}
END_TEST

START_TEST(sentences_read_like_sentences)
{
    seven_policy policy;
    const char *sentence;

    for (size_t i = 0; i < sizeof(fixed_cases) / sizeof(fixed_cases[0]); i++) {
        policy = fixed(8, 2, S);
        put(&policy, &fixed_cases[i], fixed_cases[i].wrong);
        sentence = seven_policy_error(&policy);
        ck_assert_ptr_nonnull(strchr(sentence, ' '));
        ck_assert_int_ne(sentence[strlen(sentence) - 1], '.');
    }
}
END_TEST

START_TEST(the_first_thing_wrong_is_told)
{
    seven_policy policy = fixed(0, 0, 1);

    ck_assert_pstr_eq(seven_policy_error(&policy), T_M);
    policy.places = 0;
    ck_assert_pstr_eq(seven_policy_error(&policy), K);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tcase = unit_case(suite, "policy");

    tcase_add_test(tcase, drop_factor_is_the_papers);
    tcase_add_test(tcase, drop_factor_while_waiting_is_p_wait);
    tcase_add_test(tcase, drop_factor_of_busy_and_free_is_0);
    tcase_add_test(tcase, drop_factor_jumps_just_past_t_m);
    tcase_add_test(tcase, drop_factor_grows_with_age);
    tcase_add_test(tcase, drop_factor_takes_any_t_m_and_parameters);
    tcase_add_test(tcase, defaults_are_the_papers_and_without_error);
    tcase_add_loop_test(tcase, a_wrong_field_is_a_sentence, 0,
                        sizeof(fixed_cases) / sizeof(fixed_cases[0]));
    tcase_add_loop_test(tcase, a_wrong_field_of_learning_is_a_sentence, 0,
                        sizeof(learned_cases) / sizeof(learned_cases[0]));
    tcase_add_test(tcase, sentences_read_like_sentences);
    tcase_add_test(tcase, the_first_thing_wrong_is_told);
    return unit_run(suite);
}
