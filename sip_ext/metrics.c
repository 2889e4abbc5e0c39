/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "figures.h"
#include "log.h"
#include "metrics.h"

#define CONNECTIONS 32U /* at once; more wait in the kernel's queue */
#define BACKLOG 128
#define PATIENCE_S 5U             /* for a connection on which nothing moves */
#define MEMORY (8UL << 10)        /* bytes a connection */
#define FRESH_US UINT64_C(200000) /* figures are asked for no more often, whoever asks */
#define TURNS 8                   /* of libmicrohttpd's in one of the event loop's */

struct metrics {
    su_root_t *root;
    const proxy *proxy;
    struct MHD_Daemon *daemon;
    int wait;
    su_timer_t *timer;
    char *text; /* the last answer */
    size_t size;
    uint64_t made_us;
};

/* ---- answers --------------------------------------------------------------------------------- */

static bool refresh(metrics *m)
{
    proxy_status figures = {0};
    uint64_t now = proxy_now_us();
    char *text = NULL;
    size_t size;
    FILE *out;

    if (m->text != NULL && now - m->made_us < FRESH_US) {
        return true;
    }
    out = open_memstream(&text, &size);
    if (out == NULL) {
        return false;
    }
    proxy_get_status(m->proxy, &figures);
    figures_metrics(out, &figures, proxy_cut_times(m->proxy));
    if (fclose(out) != 0) {
        free(text);
        return false;
    }
    free(m->text);
    m->text = text;
    m->size = size;
    m->made_us = now;
    return true;
}

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned code, const char *text,
                               size_t size, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(size, (void *)text, mode);
    enum MHD_Result result;

    if (response == NULL) {
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            code == MHD_HTTP_OK ? "text/plain; version=0.0.4; charset=utf-8"
                                                : "text/plain; charset=utf-8");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
    static const char elsewhere[] = "The metrics are at /metrics.\n", get[] = "GET only.\n";
    metrics *m = context;

    (void)version;
    (void)upload;
    (void)request;
    /* Answering at the first call, before any body, closes a connection that has one to send. */
    *upload_size = 0;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, get, sizeof(get) - 1,
                       MHD_RESPMEM_PERSISTENT);
    }
    if (strcmp(url, "/metrics") != 0) {
        return respond(connection, MHD_HTTP_NOT_FOUND, elsewhere, sizeof(elsewhere) - 1,
                       MHD_RESPMEM_PERSISTENT);
    }
    return refresh(m) ? respond(connection, MHD_HTTP_OK, m->text, m->size, MHD_RESPMEM_MUST_COPY)
                      : MHD_NO;
}

/* What libmicrohttpd says of its clients. */
static void on_log(void *context, const char *format, va_list arguments)
{
    static log_limit limit;
    char text[256], shown[512];

    (void)context;
    vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\r\n")] = '\0';
    log_limited(&limit, LOG_INFO, "metrics: %s",
                log_quote(shown, sizeof(shown), text, strlen(text)));
}

/* ---- the event loop ------------------------------------------------------------------------- */

static void on_timer(su_root_magic_t *magic, su_timer_t *timer, su_timer_arg_t *arg);

/* Lets it work, and sees to it that it is called again when it wants to be. */
static void work(metrics *m)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool wants = true;

    for (int i = 0; i < TURNS && wants && ms == 0; i++) {
        MHD_run(m->daemon);
        wants = MHD_get_timeout(m->daemon, &ms) == MHD_YES;
    }
    if (wants) {
        su_timer_set_interval(m->timer, on_timer, (su_timer_arg_t *)m,
                              ms == 0     ? 1
                              : ms > 1000 ? 1000
                                          : (su_duration_t)ms);
    } else {
        su_timer_reset(m->timer);
    }
}

static void on_timer(su_root_magic_t *magic, su_timer_t *timer, su_timer_arg_t *arg)
{
    (void)magic;
    (void)timer;
    work((metrics *)arg);
}

static int on_event(su_root_magic_t *magic, su_wait_t *wait, su_wakeup_arg_t *arg)
{
    (void)magic;
    (void)wait;
    work((metrics *)arg);
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A socket that listens; -1 and errno. */
static int open_socket(const config_address *a)
{
    int on = 1, number;
    int fd = socket(a->sockaddr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        (!a->ipv6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0) &&
        bind(fd, &a->sockaddr.any, config_address_length(a)) == 0 && listen(fd, BACKLOG) == 0) {
        return fd;
    }
    number = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = number;
    return -1;
}

static bool attach(metrics *m)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(m->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    su_wait_t readable;

    m->timer = su_timer_create(su_root_task(m->root), 1000);
    if (m->timer == NULL || info == NULL || info->epoll_fd < 0 ||
        su_wait_create(&readable, info->epoll_fd, SU_WAIT_IN) < 0) {
        return false;
    }
    m->wait = su_root_register(m->root, &readable, on_event, (su_wakeup_arg_t *)m, 0);
    return m->wait > 0;
}

metrics *metrics_create(su_root_t *root, const config *c, const proxy *p, char *error,
                        size_t error_size)
{
    int fd = open_socket(&c->metrics);
    metrics *m = fd < 0 ? NULL : calloc(1, sizeof(*m));

    if (m == NULL) {
        snprintf(error, error_size, "%s:%u: metrics cannot be opened: %s", c->file, c->metrics.line,
                 strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    m->root = root;
    m->proxy = p;
    m->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, m,
                         MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
                         MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                         PATIENCE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY, MHD_OPTION_END);
    if (m->daemon == NULL) {
        close(fd);
    }
    if (m->daemon == NULL || !attach(m)) {
        snprintf(error, error_size, "%s:%u: the HTTP server for metrics cannot start", c->file,
                 c->metrics.line);
        metrics_destroy(m);
        return NULL;
    }
    return m;
}

void metrics_destroy(metrics *m)
{
    if (m != NULL) {
        if (m->wait > 0) {
            su_root_deregister(m->root, m->wait);
        }
        if (m->timer != NULL) {
            su_timer_destroy(m->timer);
        }
        if (m->daemon != NULL) {
            MHD_stop_daemon(m->daemon);
        }
        free(m->text);
        free(m);
    }
}
