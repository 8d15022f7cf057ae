/* test_cuda_faults.c - every call of the driver fails at its n-th time, and the context breaks at its n-th item: one
 * clear error, nothing is left, and a GPU can be opened anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "assert_status.h"
#include "cuda/fake_driver.h"
#include "device/cuda/gpu.h"

#define BUDGET (8 * PS_MIB)
#define PIECE (256 * PS_KIB)
enum { ROUNDS = 2, PIECES = 2 };

typedef struct world {
    ps_gpu *gpu;
    ps_device *device, *host;
    ps_queue *up, *down, *updates;
    ps_region *there, *here;
    void *block;
} world;

static ps_status open_world(const ps_cuda_driver *d, world *w)
{
    PS_TRY(ps_gpu_open(d, &(ps_gpu_options){.poisons = true, .stream_commands = fake_depth()}, &w->gpu));
    const ps_space *s = ps_gpu_space(w->gpu);
    int64_t usable;
    PS_TRY(ps_gpu_usable_bytes(w->gpu, &usable));
    PS_TRY(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", BUDGET, &w->device));
    PS_TRY(ps_device_create_on(s->host, s->driver, s->page_bytes, "host", BUDGET, &w->host));
    PS_TRY(ps_queue_create(w->device, "up", PS_QUEUE_COPY, &w->up));
    PS_TRY(ps_queue_create(w->device, "down", PS_QUEUE_COPY, &w->down));
    PS_TRY(ps_queue_create(w->host, "updates", PS_QUEUE_COMPUTE, &w->updates));
    PS_TRY(ps_region_create(w->device, PIECES * PIECE, &w->there));
    PS_TRY(ps_region_create(w->host, PIECES * PIECE, &w->here));
    return PS_OK;
}

static void close_world(world *w)
{
    ps_queue_destroy(w->up);
    ps_queue_destroy(w->down);
    ps_queue_destroy(w->updates);
    if (w->device != NULL) ps_device_free(w->device, w->block, 3 * PIECE, NULL);
    ps_region_destroy(w->there);
    ps_region_destroy(w->here);
    ps_device_destroy(w->host);
    ps_device_destroy(w->device);
    ps_gpu_close(w->gpu);
}

static ps_status update(void *self, const void *args)
{
    char *p;
    (void)self;
    memcpy(&p, args, sizeof p);
    for (int64_t i = 0; i < PIECE; i++) p[i]++;
    return PS_OK;
}

/* A piece goes down, is updated on the host, and goes up again. */
static ps_status move_piece(world *w, int64_t offset)
{
    char *const there = (char *)ps_region_base(w->there) + offset, *const here =
                                                                       (char *)ps_region_base(w->here) + offset;
    PS_TRY(ps_region_commit(w->there, offset, PIECE));
    ps_status st = ps_queue_wait(w->down, ps_device_gave_after(w->device));
    if (st == PS_OK) st = ps_queue_fill(w->down, there, 7, PIECE);
    if (st == PS_OK) st = ps_region_commit(w->here, offset, PIECE);
    const bool has_here = st == PS_OK;
    if (st == PS_OK) st = ps_queue_wait(w->down, ps_device_gave_after(w->host));
    if (st == PS_OK) st = ps_queue_copy(w->down, here, there, PIECE);
    if (st == PS_OK) st = ps_queue_wait(w->updates, ps_queue_event(w->down));
    if (st == PS_OK)
        st = ps_queue_call(w->updates,
                           &(ps_call){.name = "update", .run = update, .args = &here, .args_bytes = sizeof(char *)});
    if (st == PS_OK) st = ps_queue_wait(w->up, ps_queue_event(w->updates));
    if (st == PS_OK) st = ps_queue_copy(w->up, there, here, PIECE);
    if (st == PS_OK) st = ps_event_wait(ps_queue_event(w->up));
    uint8_t got = 8;
    if (st == PS_OK) st = ps_queue_get(w->up, &got, there + PIECE - 1, 1);
    if (st == PS_OK) assert_int_equal(got, 8);
    const ps_events after = {.n = 2, .event = {ps_queue_event(w->up), ps_queue_event(w->down)}};
    if (has_here) ps_region_decommit(w->here, offset, PIECE, &after);
    ps_region_decommit(w->there, offset, PIECE, &after);
    return st;
}

static ps_status work(world *w)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PIECES; i++) PS_TRY(move_piece(w, i * PIECE));
        PS_TRY(ps_device_alloc(w->device, 3 * PIECE, &w->block));
        PS_TRY(ps_queue_wait(w->up, ps_device_gave_after(w->device)));
        PS_TRY(ps_queue_put(w->up, w->block, "put", 4));
        char text[4] = "";
        PS_TRY(ps_queue_get(w->up, text, w->block, 4));
        assert_string_equal(text, "put");
        ps_device_free(w->device, w->block, 3 * PIECE, NULL);
        w->block = NULL;
    }
    return PS_OK;
}

static ps_status live(const ps_cuda_driver *d)
{
    world w = {0};
    ps_status st = open_world(d, &w);
    if (st == PS_OK) st = work(&w);
    char why[512];
    snprintf(why, sizeof why, "%s", st != PS_OK ? ps_last_error() : "");
    close_world(&w);
    return st != PS_OK ? PS_FAIL(st, "%s", why) : PS_OK;
}

static const fake_options options = {.seed = 3, .page_bytes = 64 * PS_KIB, .total_bytes = 512 * PS_MIB};

static void check(ps_status st, const char *what, int nth, ps_cu_result r)
{
    const bool is_clean = fake_driver_end();
    if (!is_clean) fail_msg("%s, call %d, result %d leaves something", what, nth, r);
    if (st == PS_OK) return;
    const char *why = ps_last_error();
    if (*why == '\0' || strchr(why, '\n') != NULL) fail_msg("%s, call %d, result %d: '%s'", what, nth, r, why);
    if (st != PS_EDEVICE && st != PS_ENOMEM_DEV && st != PS_ENOMEM_HOST && st != PS_ENOSYS)
        fail_msg("%s, call %d, result %d: status %d, %s", what, nth, r, st, why);
    if (strstr(why, "GPU") == NULL && strstr(why, "cuda") == NULL && strstr(why, "driver") == NULL)
        fail_msg("%s, call %d, result %d: of whom? '%s'", what, nth, r, why);
}

/* Giving back fails only when all is lost. */
static bool gives_back(const char *function)
{
    return strcmp(function, "page_unmap") == 0 || strcmp(function, "host_unregister") == 0;
}

static void test_each_call_fails_at_each_time(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define XX(is_needed, name, symbol, params) #name,
#include "device/cuda/driver.def"
#undef XX
    };
    static const ps_cu_result results[] = {PS_CU_INVALID_VALUE, PS_CU_OUT_OF_MEMORY, PS_CU_ECC_UNCORRECTABLE};
    int n_calls[PS_ARRAY_LEN(functions)], n_struck = 0, n_failed = 0;
    assert_ok(live(fake_driver(&options)));
    for (size_t f = 0; f < PS_ARRAY_LEN(functions); f++) n_calls[f] = fake_calls(functions[f]);
    assert_true(fake_driver_end());
    for (size_t f = 0; f < PS_ARRAY_LEN(functions); f++)
        for (size_t r = 0; r < PS_ARRAY_LEN(results); r++)
            for (int nth = 0; nth < n_calls[f]; nth += 1 + nth / 8) {
                if (gives_back(functions[f]) && !ps_cu_is_fatal(results[r])) break;
                const ps_cuda_driver *d = fake_driver(&options);
                fake_fail(functions[f], nth, results[r]);
                const ps_status st = live(d);
                n_struck += fake_calls(functions[f]) > nth;
                n_failed += st != PS_OK;
                check(st, functions[f], nth, results[r]);
            }
    assert_true(n_struck > 200);
    assert_true(n_failed > n_struck / 2);
}

/* An error of the device itself, seen by whatever comes next. */
static void test_the_context_breaks_at_each_item(void **state)
{
    (void)state;
    int n = 0;
    for (bool is_over = false; !is_over; n++) {
        const ps_cuda_driver *d = fake_driver(&options);
        fake_break(n, PS_CU_ECC_UNCORRECTABLE);
        const ps_status st = live(d);
        is_over = st == PS_OK;
        check(st, "an item", n, PS_CU_ECC_UNCORRECTABLE);
        if (!is_over && strstr(ps_last_error(), "is lost") == NULL)
            assert_non_null(strstr(ps_last_error(), "cannot be used"));
    }
    assert_true(n > 20);
    assert_ok(live(fake_driver(&options)));
    assert_true(fake_driver_end());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_fails_at_each_time),
        cmocka_unit_test(test_the_context_breaks_at_each_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
