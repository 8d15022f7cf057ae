/* cudnn_graph.h - attention as a graph of cuDNN's operations, and an execution plan for it.
 *
 * cuDNN recognises attention as a pattern: matrix multiplications, the softmax between them operation by operation, and
 * masks as comparisons of indices. One of its engines then has one kernel for the whole graph (a few for backward).
 * Here are the patterns that it recognises, and the tensors between their operations:
 *
 *     forward    S = scale Q K^T, masked; lse = max S + log sum exp(S - max S); P = exp(S - max S) / sum; Y = P V
 *     backward   delta = rowsum(dY Y); P = exp(masked(S - lse)); dV = P^T dY; dS = P (dY V^T - delta) scale;
 *                dK = dS^T Q; dQ = dS K
 *
 * Only engines without the note "nondeterministic" are used, and dQ is a matmul of the graph, not an array of floats
 * that blocks add to in any order. So cuDNN stores dS, and the workspace of a plan grows with T squared
 * (ps_dnn_workspace_guess). */
#ifndef PS_CUDA_CUDNN_GRAPH_H
#define PS_CUDA_CUDNN_GRAPH_H

#include "base/dtype.h"
#include "device/cuda/cudnn.h"

/* The problem that a plan solves. Strides are in elements and multiples of 8, as is D; T is at least 1. Sequences
 * follow each other in memory. */
typedef struct ps_dnn_attention {
    int64_t B, T, H, KV, D;
    int64_t q_stride, kv_stride, y_stride; /* between the rows of q, of k and v, and of y; gradients likewise */
    int64_t window;                        /* of [1, T], T unless causal: a query sees the keys j > i - window */
    int32_t dtype;                         /* bf16 or f16 */
    bool causal, is_backward;
    char unused[2];
} ps_dnn_attention;

_Static_assert(sizeof(ps_dnn_attention) == 9 * sizeof(int64_t) + 8, "shapes are compared by their bytes");

/* The GPU that a plan is made for: the calling thread's, by handle; or one that is not present, by a descriptor of its
 * properties (PS_DNN_DEVICE). */
typedef struct ps_dnn_target {
    ps_dnn_handle handle;
    ps_dnn_descriptor device; /* NULL: handle's */
} ps_dnn_target;

/* Arrays in GPU memory, aligned to PS_DNN_ALIGN, except those of floats. */
typedef struct ps_dnn_arrays {
    const void *q, *k, *v, *y, *dy;
    void *out_y, *dq, *dk, *dv;
    float *lse;   /* [B, H, T], output of forward */
    float *delta; /* [B, H, T], scratch of backward */
    float scale;
    void *workspace;
} ps_dnn_arrays;

#define PS_DNN_ALIGN 16

/* About the workspace of a plan for these heads of so many sequences: dS in 16 bits, its rows and columns padded to
 * 128; with grouped heads also dK and dV of each query head. These are the sizes of cuDNN 9.19 for H200, H100, A100 and
 * RTX 4090; forward needs next to none. */
static inline int64_t ps_dnn_workspace_guess(const ps_dnn_attention *a)
{
    const int64_t rows = ps_round_up(a->T, 128);
    return a->is_backward ? a->B * a->H * (2 * rows * rows + (a->H > a->KV ? 4 * a->T * a->D : 0)) : 0;
}

#define PS_DNN_GRAPH_DESCRIPTORS 224

typedef struct ps_dnn_plan {
    const ps_cudnn *dnn;
    ps_dnn_descriptor plan; /* NULL: not supported */
    int64_t workspace_bytes;
    int64_t window;
    bool causal, has_window, is_backward;
    int n_descriptors;
    ps_dnn_descriptor descriptors[PS_DNN_GRAPH_DESCRIPTORS]; /* all, in order of creation */
} ps_dnn_plan;

/* Takes a second, as kernels are compiled. PS_DNN_SUCCESS with a NULL out->plan: cuDNN has no such plan, which follows
 * from the shape, the GPU and the library's version. On failure *what is the step that failed, and nothing is left
 * allocated. */
PS_NODISCARD ps_dnn_status ps_dnn_plan_init(ps_dnn_plan *out, const ps_cudnn *dnn, const ps_dnn_target *on,
                                            const ps_dnn_attention *shape, const char **what);
void ps_dnn_plan_deinit(ps_dnn_plan *p);

/* Issues it to the stream of the handle. */
PS_NODISCARD ps_dnn_status ps_dnn_plan_run(const ps_dnn_plan *p, ps_dnn_handle handle, const ps_dnn_arrays *arrays);

#endif
