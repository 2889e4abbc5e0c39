/*
 * attack: a simple slow attacker for tests. It opens connections at a steady
 * rate, holds each the way its kind says, and counts what the server did.
 *
 *   slowloris  a request head that never ends: a header line every interval
 *   post       a body that comes a few bytes every interval
 *   read       asks for a large file and reads a few bytes every interval
 *   silent     connects and says nothing
 *   hello      begins a TLS ClientHello and says no more (for a TLS port)
 */
#include "webbots.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 19000 };

struct kind {
    const char *name, *first, *more;
    int receive_buffer; /* SO_RCVBUF, 0 for the system's */
};

static const struct kind kinds[] = {
    {"slowloris", "GET %s HTTP/1.1\r\nHost: localhost\r\n", "X-a: b\r\n", 0},
    {"post",
     "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
     "Content-Type: application/x-www-form-urlencoded\r\n\r\na=b",
     "&a=b", 0},
    {"read", "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", "", 1024},
    {"silent", "", "", 0},
    {"hello", "\x16\x03\x01\x02", "", 0},
};

struct bot {
    bool started, answered;
    int64_t opened_us, next_us;
};

struct attack {
    const struct kind *kind;
    const char *path;
    int port;
    double rate, count, seconds, interval, piece;
    struct bot *bots;
    struct pollfd *fds;
    int opened, open, closed, refused, unopened;
    double held_ms;
};

static void close_bot(struct attack *attack, int index)
{
    struct bot *bot = &attack->bots[index];
    close(attack->fds[index].fd);
    attack->fds[index].fd = -1;
    attack->open--;
    attack->closed++;
    attack->held_ms += (double)(now_us() - bot->opened_us) / 1000;
}

static void open_bot(struct attack *attack)
{
    int index = attack->opened, size = attack->kind->receive_buffer;
    int fd = connect_loopback(attack->port);
    if (fd < 0) {
        attack->unopened++;
        return;
    }
    if (size)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    attack->fds[index] = (struct pollfd){.fd = fd, .events = POLLIN | POLLOUT};
    attack->bots[index] = (struct bot){.opened_us = now_us()};
    attack->opened++;
    attack->open++;
}

static bool send_text(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN;
}

static void begin(struct attack *attack, int index)
{
    char request[1024];
    struct bot *bot = &attack->bots[index];
    snprintf(request, sizeof request, attack->kind->first, attack->path);
    bot->started = true;
    bot->next_us = now_us() + (int64_t)(attack->interval * 1e6);
    attack->fds[index].events = strcmp(attack->kind->name, "read") == 0 ? 0 : POLLIN;
    if (*request && !send_text(attack->fds[index].fd, request))
        close_bot(attack, index);
}

static void hear(struct attack *attack, int index)
{
    char data[4096];
    size_t size = strcmp(attack->kind->name, "read") == 0 ? (size_t)attack->piece : sizeof data;
    ssize_t got = recv(attack->fds[index].fd, data, size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        close_bot(attack, index);
        return;
    }
    if (!attack->bots[index].answered && got >= 12 && memcmp(data + 9, "503", 3) == 0)
        attack->refused++;
    attack->bots[index].answered = true;
}

static void go_on(struct attack *attack, int index)
{
    struct bot *bot = &attack->bots[index];
    bot->next_us += (int64_t)(attack->interval * 1e6);
    if (strcmp(attack->kind->name, "read") == 0)
        hear(attack, index);
    else if (*attack->kind->more && !send_text(attack->fds[index].fd, attack->kind->more))
        close_bot(attack, index);
}

static void tend(struct attack *attack, int64_t now)
{
    poll(attack->fds, (nfds_t)attack->opened, 5);
    for (int i = 0; i < attack->opened; i++) {
        struct bot *bot = &attack->bots[i];
        short events = attack->fds[i].revents;
        if (attack->fds[i].fd < 0)
            continue;
        if (!bot->started) {
            if (events & (POLLERR | POLLHUP))
                close_bot(attack, i);
            else if (events & POLLOUT)
                begin(attack, i);
        } else if (events & (POLLERR | POLLHUP)) {
            close_bot(attack, i);
        } else if (events & POLLIN) {
            hear(attack, i);
        } else if (now >= bot->next_us) {
            go_on(attack, i);
        }
    }
}

static void run_attack(struct attack *attack)
{
    int64_t start = now_us(), now;
    int64_t end = start + (int64_t)(attack->seconds * 1e6);
    while (!webbots_stop && (now = now_us()) < end) {
        double due = (double)(now - start) / 1e6 * attack->rate + 1;
        while (attack->opened + attack->unopened < (int)attack->count &&
               attack->opened + attack->unopened < (int)due)
            open_bot(attack);
        tend(attack, now);
    }
}

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return &kinds[i];
    usage_error("--kind must be slowloris, post, read, silent or hello, "
                "not '%s'.",
                name);
}

int mode_attack(int argc, char **argv)
{
    double port = 0;
    const char *kind = "slowloris";
    struct attack attack = {
        .path = NULL, .rate = 25, .count = 1000, .seconds = 10, .interval = 5, .piece = 32};
    const struct option_spec options[] = {
        {"port", OPTION_NUMBER, &port, 1, 65535, "port of the server"},
        {"kind", OPTION_TEXT, &kind, 0, 0, "slowloris, post, read, silent or hello (slowloris)"},
        {"rate", OPTION_NUMBER, &attack.rate, 0.1, 10000, "new connections a second (25)"},
        {"count", OPTION_NUMBER, &attack.count, 1, MAX_CONNECTIONS,
         "connections in all, at most (1000)"},
        {"seconds", OPTION_NUMBER, &attack.seconds, 0.1, 3600, "how long to go on (10)"},
        {"interval", OPTION_NUMBER, &attack.interval, 0.01, 3600, "seconds between pieces (5)"},
        {"piece", OPTION_NUMBER, &attack.piece, 1, 4096, "bytes read at a time by kind read (32)"},
        {"path", OPTION_TEXT, &attack.path, 0, 0, "what to ask for (/, /upload or /big.bin)"},
    };
    parse_options(argc, argv, options, sizeof options / sizeof *options,
                  "Opens slow connections at a steady rate and holds them.");
    if (port < 1)
        usage_error("attack needs --port.");
    attack.kind = find_kind(kind);
    if (!attack.path)
        attack.path = strcmp(kind, "post") == 0   ? "/upload"
                      : strcmp(kind, "read") == 0 ? "/big.bin"
                                                  : "/";
    raise_file_limit();
    attack.port = (int)port;
    attack.bots = grow(NULL, sizeof *attack.bots * (size_t)attack.count);
    attack.fds = grow(NULL, sizeof *attack.fds * (size_t)attack.count);
    run_attack(&attack);
    printf("opened: %d\nunopened: %d\nclosed: %d\nrefused: %d\nopen: %d\n"
           "mean_held_ms: %.1f\n",
           attack.opened, attack.unopened, attack.closed, attack.refused, attack.open,
           attack.closed ? attack.held_ms / attack.closed : 0);
    return 0;
}
