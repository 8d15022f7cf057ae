#include "cuda/cublaslt.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/gpu_impl.h"

/* Of the workspace, which the library wants. */
#define WORKSPACE_ALIGN 256

/* ---- loading ---- */

static ps_status take_all(void *library, const char *path, ps_cublaslt *out)
{
    const char *missing = NULL;
#define XX(type, name, symbol, params)                                                                                 \
    *(void **)&out->name = dlsym(library, #symbol);                                                                    \
    if (out->name == NULL && missing == NULL) missing = #symbol;
#include "cuda/cublaslt.def"
#undef XX
    if (missing != NULL)
        return PS_FAIL(PS_ENOSYS, "%s has no %s: it is not cuBLASLt of CUDA %d", path, missing, PS_CUBLASLT_VERSION);
    const size_t version = out->version();
    if (version / 10000 != PS_CUBLASLT_VERSION)
        return PS_FAIL(PS_ENOSYS, "%s is cuBLASLt %zu.%zu: that of CUDA %d is needed", path, version / 10000,
                       version % 10000 / 100, PS_CUBLASLT_VERSION);
    return PS_OK;
}

static void *open_library(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded: it has state of the driver's */
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
    void *library = open_library(path);
    return library != NULL ? take_all(library, path, out) : no_library();
}

static ps_status find(ps_cublaslt *out)
{
    const char *home = getenv("CUDA_HOME");
    const char *const roots[] = {home != NULL && home[0] == '/' ? home : "/usr/local/cuda", "/usr/local/cuda"};
    static const char *const folders[] = {"lib64", "lib"};
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "libcublasLt.so.%d", PS_CUBLASLT_VERSION);
    *out = (ps_cublaslt){0};
    void *library = open_library(name);
    for (size_t r = 0; r < PS_ARRAY_LEN(roots) && library == NULL; r++)
        for (size_t f = 0; f < PS_ARRAY_LEN(folders) && library == NULL; f++)
            if (snprintf(path, sizeof path, "%s/%s/%s", roots[r], folders[f], name) < (int)sizeof path)
                library = open_library(path);
    return library != NULL ? take_all(library, name, out) : ps_cublaslt_take(name, out);
}

ps_status ps_cublaslt_load(const ps_cublaslt **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ps_cublaslt loaded; /* lock */
    static bool is_loaded;     /* lock */
    ps_status st = PS_OK;
    pthread_mutex_lock(&lock);
    if (!is_loaded) st = find(&loaded);
    is_loaded = st == PS_OK;
    pthread_mutex_unlock(&lock);
    *out = st == PS_OK ? &loaded : NULL;
    return st;
}

/* ---- products ---- */

#define BUCKETS_LEAST 64

/* All that an algorithm is chosen by. */
typedef struct shape {
    int64_t m, n, k, y_stride, a_stride, b_stride;
    int32_t dtype, y_dtype;
    bool is_a_transposed, is_b_transposed, has_bias, accumulates;
    uint8_t a_align; /* PS_CUDA_PRODUCT_ALIGN, or what less it is of a row within an array */
    char unused[3];
} shape;

_Static_assert(sizeof(shape) == 6 * sizeof(int64_t) + 4 * sizeof(int32_t), "shapes are compared by their bytes");

/* A product as the library has it. It knows matrices by columns, so rows are columns to it, and y^T = b^T a^T is what it
 * computes: its first matrix is b. */
typedef struct prepared {
    shape shape;
    ps_lt_product product;
    ps_lt_layout a, b, y;
    ps_lt_algorithm algorithm;
    struct prepared *next; /* in its bucket */
} prepared;

typedef struct products {
    ps_gpu *gpu;
    const ps_cublaslt *lt;
    ps_lt_handle handle;
    ps_lt_preference preference;
    int64_t workspace_bytes; /* for the library */
    pthread_mutex_t lock;    /* the rest; and a product's bias is set and used under it */
    prepared **buckets;      /* [n_buckets], a power of 2 */
    size_t n_buckets, n;
} products;

/* After a failure of the library's, which does not say what the driver has seen. */
static ps_status explain(const products *p, ps_lt_status s, const char *what)
{
    size_t free_bytes, total_bytes;
    PS_TRY(ps_gpu_check(p->gpu, p->gpu->driver->memory_info(&free_bytes, &total_bytes), what));
    return PS_FAIL(s == PS_LT_ALLOC_FAILED ? PS_ENOMEM_DEV : PS_EDEVICE, "cuBLASLt: %s: %s (%s)", what,
                   p->lt->status_name(s), p->lt->status_text(s));
}

static ps_status check(const products *p, ps_lt_status s, const char *what)
{
    return s == PS_LT_SUCCESS ? PS_OK : explain(p, s, what);
}

static int type_of(ps_dtype t)
{
    static const int types[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = PS_LT_F32, [PS_DTYPE_BF16] = PS_LT_BF16, [PS_DTYPE_F16] = PS_LT_F16};
    return types[t];
}

static uint8_t align_of(const void *p)
{
    uint8_t n = PS_CUDA_PRODUCT_ALIGN;
    while ((uintptr_t)p % n != 0) n /= 2;
    return n;
}

static shape shape_of(const ps_cuda_product *p)
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
                   .a_align = align_of(p->a.data)};
}

static size_t bucket_of(const products *p, const shape *s)
{
    uint64_t h = 0;
    const unsigned char *bytes = (const unsigned char *)s;
    for (size_t i = 0; i < sizeof *s; i++) h = (h ^ bytes[i]) * 0x100000001b3;
    return (size_t)(h ^ h >> 32) & (p->n_buckets - 1);
}

/* ---- preparing ---- */

static void prepared_free(const products *p, prepared *r)
{
    if (r->y != NULL) (void)p->lt->layout_destroy(r->y);
    if (r->b != NULL) (void)p->lt->layout_destroy(r->b);
    if (r->a != NULL) (void)p->lt->layout_destroy(r->a);
    if (r->product != NULL) (void)p->lt->product_destroy(r->product);
    ps_mem_free(r);
}

static ps_status set(const products *p, ps_lt_product d, int which, int value)
{
    const int32_t v = value;
    return check(p, p->lt->product_set(d, which, &v, sizeof v), "describing a product");
}

static ps_status set_bias(const products *p, ps_lt_product d, const void *bias)
{
    return check(p, p->lt->product_set(d, PS_LT_BIAS_POINTER, &bias, sizeof bias), "describing a product");
}

static ps_status describe(const products *p, prepared *r)
{
    const shape *s = &r->shape;
    const int type = type_of((ps_dtype)s->dtype);
    PS_TRY(check(p, p->lt->product_create(&r->product, PS_LT_COMPUTE_F32, PS_LT_F32), "describing a product"));
    PS_TRY(set(p, r->product, PS_LT_TRANSPOSES_A, s->is_b_transposed ? PS_LT_TRANSPOSED : PS_LT_AS_IS));
    PS_TRY(set(p, r->product, PS_LT_TRANSPOSES_B, s->is_a_transposed ? PS_LT_TRANSPOSED : PS_LT_AS_IS));
    if (!s->has_bias) return PS_OK;
    PS_TRY(set(p, r->product, PS_LT_EPILOGUE, PS_LT_EPILOGUE_BIAS));
    PS_TRY(set(p, r->product, PS_LT_BIAS_TYPE, type));
    /* the choice looks at how it is aligned: nobody's address, aligned no better than all of them */
    return set_bias(p, r->product, (const void *)(uintptr_t)PS_CUDA_PRODUCT_ALIGN);
}

/* Of a matrix with so many rows and columns as they lie in memory. */
static ps_status lay_out(const products *p, ps_lt_layout *out, int32_t dtype, int64_t rows, int64_t cols,
                         int64_t stride)
{
    const ps_lt_status st = p->lt->layout_create(out, type_of((ps_dtype)dtype), (uint64_t)cols, (uint64_t)rows, stride);
    return check(p, st, "describing a matrix");
}

static ps_status lay_out_all(const products *p, prepared *r)
{
    const shape *s = &r->shape;
    const bool ta = s->is_a_transposed, tb = s->is_b_transposed;
    PS_TRY(lay_out(p, &r->a, s->dtype, ta ? s->k : s->m, ta ? s->m : s->k, s->a_stride));
    PS_TRY(lay_out(p, &r->b, s->dtype, tb ? s->n : s->k, tb ? s->k : s->n, s->b_stride));
    return lay_out(p, &r->y, s->y_dtype, s->m, s->n, s->y_stride);
}

static ps_status prefer(const products *p, int which, uint32_t value)
{
    return check(p, p->lt->preference_set(p->preference, which, &value, sizeof value), "its preferences");
}

static ps_status choose(const products *p, prepared *r)
{
    const shape *s = &r->shape;
    ps_lt_choice choice = {.state = PS_LT_NOT_SUPPORTED};
    int n = 0;
    PS_TRY(prefer(p, PS_LT_ALIGN_B, s->a_align));
    const ps_lt_status st = p->lt->choose(p->handle, r->product, r->b, r->a, r->y, r->y, p->preference, 1, &choice, &n);
    if (st == PS_LT_NOT_SUPPORTED || (st == PS_LT_SUCCESS && (n == 0 || choice.state != PS_LT_SUCCESS)))
        return PS_FAIL(PS_ENOSYS, "cuBLASLt %zu has no product of %s [%lld, %lld] x [%lld, %lld] to %s%s for %s",
                       p->lt->version(), ps_dtype_name((ps_dtype)s->dtype), (long long)s->m, (long long)s->k,
                       (long long)s->k, (long long)s->n, ps_dtype_name((ps_dtype)s->y_dtype),
                       s->has_bias ? " with a bias" : "", p->gpu->name);
    r->algorithm = choice.algorithm;
    return check(p, st, "choosing an algorithm");
}

static ps_status prepare(products *p, const shape *s, prepared **out)
{
    prepared *r = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->shape = *s;
    ps_status st = describe(p, r);
    if (st == PS_OK) st = lay_out_all(p, r);
    if (st == PS_OK) st = choose(p, r);
    if (st == PS_OK)
        *out = r;
    else
        prepared_free(p, r);
    return st;
}

static ps_status make_room(products *p)
{
    if (p->n < p->n_buckets) return PS_OK;
    prepared **old = p->buckets;
    const size_t n_old = p->n_buckets;
    PS_TRY(ps_mem_alloc(2 * n_old, sizeof *p->buckets, &p->buckets));
    p->n_buckets = 2 * n_old;
    for (size_t i = 0; i < n_old; i++)
        for (prepared *r = old[i], *next; r != NULL; r = next) {
            prepared **to = &p->buckets[bucket_of(p, &r->shape)];
            next = r->next;
            r->next = *to;
            *to = r;
        }
    ps_mem_free(old);
    return PS_OK;
}

static ps_status get_prepared(products *p, const shape *s, prepared **out)
{
    for (*out = p->buckets[bucket_of(p, s)]; *out != NULL; *out = (*out)->next)
        if (memcmp(&(*out)->shape, s, sizeof *s) == 0) return PS_OK;
    PS_TRY(make_room(p));
    PS_TRY(prepare(p, s, out));
    prepared **to = &p->buckets[bucket_of(p, s)];
    (*out)->next = *to;
    *to = *out;
    p->n++;
    return PS_OK;
}

/* ---- multiplying ---- */

static ps_status multiply_locked(products *p, ps_cu_stream stream, const ps_cuda_product *x)
{
    static const float one = 1.0f, zero = 0.0f;
    const shape s = shape_of(x);
    prepared *r;
    PS_TRY(get_prepared(p, &s, &r));
    if (x->bias != NULL) PS_TRY(set_bias(p, r->product, x->bias));
    void *workspace = (void *)(uintptr_t)ps_round_up((int64_t)(uintptr_t)x->workspace, WORKSPACE_ALIGN);
    return check(p,
                 p->lt->multiply(p->handle, r->product, &one, x->b.data, r->b, x->a.data, r->a,
                                 x->accumulate ? &one : &zero, x->y, r->y, x->y, r->y, &r->algorithm, workspace,
                                 (size_t)p->workspace_bytes, stream),
                 "a matrix product");
}

static ps_status multiply(void *self, ps_cu_stream stream, const ps_cuda_product *x)
{
    products *p = self;
    pthread_mutex_lock(&p->lock);
    const ps_status st = multiply_locked(p, stream, x);
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* ---- life ---- */

static void destroy(void *self)
{
    products *p = self;
    (void)ps_gpu_enter_quietly(p->gpu);
    for (size_t i = 0; i < p->n_buckets; i++)
        for (prepared *r = p->buckets[i], *next; r != NULL; r = next) {
            next = r->next;
            prepared_free(p, r);
        }
    if (p->preference != NULL) (void)p->lt->preference_destroy(p->preference);
    if (p->handle != NULL) (void)p->lt->destroy(p->handle);
    ps_mem_free(p->buckets);
    pthread_mutex_destroy(&p->lock);
    ps_mem_free(p);
}

static ps_status start(products *p)
{
    const uint64_t workspace_bytes = (uint64_t)p->workspace_bytes;
    PS_TRY(ps_mem_alloc(BUCKETS_LEAST, sizeof *p->buckets, &p->buckets));
    p->n_buckets = BUCKETS_LEAST;
    PS_TRY(ps_gpu_enter(p->gpu));
    PS_TRY(check(p, p->lt->create(&p->handle), "its start"));
    PS_TRY(check(p, p->lt->preference_create(&p->preference), "its preferences"));
    PS_TRY(check(p,
                 p->lt->preference_set(p->preference, PS_LT_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes),
                 "its preferences"));
    PS_TRY(prefer(p, PS_LT_REDUCTIONS, PS_LT_REDUCTION_COMPUTED));
    for (int which = PS_LT_ALIGN_A; which <= PS_LT_ALIGN_Y; which++) PS_TRY(prefer(p, which, PS_CUDA_PRODUCT_ALIGN));
    return PS_OK;
}

ps_status ps_cublaslt_open_with(ps_gpu *gpu, const ps_cublaslt *library, int64_t workspace_bytes, ps_cuda_products *out)
{
    products *p = NULL;
    PS_ASSERT(workspace_bytes > WORKSPACE_ALIGN && workspace_bytes % WORKSPACE_ALIGN == 0);
    *out = (ps_cuda_products){0};
    PS_TRY(ps_mem_alloc(1, sizeof *p, &p));
    *p = (products){.gpu = gpu, .lt = library, .workspace_bytes = workspace_bytes - WORKSPACE_ALIGN};
    pthread_mutex_init(&p->lock, NULL);
    const ps_status st = start(p);
    if (st == PS_OK)
        *out =
            (ps_cuda_products){.self = p, .workspace_bytes = workspace_bytes, .multiply = multiply, .destroy = destroy};
    else
        destroy(p);
    return st;
}

ps_status ps_cublaslt_open(ps_gpu *gpu, ps_cuda_products *out)
{
    const ps_cublaslt *library;
    *out = (ps_cuda_products){0};
    PS_TRY(ps_cublaslt_load(&library));
    return ps_cublaslt_open_with(gpu, library, PS_CUBLASLT_WORKSPACE_BYTES, out);
}
