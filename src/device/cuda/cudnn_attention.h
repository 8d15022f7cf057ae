/* cudnn_attention.h - attention by cuDNN, where supported: 16-bit types, causal or not, with a window where causal,
 * grouped heads, any strides of whole 16 bytes. Dropout is not supported, as its random bits are counter-based
 * (kernel.h), nor a mask, which may hide any keys. The kernels of cuda_attention.cu compute the other cases. Forward
 * and backward are chosen independently: both have the same lse.
 *
 * Bits. Whether cuDNN computes, and by which plan, follows from the shape, the GPU and the library's version; the plans
 * are deterministic (cudnn_graph.h). Only a mask of ones then has other bits than no mask.
 *
 * Memory. Backward keeps an array that grows with the square of the sequence. So it runs for as many sequences, or
 * heads of one, at once as fit PS_CUDNN_WORKSPACE_BYTES: heads are independent. Where not even the heads that share one
 * key head fit, the kernels compute. */
#ifndef PS_CUDA_CUDNN_ATTENTION_H
#define PS_CUDA_CUDNN_ATTENTION_H

#include "device/cuda/backend_cuda.h"
#include "device/cuda/cudnn.h"

/* Enough for 4 heads of 8192 tokens, 16 of 4096, 256 of 1024: still some 250 blocks, which keep any GPU busy, so
 * splitting costs no time; and less than a hundredth of an H100's memory. */
#define PS_CUDNN_WORKSPACE_BYTES (576 * PS_MIB)

/* Attention on the GPU by the library of this system; must be destroyed before the GPU is closed. Thread-safe. Its host
 * memory grows with the number of shapes, each of which takes about a second when it is first measured or run.
 * PS_ENOSYS, PS_ENOMEM_DEV, PS_EDEVICE. */
PS_NODISCARD ps_status ps_cudnn_attention_open(ps_gpu *gpu, ps_cuda_attention *out);
/* The same by a library that outlives it, with a workspace of so many bytes. */
PS_NODISCARD ps_status ps_cudnn_attention_open_with(ps_gpu *gpu, const ps_cudnn *library, int64_t workspace_bytes,
                                                    ps_cuda_attention *out);

/* For plans: what would be measured where the library is installed, to within some 100 KiB. It needs no library, cannot
 * run, and has nothing to destroy. */
void ps_cudnn_attention_guess(ps_cuda_attention *out);

#endif
