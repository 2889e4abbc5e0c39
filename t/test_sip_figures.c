/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "unit.h"

/* The proxy's names, without the proxy. */
const char *proxy_end_name(enum proxy_end end)
{
    static const char *const names[] = {"completed", "failed",   "cancelled",   "timeout",
                                        "no_ack",    "vanished", "cut_waiting", "cut_incall"};

    return names[end];
}

static char *text;
static size_t size;

static void teardown(void)
{
    free(text);
    text = NULL;
}

static FILE *begin(void)
{
    free(text);
    text = NULL;
    return open_memstream(&text, &size);
}

static void has(const char *words)
{
    ck_assert_msg(strstr(text, words) != NULL, "no \"%s\" in:\n%s", words, text);
}

static const proxy_status some = {.places = 24,
                                  .waiting = 3,
                                  .incall = 21,
                                  .t_m_us = 200500000,
                                  .t_m_learned = true,
                                  .strategy = SEVEN_TOURNAMENT,
                                  .tournament = 12,
                                  .refused = UINT64_MAX,
                                  .refused_stopping = 5,
                                  .ended = {7, 6, 5, 4, 3, 2, 1, 99},
                                  .uptime_us = 1000001};

START_TEST(as_text)
{
    FILE *out = begin();

    figures_text(out, &some);
    fclose(out);
    ck_assert_int_eq(strncmp(text, "strategy: tournament\n", 21), 0);
    has("\nplaces: 24\n");
    has("\nincall: 21\n");
    has("\nt_m_us: 200500000\n");
    has("\nt_m_learned: 1\n");
    has("\nrefused: 18446744073709551615\n");
    has("\nended_completed: 7\n");
    has("\nended_cut_incall: 99\n");
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        ck_assert_ptr_nonnull(strstr(line, ": "));
    }
}
END_TEST

START_TEST(as_json)
{
    FILE *out = begin();

    figures_json(out, &some);
    fclose(out);
    ck_assert_int_eq(text[0], '{');
    ck_assert_str_eq(text + size - 3, "}}\n");
    has("\"strategy\": \"tournament\"");
    has(", \"t_m_learned\": true");
    has(", \"waiting\": 3,");
    has(", \"ended\": {\"completed\": 7, ");
}
END_TEST

/* Each metric has its HELP and TYPE before it, once; counters are named so. */
static void check_exposition(void)
{
    char metric[128] = "", name[128], type[32];

    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (sscanf(line, "# HELP %127s", name) == 1) {
            ck_assert_str_ne(name, metric);
            strcpy(metric, name);
        } else if (sscanf(line, "# TYPE %127s %31s", name, type) == 2) {
            size_t length = strlen(name);
            bool total = length > 6 && strcmp(name + length - 6, "_total") == 0;

            ck_assert_str_eq(name, metric);
            ck_assert(total == (strcmp(type, "counter") == 0));
        } else {
            ck_assert_msg(strncmp(line, metric, strlen(metric)) == 0, "%s: %s", metric, line);
            ck_assert_int_eq(sscanf(line, "%127[a-z0-9_]", name), 1);
            ck_assert(strncmp(name, "seven_sip_", 10) == 0);
        }
    }
}

START_TEST(as_metrics)
{
    static seven_histogram times;
    FILE *out = begin();

    figures_metrics(out, &some, NULL);
    fclose(out);
    check_exposition();
    has("\nseven_sip_calls{state=\"incall\"} 21\n");
    has("\nseven_sip_calls_refused_total{reason=\"stopping\"} 5\n");
    has("\nseven_sip_t_m_seconds 200.500000\n");
    has("\nseven_sip_uptime_seconds 1.000001\n");
    has("\nseven_sip_calls_ended_total{reason=\"cut_incall\"} 99\n");
    ck_assert_ptr_null(strstr(text, "_bucket"));

    seven_note(&times, 10);
    for (int i = 0; i < 8; i++) {
        seven_note(&times, 1000);
    }
    seven_note(&times, 3600 * UINT64_C(1000000));
    out = begin();
    figures_metrics(out, &some, &times);
    fclose(out);
    has("_bucket{le=\"0.000128\"} 1\n");
    has("_bucket{le=\"0.000512\"} 1\n");
    has("_bucket{le=\"0.001024\"} 9\n");
    has("_bucket{le=\"134.217728\"} 9\n");
    has("_bucket{le=\"+Inf\"} 10\n");
    has("_count 10\n");
    double sum = strtod(strstr(text, "_sum ") + 5, NULL);

    ck_assert(sum > 0.95 * 3600 && sum < 1.05 * 3600);
}
END_TEST

/* What a peer wrote cannot end the line or the quotation, nor fill it. */
START_TEST(as_a_call)
{
    char from[5000];
    proxy_call call = {.state = "incall",
                       .age_us = 61234567,
                       .from = "sip:alice@example.com",
                       .to = "x\" exempt=\"yes\n",
                       .call_id = ""};
    FILE *out = begin();

    figures_call(out, &call);
    fclose(out);
    ck_assert_str_eq(text, "state=\"incall\" age=\"61.234s\" exempt=\"no\" "
                           "from=\"sip:alice@example.com\" to=\"x\\x22 exempt=\\x22yes\\x0A\" "
                           "call_id=\"\"\n");
    memset(from, '\n', sizeof(from));
    from[sizeof(from) - 1] = '\0';
    call.from = call.to = call.call_id = from;
    out = begin();
    figures_call(out, &call);
    fclose(out);
    ck_assert_uint_lt(size, 800);
    ck_assert_ptr_eq(strchr(text, '\n'), text + size - 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sip_figures");
    TCase *tcase = unit_case(suite, "figures");

    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, as_text);
    tcase_add_test(tcase, as_json);
    tcase_add_test(tcase, as_metrics);
    tcase_add_test(tcase, as_a_call);
    return unit_run(suite);
}
