/* measure_compute.c - rates of the kernels: memory, Adam, latency, matrix products. */
#include <stdio.h>

#include "base/machine.h"
#include "measure/measure_impl.h"

/* Elements of the arrays that stream through memory: far more than caches hold. */
#define STREAM_ELEMENTS ((int64_t)16 << 20)
#define ADAM_ELEMENTS ((int64_t)8 << 20)

static ps_status measure_add(ps_measuring *m, double *bytes_per_s)
{
    ps_add_args a = {.n = STREAM_ELEMENTS, .dtype = PS_DTYPE_F32};
    void *x, *z;
    PS_TRY(ps_measuring_take(m, a.n * 4, &a.y));
    PS_TRY(ps_measuring_take(m, a.n * 4, &x));
    PS_TRY(ps_measuring_take(m, a.n * 4, &z));
    a.a = x, a.b = z;
    ps_samples s;
    const double bytes = ps_op_cost(PS_OP_add, &a).bytes;
    PS_TRY(ps_run_add(m->backend, NULL, &a, 0));
    ps_samples_begin(m, 1, &s);
    while (ps_samples_want(&s)) {
        const int64_t begin = ps_clock_ns();
        PS_TRY(ps_run_add(m->backend, NULL, &a, 0));
        ps_samples_add(&s, bytes / ps_seconds_since(begin) * 1e-9);
    }
    *bytes_per_s = 1e9 * ps_measuring_report(m, &s, "GB/s", "memory: y = a + b of %lld MB", (long long)(bytes * 1e-6));
    ps_measuring_release(m);
    return PS_OK;
}

static ps_status measure_adam(ps_measuring *m, double *bytes_per_s)
{
    ps_adam_args a = {.n = ADAM_ELEMENTS,
                      .lr = 1e-3F,
                      .beta1 = 0.9F,
                      .beta2 = 0.999F,
                      .eps = 1e-8F,
                      .bias1 = 0.1F,
                      .bias2 = 0.001F,
                      .grad_scale = 1,
                      .decoupled_decay = true,
                      .param_dtype = PS_DTYPE_BF16,
                      .grad_dtype = PS_DTYPE_BF16};
    PS_TRY(ps_measuring_take(m, a.n * 2, &a.param));
    PS_TRY(ps_measuring_take(m, a.n * 4, &a.master));
    PS_TRY(ps_measuring_take(m, a.n * 4, &a.m));
    PS_TRY(ps_measuring_take(m, a.n * 4, &a.v));
    a.grad = a.param;
    ps_samples s;
    const double bytes = ps_op_cost(PS_OP_adam, &a).bytes;
    PS_TRY(ps_run_adam(m->backend, NULL, &a, 0));
    ps_samples_begin(m, 1, &s);
    while (ps_samples_want(&s)) {
        const int64_t begin = ps_clock_ns();
        PS_TRY(ps_run_adam(m->backend, NULL, &a, 0));
        ps_samples_add(&s, bytes / ps_seconds_since(begin) * 1e-9);
    }
    *bytes_per_s =
        1e9 * ps_measuring_report(m, &s, "GB/s", "memory: Adam on %lld M parameters", (long long)(a.n >> 20));
    ps_measuring_release(m);
    return PS_OK;
}

/* The time of an operator that has next to nothing to compute, called again and again as in a step. */
static ps_status measure_latency(ps_measuring *m, double *seconds)
{
    enum { ROWS = 32, COLS = 64, N_CALLS = 50 };
    ps_layernorm_fwd_args a = {.rows = ROWS, .cols = COLS, .eps = 1e-5F, .dtype = PS_DTYPE_F32};
    void *x, *w;
    PS_TRY(ps_measuring_take(m, ROWS * COLS * 4, &a.y));
    PS_TRY(ps_measuring_take(m, ROWS * COLS * 4, &x));
    PS_TRY(ps_measuring_take(m, COLS * 4, &w));
    PS_TRY(ps_measuring_take(m, ROWS * 4, &a.mean));
    PS_TRY(ps_measuring_take(m, ROWS * 4, &a.rstd));
    a.x = x, a.w = a.b = w;
    ps_samples s;
    ps_samples_begin(m, 1, &s);
    while (ps_samples_want(&s)) {
        const int64_t begin = ps_clock_ns();
        for (int i = 0; i < N_CALLS; i++) PS_TRY(ps_run_layernorm_fwd(m->backend, NULL, &a, 0));
        ps_samples_add(&s, ps_seconds_since(begin) / N_CALLS * 1e6);
    }
    *seconds = 1e-6 * ps_measuring_report(m, &s, "us", "operator: layer norm of %d x %d", ROWS, COLS);
    ps_measuring_release(m);
    return PS_OK;
}

ps_status ps_measure_memory(ps_measuring *m)
{
    ps_hardware_device *d = &m->report->hardware.device;
    ps_hardware_host *h = &m->report->hardware.host;
    double add = 0, adam = 0, latency = 0;
    PS_TRY(measure_add(m, &add));
    PS_TRY(measure_adam(m, &adam));
    PS_TRY(measure_latency(m, &latency));
    h->memory_bytes_per_s = d->memory_bytes_per_s = ps_measured(add > adam ? add : adam);
    h->adam_fraction = add > adam ? ps_measured(adam / add) : 1;
    h->op_latency_ns = d->op_latency_ns = (int64_t)(latency * 1e9);
    return PS_OK;
}

static ps_status measure_product(ps_measuring *m, ps_dtype t, int64_t rows, int64_t n_in, int64_t n_out,
                                 double *flop_per_s)
{
    const int64_t size = (int64_t)ps_dtype_bytes(t);
    ps_linear_fwd_args a = {
        .rows = rows, .n_in = n_in, .n_out = n_out, .layout = PS_WEIGHT_IN_OUT, .dtype = t, .y_dtype = t};
    void *x, *w;
    PS_TRY(ps_measuring_take(m, rows * n_out * size, &a.y));
    PS_TRY(ps_measuring_take(m, rows * n_in * size, &x));
    PS_TRY(ps_measuring_take(m, n_in * n_out * size, &w));
    size_t bytes;
    PS_TRY(ps_kernel_measure(m->backend, PS_OP_linear_fwd, &a, &bytes));
    PS_TRY(ps_measuring_take(m, ps_max_i64(64, (int64_t)bytes), &a.workspace));
    a.x = x, a.w = w;
    ps_samples s;
    const double flops = ps_op_cost(PS_OP_linear_fwd, &a).flops;
    PS_TRY(ps_run_linear_fwd(m->backend, NULL, &a, bytes));
    ps_samples_begin(m, 1, &s);
    while (ps_samples_want(&s)) {
        const int64_t begin = ps_clock_ns();
        PS_TRY(ps_run_linear_fwd(m->backend, NULL, &a, bytes));
        ps_samples_add(&s, flops / ps_seconds_since(begin) * 1e-9);
    }
    *flop_per_s =
        1e9 * ps_measuring_report(m, &s, "GFLOP/s", "product %s: %lld x %lld by %lld x %lld", ps_dtype_name(t),
                                  (long long)rows, (long long)n_in, (long long)n_in, (long long)n_out);
    ps_measuring_release(m);
    return PS_OK;
}

ps_status ps_measure_products(ps_measuring *m)
{
    static const int64_t shapes[][3] = {{256, 768, 3072}, {1024, 768, 768}, {1024, 768, 3072}};
    ps_hardware_device *d = &m->report->hardware.device;
    ps_hardware_matrix *const by_type[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = &d->f32, [PS_DTYPE_BF16] = &d->bf16, [PS_DTYPE_F16] = &d->fp16};
    for (ps_dtype t = 0; t < PS_DTYPE_COUNT; t++) {
        double best = 0, reached = 0;
        if (m->options->one_format && t != m->options->format) continue;
        for (size_t i = 0; i < PS_ARRAY_LEN(shapes); i++) {
            double rate = 0;
            PS_TRY(measure_product(m, t, shapes[i][0], shapes[i][1], shapes[i][2], &rate));
            best = rate > best ? rate : best;
        }
        PS_TRY(ps_measure_block(m, t, best, &reached));
        best = reached > best ? reached : best;
        *by_type[t] = (ps_hardware_matrix){
            .present = true, .flop_per_s = ps_measured(best), .achievable_fraction = ps_measured(reached / best)};
    }
    return PS_OK;
}
