/* SPDX-License-Identifier: Apache-2.0 */
/** SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash of short input, for tables that an
 * attacker feeds and for tokens that nobody else can make. */
#ifndef SIP_EXT_SIPHASH_H
#define SIP_EXT_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#define SIPHASH_KEY 16 /* bytes of a key */

/** A hash under way: siphash_start(), then siphash_add() for each part, then siphash_end(). */
typedef struct siphash {
    uint64_t v[4], word;
    size_t length;
} siphash;

void siphash_start(siphash *h, const uint8_t key[SIPHASH_KEY]);

/** Adds bytes; parts are joined without a mark between them. */
void siphash_add(siphash *h, const void *data, size_t length);

/** Adds a string and its ending zero, so that "ab","c" and "a","bc" differ. NULL counts as "". */
void siphash_text(siphash *h, const char *text);

uint64_t siphash_end(siphash *h);

#endif
