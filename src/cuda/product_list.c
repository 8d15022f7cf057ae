#include "cuda/product_list.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "device/device.h"

void ps_cuda_product_list_deinit(ps_cuda_product_list *l)
{
    ps_mem_free(l->shapes);
    *l = (ps_cuda_product_list){0};
}

static ps_status note(ps_cuda_product_list *l, const ps_cuda_shape *s)
{
    for (size_t i = 0; i < l->n; i++)
        if (memcmp(&l->shapes[i], s, sizeof *s) == 0) return PS_OK;
    PS_TRY(ps_mem_reserve(&l->shapes, l->n + 1, sizeof *l->shapes));
    l->shapes[l->n++] = *s;
    return PS_OK;
}

/* ---- a backend that lists ---- */

typedef struct lister {
    ps_backend base;
    ps_cuda_product_list *list;
    const ps_cuda_products *products;
} lister;

static ps_status launch(void *self, const ps_cuda_launch *l)
{
    (void)self, (void)l;
    return PS_OK;
}

/* What there is none of is not listed: what comes instead is. */
static ps_status multiply(void *self, const ps_cuda_product *p, bool *is_done)
{
    const lister *l = self;
    const ps_cuda_shape s = ps_cuda_shape_of(p);
    PS_TRY(l->products->has(l->products->self, p, is_done));
    return *is_done ? note(l->list, &s) : PS_OK;
}

static ps_status own(void *self, const ps_own_args *a, const ps_own_call *call)
{
    (void)self, (void)a, (void)call;
    return PS_OK;
}

static ps_status list(ps_backend *self, ps_op op, const void *args, size_t workspace_bytes)
{
    const lister *l = (const lister *)self;
    const ps_cuda_issuer to = {
        .launch = launch, .product = multiply, .own = own, .self = self, .product_bytes = l->products->workspace_bytes};
    return ps_cuda_run(&to, op, args, workspace_bytes);
}

static ps_status measure_scratch(const ps_backend *self, ps_op op, const void *args, size_t *out)
{
    *out = (size_t)ps_cuda_workspace_bytes(op, args, ((const lister *)self)->products->workspace_bytes);
    return PS_OK;
}

#define XX(op)                                                                                                         \
    static ps_status list_##op(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)            \
    {                                                                                                                  \
        (void)queue;                                                                                                   \
        return list(self, PS_OP_##op, args, workspace_bytes);                                                          \
    }                                                                                                                  \
    static ps_status list_##op##_bytes(ps_backend *self, const void *args, size_t *out)                                \
    {                                                                                                                  \
        return measure_scratch(self, PS_OP_##op, args, out);                                                           \
    }                                                                                                                  \
    static const ps_kernel lister_##op = {.run = list_##op, .workspace_bytes = list_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const operators[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &lister_##op,
    PS_OPS(XX)
#undef XX
};

static void destroy(ps_backend *self)
{
    ps_mem_free(self);
}

ps_status ps_backend_create_cuda_lister(const ps_cuda_products *products, ps_cuda_product_list *l, ps_backend **out)
{
    static const ps_backend_ops ops = {.name = "list of products",
                                       .kernels = operators,
                                       .epilogues = PS_EPILOGUES_ALL,
                                       .unrounded = PS_CUDA_UNROUNDED,
                                       .destroy = destroy,
                                       .own_device = PS_DEVICE_CUDA,
                                       .issues = true};
    lister *b = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    *b = (lister){.base.ops = &ops, .list = l, .products = products};
    *out = &b->base;
    return PS_OK;
}

/* ---- measuring ---- */

/* Values between -1 and 1, drawn once and repeated: products of zeros would draw less power, and so be faster. */
#define PATTERN_VALUES 16384

/* Where the parts of a product lie in a block. */
typedef struct parts {
    int64_t a, b, bias, other, y, workspace, end;
} parts;

/* Of a matrix as it lies in memory. */
static int64_t matrix_bytes(int64_t rows, int64_t cols, int64_t stride, int32_t dtype)
{
    return ((rows - 1) * stride + cols) * (int64_t)ps_dtype_bytes((ps_dtype)dtype);
}

/* -1 where that is beyond all memory. */
static int64_t part_after(int64_t at, int64_t rows, int64_t cols, int64_t stride, int32_t dtype, int64_t max_bytes)
{
    if (at < 0 || (rows > 1 && stride > max_bytes / (rows - 1))) return -1;
    const int64_t bytes = matrix_bytes(rows, cols, stride, dtype);
    return bytes > max_bytes - at ? -1 : ps_round_up(at + bytes, PS_CUDA_ALIGN);
}

/* False: it does not fit. */
static bool place(const ps_cuda_shape *s, int64_t product_bytes, int64_t max_bytes, parts *out)
{
    const bool ta = s->is_a_transposed, tb = s->is_b_transposed;
    *out = (parts){.a = s->a_align % PS_CUDA_PRODUCT_ALIGN};
    out->b = part_after(out->a, ta ? s->k : s->m, ta ? s->m : s->k, s->a_stride, s->dtype, max_bytes);
    out->bias = part_after(out->b, tb ? s->n : s->k, tb ? s->k : s->n, s->b_stride, s->dtype, max_bytes);
    out->other = part_after(out->bias, 1, s->n, s->n, s->y_dtype, max_bytes);
    out->y = s->has_addend || s->has_gelu_x ? part_after(out->other, s->m, s->n, s->y_stride, s->y_dtype, max_bytes)
                                            : out->other;
    out->workspace = part_after(out->y, s->m, s->n, s->y_stride, s->y_dtype, max_bytes);
    out->end = out->workspace + product_bytes;
    return out->workspace >= 0 && out->end <= max_bytes;
}

static ps_cuda_product product_in(char *block, const ps_cuda_shape *s, const parts *at)
{
    return (ps_cuda_product){.y = block + at->y,
                             .y_stride = s->y_stride,
                             .y_dtype = (ps_dtype)s->y_dtype,
                             .a = {block + at->a, s->a_stride, s->is_a_transposed, (ps_dtype)s->dtype},
                             .b = {block + at->b, s->b_stride, s->is_b_transposed, (ps_dtype)s->dtype},
                             .bias = s->has_bias ? block + at->bias : NULL,
                             .m = s->m,
                             .n = s->n,
                             .k = s->k,
                             .accumulate = s->accumulates,
                             .addend = s->has_addend ? block + at->other : NULL,
                             .gelu_x = s->has_gelu_x ? block + at->other : NULL,
                             .workspace = block + at->workspace};
}

static ps_status fill(ps_queue *q, char *block, int64_t bytes, ps_dtype dtype)
{
    char pattern[PATTERN_VALUES * sizeof(float)];
    int64_t done = ps_min_i64(bytes, PATTERN_VALUES * (int64_t)ps_dtype_bytes(dtype));
    for (int64_t i = 0; i < PATTERN_VALUES; i += 4) {
        uint32_t w[4];
        ps_rng_block((ps_rng_key){.seed = 1}, (uint64_t)i, w);
        for (int k = 0; k < 4; k++)
            ps_dtype_store(dtype, pattern, i + k, (float)((double)w[k] * (2.0 / 4294967296.0) - 1.0));
    }
    PS_TRY(ps_queue_put(q, block, pattern, done));
    for (int64_t n; done < bytes; done += n) {
        n = ps_min_i64(done, bytes - done);
        PS_TRY(ps_queue_copy(q, block + done, block, n));
    }
    return ps_event_wait(ps_queue_event(q));
}

/* What measuring works with. */
typedef struct bench {
    const ps_cuda_products *products;
    ps_device *device;
    ps_queue *queue;
    char *block;
    int64_t max_bytes;
} bench;

static bool is_wanted(const bench *w, const ps_cuda_shape *s, const ps_cuda_product_table *t, parts *at)
{
    return ps_cuda_product_table_find(t, s) == NULL && place(s, w->products->workspace_bytes, w->max_bytes, at);
}

static ps_status measure_one(bench *w, const ps_cuda_shape *s, ps_cuda_product_table *t, int *n)
{
    parts at;
    ps_cuda_choice c;
    if (!is_wanted(w, s, t, &at)) return PS_OK;
    PS_TRY(fill(w->queue, w->block, at.workspace, (ps_dtype)s->dtype));
    const ps_cuda_product p = product_in(w->block, s, &at);
    PS_TRY(w->products->choosing->measure(w->products->self, &p, &c));
    PS_TRY(ps_cuda_product_table_put(t, &c));
    ++*n;
    return PS_OK;
}

/* Where it turns out that there is none of a kind that something follows, the product alone takes its place. */
static ps_status measure_all(bench *w, const ps_cuda_product_list *l, ps_cuda_product_table *t, int *n)
{
    for (size_t i = 0; i < l->n; i++) {
        ps_cuda_shape s = l->shapes[i];
        ps_status st = measure_one(w, &s, t, n);
        if (st == PS_ENOSYS && (s.has_addend || s.has_gelu_x)) {
            s.has_addend = s.has_gelu_x = false;
            st = measure_one(w, &s, t, n);
        }
        PS_TRY(st);
    }
    return PS_OK;
}

static ps_status with_block(bench *w, int64_t bytes, const ps_cuda_product_list *l, ps_cuda_product_table *t, int *n)
{
    void *block;
    PS_TRY(ps_device_alloc(w->device, bytes, &block));
    w->block = block;
    ps_status st = ps_event_wait(ps_device_gave_after(w->device));
    if (st == PS_OK) st = measure_all(w, l, t, n);
    ps_device_free(w->device, block, bytes, &(ps_events){.n = 1, .event = {ps_queue_event(w->queue)}});
    return st;
}

ps_status ps_cuda_product_list_measure(const ps_cuda_product_list *l, ps_backend *cuda, int64_t max_bytes,
                                       ps_cuda_product_table *t, int *n)
{
    const ps_space *s = ps_backend_space(cuda);
    bench w = {.products = ps_backend_cuda_products(cuda), .max_bytes = max_bytes - max_bytes % s->page_bytes};
    int64_t bytes = 0;
    parts at;
    *n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (is_wanted(&w, &l->shapes[i], t, &at)) bytes = ps_max_i64(bytes, at.end);
    if (bytes == 0) return PS_OK;
    bytes = ps_round_up(bytes, s->page_bytes);
    PS_TRY(ps_device_create_on(s->device, s->driver, s->page_bytes, "memory for timing products", bytes, &w.device));
    ps_status st = ps_queue_create(w.device, "products", PS_QUEUE_COMPUTE, &w.queue);
    if (st == PS_OK) {
        st = with_block(&w, bytes, l, t, n);
        ps_queue_destroy(w.queue);
    }
    ps_device_destroy(w.device);
    return st;
}
