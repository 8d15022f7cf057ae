/* test_cuda_queue.c - streams as queues over the fake driver: order by events and by nothing else, waits for host code,
 * failures that are passed on, and what becomes of waits when the device is lost. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/machine.h"
#include "cuda/rig.h"
#include "device/stall.h"

#define BYTES (4 * PS_MIB)

/* ---- kernels, called by a queue as a backend does ---- */

typedef struct append_args {
    char *text;
    int32_t *n;
    char letter;
} append_args;

static void append(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, const void *args)
{
    const append_args *a = args;
    (void)user;
    assert_int_equal(grid[0], 2);
    assert_int_equal(block[0], 32);
    assert_int_equal(shared_bytes, 64);
    a->text[(*a->n)++] = a->letter;
}

typedef struct launch {
    ps_queue *queue;
    ps_gpu *gpu;
    const ps_cuda_driver *driver;
    ps_cu_function function;
    append_args args;
} launch;

static ps_status run_launch(void *self, const void *args)
{
    const launch *l = args;
    append_args a = l->args;
    (void)self;
    PS_TRY(ps_gpu_will_issue(l->gpu, ps_gpu_stream(l->queue), 1));
    return ps_gpu_check(
        l->gpu, l->driver->launch(l->function, 2, 1, 1, 32, 1, 1, 64, ps_gpu_stream(l->queue), (void *[]){&a}, NULL),
        "launch");
}

/* Text in device memory that kernels write. */
typedef struct notes {
    rig r;
    const ps_cuda_driver *driver;
    ps_cu_module module;
    ps_cu_function function;
    char *memory; /* n, then the text */
    ps_queue *q;
} notes;

static notes notes_open(fake_options o)
{
    notes n = {.driver = fake_driver(&o)};
    fake_kernel_add("append", append, NULL, sizeof(append_args));
    assert_ok(ps_gpu_open(n.driver, &(ps_gpu_options){.poisons = true, .stream_commands = fake_depth()}, &n.r.gpu));
    const ps_space *s = ps_gpu_space(n.r.gpu);
    assert_ok(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", DEVICE_BYTES, &n.r.device));
    assert_ok(ps_device_create_on(s->host, s->driver, s->page_bytes, "host", DEVICE_BYTES, &n.r.host));
    assert_int_equal(n.driver->module_load(&n.module, "image"), PS_CU_SUCCESS);
    assert_int_equal(n.driver->function_get(&n.function, n.module, "append"), PS_CU_SUCCESS);
    n.memory = block_new(n.r.device, PAGE);
    n.q = queue_new(&n.r);
    assert_ok(ps_queue_wait(n.q, ps_device_gave_after(n.r.device)));
    assert_ok(ps_queue_fill(n.q, n.memory, 0, PAGE));
    return n;
}

static void notes_close(notes *n)
{
    ps_queue_destroy(n->q);
    ps_device_free(n->r.device, n->memory, PAGE, NULL);
    assert_int_equal(n->driver->module_unload(n->module), PS_CU_SUCCESS);
    rig_close(&n->r);
}

static void write_letter(const notes *n, ps_queue *q, char letter)
{
    launch l = {q, n->r.gpu, n->driver, n->function, {n->memory + 16, (int32_t *)(uintptr_t)n->memory, letter}};
    assert_ok(ps_queue_call(q, &(ps_call){.name = "append", .run = run_launch, .args = &l, .args_bytes = sizeof l}));
    memset(&l, 0xff, sizeof l);
}

static void assert_text(const notes *n, ps_queue *q, const char *text)
{
    char got[PAGE];
    assert_ok(ps_queue_get(q, got, n->memory, PAGE));
    assert_string_equal(got + 16, text);
}

/* ---- order ---- */

static void test_items_are_done_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        notes n = notes_open((fake_options){.seed = seed});
        char *h = block_new(n.r.host, PAGE), put[8] = "defghij", got[8], all[101] = "";
        assert_string_equal(ps_queue_name(n.q), "work");
        for (int i = 0; i < 100; i++) write_letter(&n, n.q, all[i] = (char)('a' + i % 26));
        assert_ok(ps_queue_copy(n.q, h, n.memory, 200));
        assert_ok(ps_queue_fill(n.q, n.memory + 16, 'x', 2));
        assert_ok(ps_queue_put(n.q, n.memory + 18, put, 4));
        memset(put, 0, sizeof put);
        assert_ok(ps_queue_get(n.q, got, n.memory + 16, 8));
        assert_memory_equal(got, "xxdefggh", 8);
        assert_true(ps_event_is_done(ps_queue_event(n.q)));
        assert_memory_equal(h + 16, all, 100);
        ps_device_free(n.r.host, h, PAGE, NULL);
        notes_close(&n);
    }
}

static void test_work_without_a_wait_is_too_early(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 1});
    ps_queue *q = queue_new(&r);
    volatile char *h = block_new(r.host, PAGE);
    int n_late = 0;
    for (int i = 1; i <= 100; i++) {
        assert_ok(ps_queue_fill(q, (void *)(uintptr_t)h, (uint8_t)i, 1));
        n_late += !ps_event_is_done(ps_queue_event(q)); /* *h may be either, and is not to be looked at */
        finish(q);
        assert_int_equal(*h, i);
    }
    assert_true(n_late > 0);
    ps_queue_destroy(q);
    ps_device_free(r.host, (void *)(uintptr_t)h, PAGE, NULL);
    rig_close(&r);
}

static void test_events_order_queues(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        notes n = notes_open((fake_options){.seed = seed});
        ps_queue *q[3] = {n.q, queue_new(&n.r), queue_new(&n.r)};
        char all[91] = "";
        for (int i = 0; i < 90; i++) {
            if (i == 0) assert_ok(ps_queue_wait(q[1], ps_queue_event(q[0])));
            write_letter(&n, q[i % 3], all[i] = (char)('A' + i % 3));
            assert_ok(ps_queue_wait(q[(i + 1) % 3], ps_queue_event(q[i % 3])));
        }
        assert_text(&n, q[0], all);
        ps_queue_destroy(q[1]);
        ps_queue_destroy(q[2]);
        notes_close(&n);
    }
}

/* An event is of its item, however many come after it: a wait for an early one does not wait for a later one,
 * which may never come without the waiting thread. */
static void test_old_events(void **state)
{
    (void)state;
    enum { N = 9000 };
    rig r = rig_open((fake_options){.seed = 2});
    ps_queue *q = queue_new(&r), *host;
    char *d = block_new(r.device, PAGE);
    assert_ok(ps_host_queue_create("disk", &host));
    assert_ok(ps_queue_wait(q, ps_device_gave_after(r.device)));
    assert_ok(ps_queue_fill(q, d, 1, 8));
    const ps_event early = ps_queue_event(q);
    const ps_event e = ps_host_queue_begin(host);
    assert_ok(ps_queue_wait(q, e));
    const int n_before =
        fake_depth() > 400 ? 200 : fake_depth() / 2 - 4; /* there is room while the host code goes on */
    for (int i = 0; i < n_before; i++) assert_ok(ps_queue_fill(q, d, (uint8_t)i, 8));
    assert_ok(ps_event_wait(early));
    assert_true(ps_event_is_done(early));
    assert_false(ps_event_is_done(ps_queue_event(q)));
    ps_host_queue_end(host, e.ticket, PS_OK);
    for (int i = 0; i < N; i++) assert_ok(ps_queue_fill(q, d, (uint8_t)i, 8)); /* more than the ring has */
    assert_ok(ps_event_wait(early));
    uint8_t got;
    assert_ok(ps_queue_get(q, &got, d, 1));
    assert_int_equal(got, (N - 1) % 256);
    ps_queue_destroy(q);
    ps_queue_destroy(host);
    ps_device_free(r.device, d, PAGE, NULL);
    rig_close(&r);
}

/* A tensor that is freed while a stream still reads it, whose memory another stream writes: how often of 100 times the
 * reader gets what the next owner wrote. */
static int stale_reads(bool waits)
{
    rig r = rig_open((fake_options){.seed = 8});
    ps_queue *q[2] = {queue_new(&r), queue_new(&r)};
    uint8_t *h = block_new(r.host, PAGE);
    int n = 0;
    for (int i = 0; i < 100; i++) {
        char *first = block_new(r.device, PAGE);
        assert_ok(ps_queue_wait(q[0], ps_device_gave_after(r.device)));
        assert_ok(ps_queue_fill(q[0], first, 1, PAGE));
        assert_ok(ps_queue_copy(q[0], h, first, PAGE));
        ps_device_free(r.device, first, PAGE, &(ps_events){.n = 1, .event = {ps_queue_event(q[0])}});
        char *second = block_new(r.device, PAGE);
        assert_ptr_equal(second, first);
        if (waits) assert_ok(ps_queue_wait(q[1], ps_device_gave_after(r.device)));
        assert_ok(ps_queue_fill(q[1], second, 2, PAGE));
        finish(q[1]);
        finish(q[0]);
        n += memchr(h, 1, PAGE) != h || memchr(h, 2, PAGE) != NULL;
        ps_device_free(r.device, second, PAGE, NULL);
    }
    ps_device_free(r.host, h, PAGE, NULL);
    ps_queue_destroy(q[0]);
    ps_queue_destroy(q[1]);
    rig_close(&r);
    return n;
}

static void test_stale_tensor_on_another_stream(void **state)
{
    (void)state;
    assert_int_equal(stale_reads(true), 0);
    assert_true(stale_reads(false) > 0);
}

/* More than the staging ring has, to and fro. */
static void test_put_and_get_any_memory(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 3});
    ps_queue *q = queue_new(&r);
    char *d = block_new(r.device, 3 * BYTES);
    uint8_t *a = malloc(3 * BYTES), *b = malloc(3 * BYTES);
    for (int64_t i = 0; i < 3 * BYTES; i++) a[i] = (uint8_t)(i * 7 + i / 1000);
    assert_ok(ps_queue_wait(q, ps_device_gave_after(r.device)));
    assert_ok(ps_queue_put(q, d, a, 3 * BYTES));
    for (int i = 0; i < 300; i++) assert_ok(ps_queue_put(q, d + i * 5000, a + i, 3000));
    assert_ok(ps_queue_get(q, b, d, 3 * BYTES));
    for (int i = 0; i < 300; i++) {
        assert_memory_equal(b + i * 5000, a + i, 3000);
        memcpy(b + i * 5000, a + i * 5000, 3000);
    }
    assert_memory_equal(a, b, 3 * BYTES);
    free(a);
    free(b);
    ps_queue_destroy(q);
    ps_device_free(r.device, d, 3 * BYTES, NULL);
    rig_close(&r);
}

/* ---- host code ---- */

typedef struct later {
    ps_queue *host;
    ps_event e;
    ps_status st;
    int ms;
    char *write; /* NULL: nothing */
} later;

static void *end_later(void *arg)
{
    const later *l = arg;
    usleep((useconds_t)l->ms * 1000);
    if (l->write != NULL) *l->write = 'w';
    ps_host_queue_end(l->host, l->e.ticket, l->st != PS_OK ? PS_FAIL(l->st, "the disk is gone") : PS_OK);
    return NULL;
}

static void waits_for_host_code(bool has_no_wait_value)
{
    for (uint64_t seed = 0; seed < 3; seed++) {
        rig r = rig_open((fake_options){.seed = seed, .has_no_wait_value = has_no_wait_value});
        ps_queue *q[2] = {queue_new(&r), queue_new(&r)}, *host;
        char *h = block_new(r.host, PAGE), *d = block_new(r.device, PAGE);
        assert_ok(ps_host_queue_create("disk", &host));
        for (int i = 0; i < 10; i++) {
            later l = {host, ps_host_queue_begin(host), PS_OK, 3, h};
            pthread_t t;
            uint8_t got[2];
            h[0] = h[1] = '-';
            pthread_create(&t, NULL, end_later, &l);
            assert_ok(ps_queue_wait(q[0], ps_device_gave_after(r.device)));
            assert_ok(ps_queue_copy(q[0], d + 1, h + 1, 1)); /* before */
            assert_ok(ps_queue_wait(q[0], l.e));
            assert_ok(ps_queue_copy(q[0], d, h, 1));
            const ps_event e = ps_queue_event(q[0]);
            assert_ok(ps_queue_wait(q[1], e));
            assert_ok(ps_queue_get(q[1], got, d, 2));
            assert_memory_equal(got, "w-", 2);
            assert_ok(ps_event_wait(e));
            pthread_join(t, NULL);
        }
        ps_queue_destroy(q[0]);
        ps_queue_destroy(q[1]);
        ps_queue_destroy(host);
        ps_device_free(r.host, h, PAGE, NULL);
        ps_device_free(r.device, d, PAGE, NULL);
        rig_close(&r);
    }
}

static void test_stream_waits_for_host_code(void **state)
{
    (void)state;
    waits_for_host_code(false);
}

static void test_host_waits_where_streams_cannot(void **state)
{
    (void)state;
    waits_for_host_code(true);
    rig r = rig_open((fake_options){.seed = 9});
    ps_queue *q = queue_new(&r), *host;
    assert_ok(ps_host_queue_create("disk", &host));
    later l = {host, ps_host_queue_begin(host), PS_OK, 2, NULL};
    pthread_t t;
    pthread_create(&t, NULL, end_later, &l);
    fake_fail("stream_wait_value", 0, PS_CU_NOT_SUPPORTED);
    assert_ok(ps_queue_wait(q, l.e));
    assert_true(ps_event_is_done(l.e));
    pthread_join(t, NULL);
    ps_queue_destroy(q);
    ps_queue_destroy(host);
    rig_close(&r);
}

/* The disk fails after all was issued: each queue that comes after it, and only those, says so for good. */
static void failure_is_handed_on(bool has_no_wait_value)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        rig r = rig_open((fake_options){.seed = seed, .has_no_wait_value = has_no_wait_value});
        ps_queue *q[4], *host;
        char *d = block_new(r.device, PAGE);
        for (int i = 0; i < 4; i++) q[i] = queue_new(&r);
        assert_ok(ps_host_queue_create("disk", &host));
        assert_ok(ps_queue_wait(q[0], ps_device_gave_after(r.device)));
        assert_ok(ps_queue_fill(q[0], d, 5, 1));
        const ps_event before = ps_queue_event(q[0]);
        later l = {host, ps_host_queue_begin(host), PS_EIO, 3, NULL};
        pthread_t t;
        pthread_create(&t, NULL, end_later, &l);
        assert_ok(ps_queue_wait(q[0], l.e));
        const ps_event after = ps_queue_event(q[0]);
        assert_ok(ps_queue_wait(q[1], after));
        assert_ok(ps_queue_wait(q[2], ps_queue_event(q[1])));
        assert_ok(ps_queue_wait(q[3], before));
        assert_fails(ps_event_wait(ps_queue_event(q[2])), PS_EIO, "the disk is gone");
        assert_fails(ps_event_wait(after), PS_EIO, "the disk is gone");
        assert_fails(ps_event_wait(ps_queue_event(q[1])), PS_EIO, "the disk is gone");
        assert_true(ps_event_is_done(after));
        assert_ok(ps_event_wait(before));
        assert_ok(ps_event_wait(ps_queue_event(q[3])));
        /* nothing more is done there, and what comes after that fails at once */
        assert_ok(ps_queue_fill(q[2], d, 6, 1));
        uint8_t got;
        assert_ok(ps_queue_get(q[3], &got, d, 1));
        assert_int_equal(got, 5);
        assert_ok(ps_queue_wait(q[3], ps_queue_event(q[2])));
        assert_fails(ps_event_wait(ps_queue_event(q[3])), PS_EIO, "the disk is gone");
        pthread_join(t, NULL);
        /* what is freed after it is usable: a failure does not reach the memory's next user */
        ps_device_free(r.device, d, PAGE, &(ps_events){.n = 1, .event = {after}});
        assert_ok(ps_event_wait(ps_device_gave_after(r.device)));
        for (int i = 0; i < 4; i++) ps_queue_destroy(q[i]);
        ps_queue_destroy(host);
        rig_close(&r);
    }
}

static void test_failure_of_host_code_is_handed_on(void **state)
{
    (void)state;
    failure_is_handed_on(false);
    failure_is_handed_on(true);
}

/* Pages are freed after what the disk still does: they are handed on when that has ended. */
static void test_release_after_host_code(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 5});
    ps_queue *host;
    char *h = block_new(r.host, PAGE);
    memset(h, 1, PAGE);
    assert_ok(ps_host_queue_create("disk", &host));
    const ps_event e = ps_host_queue_begin(host);
    ps_device_free(r.host, h, PAGE, &(ps_events){.n = 1, .event = {e}});
    char *again = block_new(r.host, PAGE);
    assert_ptr_equal(again, h);
    assert_false(ps_event_is_done(ps_device_gave_after(r.host)));
    again[0] = 'w'; /* by the disk */
    ps_host_queue_end(host, e.ticket, PS_OK);
    assert_ok(ps_event_wait(ps_device_gave_after(r.host)));
    assert_int_equal((uint8_t)again[0], 0xff);
    ps_device_free(r.host, again, PAGE, NULL);
    ps_queue_destroy(host);
    rig_close(&r);
}

/* A piece of a region whose pages have another user by now is not unmapped under the work that still uses it there: the
 * one case in which the host waits. */
static void test_piece_is_wanted_again_under_its_last_use(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 6});
    ps_queue *q = queue_new(&r), *host;
    ps_region *region;
    assert_ok(ps_host_queue_create("disk", &host));
    assert_ok(ps_region_create(r.device, 30 * PS_MIB, &region));
    assert_ok(ps_region_commit(region, 0, 30 * PS_MIB));
    later l = {host, ps_host_queue_begin(host), PS_OK, 5, NULL};
    assert_ok(ps_queue_wait(q, l.e));
    assert_ok(ps_queue_fill(q, ps_region_base(region), 1, 30 * PS_MIB));
    ps_region_decommit(region, 0, 30 * PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    pthread_t t;
    pthread_create(&t, NULL, end_later, &l);        /* mapping may wait for the stream, and so for host code */
    char *block = block_new(r.device, 30 * PS_MIB); /* the same pages */
    assert_ok(ps_region_commit(region, 0, PS_MIB));
    finish(q);
    pthread_join(t, NULL);
    ps_region_destroy(region);
    ps_device_free(r.device, block, 30 * PS_MIB, NULL);
    ps_queue_destroy(q);
    ps_queue_destroy(host);
    rig_close(&r);
}

/* ---- as many commands as a stream takes ---- */

static char deadlock[2048];

static void note_deadlock(const char *text)
{
    snprintf(deadlock, sizeof deadlock, "%s", text);
}

/* Host code that launches, after the work of another thread that is far ahead. */
typedef struct launcher {
    ps_queue *q, *host;
    ps_event e;
    char *at;
} launcher;

static void *launch_and_end(void *arg)
{
    const launcher *l = arg;
    usleep(20000);
    const ps_status st = ps_queue_fill(l->q, l->at, 1, 8);
    ps_host_queue_end(l->host, l->e.ticket, st == PS_OK ? ps_event_wait(ps_queue_event(l->q)) : st);
    return NULL;
}

/* A stream waits for host code, which launches itself; the caller issues far more than a stream takes. Returns the
 * first failure. */
static ps_status run_far_ahead(fake_options o, int stream_commands, int *n_full)
{
    rig r;
    ps_queue *q[2], *host;
    const ps_cuda_driver *driver = fake_driver(&o);
    assert_ok(ps_gpu_open(driver, &(ps_gpu_options){.stream_commands = stream_commands}, &r.gpu));
    const ps_space *s = ps_gpu_space(r.gpu);
    assert_ok(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", DEVICE_BYTES, &r.device));
    assert_ok(ps_device_create_on(s->host, s->driver, s->page_bytes, "host", DEVICE_BYTES, &r.host));
    for (int i = 0; i < 2; i++) q[i] = queue_new(&r);
    assert_ok(ps_host_queue_create("messages", &host));
    char *d = block_new(r.device, 2 * PAGE);
    for (int i = 0; i < 2; i++) assert_ok(ps_queue_wait(q[i], ps_device_gave_after(r.device)));
    launcher l = {q[1], host, ps_host_queue_begin(host), d + PAGE};
    pthread_t t;
    assert_ok(ps_queue_wait(q[0], l.e));
    pthread_create(&t, NULL, launch_and_end, &l);
    ps_status st = PS_OK;
    for (int i = 0; i < 3000 && st == PS_OK; i++) st = ps_queue_fill(q[0], d, 1, 8);
    if (st == PS_OK) st = ps_event_wait(ps_queue_event(q[0]));
    pthread_join(t, NULL);
    *n_full = fake_full_calls();
    for (int i = 0; i < 2; i++) ps_queue_destroy(q[i]);
    ps_device_free(r.device, d, 2 * PAGE, NULL);
    ps_queue_destroy(host);
    ps_device_destroy(r.host);
    ps_device_destroy(r.device);
    ps_gpu_close(r.gpu);
    assert_true(fake_driver_end() || st != PS_OK);
    return st;
}

static void test_no_call_blocks_in_the_driver(void **state)
{
    static const int depths[] = {16, 64, 512, 1024, 4096};
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(depths); i++) {
        int n_full;
        const fake_options o = {.seed = i, .depth = depths[i]};
        const ps_blocked before = ps_blocked_so_far();
        assert_ok(run_far_ahead(o, depths[i], &n_full));
        assert_int_equal(n_full, 0);
        assert_true(ps_blocked_so_far().n[PS_BLOCK_FULL] > before.n[PS_BLOCK_FULL]); /* the queue waits in its place */
    }
}

/* Seeded fault: the stream is not bounded. The call that blocks keeps the lock that the host code needs. */
static void test_unbounded_stream_is_found(void **state)
{
    (void)state;
    int n_full;
    deadlock[0] = '\0';
    const fake_options o = {.seed = 1, .depth = 100, .stall_ms = 200, .on_deadlock = note_deadlock};
    assert_int_not_equal(run_far_ahead(o, PS_GPU_COMMANDS, &n_full), PS_OK);
    assert_true(n_full > 0);
    assert_non_null(strstr(deadlock, "fake_driver: deadlock: "));
    assert_non_null(strstr(deadlock, ": 100 commands; the first waits for the host to write 1 where 0 is"));
}

/* An item of more commands than are outstanding at most. */
static ps_status launch_many(void *self, const void *args)
{
    for (int i = 0; i < 300; i++) PS_TRY(run_launch(self, args));
    return PS_OK;
}

static void test_long_item(void **state)
{
    (void)state;
    notes n = notes_open((fake_options){.seed = 7, .depth = 32});
    launch l = {n.q, n.r.gpu, n.driver, n.function, {n.memory + 16, (int32_t *)(uintptr_t)n.memory, 'x'}};
    char text[301];
    memset(text, 'x', 300);
    text[300] = '\0';
    assert_ok(ps_queue_call(n.q, &(ps_call){.name = "many", .run = launch_many, .args = &l, .args_bytes = sizeof l}));
    assert_text(&n, n.q, text);
    assert_int_equal(fake_full_calls(), 0);
    notes_close(&n);
}

/* Unmapping under work that is under way waits for it, as page-locking does. */
static void test_calls_that_synchronize(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 3});
    ps_queue *q = queue_new(&r), *host;
    char *d = block_new(r.device, PAGE);
    assert_ok(ps_host_queue_create("disk", &host));
    finish(q);
    const int n = fake_synchronizing_calls();
    later l = {host, ps_host_queue_begin(host), PS_OK, 20, NULL};
    pthread_t t;
    assert_ok(ps_queue_wait(q, l.e));
    const ps_event e = ps_queue_event(q);
    pthread_create(&t, NULL, end_later, &l);
    char *more = block_new(r.host, PAGE);
    assert_true(fake_synchronizing_calls() > n);
    assert_true(ps_event_is_done(e));
    pthread_join(t, NULL);
    ps_device_free(r.host, more, PAGE, NULL);
    ps_device_free(r.device, d, PAGE, NULL);
    ps_queue_destroy(q);
    ps_queue_destroy(host);
    rig_close(&r);
}

/* ---- losing the device ---- */

static void *wait_in_thread(void *arg)
{
    return (void *)(intptr_t)ps_event_wait(*(ps_event *)arg);
}

/* Whatever is under way: every call reports what was seen first, and none hangs. */
static void test_device_is_lost(void **state)
{
    (void)state;
    for (int nth = 0; nth < 12; nth++) {
        rig r = rig_open((fake_options){.seed = (uint64_t)nth});
        ps_queue *q[2] = {queue_new(&r), queue_new(&r)}, *host;
        char *d = block_new(r.device, PAGE), *h = block_new(r.host, PAGE);
        assert_ok(ps_host_queue_create("disk", &host));
        const ps_event pending = ps_host_queue_begin(host);
        assert_ok(ps_queue_wait(q[0], ps_device_gave_after(r.device)));
        assert_ok(ps_queue_fill(q[1], h, 0, 8));
        finish(q[0]);
        finish(q[1]);
        fake_break(nth, PS_CU_ECC_UNCORRECTABLE);
        ps_status st = PS_OK;
        for (int i = 0; i < 10 && st == PS_OK; i++) {
            st = ps_queue_copy(q[0], d, h, 100);
            if (st == PS_OK) st = ps_queue_wait(q[1], ps_queue_event(q[0]));
            if (st == PS_OK && i == 8) st = ps_queue_wait(q[1], pending);
        }
        ps_event e = ps_queue_event(q[1]);
        pthread_t t;
        void *result;
        pthread_create(&t, NULL, wait_in_thread, &e);
        if (st == PS_OK) st = ps_event_wait(e);
        pthread_join(t, &result);
        assert_int_equal(st, PS_EDEVICE);
        assert_int_equal((intptr_t)result, PS_EDEVICE);
        assert_non_null(strstr(ps_last_error(), "GPU 0 (Fake 0) is lost"));
        assert_non_null(strstr(ps_last_error(), "its memory is bad"));
        assert_int_equal(ps_queue_fill(q[0], d, 0, 1), PS_EDEVICE);
        assert_true(ps_event_is_done(e));
        ps_host_queue_end(host, pending.ticket, PS_OK);
        ps_device_free(r.device, d, PAGE, &(ps_events){.n = 1, .event = {e}});
        ps_device_free(r.host, h, PAGE, &(ps_events){.n = 1, .event = {e}});
        ps_queue_destroy(q[0]);
        ps_queue_destroy(q[1]);
        ps_queue_destroy(host);
        ps_device_destroy(r.host);
        ps_device_destroy(r.device);
        ps_gpu_close(r.gpu);
        (void)fake_driver_end(); /* a broken context keeps what it has */
    }
}

static void test_wrong_address(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 1});
    ps_queue *q = queue_new(&r);
    char *d = block_new(r.device, PAGE), local[8];
    assert_fails(ps_queue_copy(q, d, local, sizeof local), PS_EDEVICE, "cuda: work: CUDA_ERROR"); /* not page-locked */
    ps_status st = ps_queue_copy(q, d + PAGE, d, 8); /* after the block: found when it is done, perhaps at once */
    if (st == PS_OK) st = ps_event_wait(ps_queue_event(q));
    assert_fails(st, PS_EDEVICE, ": CUDA_ERROR_ILLEGAL_ADDRESS"); /* whichever call saw it first */
    ps_queue_destroy(q);
    ps_device_free(r.device, d, PAGE, NULL);
    ps_device_destroy(r.host);
    ps_device_destroy(r.device);
    ps_gpu_close(r.gpu);
    (void)fake_driver_end();
}

/* The faults that tests of the engine arm. */
static void test_faults(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 1});
    ps_queue *q = queue_new(&r);
    char *d = block_new(r.device, PAGE);
    for (int nth = 0; nth < 3; nth++) {
        ps_fault_arm(PS_FAULT_DEVICE, nth, false);
        ps_status st = PS_OK;
        for (int i = 0; i < 3 && st == PS_OK; i++) st = ps_queue_fill(q, d, 1, 8);
        assert_int_equal(st, PS_EDEVICE);
        finish(q);
    }
    ps_fault_arm(PS_FAULT_LOST, 1, false);
    for (int i = 0; i < 2; i++) assert_ok(ps_queue_fill(q, d, 1, 8));
    assert_fails(ps_event_wait(ps_queue_event(q)), PS_EDEVICE, "is lost");
    assert_fails(ps_queue_fill(q, d, 1, 8), PS_EDEVICE, "is lost");
    ps_fault_arm(PS_FAULT_LOST, -1, false);
    ps_queue_destroy(q);
    ps_device_free(r.device, d, PAGE, NULL);
    rig_close(&r);
}

/* ---- a caller's stream, and looking on ---- */

static void test_external_stream(void **state)
{
    (void)state;
    notes n = notes_open((fake_options){.seed = 4});
    ps_cu_stream stream;
    ps_queue *theirs;
    ps_event mark;
    assert_int_equal(n.driver->stream_create(&stream, PS_CU_STREAM_NON_BLOCKING, 0), PS_CU_SUCCESS);
    assert_fails(ps_gpu_open_external(n.r.gpu, "theirs", NULL, &theirs), PS_EINVAL, "the default stream");
    assert_ok(ps_gpu_open_external(n.r.gpu, "theirs", stream, &theirs));
    assert_ptr_equal(ps_gpu_space(n.r.gpu)->external, theirs);
    assert_ptr_equal(ps_gpu_stream(theirs), stream);
    assert_ok(ps_queue_wait(theirs, ps_queue_event(n.q)));
    write_letter(&n, theirs, 'a');
    /* unseen */
    append_args a = {n.memory + 16, (int32_t *)(uintptr_t)n.memory, 'b'};
    assert_int_equal(n.driver->launch(n.function, 2, 1, 1, 32, 1, 1, 64, stream, (void *[]){&a}, NULL), PS_CU_SUCCESS);
    assert_ok(ps_queue_mark(theirs, &mark));
    assert_ok(ps_queue_wait(n.q, mark));
    write_letter(&n, n.q, 'c');
    assert_text(&n, n.q, "abc");
    ps_queue_destroy(theirs);
    assert_null(ps_gpu_space(n.r.gpu)->external);
    assert_int_equal(n.driver->stream_destroy(stream), PS_CU_SUCCESS);
    notes_close(&n);
}

/* A program that runs far ahead on its stream waits at its marks, not within the driver. */
static void test_external_stream_is_bounded(void **state)
{
    (void)state;
    if (fake_depth() < 2 * PS_GPU_COMMANDS) skip(); /* what it issues between two marks alone would fill the stream */
    notes n = notes_open((fake_options){.seed = 4});
    ps_cu_stream stream;
    ps_queue *theirs;
    ps_event mark;
    assert_int_equal(n.driver->stream_create(&stream, PS_CU_STREAM_NON_BLOCKING, 0), PS_CU_SUCCESS);
    assert_ok(ps_gpu_open_external(n.r.gpu, "theirs", stream, &theirs));
    const int n_before = fake_full_calls();
    for (int moment = 0; moment < 200; moment++) {
        for (int i = 0; i < 30; i++)
            assert_int_equal(n.driver->fill((ps_cu_address)(uintptr_t)n.memory + 64, 1, 8, stream), PS_CU_SUCCESS);
        assert_ok(ps_queue_mark(theirs, &mark));
    }
    assert_int_equal(fake_full_calls(), n_before);
    finish(theirs);
    ps_queue_destroy(theirs);
    assert_int_equal(n.driver->stream_destroy(stream), PS_CU_SUCCESS);
    notes_close(&n);
}

static void test_profile_has_times(void **state)
{
    (void)state;
    enum { N = 50 };
    rig r = rig_open((fake_options){.seed = 5});
    ps_queue *q = queue_new(&r);
    char *d = block_new(r.device, PAGE), *h = block_new(r.host, PAGE);
    ps_profile *p;
    ps_event e;
    assert_ok(ps_profile_create(NULL, &p));
    ps_queue_set_profile(q, p, 3);
    assert_ok(ps_queue_copy(q, d, h, 100)); /* not kept */
    ps_profile_start(p);
    const int64_t begin_ns = ps_clock_ns();
    for (int i = 0; i < N; i++) {
        assert_ok(ps_queue_copy(q, d, h, PAGE));
        assert_ok(ps_queue_mark(q, &e));
        assert_ok(ps_queue_fill(q, d, 0, 8));
    }
    finish(q);
    const int64_t end_ns = ps_clock_ns(), slack_ns = 1000000000; /* of two clocks */
    assert_int_equal(ps_profile_count(p), 2 * N);
    int64_t before_ns = begin_ns - slack_ns;
    for (int64_t i = 0; i < 2 * N; i++) {
        const ps_profile_record *x = ps_profile_at(p, i);
        assert_int_equal(x->kind, i % 2 == 0 ? PS_PROFILE_MOVED : PS_PROFILE_MARK);
        assert_int_equal(x->copy.link, 3);
        assert_int_equal(x->copy.ticket, 2 + i / 2 * 3 + i % 2);
        assert_true(x->begin_ns >= before_ns && x->end_ns >= x->begin_ns && x->end_ns <= end_ns + slack_ns);
        before_ns = x->begin_ns;
    }
    ps_queue_destroy(q);
    ps_profile_destroy(p);
    ps_device_free(r.device, d, PAGE, NULL);
    ps_device_free(r.host, h, PAGE, NULL);
    rig_close(&r);
}

/* ---- a wait that nothing ends ---- */

static char stalled[2048];

static void note_stall(void *user, const char *text)
{
    (void)user;
    snprintf(stalled, sizeof stalled, "%s", text);
}

static void *wait_for_stream(void *q)
{
    assert_ok(ps_event_wait(ps_queue_event(q)));
    return NULL;
}

/* The report has the stream's item, what the stream is at, and what that waits for. */
static void test_stall_is_named(void **state)
{
    (void)state;
    static const int64_t second_ns = 1000000000;
    rig r = rig_open((fake_options){.seed = 7, .stall_ms = 1000000});
    ps_stall_watch *watch;
    ps_queue *q = queue_new(&r), *host;
    char *d = block_new(r.device, PAGE);
    pthread_t waiter;
    int64_t now_ns = ps_clock_ns();
    ps_set_stall(note_stall, NULL);
    assert_ok(ps_stall_open(&(ps_stall_options){.stall_ns = 100 * second_ns, .is_manual = true}, &watch));
    assert_ok(ps_host_queue_create("disk", &host));
    const ps_event never = ps_host_queue_begin(host);
    assert_ok(ps_queue_wait(q, never));
    assert_ok(ps_queue_fill(q, d, 3, 100));
    stalled[0] = '\0';
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_stream, q), 0);
    while (strstr(stalled, "item 2 of queue work") == NULL || strstr(stalled, "item 1 of queue disk") == NULL) {
        for (int i = 0; i < 101; i++) (void)ps_stall_look(now_ns += second_ns);
        usleep(1000); /* the threads are on their way */
    }
    assert_non_null(strstr(stalled, "(a fill; it is at item 1 or later, a wait)"));
    ps_host_queue_end(host, never.ticket, PS_OK);
    pthread_join(waiter, NULL);
    ps_stall_close(watch);
    ps_set_stall(NULL, NULL);
    ps_queue_destroy(q);
    ps_queue_destroy(host);
    ps_device_free(r.device, d, PAGE, NULL);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_are_done_in_order),
        cmocka_unit_test(test_work_without_a_wait_is_too_early),
        cmocka_unit_test(test_events_order_queues),
        cmocka_unit_test(test_old_events),
        cmocka_unit_test(test_stale_tensor_on_another_stream),
        cmocka_unit_test(test_put_and_get_any_memory),
        cmocka_unit_test(test_stream_waits_for_host_code),
        cmocka_unit_test(test_host_waits_where_streams_cannot),
        cmocka_unit_test(test_failure_of_host_code_is_handed_on),
        cmocka_unit_test(test_release_after_host_code),
        cmocka_unit_test(test_piece_is_wanted_again_under_its_last_use),
        cmocka_unit_test(test_no_call_blocks_in_the_driver),
        cmocka_unit_test(test_unbounded_stream_is_found),
        cmocka_unit_test(test_long_item),
        cmocka_unit_test(test_calls_that_synchronize),
        cmocka_unit_test(test_device_is_lost),
        cmocka_unit_test(test_wrong_address),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_external_stream),
        cmocka_unit_test(test_external_stream_is_bounded),
        cmocka_unit_test(test_profile_has_times),
        cmocka_unit_test(test_stall_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
