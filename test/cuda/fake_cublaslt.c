#include "cuda/fake_cublaslt.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "cuda/fake_impl.h"

#define FUNCTIONS 32

#define XX(type, name, symbol, params) type lt_##name params FAKE_SYMBOL(symbol);
#include "device/cuda/cublaslt.def"
#undef XX

struct ps_lt_handle_state {
    ps_cu_module module;
    ps_cu_function function;
};

struct ps_lt_gemm_state {
    int compute, scale, transposes_a, transposes_b, epilogue, bias_type;
    const void *bias, *aux;
    int64_t aux_stride;
};

struct ps_lt_layout_state {
    int type;
    int64_t rows, cols, stride;
};

struct ps_lt_preference_state {
    uint64_t workspace_bytes;
    uint32_t reductions, align[4];
};

/* What an algorithm was chosen for; its data. */
typedef struct chosen {
    uint64_t mark, workspace_bytes, what;
    uint32_t align[4], bias_align, aux_align;
    int32_t number;
} chosen;

#define MARK 0xb1a51755
/* Each rounds in its own way; which is chosen follows from the shape. */
#define ALGORITHMS 8
_Static_assert(sizeof(chosen) <= sizeof(ps_lt_algorithm), "data of an algorithm");

static struct {
    const char *names[FUNCTIONS];
    int n_names;
    atomic_int calls[FUNCTIONS], fail_in[FUNCTIONS];
    ps_lt_status fail_with[FUNCTIONS];
    atomic_int n_handles, n_gemms, n_layouts, n_preferences;
    fake_cublaslt_lack lacks;
} lt;

static int number_of(const char *name)
{
    for (int i = 0; i < lt.n_names; i++)
        if (strcmp(lt.names[i], name) == 0) return i;
    fprintf(stderr, "fake_cublaslt: no function %s\n", name);
    abort();
}

static ps_lt_status enter(const char *name)
{
    const int i = number_of(name);
    lt.calls[i]++;
    return lt.fail_in[i] >= 0 && lt.fail_in[i]-- == 0 ? lt.fail_with[i] : PS_LT_SUCCESS;
}

#define ENTER_LT()                                                                                                     \
    do {                                                                                                               \
        const ps_lt_status s_ = enter(__func__ + 3);                                                                   \
        if (s_ != PS_LT_SUCCESS) return s_;                                                                            \
    } while (0)

__attribute__((format(printf, 2, 3))) static ps_lt_status refuse(ps_lt_status s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fprintf(stderr, "fake_cublaslt: ");
    vfprintf(stderr, format, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    return s;
}

#define REFUSE(...) return refuse(PS_LT_INVALID_VALUE, __VA_ARGS__)

/* ---- descriptors ---- */

size_t lt_version(void)
{
    return 130100;
}

const char *lt_status_name(ps_lt_status s)
{
    return s == PS_LT_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS";
}

const char *lt_status_text(ps_lt_status s)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "status %d", s);
    return text;
}

ps_lt_status lt_create(ps_lt_handle *out)
{
    ENTER_LT();
    ps_lt_handle h = calloc(1, sizeof *h);
    if (fake_module_load(&h->module, "cublaslt") != PS_CU_SUCCESS) { /* without a context, too */
        free(h);
        return PS_LT_NOT_INITIALIZED;
    }
    if (fake_function_get(&h->function, h->module, "cublaslt") != PS_CU_SUCCESS) {
        (void)fake_module_unload(h->module);
        free(h);
        return PS_LT_NOT_INITIALIZED;
    }
    lt.n_handles++;
    *out = h;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_destroy(ps_lt_handle h)
{
    ENTER_LT();
    if (lt.n_handles == 1 && lt.n_gemms + lt.n_layouts > 0) REFUSE("products are left where the handle ends");
    (void)fake_module_unload(h->module);
    free(h);
    lt.n_handles--;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_gemm_create(ps_lt_gemm *out, int compute_type, int scale_type)
{
    ENTER_LT();
    *out = calloc(1, sizeof **out);
    **out = (struct ps_lt_gemm_state){.compute = compute_type, .scale = scale_type, .epilogue = 1, .bias_type = -1};
    lt.n_gemms++;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_gemm_destroy(ps_lt_gemm d)
{
    ENTER_LT();
    free(d);
    lt.n_gemms--;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_gemm_set(ps_lt_gemm d, int which, const void *value, size_t bytes)
{
    ENTER_LT();
    const bool is_wide = which == PS_LT_BIAS_POINTER || which == PS_LT_AUX_POINTER || which == PS_LT_AUX_STRIDE;
    if (bytes != (is_wide ? sizeof(void *) : sizeof(int32_t)))
        REFUSE("attribute %d of a product has not %zu bytes", which, bytes);
    switch (which) {
    case PS_LT_TRANSPOSES_A: memcpy(&d->transposes_a, value, bytes); break;
    case PS_LT_TRANSPOSES_B: memcpy(&d->transposes_b, value, bytes); break;
    case PS_LT_EPILOGUE: memcpy(&d->epilogue, value, bytes); break;
    case PS_LT_BIAS_POINTER:
        memcpy(&d->bias, value, bytes);
        if (lt.calls[number_of("gemm_set")] % 4 == 0) /* a caller without a lock finds another bias */
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        break;
    case PS_LT_AUX_POINTER: memcpy(&d->aux, value, bytes); break;
    case PS_LT_AUX_STRIDE: memcpy(&d->aux_stride, value, bytes); break;
    case PS_LT_BIAS_TYPE: memcpy(&d->bias_type, value, bytes); break;
    default: REFUSE("attribute %d of a product", which);
    }
    return PS_LT_SUCCESS;
}

ps_lt_status lt_layout_create(ps_lt_layout *out, int type, uint64_t rows, uint64_t cols, int64_t stride)
{
    ENTER_LT();
    if (rows == 0 || cols == 0 || stride < (int64_t)rows) REFUSE("a layout that overlaps, or of nothing");
    *out = calloc(1, sizeof **out);
    **out = (struct ps_lt_layout_state){type, (int64_t)rows, (int64_t)cols, stride};
    lt.n_layouts++;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_layout_destroy(ps_lt_layout l)
{
    ENTER_LT();
    free(l);
    lt.n_layouts--;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_preference_create(ps_lt_preference *out)
{
    ENTER_LT();
    *out = calloc(1, sizeof **out);
    **out = (struct ps_lt_preference_state){.reductions = 7, .align = {256, 256, 256, 256}};
    lt.n_preferences++;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_preference_destroy(ps_lt_preference p)
{
    ENTER_LT();
    free(p);
    lt.n_preferences--;
    return PS_LT_SUCCESS;
}

ps_lt_status lt_preference_set(ps_lt_preference p, int which, const void *value, size_t bytes)
{
    ENTER_LT();
    if (bytes != (which == PS_LT_WORKSPACE_BYTES ? sizeof(uint64_t) : sizeof(uint32_t)))
        REFUSE("attribute %d of a preference has not %zu bytes", which, bytes);
    if (which == PS_LT_WORKSPACE_BYTES)
        memcpy(&p->workspace_bytes, value, bytes);
    else if (which == PS_LT_REDUCTIONS)
        memcpy(&p->reductions, value, bytes);
    else if (which >= PS_LT_ALIGN_A && which <= PS_LT_ALIGN_Y)
        memcpy(&p->align[which - PS_LT_ALIGN_A], value, bytes);
    else
        REFUSE("attribute %d of a preference", which);
    return PS_LT_SUCCESS;
}

/* ---- what there is ---- */

static bool dtype_of(int type, ps_dtype *out)
{
    *out = type == PS_LT_BF16 ? PS_DTYPE_BF16 : type == PS_LT_F16 ? PS_DTYPE_F16 : PS_DTYPE_F32;
    return type == PS_LT_F32 || type == PS_LT_BF16 || type == PS_LT_F16;
}

static ps_lt_status check_dgelu(ps_lt_gemm d, ps_lt_layout y)
{
    if (d->aux == NULL || d->aux_stride < y->rows || d->aux_stride % 8 != 0)
        REFUSE("gelu's input at %p, its columns %lld apart", d->aux, (long long)d->aux_stride);
    if (lt.lacks == FAKE_CUBLASLT_DGELU_UNKNOWN) return PS_LT_INVALID_VALUE;
    return lt.lacks == FAKE_CUBLASLT_DGELU || y->type == PS_LT_F32 ? PS_LT_NOT_SUPPORTED : PS_LT_SUCCESS;
}

/* Types of what is computed in f32: f32 to f32; 16 bits to themselves or f32; a bias has the type of the output. */
static ps_lt_status check_types(ps_lt_gemm d, ps_lt_layout a, ps_lt_layout b, ps_lt_layout c, ps_lt_layout y)
{
    ps_dtype t;
    if (d->compute != PS_LT_COMPUTE_F32 || d->scale != PS_LT_F32) REFUSE("computed in %d, %d", d->compute, d->scale);
    if (!dtype_of(a->type, &t) || a->type != b->type || c->type != y->type ||
        (y->type != a->type && y->type != PS_LT_F32))
        return refuse(PS_LT_NOT_SUPPORTED, "no product of types %d, %d to %d", a->type, b->type, y->type);
    if (d->epilogue != 1 && d->epilogue != PS_LT_EPILOGUE_BIAS && d->epilogue != PS_LT_EPILOGUE_DGELU)
        REFUSE("epilogue %d", d->epilogue);
    if (d->epilogue == PS_LT_EPILOGUE_DGELU && check_dgelu(d, y) != PS_LT_SUCCESS) return check_dgelu(d, y);
    if (d->epilogue == PS_LT_EPILOGUE_BIAS && (d->bias == NULL || (d->bias_type >= 0 && d->bias_type != y->type)))
        return refuse(PS_LT_NOT_SUPPORTED, "no bias of type %d to %d", d->bias_type, y->type);
    return PS_LT_SUCCESS;
}

static ps_lt_status check_shapes(ps_lt_gemm d, ps_lt_layout a, ps_lt_layout b, ps_lt_layout c, ps_lt_layout y)
{
    const int64_t m = d->transposes_a ? a->cols : a->rows, k = d->transposes_a ? a->rows : a->cols;
    const int64_t n = d->transposes_b ? b->rows : b->cols;
    if ((d->transposes_b ? b->cols : b->rows) != k || y->rows != m || y->cols != n || c->rows != m || c->cols != n)
        REFUSE("shapes that do not fit: %lld x %lld by %lld x %lld", (long long)a->rows, (long long)a->cols,
               (long long)b->rows, (long long)b->cols);
    return PS_LT_SUCCESS;
}

static uint64_t sum_of(ps_lt_gemm d, ps_lt_layout a, ps_lt_layout b, ps_lt_layout y)
{
    uint64_t h = (uint64_t)(d->transposes_a + 2 * d->transposes_b + 4 * d->epilogue);
    const ps_lt_layout all[] = {a, b, y};
    for (int i = 0; i < 3; i++) {
        const int64_t words[] = {all[i]->type, all[i]->rows, all[i]->cols, all[i]->stride};
        for (int w = 0; w < 4; w++) h = h * 0x9e3779b97f4a7c15 + (uint64_t)words[w];
    }
    return h;
}

/* At most 256. */
static uint32_t align_of(const void *p)
{
    uint32_t n = 256;
    while ((uintptr_t)p % n != 0) n /= 2;
    return n;
}

ps_lt_status lt_choose(ps_lt_handle h, ps_lt_gemm d, ps_lt_layout a, ps_lt_layout b, ps_lt_layout c, ps_lt_layout y,
                       ps_lt_preference p, int n_wanted, ps_lt_choice *out, int *n_out)
{
    (void)h;
    *n_out = 0;
    ENTER_LT();
    ps_lt_status s = check_types(d, a, b, c, y);
    if (s == PS_LT_SUCCESS) s = check_shapes(d, a, b, c, y);
    if (s != PS_LT_SUCCESS) return s;
    /* bits must not depend on how parts of a sum are put together */
    if (n_wanted < 1 || p->reductions & ~(uint32_t)PS_LT_REDUCTION_COMPUTED) REFUSE("reductions %x", p->reductions);
    chosen x = {.mark = MARK, .workspace_bytes = p->workspace_bytes, .what = sum_of(d, a, b, y)};
    memcpy(x.align, p->align, sizeof x.align);
    x.bias_align = align_of(d->bias);
    x.aux_align = align_of(d->aux);
    x.number = (int32_t)(((x.what * 0x9e3779b97f4a7c15) >> 40) % ALGORITHMS);
    *out = (ps_lt_choice){.workspace_bytes = (size_t)p->workspace_bytes, .waves = 1.0f};
    memcpy(&out->algorithm, &x, sizeof x);
    *n_out = 1;
    return PS_LT_SUCCESS;
}

/* ---- products ---- */

/* By columns, as the library has them. */
typedef struct gemm {
    struct ps_lt_layout_state a_layout, b_layout, y_layout;
    const void *a, *b, *c, *bias, *aux;
    int64_t aux_stride;
    void *y, *workspace;
    size_t workspace_bytes;
    bool transposes_a, transposes_b;
    float alpha, beta;
    int algorithm;
} gemm;

/* n lines of k elements, those of a line, or those of a column over the lines, in sequence. The caller frees it. */
static double *lines_of(const struct ps_lt_layout_state *l, const void *data, bool are_lines, int64_t n, int64_t k)
{
    double *const out = malloc((size_t)ps_max_i64(1, n * k) * sizeof *out);
    ps_dtype t;
    (void)dtype_of(l->type, &t);
    if (out == NULL) abort();
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < k; e++)
            out[i * k + e] = (double)ps_dtype_load(t, data, are_lines ? i * l->stride + e : e * l->stride + i);
    return out;
}

/* The first algorithm in double; number n adds up n + 1 parts in float, element by element in turn: other bits each. */
static double sum_over_k(int algorithm, const double *a, const double *b, int64_t k)
{
    float parts[ALGORITHMS] = {0};
    double sum = 0;
    if (algorithm == 0) {
        for (int64_t l = 0; l < k; l++) sum += a[l] * b[l];
        return sum;
    }
    for (int64_t l = 0; l < k; l += algorithm + 1)
        for (int n = 0; n <= algorithm && l + n < k; n++) parts[n] += (float)(a[l + n] * b[l + n]);
    for (int n = 1; n <= algorithm; n++) parts[0] += parts[n];
    return (double)parts[0];
}

/* Of x Phi(x) in its tanh form. */
static double gelu_derivative(double x)
{
    const double s = sqrt(2 / acos(-1.0)), t = tanh(s * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * s * (1 + 3 * 0.044715 * x * x);
}

static void run(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, const void *args)
{
    const gemm *p = args;
    const int64_t k = p->transposes_a ? p->a_layout.rows : p->a_layout.cols;
    ps_dtype t;
    (void)user, (void)grid, (void)block, (void)shared_bytes;
    (void)dtype_of(p->y_layout.type, &t);
    memset(p->workspace, 0xC3, p->workspace_bytes); /* it is the library's */
    double *const a = lines_of(&p->a_layout, p->a, p->transposes_a, p->y_layout.rows, k);
    double *const b = lines_of(&p->b_layout, p->b, !p->transposes_b, p->y_layout.cols, k);
    for (int64_t j = 0; j < p->y_layout.cols; j++)
        for (int64_t i = 0; i < p->y_layout.rows; i++) {
            const int64_t at = j * p->y_layout.stride + i;
            double sum = p->beta != 0.0f ? (double)(p->beta * ps_dtype_load(t, p->c, at)) : 0.0;
            if (p->bias != NULL) sum += (double)ps_dtype_load(t, p->bias, i);
            sum += sum_over_k(p->algorithm, a + i * k, b + j * k, k);
            if (p->aux != NULL) sum *= gelu_derivative((double)ps_dtype_load(t, p->aux, j * p->aux_stride + i));
            ps_dtype_store(t, p->y, at, (float)((double)p->alpha * sum));
        }
    free(a);
    free(b);
}

static ps_lt_status check_chosen(const chosen *x, ps_lt_gemm d, const void *const matrices[4], const void *workspace,
                                 size_t workspace_bytes, uint64_t what)
{
    if (x->mark != MARK || x->what != what) REFUSE("an algorithm that was chosen for something else");
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)matrices[i] % x->align[i] != 0) REFUSE("matrix %d is not aligned to %u", i, x->align[i]);
    if (d->epilogue == PS_LT_EPILOGUE_BIAS && (uintptr_t)d->bias % x->bias_align != 0)
        REFUSE("the bias is not aligned to %u", x->bias_align);
    if (d->epilogue == PS_LT_EPILOGUE_DGELU && (uintptr_t)d->aux % x->aux_align != 0)
        REFUSE("gelu's input is not aligned to %u", x->aux_align);
    if (workspace_bytes < x->workspace_bytes || (uintptr_t)workspace % 256 != 0) REFUSE("the workspace");
    return PS_LT_SUCCESS;
}

ps_lt_status lt_multiply(ps_lt_handle h, ps_lt_gemm d, const void *alpha, const void *a, ps_lt_layout a_layout,
                         const void *b, ps_lt_layout b_layout, const void *beta, const void *c, ps_lt_layout c_layout,
                         void *y, ps_lt_layout y_layout, const ps_lt_algorithm *algorithm, void *workspace,
                         size_t workspace_bytes, ps_cu_stream stream)
{
    ENTER_LT();
    chosen x;
    memcpy(&x, algorithm, sizeof x);
    ps_lt_status s = check_types(d, a_layout, b_layout, c_layout, y_layout);
    if (s == PS_LT_SUCCESS) s = check_shapes(d, a_layout, b_layout, c_layout, y_layout);
    if (s == PS_LT_SUCCESS)
        s = check_chosen(&x, d, (const void *const[]){a, b, c, y}, workspace, workspace_bytes,
                         sum_of(d, a_layout, b_layout, y_layout));
    if (s != PS_LT_SUCCESS) return s;
    float factor;
    memcpy(&factor, beta, sizeof factor);
    if (c_layout->stride != y_layout->stride) REFUSE("c lies otherwise than y");
    if (factor == 0.0f && c != y) REFUSE("c, which is not wanted, elsewhere than y");
    if ((lt.lacks == FAKE_CUBLASLT_ADDEND_LATE && c != y) ||
        (lt.lacks == FAKE_CUBLASLT_DGELU_LATE && d->epilogue == PS_LT_EPILOGUE_DGELU))
        return PS_LT_NOT_SUPPORTED;
    gemm p = {.a_layout = *a_layout,
              .b_layout = *b_layout,
              .y_layout = *y_layout,
              .a = a,
              .b = b,
              .c = c,
              .bias = d->epilogue == PS_LT_EPILOGUE_BIAS ? d->bias : NULL,
              .aux = d->epilogue == PS_LT_EPILOGUE_DGELU ? d->aux : NULL,
              .aux_stride = d->aux_stride,
              .y = y,
              .workspace = workspace,
              .workspace_bytes = workspace_bytes,
              .transposes_a = d->transposes_a != 0,
              .transposes_b = d->transposes_b != 0,
              .algorithm = x.number};
    memcpy(&p.alpha, alpha, sizeof p.alpha); /* pointers of the host */
    memcpy(&p.beta, beta, sizeof p.beta);
    const ps_cu_result r = fake_launch(h->function, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&p}, NULL);
    return r == PS_CU_SUCCESS ? PS_LT_SUCCESS : PS_LT_EXECUTION_FAILED;
}

/* ---- life ---- */

const ps_cublaslt fake_cublaslt = {
#define XX(type, name, symbol, params) .name = lt_##name,
#include "device/cuda/cublaslt.def"
#undef XX
};

void fake_cublaslt_begin(void)
{
    memset(&lt, 0, sizeof lt);
#define XX(type, name, symbol, params) lt.names[lt.n_names++] = #name;
#include "device/cuda/cublaslt.def"
#undef XX
    for (int i = 0; i < FUNCTIONS; i++) lt.fail_in[i] = -1;
    fake_kernel_add("cublaslt", run, NULL, sizeof(gemm));
}

bool fake_cublaslt_end(void)
{
    const int left[] = {lt.n_handles, lt.n_gemms, lt.n_layouts, lt.n_preferences};
    static const char *const what[] = {"handles", "products", "layouts", "preferences"};
    bool is_clean = true;
    for (int i = 0; i < 4; i++) {
        if (left[i] == 0) continue;
        fprintf(stderr, "fake_cublaslt: %d %s are left\n", left[i], what[i]);
        is_clean = false;
    }
    return is_clean;
}

void fake_cublaslt_fail(const char *function, int nth, ps_lt_status s)
{
    lt.fail_in[number_of(function)] = nth;
    lt.fail_with[number_of(function)] = s;
}

void fake_cublaslt_without(fake_cublaslt_lack what)
{
    lt.lacks = what;
}

int fake_cublaslt_calls(const char *function)
{
    return lt.calls[number_of(function)];
}
