/* muon.c - Muon (Jordan et al. 2024) as torch.optim.Muon of 2.9, for matrices; AdamW for other tensors.
 *
 *     buffer = momentum buffer + (1 - momentum) g;  U = buffer, or (1 - momentum) g + momentum buffer with nesterov
 *     X = U / max(|U|, ns_eps);  ns_steps times:  A = X X^T;  X = a X + (b A + c A A) X
 *     master -= lr weight_decay master + lr ratio X;  param = master rounded to its type
 *     ratio: sqrt(max(1, rows / cols)), or 0.2 sqrt(max(rows, cols))
 *
 * |U| is Frobenius' norm. A tall matrix has X^T X and X (b A + c A A) instead, which is the same without transposing X.
 * X, A and b A + c A A are of the type of ns_gemms, rounded once each, and used rounded wherever they occur: where
 * singular values are near 1 the iteration then damps what rounding has changed, which exact values in some of its terms
 * would undo. Products, sums, norm and the last X are fp32, where torch.optim.Muon has bf16.
 *
 * All of it is composed of operators that every backend has: matrix products of linear layers, and for what is element
 * by element the operator of SGD without momentum,  w -= lr (g scale + decay w),  which with lr = -1 is
 * w = (1 + decay) w + scale g. */
#include <math.h>
#include <string.h>

#include "config/option/optimizer_params.h"
#include "train/optim/optimizer.h"

enum { MOMENTUM, NESTEROV, A, B, C, N_STEPS, EPS, MATCHES_RMS, HAS_BF16_GEMMS, N_NUMBERS };
_Static_assert((int)N_NUMBERS <= (int)PS_OPTIMIZER_NUMBERS_MAX, "room in ps_optimizer_setup.number");

enum { BUFFER, MEAN, VARIANCE, N_STATES };

static ps_status read_options(const ps_options *o, ps_optimizer_setup *out)
{
    char problem[PS_NS_PROBLEM_MAX];
    double *x = out->number;
    if (!ps_ns_coefficients_read(o, &x[A], problem))
        return PS_FAIL(PS_EINVAL, "optimizer.params.ns_coefficients %s", problem);
    x[MOMENTUM] = o->optimizer_params_momentum;
    x[NESTEROV] = o->optimizer_params_nesterov;
    x[N_STEPS] = (double)o->optimizer_params_ns_steps;
    x[EPS] = o->optimizer_params_ns_eps;
    x[MATCHES_RMS] = o->optimizer_params_adjust_lr_fn == PS_CONFIG_ADJUST_LR_MATCH_RMS_ADAMW;
    x[HAS_BF16_GEMMS] = o->optimizer_params_ns_gemms == PS_CONFIG_NS_GEMMS_BF16;
    out->n_states = N_STATES;
    return PS_OK;
}

/* Of tensors that are no matrices. */
static ps_status update_piece(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                              const ps_optimizer_piece *p)
{
    ps_optimizer_setup adamw = *o;
    ps_optimizer_piece piece = *p;
    adamw.optimizer = &ps_optimizer_adamw;
    adamw.n_states = 2;
    piece.state[0] = p->state[MEAN];
    piece.state[1] = p->state[VARIANCE];
    return ps_optimizer_adamw.update(b, queue, &adamw, s, &piece);
}

/* ---- scratch ---- */

/* A matrix and its scratch. `least` is the smaller of rows and cols. */
typedef struct iteration {
    ps_backend *b;
    ps_queue *queue;
    int64_t rows, cols, least, n;
    ps_dtype dtype; /* of factors of products */
    void *x;        /* [n] of dtype */
    void *a;        /* [least, least] of dtype */
    float *u;       /* [n]: the momentum, and products with x */
    float *aa;      /* [room] of at least [least, least] */
    int64_t room;
    ps_grad_sums *sums;
    void *workspace; /* of products */
    size_t workspace_bytes;
} iteration;

/* Of thinner matrices products are fp32 in any case: they take next to no time, and where A has few elements their
 * rounding does not average out. */
enum { BF16_LEAST = 16 };

/* Of so many elements a pass over a matrix is made, so that the number of calls is small. */
enum { ROOM_MIN = 65536 };

static ps_linear_fwd_args gemm(const iteration *x, void *y, ps_dtype y_dtype, const void *left, const void *right,
                               int64_t rows, int64_t n_in, int64_t n_out, ps_weight_layout layout)
{
    return (ps_linear_fwd_args){.y = y,
                                .x = left,
                                .w = right,
                                .rows = rows,
                                .n_in = n_in,
                                .n_out = n_out,
                                .layout = layout,
                                .dtype = x->dtype,
                                .y_dtype = y_dtype,
                                .workspace = x->workspace};
}

static bool is_tall(const iteration *x)
{
    return x->rows > x->cols;
}

/* X X^T of a matrix that is not tall. */
static ps_linear_fwd_args gram_of_rows(const iteration *x)
{
    return gemm(x, x->a, x->dtype, x->x, x->x, x->rows, x->cols, x->rows, PS_WEIGHT_OUT_IN);
}

/* X^T X of a tall one. */
static ps_linear_bwd_weight_args gram_of_cols(const iteration *x)
{
    return (ps_linear_bwd_weight_args){.dw = x->a,
                                       .dy = x->x,
                                       .x = x->x,
                                       .rows = x->rows,
                                       .n_in = x->cols,
                                       .n_out = x->cols,
                                       .layout = PS_WEIGHT_OUT_IN,
                                       .dtype = x->dtype,
                                       .grad_dtype = x->dtype,
                                       .workspace = x->workspace};
}

static ps_linear_fwd_args square(const iteration *x)
{
    return gemm(x, x->aa, PS_DTYPE_F32, x->a, x->a, x->least, x->least, x->least, PS_WEIGHT_IN_OUT);
}

/* a x, or x a of a tall one, to u. */
static ps_linear_fwd_args multiply(const iteration *x)
{
    return is_tall(x) ? gemm(x, x->u, PS_DTYPE_F32, x->x, x->a, x->rows, x->cols, x->cols, PS_WEIGHT_IN_OUT)
                      : gemm(x, x->u, PS_DTYPE_F32, x->a, x->x, x->rows, x->rows, x->cols, PS_WEIGHT_IN_OUT);
}

static ps_status measure_gemms(iteration *x)
{
    const ps_linear_fwd_args fwd[] = {square(x), multiply(x), gram_of_rows(x)};
    const ps_linear_bwd_weight_args gram = gram_of_cols(x);
    size_t bytes = 0;
    for (int i = 0; i < (is_tall(x) ? 2 : 3); i++) {
        PS_TRY(ps_kernel_measure(x->b, PS_OP_linear_fwd, &fwd[i], &bytes));
        if (bytes > x->workspace_bytes) x->workspace_bytes = bytes;
    }
    if (!is_tall(x)) return PS_OK;
    PS_TRY(ps_kernel_measure(x->b, PS_OP_linear_bwd_weight, &gram, &bytes));
    if (bytes > x->workspace_bytes) x->workspace_bytes = bytes;
    return PS_OK;
}

static void *take(char *scratch, int64_t *at, int64_t bytes)
{
    const int64_t begin = *at;
    *at += ps_round_up(bytes, 64);
    return scratch != NULL ? scratch + begin : NULL;
}

/* scratch NULL: only *bytes. */
static ps_status lay_out(iteration *x, const ps_optimizer_setup *o, void *scratch, int64_t *bytes)
{
    const int64_t f32 = (int64_t)sizeof(float);
    int64_t at = 0;
    x->least = ps_min_i64(x->rows, x->cols);
    x->n = x->rows * x->cols;
    x->dtype = o->number[HAS_BF16_GEMMS] != 0 && x->least >= BF16_LEAST ? PS_DTYPE_BF16 : PS_DTYPE_F32;
    const int64_t item = (int64_t)ps_dtype_bytes(x->dtype), square_elements = x->least * x->least;
    x->room = ps_max_i64(square_elements, ps_min_i64(x->n, ROOM_MIN));
    x->sums = take(scratch, &at, sizeof *x->sums);
    x->u = take(scratch, &at, x->n * f32);
    x->aa = take(scratch, &at, x->room * f32);
    x->x = take(scratch, &at, x->n * item);
    x->a = take(scratch, &at, square_elements * item);
    PS_TRY(measure_gemms(x));
    x->workspace = take(scratch, &at, (int64_t)x->workspace_bytes);
    *bytes = at;
    return PS_OK;
}

static ps_status scratch_bytes(ps_backend *b, const ps_optimizer_setup *o, int64_t rows, int64_t cols, int64_t *bytes)
{
    iteration x = {.b = b, .rows = rows, .cols = cols};
    return lay_out(&x, o, NULL, bytes);
}

/* ---- the update ---- */

/* w = keeps w + scale g, n elements, and *rounded = w in the type of factors. */
static ps_status combine(const iteration *x, float *w, double keeps, const void *g, ps_dtype g_dtype, double scale,
                         void *rounded, int64_t n)
{
    return ps_run_sgd(x->b, x->queue,
                      &(ps_sgd_args){.param = rounded,
                                     .grad = g,
                                     .master = w,
                                     .n = n,
                                     .lr = -1,
                                     .weight_decay = (float)(keeps - 1),
                                     .grad_scale = (float)scale,
                                     .param_dtype = x->dtype,
                                     .grad_dtype = g_dtype},
                      0);
}

static ps_status set_zero(const iteration *x, void *to, int64_t bytes)
{
    return ps_run_fill(x->b, x->queue, &(ps_fill_args){.dst = to, .n = bytes / (int64_t)sizeof(float)}, 0);
}

/* u = the momentum, or Nesterov's; x, the operator's other result, is not used. */
static ps_status add_momentum(const iteration *x, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                              const ps_optimizer_piece *p)
{
    PS_TRY(set_zero(x, x->u, x->n * (int64_t)sizeof(float)));
    return ps_run_sgd(x->b, x->queue,
                      &(ps_sgd_args){.param = x->x,
                                     .grad = p->grad,
                                     .master = x->u,
                                     .buffer = p->state[BUFFER],
                                     .n = x->n,
                                     .lr = -1,
                                     .momentum = (float)o->number[MOMENTUM],
                                     .one_minus_dampening = 1,
                                     .grad_scale = (float)((double)s->grad_scale * (1 - o->number[MOMENTUM])),
                                     .nesterov = o->number[NESTEROV] != 0,
                                     .param_dtype = x->dtype,
                                     .grad_dtype = p->grad_dtype},
                      0);
}

/* The one number that the host needs: where it cannot access the device, it waits for it. */
static ps_status find_norm(const iteration *x, double *out)
{
    ps_grad_sums sums;
    PS_TRY(set_zero(x, x->sums, sizeof *x->sums));
    PS_TRY(ps_run_grad_stats(x->b, x->queue,
                             &(ps_grad_stats_args){.sums = x->sums, .x = x->u, .n = x->n, .dtype = PS_DTYPE_F32}, 0));
    if (x->queue != NULL)
        PS_TRY(ps_queue_get(x->queue, &sums, x->sums, sizeof sums));
    else
        memcpy(&sums, x->sums, sizeof sums);
    *out = sqrt(ps_exact_sum_value(&sums.sum_squares));
    return PS_OK;
}

/* x = u / max(|u|, ns_eps), by way of aa: so that it is rounded once, and no other matrix is needed. */
static ps_status normalize(const iteration *x, const ps_optimizer_setup *o)
{
    const int64_t item = (int64_t)ps_dtype_bytes(x->dtype), step = x->room < x->n ? x->room / 64 * 64 : x->n;
    double norm;
    PS_TRY(find_norm(x, &norm));
    for (int64_t i = 0; i < x->n; i += step) {
        const int64_t n = ps_min_i64(step, x->n - i);
        PS_TRY(set_zero(x, x->aa, n * (int64_t)sizeof(float)));
        PS_TRY(
            combine(x, x->aa, 1, x->u + i, PS_DTYPE_F32, 1 / fmax(norm, o->number[EPS]), (char *)x->x + i * item, n));
    }
    return PS_OK;
}

static ps_status run_gemm(const iteration *x, const ps_linear_fwd_args *a)
{
    return ps_run_linear_fwd(x->b, x->queue, a, x->workspace_bytes);
}

/* u = the next X, and x = u rounded. */
static ps_status iterate(const iteration *x, const ps_optimizer_setup *o)
{
    const ps_linear_fwd_args rows = gram_of_rows(x), aa = square(x), ax = multiply(x);
    const ps_linear_bwd_weight_args cols = gram_of_cols(x);
    PS_TRY(is_tall(x) ? ps_run_linear_bwd_weight(x->b, x->queue, &cols, x->workspace_bytes) : run_gemm(x, &rows));
    PS_TRY(run_gemm(x, &aa));
    PS_TRY(combine(x, x->aa, o->number[C], x->a, x->dtype, o->number[B], x->a, x->least * x->least));
    PS_TRY(run_gemm(x, &ax));
    return combine(x, x->u, 1, x->x, x->dtype, o->number[A], x->x, x->n);
}

static double lr_ratio(const iteration *x, const ps_optimizer_setup *o)
{
    const double rows = (double)x->rows, cols = (double)x->cols;
    return o->number[MATCHES_RMS] != 0 ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols));
}

static ps_status update_matrix(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                               const ps_optimizer_matrix *m)
{
    iteration x = {.b = b, .queue = queue, .rows = m->rows, .cols = m->cols};
    int64_t bytes;
    PS_TRY(lay_out(&x, o, m->scratch, &bytes));
    PS_TRY(add_momentum(&x, o, s, &m->all));
    PS_TRY(normalize(&x, o));
    for (int i = 0; i < (int)o->number[N_STEPS]; i++) PS_TRY(iterate(&x, o));
    return ps_run_sgd(b, queue,
                      &(ps_sgd_args){.param = m->all.param,
                                     .grad = x.u,
                                     .master = m->all.master,
                                     .n = x.n,
                                     .lr = s->lr,
                                     .weight_decay = m->all.weight_decay,
                                     .grad_scale = (float)lr_ratio(&x, o),
                                     .param_dtype = m->all.param_dtype,
                                     .grad_dtype = PS_DTYPE_F32},
                      0);
}

static double flops(const ps_optimizer_setup *o, int64_t rows, int64_t cols)
{
    const double n = (double)rows * (double)cols, least = (double)ps_min_i64(rows, cols);
    return o->number[N_STEPS] * (2 * n * least * 2 + 2 * least * least * least);
}

const ps_optimizer ps_optimizer_muon = {
    .name = "Muon",
    .states = {{.list = "MOMENTUM", .suffix = ".momentum_buffer"},
               {.list = "MEAN", .suffix = ".exp_avg"},
               {.list = "VARIANCE", .suffix = ".exp_avg_sq"}},
    .whole_states = 1u << BUFFER,
    .read = read_options,
    .update = update_piece,
    .update_whole = update_matrix,
    .scratch_bytes = scratch_bytes,
    .flops = flops,
};
