/* cudnn_graph.h - attention as a graph of cuDNN's operations, and an execution plan for it.
 *
 * cuDNN knows attention as a pattern: products of matrices, the softmax between them operation by operation, and in it
 * masks that are comparisons of indices. An engine of it recognises the whole and has one kernel (a few for backward).
 * Here are the patterns that it recognises, and the tensors between their operations:
 *
 *     forward    S = scale Q K^T, masked; lse = max S + log sum exp(S - max S); P = exp(S - max S) / sum; Y = P V
 *     backward   delta = rowsum(dY Y); P = exp(masked(S - lse)); dV = P^T dY; dS = P (dY V^T - delta) scale;
 *                dK = dS^T Q; dQ = dS K
 *
 * Only engines are taken that do not call themselves nondeterministic, and dQ is a product in the graph and not an array of floats
 * that blocks add to as they come: so cuDNN keeps dS in between, and the workspace of a plan grows with T squared
 * (ps_dnn_workspace_guess). */
#ifndef PS_CUDA_CUDNN_GRAPH_H
#define PS_CUDA_CUDNN_GRAPH_H

#include "cuda/cudnn.h"
#include "tensor/dtype.h"

/* What a plan is made for. Strides are in elements and multiples of 8, as is D; T is at least 1. Sequences lie
 * one behind the other. */
typedef struct ps_dnn_attention {
    int64_t B, T, H, KV, D;
    int64_t q_stride, kv_stride, y_stride; /* between the rows of q, of k and v, and of y; gradients likewise */
    int64_t window;                        /* of [1, T], T unless causal: a query sees the keys j > i - window */
    int32_t dtype;                         /* bf16 or f16 */
    bool causal, is_backward;
    char unused[2];
} ps_dnn_attention;

_Static_assert(sizeof(ps_dnn_attention) == 9 * sizeof(int64_t) + 8, "shapes are compared by their bytes");

/* What it is made for: the GPU that is the calling thread's, by handle; or one that is not here, by a descriptor of its
 * properties (PS_DNN_DEVICE). */
typedef struct ps_dnn_target {
    ps_dnn_handle handle;
    ps_dnn_descriptor device; /* NULL: handle's */
} ps_dnn_target;

/* Arrays in memory of the GPU, aligned to PS_DNN_ALIGN, but for floats. */
typedef struct ps_dnn_arrays {
    const void *q, *k, *v, *y, *dy;
    void *out_y, *dq, *dk, *dv;
    float *lse;   /* [B, H, T], of forward's the output */
    float *delta; /* [B, H, T], scratch of backward's */
    float scale;
    void *workspace;
} ps_dnn_arrays;

#define PS_DNN_ALIGN 16

/* What a plan for these heads of so many sequences will want, about: dS in 16 bits, its rows and columns filled up to 128;
 * with grouped heads also dK and dV of each. So cuDNN 9.19 plans for H200, H100, A100 and RTX 4090; forward wants next
 * to nothing. */
static inline int64_t ps_dnn_workspace_guess(const ps_dnn_attention *a)
{
    const int64_t rows = ps_round_up(a->T, 128);
    return a->is_backward ? a->B * a->H * (2 * rows * rows + (a->H > a->KV ? 4 * a->T * a->D : 0)) : 0;
}

#define PS_DNN_GRAPH_DESCRIPTORS 224

typedef struct ps_dnn_plan {
    const ps_cudnn *dnn;
    ps_dnn_descriptor plan; /* NULL: it has none for this */
    int64_t workspace_bytes;
    int64_t window;
    bool causal, has_window, is_backward;
    int n_descriptors;
    ps_dnn_descriptor descriptors[PS_DNN_GRAPH_DESCRIPTORS]; /* all of it, as made */
} ps_dnn_plan;

/* Takes a second, as kernels are compiled. PS_DNN_SUCCESS too when cuDNN has no such plan: out->plan is NULL then; whether it
 * has one follows from the shape, the GPU and the library's version. Else *what is the step that failed, and nothing is
 * left. */
PS_NODISCARD ps_dnn_status ps_dnn_plan_init(ps_dnn_plan *out, const ps_cudnn *dnn, const ps_dnn_target *on,
                                            const ps_dnn_attention *shape, const char **what);
void ps_dnn_plan_deinit(ps_dnn_plan *p);

/* Gives it to the stream of the handle. */
PS_NODISCARD ps_dnn_status ps_dnn_plan_run(const ps_dnn_plan *p, ps_dnn_handle handle, const ps_dnn_arrays *arrays);

#endif
