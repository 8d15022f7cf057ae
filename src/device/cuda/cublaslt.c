#include "device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/gpu_impl.h"
#include "device/cuda/library.h"

/* ---- loading ---- */

static ps_status take_all(void *library, const char *path, ps_cublaslt *out)
{
    const char *missing = NULL;
#define XX(type, name, symbol, params)                                                                                 \
    *(void **)&out->name = dlsym(library, #symbol);                                                                    \
    if (out->name == NULL && missing == NULL) missing = #symbol;
#include "device/cuda/cublaslt.def"
#undef XX
    if (missing != NULL)
        return PS_FAIL(PS_ENOSYS, "%s has no %s: it is not cuBLASLt of CUDA %d", path, missing, PS_CUBLASLT_VERSION);
    const size_t version = out->version();
    if (version / 10000 != PS_CUBLASLT_VERSION)
        return PS_FAIL(PS_ENOSYS, "%s is cuBLASLt %zu.%zu: that of CUDA %d is needed", path, version / 10000,
                       version % 10000 / 100, PS_CUBLASLT_VERSION);
    return PS_OK;
}

static ps_status no_library(void)
{
    return PS_FAIL(
        PS_ENOSYS,
        "cannot load cuBLASLt, which multiplies matrices on the GPU: %s. Install the libraries of CUDA %d, or "
        "put their folder into LD_LIBRARY_PATH",
        dlerror(), PS_CUBLASLT_VERSION);
}

ps_status ps_cublaslt_take(const char *path, ps_cublaslt *out)
{
    *out = (ps_cublaslt){0};
    void *library = ps_cuda_library_open(path);
    return library != NULL ? take_all(library, path, out) : no_library();
}

static ps_status find(void *table)
{
    ps_cublaslt *out = table;
    char name[64];
    snprintf(name, sizeof name, "libcublasLt.so.%d", PS_CUBLASLT_VERSION);
    *out = (ps_cublaslt){0};
    void *library = ps_cuda_library_find(name);
    return library != NULL ? take_all(library, name, out) : ps_cublaslt_take(name, out);
}

ps_status ps_cublaslt_load(const ps_cublaslt **out)
{
    static ps_cublaslt table;
    static ps_cuda_once once = PS_CUDA_ONCE(find, &table);
    const void *found;
    const ps_status st = ps_cuda_library_once(&once, &found);
    *out = found;
    return st;
}

/* ---- multiplications ---- */

/* Part of the workspace, for alignment as the library requires it. */
#define WORKSPACE_ALIGN 256
#define BUCKETS_LEAST 64

/* Everything that the choice of an algorithm depends on. */
typedef struct shape {
    int64_t m, n, k, y_stride, a_stride, b_stride;
    int32_t dtype, y_dtype; /* ps_dtype */
    bool is_a_transposed, is_b_transposed, has_bias, accumulates;
    bool has_addend, has_gelu_x;
    uint8_t a_align; /* PS_CUDA_GEMM_ALIGN, or less, as the alignment of a row within an array */
    char unused;
} shape;

_Static_assert(sizeof(shape) == 6 * sizeof(int64_t) + 4 * sizeof(int32_t), "shapes are compared by their bytes");

/* A multiplication in the library's terms. The library stores matrices by columns, so our rows are its columns and it
 * computes y^T = b^T a^T: its first matrix is b. */
typedef struct prepared {
    shape shape;
    ps_lt_gemm gemm;
    ps_lt_layout a, b, y;
    ps_lt_algorithm algorithm;
    bool is_none;          /* the library does not support this shape: algorithm is unset */
    struct prepared *next; /* in its bucket */
} prepared;

typedef struct gemms {
    ps_gpu *gpu;
    const ps_cublaslt *lt;
    ps_lt_handle handle;
    ps_lt_preference preference; /* lock */
    int64_t workspace_bytes;     /* for the library */
    int capability;              /* of the GPU: 90 */
    pthread_mutex_t lock;        /* guards the rest, and the pointers of a multiplication while they are set and used */
    prepared **buckets;          /* [n_buckets], a power of 2 */
    size_t n_buckets, n;
} gemms;

static uint8_t align_of(const void *p)
{
    uint8_t n = PS_CUDA_GEMM_ALIGN;
    while ((uintptr_t)p % n != 0) n /= 2;
    return n;
}

static shape shape_of(const ps_cuda_gemm *p)
{
    return (shape){.m = p->m,
                   .n = p->n,
                   .k = p->k,
                   .y_stride = p->y_stride,
                   .a_stride = p->a.stride,
                   .b_stride = p->b.stride,
                   .dtype = (int32_t)p->a.dtype,
                   .y_dtype = (int32_t)p->y_dtype,
                   .is_a_transposed = p->a.is_transposed,
                   .is_b_transposed = p->b.is_transposed,
                   .has_bias = p->bias != NULL,
                   .accumulates = p->accumulate,
                   .has_addend = p->addend != NULL,
                   .has_gelu_x = p->gelu_x != NULL,
                   .a_align = align_of(p->a.data)};
}

/* Does the multiplication have an epilogue that the library may not support? */
static bool is_followed(const shape *s)
{
    return s->has_addend || s->has_gelu_x;
}

/* After a failure of the library, which does not report the driver's error. */
static ps_status explain(const gemms *p, ps_lt_status s, const char *what)
{
    size_t free_bytes, total_bytes;
    PS_TRY(ps_gpu_check(p->gpu, p->gpu->driver->memory_info(&free_bytes, &total_bytes), what));
    return PS_FAIL(s == PS_LT_ALLOC_FAILED ? PS_ENOMEM_DEV : PS_EDEVICE, "cuBLASLt: %s: %s (%s)", what,
                   p->lt->status_name(s), p->lt->status_text(s));
}

static ps_status check(const gemms *p, ps_lt_status s, const char *what)
{
    return s == PS_LT_SUCCESS ? PS_OK : explain(p, s, what);
}

static int type_of(ps_dtype t)
{
    static const int types[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = PS_LT_F32, [PS_DTYPE_BF16] = PS_LT_BF16, [PS_DTYPE_F16] = PS_LT_F16};
    return types[t];
}

static size_t bucket_of(const gemms *p, const shape *s)
{
    uint64_t h = 0;
    const unsigned char *bytes = (const unsigned char *)s;
    for (size_t i = 0; i < sizeof *s; i++) h = (h ^ bytes[i]) * 0x100000001b3;
    return (size_t)(h ^ h >> 32) & (p->n_buckets - 1);
}

/* ---- preparing ---- */

static void free_prepared(const gemms *p, prepared *r)
{
    if (r->y != NULL) (void)p->lt->layout_destroy(r->y);
    if (r->b != NULL) (void)p->lt->layout_destroy(r->b);
    if (r->a != NULL) (void)p->lt->layout_destroy(r->a);
    if (r->gemm != NULL) (void)p->lt->gemm_destroy(r->gemm);
    ps_mem_free(r);
}

static ps_status set(const gemms *p, ps_lt_gemm d, int which, int value)
{
    const int32_t v = value;
    return check(p, p->lt->gemm_set(d, which, &v, sizeof v), "describing a multiplication");
}

static ps_status set_pointer(const gemms *p, ps_lt_gemm d, int which, const void *address)
{
    return check(p, p->lt->gemm_set(d, which, &address, sizeof address), "describing a multiplication");
}

static ps_status set_pointers(const gemms *p, prepared *r, const void *bias, const void *gelu_x)
{
    if (r->shape.has_bias) PS_TRY(set_pointer(p, r->gemm, PS_LT_BIAS_POINTER, bias));
    return r->shape.has_gelu_x ? set_pointer(p, r->gemm, PS_LT_AUX_POINTER, gelu_x) : PS_OK;
}

/* Epilogues of the multiplication; an addend is a separate matrix. */
static ps_status describe_epilogue(const gemms *p, prepared *r)
{
    const shape *s = &r->shape;
    /* the choice depends on the alignment of addresses: use one that is aligned no better than all of them */
    const void *const any_address = (const void *)(uintptr_t)PS_CUDA_GEMM_ALIGN;
    if (s->has_bias) {
        PS_TRY(set(p, r->gemm, PS_LT_EPILOGUE, PS_LT_EPILOGUE_BIAS));
        PS_TRY(set(p, r->gemm, PS_LT_BIAS_TYPE, type_of((ps_dtype)s->dtype)));
    } else if (s->has_gelu_x) {
        PS_TRY(set(p, r->gemm, PS_LT_EPILOGUE, PS_LT_EPILOGUE_DGELU));
        PS_TRY(check(p, p->lt->gemm_set(r->gemm, PS_LT_AUX_STRIDE, &s->y_stride, sizeof s->y_stride),
                     "describing a multiplication"));
    }
    return set_pointers(p, r, any_address, any_address);
}

static ps_status describe(const gemms *p, prepared *r)
{
    const shape *s = &r->shape;
    PS_TRY(check(p, p->lt->gemm_create(&r->gemm, PS_LT_COMPUTE_F32, PS_LT_F32), "describing a multiplication"));
    PS_TRY(set(p, r->gemm, PS_LT_TRANSPOSES_A, s->is_b_transposed ? PS_LT_TRANSPOSED : PS_LT_AS_IS));
    PS_TRY(set(p, r->gemm, PS_LT_TRANSPOSES_B, s->is_a_transposed ? PS_LT_TRANSPOSED : PS_LT_AS_IS));
    return describe_epilogue(p, r);
}

/* A matrix with so many rows and columns in memory order. */
static ps_status lay_out(const gemms *p, ps_lt_layout *out, int32_t dtype, int64_t rows, int64_t cols, int64_t stride)
{
    const ps_lt_status st = p->lt->layout_create(out, type_of((ps_dtype)dtype), (uint64_t)cols, (uint64_t)rows, stride);
    return check(p, st, "describing a matrix");
}

static ps_status lay_out_all(const gemms *p, prepared *r)
{
    const shape *s = &r->shape;
    const bool ta = s->is_a_transposed, tb = s->is_b_transposed;
    PS_TRY(lay_out(p, &r->a, s->dtype, ta ? s->k : s->m, ta ? s->m : s->k, s->a_stride));
    PS_TRY(lay_out(p, &r->b, s->dtype, tb ? s->n : s->k, tb ? s->k : s->n, s->b_stride));
    return lay_out(p, &r->y, s->y_dtype, s->m, s->n, s->y_stride);
}

static ps_status prefer(const gemms *p, int which, uint32_t value)
{
    return check(p, p->lt->preference_set(p->preference, which, &value, sizeof value), "its preferences");
}

/* The first algorithm of the library's heuristics; PS_ENOSYS when there is none. */
static ps_status choose(const gemms *p, prepared *r)
{
    const shape *s = &r->shape;
    ps_lt_choice first = {.state = PS_LT_NOT_SUPPORTED};
    int n = 0;
    PS_TRY(prefer(p, PS_LT_ALIGN_B, s->a_align));
    const ps_lt_status st = p->lt->choose(p->handle, r->gemm, r->b, r->a, r->y, r->y, p->preference, 1, &first, &n);
    const bool is_unknown = st == PS_LT_INVALID_VALUE && is_followed(s); /* an attribute not supported here */
    if (is_unknown || st == PS_LT_NOT_SUPPORTED || (st == PS_LT_SUCCESS && (n < 1 || first.state != PS_LT_SUCCESS)))
        return PS_FAIL(
            PS_ENOSYS,
            "cuBLASLt %zu does not support a multiplication of %s [%lld, %lld] x [%lld, %lld] to %s%s%s for %s",
            p->lt->version(), ps_dtype_name((ps_dtype)s->dtype), (long long)s->m, (long long)s->k, (long long)s->k,
            (long long)s->n, ps_dtype_name((ps_dtype)s->y_dtype), s->has_bias ? " with a bias" : "",
            s->has_addend   ? " and an addend"
            : s->has_gelu_x ? " and gelu's derivative"
                            : "",
            p->gpu->name);
    r->algorithm = first.algorithm;
    return check(p, st, "choosing an algorithm");
}

#define GELU_CAPABILITY 90

/* Would we use this epilogue where the library supports it? */
static bool is_worth_asking(const gemms *p, const shape *s)
{
    return !s->has_gelu_x || (p->capability >= GELU_CAPABILITY && s->y_stride % 8 == 0);
}

static ps_status prepare(const gemms *p, const shape *s, prepared **out)
{
    prepared *r = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->shape = *s;
    ps_status st = describe(p, r);
    if (st == PS_OK) st = lay_out_all(p, r);
    if (st == PS_OK) st = is_worth_asking(p, s) ? choose(p, r) : PS_ENOSYS;
    r->is_none = st == PS_ENOSYS && is_followed(s);
    if (st != PS_OK && !r->is_none) {
        free_prepared(p, r);
        return st;
    }
    *out = r;
    return PS_OK;
}

static void put(gemms *p, prepared *r)
{
    prepared **to = &p->buckets[bucket_of(p, &r->shape)];
    r->next = *to;
    *to = r;
    p->n++;
}

/* Make room for so many. */
static ps_status reserve(gemms *p, size_t n)
{
    const size_t n_old = p->n_buckets;
    size_t n_new = n_old;
    while (n_new < n) n_new *= 2;
    if (n_new == n_old) return PS_OK;
    prepared **old = p->buckets;
    PS_TRY(ps_mem_alloc(n_new, sizeof *p->buckets, &p->buckets));
    p->n_buckets = n_new;
    p->n = 0;
    for (size_t i = 0; i < n_old; i++)
        for (prepared *r = old[i], *next; r != NULL; r = next) {
            next = r->next;
            put(p, r);
        }
    ps_mem_free(old);
    return PS_OK;
}

static prepared *find_prepared(const gemms *p, const shape *s)
{
    prepared *r = p->buckets[bucket_of(p, s)];
    while (r != NULL && memcmp(&r->shape, s, sizeof *s) != 0) r = r->next;
    return r;
}

static ps_status get_prepared(gemms *p, const shape *s, prepared **out)
{
    *out = find_prepared(p, s);
    if (*out != NULL) return PS_OK;
    PS_TRY(reserve(p, p->n + 1));
    PS_TRY(prepare(p, s, out));
    put(p, *out);
    return PS_OK;
}

/* ---- multiplying ---- */

static ps_lt_status multiply_prepared(const gemms *p, const prepared *r, const ps_cuda_gemm *x, ps_cu_stream stream)
{
    static const float one = 1.0f, zero = 0.0f;
    void *workspace = (void *)(uintptr_t)ps_round_up((int64_t)(uintptr_t)x->workspace, WORKSPACE_ALIGN);
    return p->lt->multiply(p->handle, r->gemm, &one, x->b.data, r->b, x->a.data, r->a,
                           x->accumulate || x->addend != NULL ? &one : &zero, x->addend != NULL ? x->addend : x->y,
                           r->y, x->y, r->y, &r->algorithm, workspace, (size_t)p->workspace_bytes, stream);
}

/* a call that is refused now is always refused: remember it as not supported */
static ps_status multiply_locked(gemms *p, ps_cu_stream stream, const ps_cuda_gemm *x, bool *is_done)
{
    const shape s = shape_of(x);
    prepared *r;
    PS_TRY(get_prepared(p, &s, &r));
    if (r->is_none) return PS_OK;
    PS_TRY(set_pointers(p, r, x->bias, x->gelu_x));
    const ps_lt_status st = multiply_prepared(p, r, x, stream);
    r->is_none = st == PS_LT_NOT_SUPPORTED && is_followed(&s);
    *is_done = st == PS_LT_SUCCESS;
    return r->is_none ? PS_OK : check(p, st, "matrix multiplication");
}

static ps_status multiply(void *self, ps_cu_stream stream, const ps_cuda_gemm *x, bool *is_done)
{
    gemms *p = self;
    *is_done = false;
    pthread_mutex_lock(&p->lock);
    const ps_status st = multiply_locked(p, stream, x, is_done);
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* ---- create, destroy ---- */

static void destroy(void *self)
{
    gemms *p = self;
    (void)ps_gpu_enter_quietly(p->gpu);
    for (size_t i = 0; i < p->n_buckets; i++)
        for (prepared *r = p->buckets[i], *next; r != NULL; r = next) {
            next = r->next;
            free_prepared(p, r);
        }
    if (p->preference != NULL) (void)p->lt->preference_destroy(p->preference);
    if (p->handle != NULL) (void)p->lt->destroy(p->handle);
    ps_mem_free(p->buckets);
    pthread_mutex_destroy(&p->lock);
    ps_mem_free(p);
}

static ps_status start(gemms *p)
{
    const uint64_t workspace_bytes = (uint64_t)p->workspace_bytes;
    ps_gpu_info info;
    PS_TRY(ps_mem_alloc(BUCKETS_LEAST, sizeof *p->buckets, &p->buckets));
    p->n_buckets = BUCKETS_LEAST;
    PS_TRY(ps_gpu_get_info(p->gpu, &info));
    p->capability = info.capability;
    PS_TRY(ps_gpu_enter(p->gpu));
    PS_TRY(check(p, p->lt->create(&p->handle), "its start"));
    PS_TRY(check(p, p->lt->preference_create(&p->preference), "its preferences"));
    PS_TRY(check(p,
                 p->lt->preference_set(p->preference, PS_LT_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes),
                 "its preferences"));
    PS_TRY(prefer(p, PS_LT_REDUCTIONS, PS_LT_REDUCTION_COMPUTED));
    for (int which = PS_LT_ALIGN_A; which <= PS_LT_ALIGN_Y; which++) PS_TRY(prefer(p, which, PS_CUDA_GEMM_ALIGN));
    return PS_OK;
}

ps_status ps_cublaslt_open_with(ps_gpu *gpu, const ps_cublaslt *library, int64_t workspace_bytes, ps_cuda_gemms *out)
{
    gemms *p = NULL;
    PS_ASSERT(workspace_bytes > WORKSPACE_ALIGN && workspace_bytes % WORKSPACE_ALIGN == 0);
    *out = (ps_cuda_gemms){0};
    PS_TRY(ps_mem_alloc(1, sizeof *p, &p));
    *p = (gemms){.gpu = gpu, .lt = library, .workspace_bytes = workspace_bytes - WORKSPACE_ALIGN};
    pthread_mutex_init(&p->lock, NULL);
    const ps_status st = start(p);
    if (st == PS_OK)
        *out = (ps_cuda_gemms){.self = p, .workspace_bytes = workspace_bytes, .multiply = multiply, .destroy = destroy};
    else
        destroy(p);
    return st;
}

ps_status ps_cublaslt_open(ps_gpu *gpu, ps_cuda_gemms *out)
{
    const ps_cublaslt *library;
    *out = (ps_cuda_gemms){0};
    PS_TRY(ps_cublaslt_load(&library));
    return ps_cublaslt_open_with(gpu, library, PS_CUBLASLT_WORKSPACE_BYTES, out);
}
