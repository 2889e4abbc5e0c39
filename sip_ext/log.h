/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The log, to stderr or to syslog. Priorities are syslog's: LOG_ERR, LOG_WARNING, LOG_NOTICE,
 * LOG_INFO, LOG_DEBUG.
 *
 * - log_say() is for what the operator or the machine causes; it is never left out.
 * - log_limited() is for whatever a peer can cause: each place in the code that logs so has a
 *   limit of its own, and a line that comes after others were left out says how many.
 * - Text from a peer goes through log_quote() first, always.
 * - Any thread may log.
 */
#ifndef SIP_EXT_LOG_H
#define SIP_EXT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

#include "episode.h"

/**
 * Where and how much; before it is called, stderr and LOG_NOTICE. Lines to stderr bear a time
 * unless journald reads them (JOURNAL_STREAM), for which they bear a priority.
 */
void log_open(bool to_syslog, int level);

/** True if lines of that priority are wanted. */
bool log_wants(int priority);

/** One line, without a newline at its end; control characters are escaped, cut at 1000 bytes. */
void log_say(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** At most LOG_BURST lines at once and one a second on; zero bytes are a new one. */
#define LOG_BURST 10
typedef struct log_limit {
    uint64_t full_us;  /* when it will have its whole burst again */
    uint64_t left_out; /* lines since the last one */
} log_limit;

/** As log_say(), within the limit; one limit belongs to one thread. No limit at LOG_DEBUG. */
void log_limited(log_limit *limit, int priority, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Text from a peer, made fit for a line: printable ASCII stays but for `"` and `\`, all else
 * becomes \xHH; what does not fit is cut and ends in "...". Returns buffer, always ended. size is
 * 8 at least.
 */
const char *log_quote(char *buffer, size_t size, const char *text, size_t length);

/**
 * One warning when an overload has lasted a second and one notice, with figures, when it has been
 * over for a while, whatever the number of decisions. Call it about once a second.
 */
void log_overload(seven_episode *episode, const seven_tally *tally, uint32_t places,
                  uint64_t now_us);

#endif
