/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The proxy: between callers and the SIP server it protects, on the path of every message (RFC 3261
 * section 16). A call is counted once, on its ingress leg: at each INVITE that starts one the core
 * decides whether it gets a place, and whose call ends for it.
 *
 * Conventions:
 * - One thread: all of it runs on the su_root_t that proxy_create() was given, and every function
 *   here is called from that thread.
 * - Times are microseconds unless the name says otherwise; proxy_now_us() is the clock of all.
 * - The configuration and the store must outlive the proxy (until proxy_reload() gives another
 *   configuration).
 * - A function that can fail writes one English sentence without a full stop to error and returns
 *   NULL or false.
 */
#ifndef SIP_EXT_PROXY_H
#define SIP_EXT_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sofia-sip/su_wait.h>

#include "histogram.h"
#include "seven.h"

typedef struct proxy proxy;
struct config; /* config.h */
struct store;  /* store.h */

/**
 * Opens every `listen` address and starts to serve on root. Calls found in store (NULL: none is
 * kept) are in progress at once. The caller owns config and store, and destroys the proxy before
 * the root.
 */
proxy *proxy_create(su_root_t *root, const struct config *config, struct store *store, char *error,
                    size_t error_size);

/**
 * Goes on with another configuration, made by config_reload(), and loses no call: those that fewer
 * places have no room for go on without, and have the places that become free before newcomers do.
 * On success the old configuration may be freed; on failure nothing has changed.
 */
bool proxy_reload(proxy *p, const struct config *config, char *error, size_t error_size);

/**
 * Takes no call from now on (503 with Retry-After to every INVITE that starts one); the calls that
 * are up go on. idle() is called once, when none is left: maybe before this returns.
 */
void proxy_stop(proxy *p, void (*idle)(void *context), void *context);

/** Closes the sockets, forgets the calls; those in the store stay there. NULL does nothing. */
void proxy_destroy(proxy *p);

/** The monotonic clock that the pool and the calls are kept by. */
uint64_t proxy_now_us(void);

/** Why a call gave its place back, or never had one. */
enum proxy_end {
    END_COMPLETED,   /* a BYE of one of its parties was answered */
    END_FAILED,      /* a final error answered the INVITE */
    END_CANCELLED,   /* the caller gave up: CANCEL */
    END_TIMEOUT,     /* nobody answered: timer B or C */
    END_NO_ACK,      /* the 2xx was never ACKed: timer H */
    END_VANISHED,    /* a party's BYE, or a session refresh, was due and never seen */
    END_CUT_WAITING, /* victim while WAITING */
    END_CUT_INCALL,  /* victim while INCALL */
    END_REASONS
};

/** The English name of one, as in the metrics' label: "completed", "cut_waiting"... */
const char *proxy_end_name(enum proxy_end end);

/** A moment's figures. Counters are since proxy_create(). */
typedef struct proxy_status {
    uint32_t places;          /* k */
    uint32_t waiting, incall; /* calls up, by state: they hold a place in the pool */
    uint32_t overdue;         /* of those, in progress for longer than t_M */
    uint32_t held;            /* of the waiting: wait for the end of the round */
    uint32_t ending;          /* without a place, their end not confirmed yet: CANCEL or BYE sent */
    uint32_t exempt_places;   /* exempt_calls */
    uint32_t exempt;          /* exempt calls up, in places of their own */
    uint32_t unplaced;        /* calls up beyond the places: since fewer are left, or detect_only */
    uint64_t t_m_us;          /* t_M now */
    bool t_m_learned;         /* it is learned, not fixed */
    uint64_t pmod;            /* PMod of this round */
    enum seven_strategy strategy; /* P2 */
    uint32_t tournament;          /* n */
    bool detect_only;
    bool stopping;
    uint64_t started;            /* calls that got a place */
    uint64_t refused;            /* by P1 */
    uint64_t refused_stopping;   /* because of proxy_stop() */
    uint64_t replaced;           /* calls that got in for a victim */
    uint64_t ended[END_REASONS]; /* calls by how they ended */
    uint64_t would_refuse;       /* detect_only: decided, not done */
    uint64_t would_cut;
    uint64_t undroppable;         /* requests answered 400: no CSeq left for a BYE */
    uint64_t malformed;           /* messages answered 400 or dropped */
    uint64_t requests, responses; /* messages that came in */
    uint64_t forwarded;           /* messages that went on */
    uint64_t looped;              /* answered 483 */
    uint64_t store_errors;        /* writes to the store that failed */
    uint64_t cut_within_1s;       /* victims whose end was confirmed within a second */
    uint64_t cut_refused;         /* victims that the server did not let us end */
    uint64_t restored;            /* calls taken over from the store at the start */
    uint64_t bytes_per_call;      /* memory of the table and the records, over calls up; 0: none */
    uint64_t uptime_us;
} proxy_status;

/** Fills in the figures. O(k). */
void proxy_get_status(const proxy *p, proxy_status *status);

/** The decisions, for log_overload(). */
void proxy_tally(const proxy *p, seven_tally *tally);

/** From a victim's decision to its end confirmed by the server; lives as long as the proxy. */
const seven_histogram *proxy_cut_times(const proxy *p);

/** A call as it is now; texts end in a zero, are the peer's as they came, and are valid in each().
 */
typedef struct proxy_call {
    const char *state; /* "held", "waiting", "challenged", "incall" or "ending" */
    bool exempt;
    uint64_t age_us; /* in that state */
    const char *from, *to, *call_id;
} proxy_call;

/** Calls each() for every call up, until it returns false. O(calls). */
void proxy_each_call(const proxy *p, bool (*each)(void *context, const proxy_call *call),
                     void *context);

#endif
