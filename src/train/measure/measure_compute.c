/* measure_compute.c - throughput of the kernels: memory, Adam, latency, matrix multiplication. */
#include <math.h>
#include <stdio.h>

#include "base/machine.h"
#include "train/measure/measure_impl.h"

/* One figure: the operator's bytes or FLOP, `work`, a second, in 1e9. */
static ps_status sample_rate(ps_measuring *m, const ps_measure_place *at, ps_op op, const void *args, size_t bytes,
                             double work, ps_samples *s)
{
    PS_TRY(ps_measure_run(at, op, args, bytes, 1, NULL));
    ps_samples_begin(m, 1, s);
    while (ps_samples_want(s)) {
        double seconds;
        PS_TRY(ps_measure_run(at, op, args, bytes, m->sizes->n_calls, &seconds));
        ps_samples_add(s, work / seconds * 1e-9);
    }
    return PS_OK;
}

/* "memory"; host memory next to a GPU has another name. */
static const char *memory_name(const ps_measuring *m, const ps_measure_place *at)
{
    return m->options->gpu != NULL && at == &m->host ? "host memory" : "memory";
}

/* Memory next to a GPU is measured as that of a processor alone is. */
static const ps_measure_sizes *sizes_at(const ps_measuring *m, const ps_measure_place *at)
{
    return m->options->gpu != NULL && at == &m->host ? &ps_measure_sizes_processor : m->sizes;
}

static ps_status measure_add(ps_measuring *m, const ps_measure_place *at, double *bytes_per_s)
{
    ps_add_args a = {.n = sizes_at(m, at)->stream_n, .dtype = PS_DTYPE_F32};
    void *x, *z;
    PS_TRY(ps_measuring_take(m, at, a.n * 4, &a.y));
    PS_TRY(ps_measuring_take(m, at, a.n * 4, &x));
    PS_TRY(ps_measuring_take(m, at, a.n * 4, &z));
    a.a = x, a.b = z;
    ps_samples s;
    const double bytes = ps_op_cost(PS_OP_add, &a).bytes;
    PS_TRY(sample_rate(m, at, PS_OP_add, &a, 0, bytes, &s));
    *bytes_per_s = 1e9 * ps_measuring_report(m, &s, "GB/s", "%s: y = a + b of %lld MB", memory_name(m, at),
                                             (long long)(bytes * 1e-6));
    ps_measuring_release(m);
    return PS_OK;
}

static ps_status measure_adam(ps_measuring *m, const ps_measure_place *at, bool is_compact, double *bytes_per_s)
{
    ps_adam_args a = {.n = sizes_at(m, at)->adam_n,
                      .lr = 1e-3F,
                      .beta1 = 0.9F,
                      .beta2 = 0.999F,
                      .eps = 1e-8F,
                      .one_minus_beta1 = 0.1F,
                      .one_minus_beta2 = 0.001F,
                      .bias1 = 0.1F,
                      .bias2 = 0.001F,
                      .grad_scale = 1,
                      .decoupled_decay = true,
                      .is_compact = is_compact,
                      .param_dtype = PS_DTYPE_BF16,
                      .grad_dtype = PS_DTYPE_BF16};
    PS_TRY(ps_measuring_take(m, at, a.n * 2, &a.param));
    PS_TRY(ps_measuring_take(m, at, a.n * 4, &a.master));
    PS_TRY(ps_measuring_take(m, at, a.n * 4, &a.m)); /* more than compact states need */
    PS_TRY(ps_measuring_take(m, at, a.n * 4, &a.v));
    a.grad = a.param;
    ps_samples s;
    const double bytes = ps_op_cost(PS_OP_adam, &a).bytes;
    PS_TRY(sample_rate(m, at, PS_OP_adam, &a, 0, bytes, &s));
    *bytes_per_s = 1e9 * ps_measuring_report(m, &s, "GB/s", "%s: Adam%s on %.3g M parameters", memory_name(m, at),
                                             is_compact ? ", compact states," : "", (double)a.n / (1 << 20));
    ps_measuring_release(m);
    return PS_OK;
}

/* The time of an operator with almost no work, called repeatedly as in a step. */
static ps_status measure_latency(ps_measuring *m, const ps_measure_place *at, double *seconds)
{
    enum { ROWS = 32, COLS = 64, N_CALLS = 50 };
    ps_layernorm_fwd_args a = {.rows = ROWS, .cols = COLS, .eps = 1e-5F, .dtype = PS_DTYPE_F32};
    void *x, *w;
    PS_TRY(ps_measuring_take(m, at, ROWS * COLS * 4, &a.y));
    PS_TRY(ps_measuring_take(m, at, ROWS * COLS * 4, &x));
    PS_TRY(ps_measuring_take(m, at, COLS * 4, &w));
    PS_TRY(ps_measuring_take(m, at, ROWS * 4, &a.mean));
    PS_TRY(ps_measuring_take(m, at, ROWS * 4, &a.rstd));
    a.x = x, a.w = a.b = w;
    ps_samples s;
    ps_samples_begin(m, 1, &s);
    while (ps_samples_want(&s)) {
        double one_s;
        PS_TRY(ps_measure_run(at, PS_OP_layernorm_fwd, &a, 0, N_CALLS, &one_s));
        ps_samples_add(&s, one_s * 1e6);
    }
    *seconds = 1e-6 * ps_measuring_report(m, &s, "us", "%soperator: layer norm of %d x %d",
                                          m->options->gpu != NULL && at == &m->host ? "host " : "", ROWS, COLS);
    ps_measuring_release(m);
    return PS_OK;
}

ps_status ps_measure_memory(ps_measuring *m)
{
    ps_hardware_device *d = &m->report->hardware.device;
    ps_hardware_host *h = &m->report->hardware.host;
    double add = 0, adam = 0, compact = 0, latency = 0;
    PS_TRY(measure_add(m, &m->host, &add));
    PS_TRY(measure_adam(m, &m->host, false, &adam));
    PS_TRY(measure_adam(m, &m->host, true, &compact));
    PS_TRY(measure_latency(m, &m->host, &latency));
    h->memory_bytes_per_s = ps_measured(add > adam ? add : adam);
    h->adam_fraction = add > adam ? ps_measured(adam / add) : 1;
    h->adam_compact_fraction = ps_measured(fmin(1, compact / h->memory_bytes_per_s));
    h->op_latency_ns = (int64_t)(latency * 1e9);
    if (m->options->gpu != NULL) {
        PS_TRY(measure_add(m, &m->device, &add));
        PS_TRY(measure_adam(m, &m->device, false, &adam));
        PS_TRY(measure_latency(m, &m->device, &latency));
    }
    d->memory_bytes_per_s = ps_measured(add > adam ? add : adam);
    d->op_latency_ns = (int64_t)(latency * 1e9);
    return PS_OK;
}

static ps_status measure_gemm(ps_measuring *m, ps_dtype t, int64_t rows, int64_t n_in, int64_t n_out,
                              double *flop_per_s)
{
    const int64_t size = (int64_t)ps_dtype_bytes(t);
    ps_linear_fwd_args a = {
        .rows = rows, .n_in = n_in, .n_out = n_out, .layout = PS_WEIGHT_IN_OUT, .dtype = t, .y_dtype = t};
    void *x, *w;
    const ps_measure_place *at = &m->device;
    PS_TRY(ps_measuring_take(m, at, rows * n_out * size, &a.y));
    PS_TRY(ps_measuring_take(m, at, rows * n_in * size, &x));
    PS_TRY(ps_measuring_take(m, at, n_in * n_out * size, &w));
    size_t bytes;
    PS_TRY(ps_kernel_measure(at->backend, PS_OP_linear_fwd, &a, &bytes));
    PS_TRY(ps_measuring_take(m, at, ps_max_i64(64, (int64_t)bytes), &a.workspace));
    a.x = x, a.w = w;
    ps_samples s;
    const double flops = ps_op_cost(PS_OP_linear_fwd, &a).flops;
    PS_TRY(sample_rate(m, at, PS_OP_linear_fwd, &a, bytes, flops, &s));
    *flop_per_s =
        1e9 * ps_measuring_report(m, &s, "GFLOP/s", "product %s: %lld x %lld by %lld x %lld", ps_dtype_name(t),
                                  (long long)rows, (long long)n_in, (long long)n_in, (long long)n_out);
    ps_measuring_spread(m, s.value[s.n - 1], ps_samples_median(&s));
    ps_measuring_release(m);
    return PS_OK;
}

ps_status ps_measure_gemms(ps_measuring *m)
{
    ps_hardware_device *d = &m->report->hardware.device;
    ps_hardware_matrix *const by_type[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = &d->f32, [PS_DTYPE_BF16] = &d->bf16, [PS_DTYPE_F16] = &d->fp16};
    for (ps_dtype t = 0; t < PS_DTYPE_COUNT; t++) {
        double best = 0, reached = 0;
        if (m->options->one_format && t != m->options->format) continue;
        for (size_t i = 0; i < PS_ARRAY_LEN(m->sizes->gemms); i++) {
            const int64_t *p = m->sizes->gemms[i];
            double rate = 0;
            PS_TRY(measure_gemm(m, t, p[0], p[1], p[2], &rate));
            best = rate > best ? rate : best;
        }
        PS_TRY(ps_measure_block(m, t, best, &reached));
        best = reached > best ? reached : best;
        *by_type[t] = (ps_hardware_matrix){
            .present = true, .flop_per_s = ps_measured(best), .achievable_fraction = ps_measured(reached / best)};
    }
    return PS_OK;
}
