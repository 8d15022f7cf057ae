/* One rank, and ranks that are threads; the same checks over MPI are in mpi_ranks.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/machine.h"
#include "base/mem.h"
#include "chunk/comm/sum.h"
#include "chunk/comm/transport_thread.h"
#include "comm_conformance.h"

enum { RANKS_MAX = 8 };

static const ps_comm_options usual = {.backend = PS_COMM_SINGLE, .timeout_s = 30, .staging_bytes = 1 << 18};
static const ps_comm_options hasty = {.backend = PS_COMM_SINGLE, .timeout_s = 1, .staging_bytes = 1 << 18};

typedef int rank_function(ps_comm *c);

typedef struct rank_thread {
    pthread_t thread;
    ps_comm *comm;
    rank_function *run;
    int n_failures;
    bool keeps; /* the function closes it */
} rank_thread;

static void *rank_main(void *arg)
{
    rank_thread *r = arg;
    r->n_failures = r->run(r->comm);
    if (!r->keeps) ps_comm_close(r->comm);
    return NULL;
}

static void run_ranks(const ps_comm_options *o, int32_t p, rank_function *run, bool keeps)
{
    const int64_t live_bytes = ps_mem_live_bytes();
    ps_comm *comms[RANKS_MAX];
    rank_thread ranks[RANKS_MAX];
    assert_int_equal(ps_comm_open_threads(o, p, comms), PS_OK);
    for (int32_t r = 0; r < p; r++) {
        ranks[r] = (rank_thread){.comm = comms[r], .run = run, .keeps = keeps};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    int n_failures = 0;
    for (int32_t r = 0; r < p; r++) {
        pthread_join(ranks[r].thread, NULL);
        n_failures += ranks[r].n_failures;
    }
    assert_int_equal(n_failures, 0);
    assert_int_equal(ps_mem_live_bytes(), live_bytes);
}

static int run_conformance(ps_comm *c)
{
    return conformance_run(c, ps_comm_size(c), "thread");
}

static void one_rank_conforms(void **state)
{
    (void)state;
    const int64_t live_bytes = ps_mem_live_bytes();
    ps_comm *c = NULL;
    assert_int_equal(ps_comm_open(&usual, &c), PS_OK);
    assert_int_equal(conformance_run(c, 1, "single"), 0);
    ps_comm_fail(c, "no more");
    assert_int_equal(ps_comm_failed_rank(c), 0);
    assert_int_equal(ps_comm_barrier(c), PS_ECOMM);
    assert_non_null(strstr(ps_last_error(), "failed: no more"));
    ps_comm_close(c);
    ps_comm_close(NULL);
    assert_int_equal(ps_mem_live_bytes(), live_bytes);
}

static void threads_conform(void **state)
{
    (void)state;
    for (int32_t p = 1; p <= 4; p++) run_ranks(&usual, p, run_conformance, false);
}

static void the_least_staging_memory_is_enough(void **state)
{
    (void)state;
    ps_comm_options o = usual;
    o.staging_bytes = 3 * 4096;
    run_ranks(&o, 3, run_conformance, false);
}

/* ---- payloads that go through staging memory ---- */

/* Calls run(c) with a device whose payloads are copied by threads, and memory after its staging that must stay. */
static int on_device(ps_comm *c, rank_function *run)
{
    const int32_t rank = ps_comm_rank(c);
    const size_t bytes = (size_t)ps_comm_staging_bytes(c);
    ps_device *ram = NULL;
    ps_comm_device d = {.staging = malloc(bytes + 1)};
    memset(d.staging, 0x55, bytes + 1);
    CHECK(rank, ps_device_create(&ps_device_cpu_ops, "device", 0, &ram) == PS_OK);
    CHECK(rank, ps_queue_create(ram, "in", PS_QUEUE_COPY, &d.in) == PS_OK);
    CHECK(rank, ps_queue_create(ram, "out", PS_QUEUE_COPY, &d.out) == PS_OK);
    ps_comm_set_device(c, &d);
    const int n_failures = run(c);
    ps_comm_set_device(c, NULL);
    const bool has_copied = ps_queue_event(d.in).ticket > 0 || ps_queue_event(d.out).ticket > 0;
    ps_queue_destroy(d.in);
    ps_queue_destroy(d.out);
    ps_device_destroy(ram);
    CHECK(rank, d.staging[bytes] == 0x55);
    free(d.staging);
    CHECK(rank, has_copied || ps_comm_failed_rank(c) >= 0);
    return n_failures;
}

static int conforms_on_device(ps_comm *c)
{
    const int n_failures = on_device(c, run_conformance);
    return n_failures > 0 ? n_failures : run_conformance(c); /* and again without */
}

static void threads_conform_on_a_device(void **state)
{
    (void)state;
    ps_comm_options least = usual;
    for (int32_t p = 2; p <= 4; p++) {
        least.staging_bytes = p * 4096;
        run_ranks(&usual, p, conforms_on_device, false);
        run_ranks(&least, p, conforms_on_device, false);
    }
}

static int reduces(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const layout l = layout_make(6, p);
    payloads x = payloads_new(&l, PS_DTYPE_F32);
    const ps_transfer t = transfer_of(&x, PS_DTYPE_F32, "gradients");
    ps_event done;
    reduce_fill(&x, PS_DTYPE_F32, rank, 5);
    ps_status st = ps_collectives_all_reduce(ps_comm_collectives(c), &t, &done);
    if (st == PS_OK) st = ps_collectives_wait(ps_comm_collectives(c), done);
    CHECK(rank, st == PS_OK || (st == PS_ECOMM && strstr(ps_last_error(), "copy ") != NULL));
    for (int32_t r = 0; st == PS_OK && r < p; r++) CHECK(rank, reduce_is_right(&x, PS_DTYPE_F32, r, p, 5));
    CHECK(rank, payloads_free(&x, PS_DTYPE_F32));
    return 0;
}

static int reduces_on_device(ps_comm *c)
{
    return on_device(c, reduces);
}

/* Each copy in turn: a wrong piece is neither sent nor taken. */
static void a_failed_copy_fails_its_rank(void **state)
{
    (void)state;
    int n_struck = 0;
    for (bool has_struck = true; has_struck; n_struck += has_struck) {
        ps_fault_arm(PS_FAULT_COPY, n_struck, false);
        run_ranks(&usual, 3, reduces_on_device, false);
        has_struck = ps_fault_has_struck(PS_FAULT_COPY);
        ps_fault_arm(PS_FAULT_COPY, -1, false);
    }
    assert_true(n_struck >= 12);
}

/* The last of a chain is slow: the rank before it still has to get from there what it sends. */
static int passes_on_slowly(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c), owner = p - 1;
    payloads nothing = {.n = 0};
    const late_fill wait = {.x = &nothing, .after_us = 100000};
    layout l = {.n_parts = 1, .n = {9 * 4096}, .owner = {owner}};
    payloads x = payloads_new(&l, PS_DTYPE_BF16);
    const ps_transfer t = transfer_of(&x, PS_DTYPE_BF16, "a chain");
    ps_event done;
    if (rank == p - 2) CHECK(rank, queue_late(c->device.in, late_fill_run, &wait, sizeof wait) == PS_OK);
    gather_fill(&x, PS_DTYPE_BF16, rank, 9);
    CHECK(rank, ps_collectives_gather(ps_comm_collectives(c), &t, &done) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_OK);
    CHECK(rank, gather_is_right(&x, PS_DTYPE_BF16, 9));
    CHECK(rank, payloads_free(&x, PS_DTYPE_BF16));
    return 0;
}

static int passes_on_device(ps_comm *c)
{
    return on_device(c, passes_on_slowly);
}

static void a_chain_waits_for_its_slowest(void **state)
{
    (void)state;
    ps_comm_options least = usual;
    least.staging_bytes = 3 * 4096;
    run_ranks(&least, 3, passes_on_device, false);
}

static void options_are_checked(void **state)
{
    (void)state;
    ps_comm *c[2];
    ps_comm_options o = usual;
    o.staging_bytes = 2 * 4096 - 1;
    assert_int_equal(ps_comm_open_threads(&o, 2, c), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "8192"));
    assert_null(c[0]);
    o = usual;
    o.timeout_s = 0;
    assert_int_equal(ps_comm_open(&o, &c[0]), PS_EINVAL);
    assert_null(c[0]);
}

/* Any allocation of the opening may fail: then all is as before. */
static void opening_survives_lack_of_memory(void **state)
{
    (void)state;
    const int64_t live_bytes = ps_mem_live_bytes();
    ps_comm_options o = hasty;
    o.timeout_s = 0.1;
    int n_struck = 0;
    for (long nth = 0;; nth++) {
        ps_comm *c[2];
        ps_fault_arm(PS_FAULT_ALLOC, nth, false);
        const ps_status st = ps_comm_open_threads(&o, 2, c);
        const bool has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        if (st == PS_OK) {
            ps_comm_vanish(c[0]);
            ps_comm_vanish(c[1]);
            ps_comm_close(c[0]);
            ps_comm_close(c[1]);
        } else {
            assert_null(c[0]);
            assert_null(c[1]);
            n_struck++;
        }
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
        if (!has_struck || nth > 40) break;
    }
    assert_true(n_struck >= 10);
}

/* ---- sums ---- */

static void sums_are_those_of_fp32_rounded_once(void **state)
{
    (void)state;
    enum { P = 5, N = 5003 };
    for (int d = 0; d < PS_DTYPE_COUNT; d++) {
        void *values[P];
        char want[4 * N];
        for (int32_t r = 0; r < P; r++) {
            values[r] = malloc(4 * N);
            payload_fill((ps_dtype)d, values[r], N, r, 7);
        }
        sum_reference((ps_dtype)d, want, N, P, 7);
        ps_comm_sum((ps_dtype)d, (const void *const *)values, P, N, values[2]);
        for (int64_t i = 0; i < N; i++) assert_true(element_equal((ps_dtype)d, want, values[2], i));
        for (int32_t r = 0; r < P; r++) free(values[r]);
    }
}

/* ---- failure ---- */

/* Waits in an all-gather that cannot end; the message must have all of the words. */
static int expect_failure_after(ps_comm *c, const ps_events *after, int32_t failed, const char *word, const char *more)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const layout l = layout_make(6, p);
    payloads x = payloads_new(&l, PS_DTYPE_BF16);
    ps_transfer t = transfer_of(&x, PS_DTYPE_BF16, "group 7");
    t.after = after;
    ps_event done;
    ps_status st = ps_collectives_gather(ps_comm_collectives(c), &t, &done);
    const bool is_begun = st == PS_OK;
    if (is_begun) st = ps_collectives_wait(ps_comm_collectives(c), done);
    CHECK(rank, st == PS_ECOMM);
    CHECK(rank, !is_begun || (ps_event_is_done(done) && ps_event_wait(done) == PS_ECOMM));
    CHECK(rank, payloads_free(&x, PS_DTYPE_BF16));
    CHECK(rank, ps_comm_failed_rank(c) == failed);
    char who[32];
    snprintf(who, sizeof who, "rank %d (", failed);
    CHECK(rank, strstr(ps_last_error(), who) != NULL);
    CHECK(rank, strstr(ps_last_error(), ps_comm_host(c, failed)) != NULL);
    CHECK(rank, strstr(ps_last_error(), word) != NULL);
    CHECK(rank, strstr(ps_last_error(), more) != NULL);
    CHECK(rank, ps_comm_barrier(c) == PS_ECOMM);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), (ps_event){.queue = NULL}) == PS_ECOMM);
    return 0;
}

/* All meet, then the first of them ends: a rank still on the way out of the barrier may hear of that there already. */
static bool meets_whom_one_leaves(ps_comm *c)
{
    const ps_status st = ps_comm_barrier(c);
    return st == PS_OK || st == PS_ECOMM;
}

static int expect_failure(ps_comm *c, int32_t failed, const char *word, const char *more)
{
    return expect_failure_after(c, NULL, failed, word, more);
}

static int fails_itself(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    CHECK(rank, rank == 1 ? ps_comm_barrier(c) == PS_OK : meets_whom_one_leaves(c));
    if (rank == 1) ps_comm_fail(c, "the disk is full");
    return expect_failure(c, 1, "failed: the disk is full", "");
}

static void all_hear_of_a_failure(void **state)
{
    (void)state;
    for (int32_t p = 2; p <= 4; p++) run_ranks(&usual, p, fails_itself, false);
}

/* What a transfer comes after fails, at once or while the others wait. */
static int loses_a_device(ps_comm *c, ps_queue *before[2], ps_queue *dependents)
{
    const int32_t rank = ps_comm_rank(c);
    payloads nothing = {.n = 0};
    ps_events after = {.n = 0};
    const late_fill fill = {.x = &nothing, .after_us = rank == 1 ? 200000 : 0, .st = rank == 1 ? PS_EDEVICE : PS_OK};
    (void)dependents;
    CHECK(rank, queue_late(before[0], late_fill_run, &fill, sizeof fill) == PS_OK);
    ps_events_add(&after, ps_queue_event(before[0]));
    return expect_failure_after(c, &after, 1, "failed: the device is lost", "");
}

static int loses_a_device_later(ps_comm *c)
{
    return with_queues(c, loses_a_device);
}

static void a_lost_device_fails_its_rank(void **state)
{
    (void)state;
    run_ranks(&usual, 3, loses_a_device_later, false);
}

static int has_a_slow_device(ps_comm *c, ps_queue *before[2], ps_queue *dependents)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const layout l = layout_make(6, p);
    payloads x = payloads_new(&l, PS_DTYPE_BF16);
    ps_transfer t = transfer_of(&x, PS_DTYPE_BF16, "slow payloads");
    ps_events after = {.n = 0};
    ps_event done;
    const late_fill fill = {.x = &x, .rank = rank, .seed = 3, .after_us = rank == 1 ? 1500000 : 0};
    (void)dependents;
    CHECK(rank, queue_late(before[0], late_fill_run, &fill, sizeof fill) == PS_OK);
    ps_events_add(&after, ps_queue_event(before[0]));
    t.after = &after;
    CHECK(rank, ps_collectives_reduce(ps_comm_collectives(c), &t, &done) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_OK);
    CHECK(rank, reduce_is_right(&x, PS_DTYPE_BF16, rank, p, 3));
    CHECK(rank, payloads_free(&x, PS_DTYPE_BF16));
    return 0;
}

static int is_slow(ps_comm *c)
{
    return with_queues(c, has_a_slow_device);
}

/* A device that takes longer than the time-out: its rank reports meanwhile that it is alive. */
static void a_rank_with_a_slow_device_is_not_lost(void **state)
{
    (void)state;
    run_ranks(&hasty, 3, is_slow, false);
}

static int vanishes(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    CHECK(rank, ps_comm_barrier(c) == PS_OK);
    if (rank == 2) ps_comm_vanish(c);
    if (rank == 2) return 0;
    return expect_failure(c, 2, "has not been heard of for 1 s", "waiting for the all-gather of group 7");
}

static void a_vanished_rank_is_noticed(void **state)
{
    (void)state;
    run_ranks(&hasty, 3, vanishes, false);
}

static int vanishes_at_the_end(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    CHECK(rank, ps_comm_barrier(c) == PS_OK);
    if (rank == 0) ps_comm_vanish(c);
    ps_comm_close(c);
    return 0;
}

static void closing_does_not_wait_for_a_vanished_rank(void **state)
{
    (void)state;
    run_ranks(&hasty, 3, vanishes_at_the_end, true);
}

static int leaves_early(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    int n_failures = 0;
    CHECK(rank, rank == 0 ? ps_comm_barrier(c) == PS_OK : meets_whom_one_leaves(c));
    if (rank != 0) n_failures = expect_failure(c, 0, "left before the others", "");
    ps_comm_close(c);
    return n_failures;
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    run_ranks(&usual, 3, leaves_early, true);
}

/* The last transfer is not made; those that stay a little longer look after the one that has left in order. */
static int refuses_and_leaves(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    votes v;
    ps_transfer_condition condition;
    ps_event done;
    CHECK(rank, begin_votes(c, 2, &v, &condition) == PS_OK);
    const ps_transfer t = {.dtype = PS_DTYPE_F32, .what = "a group that all refuse", .only_if = &condition};
    CHECK(rank, ps_collectives_gather(ps_comm_collectives(c), &t, &done) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_OK);
    if (rank > 0) usleep(100000);
    CHECK(rank, ps_comm_failed_rank(c) == -1);
    return 0;
}

static void what_is_not_made_is_over(void **state)
{
    (void)state;
    run_ranks(&usual, 3, refuses_and_leaves, false);
}

/* A rank that computes for longer than the time-out lives nevertheless. */
static int computes_long(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    if (rank == 1) usleep(2000000);
    CHECK(rank, ps_comm_barrier(c) == PS_OK);
    if (rank == 0) usleep(1500000); /* the others wait in close */
    return 0;
}

static void a_busy_rank_is_not_lost(void **state)
{
    (void)state;
    run_ranks(&hasty, 3, computes_long, false);
}

static int asks_for_other_sizes(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    char data[100] = {0};
    CHECK(rank, ps_comm_broadcast(c, data, rank == 0 ? 100 : 60, 0) == PS_ECOMM);
    CHECK(rank, strstr(ps_last_error(), "100 bytes matches a receive of 60") != NULL);
    return 0;
}

static void calls_that_do_not_fit_are_noticed(void **state)
{
    (void)state;
    run_ranks(&hasty, 2, asks_for_other_sizes, false);
}

/* A machine that sleeps, or a debugger that stops all: no rank is to blame while none listened. */
static void ranks_that_all_stood_still_go_on(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_ranks(&hasty, 2, computes_long, false);
        _exit(0);
    }
    int status = 0;
    usleep(300000);
    kill(child, SIGSTOP);
    usleep(1500000);
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- a transport that does not come back ---- */

static atomic_bool holds_rank_1;
static bool waits_for_events; /* of transfers, as a device does, which knows nothing of communicators */

static ps_status call_collective(ps_comm *c)
{
    float values[2] = {0};
    const ps_comm_part parts[] = {{&values[0], 1, 0}, {&values[1], 1, 1}};
    const ps_transfer t = {.parts = parts, .n_parts = 2, .dtype = PS_DTYPE_F32, .what = "two numbers"};
    ps_event done;
    if (!waits_for_events) return ps_comm_barrier(c);
    PS_TRY(ps_collectives_gather(ps_comm_collectives(c), &t, &done));
    return ps_event_wait(done);
}

static bool holding_test(ps_transport *t, ps_request *request, bool *is_done)
{
    while (t->rank == 1 && atomic_load(&holds_rank_1)) usleep(1000);
    return ps_transport_thread_ops.test(t, request, is_done);
}

static void *held_main(void *arg)
{
    static const ps_comm_options o = {.timeout_s = 0.5, .staging_bytes = 1 << 18};
    const ps_transport *t = arg;
    ps_comm *c = NULL;
    if (ps_comm_open_over(&o, t, &c) != PS_OK) return arg;
    ps_status st = ps_comm_barrier(c);
    if (st == PS_OK && t->rank == 1) atomic_store(&holds_rank_1, true);
    while (st == PS_OK) st = call_collective(c);
    const char *want = t->rank == 1 ? "thread has not returned for" : "rank 1 (";
    const bool is_right = st == PS_ECOMM && ps_comm_failed_rank(c) == 1 && strstr(ps_last_error(), want) != NULL;
    ps_comm_close(c); /* does not wait */
    return is_right ? NULL : arg;
}

static void hold_rank_1(bool by_events)
{
    waits_for_events = by_events;
    const int64_t live_bytes = ps_mem_live_bytes();
    ps_thread_hub *hub = NULL;
    ps_transport transports[2];
    pthread_t threads[2];
    ps_transport_ops ops = ps_transport_thread_ops;
    ops.test = holding_test;
    assert_int_equal(ps_thread_hub_create(2, &hub), PS_OK);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(ps_thread_hub_attach(hub, r, &transports[r]), PS_OK);
        transports[r].ops = &ops;
        assert_int_equal(pthread_create(&threads[r], NULL, held_main, &transports[r]), 0);
    }
    ps_thread_hub_release(hub);
    for (int32_t r = 0; r < 2; r++) {
        void *wrong;
        pthread_join(threads[r], &wrong);
        assert_null(wrong);
    }
    assert_true(ps_mem_live_bytes() > live_bytes); /* still in use */
    atomic_store(&holds_rank_1, false);
    for (int i = 0; i < 5000 && ps_mem_live_bytes() > live_bytes; i++) usleep(1000);
    assert_int_equal(ps_mem_live_bytes(), live_bytes);
}

static void no_rank_waits_for_a_transport_that_hangs(void **state)
{
    (void)state;
    hold_rank_1(false);
    hold_rank_1(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_conforms),
        cmocka_unit_test(threads_conform),
        cmocka_unit_test(the_least_staging_memory_is_enough),
        cmocka_unit_test(threads_conform_on_a_device),
        cmocka_unit_test(a_chain_waits_for_its_slowest),
        cmocka_unit_test(a_failed_copy_fails_its_rank),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(opening_survives_lack_of_memory),
        cmocka_unit_test(sums_are_those_of_fp32_rounded_once),
        cmocka_unit_test(all_hear_of_a_failure),
        cmocka_unit_test(a_lost_device_fails_its_rank),
        cmocka_unit_test(a_rank_with_a_slow_device_is_not_lost),
        cmocka_unit_test(a_vanished_rank_is_noticed),
        cmocka_unit_test(closing_does_not_wait_for_a_vanished_rank),
        cmocka_unit_test(a_rank_that_leaves_early_is_named),
        cmocka_unit_test(what_is_not_made_is_over),
        cmocka_unit_test(a_busy_rank_is_not_lost),
        cmocka_unit_test(ranks_that_all_stood_still_go_on),
        cmocka_unit_test(no_rank_waits_for_a_transport_that_hangs),
        cmocka_unit_test(calls_that_do_not_fit_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
