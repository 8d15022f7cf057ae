/* bench_op.c - time of each kernel on the shapes of GPT-2 124M in bf16, with 256 rows (B = 4, T = 64) and 1024 (B = 1,
 * T = 1024), and of what Llama and BERT do besides: "12/4 x 64" are 12 query heads that share 4 key and value heads, "w
 * 256" a window of 256.
 *
 * usage: bench_op [ROUNDS [NAME]]     (default 15 rounds; NAME: only the operators whose name contains it)
 *
 * Rates are those of cost.h: arithmetic and traffic that the operation must do. Operands of small operators stay in
 * the caches from round to round, so their GB/s may pass those of memory. `calls` is how often a step does it,
 * without activation checkpointing (0: not at all, or as often as there are chunks); `ms a step` is calls times the
 * least time. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "device/device.h"

#define DEFAULT_ROUNDS 15
#define ARENA_BYTES (512 * PS_MIB)
#define PATTERN_BYTES (4 * PS_MIB)

enum { C = 768, H = 12, D = 64, V = 50257, N_POSITIONS = 1024, N_LAYERS = 12, STREAMED = 8 * 1024 * 1024 };

typedef union op_args {
#define XX(op) ps_##op##_args op;
    PS_OPS(XX)
#undef XX
} op_args;

typedef struct bench {
    ps_backend *k;
    char *arena, *pattern;
    int64_t used; /* bytes of the arena */
    int64_t B, T, rows;
    int rounds;
    const char *only;
} bench;

/* Room for n elements holding small random numbers, whether read as bf16 or as f32. */
static void *take(bench *b, int64_t n, ps_dtype t)
{
    const int64_t bytes = n * (int64_t)ps_dtype_bytes(t);
    char *const p = b->arena + b->used;
    b->used += ps_round_up(bytes, PS_PAGE_BYTES);
    if (b->used > ARENA_BYTES) {
        fprintf(stderr, "bench_op: the arena is too small\n");
        exit(1);
    }
    for (int64_t at = 0; at < bytes; at += PATTERN_BYTES)
        memcpy(p + at, b->pattern, (size_t)ps_min_i64(PATTERN_BYTES, bytes - at));
    return p;
}

static void *take_bf16(bench *b, int64_t n)
{
    return take(b, n, PS_DTYPE_BF16);
}

static float *take_f32(bench *b, int64_t n)
{
    return take(b, n, PS_DTYPE_F32);
}

static int32_t *take_ids(bench *b, int64_t n, int64_t n_classes)
{
    int32_t *const ids = take(b, n, PS_DTYPE_F32);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 7919 % n_classes);
    return ids;
}

static void run(bench *b, ps_op op, const char *shape, int calls, const op_args *a)
{
    bench_samples s = {.n = 0};
    const char *const name = ps_op_name(op);
    b->used = 0;
    if (b->only != NULL && strstr(name, b->only) == NULL) return;
    size_t bytes;
    bench_check(ps_kernel_measure(b->k, op, a, &bytes));
    bench_check(ps_kernel_run(b->k, op, NULL, a, bytes)); /* fills the caches; not counted */
    for (int r = 0; r < b->rounds; r++) {
        const double begin = bench_now();
        bench_check(ps_kernel_run(b->k, op, NULL, a, bytes));
        bench_add(&s, bench_now() - begin);
    }
    const ps_cost cost = ps_op_cost(op, a);
    const double median = bench_median(&s), least = bench_least(&s);
    printf("| %-18s | %-11s | %9.3f | %9.3f | %8.1f | %7.1f | %5d | %9.2f |\n", name, shape, median * 1e3, least * 1e3,
           cost.flops / least * 1e-9, cost.bytes / least * 1e-9, calls, calls * least * 1e3);
}

static void *take_workspace(bench *b, ps_op op, const void *args)
{
    size_t bytes;
    bench_check(ps_kernel_measure(b->k, op, args, &bytes));
    return take_bf16(b, (int64_t)bytes / 2);
}

/* Fills the operator's workspace pointer, of the size that it asks for. */
#define WITH_WORKSPACE(b, op, a) ((a).op.workspace = take_workspace(b, PS_OP_##op, &(a).op))

static void bench_linear(bench *b, const char *shape, int64_t n_in, int64_t n_out)
{
    const int64_t rows = b->rows;
    op_args f = {.linear_fwd = {.y = take_bf16(b, rows * n_out),
                                .x = take_bf16(b, rows * n_in),
                                .w = take_bf16(b, n_in * n_out),
                                .b = take_bf16(b, n_out),
                                .rows = rows,
                                .n_in = n_in,
                                .n_out = n_out,
                                .layout = PS_WEIGHT_IN_OUT,
                                .dtype = PS_DTYPE_BF16,
                                .y_dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, linear_fwd, f);
    run(b, PS_OP_linear_fwd, shape, N_LAYERS, &f);
    op_args x = {.linear_bwd_input = {.dx = take_bf16(b, rows * n_in),
                                      .dy = take_bf16(b, rows * n_out),
                                      .w = take_bf16(b, n_in * n_out),
                                      .rows = rows,
                                      .n_in = n_in,
                                      .n_out = n_out,
                                      .layout = PS_WEIGHT_IN_OUT,
                                      .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, linear_bwd_input, x);
    run(b, PS_OP_linear_bwd_input, shape, N_LAYERS, &x);
    op_args w = {.linear_bwd_weight = {.dw = take_bf16(b, n_in * n_out),
                                       .db = take_bf16(b, n_out),
                                       .dy = take_bf16(b, rows * n_out),
                                       .x = take_bf16(b, rows * n_in),
                                       .rows = rows,
                                       .n_in = n_in,
                                       .n_out = n_out,
                                       .layout = PS_WEIGHT_IN_OUT,
                                       .dtype = PS_DTYPE_BF16,
                                       .grad_dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, linear_bwd_weight, w);
    run(b, PS_OP_linear_bwd_weight, shape, N_LAYERS, &w);
}

static void bench_layernorm(bench *b)
{
    const int64_t rows = b->rows;
    op_args f = {.layernorm_fwd = {.y = take_bf16(b, rows * C),
                                   .mean = take_f32(b, rows),
                                   .rstd = take_f32(b, rows),
                                   .x = take_bf16(b, rows * C),
                                   .w = take_bf16(b, C),
                                   .b = take_bf16(b, C),
                                   .rows = rows,
                                   .cols = C,
                                   .eps = 1e-5f,
                                   .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_layernorm_fwd, "768", 2 * N_LAYERS + 1, &f);
    op_args g = {.layernorm_bwd = {.dx = take_bf16(b, rows * C),
                                   .dw = take_bf16(b, C),
                                   .db = take_bf16(b, C),
                                   .dy = take_bf16(b, rows * C),
                                   .x = take_bf16(b, rows * C),
                                   .w = take_bf16(b, C),
                                   .mean = take_f32(b, rows),
                                   .rstd = take_f32(b, rows),
                                   .rows = rows,
                                   .cols = C,
                                   .dtype = PS_DTYPE_BF16,
                                   .grad_dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, layernorm_bwd, g);
    run(b, PS_OP_layernorm_bwd, "768", 2 * N_LAYERS + 1, &g);
}

static void bench_gelu(bench *b)
{
    const int64_t n = b->rows * 4 * C;
    const op_args f = {
        .gelu_fwd = {.y = take_bf16(b, n), .x = take_bf16(b, n), .n = n, .kind = PS_GELU_TANH, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_gelu_fwd, "3072", N_LAYERS, &f);
    const op_args g = {.gelu_bwd = {.dx = take_bf16(b, n),
                                    .dy = take_bf16(b, n),
                                    .x = take_bf16(b, n),
                                    .n = n,
                                    .kind = PS_GELU_TANH,
                                    .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_gelu_bwd, "3072", N_LAYERS, &g);
}

/* q, k and v packed in one array as GPT-2 has them, or apart when there are fewer key and value heads. */
static void bench_attention(bench *b, const char *shape, int64_t n_kv_heads, int64_t window, int calls)
{
    const bool is_packed = n_kv_heads == H;
    const int64_t kv = n_kv_heads * D, q_stride = is_packed ? 3 * C : C, kv_stride = is_packed ? 3 * C : kv;
    uint16_t *const q = take_bf16(b, b->rows * 3 * C), *const dq = take_bf16(b, b->rows * 3 * C);
    uint16_t *const k = q + (is_packed ? C : b->rows * C), *const dk = dq + (is_packed ? C : b->rows * C);
    uint16_t *const v = k + (is_packed ? C : b->rows * kv), *const dv = dk + (is_packed ? C : b->rows * kv);
    op_args f = {.attention_fwd = {.y = take_bf16(b, b->rows * C),
                                   .lse = take_f32(b, b->rows * H),
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .B = b->B,
                                   .T = b->T,
                                   .H = H,
                                   .KV = n_kv_heads,
                                   .q_stride = q_stride,
                                   .kv_stride = kv_stride,
                                   .window = window,
                                   .D = D,
                                   .scale = 0.125f,
                                   .causal = true,
                                   .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, attention_fwd, f);
    run(b, PS_OP_attention_fwd, shape, calls, &f);
    op_args g = {.attention_bwd = {.dq = dq,
                                   .dk = dk,
                                   .dv = dv,
                                   .dy = take_bf16(b, b->rows * C),
                                   .y = take_bf16(b, b->rows * C),
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .lse = take_f32(b, b->rows * H),
                                   .B = b->B,
                                   .T = b->T,
                                   .H = H,
                                   .KV = n_kv_heads,
                                   .q_stride = q_stride,
                                   .kv_stride = kv_stride,
                                   .window = window,
                                   .D = D,
                                   .scale = 0.125f,
                                   .causal = true,
                                   .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, attention_bwd, g);
    run(b, PS_OP_attention_bwd, shape, calls, &g);
}

static void bench_rope(bench *b)
{
    float *const inv_freq = take_f32(b, D / 2);
    for (int i = 0; i < D / 2; i++) inv_freq[i] = (float)pow(10000.0, -2.0 * i / D);
    uint16_t *const x = take_bf16(b, b->rows * C);
    op_args r = {.rope = {.y = x,
                          .x = x,
                          .inv_freq = inv_freq,
                          .B = b->B,
                          .T = b->T,
                          .H = H,
                          .D = D,
                          .scale = 1,
                          .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, rope, r);
    run(b, PS_OP_rope, "12 x 64", 0, &r);
}

static void bench_embedding(bench *b)
{
    const int64_t rows = b->rows;
    const op_args f = {.embedding_fwd = {.y = take_bf16(b, rows * C),
                                         .w = take_bf16(b, (int64_t)V * C),
                                         .ids = take_ids(b, rows, V),
                                         .rows = rows,
                                         .cols = C,
                                         .V = V,
                                         .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_embedding_fwd, "50257 x 768", 1, &f);
    op_args g = {.embedding_bwd = {.dw = take_bf16(b, (int64_t)V * C),
                                   .dy = take_bf16(b, rows * C),
                                   .ids = take_ids(b, rows, V),
                                   .rows = rows,
                                   .cols = C,
                                   .V = V,
                                   .dtype = PS_DTYPE_BF16,
                                   .grad_dtype = PS_DTYPE_BF16,
                                   .accumulate_grad = true}}; /* tied: on top of the head's gradient */
    WITH_WORKSPACE(b, embedding_bwd, g);
    run(b, PS_OP_embedding_bwd, "50257 x 768", 1, &g);
    const op_args p = {.position_fwd = {.y = take_bf16(b, rows * C),
                                        .x = take_bf16(b, rows * C),
                                        .w = take_bf16(b, N_POSITIONS * C),
                                        .B = b->B,
                                        .T = b->T,
                                        .cols = C,
                                        .n_positions = N_POSITIONS,
                                        .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_position_fwd, "1024 x 768", 1, &p);
    const op_args q = {.position_bwd = {.dw = take_bf16(b, N_POSITIONS * C),
                                        .dy = take_bf16(b, rows * C),
                                        .B = b->B,
                                        .T = b->T,
                                        .cols = C,
                                        .n_positions = N_POSITIONS,
                                        .dtype = PS_DTYPE_BF16,
                                        .grad_dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_position_bwd, "1024 x 768", 1, &q);
}

static void bench_elementwise(bench *b)
{
    const int64_t n = b->rows * C;
    const op_args add = {
        .add = {.y = take_bf16(b, n), .a = take_bf16(b, n), .b = take_bf16(b, n), .n = n, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_add, "768", 2 * N_LAYERS, &add);
    const op_args dropout = {
        .dropout = {.y = take_bf16(b, n), .x = take_bf16(b, n), .n = n, .p = 0.1f, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_dropout, "768", 0, &dropout);
}

static void bench_lm_loss(bench *b, const char *shape, int64_t rows, int64_t n_classes, bool with_bias)
{
    op_args f = {.lm_loss_fwd = {.row_loss = take_f32(b, rows),
                                 .lse = take_f32(b, rows),
                                 .predicted = take_ids(b, rows, n_classes),
                                 .x = take_bf16(b, rows * C),
                                 .w = take_bf16(b, n_classes * C),
                                 .b = with_bias ? take_bf16(b, n_classes) : NULL,
                                 .targets = take_ids(b, rows, n_classes),
                                 .rows = rows,
                                 .C = C,
                                 .V = n_classes,
                                 .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, lm_loss_fwd, f);
    run(b, PS_OP_lm_loss_fwd, shape, with_bias ? 0 : 1, &f);
    op_args g = {.lm_loss_bwd = {.dx = take_bf16(b, rows * C),
                                 .dw = take_bf16(b, n_classes * C),
                                 .db = with_bias ? take_bf16(b, n_classes) : NULL,
                                 .x = take_bf16(b, rows * C),
                                 .w = take_bf16(b, n_classes * C),
                                 .b = with_bias ? take_bf16(b, n_classes) : NULL,
                                 .lse = take_f32(b, rows),
                                 .targets = take_ids(b, rows, n_classes),
                                 .rows = rows,
                                 .C = C,
                                 .V = n_classes,
                                 .scale = 1.0f / (float)rows,
                                 .dtype = PS_DTYPE_BF16,
                                 .grad_dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, lm_loss_bwd, g);
    run(b, PS_OP_lm_loss_bwd, shape, with_bias ? 0 : 1, &g);
}

static void bench_rmsnorm(bench *b, const char *shape, int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols;
    op_args f = {.rmsnorm_fwd = {.y = take_bf16(b, n),
                                 .rstd = take_f32(b, rows),
                                 .x = take_bf16(b, n),
                                 .w = take_bf16(b, cols),
                                 .rows = rows,
                                 .cols = cols,
                                 .eps = 1e-5f,
                                 .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_rmsnorm_fwd, shape, 0, &f);
    op_args g = {.rmsnorm_bwd = {.dx = take_bf16(b, n),
                                 .dw = take_bf16(b, cols),
                                 .dy = take_bf16(b, n),
                                 .x = take_bf16(b, n),
                                 .w = take_bf16(b, cols),
                                 .rstd = take_f32(b, rows),
                                 .rows = rows,
                                 .cols = cols,
                                 .dtype = PS_DTYPE_BF16,
                                 .grad_dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, rmsnorm_bwd, g);
    run(b, PS_OP_rmsnorm_bwd, shape, 0, &g);
}

static void bench_swiglu(bench *b, const char *shape, int64_t n)
{
    const op_args f = {
        .swiglu_fwd = {
            .y = take_bf16(b, n), .gate = take_bf16(b, n), .up = take_bf16(b, n), .n = n, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_swiglu_fwd, shape, 0, &f);
    const op_args g = {.swiglu_bwd = {.dgate = take_bf16(b, n),
                                      .dup = take_bf16(b, n),
                                      .dy = take_bf16(b, n),
                                      .gate = take_bf16(b, n),
                                      .up = take_bf16(b, n),
                                      .n = n,
                                      .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_swiglu_bwd, shape, 0, &g);
}

/* What goes over model data, whatever the rows. */
static void bench_model_data(bench *b)
{
    const int64_t n = STREAMED;
    uint16_t *const grad = take_bf16(b, n);
    const op_args adam = {.adam = {.param = grad,
                                   .grad = grad,
                                   .master = take_f32(b, n),
                                   .m = take_f32(b, n),
                                   .v = memset(take_f32(b, n), 0, (size_t)n * 4),
                                   .n = n,
                                   .lr = 1e-4f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.999f,
                                   .eps = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .bias1 = 0.1f,
                                   .bias2 = 0.001f,
                                   .grad_scale = 1.0f,
                                   .decoupled_decay = true,
                                   .param_dtype = PS_DTYPE_BF16,
                                   .grad_dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_adam, "8 Mi", 0, &adam);
    ps_grad_sums sums = {0};
    const op_args stats = {.grad_stats = {.sums = &sums, .x = take_bf16(b, n), .n = n, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_grad_stats, "8 Mi", 0, &stats);
    const op_args cast = {.cast = {.dst = take_bf16(b, n),
                                   .src = take_f32(b, n),
                                   .n = n,
                                   .dst_dtype = PS_DTYPE_BF16,
                                   .src_dtype = PS_DTYPE_F32}};
    run(b, PS_OP_cast, "8 Mi", 0, &cast);
    const op_args fill = {.fill = {.dst = take_f32(b, n), .n = n, .std = 0.02f}};
    run(b, PS_OP_fill, "8 Mi", 0, &fill);
}

static void print_head(const char *title)
{
    printf("\n%s\n\n| %-18s | %-11s | %9s | %9s | %8s | %7s | %5s | %9s |\n", title, "operator", "shape", "median ms",
           "least ms", "GFLOP/s", "GB/s", "calls", "ms a step");
    printf("|--------------------|-------------|----------:|----------:|---------:|--------:|------:|----------:|\n");
}

static void bench_rows(bench *b, int64_t B, int64_t T)
{
    char title[64];
    b->B = B, b->T = T, b->rows = B * T;
    snprintf(title, sizeof title, "%lld rows (B = %lld, T = %lld)", (long long)b->rows, (long long)B, (long long)T);
    print_head(title);
    bench_linear(b, "768 x 2304", C, 3 * C);
    bench_linear(b, "768 x 768", C, C);
    bench_linear(b, "768 x 3072", C, 4 * C);
    bench_linear(b, "3072 x 768", 4 * C, C);
    bench_attention(b, "12 x 64", H, 0, N_LAYERS);
    bench_attention(b, "12/4 x 64", 4, 0, 0);
    bench_attention(b, "12/4 w 256", 4, 256, 0);
    bench_rope(b);
    bench_layernorm(b);
    bench_gelu(b);
    bench_elementwise(b);
    bench_embedding(b);
    bench_lm_loss(b, "50257 x 768", b->rows, V, false);
}

/* Operators of Llama (width 2048, heads of 128 with a norm of their own, 5632 inside) and the head of BERT. */
static void bench_other_models(bench *b)
{
    enum { ROWS = 512 };
    bench_rmsnorm(b, "2048", ROWS, 2048);
    bench_rmsnorm(b, "16 x 128", 16 * ROWS, 128);
    bench_swiglu(b, "5632", 5632 * ROWS);
    bench_lm_loss(b, "30522 x 768", ROWS, 30522, true);
}

/* Small random numbers as bf16; two of them read as one f32 are one as well. */
static void make_pattern(bench *b)
{
    const int64_t n = PATTERN_BYTES / 2;
    const ps_fill_args fill = {.dst = (float *)b->arena, .n = n, .std = 0.1f};
    const ps_cast_args cast = {
        .dst = b->pattern, .src = b->arena, .n = n, .dst_dtype = PS_DTYPE_BF16, .src_dtype = PS_DTYPE_F32};
    bench_check(ps_run_fill(b->k, NULL, &fill, 0));
    bench_check(ps_run_cast(b->k, NULL, &cast, 0));
}

int main(int argc, char **argv)
{
    bench b = {.rounds = argc > 1 ? atoi(argv[1]) : DEFAULT_ROUNDS, .only = argc > 2 ? argv[2] : NULL};
    if (b.rounds < 1 || b.rounds > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "usage: bench_op [ROUNDS [NAME]], 1 to %d rounds\n", BENCH_SAMPLES_MAX);
        return 1;
    }
    ps_device *dev = NULL;
    int n_threads;
    b.k = bench_backend(&n_threads);
    bench_check(ps_device_create(&ps_device_cpu_ops, "device", ARENA_BYTES + PATTERN_BYTES, &dev));
    bench_check(ps_device_alloc(dev, ARENA_BYTES, (void **)&b.arena));
    bench_check(ps_device_alloc(dev, PATTERN_BYTES, (void **)&b.pattern));
    make_pattern(&b);
    printf("kernels: %s, %d threads, %d rounds; rates of the least time\n", ps_backend_name(b.k), n_threads, b.rounds);
    bench_rows(&b, 4, 64);
    bench_rows(&b, 1, 1024);
    print_head("Llama and BERT, 512 rows");
    bench_other_models(&b);
    print_head("model data");
    bench_model_data(&b);
    ps_device_free(dev, b.arena, ARENA_BYTES, NULL);
    ps_device_free(dev, b.pattern, PATTERN_BYTES, NULL);
    ps_device_destroy(dev);
    ps_backend_destroy(b.k);
    return 0;
}
