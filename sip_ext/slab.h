/* SPDX-License-Identifier: Apache-2.0 */
/** Memory for many small things of a few sizes, apart from the heap. Of one thread. */
#ifndef SIP_EXT_SLAB_H
#define SIP_EXT_SLAB_H

#include <stddef.h>

#define SLAB_STEP 32  /* sizes are rounded up to this */
#define SLAB_MAX 2048 /* longer pieces come from the heap */
#define SLAB_CHUNK (1U << 18)

struct piece;

typedef struct slab {
    struct piece *free[SLAB_MAX / SLAB_STEP + 1]; /* lists, by size */
    struct piece *chunks;
    char *rest; /* of the newest chunk */
    size_t left;
    size_t bytes; /* handed out */
} slab;

/** NULL: no memory. The slab is zeroed to begin with. */
void *slab_take(slab *s, size_t size);

/** Gives back what slab_take() gave for that size. NULL does nothing. */
void slab_give(slab *s, void *piece, size_t size);

/** Frees all chunks; pieces longer than SLAB_MAX must have been given back. */
void slab_clear(slab *s);

#endif
