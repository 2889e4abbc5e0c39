/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seven-sip: reads its configuration, opens everything, and runs the proxy's event loop until a
 * signal ends it.
 *
 *   SIGHUP            reads the configuration again
 *   SIGTERM, SIGINT   takes no more calls and ends when none is up; a second one ends it at once
 *   SIGQUIT           ends it at once
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <sofia-sip/su.h>
#include <sofia-sip/su_wait.h>

#include "config.h"
#include "log.h"
#include "proxy.h"
#include "status.h"
#include "store.h"

#define VERSION "1.0"
#define DEFAULT_FILE "/etc/seven-sip.conf"
#define EXIT_WRONG 2 /* the command line or the configuration */
#define EVERY_MS 1000

enum { MAX_ERROR = 1024 };

typedef struct server {
    su_root_t *root;
    config *config;
    store *store;
    proxy *proxy;
    status *status;
    su_timer_t *timer;
    int signals, wait;
    bool stopping;
    seven_episode episode;
} server;

/* ---- signals -------------------------------------------------------------------------------- */

static void reload(server *s)
{
    char error[MAX_ERROR], kept[256];
    config *c = config_reload(s->config, kept, sizeof(kept), error, sizeof(error));

    if (c == NULL || !proxy_reload(s->proxy, c, error, sizeof(error))) {
        log_say(LOG_ERR, "the configuration stays as it was: %s", error);
        config_free(c);
        return;
    }
    config_free(s->config);
    s->config = c;
    log_open(c->log == CONFIG_SYSLOG, c->log_level);
    log_say(LOG_NOTICE, "%s was read again", c->file);
    if (kept[0] != '\0') {
        log_say(LOG_WARNING, "what changed of %s takes effect with a restart", kept);
    }
}

static void end(void *context)
{
    su_root_break(((server *)context)->root);
}

static void on_idle(void *context)
{
    log_say(LOG_NOTICE, "no call is up any more");
    end(context);
}

static void stop(server *s, bool at_once)
{
    if (at_once || s->stopping) {
        log_say(LOG_NOTICE, "ends at once");
        end(s);
        return;
    }
    s->stopping = true;
    log_say(LOG_NOTICE, "takes no more calls, and ends when none is up");
    proxy_stop(s->proxy, on_idle, s);
}

static int on_signal(su_root_magic_t *magic, su_wait_t *wait, su_wakeup_arg_t *arg)
{
    server *s = (server *)arg;
    struct signalfd_siginfo info;

    (void)magic;
    (void)wait;
    while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP) {
            reload(s);
        } else {
            stop(s, info.ssi_signo == SIGQUIT);
        }
    }
    return 0;
}

/* Before anything else, so that no signal is lost. -1 and errno if it fails. */
static int take_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
        return -1;
    }
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* ---- running -------------------------------------------------------------------------------- */

static void every_second(su_root_magic_t *magic, su_timer_t *timer, su_timer_arg_t *arg)
{
    server *s = (server *)arg;
    seven_tally tally;

    (void)magic;
    (void)timer;
    proxy_tally(s->proxy, &tally);
    log_overload(&s->episode, &tally, s->config->policy.places, proxy_now_us());
}

static bool attach(server *s)
{
    su_wait_t readable;

    if (su_wait_create(&readable, s->signals, SU_WAIT_IN) < 0) {
        return false;
    }
    s->wait = su_root_register(s->root, &readable, on_signal, (su_wakeup_arg_t *)s, 0);
    s->timer = su_timer_create(su_root_task(s->root), EVERY_MS);
    return s->wait > 0 && s->timer != NULL &&
           su_timer_set_for_ever(s->timer, every_second, (su_timer_arg_t *)s) == 0;
}

/* Opens all that the configuration names; false and a sentence. */
static bool open_all(server *s, char *error, size_t size)
{
    const config *c = s->config;
    char why[MAX_ERROR - 256];

    if (!config_probe(c, true, error, size)) {
        return false;
    }
    if (c->store != NULL) {
        s->store = store_open(c->store, why, sizeof(why));
        if (s->store == NULL) {
            snprintf(error, size, "%s:%u: %s", c->file, c->store_line, why);
            return false;
        }
    }
    s->root = su_root_create(NULL);
    if (s->root == NULL || !attach(s)) {
        snprintf(error, size, "the event loop cannot start");
        return false;
    }
    s->proxy = proxy_create(s->root, c, s->store, why, sizeof(why));
    if (s->proxy == NULL) {
        snprintf(error, size, "%s: %s", c->file, why);
        return false;
    }
    s->status = status_create(s->root, c, s->proxy, error, size);
    return s->status != NULL;
}

static void close_all(server *s)
{
    status_destroy(s->status);
    proxy_destroy(s->proxy);
    store_close(s->store);
    if (s->timer != NULL) {
        su_timer_destroy(s->timer);
    }
    if (s->wait > 0) {
        su_root_deregister(s->root, s->wait);
    }
    if (s->root != NULL) {
        su_root_destroy(s->root);
    }
    if (s->signals >= 0) {
        close(s->signals);
    }
    config_free(s->config);
}

/* As many descriptors as the system lets it have: every TCP connection is one. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int run(config *c)
{
    server s = {.config = c, .signals = take_signals()};
    char error[MAX_ERROR] = "signals cannot be taken";
    bool ok;

    log_open(c->log == CONFIG_SYSLOG, c->log_level);
    raise_descriptors();
    su_init();
    ok = s.signals >= 0 && open_all(&s, error, sizeof(error));
    if (!ok) {
        fprintf(stderr, "seven-sip: %s\n", error);
        if (c->log == CONFIG_SYSLOG) {
            log_say(LOG_ERR, "%s", error);
        }
    } else {
        if (geteuid() == 0) {
            log_say(LOG_WARNING, "runs as root; an ordinary user would do");
        }
        log_say(LOG_NOTICE, "%s " VERSION " serves with %s", "seven-sip", c->file);
        su_root_run(s.root);
        log_say(LOG_NOTICE, "ended");
    }
    close_all(&s);
    su_deinit();
    return ok ? EXIT_SUCCESS : EXIT_WRONG;
}

/* ---- the command line ----------------------------------------------------------------------- */

static const char usage[] = "usage: seven-sip [-t] [-f FILE]\n"
                            "  -f FILE  the configuration, " DEFAULT_FILE " unless given\n"
                            "  -t       test it, and end\n"
                            "  -h       show this\n"
                            "  -V       show the version\n";

int main(int argc, char **argv)
{
    const char *file = DEFAULT_FILE;
    char error[MAX_ERROR];
    bool test = false;
    config *c;
    int option;

    while ((option = getopt(argc, argv, "f:thV")) != -1) {
        switch (option) {
        case 'f':
            file = optarg;
            break;
        case 't':
            test = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        case 'V':
            puts("seven-sip " VERSION);
            return EXIT_SUCCESS;
        default:
            fputs(usage, stderr);
            return EXIT_WRONG;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "seven-sip: it takes no words besides options\n%s", usage);
        return EXIT_WRONG;
    }
    c = config_load(file, error, sizeof(error));
    if (c == NULL || (test && !config_probe(c, false, error, sizeof(error)))) {
        fprintf(stderr, "seven-sip: %s\n", error);
        config_free(c);
        return EXIT_WRONG;
    }
    if (test) {
        printf("%s is right\n", file);
        config_free(c);
        return EXIT_SUCCESS;
    }
    return run(c);
}
