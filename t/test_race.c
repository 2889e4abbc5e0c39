/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads of several processes in one pool. Whatever they do, and in whatever order, places
 * are conserved: who wins one is its only holder, and once all have left, all are free and every
 * summary is exact without a repair. ThreadSanitizer sees the threads of one process only.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "unit.h"

enum { THREADS = 4, PROCESSES = 3, PLACES = 40, MINE = 64, ROUND = 100 };

/* What all share. Of each place: who won it last, serial (32 bits) | player (32 bits), and how
 * often it was won. */
typedef struct arena {
    _Atomic uint64_t owner[PLACES];
    _Atomic uint32_t wins[PLACES];
    _Atomic uint64_t admitted, replaced, relieved, left, calls, clock_us;
    _Atomic uint32_t broken, players;
    _Atomic bool stop;
    uint64_t calls_each;
    pthread_barrier_t barrier; /* all stop after each ROUND of calls, if there are rounds */
    bool rounds;
    _Alignas(64) unsigned char pool[];
} arena;

typedef struct player {
    arena *arena;
    seven_pool *pool;
    seven_rng rng;
    uint32_t id;
    seven_ticket mine[MINE]; /* won, and not known to be lost */
    uint32_t count;
} player;

static void *shared(size_t size)
{
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(block, MAP_FAILED);
    return block;
}

static seven_pool *arena_pool(arena *a)
{
    return (seven_pool *)(void *)a->pool;
}

/* An arena for a number of players, who stop to rest between rounds; 0: as many as come, and none
 * rests. */
static arena *arena_make(enum seven_strategy strategy, uint32_t n, uint64_t calls_each,
                         uint32_t players)
{
    pthread_barrierattr_t attr;
    seven_policy policy;
    arena *a;

    seven_policy_defaults(&policy, PLACES);
    policy.strategy = strategy;
    policy.tournament = n;
    policy.round_us = 1000;
    a = shared(sizeof(*a) + seven_size(&policy));
    seven_init(a->pool, &policy);
    a->calls_each = calls_each;
    a->rounds = players > 0;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (a->rounds) {
        ck_assert_int_eq(pthread_barrier_init(&a->barrier, &attr, players), 0);
    }
    return a;
}

static void arena_end(arena *a)
{
    munmap(a, sizeof(*a) + seven_size(seven_pool_policy(arena_pool(a))));
}

/* ---- what a player does ----------------------------------------------------------------- */

static uint64_t tag(uint32_t serial, uint32_t id)
{
    return (uint64_t)serial << 32 | id;
}

static void won(player *p, seven_ticket t)
{
    uint64_t old = atomic_exchange(&p->arena->owner[t.slot], tag(t.serial, p->id));
    seven_ticket before = {t.slot, (uint32_t)(old >> 32)};

    atomic_fetch_add(&p->arena->wins[t.slot], 1);
    /* Whichever of the two was first has lost, and stays so. */
    if (before.serial == t.serial || (seven_holds(p->pool, before) && seven_holds(p->pool, t))) {
        atomic_fetch_add(&p->arena->broken, 1);
    }
    p->mine[p->count++] = t;
}

static void leave(player *p, uint32_t i)
{
    bool held = seven_leave(p->pool, p->mine[i]);

    atomic_fetch_add(&p->arena->left, held);
    if (seven_holds(p->pool, p->mine[i])) {
        atomic_fetch_add(&p->arena->broken, 1);
    }
    p->mine[i] = p->mine[--p->count];
}

static void admit(player *p, uint64_t now, bool again)
{
    seven_ticket t = {.slot = (uint32_t)seven_below(&p->rng, seven_pool_policy(p->pool)->places)};

    if (p->count == MINE) {
        leave(p, (uint32_t)seven_below(&p->rng, MINE));
    }
    if (again) {
        if (seven_readmit(p->pool, now, &t)) {
            atomic_fetch_add(&p->arena->admitted, 1);
            won(p, t);
        }
        return;
    }
    switch (seven_admit(p->pool, &p->rng, now, &t)) {
    case SEVEN_ADMITTED:
        atomic_fetch_add(&p->arena->admitted, 1);
        won(p, t);
        break;
    case SEVEN_REPLACED:
        atomic_fetch_add(&p->arena->replaced, 1);
        won(p, t);
        break;
    case SEVEN_REFUSED:
        break;
    }
}

static void use_ticket(player *p, uint64_t what, uint64_t now)
{
    uint32_t i = (uint32_t)seven_below(&p->rng, p->count);
    bool held = true;

    switch (what) {
    case 0:
        leave(p, i);
        return;
    case 1:
        held = seven_pause(p->pool, p->mine[i], now);
        break;
    case 2:
        held = seven_resume(p->pool, p->mine[i], now);
        break;
    case 3:
        held = seven_progress(p->pool, p->mine[i], now, seven_below(&p->rng, 10000));
        break;
    default:
        held = seven_serve(p->pool, p->mine[i], now);
    }
    if (!held) {
        p->mine[i] = p->mine[--p->count];
    }
}

static void play(player *p)
{
    uint64_t now = atomic_fetch_add(&p->arena->clock_us, 50), what = seven_below(&p->rng, 13);
    seven_ticket t;

    atomic_fetch_add(&p->arena->calls, 1);
    if (what < 6 && p->count > 0) {
        use_ticket(p, what, now);
    } else if (what == 6) {
        atomic_fetch_add(
            &p->arena->relieved,
            seven_relieve(p->pool, &p->rng, now, now & 64 ? SEVEN_BY_LAW : SEVEN_OVERDUE_ONLY, &t));
    } else if (what == 7) {
        seven_learn(p->pool, seven_below(&p->rng, 100000), now);
    } else {
        admit(p, now, what == 8);
    }
}

/* True if every summary is what it is when worked out anew, or is said to be stale: free places
 * always are counted. */
static bool exact(const seven_pool *pool)
{
    const seven_policy *policy = seven_pool_policy(pool);
    size_t size = seven_size(policy), trees = SUMMARIES * pool->nodes;
    seven_pool *copy = aligned_alloc(64, size);
    bool same;

    memcpy((void *)copy, (const void *)pool, size);
    seven_repair(copy);
    same = memcmp((const void *)&copy->words[policy->places],
                  (const void *)&pool->words[policy->places],
                  (atomic_load(&pool->freshness) == FRESH ? trees : pool->nodes) *
                      sizeof(uint64_t)) == 0;
    free(copy);
    return same;
}

/* Between two rounds nobody calls: the summaries must be exact, without a repair. */
static void rest(arena *a)
{
    if (pthread_barrier_wait(&a->barrier) == PTHREAD_BARRIER_SERIAL_THREAD &&
        !exact(arena_pool(a))) {
        atomic_fetch_add(&a->broken, 1);
    }
    pthread_barrier_wait(&a->barrier);
}

static void *play_all(void *data)
{
    player p = {.arena = data, .pool = arena_pool(data)};

    p.id = atomic_fetch_add(&p.arena->players, 1) | (uint32_t)getpid() << 8;
    seven_seed(&p.rng, p.id);
    for (uint64_t i = 0; i < p.arena->calls_each && !atomic_load(&p.arena->stop); i++) {
        play(&p);
        if (p.arena->rounds && i % ROUND == 0) {
            rest(p.arena);
        }
    }
    while (p.count > 0) {
        leave(&p, 0);
    }
    return NULL;
}

static void play_in_threads(arena *a)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, play_all, a) != 0) {
            abort();
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* ---- afterwards ------------------------------------------------------------------------- */

/* All who came have gone, and each was counted once. */
static void check_conserved(arena *a)
{
    seven_pool *pool = arena_pool(a);
    seven_tally tally;

    ck_assert_uint_eq(a->broken, 0);
    ck_assert_uint_eq(a->admitted, a->left + a->relieved);
    for (uint32_t slot = 0; slot < PLACES; slot++) {
        ck_assert_uint_eq(word_state(place_load(pool, slot)), SEVEN_FREE);
        ck_assert_uint_eq(word_serial(place_load(pool, slot)), a->wins[slot] & SERIAL_MASK);
    }
    ck_assert(exact(pool));
    ck_assert_uint_eq(seven_free(pool), PLACES);
    seven_count(pool, &tally);
    ck_assert_uint_eq(tally.admitted, a->admitted);
    ck_assert_uint_eq(tally.replaced, a->replaced);
    ck_assert_uint_eq(tally.relieved, a->relieved);
    ck_assert_uint_gt(a->replaced, 0);
    ck_assert_uint_gt(a->relieved, 0);
}

static const enum seven_strategy strategies[] = {SEVEN_UNIFORM, SEVEN_ROULETTE, SEVEN_TOURNAMENT,
                                                 SEVEN_TOURNAMENT};
static const uint32_t n[] = {0, 0, 2, 25};

START_TEST(threads_conserve_places)
{
    arena *a = arena_make(strategies[_i], n[_i], load(100000), THREADS);

    play_in_threads(a);
    check_conserved(a);
    arena_end(a);
}
END_TEST

#ifndef SANITIZED_THREADS

static pid_t play_in_process(arena *a)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        play_in_threads(a);
        _exit(0);
    }
    ck_assert_int_gt(pid, 0);
    return pid;
}

static void wait_for(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

START_TEST(processes_conserve_places)
{
    arena *a = arena_make(strategies[_i], n[_i], load(20000), THREADS * PROCESSES);
    pid_t pids[PROCESSES];

    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = play_in_process(a);
    }
    for (int i = 0; i < PROCESSES; i++) {
        wait_for(pids[i]);
    }
    check_conserved(a);
    arena_end(a);
}
END_TEST

/* Gives back what a dead process held, as far as it got to say so. */
static void sweep(arena *a, pid_t dead)
{
    for (uint32_t slot = 0; slot < PLACES; slot++) {
        seven_ticket t;
        uint64_t owner = atomic_load(&a->owner[slot]);

        if (seven_holder(arena_pool(a), slot, &t) != SEVEN_FREE && owner >> 32 == t.serial &&
            (uint32_t)owner >> 8 == ((uint32_t)dead & 0xffffff)) {
            seven_leave(arena_pool(a), t);
        }
    }
}

/* What is still held when all the living have left was won by a thread that died before it could
 * say so, or by one whose record an older holder's, late, was written over: at most one each. */
static void sweep_unsaid(arena *a)
{
    uint32_t unsaid = 0;

    for (uint32_t slot = 0; slot < PLACES; slot++) {
        seven_ticket t;

        if (seven_holder(arena_pool(a), slot, &t) != SEVEN_FREE) {
            ck_assert(seven_leave(arena_pool(a), t));
            unsaid++;
        }
    }
    ck_assert_uint_le(unsaid, 2 * THREADS);
}

/* One of two processes is killed at any instruction, several times over. */
START_TEST(a_killed_process_loses_nothing)
{
    arena *a = arena_make(strategies[_i], n[_i], UINT64_MAX, 0);
    pid_t survivor = play_in_process(a);

    for (uint64_t round = 0; round < 10; round++) {
        uint64_t enough = atomic_load(&a->calls) + 2000 + round * 77;
        pid_t victim = play_in_process(a);

        while (atomic_load(&a->calls) < enough) {
            sched_yield();
        }
        ck_assert_int_eq(kill(victim, SIGKILL), 0);
        ck_assert_int_eq(waitpid(victim, NULL, 0), victim);
        sweep(a, victim);
        seven_repair(arena_pool(a));
    }
    atomic_store(&a->stop, true);
    wait_for(survivor);
    sweep_unsaid(a);
    seven_repair(arena_pool(a));
    ck_assert_uint_eq(a->broken, 0);
    ck_assert(exact(arena_pool(a)));
    ck_assert_uint_eq(seven_free(arena_pool(a)), PLACES);
    arena_end(a);
}
END_TEST

#endif

int main(void)
{
    Suite *suite = suite_create("race");
    TCase *threads = unit_case(suite, "threads");

    tcase_add_loop_test(threads, threads_conserve_places, 0, 4);
#ifndef SANITIZED_THREADS
    TCase *processes = unit_case(suite, "processes");

    tcase_add_loop_test(processes, processes_conserve_places, 0, 4);
    tcase_add_loop_test(processes, a_killed_process_loses_nothing, 0, 4);
#endif
    return unit_run(suite);
}
