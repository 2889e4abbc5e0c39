/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The calls: what is remembered of each, found by its dialog, by its place, or when its time has
 * come.
 *
 * - Of one thread. A call belongs to its table, which frees it.
 * - Memory of a call is about 200 bytes and its text, from slabs of its own, so that what messages
 *   and transactions leave behind in the heap does not lie between calls.
 * - Texts are kept as they came, without an ending zero missing: never longer than CALL_MAX_TEXT in
 *   all. Comparison of tags and Call-IDs is exact, so that nobody gives a place back with a tag
 *   that the server takes for another.
 */
#ifndef SIP_EXT_CALL_H
#define SIP_EXT_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flow.h"
#include "seven.h"

#define CALL_MAX_TEXT 16384 /* bytes of all texts of a call */
#define CALL_MAX_ALIKE 8    /* calls with the same Call-ID and caller's tag */

/* How far a CSeq may go so that a BYE can still follow (it must be below 2^31, RFC 3261 8.1.1.5),
 * also after some tries. */
#define CALL_MAX_CSEQ (UINT32_C(0x7fffffff) - 65536)

/*
 *            INVITE                 ACK of the 2xx            BYE answered
 *   (none) ----------> WAITING -----------------> INCALL -------------------> (freed)
 *     round |            ^  |  401, 407    INVITE    |
 *           v  its end   |  '---> CHALLENGED --------|--> WAITING again
 *          HELD ---------'                           |
 *                         a victim, or timer H or the session's --> ENDING --> (freed)
 */
enum call_state {
    CALL_HELD,       /* waits for the end of the round; not sent to the server yet */
    CALL_WAITING,    /* INVITE sent, not answered or its answer not ACKed */
    CALL_CHALLENGED, /* answered 401 or 407: the place is kept for the next try */
    CALL_INCALL,
    CALL_ENDING /* has no place any more; our CANCEL or BYE is not answered yet */
};

enum call_text {
    TEXT_CALL_ID,
    TEXT_FROM, /* the caller's addr-spec */
    TEXT_FROM_TAG,
    TEXT_TO,
    TEXT_TO_TAG,       /* of the 2xx; "" before */
    TEXT_CALLER,       /* the caller's remote target */
    TEXT_CALLER_ROUTE, /* route set from us to it, "<uri>, <uri>" */
    TEXT_CALLEE,
    TEXT_CALLEE_ROUTE,
    TEXT_CALLER_NEXT, /* a target refresh not answered yet (RFC 3261 12.2) */
    TEXT_CALLEE_NEXT,
    TEXT_SERVER_ROUTE, /* what the server wrote as Record-Route when it sent the INVITE on */
    CALL_TEXTS
};

typedef struct call call;

/** A party, as seen from us. */
enum call_side { SIDE_CALLER, SIDE_CALLEE };

struct call {
    call *next;           /* in its bucket */
    call *sooner, *later; /* of those due in the same tick of the wheel */
    call *fork;           /* another dialog of the same call (a second 2xx); it has no place */
    call *parent;         /* of a fork */
    void *work;           /* the proxy's transactions on it, or NULL */
    char *text;
    uint64_t id;         /* in the store */
    uint64_t hash;       /* of Call-ID and caller's tag */
    uint64_t invite_key; /* of the INVITE that started it, for retransmissions */
    uint64_t since_us;   /* of the state */
    uint64_t due_us;     /* 0: never */
    uint64_t session_us; /* when its session expires (RFC 4028), 0: never */
    seven_ticket ticket;
    uint32_t invite_cseq;
    uint32_t cseq[2];      /* highest seen, by side that sent it */
    uint32_t next_cseq[2]; /* of the target refresh not answered yet */
    uint32_t bye_cseq[2];  /* of a BYE passed on to the other side; 0: none */
    uint32_t session_s;    /* session interval (RFC 4028), 0: none */
    flow caller;           /* where the INVITE came from */
    uint8_t state;         /* enum call_state */
    uint8_t cause;         /* why it ends: enum proxy_end */
    bool exempt;           /* its place is one of exempt_calls */
    bool placed;           /* it holds a place */
    bool unplaced;         /* it is up without one; ticket.slot is where it stands in line */
    bool answered;         /* a 2xx was seen */
    bool direct;           /* no proxy between the caller and us */
    bool behind_server;    /* the server is the first hop towards the callee */
    bool onward;           /* the server sent its INVITE on through us: it is no B2BUA */
    bool doubted;          /* a BYE may not have ended it at the server */
    bool stored;
    bool changed;                /* since it was stored */
    bool linked;                 /* in the wheel */
    uint16_t at[CALL_TEXTS + 1]; /* where each text starts; one ending zero each */
};

typedef struct calls calls;

/** A text that is not ended by a zero. */
typedef struct span {
    const char *text;
    size_t length;
} span;

/** A span of a string; NULL counts as "". */
span span_of(const char *text);

/** A table for about so many calls. NULL: no memory. */
calls *calls_create(uint32_t expected, uint64_t now_us);

/** Frees it with all calls. NULL does nothing. */
void calls_destroy(calls *t);

/** A new call with these texts; NULL: they are too long, too many are alike, or no memory. */
call *call_add(calls *t, const span texts[CALL_TEXTS]);

/** Forgets it, with its forks. */
void call_free(calls *t, call *c);

/** A text of a call, "" if it has none; valid until the call changes. */
static inline const char *call_text(const call *c, enum call_text which)
{
    return c->text + c->at[which];
}

static inline size_t call_text_length(const call *c, enum call_text which)
{
    return (size_t)c->at[which + 1] - c->at[which] - 1;
}

/** Changes a text, not the Call-ID or the caller's tag. False: too long, or no memory. */
bool call_set(calls *t, call *c, enum call_text which, span text);

/**
 * The call of a request or response with these tags, whichever side sent it; one that is not
 * answered yet has any To-tag, and to_tag "" or NULL matches any. *from says who sent the request.
 * NULL: none.
 */
call *call_find(calls *t, const char *call_id, const char *from_tag, const char *to_tag,
                enum call_side *from);

/** The next call of that Call-ID and caller's tag; NULL to begin, NULL at the end. */
call *call_alike(calls *t, const char *call_id, const char *from_tag, const call *after);

/** Adds a fork to c: another dialog, with its own callee. NULL as with call_add(). */
call *call_add_fork(calls *t, call *c, const span texts[CALL_TEXTS]);

/** Asks calls_due() to give it at due_us or soon after; 0 takes that back. */
void call_due(calls *t, call *c, uint64_t due_us);

/** One call whose time has come, no longer due; NULL: none more. Call it every CALL_TICK_US. */
call *calls_due(calls *t, uint64_t now_us);
#define CALL_TICK_US 100000

/** Visits all calls, not forks, until each() returns false; it may not free or add any. */
void calls_each(const calls *t, bool (*each)(void *context, call *c), void *context);

/** How many there are, forks not counted; and the bytes that they take. */
size_t calls_count(const calls *t);
size_t calls_bytes(const calls *t);

/**
 * As bytes for the store, with the times on the wall clock; returns how many, 0 if too many. One
 * that is not ACKed yet will be in progress: its ACK may come while there is no process.
 */
size_t call_pack(const call *c, uint64_t now_us, uint64_t wall_us, void *bytes, size_t size);

/** And back: NULL if they are not what call_pack() wrote, or there is no memory. */
call *call_unpack(calls *t, uint64_t now_us, uint64_t wall_us, const void *bytes, size_t length);

#endif
