/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/* True if the first n characters are equal, but for their case; n includes the end to compare all.
 */
static bool same(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i])) {
            return false;
        }
        if (a[i] == '\0') {
            break;
        }
    }
    return true;
}

static bool equal(const char *a, const char *b)
{
    return same(a, b, strlen(a) + 1);
}

/* A number in digits, and what follows it. */
static bool digits(const char *text, long *value, const char **rest)
{
    char *end;

    if (!isdigit((unsigned char)*text)) {
        return false;
    }
    errno = 0;
    *value = strtol(text, &end, 10);
    *rest = end;
    return errno == 0;
}

bool seven_parse_number(const char *text, long low, long high, long *value)
{
    const char *rest;
    long n;

    if (!digits(text, &n, &rest) || *rest != '\0' || n < low || n > high) {
        return false;
    }
    *value = n;
    return true;
}

bool seven_parse_amount(const char *text, long low, long high, long *value, bool *percent)
{
    const char *rest;
    long n;
    bool sign;

    if (!digits(text, &n, &rest)) {
        return false;
    }
    sign = strcmp(rest, "%") == 0;
    if ((*rest != '\0' && !sign) || n < low || n > (sign ? 100 : high)) {
        return false;
    }
    *value = n;
    *percent = sign;
    return true;
}

bool seven_parse_time(const char *text, uint64_t *us)
{
    static const struct {
        const char *name;
        uint64_t us;
    } units[] = {{"ms", 1000}, {"s", 1000000}, {"min", 60000000}, {"h", 3600000000}};
    const char *rest;
    long n;

    if (!digits(text, &n, &rest)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (equal(rest, units[i].name)) {
            if ((uint64_t)n > SEVEN_MAX_TIME_US / units[i].us || (uint64_t)n * units[i].us < 1000) {
                return false;
            }
            *us = (uint64_t)n * units[i].us;
            return true;
        }
    }
    return false;
}

static const char *const strategies[] = {"uniform", "roulette", "tournament"};

bool seven_parse_strategy(const char *text, enum seven_strategy *strategy)
{
    for (unsigned i = 0; i < sizeof(strategies) / sizeof(*strategies); i++) {
        if (equal(text, strategies[i])) {
            *strategy = (enum seven_strategy)i;
            return true;
        }
    }
    return false;
}

const char *seven_strategy_name(enum seven_strategy strategy)
{
    return strategies[strategy];
}

bool seven_parse_drop_factor(const char *text, seven_policy *policy)
{
    const struct {
        const char *key;
        double *value;
    } keys[] = {{"wait=", &policy->p_wait},
                {"in=", &policy->p_in},
                {"alpha=", &policy->alpha},
                {"scale=", &policy->scale}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        size_t length = strlen(keys[i].key);

        if (same(text, keys[i].key, length) && text[length] != '\0' &&
            !isspace((unsigned char)text[length])) {
            char *end;
            double value = strtod(text + length, &end);

            if (*end == '\0' && isfinite(value)) {
                *keys[i].value = value;
                return true;
            }
        }
    }
    return false;
}
