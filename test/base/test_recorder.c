/* The recorder of base/profile.h: nothing without one, nothing while it is off, nothing lost from several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/profile.h"

enum { N_THREADS = 4, N_RECORDS = 30000 };

static void none_is_accepted(void **state)
{
    (void)state;
    ps_profile_start(NULL);
    ps_profile_add(NULL, &(ps_profile_record){.kind = PS_PROFILE_STEP});
    assert_int_equal(ps_profile_now(NULL), 0);
    assert_int_equal(ps_profile_count(NULL), 0);
    assert_false(ps_profile_is_on(NULL));
    assert_false(ps_profile_is_full(NULL));
    assert_int_equal(ps_profile_check(NULL), PS_OK);
    ps_profile_stop(NULL);
    ps_profile_destroy(NULL);
}

static void records_only_while_it_is_on(void **state)
{
    (void)state;
    int64_t now = 500;
    ps_profile *p = NULL;
    assert_int_equal(ps_profile_create(&now, &p), PS_OK);
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_STEP, .step = {.number = 1}});
    assert_int_equal(ps_profile_now(p), 0);
    assert_int_equal(ps_profile_count(p), 0);
    ps_profile_start(p);
    now = 700;
    assert_int_equal(ps_profile_now(p), 700);
    assert_int_equal(ps_profile_begin_ns(p), 500);
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_STEP, .step = {.number = 2}, .begin_ns = 1, .end_ns = 2});
    ps_profile_stop(p);
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_STEP, .step = {.number = 3}});
    ps_profile_start(p);
    assert_int_equal(ps_profile_begin_ns(p), 500); /* of the first time */
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_STEP, .step = {.number = 4}});
    assert_int_equal(ps_profile_count(p), 2);
    assert_int_equal(ps_profile_at(p, 0)->step.number, 2);
    assert_int_equal(ps_profile_at(p, 0)->end_ns, 2);
    assert_int_equal(ps_profile_at(p, 1)->step.number, 4);
    ps_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void machine_clock_goes_on(void **state)
{
    (void)state;
    ps_profile *p = NULL;
    assert_int_equal(ps_profile_create(NULL, &p), PS_OK);
    ps_profile_start(p);
    const int64_t first = ps_profile_now(p);
    assert_true(first >= ps_profile_begin_ns(p) && first > 0);
    assert_true(ps_profile_now(p) >= first);
    ps_profile_destroy(p);
}

typedef struct producer {
    ps_profile *p;
    int32_t number;
} producer;

static void *produce(void *user)
{
    const producer *me = user;
    for (int64_t i = 0; i < N_RECORDS; i++)
        ps_profile_add(me->p,
                       &(ps_profile_record){.kind = PS_PROFILE_STEP, .chunk = me->number, .step = {.number = i}});
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    producer producers[N_THREADS];
    int64_t next[N_THREADS] = {0};
    ps_profile *p = NULL;
    assert_int_equal(ps_profile_create(NULL, &p), PS_OK);
    ps_profile_start(p);
    for (int i = 0; i < N_THREADS; i++) {
        producers[i] = (producer){.p = p, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(ps_profile_count(p), N_THREADS * N_RECORDS);
    for (int64_t i = 0; i < ps_profile_count(p); i++) {
        const ps_profile_record *r = ps_profile_at(p, i);
        assert_int_equal(r->step.number, next[r->chunk]++);
    }
    assert_int_equal(ps_profile_check(p), PS_OK);
    assert_false(ps_profile_is_full(p));
    ps_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void lost_records_are_told(void **state)
{
    (void)state;
    ps_profile *p = NULL;
    assert_int_equal(ps_profile_create(NULL, &p), PS_OK);
    ps_profile_start(p);
    ps_fault_arm(PS_FAULT_ALLOC, 0, false);
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_STEP, .step = {.number = 1}});
    ps_fault_arm(PS_FAULT_ALLOC, -1, false);
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_STEP, .step = {.number = 2}});
    assert_int_equal(ps_profile_count(p), 1);
    assert_int_equal(ps_profile_at(p, 0)->step.number, 2);
    assert_int_equal(ps_profile_check(p), PS_ENOMEM_HOST);
    ps_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void is_full_one_day(void **state)
{
    (void)state;
    ps_profile *p = NULL;
    assert_int_equal(ps_profile_create(NULL, &p), PS_OK);
    ps_profile_start(p);
    while (!ps_profile_is_full(p)) ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_STEP});
    assert_in_range(ps_profile_count(p) * (int64_t)sizeof(ps_profile_record), 60 * PS_MIB, 64 * PS_MIB);
    ps_profile_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_is_accepted),      cmocka_unit_test(records_only_while_it_is_on),
        cmocka_unit_test(machine_clock_goes_on), cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(lost_records_are_told), cmocka_unit_test(is_full_one_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
