/*
 * webbots - small HTTP robots for tests and benchmarks, loopback only.
 *
 * Conventions: times are microseconds of the monotonic clock (_us) unless the
 * name says milliseconds (_ms); sizes are bytes; speeds are bytes a second.
 * A file descriptor of -1 is none. Every mode runs for a bounded time, ends
 * early on SIGINT or SIGTERM, and still prints its figures.
 */
#ifndef WEBBOTS_H
#define WEBBOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One command-line option of a mode: where its value goes. */
enum option_kind { OPTION_NUMBER, OPTION_TEXT, OPTION_FLAG };

struct option_spec {
    const char *name; /* without the dashes */
    enum option_kind kind;
    void *value;     /* double *, const char ** or bool * */
    double min, max; /* of a number */
    const char *help;
};

/* ---- webbots_util.c ---------------------------------------------------- */

/* Set by SIGINT and SIGTERM: finish, print the figures, leave. */
extern volatile int webbots_stop;

int64_t now_us(void);

/* Prints one sentence to stderr and exits with status 2. */
_Noreturn void usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints one sentence to stderr and exits with status 1. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reads argv[2..] into the options' values; --help prints them and exits. */
void parse_options(int argc, char **argv, const struct option_spec *options, size_t count,
                   const char *summary);

/* realloc that ends the program when memory is out. */
void *grow(void *block, size_t size);

/* Allows as many open files as the system lets us have. */
void raise_file_limit(void);

/* A loopback TCP listener, non-blocking; ends the program if it cannot. */
int listen_loopback(int port);

/* Starts a non-blocking connection to 127.0.0.1; -1 with errno set. */
int connect_loopback(int port);

/* Connects and waits up to timeout_ms; blocking socket, or -1. */
int connect_loopback_wait(int port, int timeout_ms);

/* Sends all of it on a blocking socket; false if the peer is gone. */
bool send_all(int fd, const void *data, size_t size);

/*
 * Reads an HTTP head (up to and including the blank line) from a blocking
 * socket into text, NUL-terminated. Returns the bytes read in all (some may
 * be past the head), 0 if the head did not come within timeout_ms.
 */
size_t read_head(int fd, char *text, size_t size, int timeout_ms);

void set_blocking(int fd, bool blocking);

/* ---- the modes ----------------------------------------------------------- */

int mode_honest(int argc, char **argv); /* webbots_http.c */
int mode_upload(int argc, char **argv); /* webbots_http.c */
int mode_relay(int argc, char **argv);  /* webbots_relay.c */
int mode_idle(int argc, char **argv);   /* webbots_tunnel.c */
int mode_echo(int argc, char **argv);   /* webbots_tunnel.c */
int mode_attack(int argc, char **argv); /* webbots_attack.c */

#endif
