/* cublaslt_impl.h - what the files of products by cuBLASLt share.
 *
 *     cublaslt.c          loading, descriptions, multiplying
 *     cublaslt_choose.c   which algorithm: measured, or as a table says */
#ifndef PS_CUDA_CUBLASLT_IMPL_H
#define PS_CUDA_CUBLASLT_IMPL_H

#include <pthread.h>

#include "cuda/cublaslt.h"
#include "cuda/gpu_impl.h"

/* Of the workspace, which the library wants. */
#define PS_LT_WORKSPACE_ALIGN 256

/* A product as the library has it. It knows matrices by columns, so rows are columns to it, and y^T = b^T a^T is what it
 * computes: its first matrix is b. */
typedef struct ps_lt_prepared {
    ps_cuda_shape shape;
    ps_lt_product product;
    ps_lt_layout a, b, y;
    ps_lt_algorithm algorithm;
    bool is_none;                /* the library has none of this shape: algorithm is nothing */
    struct ps_lt_prepared *next; /* in its bucket */
} ps_lt_prepared;

typedef struct ps_lt_products {
    ps_gpu *gpu;
    const ps_cublaslt *lt;
    ps_lt_handle handle;
    ps_lt_preference preference; /* lock */
    int64_t workspace_bytes;     /* for the library */
    int capability;              /* of the GPU: 90 */
    pthread_mutex_t lock;        /* the rest; and a product's pointers are set and used under it */
    ps_lt_prepared **buckets;    /* [n_buckets], a power of 2 */
    size_t n_buckets, n;
} ps_lt_products;

/* ---- cublaslt.c; the lock is held, but for the first ---- */

/* PS_OK, or what has failed in words. */
PS_NODISCARD ps_status ps_lt_check(const ps_lt_products *p, ps_lt_status s, const char *what);
/* All but an algorithm. */
PS_NODISCARD ps_status ps_lt_describe(const ps_lt_products *p, const ps_cuda_shape *s, ps_lt_prepared **out);
void ps_lt_prepared_free(const ps_lt_products *p, ps_lt_prepared *r);
/* Does something follow the product that the library may not have? */
static inline bool ps_lt_is_followed(const ps_cuda_shape *s)
{
    return s->has_addend || s->has_gelu_x;
}
/* The heuristics' best, at most n_wanted of them; PS_ENOSYS when there is none. */
PS_NODISCARD ps_status ps_lt_candidates(const ps_lt_products *p, const ps_lt_prepared *r, int n_wanted,
                                        ps_lt_choice *out, int *n_out);
/* Room for so many. */
PS_NODISCARD ps_status ps_lt_reserve(ps_lt_products *p, size_t n);
/* Into room that is there: products of its shape are computed by it from now on. p owns it then. */
void ps_lt_put(ps_lt_products *p, ps_lt_prepared *r);
/* All that is kept; what the library has none of, which no table changes, only when asked to. */
void ps_lt_forget(ps_lt_products *p, bool what_is_none);
/* The library has none of this shape, as came out late. */
PS_NODISCARD ps_status ps_lt_put_none(ps_lt_products *p, const ps_cuda_shape *s);
/* The addresses that are set, not passed: of the bias and of GELU's input, as far as there are any. */
PS_NODISCARD ps_status ps_lt_set_pointers(const ps_lt_products *p, ps_lt_prepared *r, const void *bias,
                                          const void *gelu_x);
ps_lt_status ps_lt_multiply(const ps_lt_products *p, const ps_lt_prepared *r, const ps_cuda_product *x,
                            ps_cu_stream stream);

/* ---- cublaslt_choose.c ---- */

extern const ps_cuda_choosing ps_lt_choosing;

#endif
