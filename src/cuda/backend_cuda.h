/* backend_cuda.h - the backend of a GPU: its operators are kernels and matrix products (kernel/cuda/cuda_operator.h),
 * issued to the stream of the queue they are run on. */
#ifndef PS_CUDA_BACKEND_CUDA_H
#define PS_CUDA_BACKEND_CUDA_H

#include "cuda/gpu.h"
#include "cuda/plugin.h"
#include "cuda/product_table.h"
#include "kernel/backend.h"
#include "kernel/cuda/cuda_operator.h"

/* Of who multiplies in several ways, which one. Safe while others multiply. */
typedef struct ps_cuda_choosing {
    PS_NODISCARD ps_status (*site)(void *self, ps_cuda_site *out); /* this GPU, driver and library */
    /* Times the ways of computing the product on the idle GPU, over and over, in its arrays, whose content does not
     * matter; PS_ENOSYS when there is none, which `has` says too from then on. */
    PS_NODISCARD ps_status (*measure)(void *self, const ps_cuda_product *p, ps_cuda_choice *out);
    /* From now on the shapes of the table are computed as it says, and all others as if nothing had ever been chosen.
     * PS_EINVAL, naming the shape, when a choice is none of this GPU and library: all is as before then. */
    PS_NODISCARD ps_status (*use)(void *self, const ps_cuda_product_table *t);
} ps_cuda_choosing;

/* Who multiplies matrices: a library of CUDA, or a test. */
typedef struct ps_cuda_products {
    void *self;
    int64_t workspace_bytes; /* that each product is given: a multiple of 256 */
    /* Gives it to the stream. *is_done false: it is none of those that `has` says; nothing was given. */
    ps_status (*multiply)(void *self, ps_cu_stream stream, const ps_cuda_product *p, bool *is_done);
    /* Is there a product of this kind? All that nothing follows are there, or are an error of multiply; of the others it
     * depends on sizes, strides, types and flags alone. Addresses are not touched. */
    ps_status (*has)(void *self, const ps_cuda_product *p, bool *out);
    void (*destroy)(void *self);      /* NULL: nothing to do */
    const ps_cuda_choosing *choosing; /* NULL: there is one way only */
} ps_cuda_products;

/* Who computes attention where it can, before the kernels are asked: a library, or nobody. What it has follows from the
 * shape, the GPU and the library's version alone. */
typedef struct ps_cuda_attention {
    void *self;
    char name[40]; /* "cuDNN 9.19.0" */
    /* Scratch for these arguments of attention_fwd or attention_bwd; -1: it has nothing for them. Pointers are not looked
     * at, but for a mask's being there. */
    ps_status (*measure)(void *self, ps_op op, const void *args, int64_t *bytes);
    /* Gives it to the stream; *is_done false: it has nothing for them, or for arrays that lie so, and gave nothing. */
    ps_status (*run)(void *self, ps_cu_stream stream, ps_op op, const void *args, bool *is_done);
    void (*destroy)(void *self); /* NULL: nothing to do */
} ps_cuda_attention;

/* image: the compiled kernels; must outlive it. host: what computes beside it, ps_backend_host. attention: NULL is
 * nobody. The backend owns gpu, products, attention and host, on failure too; its ps_backend_space has gpu as driver. Its kernels run on queues of that
 * space's device, or its foreign one, and nowhere else. PS_ENOSYS when the image has no kernels for this GPU, or not
 * those of this library. */
PS_NODISCARD ps_status ps_backend_create_cuda(ps_gpu *gpu, const ps_cuda_image *image, const ps_cuda_products *products,
                                              const ps_cuda_attention *attention, ps_backend *host, ps_backend **out);

/* Who computes attention on it, "own kernels" where nobody else does; NULL: it is no backend of this kind. */
const char *ps_backend_cuda_attention(const ps_backend *b);

/* Gives sums over ranks to the stream, at once: for functions of calls of a queue of its device. */
PS_NODISCARD ps_status ps_backend_cuda_rank_sum(ps_backend *b, ps_cu_stream stream, ps_dtype dtype,
                                                const ps_cuda_rank_sum_args *a);

/* Who multiplies for it; of one for plans nobody. */
const ps_cuda_products *ps_backend_cuda_products(const ps_backend *b);

/* The same to measure with, and not to run: nothing is opened, and the space has no driver. page_bytes: of the memory of
 * the GPU that is meant; product_bytes: the workspace_bytes of its products; attention: who is meant to compute it, or
 * NULL. It owns host, on failure too. */
PS_NODISCARD ps_status ps_backend_create_cuda_for_plans(int64_t page_bytes, int64_t product_bytes,
                                                        const ps_cuda_attention *attention, ps_backend *host,
                                                        ps_backend **out);

#endif
