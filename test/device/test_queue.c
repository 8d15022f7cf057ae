/* test_queue.c - items in order, events between queues and with the host, and what becomes of failures. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/status.h"
#include "device/blocking.h"
#include "device/device.h"

#define assert_ok(expr) assert_int_equal((expr), PS_OK)

static ps_queue *queue_new(ps_device *d, ps_queue_kind kind)
{
    ps_queue *q = NULL;
    assert_ok(ps_queue_create(d, "work", kind, &q));
    assert_string_equal(ps_queue_name(q), "work");
    return q;
}

static int open_device(void **state)
{
    ps_device *d = NULL;
    assert_ok(ps_device_create(&ps_device_cpu_ops, "host", 64 * PS_PAGE_BYTES, &d));
    *state = d;
    return 0;
}

static int close_device(void **state)
{
    ps_device_destroy(*state);
    return 0;
}

/* Appends a letter to a text, some time later. */
typedef struct append {
    char *text;
    char letter;
    int sleep_us;
    ps_status st;
} append;

static ps_status append_run(void *self, const void *args)
{
    const append *a = args;
    int *n = self;
    if (a->sleep_us > 0) usleep((useconds_t)a->sleep_us);
    if (a->st != PS_OK) return PS_FAIL(a->st, "letter %c", a->letter);
    a->text[(*n)++] = a->letter;
    return PS_OK;
}

static void call(ps_queue *q, int *n, append a)
{
    const ps_call c = {.name = "append", .run = append_run, .self = n, .args = &a, .args_bytes = sizeof a};
    assert_ok(ps_queue_call(q, &c));
    memset(&a, 0xff, sizeof a); /* the arguments are the caller's again */
}

static void test_items_are_done_in_order(void **state)
{
    for (ps_queue_kind kind = PS_QUEUE_COMPUTE; kind <= PS_QUEUE_COPY; kind++) {
        enum { N = 600 };
        char text[N + 1] = "", copy[N + 1] = "", put[8] = "abc", source[8] = "defghij";
        int n = 0;
        ps_queue *q = queue_new(*state, kind);
        assert_true(ps_event_is_done(ps_queue_event(q)));
        for (int i = 0; i < N; i++) call(q, &n, (append){text, (char)('a' + i % 26), i == 0 ? 2000 : 0, PS_OK});
        assert_ok(ps_queue_copy(q, copy, text, N));
        assert_ok(ps_queue_fill(q, copy, 'x', 2));
        assert_ok(ps_queue_put(q, put, source, 4));
        memset(source, 0, sizeof source);
        const ps_event e = ps_queue_event(q);
        assert_ok(ps_event_wait(e));
        assert_true(ps_event_is_done(e));
        assert_int_equal(n, N);
        for (int i = 0; i < N; i++) assert_int_equal(copy[i], i < 2 ? 'x' : 'a' + i % 26);
        assert_string_equal(put, "defg");
        memset(source, 0, sizeof source);
        assert_ok(ps_queue_get(q, source, put, 4));
        assert_string_equal(source, "defg");
        ps_queue_destroy(q);
    }
}

/* A queue that would be done at once waits for one that takes its time. */
static void test_a_queue_waits_for_an_event(void **state)
{
    for (ps_queue_kind kind = PS_QUEUE_COMPUTE; kind <= PS_QUEUE_COPY; kind++) {
        char text[4] = "";
        int n = 0;
        ps_queue *slow = queue_new(*state, PS_QUEUE_COPY), *fast = queue_new(*state, kind);
        assert_ok(ps_queue_wait(fast, (ps_event){NULL, 0}));
        assert_ok(ps_queue_wait(fast, ps_queue_event(slow)));
        call(slow, &n, (append){text, 'a', 20000, PS_OK});
        const ps_event first = ps_queue_event(slow);
        call(slow, &n, (append){text, 'b', 0, PS_OK});
        assert_ok(ps_queue_wait(fast, first));
        assert_ok(ps_event_wait(ps_queue_event(slow)));
        call(fast, &n, (append){text, 'c', 0, PS_OK});
        assert_ok(ps_event_wait(ps_queue_event(fast)));
        assert_string_equal(text, "abc");
        ps_queue_destroy(fast);
        ps_queue_destroy(slow);
    }
}

/* Only the event orders these two: without the wait the letters stand the other way round. */
static void test_the_wait_is_what_orders(void **state)
{
    char text[3] = "";
    int n = 0;
    ps_queue *slow = queue_new(*state, PS_QUEUE_COPY), *fast = queue_new(*state, PS_QUEUE_COPY);
    call(slow, &n, (append){text, 'a', 20000, PS_OK});
    assert_ok(ps_queue_wait(fast, ps_queue_event(slow)));
    call(fast, &n, (append){text, 'b', 0, PS_OK});
    assert_ok(ps_event_wait(ps_queue_event(fast)));
    assert_string_equal(text, "ab");
    ps_queue_destroy(fast);
    ps_queue_destroy(slow);
}

static void test_destroy_waits(void **state)
{
    char text[2] = "";
    int n = 0;
    ps_queue *q = queue_new(*state, PS_QUEUE_COPY);
    call(q, &n, (append){text, 'a', 20000, PS_OK});
    ps_queue_destroy(q);
    ps_queue_destroy(NULL);
    assert_string_equal(text, "a");
}

/* A call that fails: reported to every wait, and nothing after it is done, here or on queues that wait for it. */
static void test_a_failed_call_stops_what_follows(void **state)
{
    char text[8] = "";
    int n = 0;
    ps_queue *q = queue_new(*state, PS_QUEUE_COPY), *other = queue_new(*state, PS_QUEUE_COPY);
    ps_queue *now = queue_new(*state, PS_QUEUE_COMPUTE);
    call(q, &n, (append){text, 'a', 0, PS_OK});
    const ps_event good = ps_queue_event(q);
    call(q, &n, (append){text, 'b', 1000, PS_EINVAL});
    const ps_event bad = ps_queue_event(q);
    call(q, &n, (append){text, 'c', 0, PS_OK});
    assert_ok(ps_queue_wait(other, bad));
    call(other, &n, (append){text, 'd', 0, PS_OK});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ps_event_wait(bad), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), "letter b"));
        assert_int_equal(ps_event_wait(ps_queue_event(other)), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), "letter b"));
        assert_ok(ps_event_wait(good));
    }
    assert_int_equal(ps_queue_wait(now, bad), PS_EINVAL);
    assert_string_equal(text, "a");
    ps_queue_destroy(now);
    ps_queue_destroy(other);
    ps_queue_destroy(q);
}

/* On a queue without delay the call itself fails, and the queue stays usable. */
static void test_a_call_that_fails_at_once(void **state)
{
    char text[2] = "";
    int n = 0;
    ps_queue *q = queue_new(*state, PS_QUEUE_COMPUTE);
    const append a = {text, 'b', 0, PS_EINVAL};
    assert_int_equal(
        ps_queue_call(q,
                      &(ps_call){.name = "append", .run = append_run, .self = &n, .args = &a, .args_bytes = sizeof a}),
        PS_EINVAL);
    call(q, &n, (append){text, 'a', 0, PS_OK});
    assert_string_equal(text, "a");
    ps_queue_destroy(q);
}

/* A queue that waits gets the error of a failed copy when the wait is issued. */
static void test_a_failed_copy_is_told_to_a_queue(void **state)
{
    char from[2] = "a", to[2] = "b";
    ps_queue *copies = queue_new(*state, PS_QUEUE_COPY), *now = queue_new(*state, PS_QUEUE_COMPUTE);
    ps_fault_arm(PS_FAULT_COPY, 0, false);
    assert_ok(ps_queue_copy(copies, to, from, 1));
    assert_int_equal(ps_queue_wait(now, ps_queue_event(copies)), PS_EDEVICE);
    assert_ok(ps_queue_wait(now, ps_queue_event(copies)));
    ps_queue_destroy(now);
    ps_queue_destroy(copies);
}

/* However many wait at once. */
static void *wait_for_it(void *event)
{
    return (void *)(intptr_t)(ps_event_wait(*(const ps_event *)event) == PS_OK);
}

static void test_a_failed_copy_is_told_to_one(void **state)
{
    enum { ROUNDS = 200, WAITERS = 4 };
    char from[2] = "a", to[2] = "b";
    ps_queue *copies = queue_new(*state, PS_QUEUE_COPY);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t threads[WAITERS];
        int n_told = 0;
        ps_fault_arm(PS_FAULT_COPY, 0, false);
        assert_ok(ps_queue_copy(copies, to, from, 1));
        ps_event e = ps_queue_event(copies);
        for (int k = 0; k < WAITERS; k++) assert_int_equal(pthread_create(&threads[k], NULL, wait_for_it, &e), 0);
        for (int k = 0; k < WAITERS; k++) {
            void *ok = NULL;
            pthread_join(threads[k], &ok);
            n_told += ok == NULL;
        }
        assert_int_equal(n_told, 1);
    }
    ps_queue_destroy(copies);
}

/* Calls of this thread that may block are counted, by what they wait for; what is done at once is not waited
 * for. */
static void test_waits_are_counted(void **state)
{
    char from[2] = "a", to[2] = "b";
    ps_queue *now = queue_new(*state, PS_QUEUE_COMPUTE), *later = queue_new(*state, PS_QUEUE_COPY);
    const ps_blocked before = ps_blocked_so_far();
    ps_blocked want = before;
    assert_ok(ps_queue_put(now, to, from, 1));
    assert_ok(ps_queue_get(now, to, from, 1));
    assert_ok(ps_event_wait(ps_queue_event(now)));
    assert_ok(ps_queue_copy(later, to, from, 1));
    assert_ok(ps_event_wait((ps_event){NULL, 0}));
    (void)ps_event_is_done(ps_queue_event(later));
    assert_ok(ps_queue_wait(later, ps_queue_event(now)));
    ps_blocked got = ps_blocked_so_far();
    assert_memory_equal(&got, &want, sizeof want);

    assert_ok(ps_event_wait(ps_queue_event(later)));
    assert_ok(ps_event_wait(ps_queue_event(later))); /* done or not */
    want.n[PS_BLOCK_EVENT] += 2;
    assert_ok(
        ps_queue_wait(now, ps_queue_event(later))); /* a wait of what computes within the call is one of the caller */
    want.n[PS_BLOCK_EVENT]++;
    assert_ok(ps_queue_get(later, to, from, 1));
    want.n[PS_BLOCK_READ]++;
    assert_ok(ps_queue_put(later, to, from, 1)); /* has nowhere to put it aside */
    want.n[PS_BLOCK_FULL]++;
    void *block = NULL;
    ps_events after = {.n = 0};
    ps_events_add(&after, ps_queue_event(later));
    assert_ok(ps_device_alloc(*state, PS_PAGE_BYTES, &block));
    ps_device_free(*state, block, PS_PAGE_BYTES, &after);
    want.n[PS_BLOCK_FREE]++;
    got = ps_blocked_so_far();
    assert_memory_equal(&got, &want, sizeof want);
    for (int why = 0; why < PS_BLOCK_COUNT; why++) assert_true(strlen(ps_block_name((ps_block)why)) > 0);
    ps_queue_destroy(now);
    ps_queue_destroy(later);
}

/* What is put is there, or the call fails: no item computes with what is not. */
static void test_a_failed_put(void **state)
{
    char from[2] = "a", to[2] = "b";
    ps_queue *q = queue_new(*state, PS_QUEUE_COMPUTE);
    ps_fault_arm(PS_FAULT_COPY, 0, false);
    assert_int_equal(ps_queue_put(q, to, from, 1), PS_EDEVICE);
    assert_ok(ps_queue_put(q, to, from, 1));
    assert_ok(ps_event_wait(ps_queue_event(q)));
    assert_string_equal(to, "a");
    ps_queue_destroy(q);
}

static void test_a_host_queue(void **state)
{
    char text[4] = "";
    int n = 0;
    ps_queue *host = NULL, *q = queue_new(*state, PS_QUEUE_COPY);
    assert_ok(ps_host_queue_create("messages", &host));
    const ps_event a = ps_host_queue_begin(host), b = ps_host_queue_begin(host);
    assert_false(ps_event_is_done(a));
    assert_ok(ps_queue_wait(q, a));
    call(q, &n, (append){text, 'b', 0, PS_OK});
    usleep(1000);
    text[n++] = 'a'; /* before the event ends nothing after it is done */
    ps_host_queue_end(host, a.ticket, PS_OK);
    assert_ok(ps_event_wait(ps_queue_event(q)));
    assert_string_equal(text, "ab");
    assert_true(ps_event_is_done(a));
    assert_false(ps_event_is_done(b));
    ps_host_queue_end(host, b.ticket, PS_FAIL(PS_EIO, "the cable"));
    assert_ok(ps_event_wait(a));
    assert_int_equal(ps_event_wait(b), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "the cable"));
    assert_int_equal(ps_queue_fill(host, text, 0, 1), PS_EINVAL);
    ps_queue_destroy(q);
    ps_queue_destroy(host);
}

static void end_it(void *user)
{
    ps_host_queue_end(user, 1, PS_FAIL(PS_ECOMM, "no rank comes"));
}

/* A wait, of the host or a queue, finds that no call is going to end it. */
static void test_an_observed_host_queue(void **state)
{
    for (int i = 0; i < 2; i++) {
        ps_queue *host = NULL, *q = queue_new(*state, PS_QUEUE_COPY);
        assert_ok(ps_host_queue_create("messages", &host));
        ps_host_queue_set_watch(host, end_it, host);
        const ps_event e = ps_host_queue_begin(host);
        if (i == 1) assert_ok(ps_queue_wait(q, e));
        assert_int_equal(ps_event_wait(i == 1 ? ps_queue_event(q) : e), PS_ECOMM);
        assert_non_null(strstr(ps_last_error(), "no rank comes"));
        ps_queue_destroy(q);
        ps_queue_destroy(host);
    }
}

/* Addresses without memory: everything is done at once, and nothing is. */
static void test_a_simulated_queue(void **state)
{
    (void)state;
    ps_device *d = NULL;
    char text[2] = "";
    int n = 0;
    assert_ok(ps_device_create(&ps_device_sim_ops, "device", PS_PAGE_BYTES, &d));
    ps_queue *q = queue_new(d, PS_QUEUE_COMPUTE);
    call(q, &n, (append){text, 'a', 0, PS_EINVAL});
    assert_ok(ps_queue_copy(q, (void *)8, (void *)16, 1 << 20));
    assert_true(ps_event_is_done(ps_queue_event(q)));
    assert_int_equal(n, 0);
    ps_queue_destroy(q);
    ps_device_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_items_are_done_in_order, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_queue_waits_for_an_event, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_the_wait_is_what_orders, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_destroy_waits, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_failed_call_stops_what_follows, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_call_that_fails_at_once, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_failed_copy_is_told_to_a_queue, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_failed_copy_is_told_to_one, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_waits_are_counted, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_failed_put, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_host_queue, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_an_observed_host_queue, open_device, close_device),
        cmocka_unit_test(test_a_simulated_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
