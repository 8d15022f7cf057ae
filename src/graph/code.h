/* code.h - a program turned into the instructions of one micro-batch: what runs when, and where its activations lie.
 *
 * Forward instructions come first, in the program's order; then backward, in reverse. A checkpoint segment keeps only
 * what enters it; before its backward the part of it that backward needs is run again (RECOMPUTE). Activations, their
 * gradients, row statistics and workspace are buffers at fixed offsets of one region, placed by liveness: two buffers
 * share addresses only when their lives are apart. What enters a segment can be put aside in between (OFFLOAD, FETCH),
 * into memory that is not of the region: into a chunk apart, which the store moves as it moves others. Where the host
 * cannot touch what the backend computes in, constants of operators and the output of inference are buffers too; there
 * embeddings can be computed by the host, in a block of its memory that all such instructions use in turn, with copies
 * before and after.
 *
 * Where the backend has it, two operators run as one instruction (fuse.h): the one with parameters is its node, or else
 * the first, the other `fused`.
 *
 * It also decides which gradients may overwrite their parameters: those whose parameter nobody reads after the first
 * gradient is written (PatrickStar's reuse; for tied weights it is found, not assumed). */
#ifndef PS_GRAPH_CODE_H
#define PS_GRAPH_CODE_H

#include "base/base.h"
#include "graph/program.h"

typedef enum ps_instr_kind {
    PS_INSTR_FORWARD,
    PS_INSTR_RECOMPUTE,
    PS_INSTR_BACKWARD,
    PS_INSTR_JOIN,    /* y = x[0] + x[1]: two gradients of one value meet */
    PS_INSTR_OFFLOAD, /* x[0] leaves the region: a copy of it is put aside */
    PS_INSTR_FETCH,   /* y = what was put aside */
} ps_instr_kind;

const char *ps_instr_kind_name(ps_instr_kind k); /* "forward", "recompute", "backward", "join", "offload", "fetch" */

/* Buffers by number, -1: none. */
typedef struct ps_instr {
    ps_instr_kind kind;
    int32_t node, fused;       /* fused: -1, or the other node that it runs */
    int32_t x[PS_NODE_INPUTS]; /* fused: x[1] is the residual of forward, the input of gelu for backward */
    int32_t y, saved[PS_NODE_SAVED];
    int32_t logits;    /* of the loss, kept for its backward */
    int32_t constants; /* of the node */
    int32_t output;    /* of the program's end, for inference */
    int32_t between;   /* fused, forward: the node's own output, where backward reads it */
    int32_t dx[PS_NODE_INPUTS], dy;
    int32_t
        unwanted_dw[PS_NODE_PARAMS]; /* where the gradient of a frozen parameter goes, if the type must compute it */
    bool accumulate_dx[PS_NODE_INPUTS];
    bool accumulate_dw;                  /* within the micro-batch: an earlier instruction wrote one of its gradients */
    bool clears_grad[PS_NODE_PARAMS];    /* it adds to this gradient too, but nobody wrote it before: zeros first */
    bool completes_grad[PS_NODE_PARAMS]; /* the last contribution to the parameter's gradient */
    int32_t workspace;
    bool on_host; /* the host's kernels compute it, in a block of the host's memory; its scratch is there: */
    int64_t host_workspace_bytes;
    int64_t join_elements;
    int32_t aside; /* offload, fetch: which of the values put aside */
    int64_t aside_bytes;
    char *label;             /* "h.0.mlp.c_fc backward", "h.0.mlp.c_fc+gelu forward" */
    int64_t non_model_bytes; /* end of the last live buffer */
    int64_t cost_ns;         /* estimate */
    double flops;
} ps_instr;

/* Numbers of a node that the host puts into a buffer before the first instruction. */
typedef struct ps_constants {
    int32_t buffer;
    const float *values;
} ps_constants;

typedef struct ps_buffer {
    int64_t bytes, offset;
    int32_t first, last; /* instructions; first > last: never used */
} ps_buffer;

/* Of passes over a text that grows: the most rows, and how many different numbers of rows there may be. */
#define PS_DECODE_ROWS_MAX 256
#define PS_DECODE_ROW_COUNTS 5

/* Whether the logits of the loss are kept from forward to backward, or computed again. */
typedef enum ps_keep_logits {
    PS_KEEP_LOGITS_NEVER,
    PS_KEEP_LOGITS_ALWAYS,
    PS_KEEP_LOGITS_AUTO, /* there is code of both kinds (ps_code.keeping) */
} ps_keep_logits;

typedef struct ps_code {
    const ps_program *program;
    ps_instr *instrs;
    int32_t n_instrs, n_forward;
    ps_buffer *buffers;
    int32_t n_buffers;
    int32_t batch[PS_BATCH_ARRAY_COUNT]; /* its buffers; -1: no operator reads it */
    ps_constants *constants; /* where the host cannot touch the device; else operators read those of the program */
    int32_t n_constants;
    int32_t n_aside; /* values put aside between forward and backward, each of at most aside_bytes */
    int64_t aside_bytes;
    int64_t non_model_bytes;     /* largest over the instructions */
    bool *grad_overwrites_param; /* [n_params] */
    int64_t host_bytes;          /* the block that instructions on the host need; 0: there are none */
    bool keeps_logits;
    struct ps_code *keeping; /* the same instructions with buffers for logits; owned. NULL: there is no choice */

    /* of a text that grows; cache_positions 0: none */
    int64_t cache_positions, cache_bytes;
    int64_t *cache_offset;                    /* [n_nodes] of an attention's keys, behind which its values lie */
    int64_t row_counts[PS_DECODE_ROW_COUNTS]; /* rows that a pass may have, rising */
    int n_row_counts;
} ps_code;

typedef struct ps_code_options {
    ps_backend *backend;
    const ps_compute_rates *rates; /* for estimates; NULL: ps_compute_rates_default */
    ps_softmax_rates softmax_rates;
    ps_backend *embedding_backend;           /* computes embeddings, on host memory; NULL: as all else is */
    const ps_compute_rates *embedding_rates; /* of embeddings, where they run elsewhere; NULL: as the others */
    ps_dtype dtype;
    bool training; /* false: forward only */
    bool checkpointing;
    ps_keep_logits keep_logits; /* where there is a backward pass */
    int32_t n_checkpoints;      /* segments are merged into this many; 0: as declared */
    bool offloads_inputs;       /* what enters a segment is put aside after its last use in the forward pass */
    bool may_overwrite_params;  /* false with gradient accumulation */
    bool adds_up_micro_batches; /* from the second micro-batch on, backward adds to the gradients of those before */
    int64_t cache_positions;    /* keep keys and values of so many tokens; 0: not */
} ps_code_options;

/* Keeps a pointer to the program, which must outlive the code. */
PS_NODISCARD ps_status ps_code_create(const ps_program *program, const ps_code_options *options, ps_code **out);
void ps_code_destroy(ps_code *p); /* NULL is accepted */

/* Does the instruction compute something of its node? Others only bear its name. */
static inline bool ps_instr_computes_node(const ps_instr *instr)
{
    return instr->kind <= PS_INSTR_BACKWARD;
}

/* Does it make a gradient of its node's parameter number k? */
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

/* Of the two nodes of an instruction the one whose constants it uses. */
static inline const ps_node *ps_instr_constants(const ps_program *program, const ps_instr *instr)
{
    const ps_node *fused = instr->fused >= 0 ? &program->nodes[instr->fused] : NULL;
    return fused != NULL && fused->n_constants > 0 ? fused : &program->nodes[instr->node];
}

/* Of logits kept for backward; 0 where it computes them again, or there is none. */
int64_t ps_code_kept_logits_bytes(const ps_code *p);

/* Addresses of an instruction's buffers in the region that starts at base, all NULL when that is; batch arrays among
 * them. The caller adds parameters and their gradients. */
void ps_code_bind(const ps_code *p, const ps_instr *instr, void *base, ps_node_run *run);

/* A copy between a buffer of the device and the block of the host's memory. bytes 0: none. */
typedef struct ps_host_copy {
    void *device, *host;
    int64_t bytes;
} ps_host_copy;

typedef struct ps_host_copies {
    ps_host_copy in[PS_NODE_INPUTS + PS_BATCH_ARRAY_COUNT]; /* to the host, before it computes */
    int n_in;
    ps_host_copy out; /* to the device, afterwards */
} ps_host_copies;

/* code_on_host.c: run, which has the addresses of an instruction on the host that ps_code_bind gave, gets those in the
 * block in their place. Bytes are those of the rows that it computes. */
void ps_code_bind_host(const ps_code *p, const ps_instr *instr, void *block, ps_node_run *run, ps_host_copies *out);

/* Bytes behind each buffer that no operator may touch: from DEBUG=2 on there is room for them, and guard.c looks. */
#define PS_CODE_GUARD_BYTES (PS_DEBUG >= 2 ? 64 : 0)

/* guard.c: mark the ends of the buffers that live at the instruction, before it is computed in the region at base. */
void ps_code_guard_set(const ps_code *p, const ps_instr *instr, void *base);
/* Afterwards. PS_ESTATE naming operator and buffer when something was written behind one. */
PS_NODISCARD ps_status ps_code_guard_check(const ps_code *p, const ps_instr *instr, const void *base);

/* cache.c: addresses of an instruction's keys and values in the block that starts at cache; NULL: no addresses yet. */
void ps_code_bind_cache(const ps_code *p, const ps_instr *instr, void *cache, ps_node_run *run);

#endif
