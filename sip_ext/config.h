/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The configuration: `key = value` lines, `#` comments. An object that does not change; a new file
 * makes a new one.
 *
 * - Times are microseconds unless the name says otherwise.
 * - A function that can fail writes one English sentence without a full stop, naming file, line and
 *   key, to error and returns NULL or false. Nothing is clamped.
 */
#ifndef SIP_EXT_CONFIG_H
#define SIP_EXT_CONFIG_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sofia-sip/url.h>

#include "seven.h"

enum config_transport { CONFIG_UDP, CONFIG_TCP, CONFIG_TLS };

/** "udp", "tcp" or "tls". */
const char *config_transport_name(enum config_transport transport);

/** A numeric address with its port, and where it was written. */
typedef struct config_address {
    enum config_transport transport;
    char host[INET6_ADDRSTRLEN]; /* without brackets */
    uint16_t port;
    bool ipv6;
    unsigned line;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } sockaddr;
} config_address;

/** Bytes of sockaddr that count. */
socklen_t config_address_length(const config_address *address);

enum config_log { CONFIG_STDERR, CONFIG_SYSLOG };

struct config_exempt; /* the list of the exempt, made to be searched */

typedef struct config {
    char *file;
    config_address *listen; /* `listen`: one at least, no two alike */
    size_t listens;
    config_address server; /* `server`: the protected one */
    seven_policy policy;   /* `calls` (k), `round`, `strategy`, `t_m`, `drop_factor`; no error */
    bool forward_round;    /* `forward`: round (true) or now */
    unsigned refuse;       /* `refuse`: 480, 486, 503 or 600 */
    unsigned retry_after;  /* `retry_after`, seconds, 1 to 86400 */
    uint32_t exempt_calls; /* `exempt_calls`: places beyond k, 0 to SEVEN_MAX_PLACES */
    bool detect_only;
    uint64_t ring_us;                  /* `ring_time`: timer C (RFC 3261 16.6), 1 s to a day */
    uint64_t t1_us;                    /* `t1`: timer T1 (RFC 3261 17.1.1.1), 10 ms to 10 s */
    unsigned store_line, control_line; /* where they were written */
    char *store;                       /* `store`: path, or NULL */
    char *control;                     /* `control`: path of the Unix socket, or NULL */
    unsigned control_mode;             /* `control_mode`: 0600, 0660 or 0666 */
    bool metrics_on;                   /* `metrics`: HTTP on this address */
    config_address metrics;            /* its transport is CONFIG_TCP */
    char *tls_certificates;            /* `tls_certificates`: directory with agent.pem; or NULL */
    enum config_log log;               /* `log`: stderr or syslog */
    int log_level;                     /* `log_level`: LOG_ERR to LOG_DEBUG of syslog.h */
    struct config_exempt *exempt;      /* `exempt` */
} config;

/** Reads a configuration. To be freed with config_free(). NULL if anything in it is wrong. */
config *config_load(const char *file, char *error, size_t error_size);

/**
 * Reads it again for a process that runs with `running`. What cannot change while it runs (listen,
 * server, t1, store, control, metrics, tls_certificates, log) is taken over from running; the names
 * of such keys that differ go to kept, separated by ", " ("" if none do).
 */
config *config_reload(const config *running, char *kept, size_t kept_size, char *error,
                      size_t error_size);

/**
 * Sees by opening and closing sockets whether every address to listen on is one of this machine
 * and, if free_too, that nobody has it.
 */
bool config_probe(const config *c, bool free_too, char *error, size_t error_size);

/** NULL does nothing. */
void config_free(config *c);

/* ---- the exempt: never refused, never victims --------------------------------------------- */

/** True if an IPv4 or IPv6 source (a mapped address counts as IPv4) is on the list. */
bool config_exempt_addr(const config *c, const struct sockaddr *from);

/**
 * True if an address-of-record is on the list: compared as RFC 3261 sections 10.3 and 19.1.4 say,
 * without parameters; scheme and host in any case, the user in its own, escapes undone. An entry
 * without a port is only for URIs without one. Anyone can write a From: it is as good as the
 * server's own check of it.
 */
bool config_exempt_caller(const config *c, const url_t *from);

/**
 * True if a Request-URI calls a number (sip: user or tel:, visual separators of a tel: or
 * user=phone left out) or a service URN (RFC 5031) on the list, whatever the host.
 */
bool config_exempt_callee(const config *c, const url_t *request_uri);

#endif
