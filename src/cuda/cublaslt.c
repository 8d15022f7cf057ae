#include "cuda/cublaslt_impl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/library.h"

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

/* ---- products ---- */

#define BUCKETS_LEAST 64

/* After a failure of the library's, which does not say what the driver has seen. */
static ps_status explain(const ps_lt_products *p, ps_lt_status s, const char *what)
{
    size_t free_bytes, total_bytes;
    PS_TRY(ps_gpu_check(p->gpu, p->gpu->driver->memory_info(&free_bytes, &total_bytes), what));
    return PS_FAIL(s == PS_LT_ALLOC_FAILED ? PS_ENOMEM_DEV : PS_EDEVICE, "cuBLASLt: %s: %s (%s)", what,
                   p->lt->status_name(s), p->lt->status_text(s));
}

ps_status ps_lt_check(const ps_lt_products *p, ps_lt_status s, const char *what)
{
    return s == PS_LT_SUCCESS ? PS_OK : explain(p, s, what);
}

static int type_of(ps_dtype t)
{
    static const int types[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = PS_LT_F32, [PS_DTYPE_BF16] = PS_LT_BF16, [PS_DTYPE_F16] = PS_LT_F16};
    return types[t];
}

static size_t bucket_of(const ps_lt_products *p, const ps_cuda_shape *s)
{
    uint64_t h = 0;
    const unsigned char *bytes = (const unsigned char *)s;
    for (size_t i = 0; i < sizeof *s; i++) h = (h ^ bytes[i]) * 0x100000001b3;
    return (size_t)(h ^ h >> 32) & (p->n_buckets - 1);
}

/* ---- preparing ---- */

void ps_lt_prepared_free(const ps_lt_products *p, ps_lt_prepared *r)
{
    if (r->y != NULL) (void)p->lt->layout_destroy(r->y);
    if (r->b != NULL) (void)p->lt->layout_destroy(r->b);
    if (r->a != NULL) (void)p->lt->layout_destroy(r->a);
    if (r->product != NULL) (void)p->lt->product_destroy(r->product);
    ps_mem_free(r);
}

static ps_status set(const ps_lt_products *p, ps_lt_product d, int which, int value)
{
    const int32_t v = value;
    return ps_lt_check(p, p->lt->product_set(d, which, &v, sizeof v), "describing a product");
}

static ps_status set_pointer(const ps_lt_products *p, ps_lt_product d, int which, const void *address)
{
    return ps_lt_check(p, p->lt->product_set(d, which, &address, sizeof address), "describing a product");
}

ps_status ps_lt_set_pointers(const ps_lt_products *p, ps_lt_prepared *r, const void *bias, const void *gelu_x)
{
    if (r->shape.has_bias) PS_TRY(set_pointer(p, r->product, PS_LT_BIAS_POINTER, bias));
    return r->shape.has_gelu_x ? set_pointer(p, r->product, PS_LT_AUX_POINTER, gelu_x) : PS_OK;
}

/* What follows in the product itself; an addend is a matrix beside it. */
static ps_status describe_epilogue(const ps_lt_products *p, ps_lt_prepared *r)
{
    const ps_cuda_shape *s = &r->shape;
    /* the choice looks at how they are aligned: nobody's address, aligned no better than all of them */
    const void *const nobody = (const void *)(uintptr_t)PS_CUDA_PRODUCT_ALIGN;
    if (s->has_bias) {
        PS_TRY(set(p, r->product, PS_LT_EPILOGUE, PS_LT_EPILOGUE_BIAS));
        PS_TRY(set(p, r->product, PS_LT_BIAS_TYPE, type_of((ps_dtype)s->dtype)));
    } else if (s->has_gelu_x) {
        PS_TRY(set(p, r->product, PS_LT_EPILOGUE, PS_LT_EPILOGUE_DGELU));
        PS_TRY(ps_lt_check(p, p->lt->product_set(r->product, PS_LT_AUX_STRIDE, &s->y_stride, sizeof s->y_stride),
                           "describing a product"));
    }
    return ps_lt_set_pointers(p, r, nobody, nobody);
}

static ps_status describe(const ps_lt_products *p, ps_lt_prepared *r)
{
    const ps_cuda_shape *s = &r->shape;
    PS_TRY(ps_lt_check(p, p->lt->product_create(&r->product, PS_LT_COMPUTE_F32, PS_LT_F32), "describing a product"));
    PS_TRY(set(p, r->product, PS_LT_TRANSPOSES_A, s->is_b_transposed ? PS_LT_TRANSPOSED : PS_LT_AS_IS));
    PS_TRY(set(p, r->product, PS_LT_TRANSPOSES_B, s->is_a_transposed ? PS_LT_TRANSPOSED : PS_LT_AS_IS));
    return describe_epilogue(p, r);
}

/* Of a matrix with so many rows and columns as they lie in memory. */
static ps_status lay_out(const ps_lt_products *p, ps_lt_layout *out, int32_t dtype, int64_t rows, int64_t cols,
                         int64_t stride)
{
    const ps_lt_status st = p->lt->layout_create(out, type_of((ps_dtype)dtype), (uint64_t)cols, (uint64_t)rows, stride);
    return ps_lt_check(p, st, "describing a matrix");
}

static ps_status lay_out_all(const ps_lt_products *p, ps_lt_prepared *r)
{
    const ps_cuda_shape *s = &r->shape;
    const bool ta = s->is_a_transposed, tb = s->is_b_transposed;
    PS_TRY(lay_out(p, &r->a, s->dtype, ta ? s->k : s->m, ta ? s->m : s->k, s->a_stride));
    PS_TRY(lay_out(p, &r->b, s->dtype, tb ? s->n : s->k, tb ? s->k : s->n, s->b_stride));
    return lay_out(p, &r->y, s->y_dtype, s->m, s->n, s->y_stride);
}

static ps_status prefer(const ps_lt_products *p, int which, uint32_t value)
{
    return ps_lt_check(p, p->lt->preference_set(p->preference, which, &value, sizeof value), "its preferences");
}

ps_status ps_lt_candidates(const ps_lt_products *p, const ps_lt_prepared *r, int n_wanted, ps_lt_choice *out,
                           int *n_out)
{
    const ps_cuda_shape *s = &r->shape;
    int n = 0;
    *n_out = 0;
    PS_TRY(prefer(p, PS_LT_ALIGN_B, s->a_align));
    const ps_lt_status st =
        p->lt->choose(p->handle, r->product, r->b, r->a, r->y, r->y, p->preference, n_wanted, out, &n);
    for (int i = 0; st == PS_LT_SUCCESS && i < n; i++)
        if (out[i].state == PS_LT_SUCCESS) out[(*n_out)++] = out[i];
    const bool is_unknown = st == PS_LT_INVALID_VALUE && ps_lt_is_followed(s); /* an attribute that it has not here */
    if (is_unknown || st == PS_LT_NOT_SUPPORTED || (st == PS_LT_SUCCESS && *n_out == 0))
        return PS_FAIL(PS_ENOSYS, "cuBLASLt %zu has no product of %s [%lld, %lld] x [%lld, %lld] to %s%s%s for %s",
                       p->lt->version(), ps_dtype_name((ps_dtype)s->dtype), (long long)s->m, (long long)s->k,
                       (long long)s->k, (long long)s->n, ps_dtype_name((ps_dtype)s->y_dtype),
                       s->has_bias ? " with a bias" : "",
                       s->has_addend   ? " and an addend"
                       : s->has_gelu_x ? " and gelu's derivative"
                                       : "",
                       p->gpu->name);
    return ps_lt_check(p, st, "choosing an algorithm");
}

ps_status ps_lt_describe(const ps_lt_products *p, const ps_cuda_shape *s, ps_lt_prepared **out)
{
    ps_lt_prepared *r = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->shape = *s;
    ps_status st = describe(p, r);
    if (st == PS_OK) st = lay_out_all(p, r);
    if (st == PS_OK)
        *out = r;
    else
        ps_lt_prepared_free(p, r);
    return st;
}

#define GELU_CAPABILITY 90

/* Is it one that we would use, if the library has it? */
static bool is_worth_asking(const ps_lt_products *p, const ps_cuda_shape *s)
{
    return !s->has_gelu_x || (p->capability >= GELU_CAPABILITY && s->y_stride % 8 == 0);
}

/* By the first of the library's heuristics. */
static ps_status prepare(const ps_lt_products *p, const ps_cuda_shape *s, ps_lt_prepared **out)
{
    ps_lt_choice first;
    int n;
    ps_lt_prepared *r;
    *out = NULL;
    PS_TRY(ps_lt_describe(p, s, &r));
    const ps_status st = is_worth_asking(p, s) ? ps_lt_candidates(p, r, 1, &first, &n) : PS_ENOSYS;
    r->is_none = st == PS_ENOSYS && ps_lt_is_followed(s);
    if (st != PS_OK && !r->is_none) {
        ps_lt_prepared_free(p, r);
        return st;
    }
    if (!r->is_none) r->algorithm = first.algorithm;
    *out = r;
    return PS_OK;
}

ps_status ps_lt_reserve(ps_lt_products *p, size_t n)
{
    const size_t n_old = p->n_buckets;
    size_t n_new = n_old;
    while (n_new < n) n_new *= 2;
    if (n_new == n_old) return PS_OK;
    ps_lt_prepared **old = p->buckets;
    PS_TRY(ps_mem_alloc(n_new, sizeof *p->buckets, &p->buckets));
    p->n_buckets = n_new;
    p->n = 0;
    for (size_t i = 0; i < n_old; i++)
        for (ps_lt_prepared *r = old[i], *next; r != NULL; r = next) {
            next = r->next;
            ps_lt_put(p, r);
        }
    ps_mem_free(old);
    return PS_OK;
}

void ps_lt_put(ps_lt_products *p, ps_lt_prepared *r)
{
    ps_lt_prepared **to = &p->buckets[bucket_of(p, &r->shape)];
    r->next = *to;
    *to = r;
    p->n++;
}

void ps_lt_forget(ps_lt_products *p, bool what_is_none)
{
    for (size_t i = 0; i < p->n_buckets; i++)
        for (ps_lt_prepared **at = &p->buckets[i], *r; (r = *at) != NULL;) {
            if (r->is_none && !what_is_none) {
                at = &r->next;
                continue;
            }
            *at = r->next;
            ps_lt_prepared_free(p, r);
            p->n--;
        }
}

static ps_lt_prepared *find_prepared(const ps_lt_products *p, const ps_cuda_shape *s)
{
    ps_lt_prepared *r = p->buckets[bucket_of(p, s)];
    while (r != NULL && memcmp(&r->shape, s, sizeof *s) != 0) r = r->next;
    return r;
}

ps_status ps_lt_put_none(ps_lt_products *p, const ps_cuda_shape *s)
{
    ps_lt_prepared *r = find_prepared(p, s);
    if (r == NULL) {
        PS_TRY(ps_lt_reserve(p, p->n + 1));
        PS_TRY(ps_lt_describe(p, s, &r));
        ps_lt_put(p, r);
    }
    r->is_none = true;
    return PS_OK;
}

static ps_status get_prepared(ps_lt_products *p, const ps_cuda_shape *s, ps_lt_prepared **out)
{
    *out = find_prepared(p, s);
    if (*out != NULL) return PS_OK;
    PS_TRY(ps_lt_reserve(p, p->n + 1));
    PS_TRY(prepare(p, s, out));
    ps_lt_put(p, *out);
    return PS_OK;
}

/* ---- multiplying ---- */

ps_lt_status ps_lt_multiply(const ps_lt_products *p, const ps_lt_prepared *r, const ps_cuda_product *x,
                            ps_cu_stream stream)
{
    static const float one = 1.0f, zero = 0.0f;
    void *workspace = (void *)(uintptr_t)ps_round_up((int64_t)(uintptr_t)x->workspace, PS_LT_WORKSPACE_ALIGN);
    return p->lt->multiply(p->handle, r->product, &one, x->b.data, r->b, x->a.data, r->a,
                           x->accumulate || x->addend != NULL ? &one : &zero, x->addend != NULL ? x->addend : x->y,
                           r->y, x->y, r->y, &r->algorithm, workspace, (size_t)p->workspace_bytes, stream);
}

/* What is refused now is refused whenever it is asked for: there is none. */
static ps_status multiply_locked(ps_lt_products *p, ps_cu_stream stream, const ps_cuda_product *x, bool *is_done)
{
    const ps_cuda_shape s = ps_cuda_shape_of(x);
    ps_lt_prepared *r;
    PS_TRY(get_prepared(p, &s, &r));
    if (r->is_none) return PS_OK;
    PS_TRY(ps_lt_set_pointers(p, r, x->bias, x->gelu_x));
    const ps_lt_status st = ps_lt_multiply(p, r, x, stream);
    r->is_none = st == PS_LT_NOT_SUPPORTED && ps_lt_is_followed(&s);
    *is_done = st == PS_LT_SUCCESS;
    return r->is_none ? PS_OK : ps_lt_check(p, st, "a matrix product");
}

static ps_status multiply(void *self, ps_cu_stream stream, const ps_cuda_product *x, bool *is_done)
{
    ps_lt_products *p = self;
    *is_done = false;
    pthread_mutex_lock(&p->lock);
    const ps_status st = multiply_locked(p, stream, x, is_done);
    pthread_mutex_unlock(&p->lock);
    return st;
}

static ps_status has(void *self, const ps_cuda_product *x, bool *out)
{
    ps_lt_products *p = self;
    const ps_cuda_shape s = ps_cuda_shape_of(x);
    ps_lt_prepared *r;
    *out = true;
    if (!ps_lt_is_followed(&s)) return PS_OK;
    pthread_mutex_lock(&p->lock);
    ps_status st = ps_gpu_enter(p->gpu);
    if (st == PS_OK) st = get_prepared(p, &s, &r);
    if (st == PS_OK) *out = !r->is_none;
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* ---- life ---- */

static void destroy(void *self)
{
    ps_lt_products *p = self;
    (void)ps_gpu_enter_quietly(p->gpu);
    ps_lt_forget(p, true);
    if (p->preference != NULL) (void)p->lt->preference_destroy(p->preference);
    if (p->handle != NULL) (void)p->lt->destroy(p->handle);
    ps_mem_free(p->buckets);
    pthread_mutex_destroy(&p->lock);
    ps_mem_free(p);
}

static ps_status start(ps_lt_products *p)
{
    const uint64_t workspace_bytes = (uint64_t)p->workspace_bytes;
    ps_gpu_info info;
    PS_TRY(ps_mem_alloc(BUCKETS_LEAST, sizeof *p->buckets, &p->buckets));
    p->n_buckets = BUCKETS_LEAST;
    PS_TRY(ps_gpu_get_info(p->gpu, &info));
    p->capability = info.capability;
    PS_TRY(ps_gpu_enter(p->gpu));
    PS_TRY(ps_lt_check(p, p->lt->create(&p->handle), "its start"));
    PS_TRY(ps_lt_check(p, p->lt->preference_create(&p->preference), "its preferences"));
    PS_TRY(ps_lt_check(
        p, p->lt->preference_set(p->preference, PS_LT_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes),
        "its preferences"));
    PS_TRY(prefer(p, PS_LT_REDUCTIONS, PS_LT_REDUCTION_COMPUTED));
    for (int which = PS_LT_ALIGN_A; which <= PS_LT_ALIGN_Y; which++) PS_TRY(prefer(p, which, PS_CUDA_PRODUCT_ALIGN));
    return PS_OK;
}

ps_status ps_cublaslt_open_with(ps_gpu *gpu, const ps_cublaslt *library, int64_t workspace_bytes, ps_cuda_products *out)
{
    ps_lt_products *p = NULL;
    PS_ASSERT(workspace_bytes > PS_LT_WORKSPACE_ALIGN && workspace_bytes % PS_LT_WORKSPACE_ALIGN == 0);
    *out = (ps_cuda_products){0};
    PS_TRY(ps_mem_alloc(1, sizeof *p, &p));
    *p = (ps_lt_products){.gpu = gpu, .lt = library, .workspace_bytes = workspace_bytes - PS_LT_WORKSPACE_ALIGN};
    pthread_mutex_init(&p->lock, NULL);
    const ps_status st = start(p);
    if (st == PS_OK)
        *out = (ps_cuda_products){.self = p,
                                  .workspace_bytes = workspace_bytes,
                                  .multiply = multiply,
                                  .has = has,
                                  .destroy = destroy,
                                  .choosing = &ps_lt_choosing};
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
