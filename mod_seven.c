/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mod_seven: keeps an httpd open to honest clients while slow ones fill it (SeVen, 2014 and 2016).
 *
 * A connection that holds a worker holds a place. seven_core decides who gets one and who loses
 * one; this file tells it what clients do, and acts on what it says:
 *
 *   recognise  filters next to the network see a client make its worker wait, in a TLS handshake,
 *              head, body or slow read, and see it make progress
 *   detect     the core knows when the places are taken
 *   add        process_connection asks for a place, whenever a worker starts on a connection
 *   decide     the core; a loser learns of it from the watcher of its process
 *
 * Each child has a watcher, a thread that shuts down the sockets of its losers: only a thread of
 * the same process can. One of the watchers leads: it looks at the listeners' accept queues, since
 * with every worker held nobody gets as far as asking, and keeps the reserve, episodes and sweeps.
 *
 * What children share (struct shared) lives in anonymous shared memory and outlives restarts, so
 * that the children of an old generation still count. It holds no pointers.
 *
 * The file is long since all that touches httpd or the operating system stands here; what does not
 * is in seven_core.
 */
#include "apr_lib.h"
#include "apr_optional.h"
#include "apr_portable.h"
#include "apr_shm.h"
#include "apr_strings.h"
#include "ap_listen.h"
#include "ap_mpm.h"
#include "http_config.h"
#include "http_connection.h"
#include "http_core.h"
#include "http_log.h"
#include "http_protocol.h"
#include "http_request.h"
#include "http_ssl.h"
#include "httpd.h"
#include "mod_status.h"
#include "mpm_common.h"
#include "scoreboard.h"
#include "util_filter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "seven_core/episode.h"
#include "seven_core/histogram.h"
#include "seven_core/lease.h"
#include "seven_core/parse.h"
#include "seven_core/seven.h"
#include "seven_core/table.h"

module AP_MODULE_DECLARE_DATA seven_module;
APLOG_USE_MODULE(seven);

#define MS UINT64_C(1000)
#define SECOND UINT64_C(1000000)
#define LEASH (250 * MS)      /* how long a refused client may take to ask and be told */
#define MOMENT (250 * MS)     /* what is left to a victim to take a response that is ready */
#define TICK_TENSE (5 * MS)   /* the leader's, while the server is short of workers */
#define TICK_LEAD (50 * MS)   /* the leader's otherwise */
#define TICK_WATCH (200 * MS) /* a watcher's with connections: how often writers are looked at */
#define TICK_IDLE SECOND      /* a watcher's without */
#define LEASE (500 * MS)      /* a leader silent for so long is replaced */
#define LOOKS_STUCK 10        /* in a row: no worker can ask, the law decides for those who wait */
#define LOOKS_PATIENT 1000    /* in a row: what was about to happen is not believed any more */
#define CALM (5 * SECOND)     /* an overload is over after so long without a decision */
#define ORPHAN_AGE (10 * SECOND) /* a place without an owner's record for so long is given back */
#define SMALL_WRITE 16384        /* bytes that never block a worker when nothing is pending */

/* ---- types ------------------------------------------------------------------------------ */

enum engine { ENGINE_OFF, ENGINE_ON, ENGINE_DETECT_ONLY };

/* A number of places, or a share of the whole. */
struct amount {
    long value;
    bool percent;
    int set;
    const ap_directive_t *where;
};

struct config {
    enum engine engine;
    struct amount limit, reserve;
    seven_policy policy;
    const ap_directive_t *policy_where; /* the last directive that changed the policy */
    long min_rate;                      /* bytes a second */
    long retry_after;                   /* seconds */
    apr_array_header_t *exempt;         /* of apr_ipsubnet_t * */
    /* worked out once the MPM's limits are known */
    uint32_t places, reserved, workers;
    uint32_t roomy; /* with so many places free, nothing is about to be decided */
};

/* What a client makes its worker do. The names are for people. */
enum phase { HEAD, BODY, HANDLER, RESPONSE, TUNNEL, PHASES };
static const char *const phase_names[PHASES] = {"handshake or head", "body", "handler", "response",
                                                "tunnel"};

/* A child process, as others know it. */
#define DEAD INT_MIN /* or the negated pid of whoever gives its places back */
struct child {
    _Atomic pid_t pid; /* 0: free; DEAD: gone, its places not yet given back */
    sem_t wake;
    _Atomic uint32_t refused; /* connections on the leash now */
    _Atomic uint32_t exempt;  /* connections without a place now */
    _Atomic uint32_t shed;    /* parked connections it should let go */
};

struct shared {
    seven_lease leader;
    _Atomic ap_generation_t born;       /* of the first child that used this; -1: none yet */
    _Atomic ap_generation_t configured; /* whose configuration the parent has read */
    _Atomic int tight; /* few places are free: whether the server is at work is told at once */
    _Atomic uint64_t tense_until;
    _Atomic uint64_t evicted, parked_shed;
    seven_histogram eviction_to_free;
    seven_episode episode; /* the leader's */
    _Atomic uint64_t swept_us;
    uint32_t children;
    struct child child[]; /* then the phase of each place's holder, then the pool */
};

struct conn;

/* One per connection, HTTP/2's secondary ones included: is the server at work for it? */
struct exchange {
    struct conn *conn;
    request_rec *r;
    int working;
};

/* A client's connection. Its worker changes it. What is atomic is also read, or changed, by the
 * watcher, while it is pinned, or by the workers of HTTP/2's secondary connections. */
struct conn {
    struct exchange exchange; /* the connection's own */
    conn_rec *c;
    const char *address;                /* the client's */
    const apr_sockaddr_t *peer, *local; /* of its socket, whatever a proxy in front may say */
    int entry;                          /* in the process's table; -1: none */
    int refused, exempt;
    uint64_t unpaid;         /* bytes that have not bought a tick yet */
    seven_ticket ticket;     /* once holds is set; a stale one does nothing */
    uint64_t since_us;       /* it has its place */
    _Atomic int holds;       /* a place */
    const char *_Atomic how; /* it came by it: for %{seven}n */
    _Atomic int closing;     /* the number fd may become another's at any time */
    int fd;
    _Atomic int learned;       /* t_M has been told of it */
    _Atomic int64_t worked_us; /* until then: how long the server was at work for it */
    _Atomic int requests;      /* whose head is in, and that have not ended */
    _Atomic int working;       /* of these, the server is at work for */
    _Atomic int phase;
    _Atomic int wrote;          /* part of an HTTP/1 response is out, and not all */
    _Atomic int deferred;       /* lost its place while the server was at work for it */
    _Atomic uint64_t moment_us; /* lost its place, and may go on until then; 0: not said yet */
    _Atomic int evicted;
    _Atomic uint64_t evicted_us;
    _Atomic uint64_t leash_us;  /* refused: when its time is up */
    _Atomic uint64_t parked_us; /* since when the MPM holds it without a worker; 0: it does not */
    uint64_t acked;             /* the watcher's: bytes the client had acknowledged */
};

/* Outlives the module's own unloading at a restart. */
struct retained {
    apr_shm_t *shm;
    apr_shm_t *old; /* while the configuration is read: what it was before, if not the same */
    seven_policy policy;
    uint32_t children;
};

static struct {
    struct config *conf;
    server_rec *server;
    struct shared *shared;
    seven_pool *pool;
    _Atomic int *phases; /* of each place's holder */
    /* in a child */
    uint32_t child;
    seven_table table; /* the connections, for the watcher */
    pthread_t watcher;
    /* the leader's looks in a row, see is_stuck(), is_promised() and is_restarting() */
    uint32_t stuck, promised, childless;
    uint64_t promised_us; /* the last of these */
    uint32_t alive;       /* workers then */
    int watching;
    _Atomic int stop;
} seven;

/* ---- helpers ---------------------------------------------------------------------------- */

static uint64_t clock_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec / 1000;
}

/* The thread's generator, seeded by the system. */
static seven_rng *generator(void)
{
    static _Thread_local seven_rng rng;
    static _Thread_local int seeded;
    uint64_t seed;

    if (!seeded) {
        if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) {
            seed = clock_us() ^ (uint64_t)(uintptr_t)&rng;
        }
        seven_seed(&rng, seed);
        seeded = 1;
    }
    return &rng;
}

static int touches(void)
{
    return seven.conf->engine == ENGINE_ON;
}

static struct conn *conn_of(const conn_rec *c)
{
    struct exchange *exchange = ap_get_module_config(c->conn_config, &seven_module);

    return exchange ? exchange->conn : NULL;
}

static void wake(uint32_t child)
{
    if (child < seven.shared->children) {
        sem_post(&seven.shared->child[child].wake);
    }
}

/* From now on for a while the leader looks often. */
static void be_tense(uint64_t now)
{
    uint64_t until = atomic_load(&seven.shared->tense_until);

    if (until < now + SECOND) {
        atomic_store(&seven.shared->tense_until, now + 2 * SECOND);
        if (until < now) {
            wake(seven_leader(&seven.shared->leader));
        }
    }
}

/* ---- the table of connections ------------------------------------------------------------ */

static seven_entry *entry_of(const struct conn *conn)
{
    return &seven.table.entries[conn->entry];
}

/* The worker's side: the watcher may be at it, and never waits for us. While the process ends the
 * wait has an end, too: prefork's end from a signal handler, which may have interrupted a pinned
 * worker. False: the entry, and what it stands for, must be left alone. */
static bool pin(seven_entry *entry)
{
    for (int i = 0; !seven_pin(entry); i++) {
        if (atomic_load(&seven.stop) && i > 10000) {
            return false;
        }
        sched_yield();
    }
    return true;
}

static void enter_table(struct conn *conn)
{
    static _Thread_local int hint;

    conn->entry = seven_enter(&seven.table, conn, &hint);
    /* The place to try first. A thread has much the same entries all the time; what belongs to
     * places that far apart is not on one line of a cache. */
    conn->ticket.slot = (uint32_t)conn->entry * 17 % seven.conf->places;
}

static void leave_table(struct conn *conn)
{
    if (conn->entry < 0 || !pin(entry_of(conn))) {
        return;
    }
    seven_remove(entry_of(conn));
    conn->entry = -1;
}

/* ---- a place's life --------------------------------------------------------------------- */

static void set_phase(struct conn *conn, enum phase phase)
{
    atomic_store_explicit(&conn->phase, phase, memory_order_relaxed);
    if (conn->holds) {
        atomic_store_explicit(&seven.phases[conn->ticket.slot], phase, memory_order_relaxed);
    }
}

/* The holder in that slot has just lost its place: its child must act. */
static void notify_loser(uint32_t slot)
{
    if (touches()) {
        wake(seven_owner(seven.pool, slot));
    }
}

/* Makes the place agree with whether the server is at work for the connection; false if another has
 * it by now. Several may do this at once: whoever acted on what was no longer so acts again. */
static bool settle(struct conn *conn, seven_ticket ticket)
{
    int working;
    bool holds;

    do {
        working = atomic_load(&conn->working) > 0;
        holds = working ? seven_pause(seven.pool, ticket, clock_us())
                        : seven_resume(seven.pool, ticket, clock_us());
    } while ((atomic_load(&conn->working) > 0) != working);
    return holds;
}

/* While many places are free it does not matter who would lose one, and the core is not told. The
 * watchers do it for all, when that changes: they read what is written here before it is read. */
static void set_working(struct exchange *exchange, int working)
{
    struct conn *conn = exchange->conn;

    if (exchange->working == working) {
        return;
    }
    exchange->working = working;
    if (!atomic_load_explicit(&conn->learned, memory_order_relaxed)) {
        /* What t_M is to learn from is how long the client took, not the server. Signs add up. */
        atomic_fetch_add(&conn->worked_us, working ? -(int64_t)clock_us() : (int64_t)clock_us());
    }
    atomic_fetch_add(&conn->working, working ? 1 : -1);
    if (conn->holds && atomic_load(&seven.shared->tight) && !settle(conn, conn->ticket) &&
        touches()) {
        atomic_store(&conn->deferred, 1);
        wake(seven.child); /* it may have been spared only while the server was at work */
    }
}

/* Few places are left: from now on the core must know who keeps whom waiting. */
static void tighten(void)
{
    if (atomic_exchange(&seven.shared->tight, 1) == 0) {
        for (uint32_t i = 0; i < seven.shared->children; i++) {
            if (atomic_load_explicit(&seven.shared->child[i].pid, memory_order_relaxed) > 0) {
                wake(i);
            }
        }
    }
}

static void give_back(struct conn *conn)
{
    struct child *child = &seven.shared->child[seven.child];
    uint64_t evicted_us = atomic_load(&conn->evicted_us);

    if (conn->holds) {
        conn->holds = 0;
        if (conn->entry >= 0) {
            seven_entry_set(entry_of(conn), NULL);
        }
        seven_leave(seven.pool, conn->ticket);
        if (evicted_us != 0) {
            seven_note(&seven.shared->eviction_to_free, clock_us() - evicted_us);
        }
    }
    if (conn->refused) {
        conn->refused = 0;
        atomic_fetch_sub(&child->refused, 1);
    }
    if (conn->exempt) {
        conn->exempt = 0;
        atomic_fetch_sub(&child->exempt, 1);
    }
}

/* Frees places ahead of need, from holders past t_M, while fewer than the reserve are free. */
static void keep_reserve(uint64_t now, int most)
{
    seven_ticket loser;

    while (most-- > 0 && seven_free(seven.pool) < seven.conf->reserved &&
           seven_relieve(seven.pool, generator(), now, SEVEN_OVERDUE_ONLY, &loser)) {
        notify_loser(loser.slot);
    }
}

static void hold(struct conn *conn, uint64_t now)
{
    uint32_t free = seven_free(seven.pool);
    conn->since_us = now;
    atomic_store_explicit(&conn->leash_us, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->deferred, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->moment_us, 0, memory_order_relaxed);
    if (atomic_load(&conn->working) == 0) {
        atomic_store(&conn->worked_us, 0);
    }
    conn->holds = 1;
    seven_own(seven.pool, conn->ticket, seven.child);
    set_phase(conn, HEAD);
    seven_entry_set(entry_of(conn), &conn->ticket);
    if (atomic_load_explicit(&conn->working, memory_order_relaxed) > 0) {
        settle(conn, conn->ticket); /* HTTP/2's secondary connections did not wait for us */
    }
    if (free < seven.conf->roomy && !atomic_load(&seven.shared->tight)) {
        tighten();
    }
    if (free < seven.conf->reserved) {
        be_tense(now);
        keep_reserve(now, 2);
    }
    /* Whoever replaced us before we were known as the owner told our predecessor. */
    if (!seven_holds(seven.pool, conn->ticket) && touches()) {
        wake(seven.child);
    }
}

static void let_in(struct conn *conn, enum seven_verdict verdict, uint64_t now)
{
    conn->how = verdict == SEVEN_REPLACED ? "replaced" : "admitted";
    if (verdict == SEVEN_REPLACED) {
        notify_loser(conn->ticket.slot);
        ap_log_cerror(APLOG_MARK, APLOG_INFO, 0, conn->c,
                      "all %u places are taken (PMod %" APR_UINT64_T_FMT
                      "): %s is let in, in place of the holder of place %u",
                      seven.conf->places, seven_pmod(seven.pool, now), conn->address,
                      conn->ticket.slot);
    }
    hold(conn, now);
}

static uint32_t refused_now(void)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < seven.shared->children; i++) {
        sum += atomic_load_explicit(&seven.shared->child[i].refused, memory_order_relaxed);
    }
    return sum;
}

static uint32_t exempt_now(void)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < seven.shared->children; i++) {
        sum += atomic_load_explicit(&seven.shared->child[i].exempt, memory_order_relaxed);
    }
    return sum;
}

/* Too many refused at once: told without being asked, where that is possible, and closed. */
static void dismiss(struct conn *conn)
{
    int fd = conn->fd;
    char buffer[8192];

    conn->c->aborted = 1;
    /* What has arrived is read, since closing over unread data resets the connection. */
    (void)!recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (!ap_ssl_conn_is_ssl(conn->c) && !conn->c->data_in_output_filters &&
        strcmp(ap_get_protocol(conn->c), AP_PROTOCOL_HTTP1) == 0) {
        const char *answer = apr_psprintf(conn->c->pool,
                                          "HTTP/1.1 503 Service Unavailable\r\nRetry-After: %ld\r\n"
                                          "Connection: close\r\nContent-Length: 0\r\n\r\n",
                                          seven.conf->retry_after);
        (void)!send(fd, answer, strlen(answer), MSG_DONTWAIT | MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
    }
}

/* A refused client keeps its worker for the leash at most, and refused clients together at most
 * half of the workers beyond k: being refused must not be a way to hold workers. */
static void refuse(struct conn *conn, uint64_t now)
{
    uint32_t spare = seven.conf->workers > seven.conf->places
                         ? (seven.conf->workers - seven.conf->places) / 2
                         : 0;

    conn->how = "refused";
    be_tense(now);
    ap_log_cerror(APLOG_MARK, APLOG_INFO, 0, conn->c,
                  "all %u places are taken (PMod %" APR_UINT64_T_FMT "): %s is refused",
                  seven.conf->places, seven_pmod(seven.pool, now), conn->address);
    if (!touches()) {
        return;
    }
    if (refused_now() >= (spare > 1 ? spare : 1)) {
        dismiss(conn);
        return;
    }
    conn->refused = 1;
    apr_table_setn(conn->c->notes, "short-lingering-close", "1");
    atomic_fetch_add(&seven.shared->child[seven.child].refused, 1);
    atomic_store(&conn->leash_us, now + LEASH);
    wake(seven.child);
}

static int is_exempt(const conn_rec *c)
{
    const apr_array_header_t *list = seven.conf->exempt;

    for (int i = 0; i < list->nelts; i++) {
        if (apr_ipsubnet_test(APR_ARRAY_IDX(list, i, apr_ipsubnet_t *), c->client_addr)) {
            return 1;
        }
    }
    return 0;
}

/* httpd wakes its children with requests of its own. They come from an address of this machine to
 * the same address, which nobody else can have. */
static int is_dummy(struct conn *conn)
{
    static const char head[] = "OPTIONS * HTTP/1.0\r\nUser-Agent: ";
    char buffer[512];
    ssize_t n;

    if (!apr_sockaddr_equal(conn->c->client_addr, conn->c->local_addr)) {
        return 0;
    }
    n = recv(conn->fd, buffer, sizeof(buffer) - 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < (ssize_t)sizeof(head)) {
        return 0;
    }
    buffer[n] = '\0';
    return strncmp(buffer, head, sizeof(head) - 1) == 0 &&
           strstr(buffer, "(internal dummy connection)") != NULL;
}

static void ask(struct conn *conn)
{
    uint64_t now = clock_us();
    enum seven_verdict verdict;

    if (is_exempt(conn->c) || (seven_free(seven.pool) == 0 && is_dummy(conn))) {
        conn->exempt = 1;
        conn->how = "exempt";
        atomic_fetch_add(&seven.shared->child[seven.child].exempt, 1);
        return;
    }
    atomic_store_explicit(&conn->evicted_us, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->deferred, 0, memory_order_relaxed);
    verdict = seven_readmit(seven.pool, now, &conn->ticket)
                  ? SEVEN_ADMITTED
                  : seven_admit(seven.pool, generator(), now, &conn->ticket);
    if (verdict == SEVEN_REFUSED) {
        refuse(conn, now);
    } else {
        let_in(conn, verdict, now);
    }
}

/* ---- the watcher: losers, the leash, progress of writers --------------------------------- */

union address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static int same_address(const apr_sockaddr_t *known, const union address *found)
{
    if (known->family != found->any.sa_family) {
        return 0;
    }
    return known->family == AF_INET6
               ? known->sa.sin6.sin6_port == found->in6.sin6_port &&
                     memcmp(&known->sa.sin6.sin6_addr, &found->in6.sin6_addr, 16) == 0
               : known->sa.sin.sin_port == found->in.sin_port &&
                     known->sa.sin.sin_addr.s_addr == found->in.sin_addr.s_addr;
}

static int is_socket_of(const struct conn *conn, int fd)
{
    union address peer = {.any.sa_family = AF_UNSPEC}, local = peer;
    socklen_t peer_size = sizeof(peer), local_size = sizeof(local);

    return getpeername(fd, &peer.any, &peer_size) == 0 && same_address(conn->peer, &peer) &&
           getsockname(fd, &local.any, &local_size) == 0 && same_address(conn->local, &local);
}

/* Pinned: a descriptor of its socket, to be handed back; -1: it has been closed. While the worker
 * closes, with a close that nobody announces, only a duplicate cannot become another's. */
static int borrow(const struct conn *conn)
{
    int fd = conn->fd;

    if (atomic_load(&conn->closing)) {
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0 && !is_socket_of(conn, fd)) {
            close(fd);
            fd = -1;
        }
    }
    return fd;
}

static void hand_back(const struct conn *conn, int fd)
{
    if (atomic_load(&conn->closing) && fd >= 0) {
        close(fd);
    }
}

/* Pinned: sets the worker free. A client that was being written to must not take what it got for a
 * whole response (one without length ends with the connection): it is reset. Others see a plain
 * close. */
static void cut(const struct conn *conn)
{
    int fd = borrow(conn);
    struct sockaddr reset = {.sa_family = AF_UNSPEC};

    if (fd >= 0 && atomic_load(&conn->wrote)) {
        (void)connect(fd, &reset, sizeof(reset));
    }
    if (fd >= 0) {
        shutdown(fd, SHUT_RDWR);
    }
    hand_back(conn, fd);
}

/* What is said of a connection, once it is no longer pinned. */
struct obituary {
    const char *what; /* happened; NULL: nothing */
    char address[64];
    const char *doing;
    uint64_t held_us;
};

static void write_obituary(struct obituary *o, const char *what, const struct conn *conn,
                           uint64_t since_us, uint64_t now)
{
    o->what = what;
    apr_cpystrn(o->address, conn->address, sizeof(o->address));
    o->doing = phase_names[atomic_load(&conn->phase)];
    o->held_us = now > since_us ? now - since_us : 0;
}

static void publish_obituary(const struct obituary *o)
{
    if (o->what != NULL) {
        ap_log_error(APLOG_MARK, APLOG_INFO, 0, seven.server,
                     "%s %s after %" APR_UINT64_T_FMT " ms, in its %s", o->what, o->address,
                     o->held_us / MS, o->doing);
    }
}

/* Pinned: the connection lost its place. */
static void evict(seven_entry *entry, seven_ticket ticket, uint64_t now, struct obituary *o)
{
    struct conn *conn = entry->thing;
    uint64_t lost_us = seven_lost_us(seven.pool, ticket.slot);

    seven_entry_set(entry, NULL);
    atomic_store(&conn->evicted, 1);
    /* The time of the loss may not be noted yet: then there stands an earlier holder's. */
    atomic_store(&conn->evicted_us, lost_us >= conn->since_us && !atomic_load(&conn->deferred) &&
                                            atomic_load(&conn->moment_us) == 0
                                        ? lost_us
                                        : now);
    atomic_fetch_add(&seven.shared->evicted, 1);
    write_obituary(o, "evicted", conn, conn->since_us, now);
    cut(conn);
}

static uint64_t to_time(uint64_t bytes)
{
    return bytes * SECOND / (uint64_t)seven.conf->min_rate;
}

/* Linux's struct tcp_info goes on where the C library's ends. */
struct long_tcp_info {
    struct tcp_info head;
    uint64_t pacing_rate, max_pacing_rate, bytes_acked;
};

/* Pinned: what the client has acknowledged since the last look buys it time. */
static void credit_writer(struct conn *conn, const seven_ticket *ticket, uint64_t now)
{
    struct long_tcp_info info;
    socklen_t size = sizeof(info);
    uint64_t acked, parked = atomic_load(&conn->parked_us);
    int fd = borrow(conn), known = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;

    hand_back(conn, fd);
    if (!known || size < sizeof(info) || info.bytes_acked <= conn->acked) {
        return;
    }
    acked = info.bytes_acked - conn->acked;
    conn->acked = info.bytes_acked;
    if (parked != 0) {
        parked += to_time(acked);
        now += seven_pool_policy(seven.pool)->credit_us;
        atomic_store(&conn->parked_us, parked < now ? parked : now);
    } else if (ticket != NULL && atomic_load(&conn->requests) > 0) {
        seven_progress(seven.pool, *ticket, now, to_time(acked));
    }
}

static int is_writable(const struct conn *conn)
{
    struct pollfd out = {.fd = borrow(conn), .events = POLLOUT};
    int writable = poll(&out, 1, 0) == 1 && out.revents == POLLOUT;

    hand_back(conn, out.fd);
    return writable;
}

/* A victim is not reset in the middle of a response that it takes: it may have all of it already,
 * and its worker is as good as free. Nor as soon as the server has done its work for it, which is
 * what it was spared for. Neither lasts. */
static int has_a_moment(struct conn *conn, uint64_t now)
{
    int phase = atomic_load(&conn->phase);

    if ((phase != HANDLER && phase != RESPONSE) ||
        !(atomic_load(&conn->deferred) || (atomic_load(&conn->wrote) && is_writable(conn)))) {
        return 0;
    }
    if (atomic_load(&conn->moment_us) == 0) {
        atomic_store(&conn->moment_us, now + MOMENT);
    }
    return now < atomic_load(&conn->moment_us);
}

/* Pinned: sees to the connection's place; returns when to look again. */
static uint64_t attend_place(seven_entry *entry, seven_ticket ticket, uint64_t now,
                             struct obituary *o)
{
    struct conn *conn = entry->thing;
    seven_ticket still;

    if (settle(conn, ticket) || !seven_entry_ticket(entry, &still) || still.slot != ticket.slot ||
        still.serial != ticket.serial) {
        return now + TICK_WATCH; /* it has its place, or has just given it back */
    }
    if (!touches()) {
        seven_entry_set(entry, NULL);
        write_obituary(o, "DetectOnly: would have evicted", conn, conn->since_us, now);
        return now + TICK_WATCH;
    }
    if (atomic_load(&conn->working) > 0 && !atomic_load(&conn->wrote)) {
        /* To cut off a client whose response a handler prepares would free nothing. */
        atomic_store(&conn->deferred, 1);
        return now + TICK_LEAD;
    }
    if (has_a_moment(conn, now)) {
        return now + TICK_TENSE;
    }
    evict(entry, ticket, now, o);
    return now + TICK_WATCH;
}

/* Pinned: does what must be done about the connection now; returns when to look again. */
static uint64_t attend(seven_entry *entry, int sample, uint64_t now, struct obituary *o)
{
    struct conn *conn = entry->thing;
    uint64_t next = now + TICK_WATCH, leash = atomic_load(&conn->leash_us);
    seven_ticket ticket;
    bool holds = seven_entry_ticket(entry, &ticket);

    if (leash != 0 && leash <= now) {
        atomic_store(&conn->leash_us, 0);
        write_obituary(o, "cut off", conn, leash - LEASH, now);
        cut(conn);
    } else if (leash != 0) {
        next = leash < next ? leash : next;
    }
    if (holds) {
        uint64_t again = attend_place(entry, ticket, now, o);
        next = again < next ? again : next;
    }
    if (sample) {
        credit_writer(conn, holds ? &ticket : NULL, now);
    }
    return next;
}

/* Looks at one connection; returns when it must be looked at again at the latest. */
static uint64_t look_at(seven_entry *entry, int sample, uint64_t now)
{
    struct obituary o = {.what = NULL};
    uint64_t next;

    if (!seven_pin(entry)) {
        return now + MS; /* its worker is at it */
    }
    next = attend(entry, sample, now, &o);
    seven_unpin(entry);
    publish_obituary(&o);
    return next;
}

static int is_live(const seven_entry *entry)
{
    return atomic_load_explicit(&entry->state, memory_order_relaxed) != 0;
}

/* Returns when to look again. */
static uint64_t look_at_all(uint64_t now, uint64_t *sampled)
{
    int used = atomic_load(&seven.table.used), sample = now - *sampled >= TICK_WATCH;
    uint64_t next = now + TICK_IDLE;

    for (int i = 0; i < used; i++) {
        seven_entry *entry = &seven.table.entries[i];

        if (is_live(entry)) {
            uint64_t again = look_at(entry, sample, now);
            next = again < next ? again : next;
        }
    }
    if (sample) {
        *sampled = now;
    }
    return next;
}

/* Lets go of the connection that the MPM has parked longest past t_M, progress considered. */
static int shed_one(uint64_t now)
{
    int used = atomic_load(&seven.table.used);
    struct obituary o = {.what = NULL};
    uint64_t oldest = now - seven_t_m(seven.pool);
    seven_entry *found = NULL;

    for (int i = 0; i < used; i++) {
        seven_entry *entry = &seven.table.entries[i];
        struct conn *conn;

        if (!is_live(entry) || !seven_pin(entry)) {
            continue;
        }
        conn = entry->thing;
        if (atomic_load(&conn->parked_us) != 0 && atomic_load(&conn->parked_us) < oldest &&
            !atomic_load(&conn->evicted)) {
            oldest = atomic_load(&conn->parked_us);
            found = entry;
        }
        seven_unpin(entry);
    }
    if (found != NULL && seven_pin(found)) {
        struct conn *conn = found->thing;

        if (atomic_load(&conn->parked_us) == oldest) { /* else another's by now, or at work */
            atomic_store(&conn->evicted, 1);
            atomic_fetch_add(&seven.shared->parked_shed, 1);
            write_obituary(&o, "closed, parked,", conn, oldest, now);
            cut(conn);
        }
        seven_unpin(found);
    }
    publish_obituary(&o);
    return o.what != NULL;
}

/* ---- the leader: accept queues, reserve, episodes, sweeps -------------------------------- */

/* Connections that the kernel has accepted and no worker has taken. */
static uint32_t accept_queue(void)
{
    uint32_t sum = 0;

    for (const ap_listen_rec *l = ap_listeners; l != NULL; l = l->next) {
        struct tcp_info info;
        socklen_t size = sizeof(info);
        apr_os_sock_t fd;

        if (l->sd != NULL && apr_os_sock_get(&fd, l->sd) == APR_SUCCESS &&
            getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
            sum += info.tcpi_unacked;
        }
    }
    return sum;
}

struct workers {
    uint32_t alive, ready;
    uint32_t coming; /* threads that a child of this generation has yet to start */
    uint32_t marked; /* prefork's of an old generation, whether a client keeps them or not */
    uint32_t slots;  /* for children that the MPM has not started */
    uint32_t parked; /* connections that the MPM holds without a worker */
};

/* An idle worker in a child that does not accept is of no use: event keeps the last one back, and
 * stops for the sake of parked connections too. */
static void count_threads(struct workers *w, const process_score *process, int child, int threads)
{
    int threaded = AP_MPMQ_NOT_SUPPORTED, dead = 0;
    ap_generation_t running = ap_get_scoreboard_global()->running_generation;

    ap_mpm_query(AP_MPMQ_IS_THREADED, &threaded);
    for (int i = 0; i < threads; i++) {
        int status = ap_get_scoreboard_worker_from_indexes(child, i)->status;

        dead += status == SERVER_DEAD;
        w->marked += status == SERVER_GRACEFUL && threaded == AP_MPMQ_NOT_SUPPORTED &&
                     process->generation != running &&
                     process->generation >= atomic_load(&seven.shared->born);
        w->ready += (status == SERVER_READY || status == SERVER_STARTING) && !process->quiescing &&
                    !process->not_accepting;
    }
    w->alive += (uint32_t)(threads - dead);
    if (process->quiescing) {
        w->slots += dead == threads; /* it has ended, and the MPM will notice */
    } else if (process->generation == running) {
        w->coming += (uint32_t)dead;
    }
}

static void count_workers(struct workers *w)
{
    int children = 0, threads = 0;

    memset(w, 0, sizeof(*w));
    ap_mpm_query(AP_MPMQ_HARD_LIMIT_DAEMONS, &children);
    ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads);
    for (int i = 0; i < children; i++) {
        const process_score *process = ap_get_scoreboard_process(i);

        if (process == NULL || process->pid == 0) {
            w->slots++;
            continue;
        }
        w->parked += process->write_completion + process->keep_alive + process->wait_io;
        count_threads(w, process, i, threads > 0 ? threads : 1);
    }
}

/* Clients that the workers are busy with, as far as is known: those of children that share no
 * memory with this one, and those spared after they lost their place, are not. */
static uint32_t clients_now(void)
{
    return seven.conf->places - seven_free(seven.pool) + refused_now() + exempt_now();
}

/* Children that have too many parked connections to accept more let the idlest go. */
static void shed_parked(uint32_t count)
{
    int daemons = 0;

    ap_mpm_query(AP_MPMQ_HARD_LIMIT_DAEMONS, &daemons);
    for (int i = 0; i < daemons; i++) {
        const process_score *process = ap_get_scoreboard_process(i);

        for (uint32_t j = 0; process->not_accepting && j < seven.shared->children; j++) {
            if (atomic_load(&seven.shared->child[j].pid) == process->pid) {
                atomic_store(&seven.shared->child[j].shed, count);
                if (j != seven.child) {
                    wake(j); /* we look again soon, and would at once and without end */
                }
            }
        }
    }
}

static int is_stopping(void)
{
    int state = AP_MPMQ_RUNNING;

    return ap_mpm_query(AP_MPMQ_MPM_STATE, &state) == APR_SUCCESS && state == AP_MPMQ_STOPPING;
}

/* Whether there is a child of the running generation that is not about to end. */
static int has_successors(void)
{
    ap_generation_t running = ap_get_scoreboard_global()->running_generation;
    int children = 0;

    ap_mpm_query(AP_MPMQ_HARD_LIMIT_DAEMONS, &children);
    for (int i = 0; i < children; i++) {
        const process_score *process = ap_get_scoreboard_process(i);

        if (process != NULL && process->pid != 0 && process->generation == running &&
            !process->quiescing) {
            return 1;
        }
    }
    return 0;
}

/* Whether the parent still reads the configuration of a new generation, which may take it long, or
 * has just read it: there is no room to be made for children that are not started yet. */
static int is_restarting(void)
{
    ap_generation_t running = ap_get_scoreboard_global()->running_generation;
    int reads = atomic_load(&seven.shared->configured) != running;
    int childless = !reads && !has_successors();

    seven.childless = childless ? seven.childless + 1 : 0;
    return reads || (childless && seven.childless <= LOOKS_STUCK);
}

/* Whether workers are about to be there that nobody need make room for: threads of a child that
 * starts, children that the MPM has yet to start, or the successor of an old child that has no
 * client. A promise that is not kept for long, with no worker more, is none: a child may hang, and
 * worker counts a thread as idle whose entry in the scoreboard an old child has written over. */
static int is_promised(const struct workers *w, uint32_t clients, uint64_t now)
{
    int more = w->alive < seven.conf->workers && w->slots > 0;
    int promised = is_restarting() || more || w->coming > 0 || w->marked > clients;

    if (!promised || w->alive > seven.alive || now - seven.promised_us > SECOND) {
        seven.promised = 0;
    }
    seven.alive = w->alive;
    seven.promised_us = now;
    return promised && seven.promised++ < LOOKS_PATIENT;
}

/* Whether nobody can ask for a place though some are free, and for so long that workers which have
 * a connection and have not asked yet are not the reason. */
static int is_stuck(const struct workers *w, uint32_t clients)
{
    uint32_t looks = clients < w->alive || w->parked > 0 ? LOOKS_PATIENT : LOOKS_STUCK;

    if (seven_free(seven.pool) == 0 || is_stopping()) {
        seven.stuck = 0;
    } else if (seven.stuck < looks) {
        seven.stuck++;
    }
    return seven.stuck >= looks;
}

/* With all workers held, nobody can ask: places are taken for those who wait in the accept queue,
 * from holders past t_M, or by the law, as if they had asked. A leader of an old generation has
 * closed its listeners; if it leads, it is in the way of the new one. */
static void relieve_queue(uint64_t now)
{
    uint32_t waiting = is_stopping() ? 1 : accept_queue(), most = seven.conf->places / 8 + 2;
    uint32_t clients;
    enum seven_relief relief;
    struct workers w;
    seven_ticket loser;

    if (waiting == 0) {
        seven.stuck = 0;
        return;
    }
    count_workers(&w);
    clients = clients_now();
    if (w.ready > 0) {
        seven.stuck = 0;
        return; /* it is about to take one */
    }
    be_tense(now);
    if (is_promised(&w, clients, now)) {
        seven.stuck = 0;
        return;
    }
    waiting = waiting < most ? waiting : most;
    shed_parked(waiting);
    relief = is_stuck(&w, clients) ? SEVEN_BY_LAW : SEVEN_OVERDUE_ONLY;
    while (waiting-- > 0 && seven_relieve(seven.pool, generator(), now, relief, &loser)) {
        notify_loser(loser.slot);
    }
}

/* One warning an overload, and a notice of how it went. */
static void follow_overload(uint64_t now)
{
    seven_tally tally;
    seven_census census;
    uint64_t began = seven.shared->episode.began_us;
    enum seven_news news;

    seven_count(seven.pool, &tally);
    news = seven_follow(&seven.shared->episode, &tally, now, SECOND, CALM);
    if (news == SEVEN_NO_NEWS) {
        return;
    }
    tally = seven_episode_tally(&seven.shared->episode);
    seven_survey(seven.pool, now, &census);
    ap_log_error(APLOG_MARK, news == SEVEN_OVER ? APLOG_NOTICE : APLOG_WARNING, 0, seven.server,
                 "%s: %u of %u places free, %u holders past t_M (%" APR_UINT64_T_FMT
                 " ms); in %" APR_UINT64_T_FMT
                 " s newcomers let in to a free place: %" APR_UINT64_T_FMT
                 ", in another's place: %" APR_UINT64_T_FMT ", refused: %" APR_UINT64_T_FMT
                 "; places freed ahead of need: %" APR_UINT64_T_FMT "%s",
                 news == SEVEN_OVER ? "the overload is over"
                                    : "the server is full of clients that hold it up",
                 census.free, seven.conf->places, census.overdue, seven_t_m(seven.pool) / MS,
                 (now - began) / SECOND, tally.admitted, tally.replaced, tally.refused,
                 tally.relieved, touches() ? "" : " (DetectOnly: nobody is touched)");
}

/* True if a child is no more. Its entry is set free by whoever noticed, once its places are. */
static bool is_gone(const void *unused, uint32_t child)
{
    (void)unused;
    return child >= seven.shared->children || atomic_load(&seven.shared->child[child].pid) <= 0;
}

/* A child may die at any instruction, between winning a place and saying so included. Its entry
 * goes to another child only once all its places are back: whoever sweeps marks the dead first, and
 * frees what it marked itself. */
static void sweep(uint64_t now)
{
    const pid_t mine = -getpid();

    for (uint32_t i = 0; i < seven.shared->children; i++) {
        struct child *child = &seven.shared->child[i];
        pid_t pid = atomic_load(&child->pid);

        if (pid < 0 || (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)) {
            atomic_compare_exchange_strong(&child->pid, &pid, mine);
        }
    }
    seven_reclaim(seven.pool, now, ORPHAN_AGE, is_gone, NULL);
    for (uint32_t i = 0; i < seven.shared->children; i++) {
        struct child *child = &seven.shared->child[i];
        pid_t marked = mine;

        if (atomic_load(&child->pid) == mine) {
            atomic_store(&child->refused, 0);
            atomic_store(&child->exempt, 0);
            atomic_compare_exchange_strong(&child->pid, &marked, 0);
        }
    }
}

static int leads(uint64_t now)
{
    return !(is_stopping() && has_successors()) &&
           seven_lead(&seven.shared->leader, seven.child, now, LEASE);
}

static uint64_t lead(uint64_t now)
{
    if (touches()) {
        relieve_queue(now);
    }
    keep_reserve(now, (int)seven.conf->reserved);
    if (seven_free(seven.pool) >= seven.conf->roomy + seven.conf->roomy / 2 &&
        atomic_load(&seven.shared->tense_until) + CALM < now) {
        atomic_store(&seven.shared->tight, 0);
    }
    follow_overload(now);
    if (atomic_load(&seven.shared->swept_us) + SECOND < now) {
        atomic_store(&seven.shared->swept_us, now);
        sweep(now);
    }
    return now + (atomic_load(&seven.shared->tense_until) > now ? TICK_TENSE : TICK_LEAD);
}

static void sleep_until(sem_t *sem, uint64_t until)
{
    struct timespec t = {.tv_sec = (time_t)(until / SECOND),
                         .tv_nsec = (long)(until % SECOND * 1000)};

    sem_clockwait(sem, CLOCK_MONOTONIC, &t); /* waking early is harmless */
    while (sem_trywait(sem) == 0) {          /* one look is enough for all who asked */
    }
}

static void *watch(void *unused)
{
    struct child *self = &seven.shared->child[seven.child];
    uint64_t sampled = 0;

    (void)unused;
    while (!atomic_load(&seven.stop)) {
        uint64_t now = clock_us(), next = look_at_all(now, &sampled);
        uint32_t shed = atomic_exchange(&self->shed, 0);

        while (shed-- > 0 && shed_one(now)) {
        }
        if (leads(now)) {
            uint64_t again = lead(now);
            next = again < next ? again : next;
        } else {
            seven.stuck = seven.promised = seven.childless = 0;
        }
        sleep_until(&self->wake, next);
    }
    return NULL;
}

/* ---- filters: who waits for whom --------------------------------------------------------- */

/* An upgraded connection has no handler that could end, and is judged by its bytes. */
static int is_tunnel(const struct exchange *exchange)
{
    const request_rec *r = exchange->r;

    return r != NULL && (r->status == HTTP_SWITCHING_PROTOCOLS ||
                         (r->method_number == M_CONNECT && r->status == HTTP_OK));
}

/* The client's turn: its clock runs. Returns what begin_work() wants. */
static int end_work(struct exchange *exchange, enum phase phase)
{
    int was = exchange->working;

    if (was) {
        set_phase(exchange->conn, phase);
        set_working(exchange, 0);
    }
    return was;
}

static void begin_work(struct exchange *exchange, int was)
{
    if (was && exchange->r == NULL) {
        set_phase(exchange->conn, HEAD); /* its request has ended: the next head is awaited */
    } else if (was && is_tunnel(exchange)) {
        set_phase(exchange->conn, TUNNEL);
    } else if (was) {
        set_phase(exchange->conn, HANDLER);
        set_working(exchange, 1);
    }
}

/* Bytes from the client buy it time, once it has asked for something: not those of a handshake or a
 * head, or whoever sends half a head would be ahead of whoever is about to. */
static void credit_reader(struct conn *conn, const apr_bucket_brigade *bb)
{
    uint64_t paid;
    apr_off_t length;

    if (!conn->holds || atomic_load_explicit(&conn->requests, memory_order_relaxed) == 0 ||
        apr_brigade_length((apr_bucket_brigade *)bb, 0, &length) != APR_SUCCESS || length <= 0) {
        return;
    }
    conn->unpaid += (uint64_t)length;
    paid = to_time(conn->unpaid);
    if (paid >= SEVEN_TICK_US) {
        seven_progress(seven.pool, conn->ticket, clock_us(), paid);
        conn->unpaid = paid % SEVEN_TICK_US * (uint64_t)seven.conf->min_rate / SECOND;
    }
}

static int is_whole_line(apr_bucket_brigade *bb)
{
    const char *data = NULL;
    apr_size_t length = 0;

    for (apr_bucket *b = APR_BRIGADE_LAST(bb); b != APR_BRIGADE_SENTINEL(bb);
         b = APR_BUCKET_PREV(b)) {
        if (APR_BUCKET_IS_EOS(b)) {
            return 1;
        }
        if (!APR_BUCKET_IS_METADATA(b) && b->length > 0) {
            return apr_bucket_read(b, &data, &length, APR_NONBLOCK_READ) == APR_SUCCESS &&
                   length > 0 && data[length - 1] == '\n';
        }
    }
    return 0;
}

static apr_status_t seven_in(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode,
                             apr_read_type_e block, apr_off_t bytes)
{
    struct exchange *exchange = f->ctx;
    int idle = exchange->r == NULL; /* between requests whoever reads, waits */
    int was = (idle || block == APR_BLOCK_READ) && end_work(exchange, idle ? HEAD : BODY);
    apr_status_t rv = ap_get_brigade(f->next, bb, mode, block, bytes);
    int nothing = rv != APR_SUCCESS || APR_BRIGADE_EMPTY(bb);
    if (mode == AP_MODE_GETLINE && block == APR_NONBLOCK_READ) {
        /* mod_reqtimeout reads lines so, and waits for the rest of one by itself. */
        was = !nothing && is_whole_line(bb);
        if (!was) {
            end_work(exchange, idle ? HEAD : BODY);
        }
    }
    begin_work(exchange, was);
    if (!nothing && mode != AP_MODE_SPECULATIVE && f->c->master == NULL) {
        credit_reader(exchange->conn, bb);
    }
    return rv;
}

/* What is small, with nothing pending before it and no flush in it, leaves at once. */
static int may_block(const conn_rec *c, const apr_bucket_brigade *bb)
{
    apr_off_t sum = 0;

    if (c->data_in_output_filters) {
        return 1;
    }
    for (const apr_bucket *b = APR_BRIGADE_FIRST(bb); b != APR_BRIGADE_SENTINEL(bb);
         b = APR_BUCKET_NEXT(b)) {
        if (APR_BUCKET_IS_FLUSH(b) || b->length == (apr_size_t)-1) {
            return 1;
        }
        sum += (apr_off_t)b->length;
    }
    return sum > SMALL_WRITE;
}

static int ends_request(const apr_bucket_brigade *bb)
{
    for (const apr_bucket *b = APR_BRIGADE_FIRST(bb); b != APR_BRIGADE_SENTINEL(bb);
         b = APR_BUCKET_NEXT(b)) {
        if (AP_BUCKET_IS_EOR(b)) {
            return 1;
        }
    }
    return 0;
}

static apr_status_t seven_out(ap_filter_t *f, apr_bucket_brigade *bb)
{
    struct exchange *exchange = f->ctx;
    int was = 0;
    apr_status_t rv;

    if (exchange->r != NULL && f->c->master == NULL) {
        atomic_store_explicit(&exchange->conn->wrote,
                              !is_tunnel(exchange) && !ap_is_HTTP_INFO(exchange->r->status),
                              memory_order_release);
    }
    /* Into HTTP/2's secondary connections one writes until the client has taken enough. */
    if (exchange->working && (f->c->master != NULL || is_tunnel(exchange) || may_block(f->c, bb))) {
        /* HTTP/2's has done its work with the last; its request lives on until that is taken. */
        was = end_work(exchange, RESPONSE) && !(f->c->master != NULL && ends_request(bb));
    }
    rv = ap_pass_brigade(f->next, bb);
    begin_work(exchange, was);
    return rv;
}

/* ---- hooks ------------------------------------------------------------------------------ */

static apr_status_t connection_ends(void *data)
{
    struct conn *conn = data;

    give_back(conn);
    leave_table(conn);
    return APR_SUCCESS;
}

/* HTTP/2's secondary connections share the place of the first, but are at work on their own. */
static int pre_connection_secondary(conn_rec *c)
{
    struct exchange *exchange;
    struct conn *conn = conn_of(c->master);

    if (conn != NULL) {
        exchange = apr_pcalloc(c->pool, sizeof(*exchange));
        exchange->conn = conn;
        ap_set_module_config(c->conn_config, &seven_module, exchange);
        ap_add_input_filter("SEVEN_IN", exchange, NULL, c);
        ap_add_output_filter("SEVEN_OUT", exchange, NULL, c);
    }
    return DECLINED;
}

static int seven_pre_connection(conn_rec *c, void *csd)
{
    struct conn *conn;
    apr_os_sock_t fd;

    if (seven.table.entries == NULL) {
        return DECLINED;
    }
    if (c->master != NULL) {
        return pre_connection_secondary(c);
    }
    if (c->sbh == NULL || apr_os_sock_get(&fd, csd) != APR_SUCCESS) {
        return DECLINED; /* to a proxy's backend */
    }
    conn = apr_pcalloc(c->pool, sizeof(*conn));
    conn->exchange.conn = conn;
    conn->c = c;
    conn->address = c->client_ip;
    conn->how = "-";
    conn->entry = -1;
    conn->fd = fd;
    conn->peer = c->client_addr;
    conn->local = c->local_addr;
    enter_table(conn);
    ap_set_module_config(c->conn_config, &seven_module, &conn->exchange);
    ap_add_input_filter("SEVEN_IN", &conn->exchange, NULL, c);
    ap_add_output_filter("SEVEN_OUT", &conn->exchange, NULL, c);
    /* Before the MPM's and others' cleanups: the connection must be whole while it is in the table.
     */
    apr_pool_pre_cleanup_register(c->pool, conn, connection_ends);
    return DECLINED;
}

/* A worker starts on a connection: a new one, or one that the MPM had parked. */
static int seven_process_connection(conn_rec *c)
{
    struct conn *conn = c->master == NULL ? conn_of(c) : NULL;

    if (conn == NULL || conn->holds || conn->refused || conn->exempt) {
        return DECLINED;
    }
    if (conn->entry < 0) {
        dismiss(conn); /* more connections than a process is made for */
        return OK;
    }
    ask(conn);
    return c->aborted ? OK : DECLINED;
}

static int is_lingering(const conn_rec *c)
{
    return c->cs != NULL &&
           (c->cs->state == CONN_STATE_LINGER || c->cs->state == CONN_STATE_LINGER_NORMAL ||
            c->cs->state == CONN_STATE_LINGER_SHORT);
}

/* The MPM parks the connection: no worker, no place. */
static void seven_suspend_connection(conn_rec *c, request_rec *r)
{
    struct conn *conn = conn_of(c);

    (void)r;
    if (conn == NULL) {
        return;
    }
    give_back(conn);
    end_work(&conn->exchange, HEAD);
    if (is_lingering(c)) {
        leave_table(conn); /* the MPM may close the socket whenever it likes */
    } else {
        atomic_store_explicit(&conn->parked_us, clock_us(), memory_order_release);
    }
}

static void seven_resume_connection(conn_rec *c, request_rec *r)
{
    struct conn *conn = conn_of(c);

    (void)r;
    if (conn != NULL) {
        atomic_store_explicit(&conn->parked_us, 0, memory_order_relaxed);
    }
}

/* Flushing and lingering may hold the worker for long, and end with an unannounced close. */
static int seven_pre_close_connection(conn_rec *c)
{
    struct conn *conn = c->master == NULL ? conn_of(c) : NULL;

    if (conn == NULL || conn->entry < 0 || conn->closing) {
        return DECLINED;
    }
    end_work(&conn->exchange, RESPONSE);
    if (touches() && !conn->holds && !conn->refused && !conn->exempt && c->data_in_output_filters) {
        /* Its time was up while it was parked; now it holds a worker, but no place. */
        atomic_store(&conn->leash_us, clock_us() + LEASH);
        wake(seven.child);
    }
    if (pin(entry_of(conn))) {
        atomic_store(&conn->closing, 1);
        seven_unpin(entry_of(conn));
    }
    return DECLINED;
}

/* Of a client's first request that came to a good end. The age that counts knows of bytes that
 * paid, and our own watch of the time that the server took: what the client took is under both. */
static void learn(struct conn *conn, const request_rec *r)
{
    uint64_t now, age;
    int64_t waited;

    if (atomic_load_explicit(&conn->learned, memory_order_relaxed) || !conn->holds ||
        conn->c->aborted || r->status >= HTTP_BAD_REQUEST || atomic_load(&conn->evicted) ||
        !seven_holds(seven.pool, conn->ticket) || atomic_exchange(&conn->learned, 1)) {
        return;
    } /* Of work that goes on, only the beginning has been added up. */
    now = clock_us();
    waited = (int64_t)(now - conn->since_us) - atomic_load(&conn->worked_us) -
             atomic_load(&conn->working) * (int64_t)now;
    waited = waited > 0 ? waited : 0;
    age = seven_age(seven.pool, conn->ticket, now);
    seven_learn(seven.pool, (uint64_t)waited < age ? (uint64_t)waited : age, now);
}

/* The response has left, or will not. */
static apr_status_t request_ends(void *data)
{
    const request_rec *r = data;
    struct exchange *exchange = ap_get_module_config(r->connection->conn_config, &seven_module);

    learn(exchange->conn, r);
    atomic_fetch_sub(&exchange->conn->requests, 1);
    if (exchange->r != r) {
        return APR_SUCCESS; /* pipelined: the next has begun */
    }
    exchange->r = NULL;
    atomic_store_explicit(&exchange->conn->wrote, 0, memory_order_relaxed);
    if (exchange != &exchange->conn->exchange) {
        set_working(exchange, 0);
    } /* else the worker works on, until it waits for its client, closes, or leaves */
    return APR_SUCCESS;
}

/* The head is there: the server is at work for its client. */
static int seven_post_read_request(request_rec *r)
{
    struct exchange *exchange = ap_get_module_config(r->connection->conn_config, &seven_module);

    if (exchange == NULL || r->main != NULL || r->prev != NULL) {
        return DECLINED;
    }
    exchange->r = r;
    atomic_fetch_add(&exchange->conn->requests, 1);
    set_phase(exchange->conn, HANDLER);
    set_working(exchange, 1);
    apr_pool_cleanup_register(r->pool, r, request_ends, apr_pool_cleanup_null);
    if (exchange->conn->refused) {
        apr_table_setn(r->err_headers_out, "Retry-After",
                       apr_ltoa(r->pool, seven.conf->retry_after));
        r->connection->keepalive = AP_CONN_CLOSE;
        return HTTP_SERVICE_UNAVAILABLE;
    }
    return DECLINED;
}

static int seven_log_transaction(request_rec *r)
{
    const struct conn *conn = conn_of(r->connection);

    if (conn != NULL) {
        apr_table_setn(r->notes, "seven", atomic_load(&conn->evicted) ? "evicted" : conn->how);
    }
    return DECLINED;
}

/* The parent, when a child is gone. */
static void seven_child_status(server_rec *s, pid_t pid, ap_generation_t generation, int slot,
                               mpm_child_status status)
{
    (void)s;
    (void)generation;
    (void)slot;
    if (status != MPM_CHILD_EXITED || seven.shared == NULL) {
        return;
    }
    for (uint32_t i = 0; i < seven.shared->children; i++) {
        pid_t expected = pid;

        atomic_compare_exchange_strong(&seven.shared->child[i].pid, &expected, DEAD);
    }
    sweep(clock_us());
}

static apr_status_t child_ends(void *unused)
{
    struct timespec until;

    (void)unused;
    if (seven.watching) {
        atomic_store(&seven.stop, 1);
        wake(seven.child);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++; /* it may wait for a lock that a signal handler, we, interrupted */
        pthread_clockjoin_np(seven.watcher, NULL, CLOCK_MONOTONIC, &until);
        seven.watching = 0;
    }
    atomic_store(&seven.shared->child[seven.child].pid, DEAD);
    return APR_SUCCESS;
}

/* The watcher takes no signals: they are the MPM's threads'. */
static int start_watcher(void)
{
    sigset_t all, before;
    int rv;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rv = pthread_create(&seven.watcher, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rv;
}

static int claim_entry(void)
{
    for (seven.child = 0; seven.child < seven.shared->children; seven.child++) {
        pid_t expected = 0;

        /* Losing means that it is another child's. */
        if (atomic_compare_exchange_strong(&seven.shared->child[seven.child].pid, &expected,
                                           getpid())) {
            return 1;
        }
    }
    return 0;
}

static void seven_child_init(apr_pool_t *pchild, server_rec *s)
{
    int threads = 0, rv;
    ap_generation_t nobody = -1;

    if (seven.shared == NULL) {
        return;
    }
    atomic_compare_exchange_strong(&seven.shared->born, &nobody,
                                   ap_get_scoreboard_global()->running_generation);
    ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads);
    if (!claim_entry() && (sweep(clock_us()), !claim_entry())) {
        ap_log_error(APLOG_MARK, APLOG_ERR, 0, s,
                     "mod_seven does not protect child %" APR_PID_T_FMT
                     ": there are more children than ServerLimit foresees",
                     getpid());
        return;
    }
    seven.server = s;
    /* Not from a pool: connections may end after all pools of the child. Untouched, it costs
     * nothing. */
    seven.table.size = (threads > 0 ? threads : 1) * 64 + 1024;
    seven.table.entries = calloc((size_t)seven.table.size, sizeof(seven_entry));
    rv = seven.table.entries == NULL ? ENOMEM : start_watcher();
    if (rv != 0) {
        ap_log_error(APLOG_MARK, APLOG_ERR, rv, s, "mod_seven cannot start its watcher");
        seven.table.entries = NULL;
        return;
    }
    seven.watching = 1;
    apr_pool_pre_cleanup_register(pchild, NULL, child_ends);
}

/* ---- status ------------------------------------------------------------------------------ */

struct figures {
    seven_census census;
    seven_tally tally;
    uint32_t by_phase[PHASES], exempt;
    uint64_t now;
};

static void take_figures(struct figures *f)
{
    memset(f, 0, sizeof(*f));
    f->now = clock_us();
    seven_survey(seven.pool, f->now, &f->census);
    seven_count(seven.pool, &f->tally);
    for (uint32_t slot = 0; slot < seven.conf->places; slot++) {
        seven_ticket ticket;
        int phase = atomic_load_explicit(&seven.phases[slot], memory_order_relaxed);

        if (seven_holder(seven.pool, slot, &ticket) != SEVEN_FREE) {
            f->by_phase[phase]++;
        }
    }
    f->exempt = exempt_now();
}

static const char *strategy_name(void)
{
    return seven_strategy_name(seven_pool_policy(seven.pool)->strategy);
}

/* A figure: what it is, a name for machines, a value. */
enum kind { GAUGE, COUNTER, TIME }; /* a TIME is in microseconds */
typedef void emit(request_rec *r, enum kind kind, const char *name, uint64_t value);

static void emit_figures(request_rec *r, emit *say)
{
    struct figures f;
    const seven_histogram *times = &seven.shared->eviction_to_free;
    const seven_policy *p = seven_pool_policy(seven.pool);

    take_figures(&f);
    say(r, GAUGE, "Places", seven.conf->places);
    say(r, GAUGE, "Workers", seven.conf->workers);
    say(r, GAUGE, "Reserve", seven.conf->reserved);
    say(r, GAUGE, "Held", seven.conf->places - f.census.free);
    say(r, GAUGE, "Overdue", f.census.overdue);
    say(r, GAUGE, "HeldHead", f.by_phase[HEAD]);
    say(r, GAUGE, "HeldBody", f.by_phase[BODY]);
    say(r, GAUGE, "HeldHandler", f.by_phase[HANDLER]);
    say(r, GAUGE, "HeldResponse", f.by_phase[RESPONSE]);
    say(r, GAUGE, "HeldTunnel", f.by_phase[TUNNEL]);
    say(r, GAUGE, "Exempt", f.exempt);
    say(r, GAUGE, "Leashed", refused_now());
    say(r, GAUGE, "PMod", seven_pmod(seven.pool, f.now));
    say(r, TIME, "ServiceTimeUs", seven_t_m(seven.pool));
    say(r, GAUGE, "Tournament", p->tournament);
    say(r, TIME, "RoundUs", p->round_us);
    say(r, GAUGE, "MinRate", (uint64_t)seven.conf->min_rate);
    say(r, COUNTER, "Offers", f.tally.admitted + f.tally.replaced + f.tally.refused);
    say(r, COUNTER, "Admitted", f.tally.admitted);
    say(r, COUNTER, "Replaced", f.tally.replaced);
    say(r, COUNTER, "Refusals", f.tally.refused);
    say(r, COUNTER, "Relieved", f.tally.relieved);
    say(r, COUNTER, "Evictions", atomic_load(&seven.shared->evicted));
    say(r, COUNTER, "ParkedClosed", atomic_load(&seven.shared->parked_shed));
    say(r, TIME, "EvictToFreeP50us", seven_quantile(times, 0.5));
    say(r, TIME, "EvictToFreeP99us", seven_quantile(times, 0.99));
}

/* A setting, as text. */
typedef void emit_text(request_rec *r, const char *name, const char *value);

static void emit_settings(request_rec *r, emit_text *say)
{
    const seven_policy *p = seven_pool_policy(seven.pool);
    char factor[128];

    say(r, "Engine", touches() ? "On" : "DetectOnly");
    say(r, "Strategy", strategy_name());
    say(r, "ServiceTime", p->t_m_us == 0 ? "auto" : "fixed");
    snprintf(factor, sizeof(factor), "wait=%g in=%g alpha=%g scale=%g", p->p_wait, p->p_in,
             p->alpha, p->scale); /* apr's %g drops the zero of 0.453 */
    say(r, "DropFactor", factor);
}

static void emit_auto_text(request_rec *r, const char *name, const char *value)
{
    ap_rprintf(r, "%s: %s\n", name, value);
}

/* None of the values has a character that JSON would want escaped. */
static void emit_json_text(request_rec *r, const char *name, const char *value)
{
    ap_rprintf(r, "%s\n  \"%s\": \"%s\"", strcmp(name, "Engine") == 0 ? "{" : ",", name, value);
}

static void emit_row_text(request_rec *r, const char *name, const char *value)
{
    ap_rprintf(r, "<tr><th scope=\"row\">%s</th><td>%s</td></tr>\n", name, value);
}

static void emit_auto(request_rec *r, enum kind kind, const char *name, uint64_t value)
{
    (void)kind;
    ap_rprintf(r, "%s: %" APR_UINT64_T_FMT "\n", name, value);
}

static void emit_json(request_rec *r, enum kind kind, const char *name, uint64_t value)
{
    (void)kind;
    ap_rprintf(r, ",\n  \"%s\": %" APR_UINT64_T_FMT, name, value);
}

/* A name with an underscore before each capital but the first, in small letters. */
static const char *in_small_letters(apr_pool_t *p, const char *name)
{
    char *small = apr_palloc(p, 2 * strlen(name) + 1), *to = small;

    for (const char *from = name; *from != '\0'; from++) {
        if (apr_isupper(*from) && from != name) {
            *to++ = '_';
        }
        *to++ = (char)apr_tolower(*from);
    }
    *to = '\0';
    return small;
}

/* Prometheus's text format, 0.0.4: base units, and what only grows is a total. */
static void emit_metric(request_rec *r, enum kind kind, const char *name, uint64_t value)
{
    const char *metric = in_small_letters(r->pool, name), *of_kind = "gauge";
    size_t end;

    switch (kind) {
    case GAUGE:
        break;
    case COUNTER:
        metric = apr_pstrcat(r->pool, metric, "_total", NULL);
        of_kind = "counter";
        break;
    case TIME:
        end = strlen(metric) - strlen("us");
        end -= metric[end - 1] == '_';
        metric = apr_pstrcat(r->pool, apr_pstrndup(r->pool, metric, end), "_seconds", NULL);
        break;
    }
    ap_rprintf(r, "# TYPE seven_%s %s\nseven_%s ", metric, of_kind, metric);
    if (kind == TIME) {
        ap_rprintf(r, "%.6f\n", (double)value / SECOND);
    } else {
        ap_rprintf(r, "%" APR_UINT64_T_FMT "\n", value);
    }
}

static void emit_row(request_rec *r, enum kind kind, const char *name, uint64_t value)
{
    (void)kind;
    ap_rprintf(r, "<tr><th scope=\"row\">%s</th><td>%" APR_UINT64_T_FMT "</td></tr>\n", name,
               value);
}

static int seven_handler(request_rec *r)
{
    if (r->handler == NULL || strcmp(r->handler, "seven-status") != 0) {
        return DECLINED;
    }
    if (r->method_number != M_GET) {
        r->allowed = AP_METHOD_BIT << M_GET;
        return HTTP_METHOD_NOT_ALLOWED;
    }
    apr_table_setn(r->headers_out, "Cache-Control", "no-store");
    if (seven.pool == NULL) {
        ap_set_content_type(r, "text/plain");
        ap_rputs("Engine: Off\n", r);
        return OK;
    }
    if (r->args != NULL && strcmp(r->args, "auto") == 0) {
        ap_set_content_type(r, "text/plain");
        emit_settings(r, emit_auto_text);
        emit_figures(r, emit_auto);
    } else if (r->args != NULL && strcmp(r->args, "json") == 0) {
        ap_set_content_type(r, "application/json");
        emit_settings(r, emit_json_text);
        emit_figures(r, emit_json);
        ap_rputs("\n}\n", r);
    } else if (r->args != NULL && strcmp(r->args, "metrics") == 0) {
        ap_set_content_type(r, "text/plain; version=0.0.4");
        emit_figures(r, emit_metric);
    } else {
        ap_set_content_type(r, "text/html; charset=utf-8");
        ap_rputs("<!DOCTYPE html>\n<html lang=\"en\"><head><title>mod_seven</title></head><body>\n"
                 "<h1>mod_seven</h1>\n<table>\n",
                 r);
        emit_settings(r, emit_row_text);
        emit_figures(r, emit_row);
        ap_rputs("</table>\n</body></html>\n", r);
    }
    return OK;
}

static void emit_status(request_rec *r, enum kind kind, const char *name, uint64_t value)
{
    (void)kind;
    ap_rprintf(r, "Seven%s: %" APR_UINT64_T_FMT "\n", name, value);
}

/* The section in mod_status. */
static int seven_status_hook(request_rec *r, int flags)
{
    if (seven.pool == NULL) {
        return DECLINED;
    }
    if (flags & AP_STATUS_SHORT) {
        emit_figures(r, emit_status);
        return OK;
    }
    ap_rprintf(r, "<hr />\n<h2>mod_seven: %s, %s</h2>\n<table>\n", touches() ? "On" : "DetectOnly",
               strategy_name());
    emit_figures(r, emit_row);
    ap_rputs("</table>\n", r);
    return OK;
}

/* ---- configuration ----------------------------------------------------------------------- */

static struct config *config_of(const server_rec *s)
{
    return ap_get_module_config(s->module_config, &seven_module);
}

static void *create_config(apr_pool_t *p, server_rec *s)
{
    struct config *conf = apr_pcalloc(p, sizeof(*conf));

    (void)s;
    conf->engine = ENGINE_ON;
    conf->limit = (struct amount){.value = 90, .percent = true};
    conf->reserve = (struct amount){.value = 5, .percent = true};
    conf->min_rate = 8000;
    conf->retry_after = 1;
    conf->exempt = apr_array_make(p, 4, sizeof(apr_ipsubnet_t *));
    seven_policy_defaults(&conf->policy, 1);
    conf->policy.admit_as = SEVEN_SERVED; /* a client is on the clock from its first moment */
    return conf;
}

/* What is wrong with a value, named after its directive. */
static const char *not_a(cmd_parms *cmd, const char *arg, const char *what)
{
    return apr_psprintf(cmd->pool, "%s: \"%s\" is not %s", cmd->cmd->name, arg, what);
}

static const char *set_engine(cmd_parms *cmd, struct config *conf, const char *arg)
{
    if (strcasecmp(arg, "On") == 0) {
        conf->engine = ENGINE_ON;
    } else if (strcasecmp(arg, "Off") == 0) {
        conf->engine = ENGINE_OFF;
    } else if (strcasecmp(arg, "DetectOnly") == 0) {
        conf->engine = ENGINE_DETECT_ONLY;
    } else {
        return not_a(cmd, arg, "On, Off or DetectOnly");
    }
    return NULL;
}

static const char *set_amount(cmd_parms *cmd, struct amount *amount, const char *arg, long low)
{
    *amount = (struct amount){.where = cmd->directive, .set = 1};
    if (seven_parse_amount(arg, low, SEVEN_MAX_PLACES, &amount->value, &amount->percent)) {
        return NULL;
    }
    return not_a(cmd, arg,
                 apr_psprintf(cmd->pool,
                              "a whole number from %ld to %u, or a percentage from %ld%% "
                              "to 100%%",
                              low, SEVEN_MAX_PLACES, low));
}

static const char *set_limit(cmd_parms *cmd, struct config *conf, const char *arg)
{
    return set_amount(cmd, &conf->limit, arg, 1);
}

static const char *set_reserve(cmd_parms *cmd, struct config *conf, const char *arg)
{
    return set_amount(cmd, &conf->reserve, arg, 0);
}

static const char *set_time(cmd_parms *cmd, uint64_t *us, const char *arg)
{
    return seven_parse_time(arg, us)
               ? NULL
               : not_a(cmd, arg, "a time from 1ms to 24h with its unit (ms, s, min or h)");
}

static const char *set_round(cmd_parms *cmd, struct config *conf, const char *arg)
{
    return set_time(cmd, &conf->policy.round_us, arg);
}

static const char *set_service_time(cmd_parms *cmd, struct config *conf, const char *arg)
{
    conf->policy.t_m_us = 0;
    return strcasecmp(arg, "auto") == 0 ? NULL : set_time(cmd, &conf->policy.t_m_us, arg);
}

static const char *set_drop_factor(cmd_parms *cmd, struct config *conf, const char *arg)
{
    conf->policy_where = cmd->directive;
    return seven_parse_drop_factor(arg, &conf->policy)
               ? NULL
               : not_a(cmd, arg, "wait=, in=, alpha= or scale= with a number");
}

static const char *set_number(cmd_parms *cmd, long *value, const char *arg, long high)
{
    return seven_parse_number(arg, 1, high, value)
               ? NULL
               : not_a(cmd, arg, apr_psprintf(cmd->pool, "a whole number from 1 to %ld", high));
}

static const char *set_min_rate(cmd_parms *cmd, struct config *conf, const char *arg)
{
    return set_number(cmd, &conf->min_rate, arg, 1000000000);
}

static const char *set_retry_after(cmd_parms *cmd, struct config *conf, const char *arg)
{
    return set_number(cmd, &conf->retry_after, arg, 86400);
}

static const char *set_exempt(cmd_parms *cmd, struct config *conf, const char *arg)
{
    char *address = apr_pstrdup(cmd->pool, arg), *bits = strchr(address, '/');
    unsigned char binary[16];
    apr_ipsubnet_t *subnet;
    long n;
    int v4, v6;

    if (bits != NULL) {
        *bits++ = '\0';
    }
    v4 = inet_pton(AF_INET, address, binary) == 1;
    v6 = !v4 && inet_pton(AF_INET6, address, binary) == 1;
    if ((!v4 && !v6) || (bits != NULL && !seven_parse_number(bits, 0, v4 ? 32 : 128, &n)) ||
        apr_ipsubnet_create(&subnet, address, bits, cmd->pool) != APR_SUCCESS) {
        return not_a(cmd, arg, "an IPv4 or IPv6 address, alone or with /bits");
    }
    APR_ARRAY_PUSH(conf->exempt, apr_ipsubnet_t *) = subnet;
    return NULL;
}

/* Every directive is for the whole server; what takes one word, or several one by one, comes here
 * with its setter. */
typedef const char *setter(cmd_parms *cmd, struct config *conf, const char *arg);

static const char *set(cmd_parms *cmd, void *dir, const char *arg)
{
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);

    (void)dir;
    return error != NULL ? error : ((setter *)cmd->info)(cmd, config_of(cmd->server), arg);
}

static const char *set_strategy(cmd_parms *cmd, void *dir, const char *name, const char *size)
{
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);
    struct config *conf = config_of(cmd->server);
    long n = 0;

    (void)dir;
    if (error != NULL) {
        return error;
    }
    conf->policy_where = cmd->directive;
    if (!seven_parse_strategy(name, &conf->policy.strategy)) {
        return not_a(cmd, name, "uniform, roulette or tournament");
    }
    if (size != NULL && conf->policy.strategy != SEVEN_TOURNAMENT) {
        return not_a(cmd, size, "expected: only a tournament has a size");
    }
    if (size != NULL && !seven_parse_number(size, 1, SEVEN_MAX_PLACES, &n)) {
        return not_a(cmd, size, "a whole number of entrants, at least 1");
    }
    conf->policy.tournament = (uint32_t)n;
    return NULL;
}

#define SETTING(form, name, setter, help)                                                          \
    AP_INIT_##form(name, set, (void *)(setter), RSRC_CONF, help)

static const command_rec directives[] = {
    SETTING(TAKE1, "SevenEngine", set_engine,
            "On, Off, or DetectOnly to decide and log and touch nobody"),
    SETTING(TAKE1, "SevenServerLimit", set_limit,
            "k, the places: a number or a percentage of MaxRequestWorkers"),
    AP_INIT_TAKE12("SevenStrategy", set_strategy, NULL, RSRC_CONF,
                   "uniform, roulette, or tournament and how many enter it"),
    SETTING(TAKE1, "SevenRound", set_round, "the length of a round, such as 100ms"),
    SETTING(TAKE1, "SevenServiceTime", set_service_time,
            "how long a client may keep a worker waiting: auto, or a time such as 200ms"),
    SETTING(TAKE1, "SevenReserve", set_reserve,
            "places kept free ahead of need: a number or a percentage of the places"),
    SETTING(ITERATE, "SevenDropFactor", set_drop_factor,
            "the drop factor's parameters: wait=8 in=2 alpha=1.89 scale=0.453"),
    SETTING(TAKE1, "SevenMinRate", set_min_rate,
            "bytes a second that pay for the time a client takes"),
    SETTING(ITERATE, "SevenExempt", set_exempt,
            "addresses that are never refused and never victims"),
    SETTING(TAKE1, "SevenRetryAfter", set_retry_after, "seconds, in the Retry-After of a refusal"),
    {NULL}};

/* Says what is wrong with a directive, and where it stands. */
static int wrong(const ap_directive_t *where, const char *name, const char *sentence)
{
    if (where != NULL) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_ERR, 0, NULL, "%s on line %d of %s: %s.",
                     where->directive, where->line_num, where->filename, sentence);
    } else {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_ERR, 0, NULL, "%s: %s.", name, sentence);
    }
    return HTTP_INTERNAL_SERVER_ERROR;
}

/* The MPM's limits are known once its own check has run. */
static int seven_check_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *s)
{
    struct config *conf = config_of(s);
    int daemons = 1, threads = 1, hard_daemons = 1, hard_threads = 1;
    long workers, hard, k, reserved;
    const char *error;

    (void)pconf;
    (void)plog;
    if (conf->engine == ENGINE_OFF) {
        return OK;
    }
    ap_mpm_query(AP_MPMQ_MAX_DAEMONS, &daemons);
    ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads);
    ap_mpm_query(AP_MPMQ_HARD_LIMIT_DAEMONS, &hard_daemons);
    ap_mpm_query(AP_MPMQ_HARD_LIMIT_THREADS, &hard_threads);
    workers = (long)daemons * (threads > 0 ? threads : 1);
    hard = (long)hard_daemons * (hard_threads > 0 ? hard_threads : 1);
    k = conf->limit.percent ? workers * conf->limit.value / 100 : conf->limit.value;
    k = k > 0 ? k : 1;
    if (!conf->limit.set && k > workers - 2) {
        k = workers > 2 ? workers - 2 : 1;
    }
    if (k > hard) {
        return wrong(conf->limit.where, "SevenServerLimit",
                     apr_psprintf(ptemp,
                                  "%ld places are more than the %ld workers that ServerLimit and "
                                  "ThreadLimit allow",
                                  k, hard));
    }
    reserved = conf->reserve.percent ? (k * conf->reserve.value + 99) / 100 : conf->reserve.value;
    if (!conf->reserve.set) { /* while one is filled again, the next newcomer needs another */
        reserved = reserved > 2 ? reserved : 2;
        reserved = reserved < k / 4 ? reserved : k / 4;
    }
    conf->reserved = (uint32_t)reserved;
    if (reserved > k) {
        return wrong(conf->reserve.where, "SevenReserve",
                     apr_psprintf(ptemp, "%ld places cannot be kept free of %ld", reserved, k));
    }
    conf->places = conf->policy.places = (uint32_t)k;
    conf->workers = (uint32_t)workers;
    conf->roomy = (uint32_t)(k / 4 > 2 * reserved + 8 ? k / 4 : 2 * reserved + 8);
    error = seven_policy_error(&conf->policy);
    return error == NULL ? OK : wrong(conf->policy_where, "mod_seven", error);
}

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static size_t phases_at(uint32_t children)
{
    return align64(sizeof(struct shared) + children * sizeof(struct child));
}

static size_t pool_at(uint32_t children, uint32_t places)
{
    return align64(phases_at(children) + places * sizeof(_Atomic int));
}

static struct shared *shared_in(const apr_shm_t *shm)
{
    return (struct shared *)align64((size_t)apr_shm_baseaddr_get(shm));
}

static void find_parts(const struct retained *kept)
{
    char *base = (char *)shared_in(kept->shm);

    seven.shared = (struct shared *)base;
    seven.phases = (_Atomic int *)(base + phases_at(kept->children));
    seven.pool = (seven_pool *)(base + pool_at(kept->children, kept->policy.places));
}

/* New shared memory. The old, if any, stays mapped in the children that use it. */
static apr_status_t share(struct retained *kept, const seven_policy *policy, uint32_t children,
                          apr_pool_t *process)
{
    apr_status_t rv;

    kept->old = kept->shm;
    kept->shm = NULL;
    rv = apr_shm_create(&kept->shm, pool_at(children, policy->places) + seven_size(policy) + 64,
                        NULL, process);
    if (rv != APR_SUCCESS) {
        return rv;
    }
    kept->policy = *policy;
    kept->children = children;
    find_parts(kept);
    memset(seven.shared, 0, pool_at(children, policy->places));
    seven.shared->children = children;
    atomic_store(&seven.shared->born, -1);
    for (uint32_t i = 0; i < children; i++) {
        sem_init(&seven.shared->child[i].wake, 1, 0);
    }
    seven_init(seven.pool, policy);
    return APR_SUCCESS;
}

static void advise(const struct config *conf, server_rec *s)
{
    if (conf->places + 2 > conf->workers) {
        ap_log_error(
            APLOG_MARK, APLOG_WARNING, 0, s,
            "SevenServerLimit is %u and there are %u workers: leave at least 2 of them, "
            "better a tenth, beyond the places, so that newcomers can be heard. Until then "
            "workers are set free by watching the accept queue",
            conf->places, conf->workers);
    }
    if (ap_num_listen_buckets > 1) {
        ap_log_error(APLOG_MARK, APLOG_WARNING, 0, s,
                     "ListenCoresBucketsRatio divides the accept queue: what waits is seen in a "
                     "part of it only, so SevenServerLimit must leave workers beyond the places");
    }
    ap_log_error(APLOG_MARK, APLOG_NOTICE, 0, s,
                 "mod_seven %s: %u places of %u workers, %u kept free, %s",
                 conf->engine == ENGINE_ON ? "is on" : "only detects", conf->places, conf->workers,
                 conf->reserved, strategy_name());
}

static const char retained_key[] = "mod_seven";

static int seven_post_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *s)
{
    struct retained *kept = ap_retained_data_get(retained_key);
    int daemons = 1;
    uint32_t children;
    apr_status_t rv = APR_SUCCESS;

    (void)pconf;
    (void)plog;
    (void)ptemp;
    seven.conf = config_of(s);
    seven.server = s;
    if (seven.conf->engine == ENGINE_OFF ||
        ap_state_query(AP_SQ_MAIN_STATE) == AP_SQ_MS_CREATE_PRE_CONFIG) {
        return OK;
    }
    if (kept == NULL) {
        kept = ap_retained_data_create(retained_key, sizeof(*kept));
    }
    ap_mpm_query(AP_MPMQ_HARD_LIMIT_DAEMONS, &daemons);
    children = (uint32_t)daemons * 8 + 256; /* many generations of them, after quick restarts */
    children = children < 65535 ? children : 65535; /* a lease has room for so many */
    if (kept->shm != NULL && kept->children == children &&
        seven_policy_equal(&kept->policy, &seven.conf->policy)) {
        find_parts(kept);
    } else {
        rv = share(kept, &seven.conf->policy, children, s->process->pool);
    }
    if (rv != APR_SUCCESS) {
        ap_log_error(APLOG_MARK, APLOG_CRIT, rv, s, "mod_seven cannot create its shared memory");
        return HTTP_INTERNAL_SERVER_ERROR;
    }
    advise(seven.conf, s);
    return OK;
}

/* The leaders of old children wait for this, whatever the new configuration says. */
static int seven_is_configured(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp,
                               server_rec *s)
{
    struct retained *kept = ap_retained_data_get(retained_key);
    int generation = 0;

    (void)pconf;
    (void)plog;
    (void)ptemp;
    (void)s;
    ap_mpm_query(AP_MPMQ_GENERATION, &generation);
    if (kept != NULL && kept->shm != NULL) {
        atomic_store(&shared_in(kept->shm)->configured, generation);
    }
    if (kept != NULL && kept->old != NULL) {
        atomic_store(&shared_in(kept->old)->configured, generation);
        apr_shm_destroy(kept->old);
        kept->old = NULL;
    }
    return OK;
}

static void register_hooks(apr_pool_t *p)
{
    (void)p;
    ap_hook_check_config(seven_check_config, NULL, NULL, APR_HOOK_LAST); /* after the MPM's */
    ap_hook_post_config(seven_post_config, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_post_config(seven_is_configured, NULL, NULL, APR_HOOK_REALLY_LAST);
    ap_hook_child_init(seven_child_init, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_status(seven_child_status, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_pre_connection(seven_pre_connection, NULL, NULL, APR_HOOK_FIRST);
    /* Before mod_ssl's handshake and mod_http2's takeover. */
    ap_hook_process_connection(seven_process_connection, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_suspend_connection(seven_suspend_connection, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_resume_connection(seven_resume_connection, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_pre_close_connection(seven_pre_close_connection, NULL, NULL, APR_HOOK_REALLY_FIRST);
    /* Before any hook that could take its time, or answer a refused client. */
    ap_hook_post_read_request(seven_post_read_request, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_log_transaction(seven_log_transaction, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_handler(seven_handler, NULL, NULL, APR_HOOK_MIDDLE);
    APR_OPTIONAL_HOOK(ap, status_hook, seven_status_hook, NULL, NULL, APR_HOOK_MIDDLE);
    /* Next to the network, beneath mod_ssl (55), so that handshakes that stall are seen and bytes
     * are those on the wire. */
    ap_register_input_filter("SEVEN_IN", seven_in, NULL, AP_FTYPE_NETWORK - 1);
    ap_register_output_filter("SEVEN_OUT", seven_out, NULL, AP_FTYPE_NETWORK - 1);
}

module AP_MODULE_DECLARE_DATA seven_module = {
    STANDARD20_MODULE_STUFF, NULL, NULL, create_config, NULL, directives, register_hooks, 0};
