/* SPDX-License-Identifier: Apache-2.0 */
#include "slab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Under a sanitizer every piece is one of its own, so that it sees what is done to it. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define LARGEST 0
#else
#define LARGEST SLAB_MAX
#endif

struct piece {
    struct piece *next;
};

static size_t rounded(size_t size)
{
    return (size + SLAB_STEP - 1) / SLAB_STEP * SLAB_STEP;
}

static void put(slab *s, void *place, size_t whole)
{
    struct piece *piece = place;

    piece->next = s->free[whole / SLAB_STEP];
    s->free[whole / SLAB_STEP] = piece;
}

static void *cut(slab *s, size_t size)
{
    void *piece;

    if (s->left < size) {
        struct piece *chunk =
            mmap(NULL, SLAB_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (chunk == MAP_FAILED) {
            return NULL;
        }
        if (s->left > 0) { /* what is left of the old chunk serves smaller pieces */
            put(s, s->rest, s->left);
        }
        chunk->next = s->chunks;
        s->chunks = chunk;
        s->rest = (char *)chunk + SLAB_STEP;
        s->left = SLAB_CHUNK - SLAB_STEP;
    }
    piece = s->rest;
    s->rest += size;
    s->left -= size;
    return piece;
}

void *slab_take(slab *s, size_t size)
{
    size_t whole = rounded(size);
    struct piece *piece;

    if (whole > LARGEST) {
        piece = malloc(whole);
    } else if ((piece = s->free[whole / SLAB_STEP]) != NULL) {
        s->free[whole / SLAB_STEP] = piece->next;
    } else {
        piece = cut(s, whole);
    }
    s->bytes += piece != NULL ? whole : 0;
    return piece;
}

void slab_give(slab *s, void *piece, size_t size)
{
    size_t whole = rounded(size);

    if (piece == NULL) {
        return;
    }
    s->bytes -= whole;
    if (whole > LARGEST) {
        free(piece);
    } else {
        put(s, piece, whole);
    }
}

void slab_clear(slab *s)
{
    while (s->chunks != NULL) {
        struct piece *chunk = s->chunks;

        s->chunks = chunk->next;
        munmap(chunk, SLAB_CHUNK);
    }
    memset(s, 0, sizeof *s);
}
