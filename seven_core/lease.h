/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One among several processes leads, by a lease that it renews. Zero is led by number 0, long ago.
 * A leader that was stopped past its lease may for a moment act beside its successor: what a
 * leader does must bear that.
 */
#ifndef SEVEN_LEASE_H
#define SEVEN_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t seven_lease; /* leader (16 bits) | last renewed, microseconds (48 bits) */

/** Renews the lease of who, or takes one not renewed for length_us. True if who leads now. */
bool seven_lead(seven_lease *lease, uint32_t who, uint64_t now_us, uint64_t length_us);

/** Who leads, or led last. */
uint32_t seven_leader(const seven_lease *lease);

#endif
