/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Flow tokens: where the outer peer of a dialog (not the server) really is, written into the user
 * part of our Record-Route so that no state is needed to find it again (the idea of RFC 5626
 * section 5.2). A keyed hash over it and the Call-ID keeps others from making one, or from using
 * one call's in another.
 */
#ifndef SIP_EXT_FLOW_H
#define SIP_EXT_FLOW_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "siphash.h"

enum flow_leg {
    FLOW_INGRESS, /* the outer peer called: the call's place is counted here */
    FLOW_EGRESS,  /* the server called it */
    FLOW_ONWARD   /* the same, for a call that came in with this Call-ID and is known */
};

/** An address with its transport. family 0: it is not known. */
typedef struct flow {
    uint8_t leg;       /* enum flow_leg */
    uint8_t family;    /* 0, 4 or 6 */
    uint8_t transport; /* enum config_transport */
    uint8_t listener;  /* index of the address that it talks to */
    uint16_t port;     /* in host order */
    uint8_t address[16];
} flow;

#define FLOW_TOKEN 48 /* bytes of a token, its ending zero counted */

/** Sets address, family and port. An IPv4-mapped address counts as IPv4. */
void flow_set(flow *f, const struct sockaddr *address);

/** True if both are the same address, port and transport. */
bool flow_same(const flow *a, const flow *b);

/** True if both are the same address. */
bool flow_same_host(const flow *a, const flow *b);

/** Address without port as text, without brackets; "" if it is not known. */
const char *flow_host(const flow *f, char text[INET6_ADDRSTRLEN]);

/** True if text is that numeric address, in brackets or not. */
bool flow_is_host(const flow *f, const char *text);

/** Reads a numeric address, in brackets or not; false if it is none. Leaves the port alone. */
bool flow_parse_host(flow *f, const char *text);

/** True for an address that means something in a private network only (RFC 1918, 6598, 4193...). */
bool flow_is_private(const flow *f);

/** Writes the token of a flow for the dialog with that Call-ID. */
void flow_write(const flow *f, const uint8_t key[SIPHASH_KEY], const char *call_id,
                char token[FLOW_TOKEN]);

/** Reads one; false if it is not ours, or not of that Call-ID. */
bool flow_read(flow *f, const uint8_t key[SIPHASH_KEY], const char *call_id, const char *token);

#endif
