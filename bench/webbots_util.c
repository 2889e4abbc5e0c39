/* What the modes share: the clock, options, sockets. */
#include "webbots.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

volatile int webbots_stop;

static void on_signal(int number)
{
    (void)number;
    webbots_stop = 1;
}

int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

_Noreturn static void say_and_exit(int status, const char *format, va_list args)
{
    fputs("webbots: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(status);
}

void usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_and_exit(2, format, args);
}

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_and_exit(1, format, args);
}

static void print_help(const char *mode, const struct option_spec *options, size_t count,
                       const char *summary)
{
    printf("usage: webbots %s [options]\n%s\n", mode, summary);
    for (size_t i = 0; i < count; i++) {
        const char *word[] = {" N", " X", ""};
        printf("  --%s%s\n        %s\n", options[i].name, word[options[i].kind], options[i].help);
    }
}

static const struct option_spec *find_option(const char *word, const struct option_spec *options,
                                             size_t count)
{
    if (strncmp(word, "--", 2) != 0)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(word + 2, options[i].name) == 0)
            return &options[i];
    return NULL;
}

static void read_number(const struct option_spec *option, const char *word)
{
    char *end;
    errno = 0;
    double number = strtod(word, &end);
    if (errno || end == word || *end)
        usage_error("--%s must be a number, not '%s'.", option->name, word);
    if (!(number >= option->min && number <= option->max))
        usage_error("--%s must be from %g to %g, not %s.", option->name, option->min, option->max,
                    word);
    *(double *)option->value = number;
}

static void watch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal};
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    signal(SIGPIPE, SIG_IGN);
}

void parse_options(int argc, char **argv, const struct option_spec *options, size_t count,
                   const char *summary)
{
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            print_help(argv[1], options, count, summary);
            exit(0);
        }
        const struct option_spec *option = find_option(argv[i], options, count);
        if (!option)
            usage_error("%s has no option '%s'; webbots %s --help lists them.", argv[1], argv[i],
                        argv[1]);
        if (option->kind == OPTION_FLAG) {
            *(bool *)option->value = true;
            continue;
        }
        if (++i == argc)
            usage_error("--%s needs a value.", option->name);
        if (option->kind == OPTION_NUMBER)
            read_number(option, argv[i]);
        else
            *(const char **)option->value = argv[i];
    }
    watch_signals();
}

void *grow(void *block, size_t size)
{
    void *larger = realloc(block, size);
    if (!larger)
        fail("Memory is out.");
    return larger;
}

void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
    };
    return address;
}

int listen_loopback(int port)
{
    struct sockaddr_in address = loopback(port);
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("No socket: %s.", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 4096) < 0)
        fail("Cannot listen on 127.0.0.1:%d: %s.", port, strerror(errno));
    return fd;
}

int connect_loopback(int port)
{
    struct sockaddr_in address = loopback(port);
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

void set_blocking(int fd, bool blocking)
{
    int flags = fcntl(fd, F_GETFL, 0);
    fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

int connect_loopback_wait(int port, int timeout_ms)
{
    int fd = connect_loopback(port);
    if (fd < 0)
        return -1;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&wait, 1, timeout_ms) != 1 ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error) {
        close(fd);
        return -1;
    }
    set_blocking(fd, true);
    return fd;
}

bool send_all(int fd, const void *data, size_t size)
{
    const char *next = data;
    while (size > 0) {
        ssize_t sent = send(fd, next, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR && !webbots_stop)
            continue;
        if (sent <= 0)
            return false;
        next += sent;
        size -= (size_t)sent;
    }
    return true;
}

size_t read_head(int fd, char *text, size_t size, int timeout_ms)
{
    int64_t end_us = now_us() + (int64_t)timeout_ms * 1000;
    size_t have = 0;
    while (have + 1 < size && !webbots_stop) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_us = end_us - now_us();
        if (left_us <= 0 || poll(&wait, 1, (int)(left_us / 1000 + 1)) != 1)
            return 0;
        ssize_t got = recv(fd, text + have, size - 1 - have, 0);
        if (got <= 0)
            return 0;
        have += (size_t)got;
        text[have] = '\0';
        if (strstr(text, "\r\n\r\n"))
            return have;
    }
    return 0;
}
