/* bench_op.c - time of each kernel on the shapes of GPT-2 124M in bf16, and of what Llama and BERT do besides: "12/4 x 64" are 12
 * query heads that share 4 key and value heads, "w 256" a window of 256. Of the cpu with 256 rows (B = 4, T = 64) and 1024 (B = 1, T =
 * 1024), of a GPU with 32768.
 *
 * usage: bench_op [--backend cpu|cuda] [--hardware FILE] [--small] [--table] [ROUNDS [NAME]]
 *
 *   ROUNDS      15; NAME: only the operators whose name contains it
 *   --hardware  rates of this description: what of the roofline each kernel reaches, and what it should reach (op_targets.h)
 *   --small     of a size for kernels on an emulator
 *   --table     computes nothing, and needs no GPU: arithmetic and traffic of the operators and, of the hardware, the time that they cannot
 *               be faster than, and the share that they should reach
 *
 * Rates are those of cost.h: arithmetic and traffic that the operation must do. Operands of small operators stay in
 * the caches from round to round, so their GB/s may pass those of memory. `calls` is how often a step does it,
 * without activation checkpointing (0: not at all, or as often as there are chunks); `ms a step` is calls times the
 * least time. On a GPU a time is that of several calls in a row, divided by their number. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "bench.h"
#include "config/hardware.h"
#include "device/cuda/open.h"
#include "device/device.h"
#include "device/queue.h"
#include "op_targets.h"

#define DEFAULT_ROUNDS 15
#define PATTERN_BYTES (4 * PS_MIB)
#ifdef COUNT_KERNELS /* `make gpu-counts`: prints what kernels do on an emulator, in place of times */
#include "gpu/count_op.h"
#define CALLS_ON_GPU 1
#else
#define CALLS_ON_GPU 10
#endif

/* What is computed, and of how much. */
typedef struct sizes {
    int64_t arena_bytes;
    int64_t B[2], T[2]; /* two ways to divide rows; 0: only one */
    int64_t C, H, D, V, n_positions, n_layers;
    int64_t few_kv, window;                                     /* of attention with shared heads */
    int64_t wide_H, wide_kv, wide_D;                            /* of attention with wide heads; 0: none */
    int64_t other_rows, other_C, other_D, other_inner, other_V; /* Llama's and BERT's */
    int64_t streamed;                                           /* elements of what goes over model data */
} sizes;

static const sizes of_cpu = {.arena_bytes = 512 * PS_MIB,
                             .B = {4, 1},
                             .T = {64, 1024},
                             .C = 768,
                             .H = 12,
                             .D = 64,
                             .V = 50257,
                             .n_positions = 1024,
                             .n_layers = 12,
                             .few_kv = 4,
                             .window = 256,
                             .other_rows = 512,
                             .other_C = 2048,
                             .other_D = 128,
                             .other_inner = 5632,
                             .other_V = 30522,
                             .streamed = 8 << 20};
#ifdef COUNT_KERNELS /* one sequence, and as much of the rest as an emulator runs through in minutes */
enum { GPU_ARENA_MIB = 512, GPU_B = 1, GPU_OTHER_ROWS = 1024, GPU_STREAMED = 1 << 20 };
#else
enum { GPU_ARENA_MIB = 6 * 1024, GPU_B = 32, GPU_OTHER_ROWS = 16384, GPU_STREAMED = 64 << 20 };
#endif
static const sizes of_gpu = {.arena_bytes = GPU_ARENA_MIB * PS_MIB,
                             .B = {GPU_B},
                             .T = {1024},
                             .C = 768,
                             .H = 12,
                             .D = 64,
                             .V = 50257,
                             .n_positions = 1024,
                             .n_layers = 12,
                             .few_kv = 4,
                             .window = 256,
                             .wide_H = 12,
                             .wide_kv = 2,
                             .wide_D = 128,
                             .other_rows = GPU_OTHER_ROWS,
                             .other_C = 2048,
                             .other_D = 128,
                             .other_inner = 5632,
                             .other_V = 30522,
                             .streamed = GPU_STREAMED};
static const sizes small = {.arena_bytes = 16 * PS_MIB,
                            .B = {1},
                            .T = {16},
                            .C = 64,
                            .H = 2,
                            .D = 32,
                            .V = 128,
                            .n_positions = 16,
                            .n_layers = 2,
                            .few_kv = 1,
                            .window = 8,
                            .wide_H = 2,
                            .wide_kv = 1,
                            .wide_D = 128,
                            .other_rows = 8,
                            .other_C = 64,
                            .other_D = 32,
                            .other_inner = 96,
                            .other_V = 64,
                            .streamed = 4096};

typedef union op_args {
#define XX(op) ps_##op##_args op;
    PS_OPS(XX)
#undef XX
} op_args;

typedef struct bench {
    ps_backend *k;         /* NULL: only a table */
    ps_queue *queue;       /* NULL: computed when it is called */
    char *arena, *pattern; /* the pattern is in host memory */
    const sizes *sizes;
    ps_hardware hardware;
    bool has_hardware;
    int64_t used; /* bytes of the arena */
    int64_t B, T, rows, C, H, D, V, n_positions, streamed;
    int n_layers, rounds;
    const char *only;
    bool is_measured[PS_OP_COUNT]; /* where the name is right */
    char shape[32];
} bench;

/* Room for bytes of the arena. */
static char *reserve(bench *b, int64_t bytes)
{
    char *const p = b->arena + b->used;
    b->used += ps_round_up(bytes, PS_PAGE_BYTES);
    if (b->used > b->sizes->arena_bytes) {
        fprintf(stderr, "bench_op: the arena is too small\n");
        exit(1);
    }
    return p;
}

static void put(bench *b, void *dst, const void *src, int64_t bytes)
{
    if (b->queue != NULL)
        bench_check(ps_queue_put(b->queue, dst, src, bytes));
    else
        memcpy(dst, src, (size_t)bytes);
}

/* These bytes, where kernels can reach them; a table needs none. */
static void *take_of(bench *b, const void *content, int64_t bytes)
{
    if (b->k == NULL) return NULL;
    char *const p = reserve(b, bytes);
    put(b, p, content, bytes);
    return p;
}

static void *take_zeros(bench *b, int64_t bytes)
{
    if (b->k == NULL) return NULL;
    char *const p = reserve(b, bytes);
    if (b->queue != NULL) {
        bench_check(ps_queue_fill(b->queue, p, 0, bytes));
        return p;
    }
    return memset(p, 0, (size_t)bytes);
}

/* Room for n elements holding small random numbers, whether read as bf16 or as f32. */
static void *take(bench *b, int64_t n, ps_dtype t)
{
    const int64_t bytes = n * (int64_t)ps_dtype_bytes(t);
    if (b->k == NULL) return NULL;
    char *const p = reserve(b, bytes);
    for (int64_t at = 0; at < bytes; at += PATTERN_BYTES)
        put(b, p + at, b->pattern, ps_min_i64(PATTERN_BYTES, bytes - at));
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
    int32_t *const ids = malloc((size_t)n * sizeof *ids);
    if (ids == NULL) {
        fprintf(stderr, "bench_op: no memory for %lld tokens\n", (long long)n);
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 7919 % n_classes);
    int32_t *const taken = take_of(b, ids, n * (int64_t)sizeof *ids);
    free(ids);
    return taken;
}

/* The shape in words; until the next one. */
__attribute__((format(printf, 2, 3))) static const char *words(bench *b, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(b->shape, sizeof b->shape, format, ap);
    va_end(ap);
    return b->shape;
}

static const char *attention_words(bench *b, int64_t n_kv_heads, int64_t window)
{
    if (window > 0) return words(b, "%lld/%lld w %lld", (long long)b->H, (long long)n_kv_heads, (long long)window);
    if (n_kv_heads == b->H) return words(b, "%lld x %lld", (long long)b->H, (long long)b->D);
    return words(b, "%lld/%lld x %lld", (long long)b->H, (long long)n_kv_heads, (long long)b->D);
}

/* ---- what is printed ---- */

static void print_head(const bench *b, const char *title)
{
    printf("\n%s\n\n", title);
#ifdef COUNT_KERNELS
    if (b->k != NULL) {
        count_op_print_head();
        return;
    }
#endif
    if (b->k == NULL) {
        printf("| operator | shape | FLOP an element | bytes an element | FLOP a byte | bound by | ms at least | share "
               "to reach | "
               "ms then |\n|---|---|--:|--:|--:|---|--:|--:|--:|\n");
        return;
    }
    printf("| %-18s | %-11s | %9s | %9s | %8s | %7s | %5s | %9s |%s\n", "operator", "shape", "median ms", "least ms",
           "GFLOP/s", "GB/s", "calls", "ms a step", b->has_hardware ? " bound by | share of it | to reach |" : "");
    printf("|--------------------|-------------|----------:|----------:|---------:|--------:|------:|----------:|%s\n",
           b->has_hardware ? "----------|------------:|---------:|" : "");
}

/* Seconds that this takes at least; *by: for what. */
static double seconds_at_least(const bench *b, const ps_cost *c, const char **by)
{
    const double gemms = c->flops / b->hardware.device.bf16.flop_per_s;
    const double memory = c->bytes / b->hardware.device.memory_bytes_per_s;
    *by = gemms > memory ? "GEMMs" : "memory";
    return gemms > memory ? gemms : memory;
}

static void print_cost(const bench *b, ps_op op, const char *shape, int64_t n, const ps_cost *c)
{
    const char *by;
    const double least_s = seconds_at_least(b, c, &by), share = op_target(op)->share;
    printf("| %s | %s | %.4g | %.3g | %.3g | %s | %.4f | %.2f | %.4f |\n", ps_op_name(op), shape, c->flops / (double)n,
           c->bytes / (double)n, c->flops / c->bytes, by, least_s * 1e3, share, least_s / share * 1e3);
}

/* The operator, several times on a GPU: seconds of one. */
static double seconds_of(bench *b, ps_op op, const op_args *a, size_t bytes)
{
    const int n = b->queue != NULL && b->sizes != &small ? CALLS_ON_GPU : 1;
    const double begin = bench_now();
    for (int i = 0; i < n; i++) bench_check(ps_kernel_run(b->k, op, b->queue, a, bytes));
    if (b->queue != NULL) bench_check(ps_event_wait(ps_queue_event(b->queue)));
    return (bench_now() - begin) / n;
}

#ifdef COUNT_KERNELS
static void print_run(bench *b, ps_op op, const char *shape, int64_t calls, const op_args *a, const ps_cost *cost)
{
    size_t bytes;
    (void)calls;
    bench_check(ps_kernel_measure(b->k, op, a, &bytes));
    count_op_begin();
    (void)seconds_of(b, op, a, bytes);
    count_op_print(ps_op_name(op), shape, cost);
}
#else
static void print_run(bench *b, ps_op op, const char *shape, int64_t calls, const op_args *a, const ps_cost *cost)
{
    bench_samples s = {.n = 0};
    size_t bytes;
    bench_check(ps_kernel_measure(b->k, op, a, &bytes));
    (void)seconds_of(b, op, a, bytes); /* fills the caches; not counted */
    for (int r = 0; r < b->rounds; r++) bench_add(&s, seconds_of(b, op, a, bytes));
    const double median = bench_median(&s), least = bench_least(&s);
    printf("| %-18s | %-11s | %9.3f | %9.3f | %8.1f | %7.1f | %5lld | %9.2f |", ps_op_name(op), shape, median * 1e3,
           least * 1e3, cost->flops / least * 1e-9, cost->bytes / least * 1e-9, (long long)calls,
           (double)calls * least * 1e3);
    if (b->has_hardware) {
        const char *by;
        const double least_s = seconds_at_least(b, cost, &by);
        printf(" %-8s | %11.2f | %8.2f |", by, least_s / least, op_target(op)->share);
    }
    printf("\n");
}
#endif

/* n: elements of its result. */
static void run(bench *b, ps_op op, const char *shape, int64_t calls, int64_t n, const op_args *a)
{
    const ps_cost cost = ps_op_cost(op, a);
    b->used = 0;
    b->is_measured[op] = true;
    if (b->only != NULL && strstr(ps_op_name(op), b->only) == NULL) return;
    if (b->k == NULL)
        print_cost(b, op, shape, n, &cost);
    else
        print_run(b, op, shape, calls, a, &cost);
}

static void *take_workspace(bench *b, ps_op op, const void *args)
{
    size_t bytes;
    if (b->k == NULL) return NULL;
    bench_check(ps_kernel_measure(b->k, op, args, &bytes));
    return take_bf16(b, (int64_t)bytes / 2);
}

/* Fills the operator's workspace pointer, of the size that it asks for. */
#define WITH_WORKSPACE(b, op, a) ((a).op.workspace = take_workspace(b, PS_OP_##op, &(a).op))

static void bench_linear(bench *b, int64_t n_in, int64_t n_out)
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
    run(b, PS_OP_linear_fwd, words(b, "%lld x %lld", (long long)n_in, (long long)n_out), b->n_layers, rows * n_out, &f);
    op_args x = {.linear_bwd_input = {.dx = take_bf16(b, rows * n_in),
                                      .dy = take_bf16(b, rows * n_out),
                                      .w = take_bf16(b, n_in * n_out),
                                      .rows = rows,
                                      .n_in = n_in,
                                      .n_out = n_out,
                                      .layout = PS_WEIGHT_IN_OUT,
                                      .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, linear_bwd_input, x);
    run(b, PS_OP_linear_bwd_input, words(b, "%lld x %lld", (long long)n_in, (long long)n_out), b->n_layers, rows * n_in,
        &x);
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
    run(b, PS_OP_linear_bwd_weight, words(b, "%lld x %lld", (long long)n_in, (long long)n_out), b->n_layers,
        n_in * n_out, &w);
}

static void bench_layernorm(bench *b)
{
    const int64_t rows = b->rows;
    op_args f = {.layernorm_fwd = {.y = take_bf16(b, rows * b->C),
                                   .mean = take_f32(b, rows),
                                   .rstd = take_f32(b, rows),
                                   .x = take_bf16(b, rows * b->C),
                                   .w = take_bf16(b, b->C),
                                   .b = take_bf16(b, b->C),
                                   .rows = rows,
                                   .cols = b->C,
                                   .eps = 1e-5f,
                                   .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_layernorm_fwd, words(b, "%lld", (long long)b->C), 2 * b->n_layers + 1, rows * b->C, &f);
    op_args g = {.layernorm_bwd = {.dx = take_bf16(b, rows * b->C),
                                   .dw = take_bf16(b, b->C),
                                   .db = take_bf16(b, b->C),
                                   .dy = take_bf16(b, rows * b->C),
                                   .x = take_bf16(b, rows * b->C),
                                   .w = take_bf16(b, b->C),
                                   .mean = take_f32(b, rows),
                                   .rstd = take_f32(b, rows),
                                   .rows = rows,
                                   .cols = b->C,
                                   .dtype = PS_DTYPE_BF16,
                                   .grad_dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, layernorm_bwd, g);
    run(b, PS_OP_layernorm_bwd, words(b, "%lld", (long long)b->C), 2 * b->n_layers + 1, rows * b->C, &g);
}

static void bench_gelu(bench *b)
{
    const int64_t n = b->rows * 4 * b->C;
    const op_args f = {
        .gelu_fwd = {.y = take_bf16(b, n), .x = take_bf16(b, n), .n = n, .kind = PS_GELU_TANH, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_gelu_fwd, words(b, "%lld", (long long)(4 * b->C)), b->n_layers, n, &f);
    const op_args g = {.gelu_bwd = {.dx = take_bf16(b, n),
                                    .dy = take_bf16(b, n),
                                    .x = take_bf16(b, n),
                                    .n = n,
                                    .kind = PS_GELU_TANH,
                                    .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_gelu_bwd, words(b, "%lld", (long long)(4 * b->C)), b->n_layers, n, &g);
}

/* q, k and v packed in one array as GPT-2 has them, or apart when there are fewer key and value heads. */
static void bench_attention(bench *b, int64_t n_kv_heads, int64_t window, int calls)
{
    const bool is_packed = n_kv_heads == b->H;
    const int64_t C = b->H * b->D;
    const int64_t kv = n_kv_heads * b->D, q_stride = is_packed ? 3 * C : C, kv_stride = is_packed ? 3 * C : kv;
    uint16_t *const q = take_bf16(b, b->rows * 3 * C), *const dq = take_bf16(b, b->rows * 3 * C);
    uint16_t *const k = q + (is_packed ? C : b->rows * C), *const dk = dq + (is_packed ? C : b->rows * C);
    uint16_t *const v = k + (is_packed ? C : b->rows * kv), *const dv = dk + (is_packed ? C : b->rows * kv);
    op_args f = {.attention_fwd = {.y = take_bf16(b, b->rows * C),
                                   .lse = take_f32(b, b->rows * b->H),
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .B = b->B,
                                   .T = b->T,
                                   .H = b->H,
                                   .KV = n_kv_heads,
                                   .q_stride = q_stride,
                                   .kv_stride = kv_stride,
                                   .window = window,
                                   .D = b->D,
                                   .scale = 1 / sqrtf((float)b->D),
                                   .causal = true,
                                   .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, attention_fwd, f);
    run(b, PS_OP_attention_fwd, attention_words(b, n_kv_heads, window), calls, b->rows * b->H * b->D, &f);
    op_args g = {.attention_bwd = {.dq = dq,
                                   .dk = dk,
                                   .dv = dv,
                                   .dy = take_bf16(b, b->rows * C),
                                   .y = take_bf16(b, b->rows * C),
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .lse = take_f32(b, b->rows * b->H),
                                   .B = b->B,
                                   .T = b->T,
                                   .H = b->H,
                                   .KV = n_kv_heads,
                                   .q_stride = q_stride,
                                   .kv_stride = kv_stride,
                                   .window = window,
                                   .D = b->D,
                                   .scale = 1 / sqrtf((float)b->D),
                                   .causal = true,
                                   .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, attention_bwd, g);
    run(b, PS_OP_attention_bwd, attention_words(b, n_kv_heads, window), calls, b->rows * b->H * b->D, &g);
}

static void bench_rope(bench *b)
{
    float frequencies[256];
    for (int i = 0; i < b->D / 2; i++) frequencies[i] = (float)pow(10000.0, -2.0 * i / (double)b->D);
    float *const inv_freq = take_of(b, frequencies, b->D / 2 * (int64_t)sizeof *frequencies);
    uint16_t *const x = take_bf16(b, b->rows * b->C);
    op_args r = {.rope = {.y = x,
                          .x = x,
                          .inv_freq = inv_freq,
                          .B = b->B,
                          .T = b->T,
                          .H = b->H,
                          .D = b->D,
                          .scale = 1,
                          .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, rope, r);
    run(b, PS_OP_rope, words(b, "%lld x %lld", (long long)b->H, (long long)b->D), 0, b->rows * b->H * b->D, &r);
}

static void bench_embedding(bench *b)
{
    const int64_t rows = b->rows;
    const op_args f = {.embedding_fwd = {.y = take_bf16(b, rows * b->C),
                                         .w = take_bf16(b, (int64_t)b->V * b->C),
                                         .ids = take_ids(b, rows, b->V),
                                         .rows = rows,
                                         .cols = b->C,
                                         .V = b->V,
                                         .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_embedding_fwd, words(b, "%lld x %lld", (long long)b->V, (long long)b->C), 1, rows * b->C, &f);
    op_args g = {.embedding_bwd = {.dw = take_bf16(b, (int64_t)b->V * b->C),
                                   .dy = take_bf16(b, rows * b->C),
                                   .ids = take_ids(b, rows, b->V),
                                   .rows = rows,
                                   .cols = b->C,
                                   .V = b->V,
                                   .dtype = PS_DTYPE_BF16,
                                   .grad_dtype = PS_DTYPE_BF16,
                                   .accumulate_grad = true}}; /* tied: on top of the head's gradient */
    WITH_WORKSPACE(b, embedding_bwd, g);
    run(b, PS_OP_embedding_bwd, words(b, "%lld x %lld", (long long)b->V, (long long)b->C), 1, rows * b->C, &g);
    const op_args p = {.position_fwd = {.y = take_bf16(b, rows * b->C),
                                        .x = take_bf16(b, rows * b->C),
                                        .w = take_bf16(b, b->n_positions * b->C),
                                        .B = b->B,
                                        .T = b->T,
                                        .cols = b->C,
                                        .n_positions = b->n_positions,
                                        .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_position_fwd, words(b, "%lld x %lld", (long long)b->n_positions, (long long)b->C), 1, rows * b->C, &p);
    const op_args q = {.position_bwd = {.dw = take_bf16(b, b->n_positions * b->C),
                                        .dy = take_bf16(b, rows * b->C),
                                        .B = b->B,
                                        .T = b->T,
                                        .cols = b->C,
                                        .n_positions = b->n_positions,
                                        .dtype = PS_DTYPE_BF16,
                                        .grad_dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_position_bwd, words(b, "%lld x %lld", (long long)b->n_positions, (long long)b->C), 1, rows * b->C, &q);
}

static void bench_elementwise(bench *b)
{
    const int64_t n = b->rows * b->C;
    const op_args add = {
        .add = {.y = take_bf16(b, n), .a = take_bf16(b, n), .b = take_bf16(b, n), .n = n, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_add, words(b, "%lld", (long long)b->C), 2 * b->n_layers, n, &add);
    const op_args dropout = {
        .dropout = {.y = take_bf16(b, n), .x = take_bf16(b, n), .n = n, .p = 0.1f, .scale = 1, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_dropout, words(b, "%lld", (long long)b->C), 0, n, &dropout);
}

static void bench_lm_loss(bench *b, int64_t rows, int64_t n_classes, bool with_bias)
{
    op_args f = {.lm_loss_fwd = {.row_loss = take_f32(b, rows),
                                 .lse = take_f32(b, rows),
                                 .predicted = take_ids(b, rows, n_classes),
                                 .x = take_bf16(b, rows * b->C),
                                 .w = take_bf16(b, n_classes * b->C),
                                 .b = with_bias ? take_bf16(b, n_classes) : NULL,
                                 .targets = take_ids(b, rows, n_classes),
                                 .rows = rows,
                                 .C = b->C,
                                 .V = n_classes,
                                 .dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, lm_loss_fwd, f);
    run(b, PS_OP_lm_loss_fwd, words(b, "%lld x %lld", (long long)n_classes, (long long)b->C), with_bias ? 0 : 1,
        rows * n_classes, &f);
    op_args g = {.lm_loss_bwd = {.dx = take_bf16(b, rows * b->C),
                                 .dw = take_bf16(b, n_classes * b->C),
                                 .db = with_bias ? take_bf16(b, n_classes) : NULL,
                                 .x = take_bf16(b, rows * b->C),
                                 .w = take_bf16(b, n_classes * b->C),
                                 .b = with_bias ? take_bf16(b, n_classes) : NULL,
                                 .lse = take_f32(b, rows),
                                 .targets = take_ids(b, rows, n_classes),
                                 .rows = rows,
                                 .C = b->C,
                                 .V = n_classes,
                                 .scale = 1.0f / (float)rows,
                                 .dtype = PS_DTYPE_BF16,
                                 .grad_dtype = PS_DTYPE_BF16}};
    WITH_WORKSPACE(b, lm_loss_bwd, g);
    run(b, PS_OP_lm_loss_bwd, words(b, "%lld x %lld", (long long)n_classes, (long long)b->C), with_bias ? 0 : 1,
        rows * n_classes, &g);
}

static void bench_rmsnorm(bench *b, int64_t rows, int64_t cols)
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
    run(b, PS_OP_rmsnorm_fwd, words(b, "%lld", (long long)cols), 0, n, &f);
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
    run(b, PS_OP_rmsnorm_bwd, words(b, "%lld", (long long)cols), 0, n, &g);
}

static void bench_swiglu(bench *b, int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols;
    const op_args f = {
        .swiglu_fwd = {
            .y = take_bf16(b, n), .gate = take_bf16(b, n), .up = take_bf16(b, n), .n = n, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_swiglu_fwd, words(b, "%lld", (long long)cols), 0, n, &f);
    const op_args g = {.swiglu_bwd = {.dgate = take_bf16(b, n),
                                      .dup = take_bf16(b, n),
                                      .dy = take_bf16(b, n),
                                      .gate = take_bf16(b, n),
                                      .up = take_bf16(b, n),
                                      .n = n,
                                      .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_swiglu_bwd, words(b, "%lld", (long long)cols), 0, n, &g);
}

/* What goes over model data, whatever the rows. */
static void bench_model_data(bench *b)
{
    const int64_t n = b->streamed;
    uint16_t *const grad = take_bf16(b, n);
    const op_args adam = {.adam = {.param = grad,
                                   .grad = grad,
                                   .master = take_f32(b, n),
                                   .m = take_f32(b, n),
                                   .v = take_zeros(b, n * 4),
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
    run(b, PS_OP_adam, words(b, "%lld Ki", (long long)(b->streamed / 1024)), 0, n, &adam);
    const op_args stats = {
        .grad_stats = {
            .sums = take_zeros(b, sizeof(ps_grad_sums)), .x = take_bf16(b, n), .n = n, .dtype = PS_DTYPE_BF16}};
    run(b, PS_OP_grad_stats, words(b, "%lld Ki", (long long)(b->streamed / 1024)), 0, n, &stats);
    const op_args cast = {.cast = {.dst = take_bf16(b, n),
                                   .src = take_f32(b, n),
                                   .n = n,
                                   .dst_dtype = PS_DTYPE_BF16,
                                   .src_dtype = PS_DTYPE_F32}};
    run(b, PS_OP_cast, words(b, "%lld Ki", (long long)(b->streamed / 1024)), 0, n, &cast);
    for (ps_quant q = PS_QUANT_INT8; q <= PS_QUANT_NF4; q++) {
        const op_args dequantize = {
            .dequantize = {.y = take_bf16(b, n), .x = take_f32(b, n), .n = n, .quant = q, .dtype = PS_DTYPE_BF16}};
        run(b, PS_OP_dequantize,
            words(b, "%lld Ki, %s", (long long)(b->streamed / 1024), q == PS_QUANT_NF4 ? "nf4" : "int8"), 0, n,
            &dequantize);
    }
    const op_args fill = {.fill = {.dst = take_f32(b, n), .n = n, .std = 0.02f}};
    run(b, PS_OP_fill, words(b, "%lld Ki", (long long)(b->streamed / 1024)), 0, n, &fill);
}

static void bench_rows(bench *b, int64_t B, int64_t T)
{
    const sizes *const s = b->sizes;
    char title[64];
    b->B = B, b->T = T, b->rows = B * T;
    snprintf(title, sizeof title, "%lld rows (B = %lld, T = %lld)", (long long)b->rows, (long long)B, (long long)T);
    print_head(b, title);
    bench_linear(b, b->C, 3 * b->C);
    bench_linear(b, b->C, b->C);
    bench_linear(b, b->C, 4 * b->C);
    bench_linear(b, 4 * b->C, b->C);
    bench_attention(b, b->H, 0, b->n_layers);
    bench_attention(b, s->few_kv, 0, 0);
    bench_attention(b, s->few_kv, s->window, 0);
    bench_rope(b);
    bench_layernorm(b);
    bench_gelu(b);
    bench_elementwise(b);
    bench_embedding(b);
    bench_lm_loss(b, b->rows, b->V, false);
}

/* Operators of Llama (heads of 128 with a norm of their own) and the head of BERT. */
static void bench_other_models(bench *b)
{
    const sizes *const s = b->sizes;
    char title[64];
    snprintf(title, sizeof title, "Llama and BERT, %lld rows", (long long)s->other_rows);
    print_head(b, title);
    bench_rmsnorm(b, s->other_rows, s->other_C);
    bench_rmsnorm(b, s->other_rows * s->other_C / s->other_D, s->other_D);
    bench_swiglu(b, s->other_rows, s->other_inner);
    bench_lm_loss(b, s->other_rows, s->other_V, true);
    if (s->wide_H == 0) return;
    b->H = s->wide_H, b->D = s->wide_D;
    bench_attention(b, s->wide_kv, 0, 0);
    bench_rope(b);
}

static void bench_all(bench *b)
{
    const sizes *const s = b->sizes;
    b->C = s->C, b->H = s->H, b->D = s->D, b->V = s->V;
    b->n_positions = s->n_positions, b->n_layers = (int)s->n_layers, b->streamed = s->streamed;
    for (int i = 0; i < 2; i++)
        if (s->B[i] > 0) bench_rows(b, s->B[i], s->T[i]);
    bench_other_models(b);
    print_head(b, "model data");
    bench_model_data(b);
}

/* Small random numbers as bf16; two of them read as one f32 are one as well. */
static void make_pattern(bench *b, ps_backend *host, char *room)
{
    const int64_t n = PATTERN_BYTES / 2;
    const ps_fill_args fill = {.dst = (float *)room, .n = n, .std = 0.1f};
    const ps_cast_args cast = {
        .dst = b->pattern, .src = room, .n = n, .dst_dtype = PS_DTYPE_BF16, .src_dtype = PS_DTYPE_F32};
    bench_check(ps_run_fill(host, NULL, &fill, 0));
    bench_check(ps_run_cast(host, NULL, &cast, 0));
}

/* The GPU with its memory, or this processor with its. */
static ps_device *open_device(bench *b, bool on_gpu)
{
    ps_device *device = NULL;
    int n_threads;
    ps_backend *const host = bench_backend(&n_threads);
    b->k = host;
    if (on_gpu) bench_check(ps_backend_open_cuda(0, PS_CUDA_ATTENTION_AUTO, host, &b->k));
    const ps_space *const s = ps_backend_space(b->k);
    bench_check(ps_device_create_on(s->device, s->driver, s->page_bytes, "arena", b->sizes->arena_bytes, &device));
    if (on_gpu) bench_check(ps_queue_create(device, "kernels", PS_QUEUE_COMPUTE, &b->queue));
    bench_check(ps_device_alloc(device, b->sizes->arena_bytes, (void **)&b->arena));
    const ps_event given = ps_device_gave_after(device);
    bench_check(b->queue != NULL ? ps_queue_wait(b->queue, given) : ps_event_wait(given));
    b->pattern = malloc(PATTERN_BYTES);
    char *const room = malloc(2 * PATTERN_BYTES);
    if (b->pattern == NULL || room == NULL) {
        fprintf(stderr, "bench_op: no memory for %d bytes\n", (int)(3 * PATTERN_BYTES));
        exit(1);
    }
    make_pattern(b, ps_backend_host(b->k), room);
    free(room);
#ifdef COUNT_KERNELS
    printf("kernels: %s; GEMMs are left out\n", ps_backend_name(b->k));
#else
    printf("kernels: %s, %d threads, %d rounds; rates of the least time\n", ps_backend_name(b->k), n_threads,
           b->rounds);
#endif
    return device;
}

static void close_device(bench *b, ps_device *device)
{
    ps_queue_destroy(b->queue);
    ps_device_free(device, b->arena, b->sizes->arena_bytes, NULL);
    ps_device_destroy(device);
    ps_backend_destroy(b->k);
    free(b->pattern);
}

static void print_reasons(void)
{
    printf("\n");
    for (int i = 0; i < OP_TARGETS; i++)
        printf("- `%s` %.2f: %s\n", op_targets[i].name, op_targets[i].share, op_targets[i].why);
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: bench_op [--backend cpu|cuda] [--hardware FILE] [--small] [--table] [ROUNDS [NAME]], 1 to %d rounds; "
        "--table needs --hardware with bf16\n",
        BENCH_SAMPLES_MAX);
    return 1;
}

/* false, and a message, where no operator's name contains b->only. */
static bool has_measured(const bench *b)
{
    for (int op = 0; op < PS_OP_COUNT; op++)
        if (b->is_measured[op] && strstr(ps_op_name((ps_op)op), b->only) != NULL) return true;
    fprintf(stderr, "bench_op: no operator's name contains '%s'; expected a part of one of:", b->only);
    for (int op = 0; op < PS_OP_COUNT; op++)
        if (b->is_measured[op]) fprintf(stderr, " %s", ps_op_name((ps_op)op));
    fprintf(stderr, "\n");
    return false;
}

int main(int argc, char **argv)
{
    bench b = {.rounds = DEFAULT_ROUNDS};
    bool on_gpu = false, is_small = false, only_table = false;
    int i = 1;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        const char *const value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--small") == 0) {
            is_small = true;
        } else if (strcmp(argv[i], "--table") == 0) {
            only_table = true;
        } else if (strcmp(argv[i], "--hardware") == 0) {
            bench_check(ps_hardware_load(value, &b.hardware));
            b.has_hardware = true;
            i++;
        } else if (strcmp(argv[i], "--backend") == 0 && (strcmp(value, "cpu") == 0 || strcmp(value, "cuda") == 0)) {
            on_gpu = strcmp(value, "cuda") == 0;
            i++;
        } else {
            return usage();
        }
    }
    if (i < argc) b.rounds = atoi(argv[i]);
    if (i + 1 < argc) b.only = argv[i + 1];
    if (b.rounds < 1 || b.rounds > BENCH_SAMPLES_MAX) return usage();
    if ((only_table || b.has_hardware) && !b.hardware.device.bf16.present) return usage();
    b.sizes = is_small ? &small : on_gpu ? &of_gpu : &of_cpu;
    ps_device *const device = only_table ? NULL : open_device(&b, on_gpu);
    bench_all(&b);
    if (b.only != NULL && !has_measured(&b)) return 1;
#ifdef COUNT_KERNELS
    count_op_print_sites();
#endif
    if (only_table) print_reasons();
    if (!only_table) close_device(&b, device);
    return 0;
}
