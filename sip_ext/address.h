/* SPDX-License-Identifier: Apache-2.0 */
/** Numeric addresses of the configuration: reading, comparing, trying them. */
#ifndef SIP_EXT_ADDRESS_H
#define SIP_EXT_ADDRESS_H

#include "config.h"

/**
 * Fills in HOST or HOST:PORT, an IPv6 HOST in brackets; port is for where none is written, 0 means
 * that one must be. False if it is not that; transport and line are left alone.
 */
bool address_parse(const char *text, uint16_t port, config_address *a);

bool address_is_loopback(const config_address *a);

/** NULL, or what it must be to be one machine's that others can be told, as "must be ..."; static.
 */
const char *address_not_unicast(const config_address *a);

/** True if two sockets cannot both have them: the same address and port, both UDP or neither. */
bool address_equal(const config_address *a, const config_address *b);

/** Binds a socket to it and closes it again: 0, or an errno. */
int address_try(const config_address *a);

#endif
