/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control.h"
#include "figures.h"
#include "log.h"
#include "parse.h"

#define CLIENTS 8 /* at once; another one takes the oldest's place */
#define BACKLOG 64
#define PATIENCE_MS 5000 /* for a client, from its connection to its end */
#define MAX_COMMAND 64   /* bytes of a line */
#define SOME_CALLS 100   /* what `calls` shows */
#define MOST_CALLS 10000 /* what `calls N` may show */

typedef struct client {
    control *of;
    int fd;          /* -1: nobody */
    int wait;        /* index of its wait in the root */
    uint64_t serial; /* of all connections, this one's */
    su_timer_t *timer;
    char command[MAX_COMMAND + 1];
    size_t length;
    char *answer; /* NULL until the line is whole */
    size_t size, sent;
} client;

struct control {
    su_root_t *root;
    const proxy *proxy;
    int fd, wait;
    uint64_t serial;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    dev_t device; /* of the socket made, so that no other's is removed */
    ino_t inode;
    client clients[CLIENTS];
};

/* ---- answers --------------------------------------------------------------------------------- */

typedef struct listing {
    FILE *out;
    long left; /* calls to show, yet */
    bool more; /* there are more */
} listing;

static bool list_call(void *context, const proxy_call *call)
{
    listing *l = context;

    if (l->left == 0) {
        l->more = true;
        return false;
    }
    l->left--;
    figures_call(l->out, call);
    return true;
}

static void answer_calls(FILE *out, const proxy *p, const char *count)
{
    listing l = {.out = out, .left = SOME_CALLS};

    if (*count != '\0' && !seven_parse_number(count, 1, MOST_CALLS, &l.left)) {
        fprintf(out, "calls takes a whole number from 1 to %d\n", MOST_CALLS);
        return;
    }
    proxy_each_call(p, list_call, &l);
    if (l.more) {
        fputs("...\n", out);
    }
}

static void answer_status(FILE *out, const proxy *p, void (*format)(FILE *, const proxy_status *))
{
    proxy_status figures = {0};

    proxy_get_status(p, &figures);
    format(out, &figures);
}

static void answer(FILE *out, const proxy *p, const char *command)
{
    if (strcmp(command, "status") == 0) {
        answer_status(out, p, figures_text);
    } else if (strcmp(command, "status json") == 0) {
        answer_status(out, p, figures_json);
    } else if (strcmp(command, "calls") == 0) {
        answer_calls(out, p, "");
    } else if (strncmp(command, "calls ", 6) == 0) {
        answer_calls(out, p, command + 6);
    } else if (strcmp(command, "help") == 0) {
        fprintf(out,
                "status       the figures, name: value\n"
                "status json  the figures as JSON\n"
                "calls [N]    a line for each call, %d unless given, %d at most\n"
                "help         this\n",
                SOME_CALLS, MOST_CALLS);
    } else {
        fputs("no such command; try help\n", out);
    }
}

/* ---- clients --------------------------------------------------------------------------------- */

static void drop(client *c)
{
    if (c->fd >= 0) {
        su_root_deregister(c->of->root, c->wait);
        close(c->fd);
        free(c->answer);
        su_timer_reset(c->timer);
        c->fd = -1;
        c->answer = NULL;
    }
}

static void on_timeout(su_root_magic_t *magic, su_timer_t *timer, su_timer_arg_t *arg)
{
    (void)magic;
    (void)timer;
    drop((client *)arg);
}

/* Makes the answer to the line there is; false if there is no memory. */
static bool make_answer(client *c)
{
    FILE *out = open_memstream(&c->answer, &c->size);

    if (out == NULL) {
        return false;
    }
    c->command[strcspn(c->command, "\r\n")] = '\0';
    answer(out, c->of->proxy, c->command);
    return fclose(out) == 0 && c->answer != NULL;
}

/* Sends what it takes; true while there is more to send. */
static bool send_on(client *c)
{
    ssize_t sent = send(c->fd, c->answer + c->sent, c->size - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent >= 0) {
        c->sent += (size_t)sent;
        return c->sent < c->size;
    }
    return errno == EAGAIN || errno == EINTR;
}

/* Reads until the end of a line or of what the client sends; true while the line is not whole. What
 * is too long for a command is read all the same: to close on unread bytes would lose the answer.
 */
static bool read_on(client *c, bool *whole)
{
    char bytes[512];
    ssize_t got = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    size_t room = MAX_COMMAND - c->length, kept = got > 0 ? (size_t)got : 0;

    if (got < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    *whole = got == 0 ? c->length > 0 : memchr(bytes, '\n', kept) != NULL;
    kept = kept < room ? kept : room;
    memcpy(c->command + c->length, bytes, kept);
    c->length += kept;
    c->command[c->length] = '\0';
    return got > 0 && !*whole;
}

static int on_client(su_root_magic_t *magic, su_wait_t *wait, su_wakeup_arg_t *arg)
{
    client *c = (client *)arg;
    bool whole = false;

    (void)magic;
    (void)wait;
    if (c->answer == NULL) {
        if (read_on(c, &whole)) {
            return 0;
        }
        if (!whole || !make_answer(c) ||
            su_root_eventmask(c->of->root, c->wait, c->fd, SU_WAIT_OUT) < 0) {
            drop(c);
            return 0;
        }
    }
    if (!send_on(c)) {
        drop(c);
    }
    return 0;
}

static client *oldest(control *c)
{
    client *found = &c->clients[0];

    for (int i = 0; i < CLIENTS; i++) {
        client *at = &c->clients[i];

        if (at->fd < 0) {
            return at;
        }
        if (at->serial < found->serial) {
            found = at;
        }
    }
    drop(found);
    return found;
}

static int on_connection(su_root_magic_t *magic, su_wait_t *wait, su_wakeup_arg_t *arg)
{
    control *of = (control *)arg;
    int fd = accept4(of->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    su_wait_t readable;
    client *c;

    (void)magic;
    (void)wait;
    if (fd < 0) {
        return 0;
    }
    c = oldest(of);
    c->wait = su_wait_create(&readable, fd, SU_WAIT_IN) < 0
                  ? -1
                  : su_root_register(of->root, &readable, on_client, (su_wakeup_arg_t *)c, 0);
    if (c->wait <= 0) {
        close(fd);
        return 0;
    }
    c->fd = fd;
    c->serial = ++of->serial;
    c->length = c->sent = 0;
    su_timer_set(c->timer, on_timeout, (su_timer_arg_t *)c);
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* True if somebody answers at that address. */
static bool is_live(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool live = fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
                            errno != ECONNREFUSED);

    if (fd >= 0) {
        close(fd);
    }
    return live;
}

/* Binds it, in the place of a socket that nobody answers at any more; NULL or what is wrong. */
static const char *bind_socket(int fd, const struct sockaddr_un *address, unsigned mode)
{
    const struct sockaddr *any = (const struct sockaddr *)address;
    mode_t before = umask(~mode & 0777);
    int result = bind(fd, any, sizeof(*address));
    const char *wrong = NULL;
    struct stat found;

    if (result != 0 && errno == EADDRINUSE) {
        if (lstat(address->sun_path, &found) != 0) {
            wrong = strerror(errno);
        } else if (!S_ISSOCK(found.st_mode)) {
            wrong = "something that is not a socket has that name";
        } else if (is_live(address)) {
            wrong = "another process answers there";
        } else if (unlink(address->sun_path) == 0) {
            result = bind(fd, any, sizeof(*address));
        }
    }
    umask(before);
    return wrong != NULL ? wrong : result == 0 ? NULL : strerror(errno);
}

/* A socket that listens; -1 and a sentence if there cannot be one. */
static int open_socket(const config *conf, char *error, size_t error_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const char *wrong = fd < 0 ? strerror(errno) : NULL;
    char shown[256];

    if (wrong == NULL) {
        strcpy(address.sun_path, conf->control);
        wrong = bind_socket(fd, &address, conf->control_mode);
    }
    if (wrong == NULL && listen(fd, BACKLOG) != 0) {
        wrong = strerror(errno);
        unlink(conf->control);
    }
    if (wrong != NULL) {
        snprintf(error, error_size, "%s:%u: the control socket %s cannot be opened: %s", conf->file,
                 conf->control_line,
                 log_quote(shown, sizeof(shown), conf->control, strlen(conf->control)), wrong);
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

/* Timers and waits; false if there is no memory. */
static bool attach(control *c)
{
    su_wait_t readable;

    for (int i = 0; i < CLIENTS; i++) {
        c->clients[i].of = c;
        c->clients[i].fd = -1;
        c->clients[i].timer = su_timer_create(su_root_task(c->root), PATIENCE_MS);
        if (c->clients[i].timer == NULL) {
            return false;
        }
    }
    if (su_wait_create(&readable, c->fd, SU_WAIT_IN) < 0) {
        return false;
    }
    c->wait = su_root_register(c->root, &readable, on_connection, (su_wakeup_arg_t *)c, 0);
    return c->wait > 0;
}

control *control_create(su_root_t *root, const config *conf, const proxy *p, char *error,
                        size_t error_size)
{
    struct stat found;
    control *c;
    int fd = open_socket(conf, error, error_size);

    if (fd < 0) {
        return NULL;
    }
    c = calloc(1, sizeof(*c));
    if (c == NULL) {
        close(fd);
        unlink(conf->control);
        snprintf(error, error_size, "there is no memory for the control socket");
        return NULL;
    }
    c->root = root;
    c->proxy = p;
    c->fd = fd;
    strcpy(c->path, conf->control);
    if (stat(c->path, &found) == 0) {
        c->device = found.st_dev;
        c->inode = found.st_ino;
    }
    if (!attach(c)) {
        snprintf(error, error_size, "there is no memory for the control socket");
        control_destroy(c);
        return NULL;
    }
    return c;
}

void control_destroy(control *c)
{
    struct stat found;

    if (c == NULL) {
        return;
    }
    for (int i = 0; i < CLIENTS; i++) {
        if (c->clients[i].of != NULL) {
            drop(&c->clients[i]);
            su_timer_destroy(c->clients[i].timer);
        }
    }
    if (c->wait > 0) {
        su_root_deregister(c->root, c->wait);
    }
    close(c->fd);
    if (lstat(c->path, &found) == 0 && found.st_dev == c->device && found.st_ino == c->inode) {
        unlink(c->path);
    }
    free(c);
}
