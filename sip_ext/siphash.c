/* SPDX-License-Identifier: Apache-2.0 */
#include "siphash.h"

#include <string.h>

static inline uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void rounds(uint64_t v[4], int count)
{
    while (count-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static uint64_t little_endian(const uint8_t bytes[8])
{
    uint64_t word = 0;

    for (int i = 7; i >= 0; i--) {
        word = word << 8 | bytes[i];
    }
    return word;
}

void siphash_start(siphash *h, const uint8_t key[SIPHASH_KEY])
{
    uint64_t k0 = little_endian(key), k1 = little_endian(key + 8);

    *h = (siphash){.v = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                         k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)}};
}

static void take(siphash *h, uint64_t word)
{
    h->v[3] ^= word;
    rounds(h->v, 2);
    h->v[0] ^= word;
}

void siphash_add(siphash *h, const void *data, size_t length)
{
    const uint8_t *bytes = data;

    while (length > 0) {
        if (h->length % 8 == 0 && length >= 8) {
            take(h, little_endian(bytes));
            bytes += 8;
            length -= 8;
            h->length += 8;
            continue;
        }
        h->word |= (uint64_t)*bytes++ << (8 * (h->length % 8));
        length--;
        if (++h->length % 8 == 0) {
            take(h, h->word);
            h->word = 0;
        }
    }
}

void siphash_text(siphash *h, const char *text)
{
    siphash_add(h, text != NULL ? text : "", text != NULL ? strlen(text) + 1 : 1);
}

uint64_t siphash_end(siphash *h)
{
    take(h, h->word | (uint64_t)h->length << 56);
    h->v[2] ^= 0xff;
    rounds(h->v, 4);
    return h->v[0] ^ h->v[1] ^ h->v[2] ^ h->v[3];
}
