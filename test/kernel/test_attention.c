#define OP_MULTIPLIES_BF16

#include "kernel/op_gradient.h"

/* The kernels once more, by emulated tiles, and but for these as those of avx2. */
#define PS_ISA emulated
#define PS_ISA_avx2 1
#define PS_TILES_EMULATED
#include "kernel/cpu/cpu_isa.h"
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#include "../src/kernel/cpu/isa/isa_attention_bwd.c"
#include "../src/kernel/cpu/isa/isa_attention_fwd.c"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

typedef enum mask_kind { MASK_NONE, MASK_ONES, MASK_TAIL, MASK_HOLES, MASK_WHOLE, MASK_KIND_COUNT } mask_kind;

static const char *const mask_names[] = {"none", "ones", "tail", "holes", "whole"};

typedef struct attention_case {
    int64_t B, T, H, KV, D, window;
    bool causal;
    mask_kind mask;
    bool packed; /* q, k, v of one row follow each other in one array; else they lie in two, with gaps */
    float dropout_p;
    ps_dtype dtype;
} attention_case;

static const ps_rng_key key = {.seed = 11, .stream = 5};

static void label_case(const attention_case *c)
{
    op_label("B %lld T %lld H %lld KV %lld D %lld %s window %lld mask %s %s p %.2f %s", (long long)c->B,
             (long long)c->T, (long long)c->H, (long long)c->KV, (long long)c->D, c->causal ? "causal" : "full",
             (long long)c->window, mask_names[c->mask], c->packed ? "packed" : "apart", (double)c->dropout_p,
             ps_dtype_name(c->dtype));
}

static float scale_of(const attention_case *c)
{
    return 1.0f / sqrtf((float)c->D);
}

static int64_t n_of_y(const attention_case *c)
{
    return c->B * c->T * c->H * c->D;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* q, k and v, or their gradients: where they lie, and the arrays that they lie in. */
typedef struct projections {
    void *q, *k, *v;
    void *arrays[2];
    int64_t n[2]; /* elements of the arrays; n[1] is 0 when packed */
    int64_t q_stride, kv_stride;
} projections;

/* Apart, q has a gap of 3 elements after each row, and k and v of a row are 1 apart with 5 after: odd strides, so
 * that rows begin at any alignment. `make` makes an array of a number of elements. */
static projections lay_projections(const attention_case *c, void *(*make)(ps_dtype t, int64_t n, uint64_t stream),
                                   uint64_t stream)
{
    const int64_t q = c->H * c->D, kv = c->KV * c->D, bytes = (int64_t)ps_dtype_bytes(c->dtype);
    projections p = {.q_stride = c->packed ? q + 2 * kv : q + 3, .kv_stride = c->packed ? q + 2 * kv : 2 * kv + 6};
    p.n[0] = c->B * c->T * p.q_stride;
    p.arrays[0] = p.q = make(c->dtype, p.n[0], stream);
    if (!c->packed) p.n[1] = c->B * c->T * p.kv_stride;
    if (!c->packed) p.arrays[1] = make(c->dtype, p.n[1], stream + 100);
    p.k = c->packed ? (char *)p.q + q * bytes : p.arrays[1];
    p.v = (char *)p.k + (kv + (c->packed ? 0 : 1)) * bytes;
    return p;
}

static void *make_input(ps_dtype t, int64_t n, uint64_t stream)
{
    return op_input(t, n, 1.0, stream);
}

static void *make_variable(ps_dtype t, int64_t n, uint64_t stream)
{
    return op_random(t, n, 0.0, 1.0, stream);
}

/* Zeros: what is between the rows must stay zero. */
static void *make_output(ps_dtype t, int64_t n, uint64_t stream)
{
    (void)stream;
    void *array = op_alloc((size_t)n * ps_dtype_bytes(t));
    memset(array, 0, (size_t)n * ps_dtype_bytes(t));
    return array;
}

/* Sequences are padded differently; MASK_WHOLE hides all of the last one, and the tail of the others. */
static const int32_t *make_mask(const attention_case *c)
{
    if (c->mask == MASK_NONE) return NULL;
    int32_t *const mask = op_alloc((size_t)(c->B * c->T) * sizeof *mask);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t t = 0; t < c->T; t++) {
            const bool in_tail = t >= c->T - (c->T * (b + 1)) / (c->B + 1) && t > 0;
            const bool in_hole = ps_rng_u32((ps_rng_key){.seed = 13}, (uint64_t)(b * c->T + t)) % 3 == 0;
            bool hidden = c->mask == MASK_HOLES ? in_hole : c->mask != MASK_ONES && in_tail;
            if (c->mask == MASK_WHOLE && b == c->B - 1) hidden = true;
            mask[b * c->T + t] = hidden ? 0 : 1 + (int32_t)(t % 2); /* anything but 0 is seen */
        }
    op_mark_input();
    return mask;
}

static ps_attention_fwd_args fwd_args(const attention_case *c, const projections *x)
{
    return (ps_attention_fwd_args){.y = op_output(c->dtype, n_of_y(c), false, 0),
                                   .lse = op_output(PS_DTYPE_F32, c->B * c->H * c->T, false, 0),
                                   .q = x->q,
                                   .k = x->k,
                                   .v = x->v,
                                   .mask = make_mask(c),
                                   .B = c->B,
                                   .T = c->T,
                                   .H = c->H,
                                   .KV = c->KV,
                                   .D = c->D,
                                   .q_stride = x->q_stride,
                                   .kv_stride = x->kv_stride,
                                   .window = c->window,
                                   .scale = scale_of(c),
                                   .causal = c->causal,
                                   .dropout_p = c->dropout_p,
                                   .dropout_key = key,
                                   .dtype = c->dtype};
}

static ps_attention_bwd_args bwd_args(const ps_attention_fwd_args *f, const projections *dx, const void *dy)
{
    return (ps_attention_bwd_args){.dq = dx->q,
                                   .dk = dx->k,
                                   .dv = dx->v,
                                   .dy = dy,
                                   .y = f->y,
                                   .q = f->q,
                                   .k = f->k,
                                   .v = f->v,
                                   .lse = f->lse,
                                   .mask = f->mask,
                                   .B = f->B,
                                   .T = f->T,
                                   .H = f->H,
                                   .KV = f->KV,
                                   .D = f->D,
                                   .q_stride = f->q_stride,
                                   .kv_stride = f->kv_stride,
                                   .window = f->window,
                                   .scale = f->scale,
                                   .causal = f->causal,
                                   .dropout_p = f->dropout_p,
                                   .dropout_key = f->dropout_key,
                                   .dtype = f->dtype};
}

/* ---- backends against the reference ------------------------------------------------------------------------------ */

/* In f32: scores carry the error of a sum of D terms, exp passes it on relatively, y is an average of values below 3.
 * In 16 bits a backend may round the probabilities for the second product, half an ulp each, and so double the error
 * of rounding y itself. Dropout scales what it keeps by 1 / (1 - p). */
static double error_of_y(const attention_case *c)
{
    const double kept = 1.0 / (1.0 - (double)c->dropout_p);
    const double scores = op_sum_error((double)(scale_of(c) * (float)c->D) + 8.0);
    return kept * 3.0 * (scores + (c->dtype == PS_DTYPE_F32 ? 0.0 : op_ulp(c->dtype)));
}

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const attention_case *c = context;
    const projections x = lay_projections(c, make_input, 1);
    ps_attention_fwd_args a = fwd_args(c, &x);
    OP_RUN(k, attention_fwd, &a);
    op_record(result, "lse", PS_DTYPE_F32, a.lse, c->B * c->H * c->T,
              op_sum_error((double)scale_of(c) * (double)c->D + 8.0));
    op_record(result, "y", c->dtype, a.y, n_of_y(c), error_of_y(c));
}

static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const attention_case *c = context;
    const projections x = lay_projections(c, make_input, 1), dx = lay_projections(c, make_output, 0);
    ps_attention_fwd_args fwd = fwd_args(c, &x);
    ps_backend *ref = op_reference(); /* the same y and lse for all backends */
    OP_RUN(ref, attention_fwd, &fwd);
    ps_attention_bwd_args a = bwd_args(&fwd, &dx, op_input(c->dtype, n_of_y(c), 1.0, 2));
    OP_RUN(k, attention_bwd, &a);
    /* dS = P (dP - dy.y) has |dP| near sqrt(D), times scale gives 1; a key may draw weight from several queries, and
     * from the queries of all heads that share it */
    const double error = 4.0 * (double)(c->H / c->KV) * error_of_y(c);
    op_record(result, "dq ...", c->dtype, dx.arrays[0], dx.n[0], error);
    if (!c->packed) op_record(result, "dk and dv", c->dtype, dx.arrays[1], dx.n[1], error);
}

static void check_both(const attention_case *c)
{
    label_case(c);
    op_check_backends(run_fwd, c);
    op_check_backends(run_bwd, c);
}

/* Sizes: below a vector, below a tile, some tiles and a piece, nothing. */
static const attention_case sizes[] = {
    {.B = 1, .T = 1, .D = 4},   {.B = 2, .T = 3, .D = 8},    {.B = 1, .T = 17, .D = 4},  {.B = 2, .T = 33, .D = 5},
    {.B = 0, .T = 17, .D = 8},  {.B = 1, .T = 0, .D = 8},    {.B = 2, .T = 19, .D = 24}, {.B = 1, .T = 16, .D = 80},
    {.B = 1, .T = 64, .D = 64}, {.B = 1, .T = 20, .D = 128}, {.B = 1, .T = 130, .D = 16}};

static const int64_t heads[][2] = {{3, 3}, {4, 2}, {6, 1}};

/* One of the windows 0, 1, 5, T. */
static int64_t window_of(int64_t T, int which)
{
    return (int64_t[]){0, 1, 5, T}[which];
}

/* All kinds on one size with pieces of tiles: 3 heads x 4 windows x 2 x 5 masks. Layout and dropout go round. */
static void test_kinds(void **state)
{
    (void)state;
    for (int n = 0; n < 3 * 4 * 2 * MASK_KIND_COUNT; n++) {
        const int kind = n / MASK_KIND_COUNT;
        const attention_case c = {.B = 2,
                                  .T = 37,
                                  .H = heads[kind % 3][0],
                                  .KV = heads[kind % 3][1],
                                  .D = 4,
                                  .window = window_of(37, kind / 3 % 4),
                                  .causal = kind / 12,
                                  .mask = (mask_kind)(n % MASK_KIND_COUNT),
                                  .packed = n % 2,
                                  .dropout_p = n % 3 == 0 ? 0.3f : 0.0f};
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            attention_case typed = c;
            typed.dtype = (ps_dtype)t;
            check_both(&typed);
        }
    }
}

static void test_sizes(void **state)
{
    (void)state;
    int n = 0;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 4; flags++, n++) {
                attention_case c = sizes[s];
                c.H = heads[n % 3][0], c.KV = heads[n % 3][1];
                c.causal = flags & 1, c.dropout_p = flags & 2 ? 0.3f : 0.0f, c.packed = n / 5 % 2;
                c.window = window_of(c.T, n / 3 % 4), c.mask = (mask_kind)(n % MASK_KIND_COUNT);
                c.dtype = (ps_dtype)t;
                check_both(&c);
            }
}

/* Many tiles, with whole ones out of sight on both sides: window 70 of 200, and a tail of padding. */
static void test_tiles_that_are_masked(void **state)
{
    (void)state;
    for (int flags = 0; flags < 8; flags++) {
        const attention_case c = {.B = 1,
                                  .T = 200,
                                  .H = 2,
                                  .KV = 1,
                                  .D = 16,
                                  .window = flags & 1 ? 70 : 3,
                                  .causal = flags & 2,
                                  .mask = flags & 4 ? MASK_TAIL : MASK_NONE,
                                  .dtype = (ps_dtype)(flags % PS_DTYPE_COUNT)};
        check_both(&c);
    }
}

/* ---- what must not change a bit ---------------------------------------------------------------------------------- */

/* Sizes that users have, cut short, and odd ones; more tiles than threads, and fewer heads than threads. */
static const attention_case shapes[] = {
    {.B = 1, .T = 150, .H = 3, .KV = 3, .D = 64, .causal = true, .packed = true},
    {.B = 1, .T = 129, .H = 4, .KV = 2, .D = 80, .causal = true},
    {.B = 1, .T = 200, .H = 2, .KV = 1, .D = 96, .causal = true, .window = 70, .packed = true},
    {.B = 2, .T = 100, .H = 2, .KV = 1, .D = 128, .mask = MASK_TAIL},
    {.B = 1, .T = 190, .H = 2, .KV = 1, .D = 33, .window = 90, .mask = MASK_HOLES},
    {.B = 1, .T = 70, .H = 1, .KV = 1, .D = 256, .causal = true, .dropout_p = 0.2f, .packed = true},
    {.B = 17, .T = 33, .H = 2, .KV = 1, .D = 48, .causal = true, .dropout_p = 0.1f},
    {.B = 1, .T = 264, .H = 2, .KV = 1, .D = 128, .causal = true, .packed = true},
    {.B = 1, .T = 270, .H = 2, .KV = 2, .D = 64, .window = 150, .packed = true},
    {.B = 1, .T = 140, .H = 1, .KV = 1, .D = 128, .dropout_p = 0.2f, .packed = true},
    {.B = 1, .T = 136, .H = 2, .KV = 1, .D = 64, .causal = true, .dropout_p = 0.1f, .packed = true},
    {.B = 1, .T = 66, .H = 2, .KV = 1, .D = 72, .causal = true, .mask = MASK_HOLES, .packed = true}};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(shapes); i++) {
        attention_case c = shapes[i];
        c.dtype = i % 3 == 2 ? (ps_dtype)(i / 3 % PS_DTYPE_COUNT) : PS_DTYPE_BF16;
        check_both(&c);
    }
}

/* What libraries have too: 16 bits, rows and heads of whole 16 bytes, nothing hidden but by causality and window. */
static void test_what_libraries_have(void **state)
{
    (void)state;
    static const int64_t D[] = {8, 16, 64, 128}, T[] = {1, 16, 37, 75, 6, 40};
    for (int n = 0; n < 48; n++) {
        const attention_case c = {.B = 1 + n % 2,
                                  .T = T[n % 6],
                                  .H = heads[n % 3][0],
                                  .KV = heads[n % 3][1],
                                  .D = D[n / 3 % 4],
                                  .causal = n % 5 != 0,
                                  .window = window_of(T[n % 6], n / 4 % 4),
                                  .packed = true,
                                  .dtype = n / 2 % 2 ? PS_DTYPE_F16 : PS_DTYPE_BF16};
        check_both(&c);
    }
#ifdef TEST_OVER_GPU
    if (mock_gpu.has_cudnn) assert_true(fake_cudnn_calls("execute") > 2 * 2 * 20);
#endif
}

static void run_emulated(ps_backend *k, const ps_kernel *kernel, const void *args, void **workspace)
{
    size_t bytes;
    op_expect_ok(kernel->workspace_bytes(k, args, &bytes));
    *workspace = op_alloc(bytes);
    op_expect_ok(kernel->run(k, NULL, args, bytes));
}

/* Forward, and backward with its results; nothing by the reference, which is slow. */
static void run_all(ps_backend *k, bool emulated, const attention_case *c, op_result *result)
{
    const projections x = lay_projections(c, make_input, 1), dx = lay_projections(c, make_output, 0);
    ps_attention_fwd_args f = fwd_args(c, &x);
    if (emulated)
        run_emulated(k, &ps_cpu_attention_fwd_emulated, &f, &f.workspace);
    else
        OP_RUN(k, attention_fwd, &f);
    ps_attention_bwd_args a = bwd_args(&f, &dx, op_input(c->dtype, n_of_y(c), 1.0, 2));
    if (emulated)
        run_emulated(k, &ps_cpu_attention_bwd_emulated, &a, &a.workspace);
    else
        OP_RUN(k, attention_bwd, &a);
    op_record_exact(result, "lse", PS_DTYPE_F32, f.lse, c->B * c->H * c->T);
    op_record_exact(result, "y", c->dtype, f.y, n_of_y(c));
    op_record_exact(result, "dq ...", c->dtype, dx.arrays[0], dx.n[0]);
    if (!c->packed) op_record_exact(result, "dk and dv", c->dtype, dx.arrays[1], dx.n[1]);
}

/* Both operators by `k` have the bits that they have by `other`. */
static void check_same_backends(ps_backend *k, bool emulated, ps_backend *other, const attention_case *c)
{
    op_result one = {.n = 0}, two = {.n = 0};
    run_all(other, false, c, &one);
    run_all(k, emulated, c, &two);
    for (int o = 0; o < one.n; o++)
        op_compare_bits(&two.out[o], &one.out[o], emulated ? "emulated tiles" : ps_backend_name(k));
    op_release();
}

/* From avx2 up, whatever multiplies, but for vdpbf16ps. */
static void test_instruction_sets(void **state)
{
    (void)state;
    ps_backend *k, *avx2 = NULL;
    char name[64];
    for (int b = 0; op_backend(b, &k, name); b++) {
        if (strcmp(name, "cpu avx2") == 0) avx2 = k;
        for (size_t i = 0; avx2 != NULL && i < PS_ARRAY_LEN(shapes); i++)
            for (int t = 0; t < PS_DTYPE_COUNT; t++) {
                attention_case c = shapes[i];
                c.dtype = (ps_dtype)t;
                label_case(&c);
                if (t != PS_DTYPE_BF16 || !ps_cpu_of(k)->uses_dpbf16) check_same_backends(k, k == avx2, avx2, &c);
            }
    }
    if (avx2 == NULL) skip();
}

/* The kernels for processors whose vdpbf16ps is fast, on any that has it. */
static void test_dot_products(void **state)
{
    (void)state;
    if (ps_cpu_isa_detect() < PS_CPU_AVX512_BF16) skip();
    ps_backend *k;
    op_expect_ok(ps_backend_create_cpu(PS_CPU_AVX512_BF16, 2, &k));
    ps_cpu_of(k)->uses_dpbf16 = true;
    const op_case_fn runs[] = {run_fwd, run_bwd};
    for (size_t i = 0; i < PS_ARRAY_LEN(shapes) * 2; i++) {
        attention_case c = shapes[i / 2];
        c.dtype = PS_DTYPE_BF16;
        label_case(&c);
        op_result want = {.n = 0}, got = {.n = 0};
        runs[i % 2](op_reference(), &c, &want);
        runs[i % 2](k, &c, &got);
        for (int o = 0; o < want.n; o++) op_compare(&got.out[o], &want.out[o], "vdpbf16ps");
        op_release();
    }
    ps_backend_destroy(k);
}

/* ---- kinds that are the same ------------------------------------------------------------------------------------- */

static void check_same_bits(const attention_case *c, const attention_case *other, const char *why)
{
    label_case(other);
    op_check_same_bits(run_fwd, c, other, why);
    op_check_same_bits(run_bwd, c, other, why);
}

static void test_mask_of_ones_and_wide_windows(void **state)
{
    (void)state;
#ifdef TEST_OVER_GPU
    /* cuDNN does without masks and windows to both sides, which are then our kernels', with bits of their own */
    if (mock_gpu_is_hardware() && getenv("PS_TEST_ATTENTION") != NULL) skip();
#endif
    /* D, T: of the last two more than a tile of tensor cores */
    static const int64_t sizes_of_kind[][2] = {{8, 70}, {64, 136}, {128, 72}};
    for (int n = 0; n < 3 * PS_DTYPE_COUNT * 2; n++) {
        const int size = n / 2 % 3,
                  flags = n % 2 == 0 ? n / 2 % 4 : 3 - n / 2 % 4; /* two of the four, which go round */
        const attention_case c = {.B = 1,
                                  .T = sizes_of_kind[size][1],
                                  .H = size == 0 ? 3 : 2,
                                  .KV = size == 0 ? 3 : 1,
                                  .D = sizes_of_kind[size][0],
                                  .causal = flags % 2,
                                  .packed = true,
                                  .dropout_p = flags / 2 ? 0.3f : 0.0f,
                                  .dtype = (ps_dtype)(n / 6)};
        attention_case other = c;
        other.mask = MASK_ONES;
        check_same_bits(&c, &other, "a mask of ones and none");
        other = c, other.window = c.T;
        check_same_bits(&c, &other, "a window of T and none");
        other.window = INT64_MAX;
        check_same_bits(&c, &other, "the widest window and none");
    }
}

/* What padding holds cannot be seen: a NaN there reaches nothing, and gets a gradient of zero. */
static void test_nan_in_padding(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int n = 0; op_backend(n / PS_DTYPE_COUNT, &k, name); n++) {
        const attention_case c = {
            .B = 1, .T = 19, .H = 4, .KV = 2, .D = 8, .mask = MASK_TAIL, .dtype = (ps_dtype)(n % PS_DTYPE_COUNT)};
        op_label("NaN in padding, %s %s", name, ps_dtype_name(c.dtype));
        const projections x = lay_projections(&c, make_variable, 1), dx = lay_projections(&c, make_output, 0);
        ps_attention_fwd_args f = fwd_args(&c, &x);
        int64_t n_hidden = 0;
        for (int64_t t = 0; t < c.T; t++)
            for (int64_t j = 0; f.mask[t] == 0 && j < x.kv_stride; j++, n_hidden++)
                ps_dtype_store(c.dtype, x.arrays[1], t * x.kv_stride + j, NAN);
        assert_true(n_hidden > 0);
        OP_RUN(k, attention_fwd, &f);
        ps_attention_bwd_args b = bwd_args(&f, &dx, op_input(c.dtype, n_of_y(&c), 1.0, 2));
        OP_RUN(k, attention_bwd, &b);
        for (int64_t j = 0; j < n_of_y(&c); j++) assert_true(isfinite(ps_dtype_load(c.dtype, f.y, j)));
        for (int64_t j = 0; j < dx.n[0]; j++) assert_true(isfinite(ps_dtype_load(c.dtype, dx.arrays[0], j)));
        for (int64_t j = 0; j < dx.n[1]; j++) {
            const float d = ps_dtype_load(c.dtype, dx.arrays[1], j);
            assert_true(f.mask[j / x.kv_stride] == 0 ? d == 0.0f : isfinite(d));
        }
        op_release();
    }
}

/* A sequence whose mask is all zero: y, lse and every gradient are zero, to the bit. */
static void test_wholly_masked(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const attention_case c = {
                .B = 1, .T = 70, .H = 2, .KV = 1, .D = 8, .mask = MASK_WHOLE, .packed = true, .dtype = (ps_dtype)t};
            op_label("wholly masked, %s %s", name, ps_dtype_name(c.dtype));
            const projections x = lay_projections(&c, make_input, 1), dx = lay_projections(&c, make_variable, 3);
            ps_attention_fwd_args f = fwd_args(&c, &x);
            OP_RUN(k, attention_fwd, &f);
            ps_attention_bwd_args b = bwd_args(&f, &dx, op_input(c.dtype, n_of_y(&c), 1.0, 2));
            OP_RUN(k, attention_bwd, &b);
            for (int64_t j = 0; j < n_of_y(&c); j++) assert_true(ps_dtype_load(c.dtype, f.y, j) == 0.0f);
            for (int64_t j = 0; j < c.T * c.H; j++) assert_true(f.lse[j] == 0.0f);
            for (int64_t j = 0; j < dx.n[0]; j++) assert_true(ps_dtype_load(c.dtype, dx.arrays[0], j) == 0.0f);
            op_release();
        }
}

/* Scratch is asked for before there is a mask. */
static void test_workspace_without_pointers(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        const int32_t mask[1] = {0};
        ps_attention_fwd_args f = {.B = 2, .T = 70, .H = 4, .KV = 2, .D = 24, .q_stride = 96, .kv_stride = 48};
        ps_attention_bwd_args b = {.B = 2, .T = 70, .H = 4, .KV = 2, .D = 24, .q_stride = 96, .kv_stride = 48};
        const size_t fwd = op_bytes(k, PS_OP_attention_fwd, &f), bwd = op_bytes(k, PS_OP_attention_bwd, &b);
        f.mask = b.mask = mask;
        assert_int_equal(fwd, op_bytes(k, PS_OP_attention_fwd, &f));
        assert_int_equal(bwd, op_bytes(k, PS_OP_attention_bwd, &b));
    }
}

/* Scores of several hundreds: exp overflows unless the maximum is taken out first. */
static void test_large_scores(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int n = 0; op_backend(n / PS_DTYPE_COUNT, &k, name); n++) {
        const attention_case c = {.B = 1,
                                  .T = 170,
                                  .H = 2,
                                  .KV = 2,
                                  .D = 16,
                                  .causal = true,
                                  .packed = true,
                                  .dtype = (ps_dtype)(n % PS_DTYPE_COUNT)};
        const projections x = lay_projections(&c, make_variable, 1);
        for (int64_t j = 0; j < x.n[0]; j++)
            ps_dtype_store(c.dtype, x.arrays[0], j, 20.0f * ps_dtype_load(c.dtype, x.arrays[0], j));
        op_label("large scores, %s %s", name, ps_dtype_name(c.dtype));
        ps_attention_fwd_args a = fwd_args(&c, &x);
        OP_RUN(k, attention_fwd, &a);
        for (int64_t j = 0; j < n_of_y(&c); j++) assert_true(fabsf(ps_dtype_load(c.dtype, a.y, j)) <= 60.0f);
        op_release();
    }
}

/* Thousands of keys with one score, which no unit of exp hits: a sum that is rescaled with each tile must not drift. */
static void test_many_keys(void **state)
{
    (void)state;
    enum { T = 4096, D = 8 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        const attention_case c = {
            .B = 1, .T = T, .H = 1, .KV = 1, .D = D, .causal = true, .packed = true, .dtype = PS_DTYPE_BF16};
        const projections x = lay_projections(&c, make_output, 0);
        for (int64_t t = 0; t < T; t++) {
            ps_dtype_store(c.dtype, x.q, t * x.q_stride, 8.5f);
            ps_dtype_store(c.dtype, x.k, t * x.kv_stride, 10.25f);
        }
        op_label("many keys, %s", name);
        ps_attention_fwd_args a = fwd_args(&c, &x);
        OP_RUN(k, attention_fwd, &a);
        const double score = 8.5 * 10.25 * (double)scale_of(&c);
        for (int64_t t = 1023; t < T; t += 1024)
            assert_true(fabs((double)a.lse[t] - (score + log((double)(t + 1)))) < 8e-6); /* 2 ulps of 38 */
        op_release();
    }
}

/* ---- gradients of the reference ---------------------------------------------------------------------------------- */

typedef struct attention_problem {
    ps_backend *k;
    ps_attention_fwd_args fwd;
    const float *dy;
} attention_problem;

static double problem_value(const void *context)
{
    const attention_problem *p = context;
    op_expect_ok(ps_run_attention_fwd(p->k, NULL, &p->fwd, op_bytes(p->k, PS_OP_attention_fwd, &p->fwd)));
    return op_dot(p->dy, p->fwd.y, p->fwd.B * p->fwd.T * p->fwd.H * p->fwd.D);
}

static void check_gradients(const attention_case *c)
{
    label_case(c);
    const projections x = lay_projections(c, make_variable, 1), dx = lay_projections(c, make_output, 0);
    attention_problem p = {.fwd = fwd_args(c, &x), .dy = op_input(PS_DTYPE_F32, n_of_y(c), 1, 2)};
    p.k = op_reference();
    p.fwd.workspace = op_workspace(p.k, PS_OP_attention_fwd, &p.fwd);
    (void)problem_value(&p);
    ps_attention_bwd_args bwd = bwd_args(&p.fwd, &dx, p.dy);
    OP_RUN(p.k, attention_bwd, &bwd);
    const char *const names[] = {c->packed ? "dq, dk, dv" : "dq", "dk, dv"};
    for (int n = 0; n < (c->packed ? 1 : 2); n++) /* the gaps too: they have no influence, and a gradient of zero */
        op_check_gradient(names[n], problem_value, &p, x.arrays[n], dx.arrays[n], NULL, dx.n[n], 0x1p-5f, 4e-3);
    op_release();
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (int n = 0; n < 3 * 4 * 2 * MASK_KIND_COUNT; n++) {
        const int kind = n / MASK_KIND_COUNT;
        const attention_case c = {.B = 2,
                                  .T = 9,
                                  .H = heads[kind % 3][0],
                                  .KV = heads[kind % 3][1],
                                  .D = 4,
                                  .window = window_of(9, kind / 3 % 4),
                                  .causal = kind / 12,
                                  .mask = (mask_kind)(n % MASK_KIND_COUNT),
                                  .packed = n % 2,
                                  .dropout_p = n % 3 == 0 ? 0.3f : 0.0f};
        check_gradients(&c);
    }
}

/* ---- probabilities ----------------------------------------------------------------------------------------------- */

/* Whether query i sees key j: kernel.h once more, by other words than the kernels'. */
static bool sees(const attention_case *c, const int32_t *mask, int b, int i, int j)
{
    const int reach = c->window > 0 ? (int)c->window - 1 : (int)c->T;
    const bool is_near = c->causal ? i - reach <= j && j <= i : abs(i - j) <= reach;
    return is_near && (mask == NULL || mask[b * c->T + j] != 0);
}

/* Equal scores and values that are one-hot: y_i holds the probabilities of row i, 1 / (keys in sight) each. */
static void check_probabilities(ps_backend *k, int64_t window, bool causal, mask_kind mask, float dropout_p)
{
    enum { B = 2, T = 8, H = 2, D = 8 };
    const attention_case c = {.B = B,
                              .T = T,
                              .H = H,
                              .KV = H,
                              .D = D,
                              .window = window,
                              .causal = causal,
                              .mask = mask,
                              .packed = true,
                              .dropout_p = dropout_p};
    const projections x = lay_projections(&c, make_output, 0);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) ((float *)x.v)[(b * T + t) * x.kv_stride + h * D + t] = 1.0f;
    ps_attention_fwd_args a = fwd_args(&c, &x);
    OP_RUN(k, attention_fwd, &a);
    for (int n = 0; n < B * H * T * T; n++) {
        const int b = n / (H * T * T), h = n / (T * T) % H, i = n / T % T, j = n % T;
        int n_seen = 0;
        for (int other = 0; other < T; other++) n_seen += sees(&c, a.mask, b, i, other);
        const bool kept = ps_rng_u32(key, (uint64_t)n) >= ps_dropout_threshold(dropout_p);
        const float want = sees(&c, a.mask, b, i, j) && kept ? 1.0f / (float)n_seen / (1.0f - dropout_p) : 0.0f;
        assert_float_equal(((const float *)a.y)[((b * T + i) * H + h) * D + j], want, 1e-6);
        assert_float_equal(a.lse[(b * H + h) * T + i], n_seen > 0 ? logf((float)n_seen) : 0.0f, 1e-6);
    }
    op_release();
}

static void test_probabilities(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int n = 0; n < 4 * 2 * 2 * MASK_KIND_COUNT; n++) {
            op_label("probabilities %d, %s", n, name);
            check_probabilities(k, (int64_t[]){0, 1, 3, 8}[n % 4], n / 4 % 2, (mask_kind)(n / 16),
                                n / 8 % 2 ? 0.5f : 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_tiles_that_are_masked),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_what_libraries_have),
        cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_dot_products),
        cmocka_unit_test(test_mask_of_ones_and_wide_windows),
        cmocka_unit_test(test_nan_in_padding),
        cmocka_unit_test(test_wholly_masked),
        cmocka_unit_test(test_workspace_without_pointers),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
