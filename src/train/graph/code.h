/* code.h - a program as the instructions of one micro-batch: their order, and the places of their activations.
 *
 * Forward instructions come first, in the program's order; then backward, in reverse. A checkpoint segment keeps only
 * its inputs; before its backward the part of it that backward needs is run again (RECOMPUTE). Activations, their
 * gradients, row statistics and workspace are buffers at fixed offsets of one region, placed by liveness: two buffers
 * share addresses only when their lifetimes do not overlap. Inputs of a segment can be offloaded in between (OFFLOAD,
 * FETCH), out of the region into a standalone chunk, which the store moves like any other. Where the host cannot access
 * the backend's memory, constants of operators and the output of inference are buffers too; there embeddings can be
 * computed by the host, in a block of host memory that all such instructions share, with copies before and after.
 *
 * Two operators run as one instruction where the backend supports it (fuse.h): the one with parameters, or else the
 * first, is its node, the other `fused`.
 *
 * It also decides which gradients may overwrite their parameters: those whose parameter is not read after the first
 * gradient is written (PatrickStar's reuse; for tied weights this is found by analysis). */
#ifndef PS_GRAPH_CODE_H
#define PS_GRAPH_CODE_H

#include "base/base.h"
#include "train/graph/program.h"

typedef enum ps_instr_kind {
    PS_INSTR_FORWARD,
    PS_INSTR_RECOMPUTE,
    PS_INSTR_BACKWARD,
    PS_INSTR_JOIN,    /* y = x[0] + x[1]: the sum of two gradients of one value */
    PS_INSTR_OFFLOAD, /* x[0] is copied out of the region */
    PS_INSTR_FETCH,   /* y = the offloaded value */
} ps_instr_kind;

const char *ps_instr_kind_name(ps_instr_kind k); /* "forward", "recompute", "backward", "join", "offload", "fetch" */

/* Buffers by number, -1: none. */
typedef struct ps_instr {
    ps_instr_kind kind;
    int32_t node, fused;       /* fused: -1, or the second node that it runs */
    int32_t x[PS_NODE_INPUTS]; /* fused: x[1] is the residual of forward, the input of gelu for backward */
    int32_t y, saved[PS_NODE_SAVED];
    int32_t logits;    /* of the loss, kept for its backward */
    int32_t constants; /* of the node */
    int32_t output;    /* of the program's end, for inference */
    int32_t between;   /* fused, forward: the node's own output, where backward reads it */
    int32_t dx[PS_NODE_INPUTS], dy;
    int32_t
        unwanted_dw[PS_NODE_PARAMS]; /* buffer for the gradient of a frozen parameter, if the type must compute it */
    bool accumulate_dx[PS_NODE_INPUTS];
    bool accumulate_dw;                  /* within the micro-batch: an earlier instruction wrote one of its gradients */
    bool clears_grad[PS_NODE_PARAMS];    /* it adds to this gradient too, which was not written before: zeros first */
    bool completes_grad[PS_NODE_PARAMS]; /* the last contribution to the parameter's gradient */
    int32_t workspace;
    bool on_host; /* computed by the host's kernels, in a block of host memory, with its scratch: */
    int64_t host_workspace_bytes;
    int64_t join_elements;
    int32_t offload_index; /* offload, fetch: number of the offloaded value */
    int64_t offload_bytes;
    char *label;             /* "h.0.mlp.c_fc backward", "h.0.mlp.c_fc+gelu forward" */
    int64_t non_model_bytes; /* end of the last live buffer */
    int64_t cost_ns;         /* estimate */
    double flops;
} ps_instr;

/* Constants of a node that the host copies into a buffer before the first instruction. */
typedef struct ps_constants {
    int32_t buffer;
    const float *values;
} ps_constants;

typedef struct ps_buffer {
    int64_t bytes, offset;
    int32_t first, last; /* instructions; first > last: never used */
} ps_buffer;

/* For incremental decoding: the maximum number of rows of a pass, and of different numbers of rows. */
#define PS_DECODE_ROWS_MAX 256
#define PS_DECODE_ROW_COUNTS 5

/* Whether the logits of the loss are kept from forward to backward, or computed again. */
typedef enum ps_keep_logits {
    PS_KEEP_LOGITS_NEVER,
    PS_KEEP_LOGITS_ALWAYS,
    PS_KEEP_LOGITS_AUTO, /* code of both kinds is made (ps_code.keeping) */
} ps_keep_logits;

typedef struct ps_code {
    const ps_program *program;
    ps_instr *instrs;
    int32_t n_instrs, n_forward;
    ps_buffer *buffers;
    int32_t n_buffers;
    int32_t batch[PS_BATCH_ARRAY_COUNT]; /* buffers of the batch; -1: no operator reads it */
    ps_constants *constants; /* where the host cannot access the device; else operators read those of the program */
    int32_t n_constants;
    int32_t n_offloaded; /* values offloaded between forward and backward, each of at most offload_bytes */
    int64_t offload_bytes;
    int64_t non_model_bytes;     /* largest over the instructions */
    bool *grad_overwrites_param; /* [n_params] */
    int64_t host_bytes;          /* the block for instructions on the host; 0: none */
    bool keeps_logits;
    struct ps_code *keeping; /* the same instructions with buffers for logits; owned. NULL: no choice */

    /* KV cache; cache_positions 0: none */
    int64_t cache_positions, cache_bytes;
    int64_t *cache_offset;                    /* [n_nodes] of an attention's keys, followed by its values */
    int64_t row_counts[PS_DECODE_ROW_COUNTS]; /* permitted rows of a pass, ascending */
    int n_row_counts;
} ps_code;

typedef struct ps_code_options {
    ps_backend *backend;
    const ps_compute_throughput *throughput; /* for estimates; NULL: ps_compute_throughput_default */
    ps_softmax_throughput softmax_throughput;
    ps_backend *embedding_backend;                     /* computes embeddings, in host memory; NULL: the backend */
    const ps_compute_throughput *embedding_throughput; /* of embeddings on embedding_backend; NULL: as the others */
    ps_dtype dtype;
    bool training; /* false: forward only */
    bool checkpointing;
    ps_keep_logits keep_logits; /* where there is a backward pass */
    int32_t n_checkpoints;      /* segments are merged into this many; 0: as declared */
    bool offloads_inputs;       /* inputs of a segment are offloaded after their last use in the forward pass */
    bool may_overwrite_params;  /* false with gradient accumulation */
    bool adds_up_micro_batches; /* from the second micro-batch on, backward adds to the gradients of those before */
    int64_t cache_positions;    /* KV cache for so many tokens; 0: none */
} ps_code_options;

/* Keeps a pointer to the program, which must outlive the code. */
PS_NODISCARD ps_status ps_code_create(const ps_program *program, const ps_code_options *options, ps_code **out);
void ps_code_destroy(ps_code *p); /* NULL is accepted */

/* Does the instruction compute its node? Others only have its name. */
static inline bool ps_instr_computes_node(const ps_instr *instr)
{
    return instr->kind <= PS_INSTR_BACKWARD;
}

/* Does it compute a gradient of its node's parameter number k? */
static inline bool ps_instr_makes_grad(const ps_program *p, const ps_instr *instr, int k)
{
    return instr->kind == PS_INSTR_BACKWARD && ps_program_trains(p, p->nodes[instr->node].params[k]);
}

/* Does it need that parameter's chunks: to read it, or for its gradient? */
static inline bool ps_instr_touches(const ps_program *p, const ps_instr *instr, int k)
{
    const ps_node *n = &p->nodes[instr->node];
    if (!ps_instr_computes_node(instr) || n->params[k] < 0) return false;
    return instr->kind != PS_INSTR_BACKWARD || ps_instr_makes_grad(p, instr, k) || n->type->backward_reads_w[k];
}

/* The one of an instruction's two nodes whose constants it uses. */
static inline const ps_node *ps_instr_constants(const ps_program *program, const ps_instr *instr)
{
    const ps_node *fused = instr->fused >= 0 ? &program->nodes[instr->fused] : NULL;
    return fused != NULL && fused->n_constants > 0 ? fused : &program->nodes[instr->node];
}

/* Bytes of logits kept for backward; 0 where backward recomputes them, or there are none. */
int64_t ps_code_kept_logits_bytes(const ps_code *p);

/* Bytes of the arrays of a micro-batch that operators read. */
int64_t ps_code_batch_bytes(const ps_code *p);

/* Addresses of an instruction's buffers in the region at base, all NULL if base is; batch arrays among them. The caller
 * adds parameters and their gradients. */
void ps_code_bind(const ps_code *p, const ps_instr *instr, void *base, ps_node_run *run);

/* A copy between a buffer of the device and the block of host memory. bytes 0: none. */
typedef struct ps_host_copy {
    void *device, *host;
    int64_t bytes;
} ps_host_copy;

typedef struct ps_host_copies {
    ps_host_copy in[PS_NODE_INPUTS + PS_BATCH_ARRAY_COUNT]; /* to the host, before it computes */
    int n_in;
    ps_host_copy out; /* to the device, afterwards */
} ps_host_copies;

/* code_on_host.c: replaces the addresses in run, which ps_code_bind has set for an instruction on the host, by those in
 * the block. Bytes are those of the rows that it computes. */
void ps_code_bind_host(const ps_code *p, const ps_instr *instr, void *block, ps_node_run *run, ps_host_copies *out);

/* Guard bytes after each buffer, which no operator may write: reserved from DEBUG=2 on, checked by guard.c. */
#define PS_CODE_GUARD_BYTES (PS_DEBUG >= 2 ? 64 : 0)

/* guard.c: fill the guard bytes of the buffers in use at the instruction, before it runs in the region at base. */
void ps_code_guard_set(const ps_code *p, const ps_instr *instr, void *base);
/* Checks them afterwards. PS_ESTATE naming operator and buffer when guard bytes have changed. */
PS_NODISCARD ps_status ps_code_guard_check(const ps_code *p, const ps_instr *instr, const void *base);

/* cache.c: addresses of an instruction's keys and values in the block that starts at cache; NULL: no addresses yet. */
void ps_code_bind_cache(const ps_code *p, const ps_instr *instr, void *cache, ps_node_run *run);

#endif
