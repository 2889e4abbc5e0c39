/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "address.h"
#include "certificate.h"
#include "exempt.h"
#include "log.h"
#include "parse.h"

#define MAX_LINE 4096         /* bytes of a line, its end not counted */
#define MAX_LISTENS 64        /* addresses to listen on */
#define MAX_FILE (64UL << 20) /* bytes of the file */
#define SHOWN 128             /* of a value in a message */
#define SECOND UINT64_C(1000000)
#define LEAST_RING SECOND
#define LEAST_T1 UINT64_C(10000)
#define MOST_T1 (10 * SECOND)

/* Keys that decide: what they say is for the core to judge, once k is known. */
enum { DECIDES_MOST = 4 };

typedef struct reader {
    config *c;
    config_exempt *exempt;
    unsigned line;
    const char *key;
    char *error;
    size_t error_size;
    unsigned seen[32]; /* line of each key, by its index in keys[] */
    long exempt_calls;
    bool exempt_percent;
    struct {
        const char *key;
        unsigned line;
        seven_policy policy; /* the defaults and what this line says */
        void (*apply)(seven_policy *to, const seven_policy *from);
    } decides[DECIDES_MOST];
    unsigned decides_count;
} reader;

/* ---- what is wrong --------------------------------------------------------------------------- */

static bool fail_at(reader *r, unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes "FILE:LINE: sentence"; returns false. */
static bool fail_at(reader *r, unsigned line, const char *format, ...)
{
    char sentence[1024], file[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    log_quote(file, sizeof(file), r->c->file, strlen(r->c->file));
    snprintf(r->error, r->error_size, "%s:%u: %s", file, line, sentence);
    return false;
}

/* "FILE:LINE: KEY must be WHAT, not "VALUE"". */
static bool must_be(reader *r, const char *what, const char *value)
{
    char shown[SHOWN];

    if (value[0] == '\0') {
        return fail_at(r, r->line, "%s has no value; it must be %s", r->key, what);
    }
    return fail_at(r, r->line, "%s must be %s, not \"%s\"", r->key, what,
                   log_quote(shown, sizeof(shown), value, strlen(value)));
}

static bool no_memory(reader *r)
{
    return fail_at(r, r->line, "there is no memory for %s", r->key);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The next word of a value, ended with a NUL; NULL at the end. */
static char *next_word(char **rest)
{
    char *word = *rest + strspn(*rest, " \t");

    *rest = word + strcspn(word, " \t");
    if (**rest != '\0') {
        *(*rest)++ = '\0';
    }
    return *word != '\0' ? word : NULL;
}

static bool get_number(reader *r, const char *value, long low, long high, long *number)
{
    char what[96];

    snprintf(what, sizeof(what), "a whole number from %ld to %ld", low, high);
    return seven_parse_number(value, low, high, number) || must_be(r, what, value);
}

static bool get_time(reader *r, const char *value, uint64_t least, uint64_t most,
                     const char *bounds, uint64_t *us)
{
    char what[128];
    uint64_t time;

    if (seven_parse_time(value, &time) && time >= least && time <= most) {
        *us = time;
        return true;
    }
    snprintf(what, sizeof(what), "a time with its unit (ms, s, min or h), %s", bounds);
    return must_be(r, what, value);
}

static bool get_bool(reader *r, const char *value, const char *yes, const char *no, bool *to)
{
    char what[64];

    *to = strcasecmp(value, yes) == 0;
    if (*to || strcasecmp(value, no) == 0) {
        return true;
    }
    snprintf(what, sizeof(what), "%s or %s", yes, no);
    return must_be(r, what, value);
}

/* A path, or none. */
static bool get_path(reader *r, const char *value, size_t most, char **path)
{
    char what[64];

    if (strcasecmp(value, "none") == 0) {
        return true;
    }
    if (value[0] == '\0' || strlen(value) > most) {
        snprintf(what, sizeof(what), "none or a path of at most %zu bytes", most);
        return must_be(r, what, value);
    }
    *path = strdup(value);
    return *path != NULL || no_memory(r);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool get_address(reader *r, const char *value, config_address *a)
{
    static const char form[] =
        "like udp:192.0.2.1:5060 or tcp:[2001:db8::1]:5060 (udp, tcp or tls; "
        "an address in digits; the port may be left out)";

    for (unsigned t = CONFIG_UDP; t <= CONFIG_TLS; t++) {
        const char *name = config_transport_name(t);

        if (strncasecmp(value, name, strlen(name)) == 0 && value[strlen(name)] == ':') {
            a->transport = t;
            a->line = r->line;
            if (!address_parse(value + strlen(name) + 1, t == CONFIG_TLS ? 5061 : 5060, a)) {
                break;
            }
            return address_not_unicast(a) == NULL || must_be(r, address_not_unicast(a), value);
        }
    }
    return must_be(r, form, value);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool set_listen(reader *r, char *value)
{
    config *c = r->c;
    config_address a = {0}, *more;

    if (!get_address(r, value, &a)) {
        return false;
    }
    for (size_t i = 0; i < c->listens; i++) {
        if (address_equal(&a, &c->listen[i])) {
            return fail_at(r, r->line, "listen has the same address and port as in line %u",
                           c->listen[i].line);
        }
    }
    if (c->listens == MAX_LISTENS) {
        return fail_at(r, r->line, "listen can stand %d times at most", MAX_LISTENS);
    }
    more = realloc(c->listen, (c->listens + 1) * sizeof(*more));
    if (more == NULL) {
        return no_memory(r);
    }
    c->listen = more;
    c->listen[c->listens++] = a;
    return true;
}

static bool set_server(reader *r, char *value)
{
    return get_address(r, value, &r->c->server);
}

static bool set_calls(reader *r, char *value)
{
    long k;

    if (!get_number(r, value, 1, SEVEN_MAX_PLACES, &k)) {
        return false;
    }
    r->c->policy.places = (uint32_t)k;
    return true;
}

/* Remembers a line that the core judges when all lines are read. */
static seven_policy *decides(reader *r, void (*apply)(seven_policy *, const seven_policy *))
{
    unsigned i = r->decides_count++;

    r->decides[i].key = r->key;
    r->decides[i].line = r->line;
    r->decides[i].apply = apply;
    r->decides[i].policy = r->c->policy;
    return &r->decides[i].policy;
}

static void apply_strategy(seven_policy *to, const seven_policy *from)
{
    to->strategy = from->strategy;
    to->tournament = from->tournament;
}

static bool set_strategy(reader *r, char *value)
{
    static const char form[] = "uniform, roulette, tournament or tournament N";
    seven_policy *policy = decides(r, apply_strategy);
    char whole[SHOWN], *name, *size;
    long n = 0;

    snprintf(whole, sizeof(whole), "%s", value);
    name = next_word(&value);
    size = next_word(&value);
    if (name == NULL || !seven_parse_strategy(name, &policy->strategy)) {
        return must_be(r, form, whole);
    }
    if (size != NULL && (policy->strategy != SEVEN_TOURNAMENT || next_word(&value) != NULL ||
                         !seven_parse_number(size, 1, SEVEN_MAX_PLACES, &n))) {
        return must_be(r, form, whole);
    }
    policy->tournament = (uint32_t)n;
    return true;
}

static void apply_round(seven_policy *to, const seven_policy *from)
{
    to->round_us = from->round_us;
}

static bool set_round(reader *r, char *value)
{
    return get_time(r, value, 1000, SEVEN_MAX_TIME_US, "from 1ms to 24h",
                    &decides(r, apply_round)->round_us);
}

static void apply_t_m(seven_policy *to, const seven_policy *from)
{
    to->t_m_us = from->t_m_us;
}

static bool set_t_m(reader *r, char *value)
{
    seven_policy *policy = decides(r, apply_t_m);

    policy->t_m_us = 0;
    if (strcasecmp(value, "auto") == 0) {
        return true;
    }
    return get_time(r, value, 1000, SEVEN_MAX_TIME_US, "from 1ms to 24h, or auto", &policy->t_m_us);
}

static void apply_drop_factor(seven_policy *to, const seven_policy *from)
{
    to->p_wait = from->p_wait;
    to->p_in = from->p_in;
    to->alpha = from->alpha;
    to->scale = from->scale;
}

static bool set_drop_factor(reader *r, char *value)
{
    static const char form[] = "some of wait=, in=, alpha= and scale=, each with a number";
    seven_policy *policy = decides(r, apply_drop_factor);
    char *word = next_word(&value);

    if (word == NULL) {
        return must_be(r, form, "");
    }
    for (; word != NULL; word = next_word(&value)) {
        if (!seven_parse_drop_factor(word, policy)) {
            return must_be(r, form, word);
        }
    }
    return true;
}

static bool set_forward(reader *r, char *value)
{
    return get_bool(r, value, "round", "now", &r->c->forward_round);
}

static bool set_refuse(reader *r, char *value)
{
    long code;

    if (!seven_parse_number(value, 480, 600, &code) ||
        (code != 480 && code != 486 && code != 503 && code != 600)) {
        return must_be(r, "480, 486, 503 or 600", value);
    }
    r->c->refuse = (unsigned)code;
    return true;
}

static bool set_retry_after(reader *r, char *value)
{
    long seconds;

    if (!get_number(r, value, 1, 86400, &seconds)) {
        return false;
    }
    r->c->retry_after = (unsigned)seconds;
    return true;
}

static bool set_exempt(reader *r, char *value)
{
    char shown[SHOWN], *word = next_word(&value);

    if (word != NULL && strcasecmp(word, "none") == 0 && *value == '\0') {
        return true;
    }
    if (word == NULL) {
        return must_be(r, "none, an address, an address-of-record, a number or a URN", "");
    }
    for (; word != NULL; word = next_word(&value)) {
        const char *wrong = exempt_add(r->exempt, word);

        if (wrong != NULL) {
            return fail_at(r, r->line, "exempt: \"%s\" %s",
                           log_quote(shown, sizeof(shown), word, strlen(word)), wrong);
        }
    }
    return true;
}

static bool set_exempt_calls(reader *r, char *value)
{
    return seven_parse_amount(value, 0, SEVEN_MAX_PLACES, &r->exempt_calls, &r->exempt_percent) ||
           must_be(r, "a whole number from 0 to 1048576 or a percentage of calls, like 10%", value);
}

static bool set_detect_only(reader *r, char *value)
{
    return get_bool(r, value, "yes", "no", &r->c->detect_only);
}

static bool set_ring_time(reader *r, char *value)
{
    return get_time(r, value, LEAST_RING, SEVEN_MAX_TIME_US, "from 1s to 24h", &r->c->ring_us);
}

static bool set_t1(reader *r, char *value)
{
    return get_time(r, value, LEAST_T1, MOST_T1, "from 10ms to 10s", &r->c->t1_us);
}

static bool set_store(reader *r, char *value)
{
    r->c->store_line = r->line;
    return get_path(r, value, PATH_MAX - 1, &r->c->store);
}

static bool set_control(reader *r, char *value)
{
    r->c->control_line = r->line;
    return get_path(r, value, sizeof(((struct sockaddr_un *)0)->sun_path) - 1, &r->c->control);
}

static bool set_control_mode(reader *r, char *value)
{
    static const unsigned modes[] = {0600, 0660, 0666};
    char text[8];

    for (unsigned i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        snprintf(text, sizeof(text), "0%o", modes[i]);
        if (strcmp(value, text) == 0) {
            r->c->control_mode = modes[i];
            return true;
        }
    }
    return must_be(r, "0600 (its user), 0660 (its group, too) or 0666 (everybody)", value);
}

static bool set_metrics(reader *r, char *value)
{
    static const char form[] =
        "none or an address of this machine with a port, like 127.0.0.1:9907";
    char whole[SHOWN], *word, *public;

    snprintf(whole, sizeof(whole), "%s", value);
    word = next_word(&value);
    public = next_word(&value);
    if (word == NULL || next_word(&value) != NULL ||
        (public != NULL && strcasecmp(public, "public") != 0)) {
        return must_be(r, form, whole);
    }
    if (strcasecmp(word, "none") == 0 && public == NULL) {
        return true;
    }
    r->c->metrics.transport = CONFIG_TCP;
    r->c->metrics.line = r->line;
    if (!address_parse(word, 0, &r->c->metrics)) {
        return must_be(r, form, whole);
    }
    if (!address_is_loopback(&r->c->metrics) && public == NULL) {
        return fail_at(
            r, r->line,
            "metrics must be a loopback address, as whoever can reach it can read it; if "
            "that is meant, write \"%s public\"",
            whole);
    }
    r->c->metrics_on = true;
    return true;
}

static bool set_tls_certificates(reader *r, char *value)
{
    return get_path(r, value, PATH_MAX - 16, &r->c->tls_certificates);
}

static bool set_log(reader *r, char *value)
{
    bool to_syslog;

    if (!get_bool(r, value, "syslog", "stderr", &to_syslog)) {
        return false;
    }
    r->c->log = to_syslog ? CONFIG_SYSLOG : CONFIG_STDERR;
    return true;
}

static bool set_log_level(reader *r, char *value)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"error", LOG_ERR},
                  {"warning", LOG_WARNING},
                  {"notice", LOG_NOTICE},
                  {"info", LOG_INFO},
                  {"debug", LOG_DEBUG}};

    for (unsigned i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
        if (strcasecmp(value, levels[i].name) == 0) {
            r->c->log_level = levels[i].level;
            return true;
        }
    }
    return must_be(r, "error, warning, notice, info or debug", value);
}

static const struct {
    const char *name;
    bool (*set)(reader *r, char *value);
    bool repeatable;
} keys[] = {
    {"listen", set_listen, true},
    {"server", set_server, false},
    {"calls", set_calls, false},
    {"strategy", set_strategy, false},
    {"round", set_round, false},
    {"forward", set_forward, false},
    {"t_m", set_t_m, false},
    {"drop_factor", set_drop_factor, false},
    {"refuse", set_refuse, false},
    {"retry_after", set_retry_after, false},
    {"exempt", set_exempt, true},
    {"exempt_calls", set_exempt_calls, false},
    {"detect_only", set_detect_only, false},
    {"ring_time", set_ring_time, false},
    {"t1", set_t1, false},
    {"store", set_store, false},
    {"control", set_control, false},
    {"control_mode", set_control_mode, false},
    {"metrics", set_metrics, false},
    {"tls_certificates", set_tls_certificates, false},
    {"log", set_log, false},
    {"log_level", set_log_level, false},
};
#define KEYS (sizeof(keys) / sizeof(*keys))

/* ---- lines ----------------------------------------------------------------------------------- */

/* Cuts a comment (# at the start of a line or after a blank) and blanks at both ends. */
static char *strip(char *text)
{
    char *end;

    for (char *at = strchr(text, '#'); at != NULL; at = strchr(at + 1, '#')) {
        if (at == text || at[-1] == ' ' || at[-1] == '\t') {
            *at = '\0';
            break;
        }
    }
    text += strspn(text, " \t");
    end = text + strlen(text);
    while (end > text && strchr(" \t\r", end[-1]) != NULL) {
        *--end = '\0';
    }
    return text;
}

static bool read_key(reader *r, const char *name, char *value)
{
    char shown[SHOWN];

    for (unsigned i = 0; i < KEYS; i++) {
        if (strcmp(name, keys[i].name) != 0) {
            continue;
        }
        r->key = keys[i].name;
        if (r->seen[i] != 0 && !keys[i].repeatable) {
            return fail_at(r, r->line, "%s stands in line %u already", name, r->seen[i]);
        }
        r->seen[i] = r->line;
        return keys[i].set(r, value);
    }
    return fail_at(r, r->line, "there is no key \"%s\"",
                   log_quote(shown, sizeof(shown), name, strlen(name)));
}

static bool read_line(reader *r, char *text)
{
    char *equals, *value;

    text = strip(text);
    if (text[0] == '\0') {
        return true;
    }
    equals = strchr(text, '=');
    if (equals == NULL || equals == text) {
        char shown[SHOWN];

        return fail_at(r, r->line, "a line must be \"key = value\", not \"%s\"",
                       log_quote(shown, sizeof(shown), text, strlen(text)));
    }
    value = equals + 1 + strspn(equals + 1, " \t");
    do {
        *equals-- = '\0';
    } while (equals > text && (*equals == ' ' || *equals == '\t'));
    return read_key(r, text, value);
}

/* What is wrong with a line before anybody looks at what it says, or NULL. */
static const char *not_a_line(const char *text, size_t length)
{
    return memchr(text, '\0', length) != NULL ? "the line has a NUL byte"
           : length > MAX_LINE                ? "the line is longer than 4096 bytes"
                                              : NULL;
}

static bool read_lines(reader *r, FILE *file)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    bool ok = true;

    while (ok && (length = getline(&text, &room, file)) > 0) {
        const char *wrong;

        r->line++;
        if (text[length - 1] == '\n') {
            text[--length] = '\0';
        }
        wrong = not_a_line(text, (size_t)length);
        ok = wrong == NULL ? read_line(r, text) : fail_at(r, r->line, "%s", wrong);
    }
    free(text);
    r->line += r->line == 0;
    return ok && (!ferror(file) || fail_at(r, r->line, "cannot be read: %s", strerror(errno)));
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool is_set(const reader *r, const char *name)
{
    for (unsigned i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            return r->seen[i] != 0;
        }
    }
    return false;
}

static unsigned line_of(const reader *r, const char *name)
{
    for (unsigned i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0 && r->seen[i] != 0) {
            return r->seen[i];
        }
    }
    return r->line;
}

/* A call lasts longer than a request: other bounds than the core's for learning t_M. The mean of
 * lognormal and exponential lengths is about one and a half times their median. */
static void policy_defaults(seven_policy *policy, uint32_t places)
{
    seven_policy_defaults(policy, places);
    policy->learning =
        (seven_learning){.quantile = 0.5, .factor = 1.5, .min_us = SECOND, .max_us = 3600 * SECOND};
    policy->credit_us = 0;
}

/* Takes the lines that decide one by one, so that the first with which it is wrong is named. */
static bool complete_policy(reader *r)
{
    seven_policy *policy = &r->c->policy;
    const char *wrong;

    policy_defaults(policy, policy->places);
    wrong = seven_policy_error(policy);
    if (wrong != NULL) {
        return fail_at(r, line_of(r, "calls"), "calls: %s", wrong);
    }
    for (unsigned i = 0; i < r->decides_count; i++) {
        r->decides[i].apply(policy, &r->decides[i].policy);
        wrong = seven_policy_error(policy);
        if (wrong != NULL) {
            return fail_at(r, r->decides[i].line, "%s: %s", r->decides[i].key, wrong);
        }
    }
    return true;
}

static void complete_exempt_calls(reader *r)
{
    uint64_t n = (uint64_t)r->exempt_calls;

    if (r->exempt_percent) {
        n = (n * r->c->policy.places + 99) / 100;
    }
    r->c->exempt_calls = (uint32_t)n;
}

/* The proxy asks the server from an address that it listens on. */
static bool check_server(reader *r)
{
    const config *c = r->c;
    const config_address *server = &c->server;
    bool like = false, reaches = false;

    for (size_t i = 0; i < c->listens; i++) {
        const config_address *a = &c->listen[i];

        if (address_equal(a, server)) {
            return fail_at(r, server->line, "server is one of the addresses to listen on");
        }
        if (a->transport == server->transport && a->ipv6 == server->ipv6) {
            like = true;
            reaches = reaches || !address_is_loopback(a) || address_is_loopback(server);
        }
    }
    if (!like) {
        return fail_at(r, server->line,
                       "server is reached by %s over %s, so one listen must be of that kind, too",
                       config_transport_name(server->transport), server->ipv6 ? "IPv6" : "IPv4");
    }
    return reaches ||
           fail_at(r, server->line,
                   "server cannot be reached from a loopback address, so one listen by %s must be "
                   "another",
                   config_transport_name(server->transport));
}

static bool check_tls(reader *r)
{
    char wrong[256];

    for (size_t i = 0; i < r->c->listens; i++) {
        if (r->c->listen[i].transport == CONFIG_TLS && r->c->tls_certificates == NULL) {
            return fail_at(r, r->c->listen[i].line,
                           "listen on tls needs tls_certificates, a directory with agent.pem");
        }
    }
    if (r->c->tls_certificates != NULL &&
        !certificate_check(r->c->tls_certificates, wrong, sizeof(wrong))) {
        return fail_at(r, line_of(r, "tls_certificates"), "tls_certificates: %s", wrong);
    }
    return true;
}

static bool complete(reader *r)
{
    config *c = r->c;

    if (!is_set(r, "listen")) {
        char value[] = "udp:127.0.0.1:5060";

        r->key = "listen";
        if (!set_listen(r, value)) {
            return false;
        }
    }
    if (!is_set(r, "server")) {
        return fail_at(r, r->line,
                       "the file ends without server, the address of the server to "
                       "protect, like server = udp:127.0.0.1:5080");
    }
    if (!is_set(r, "calls")) {
        return fail_at(r, r->line,
                       "the file ends without calls, how many calls may be up, like "
                       "calls = 24");
    }
    for (size_t i = 0; c->metrics_on && i < c->listens; i++) {
        if (address_equal(&c->metrics, &c->listen[i])) {
            return fail_at(r, c->metrics.line, "metrics is one of the addresses to listen on");
        }
    }
    complete_exempt_calls(r);
    exempt_sort(r->exempt);
    return complete_policy(r) && check_tls(r) && check_server(r);
}

/* Opens it, unless it is no file of a sane size. */
static FILE *open_file(const char *name, char *error, size_t error_size)
{
    char shown[256];
    struct stat status;
    /* A FIFO would wait for a writer. */
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *wrong = NULL;
    FILE *file = NULL;

    if (fd >= 0 && fstat(fd, &status) == 0) {
        wrong = S_ISDIR(status.st_mode) ? "it is a directory"
                : !S_ISREG(status.st_mode) || status.st_size > (off_t)MAX_FILE
                    ? "it is not a regular file of at most 64 MB"
                    : NULL;
        file = wrong == NULL ? fdopen(fd, "r") : NULL;
    }
    if (file == NULL && wrong == NULL) {
        wrong = strerror(errno);
    }
    if (wrong != NULL) {
        snprintf(error, error_size, "%s: cannot be read: %s",
                 log_quote(shown, sizeof(shown), name, strlen(name)), wrong);
        if (fd >= 0) {
            close(fd);
        }
    }
    return file;
}

static config *defaults(const char *file)
{
    config *c = calloc(1, sizeof(*c));

    if (c != NULL) {
        c->file = strdup(file);
        policy_defaults(&c->policy, 1);
        c->refuse = 503;
        c->retry_after = 1;
        c->ring_us = 200 * SECOND;
        c->t1_us = SECOND / 2;
        c->control_mode = 0600;
        c->log_level = LOG_NOTICE;
        c->exempt = exempt_create();
    }
    if (c != NULL && (c->file == NULL || c->exempt == NULL)) {
        config_free(c);
        c = NULL;
    }
    return c;
}

config *config_load(const char *name, char *error, size_t error_size)
{
    FILE *file = open_file(name, error, error_size);
    config *c;
    reader r;

    if (file == NULL) {
        return NULL;
    }
    c = defaults(name);
    if (c == NULL) {
        snprintf(error, error_size, "there is no memory for the configuration");
        fclose(file);
        return NULL;
    }
    r = (reader){.c = c,
                 .exempt = c->exempt,
                 .error = error,
                 .error_size = error_size,
                 .exempt_calls = 10,
                 .exempt_percent = true};
    if (!read_lines(&r, file) || !complete(&r)) {
        config_free(c);
        c = NULL;
    }
    fclose(file);
    return c;
}

void config_free(config *c)
{
    if (c != NULL) {
        free(c->file);
        free(c->listen);
        free(c->store);
        free(c->control);
        free(c->tls_certificates);
        exempt_free(c->exempt);
        free(c);
    }
}
