/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "unit.h"

/* First outputs of xoshiro256** from its authors' code, state 1, 2, 3, 4. Of each, a double shows
 * the upper 53 bits. */
START_TEST(outputs_are_the_authors)
{
    static const uint64_t first[] = {11520,
                                     0,
                                     1509978240,
                                     UINT64_C(1215971899390074240),
                                     UINT64_C(1216172134540287360),
                                     UINT64_C(607988272756665600),
                                     UINT64_C(16172922978634559625),
                                     UINT64_C(8476171486693032832)};
    seven_rng rng = {{1, 2, 3, 4}};

    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        ck_assert_double_eq(seven_unit(&rng), (double)(first[i] >> 11) * 0x1p-53);
    }
}
END_TEST

/* SplitMix64's first outputs from 1234567, from its author's code. */
START_TEST(seeding_is_splitmix64)
{
    static const uint64_t s[4] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                  UINT64_C(9817491932198370423), UINT64_C(4593380528125082431)};
    seven_rng rng;

    seven_seed(&rng, 1234567);
    ck_assert_mem_eq(rng.s, s, sizeof(s));
}
END_TEST

START_TEST(equal_seeds_replay)
{
    seven_rng a, b, c;

    seven_seed(&a, 7);
    seven_seed(&b, 7);
    seven_seed(&c, 8);
    for (uint32_t i = 1; i < 1000; i++) {
        ck_assert_uint_eq(seven_below(&a, i), seven_below(&b, i));
    }
    ck_assert_mem_eq(&a, &b, sizeof(a));
    ck_assert_mem_ne(&a, &c, sizeof(a));
}
END_TEST

START_TEST(zero_is_a_seed)
{
    static const seven_rng none;
    seven_rng rng;

    seven_seed(&rng, 0);
    ck_assert_mem_ne(&rng, &none, sizeof(rng));
    ck_assert_uint_ne(seven_below(&rng, UINT64_MAX), seven_below(&rng, UINT64_MAX));
}
END_TEST

/* Where the range is cut into equal parts, each is hit alike. */
static void check_even(uint64_t n, uint32_t bins)
{
    uint32_t draws = load(400000), *seen = calloc(bins, sizeof(*seen)), beyond = 0;
    double *odds = calloc(bins, sizeof(*odds));
    seven_rng rng;

    seven_seed(&rng, n);
    for (uint32_t i = 0; i < bins; i++) {
        uint64_t from = i * (n / bins), to = i + 1 == bins ? n : from + n / bins;
        odds[i] = (double)(to - from) / (double)n;
    }
    for (uint32_t i = 0; i < draws; i++) {
        uint64_t x = seven_below(&rng, n), bin = x / (n / bins);

        beyond += x >= n;
        seen[bin < bins ? bin : bins - 1]++;
    }
    ck_assert_uint_eq(beyond, 0);
    ck_assert_double_le(chi_square(odds, seen, bins, draws), 1);
    free(seen);
    free(odds);
}

START_TEST(below_is_even)
{
    static const uint64_t n[] = {2,
                                 3,
                                 7,
                                 16,
                                 1000,
                                 65537,
                                 UINT64_C(0x80000001),
                                 UINT64_C(0xc0000000),
                                 UINT32_MAX,
                                 UINT64_C(1) << 32,
                                 (UINT64_C(1) << 32) + 1,
                                 UINT64_C(1) << 63,
                                 UINT64_C(3) << 62, /* a plain remainder favours the lower third */
                                 UINT64_MAX};

    check_even(n[_i], n[_i] < 64 ? (uint32_t)n[_i] : 64);
}
END_TEST

/* Three in four of the 32-bit numbers: without rejection every third would come twice as often. */
START_TEST(neighbours_are_even)
{
    uint32_t draws = load(400000), seen[3] = {0};
    double odds[3] = {1.0 / 3, 1.0 / 3, 1.0 / 3};
    seven_rng rng;

    seven_seed(&rng, 6);
    for (uint32_t i = 0; i < draws; i++) {
        seen[seven_below(&rng, UINT64_C(0xc0000000)) % 3]++;
    }
    ck_assert_double_le(chi_square(odds, seen, 3, draws), 1);
}
END_TEST

START_TEST(below_one_is_zero)
{
    seven_rng rng;

    seven_seed(&rng, 1);
    for (int i = 0; i < 1000; i++) {
        ck_assert_uint_eq(seven_below(&rng, 1), 0);
    }
}
END_TEST

START_TEST(unit_is_even)
{
    uint32_t draws = load(400000), seen[64] = {0}, beyond = 0;
    double odds[64], low = 1, high = 0;
    seven_rng rng;

    seven_seed(&rng, 5);
    for (int i = 0; i < 64; i++) {
        odds[i] = 1.0 / 64;
    }
    for (uint32_t i = 0; i < draws; i++) {
        double x = seven_unit(&rng);

        beyond += !(x >= 0 && x < 1);
        low = x < low ? x : low;
        high = x > high ? x : high;
        seen[(int)(x * 64)]++;
    }
    ck_assert_uint_eq(beyond, 0);
    ck_assert_double_le(chi_square(odds, seen, 64, draws), 1);
    ck_assert(low < 0.001 && high > 0.999);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rng");
    TCase *tcase = unit_case(suite, "rng");

    tcase_add_test(tcase, outputs_are_the_authors);
    tcase_add_test(tcase, seeding_is_splitmix64);
    tcase_add_test(tcase, equal_seeds_replay);
    tcase_add_test(tcase, zero_is_a_seed);
    tcase_add_loop_test(tcase, below_is_even, 0, 14);
    tcase_add_test(tcase, neighbours_are_even);
    tcase_add_test(tcase, below_one_is_zero);
    tcase_add_test(tcase, unit_is_even);
    return unit_run(suite);
}
