/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#define TIME_BITS 48
#define TIME_MASK ((UINT64_C(1) << TIME_BITS) - 1)

bool seven_lead(seven_lease *lease, uint32_t who, uint64_t now_us, uint64_t length_us)
{
    uint64_t old = atomic_load(lease);

    if (old >> TIME_BITS != who && (old & TIME_MASK) + length_us > now_us) {
        return false;
    }
    /* A lost race means that another renewed or took it. */
    return atomic_compare_exchange_strong(lease, &old,
                                          (uint64_t)who << TIME_BITS | (now_us & TIME_MASK));
}

uint32_t seven_leader(const seven_lease *lease)
{
    return (uint32_t)(atomic_load(lease) >> TIME_BITS);
}
