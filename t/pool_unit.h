/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests of a pool share: its clock, its policy, and one whose places are all taken.
 */
#ifndef POOL_UNIT_H
#define POOL_UNIT_H

#include "unit.h"

#define S UINT64_C(1000000)
#define T0 (1000 * S)
#define T_M (100 * 1000) /* microseconds */

static inline seven_policy policy_of(uint32_t places, enum seven_strategy strategy)
{
    seven_policy policy;

    seven_policy_defaults(&policy, places);
    policy.strategy = strategy;
    policy.t_m_us = T_M;
    return policy;
}

/* A pool whose places are all taken, by those who came at T0. */
static inline seven_pool *full_pool(const seven_policy *policy, seven_rng *rng,
                                    seven_ticket *tickets)
{
    seven_pool *pool = pool_make(policy);

    seven_seed(rng, 1);
    for (uint32_t i = 0; i < policy->places; i++) {
        seven_ticket ticket;

        ck_assert_int_eq(seven_admit(pool, rng, T0, &ticket), SEVEN_ADMITTED);
        tickets[ticket.slot] = ticket;
    }
    ck_assert_uint_eq(seven_free(pool), 0);
    return pool;
}

#endif
