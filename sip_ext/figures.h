/* SPDX-License-Identifier: Apache-2.0 */
/** The figures and calls as text, JSON and Prometheus metrics: one table says all that there is. */
#ifndef SIP_EXT_FIGURES_H
#define SIP_EXT_FIGURES_H

#include <stdio.h>

#include "status.h"

/** `name: value` lines. */
void figures_text(FILE *out, const proxy_status *figures);

/** One JSON object, on one line. */
void figures_json(FILE *out, const proxy_status *figures);

/** Prometheus' text format 0.0.4. cut_us: times of ending victims, in microseconds; may be NULL. */
void figures_metrics(FILE *out, const proxy_status *figures, const seven_histogram *cut_us);

/** One line of `calls`: state, age, exempt or not, From, To, Call-ID, each as `key="value"`. */
void figures_call(FILE *out, const proxy_call *call);

#endif
