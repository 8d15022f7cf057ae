/* test_cuda_counts.c - what kernels of translated PTX execute and move is counted (emu_counts.h): the kernels of
 * ptx_counts.cu, with figures worked out by hand from ptx_counts.ptx. Each runs with 64 threads, two warps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/emu_counts.h"
#include "cuda/emulate.h"
#include "cuda/ptx_args.h"
#include "own_process.h"

enum { N = 1024 };

#define XX(name) extern const emu_kernel count_##name##_kernel
XX(copy);
XX(stride);
XX(offset);
XX(vectors);
XX(halves);
XX(broadcast);
XX(part);
XX(turns);
XX(meetings);
XX(loop);
XX(async);
XX(generic);
XX(atomic);
XX(call);
#undef XX

static _Alignas(32) float x[N], y[N];

/* What was counted of one launch, the only one; another order of lanes and warps by each seed. */
static emu_kernel_counts counted(const emu_kernel *kernel, unsigned blocks, int64_t n, unsigned seed)
{
    const ps_ptx_args args = {.y = y, .x = x, .n = n};
    unsigned n_kernels;
    emu_counts_begin();
    emulate_kernel(kernel, blocks, 0, &args, seed);
    const emu_kernel_counts *const k = emu_counts(&n_kernels);
    assert_int_equal(n_kernels, 1);
    assert_ptr_equal(k->kernel, kernel);
    assert_int_equal(k->launches, 1);
    return *k;
}

static void expect_traffic(const emu_kernel *kernel, const char *what, const emu_traffic *t, const emu_traffic *want)
{
    if (t->requests == want->requests && t->bytes == want->bytes && t->sectors == want->sectors &&
        t->touched_sectors == want->touched_sectors)
        return;
    fail_msg("%s, %s: %llu requests of %llu bytes in %llu sectors, %llu touched", kernel->name, what,
             (unsigned long long)t->requests, (unsigned long long)t->bytes, (unsigned long long)t->sectors,
             (unsigned long long)t->touched_sectors);
}

/* requests, bytes, sectors, touched sectors */
static void expect(const emu_kernel *kernel, unsigned blocks, int64_t n, emu_traffic read, emu_traffic written)
{
    for (unsigned seed = 1; seed <= 4; seed++) {
        const emu_kernel_counts k = counted(kernel, blocks, n, seed);
        expect_traffic(kernel, "read", &k.read, &read);
        expect_traffic(kernel, "written", &k.written, &written);
    }
}

/* 64 floats side by side. */
static const emu_traffic row = {2, 256, 8, 8};

static void test_sectors_of_a_warp(void **state)
{
    (void)state;
    expect(&count_copy_kernel, 1, 0, row, row);
    expect(&count_stride_kernel, 1, 0, (emu_traffic){2, 256, 16, 16}, row);
    /* bytes 4 to 132 are in 5 sectors, as are 132 to 260; one of them in both */
    expect(&count_offset_kernel, 1, 0, (emu_traffic){2, 256, 10, 9}, row);
    expect(&count_vectors_kernel, 1, 0, (emu_traffic){2, 1024, 32, 32}, (emu_traffic){2, 1024, 32, 32});
    expect(&count_halves_kernel, 1, 0, (emu_traffic){2, 128, 4, 4}, (emu_traffic){2, 128, 4, 4});
    expect(&count_broadcast_kernel, 1, 5, (emu_traffic){2, 256, 2, 1}, row);
}

static void test_lanes_that_are_off(void **state)
{
    (void)state;
    expect(&count_part_kernel, 1, 16, (emu_traffic){2, 128, 4, 4}, (emu_traffic){2, 128, 4, 4});
    expect(&count_part_kernel, 1, 0, (emu_traffic){0}, (emu_traffic){0});
    /* 4 passes, in each every other lane of both warps: 16 lanes in 4 sectors */
    expect(&count_turns_kernel, 1, 4, (emu_traffic){8, 512, 32, 8}, row);
}

/* Between two meetings of a warp 3 requests: 32 lanes in 4 sectors, then twice 16 lanes in 2. */
static void test_meetings(void **state)
{
    (void)state;
    expect(&count_meetings_kernel, 1, 0, (emu_traffic){12, 1024, 32, 8}, row);
}

static void test_other_accesses(void **state)
{
    (void)state;
    expect(&count_async_kernel, 1, 4, row, row);
    expect(&count_async_kernel, 1, 0, (emu_traffic){0}, row); /* zeros, which are not read */
    expect(&count_generic_kernel, 1, 0, row, row);            /* shared memory is not counted */
    expect(&count_atomic_kernel, 1, 0, (emu_traffic){0}, (emu_traffic){2, 512, 2, 1});
}

/* Each block reads the same again. */
static void test_touched_once_a_launch(void **state)
{
    (void)state;
    expect(&count_copy_kernel, 3, 0, (emu_traffic){6, 768, 24, 8}, (emu_traffic){6, 768, 24, 8});
}

static void expect_instructions(const emu_kernel *kernel, int64_t n, uint64_t of_threads, uint64_t of_warps)
{
    const emu_kernel_counts k = counted(kernel, 1, n, 1);
    if (k.thread_instructions != of_threads || k.warp_instructions != of_warps)
        fail_msg("%s: %llu instructions of threads, %llu of warps", kernel->name,
                 (unsigned long long)k.thread_instructions, (unsigned long long)k.warp_instructions);
}

static void test_instructions(void **state)
{
    (void)state;
    expect_instructions(&count_copy_kernel, 0, 64 * 11, 2 * 11);
    /* 8, then 9 for 16 lanes of each warp, then ret; those whose branch is not taken are the others */
    expect_instructions(&count_part_kernel, 16, 64 * 9 + 32 * 9, 2 * 18);
    expect_instructions(&count_part_kernel, 0, 64 * 9, 2 * 9);
    /* 10 to the branch, 6 before the loop, 6 a pass, 1 after it, 6 at the end; 5 passes, and 6 for half of the lanes */
    expect_instructions(&count_loop_kernel, 5, 32 * (23 + 5 * 6) + 32 * (23 + 6 * 6), 2 * (23 + 6 * 6));
    /* no pass, 1 and 1 around it, and 1 pass: warps go both ways */
    expect_instructions(&count_loop_kernel, 0, 32 * (10 + 2 + 6) + 32 * (23 + 6), 2 * (23 + 6 + 2));
    /* 8 lanes of a warp go through 5 instructions of a call, and the 5 of the function; 12 before, 6 after */
    expect_instructions(&count_call_kernel, 0, 64 * 18 + 16 * 10, 2 * (18 + 10));
    expect(&count_call_kernel, 1, 0, row, row);
    expect(&count_loop_kernel, 1, 5, (emu_traffic){12, 1408, 44, 5 * 8 + 4}, row);
}

/* Launches of a kernel are summed; each instruction is known by its line. */
static void test_sums(void **state)
{
    (void)state;
    const ps_ptx_args args = {.y = y, .x = x, .n = 16};
    unsigned n;
    emu_counts_begin();
    (void)emu_counts(&n);
    assert_int_equal(n, 0);
    for (unsigned seed = 1; seed <= 3; seed++) emulate_kernel(&count_part_kernel, 1, 0, &args, seed);
    emulate_kernel(&count_copy_kernel, 1, 0, &args, 1);
    emulate_kernel(&count_part_kernel, 1, 0, &args, 4);
    const emu_kernel_counts *const k = emu_counts(&n);
    assert_int_equal(n, 2);
    assert_ptr_equal(k[0].kernel, &count_part_kernel);
    assert_ptr_equal(k[1].kernel, &count_copy_kernel);
    assert_int_equal(k[0].launches, 4);
    assert_int_equal(k[0].warp_instructions, 4 * 36);
    expect_traffic(k[0].kernel, "read", &k[0].read, &(emu_traffic){8, 512, 16, 16});
    assert_int_equal(k[0].kernel->n_counted_sites, 2);
    const emu_site_counts *const load = &k[0].sites[0], *const store = &k[0].sites[1];
    assert_true(load->line > 0 && load->line < store->line);
    assert_int_equal(load->access, EMU_READ);
    assert_int_equal(store->access, EMU_WRITE);
    assert_int_equal(load->bytes, 4);
    assert_int_equal(load->moved.requests, 8);
    assert_int_equal(load->moved.bytes, 512);
    assert_int_equal(load->moved.sectors, 16);
}

static void count_too_much(const void *user)
{
    (void)user;
    (void)counted(&count_turns_kernel, 1, 1 << 20, 1);
}

/* Memory for accesses between two barriers has a limit, which is said. */
static void test_limit(void **state)
{
    (void)state;
    const child_outcome o = in_child(count_too_much, NULL);
    assert_int_not_equal(o.status, -1);
    assert_false(WIFEXITED(o.status));
    if (strstr(o.text, "accesses between two barriers") == NULL || strstr(o.text, "test/cuda/ptx_counts.ptx:") == NULL)
        fail_msg("%s", o.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sectors_of_a_warp),
        cmocka_unit_test(test_lanes_that_are_off),
        cmocka_unit_test(test_meetings),
        cmocka_unit_test(test_other_accesses),
        cmocka_unit_test(test_touched_once_a_launch),
        cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
