/* test_cuda_gpu.c - the opened GPU over the fake driver: which one, its memory, and what goes wrong. Its host tier:
 * test_cuda_pinned.c; its queues: test_cuda_queue.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/rig.h"

/* ---- opening ---- */

static void opens_not(fake_options o, const char *function, ps_cu_result r, ps_status st, const char *text)
{
    ps_gpu *g;
    const ps_cuda_driver *d = fake_driver(&o);
    if (function != NULL) fake_fail(function, 0, r);
    assert_fails(ps_gpu_open(d, &(ps_gpu_options){.ordinal = 0}, &g), st, text);
    assert_null(g);
    assert_null(strchr(ps_last_error(), '\n'));
    assert_true(fake_driver_end());
}

static void test_gpus_that_cannot_be_used(void **state)
{
    (void)state;
    ps_gpu *g;
    opens_not((fake_options){.mode = PS_CU_MODE_PROHIBITED}, NULL, 0, PS_ENOSYS, "nvidia-smi -c DEFAULT");
    opens_not((fake_options){.capability = 75}, NULL, 0, PS_ENOSYS, "compute capability is 7.5; 8.0 (Ampere)");
    opens_not((fake_options){.seed = 1}, "context_retain", PS_CU_DEVICE_UNAVAILABLE, PS_ENOSYS, "exclusively");
    opens_not((fake_options){.mode = PS_CU_MODE_EXCLUSIVE}, "context_retain", PS_CU_INVALID_DEVICE, PS_ENOSYS,
              "exclusively");
    opens_not((fake_options){.seed = 1}, "context_retain", PS_CU_OUT_OF_MEMORY, PS_ENOMEM_DEV, "other processes");
    setenv("CUDA_VISIBLE_DEVICES", "3,4", 1);
    const ps_cuda_driver *d = fake_driver(&(fake_options){.n_devices = 2});
    assert_fails(ps_gpu_open(d, &(ps_gpu_options){.ordinal = 2}, &g), PS_ENOSYS,
                 "no GPU 2: 2 are visible (CUDA_VISIBLE_DEVICES=3,4)");
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_fails(ps_gpu_open(d, &(ps_gpu_options){.ordinal = -1}, &g), PS_ENOSYS, "is not set");
    assert_int_equal(ps_gpu_open(d, &(ps_gpu_options){.ordinal = 1}, &g), PS_OK);
    ps_gpu_info info;
    assert_ok(ps_gpu_get_info(g, &info));
    assert_string_equal(info.name, "Fake 1");
    assert_int_equal(info.capability, 90);
    ps_gpu_close(g);
    assert_true(fake_driver_end());
}

/* Whichever call of the driver fails while it is opened: an error, and nothing is left. */
static void test_each_call_fails_while_opening(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define XX(is_needed, name, symbol, params) #name,
#include "device/cuda/driver.def"
#undef XX
    };
    int n_struck = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(functions); i++) {
        const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = i});
        ps_gpu *g;
        fake_fail(functions[i], 0, PS_CU_NOT_SUPPORTED);
        const ps_status st = ps_gpu_open(d, &(ps_gpu_options){.ordinal = 0}, &g);
        n_struck += st != PS_OK;
        if (st == PS_OK) ps_gpu_close(g);
        if (!fake_driver_end()) fail_msg("%s leaves something", functions[i]);
    }
    assert_true(n_struck >= 10);
}

static void test_budget_auto(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.total_bytes = 2 * PS_GIB});
    int64_t before, after;
    assert_ok(ps_gpu_usable_bytes(r.gpu, &before));
    assert_true(before > PS_GIB && before < 2 * PS_GIB);
    void *p = block_new(r.device, PS_MIB);
    assert_ok(ps_gpu_usable_bytes(r.gpu, &after));
    assert_int_equal(after, before); /* our own pages are not in the way */
    fake_take_memory(PS_GIB);
    assert_ok(ps_gpu_usable_bytes(r.gpu, &after));
    assert_int_equal(after, before - PS_GIB);
    ps_device_free(r.device, p, PS_MIB, NULL);
    rig_close(&r);
}

/* ---- device memory ---- */

static uint8_t first_byte(const rig *r, ps_queue *q, const void *p)
{
    uint8_t b = 0;
    assert_ok(ps_queue_wait(q, ps_device_gave_after(r->device)));
    assert_ok(ps_queue_get(q, &b, p, 1));
    return b;
}

/* Pages serve blocks of any size without being freed, and no more are made than the budget has. */
static void test_pages_serve_all_sizes(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 2});
    ps_queue *q = queue_new(&r);
    for (int round = 0; round < 40; round++) {
        const int64_t bytes = (1 + round % 6) * PS_MIB + round * 1000;
        char *a = block_new(r.device, bytes), *b = block_new(r.device, 8 * PS_MIB);
        assert_ok(ps_queue_wait(q, ps_device_gave_after(r.device)));
        assert_ok(ps_queue_fill(q, a, 1, bytes));
        assert_ok(ps_queue_fill(q, b, 2, 8 * PS_MIB));
        assert_ok(ps_queue_copy(q, b + PS_MIB, a, bytes));
        const ps_events used = {.n = 1, .event = {ps_queue_event(q)}};
        ps_device_free(r.device, a, bytes, &used);
        assert_int_equal(first_byte(&r, q, b + PS_MIB + bytes - 1), 1);
        ps_device_free(r.device, b, 8 * PS_MIB, &used);
    }
    const ps_gpu_stats s = ps_gpu_get_stats(r.gpu);
    assert_true(s.page_bytes_made <= DEVICE_BYTES);
    assert_int_equal(s.page_bytes_made, fake_calls("page_create") * PAGE);
    ps_queue_destroy(q);
    rig_close(&r);
}

/* A page is passed on while its last user still works: no thread waits, and the device waits by itself. */
static void test_memory_is_handed_on_without_waiting(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        rig r = rig_open((fake_options){.seed = seed});
        ps_queue *q[2] = {queue_new(&r), queue_new(&r)};
        char *keep = block_new(r.device, DEVICE_BYTES - 4 * PS_MIB);
        const int64_t n_before = ps_blocked_so_far().n[PS_BLOCK_PAGE];
        for (int i = 0; i < 60; i++) {
            const int64_t bytes = (i % 3 == 0 ? 3 : 4) * PS_MIB;
            char *p = block_new(r.device, bytes);
            assert_ok(ps_queue_wait(q[i % 2], ps_device_gave_after(r.device)));
            assert_ok(ps_queue_fill(q[i % 2], p, (uint8_t)i, bytes));
            assert_ok(ps_queue_copy(q[i % 2], keep + i, p + bytes - 1, 1));
            ps_device_free(r.device, p, bytes, &(ps_events){.n = 1, .event = {ps_queue_event(q[i % 2])}});
        }
        assert_int_equal(ps_blocked_so_far().n[PS_BLOCK_PAGE], n_before);
        finish(q[0]);
        finish(q[1]);
        uint8_t got[60];
        assert_ok(ps_queue_get(q[0], got, keep, sizeof got));
        for (int i = 0; i < 60; i++) assert_int_equal(got[i], i);
        ps_device_free(r.device, keep, DEVICE_BYTES - 4 * PS_MIB, NULL);
        ps_queue_destroy(q[0]);
        ps_queue_destroy(q[1]);
        rig_close(&r);
    }
}

/* Steady steps map nothing: a region's pages are still where they were. */
static void test_regions_find_their_pages(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 3});
    ps_queue *q = queue_new(&r);
    ps_region *region;
    assert_ok(ps_region_create(r.device, 1000 * PS_MIB, &region)); /* more than there is memory */
    char *base = ps_region_base(region);
    ps_gpu_stats s = {0};
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < 8; i++) {
            assert_ok(ps_region_commit(region, i * PS_MIB, PS_MIB));
            assert_ok(ps_queue_wait(q, ps_device_gave_after(r.device)));
            assert_ok(ps_queue_fill(q, base + i * PS_MIB, (uint8_t)(step * 8 + i), PS_MIB));
        }
        assert_int_equal(first_byte(&r, q, base + 8 * PS_MIB - 1), step * 8 + 7);
        for (int i = 7; i >= 0; i--)
            ps_region_decommit(region, i * PS_MIB, PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
        if (step == 0) s = ps_gpu_get_stats(r.gpu);
    }
    assert_int_equal(ps_gpu_get_stats(r.gpu).n_maps, s.n_maps);
    /* and give them up when another block needs them */
    char *all = block_new(r.device, DEVICE_BYTES);
    assert_ok(ps_queue_wait(q, ps_device_gave_after(r.device)));
    assert_ok(ps_queue_fill(q, all, 77, DEVICE_BYTES));
    assert_fails(ps_region_commit(region, 0, PAGE), PS_ENOMEM_DEV, "device memory: 65.5 kB needed");
    ps_device_free(r.device, all, DEVICE_BYTES, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    assert_ok(ps_region_commit(region, PS_MIB, 3 * PS_MIB));
    assert_ok(ps_queue_wait(q, ps_device_gave_after(r.device)));
    assert_ok(ps_queue_fill(q, base + PS_MIB, 5, 3 * PS_MIB));
    assert_int_equal(first_byte(&r, q, base + 4 * PS_MIB - 1), 5);
    ps_region_destroy(region);
    ps_queue_destroy(q);
    rig_close(&r);
}

static void test_another_process_has_the_memory(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.total_bytes = 64 * PS_MIB});
    void *a = block_new(r.device, 4 * PS_MIB), *b;
    fake_take_memory(56 * PS_MIB);
    assert_fails(ps_device_alloc(r.device, 8 * PS_MIB, &b), PS_ENOMEM_DEV,
                 "8 of its 64 MiB are used by this process, 0 free");
    assert_non_null(strstr(ps_last_error(), "other processes"));
    assert_ok(ps_device_alloc(r.device, 4 * PS_MIB, &b)); /* what was got of it is of use */
    ps_device_free(r.device, b, 4 * PS_MIB, NULL);
    fake_take_memory(-56 * PS_MIB);
    assert_ok(ps_device_alloc(r.device, 8 * PS_MIB, &b));
    ps_device_free(r.device, b, 8 * PS_MIB, NULL);
    ps_device_free(r.device, a, 4 * PS_MIB, NULL);
    rig_close(&r);
}

/* Each call of the driver fails once: an error, and everything continues. */
static void test_calls_of_memory_fail(void **state)
{
    (void)state;
    static const char *const functions[] = {"address_reserve", "page_create", "page_map", "page_access"};
    rig r = rig_open((fake_options){.seed = 4});
    for (size_t i = 0; i < PS_ARRAY_LEN(functions); i++) {
        void *p = NULL;
        ps_region *region;
        ps_device_set_keep(r.device, false);
        fake_fail(functions[i], 0, PS_CU_INVALID_VALUE);
        const int64_t bytes = (int64_t)(8 + i) * PS_MIB; /* pages that are not there yet */
        assert_fails(ps_device_alloc(r.device, bytes, &p), PS_EDEVICE, "cuda: ");
        assert_ok(ps_device_alloc(r.device, bytes, &p));
        ps_device_free(r.device, p, bytes, NULL);
        assert_ok(ps_region_create(r.device, bytes, &region));
        if (i >= 2) {
            fake_fail(functions[i], i == 2 ? 3 : 0, PS_CU_INVALID_VALUE);
            assert_fails(ps_region_commit(region, 0, bytes), PS_EDEVICE, "cuda: ");
        }
        assert_ok(ps_region_commit(region, 0, bytes));
        ps_region_destroy(region);
        assert_int_equal(ps_device_get_stats(r.device).used_bytes, 0);
    }
    rig_close(&r);
}

/* A touch by the host ends the process, as it would with memory of a GPU. */
static void test_host_cannot_touch(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 5});
    volatile char *p = block_new(r.device, PAGE);
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        *p = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_true(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    ps_device_free(r.device, (void *)(uintptr_t)p, PAGE, NULL);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_that_cannot_be_used),
        cmocka_unit_test(test_each_call_fails_while_opening),
        cmocka_unit_test(test_budget_auto),
        cmocka_unit_test(test_pages_serve_all_sizes),
        cmocka_unit_test(test_memory_is_handed_on_without_waiting),
        cmocka_unit_test(test_regions_find_their_pages),
        cmocka_unit_test(test_another_process_has_the_memory),
        cmocka_unit_test(test_calls_of_memory_fail),
        cmocka_unit_test(test_host_cannot_touch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
