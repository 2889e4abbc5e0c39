/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"
#include "unit.h"

START_TEST(whoever_asks_first_leads)
{
    seven_lease lease = 0;

    ck_assert(seven_lead(&lease, 3, 1000, 500));
    ck_assert_uint_eq(seven_leader(&lease), 3);
    ck_assert(!seven_lead(&lease, 4, 1400, 500));
    ck_assert_uint_eq(seven_leader(&lease), 3);
}
END_TEST

START_TEST(a_lease_that_is_renewed_is_kept)
{
    seven_lease lease = 0;

    for (uint64_t t = 1000; t < 10000; t += 400) {
        ck_assert(seven_lead(&lease, 3, t, 500));
        ck_assert(!seven_lead(&lease, 4, t + 300, 500));
    }
}
END_TEST

START_TEST(a_silent_leader_is_replaced)
{
    seven_lease lease = 0;

    ck_assert(seven_lead(&lease, 3, 1000, 500));
    ck_assert(seven_lead(&lease, 4, 1500, 500));
    ck_assert_uint_eq(seven_leader(&lease), 4);
    ck_assert(!seven_lead(&lease, 3, 1600, 500));
}
END_TEST

START_TEST(a_clock_behind_takes_nothing)
{
    seven_lease lease = 0;

    ck_assert(seven_lead(&lease, 3, 1000, 500));
    ck_assert(!seven_lead(&lease, 4, 900, 500));
    ck_assert(seven_lead(&lease, 65535, 2000, 500));
    ck_assert_uint_eq(seven_leader(&lease), 65535);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease");
    TCase *tcase = unit_case(suite, "lease");

    tcase_add_test(tcase, whoever_asks_first_leads);
    tcase_add_test(tcase, a_lease_that_is_renewed_is_kept);
    tcase_add_test(tcase, a_silent_leader_is_replaced);
    tcase_add_test(tcase, a_clock_behind_takes_nothing);
    return unit_run(suite);
}
