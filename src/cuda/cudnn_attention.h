/* cudnn_attention.h - attention by cuDNN, where it has it: of 16 bits, causal or not, with a window where causal, grouped
 * heads, whatever strides of whole 16 bytes; without dropout, whose bits are counters' (kernel.h), and without a mask, which
 * may hide any keys. All else is left to the kernels of cuda_attention.cu. Forward and backward are chosen apart: both
 * have the same lse.
 *
 * Bits. Whether it is cuDNN that computes, and by which plan, follows from the shape, the GPU and the library's version;
 * the plans are deterministic (cudnn_graph.h). Only a mask of ones has not the bits of no mask then.
 *
 * Memory. Backward keeps an array that grows with the square of the sequence, so it is done for as many sequences, or
 * heads of one, at once as fit PS_CUDNN_WORKSPACE_BYTES: heads do not know of each other. Where not even the heads that
 * share one of keys do, the kernels compute. */
#ifndef PS_CUDA_CUDNN_ATTENTION_H
#define PS_CUDA_CUDNN_ATTENTION_H

#include "cuda/backend_cuda.h"
#include "cuda/cudnn.h"

/* What 4 heads of 8192 tokens want, 16 of 4096, 256 of 1024: still some 250 blocks, which keep any GPU busy, so that what is
 * done in parts is not slower for it; and less than a hundredth of an H100's memory. */
#define PS_CUDNN_WORKSPACE_BYTES (576 * PS_MIB)

/* Attention on the GPU by the library of this system; to be ended before the GPU is closed. Safe from several threads.
 * Memory of the host that it keeps grows with the number of shapes, each of which takes about a second when it is first
 * measured or run. PS_ENOSYS, PS_ENOMEM_DEV, PS_EDEVICE. */
PS_NODISCARD ps_status ps_cudnn_attention_open(ps_gpu *gpu, ps_cuda_attention *out);
/* The same by a library that outlives it, within so much memory. */
PS_NODISCARD ps_status ps_cudnn_attention_open_with(ps_gpu *gpu, const ps_cudnn *library, int64_t workspace_bytes,
                                                    ps_cuda_attention *out);

/* For plans: what would be measured where the library is installed, to within some 100 KiB. Nothing of it is wanted; there
 * is nothing to run, and nothing to end. */
void ps_cudnn_attention_guess(ps_cuda_attention *out);

#endif
