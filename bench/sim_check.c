/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistical model checking: runs of a cell, independent of each other, until each figure's 99 %
 * confidence interval is narrow enough.
 *
 * Runs come in batches. A batch's size follows from the figures so far alone; its runs are
 * numbered, a run's seed is made of its number, and what they say is added up in the order of their
 * numbers once all are done. So a table depends on the seed and the wanted width only, however many
 * threads share the work. (To stop by what was found makes an interval a little too hopeful; with
 * the hundreds of runs there always are, that is far below its width.)
 */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define NORMAL_99 2.5758293035489004 /* two-sided */
#define FIRST_BATCH 64U
#define LAST_BATCH 16384U

/* A figure's values so far (Welford, 1962). */
typedef struct sum {
    double mean, squares;
    uint32_t count;
} sum;

/* What the threads of a batch share. */
typedef struct batch {
    const sim_model *model;
    const void *cell;
    uint64_t seed;
    uint32_t first, size;
    double (*figures)[SIM_FIGURES]; /* of each run */
    atomic_uint next;
    atomic_uint_fast64_t calls;
} batch;

typedef struct worker {
    batch *batch;
    void *scratch;
    pthread_t thread;
} worker;

void sim_fail(int status, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "seven-sim: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    exit(status);
}

void *sim_claim(size_t size)
{
    void *block = aligned_alloc(64, (size + 63) & ~(size_t)63);

    if (block == NULL) {
        sim_fail(EXIT_FAILURE, "There is no memory for %zu bytes.", size);
    }
    return block;
}

uint64_t sim_seed(uint64_t seed, uint64_t run)
{
    seven_rng rng;

    seven_seed(&rng, seed);
    seven_seed(&rng, rng.s[0] ^ run * UINT64_C(0x9e3779b97f4a7c15));
    return rng.s[0];
}

/* ---- a batch ------------------------------------------------------------------------------ */

static void *work(void *data)
{
    worker *w = data;
    batch *b = w->batch;
    uint64_t calls = 0;
    uint32_t i;

    while ((i = atomic_fetch_add(&b->next, 1)) < b->size) {
        seven_rng rng;

        seven_seed(&rng, sim_seed(b->seed, b->first + i));
        calls += b->model->run(b->cell, &rng, w->scratch, b->figures[i]);
    }
    atomic_fetch_add(&b->calls, calls);
    return NULL;
}

static void run_batch(batch *b, worker *workers, uint32_t threads)
{
    uint32_t started = 1;

    atomic_store(&b->next, 0);
    threads = threads < b->size ? threads : b->size;
    for (; started < threads; started++) {
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0) {
            break; /* the others do its share */
        }
    }
    work(&workers[0]);
    for (uint32_t i = 1; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
    }
}

/* ---- figures ------------------------------------------------------------------------------ */

static void add(sum *s, double value)
{
    double off = value - s->mean;

    if (isnan(value)) {
        return;
    }
    s->mean += off / ++s->count;
    s->squares += off * (value - s->mean);
}

static double half_width(const sum *s)
{
    return s->count < 2 ? 0 : NORMAL_99 * sqrt(s->squares / (s->count - 1) / s->count);
}

static double wanted(const sum *s, const sim_effort *effort)
{
    double relative = effort->width * fabs(s->mean);

    return relative > effort->floor ? relative : effort->floor;
}

/* How many runs there should be, as far as can be told; 0 if these are enough. SIM_LASTED has
 * fewer runs that know of it. */
static double needed(const sum *sums, uint32_t runs, const sim_effort *effort)
{
    double most = 0;

    for (int i = 0; i < SIM_FIGURES; i++) {
        double half = half_width(&sums[i]), want = wanted(&sums[i], effort);

        if (half > want) {
            double ratio = want > 0 ? half / want : 1e6, n = runs * ratio * ratio;
            most = n > most ? n : most;
        }
    }
    return most;
}

static uint32_t next_batch(const sum *sums, uint32_t runs, const sim_effort *effort)
{
    double more;

    if (runs < effort->min_runs) {
        more = effort->min_runs - runs;
    } else {
        double n = needed(sums, runs, effort);

        if (n <= 0) {
            return 0;
        }
        more = ceil(n * 1.02 - runs);
        more = more < FIRST_BATCH ? FIRST_BATCH : more < 2.0 * runs ? more : 2.0 * runs;
    }
    more = more < LAST_BATCH ? more : LAST_BATCH;
    return more < effort->max_runs - runs ? (uint32_t)more : effort->max_runs - runs;
}

static void report(const sim_effort *effort, const char *label, const sum *sums, uint32_t runs)
{
    double widest = 0;

    for (int i = 0; i < SIM_FIGURES; i++) {
        double half = half_width(&sums[i]) / (sums[i].mean > 0 ? sums[i].mean : 1);
        widest = half > widest ? half : widest;
    }
    if (effort->progress) {
        fprintf(stderr, "\r\033[K%s: %u runs, widest interval +-%.2f %%", label, runs,
                100 * widest);
    }
}

static worker *make_workers(batch *b, uint32_t threads)
{
    worker *workers = sim_claim(threads * sizeof(worker));

    for (uint32_t i = 0; i < threads; i++) {
        workers[i].batch = b;
        workers[i].scratch = sim_claim(b->model->scratch);
        memset(workers[i].scratch, 0, b->model->scratch);
    }
    return workers;
}

static void end_workers(worker *workers, uint32_t threads)
{
    for (uint32_t i = 0; i < threads; i++) {
        free(workers[i].scratch);
    }
    free(workers);
}

sim_result sim_check(const sim_model *model, const void *cell, const sim_effort *effort,
                     const char *label)
{
    batch b = {.model = model, .cell = cell, .seed = effort->seed};
    worker *workers = make_workers(&b, effort->threads);
    sum sums[SIM_FIGURES] = {{0, 0, 0}};
    sim_result result = {.runs = 0};

    b.figures = sim_claim(LAST_BATCH * sizeof(*b.figures));
    while ((b.size = next_batch(sums, b.first, effort)) > 0) {
        run_batch(&b, workers, effort->threads);
        for (uint32_t i = 0; i < b.size; i++) {
            for (int f = 0; f < SIM_FIGURES; f++) {
                add(&sums[f], b.figures[i][f]);
            }
        }
        b.first += b.size;
        report(effort, label, sums, b.first);
    }
    result.runs = b.first;
    result.reached = needed(sums, b.first, effort) <= 0;
    result.calls = (double)atomic_load(&b.calls);
    for (int f = 0; f < SIM_FIGURES; f++) {
        result.mean[f] = sums[f].mean;
        result.half[f] = half_width(&sums[f]);
        result.said[f] = sums[f].count;
    }
    free(b.figures);
    end_workers(workers, effort->threads);
    return result;
}
