/* SPDX-License-Identifier: Apache-2.0 */
/* xoshiro256** 1.0 seeded by SplitMix64, as its authors advise (Blackman and Vigna, 2018). */
#include "seven.h"

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static uint64_t next(seven_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

void seven_seed(seven_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        rng->s[i] = splitmix64(&seed);
    }
}

/* The upper half of x * n, for x of 32 bits: Lemire's method (2019), which seldom divides. */
static uint32_t below32(seven_rng *rng, uint32_t n)
{
    uint64_t product = (next(rng) >> 32) * n;

    if ((uint32_t)product < n) {
        uint32_t surplus = (0 - n) % n;

        while ((uint32_t)product < surplus) {
            product = (next(rng) >> 32) * n;
        }
    }
    return (uint32_t)(product >> 32);
}

uint64_t seven_below(seven_rng *rng, uint64_t n)
{
    if (n <= UINT32_MAX) {
        return below32(rng, (uint32_t)n);
    }

    /* Numbers under 2^64 mod n are one too many for an even share: draw again. */
    uint64_t surplus = (0 - n) % n, x;

    do {
        x = next(rng);
    } while (x < surplus);
    return x % n;
}

double seven_unit(seven_rng *rng)
{
    return (double)(next(rng) >> 11) * 0x1p-53;
}
