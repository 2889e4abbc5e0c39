/*
 * honest and upload: open-loop HTTP clients.
 *
 * Clients are started on schedule whatever became of the earlier ones, each on
 * a connection of its own, and their latency counts from the scheduled start:
 * a stall of the server shows in every client that was due meanwhile.
 */
#include "webbots.h"

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PACE_US = 50000,   /* an upload sends a piece this often */
    LIVE_US = 500000,  /* --live rewrites its file this often */
    IDLE_WAIT_MS = 100 /* longest sleep, so that a signal is seen */
};

/* What one mode was asked to do. */
struct plan {
    const char *url;
    double rate;                      /* new clients a second */
    double seconds;                   /* for how long new ones start */
    double limit;                     /* seconds a client may take, from its scheduled start */
    bool http2, half_http2, insecure; /* half: every other client */
    const char *live;                 /* file for progress, or NULL */
    double bytes;                     /* to upload; 0 is a GET */
    double speed;                     /* bytes a second of an upload */
};

struct tally {
    long offered, served, refused, failed, http2;
    double *served_ms; /* latency of each served client */
    long codes[6];     /* failed with a 1xx .. 5xx answer; [0] without one */
};

struct client {
    CURL *easy;
    int64_t due_us;     /* its scheduled start */
    int64_t flowing_us; /* when its upload began, 0 before */
    double sent;        /* bytes given to curl so far */
    bool paused, http2;
    const struct plan *plan;
    struct client *next, **back; /* among those running */
};

struct run {
    const struct plan *plan;
    struct tally tally;
    CURLM *multi;
    struct client *running;
    struct curl_slist *headers;
    int64_t start_us, next_pace_us, next_live_us;
    long planned;
};

/* ---- one client ---------------------------------------------------------- */

static size_t ignore_body(char *data, size_t size, size_t count, void *context)
{
    (void)data;
    (void)context;
    return size * count;
}

/* How much of its upload a client may have sent by now, in even pieces. */
static double upload_due(struct client *client)
{
    int64_t now = now_us();
    if (!client->flowing_us)
        client->flowing_us = now;
    double pieces = (double)((now - client->flowing_us) / PACE_US + 1);
    double due = floor(pieces * client->plan->speed * PACE_US / 1e6);
    return due < client->plan->bytes ? due : client->plan->bytes;
}

static size_t next_piece(char *data, size_t size, size_t count, void *context)
{
    struct client *client = context;
    size_t room = size * count;
    double owed = upload_due(client) - client->sent;
    if (client->sent >= client->plan->bytes)
        return 0;
    if (owed < 1) {
        client->paused = true;
        return CURL_READFUNC_PAUSE;
    }
    size_t piece = (size_t)owed < room ? (size_t)owed : room;
    memset(data, 'u', piece);
    client->sent += (double)piece;
    return piece;
}

static void set_upload(struct client *client, struct run *run)
{
    CURL *easy = client->easy;
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)client->plan->bytes);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, next_piece);
    curl_easy_setopt(easy, CURLOPT_READDATA, client);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, run->headers);
}

static long http_version(const struct client *client)
{
    if (!client->http2)
        return CURL_HTTP_VERSION_1_1;
    return strncmp(client->plan->url, "https:", 6) == 0 ? CURL_HTTP_VERSION_2TLS
                                                        : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
}

static void set_request(struct client *client, struct run *run)
{
    const struct plan *plan = client->plan;
    CURL *easy = client->easy;
    double late_ms = (double)(now_us() - client->due_us) / 1000;
    double left_ms = plan->limit * 1000 - late_ms;
    curl_easy_setopt(easy, CURLOPT_URL, plan->url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, client);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore_body);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, http_version(client));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, left_ms > 1 ? (long)left_ms : 1);
    if (plan->insecure) {
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
        curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    if (plan->bytes > 0)
        set_upload(client, run);
}

static void start_client(struct run *run, int64_t due_us)
{
    struct client *client = grow(NULL, sizeof *client);
    *client = (struct client){.due_us = due_us, .plan = run->plan};
    client->http2 = run->plan->http2 || (run->plan->half_http2 && run->tally.offered % 2);
    client->easy = curl_easy_init();
    if (!client->easy)
        fail("libcurl could not start a client.");
    set_request(client, run);
    client->next = run->running;
    client->back = &run->running;
    if (client->next)
        client->next->back = &client->next;
    run->running = client;
    run->tally.offered++;
    curl_multi_add_handle(run->multi, client->easy);
}

static void end_client(struct run *run, struct client *client)
{
    *client->back = client->next;
    if (client->next)
        client->next->back = client->back;
    curl_multi_remove_handle(run->multi, client->easy);
    curl_easy_cleanup(client->easy);
    free(client);
}

/* ---- the outcomes --------------------------------------------------------- */

static void count_failure(struct tally *tally, long code)
{
    tally->failed++;
    tally->codes[code >= 100 && code <= 599 ? code / 100 : 0]++;
}

static void count_outcome(struct run *run, struct client *client, CURLcode rc)
{
    struct tally *tally = &run->tally;
    long code = 0, version = 0;
    curl_off_t retry_after = 0;
    double ms = (double)(now_us() - client->due_us) / 1000;
    curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(client->easy, CURLINFO_RETRY_AFTER, &retry_after);
    curl_easy_getinfo(client->easy, CURLINFO_HTTP_VERSION, &version);
    bool whole = client->sent >= client->plan->bytes;
    if (rc == CURLE_OK && code == 200 && whole && ms <= client->plan->limit * 1000) {
        tally->served_ms[tally->served++] = ms;
        tally->http2 += version == CURL_HTTP_VERSION_2_0;
    } else if (code == 503 && retry_after > 0) {
        tally->refused++;
    } else {
        count_failure(tally, code);
    }
}

static void collect(struct run *run)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(run->multi, &left))) {
        struct client *client = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &client);
        count_outcome(run, client, message->data.result);
        end_client(run, client);
    }
}

/* ---- the figures ---------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest latency that at least this share of the served did not exceed;
 * the latencies must be sorted. 0 when nobody was served. */
static double percentile(const struct tally *tally, double share)
{
    if (tally->served == 0)
        return 0;
    long rank = (long)ceil(share * (double)tally->served);
    return tally->served_ms[rank > 0 ? rank - 1 : 0];
}

static double served_pct(const struct tally *tally)
{
    return tally->offered ? 100.0 * (double)tally->served / (double)tally->offered : 0;
}

static void print_counts(FILE *out, const struct tally *tally)
{
    fprintf(out, "offered: %ld\nserved: %ld\nrefused: %ld\nfailed: %ld\n", tally->offered,
            tally->served, tally->refused, tally->failed);
}

static void print_figures(struct tally *tally)
{
    qsort(tally->served_ms, (size_t)tally->served, sizeof *tally->served_ms, compare_doubles);
    print_counts(stdout, tally);
    printf("served_pct: %.3f\n", served_pct(tally));
    printf("p50_ms: %.2f\np99_ms: %.2f\nmax_ms: %.2f\n", percentile(tally, 0.50),
           percentile(tally, 0.99), percentile(tally, 1));
    printf("http2: %ld\nfailed_no_answer: %ld\nfailed_4xx: %ld\n"
           "failed_5xx: %ld\n",
           tally->http2, tally->codes[0], tally->codes[4], tally->codes[5]);
}

/* Replaces the progress file in one step, so a reader never sees half. */
static void write_live(struct run *run)
{
    char draft[4096];
    if (!run->plan->live)
        return;
    snprintf(draft, sizeof draft, "%s.new", run->plan->live);
    FILE *file = fopen(draft, "w");
    if (!file)
        fail("Cannot write %s.", draft);
    print_counts(file, &run->tally);
    fclose(file);
    if (rename(draft, run->plan->live) != 0)
        fail("Cannot write %s.", run->plan->live);
}

/* ---- the loop ------------------------------------------------------------- */

static int64_t due_time(const struct run *run, long index)
{
    return run->start_us + (int64_t)((double)index * 1e6 / run->plan->rate);
}

static void start_due(struct run *run)
{
    int64_t now = now_us();
    while (!webbots_stop && run->tally.offered < run->planned &&
           due_time(run, run->tally.offered) <= now)
        start_client(run, due_time(run, run->tally.offered));
}

static void pace_uploads(struct run *run)
{
    int64_t now = now_us();
    if (run->plan->bytes <= 0 || now < run->next_pace_us)
        return;
    run->next_pace_us = now + PACE_US / 5;
    struct client *client = run->running, *next;
    for (; client; client = next) {
        next = client->next;
        if (!client->paused || upload_due(client) - client->sent < 1)
            continue;
        client->paused = false;
        curl_easy_pause(client->easy, CURLPAUSE_CONT);
    }
}

static int wait_ms(const struct run *run)
{
    int64_t until = now_us() + IDLE_WAIT_MS * 1000;
    if (run->tally.offered < run->planned) {
        int64_t due = due_time(run, run->tally.offered);
        until = due < until ? due : until;
    }
    if (run->plan->bytes > 0 && run->running && run->next_pace_us < until)
        until = run->next_pace_us;
    int64_t left = until - now_us();
    return left > 0 ? (int)((left + 999) / 1000) : 0;
}

static void step(struct run *run)
{
    int busy;
    start_due(run);
    pace_uploads(run);
    curl_multi_perform(run->multi, &busy);
    collect(run);
    if (now_us() >= run->next_live_us) {
        run->next_live_us = now_us() + LIVE_US;
        write_live(run);
    }
    curl_multi_poll(run->multi, NULL, 0, wait_ms(run), NULL);
}

static void abandon_rest(struct run *run)
{
    while (run->running) {
        count_failure(&run->tally, 0);
        end_client(run, run->running);
    }
}

static void run_all(struct run *run)
{
    const struct plan *plan = run->plan;
    int64_t last_us = run->start_us + (int64_t)((plan->seconds + plan->limit + 2) * 1e6);
    while (!webbots_stop && now_us() < last_us &&
           (run->tally.offered < run->planned || run->running))
        step(run);
    abandon_rest(run);
    write_live(run);
}

static int run_plan(const struct plan *plan)
{
    struct run run = {.plan = plan};
    run.planned = lround(plan->rate * plan->seconds);
    run.tally.served_ms = grow(NULL, sizeof(double) * (size_t)(run.planned + 1));
    raise_file_limit();
    curl_global_init(CURL_GLOBAL_DEFAULT);
    run.multi = curl_multi_init();
    curl_multi_setopt(run.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    run.headers = curl_slist_append(NULL, "Expect:");
    run.start_us = now_us();
    run_all(&run);
    print_figures(&run.tally);
    curl_multi_cleanup(run.multi);
    curl_slist_free_all(run.headers);
    curl_global_cleanup();
    free(run.tally.served_ms);
    return 0;
}

/* ---- the modes ------------------------------------------------------------ */

static void require_url(const char *mode, const char *url)
{
    if (!url)
        usage_error("%s needs --url.", mode);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        usage_error("--url must begin with http:// or https://, not '%s'.", url);
}

int mode_honest(int argc, char **argv)
{
    struct plan plan = {.rate = 30, .seconds = 10, .limit = 20};
    const struct option_spec options[] = {
        {"url", OPTION_TEXT, &plan.url, 0, 0, "what to ask for"},
        {"rate", OPTION_NUMBER, &plan.rate, 0.1, 10000, "new clients a second (30)"},
        {"seconds", OPTION_NUMBER, &plan.seconds, 0.1, 3600, "how long new clients start (10)"},
        {"limit", OPTION_NUMBER, &plan.limit, 0.1, 600, "seconds a client may take (20)"},
        {"http2", OPTION_FLAG, &plan.http2, 0, 0, "speak HTTP/2"},
        {"half-http2", OPTION_FLAG, &plan.half_http2, 0, 0, "every other client speaks HTTP/2"},
        {"insecure", OPTION_FLAG, &plan.insecure, 0, 0, "accept any certificate"},
        {"live", OPTION_TEXT, &plan.live, 0, 0, "a file to keep the counts in as they grow"},
    };
    parse_options(argc, argv, options, sizeof options / sizeof *options,
                  "Starts clients on schedule, whatever became of the others.");
    require_url("honest", plan.url);
    return run_plan(&plan);
}

int mode_upload(int argc, char **argv)
{
    struct plan plan = {.rate = 1, .seconds = 10, .limit = 30, .bytes = 100000, .speed = 20000};
    const struct option_spec options[] = {
        {"url", OPTION_TEXT, &plan.url, 0, 0, "where to POST"},
        {"rate", OPTION_NUMBER, &plan.rate, 0.1, 10000, "new clients a second (1)"},
        {"seconds", OPTION_NUMBER, &plan.seconds, 0.1, 3600, "how long new clients start (10)"},
        {"limit", OPTION_NUMBER, &plan.limit, 0.1, 600, "seconds a client may take (30)"},
        {"bytes", OPTION_NUMBER, &plan.bytes, 1, 1e9, "size of each upload (100000)"},
        {"speed", OPTION_NUMBER, &plan.speed, 20, 1e9, "bytes a second of each, evenly (20000)"},
        {"http2", OPTION_FLAG, &plan.http2, 0, 0, "speak HTTP/2"},
        {"half-http2", OPTION_FLAG, &plan.half_http2, 0, 0, "every other client speaks HTTP/2"},
        {"insecure", OPTION_FLAG, &plan.insecure, 0, 0, "accept any certificate"},
        {"live", OPTION_TEXT, &plan.live, 0, 0, "a file to keep the counts in as they grow"},
    };
    parse_options(argc, argv, options, sizeof options / sizeof *options,
                  "Starts uploads on schedule; each sends evenly, piece by "
                  "piece, at the given speed.");
    require_url("upload", plan.url);
    return run_plan(&plan);
}
