/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include "unit.h"

#define NOW UINT64_C(1000000000)

static seven_pool *full_pool(uint32_t places, seven_ticket *tickets)
{
    seven_policy policy;
    seven_pool *pool;
    seven_rng rng;

    seven_policy_defaults(&policy, places);
    policy.admit_as = SEVEN_SERVED;
    policy.t_m_us = 1000000;
    pool = pool_make(&policy);
    seven_seed(&rng, 1);
    for (uint32_t i = 0; i < places; i++) {
        ck_assert_int_eq(seven_admit(pool, &rng, NOW, &tickets[i]), SEVEN_ADMITTED);
        seven_own(pool, tickets[i], i % 3);
    }
    return pool;
}

static bool gone(const void *context, uint32_t owner)
{
    return owner == *(const uint32_t *)context;
}

START_TEST(the_loser_is_known_until_the_newcomer_is)
{
    seven_ticket tickets[4], newcomer;
    seven_pool *pool = full_pool(4, tickets);
    seven_rng rng;
    uint32_t owner;

    seven_seed(&rng, 2);
    ck_assert_int_eq(seven_admit(pool, &rng, NOW + 5000, &newcomer), SEVEN_REPLACED);
    owner = seven_owner(pool, newcomer.slot);
    for (int i = 0; i < 4; i++) {
        ck_assert(tickets[i].slot != newcomer.slot || owner == (uint32_t)i % 3);
    }
    ck_assert_uint_eq(seven_lost_us(pool, newcomer.slot), NOW + 5000);
    seven_own(pool, newcomer, 77);
    ck_assert_uint_eq(seven_owner(pool, newcomer.slot), 77);
    free(pool);
}
END_TEST

START_TEST(a_late_record_does_not_hide_a_later_holder)
{
    seven_ticket ticket, late;
    seven_pool *pool = full_pool(1, &late);
    seven_rng rng;

    seven_seed(&rng, 3);
    ck_assert_int_eq(seven_admit(pool, &rng, NOW, &ticket), SEVEN_REPLACED);
    seven_own(pool, ticket, 8);
    seven_own(pool, late, 9);
    ck_assert_uint_eq(seven_owner(pool, 0), 8);
    free(pool);
}
END_TEST

START_TEST(records_follow_serials_that_wrap)
{
    seven_ticket ticket;
    seven_pool *pool = full_pool(1, &ticket);
    seven_rng rng;
    uint32_t wrapped = 0;

    seven_seed(&rng, 4);
    ticket.serial = SERIAL_MASK - 3; /* as if so many had held the place before */
    atomic_store(&pool->words[0], word_make(ticket.serial, SEVEN_SERVED, ticks(NOW)));
    atomic_store(&pool->words[owner_index(pool, 0)], (uint64_t)ticket.serial << 32);
    for (uint32_t i = 1; i < 10; i++) {
        uint32_t before = ticket.serial;

        ck_assert(seven_leave(pool, ticket));
        ck_assert_int_eq(seven_admit(pool, &rng, NOW, &ticket), SEVEN_ADMITTED);
        wrapped += ticket.serial < before;
        seven_own(pool, ticket, i);
        ck_assert_uint_eq(seven_owner(pool, 0), i);
    }
    ck_assert_uint_eq(wrapped, 1);
    free(pool);
}
END_TEST

START_TEST(places_of_the_gone_come_back)
{
    seven_ticket tickets[9];
    seven_pool *pool = full_pool(9, tickets);
    uint32_t who = 1;

    ck_assert_uint_eq(seven_reclaim(pool, NOW, 1000000, gone, &who), 3);
    ck_assert_uint_eq(seven_free(pool), 3);
    for (uint32_t i = 0; i < 9; i++) {
        ck_assert(seven_holds(pool, tickets[i]) == (i % 3 != 1));
    }
    ck_assert_uint_eq(seven_reclaim(pool, NOW, 1000000, gone, &who), 0);
    free(pool);
}
END_TEST

START_TEST(orphans_come_back_after_a_while)
{
    seven_ticket ticket, orphan;
    seven_pool *pool = full_pool(1, &ticket);
    seven_rng rng;
    uint32_t who = 99;

    seven_seed(&rng, 5);
    ck_assert_int_eq(seven_admit(pool, &rng, NOW, &orphan), SEVEN_REPLACED); /* and dies */
    ck_assert_uint_eq(seven_reclaim(pool, NOW + 900000, 1000000, gone, &who), 0);
    ck_assert_uint_eq(seven_reclaim(pool, NOW + 1100000, 1000000, gone, &who), 1);
    ck_assert_uint_eq(seven_free(pool), 1);
    free(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("owner");
    TCase *tcase = unit_case(suite, "owner");

    tcase_add_test(tcase, the_loser_is_known_until_the_newcomer_is);
    tcase_add_test(tcase, a_late_record_does_not_hide_a_later_holder);
    tcase_add_test(tcase, records_follow_serials_that_wrap);
    tcase_add_test(tcase, places_of_the_gone_come_back);
    tcase_add_test(tcase, orphans_come_back_after_a_while);
    return unit_run(suite);
}
