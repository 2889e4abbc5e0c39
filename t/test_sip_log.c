/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "unit.h"

#define SECOND UINT64_C(1000000)

/* stderr goes to a file while a test runs. */
static FILE *written;
static char text[1 << 20];

static void setup(void)
{
    written = tmpfile();
    ck_assert_ptr_nonnull(written);
    ck_assert_int_ge(dup2(fileno(written), STDERR_FILENO), 0);
    unsetenv("JOURNAL_STREAM");
    log_open(false, LOG_NOTICE);
}

static void teardown(void)
{
    fclose(written);
}

/* What was written since the last time. */
static const char *said(void)
{
    size_t length;

    rewind(written);
    length = fread(text, 1, sizeof(text) - 1, written);
    text[length] = '\0';
    ck_assert_int_eq(ftruncate(fileno(written), 0), 0);
    lseek(STDERR_FILENO, 0, SEEK_SET);
    return text;
}

static unsigned lines(const char *of)
{
    unsigned n = 0;

    for (; *of != '\0'; of++) {
        n += *of == '\n';
    }
    return n;
}

START_TEST(levels)
{
    log_say(LOG_INFO, "no %d", 1);
    log_say(LOG_NOTICE, "yes %d", 2);
    log_say(LOG_ERR, "yes %d", 3);
    ck_assert_uint_eq(lines(said()), 2);
    ck_assert_ptr_nonnull(strstr(text, "notice: yes 2\n"));
    ck_assert_ptr_nonnull(strstr(text, "error: yes 3\n"));
    ck_assert(log_wants(LOG_NOTICE) && !log_wants(LOG_INFO));
    log_open(false, LOG_DEBUG);
    log_say(LOG_DEBUG, "debug");
    ck_assert_ptr_nonnull(strstr(said(), "debug: debug\n"));
}
END_TEST

/* A line begins with a time, or with a priority where journald reads it (sd-daemon(3)). */
START_TEST(beginnings)
{
    char stream[64];
    struct stat status;
    unsigned year, month, day;

    log_say(LOG_NOTICE, "x");
    ck_assert_int_eq(sscanf(said(), "%4u-%2u-%2u ", &year, &month, &day), 3);
    ck_assert_ptr_nonnull(strstr(text, "seven-sip["));
    ck_assert_int_eq(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(false, LOG_NOTICE);
    log_say(LOG_WARNING, "x");
    ck_assert_str_eq(said(), "<4>x\n");
    setenv("JOURNAL_STREAM", "1:2", 1); /* another one's */
    log_open(false, LOG_NOTICE);
    log_say(LOG_WARNING, "x");
    ck_assert(said()[0] != '<');
}
END_TEST

/* Whatever is in it, a line is one line of bounded length. */
START_TEST(one_line)
{
    char *wide = malloc(5001);

    memset(wide, 'w', 5000);
    wide[5000] = '\0';
    log_say(LOG_NOTICE, "%s", wide);
    ck_assert_uint_eq(lines(said()), 1);
    ck_assert_uint_lt(strlen(text), 1200);
    log_say(LOG_NOTICE, "a\nb\r\x1b[2Jc\x7f");
    ck_assert_ptr_nonnull(strstr(said(), ": a b  [2Jc \n"));
    free(wide);
}
END_TEST

START_TEST(limits)
{
    log_limit one = {0}, other = {0};
    unsigned n;

    for (int i = 0; i < 1000; i++) {
        log_limited(&one, LOG_NOTICE, "attack %d", i);
    }
    n = lines(said());
    ck_assert_uint_ge(n, LOG_BURST);
    ck_assert_uint_le(n, LOG_BURST + 10); /* a slow machine takes seconds for it */
    log_limited(&other, LOG_NOTICE, "something else");
    ck_assert_ptr_nonnull(strstr(said(), "something else\n"));
    one.full_us = 0; /* time goes by */
    log_limited(&one, LOG_NOTICE, "again");
    ck_assert_ptr_nonnull(strstr(said(), "again ("));
    ck_assert_ptr_nonnull(strstr(text, " more like it left out before)\n"));
    log_limited(&one, LOG_NOTICE, "and again");
    ck_assert_ptr_nonnull(strstr(said(), "and again\n"));
    log_open(false, LOG_DEBUG);
    for (int i = 0; i < 100; i++) {
        log_limited(&one, LOG_DEBUG, "as asked for");
    }
    ck_assert_uint_eq(lines(said()), 100);
}
END_TEST

static const char *quoted(size_t size, const char *of, size_t length)
{
    static char buffer[4096];

    memset(buffer, 'Z', sizeof(buffer));
    ck_assert_ptr_eq(log_quote(buffer, size, of, length), buffer);
    ck_assert_uint_lt(strlen(buffer), size);
    ck_assert_int_eq(buffer[size], 'Z');
    return buffer;
}

START_TEST(quoting)
{
    ck_assert_str_eq(quoted(64, "plain text", 10), "plain text");
    ck_assert_str_eq(quoted(64, "", 0), "");
    ck_assert_str_eq(quoted(64, "a\"b\\c\n\r\t\0\x7f\xff", 11),
                     "a\\x22b\\x5Cc\\x0A\\x0D\\x09\\x00\\x7F\\xFF");
    ck_assert_str_eq(quoted(11, "0123456789", 10), "0123456789");
    ck_assert_str_eq(quoted(10, "0123456789", 10), "012345...");
    ck_assert_str_eq(quoted(8, "\n\n\n", 3), "\\x0A...");
    ck_assert_str_eq(quoted(8, "\n", 1), "\\x0A");
    ck_assert_str_eq(quoted(10, "abc\n\n\n", 6), "abc...");
    for (size_t size = 8; size < 300; size++) {
        char noise[100];
        seven_rng rng;

        seven_seed(&rng, size);
        for (size_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (char)seven_below(&rng, 256);
        }
        for (const char *c = quoted(size, noise, sizeof(noise)); *c != '\0'; c++) {
            ck_assert(*c >= ' ' && *c < 127 && *c != '"');
        }
    }
}
END_TEST

/* One warning and one notice an overload, whatever the number of decisions. */
START_TEST(overload)
{
    seven_episode episode = {0};
    seven_tally tally = {.admitted = 24};
    uint64_t now = 100 * SECOND;

    log_overload(&episode, &tally, 24, now);
    ck_assert_str_eq(said(), "");
    for (int i = 0; i < 20; i++) {
        tally.refused += 1000;
        tally.replaced += 10;
        log_overload(&episode, &tally, 24, now += SECOND);
    }
    ck_assert_uint_eq(lines(said()), 1);
    ck_assert_ptr_nonnull(strstr(text, "warning: all 24 places are taken"));
    for (int i = 0; i < 100; i++) {
        tally.admitted++;
        log_overload(&episode, &tally, 24, now += SECOND);
    }
    ck_assert_uint_eq(lines(said()), 1);
    ck_assert_ptr_nonnull(strstr(text, "notice: places are free again: in 19 s "));
    ck_assert_ptr_nonnull(strstr(text, " 200 took a victim's, 20000 were refused"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sip_log");
    TCase *tcase = unit_case(suite, "log");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, levels);
    tcase_add_test(tcase, beginnings);
    tcase_add_test(tcase, one_line);
    tcase_add_test(tcase, limits);
    tcase_add_test(tcase, quoting);
    tcase_add_test(tcase, overload);
    return unit_run(suite);
}
