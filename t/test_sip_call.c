/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "slab.h"
#include "unit.h"

#define START UINT64_C(1000000000)

static calls *table;

static void setup(void)
{
    table = calls_create(100, START);
    ck_assert_ptr_nonnull(table);
}

static void teardown(void)
{
    calls_destroy(table);
}

static call *add(const char *call_id, const char *from_tag, const char *to_tag)
{
    span texts[CALL_TEXTS] = {{0}};

    texts[TEXT_CALL_ID] = span_of(call_id);
    texts[TEXT_FROM] = span_of("sip:alice@example.org");
    texts[TEXT_FROM_TAG] = span_of(from_tag);
    texts[TEXT_TO] = span_of("sip:bob@example.org");
    texts[TEXT_TO_TAG] = span_of(to_tag);
    return call_add(table, texts);
}

START_TEST(found_by_either_side)
{
    call *c = add("id", "a", "b"), *other = add("id", "x", "y");
    enum call_side from = SIDE_CALLEE;

    ck_assert_ptr_eq(call_find(table, "id", "a", "b", &from), c);
    ck_assert_int_eq(from, SIDE_CALLER);
    ck_assert_ptr_eq(call_find(table, "id", "b", "a", &from), c);
    ck_assert_int_eq(from, SIDE_CALLEE);
    ck_assert_ptr_eq(call_find(table, "id", "y", "x", &from), other);
    ck_assert_ptr_eq(call_find(table, "id", "a", NULL, &from), c);
    ck_assert_int_eq(from, SIDE_CALLER);
}
END_TEST

/* Whoever has not all three right does not touch a call: not with another tag, another's tag, in
 * another case, or none. */
START_TEST(not_found_by_others)
{
    static const char *const wrong[][3] = {{"id", "a", "c"}, {"id", "c", "b"}, {"Id", "a", "b"},
                                           {"id", "A", "b"}, {"id", "a", "B"}, {"id", "b", ""},
                                           {"id", "", "b"},  {"", "a", "b"},   {"id", "", ""}};
    enum call_side from;

    add("id", "a", "b");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_ptr_null(call_find(table, wrong[i][0], wrong[i][1], wrong[i][2], &from));
    }
}
END_TEST

START_TEST(without_a_tag_yet)
{
    call *c = add("id", "a", NULL);
    enum call_side from;

    ck_assert_ptr_eq(call_find(table, "id", "a", "early", &from), c);
    ck_assert_ptr_eq(call_find(table, "id", "early", "a", &from), c);
    ck_assert_int_eq(from, SIDE_CALLEE);
    c->answered = true; /* and its 2xx had none */
    ck_assert_ptr_null(call_find(table, "id", "a", "early", &from));
    ck_assert_ptr_null(call_find(table, "id", "early", "a", &from));
}
END_TEST

/* A new call with the callee's tag as its caller's gets nothing that is the old one's. */
START_TEST(dialogs_come_first)
{
    call *c = add("id", "a", "b"), *namesake = add("id", "b", NULL);
    enum call_side from;

    ck_assert_ptr_eq(call_find(table, "id", "b", "a", &from), c);
    ck_assert_int_eq(from, SIDE_CALLEE);
    ck_assert_ptr_eq(call_find(table, "id", "a", "b", &from), c);
    ck_assert_int_eq(from, SIDE_CALLER);
    ck_assert_ptr_eq(call_find(table, "id", "b", "z", &from), namesake);
}
END_TEST

START_TEST(no_from_tag)
{
    call *c = add("id", NULL, NULL);
    enum call_side from;

    ck_assert_ptr_eq(call_find(table, "id", NULL, NULL, &from), c);
}
END_TEST

START_TEST(alike_are_few)
{
    call *c = NULL;
    unsigned count = 0;

    for (unsigned i = 0; i < CALL_MAX_ALIKE; i++) {
        ck_assert_ptr_nonnull(add("id", "a", NULL));
    }
    ck_assert_ptr_null(add("id", "a", NULL));
    ck_assert_ptr_nonnull(add("id", "b", NULL));
    ck_assert_ptr_nonnull(add("other", "a", NULL));
    while ((c = call_alike(table, "id", "a", c)) != NULL) {
        count++;
    }
    ck_assert_uint_eq(count, CALL_MAX_ALIKE);
    ck_assert_uint_eq(calls_count(table), CALL_MAX_ALIKE + 2);
}
END_TEST

START_TEST(texts_change)
{
    call *c = add("id", "a", "b");

    ck_assert(call_set(table, c, TEXT_CALLER, span_of("sip:alice@192.0.2.1:5062")));
    ck_assert(call_set(table, c, TEXT_TO, span_of("")));
    ck_assert_str_eq(call_text(c, TEXT_CALLER), "sip:alice@192.0.2.1:5062");
    ck_assert_str_eq(call_text(c, TEXT_TO), "");
    ck_assert_str_eq(call_text(c, TEXT_CALL_ID), "id");
    ck_assert_str_eq(call_text(c, TEXT_TO_TAG), "b");
    ck_assert_str_eq(call_text(c, TEXT_SERVER_ROUTE), "");
    ck_assert(c->changed);
    c->changed = false;
    ck_assert(call_set(table, c, TEXT_CALLER, span_of("sip:alice@192.0.2.1:5062")));
    ck_assert(!c->changed);
}
END_TEST

START_TEST(texts_are_bounded)
{
    static char big[CALL_MAX_TEXT + 2];
    call *c = add("id", "a", "b");

    memset(big, 'x', sizeof big - 1);
    ck_assert_ptr_null(add(big, "a", "b"));
    ck_assert(!call_set(table, c, TEXT_CALLER, span_of(big)));
    big[CALL_MAX_TEXT - 100] = 0;
    ck_assert(call_set(table, c, TEXT_CALLER, span_of(big)));
    ck_assert(!call_set(table, c, TEXT_CALLEE, span_of(big)));
    ck_assert_str_eq(call_text(c, TEXT_CALLER), big);
    ck_assert_str_eq(call_text(c, TEXT_CALLEE), "");
}
END_TEST

/* A fork is another dialog of the same call: found by its own tag, freed with its call. */
START_TEST(forks)
{
    call *c = add("id", "a", "b"), *fork;
    span texts[CALL_TEXTS] = {{0}};
    enum call_side from;

    texts[TEXT_CALL_ID] = span_of("id");
    texts[TEXT_FROM_TAG] = span_of("a");
    texts[TEXT_TO_TAG] = span_of("b2");
    fork = call_add_fork(table, c, texts);
    ck_assert_ptr_nonnull(fork);
    ck_assert_uint_eq(calls_count(table), 1);
    ck_assert_ptr_eq(call_find(table, "id", "a", "b2", &from), fork);
    ck_assert_ptr_eq(call_find(table, "id", "b", "a", &from), c);
    call_free(table, c);
    ck_assert_uint_eq(calls_count(table), 0);
    ck_assert_ptr_null(call_find(table, "id", "a", "b2", &from));
}
END_TEST

START_TEST(a_fork_ends_first)
{
    call *c = add("id", "a", "b"), *first, *second;
    span texts[CALL_TEXTS] = {{0}};

    texts[TEXT_CALL_ID] = span_of("id");
    texts[TEXT_FROM_TAG] = span_of("a");
    texts[TEXT_TO_TAG] = span_of("b2");
    first = call_add_fork(table, c, texts);
    texts[TEXT_TO_TAG] = span_of("b3");
    second = call_add_fork(table, c, texts);
    call_free(table, first);
    ck_assert_ptr_eq(c->fork, second);
    call_free(table, second);
    ck_assert_ptr_null(c->fork);
    ck_assert_uint_eq(calls_count(table), 1);
}
END_TEST

START_TEST(due)
{
    call *soon = add("1", "a", NULL), *late = add("2", "a", NULL), *never = add("3", "a", NULL);
    call *very_late = add("4", "a", NULL);

    call_due(table, soon, START + 300000);
    call_due(table, late, START + 900000);
    call_due(table, never, START + 300000);
    call_due(table, very_late, START + UINT64_C(3600) * 1000000);
    call_due(table, never, 0);
    ck_assert_ptr_null(calls_due(table, START + 200000));
    ck_assert_ptr_eq(calls_due(table, START + 500000), soon);
    ck_assert_ptr_null(calls_due(table, START + 500000));
    call_due(table, soon, START + 1200000);
    ck_assert_ptr_eq(calls_due(table, START + 1000000), late);
    ck_assert_ptr_null(calls_due(table, START + 1000000));
    call_free(table, soon);
    for (uint64_t at = 2; at < 3600; at++) { /* it passes by in the wheel, and stays */
        ck_assert_ptr_null(calls_due(table, START + at * 1000000));
    }
    ck_assert_ptr_eq(calls_due(table, START + UINT64_C(3601) * 1000000), very_late);
}
END_TEST

/* What is due in the past comes at once, and a jump of the clock loses nobody. */
START_TEST(due_after_a_jump)
{
    call *past = add("1", "a", NULL), *future = add("2", "a", NULL);

    calls_due(table, START + 5000000);
    call_due(table, past, START);
    call_due(table, future, START + UINT64_C(1000) * 1000000);
    ck_assert_ptr_eq(calls_due(table, START + 5200000), past);
    ck_assert_ptr_eq(calls_due(table, START + UINT64_C(100000) * 1000000), future);
}
END_TEST

static void fill(call *c)
{
    call_set(table, c, TEXT_CALLEE, span_of("sip:bob@192.0.2.9"));
    call_set(table, c, TEXT_CALLEE_ROUTE, span_of("<sip:192.0.2.5;lr>"));
    c->id = 77;
    c->state = CALL_INCALL;
    c->since_us = START - 5000000;
    c->invite_cseq = 3;
    c->cseq[SIDE_CALLER] = 4;
    c->cseq[SIDE_CALLEE] = 900;
    c->session_s = 1800;
    c->behind_server = true;
    c->direct = true;
    c->caller = (flow){.family = 4, .transport = 1, .port = 5062, .address = {192, 0, 2, 1}};
}

/* Across a restart: another table, another monotonic clock, the same wall clock a minute on. */
static call *restored(const call *c, calls *other)
{
    char bytes[4096];
    size_t length = call_pack(c, START, UINT64_C(1700000000000000), bytes, sizeof bytes);
    call *back;

    ck_assert_uint_gt(length, 0);
    ck_assert_uint_eq(call_pack(c, START, 1, bytes, length - 1), 0);
    length = call_pack(c, START, UINT64_C(1700000000000000), bytes, sizeof bytes);
    back = call_unpack(other, UINT64_C(500000000), UINT64_C(1700000060000000), bytes, length);
    ck_assert_ptr_nonnull(back);
    return back;
}

START_TEST(packed_and_back)
{
    call *c = add("id", "a", "b"), *back;
    calls *other = calls_create(10, 999);

    fill(c);
    back = restored(c, other);
    for (int i = 0; i < CALL_TEXTS; i++) {
        ck_assert_str_eq(call_text(back, (enum call_text)i), call_text(c, (enum call_text)i));
    }
    ck_assert_uint_eq(back->id, 77);
    ck_assert_uint_eq(back->since_us, 500000000 - 65000000);
    ck_assert_uint_eq(back->invite_cseq, 3);
    ck_assert_uint_eq(back->cseq[SIDE_CALLER], 4);
    ck_assert_uint_eq(back->cseq[SIDE_CALLEE], 900);
    ck_assert_uint_eq(back->session_s, 1800);
    ck_assert(back->behind_server && back->direct && back->answered && !back->placed);
    ck_assert_int_eq(back->state, CALL_INCALL);
    ck_assert(flow_same(&back->caller, &c->caller));
    calls_destroy(other);
}
END_TEST

/* The time in which it rang does not count. */
START_TEST(packed_before_its_ack)
{
    call *c = add("id", "a", "b"), *back;
    calls *other = calls_create(10, 999);

    fill(c);
    c->state = CALL_WAITING;
    back = restored(c, other);
    ck_assert_int_eq(back->state, CALL_INCALL);
    ck_assert_uint_eq(back->since_us, 500000000 - 60000000);
    calls_destroy(other);
}
END_TEST

/* A store that somebody else wrote to, or half of a record, is not a call. */
START_TEST(damaged_is_refused)
{
    char bytes[4096], bad[4096];
    call *c = add("id", "a", "b");
    size_t length;

    fill(c);
    length = call_pack(c, START, START, bytes, sizeof bytes);
    for (size_t cut = 0; cut < length; cut++) {
        ck_assert_ptr_null(call_unpack(table, START, START, bytes, cut));
    }
    for (size_t at = 0; at < length; at++) {
        call *made;

        memcpy(bad, bytes, length);
        bad[at] = (char)(bad[at] ^ 0x55);
        made = call_unpack(table, START, START, bad, length);
        if (made != NULL) {
            call_free(table, made);
        }
    }
    ck_assert_uint_eq(calls_count(table), 1);
}
END_TEST

START_TEST(many_come_and_go)
{
    enum { MANY = 2000 };
    static call *c[MANY];
    size_t empty = calls_bytes(table), full = 0;
    char id[64];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            snprintf(id, sizeof id, "call-%d-%0*d", i, 1 + i % 40, i);
            c[i] = add(id, "tag", "other");
            ck_assert_ptr_nonnull(c[i]);
            call_due(table, c[i], START + (uint64_t)i * 1000);
        }
        ck_assert_uint_eq(calls_count(table), MANY);
        full = calls_bytes(table);
        for (int i = 0; i < MANY; i++) {
            call_free(table, c[(i * 7) % MANY]);
        }
        ck_assert_uint_eq(calls_bytes(table), empty);
    }
    ck_assert_uint_lt((full - empty) / MANY, 600);
}
END_TEST

START_TEST(slab_pieces)
{
    slab s = {0};
    char *piece[400];

    for (size_t i = 0; i < 400; i++) {
        piece[i] = slab_take(&s, 1 + i * 11);
        ck_assert_ptr_nonnull(piece[i]);
        memset(piece[i], (int)i, 1 + i * 11);
    }
    for (size_t i = 0; i < 400; i++) {
        for (size_t at = 0; at < 1 + i * 11; at++) {
            ck_assert_int_eq(piece[i][at], (char)i);
        }
        slab_give(&s, piece[i], 1 + i * 11);
    }
    ck_assert_uint_eq(s.bytes, 0);
#ifndef SANITIZED
    ck_assert_ptr_eq(slab_take(&s, 40), piece[5]); /* of 56 bytes: the last of that size */
#endif
    slab_clear(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sip_call");
    TCase *tcase = unit_case(suite, "call");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, found_by_either_side);
    tcase_add_test(tcase, not_found_by_others);
    tcase_add_test(tcase, without_a_tag_yet);
    tcase_add_test(tcase, dialogs_come_first);
    tcase_add_test(tcase, no_from_tag);
    tcase_add_test(tcase, alike_are_few);
    tcase_add_test(tcase, texts_change);
    tcase_add_test(tcase, texts_are_bounded);
    tcase_add_test(tcase, forks);
    tcase_add_test(tcase, a_fork_ends_first);
    tcase_add_test(tcase, due);
    tcase_add_test(tcase, due_after_a_jump);
    tcase_add_test(tcase, packed_and_back);
    tcase_add_test(tcase, packed_before_its_ack);
    tcase_add_test(tcase, damaged_is_refused);
    tcase_add_test(tcase, many_come_and_go);
    tcase_add_test(tcase, slab_pieces);
    return unit_run(suite);
}
