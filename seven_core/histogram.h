/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A histogram of times that any thread of any process may add to, in memory shared as a pool's is.
 * Zero bytes are an empty one. Eight buckets an octave: a quantile is right to within 9 %.
 */
#ifndef SEVEN_HISTOGRAM_H
#define SEVEN_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define SEVEN_BUCKETS 320 /* up to 2^40 microseconds */

typedef struct seven_histogram {
    _Atomic uint64_t bucket[SEVEN_BUCKETS];
} seven_histogram;

/** Adds a time in microseconds. */
void seven_note(seven_histogram *histogram, uint64_t us);

/** The time that a share q (0 to 1) did not exceed, in microseconds; 0 if there is none. */
uint64_t seven_quantile(const seven_histogram *histogram, double q);

#endif
