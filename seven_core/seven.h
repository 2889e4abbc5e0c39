/* SPDX-License-Identifier: Apache-2.0 */
/**
 * seven_core: who is let into a full server, and who makes room.
 *
 * A server has k *places*. While one is free, whoever asks gets it. Once all are taken, a newcomer
 * is let in with probability P1 = k/(k+PMod), and takes the place of a holder, the *victim*, drawn
 * by P2. PMod counts the newcomers of this *round* that found the places taken. (SeVen, 2014; for
 * httpd, 2016; for VoIP, 2018. P1, P2, PMod, round, t_M and drop factor are the papers' terms.)
 *
 * Conventions, for all that follows:
 * - Times are microseconds. "now" is the caller's monotonic clock and the same for all who share a
 *   pool. Places keep time in ticks of SEVEN_TICK_US, for eight years from the clock's zero.
 * - The caller owns all memory. A pool has no pointers inside: it works in memory shared by
 *   processes at different addresses. Nothing has to be destroyed.
 * - Any thread of any process may call anything at any time, and may die at any instruction.
 *   There are no locks; an operation is a compare-and-swap on one place, and then the summaries
 *   above that place are brought up to date (see pool.c).
 * - A function that takes a ticket does nothing and returns false once the place has gone to
 *   another. Replacing is overwriting: a holder has lost when seven_holds() turns false.
 * - Randomness is the caller's generator, one a thread: equal seeds and calls replay exactly.
 */
#ifndef SEVEN_H
#define SEVEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEVEN_TICK_US 256
#define SEVEN_MAX_PLACES (1U << 20)
#define SEVEN_MAX_TIME_US (86400 * UINT64_C(1000000)) /* longest round or t_M: a day */

/* ---- randomness ------------------------------------------------------------------------- */

/** xoshiro256** (Blackman and Vigna, 2018). One a thread. */
typedef struct seven_rng {
    uint64_t s[4];
} seven_rng;

/** Seeds from any 64 bits. Production takes them from the system (getrandom). */
void seven_seed(seven_rng *rng, uint64_t seed);

/** A uniform integer in [0, n), exactly; n > 0. */
uint64_t seven_below(seven_rng *rng, uint64_t n);

/** A uniform double in [0, 1), of 53 bits. */
double seven_unit(seven_rng *rng);

/* ---- policy ----------------------------------------------------------------------------- */

enum seven_strategy { SEVEN_UNIFORM, SEVEN_ROULETTE, SEVEN_TOURNAMENT };

/** A place's state. */
enum seven_state {
    SEVEN_FREE,
    SEVEN_WAITING, /* for service: its drop factor is p_wait */
    SEVEN_SERVED,  /* the clock runs: p_in up to t_M, then it grows */
    SEVEN_BUSY     /* the server is at work for it, the clock stands; the last to be chosen */
};

/** How t_M is learned: factor times the quantile of what completed clients took. */
typedef struct seven_learning {
    double quantile; /* in (0, 1) */
    double factor;   /* >= 1: the room to spare */
    uint64_t min_us; /* t_M starts here and never falls below */
    uint64_t max_us;
} seven_learning;

/** All that decides. seven_policy_defaults() fills it; change it before seven_init() only. */
typedef struct seven_policy {
    uint32_t places;   /* k, 1 to SEVEN_MAX_PLACES */
    uint64_t round_us; /* T_S, 1000 to SEVEN_MAX_TIME_US */
    enum seven_strategy strategy;
    uint32_t tournament;       /* n, 1 to k; 0 means k/2, at least 1 */
    double p_wait;             /* drop factor while waiting, > 0 */
    double p_in;               /* in service up to t_M, > 0, <= d just beyond t_M */
    double alpha;              /* growth beyond t_M, over 0 to 20 */
    double scale;              /* > 0 */
    uint64_t t_m_us;           /* t_M, 1000 to SEVEN_MAX_TIME_US; 0 means learn it */
    seven_learning learning;   /* used when t_m_us is 0 */
    uint64_t credit_us;        /* how far progress may buy a holder ahead of now */
    enum seven_state admit_as; /* SEVEN_WAITING, or SEVEN_SERVED where the clock runs at once */
} seven_policy;

/** The papers' parameters: a tournament of k/2, T_S 100 ms, d of 8, 2, 1.89 and 0.453; t_M is
 * learned. */
void seven_policy_defaults(seven_policy *policy, uint32_t places);

/** NULL, or an English sentence on the first thing wrong, without a full stop; static. */
const char *seven_policy_error(const seven_policy *policy);

/** True if two policies decide alike. */
bool seven_policy_equal(const seven_policy *a, const seven_policy *b);

/**
 * The drop factor of a holder that has been in that state for age_us, with t_M = t_m_us (2018
 * paper). In service: p_in up to t_M, beyond it p_wait + scale * e^(alpha * age / t_M). 0 if busy
 * or free.
 */
double seven_drop_factor(const seven_policy *policy, uint64_t t_m_us, enum seven_state state,
                         uint64_t age_us);

/* ---- the pool --------------------------------------------------------------------------- */

typedef struct seven_pool seven_pool;

/** Who holds which place. The adapter keeps its own record of a holder at [slot]. */
typedef struct seven_ticket {
    uint32_t slot;   /* 0 to k - 1 */
    uint32_t serial; /* the place's owner number, one more for each new holder */
} seven_ticket;

enum seven_verdict {
    SEVEN_REFUSED,
    SEVEN_ADMITTED, /* a place was free */
    SEVEN_REPLACED  /* a holder lost its place; the record at ticket.slot is still the loser's */
};

/** Bytes a pool needs, a multiple of 64. The policy must be without error. */
size_t seven_size(const seven_policy *policy);

/** Makes a pool in seven_size() bytes aligned to 64. Not while others use the block. */
seven_pool *seven_init(void *block, const seven_policy *policy);

/** The policy the pool was made with, the default tournament size filled in. */
const seven_policy *seven_pool_policy(const seven_pool *pool);

/** Decides about a newcomer: P1, then P2. The ticket is set unless it is refused. */
enum seven_verdict seven_admit(seven_pool *pool, seven_rng *rng, uint64_t now_us,
                               seven_ticket *ticket);

/**
 * Takes the place of a former ticket again, if it is free: then the ticket is a new one, and the
 * verdict SEVEN_ADMITTED. Quicker than to ask for any place, since what it touches was touched
 * before. Only ticket->slot matters; false changes nothing.
 */
bool seven_readmit(seven_pool *pool, uint64_t now_us, seven_ticket *ticket);

/** Service begins: WAITING becomes SERVED, and the age that counts starts at now. */
bool seven_serve(seven_pool *pool, seven_ticket ticket, uint64_t now_us);

/** The clock stands from now on: the server is busy for this holder (SERVED becomes BUSY). */
bool seven_pause(seven_pool *pool, seven_ticket ticket, uint64_t now_us);

/** The clock runs again, from the age it had (BUSY becomes SERVED). */
bool seven_resume(seven_pool *pool, seven_ticket ticket, uint64_t now_us);

/** Progress buys time: the age falls by paid_us, to no less than -credit_us. SERVED and BUSY. */
bool seven_progress(seven_pool *pool, seven_ticket ticket, uint64_t now_us, uint64_t paid_us);

/** Gives the place back. */
bool seven_leave(seven_pool *pool, seven_ticket ticket);

/** True while the ticket's holder has its place. */
bool seven_holds(const seven_pool *pool, seven_ticket ticket);

/** The ticket of whoever holds a slot now, and its state; FREE if nobody. */
enum seven_state seven_holder(const seven_pool *pool, uint32_t slot, seven_ticket *ticket);

/** The age that counts, of the ticket's holder, at least 0; 0 if it lost its place. */
uint64_t seven_age(const seven_pool *pool, seven_ticket ticket, uint64_t now_us);

/** Places free now. */
uint32_t seven_free(const seven_pool *pool);

enum seven_relief {
    SEVEN_OVERDUE_ONLY, /* take a place from a holder past t_M, or from nobody */
    SEVEN_BY_LAW        /* if none is, decide by P1 and P2 as for a newcomer */
};

/**
 * Frees a place ahead of need: the holder longest past t_M loses it (ties by lot). For when fewer
 * than a reserve are free, and for each connection seen waiting where no newcomer can ask. Never
 * takes from a busy holder. True if the holder at loser->slot lost its place.
 */
bool seven_relieve(seven_pool *pool, seven_rng *rng, uint64_t now_us, enum seven_relief relief,
                   seven_ticket *loser);

/**
 * A client completed after making the server wait waited_us: t_M follows. The estimate is of a
 * quantile and moves by a bounded step a client, whatever the client took, and by at most a factor
 * of two a second: who would teach it must outnumber the honest for as long. No effect where t_M
 * is fixed.
 */
void seven_learn(seven_pool *pool, uint64_t waited_us, uint64_t now_us);

/**
 * Goes on from a t_M that another pool had learned, or this one's predecessor before a restart:
 * within the policy's bounds, from where seven_learn() moves it on. Right after seven_init(). No
 * effect where t_M is fixed, or t_m_us is 0.
 */
void seven_recall(seven_pool *pool, uint64_t t_m_us);

/** t_M now. */
uint64_t seven_t_m(const seven_pool *pool);

/** PMod in the round of now. */
uint64_t seven_pmod(const seven_pool *pool, uint64_t now_us);

/**
 * Brings every summary up to date. A process that dies between changing a place and telling the
 * summaries leaves them off by that place: call this after such a death, or now and then. O(k).
 */
void seven_repair(seven_pool *pool);

/* ---- whose places: for adapters of several processes -------------------------------------- */

/** Says that the ticket's holder belongs to owner, a number of the adapter's. */
void seven_own(seven_pool *pool, seven_ticket ticket, uint32_t owner);

/**
 * The owner last recorded for a slot; right after SEVEN_REPLACED or seven_relieve() it is still
 * the loser's. A newcomer that is itself replaced before it called seven_own() is not known yet:
 * so look with seven_holds() after it.
 */
uint32_t seven_owner(const seven_pool *pool, uint32_t slot);

/** When a holder of that slot last lost it to a newcomer or to relief; 0: never. */
uint64_t seven_lost_us(const seven_pool *pool, uint32_t slot);

/**
 * Gives back the places whose owner gone() says is gone, and those held for orphan_us without an
 * owner (a process died between winning a place and saying so); repairs the summaries. Returns how
 * many it gave back. O(k).
 */
uint32_t seven_reclaim(seven_pool *pool, uint64_t now_us, uint64_t orphan_us,
                       bool (*gone)(const void *context, uint32_t owner), const void *context);

/* ---- figures ---------------------------------------------------------------------------- */

/** Decisions since seven_init(). */
typedef struct seven_tally {
    uint64_t admitted, replaced, refused, relieved;
} seven_tally;

/** Places by state, and how many holders are past t_M. O(k). */
typedef struct seven_census {
    uint32_t free, waiting, served, busy, overdue;
} seven_census;

void seven_count(const seven_pool *pool, seven_tally *tally);
void seven_survey(const seven_pool *pool, uint64_t now_us, seven_census *census);

#endif
