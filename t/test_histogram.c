/* SPDX-License-Identifier: Apache-2.0 */
#include "histogram.h"
#include "unit.h"

START_TEST(empty_is_zero)
{
    seven_histogram h = {0};

    ck_assert_uint_eq(seven_quantile(&h, 0.5), 0);
}
END_TEST

START_TEST(quantiles_are_right_to_within_nine_percent)
{
    static const double shares[] = {0.01, 0.25, 0.5, 0.75, 0.99, 1};
    seven_histogram h = {0};

    for (uint64_t us = 1; us <= 100000; us++) {
        seven_note(&h, us);
    }
    for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
        double exact = shares[i] * 100000, got = (double)seven_quantile(&h, shares[i]);

        ck_assert_msg(fabs(got - exact) <= 0.09 * exact, "%g: %g for %g", shares[i], got, exact);
    }
}
END_TEST

START_TEST(extremes_are_kept)
{
    seven_histogram h = {0};

    seven_note(&h, 0);
    ck_assert_uint_le(seven_quantile(&h, 1), 1);
    seven_note(&h, UINT64_MAX);
    ck_assert_uint_gt(seven_quantile(&h, 1), UINT64_C(1) << 39);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("histogram");
    TCase *tcase = unit_case(suite, "histogram");

    tcase_add_test(tcase, empty_is_zero);
    tcase_add_test(tcase, quantiles_are_right_to_within_nine_percent);
    tcase_add_test(tcase, extremes_are_kept);
    return unit_run(suite);
}
