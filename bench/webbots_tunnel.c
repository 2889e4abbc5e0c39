/*
 * idle: opens tunnels through a server and holds them.
 * echo: the backend they lead to, which also answers plain requests.
 */
#include "webbots.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAD_SIZE = 8192,
    OPEN_MS = 10000, /* a tunnel must open within this */
    MAX_TUNNELS = 10000,
    MAX_SERVED = 2000, /* connections echo serves at a time */
    TICK_MS = 50       /* a tunnel in use sends this often */
};

/* ---- idle ----------------------------------------------------------------- */

struct tunnels {
    int port, to;
    const char *kind, *path;
    double speed;
    struct pollfd *fds;
    int count, alive;
    int64_t sent, received;
};

static const char websocket_head[] = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                     "Sec-WebSocket-Version: 13\r\n\r\n";

/* Sends a request on fd; true if the answer's status is the wanted one. */
static bool ask(int fd, const char *request, const char *wanted)
{
    char reply[HEAD_SIZE];
    return send_all(fd, request, strlen(request)) &&
           read_head(fd, reply, sizeof reply, OPEN_MS) > 12 && strncmp(reply + 9, wanted, 3) == 0;
}

static bool open_upgrade(const struct tunnels *tunnels, int fd)
{
    char request[HEAD_SIZE];
    bool websocket = strcmp(tunnels->kind, "tunnel") != 0;
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s", tunnels->path,
             websocket ? websocket_head : "Upgrade: echo\r\nConnection: Upgrade\r\n\r\n");
    return ask(fd, request, "101");
}

static bool open_connect(const struct tunnels *tunnels, int fd)
{
    char request[HEAD_SIZE];
    snprintf(request, sizeof request, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
             tunnels->to, tunnels->to);
    return ask(fd, request, "200") && open_upgrade(tunnels, fd);
}

static void open_tunnel(struct tunnels *tunnels)
{
    int fd = connect_loopback_wait(tunnels->port, OPEN_MS);
    if (fd < 0)
        return;
    bool open = strcmp(tunnels->kind, "connect") == 0 ? open_connect(tunnels, fd)
                                                      : open_upgrade(tunnels, fd);
    if (!open) {
        close(fd);
        return;
    }
    set_blocking(fd, false);
    tunnels->fds[tunnels->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void drop_tunnel(struct tunnels *tunnels, int index)
{
    close(tunnels->fds[index].fd);
    tunnels->fds[index].fd = -1;
    tunnels->alive--;
}

static void read_tunnel(struct tunnels *tunnels, int index)
{
    char data[4096];
    ssize_t got = recv(tunnels->fds[index].fd, data, sizeof data, 0);
    if (got <= 0)
        drop_tunnel(tunnels, index);
    else
        tunnels->received += got;
}

static void use_tunnels(struct tunnels *tunnels)
{
    static const char data[65536];
    size_t size = (size_t)(tunnels->speed * TICK_MS / 1000);
    if (size > sizeof data)
        size = sizeof data;
    for (int i = 0; i < tunnels->count && size > 0; i++) {
        if (tunnels->fds[i].fd < 0)
            continue;
        ssize_t sent = send(tunnels->fds[i].fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        tunnels->sent += sent > 0 ? sent : 0;
    }
}

static void hold_tunnels(struct tunnels *tunnels, int64_t end_us)
{
    int64_t next_us = now_us();
    while (!webbots_stop && now_us() < end_us && tunnels->alive > 0) {
        if (tunnels->speed > 0 && now_us() >= next_us) {
            next_us += TICK_MS * 1000;
            use_tunnels(tunnels);
        }
        int ready = poll(tunnels->fds, (nfds_t)tunnels->count, TICK_MS / 2);
        for (int i = 0; ready > 0 && i < tunnels->count; i++)
            if (tunnels->fds[i].fd >= 0 && tunnels->fds[i].revents)
                read_tunnel(tunnels, i);
    }
}

static void check_kind(const char *kind, double to)
{
    if (strcmp(kind, "tunnel") != 0 && strcmp(kind, "websocket") != 0 &&
        strcmp(kind, "connect") != 0)
        usage_error("--kind must be tunnel, websocket or connect, not '%s'.", kind);
    if (strcmp(kind, "connect") == 0 && to < 1)
        usage_error("--kind connect needs --to, the port to connect to.");
}

int mode_idle(int argc, char **argv)
{
    double port = 0, to = 0, count = 20, seconds = 10;
    struct tunnels tunnels = {.kind = "websocket", .path = "/ws"};
    const struct option_spec options[] = {
        {"port", OPTION_NUMBER, &port, 1, 65535, "port of the server"},
        {"count", OPTION_NUMBER, &count, 1, MAX_TUNNELS, "tunnels (20)"},
        {"seconds", OPTION_NUMBER, &seconds, 0.1, 3600, "how long to hold them (10)"},
        {"kind", OPTION_TEXT, &tunnels.kind, 0, 0,
         "websocket, tunnel (another Upgrade) or connect (websocket)"},
        {"path", OPTION_TEXT, &tunnels.path, 0, 0, "what to ask for (/ws)"},
        {"to", OPTION_NUMBER, &to, 1, 65535, "with --kind connect, the backend's port"},
        {"speed", OPTION_NUMBER, &tunnels.speed, 0, 1e6,
         "bytes a second sent through each; 0 is idle (0)"},
    };
    parse_options(argc, argv, options, sizeof options / sizeof *options,
                  "Opens tunnels through the server, holds them, and counts "
                  "those the server left open.");
    check_kind(tunnels.kind, to);
    if (port < 1)
        usage_error("idle needs --port.");
    raise_file_limit();
    tunnels.port = (int)port;
    tunnels.to = (int)to;
    tunnels.fds = grow(NULL, sizeof *tunnels.fds * (size_t)count);
    for (int i = 0; i < (int)count && !webbots_stop; i++)
        open_tunnel(&tunnels);
    tunnels.alive = tunnels.count;
    printf("opened: %d\n", tunnels.count);
    fflush(stdout);
    hold_tunnels(&tunnels, now_us() + (int64_t)(seconds * 1e6));
    printf("alive: %d\nsent: %lld\nreceived: %lld\n", tunnels.alive, (long long)tunnels.sent,
           (long long)tunnels.received);
    return 0;
}

/* ---- echo ----------------------------------------------------------------- */

static volatile int served_now; /* changed atomically */

static bool has_header(const char *head, const char *name)
{
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, strlen(name)) == 0)
            return true;
    return false;
}

static void echo_bytes(int fd)
{
    char data[16384];
    ssize_t got;
    while ((got = recv(fd, data, sizeof data, 0)) > 0)
        if (!send_all(fd, data, (size_t)got))
            return;
}

/* Reads the rest of a request body of the length its head announces. */
static bool drain_body(int fd, const char *head, size_t have)
{
    const char *end = strstr(head, "\r\n\r\n");
    const char *length = strcasestr(head, "\r\nContent-Length:");
    if (!length || length > end)
        return true;
    long long left = atoll(length + 17) - (long long)(have - (size_t)(end + 4 - head));
    char data[16384];
    while (left > 0) {
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got <= 0)
            return false;
        left -= got;
    }
    return true;
}

static void sleep_as_asked(const char *head)
{
    const char *asked = strstr(head, "?sleep=");
    const char *line_end = strstr(head, "\r\n");
    if (!asked || asked > line_end)
        return;
    long ms = atol(asked + 7);
    if (ms > 0 && ms <= 600000)
        usleep((useconds_t)ms * 1000);
}

static void serve(int fd)
{
    static const char switching[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\n"
                                    "Connection: Upgrade\r\n"
                                    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"
                                 "Content-Type: text/plain\r\n"
                                 "Connection: close\r\n\r\nok\n";
    char head[HEAD_SIZE], reply[512];
    size_t have = read_head(fd, head, sizeof head, 60000);
    if (!have)
        return;
    if (has_header(head, "Upgrade:")) {
        snprintf(reply, sizeof reply, switching,
                 strcasestr(head, "\r\nUpgrade: echo") ? "echo" : "websocket");
        if (send_all(fd, reply, strlen(reply)))
            echo_bytes(fd);
        return;
    }
    if (!drain_body(fd, head, have))
        return;
    sleep_as_asked(head);
    send_all(fd, answer, strlen(answer));
}

static void *serve_thread(void *context)
{
    int fd = (int)(intptr_t)context;
    serve(fd);
    close(fd);
    __atomic_sub_fetch(&served_now, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void start_serving(int fd, const pthread_attr_t *attributes)
{
    pthread_t thread;
    set_blocking(fd, true);
    if (__atomic_add_fetch(&served_now, 1, __ATOMIC_RELAXED) <= MAX_SERVED &&
        pthread_create(&thread, attributes, serve_thread, (void *)(intptr_t)fd) == 0)
        return;
    __atomic_sub_fetch(&served_now, 1, __ATOMIC_RELAXED);
    close(fd);
}

int mode_echo(int argc, char **argv)
{
    double port = 0, seconds = 600;
    const struct option_spec options[] = {
        {"listen", OPTION_NUMBER, &port, 1, 65535, "port to listen on"},
        {"seconds", OPTION_NUMBER, &seconds, 0.1, 86400, "how long to run (600)"},
    };
    parse_options(argc, argv, options, sizeof options / sizeof *options,
                  "Answers an Upgrade with 101 and echoes what follows; "
                  "answers anything else with 200, after ?sleep=MS if given.");
    if (port < 1)
        usage_error("echo needs --listen.");
    raise_file_limit();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    int listener = listen_loopback((int)port);
    int64_t end_us = now_us() + (int64_t)(seconds * 1e6);
    while (!webbots_stop && now_us() < end_us) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        int fd = poll(&wait, 1, 100) == 1 ? accept(listener, NULL, NULL) : -1;
        if (fd >= 0)
            start_serving(fd, &attributes);
    }
    exit(0); /* threads still serving end with the process */
}
