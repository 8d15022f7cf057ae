/* backend_cuda.h - the backend of a GPU: its operators are kernels and matrix multiplications (cuda_operator.h of
 * kernel/cuda), issued to the stream of the queue they are run on. */
#ifndef PS_CUDA_BACKEND_CUDA_H
#define PS_CUDA_BACKEND_CUDA_H

#include "device/cuda/gpu.h"
#include "device/cuda/plugin.h"
#include "kernel/backend.h"
#include "kernel/cuda/cuda_operator.h"

/* Matrix multiplication: a CUDA library, or one of tests. */
typedef struct ps_cuda_gemms {
    void *self;
    int64_t workspace_bytes; /* of each multiplication: a multiple of 256 */
    /* Issues the multiplication to the stream. *is_done false: this multiplication with this epilogue is not supported,
     * and nothing was issued. Support depends on sizes, strides, types and flags alone. A multiplication without
     * epilogue is always supported, or fails. */
    ps_status (*multiply)(void *self, ps_cu_stream stream, const ps_cuda_gemm *p, bool *is_done);
    void (*destroy)(void *self); /* NULL: nothing to do */
} ps_cuda_gemms;

/* Attention by a library, asked before the kernels. Whether it supports a case follows from the shape, the GPU and the
 * library's version alone. */
typedef struct ps_cuda_attention {
    void *self;
    char name[40]; /* "cuDNN 9.19.0" */
    /* Scratch for these arguments of attention_fwd or attention_bwd; -1: not supported. Pointers are not read; only
     * whether there is a mask matters. */
    ps_status (*measure)(void *self, ps_op op, const void *args, int64_t *bytes);
    /* Issues it to the stream; *is_done false: not supported for these arguments or this alignment, and nothing was
     * issued. */
    ps_status (*run)(void *self, ps_cu_stream stream, ps_op op, const void *args, bool *is_done);
    void (*destroy)(void *self); /* NULL: nothing to do */
} ps_cuda_attention;

/* image: the compiled kernels; must outlive the backend. host: the backend that computes on host memory
 * (ps_backend_host). attention: NULL for none. The backend owns gpu, gemm, attention and host, on failure too; its
 * ps_backend_space has gpu as driver. Its kernels run only on queues of that space's device, or on its external queue.
 * PS_ENOSYS when the image has no kernels for this GPU, or those of another version of the library. */
PS_NODISCARD ps_status ps_backend_create_cuda(ps_gpu *gpu, const ps_cuda_image *image, const ps_cuda_gemms *gemms,
                                              const ps_cuda_attention *attention, ps_backend *host, ps_backend **out);

/* Name of the attention library, or "own kernels"; NULL: not a CUDA backend. */
const char *ps_backend_cuda_attention(const ps_backend *b);

/* Issues sums over ranks to the stream at once: for functions of calls of a queue of its device. */
PS_NODISCARD ps_status ps_backend_cuda_rank_sum(ps_backend *b, ps_cu_stream stream, ps_dtype dtype,
                                                const ps_cuda_rank_sum_args *a);

/* A backend that measures and never runs: nothing is opened, and the space has no driver. page_bytes: of the memory of
 * the GPU that is planned for; gemm_bytes: the workspace_bytes of its multiplications; attention: the library that is
 * planned for, or NULL. It owns host, on failure too. */
PS_NODISCARD ps_status ps_backend_create_cuda_for_plans(int64_t page_bytes, int64_t gemm_bytes,
                                                        const ps_cuda_attention *attention, ps_backend *host,
                                                        ps_backend **out);

#endif
