/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "figures.h"
#include "log.h"
#include "parse.h"

#define SHOWN 200 /* bytes of a peer's text, at most */
/* The histogram's upper bounds: 2^7 us (0.1 ms) to 2^27 us (134 s), by octaves. */
#define FIRST_OCTAVE 7
#define LAST_OCTAVE 27

enum kind { NUMBER32, NUMBER64, TIME_US, FLAG };

/* A figure: its name in text and JSON, and its metric with label and help. Those of one metric
 * stand together, the help at the first. A name that ends in _total is a counter's. */
typedef struct figure {
    const char *name, *metric, *label, *help;
    enum kind kind;
    size_t offset;
} figure;

#define F(field) offsetof(proxy_status, field)
static const figure table[] = {
    {"places", "seven_sip_places", NULL, "Calls that may be up (k).", NUMBER32, F(places)},
    {"waiting", "seven_sip_calls", "state=\"waiting\"", "Calls that hold a place, by state.",
     NUMBER32, F(waiting)},
    {"incall", "seven_sip_calls", "state=\"incall\"", NULL, NUMBER32, F(incall)},
    {"overdue", "seven_sip_overdue_calls", NULL, "Calls up for longer than t_M.", NUMBER32,
     F(overdue)},
    {"held", "seven_sip_held_calls", NULL, "Newcomers that wait for the end of the round.",
     NUMBER32, F(held)},
    {"ending", "seven_sip_ending_calls", NULL, "Victims whose end is not confirmed yet.", NUMBER32,
     F(ending)},
    {"exempt_places", "seven_sip_exempt_places", NULL, "Exempt calls that may be up.", NUMBER32,
     F(exempt_places)},
    {"exempt", "seven_sip_exempt_calls", NULL, "Exempt calls up.", NUMBER32, F(exempt)},
    {"unplaced", "seven_sip_unplaced_calls", NULL,
     "Calls up beyond the places: since fewer are left, or detect_only.", NUMBER32, F(unplaced)},
    {"t_m_us", "seven_sip_t_m_seconds", NULL, "t_M: beyond it a call is overdue.", TIME_US,
     F(t_m_us)},
    {"t_m_learned", "seven_sip_t_m_learned", NULL, "1 if t_M is learned, 0 if it is fixed.", FLAG,
     F(t_m_learned)},
    {"pmod", "seven_sip_pmod", NULL, "Newcomers of this round that found all places taken.",
     NUMBER64, F(pmod)},
    {"tournament", "seven_sip_tournament_size", NULL, "Entrants of a tournament.", NUMBER32,
     F(tournament)},
    {"detect_only", "seven_sip_detect_only", NULL, "1 if it decides and touches nobody.", FLAG,
     F(detect_only)},
    {"stopping", "seven_sip_stopping", NULL, "1 if it takes no more calls.", FLAG, F(stopping)},
    {"started", "seven_sip_calls_started_total", NULL, "Calls that got a place.", NUMBER64,
     F(started)},
    {"replaced", "seven_sip_calls_replaced_total", NULL, "Calls that got a victim's place.",
     NUMBER64, F(replaced)},
    {"refused", "seven_sip_calls_refused_total", "reason=\"full\"", "Calls refused.", NUMBER64,
     F(refused)},
    {"refused_stopping", "seven_sip_calls_refused_total", "reason=\"stopping\"", NULL, NUMBER64,
     F(refused_stopping)},
    {"cut_within_1s", "seven_sip_victims_ended_within_1s_total", NULL,
     "Victims whose end was confirmed within a second.", NUMBER64, F(cut_within_1s)},
    {"cut_refused", "seven_sip_victims_kept_total", NULL,
     "Victims that the server did not let end.", NUMBER64, F(cut_refused)},
    {"would_refuse", "seven_sip_would_refuse_total", NULL, "detect_only: calls not refused.",
     NUMBER64, F(would_refuse)},
    {"would_cut", "seven_sip_would_cut_total", NULL, "detect_only: calls not cut.", NUMBER64,
     F(would_cut)},
    {"undroppable", "seven_sip_undroppable_total", NULL,
     "INVITEs answered 400 as no BYE could follow them.", NUMBER64, F(undroppable)},
    {"malformed", "seven_sip_malformed_total", NULL, "Messages answered 400 or dropped.", NUMBER64,
     F(malformed)},
    {"looped", "seven_sip_looped_total", NULL, "Requests answered 483.", NUMBER64, F(looped)},
    {"requests", "seven_sip_received_total", "kind=\"request\"", "Messages that came in.", NUMBER64,
     F(requests)},
    {"responses", "seven_sip_received_total", "kind=\"response\"", NULL, NUMBER64, F(responses)},
    {"forwarded", "seven_sip_forwarded_total", NULL, "Messages that went on.", NUMBER64,
     F(forwarded)},
    {"store_errors", "seven_sip_store_errors_total", NULL, "Writes to the store that failed.",
     NUMBER64, F(store_errors)},
    {"restored", "seven_sip_calls_restored_total", NULL, "Calls taken over at the start.", NUMBER64,
     F(restored)},
    {"bytes_per_call", "seven_sip_bytes_per_call", NULL, "Memory of the calls, over calls up.",
     NUMBER64, F(bytes_per_call)},
    {"uptime_us", "seven_sip_uptime_seconds", NULL, "Since it started.", TIME_US, F(uptime_us)},
};
#define FIGURES (sizeof(table) / sizeof(*table))

static uint64_t value_of(const figure *f, const proxy_status *figures)
{
    const void *at = (const char *)figures + f->offset;

    switch (f->kind) {
    case NUMBER32:
        return *(const uint32_t *)at;
    case FLAG:
        return *(const bool *)at;
    case NUMBER64:
    case TIME_US:
        break;
    }
    return *(const uint64_t *)at;
}

void figures_text(FILE *out, const proxy_status *figures)
{
    fprintf(out, "strategy: %s\n", seven_strategy_name(figures->strategy));
    for (size_t i = 0; i < FIGURES; i++) {
        fprintf(out, "%s: %" PRIu64 "\n", table[i].name, value_of(&table[i], figures));
    }
    for (unsigned i = 0; i < END_REASONS; i++) {
        fprintf(out, "ended_%s: %" PRIu64 "\n", proxy_end_name(i), figures->ended[i]);
    }
}

void figures_json(FILE *out, const proxy_status *figures)
{
    fprintf(out, "{\"strategy\": \"%s\"", seven_strategy_name(figures->strategy));
    for (size_t i = 0; i < FIGURES; i++) {
        uint64_t value = value_of(&table[i], figures);

        if (table[i].kind == FLAG) {
            fprintf(out, ", \"%s\": %s", table[i].name, value ? "true" : "false");
        } else {
            fprintf(out, ", \"%s\": %" PRIu64, table[i].name, value);
        }
    }
    fputs(", \"ended\": {", out);
    for (unsigned i = 0; i < END_REASONS; i++) {
        fprintf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", proxy_end_name(i), figures->ended[i]);
    }
    fputs("}}\n", out);
}

static void head(FILE *out, const char *metric, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric, help, metric, type);
}

static bool is_counter(const char *metric)
{
    size_t length = strlen(metric);

    return length > 6 && strcmp(metric + length - 6, "_total") == 0;
}

/* The buckets are half-open and ours inclusive: a time of exactly a bound is one bucket late. */
static void metric_histogram(FILE *out, const seven_histogram *cut_us)
{
    static const char name[] = "seven_sip_victim_end_seconds";
    uint64_t total = 0;
    double sum = 0;
    int octave = FIRST_OCTAVE;

    head(out, name, "histogram",
         "From the decision to end a call to its confirmed end (the sum to within 5 %).");
    for (int i = 0; i < SEVEN_BUCKETS; i++) {
        uint64_t count = atomic_load_explicit(&cut_us->bucket[i], memory_order_relaxed);

        if (i % 8 == 0 && i / 8 == octave && octave <= LAST_OCTAVE) {
            fprintf(out, "%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name, ldexp(1e-6, octave), total);
            octave++;
        }
        total += count;
        sum += (double)count * exp2((i + 0.5) / 8) * 1e-6;
    }
    fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n", name,
            total, name, sum, name, total);
}

void figures_metrics(FILE *out, const proxy_status *figures, const seven_histogram *cut_us)
{
    for (size_t i = 0; i < FIGURES; i++) {
        const figure *f = &table[i];
        uint64_t value = value_of(f, figures);

        if (f->help != NULL) {
            head(out, f->metric, is_counter(f->metric) ? "counter" : "gauge", f->help);
        }
        fputs(f->metric, out);
        if (f->label != NULL) {
            fprintf(out, "{%s}", f->label);
        }
        if (f->kind == TIME_US) {
            fprintf(out, " %" PRIu64 ".%06" PRIu64 "\n", value / 1000000, value % 1000000);
        } else {
            fprintf(out, " %" PRIu64 "\n", value);
        }
    }
    head(out, "seven_sip_calls_ended_total", "counter", "Calls by how they ended.");
    for (unsigned i = 0; i < END_REASONS; i++) {
        fprintf(out, "seven_sip_calls_ended_total{reason=\"%s\"} %" PRIu64 "\n", proxy_end_name(i),
                figures->ended[i]);
    }
    head(out, "seven_sip_strategy_info", "gauge", "The strategy, P2, as a label.");
    fprintf(out, "seven_sip_strategy_info{strategy=\"%s\"} 1\n",
            seven_strategy_name(figures->strategy));
    if (cut_us != NULL) {
        metric_histogram(out, cut_us);
    }
}

void figures_call(FILE *out, const proxy_call *call)
{
    char from[SHOWN], to[SHOWN], call_id[SHOWN];

    fprintf(out,
            "state=\"%s\" age=\"%" PRIu64 ".%03" PRIu64 "s\" exempt=\"%s\" from=\"%s\" "
            "to=\"%s\" call_id=\"%s\"\n",
            call->state, call->age_us / 1000000, call->age_us / 1000 % 1000,
            call->exempt ? "yes" : "no", log_quote(from, SHOWN, call->from, strlen(call->from)),
            log_quote(to, SHOWN, call->to, strlen(call->to)),
            log_quote(call_id, SHOWN, call->call_id, strlen(call->call_id)));
}
