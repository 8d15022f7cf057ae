/* node_attention.c - operators on the tokens of a sequence: attention, pool. */
#include <math.h>

#include "base/sized.h"
#include "train/graph/builder.h"

/* ---- attention: saved log-sum-exp per head and row ---- */

/* Queries, keys or values (part 0, 1 or 2), of the inputs or of their gradients. */
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

/* Incremental decoding: keys and values of earlier tokens are in the cache. */
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

static ps_status attention_continues(const ps_program *p, const ps_node *n, int64_t positions)
{
    (void)p, (void)positions;
    if (n->attr.attention.causal) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s attends to later tokens: a text cannot be continued token by token with this model",
                   n->label);
}

static int64_t attention_cached_cols(const ps_node *n)
{
    return n->attr.attention.KV * n->attr.attention.D;
}

static const ps_node_type attention_type = {
    .name = "attention",
    .forward = attention_forward,
    .backward = attention_backward,
    .saved_cols = attention_saved_cols,
    .cached_cols = attention_cached_cols,
    .continues = attention_continues,
    .backward_reads_x = true,
    .backward_reads_y = true,
};

static ps_value add_attention(ps_builder *b, const ps_value inputs[PS_NODE_INPUTS], int64_t n_in, int64_t D,
                              const ps_attention_options *o, bool packed)
{
    if (!(o->dropout_p >= 0 && o->dropout_p < 1))
        return ps_builder_refuse(b, "%sattention: dropout probability %g is not in [0, 1)", b->prefix,
                                 (double)o->dropout_p);
    if (o->window < 0)
        return ps_builder_refuse(b, "%sattention: a window of %lld keys", b->prefix, (long long)o->window);
    return ps_builder_add_node(b, "attention",
                               (ps_node){.type = &attention_type,
                                         .inputs = {inputs[0], inputs[1], inputs[2]},
                                         .params = {-1, -1},
                                         .reads_batch = 1u << PS_BATCH_MASK,
                                         .n_in = n_in,
                                         .n_out = o->n_heads * D,
                                         .attr.attention = {.H = o->n_heads,
                                                            .KV = o->n_kv_heads,
                                                            .D = D,
                                                            .window = o->window,
                                                            .packed = packed,
                                                            .causal = o->causal != 0,
                                                            .dropout_p = o->dropout_p}},
                               o->n_heads * D);
}

ps_value ps_attention(ps_builder *b, ps_value qkv, int64_t n_heads, int causal, float dropout_p)
{
    if (!ps_builder_is_sequence(b, qkv, "attention")) return -1;
    const int64_t cols = ps_builder_cols(b, qkv);
    if (n_heads < 1 || cols % (3 * n_heads) != 0)
        return ps_builder_refuse(b, "%sattention: %lld columns cannot be split into q, k, v of %lld heads", b->prefix,
                                 (long long)cols, (long long)n_heads);
    const ps_value inputs[PS_NODE_INPUTS] = {qkv, -1, -1};
    const ps_attention_options o = {
        .struct_size = sizeof o, .n_heads = n_heads, .n_kv_heads = n_heads, .causal = causal, .dropout_p = dropout_p};
    return add_attention(b, inputs, cols, cols / 3 / n_heads, &o, true);
}

ps_value ps_grouped_attention(ps_builder *b, ps_value q, ps_value k, ps_value v, const ps_attention_options *options)
{
    ps_attention_options own, *o = &own;
    if (!ps_builder_is_sequence(b, q, "attention") || !ps_builder_is_sequence(b, k, "attention") ||
        !ps_builder_is_sequence(b, v, "attention"))
        return -1;
    if (q == k || q == v || k == v)
        return ps_builder_refuse(b, "%sattention: two of q, k, v are the same value", b->prefix);
    if (PS_SIZED_TAKE(ps_attention_options, options, o) != PS_OK)
        return ps_builder_refuse(b, "%sattention: %s", b->prefix, ps_last_error());
    const int64_t H = o->n_heads, KV = o->n_kv_heads, cols = ps_builder_cols(b, q);
    if (H < 1 || KV < 1 || H % KV != 0 || cols % H != 0 || ps_builder_cols(b, k) != cols / H * KV ||
        ps_builder_cols(b, v) != ps_builder_cols(b, k))
        return ps_builder_refuse(b,
                                 "%sattention: q, k, v of %lld, %lld and %lld columns do not fit %lld heads of queries "
                                 "and %lld of keys and values",
                                 b->prefix, (long long)cols, (long long)ps_builder_cols(b, k),
                                 (long long)ps_builder_cols(b, v), (long long)H, (long long)KV);
    const ps_value inputs[PS_NODE_INPUTS] = {q, k, v};
    return add_attention(b, inputs, cols, cols / H, o, false);
}

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

static ps_status pool_continues(const ps_program *p, const ps_node *n, int64_t positions)
{
    (void)p, (void)positions;
    return PS_FAIL(PS_EINVAL, "%s gives one row for a whole sequence: this model does not continue texts", n->label);
}

static const ps_node_type pool_type = {
    .name = "pool",
    .forward = pool_forward,
    .backward = pool_backward,
    .continues = pool_continues,
    .gives_row_a_sequence = true,
    .backward_accumulates = true,
};

ps_value ps_pool(ps_builder *b, ps_value x, ps_pooling kind)
{
    if (!ps_builder_is_sequence(b, x, "pool")) return -1;
    if (kind != PS_POOLING_FIRST && kind != PS_POOLING_LAST)
        return ps_builder_refuse(b, "%spool: %d is no ps_pooling", b->prefix, (int)kind);
    const int64_t cols = ps_builder_cols(b, x);
    return ps_builder_add_node(b, "pool",
                               (ps_node){.type = &pool_type,
                                         .inputs = {x, -1, -1},
                                         .params = {-1, -1},
                                         .reads_batch = 1u << PS_BATCH_MASK,
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.pool.kind = kind == PS_POOLING_LAST ? PS_POOL_LAST : PS_POOL_FIRST},
                               cols);
}
