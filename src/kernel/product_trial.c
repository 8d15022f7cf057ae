#include "kernel/product_trial.h"

#include "base/base.h"
#include "base/mem.h"

/* Large enough that tiles, blocks and threads are all used; sums of so many ones are whole numbers that bf16 holds. */
enum { N = 256 };

typedef struct product {
    char *x, *w, *y;
    void *workspace;
    size_t workspace_bytes;
} product;

static const struct {
    const char *name;
    ps_dtype dtype, y_dtype;
    bool adds; /* as gradients do */
} kinds[] = {{"f32", PS_DTYPE_F32, PS_DTYPE_F32, false},
             {"bf16", PS_DTYPE_BF16, PS_DTYPE_BF16, false},
             {"bf16 to f32", PS_DTYPE_BF16, PS_DTYPE_F32, false},
             {"fp16", PS_DTYPE_F16, PS_DTYPE_F16, false},
             {"f32, added to f32", PS_DTYPE_F32, PS_DTYPE_F32, true},
             {"bf16, added to f32", PS_DTYPE_BF16, PS_DTYPE_F32, true}};

/* -1, 0 or 1 */
static int x_at(int r, int k)
{
    return (r + k) % 3 - 1;
}

static int w_at(int k, int o)
{
    return (k / 2 + 2 * o) % 3 - 1;
}

/* x and w as a forward pass or the gradient of a weight has them; y is what the latter adds to. */
static void fill_kind(int kind, const product *p)
{
    const ps_dtype t = kinds[kind].dtype;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            ps_dtype_store(t, p->x, (int64_t)i * N + k, (float)(kinds[kind].adds ? x_at(k, i) : x_at(i, k)));
            ps_dtype_store(t, p->w, (int64_t)i * N + k, (float)w_at(i, k));
            ps_dtype_store(kinds[kind].y_dtype, p->y, (int64_t)i * N + k, 1);
        }
}

/* y[r, o] = sum over k of x[r, k] w[k, o]. */
static ps_status run_kind(ps_backend *b, int kind, product *p)
{
    const ps_dtype t = kinds[kind].dtype;
    ps_linear_fwd_args fwd = {.y = p->y,
                              .x = p->x,
                              .w = p->w,
                              .rows = N,
                              .n_in = N,
                              .n_out = N,
                              .layout = PS_WEIGHT_IN_OUT,
                              .dtype = t,
                              .y_dtype = kinds[kind].y_dtype};
    ps_linear_bwd_weight_args bwd = {.dw = p->y,
                                     .dy = p->w,
                                     .x = p->x,
                                     .rows = N,
                                     .n_in = N,
                                     .n_out = N,
                                     .layout = PS_WEIGHT_IN_OUT,
                                     .dtype = t,
                                     .grad_dtype = kinds[kind].y_dtype,
                                     .accumulate_grad = true};
    const ps_op op = kinds[kind].adds ? PS_OP_linear_bwd_weight : PS_OP_linear_fwd;
    void *args = kinds[kind].adds ? (void *)&bwd : (void *)&fwd;
    PS_TRY(ps_kernel_measure(b, op, args, &p->workspace_bytes));
    PS_TRY(ps_mem_alloc(p->workspace_bytes + 64, 1, &p->workspace));
    fwd.workspace = bwd.workspace = (void *)(((uintptr_t)p->workspace + 63) / 64 * 64);
    return ps_kernel_run(b, op, NULL, args, p->workspace_bytes);
}

static ps_status check_kind(int kind, const product *p)
{
    for (int r = 0; r < N; r++)
        for (int o = 0; o < N; o++) {
            int want = kinds[kind].adds ? 1 : 0;
            for (int k = 0; k < N; k++) want += x_at(r, k) * w_at(k, o);
            const float got = ps_dtype_load(kinds[kind].y_dtype, p->y, (int64_t)r * N + o);
            if (got != (float)want)
                return PS_FAIL(PS_EDEVICE, "a product of %s is wrong: %g instead of %d in row %d, column %d",
                               kinds[kind].name, (double)got, want, r, o);
        }
    return PS_OK;
}

ps_status ps_backend_try_products(ps_backend *b)
{
    ps_status st = PS_OK;
    for (int kind = 0; kind < (int)PS_ARRAY_LEN(kinds) && st == PS_OK; kind++) {
        product p = {0};
        char *all = NULL;
        const size_t bytes = (size_t)N * N * sizeof(float);
        PS_TRY(ps_mem_alloc(3 * bytes + 64, 1, &all));
        p.x = (char *)(((uintptr_t)all + 63) / 64 * 64);
        p.w = p.x + bytes;
        p.y = p.w + bytes;
        fill_kind(kind, &p);
        st = run_kind(b, kind, &p);
        if (st == PS_OK) st = check_kind(kind, &p);
        ps_mem_free(p.workspace);
        ps_mem_free(all);
    }
    return st;
}
