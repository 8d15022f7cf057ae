/* How much each rank sends of a group of parts, by hand, and as the communicator counts it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "chunk/comm/comm.h"

enum { RANKS_MAX = 4, PARTS_MAX = 5, ELEMENTS_MAX = 4000 };

static void one_owner(void **state)
{
    (void)state;
    const ps_comm_part parts[] = {{NULL, 0, 3}, {NULL, 7, 2}, {NULL, 0, 1}, {NULL, 5, 2}, {NULL, 1, 0}};
    assert_int_equal(ps_comm_one_owner(parts, 0), -1);
    assert_int_equal(ps_comm_one_owner(parts, 1), -1); /* nothing to own */
    assert_int_equal(ps_comm_one_owner(parts, 2), 2);
    assert_int_equal(ps_comm_one_owner(parts, 4), 2);
    assert_int_equal(ps_comm_one_owner(parts, 5), -1);
}

static void sends_of_a_group(void **state)
{
    (void)state;
    const ps_comm_part parts[] = {{NULL, 10, 0}, {NULL, 20, 1}, {NULL, 5, 0}};
    const int64_t gathering[] = {2 * 15, 2 * 20, 0}, reduction[] = {20, 15, 35};
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(ps_comm_gathering_sends(parts, 3, r, 3), gathering[r]);
        assert_int_equal(ps_comm_reduction_sends(parts, 3, r), reduction[r]);
    }
}

/* Down a chain from the owner: all but the last of it send all. */
static void sends_of_one_part(void **state)
{
    (void)state;
    const ps_comm_part part = {NULL, 10, 2};
    const int64_t gathering[] = {10, 0, 10, 10};
    for (int32_t r = 0; r < 4; r++) {
        assert_int_equal(ps_comm_gathering_sends(&part, 1, r, 4), gathering[r]);
        assert_int_equal(ps_comm_reduction_sends(&part, 1, r), r == 2 ? 0 : 10);
    }
    assert_int_equal(ps_comm_gathering_sends(&part, 0, 0, 4), 0);
}

/* ---- and as it happens ---- */

typedef struct sender {
    ps_comm *comm;
    const ps_comm_part *parts;
    int32_t n_parts;
    int64_t gathering_bytes, reduction_bytes;
    ps_status st;
} sender;

static int64_t sent_bytes(const sender *s)
{
    return ps_comm_get_stats(s->comm).sent_bytes;
}

static ps_status sender_run(sender *s)
{
    float payloads[PARTS_MAX][ELEMENTS_MAX] = {{0}};
    ps_comm_part parts[PARTS_MAX];
    const ps_transfer t = {.parts = parts, .n_parts = s->n_parts, .dtype = PS_DTYPE_F32, .what = "parts"};
    ps_event done;
    for (int32_t i = 0; i < s->n_parts; i++) {
        parts[i] = s->parts[i];
        parts[i].payload = payloads[i];
    }
    PS_TRY(ps_collectives_gather(ps_comm_collectives(s->comm), &t, &done));
    PS_TRY(ps_collectives_wait(ps_comm_collectives(s->comm), done));
    s->gathering_bytes = sent_bytes(s);
    PS_TRY(ps_collectives_reduce(ps_comm_collectives(s->comm), &t, &done));
    PS_TRY(ps_collectives_wait(ps_comm_collectives(s->comm), done));
    s->reduction_bytes = sent_bytes(s) - s->gathering_bytes;
    return PS_OK;
}

static void *sender_main(void *arg)
{
    sender *s = arg;
    s->st = sender_run(s);
    ps_comm_close(s->comm);
    return NULL;
}

static void check_counts(const ps_comm_part *parts, int32_t n_parts, int32_t n_ranks)
{
    ps_comm *comms[RANKS_MAX];
    sender senders[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    const ps_comm_options o = {.timeout_s = 20, .staging_bytes = 1 << 16};
    assert_int_equal(ps_comm_open_threads(&o, n_ranks, comms), PS_OK);
    for (int32_t r = 0; r < n_ranks; r++) {
        senders[r] = (sender){.comm = comms[r], .parts = parts, .n_parts = n_parts};
        assert_int_equal(pthread_create(&threads[r], NULL, sender_main, &senders[r]), 0);
    }
    for (int32_t r = 0; r < n_ranks; r++) pthread_join(threads[r], NULL);
    for (int32_t r = 0; r < n_ranks; r++) {
        assert_int_equal(senders[r].st, PS_OK);
        assert_int_equal(senders[r].gathering_bytes, 4 * ps_comm_gathering_sends(parts, n_parts, r, n_ranks));
        assert_int_equal(senders[r].reduction_bytes, 4 * ps_comm_reduction_sends(parts, n_parts, r));
    }
}

static void counts_are_what_is_sent(void **state)
{
    (void)state;
    const ps_comm_part group[] = {{NULL, 3000, 0}, {NULL, 4000, 1}, {NULL, 17, 0}, {NULL, 0, 1}, {NULL, 1, 1}};
    const ps_comm_part single[] = {{NULL, 0, 0}, {NULL, 2345, 1}, {NULL, 1, 1}};
    const ps_comm_part nothing[] = {{NULL, 0, 0}, {NULL, 0, 1}};
    for (int32_t n = 2; n <= RANKS_MAX; n++) {
        check_counts(group, PS_ARRAY_LEN(group), n);
        check_counts(single, PS_ARRAY_LEN(single), n);
        check_counts(nothing, PS_ARRAY_LEN(nothing), n);
        check_counts(nothing, 0, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_owner),
        cmocka_unit_test(sends_of_a_group),
        cmocka_unit_test(sends_of_one_part),
        cmocka_unit_test(counts_are_what_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
