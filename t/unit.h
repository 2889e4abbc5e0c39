/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests share: pools, how much to repeat, and chi-square. */
#ifndef UNIT_H
#define UNIT_H

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "seven.h"

/* How much of the full number of repetitions to do, in percent: a sanitizer makes each dearer. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define SANITIZED_THREADS 1
#endif
#if defined(SANITIZED_THREADS) || defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#ifndef UNIT_LOAD
#ifdef SANITIZED
#define UNIT_LOAD 10
#else
#define UNIT_LOAD 100
#endif
#endif

static inline uint32_t load(uint32_t full)
{
    return full * UNIT_LOAD / 100;
}

/* A pool in memory of its own; free() it. */
static inline seven_pool *pool_make(const seven_policy *policy)
{
    void *block;

    ck_assert_ptr_null(seven_policy_error(policy));
    block = aligned_alloc(64, seven_size(policy));
    ck_assert_ptr_nonnull(block);
    return seven_init(block, policy);
}

/* What chi-square exceeds once in a million times (Wilson and Hilferty, 1931). */
static inline double chi_limit(uint32_t freedom)
{
    double v = 2 / (9 * (double)freedom);

    return freedom * pow(1 - v + 4.753 * sqrt(v), 3);
}

/* Chi-square of what was seen against its odds, over that limit: at most 1 if they agree. Bins of
 * which fewer than ten are expected count as one. */
static inline double chi_square(const double *odds, const uint32_t *seen, uint32_t bins,
                                uint32_t draws)
{
    double sum = 0, few_due = 0, few_seen = 0;
    uint32_t used = 0;

    for (uint32_t i = 0; i < bins; i++) {
        double due = odds[i] * draws;

        if (odds[i] <= 0 && seen[i] > 0) {
            return INFINITY;
        }
        if (due < 10) {
            few_due += due;
            few_seen += seen[i];
            continue;
        }
        sum += (seen[i] - due) * (seen[i] - due) / due;
        used++;
    }
    if (few_due >= 10) {
        sum += (few_seen - few_due) * (few_seen - few_due) / few_due;
        used++;
    } else if (few_seen > few_due + 10 + 6 * sqrt(few_due)) {
        return INFINITY;
    }
    return used < 2 ? 0 : sum / chi_limit(used - 1);
}

/* Runs a suite; what main() returns. */
static inline int unit_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Adds a test case; a test that hangs is stopped. */
static inline TCase *unit_case(Suite *suite, const char *name)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 300);
    suite_add_tcase(suite, tcase);
    return tcase;
}

#endif
