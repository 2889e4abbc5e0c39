/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What operators and machines may ask: a control socket (a Unix socket that answers one line) and
 * Prometheus metrics (HTTP). Both run on the proxy's event loop, without ever waiting for a client;
 * clients are few, short and slow ones are dropped.
 */
#ifndef SIP_EXT_STATUS_H
#define SIP_EXT_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sofia-sip/su_wait.h>

#include "config.h"
#include "proxy.h"

typedef struct status status;

/**
 * Opens `control` and `metrics`, those of them that the configuration has, to tell of p, which must
 * outlive it. A stale control socket is replaced; a live one, or another file, is an error: NULL
 * and a sentence.
 */
status *status_create(su_root_t *root, const config *c, const proxy *p, char *error,
                      size_t error_size);

/** Closes all, removes the control socket. NULL does nothing. */
void status_destroy(status *s);

#endif
