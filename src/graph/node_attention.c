/* node_attention.c - what mixes the tokens of a sequence, or chooses among them: rope, attention, pool. */
#include <math.h>

#include "graph/node.h"
#include "graph/program.h"

/* ---- rope: constants are the frequencies ---- */

static ps_status rope_call(ps_node_run *r, void *y, const void *x, bool inverse, bool accumulate)
{
    const ps_node *n = r->node;
    return ps_node_call(r, rope,
                        (&(ps_rope_args){.y = y,
                                         .x = x,
                                         .inv_freq = n->constants,
                                         .B = r->B,
                                         .T = r->T,
                                         .H = n->n_out / n->attr.rope.D,
                                         .D = n->attr.rope.D,
                                         .first = r->first,
                                         .scale = n->attr.rope.scale,
                                         .inverse = inverse,
                                         .accumulate = accumulate,
                                         .dtype = r->dtype,
                                         .workspace = r->workspace}));
}

static ps_status rope_forward(ps_node_run *r)
{
    return rope_call(r, r->y, r->x[0], false, false);
}

static ps_status rope_backward(ps_node_run *r)
{
    return rope_call(r, r->dx[0], r->dy, true, r->accumulate_dx[0]);
}

const ps_node_type ps_node_rope = {
    .name = "rope",
    .forward = rope_forward,
    .backward = rope_backward,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

/* ---- attention: saved log-sum-exp per head and row ---- */

/* Part 0, 1 or 2 (queries, keys, values) of the inputs, or of their gradients. */
static void *part_of(const ps_node_run *r, void *const arrays[PS_NODE_INPUTS], int part)
{
    const ps_node *n = r->node;
    if (!n->attr.attention.packed) return arrays[part];
    const size_t columns = (size_t)(n->attr.attention.H * n->attr.attention.D) * (size_t)part;
    return arrays[0] == NULL ? NULL : (char *)arrays[0] + columns * ps_dtype_bytes(r->dtype);
}

static int64_t row_stride(const ps_node *n, int64_t heads)
{
    return (n->attr.attention.packed ? 3 : 1) * heads * n->attr.attention.D;
}

static ps_status attention_kept(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, attention_cached,
                        (&(ps_attention_cached_args){.y = r->y,
                                                     .k_cache = r->k_cache,
                                                     .v_cache = r->v_cache,
                                                     .q = part_of(r, r->x, 0),
                                                     .k = part_of(r, r->x, 1),
                                                     .v = part_of(r, r->x, 2),
                                                     .T = r->T,
                                                     .H = n->attr.attention.H,
                                                     .KV = n->attr.attention.KV,
                                                     .D = n->attr.attention.D,
                                                     .q_stride = row_stride(n, n->attr.attention.H),
                                                     .kv_stride = row_stride(n, n->attr.attention.KV),
                                                     .n_positions = r->cache_positions,
                                                     .first = r->first,
                                                     .window = n->attr.attention.window,
                                                     .scale = 1.0f / sqrtf((float)n->attr.attention.D),
                                                     .dtype = r->dtype,
                                                     .workspace = r->workspace}));
}

static ps_status attention_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->cache_positions > 0) return attention_kept(r);
    return ps_node_call(r, attention_fwd,
                        (&(ps_attention_fwd_args){.y = r->y,
                                                  .lse = r->saved[0],
                                                  .q = part_of(r, r->x, 0),
                                                  .k = part_of(r, r->x, 1),
                                                  .v = part_of(r, r->x, 2),
                                                  .mask = r->batch[PS_BATCH_MASK],
                                                  .B = r->B,
                                                  .T = r->T,
                                                  .H = n->attr.attention.H,
                                                  .KV = n->attr.attention.KV,
                                                  .D = n->attr.attention.D,
                                                  .q_stride = row_stride(n, n->attr.attention.H),
                                                  .kv_stride = row_stride(n, n->attr.attention.KV),
                                                  .window = n->attr.attention.window,
                                                  .scale = 1.0f / sqrtf((float)n->attr.attention.D),
                                                  .causal = n->attr.attention.causal,
                                                  .dropout_p = r->training ? n->attr.attention.dropout_p : 0.0f,
                                                  .dropout_key = r->dropout_key,
                                                  .dtype = r->dtype,
                                                  .workspace = r->workspace}));
}

static ps_status attention_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, attention_bwd,
                        (&(ps_attention_bwd_args){.dq = part_of(r, r->dx, 0),
                                                  .dk = part_of(r, r->dx, 1),
                                                  .dv = part_of(r, r->dx, 2),
                                                  .dy = r->dy,
                                                  .y = r->y,
                                                  .q = part_of(r, r->x, 0),
                                                  .k = part_of(r, r->x, 1),
                                                  .v = part_of(r, r->x, 2),
                                                  .lse = r->saved[0],
                                                  .mask = r->batch[PS_BATCH_MASK],
                                                  .B = r->B,
                                                  .T = r->T,
                                                  .H = n->attr.attention.H,
                                                  .KV = n->attr.attention.KV,
                                                  .D = n->attr.attention.D,
                                                  .q_stride = row_stride(n, n->attr.attention.H),
                                                  .kv_stride = row_stride(n, n->attr.attention.KV),
                                                  .window = n->attr.attention.window,
                                                  .scale = 1.0f / sqrtf((float)n->attr.attention.D),
                                                  .causal = n->attr.attention.causal,
                                                  .dropout_p = r->training ? n->attr.attention.dropout_p : 0.0f,
                                                  .dropout_key = r->dropout_key,
                                                  .dtype = r->dtype,
                                                  .workspace = r->workspace}));
}

static int64_t attention_saved_cols(const ps_node *n, int i)
{
    return i == 0 ? n->attr.attention.H : 0;
}

const ps_node_type ps_node_attention = {
    .name = "attention",
    .forward = attention_forward,
    .backward = attention_backward,
    .saved_cols = attention_saved_cols,
    .backward_reads_x = true,
    .backward_reads_y = true,
};

/* ---- pool ---- */

static ps_status pool_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, pool_fwd,
                        (&(ps_pool_fwd_args){.y = r->y,
                                             .x = r->x[0],
                                             .mask = r->batch[PS_BATCH_MASK],
                                             .B = r->B,
                                             .T = r->T,
                                             .cols = n->n_out,
                                             .kind = n->attr.pool.kind,
                                             .dtype = r->dtype}));
}

static ps_status pool_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, pool_bwd,
                        (&(ps_pool_bwd_args){.dx = r->dx[0],
                                             .dy = r->dy,
                                             .mask = r->batch[PS_BATCH_MASK],
                                             .B = r->B,
                                             .T = r->T,
                                             .cols = n->n_out,
                                             .kind = n->attr.pool.kind,
                                             .dtype = r->dtype,
                                             .accumulate_dx = r->accumulate_dx[0]}));
}

const ps_node_type ps_node_pool = {
    .name = "pool",
    .forward = pool_forward,
    .backward = pool_backward,
    .backward_accumulates = true,
};
