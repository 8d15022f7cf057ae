/* test_each_kernel.c - launches every kernel there is at least once, on small arrays of odd sizes: little enough work for
 * compute-sanitizer, under which tool/gpu_check.sh runs it. That numbers are right is what op_NAME look at; here, that
 * no kernel fails, that none writes outside its arrays, and that none is left out. */
#include "chunk/comm/sum.h"
#include "kernel/op_check.h"

enum { B = 2, T = 37, H = 4, KV = 2, V = 301, ROWS = B * T, C = 72 };
enum { N = ROWS * C };

/* ---- which kernels were launched: a driver's table between ---- */

static const ps_cuda_driver *real_driver;
static ps_cu_function functions[PS_CUDA_KERNEL_COUNT];
static int n_launches[PS_CUDA_KERNEL_COUNT];

static ps_cu_result watch_function_get(ps_cu_function *out, ps_cu_module module, const char *name)
{
    const ps_cu_result r = real_driver->function_get(out, module, name);
    for (int i = 0; i < PS_CUDA_KERNEL_COUNT && r == PS_CU_SUCCESS; i++)
        if (strcmp(ps_cuda_kernel_table[i].name, name) == 0) functions[i] = *out;
    return r;
}

static ps_cu_result watch_launch(ps_cu_function f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                 unsigned block_y, unsigned block_z, unsigned shared_bytes, ps_cu_stream stream,
                                 void **args, void **extra)
{
    for (int i = 0; i < PS_CUDA_KERNEL_COUNT; i++) n_launches[i] += functions[i] == f;
    return real_driver->launch(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, args, extra);
}

static ps_status (*open_observed)(const ps_cuda_driver **out);

static ps_status open_driver(const ps_cuda_driver **out)
{
    static ps_cuda_driver table;
    *out = NULL;
    PS_TRY(open_observed(&real_driver));
    table = *real_driver;
    table.function_get = watch_function_get;
    table.launch = watch_launch;
    *out = &table;
    return PS_OK;
}

static void begin_watching(void)
{
    static ps_cuda_parts parts;
    mock_gpu_begin(&(fake_options){.seed = 1});
    parts = *ps_cuda_get_parts();
    open_observed = parts.driver;
    parts.driver = open_driver;
    ps_cuda_use_parts(&parts);
    op_gpu_has_parts = true;
}

/* ---- one call of each operator, by types ---- */

static ps_backend *gpu;
static ps_dtype t, t_grad; /* of activations and parameters, and of gradients of these */

#define RUN(op, ...)                                                                                                   \
    do {                                                                                                               \
        const ps_##op##_args args = {__VA_ARGS__};                                                                     \
        op_label(#op " of %s, gradients of %s", ps_dtype_name(t), ps_dtype_name(t_grad));                              \
        op_expect_ok(ps_run_##op(gpu, NULL, &args, 0));                                                                \
        op_release();                                                                                                  \
    } while (0)

#define RUN_SCRATCH(op, ...)                                                                                           \
    do {                                                                                                               \
        ps_##op##_args args = {__VA_ARGS__};                                                                           \
        op_label(#op " of %s, gradients of %s", ps_dtype_name(t), ps_dtype_name(t_grad));                              \
        OP_RUN(gpu, op, &args);                                                                                        \
        op_release();                                                                                                  \
    } while (0)

static void *in(int64_t n)
{
    return op_input(t, n, 1.0, 1);
}

static float *in_f32(int64_t n)
{
    return op_input(PS_DTYPE_F32, n, 1.0, 2);
}

static void *out(int64_t n)
{
    return op_output(t, n, false, 0);
}

static void *out_grad(int64_t n)
{
    return op_output(t_grad, n, false, 0);
}

static float *out_f32(int64_t n)
{
    return op_output(PS_DTYPE_F32, n, false, 0);
}

static float *sum_f32(int64_t n)
{
    return op_output(PS_DTYPE_F32, n, true, 3);
}

static int32_t *ids(void)
{
    return op_indices(ROWS, V, 0, 4);
}

static int32_t *mask(void)
{
    return op_indices(ROWS, 2, 0, 5);
}

static void run_gemms(void)
{
    enum { OUT = 41, M = ROWS * OUT };
    RUN_SCRATCH(linear_fwd, .y = out(M), .x = in(N), .w = in(C * OUT), .b = in(OUT), .rows = ROWS, .n_in = C,
                .n_out = OUT, .dtype = t, .y_dtype = t);
    RUN_SCRATCH(linear_fwd, .y = out_f32(M), .x = in(N), .w = in(C * OUT), .rows = ROWS, .n_in = C, .n_out = OUT,
                .layout = PS_WEIGHT_IN_OUT, .dtype = t, .y_dtype = PS_DTYPE_F32);
    RUN_SCRATCH(linear_bwd_input, .dx = out(N), .dy = in(M), .w = in(C * OUT), .rows = ROWS, .n_in = C, .n_out = OUT,
                .dtype = t);
    RUN_SCRATCH(linear_bwd_weight, .dw = out_grad(C * OUT), .db = out_grad(OUT), .dy = in(M), .x = in(N), .rows = ROWS,
                .n_in = C, .n_out = OUT, .dtype = t, .grad_dtype = t_grad);
}

static void run_norms_of(int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols;
    RUN(layernorm_fwd, .y = out(n), .mean = out_f32(rows), .rstd = out_f32(rows), .x = in(n), .w = in(cols),
        .b = in(cols), .rows = rows, .cols = cols, .eps = 1e-5f, .dtype = t);
    RUN_SCRATCH(layernorm_bwd, .dx = out(n), .dw = out_grad(cols), .db = out_grad(cols), .dy = in(n), .x = in(n),
                .w = in(cols), .mean = in_f32(rows), .rstd = in_f32(rows), .rows = rows, .cols = cols, .dtype = t,
                .grad_dtype = t_grad);
    RUN(rmsnorm_fwd, .y = out(n), .rstd = out_f32(rows), .x = in(n), .w = in(cols), .rows = rows, .cols = cols,
        .eps = 1e-5f, .dtype = t);
    RUN_SCRATCH(rmsnorm_bwd, .dx = out(n), .dw = out_grad(cols), .dy = in(n), .x = in(n), .w = in(cols),
                .rstd = in_f32(rows), .rows = rows, .cols = cols, .dtype = t, .grad_dtype = t_grad);
}

/* There are kernels for rows of 1, 2 and 4 vectors a thread, and for what no vector divides. */
static void run_norms(void)
{
    run_norms_of(ROWS, C);
    run_norms_of(ROWS, C - 1);
    for (int64_t cols = 2048; cols <= 8192; cols *= 2) run_norms_of(2, cols);
}

static void run_elementwise(void)
{
    RUN(gelu_fwd, .y = out(N), .x = in(N), .n = N, .dtype = t);
    RUN(gelu_bwd, .dx = out(N), .dy = in(N), .x = in(N), .n = N, .dtype = t);
    RUN(swiglu_fwd, .y = out(N), .gate = in(N), .up = in(N), .n = N, .dtype = t);
    RUN(swiglu_bwd, .dgate = out(N), .dup = out(N), .dy = in(N), .gate = in(N), .up = in(N), .n = N, .dtype = t);
    RUN(tanh_fwd, .y = out(N), .x = in(N), .n = N, .dtype = t);
    RUN(tanh_bwd, .dx = out(N), .dy = in(N), .y = in(N), .n = N, .dtype = t);
    RUN(relu_fwd, .y = out(N), .x = in(N), .n = N, .dtype = t);
    RUN(relu_bwd, .dx = out(N), .dy = in(N), .y = in(N), .n = N, .dtype = t);
    RUN(add, .y = out(N), .a = in(N), .b = in(N), .n = N, .dtype = t);
    RUN(dropout, .y = out(N), .x = in(N), .n = N, .p = 0.5f, .scale = 1, .dtype = t);
    RUN(fill, .dst = out_f32(N), .n = N, .std = 1.0f);
    RUN_SCRATCH(rope, .y = out(N), .x = in(N), .inv_freq = in_f32(C / H / 2), .B = B, .T = T, .H = H, .D = C / H,
                .scale = 1.0f, .dtype = t);
    RUN_SCRATCH(rmsnorm_rope_fwd, .y = out(ROWS * H * 32), .rstd = out_f32(ROWS * H), .x = in(ROWS * H * 32),
                .w = in(32), .inv_freq = in_f32(16), .B = B, .T = T, .H = H, .D = 32, .eps = 1e-5f, .scale = 1.0f,
                .dtype = t);
    RUN_SCRATCH(rmsnorm_rope_bwd, .dx = out(ROWS * H * 32), .dw = out_grad(32), .dy = in(ROWS * H * 32),
                .x = in(ROWS * H * 32), .w = in(32), .rstd = in_f32(ROWS * H), .inv_freq = in_f32(16), .B = B, .T = T,
                .H = H, .D = 32, .scale = 1.0f, .dtype = t, .grad_dtype = t_grad);
    ps_grad_sums *sums = op_alloc(sizeof *sums);
    memset(sums, 0, sizeof *sums);
    RUN(grad_stats, .sums = sums, .x = in(N), .n = N, .dtype = t);
}

static void run_attention(int64_t D, float dropout_p)
{
    const int64_t q = ROWS * H * D, kv = ROWS * KV * D, n_lse = B * H * T, n_positions = T + 3,
                  cache = KV * n_positions * D;
    RUN_SCRATCH(attention_fwd, .y = out(q), .lse = out_f32(n_lse), .q = in(q), .k = in(kv), .v = in(kv), .mask = mask(),
                .B = B, .T = T, .H = H, .KV = KV, .D = D, .q_stride = H * D, .kv_stride = KV * D, .scale = 0.5f,
                .causal = true, .dropout_p = dropout_p, .dtype = t);
    RUN_SCRATCH(attention_bwd, .dq = out(q), .dk = out(kv), .dv = out(kv), .dy = in(q), .y = in(q), .q = in(q),
                .k = in(kv), .v = in(kv), .lse = in_f32(n_lse), .mask = mask(), .B = B, .T = T, .H = H, .KV = KV,
                .D = D, .q_stride = H * D, .kv_stride = KV * D, .scale = 0.5f, .causal = true, .dropout_p = dropout_p,
                .dtype = t);
    RUN_SCRATCH(attention_cached, .y = out(T * H * D), .k_cache = op_output(t, cache, true, 6),
                .v_cache = op_output(t, cache, true, 7), .q = in(T * H * D), .k = in(T * KV * D), .v = in(T * KV * D),
                .T = T, .H = H, .KV = KV, .D = D, .q_stride = H * D, .kv_stride = KV * D, .n_positions = n_positions,
                .first = 2, .scale = 0.5f, .dtype = t);
}

static void run_rows(void)
{
    RUN(embedding_fwd, .y = out(N), .w = in(V * C), .ids = ids(), .rows = ROWS, .cols = C, .V = V, .dtype = t);
    RUN_SCRATCH(embedding_bwd, .dw = out_grad(V * C), .dy = in(N), .ids = ids(), .rows = ROWS, .cols = C, .V = V,
                .dtype = t, .grad_dtype = t_grad);
    RUN(position_fwd, .y = out(N), .x = in(N), .w = in(T * C), .B = B, .T = T, .cols = C, .n_positions = T, .dtype = t);
    RUN(position_bwd, .dw = out_grad(T * C), .dy = in(N), .B = B, .T = T, .cols = C, .n_positions = T, .dtype = t,
        .grad_dtype = t_grad);
    RUN(pool_fwd, .y = out(B * C), .x = in(N), .mask = mask(), .B = B, .T = T, .cols = C, .kind = PS_POOL_LAST,
        .dtype = t);
    RUN(pool_bwd, .dx = out(N), .dy = in(B * C), .mask = mask(), .B = B, .T = T, .cols = C, .kind = PS_POOL_LAST,
        .dtype = t);
}

static void run_loss(void)
{
    RUN_SCRATCH(lm_loss_fwd, .row_loss = out_f32(ROWS), .lse = out_f32(ROWS),
                .predicted = op_alloc(ROWS * sizeof(int32_t)), .x = in(N), .w = in(V * C), .b = in(V), .targets = ids(),
                .rows = ROWS, .C = C, .V = V, .dtype = t);
    RUN_SCRATCH(lm_loss_fwd, .row_loss = out_f32(ROWS), .lse = out_f32(ROWS),
                .predicted = op_alloc(ROWS * sizeof(int32_t)), .x = in(N), .w = in(V * C), .b = in(V), .targets = ids(),
                .rows = ROWS, .C = C, .V = V, .dtype = t,
                .terms = {.class_weights = in_f32(V), .mean_weight = 1.0f, .smoothing = 0.1f, .z_loss = 0.1f});
    RUN_SCRATCH(lm_loss_bwd, .dx = out(N), .dw = out_grad(V * C), .db = out_grad(V), .x = in(N), .w = in(V * C),
                .b = in(V), .lse = in_f32(ROWS), .targets = ids(), .rows = ROWS, .C = C, .V = V, .scale = 1.0f,
                .dtype = t, .grad_dtype = t_grad);
    RUN(values_loss_fwd, .loss = out_f32(N), .predicted = op_alloc(N * sizeof(int32_t)), .z = in_f32(N),
        .values = in_f32(N), .n = N, .kind = PS_VALUES_LOGISTIC);
    RUN(values_loss_bwd, .dz = out(N), .z = in_f32(N), .values = in_f32(N), .n = N, .scale = 1.0f,
        .kind = PS_VALUES_LOGISTIC, .dtype = t);
    RUN(span_loss_fwd, .loss = out_f32(2 * B), .predicted = op_alloc(2 * B * sizeof(int32_t)), .z = in_f32(2 * B * T),
        .targets = op_indices(2 * B, T, 0, 3), .B = B, .T = T, .weight = {1.0f, 1.0f});
    RUN(span_loss_bwd, .dz = out(2 * B * T), .z = in_f32(2 * B * T), .targets = op_indices(2 * B, T, 0, 3), .B = B,
        .T = T, .scale = {1.0f, 1.0f}, .dtype = t);
    RUN(loss_sums, .sums = op_alloc(sizeof(ps_loss_sums)), .row_loss = in_f32(ROWS), .targets = ids(),
        .predicted = ids(), .rows = ROWS);
}

static void run_updates(void)
{
    for (ps_quant q = PS_QUANT_INT8; q <= PS_QUANT_NF4; q++)
        RUN(dequantize, .y = out(N), .x = in_f32(N), .n = N, .quant = q, .dtype = t);
    RUN(cast, .dst = out(N), .src = op_input(t_grad, N, 1.0, 1), .n = N, .dst_dtype = t, .src_dtype = t_grad);
    for (int is_compact = 0; is_compact < 2; is_compact++) /* groups of states are smaller than as many floats */
        RUN(adam, .param = out(N), .grad = op_input(t_grad, N, 1.0, 1), .master = sum_f32(N), .m = sum_f32(N),
            .v = op_random(PS_DTYPE_F32, N, 4.0, 1.0, 8), .is_compact = is_compact != 0, .n = N, .lr = 0.1f,
            .beta1 = 0.9f, .beta2 = 0.9f, .eps = 1e-8f, .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.1f, .bias1 = 1.0f,
            .bias2 = 1.0f, .grad_scale = 1.0f, .param_dtype = t, .grad_dtype = t_grad);
    if (t == PS_DTYPE_BF16)
        RUN(adam, .param = out(N), .grad = op_input(t_grad, N, 1.0, 1), .low = op_random(PS_DTYPE_BF16, N, 1.0, 1.0, 9),
            .m = sum_f32(N), .v = op_random(PS_DTYPE_F32, N, 4.0, 1.0, 8), .is_compact = true, .n = N, .lr = 0.1f,
            .beta1 = 0.9f, .beta2 = 0.9f, .eps = 1e-8f, .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.1f, .bias1 = 1.0f,
            .bias2 = 1.0f, .grad_scale = 1.0f, .param_dtype = t, .grad_dtype = t_grad);
    if (t == PS_DTYPE_BF16)
        RUN(adam, .param = out(N), .grad = op_input(t_grad, N, 1.0, 1), .m = op_random(t, N, 1.0, 1.0, 9),
            .v = op_random(t, N, 4.0, 1.0, 8), .is_stochastic = true, .n = N, .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.9f,
            .eps = 1e-8f, .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.1f, .bias1 = 1.0f, .bias2 = 1.0f,
            .grad_scale = 1.0f, .param_dtype = t, .grad_dtype = t_grad);
    for (int is_compact = 0; is_compact < 2; is_compact++) {
        RUN(sgd, .param = out(N), .grad = op_input(t_grad, N, 1.0, 1), .master = sum_f32(N), .buffer = sum_f32(N),
            .is_compact = is_compact != 0, .n = N, .lr = 0.1f, .momentum = 0.9f, .one_minus_dampening = 1.0f,
            .grad_scale = 1.0f, .param_dtype = t, .grad_dtype = t_grad);
        RUN(lion, .param = out(N), .grad = op_input(t_grad, N, 1.0, 1), .master = sum_f32(N), .m = sum_f32(N),
            .is_compact = is_compact != 0, .n = N, .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.99f, .one_minus_beta1 = 0.1f,
            .one_minus_beta2 = 0.01f, .grad_scale = 1.0f, .param_dtype = t, .grad_dtype = t_grad);
    }
}

/* ---- what no operator has: sums over ranks, whose bits are the host's ---- */

typedef struct sum_call {
    const op_visit_backend *b;
    ps_cuda_rank_sum_args a;
} sum_call;

static ps_status issue_sum(void *self, const void *args)
{
    const sum_call *c = args;
    (void)self;
    return ps_backend_cuda_rank_sum(c->b->inner, ps_gpu_stream(c->b->queue), t, &c->a);
}

static void run_rank_sum(void)
{
    enum { RANKS = 3, RANK = 1 };
    op_visit_backend *b = (op_visit_backend *)gpu;
    op_label("rank_sum of %s", ps_dtype_name(t));
    char *own = op_output(t, N, true, 1), *others = op_input(t, (RANKS - 1) * N, 1.0, 2);
    const void *const values[RANKS] = {others, own, others + N * ps_dtype_bytes(t)};
    char want[N * sizeof(float)];
    ps_comm_sum(t, values, RANKS, N, want);
    b->n_places = 0;
    const sum_call c = {.b = b,
                        .a = {.own = op_visit(b, (uintptr_t)own, NULL),
                              .others = op_visit(b, (uintptr_t)others, NULL),
                              .n = N,
                              .stride = N,
                              .n_ranks = RANKS,
                              .rank = RANK}};
    op_expect_ok(ps_queue_call(
        b->queue, &(ps_call){.name = "sum over ranks", .run = issue_sum, .args = &c, .args_bytes = sizeof c}));
    for (int i = 0; i < b->n_places; i++) op_expect_ok(op_visit_leave(b, &b->places[i], false));
    assert_memory_equal(own, want, N * ps_dtype_bytes(t));
    op_release();
}

static void run_all(void)
{
    for (t = 0; t < PS_DTYPE_COUNT; t++) {
        t_grad = t;
        run_gemms();
        run_norms();
        run_elementwise();
        for (int64_t D = 64; D <= 256; D *= 2) {
            run_attention(D, 0.0f);
            run_attention(D, 0.1f);
            run_attention(D - 1, 0.0f); /* not by tensor cores */
        }
        run_rows();
        run_loss();
        run_rank_sum();
        for (t_grad = 0; t_grad < PS_DTYPE_COUNT; t_grad++) run_updates();
    }
}

static void test_each_kernel(void **state)
{
    (void)state;
    begin_watching();
    gpu = op_gpu();
    run_all();
    for (int i = 0; i < PS_CUDA_KERNEL_COUNT; i++)
        if (n_launches[i] == 0 && i != PS_CUDA_bias) /* in f32 a product adds its bias itself */
            fail_msg("%s was not launched", ps_cuda_kernel_table[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
