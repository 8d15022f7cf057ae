/* measure_block.c - one block of a transformer and a share of its loss, forward and backward, timed as a whole.
 *
 * On the processor its width is between that of a demo and of GPT-2 124M: narrow layers are slower, and wide ones
 * faster, by some tenths. Epilogues are fused as in training. */
#include <stdio.h>

#include "base/machine.h"
#include "kernel/softmax_cost.h"
#include "train/measure/measure_impl.h"

#define BLOCK_SHARE 4              /* of the time: all figures of a step follow from it */
#define PASSES_SECONDS 0.5         /* so that there is more than one pass if they are short */
#define STREAM_FRACTION_LEAST 0.02 /* of a sample that was disturbed */

enum { STEPS_MAX = 32, N_PASSES = 3, N_BISECTIONS = 40, RATE_HEADROOM = 4 };

typedef union step_args {
#define XX(op) ps_##op##_args op;
    PS_OPS(XX)
#undef XX
} step_args;

typedef struct step {
    ps_op op;
    step_args args;
} step;

/* Gradients of activations have the letter d before their names; parameters and their gradients are separate. */
typedef struct block {
    ps_dtype t;
    int64_t B, T, C, H, D, V, rows;                        /* rows: B T */
    void *x, *qkv, *attended, *f, *g;                      /* [rows, C], 3 C, C, 4 C, 4 C */
    void *dx, *dy, *dqkv, *df;                             /* [rows, C], C, 3 C, 4 C */
    void *w_qkv, *w_out, *w_up, *w_down, *w_head, *vector; /* vector: [4 C], all biases and norms */
    void *dw, *dgain, *dbias; /* the largest weight's size; gradients of a kind share one array */
    float *mean, *rstd, *lse, *loss_lse, *row_loss;
    int32_t *targets;
    void *workspace;
    size_t workspace_bytes;
    step steps[STEPS_MAX];
    int n_steps;
} block;

#define PUT(b_, op_, ...) ((b_)->steps[(b_)->n_steps++] = (step){.op = PS_OP_##op_, .args.op_ = {__VA_ARGS__}})

static void put_linear(block *b, void *y, const void *x, const void *w, int64_t n_in, int64_t n_out,
                       ps_linear_epilogue e)
{
    PUT(b, linear_fwd, .y = y, .x = x, .w = w, .b = b->vector, .rows = b->rows, .n_in = n_in, .n_out = n_out,
        .layout = PS_WEIGHT_IN_OUT, .dtype = b->t, .y_dtype = b->t, .epilogue = e, .workspace = b->workspace);
}

static void put_linear_back(block *b, void *dx, const void *dy, const void *x, const void *w, int64_t n_in,
                            int64_t n_out, ps_linear_epilogue e)
{
    PUT(b, linear_bwd_input, .dx = dx, .dy = dy, .w = w, .rows = b->rows, .n_in = n_in, .n_out = n_out,
        .layout = PS_WEIGHT_IN_OUT, .dtype = b->t, .epilogue = e, .workspace = b->workspace);
    PUT(b, linear_bwd_weight, .dw = b->dw, .db = b->dbias, .dy = dy, .x = x, .rows = b->rows, .n_in = n_in,
        .n_out = n_out, .layout = PS_WEIGHT_IN_OUT, .dtype = b->t, .grad_dtype = b->t, .workspace = b->workspace);
}

static void put_norm(block *b)
{
    PUT(b, layernorm_fwd, .y = b->dx, .mean = b->mean, .rstd = b->rstd, .x = b->x, .w = b->vector, .b = b->vector,
        .rows = b->rows, .cols = b->C, .eps = 1e-5F, .dtype = b->t);
}

static void put_norm_back(block *b)
{
    PUT(b, layernorm_bwd, .dx = b->dx, .dw = b->dgain, .db = b->dbias, .dy = b->dy, .x = b->x, .w = b->vector,
        .mean = b->mean, .rstd = b->rstd, .rows = b->rows, .cols = b->C, .dtype = b->t, .grad_dtype = b->t,
        .accumulate_dx = true, .workspace = b->workspace);
}

static void put_forward(block *b)
{
    char *const qkv = b->qkv;
    const size_t row = (size_t)b->C * ps_dtype_bytes(b->t);
    const ps_linear_epilogue none = {0}, add = {.kind = PS_EPILOGUE_ADD, .other = b->x};
    put_norm(b);
    put_linear(b, b->qkv, b->x, b->w_qkv, b->C, 3 * b->C, none);
    PUT(b, attention_fwd, .y = b->attended, .lse = b->lse, .q = qkv, .k = qkv + row, .v = qkv + 2 * row, .B = b->B,
        .T = b->T, .H = b->H, .KV = b->H, .D = b->D, .q_stride = 3 * b->C, .kv_stride = 3 * b->C, .scale = 0.125F,
        .causal = true, .dtype = b->t, .workspace = b->workspace);
    put_linear(b, b->dy, b->attended, b->w_out, b->C, b->C, add);
    put_norm(b);
    put_linear(b, b->g, b->x, b->w_up, b->C, 4 * b->C, (ps_linear_epilogue){PS_EPILOGUE_GELU, PS_GELU_TANH, b->f});
    put_linear(b, b->dy, b->g, b->w_down, 4 * b->C, b->C, add);
    PUT(b, lm_loss_fwd, .row_loss = b->row_loss, .lse = b->loss_lse, .x = b->x, .w = b->w_head, .targets = b->targets,
        .rows = b->rows, .C = b->C, .V = b->V, .dtype = b->t, .workspace = b->workspace);
}

static void put_backward(block *b)
{
    char *const qkv = b->qkv, *const dqkv = b->dqkv;
    const size_t row = (size_t)b->C * ps_dtype_bytes(b->t);
    const ps_linear_epilogue none = {0};
    PUT(b, lm_loss_bwd, .dx = b->dy, .dw = b->dw, .x = b->x, .w = b->w_head, .lse = b->loss_lse, .targets = b->targets,
        .rows = b->rows, .C = b->C, .V = b->V, .scale = 1.0F / (float)b->rows, .dtype = b->t, .grad_dtype = b->t,
        .workspace = b->workspace);
    put_linear_back(b, b->df, b->dy, b->g, b->w_down, 4 * b->C, b->C,
                    (ps_linear_epilogue){PS_EPILOGUE_GELU_BWD, PS_GELU_TANH, b->f});
    put_linear_back(b, b->dx, b->df, b->x, b->w_up, b->C, 4 * b->C, none);
    put_norm_back(b);
    put_linear_back(b, b->dx, b->dy, b->attended, b->w_out, b->C, b->C, none);
    PUT(b, attention_bwd, .dq = dqkv, .dk = dqkv + row, .dv = dqkv + 2 * row, .dy = b->dx, .y = b->attended, .q = qkv,
        .k = qkv + row, .v = qkv + 2 * row, .lse = b->lse, .B = b->B, .T = b->T, .H = b->H, .KV = b->H, .D = b->D,
        .q_stride = 3 * b->C, .kv_stride = 3 * b->C, .scale = 0.125F, .causal = true, .dtype = b->t,
        .workspace = b->workspace);
    put_linear_back(b, b->dx, b->dqkv, b->x, b->w_qkv, b->C, 3 * b->C, none);
    put_norm_back(b);
}

static void put_all(block *b)
{
    b->n_steps = 0;
    put_forward(b);
    put_backward(b);
}

/* Small numbers of both signs, so that nothing overflows or becomes subnormal. */
static ps_status fill(ps_measuring *m, ps_dtype t, void *array, int64_t n, float std)
{
    enum { PIECE = 1 << 16 };
    float *values;
    PS_TRY(ps_measuring_take(m, &m->device, PIECE * 4, &values));
    const ps_fill_args f = {.dst = values, .n = PIECE, .std = std, .key = {.seed = 1}};
    PS_TRY(ps_measure_run(&m->device, PS_OP_fill, &f, 0, 1, NULL));
    for (int64_t at = 0; at < n; at += PIECE) {
        const ps_cast_args c = {.dst = (char *)array + at * (int64_t)ps_dtype_bytes(t),
                                .src = values,
                                .n = ps_min_i64(PIECE, n - at),
                                .dst_dtype = t,
                                .src_dtype = PS_DTYPE_F32};
        PS_TRY(ps_measure_run(&m->device, PS_OP_cast, &c, 0, 1, NULL));
    }
    return PS_OK;
}

static ps_status take_filled(ps_measuring *m, ps_dtype t, int64_t n, float std, void **out)
{
    PS_TRY(ps_measuring_take(m, &m->device, n * (int64_t)ps_dtype_bytes(t), out));
    return fill(m, t, *out, n, std);
}

static ps_status prepare(ps_measuring *m, block *b)
{
    const struct {
        size_t field;
        int64_t n;
        float std;
    } arrays[] = {
        {offsetof(block, x), b->rows * b->C, 1},
        {offsetof(block, qkv), b->rows * 3 * b->C, 1},
        {offsetof(block, attended), b->rows * b->C, 1},
        {offsetof(block, f), b->rows * 4 * b->C, 1},
        {offsetof(block, g), b->rows * 4 * b->C, 1},
        {offsetof(block, dx), b->rows * b->C, 1},
        {offsetof(block, dy), b->rows * b->C, 1},
        {offsetof(block, dqkv), b->rows * 3 * b->C, 1},
        {offsetof(block, df), b->rows * 4 * b->C, 1},
        {offsetof(block, w_qkv), b->C * 3 * b->C, 0.02F},
        {offsetof(block, w_out), b->C * b->C, 0.02F},
        {offsetof(block, w_up), b->C * 4 * b->C, 0.02F},
        {offsetof(block, w_down), b->C * 4 * b->C, 0.02F},
        {offsetof(block, w_head), b->V * b->C, 0.02F},
        {offsetof(block, vector), 4 * b->C, 0.02F},
        {offsetof(block, dw), b->V * b->C, 0.02F},
        {offsetof(block, dgain), b->C, 0.02F},
        {offsetof(block, dbias), 4 * b->C, 0.02F},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(arrays); i++) {
        void **field = (void **)(void *)((char *)b + arrays[i].field);
        PS_TRY(take_filled(m, b->t, arrays[i].n, arrays[i].std, field));
    }
    PS_TRY(ps_measuring_take(m, &m->device, b->rows * 4, &b->mean));
    PS_TRY(ps_measuring_take(m, &m->device, b->rows * 4, &b->rstd));
    PS_TRY(ps_measuring_take(m, &m->device, b->H * b->rows * 4, &b->lse));
    PS_TRY(ps_measuring_take(m, &m->device, b->rows * 4, &b->loss_lse));
    PS_TRY(ps_measuring_take(m, &m->device, b->rows * 4, &b->row_loss));
    PS_TRY(ps_measuring_take(m, &m->device, b->rows * 4, &b->targets));
    for (int64_t i = 0; i < b->rows; i++) {
        const int32_t target = (int32_t)(i * 7919 % b->V);
        PS_TRY(ps_measure_put(&m->device, b->targets + i, &target, sizeof target));
    }
    put_all(b);
    b->workspace_bytes = 64;
    for (int i = 0; i < b->n_steps; i++) {
        size_t bytes;
        PS_TRY(ps_kernel_measure(m->device.backend, b->steps[i].op, &b->steps[i].args, &bytes));
        b->workspace_bytes = bytes > b->workspace_bytes ? bytes : b->workspace_bytes;
    }
    PS_TRY(ps_measuring_take(m, &m->device, (int64_t)b->workspace_bytes, &b->workspace));
    put_all(b);
    return PS_OK;
}

/* ---- time by kind ---- */

typedef enum kind {
    KIND_STREAM, /* norms: streams through arrays */
    KIND_GEMM,   /* also with an added residual */
    KIND_GELU,   /* a linear layer with gelu */
    KIND_ATTENTION,
    KIND_LOSS,
    N_KINDS,
} kind;

static kind kind_of(const step *s)
{
    if (ps_softmax_scores(s->op, &s->args) > 0) return KIND_ATTENTION;
    if (ps_softmax_logits(s->op, &s->args) > 0) return KIND_LOSS;
    if (ps_softmax_gelus(s->op, &s->args) > 0) return KIND_GELU;
    const bool is_gemm =
        s->op == PS_OP_linear_fwd || s->op == PS_OP_linear_bwd_input || s->op == PS_OP_linear_bwd_weight;
    return is_gemm ? KIND_GEMM : KIND_STREAM;
}

/* One pass; adds the time of each kind to seconds [N_KINDS]. */
static ps_status run_steps(ps_measuring *m, const block *b, double *seconds)
{
    for (int i = 0; i < b->n_steps; i++) {
        const step *s = &b->steps[i];
        double one_s;
        PS_TRY(ps_measure_run(&m->device, s->op, &s->args, b->workspace_bytes, m->sizes->n_calls, &one_s));
        seconds[kind_of(s)] += one_s;
    }
    return PS_OK;
}

static double predicted_seconds(const block *b, kind of, const ps_compute_throughput *throughput)
{
    double seconds = 0;
    for (int i = 0; i < b->n_steps; i++) {
        const ps_cost c = ps_op_cost(b->steps[i].op, &b->steps[i].args);
        if (kind_of(&b->steps[i]) == of) seconds += ps_cost_seconds(&c, throughput);
    }
    return seconds;
}

/* ---- fitted figures ---- */

/* The fraction of the memory bandwidth with which streaming operators would take this long. */
static double fit_stream_fraction(const ps_measuring *m, const block *b, double flop_per_s, double seconds)
{
    const ps_hardware_device *d = &m->report->hardware.device;
    const ps_compute_throughput whole = {.flops_per_s = flop_per_s, .bytes_per_s = d->memory_bytes_per_s};
    const double fraction = predicted_seconds(b, KIND_STREAM, &whole) / seconds;
    return fraction > 1 ? 1 : fraction < STREAM_FRACTION_LEAST ? STREAM_FRACTION_LEAST : fraction;
}

/* The throughput, at most `most`, with which the predicted time of matrix multiplications comes nearest to `seconds`:
 * predictions fall as it grows. */
static double fit_rate(const ps_measuring *m, const block *b, double most, double seconds)
{
    const ps_hardware_device *d = &m->report->hardware.device;
    ps_compute_throughput throughput = {.bytes_per_s = d->memory_bytes_per_s * d->stream_fraction,
                                        .latency_ns = d->op_latency_ns};
    double low = 0, high = most;
    for (int i = 0; i < N_BISECTIONS; i++) {
        throughput.flops_per_s = 0.5 * (low + high);
        if (predicted_seconds(b, KIND_GEMM, &throughput) > seconds)
            low = throughput.flops_per_s;
        else
            high = throughput.flops_per_s;
    }
    return high;
}

/* The kind's remaining time, without matrix multiplications, for each of its scores, logits or elements. */
static double fit_softmax_ns(const ps_measuring *m, const block *b, kind of, double reached, double seconds)
{
    const ps_hardware_device *d = &m->report->hardware.device;
    const ps_compute_throughput throughput = {.flops_per_s = reached,
                                              .bytes_per_s = d->memory_bytes_per_s * d->stream_fraction,
                                              .latency_ns = d->op_latency_ns};
    const double left = seconds - predicted_seconds(b, of, &throughput);
    double n = 0;
    for (int i = 0; i < b->n_steps; i++)
        n += of == KIND_LOSS   ? ps_softmax_logits(b->steps[i].op, &b->steps[i].args)
             : of == KIND_GELU ? ps_softmax_gelus(b->steps[i].op, &b->steps[i].args)
                               : ps_softmax_scores(b->steps[i].op, &b->steps[i].args);
    return left > 0 ? left * 1e9 / n : 0;
}

/* Time of each kind in a pass: a disturbance affects one of them, so the parts are those of their minimum times, and
 * the whole is the median. */
static ps_status measure_kinds(ps_measuring *m, const block *b, double seconds[N_KINDS])
{
    static const char *const names[N_KINDS] = {[KIND_STREAM] = "norms",
                                               [KIND_GEMM] = "products",
                                               [KIND_GELU] = "linear layers with gelu",
                                               [KIND_ATTENTION] = "attention",
                                               [KIND_LOSS] = "loss"};
    ps_samples whole, s[N_KINDS];
    double least = 0;
    PS_TRY(run_steps(m, b, seconds));
    ps_samples_begin(m, BLOCK_SHARE, &whole);
    for (int k = 0; k < N_KINDS; k++) ps_samples_begin(m, 0, &s[k]);
    const int64_t begin = ps_clock_ns();
    while (ps_samples_want(&whole) || (whole.n < N_PASSES && ps_seconds_since(begin) < PASSES_SECONDS)) {
        double pass[N_KINDS] = {0}, sum = 0;
        PS_TRY(run_steps(m, b, pass));
        for (int k = 0; k < N_KINDS; k++) {
            ps_samples_add(&s[k], pass[k] * 1e3);
            sum += pass[k] * 1e3;
        }
        ps_samples_add(&whole, sum);
    }
    const char *const format = ps_dtype_name(b->t);
    const double median =
        ps_measuring_report(m, &whole, "ms", "block %s: forward and backward, %lld rows", format, (long long)b->rows);
    ps_measuring_spread(m, whole.value[0], median);
    for (int k = 0; k < N_KINDS; k++) {
        (void)ps_measuring_report(m, &s[k], "ms", "block %s: of it %s", format, names[k]);
        seconds[k] = s[k].value[0];
        least += seconds[k];
    }
    for (int k = 0; k < N_KINDS; k++) seconds[k] *= 1e-3 * median / least;
    return PS_OK;
}

ps_status ps_measure_block(ps_measuring *m, ps_dtype t, double flop_per_s, double *reached)
{
    ps_hardware_device *d = &m->report->hardware.device;
    const ps_measure_sizes *z = m->sizes;
    block b = {.t = t, .B = z->B, .T = z->T, .C = z->C, .H = z->H, .D = z->C / z->H, .V = z->V, .rows = z->B * z->T};
    double seconds[N_KINDS] = {0};
    PS_TRY(prepare(m, &b));
    PS_TRY(measure_kinds(m, &b, seconds));
    d->stream_fraction = ps_measured(fit_stream_fraction(m, &b, flop_per_s, seconds[KIND_STREAM]));
    *reached = fit_rate(m, &b, RATE_HEADROOM * flop_per_s, seconds[KIND_GEMM]);
    d->score_ns = ps_measured(fit_softmax_ns(m, &b, KIND_ATTENTION, *reached, seconds[KIND_ATTENTION]));
    d->logit_ns = ps_measured(fit_softmax_ns(m, &b, KIND_LOSS, *reached, seconds[KIND_LOSS]));
    d->gelu_ns = ps_measured(fit_softmax_ns(m, &b, KIND_GELU, *reached, seconds[KIND_GELU]));
    ps_measuring_release(m);
    return PS_OK;
}
