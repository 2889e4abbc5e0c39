/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What survives a restart: records of bytes by a 64-bit key in one LMDB file, of one process at a
 * time.
 *
 * - store_put() and store_delete() collect into one transaction; store_commit() ends it, and what
 *   was put before it survives any end of the process. Call it once at the end of each turn of the
 *   event loop; it costs nothing if nothing was put.
 * - The kernel brings the file to the disk in its own time, as waiting for it would hold up calls.
 * If the machine crashes the last half a minute may be missing, or the store be damaged. In a tmpfs
 * (/run) nothing is written to a disk at all; a new boot begins without calls then.
 * - Of one thread. A function that can fail returns false and, where it has error, writes one
 *   English sentence without a full stop to it.
 */
#ifndef SIP_EXT_STORE_H
#define SIP_EXT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_MAX_VALUE 65536 /* bytes of a record */
#define STORE_MAX_NAME 32     /* bytes of a name in the small table */

typedef struct store store;

/**
 * Opens or makes a store, with mode 0600. NULL if the file is in use by another process, is not a
 * store, is of another version, is damaged, or cannot be read and written.
 */
store *store_open(const char *path, char *error, size_t error_size);

/**
 * Writes a record, over an older one of that key. False: it is too long; or writing failed, which
 * is logged now and then, and loses all since the last commit.
 */
bool store_put(store *s, uint64_t key, const void *value, size_t length);

/** Removes a record; true also if there was none. */
bool store_delete(store *s, uint64_t key);

/** Makes all since the last time durable. False: it is lost; later ones may be kept again. */
bool store_commit(store *s);

/**
 * Calls each() for all records, in the order of their keys, until it returns false. value is valid
 * during the call; each() must not use the store. False on a read error, too.
 */
bool store_each(store *s,
                bool (*each)(void *context, uint64_t key, const void *value, size_t length),
                void *context);

/** How many records there are. */
size_t store_count(store *s);

/**
 * The small table beside the records, such as for a key: writes value under name, and commits.
 */
bool store_set(store *s, const char *name, const void *value, size_t length);

/** Reads it: copies at most size bytes, returns the length it has; 0: there is none. */
size_t store_get(store *s, const char *name, void *value, size_t size);

/** Commits, brings all to the disk, and frees. NULL does nothing. */
void store_close(store *s);

#endif
