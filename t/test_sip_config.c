/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include <sofia-sip/su_alloc.h>

#include "config.h"
#include "unit.h"

#define LEAST "server = udp:127.0.0.1:5080\ncalls = 24\n"
#define MS UINT64_C(1000)
#define SECOND (1000 * MS)

static char folder[128], path[160], error[1024];

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%s/sip_config.XXXXXX", tmp != NULL ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/sip.conf", folder);
}

static void teardown(void)
{
    unlink(path);
    rmdir(folder);
}

static void write_bytes(const char *text, size_t length)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    fclose(file);
}

static config *given(const char *format, ...) __attribute__((format(printf, 1, 2)));

static config *given(const char *format, ...)
{
    char text[4096];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    write_bytes(text, strlen(text));
    error[0] = '\0';
    return config_load(path, error, sizeof(error));
}

/* The text is wrong, in that line, and the sentence has those words. */
static void wrong(const char *text, unsigned line, const char *words)
{
    char place[256];
    config *c = given("%s", text);

    ck_assert_msg(c == NULL, "passes: %s", text);
    snprintf(place, sizeof(place), "%s:%u: ", path, line);
    ck_assert_msg(strncmp(error, place, strlen(place)) == 0, "%s\nnot %s: %s", text, place, error);
    ck_assert_msg(strstr(error, words) != NULL, "%s\n%s: not %s", text, error, words);
    ck_assert_msg(strchr(error, '\n') == NULL && error[strlen(error) - 1] != '.', "%s", error);
}

/* ---- what is right --------------------------------------------------------------------------- */

START_TEST(defaults)
{
    config *c = given(LEAST);
    seven_policy core;

    ck_assert_msg(c != NULL, "%s", error);
    seven_policy_defaults(&core, 24);
    ck_assert_uint_eq(c->listens, 1);
    ck_assert_int_eq(c->listen[0].transport, CONFIG_UDP);
    ck_assert_str_eq(c->listen[0].host, "127.0.0.1");
    ck_assert_uint_eq(c->listen[0].port, 5060);
    ck_assert_uint_eq(c->server.port, 5080);
    ck_assert_uint_eq(c->server.line, 1);
    ck_assert_uint_eq(c->policy.places, 24);
    ck_assert_int_eq(c->policy.strategy, core.strategy);
    ck_assert_uint_eq(c->policy.round_us, 100 * MS);
    ck_assert_uint_eq(c->policy.t_m_us, 0);
    ck_assert(c->policy.p_wait == 8 && c->policy.p_in == 2 && c->policy.alpha == 1.89);
    ck_assert_int_eq(c->policy.admit_as, SEVEN_WAITING);
    ck_assert_ptr_null(seven_policy_error(&c->policy));
    ck_assert_uint_eq(c->refuse, 503);
    ck_assert_uint_eq(c->retry_after, 1);
    ck_assert_uint_eq(c->exempt_calls, 3); /* a tenth, and never less */
    ck_assert(!c->detect_only && !c->metrics_on);
    ck_assert(c->store == NULL && c->control == NULL && c->tls_certificates == NULL);
    ck_assert_uint_eq(c->ring_us, 200 * SECOND);
    ck_assert_uint_eq(c->t1_us, 500 * MS);
    ck_assert_uint_eq(c->control_mode, 0600);
    ck_assert_int_eq(c->log, CONFIG_STDERR);
    ck_assert_int_eq(c->log_level, LOG_NOTICE);
    config_free(c);
}
END_TEST

START_TEST(every_key)
{
    config *c = given("# a comment\r\n"
                      "\n"
                      "  listen=udp:127.0.0.1   # the port is 5060\n"
                      "listen = TCP:127.0.0.1:5062\n"
                      "\tlisten = udp:[::1]:5062\t\n"
                      "server = tcp:127.0.0.2:5080\n"
                      "calls = 1000\n"
                      "strategy = Tournament 12\n"
                      "round = 250ms\n"
                      "forward = round\n"
                      "t_m = 5s\n"
                      "drop_factor = wait=9 in=1 alpha=2 scale=0.5\n"
                      "refuse = 486\n"
                      "retry_after = 30\n"
                      "exempt = 192.0.2.0/24 112\n"
                      "exempt = urn:service:sos*\n"
                      "exempt_calls = 5%%\n"
                      "detect_only = YES\n"
                      "ring_time = 3min\n"
                      "t1 = 100ms\n"
                      "store = /run/x y/calls\n"
                      "control = /run/control#1\n"
                      "control_mode = 0660\n"
                      "metrics = [::1]:9907\n"
                      "tls_certificates = none\n"
                      "log = syslog\n"
                      "log_level = debug");

    ck_assert_msg(c != NULL, "%s", error);
    ck_assert_uint_eq(c->listens, 3);
    ck_assert_uint_eq(c->listen[0].line, 3);
    ck_assert_int_eq(c->listen[1].transport, CONFIG_TCP);
    ck_assert(c->listen[2].ipv6 && strcmp(c->listen[2].host, "::1") == 0);
    ck_assert_uint_eq(ntohs(c->listen[2].sockaddr.in6.sin6_port), 5062);
    ck_assert_str_eq(c->server.host, "127.0.0.2");
    ck_assert_uint_eq(c->policy.places, 1000);
    ck_assert_int_eq(c->policy.strategy, SEVEN_TOURNAMENT);
    ck_assert_uint_eq(c->policy.tournament, 12);
    ck_assert_uint_eq(c->policy.round_us, 250 * MS);
    ck_assert(c->forward_round);
    ck_assert_uint_eq(c->policy.t_m_us, 5 * SECOND);
    ck_assert(c->policy.p_wait == 9 && c->policy.p_in == 1 && c->policy.alpha == 2 &&
              c->policy.scale == 0.5);
    ck_assert_uint_eq(c->refuse, 486);
    ck_assert_uint_eq(c->retry_after, 30);
    ck_assert_uint_eq(c->exempt_calls, 50);
    ck_assert(c->detect_only);
    ck_assert_uint_eq(c->ring_us, 180 * SECOND);
    ck_assert_uint_eq(c->t1_us, 100 * MS);
    ck_assert_str_eq(c->store, "/run/x y/calls");
    ck_assert_uint_eq(c->store_line, 21);
    ck_assert_str_eq(c->control, "/run/control#1");
    ck_assert_uint_eq(c->control_mode, 0660);
    ck_assert(c->metrics_on && c->metrics.ipv6 && c->metrics.port == 9907);
    ck_assert_ptr_null(c->tls_certificates);
    ck_assert_int_eq(c->log, CONFIG_SYSLOG);
    ck_assert_int_eq(c->log_level, LOG_DEBUG);
    config_free(c);
}
END_TEST

START_TEST(exempt_calls_are_a_number_or_a_share)
{
    static const struct {
        const char *value;
        unsigned calls;
    } cases[] = {{"0", 0}, {"7", 7}, {"0%", 0}, {"1%", 1}, {"100%", 24}, {"50%", 12}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        config *c = given(LEAST "exempt_calls = %s\n", cases[i].value);

        ck_assert_msg(c != NULL, "%s", error);
        ck_assert_uint_eq(c->exempt_calls, cases[i].calls);
        config_free(c);
    }
}
END_TEST

/* conf/seven-sip.conf as it is, and with all that is commented out put in: the defaults. */
START_TEST(shipped)
{
    FILE *from = fopen("conf/seven-sip.conf", "r"), *to = fopen(path, "w");
    config *bare = NULL, *c[2];
    char line[256];

    ck_assert_msg(from != NULL, "run it from the top of the tree");
    while (fgets(line, sizeof(line), from) != NULL) {
        bool key = line[0] == '#' && line[1] >= 'a' && strstr(line, " = ") != NULL;

        fputs(line + key, to);
    }
    fclose(from);
    fclose(to);
    c[0] = config_load("conf/seven-sip.conf", error, sizeof(error));
    c[1] = config_load(path, error, sizeof(error));
    ck_assert_msg(c[0] != NULL && c[1] != NULL, "%s", error);
    bare = given(LEAST);
    for (int i = 0; i < 2; i++) {
        ck_assert(seven_policy_equal(&c[i]->policy, &bare->policy));
        ck_assert_uint_eq(c[i]->listens, 1);
        ck_assert_str_eq(c[i]->listen[0].host, bare->listen[0].host);
        ck_assert_uint_eq(c[i]->listen[0].port, bare->listen[0].port);
        ck_assert_int_eq(c[i]->listen[0].transport, bare->listen[0].transport);
        ck_assert_uint_eq(c[i]->server.port, bare->server.port);
        ck_assert_int_eq(c[i]->forward_round, bare->forward_round);
        ck_assert_uint_eq(c[i]->refuse, bare->refuse);
        ck_assert_uint_eq(c[i]->retry_after, bare->retry_after);
        ck_assert_uint_eq(c[i]->exempt_calls, bare->exempt_calls);
        ck_assert_int_eq(c[i]->detect_only, bare->detect_only);
        ck_assert_uint_eq(c[i]->ring_us, bare->ring_us);
        ck_assert_uint_eq(c[i]->t1_us, bare->t1_us);
        ck_assert(c[i]->store == NULL && c[i]->control == NULL && !c[i]->metrics_on);
        ck_assert_ptr_null(c[i]->tls_certificates);
        ck_assert_uint_eq(c[i]->control_mode, bare->control_mode);
        ck_assert_int_eq(c[i]->log, bare->log);
        ck_assert_int_eq(c[i]->log_level, bare->log_level);
        config_free(c[i]);
    }
    config_free(bare);
}
END_TEST

/* ---- what is wrong -------------------------------------------------------------------------- */

START_TEST(wrong_lines)
{
    wrong("calls\n", 1, "key = value");
    wrong("\n= 3\n", 2, "key = value");
    wrong("colour = red\n", 1, "colour");
    wrong("Calls = 24\n", 1, "no key");
    wrong("calls = 24\n# x\ncalls = 24\n", 3, "line 1 already");
    wrong("calls =\n", 1, "calls has no value");
    wrong("calls = 24 # and then\nserver =   # none\n", 2, "server has no value");
    wrong("calls = \x1b[31m\n", 1, "\\x1B[31m");
    wrong("", 1, "server");
    wrong("calls = 24\n\n\n", 3, "the file ends without server");
    wrong("server = udp:127.0.0.1:5080\n", 1, "the file ends without calls");
}
END_TEST

START_TEST(wrong_bytes)
{
    static const char nul[] = "calls = 24\nserver = udp:127.0.0.1:5080\0x\n";
    char *line = malloc(5000);

    write_bytes(nul, sizeof(nul) - 1);
    ck_assert_ptr_null(config_load(path, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, ":2: the line has a NUL byte"));
    write_bytes(nul, sizeof(nul) - 2);
    ck_assert_ptr_null(config_load(path, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, ":2: the line has a NUL byte"));
    memset(line, ' ', 5000);
    memcpy(line, LEAST, sizeof(LEAST) - 1);
    write_bytes(line, 5000);
    ck_assert_ptr_null(config_load(path, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, ":3: the line is longer"));
    free(line);
}
END_TEST

START_TEST(unreadable_files)
{
    char long_name[300];

    ck_assert_ptr_null(config_load("/nonexistent/sip.conf", error, sizeof(error)));
    ck_assert_str_eq(error, "/nonexistent/sip.conf: cannot be read: No such file or directory");
    ck_assert_ptr_null(config_load("/tmp", error, sizeof(error)));
    ck_assert_str_eq(error, "/tmp: cannot be read: it is a directory");
    ck_assert_ptr_null(config_load("/dev/zero", error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, "not a regular file"));
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_ptr_null(config_load(path, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, "not a regular file"));
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    ck_assert_ptr_null(config_load(long_name, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, "cannot be read"));
}
END_TEST

/* Values that each key does not take; the message names the key. */
START_TEST(wrong_values)
{
    static const struct {
        const char *key;
        const char *values[24];
    } cases[] = {
        {"listen",
         {"127.0.0.1:5060",
          "udp",
          "udp:",
          "udp:localhost:5060",
          "udp:127.0.0.1:",
          "udp:127.0.0.1:0",
          "udp:127.0.0.1:65536",
          "udp:127.0.0.1:x",
          "udp:127.0.0.1:50 60",
          "sctp:127.0.0.1:5060",
          "udp:0.0.0.0:5060",
          "udp:[::]:5060",
          "udp:224.0.0.1:5060",
          "udp:255.255.255.255:5060",
          "udp:[ff02::1]:5060",
          "udp:::1:5060",
          "udp:[::1:5060",
          "udp:[::1]5060",
          "udp:[::ffff:127.0.0.1]:5060",
          "udp:[fe80::1]:5060",
          "udp:127.1:5060",
          "tls:127.0.0.1:5061"}},
        {"server", {"none", "udp:0.0.0.0", "tcp:", "udp:127.0.0.1:5080 udp:127.0.0.1:5081"}},
        {"calls", {"0", "-1", "many", "1.5", "24x", "1048577", "99999999999999999999", "0x10"}},
        {"strategy",
         {"fastest", "tournament 0", "tournament -1", "tournament many", "tournament 25",
          "tournament 99999999999", "tournament 2 3", "uniform 2", "roulette 2", "tournament 50%"}},
        {"round", {"0", "0ms", "100", "soon", "100 ms", "1.5s", "2000h", "999us"}},
        {"forward", {"later", "yes", "round now"}},
        {"t_m", {"0", "0s", "-1s", "automatic", "200", "5days", "25h"}},
        {"drop_factor",
         {"wait", "wait=", "wait=x", "wait=0", "wait=-1", "in=0", "alpha=0", "alpha=21", "scale=0",
          "scale=nan", "speed=3", "wait=8 in=900000", "wait=8 oops", "in=20 wait=1"}},
        {"refuse", {"200", "404", "481", "503x", "600 Busy"}},
        {"retry_after", {"0", "-1", "later", "1s", "86401"}},
        {"exempt",
         {"localhost",
          "300.1.2.3",
          "192.0.2",
          "192.0.2.1/33",
          "192.0.2.1/-1",
          "0.0.0.0/0",
          "192.0.2.1/",
          "192.0.2.1/x",
          "192.0.2.1/24",
          "2001:db8::/129",
          "::/0",
          ":::",
          "/8",
          "sip:",
          "sip:example.com",
          "sip:@example.com",
          "sip:alice@",
          "sip:alice@h;lr",
          "sip:alice:pw@h",
          "112x",
          "urn:",
          "urn:service",
          "urn:se*vice:sos",
          "+"}},
        {"exempt_calls", {"-1", "some", "101%", "1.5", "%", "5 %", "1048577"}},
        {"detect_only", {"maybe", "1", "on"}},
        {"ring_time", {"999ms", "0s", "181", "25h"}},
        {"t1", {"9ms", "11s", "0.5s"}},
        {"control_mode", {"0644", "660", "0777", "rw"}},
        {"metrics",
         {"9907", "127.0.0.1", "127.0.0.1:0", "localhost:9907", "192.0.2.1:9907", "[::]:9907",
          "0.0.0.0:9907", "127.0.0.1:9907 private", "127.0.0.1:9907 public x", "none public"}},
        {"tls_certificates", {"/nonexistent"}},
        {"log", {"file", "stdout"}},
        {"log_level", {"loud", "7"}},
    };
    char text[256];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *key = cases[i].key;
        bool in_least = strcmp(key, "server") == 0 || strcmp(key, "calls") == 0;

        for (size_t j = 0; j < 24 && cases[i].values[j] != NULL; j++) {
            snprintf(text, sizeof(text), "%s%s = %s\n",
                     !in_least                   ? LEAST
                     : strcmp(key, "calls") == 0 ? "# \nserver = udp:127.0.0.1:5080\n"
                                                 : "\ncalls = 24\n",
                     key, cases[i].values[j]);
            wrong(text, 3, key);
        }
    }
}
END_TEST

START_TEST(too_long_a_path)
{
    char text[512], name[300];

    memset(name, 'x', sizeof(name));
    name[sizeof(((struct sockaddr_un *)0)->sun_path)] = '\0';
    snprintf(text, sizeof(text), LEAST "control = %s\n", name);
    wrong(text, 3, "control must be none or a path of at most 107 bytes");
    name[sizeof(((struct sockaddr_un *)0)->sun_path) - 1] = '\0';
    config *c = given(LEAST "control = %s\n", name);

    ck_assert_msg(c != NULL, "%s", error);
    config_free(c);
}
END_TEST

/* Each alone is right. */
START_TEST(wrong_together)
{
    wrong(LEAST "listen = udp:127.0.0.1:5060\nlisten = udp:127.0.0.1\n", 4, "in line 3");
    wrong(LEAST "listen = udp:127.0.0.1:5080\n", 1, "server is one of the addresses");
    wrong("calls = 24\nserver = tcp:127.0.0.1:5080\n", 2, "by tcp over IPv4");
    wrong("calls = 24\nserver = udp:[::1]:5080\n", 2, "by udp over IPv6");
    wrong("calls = 24\nserver = udp:192.0.2.1:5080\n", 2, "loopback");
    wrong(LEAST "listen = udp:127.0.0.1\nlisten = tcp:127.0.0.1:9907\nmetrics = 127.0.0.1:9907\n",
          5, "metrics is one of the addresses");
    wrong("drop_factor = in=20\nround = 50ms\n" LEAST, 1, "drop_factor");
}
END_TEST

START_TEST(small_k_for_a_tournament)
{
    wrong("strategy = tournament 5\nserver = udp:127.0.0.1:5080\ncalls = 4\n", 1, "strategy");
    config *c = given("strategy = tournament 5\nserver = udp:127.0.0.1:5080\ncalls = 5\n");

    ck_assert_msg(c != NULL, "%s", error);
    config_free(c);
}
END_TEST

/* ---- the exempt ----------------------------------------------------------------------------- */

static bool addr(const config *c, const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        return config_exempt_addr(c, (struct sockaddr *)&in);
    }
    ck_assert_int_eq(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return config_exempt_addr(c, (struct sockaddr *)&in6);
}

static bool uri(const config *c, bool (*match)(const config *, const url_t *), const char *text)
{
    su_home_t home[1] = {SU_HOME_INIT(home)};
    url_t *url;
    bool result;

    su_home_init(home);
    url = url_make(home, text);
    ck_assert_msg(url != NULL, "%s", text);
    result = match(c, url);
    su_home_deinit(home);
    return result;
}

START_TEST(exempt_addresses)
{
    static const char *const in[] = {"192.0.2.7",   "198.51.100.0", "198.51.100.255", "10.1.2.3",
                                     "2001:db8::1", "2001:db9::7",  "::ffff:10.1.2.3"};
    static const char *const out[] = {"192.0.2.6",   "192.0.2.8", "198.51.101.0",
                                      "11.0.0.0",    "9.255.0.1", "2001:db7::1",
                                      "2001:db9::8", "::1",       "::a01:203"};
    config *c = given(LEAST "exempt = 192.0.2.7 198.51.100.0/24\nexempt = 10.0.0.0/8\n"
                            "exempt = 2001:db8::/32\nexempt = 2001:db9::7\nexempt = 10.0.0.0/8\n");

    ck_assert_msg(c != NULL, "%s", error);
    for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++) {
        ck_assert_msg(addr(c, in[i]), "%s", in[i]);
    }
    for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++) {
        ck_assert_msg(!addr(c, out[i]), "%s", out[i]);
    }
    config_free(c);
    c = given(LEAST);
    ck_assert(!addr(c, "127.0.0.1") && !addr(c, "::1"));
    ck_assert(!uri(c, config_exempt_caller, "sip:alice@example.com"));
    ck_assert(!uri(c, config_exempt_callee, "sip:112@example.com"));
    ck_assert(!uri(c, config_exempt_callee, "urn:service:counseling"));
    ck_assert(uri(c, config_exempt_callee, "urn:service:sos"));
    ck_assert(uri(c, config_exempt_callee, "urn:service:sos.fire"));
    config_free(c);
}
END_TEST

START_TEST(exempt_callers)
{
    static const char *const in[] = {
        "sip:alice@example.com",      "sip:alice@EXAMPLE.com",     "SIP:%61lice@example.com;tag=1",
        "sip:al%69ce@example.com",    "sip:bob@192.0.2.1:5070",    "sips:carol@example.com",
        "sip:d%40e@example.com",      "sip:alice@example.com?a=b", "sip:eve@[2001:db8::1]",
        "sip:eve@[2001:DB8::1];lr=on"};
    static const char *const out[] = {"sip:Alice@example.com",
                                      "sip:alice@example.org",
                                      "sip:alice@example.com:5060",
                                      "sips:alice@example.com",
                                      "sip:carol@example.com",
                                      "sip:bob@192.0.2.1",
                                      "sip:example.com",
                                      "sip:alice%00@example.com",
                                      "sip:alice@example.com.evil.org",
                                      "sip:xalice@example.com",
                                      "tel:alice",
                                      "sip:alice%00x@example.com",
                                      "sip:alice%2565@example.com",
                                      "sip:d@e@example.com.org",
                                      "urn:service:sos"};
    config *c = given(LEAST "exempt = sip:alice@example.com sip:bob@192.0.2.1:5070\n"
                            "exempt = sips:carol@Example.com\nexempt = sip:d%%40e@example.com\n"
                            "exempt = sip:eve@[2001:db8::1]\n");

    ck_assert_msg(c != NULL, "%s", error);
    for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++) {
        ck_assert_msg(uri(c, config_exempt_caller, in[i]), "%s", in[i]);
    }
    for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++) {
        ck_assert_msg(!uri(c, config_exempt_caller, out[i]), "%s", out[i]);
    }
    ck_assert(!uri(c, config_exempt_callee, "sip:alice@example.com"));
    config_free(c);
}
END_TEST

START_TEST(exempt_callees)
{
    static const char *const in[] = {"sip:112@example.com",
                                     "sip:112@192.0.2.1:5080;transport=tcp",
                                     "sips:112@h",
                                     "tel:112",
                                     "tel:1-1-2",
                                     "sip:1.1.2@h;user=phone",
                                     "sip:112;phone-context=x@h;user=phone",
                                     "sip:%3112@h",
                                     "tel:+4930123",
                                     "tel:+49(30)1-23;ext=4",
                                     "sip:+4930123@h",
                                     "urn:service:sos",
                                     "URN:Service:SOS.fire",
                                     "urn:service:sosx",
                                     "urn:service:counseling"};
    static const char *const out[] = {"sip:1123@h",
                                      "sip:11@h",
                                      "sip:1-1-2@h",
                                      "sip:112",
                                      "sip:4930123@h",
                                      "sip:112%00@h",
                                      "sip:alice@112",
                                      "tel:+112",
                                      "sip:1%2D12@h;user=ip",
                                      "urn:service:so",
                                      "urn:service:counseling.mental",
                                      "urn:x:112",
                                      "http://112@h/",
                                      "sip:1111111111111111111111111111111111111111111111112@h"};
    config *c = given(LEAST "exempt = 112 +4930123\nexempt = urn:service:sos* "
                            "URN:service:counseling\n");

    ck_assert_msg(c != NULL, "%s", error);
    for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++) {
        ck_assert_msg(uri(c, config_exempt_callee, in[i]), "%s", in[i]);
    }
    for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++) {
        ck_assert_msg(!uri(c, config_exempt_callee, out[i]), "%s", out[i]);
    }
    ck_assert(!uri(c, config_exempt_caller, "sip:112@example.com"));
    config_free(c);
}
END_TEST

/* A URI of any length and content is matched, or not, within bounds. */
START_TEST(exempt_long_uris)
{
    config *c = given(LEAST "exempt = 112 sip:alice@example.com urn:service:sos*\n");
    char text[2048];

    for (size_t length = 1; length < 1500; length += 13) {
        memset(text, 'a', sizeof(text));
        memcpy(text, "sip:", 4);
        strcpy(text + 4 + length, "@example.com");
        ck_assert(!uri(c, config_exempt_caller, text) && !uri(c, config_exempt_callee, text));
        memset(text + 4, '1', length);
        ck_assert(!uri(c, config_exempt_callee, text));
        memset(text, 'h', sizeof(text));
        memcpy(text, "sip:alice@", 10);
        text[10 + length] = '\0';
        ck_assert(!uri(c, config_exempt_caller, text));
        memset(text, 'h', sizeof(text));
        memcpy(text, "urn:service:soa", 15);
        text[15 + length] = '\0';
        ck_assert(!uri(c, config_exempt_callee, text));
    }
    config_free(c);
}
END_TEST

START_TEST(exempt_many)
{
    const unsigned many = 20000;
    FILE *file = fopen(path, "w");
    config *c;
    char text[64];

    fputs(LEAST, file);
    for (unsigned i = 0; i < many; i++) {
        fprintf(file, "exempt = 10.%u.%u.%u sip:user%u@example.com 7%u\n", i >> 16, i >> 8 & 255,
                i & 255, i, i);
    }
    fclose(file);
    c = config_load(path, error, sizeof(error));
    ck_assert_msg(c != NULL, "%s", error);
    for (unsigned i = 0; i < 2 * many; i += 7) {
        snprintf(text, sizeof(text), "10.%u.%u.%u", i >> 16, i >> 8 & 255, i & 255);
        ck_assert(addr(c, text) == (i < many));
        snprintf(text, sizeof(text), "sip:user%u@example.com", i);
        ck_assert(uri(c, config_exempt_caller, text) == (i < many));
        snprintf(text, sizeof(text), "tel:7%u", i);
        ck_assert(uri(c, config_exempt_callee, text) == (i < many));
    }
    config_free(c);
}
END_TEST

/* ---- while it runs -------------------------------------------------------------------------- */

START_TEST(reload)
{
    char kept[256];
    config *again, *c = given(LEAST "control = /run/a\nround = 100ms\n");

    ck_assert_msg(c != NULL, "%s", error);
    again = given("calls = 48\nround = 50ms\nserver = udp:127.0.0.1:5080\ncontrol = /run/a\n");
    config_free(again);
    again = config_reload(c, kept, sizeof(kept), error, sizeof(error));
    ck_assert_msg(again != NULL, "%s", error);
    ck_assert_str_eq(kept, "");
    ck_assert_uint_eq(again->policy.places, 48);
    ck_assert_uint_eq(again->policy.round_us, 50 * MS);
    ck_assert_str_eq(again->control, "/run/a");
    config_free(again);

    config_free(given("calls = 48\nserver = tcp:127.0.0.1:5081\nlisten = tcp:127.0.0.1:5999\n"
                      "t1 = 1s\nstore = /run/b\ncontrol = none\ncontrol_mode = 0660\n"
                      "metrics = 127.0.0.1:9907\nlog = syslog\n"));
    again = config_reload(c, kept, sizeof(kept), error, sizeof(error));
    ck_assert_msg(again != NULL, "%s", error);
    ck_assert_str_eq(kept, "listen, server, t1, store, control, control_mode, metrics, log");
    ck_assert_uint_eq(again->policy.places, 48);
    ck_assert_uint_eq(again->listens, 1);
    ck_assert_uint_eq(again->listen[0].port, 5060);
    ck_assert_uint_eq(again->server.port, 5080);
    ck_assert_uint_eq(again->t1_us, 500 * MS);
    ck_assert(again->store == NULL && !again->metrics_on);
    ck_assert_str_eq(again->control, "/run/a");
    ck_assert_uint_eq(again->control_mode, 0600);
    ck_assert_int_eq(again->log, CONFIG_STDERR);
    config_free(again);

    config_free(given("calls = 0\n"));
    ck_assert_ptr_null(config_reload(c, kept, sizeof(kept), error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, ":1: calls must be"));
    config_free(c);
}
END_TEST

/* A socket on a port of the kernel's choice. */
static int taken_port(int type, unsigned *port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(in);
    int fd = socket(AF_INET, type, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&in, length), 0);
    if (type == SOCK_STREAM) {
        ck_assert_int_eq(listen(fd, 1), 0);
    }
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&in, &length), 0);
    *port = ntohs(in.sin_port);
    return fd;
}

START_TEST(probe)
{
    static const int types[] = {SOCK_DGRAM, SOCK_STREAM};
    static const char *const names[] = {"udp", "tcp"};
    unsigned port;
    char place[256];

    for (unsigned i = 0; i < 2; i++) {
        int fd = taken_port(types[i], &port);
        config *c = given("server = %s:127.0.0.1:5080\ncalls = 24\nlisten = %s:127.0.0.1:%u\n",
                          names[i], names[i], port);

        ck_assert_msg(c != NULL, "%s", error);
        ck_assert(config_probe(c, false, error, sizeof(error)));
        ck_assert(!config_probe(c, true, error, sizeof(error)));
        snprintf(place, sizeof(place),
                 "%s:3: listen = %s:127.0.0.1:%u cannot be opened: it is in "
                 "use by another program",
                 path, names[i], port);
        ck_assert_str_eq(error, place);
        close(fd);
        ck_assert_msg(config_probe(c, true, error, sizeof(error)), "%s", error);
        config_free(c);
    }
    /* TEST-NET-1 is nobody's (RFC 5737). */
    config *c = given("server = udp:192.0.2.2\ncalls = 24\n\nlisten = udp:192.0.2.1:5060\n");

    ck_assert_msg(c != NULL, "%s", error);
    ck_assert(!config_probe(c, false, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, ":4: listen = udp:192.0.2.1:5060 cannot be opened: that is "
                                        "not an address of this machine"));
    config_free(c);
}
END_TEST

/* Whatever the file says, it is read or refused with a sentence. */
START_TEST(random_files)
{
    static const char *const pieces[] = {
        "listen",  "server",      "calls",   "strategy", "exempt",    "=",     " = ",  "\n",
        "\n",      "udp:",        "tcp:[",   "]",        "127.0.0.1", ":5060", "#",    "tournament",
        " ",       "24",          "%",       "sip:",     "a@b",       "urn:",  "*",    "/32",
        "\t",      "drop_factor", "wait=8",  "none",     "auto",      "ms",    "\r",   "\xff",
        "metrics", "::1",         "control", "+",        "-",         "0",     "\x7f", "log"};
    char text[512];
    seven_rng rng;

    seven_seed(&rng, 7);
    for (int i = 0; i < 3000; i++) {
        size_t at = 0;

        while (at < sizeof(text) - 64 && seven_below(&rng, 40) > 0) {
            const char *piece = pieces[seven_below(&rng, sizeof(pieces) / sizeof(*pieces))];

            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s", piece);
        }
        write_bytes(text, at);
        error[0] = '\0';
        config *c = config_load(path, error, sizeof(error));

        ck_assert(c != NULL || strncmp(error, path, strlen(path)) == 0);
        for (const char *e = error; *e != '\0'; e++) {
            ck_assert_msg(*e >= ' ' && *e < 127, "%s", error);
        }
        config_free(c);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sip_config");
    TCase *right = unit_case(suite, "right"), *bad = unit_case(suite, "wrong");
    TCase *exempt = unit_case(suite, "exempt"), *live = unit_case(suite, "live");

    tcase_add_checked_fixture(right, setup, teardown);
    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_add_checked_fixture(exempt, setup, teardown);
    tcase_add_checked_fixture(live, setup, teardown);
    tcase_add_test(right, defaults);
    tcase_add_test(right, every_key);
    tcase_add_test(right, shipped);
    tcase_add_test(right, exempt_calls_are_a_number_or_a_share);
    tcase_add_test(bad, wrong_lines);
    tcase_add_test(bad, wrong_bytes);
    tcase_add_test(bad, unreadable_files);
    tcase_add_test(bad, wrong_values);
    tcase_add_test(bad, too_long_a_path);
    tcase_add_test(bad, wrong_together);
    tcase_add_test(bad, small_k_for_a_tournament);
    tcase_add_test(bad, random_files);
    tcase_add_test(exempt, exempt_addresses);
    tcase_add_test(exempt, exempt_callers);
    tcase_add_test(exempt, exempt_callees);
    tcase_add_test(exempt, exempt_long_uris);
    tcase_add_test(exempt, exempt_many);
    tcase_add_test(live, reload);
    tcase_add_test(live, probe);
    return unit_run(suite);
}
