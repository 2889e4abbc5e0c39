/* SPDX-License-Identifier: Apache-2.0 */
/** The control socket: a Unix socket that answers one line a connection. */
#ifndef SIP_EXT_CONTROL_H
#define SIP_EXT_CONTROL_H

#include "status.h"

typedef struct control control;

/** Opens it at c->control. NULL: error says why. p must outlive it. */
control *control_create(su_root_t *root, const config *c, const proxy *p, char *error,
                        size_t error_size);

/** Closes it and removes the socket. NULL does nothing. */
void control_destroy(control *c);

#endif
