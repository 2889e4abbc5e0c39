/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>

#include "table.h"
#include "unit.h"

START_TEST(an_entry_lives_until_it_is_removed)
{
    seven_entry entries[3] = {0};
    seven_table table = {.entries = entries, .size = 3};
    int things[4], hint = 0, n;
    seven_ticket ticket = {.slot = 5, .serial = 9}, got;

    for (int i = 0; i < 3; i++) {
        n = seven_enter(&table, &things[i], &hint);
        ck_assert_int_ge(n, 0);
        ck_assert_ptr_eq(entries[n].thing, &things[i]);
        ck_assert(!seven_entry_ticket(&entries[n], &got));
    }
    ck_assert_int_eq(seven_enter(&table, &things[3], &hint), -1);
    ck_assert_int_eq(table.used, 3);
    seven_entry_set(&entries[1], &ticket);
    ck_assert(seven_entry_ticket(&entries[1], &got) && got.slot == 5 && got.serial == 9);
    ck_assert(seven_pin(&entries[1]));
    ck_assert(!seven_pin(&entries[1]));
    seven_unpin(&entries[1]);
    ck_assert(seven_pin(&entries[1]));
    seven_remove(&entries[1]);
    ck_assert(!seven_pin(&entries[1]));
    ck_assert(!seven_entry_ticket(&entries[1], &got));
    ck_assert_int_eq(seven_enter(&table, &things[3], &hint), 1);
}
END_TEST

/* Owners enter things on their stacks and spoil them once they are removed; a watcher that pins an
 * entry must find the thing whole. */
#define WHOLE 0x5e7e5e7e
static seven_entry shared[8];
static seven_table shared_table = {.entries = shared, .size = 8};
static _Atomic int going = 1;
static _Atomic uint32_t spoilt;

static void *own(void *unused)
{
    int hint = 0;

    (void)unused;
    for (uint32_t i = 0; i < load(200000); i++) {
        int thing = WHOLE, n = seven_enter(&shared_table, &thing, &hint);

        if (n >= 0) {
            while (!seven_pin(&shared[n])) {
                sched_yield();
            }
            seven_remove(&shared[n]);
        }
        thing = 0;
        (void)thing;
    }
    return NULL;
}

static void *look(void *unused)
{
    (void)unused;
    while (going) {
        for (int i = 0; i < shared_table.used; i++) {
            if (seven_pin(&shared[i])) {
                spoilt += *(int *)shared[i].thing != WHOLE;
                seven_unpin(&shared[i]);
            }
        }
        sched_yield();
    }
    return NULL;
}

START_TEST(a_watcher_finds_things_whole)
{
    pthread_t owners[3], watcher;

    pthread_create(&watcher, NULL, look, NULL);
    for (int i = 0; i < 3; i++) {
        pthread_create(&owners[i], NULL, own, NULL);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(owners[i], NULL);
    }
    going = 0;
    pthread_join(watcher, NULL);
    ck_assert_uint_eq(spoilt, 0);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(shared[i].state, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table");
    TCase *tcase = unit_case(suite, "table");

    tcase_add_test(tcase, an_entry_lives_until_it_is_removed);
    tcase_add_test(tcase, a_watcher_finds_things_whole);
    return unit_run(suite);
}
