/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "internal.h"
#include "pool_unit.h"

/* ---- P1 --------------------------------------------------------------------------------- */

/* In each of many rounds as many newcomers: the one that finds PMod = m is let in k/(k+m) of the
 * time, within five standard deviations. */
static void check_odds(uint32_t k, uint32_t rounds)
{
    enum { NEWCOMERS = 12 };
    seven_policy policy = policy_of(k, SEVEN_UNIFORM);
    seven_ticket tickets[16], ticket;
    uint32_t in[NEWCOMERS] = {0}, wrong = 0;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);

    for (uint32_t round = 1; round <= rounds; round++) {
        uint64_t now = T0 + round * policy.round_us + round % policy.round_us;

        for (uint32_t i = 0; i < NEWCOMERS; i++) {
            wrong += seven_pmod(pool, now) != i;
            in[i] += seven_admit(pool, &rng, now, &ticket) == SEVEN_REPLACED;
        }
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_eq(in[0], rounds);
    for (uint32_t i = 1; i < NEWCOMERS; i++) {
        double p = (double)k / (k + i), off = in[i] - p * rounds;

        ck_assert_double_le(fabs(off), 5 * sqrt(p * (1 - p) * rounds));
    }
    free(pool);
}

START_TEST(p1_is_k_over_k_plus_pmod)
{
    static const uint32_t k[] = {1, 2, 4, 16};

    check_odds(k[_i], load(50000));
}
END_TEST

START_TEST(pmod_does_not_count_who_finds_a_place)
{
    seven_policy policy = policy_of(4, SEVEN_UNIFORM);
    seven_pool *pool = pool_make(&policy);
    seven_ticket ticket;
    seven_rng rng;

    seven_seed(&rng, 1);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(seven_admit(pool, &rng, T0, &ticket), SEVEN_ADMITTED);
        ck_assert_uint_eq(seven_pmod(pool, T0), 0);
    }
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &ticket), SEVEN_REPLACED);
    ck_assert_uint_eq(seven_pmod(pool, T0), 1);
    ck_assert(seven_leave(pool, ticket));
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &ticket), SEVEN_ADMITTED);
    ck_assert_uint_eq(seven_pmod(pool, T0), 1);
    free(pool);
}
END_TEST

START_TEST(pmod_counts_the_refused_and_ends_with_the_round)
{
    seven_policy policy = policy_of(1, SEVEN_UNIFORM);
    seven_ticket tickets[1], ticket;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);
    uint64_t last = T0 + policy.round_us - 1;

    for (uint64_t i = 0; i < 100; i++) {
        ck_assert_uint_eq(seven_pmod(pool, last), i);
        seven_admit(pool, &rng, i % 2 ? last : T0, &ticket);
    }
    ck_assert_uint_eq(seven_pmod(pool, last), 100);
    ck_assert_uint_eq(seven_pmod(pool, last + 1), 0);
    ck_assert_int_eq(seven_admit(pool, &rng, last + 1, &ticket), SEVEN_REPLACED);
    ck_assert_uint_eq(seven_pmod(pool, last + 1), 1);
    free(pool);
}
END_TEST

/* A clock behind the round's is in that round: going back must not open the gate again. */
START_TEST(a_clock_that_goes_back_opens_no_round)
{
    seven_policy policy = policy_of(1, SEVEN_UNIFORM);
    seven_ticket tickets[1], ticket;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);
    uint32_t in = 0;

    for (uint64_t i = 0; i < 1000; i++) {
        in += seven_admit(pool, &rng, T0 - i % 10 * S, &ticket) == SEVEN_REPLACED;
        ck_assert_uint_eq(seven_pmod(pool, T0 - i % 10 * S), i + 1);
    }
    ck_assert_uint_lt(in, 50); /* 1 + 1/2 + ... + 1/1000 is 7.5 */
    ck_assert_int_eq(seven_admit(pool, &rng, T0 + S, &ticket), SEVEN_REPLACED);
    free(pool);
}
END_TEST

START_TEST(pmod_stops_at_its_limit)
{
    uint64_t limit = (UINT64_C(1) << 24) - 1, round;
    seven_policy policy = policy_of(1, SEVEN_UNIFORM);
    seven_ticket tickets[1], ticket;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);

    seven_admit(pool, &rng, T0, &ticket);
    round = atomic_load(&pool->gate) >> 24;
    atomic_store(&pool->gate, round << 24 | (limit - 2));
    for (int i = 0; i < 10; i++) {
        seven_admit(pool, &rng, T0, &ticket);
    }
    ck_assert_uint_eq(seven_pmod(pool, T0), limit);
    ck_assert_uint_eq(atomic_load(&pool->gate) >> 24, round);
    free(pool);
}
END_TEST

/* ---- tickets ---------------------------------------------------------------------------- */

/* Everything a ticket can be used for, when its holder has lost the place. */
static void check_lost(seven_pool *pool, seven_ticket lost)
{
    uint64_t word = atomic_load(&pool->words[lost.slot]);

    ck_assert(!seven_holds(pool, lost));
    ck_assert(!seven_serve(pool, lost, T0 + S));
    ck_assert(!seven_pause(pool, lost, T0 + S));
    ck_assert(!seven_resume(pool, lost, T0 + S));
    ck_assert(!seven_progress(pool, lost, T0 + S, S));
    ck_assert(!seven_leave(pool, lost));
    ck_assert_uint_eq(seven_age(pool, lost, T0 + S), 0);
    ck_assert_uint_eq(atomic_load(&pool->words[lost.slot]), word);
}

START_TEST(a_replaced_holder_has_no_effect)
{
    seven_policy policy = policy_of(5, SEVEN_UNIFORM);
    seven_ticket tickets[5], ticket;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);

    for (uint64_t i = 1; i < 100; i++) {
        ck_assert_int_eq(seven_admit(pool, &rng, T0 + i * S, &ticket), SEVEN_REPLACED);
        ck_assert_uint_eq(ticket.serial, tickets[ticket.slot].serial + 1);
        check_lost(pool, tickets[ticket.slot]);
        ck_assert(seven_holds(pool, ticket));
        tickets[ticket.slot] = ticket;
        if (i % 2) {
            ck_assert(seven_serve(pool, ticket, T0 + i * S));
        }
    }
    free(pool);
}
END_TEST

START_TEST(a_holder_that_left_has_no_effect)
{
    seven_policy policy = policy_of(1, SEVEN_UNIFORM);
    seven_ticket first[1], second;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, first);

    ck_assert(seven_leave(pool, first[0]));
    check_lost(pool, first[0]);
    ck_assert_uint_eq(seven_free(pool), 1);
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &second), SEVEN_ADMITTED);
    ck_assert_uint_eq(second.serial, first[0].serial + 1);
    check_lost(pool, first[0]);
    free(pool);
}
END_TEST

START_TEST(a_former_holder_may_have_its_place_again)
{
    seven_policy policy = policy_of(20, SEVEN_TOURNAMENT);
    seven_pool *pool = pool_make(&policy);
    seven_ticket first, again, other;
    seven_tally tally;
    seven_rng rng;

    seven_seed(&rng, 1);
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &first), SEVEN_ADMITTED);
    again = first;
    ck_assert(!seven_readmit(pool, T0, &again)); /* it is held */
    ck_assert(again.slot == first.slot && again.serial == first.serial);
    ck_assert(seven_leave(pool, first));
    ck_assert(seven_readmit(pool, T0 + S, &again));
    ck_assert_uint_eq(again.slot, first.slot);
    ck_assert(seven_holds(pool, again) && !seven_holds(pool, first));
    ck_assert(!seven_leave(pool, first));
    other = first;
    ck_assert(!seven_readmit(pool, T0 + S, &other)); /* a stale ticket takes nothing from anybody */
    ck_assert_uint_le(2 * S - seven_age(pool, again, T0 + 3 * S), SEVEN_TICK_US);
    seven_count(pool, &tally);
    ck_assert_uint_eq(tally.admitted, 2);
    ck_assert_uint_eq(seven_free(pool), 19);
    free(pool);
}
END_TEST

START_TEST(serials_wrap)
{
    seven_policy policy = policy_of(1, SEVEN_UNIFORM);
    seven_ticket last[1], next;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, last);

    ck_assert(seven_leave(pool, last[0]));
    atomic_store(&pool->words[0], word_make(SERIAL_MASK - 1, SEVEN_FREE, 0));
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &last[0]), SEVEN_ADMITTED);
    ck_assert_uint_eq(last[0].serial, SERIAL_MASK);
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &next), SEVEN_REPLACED);
    ck_assert_uint_eq(next.serial, 0);
    check_lost(pool, last[0]);
    ck_assert(seven_holds(pool, next));
    ck_assert(seven_leave(pool, next));
    ck_assert_uint_eq(seven_free(pool), 1);
    free(pool);
}
END_TEST

START_TEST(a_newcomer_is_admitted_as_the_policy_says)
{
    static const enum seven_state as[] = {SEVEN_WAITING, SEVEN_SERVED};
    seven_policy policy = policy_of(2, SEVEN_UNIFORM);
    seven_ticket tickets[2], ticket;
    seven_rng rng;
    seven_pool *pool;

    policy.admit_as = as[_i];
    pool = full_pool(&policy, &rng, tickets);
    ck_assert_int_eq(seven_holder(pool, 1, &ticket), as[_i]);
    ck_assert_mem_eq(&ticket, &tickets[1], sizeof(ticket));
    ck_assert_int_eq(seven_admit(pool, &rng, T0, &ticket), SEVEN_REPLACED);
    ck_assert_int_eq(seven_holder(pool, ticket.slot, &ticket), as[_i]);
    free(pool);
}
END_TEST

/* ---- states and ages -------------------------------------------------------------------- */

#define ABOUT(us, expected) ck_assert_uint_le((us) + SEVEN_TICK_US - (expected), 2 * SEVEN_TICK_US)

static seven_pool *one_place(seven_rng *rng, seven_ticket *ticket)
{
    seven_policy policy = policy_of(1, SEVEN_UNIFORM);

    policy.credit_us = 2 * S;
    return full_pool(&policy, rng, ticket);
}

START_TEST(states_change_as_drawn)
{
    seven_ticket t, same;
    seven_rng rng;
    seven_pool *pool = one_place(&rng, &t);

    ck_assert(seven_pause(pool, t, T0)); /* not yet served: stays waiting */
    ck_assert(seven_resume(pool, t, T0));
    ck_assert(seven_progress(pool, t, T0, S));
    ck_assert_int_eq(seven_holder(pool, 0, &same), SEVEN_WAITING);
    ck_assert(seven_serve(pool, t, T0 + S));
    ck_assert_int_eq(seven_holder(pool, 0, &same), SEVEN_SERVED);
    ck_assert(seven_serve(pool, t, T0 + 2 * S)); /* already */
    ck_assert(seven_resume(pool, t, T0 + 2 * S));
    ABOUT(seven_age(pool, t, T0 + 3 * S), 2 * S);
    ck_assert(seven_pause(pool, t, T0 + 3 * S));
    ck_assert_int_eq(seven_holder(pool, 0, &same), SEVEN_BUSY);
    ck_assert(seven_pause(pool, t, T0 + 4 * S)); /* already */
    ck_assert(seven_serve(pool, t, T0 + 4 * S));
    ck_assert_int_eq(seven_holder(pool, 0, &same), SEVEN_BUSY);
    ck_assert(seven_leave(pool, t));
    ck_assert_int_eq(seven_holder(pool, 0, &same), SEVEN_FREE);
    free(pool);
}
END_TEST

START_TEST(age_counts_from_service)
{
    seven_ticket t;
    seven_rng rng;
    seven_pool *pool = one_place(&rng, &t);

    ABOUT(seven_age(pool, t, T0 + 5 * S), 5 * S);
    ck_assert(seven_serve(pool, t, T0 + 7 * S));
    ABOUT(seven_age(pool, t, T0 + 8 * S), S);
    ck_assert_uint_eq(seven_age(pool, t, T0), 0); /* a clock behind */
    free(pool);
}
END_TEST

START_TEST(pause_and_resume_keep_the_age)
{
    seven_ticket t;
    seven_rng rng;
    seven_pool *pool = one_place(&rng, &t);
    uint64_t now = T0, age;

    ck_assert(seven_serve(pool, t, now));
    for (uint64_t i = 1; i < 100; i++) {
        now += i * 1000;
        age = seven_age(pool, t, now);
        ck_assert(seven_pause(pool, t, now));
        ck_assert_uint_eq(seven_age(pool, t, now + 1000 * S), age);
        now += i * S;
        ck_assert(seven_resume(pool, t, now));
        ck_assert_uint_eq(seven_age(pool, t, now), age);
    }
    free(pool);
}
END_TEST

/* In credit too: the age is then below what seven_age() shows. */
START_TEST(pause_and_resume_keep_the_credit)
{
    seven_ticket t;
    seven_rng rng;
    seven_pool *pool = one_place(&rng, &t);

    ck_assert(seven_serve(pool, t, T0));
    ck_assert(seven_progress(pool, t, T0, S));
    ck_assert(seven_pause(pool, t, T0));
    ck_assert_uint_eq(seven_age(pool, t, T0), 0);
    ck_assert(seven_resume(pool, t, T0 + 50 * S));
    ABOUT(seven_age(pool, t, T0 + 53 * S), 2 * S);
    free(pool);
}
END_TEST

START_TEST(progress_takes_off_the_age)
{
    seven_ticket t;
    seven_rng rng;
    seven_pool *pool = one_place(&rng, &t);

    ck_assert(seven_serve(pool, t, T0));
    ck_assert(seven_progress(pool, t, T0 + 10 * S, 4 * S));
    ABOUT(seven_age(pool, t, T0 + 10 * S), 6 * S);
    ck_assert(seven_pause(pool, t, T0 + 10 * S));
    ck_assert(seven_progress(pool, t, T0 + 20 * S, S));
    ABOUT(seven_age(pool, t, T0 + 30 * S), 5 * S);
    free(pool);
}
END_TEST

/* However much is paid, and however often, the age is no less than -credit. */
START_TEST(credit_is_bounded)
{
    static const uint64_t paid[] = {3 * S, 100 * S, SEVEN_MAX_TIME_US, UINT64_MAX};
    seven_ticket t;
    seven_rng rng;
    seven_pool *pool = one_place(&rng, &t);
    bool busy = _i % 2;

    ck_assert(seven_serve(pool, t, T0));
    if (busy) {
        ck_assert(seven_pause(pool, t, T0));
    }
    for (int i = 0; i < 10; i++) {
        ck_assert(seven_progress(pool, t, T0, paid[_i / 2]));
    }
    ck_assert(seven_resume(pool, t, T0));
    ck_assert_uint_eq(seven_age(pool, t, T0 + 2 * S), 0);
    ABOUT(seven_age(pool, t, T0 + 3 * S), S);
    free(pool);
}
END_TEST

START_TEST(no_credit_means_none)
{
    seven_policy policy = policy_of(1, SEVEN_UNIFORM);
    seven_ticket t[1];
    seven_rng rng;
    seven_pool *pool;

    policy.credit_us = 0;
    pool = full_pool(&policy, &rng, t);
    ck_assert(seven_serve(pool, t[0], T0));
    ck_assert(seven_progress(pool, t[0], T0 + S, 100 * S));
    ABOUT(seven_age(pool, t[0], T0 + 2 * S), S);
    free(pool);
}
END_TEST

/* ---- relief ----------------------------------------------------------------------------- */

/* Serves each of a full pool's holders so that holder i is ages[i] past T0 + 100 s. */
static void serve_all(seven_pool *pool, const seven_ticket *tickets, const uint64_t *ages,
                      uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ages[i] != UINT64_MAX) {
            ck_assert(seven_serve(pool, tickets[i], T0 + 100 * S - ages[i]));
        }
    }
}

START_TEST(relief_takes_the_longest_overdue_first)
{
    static const uint64_t ages[6] = {S, 3 * S, UINT64_MAX, T_M / 2, 2 * S, 50 * S};
    static const uint32_t order[3] = {1, 4, 0};
    seven_policy policy = policy_of(6, SEVEN_ROULETTE);
    seven_ticket tickets[6], lost;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);

    serve_all(pool, tickets, ages, 6);
    ck_assert(seven_pause(pool, tickets[5], T0 + 100 * S)); /* longest of all, but busy */
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert(seven_relieve(pool, &rng, T0 + 100 * S, SEVEN_OVERDUE_ONLY, &lost));
        ck_assert_uint_eq(lost.slot, order[i]);
        ck_assert_uint_eq(lost.serial, tickets[order[i]].serial);
        check_lost(pool, lost);
        ck_assert_uint_eq(seven_free(pool), i + 1);
    }
    ck_assert(!seven_relieve(pool, &rng, T0 + 100 * S, SEVEN_OVERDUE_ONLY, &lost));
    ck_assert_uint_eq(seven_pmod(pool, T0 + 100 * S), 0);
    free(pool);
}
END_TEST

START_TEST(relief_ties_go_by_lot)
{
    uint32_t seen[20] = {0}, draws = load(20000);
    uint64_t ages[20];
    double odds[20];
    seven_policy policy = policy_of(20, SEVEN_UNIFORM);
    seven_ticket tickets[20], lost;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);
    void *saved = malloc(seven_size(&policy));

    for (int i = 0; i < 20; i++) {
        ages[i] = i % 2 ? 2 * S : S;
        odds[i] = i % 2 ? 0.1 : 0;
    }
    serve_all(pool, tickets, ages, 20);
    memcpy(saved, (void *)pool, seven_size(&policy));
    for (uint32_t i = 0; i < draws; i++) {
        memcpy((void *)pool, saved, seven_size(&policy));
        if (seven_relieve(pool, &rng, T0 + 100 * S, SEVEN_OVERDUE_ONLY, &lost)) {
            seen[lost.slot]++;
        }
    }
    ck_assert_double_le(chi_square(odds, seen, 20, draws), 1);
    free(saved);
    free(pool);
}
END_TEST

/* Where none is overdue, by law means P1, with PMod counted, and P2. */
START_TEST(relief_by_law_is_p1_and_p2)
{
    enum { K = 3, ASKED = 8 };
    uint32_t rounds = load(30000), freed[ASKED] = {0}, seen[K] = {0};
    double odds[K] = {8.0 / 12, 2.0 / 12, 2.0 / 12};
    seven_policy policy = policy_of(K, SEVEN_ROULETTE);
    seven_ticket tickets[K], lost;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);
    void *saved = malloc(seven_size(&policy));

    ck_assert(seven_serve(pool, tickets[1], T0 + 100 * S));
    ck_assert(seven_serve(pool, tickets[2], T0 + 100 * S));
    memcpy(saved, (void *)pool, seven_size(&policy));
    for (uint32_t round = 0; round < rounds; round++) {
        memcpy((void *)pool, saved, seven_size(&policy));
        for (uint32_t i = 0; i < ASKED; i++) {
            uint64_t gate;

            if (seven_relieve(pool, &rng, T0 + 100 * S, SEVEN_BY_LAW, &lost)) {
                freed[i]++;
                seen[lost.slot] += i == 0;
            }
            gate = atomic_load(&pool->gate);
            memcpy((void *)pool, saved, seven_size(&policy)); /* all but PMod as it was */
            atomic_store(&pool->gate, gate);
        }
    }
    ck_assert_uint_eq(freed[0], rounds);
    ck_assert_double_le(chi_square(odds, seen, K, rounds), 1);
    for (uint32_t i = 1; i < ASKED; i++) {
        double p = (double)K / (K + i);
        ck_assert_double_le(fabs(freed[i] - p * rounds), 5 * sqrt(p * (1 - p) * rounds));
    }
    free(saved);
    free(pool);
}
END_TEST

START_TEST(relief_never_takes_from_the_busy)
{
    enum { K = 17 };
    seven_policy policy = policy_of(K, (enum seven_strategy)_i);
    seven_ticket tickets[K], lost;
    seven_rng rng;
    seven_pool *pool = full_pool(&policy, &rng, tickets);

    for (uint32_t i = 0; i < K; i++) {
        ck_assert(seven_serve(pool, tickets[i], T0));
        ck_assert(seven_pause(pool, tickets[i], T0 + 10 * S));
    }
    for (uint64_t i = 0; i < 200; i++) {
        ck_assert(!seven_relieve(pool, &rng, T0 + i * S, SEVEN_OVERDUE_ONLY, &lost));
        ck_assert(!seven_relieve(pool, &rng, T0 + i * S, SEVEN_BY_LAW, &lost));
        ck_assert_uint_eq(seven_pmod(pool, T0 + i * S), 0); /* nobody's turn was spent */
    }
    ck_assert(seven_resume(pool, tickets[5], T0 + 200 * S));
    ck_assert(seven_relieve(pool, &rng, T0 + 200 * S, SEVEN_BY_LAW, &lost));
    ck_assert_uint_eq(lost.slot, 5);
    free(pool);
}
END_TEST

START_TEST(relief_of_an_empty_pool_is_none)
{
    seven_policy policy = policy_of(5, (enum seven_strategy)_i);
    seven_pool *pool = pool_make(&policy);
    seven_ticket lost;
    seven_rng rng;

    seven_seed(&rng, 1);
    for (uint64_t i = 0; i < 50; i++) {
        ck_assert(!seven_relieve(pool, &rng, T0 + i * S, SEVEN_OVERDUE_ONLY, &lost));
        ck_assert(!seven_relieve(pool, &rng, T0 + i * S, SEVEN_BY_LAW, &lost));
        ck_assert_uint_eq(seven_pmod(pool, T0 + i * S), 0); /* nobody's turn was spent */
    }
    ck_assert_uint_eq(seven_free(pool), 5);
    free(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *p1 = unit_case(suite, "p1"), *ticket = unit_case(suite, "ticket");
    TCase *relief = unit_case(suite, "relief");

    tcase_add_loop_test(p1, p1_is_k_over_k_plus_pmod, 0, 4);
    tcase_add_test(p1, pmod_does_not_count_who_finds_a_place);
    tcase_add_test(p1, pmod_counts_the_refused_and_ends_with_the_round);
    tcase_add_test(p1, a_clock_that_goes_back_opens_no_round);
    tcase_add_test(p1, pmod_stops_at_its_limit);
    tcase_add_test(ticket, a_replaced_holder_has_no_effect);
    tcase_add_test(ticket, a_holder_that_left_has_no_effect);
    tcase_add_test(ticket, a_former_holder_may_have_its_place_again);
    tcase_add_test(ticket, serials_wrap);
    tcase_add_loop_test(ticket, a_newcomer_is_admitted_as_the_policy_says, 0, 2);
    tcase_add_test(ticket, states_change_as_drawn);
    tcase_add_test(ticket, age_counts_from_service);
    tcase_add_test(ticket, pause_and_resume_keep_the_age);
    tcase_add_test(ticket, pause_and_resume_keep_the_credit);
    tcase_add_test(ticket, progress_takes_off_the_age);
    tcase_add_loop_test(ticket, credit_is_bounded, 0, 8);
    tcase_add_test(ticket, no_credit_means_none);
    tcase_add_test(relief, relief_takes_the_longest_overdue_first);
    tcase_add_test(relief, relief_ties_go_by_lot);
    tcase_add_test(relief, relief_by_law_is_p1_and_p2);
    tcase_add_loop_test(relief, relief_never_takes_from_the_busy, 0, 3);
    tcase_add_loop_test(relief, relief_of_an_empty_pool_is_none, 0, 3);
    return unit_run(suite);
}
