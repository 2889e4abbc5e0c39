/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Prometheus metrics: GET /metrics over HTTP. libmicrohttpd speaks HTTP, on its own epoll
 * descriptor, which the proxy's event loop waits for.
 */
#ifndef SIP_EXT_METRICS_H
#define SIP_EXT_METRICS_H

#include "status.h"

typedef struct metrics metrics;

/** Opens it at c->metrics. NULL: error says why. p must outlive it. */
metrics *metrics_create(su_root_t *root, const config *c, const proxy *p, char *error,
                        size_t error_size);

/** NULL does nothing. */
void metrics_destroy(metrics *m);

#endif
