/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store.h"
#include "unit.h"

static char folder[128], path[160], error[1024];

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%s/sip_store.XXXXXX", tmp != NULL ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/calls", folder);
}

static void teardown(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0); /* there was that one file */
}

static store *opened(void)
{
    store *s = store_open(path, error, sizeof(error));

    ck_assert_msg(s != NULL, "%s", error);
    return s;
}

/* The store cannot be opened, and the sentence says so with those words. */
static void refused(const char *words)
{
    ck_assert_ptr_null(store_open(path, error, sizeof(error)));
    ck_assert_msg(strstr(error, path) != NULL && strstr(error, words) != NULL, "%s", error);
}

static void make_file(const void *bytes, size_t length)
{
    FILE *file = fopen(path, "w");

    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

/* Record number n of a test: its value says its key. */
static size_t make_value(uint64_t key, char value[512])
{
    size_t length = 1 + (size_t)(key * 7919 % 500);

    memset(value, (int)('a' + key % 26), length);
    return length;
}

static bool put(store *s, uint64_t key)
{
    char value[512];
    size_t length = make_value(key, value);

    return store_put(s, key, value, length);
}

typedef struct seen {
    uint64_t count, last, stop_after;
} seen;

static bool look(void *context, uint64_t key, const void *value, size_t length)
{
    seen *at = context;
    char wanted[512];

    ck_assert_uint_eq(length, make_value(key, wanted));
    ck_assert_int_eq(memcmp(value, wanted, length), 0);
    ck_assert(at->count == 0 || key > at->last);
    at->last = key;
    return ++at->count != at->stop_after;
}

static uint64_t count(store *s)
{
    seen at = {0};

    ck_assert(store_each(s, look, &at));
    ck_assert_uint_eq(at.count, store_count(s));
    return at.count;
}

/* ---- records -------------------------------------------------------------------------------- */

START_TEST(records)
{
    store *s = opened();
    seen at = {.stop_after = 2};

    ck_assert_uint_eq(count(s), 0);
    ck_assert(put(s, 3) && put(s, UINT64_MAX) && put(s, 0) && put(s, UINT64_C(1) << 40));
    ck_assert_uint_eq(store_count(s), 4); /* seen before it is committed */
    ck_assert(store_commit(s) && store_commit(s));
    ck_assert_uint_eq(count(s), 4);
    ck_assert(put(s, 3)); /* again */
    ck_assert_uint_eq(count(s), 4);
    ck_assert(store_delete(s, 3) && store_delete(s, 3) && store_delete(s, 77));
    ck_assert_uint_eq(count(s), 3);
    ck_assert(store_each(s, look, &at));
    ck_assert_uint_eq(at.count, 2);
    store_close(s);
    s = opened();
    ck_assert_uint_eq(count(s), 3);
    store_close(s);
    store_close(NULL);
}
END_TEST

START_TEST(sizes)
{
    store *s = opened();
    char *value = calloc(1, STORE_MAX_VALUE + 1);

    ck_assert(put(s, 1));
    ck_assert(!store_put(s, 2, value, STORE_MAX_VALUE + 1));
    ck_assert(store_put(s, 2, value, STORE_MAX_VALUE));
    ck_assert(store_put(s, 3, value, 0));
    ck_assert(store_commit(s));
    ck_assert_uint_eq(store_count(s), 3); /* what was too long harmed nothing */
    store_close(s);
    free(value);
}
END_TEST

START_TEST(names)
{
    store *s = opened();
    char value[16] = "", long_name[STORE_MAX_NAME + 2];

    ck_assert_uint_eq(store_get(s, "key", value, sizeof(value)), 0);
    ck_assert(put(s, 1));
    ck_assert_uint_eq(store_get(s, "key", value, sizeof(value)), 0);
    ck_assert(store_set(s, "key", "0123456789", 10));
    ck_assert_uint_eq(store_get(s, "key", value, sizeof(value)), 10);
    ck_assert_int_eq(memcmp(value, "0123456789", 10), 0);
    memset(value, 'x', sizeof(value));
    ck_assert_uint_eq(store_get(s, "key", value, 4), 10);
    ck_assert_int_eq(memcmp(value, "0123xx", 6), 0);
    ck_assert(store_set(s, "version", "9", 1)); /* no harm to the store's own */
    memset(long_name, 'n', sizeof(long_name));
    long_name[STORE_MAX_NAME + 1] = '\0';
    ck_assert(!store_set(s, long_name, "1", 1) && !store_set(s, "", "1", 1));
    long_name[STORE_MAX_NAME] = '\0';
    ck_assert(store_set(s, long_name, "1", 1));
    store_close(s);
    s = opened();
    ck_assert_uint_eq(store_get(s, "key", value, sizeof(value)), 10);
    ck_assert_uint_eq(count(s), 1);
    store_close(s);
}
END_TEST

/* Beyond the first map, with and without commits, and back to few. */
START_TEST(growth)
{
    const uint64_t many = load(400000);
    store *s = opened();

    for (uint64_t key = 0; key < many; key++) {
        ck_assert(put(s, key));
        ck_assert(key % 1000 != 0 || store_commit(s));
    }
    ck_assert_uint_eq(count(s), many);
    for (uint64_t key = 0; key < many; key++) {
        ck_assert(key % 100 == 0 || store_delete(s, key));
    }
    ck_assert_uint_eq(count(s), (many + 99) / 100);
    store_close(s);
    s = opened();
    ck_assert_uint_eq(count(s), (many + 99) / 100);
    store_close(s);
}
END_TEST

/* ---- what may happen to a process ----------------------------------------------------------- */

/* Runs work() in a process of its own that ends by SIGKILL. */
static void in_a_crash(void (*work)(store *s))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        store *s = store_open(path, error, sizeof(error));

        if (s != NULL) {
            work(s);
        }
        raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
}

static void put_hundred(store *s)
{
    for (uint64_t key = 0; key < 100; key++) {
        put(s, key);
    }
    store_commit(s);
    put(s, 1000);
}

static void do_nothing(store *s)
{
    (void)s;
}

START_TEST(crash)
{
    store *s;

    in_a_crash(do_nothing);
    store_close(opened());
    for (int i = 0; i < 3; i++) {
        in_a_crash(put_hundred);
    }
    s = opened();
    ck_assert_uint_eq(count(s), 100); /* all that was committed, and nothing of the rest */
    store_close(s);
}
END_TEST

static void put_for_ever(store *s)
{
    for (uint64_t key = 0;; key++) {
        put(s, key % 5000);
        store_delete(s, key * 31 % 5000);
        if (key % 5 == 0) {
            store_commit(s);
        }
    }
}

/* Wherever it is hit. */
START_TEST(killed_while_it_writes)
{
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            store *s = store_open(path, error, sizeof(error));

            if (s != NULL) {
                put_for_ever(s);
            }
            _exit(1);
        }
        usleep((useconds_t)(20000 + 1237 * i));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        ck_assert(WIFSIGNALED(status));
        store *s = opened();

        count(s);
        store_close(s);
    }
}
END_TEST

START_TEST(in_use)
{
    store *s = opened();
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        refused("is in use by another process");
        _exit(0);
    }
    waitpid(pid, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    refused("is in use by another process"); /* by this one, just so */
    ck_assert(put(s, 1) && store_commit(s));
    store_close(s);
    store_close(opened());
}
END_TEST

START_TEST(full_disk)
{
    struct rlimit limit, before;
    store *s = opened();
    bool ok = true;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert(put(s, 1) && store_commit(s));
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (uint64_t key = 2; key < 20000; key++) {
        ok = put(s, key) && (key % 100 != 0 || store_commit(s)) && ok;
    }
    ck_assert(!ok);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert(put(s, 100000) && store_commit(s)); /* it goes on */
    ck_assert_uint_ge(count(s), 2);
    store_close(s);
    store_close(opened());
}
END_TEST

/* ---- what the file may be ------------------------------------------------------------------- */

START_TEST(mode)
{
    struct stat status;

    umask(0);
    store_close(opened());
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
    chmod(path, 0664);
    store_close(opened());
    stat(path, &status);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
}
END_TEST

START_TEST(other_files)
{
    static const char text[] = "calls = 24\n";
    char *zeros = calloc(1, 100000);

    make_file(text, sizeof(text));
    refused("is not a store of seven-sip");
    make_file(zeros, 100000);
    refused("is not a store of seven-sip");
    make_file(zeros, 1);
    refused("is not a store of seven-sip");
    free(zeros);
    make_file("", 0); /* an empty one becomes a store */
    store_close(opened());
    unlink(path);
    mkdir(path, 0700);
    refused("cannot be opened");
    rmdir(path);
    mkfifo(path, 0600);
    refused("is not a regular file");
}
END_TEST

static char *read_file(size_t *length)
{
    FILE *file = fopen(path, "r");
    char *bytes;

    fseek(file, 0, SEEK_END);
    *length = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*length);
    ck_assert_uint_eq(fread(bytes, 1, *length, file), *length);
    fclose(file);
    return bytes;
}

static char *made_store(size_t *length)
{
    store *s = opened();

    for (uint64_t key = 0; key < 2000; key++) {
        put(s, key);
    }
    store_close(s);
    return read_file(length);
}

START_TEST(truncated)
{
    size_t length;
    char *bytes = made_store(&length);

    for (size_t n = 8192; n < length; n += length / 13 + 1) {
        make_file(bytes, n);
        ck_assert_ptr_null(store_open(path, error, sizeof(error)));
        ck_assert_msg(strstr(error, "is damaged") || strstr(error, "is not a store"), "%s", error);
    }
    make_file(bytes, length);
    store_close(opened());
    free(bytes);
}
END_TEST

/* Pages overwritten by noise: whatever can be opened can be read; nothing crashes. */
START_TEST(noise)
{
    size_t length, damaged = 0;
    char *bytes = made_store(&length), *bad = malloc(length);
    seven_rng rng;

    seven_seed(&rng, 3);
    for (int i = 0; i < 60; i++) {
        size_t page = seven_below(&rng, length / 4096), many = 1 + seven_below(&rng, 4096);
        store *s;

        memcpy(bad, bytes, length);
        for (size_t j = 0; j < many; j++) {
            bad[page * 4096 + seven_below(&rng, 4096)] = (char)seven_below(&rng, 256);
        }
        make_file(bad, length);
        s = store_open(path, error, sizeof(error));
        damaged += s == NULL;
        ck_assert_msg(s != NULL || strstr(error, "is damaged") || strstr(error, "is not a store"),
                      "%s", error);
        store_close(s);
    }
    ck_assert_uint_gt(damaged, 10);
    free(bad);
    free(bytes);
}
END_TEST

START_TEST(no_such_folder)
{
    ck_assert_ptr_null(store_open("/nonexistent/calls", error, sizeof(error)));
    ck_assert_str_eq(error,
                     "the store /nonexistent/calls cannot be opened: No such file or directory");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sip_store");
    TCase *records_case = unit_case(suite, "records"), *process = unit_case(suite, "process");
    TCase *file = unit_case(suite, "file");

    tcase_add_checked_fixture(records_case, setup, teardown);
    tcase_add_checked_fixture(process, setup, teardown);
    tcase_add_checked_fixture(file, setup, teardown);
    tcase_add_test(records_case, records);
    tcase_add_test(records_case, sizes);
    tcase_add_test(records_case, names);
    tcase_add_test(records_case, growth);
    tcase_add_test(process, crash);
    tcase_add_test(process, killed_while_it_writes);
    tcase_add_test(process, in_use);
    tcase_add_test(process, full_disk);
    tcase_add_test(file, mode);
    tcase_add_test(file, other_files);
    tcase_add_test(file, truncated);
    tcase_add_test(file, noise);
    tcase_add_test(file, no_such_folder);
    return unit_run(suite);
}
