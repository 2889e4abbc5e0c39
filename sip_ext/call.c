/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "slab.h"

#define WHEEL 4096 /* ticks; what is due later goes round again */

struct calls {
    uint8_t key[SIPHASH_KEY];
    slab memory;
    size_t count, mask;
    call **buckets;
    uint64_t tick; /* the wheel's, all before it were given */
    call *wheel[WHEEL];
};

span span_of(const char *text)
{
    return (span){.text = text != NULL ? text : "", .length = text != NULL ? strlen(text) : 0};
}

calls *calls_create(uint32_t expected, uint64_t now_us)
{
    calls *t = calloc(1, sizeof *t);
    size_t buckets = 1024;

    while (buckets < expected) {
        buckets *= 2;
    }
    if (t == NULL || (t->buckets = calloc(buckets, sizeof(call *))) == NULL ||
        getrandom(t->key, sizeof t->key, 0) != (ssize_t)sizeof t->key) {
        calls_destroy(t);
        return NULL;
    }
    t->mask = buckets - 1;
    t->tick = now_us / CALL_TICK_US;
    return t;
}

void calls_destroy(calls *t)
{
    for (size_t i = 0; t != NULL && t->buckets != NULL && i <= t->mask; i++) {
        while (t->buckets[i] != NULL) {
            call *c = t->buckets[i];

            call_free(t, c->parent != NULL ? c->parent : c);
        }
    }
    if (t != NULL) {
        free(t->buckets);
        slab_clear(&t->memory);
        free(t);
    }
}

/* ---- texts ------------------------------------------------------------------------------ */

static size_t text_size(const call *c)
{
    return c->at[CALL_TEXTS];
}

/* Writes new texts, which may point into the old ones. */
static bool write_texts(calls *t, call *c, const span texts[CALL_TEXTS])
{
    size_t size = 0;
    char *text;

    for (int i = 0; i < CALL_TEXTS; i++) {
        if (texts[i].length > CALL_MAX_TEXT) {
            return false;
        }
        size += texts[i].length + 1;
    }
    if (size > CALL_MAX_TEXT || (text = slab_take(&t->memory, size)) == NULL) {
        return false;
    }
    size = 0;
    for (int i = 0; i < CALL_TEXTS; i++) {
        memcpy(text + size, texts[i].text != NULL ? texts[i].text : "", texts[i].length);
        text[size + texts[i].length] = 0;
        size += texts[i].length + 1;
    }
    if (c->text != NULL) {
        slab_give(&t->memory, c->text, text_size(c));
    }
    c->text = text;
    size = 0;
    for (int i = 0; i < CALL_TEXTS; i++) {
        c->at[i] = (uint16_t)size;
        size += texts[i].length + 1;
    }
    c->at[CALL_TEXTS] = (uint16_t)size;
    return true;
}

static void read_texts(const call *c, span texts[CALL_TEXTS])
{
    for (int i = 0; i < CALL_TEXTS; i++) {
        texts[i].text = call_text(c, (enum call_text)i);
        texts[i].length = call_text_length(c, (enum call_text)i);
    }
}

bool call_set(calls *t, call *c, enum call_text which, span text)
{
    span texts[CALL_TEXTS];

    if (text.length == call_text_length(c, which) &&
        memcmp(text.text, call_text(c, which), text.length) == 0) {
        return true;
    }
    read_texts(c, texts);
    texts[which] = text;
    if (!write_texts(t, c, texts)) {
        return false;
    }
    c->changed = true;
    return true;
}

/* ---- the table -------------------------------------------------------------------------- */

static uint64_t hash_of(const calls *t, const char *call_id, const char *tag)
{
    siphash h;

    siphash_start(&h, t->key);
    siphash_text(&h, call_id);
    siphash_text(&h, tag);
    return siphash_end(&h);
}

static bool alike(const call *c, uint64_t hash, const char *call_id, const char *tag)
{
    return c->hash == hash && strcmp(call_text(c, TEXT_CALL_ID), call_id) == 0 &&
           strcmp(call_text(c, TEXT_FROM_TAG), tag) == 0;
}

static void insert(calls *t, call *c)
{
    c->next = t->buckets[c->hash & t->mask];
    t->buckets[c->hash & t->mask] = c;
}

static void take_out(calls *t, const call *c)
{
    call **at = &t->buckets[c->hash & t->mask];

    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
}

static call *add(calls *t, const span texts[CALL_TEXTS])
{
    call *c = slab_take(&t->memory, sizeof *c);
    unsigned others = 0;

    if (c == NULL) {
        return NULL;
    }
    memset(c, 0, sizeof *c);
    if (!write_texts(t, c, texts)) {
        slab_give(&t->memory, c, sizeof *c);
        return NULL;
    }
    c->hash = hash_of(t, call_text(c, TEXT_CALL_ID), call_text(c, TEXT_FROM_TAG));
    for (call *other = t->buckets[c->hash & t->mask]; other != NULL; other = other->next) {
        others += alike(other, c->hash, call_text(c, TEXT_CALL_ID), call_text(c, TEXT_FROM_TAG));
    }
    if (others >= CALL_MAX_ALIKE) {
        slab_give(&t->memory, c->text, text_size(c));
        slab_give(&t->memory, c, sizeof *c);
        return NULL;
    }
    insert(t, c);
    return c;
}

call *call_add(calls *t, const span texts[CALL_TEXTS])
{
    call *c = add(t, texts);

    t->count += c != NULL;
    return c;
}

call *call_add_fork(calls *t, call *c, const span texts[CALL_TEXTS])
{
    call *fork = add(t, texts);

    if (fork != NULL) {
        fork->parent = c;
        fork->fork = c->fork;
        c->fork = fork;
    }
    return fork;
}

static void unlink_due(calls *t, call *c)
{
    if (!c->linked) {
        return;
    }
    if (c->sooner != NULL) {
        c->sooner->later = c->later;
    } else {
        t->wheel[c->due_us / CALL_TICK_US % WHEEL] = c->later;
    }
    if (c->later != NULL) {
        c->later->sooner = c->sooner;
    }
    c->linked = false;
}

void call_free(calls *t, call *c)
{
    if (c->parent != NULL) {
        call **at = &c->parent->fork;

        while (*at != c) {
            at = &(*at)->fork;
        }
        *at = c->fork;
        c->fork = NULL;
    } else {
        t->count--;
    }
    while (c->fork != NULL && c->parent == NULL) {
        call_free(t, c->fork);
    }
    unlink_due(t, c);
    take_out(t, c);
    slab_give(&t->memory, c->text, text_size(c));
    slab_give(&t->memory, c, sizeof *c);
}

/* Whose To-tag agrees; one that is not answered yet agrees with any. */
static bool tag_fits(const call *c, const char *tag, bool exactly)
{
    const char *own = call_text(c, TEXT_TO_TAG);

    return strcmp(own, tag) == 0 || (!exactly && (*tag == 0 || (*own == 0 && !c->answered)));
}

static call *search(calls *t, const char *call_id, const char *caller_tag, const char *callee_tag,
                    bool exactly)
{
    uint64_t hash = hash_of(t, call_id, caller_tag);
    call *c = t->buckets[hash & t->mask];

    while (c != NULL &&
           !(alike(c, hash, call_id, caller_tag) && tag_fits(c, callee_tag, exactly))) {
        c = c->next;
    }
    return c;
}

call *call_find(calls *t, const char *call_id, const char *from_tag, const char *to_tag,
                enum call_side *from)
{
    call *c = NULL;

    call_id = call_id != NULL ? call_id : "";
    from_tag = from_tag != NULL ? from_tag : "";
    to_tag = to_tag != NULL ? to_tag : "";
    /* A dialog that both tags name comes before one that is yet to have its second: else a new
     * INVITE with the callee's tag would take the dialog's requests for its own. */
    for (int exactly = 1; exactly >= 0 && c == NULL; exactly--) {
        *from = SIDE_CALLER;
        c = search(t, call_id, from_tag, to_tag, exactly);
        if (c == NULL && *to_tag != 0) {
            *from = SIDE_CALLEE;
            c = search(t, call_id, to_tag, from_tag, exactly);
        }
    }
    return c;
}

call *call_alike(calls *t, const char *call_id, const char *from_tag, const call *after)
{
    uint64_t hash;
    call *c;

    call_id = call_id != NULL ? call_id : "";
    from_tag = from_tag != NULL ? from_tag : "";
    hash = hash_of(t, call_id, from_tag);
    c = after != NULL ? after->next : t->buckets[hash & t->mask];
    while (c != NULL && !alike(c, hash, call_id, from_tag)) {
        c = c->next;
    }
    return c;
}

void calls_each(const calls *t, bool (*each)(void *context, call *c), void *context)
{
    for (size_t i = 0; i <= t->mask; i++) {
        for (call *c = t->buckets[i]; c != NULL; c = c->next) {
            if (c->parent == NULL && !each(context, c)) {
                return;
            }
        }
    }
}

size_t calls_count(const calls *t)
{
    return t->count;
}

size_t calls_bytes(const calls *t)
{
    return t->memory.bytes + (t->mask + 1) * sizeof(call *);
}

/* ---- when its time has come ------------------------------------------------------------- */

void call_due(calls *t, call *c, uint64_t due_us)
{
    call **at;

    unlink_due(t, c);
    c->due_us = due_us;
    if (due_us == 0) {
        return;
    }
    if (due_us / CALL_TICK_US < t->tick) {
        c->due_us = t->tick * CALL_TICK_US;
    }
    at = &t->wheel[c->due_us / CALL_TICK_US % WHEEL];
    c->sooner = NULL;
    c->later = *at;
    if (*at != NULL) {
        (*at)->sooner = c;
    }
    *at = c;
    c->linked = true;
}

call *calls_due(calls *t, uint64_t now_us)
{
    uint64_t now = now_us / CALL_TICK_US;

    if (now > t->tick + WHEEL) {
        t->tick = now - WHEEL;
    }
    for (; t->tick < now; t->tick++) {
        for (call *c = t->wheel[t->tick % WHEEL]; c != NULL; c = c->later) {
            if (c->due_us / CALL_TICK_US <= t->tick) {
                unlink_due(t, c);
                c->due_us = 0;
                return c;
            }
        }
    }
    return NULL;
}

/* ---- for the store ---------------------------------------------------------------------- */

#define PACKED_AS 1 /* raised when what follows changes */

struct packed {
    uint32_t version, size;
    uint64_t id, started_wall_us;
    uint64_t parent; /* id, 0: it is none's fork */
    uint32_t invite_cseq, cseq[2], session_s;
    flow caller;
    uint8_t exempt, direct, behind_server, onward;
    uint16_t length[CALL_TEXTS];
};

size_t call_pack(const call *c, uint64_t now_us, uint64_t wall_us, void *bytes, size_t size)
{
    struct packed p;
    uint64_t age = c->state == CALL_INCALL && now_us > c->since_us ? now_us - c->since_us : 0;

    memset(&p, 0, sizeof p);
    p.version = PACKED_AS;
    p.size = (uint32_t)(sizeof p + text_size(c));
    p.id = c->id;
    p.started_wall_us = wall_us > age ? wall_us - age : 0;
    p.parent = c->parent != NULL ? c->parent->id : 0;
    p.invite_cseq = c->invite_cseq;
    memcpy(p.cseq, c->cseq, sizeof p.cseq);
    p.session_s = c->session_s;
    p.caller = c->caller;
    p.exempt = c->exempt;
    p.direct = c->direct;
    p.behind_server = c->behind_server;
    p.onward = c->onward;
    for (int i = 0; i < CALL_TEXTS; i++) {
        p.length[i] = (uint16_t)call_text_length(c, (enum call_text)i);
    }
    if (p.size > size) {
        return 0;
    }
    memcpy(bytes, &p, sizeof p);
    memcpy((char *)bytes + sizeof p, c->text, text_size(c));
    return p.size;
}

/* Finds the texts in what was stored; false if they are not as call_pack() writes them. */
static bool spans_of(const struct packed *p, const char *bytes, size_t length,
                     span texts[CALL_TEXTS])
{
    size_t at = sizeof *p;

    for (int i = 0; i < CALL_TEXTS; i++) {
        texts[i] = (span){.text = bytes + at, .length = p->length[i]};
        at += texts[i].length + 1;
        if (at > length || bytes[at - 1] != 0 || strlen(texts[i].text) != texts[i].length) {
            return false;
        }
    }
    return at == length;
}

/* The call that a fork belongs to has the same Call-ID and caller's tag. */
static call *parent_of(calls *t, const struct packed *p, const span texts[CALL_TEXTS])
{
    call *c = NULL;

    while ((c = call_alike(t, texts[TEXT_CALL_ID].text, texts[TEXT_FROM_TAG].text, c)) != NULL &&
           (c->id != p->parent || c->parent != NULL)) {
    }
    return c;
}

call *call_unpack(calls *t, uint64_t now_us, uint64_t wall_us, const void *bytes, size_t length)
{
    struct packed p;
    span texts[CALL_TEXTS];
    call *c, *parent;
    uint64_t age;

    if (length < sizeof p) {
        return NULL;
    }
    memcpy(&p, bytes, sizeof p);
    if (p.version != PACKED_AS || p.size != length || p.invite_cseq > CALL_MAX_CSEQ ||
        p.cseq[0] > CALL_MAX_CSEQ || p.cseq[1] > CALL_MAX_CSEQ ||
        !spans_of(&p, bytes, length, texts)) {
        return NULL;
    }
    /* Forks have higher numbers than their calls, so those are there. */
    parent = p.parent != 0 ? parent_of(t, &p, texts) : NULL;
    c = parent != NULL ? call_add_fork(t, parent, texts) : call_add(t, texts);
    if (c == NULL) {
        return NULL;
    }
    age = wall_us > p.started_wall_us ? wall_us - p.started_wall_us : 0;
    c->id = p.id;
    c->since_us = now_us > age ? now_us - age : 0;
    c->invite_cseq = p.invite_cseq;
    memcpy(c->cseq, p.cseq, sizeof p.cseq);
    c->session_s = p.session_s;
    c->caller = p.caller;
    c->exempt = p.exempt;
    c->direct = p.direct;
    c->behind_server = p.behind_server;
    c->onward = p.onward;
    c->state = CALL_INCALL;
    c->answered = true;
    c->stored = true;
    return c;
}
