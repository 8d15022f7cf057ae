#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xmmintrin.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device/device.h"
#include "kernel/backend.h"

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(ps_op_name(PS_OP_linear_fwd), "linear_fwd");
    assert_string_equal(ps_op_name(PS_OP_fill), "fill");
    assert_string_equal(ps_op_name(PS_OP_COUNT), "?");
    assert_string_equal(ps_op_name((ps_op)-1), "?");
}

static void check_full(const ps_backend *b)
{
    for (ps_op op = 0; op < PS_OP_COUNT; op++) {
        const ps_kernel *k = ps_kernel_find(b, op);
        assert_non_null(k->run);
    }
}

static void test_every_entry_is_filled(void **state)
{
    (void)state;
    ps_backend *b;
    assert_int_equal(ps_backend_create_ref(&b), PS_OK);
    check_full(b);
    assert_string_equal(ps_backend_name(b), "ref");
    ps_backend_destroy(b);
    assert_int_equal(ps_backend_create_sim(&(ps_sim_options){.page_bytes = 2 * PS_MIB}, &b), PS_OK);
    check_full(b);
    ps_backend_destroy(b);
    for (int isa = 0; isa <= (int)ps_cpu_isa_detect(); isa++) {
        assert_int_equal(ps_backend_create_cpu((ps_cpu_isa)isa, 2, &b), PS_OK);
        check_full(b);
        ps_backend_destroy(b);
    }
    ps_backend_destroy(NULL);
    assert_int_equal(ps_backend_create_cpu(PS_CPU_PORTABLE, 0, &b), PS_EINVAL);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static size_t scratch(ps_backend *b, ps_op op, const void *args)
{
    size_t bytes = 1;
    assert_int_equal(ps_kernel_measure(b, op, args, &bytes), PS_OK);
    return bytes;
}

/* What plans for GPUs reckon with: worked out by hand. */
static void test_scratch_of_gpus(void **state)
{
    (void)state;
    enum { GEMM = 4096, ROWS = 130, BIG_V = 100000 };
    ps_backend *b;
    assert_int_equal(ps_backend_create_sim(&(ps_sim_options){.page_bytes = 2 * PS_MIB, .gemm_bytes = GEMM}, &b), PS_OK);
    assert_int_equal(ps_backend_space(b)->page_bytes, 2 * PS_MIB);
    assert_true(ps_backend_space(b)->device->is_asynchronous && !ps_backend_space(b)->device->host_can_touch);
    const ps_linear_fwd_args f = {.rows = ROWS, .n_in = 20, .n_out = 10};
    const ps_linear_bwd_weight_args w = {.rows = ROWS, .n_in = 20, .n_out = 10};
    assert_int_equal(scratch(b, PS_OP_linear_fwd, &f), GEMM);
    assert_int_equal(scratch(b, PS_OP_linear_bwd_weight, &w), GEMM + 512); /* 9 blocks of 10 sums, to 256 bytes */
    const ps_layernorm_bwd_args n = {.rows = 1000, .cols = 64};
    assert_int_equal(scratch(b, PS_OP_layernorm_bwd, &n), 2 * 16 * 64 * 4); /* 16 teams a block, of 4 rows each */
    const ps_layernorm_bwd_args odd = {.rows = 1000, .cols = 65};
    assert_int_equal(scratch(b, PS_OP_layernorm_bwd, &odd), 2 * ps_round_up(63 * 65 * 4, 256));
    const ps_rmsnorm_rope_bwd_args r = {.B = 2, .T = 1000, .H = 4, .D = 128, .dtype = PS_DTYPE_BF16};
    assert_int_equal(scratch(b, PS_OP_rmsnorm_rope_bwd, &r), 528 * 128 * 4);
    ps_attention_fwd_args y = {.B = 2, .T = 100, .H = 3, .KV = 3, .D = 40};
    ps_attention_bwd_args d = {.B = 2, .T = 100, .H = 3, .KV = 3, .D = 40};
    assert_int_equal(scratch(b, PS_OP_attention_fwd, &y), 0);
    assert_int_equal(scratch(b, PS_OP_attention_bwd, &d), ps_round_up(2 * 3 * 100 * 4, 256));
    d.T = 1024;
    const size_t once = scratch(b, PS_OP_attention_bwd, &d);
    d.T = 2048; /* nothing is T x T */
    assert_int_equal(scratch(b, PS_OP_attention_bwd, &d), 2 * once);
    const ps_embedding_bwd_args e = {.rows = 100, .cols = 8, .V = 50};
    assert_int_equal(scratch(b, PS_OP_embedding_bwd, &e), 2 * 512 + 256 * 4); /* two orders; digits of one segment */
    ps_lm_loss_fwd_args l = {.rows = 64, .C = 32, .V = BIG_V};
    ps_lm_loss_bwd_args g = {.rows = 64, .C = 32, .V = BIG_V, .dtype = PS_DTYPE_BF16};
    assert_int_equal(scratch(b, PS_OP_lm_loss_fwd, &l), GEMM + 64 * 4096 * 4 + 3 * 256);
    assert_int_equal(scratch(b, PS_OP_lm_loss_bwd, &g), GEMM + 64 * 4096 * (4 + 2) + 64 * 32 * 4 + 4 * 4096 * 4);
    l.keeps_logits = g.keeps_logits = true;
    assert_int_equal(scratch(b, PS_OP_lm_loss_fwd, &l), GEMM + 3 * 256);
    assert_int_equal(scratch(b, PS_OP_lm_loss_bwd, &g), GEMM + 64 * 4096 * 2 + 64 * 32 * 4 + 4 * 4096 * 4);
    assert_int_equal(scratch(b, PS_OP_adam, &(ps_adam_args){.n = 100}), 0);
    ps_backend_destroy(b);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static int n_add_runs;

static ps_status own_add(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    (void)self, (void)queue, (void)args;
    n_add_runs++;
    assert_true(workspace_bytes >= 100);
    return PS_OK;
}

static ps_status own_add_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_add_args *const a = args;
    (void)self;
    if (a->n < 0) return PS_FAIL(PS_EDEVICE, "cannot be measured");
    *out = 100;
    return PS_OK;
}

static const ps_kernel own_add_kernel = {.run = own_add, .workspace_bytes = own_add_bytes};
static const ps_kernel *const own_kernels[PS_OP_COUNT] = {[PS_OP_add] = &own_add_kernel};

static const ps_backend_ops own_ops = {.name = "own", .kernels = own_kernels};

/* Kernel and scratch: a backend that has no entry takes both of the reference. */
static void test_a_missing_entry_is_the_references(void **state)
{
    (void)state;
    ps_backend own = {.ops = &own_ops}, *ref;
    assert_int_equal(ps_backend_create_ref(&ref), PS_OK);
    for (ps_op op = 0; op < PS_OP_COUNT; op++)
        if (op != PS_OP_add) assert_ptr_equal(ps_kernel_find(&own, op), ps_kernel_find(ref, op));
    assert_ptr_equal(ps_kernel_find(&own, PS_OP_add), &own_add_kernel);
    float master[3] = {1, 2, 3}, rounded[3];
    const ps_cast_args cast = {.dst = rounded, .src = master, .n = 3};
    assert_int_equal(ps_run_cast(&own, NULL, &cast, 0), PS_OK);
    assert_memory_equal(rounded, master, sizeof master);
    ps_backend_destroy(ref);
}

static void test_too_little_workspace_is_refused(void **state)
{
    (void)state;
    ps_backend own = {.ops = &own_ops};
    const ps_add_args a = {.n = 1};
    n_add_runs = 0;
    assert_int_equal(ps_run_add(&own, NULL, &a, 99), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "add of own"));
    assert_non_null(strstr(ps_last_error(), "100"));
    assert_non_null(strstr(ps_last_error(), "99"));
    assert_int_equal(n_add_runs, 0);
    assert_int_equal(ps_run_add(&own, NULL, &a, 100), PS_OK);
    assert_int_equal(n_add_runs, 1);
}

/* Through a queue with a thread of its own: in order, by the arguments of when they were issued. */
static void test_a_queue_calls_kernels(void **state)
{
    (void)state;
    enum { N = 1000, TIMES = 300 };
    ps_backend *b;
    ps_device *d;
    ps_queue *q;
    static float y[N], one[N];
    for (int i = 0; i < N; i++) y[i] = (float)i, one[i] = 1;
    assert_int_equal(ps_backend_create_cpu(ps_cpu_isa_detect(), 2, &b), PS_OK);
    assert_int_equal(ps_device_create(&ps_device_cpu_ops, "host", PS_PAGE_BYTES, &d), PS_OK);
    assert_int_equal(ps_queue_create(d, "kernels", PS_QUEUE_COPY, &q), PS_OK);
    for (int k = 0; k < TIMES; k++) {
        ps_add_args a = {.y = y, .a = y, .b = one, .n = N - k, .dtype = PS_DTYPE_F32};
        assert_int_equal(ps_run_add(b, q, &a, 0), PS_OK);
        memset(&a, 0xff, sizeof a);
    }
    assert_int_equal(ps_event_wait(ps_queue_event(q)), PS_OK);
    for (int i = 0; i < N; i++) assert_true(y[i] == (float)(i + (i < N - TIMES ? TIMES : N - i)));
    ps_queue_destroy(q);
    ps_device_destroy(d);
    ps_backend_destroy(b);
}

static void test_a_failed_measurement_is_an_error(void **state)
{
    (void)state;
    ps_backend own = {.ops = &own_ops};
    const ps_add_args a = {.n = -1};
    size_t bytes = 7;
    assert_int_equal(ps_kernel_measure(&own, PS_OP_add, &a, &bytes), PS_EDEVICE);
    assert_int_equal(bytes, 0);
    assert_int_equal(ps_run_add(&own, NULL, &a, 1000), PS_EDEVICE);
}

/* Sums that flushing or rounding up would change: of subnormal numbers, and of 1 and a little. */
static void add_with(unsigned mxcsr, float y[64])
{
    ps_backend *b;
    float x[64], z[64];
    for (int i = 0; i < 64; i++) x[i] = i % 2 == 0 ? 1.0f : 0x1p-127f, z[i] = i % 2 == 0 ? 0x1p-30f : 0x1p-128f;
    const unsigned before = _mm_getcsr();
    assert_int_equal(ps_backend_create_cpu(ps_cpu_isa_detect(), 2, &b), PS_OK);
    _mm_setcsr(mxcsr);
    const ps_status st = ps_run_add(b, NULL, &(ps_add_args){.y = y, .a = x, .b = z, .n = 64, .dtype = PS_DTYPE_F32}, 0);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(st, PS_OK);
    assert_int_equal(after & ~0x3Fu, mxcsr);
    ps_backend_destroy(b);
}

static void test_a_callers_rounding_is_its_own(void **state)
{
    (void)state;
    enum { FLUSH_TO_ZERO = 0x8000, ROUND_UP = 0x4000, SUBNORMALS_ARE_ZERO = 0x0040, MASKED = 0x1F80 };
    float want[64], got[64];
    add_with(MASKED, want);
    assert_true(want[0] == 1.0f && want[1] == 0x1.8p-127f);
    add_with(MASKED | FLUSH_TO_ZERO | ROUND_UP | SUBNORMALS_ARE_ZERO, got);
    assert_memory_equal(got, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_every_entry_is_filled),
        cmocka_unit_test(test_scratch_of_gpus),
        cmocka_unit_test(test_a_missing_entry_is_the_references),
        cmocka_unit_test(test_too_little_workspace_is_refused),
        cmocka_unit_test(test_a_queue_calls_kernels),
        cmocka_unit_test(test_a_failed_measurement_is_an_error),
        cmocka_unit_test(test_a_callers_rounding_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
