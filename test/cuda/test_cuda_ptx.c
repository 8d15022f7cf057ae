/* test_cuda_ptx.c - faults in kernels are found: ptx_faults.ptx has small kernels with one each, and the same without, which
 * pass. Each runs in a process of its own, which the emulator ends with a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/emulate.h"
#include "cuda/fake_driver.h"
#include "cuda/ptx_args.h"
#include "own_process.h"

enum { THREADS = 128, TILES = 4, N = THREADS * TILES, N_SEEDS = 8 };

#define XX(name) extern const emu_kernel fault_##name##_kernel, sound_##name##_kernel
XX(barrier);
XX(warp_barrier);
XX(overwrite);
XX(alignment);
XX(bound);
XX(mask);
#undef XX

/* ---- a process of its own ---- */

typedef struct trial {
    const emu_kernel *kernel;
    const char *copies; /* PS_TEST_COPIES */
    const char *races;  /* PS_TEST_RACES */
    unsigned blocks;
    int64_t n;
    float (*want)(int i, int64_t n); /* element i of y */
} trial;

static _Alignas(16) float x[N], y[N];

static bool find_arrays(uint64_t address, uint64_t *begin, uint64_t *end)
{
    float *const arrays[] = {x, y};
    for (int i = 0; i < 2; i++) {
        *begin = (uint64_t)(uintptr_t)arrays[i], *end = *begin + sizeof x;
        if (address >= *begin && address < *end) return true;
    }
    return false;
}

/* Another number for each i and seed, exact in sums. */
static void fill(unsigned seed)
{
    for (int i = 0; i < N; i++) x[i] = (float)(i + 1000 * (int)seed), y[i] = -1.0f;
}

/* With several seeds, so in several orders of warps. */
static void attempt(const void *user)
{
    const trial *t = user;
    setenv("PS_TEST_COPIES", t->copies, 1);
    setenv("PS_TEST_RACES", t->races, 1);
    emulate_over(find_arrays);
    for (unsigned seed = 1; seed <= N_SEEDS; seed++) {
        const ps_ptx_args args = {.y = y, .x = x, .n = t->n};
        fill(seed);
        emulate_kernel(t->kernel, t->blocks, 0, &args, seed);
        for (int i = 0; i < THREADS; i++)
            if (y[i] != t->want(i, t->n)) {
                fprintf(stderr, "y[%d] is %g, not %g", i, (double)y[i], (double)t->want(i, t->n));
                _exit(1);
            }
    }
}

static void expect_sound(const trial *t)
{
    const child_outcome o = in_child(attempt, t);
    if (!WIFEXITED(o.status) || WEXITSTATUS(o.status) != 0) fail_msg("%s: %s", t->kernel->name, o.text);
}

static void expect_found_in(const child_outcome *o, const char *what, const char *words)
{
    if (WIFEXITED(o->status) && WEXITSTATUS(o->status) == 0) fail_msg("%s was not found", what);
    if (strstr(o->text, words) == NULL) fail_msg("%s: '%s' is not said: %s", what, words, o->text);
}

static void expect_found(const trial *t, const char *words)
{
    const child_outcome o = in_child(attempt, t);
    expect_found_in(&o, t->kernel->name, words);
}

/* ---- the faults ---- */

static float rotated(int i, int64_t n)
{
    (void)n;
    return x[(i + 1) % THREADS];
}

static float rotated_in_warp(int i, int64_t n)
{
    (void)n;
    return x[i / 32 * 32 + (i + 1) % 32];
}

static float summed(int i, int64_t n)
{
    (void)n;
    float sum = 0;
    for (int tile = 0; tile < TILES; tile++) sum += x[tile * THREADS + (i ^ 64)];
    return sum;
}

static float moved(int i, int64_t n)
{
    (void)n;
    return x[i + 4];
}

static float added(int i, int64_t n)
{
    return x[i] + (i < n - 1 ? x[i + 1] : 0.0f);
}

static float paired(int i, int64_t n)
{
    return x[i] + (i % 32 < n ? x[i ^ 1] : 0.0f);
}

static void test_missing_barrier(void **state)
{
    (void)state;
    trial t = {.kernel = &sound_barrier_kernel, .copies = "late", .races = "1", .blocks = 1, .want = rotated};
    expect_sound(&t);
    t.kernel = &fault_barrier_kernel;
    expect_found(&t, "a race: byte");
    t.races = "0"; /* some order of warps shows it, too */
    expect_found(&t, "y[");
}

static void test_missing_warp_barrier(void **state)
{
    (void)state;
    trial t = {
        .kernel = &sound_warp_barrier_kernel, .copies = "late", .races = "1", .blocks = 1, .want = rotated_in_warp};
    expect_sound(&t);
    t.kernel = &fault_warp_barrier_kernel;
    expect_found(&t, "a race: byte");
    t.races = "0";
    expect_found(&t, "y[");
}

/* A copy to a buffer that another warp still reads: right as long as copies arrive late. */
static void test_early_overwrite(void **state)
{
    (void)state;
    static const char *const times[] = {"early", "late", "drawn"};
    trial t = {.kernel = &sound_overwrite_kernel, .races = "1", .blocks = 1, .want = summed};
    for (int i = 0; i < 3; i++) {
        t.copies = times[i];
        expect_sound(&t);
    }
    t.kernel = &fault_overwrite_kernel;
    expect_found(&t, "a race: byte");
    t.races = "0";
    expect_found(&t, "y[");
    t.copies = "early";
    expect_found(&t, "y[");
    t.copies = "late";
    expect_sound(&t);
}

static void test_misaligned_vector(void **state)
{
    (void)state;
    trial t = {.kernel = &sound_alignment_kernel, .copies = "late", .races = "1", .blocks = 1, .want = moved};
    expect_sound(&t);
    t.kernel = &fault_alignment_kernel;
    expect_found(&t, "an access of 16 bytes at");
    expect_found(&t, "which is not aligned to them, test/cuda/ptx_faults.ptx:");
}

static void test_read_off_by_one(void **state)
{
    (void)state;
    trial t = {.kernel = &sound_bound_kernel, .copies = "late", .races = "1", .blocks = TILES, .n = N, .want = added};
    expect_sound(&t);
    t.kernel = &fault_bound_kernel;
    expect_found(&t, "4 bytes of global memory at");
}

static void test_wrong_lane_mask(void **state)
{
    (void)state;
    trial t = {.kernel = &sound_mask_kernel, .copies = "late", .races = "1", .blocks = 1, .n = 32, .want = paired};
    expect_sound(&t);
    t.n = 30; /* all lanes are named, two do not come */
    expect_found(&t, "30 lanes of its warp are at shfl.bfly");
    t.kernel = &fault_mask_kernel;
    t.n = 32; /* half of them are named, all come */
    expect_found(&t, "shfl.bfly of a part of a warp");
}

/* ---- freed memory, of the fake driver ---- */

static const struct use_order {
    bool is_freed_before;
} uses[] = {{false}, {true}};

static void run_on_driver(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                          const void *args)
{
    (void)user, (void)block;
    emulate_over(fake_find_memory);
    emulate_kernel(&sound_bound_kernel, grid[0], shared_bytes, args, 1);
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != PS_CU_SUCCESS) {                                                                                 \
            fprintf(stderr, "%s\n", #call);                                                                            \
            _exit(2);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void use_on_driver(const void *user)
{
    const struct use_order *u = user;
    const size_t bytes = 64 << 10;
    const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = 1});
    fake_kernel_add("add", run_on_driver, NULL, sizeof(ps_ptx_args));
    ps_cu_context context;
    ps_cu_address at;
    ps_cu_page page;
    ps_cu_stream stream;
    ps_cu_function function;
    MUST(d->context_retain(&context, 0));
    MUST(d->context_set(context));
    MUST(d->address_reserve(&at, bytes, 0, 0, 0));
    MUST(d->page_create(&page, bytes, &(ps_cu_page_properties){.type = PS_CU_PAGE_PINNED}, 0));
    MUST(d->page_map(at, bytes, 0, page, 0));
    MUST(d->page_access(at, bytes, &(ps_cu_access){.flags = PS_CU_ACCESS_READ_WRITE}, 1));
    MUST(d->stream_create(&stream, 0, 0));
    MUST(d->function_get(&function, NULL, "add"));
    ps_ptx_args args = {.y = (float *)(uintptr_t)at, .x = (const float *)(uintptr_t)(at + bytes / 2), .n = N};
    void *launch_args[] = {&args};
    /* unmapping waits for what was issued before it (fake_driver.h) */
    if (!u->is_freed_before) MUST(d->launch(function, TILES, 1, 1, THREADS, 1, 1, 0, stream, launch_args, NULL));
    MUST(d->page_unmap(at, bytes));
    if (u->is_freed_before) MUST(d->launch(function, TILES, 1, 1, THREADS, 1, 1, 0, stream, launch_args, NULL));
    MUST(d->stream_wait(stream));
}

static void test_freed_memory(void **state)
{
    (void)state;
    const child_outcome waited = in_child(use_on_driver, &uses[0]), did_not = in_child(use_on_driver, &uses[1]);
    if (!WIFEXITED(waited.status) || WEXITSTATUS(waited.status) != 0) fail_msg("%s", waited.text);
    expect_found_in(&did_not, "memory that is freed before a kernel uses it", "where no array is (any more)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_barrier), cmocka_unit_test(test_missing_warp_barrier),
        cmocka_unit_test(test_early_overwrite), cmocka_unit_test(test_misaligned_vector),
        cmocka_unit_test(test_read_off_by_one), cmocka_unit_test(test_wrong_lane_mask),
        cmocka_unit_test(test_freed_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
