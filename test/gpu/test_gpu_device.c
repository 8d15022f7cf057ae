/* test_gpu_device.c - memory and queues of an opened GPU, whether it is there or not: contents after any order of work on
 * several queues, that only events make; memory that is freed while it is used; waits for host code; NCCL with one
 * rank; a device that is lost. test/cuda looks at the same over the fake driver alone, and at what the driver is called for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "assert_status.h"
#include "device/cuda/nccl_collectives.h"
#include "gpu/mock_gpu.h"

typedef struct fixture {
    ps_backend *backend;
    ps_device *device, *host;
    int64_t page;
} fixture;

static fixture begin(int64_t device_pages, int64_t host_bytes)
{
    fixture f;
    ps_backend *host;
    mock_gpu_begin(&(fake_options){.seed = 3});
    assert_ok(ps_backend_create_ref(&host));
    assert_ok(ps_backend_open_cuda(0, PS_CUDA_ATTENTION_OWN, host, &f.backend));
    const ps_space *s = ps_backend_space(f.backend);
    f.page = s->page_bytes;
    assert_ok(ps_device_create_on(s->device, s->driver, f.page, "device", device_pages * f.page, &f.device));
    assert_ok(ps_device_create_on(s->host, s->driver, f.page, "host", host_bytes, &f.host));
    return f;
}

static void end(fixture *f)
{
    ps_device_destroy(f->host);
    ps_device_destroy(f->device);
    ps_backend_destroy(f->backend);
    assert_true(mock_gpu_end());
}

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*state * n) >> 32);
}

/* ---- any order of work ---- */

enum { N_ARRAYS = 18, N_PIECES = 6, N_HOST = 6, N_QUEUES = 4, PAGES_MOST = 3 };

/* A block of the device, a piece of its region, or a block of the host; and what must be in it. */
typedef struct array {
    ps_device *of;
    ps_region *region; /* NULL: a block */
    int64_t offset, bytes;
    char *p; /* NULL: none now */
    unsigned char *model;
    ps_events used;
} array;

static void use(array *a, ps_queue *q)
{
    ps_events_add(&a->used, ps_queue_event(q));
}

/* What is issued to q from now on comes after all that used it. */
static void come_after(ps_queue *q, const array *a)
{
    assert_ok(ps_queue_wait_all(q, &a->used));
}

static void give_back(array *a)
{
    if (a->p == NULL) return;
    if (a->region != NULL)
        ps_region_decommit(a->region, a->offset, a->bytes, &a->used);
    else
        ps_device_free(a->of, a->p, a->bytes, &a->used);
    a->p = NULL;
}

/* Memory for it, perhaps that of another a moment ago, and a byte throughout. */
static void take(array *a, ps_queue *q, int64_t bytes, unsigned char byte)
{
    void *p = NULL;
    if (a->region != NULL) {
        assert_ok(ps_region_commit(a->region, a->offset, a->bytes));
        a->p = (char *)ps_region_base(a->region) + a->offset;
    } else {
        a->bytes = bytes;
        assert_ok(ps_device_alloc(a->of, bytes, &p));
        a->p = p;
    }
    a->used = (ps_events){.n = 0};
    assert_ok(ps_queue_wait(q, ps_device_gave_after(a->of)));
    assert_ok(ps_queue_fill(q, a->p, byte, a->bytes));
    memset(a->model, byte, (size_t)a->bytes);
    use(a, q);
}

static void expect_content(const array *a, ps_queue *q, unsigned char *room)
{
    come_after(q, a);
    assert_ok(ps_queue_get(q, room, a->p, a->bytes));
    for (int64_t i = 0; i < a->bytes; i++)
        if (room[i] != a->model[i])
            fail_msg("byte %lld of %lld is %d, not %d", (long long)i, (long long)a->bytes, room[i], a->model[i]);
}

static void copy_some(array *to, array *from, ps_queue *q, uint32_t *random)
{
    const int64_t n = 1 + random_below(random, (uint32_t)ps_min_i64(to->bytes, from->bytes));
    const int64_t at = random_below(random, (uint32_t)(to->bytes - n + 1)),
                  first = random_below(random, (uint32_t)(from->bytes - n + 1));
    come_after(q, to);
    come_after(q, from);
    assert_ok(ps_queue_copy(q, to->p + at, from->p + first, n));
    memcpy(to->model + at, from->model + first, (size_t)n);
    use(to, q);
    use(from, q);
}

static void put_some(array *to, ps_queue *q, uint32_t *random)
{
    unsigned char bytes[1000];
    const int64_t n = ps_min_i64(to->bytes, 1 + random_below(random, sizeof bytes));
    const int64_t at = random_below(random, (uint32_t)(to->bytes - n + 1));
    for (int64_t i = 0; i < n; i++) bytes[i] = (unsigned char)random_below(random, 256);
    come_after(q, to);
    assert_ok(ps_queue_put(q, to->p + at, bytes, n));
    memcpy(to->model + at, bytes, (size_t)n);
    memset(bytes, 0xEE, sizeof bytes); /* it is the caller's again */
    use(to, q);
}

static void test_any_order_of_work(void **state)
{
    (void)state;
    fixture f = begin(PAGES_MOST * N_ARRAYS, 256 * PS_MIB);
    const int64_t most = PAGES_MOST * f.page;
    unsigned char *room = malloc((size_t)most);
    array all[N_ARRAYS] = {0};
    ps_queue *q[N_QUEUES];
    ps_region *region;
    uint32_t random = 7;
    assert_ok(ps_region_create(f.device, N_PIECES * f.page, &region));
    for (int i = 0; i < N_QUEUES; i++)
        assert_ok(ps_queue_create(f.device, "work", i == 0 ? PS_QUEUE_COMPUTE : PS_QUEUE_COPY, &q[i]));
    for (int i = 0; i < N_ARRAYS; i++) {
        all[i].of = i < N_HOST ? f.host : f.device;
        all[i].model = malloc((size_t)most);
        if (i >= N_ARRAYS - N_PIECES) {
            all[i].region = region;
            all[i].offset = (i - (N_ARRAYS - N_PIECES)) * f.page;
            all[i].bytes = f.page;
        }
    }
    const int n_items = mock_gpu_is_hardware() ? 8000 : 4000;
    for (int item = 0; item < n_items; item++) {
        array *a = &all[random_below(&random, N_ARRAYS)], *b = &all[random_below(&random, N_ARRAYS)];
        ps_queue *on = q[random_below(&random, N_QUEUES)];
        const uint32_t what = random_below(&random, 16);
        if (a->p != NULL && what == 0)
            give_back(a);
        else if (a->p == NULL)
            take(a, on, 1 + random_below(&random, (uint32_t)most), (unsigned char)item);
        else if (what == 1)
            expect_content(a, on, room);
        else if (what < 5)
            put_some(a, on, &random);
        else if (b->p != NULL && a != b)
            copy_some(a, b, on, &random);
    }
    for (int i = 0; i < N_ARRAYS; i++) {
        if (all[i].p != NULL) expect_content(&all[i], q[i % N_QUEUES], room);
        give_back(&all[i]);
        free(all[i].model);
    }
    for (int i = 0; i < N_QUEUES; i++) ps_queue_destroy(q[i]);
    const ps_gpu_stats s = ps_gpu_get_stats(ps_backend_space(f.backend)->driver);
    print_message("%d items: %lld MB of pages, %lld maps, %lld unmaps, %lld MB page-locked\n", n_items,
                  (long long)(s.page_bytes_made / 1000000), (long long)s.n_maps, (long long)s.n_unmaps,
                  (long long)(s.pinned_bytes / 1000000));
    assert_true(s.page_bytes_made <= PAGES_MOST * N_ARRAYS * f.page);
    ps_region_destroy(region);
    free(room);
    end(&f);
}

/* ---- waits for host code ---- */

/* What the host writes before it says so is what is copied, on queues that were given the copy long before. */
static void test_waits_for_the_host(void **state)
{
    (void)state;
    enum { N = 2, BYTES = 100000 };
    fixture f = begin(8, 64 * PS_MIB);
    ps_queue *host_code, *q[N];
    unsigned char *room = malloc(BYTES);
    void *from, *to[N];
    assert_ok(ps_host_queue_create("host code", &host_code));
    assert_ok(ps_device_alloc(f.host, BYTES, &from));
    assert_ok(ps_event_wait(ps_device_gave_after(f.host)));
    for (int i = 0; i < N; i++) {
        assert_ok(ps_queue_create(f.device, "work", PS_QUEUE_COPY, &q[i]));
        assert_ok(ps_device_alloc(f.device, BYTES, &to[i]));
        assert_ok(ps_queue_wait(q[i], ps_device_gave_after(f.device)));
    }
    for (int round = 1; round <= 20; round++) {
        const ps_event e = ps_host_queue_begin(host_code);
        for (int i = 0; i < N; i++) {
            assert_ok(ps_queue_wait(q[i], e));
            assert_ok(ps_queue_copy(q[i], to[i], from, BYTES));
            assert_false(ps_event_is_done(ps_queue_event(q[i])));
        }
        memset(from, round, BYTES);
        ps_host_queue_end(host_code, e.ticket, PS_OK);
        for (int i = 0; i < N; i++) {
            assert_ok(ps_queue_get(q[i], room, to[i], BYTES));
            for (int k = 0; k < BYTES; k++) assert_int_equal(room[k], round);
        }
    }
    for (int i = 0; i < N; i++) {
        ps_queue_destroy(q[i]);
        ps_device_free(f.device, to[i], BYTES, NULL);
    }
    ps_device_free(f.host, from, BYTES, NULL);
    ps_queue_destroy(host_code);
    free(room);
    end(&f);
}

/* ---- steps that repeat ---- */

/* The same blocks and pieces wanted again and again: after the first rounds nothing is mapped or page-locked any more. */
static void test_what_repeats_is_there_already(void **state)
{
    (void)state;
    enum { ROUNDS = 12, SETTLED = 6 };
    fixture f = begin(16, 64 * PS_MIB);
    ps_queue *q;
    ps_region *r;
    ps_gpu_stats settled = {0};
    assert_ok(ps_queue_create(f.device, "work", PS_QUEUE_COPY, &q));
    assert_ok(ps_region_create(f.device, 8 * f.page, &r));
    for (int round = 0; round < ROUNDS; round++) {
        void *d, *h;
        if (round == SETTLED) settled = ps_gpu_get_stats(ps_backend_space(f.backend)->driver);
        assert_ok(ps_device_alloc(f.host, 3 * f.page, &h));
        assert_ok(ps_queue_wait(q, ps_device_gave_after(f.host)));
        assert_ok(ps_device_alloc(f.device, 3 * f.page, &d));
        assert_ok(ps_queue_wait(q, ps_device_gave_after(f.device)));
        for (int i = 0; i < 4; i++) {
            assert_ok(ps_region_commit(r, 2 * i * f.page, 2 * f.page));
            assert_ok(ps_queue_wait(q, ps_device_gave_after(f.device)));
        }
        assert_ok(ps_queue_copy(q, d, h, 3 * f.page));
        assert_ok(ps_queue_copy(q, ps_region_base(r), d, 3 * f.page));
        const ps_events used = {.n = 1, .event = {ps_queue_event(q)}};
        for (int i = 0; i < 4; i++) ps_region_decommit(r, 2 * i * f.page, 2 * f.page, &used);
        ps_device_free(f.device, d, 3 * f.page, &used);
        ps_device_free(f.host, h, 3 * f.page, &used);
    }
    const ps_gpu_stats s = ps_gpu_get_stats(ps_backend_space(f.backend)->driver);
    assert_int_equal(s.n_maps, settled.n_maps);
    assert_int_equal(s.n_pins, settled.n_pins);
    ps_queue_destroy(q);
    ps_region_destroy(r);
    end(&f);
}

/* ---- a device that is lost ---- */

/* A kernel that writes where nothing is: a wait reports what happened, and so does every later call; what was opened can
 * be closed. The last test: the driver's context is of no use after it. */
/* One rank by itself has to send nothing; but it meets itself, issues groups, and ends in order, or is aborted. */
static void test_nccl_of_one_rank(void **state)
{
    (void)state;
    enum { N = 1001 };
    const ps_nccl *library;
    float values[N], got[N];
    if (ps_cuda_get_parts()->nccl(&library) != PS_OK && mock_gpu_is_hardware()) {
        print_message("%s\n", ps_last_error());
        skip();
    }
    for (int i = 0; i < N; i++) values[i] = (float)i;
    for (int is_aborted = 0; is_aborted < 2; is_aborted++) {
        fixture f = begin(8, 64 * PS_MIB);
        ps_comm *comm = NULL;
        ps_queue *q, *collective;
        ps_collectives *x;
        ps_event done;
        void *p;
        assert_ok(ps_cuda_get_parts()->nccl(&library));
        assert_ok(ps_comm_open_threads(&(ps_comm_options){.timeout_s = 20, .staging_bytes = 65536}, 1, &comm));
        assert_ok(ps_device_alloc(f.device, f.page, &p));
        assert_ok(ps_queue_create(f.device, "work", PS_QUEUE_COMPUTE, &q));
        assert_ok(ps_queue_create(f.device, "exchange", PS_QUEUE_COLLECTIVES, &collective));
        assert_ok(ps_nccl_collectives_open(&(ps_nccl_options){.library = library,
                                                              .backend = f.backend,
                                                              .comm = comm,
                                                              .queue = collective,
                                                              .staging = p,
                                                              .staging_bytes = 4096},
                                           &x));
        ps_comm_set_collectives(comm, x);
        assert_ok(ps_queue_wait(q, ps_device_gave_after(f.device)));
        assert_ok(ps_queue_put(q, p, values, sizeof values));
        const ps_events after = {.n = 1, .event = {ps_queue_event(q)}};
        const ps_comm_part part = {.payload = p, .n = N, .owner = 0};
        const ps_transfer t = {
            .parts = &part, .n_parts = 1, .dtype = PS_DTYPE_F32, .on_device = true, .what = "a test", .after = &after};
        assert_ok(ps_collectives_gather(x, &t, &done));
        assert_ok(ps_collectives_reduce(x, &t, &done));
        assert_ok(ps_collectives_all_reduce(x, &t, &done));
        assert_ok(ps_queue_wait(q, done));
        assert_ok(ps_queue_get(q, got, p, sizeof got));
        assert_memory_equal(got, values, sizeof values);
        if (is_aborted) {
            ps_comm_fail(comm, "a test wants it");
            assert_fails(ps_collectives_gather(x, &t, &done), PS_ECOMM, "a test wants it");
        }
        ps_comm_set_collectives(comm, NULL);
        ps_queue_destroy(collective);
        ps_queue_destroy(q);
        ps_device_free(f.device, p, f.page, NULL);
        ps_comm_close(comm);
        end(&f);
    }
}

static void test_lost(void **state)
{
    (void)state;
    if (!mock_gpu_is_hardware()) skip(); /* test/cuda has it: there kernels run in this process */
    fixture f = begin(8, 64 * PS_MIB);
    ps_queue *q;
    void *p;
    assert_ok(ps_queue_create(f.device, "work", PS_QUEUE_COMPUTE, &q));
    assert_ok(ps_device_alloc(f.device, f.page, &p));
    assert_ok(ps_queue_wait(q, ps_device_gave_after(f.device)));
    char *nowhere = (char *)(uintptr_t)0x10000;
    const ps_add_args a = {.y = nowhere, .a = p, .b = p, .n = 1000, .dtype = PS_DTYPE_F32};
    ps_status st = ps_run_add(f.backend, q, &a, 0);
    if (st == PS_OK) st = ps_event_wait(ps_queue_event(q));
    assert_fails(st, PS_EDEVICE, "is lost");
    print_message("%s\n", ps_last_error());
    assert_fails(ps_queue_fill(q, p, 1, f.page), PS_EDEVICE, "is lost");
    assert_fails(ps_event_wait(ps_queue_event(q)), PS_EDEVICE, "is lost");
    ps_queue_destroy(q);
    ps_device_free(f.device, p, f.page, NULL);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order_of_work),
        cmocka_unit_test(test_waits_for_the_host),
        cmocka_unit_test(test_what_repeats_is_there_already),
        cmocka_unit_test(test_nccl_of_one_rank),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
