/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "histogram.h"

#define PER_OCTAVE 8

void seven_note(seven_histogram *histogram, uint64_t us)
{
    int bucket = us < 1 ? 0 : (int)(log2((double)us) * PER_OCTAVE);

    bucket = bucket < SEVEN_BUCKETS ? bucket : SEVEN_BUCKETS - 1;
    atomic_fetch_add_explicit(&histogram->bucket[bucket], 1, memory_order_relaxed);
}

uint64_t seven_quantile(const seven_histogram *histogram, double q)
{
    uint64_t count[SEVEN_BUCKETS], total = 0, seen = 0;

    for (int i = 0; i < SEVEN_BUCKETS; i++) {
        count[i] = atomic_load_explicit(&histogram->bucket[i], memory_order_relaxed);
        total += count[i];
    }
    for (int i = 0; total > 0 && i < SEVEN_BUCKETS; i++) {
        seen += count[i];
        if ((double)seen >= q * (double)total && seen > 0) {
            return (uint64_t)exp2((i + 0.5) / PER_OCTAVE);
        }
    }
    return 0;
}
