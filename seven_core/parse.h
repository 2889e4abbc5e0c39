/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Settings as people write them, alike for every adapter. Each function returns false, and changes
 * nothing, unless the whole text is what it should be; the adapter says so with the setting's name.
 */
#ifndef SEVEN_PARSE_H
#define SEVEN_PARSE_H

#include "seven.h"

/** A whole number from low to high. */
bool seven_parse_number(const char *text, long low, long high, long *value);

/** A whole number from low to high, or a percentage from low to 100 with its sign. */
bool seven_parse_amount(const char *text, long low, long high, long *value, bool *percent);

/** A time with its unit, ms, s, min or h: from 1 ms to SEVEN_MAX_TIME_US. */
bool seven_parse_time(const char *text, uint64_t *us);

/** uniform, roulette or tournament, in any case. */
bool seven_parse_strategy(const char *text, enum seven_strategy *strategy);

/** The name that seven_parse_strategy() takes. */
const char *seven_strategy_name(enum seven_strategy strategy);

/** One of wait=, in=, alpha= and scale= with a number. */
bool seven_parse_drop_factor(const char *text, seven_policy *policy);

#endif
