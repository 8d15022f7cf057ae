#define OP_MULTIPLIES_BF16

#include "kernel/op_gradient.h"

typedef struct loss_case {
    int64_t rows, C, V;
    int64_t ignore_every; /* 0: every row counts */
    float scale;
    ps_dtype dtype, grad_dtype;
    bool bias, accumulate, over, kept;
    bool forbids;      /* some classes, by a bias of -infinity */
    bool terms;        /* weights of classes, smoothed labels, z-loss */
    bool no_dx, no_dw; /* not looked at here, */
    bool skips;        /* nor computed */
} loss_case;

#define SMOOTHING 0.3f
#define Z_LOSS 0.01f

/* Weights from 0.5 to 1.5. */
static ps_loss_terms terms_of(const loss_case *c)
{
    if (!c->terms) return (ps_loss_terms){0};
    float *u = op_random(PS_DTYPE_F32, c->V, 1.0, 1.0 / 6.0, 7);
    op_mark_input();
    double sum = 0;
    for (int64_t v = 0; v < c->V; v++) sum += (double)u[v];
    return (ps_loss_terms){
        .class_weights = u, .mean_weight = (float)(sum / (double)c->V), .smoothing = SMOOTHING, .z_loss = Z_LOSS};
}

/* How many times an error of logits comes into loss and gradients: lse^2 adds 2 lse of it, times Z_LOSS. */
static double terms_factor(const loss_case *c)
{
    return c->terms ? 4.0 : 1.0;
}

/* Spread of w: logits have a deviation of spread sqrt(C), kept moderate. */
static double w_spread(const loss_case *c)
{
    return 2.0 / sqrt((double)c->C);
}

static double error_of_logits(const loss_case *c)
{
    return op_sum_error((double)c->C * w_spread(c) + 16.0);
}

static void label_case(const loss_case *c)
{
    op_label("rows %lld C %lld V %lld ignore_every %lld %s -> %s%s%s%s%s%s%s", (long long)c->rows, (long long)c->C,
             (long long)c->V, (long long)c->ignore_every, ps_dtype_name(c->dtype), ps_dtype_name(c->grad_dtype),
             c->bias ? " bias" : "", c->accumulate ? " accumulate" : "", c->over ? " over" : "", c->kept ? " kept" : "",
             c->forbids ? " -inf" : "", c->terms ? " terms" : "");
}

/* Room for the logits that a case keeps, after which a kernel that writes too far is found. */
static float *room_for_logits(const loss_case *c)
{
    return c->kept ? op_output(PS_DTYPE_F32, ps_lm_logits_count(c->rows, c->V), false, 0) : NULL;
}

/* Logits at the predicted classes. Classes whose logits differ by rounding errors may be predicted one for the other,
 * but not without their logits being within these errors. */
static float *logits_at(const ps_lm_loss_fwd_args *a)
{
    float *logits = op_alloc((size_t)a->rows * sizeof *logits);
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t v = a->predicted[r];
        assert_true(v >= 0 && v < a->V);
        double sum = a->b == NULL ? 0.0 : (double)ps_dtype_load(a->dtype, a->b, v);
        for (int64_t i = 0; i < a->C; i++)
            sum += (double)ps_dtype_load(a->dtype, a->x, r * a->C + i) *
                   (double)ps_dtype_load(a->dtype, a->w, v * a->C + i);
        logits[r] = (float)sum;
    }
    return logits;
}

/* The bias: no class that is forbidden is a target, nor is the first. */
static void *bias_of(const loss_case *c, const int32_t *targets)
{
    if (!c->bias) return NULL;
    void *b = op_random(c->dtype, c->V, 0.0, 1.0, 5);
    for (int64_t v = 1; c->forbids && v < c->V; v += 1 + v % 2) {
        bool is_target = false;
        for (int64_t r = 0; r < c->rows; r++) is_target = is_target || targets[r] == v;
        if (!is_target) ps_dtype_store(c->dtype, b, v, -INFINITY);
    }
    return b;
}

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const loss_case *c = context;
    const int32_t *targets = op_indices(c->rows, c->V, c->ignore_every, 3);
    const void *b = bias_of(c, targets);
    if (b != NULL) op_mark_input();
    ps_lm_loss_fwd_args a = {.row_loss = op_output(PS_DTYPE_F32, c->rows, false, 0),
                             .lse = op_output(PS_DTYPE_F32, c->rows, false, 0),
                             .predicted = op_alloc((size_t)c->rows * sizeof(int32_t)),
                             .logits = room_for_logits(c),
                             .x = op_input(c->dtype, c->rows * c->C, 1.0, 1),
                             .w = op_input(c->dtype, c->V * c->C, w_spread(c), 2),
                             .b = b,
                             .targets = targets,
                             .rows = c->rows,
                             .C = c->C,
                             .V = c->V,
                             .terms = terms_of(c),
                             .dtype = c->dtype,
                             .keeps_logits = c->kept};
    OP_RUN(k, lm_loss_fwd, &a);
    op_record(result, "lse", PS_DTYPE_F32, a.lse, c->rows, error_of_logits(c));
    op_record(result, "row_loss", PS_DTYPE_F32, a.row_loss, c->rows, 2.0 * terms_factor(c) * error_of_logits(c));
    op_record(result, "logits at predicted", PS_DTYPE_F32, logits_at(&a), c->rows, 2.0 * error_of_logits(c));
}

/* |dlogits| <= scale. They are rounded to dtype in both backends; logits that differ in the last bits of float flip a
 * few of these roundings, by a unit of the last place, and otherwise pass their error on relatively. */
static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const loss_case *c = context;
    const void *x = op_input(c->dtype, c->rows * c->C, 1.0, 1);
    void *w = op_random(c->dtype, c->V * c->C, 0.0, w_spread(c), 2);
    const int32_t *targets = op_indices(c->rows, c->V, c->ignore_every, 3);
    void *b = bias_of(c, targets);
    ps_lm_loss_fwd_args fwd = {.row_loss = op_output(PS_DTYPE_F32, c->rows, false, 0),
                               .lse = op_output(PS_DTYPE_F32, c->rows, false, 0),
                               .x = x,
                               .w = w,
                               .b = b,
                               .targets = targets,
                               .rows = c->rows,
                               .C = c->C,
                               .V = c->V,
                               .dtype = c->dtype};
    ps_backend *ref = op_reference(); /* the same lse for all backends */
    OP_RUN(ref, lm_loss_fwd, &fwd);
    float *const lse = fwd.lse, *const logits = room_for_logits(c);
    if (c->kept) { /* its own logits, and nothing else of its forward pass */
        fwd.lse = op_output(PS_DTYPE_F32, c->rows, false, 0);
        fwd.logits = logits;
        fwd.keeps_logits = true;
        OP_RUN(k, lm_loss_fwd, &fwd);
    }
    ps_lm_loss_bwd_args a = {.dx = op_output(c->dtype, c->rows * c->C, false, 0),
                             .dw = c->over ? w : op_output(c->grad_dtype, c->V * c->C, c->accumulate, 4),
                             .x = x,
                             .w = w,
                             .b = b,
                             .lse = lse,
                             .logits = logits,
                             .targets = targets,
                             .rows = c->rows,
                             .C = c->C,
                             .V = c->V,
                             .scale = c->scale,
                             .terms = terms_of(c),
                             .dtype = c->dtype,
                             .grad_dtype = c->grad_dtype,
                             .accumulate_grad = c->accumulate,
                             .keeps_logits = c->kept};
    if (c->bias) a.db = c->over ? b : op_output(c->grad_dtype, c->V, c->accumulate, 6);
    a.skips_dx = c->skips && c->no_dx;
    a.skips_dw = c->skips && c->no_dw;
    if (a.skips_dx) a.dx = NULL;
    if (a.skips_dw) a.dw = NULL;
    OP_RUN(k, lm_loss_bwd, &a);
    const double per_term = terms_factor(c) * (double)c->scale *
                            (2.0 * error_of_logits(c) + (c->dtype == PS_DTYPE_F32 ? 0.0 : op_ulp(c->dtype)));
    if (!c->no_dx) op_record(result, "dx", c->dtype, a.dx, c->rows * c->C, per_term * 2.0 * 3.0 * w_spread(c));
    const double column = 2.0 + 2.0 * (double)c->rows / (double)c->V; /* sum of |dlogits| / scale over rows, about */
    const double of_column = per_term * column + op_sum_error((double)c->scale * 2.0 * column);
    if (!c->no_dw) op_record(result, "dw", c->grad_dtype, a.dw, c->V * c->C, 3.0 * of_column);
    if (c->bias) op_record(result, "db", c->grad_dtype, a.db, c->V, of_column);
}

static const struct {
    int64_t rows, C, V, ignore_every;
} odd_sizes[] = {{1, 1, 7, 0},     {3, 5, 50, 0}, {7, 33, 131, 3}, {7, 65, 7, 2}, {3, 8, 50, 1}, {0, 5, 50, 0},
                 {33, 17, 300, 5}, {1, 4, 2, 0},  {2, 33, 3, 2},   {3, 1, 2, 0},  {4, 9, 3, 0},  {5, 64, 2, 3}};

static loss_case case_of(size_t s, ps_dtype t, int flags)
{
    return (loss_case){.rows = odd_sizes[s].rows,
                       .C = odd_sizes[s].C,
                       .V = odd_sizes[s].V,
                       .ignore_every = odd_sizes[s].ignore_every,
                       .scale = 0.5f,
                       .dtype = t,
                       .grad_dtype = flags & 1 ? PS_DTYPE_F32 : t,
                       .accumulate = flags & 2,
                       .bias = flags & 4,
                       .terms = flags & 8};
}

static void test_backends_odd_sizes(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 16; flags++) {
                const loss_case c = case_of(s, (ps_dtype)t, flags);
                label_case(&c);
                if (!(flags & 3)) op_check_backends(run_fwd, &c);
                op_check_backends(run_bwd, &c);
            }
}

static void test_backends_real_sizes(void **state)
{
    (void)state;
    for (int t = 0; t < PS_DTYPE_COUNT; t++) {
        const loss_case many_rows = {.rows = 130,
                                     .C = 64,
                                     .V = 1000,
                                     .ignore_every = 7,
                                     .scale = 1.0f,
                                     .dtype = (ps_dtype)t,
                                     .grad_dtype = (ps_dtype)t,
                                     .bias = true};
        label_case(&many_rows);
        op_check_backends(run_fwd, &many_rows);
        op_check_backends(run_bwd, &many_rows);
        const loss_case wide = {.rows = 24,
                                .C = 192,
                                .V = 5003,
                                .scale = 1024.0f / 24.0f,
                                .dtype = (ps_dtype)t,
                                .grad_dtype = PS_DTYPE_F32,
                                .accumulate = true,
                                .bias = true};
        loss_case with_terms = wide;
        with_terms.terms = true;
        label_case(&wide);
        op_check_backends(run_fwd, &wide);
        op_check_backends(run_bwd, &wide);
        label_case(&with_terms);
        op_check_backends(run_fwd, &with_terms);
        op_check_backends(run_bwd, &with_terms);
    }
}

static void test_forbidden_classes(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{7, 33, 131}, {3, 5, 50}, {5, 8, 4500}};
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const loss_case c = {.rows = sizes[s][0],
                                 .C = sizes[s][1],
                                 .V = sizes[s][2],
                                 .scale = 0.5f,
                                 .dtype = (ps_dtype)t,
                                 .grad_dtype = (ps_dtype)t,
                                 .bias = true,
                                 .forbids = true};
            label_case(&c);
            op_check_backends(run_fwd, &c);
            op_check_backends(run_bwd, &c);
        }
}

static void check_over(loss_case difference)
{
    loss_case over = difference;
    over.over = true;
    label_case(&over);
    op_check_same_bits(run_bwd, &difference, &over, "over its parameter");
}

static void test_gradient_over_parameter(void **state)
{
    (void)state;
    for (int bias = 0; bias < 2; bias++) {
        for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
            for (int t = 0; t < PS_DTYPE_COUNT; t++) {
                check_over(case_of(s, (ps_dtype)t, 4 * bias));
                check_over(case_of(s, (ps_dtype)t, 4 * bias + 8));
            }
        check_over((loss_case){.rows = 9,
                               .C = 64,
                               .V = 5003,
                               .scale = 1.0f,
                               .dtype = PS_DTYPE_BF16,
                               .grad_dtype = PS_DTYPE_BF16,
                               .bias = bias});
    }
}

static void check_unwanted(loss_case all)
{
    loss_case skipping = all;
    skipping.skips = true;
    label_case(&skipping);
    op_check_same_bits(run_bwd, &all, &skipping, "without what is not wanted");
}

/* What is left out changes no bit of the rest. */
static void test_unwanted_gradients(void **state)
{
    (void)state;
    for (int unwanted = 1; unwanted < 4; unwanted++) {
        for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
            for (int t = 0; t < PS_DTYPE_COUNT; t++) {
                loss_case c = case_of(s, (ps_dtype)t, 4 * (unwanted == 3 || s % 2 == 1));
                c.no_dx = unwanted & 1, c.no_dw = unwanted & 2;
                check_unwanted(c);
            }
        check_unwanted((loss_case){.rows = 9,
                                   .C = 64,
                                   .V = 5003,
                                   .scale = 1.0f,
                                   .dtype = PS_DTYPE_BF16,
                                   .grad_dtype = PS_DTYPE_BF16,
                                   .bias = true,
                                   .no_dx = unwanted & 1,
                                   .no_dw = unwanted & 2});
    }
}

static void check_kept(loss_case again)
{
    loss_case kept = again;
    kept.kept = true;
    label_case(&kept);
    op_check_same_bits(run_fwd, &again, &kept, "logits kept");
    op_check_same_bits(run_bwd, &again, &kept, "logits kept");
}

/* Slices of several widths: the last one narrower, and not a multiple of what rows are aligned to. */
static void test_kept_logits(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 16; flags += 3) check_kept(case_of(s, (ps_dtype)t, flags));
    for (int t = 0; t < PS_DTYPE_COUNT; t++)
        check_kept((loss_case){.rows = 130,
                               .C = 5,
                               .V = 9001,
                               .ignore_every = 7,
                               .scale = 1.0f,
                               .dtype = (ps_dtype)t,
                               .grad_dtype = (ps_dtype)t,
                               .bias = t == PS_DTYPE_BF16});
}

static void test_kept_logits_over_parameter(void **state)
{
    (void)state;
    loss_case kept = {.rows = 9,
                      .C = 33,
                      .V = 5003,
                      .scale = 1.0f,
                      .dtype = PS_DTYPE_BF16,
                      .grad_dtype = PS_DTYPE_BF16,
                      .bias = true,
                      .kept = true};
    check_over(kept);
    kept.rows = 1100;
    kept.C = 9;
    kept.V = 703;
    check_over(kept);
    check_kept(kept);
}

/* Without weights the logits are the bias. Its largest value stands at `first` and, where that is not the last class,
 * in the middle of what follows and at the end: the first one counts, in whatever slice or vector the others are. */
static void check_ties(ps_backend *k, int64_t rows, int64_t V, int64_t first)
{
    enum { C = 4 };
    float *w = op_alloc((size_t)(V * C) * sizeof *w), *b = op_alloc((size_t)V * sizeof *b);
    int32_t *predicted = op_alloc((size_t)rows * sizeof *predicted);
    memset(w, 0, (size_t)(V * C) * sizeof *w);
    for (int64_t v = 0; v < V; v++) b[v] = v == first || v == (first + V) / 2 || v == V - 1 ? -1.0f : -2.0f;
    ps_lm_loss_fwd_args a = {.row_loss = op_output(PS_DTYPE_F32, rows, false, 0),
                             .lse = op_output(PS_DTYPE_F32, rows, false, 0),
                             .predicted = predicted,
                             .x = op_input(PS_DTYPE_F32, rows * C, 1.0, 1),
                             .w = w,
                             .b = b,
                             .targets = op_indices(rows, V, 2, 2),
                             .rows = rows,
                             .C = C,
                             .V = V};
    OP_RUN(k, lm_loss_fwd, &a);
    for (int64_t r = 0; r < rows; r++) {
        if (predicted[r] == first) continue;
        print_error("%s: row %lld: %d is predicted, not %lld\n", op_now.label, (long long)r, (int)predicted[r],
                    (long long)first);
        fail();
    }
    op_release();
}

static void test_predicted_ties(void **state)
{
    (void)state;
    static const int64_t classes[] = {1, 2, 3, 17, 64, 131, 5003};
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (size_t s = 0; s < PS_ARRAY_LEN(classes); s++)
            for (int64_t rows = 1; rows <= 5; rows++)
                for (int64_t first = 0; first < classes[s]; first += 1 + classes[s] / 7) {
                    op_label("ties, rows %lld V %lld, %s", (long long)rows, (long long)classes[s], name);
                    check_ties(k, rows, classes[s], first);
                }
}

/* Uniform logits: the loss is log V whatever the target; ignored rows have none. And logits of hundreds stay finite. */
static void test_loss_values(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("loss values, %s", name);
        int32_t *targets = op_indices(6, 100, 3, 1);
        float *w = op_alloc(100 * 4 * sizeof *w), *loss = op_alloc(6 * sizeof *loss), *lse = op_alloc(6 * sizeof *lse);
        memset(w, 0, 100 * 4 * sizeof *w);
        ps_lm_loss_fwd_args a = {.row_loss = loss,
                                 .lse = lse,
                                 .x = op_input(PS_DTYPE_F32, 6 * 4, 1.0, 2),
                                 .w = w,
                                 .targets = targets,
                                 .rows = 6,
                                 .C = 4,
                                 .V = 100};
        OP_RUN(k, lm_loss_fwd, &a);
        for (int r = 0; r < 6; r++)
            assert_float_equal(loss[r], targets[r] == PS_IGNORE_INDEX ? 0.0f : logf(100.0f), 1e-5);
        for (int token = 0; token < 100; token++) w[token * 4] = (float)(10 * token);
        OP_RUN(k, lm_loss_fwd, &a);
        for (int r = 0; r < 6; r++) assert_true(isfinite(loss[r]) && isfinite(lse[r]) && loss[r] >= 0.0f);
        op_release();
    }
}

/* Two classes, worked out by hand: logits 0 and log 3, so that lse = log 4 and p = 1/4, 3/4; weights 2 and 1/2, target
 * class 0, smoothing 0.2, z-loss 0.1:
 *     0.8 * 2 log 4  +  0.2 (1.25 log 4 - (2 * 0 + 0.5 log 3) / 2)  +  0.1 * 2 (log 4)^2
 * and for class 0 the gradient (0.8 * 2 + 0.2 * 1.25 + 2 * 0.1 * 2 log 4) / 4 - 0.8 * 2 - 0.2 * 2 / 2. */
static void test_terms_by_hand(void **state)
{
    (void)state;
    const double log_4 = log(4.0);
    const double loss = 1.6 * log_4 + 0.2 * (1.25 * log_4 - 0.25 * log(3.0)) + 0.2 * log_4 * log_4;
    const double of_p = 1.6 + 0.25 + 0.4 * log_4;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("terms by hand, %s", name);
        float *b = op_alloc(2 * sizeof *b), *u = op_alloc(2 * sizeof *u), *w = op_alloc(2 * sizeof *w);
        b[0] = 0.0f, b[1] = logf(3.0f), u[0] = 2.0f, u[1] = 0.5f, w[0] = w[1] = 0.0f;
        int32_t *target = op_alloc(sizeof *target);
        *target = 0;
        const ps_loss_terms terms = {.class_weights = u, .mean_weight = 1.25f, .smoothing = 0.2f, .z_loss = 0.1f};
        ps_lm_loss_fwd_args f = {.row_loss = op_output(PS_DTYPE_F32, 1, false, 0),
                                 .lse = op_output(PS_DTYPE_F32, 1, false, 0),
                                 .x = op_input(PS_DTYPE_F32, 1, 1.0, 1),
                                 .w = w,
                                 .b = b,
                                 .targets = target,
                                 .rows = 1,
                                 .C = 1,
                                 .V = 2,
                                 .terms = terms};
        OP_RUN(k, lm_loss_fwd, &f);
        assert_float_equal(f.row_loss[0], (float)loss, 1e-6f);
        float *const db = op_output(PS_DTYPE_F32, 2, false, 0);
        ps_lm_loss_bwd_args g = {.dx = op_output(PS_DTYPE_F32, 1, false, 0),
                                 .dw = op_output(PS_DTYPE_F32, 2, false, 0),
                                 .db = db,
                                 .x = f.x,
                                 .w = w,
                                 .b = b,
                                 .lse = f.lse,
                                 .targets = target,
                                 .rows = 1,
                                 .C = 1,
                                 .V = 2,
                                 .scale = 1.0f,
                                 .terms = terms};
        OP_RUN(k, lm_loss_bwd, &g);
        assert_float_equal(db[0], (float)(of_p / 4 - 1.6 - 0.2), 1e-6f);
        assert_float_equal(db[1], (float)(3 * of_p / 4 - 0.05), 1e-6f);
        op_release();
    }
}

/* ---- sums of rows ----------------------------------------------------------------------------------------------- */

/* In the order of rows: 2^53 and then ones, of which each is lost; and ignored rows, whatever stands there. */
static void test_loss_sums(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("loss sums, %s", name);
        float *loss = op_alloc(5 * sizeof *loss);
        int32_t *targets = op_alloc(5 * sizeof *targets), *predicted = op_alloc(5 * sizeof *predicted);
        memcpy(loss, (float[]){0x1p53f, 1.0f, NAN, 1.0f, 0.25f}, 5 * sizeof *loss);
        memcpy(targets, (int32_t[]){7, 0, PS_IGNORE_INDEX, 2, 3}, 5 * sizeof *targets);
        memcpy(predicted, (int32_t[]){7, 1, PS_IGNORE_INDEX, 2, 4}, 5 * sizeof *predicted);
        ps_loss_sums *sums = op_alloc(sizeof *sums);
        ps_loss_sums_args a = {.sums = sums, .row_loss = loss, .targets = targets, .predicted = predicted, .rows = 5};
        op_expect_ok(ps_run_loss_sums(k, NULL, &a, 0));
        assert_true(sums->loss == 0x1p53 && sums->n_targets == 4 && sums->n_correct == 2 && sums->weight == 4);
        loss[0] = 0.5f, predicted[0] = 0;
        op_expect_ok(ps_run_loss_sums(k, NULL, &a, 0));
        assert_true(sums->loss == 2.75 && sums->n_targets == 4 && sums->n_correct == 1);
        a.rows = 0;
        op_expect_ok(ps_run_loss_sums(k, NULL, &a, 0));
        assert_true(sums->loss == 0 && sums->n_targets == 0 && sums->n_correct == 0 && sums->weight == 0);
        a.rows = 5;
        float *weights = op_alloc(8 * sizeof *weights), *values = op_alloc(5 * sizeof *values);
        for (int c = 0; c < 8; c++) weights[c] = 0.25f * (float)c;
        a.class_weights = weights, a.n_classes = 8;
        op_expect_ok(ps_run_loss_sums(k, NULL, &a, 0));
        assert_true(sums->weight == 3.0 && sums->n_targets == 4);
        memcpy(values, (float[]){0.0f, NAN, 1.0f, 0.5f, 0.75f}, 5 * sizeof *values);
        memcpy(predicted, (int32_t[]){0, 0, 0, 0, 1}, 5 * sizeof *predicted);
        memcpy(loss, (float[]){0.5f, NAN, 0.25f, 1.0f, 2.0f}, 5 * sizeof *loss);
        a.targets = NULL, a.class_weights = NULL, a.values = values;
        op_expect_ok(ps_run_loss_sums(k, NULL, &a, 0));
        assert_true(sums->loss == 3.75 && sums->weight == 4 && sums->n_targets == 4 && sums->n_correct == 3);
        op_release();
    }
}

/* ---- finite differences ----------------------------------------------------------------------------------------- */

typedef struct loss_problem {
    ps_backend *k;
    ps_lm_loss_fwd_args fwd;
    float scale;
} loss_problem;

static double problem_value(const void *context)
{
    const loss_problem *p = context;
    op_expect_ok(ps_run_lm_loss_fwd(p->k, NULL, &p->fwd, op_bytes(p->k, PS_OP_lm_loss_fwd, &p->fwd)));
    double sum = 0.0;
    for (int64_t r = 0; r < p->fwd.rows; r++) sum += (double)p->fwd.row_loss[r] * (double)p->scale;
    return sum;
}

static void test_finite_differences(void **state)
{
    (void)state;
    const ps_dtype t = PS_DTYPE_F32;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int flags = 4; flags < 16; flags += flags == 6 ? 6 : 2) {
            const loss_case c = case_of(s, t, flags);
            label_case(&c);
            float *x = op_random(t, c.rows * c.C, 0, 1, 1), *w = op_random(t, c.V * c.C, 0, w_spread(&c), 2);
            float *b = op_random(t, c.V, 0, 1, 5);
            loss_problem p = {.scale = c.scale};
            p.k = op_reference();
            p.fwd = (ps_lm_loss_fwd_args){.row_loss = op_output(t, c.rows, false, 0),
                                          .lse = op_output(t, c.rows, false, 0),
                                          .x = x,
                                          .w = w,
                                          .b = b,
                                          .targets = op_indices(c.rows, c.V, c.ignore_every, 3),
                                          .rows = c.rows,
                                          .C = c.C,
                                          .V = c.V,
                                          .terms = terms_of(&c)};
            p.fwd.workspace = op_workspace(p.k, PS_OP_lm_loss_fwd, &p.fwd);
            (void)problem_value(&p);
            ps_lm_loss_bwd_args bwd = {.dx = op_output(t, c.rows * c.C, false, 0),
                                       .dw = op_output(t, c.V * c.C, c.accumulate, 4),
                                       .db = op_output(t, c.V, c.accumulate, 6),
                                       .x = x,
                                       .w = w,
                                       .b = b,
                                       .lse = p.fwd.lse,
                                       .targets = p.fwd.targets,
                                       .rows = c.rows,
                                       .C = c.C,
                                       .V = c.V,
                                       .scale = c.scale,
                                       .terms = p.fwd.terms,
                                       .accumulate_grad = c.accumulate};
            OP_RUN(p.k, lm_loss_bwd, &bwd);
            const float *dw0 = c.accumulate ? op_output(t, c.V * c.C, true, 4) : NULL;
            const float *db0 = c.accumulate ? op_output(t, c.V, true, 6) : NULL;
            op_check_gradient("dx", problem_value, &p, x, bwd.dx, NULL, c.rows * c.C, 0x1p-5f, 2e-3);
            op_check_gradient("dw", problem_value, &p, w, bwd.dw, dw0, c.V * c.C, 0x1p-5f, 2e-3);
            op_check_gradient("db", problem_value, &p, b, bwd.db, db0, c.V, 0x1p-5f, 2e-3);
            op_release();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences), cmocka_unit_test(test_loss_values),
        cmocka_unit_test(test_backends_odd_sizes), cmocka_unit_test(test_backends_real_sizes),
        cmocka_unit_test(test_forbidden_classes),  cmocka_unit_test(test_gradient_over_parameter),
        cmocka_unit_test(test_loss_sums),          cmocka_unit_test(test_predicted_ties),
        cmocka_unit_test(test_unwanted_gradients), cmocka_unit_test(test_terms_by_hand),
        cmocka_unit_test(test_kept_logits),        cmocka_unit_test(test_kept_logits_over_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
