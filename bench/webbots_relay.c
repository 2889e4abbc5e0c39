/*
 * relay: a TCP relay that puts a distance between clients and a server.
 *
 * Every piece of data is passed on delay after it came. Set-up is delayed as
 * the distance would: a real client is connected after a round trip, and what
 * it then sends arrives half a round trip later; here the client is connected
 * at once, so the server hears of it, and of its first data, after one and a
 * half round trips.
 *
 *   client socket --(flow 0)--> server socket
 *   client socket <--(flow 1)-- server socket
 *
 * A segment is owned by the line (one queue for all, in order of time) until
 * it is due, then by its flow until it is written. What is in a flow, due or
 * not, is bounded by FLOW_LIMIT: at the bound its source is not read.
 */
#include "webbots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FLOW_LIMIT = 64 * 1024, PIECE = 16 * 1024, MAX_PAIRS = 20000 };

struct pair;

struct segment {
    int64_t due_us;
    struct segment *next;
    struct pair *pair;
    int flow;     /* 0 client to server, 1 server to client; -1: connect now */
    size_t size;  /* 0 is the end of the stream */
    size_t given; /* bytes written already */
    char data[];
};

struct queue {
    struct segment *first, **last;
};

struct flow {
    struct queue due; /* may be written now */
    size_t held;      /* bytes between source and target */
    bool ended;       /* the source has ended */
};

struct end {
    struct pair *pair;
    int side; /* 0 client, 1 server; flow `side` begins here */
    int fd;
    uint32_t watched;
};

struct pair {
    struct end ends[2];
    struct flow flows[2];
    bool connected, closed;
    int in_line;            /* segments of ours in the line */
    struct pair *next_dead; /* closed, to be freed after this round */
};

struct relay {
    int epoll, listener, to;
    int64_t delay_us;
    struct queue line;     /* data, each due delay after it came */
    struct queue connects; /* set-ups, each due three delays after accept */
    struct pair *dead;
    long pairs, accepted;
};

/* ---- queues --------------------------------------------------------------- */

static void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static void queue_add(struct queue *queue, struct segment *segment)
{
    segment->next = NULL;
    *queue->last = segment;
    queue->last = &segment->next;
}

static struct segment *queue_take(struct queue *queue)
{
    struct segment *segment = queue->first;
    queue->first = segment->next;
    if (!queue->first)
        queue->last = &queue->first;
    return segment;
}

static void line_add(struct queue *queue, struct pair *pair, int flow, const char *data,
                     size_t size, int64_t due_us)
{
    struct segment *segment = grow(NULL, sizeof *segment + size);
    *segment = (struct segment){.due_us = due_us, .pair = pair, .flow = flow, .size = size};
    if (size)
        memcpy(segment->data, data, size);
    pair->in_line++;
    queue_add(queue, segment);
}

/* ---- a pair's end --------------------------------------------------------- */

static void close_pair(struct relay *relay, struct pair *pair)
{
    if (pair->closed)
        return;
    pair->closed = true;
    relay->pairs--;
    for (int side = 0; side < 2; side++) {
        if (pair->ends[side].fd >= 0)
            close(pair->ends[side].fd);
        while (pair->flows[side].due.first)
            free(queue_take(&pair->flows[side].due));
    }
    pair->next_dead = relay->dead;
    relay->dead = pair;
}

/* Frees closed pairs that no segment in the line still names. */
static void bury(struct relay *relay)
{
    struct pair **back = &relay->dead;
    while (*back) {
        struct pair *pair = *back;
        if (pair->in_line) {
            back = &pair->next_dead;
            continue;
        }
        *back = pair->next_dead;
        free(pair);
    }
}

/* ---- reading and writing -------------------------------------------------- */

static void watch(struct relay *relay, struct end *end)
{
    struct pair *pair = end->pair;
    const struct flow *out = &pair->flows[!end->side];
    const struct flow *in = &pair->flows[end->side];
    uint32_t wanted = 0;
    if (end->fd < 0)
        return;
    if (!in->ended && in->held < FLOW_LIMIT)
        wanted |= EPOLLIN;
    if (out->due.first || (end->side == 1 && !pair->connected))
        wanted |= EPOLLOUT;
    if (wanted == end->watched)
        return;
    struct epoll_event event = {.events = wanted, .data = {.ptr = end}};
    epoll_ctl(relay->epoll, EPOLL_CTL_MOD, end->fd, &event);
    end->watched = wanted;
}

static void watch_both(struct relay *relay, struct pair *pair)
{
    if (pair->closed)
        return;
    watch(relay, &pair->ends[0]);
    watch(relay, &pair->ends[1]);
}

static void add_end(struct relay *relay, struct end *end)
{
    struct epoll_event event = {.events = 0, .data = {.ptr = end}};
    epoll_ctl(relay->epoll, EPOLL_CTL_ADD, end->fd, &event);
    end->watched = 0;
}

/* Both streams have ended and everything has been passed on. */
static bool is_over(const struct pair *pair)
{
    return pair->flows[0].ended && pair->flows[1].ended && !pair->in_line &&
           !pair->flows[0].due.first && !pair->flows[1].due.first;
}

/* Writes what is due of a flow; false if its target is gone. */
static bool write_due(struct pair *pair, int flow_index)
{
    struct flow *flow = &pair->flows[flow_index];
    int fd = pair->ends[!flow_index].fd;
    while (flow->due.first) {
        struct segment *segment = flow->due.first;
        if (segment->size == 0) {
            shutdown(fd, SHUT_WR);
            free(queue_take(&flow->due));
            continue;
        }
        ssize_t sent =
            send(fd, segment->data + segment->given, segment->size - segment->given, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        flow->held -= (size_t)sent;
        segment->given += (size_t)sent;
        if (segment->given == segment->size)
            free(queue_take(&flow->due));
    }
    return true;
}

static void flush(struct relay *relay, struct pair *pair, int flow)
{
    if (pair->closed || (flow == 0 && !pair->connected))
        return;
    if (!write_due(pair, flow) || is_over(pair))
        close_pair(relay, pair);
    else
        watch_both(relay, pair);
}

static void read_end(struct relay *relay, struct end *end)
{
    static char piece[PIECE];
    struct pair *pair = end->pair;
    struct flow *flow = &pair->flows[end->side];
    ssize_t got = recv(end->fd, piece, sizeof piece, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got < 0) {
        close_pair(relay, pair); /* a reset: the other side gets one too */
        return;
    }
    flow->held += (size_t)got;
    flow->ended = got == 0;
    line_add(&relay->line, pair, end->side, piece, (size_t)got, now_us() + relay->delay_us);
    watch_both(relay, pair);
}

/* ---- set-up --------------------------------------------------------------- */

static void accept_all(struct relay *relay)
{
    int fd;
    while ((fd = accept4(relay->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (relay->pairs >= MAX_PAIRS) {
            close(fd);
            continue;
        }
        struct pair *pair = grow(NULL, sizeof *pair);
        memset(pair, 0, sizeof *pair);
        for (int side = 0; side < 2; side++) {
            pair->ends[side] = (struct end){.pair = pair, .side = side, .fd = side ? -1 : fd};
            queue_init(&pair->flows[side].due);
        }
        relay->pairs++;
        relay->accepted++;
        add_end(relay, &pair->ends[0]);
        watch(relay, &pair->ends[0]);
        line_add(&relay->connects, pair, -1, NULL, 0, now_us() + 3 * relay->delay_us);
    }
}

static void connect_pair(struct relay *relay, struct pair *pair)
{
    pair->ends[1].fd = connect_loopback(relay->to);
    if (pair->ends[1].fd < 0) {
        close_pair(relay, pair);
        return;
    }
    add_end(relay, &pair->ends[1]);
    watch(relay, &pair->ends[1]);
}

static void finish_connect(struct relay *relay, struct pair *pair)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(pair->ends[1].fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        close_pair(relay, pair);
        return;
    }
    pair->connected = true;
    flush(relay, pair, 0);
}

/* ---- the loop ------------------------------------------------------------- */

static void take_due(struct relay *relay, struct queue *queue, int64_t now)
{
    while (queue->first && queue->first->due_us <= now) {
        struct segment *segment = queue_take(queue);
        struct pair *pair = segment->pair;
        int flow = segment->flow;
        pair->in_line--;
        if (pair->closed || flow < 0)
            free(segment);
        else
            queue_add(&pair->flows[flow].due, segment);
        if (pair->closed)
            continue;
        if (flow < 0)
            connect_pair(relay, pair);
        else
            flush(relay, pair, flow);
    }
}

static void handle(struct relay *relay, const struct epoll_event *event)
{
    struct end *end = event->data.ptr;
    if (!end) {
        accept_all(relay);
        return;
    }
    struct pair *pair = end->pair;
    if (pair->closed)
        return;
    if (end->side == 1 && !pair->connected) {
        finish_connect(relay, pair);
        return;
    }
    if (event->events & EPOLLOUT)
        flush(relay, pair, !end->side);
    if (!pair->closed && event->events & EPOLLIN)
        read_end(relay, end);
    else if (!pair->closed && event->events & EPOLLERR)
        close_pair(relay, pair);
}

static int wait_ms(const struct relay *relay)
{
    const struct segment *heads[] = {relay->line.first, relay->connects.first};
    int64_t now = now_us(), until = now + 100000;
    for (int i = 0; i < 2; i++)
        if (heads[i] && heads[i]->due_us < until)
            until = heads[i]->due_us;
    return until > now ? (int)((until - now + 999) / 1000) : 0;
}

static void run_relay(struct relay *relay, int64_t end_us)
{
    struct epoll_event events[256];
    while (!webbots_stop && now_us() < end_us) {
        int count = epoll_wait(relay->epoll, events, 256, wait_ms(relay));
        for (int i = 0; i < count; i++)
            handle(relay, &events[i]);
        int64_t now = now_us();
        take_due(relay, &relay->connects, now);
        take_due(relay, &relay->line, now);
        bury(relay);
    }
}

int mode_relay(int argc, char **argv)
{
    double listen_port = 0, to = 0, delay_ms = 150, seconds = 600;
    const struct option_spec options[] = {
        {"listen", OPTION_NUMBER, &listen_port, 1, 65535, "port to listen on"},
        {"to", OPTION_NUMBER, &to, 1, 65535, "port of the server"},
        {"delay-ms", OPTION_NUMBER, &delay_ms, 0, 10000, "delay of each direction (150)"},
        {"seconds", OPTION_NUMBER, &seconds, 0.1, 86400, "how long to run (600)"},
    };
    parse_options(argc, argv, options, sizeof options / sizeof *options,
                  "Relays 127.0.0.1:listen to 127.0.0.1:to at a distance.");
    if (listen_port < 1 || to < 1)
        usage_error("relay needs --listen and --to.");
    raise_file_limit();
    struct relay relay = {.epoll = epoll_create1(EPOLL_CLOEXEC),
                          .listener = listen_loopback((int)listen_port),
                          .to = (int)to,
                          .delay_us = (int64_t)(delay_ms * 1000)};
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = NULL}};
    queue_init(&relay.line);
    queue_init(&relay.connects);
    epoll_ctl(relay.epoll, EPOLL_CTL_ADD, relay.listener, &event);
    run_relay(&relay, now_us() + (int64_t)(seconds * 1e6));
    printf("relayed: %ld\n", relay.accepted);
    return 0;
}
