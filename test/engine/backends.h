/* backends.h - what the tests of the engine compute on. The Makefile builds each program of ASYNC_TESTS a second time,
 * as test/async/NAME with TEST_OVER_ASYNC: the same tests with train.backend = cuda, on the fake driver with the
 * processor's kernels (cuda/fake_cpu.h), which finds each miss of order or touch of foreign memory, once for each seed.
 * Those of GPU_TESTS are there once more, as test/gpu/NAME with TEST_OVER_GPU: with the kernels for GPUs, on the emulator.
 * Configurations differ in what over_backend() makes of them; what a test compares with comes from on_cpu().
 *
 *   PS_TEST_SEEDS  how many seeds, from 1 on; 1, in make check-long 20
 *   PS_TEST_LONG   set: under sanitizers and as on another processor, each variation is tried
 *   PS_TEST_GPU    "hardware": with TEST_OVER_GPU, the GPU of this machine in place of the fake driver */
#ifndef TEST_BACKENDS_H
#define TEST_BACKENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "config/config.h"
#include "patrickstar.h"

#ifdef TEST_OVER_GPU
#include "gpu/mock_gpu.h"
enum { OVER_DISCRETE = 1, OVER_GPU = 1 };
#elif defined TEST_OVER_ASYNC
#include "cuda/fake_cpu.h"
enum { OVER_DISCRETE = 1, OVER_GPU = 0 };

#else
enum { OVER_DISCRETE = 0, OVER_GPU = 0 };
#endif

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { UNDER_SANITIZER = 1 };
#else
enum { UNDER_SANITIZER = 0 };
#endif

enum {
    N_SHARES = 3,
    ASYNC_PAGE_BYTES = 4096,        /* so that budgets of tiny models are counted as on RAM */
    ASYNC_DISK_HOST_BYTES = 300000, /* host memory for what goes between disk and device */
};

/* Of the tests that run now. */
static struct {
    int64_t seed, n_asked;
    bool checks_order;
    const struct ps_cuda_driver *driver; /* over a GPU */
} over = {.seed = 1, .checks_order = true};

/* Must the next of a list of variations be tried? With the fake GPU each seed has its share of the list, one in n; under
 * sanitizers and as on another processor, where all was tried without, one in three. */
static inline bool is_my_share_of(int64_t n)
{
    const bool has_share = (UNDER_SANITIZER || getenv("PS_TEST_CPU") != NULL) && getenv("PS_TEST_LONG") == NULL;
    if (!OVER_DISCRETE && !has_share) return true;
    if (OVER_DISCRETE) return over.n_asked++ % n == over.seed % n;
    /* lists of n variations, too, have another of them tried each time */
    const int64_t asked = over.n_asked++;
    return (asked + asked / N_SHARES) % N_SHARES == over.seed % N_SHARES;
}

static inline bool is_my_share(void)
{
    return is_my_share_of(N_SHARES);
}

static inline void over_set(ps_config *c, const char *key, const char *value)
{
    if (ps_config_set(c, key, value) != PS_OK) fail_msg("%s", ps_last_error());
}

static inline void over_set_number(ps_config *c, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    over_set(c, key, text);
}

/* What the fake GPU has on the host where the cpu needs no host tier: what goes to and from the disk, and into
 * checkpoints. */
static inline int64_t over_host_bytes(const ps_options *o)
{
    int64_t bytes = o->memory_disk > 0 ? ps_max_i64(o->memory_host, ASYNC_DISK_HOST_BYTES) : o->memory_host;
    if (o->memory_host == 0 && o->memory_save_buffer > 0 && o->train_save_interval > 0) bytes += o->memory_save_buffer;
    return bytes;
}

static inline void over_cuda(ps_config *c)
{
#ifdef TEST_OVER_GPU
    over_set(c, "train.backend", "cuda");
    mock_gpu_check_order(over.checks_order);
#elif defined TEST_OVER_ASYNC
    over_set(c, "train.backend", "cuda");
    fake_cpu_check_order(over.checks_order);
#else
    (void)c;
#endif
}

static inline void over_backend(ps_config *c)
{
    const ps_options *o = ps_config_options(c);
    if (o->train_backend != PS_CONFIG_BACKEND_AUTO) return;
    if (!OVER_DISCRETE) {
        over_set(c, "train.backend", "cpu");
        return;
    }
    over_cuda(c);
    if (o->memory_host != PS_BYTES_AUTO && over_host_bytes(o) > o->memory_host)
        over_set_number(c, "memory.host", over_host_bytes(o));
}

/* The same configuration on the cpu; over CUDA, whose bits are its own, it stays there. */
static inline ps_config *on_cpu(ps_config *c)
{
    if (!OVER_GPU && ps_config_options(c)->train_backend == PS_CONFIG_BACKEND_CUDA) over_set(c, "train.backend", "cpu");
    return c;
}

/* In place of cmocka_run_group_tests. */
#define RUN_ON_BACKENDS(tests) RUN_ON_BACKENDS_IN(tests, NULL, NULL)
#define RUN_ON_BACKENDS_IN(tests, set_up, tear_down) run_on_backends(tests, PS_ARRAY_LEN(tests), set_up, tear_down)

static inline int run_on_backends(const struct CMUnitTest *tests, size_t n, CMFixtureFunction set_up,
                                  CMFixtureFunction tear_down)
{
    if (!OVER_DISCRETE) return _cmocka_run_group_tests("tests", tests, n, set_up, tear_down);
    const char *seeds = getenv("PS_TEST_SEEDS");
    const int64_t last = seeds != NULL ? strtoll(seeds, NULL, 10) : 1;
    int n_failed = 0;
    for (over.seed = 1; over.seed <= last; over.seed++) {
        printf("seed %lld\n", (long long)over.seed);
        over.n_asked = 0;
#ifdef TEST_OVER_GPU
        mock_gpu_begin(&(fake_options){.seed = (uint64_t)over.seed,
                                       .page_bytes = ASYNC_PAGE_BYTES,
                                       .total_bytes = 4 * PS_GIB}); /* of which each rank leaves a part to libraries */
        over.driver = mock_gpu.driver;
#elif defined TEST_OVER_ASYNC
        over.driver = fake_cpu_begin(
            &(fake_options){.seed = (uint64_t)over.seed, .page_bytes = ASYNC_PAGE_BYTES, .total_bytes = 4 * PS_GIB});
#endif
        n_failed += _cmocka_run_group_tests("tests", tests, n, set_up, tear_down);
#ifdef TEST_OVER_GPU
        n_failed += !mock_gpu_end();
#elif defined TEST_OVER_ASYNC
        n_failed += !fake_cpu_end();
#endif
    }
    return n_failed;
}

#endif
