/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who was refused within the life of a transaction (64 * T1), so that a retransmitted INVITE is not
 * a second newcomer. What is kept is a keyed hash and a time, in a table that does not grow: in a
 * flood an old entry may be lost early, and then that retransmission counts as a newcomer.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "proxy_internal.h"

#define SETS 16384
#define WAYS 4
#define LIFE_US (32 * SECOND_US)

struct refusals {
    uint8_t key[SIPHASH_KEY];
    struct {
        uint64_t key, until_us;
    } entry[SETS][WAYS];
};

struct refusals *refusals_create(void)
{
    struct refusals *r = calloc(1, sizeof *r);

    if (r != NULL && getrandom(r->key, sizeof r->key, 0) != (ssize_t)sizeof r->key) {
        free(r);
        return NULL;
    }
    return r;
}

void refusals_destroy(struct refusals *r)
{
    free(r);
}

uint64_t refusals_key(const struct refusals *r, const sip_t *sip)
{
    siphash h;

    siphash_start(&h, r->key);
    siphash_text(&h, sip->sip_via->v_branch);
    siphash_text(&h, sip->sip_via->v_host);
    siphash_text(&h, sip->sip_via->v_port);
    siphash_text(&h, sip->sip_call_id->i_id);
    siphash_text(&h, sip->sip_from->a_tag);
    siphash_add(&h, &sip->sip_cseq->cs_seq, sizeof sip->sip_cseq->cs_seq);
    return siphash_end(&h);
}

bool refusals_has(const struct refusals *r, uint64_t key, uint64_t now_us)
{
    for (int i = 0; i < WAYS; i++) {
        if (r->entry[key % SETS][i].key == key && r->entry[key % SETS][i].until_us > now_us) {
            return true;
        }
    }
    return false;
}

void refusals_add(struct refusals *r, uint64_t key, uint64_t now_us)
{
    int oldest = 0;

    for (int i = 1; i < WAYS; i++) {
        if (r->entry[key % SETS][i].until_us < r->entry[key % SETS][oldest].until_us) {
            oldest = i;
        }
    }
    r->entry[key % SETS][oldest].key = key;
    r->entry[key % SETS][oldest].until_us = now_us + LIFE_US;
}
