/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

#define NAME "seven-sip"
#define MAX_TEXT 1000 /* bytes of a line's text */
#define SECOND UINT64_C(1000000)
#define TELL SECOND        /* an overload is told of when it has lasted so long */
#define CALM (30 * SECOND) /* and is over after so long without a decision */

static enum { TO_STDERR, TO_JOURNAL, TO_SYSLOG } target;
static int wanted = LOG_NOTICE;

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec / 1000;
}

/* True if stderr is the socket that JOURNAL_STREAM names (systemd.exec(5)). */
static bool journald_reads(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uintmax_t device, inode;
    struct stat status;

    return stream != NULL && sscanf(stream, "%ju:%ju", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

void log_open(bool to_syslog, int level)
{
    wanted = level;
    if (to_syslog) {
        openlog(NAME, LOG_PID | LOG_NDELAY, LOG_DAEMON);
        target = TO_SYSLOG;
    } else {
        target = journald_reads() ? TO_JOURNAL : TO_STDERR;
    }
}

bool log_wants(int priority)
{
    return priority <= wanted;
}

static const char *priority_name(int priority)
{
    static const char *const names[] = {"emergency", "alert",  "critical", "error",
                                        "warning",   "notice", "info",     "debug"};

    return names[priority & 7];
}

/* One write() a line, so that lines of threads and processes do not mix. A full disk or a closed
 * stderr is nothing that a line could be written about. */
static void to_stderr(int priority, const char *text)
{
    char line[MAX_TEXT + 128], date[32] = "";
    struct timespec now;
    struct tm local;
    int length;

    if (target == TO_JOURNAL) {
        length = snprintf(line, sizeof(line), "<%d>%s\n", priority, text);
    } else {
        clock_gettime(CLOCK_REALTIME, &now);
        if (localtime_r(&now.tv_sec, &local) != NULL) {
            strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &local);
        }
        length = snprintf(line, sizeof(line), "%s.%03ld " NAME "[%ld] %s: %s\n", date,
                          now.tv_nsec / 1000000, (long)getpid(), priority_name(priority), text);
    }
    if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0) {
        return;
    }
}

/* Whatever slipped through unquoted: a line stays one line, and a terminal a terminal. */
static void blank_controls(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 127) {
            *text = ' ';
        }
    }
}

static void say(int priority, uint64_t left_out, const char *format, va_list arguments)
{
    char text[MAX_TEXT + 1];
    int length = vsnprintf(text, sizeof(text), format, arguments);

    if (length < 0) {
        return;
    }
    if (left_out > 0) {
        size_t at = strlen(text);

        snprintf(text + at, sizeof(text) - at, " (%" PRIu64 " more like it left out before)",
                 left_out);
    }
    blank_controls(text);
    if (target == TO_SYSLOG) {
        syslog(priority, "%s", text);
    } else {
        to_stderr(priority, text);
    }
}

void log_say(int priority, const char *format, ...)
{
    va_list arguments;

    if (log_wants(priority)) {
        va_start(arguments, format);
        say(priority, 0, format, arguments);
        va_end(arguments);
    }
}

/* A leaky bucket, kept as the time at which it will be empty (GCRA, ITU-T I.371). */
static bool within(log_limit *limit, uint64_t now)
{
    uint64_t full = limit->full_us > now ? limit->full_us : now;

    if (full - now > (LOG_BURST - 1) * SECOND) {
        limit->left_out++;
        return false;
    }
    limit->full_us = full + SECOND;
    return true;
}

void log_limited(log_limit *limit, int priority, const char *format, ...)
{
    va_list arguments;

    if (!log_wants(priority) || (priority < LOG_DEBUG && !within(limit, now_us()))) {
        return;
    }
    va_start(arguments, format);
    say(priority, limit->left_out, format, arguments);
    va_end(arguments);
    limit->left_out = 0;
}

const char *log_quote(char *buffer, size_t size, const char *text, size_t length)
{
    size_t at = 0, fits = 0; /* fits: where "..." still fits behind */

    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = c >= ' ' && c < 127 && c != '"' && c != '\\';
        size_t needed = plain ? 1 : 4;

        if (at + needed >= size) {
            strcpy(buffer + fits, "...");
            return buffer;
        }
        if (plain) {
            buffer[at] = (char)c;
        } else {
            snprintf(buffer + at, 5, "\\x%02X", c);
        }
        at += needed;
        fits = at + 4 <= size ? at : fits;
    }
    buffer[at] = '\0';
    return buffer;
}

void log_overload(seven_episode *episode, const seven_tally *tally, uint32_t places, uint64_t now)
{
    uint64_t began = episode->began_us;
    seven_tally seen;

    switch (seven_follow(episode, tally, now, TELL, CALM)) {
    case SEVEN_FULL:
        log_say(LOG_WARNING,
                "all %" PRIu32 " places are taken: newcomers are decided about, and calls end to "
                "make room for them",
                places);
        break;
    case SEVEN_OVER:
        seen = seven_episode_tally(episode);
        log_say(LOG_NOTICE,
                "places are free again: in %" PRIu64 " s %" PRIu64 " calls found one free, %" PRIu64
                " took a victim's, %" PRIu64 " were refused, %" PRIu64 " were ended ahead of need",
                (episode->last_us - began) / SECOND, seen.admitted, seen.replaced, seen.refused,
                seen.relieved);
        break;
    case SEVEN_NO_NEWS:
        break;
    }
}
