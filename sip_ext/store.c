/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LMDB is used with MDB_NOSYNC: a commit is some writes into the page cache, which outlive the
 * process. Not with MDB_WRITEMAP: a full disk would be a SIGBUS instead of an error. MDB_NOLOCK:
 * the file is ours alone, by flock().
 */
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "store.h"

#define VERSION 1 /* of the tables below; what the records mean is their writer's */
#define FLAGS (MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOLOCK | MDB_NORDAHEAD | MDB_NOTLS)
#define MODE 0600U
#define FIRST_SIZE (64UL << 20) /* bytes of address space, not of the file */
/* A transaction ends by itself at these bounds, so that it fits into the half of the map that
 * grow() sees to. */
#define BATCH_PUTS 1000
#define BATCH_BYTES (4UL << 20)
#define CHECK_SECONDS 60 /* that looking through a store may take */
#define LOCK_TRIES 100   /* after the first */
#define LOCK_WAIT_NS 10000000L
#define FREE_TABLE 0 /* LMDB's own, of the pages that are free */

/* No name of the small table begins so. */
static const MDB_val version_key = {8, (void *)"\0version"};

struct store {
    MDB_env *env;
    MDB_dbi records, names; /* "calls": by 64-bit key; "names": the small table */
    MDB_txn *batch;         /* NULL: nothing was put since the last commit */
    size_t puts, bytes;     /* in the batch */
    int lock;               /* the file, locked */
    log_limit failures;
};

/* ---- errors ---------------------------------------------------------------------------------- */

static bool fail(char *error, size_t size, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Writes "the store PATH ..."; returns false. */
static bool fail(char *error, size_t size, const char *path, const char *format, ...)
{
    char shown[256], sentence[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    snprintf(error, size, "the store %s %s", log_quote(shown, sizeof(shown), path, strlen(path)),
             sentence);
    return false;
}

static const char not_ours[] = "is not a store of seven-sip; name another file, or remove this one";
static const char damaged[] = "is damaged; remove it to start without the calls in it";

/* ---- looking through a file that may be anything -------------------------------------------- */

enum soundness { SOUND, NOT_OURS, DAMAGED, OTHER_VERSION };

/* LMDB trusts what is in the file. So another process reads all of it first, and if that dies the
 * file is not sound. */
static enum soundness walk(MDB_txn *txn, MDB_dbi table)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    MDB_stat stat;
    volatile unsigned char sum = 0;
    size_t seen = 0;
    int code;

    if (mdb_stat(txn, table, &stat) != 0 || mdb_cursor_open(txn, table, &cursor) != 0) {
        return DAMAGED;
    }
    while ((code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        for (size_t i = 0; i < value.mv_size; i++) {
            sum ^= ((const unsigned char *)value.mv_data)[i];
        }
        if (++seen > stat.ms_entries) { /* pages in a circle */
            break;
        }
    }
    return code == MDB_NOTFOUND && seen == stat.ms_entries ? SOUND : DAMAGED;
}

static enum soundness check_version(MDB_txn *txn, MDB_dbi names)
{
    MDB_val key = version_key, value;
    uint32_t version;

    if (mdb_get(txn, names, &key, &value) != 0 || value.mv_size != sizeof(version)) {
        return NOT_OURS;
    }
    memcpy(&version, value.mv_data, sizeof(version));
    return version == VERSION ? SOUND : OTHER_VERSION;
}

static enum soundness look_through(const char *path)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi main_table, records, names;
    MDB_stat stat;
    enum soundness result;
    int code;

    if (mdb_env_create(&env) != 0 || mdb_env_set_maxdbs(env, 2) != 0) {
        return DAMAGED;
    }
    code = mdb_env_open(env, path, FLAGS | MDB_RDONLY, MODE);
    if (code != 0) {
        return code == MDB_INVALID || code == MDB_VERSION_MISMATCH ? NOT_OURS : DAMAGED;
    }
    if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0 ||
        mdb_dbi_open(txn, NULL, 0, &main_table) != 0 || mdb_stat(txn, main_table, &stat) != 0) {
        return DAMAGED;
    }
    if (stat.ms_entries == 0) {
        return SOUND; /* made, and its maker died before the first commit */
    }
    if (mdb_dbi_open(txn, "calls", MDB_INTEGERKEY, &records) != 0 ||
        mdb_dbi_open(txn, "names", 0, &names) != 0) {
        return walk(txn, main_table) == SOUND ? NOT_OURS : DAMAGED;
    }
    result = check_version(txn, names);
    return result != SOUND                  ? result
           : walk(txn, FREE_TABLE) != SOUND ? DAMAGED
           : walk(txn, main_table) != SOUND ? DAMAGED
           : walk(txn, names) != SOUND      ? DAMAGED
                                            : walk(txn, records);
}

/* In a process of its own, that ends with it. The lock is not its: if we are killed meanwhile, who
 * comes after us must not find the file in use. */
static void look_and_exit(const char *path, int lock)
{
    int quiet = open("/dev/null", O_RDWR | O_CLOEXEC);

    close(lock);
    dup2(quiet, STDOUT_FILENO);
    dup2(quiet, STDERR_FILENO);
    alarm(CHECK_SECONDS);
    _exit((int)look_through(path));
}

static bool check(const char *path, int lock, char *error, size_t size)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        look_and_exit(path, lock);
    }
    if (pid < 0) {
        return fail(error, size, path, "cannot be checked: %s", strerror(errno));
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return fail(error, size, path, "cannot be checked: %s", strerror(errno));
        }
    }
    switch (WIFEXITED(status) ? WEXITSTATUS(status) : DAMAGED) {
    case SOUND:
        return true;
    case NOT_OURS:
        return fail(error, size, path, "%s", not_ours);
    case OTHER_VERSION:
        return fail(
            error, size, path,
            "is of another version of seven-sip; remove it to start without the calls in it");
    default:
        return fail(error, size, path, "%s", damaged);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Whoever was killed a moment ago may still be on its way out. False, and errno is EWOULDBLOCK:
 * somebody keeps it. */
static bool lock_soon(int fd)
{
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        struct timespec moment = {.tv_nsec = LOCK_WAIT_NS};

        if (errno != EWOULDBLOCK || tries == LOCK_TRIES) {
            return false;
        }
        nanosleep(&moment, NULL);
    }
    return true;
}

/* The file, locked for this process alone, and its size; -1 and a sentence if it cannot be. */
static int lock_file(const char *path, off_t *length, char *error, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, MODE);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0) {
        fail(error, size, path, "cannot be opened: %s", strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        fail(error, size, path, "is not a regular file");
    } else if (!lock_soon(fd)) {
        if (errno == EWOULDBLOCK) {
            fail(error, size, path, "is in use by another process");
        } else {
            fail(error, size, path, "cannot be locked: %s", strerror(errno));
        }
    } else if ((status.st_mode & 0777 & ~MODE) != 0 && fchmod(fd, MODE) != 0) {
        fail(error, size, path, "cannot be made its user's alone: %s", strerror(errno));
    } else {
        *length = status.st_size;
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/* Keeps half of the map free. Not while there is a transaction. */
static int grow(store *s)
{
    MDB_envinfo info;
    MDB_stat stat;
    size_t used, size;

    mdb_env_info(s->env, &info);
    mdb_env_stat(s->env, &stat);
    used = (info.me_last_pgno + 1) * stat.ms_psize;
    for (size = info.me_mapsize; used > size / 2;) {
        size *= 2;
    }
    return size == info.me_mapsize ? 0 : mdb_env_set_mapsize(s->env, size);
}

/* Opens the tables, and makes them in a new file. */
static int open_tables(store *s)
{
    static const uint32_t version = VERSION;
    MDB_val key = version_key, value = {sizeof(version), (void *)&version};
    MDB_txn *txn;
    int code = mdb_txn_begin(s->env, NULL, 0, &txn);

    if (code != 0) {
        return code;
    }
    code = mdb_dbi_open(txn, "calls", MDB_CREATE | MDB_INTEGERKEY, &s->records);
    if (code == 0) {
        code = mdb_dbi_open(txn, "names", MDB_CREATE, &s->names);
    }
    if (code == 0) {
        code = mdb_put(txn, s->names, &key, &value, 0);
    }
    if (code == 0) {
        return mdb_txn_commit(txn);
    }
    mdb_txn_abort(txn);
    return code;
}

static int open_env(store *s, const char *path)
{
    int code = mdb_env_create(&s->env);

    if (code == 0) {
        code = mdb_env_set_maxdbs(s->env, 2);
    }
    if (code == 0) {
        code = mdb_env_set_mapsize(s->env, FIRST_SIZE);
    }
    if (code == 0) {
        code = mdb_env_open(s->env, path, FLAGS, MODE);
    }
    if (code == 0) {
        code = grow(s);
    }
    return code == 0 ? open_tables(s) : code;
}

store *store_open(const char *path, char *error, size_t error_size)
{
    off_t length;
    int code, fd = lock_file(path, &length, error, error_size);
    store *s;

    if (fd < 0) {
        return NULL;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL) {
        fail(error, error_size, path, "finds no memory");
        close(fd);
        return NULL;
    }
    s->lock = fd;
    if (length > 0 && !check(path, fd, error, error_size)) {
        store_close(s);
        return NULL;
    }
    code = open_env(s, path);
    if (code != 0) {
        fail(error, error_size, path, "cannot be used: %s", mdb_strerror(code));
        store_close(s);
        return NULL;
    }
    return s;
}

void store_close(store *s)
{
    if (s != NULL) {
        store_commit(s);
        if (s->env != NULL) {
            mdb_env_close(s->env);
        }
        fdatasync(s->lock);
        close(s->lock);
        free(s);
    }
}

/* ---- records --------------------------------------------------------------------------------- */

/* Drops the batch and says, now and then, that it is lost; returns false. */
static bool lost(store *s, int code)
{
    mdb_txn_abort(s->batch);
    s->batch = NULL;
    log_limited(&s->failures, LOG_ERR,
                "the store cannot be written, so some calls would not survive a restart: %s",
                mdb_strerror(code));
    return false;
}

/* Begins a batch if there is none, or ends one that is large. */
static bool begin(store *s, size_t bytes)
{
    int code;

    if (s->batch != NULL && (s->puts >= BATCH_PUTS || s->bytes + bytes > BATCH_BYTES) &&
        !store_commit(s)) {
        return false;
    }
    if (s->batch == NULL) {
        s->puts = s->bytes = 0;
        code = grow(s);
        if (code == 0) {
            code = mdb_txn_begin(s->env, NULL, 0, &s->batch);
        }
        if (code != 0) {
            s->batch = NULL;
            return lost(s, code);
        }
    }
    s->puts++;
    s->bytes += bytes;
    return true;
}

bool store_put(store *s, uint64_t key, const void *value, size_t length)
{
    MDB_val k = {sizeof(key), &key}, v = {length, (void *)value};
    int code;

    if (length > STORE_MAX_VALUE || !begin(s, length)) {
        return false;
    }
    code = mdb_put(s->batch, s->records, &k, &v, 0);
    return code == 0 || lost(s, code);
}

bool store_delete(store *s, uint64_t key)
{
    MDB_val k = {sizeof(key), &key};
    int code;

    if (!begin(s, 0)) {
        return false;
    }
    code = mdb_del(s->batch, s->records, &k, NULL);
    return code == 0 || code == MDB_NOTFOUND || lost(s, code);
}

bool store_commit(store *s)
{
    MDB_txn *batch = s->batch;
    int code;

    if (batch == NULL) {
        return true;
    }
    s->batch = NULL;
    code = mdb_txn_commit(batch); /* which frees it, too, if it fails */
    return code == 0 || lost(s, code);
}

bool store_each(store *s,
                bool (*each)(void *context, uint64_t key, const void *value, size_t length),
                void *context)
{
    MDB_txn *txn;
    MDB_cursor *cursor;
    MDB_val key, value;
    uint64_t number;
    int code;

    if (!store_commit(s) || mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn) != 0) {
        return false;
    }
    code = mdb_cursor_open(txn, s->records, &cursor);
    if (code == 0) {
        while ((code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
            if (key.mv_size != sizeof(number)) {
                break;
            }
            memcpy(&number, key.mv_data, sizeof(number));
            if (!each(context, number, value.mv_data, value.mv_size)) {
                code = MDB_NOTFOUND;
                break;
            }
        }
        mdb_cursor_close(cursor);
    }
    mdb_txn_abort(txn);
    return code == MDB_NOTFOUND;
}

size_t store_count(store *s)
{
    MDB_txn *txn = s->batch;
    MDB_stat stat = {0};

    if (txn == NULL && mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn) != 0) {
        return 0;
    }
    mdb_stat(txn, s->records, &stat);
    if (txn != s->batch) {
        mdb_txn_abort(txn);
    }
    return stat.ms_entries;
}

/* ---- the small table ------------------------------------------------------------------------- */

bool store_set(store *s, const char *name, const void *value, size_t length)
{
    MDB_val k = {strlen(name), (void *)name}, v = {length, (void *)value};
    int code;

    if (k.mv_size == 0 || k.mv_size > STORE_MAX_NAME || length > STORE_MAX_VALUE ||
        !begin(s, length)) {
        return false;
    }
    code = mdb_put(s->batch, s->names, &k, &v, 0);
    return code == 0 ? store_commit(s) : lost(s, code);
}

size_t store_get(store *s, const char *name, void *value, size_t size)
{
    MDB_val k = {strlen(name), (void *)name}, v;
    MDB_txn *txn = s->batch;
    size_t length = 0;

    if (k.mv_size == 0 || (txn == NULL && mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn) != 0)) {
        return 0;
    }
    if (mdb_get(txn, s->names, &k, &v) == 0) {
        length = v.mv_size;
        memcpy(value, v.mv_data, length < size ? length : size);
    }
    if (txn != s->batch) {
        mdb_txn_abort(txn);
    }
    return length;
}
