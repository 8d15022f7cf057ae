/* node_embedding.c - tables of rows: tokens, token types, positions. */
#include "train/graph/builder.h"

/* ---- token embedding ---- */

static ps_status token_embedding_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, embedding_fwd,
                        (&(ps_embedding_fwd_args){.y = r->y,
                                                  .w = r->w[0],
                                                  .ids = r->batch[n->attr.table.ids],
                                                  .rows = ps_node_rows(r),
                                                  .cols = n->n_out,
                                                  .V = n->attr.table.n,
                                                  .dtype = r->dtype}));
}

static ps_status token_embedding_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, embedding_bwd,
                        (&(ps_embedding_bwd_args){.dw = r->dw[0],
                                                  .dy = r->dy,
                                                  .ids = r->batch[n->attr.table.ids],
                                                  .rows = ps_node_rows(r),
                                                  .cols = n->n_out,
                                                  .V = n->attr.table.n,
                                                  .dtype = r->dtype,
                                                  .grad_dtype = r->grad_dtype,
                                                  .accumulate_grad = r->accumulate_dw,
                                                  .workspace = r->workspace}));
}

static const ps_node_type token_embedding_type = {
    .name = "token_embedding",
    .forward = token_embedding_forward,
    .backward = token_embedding_backward,
    .is_embedding = true,
};

static ps_value add_embedding(ps_builder *b, const char *name, int64_t n, int64_t columns, ps_batch_array ids)
{
    const int32_t w = ps_builder_add_param(b, name, ".weight", 2, n, columns, 0, b->init_std);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &token_embedding_type,
                                         .inputs = {-1, -1, -1},
                                         .params = {w, -1},
                                         .reads_batch = 1u << ids,
                                         .n_out = columns,
                                         .attr.table = {.n = n, .ids = ids}},
                               columns);
}

ps_value ps_token_embedding(ps_builder *b, const char *name, int64_t n_tokens, int64_t columns)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    b->program->n_input_tokens = ps_min_i64(b->program->n_input_tokens, n_tokens);
    return add_embedding(b, name, n_tokens, columns, PS_BATCH_TOKENS);
}

ps_value ps_token_type_embedding(ps_builder *b, const char *name, int64_t n_types, int64_t columns)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    b->program->n_types = ps_min_i64(b->program->n_types, n_types);
    return add_embedding(b, name, n_types, columns, PS_BATCH_TOKEN_TYPES);
}

/* ---- position embedding ---- */

static ps_status position_embedding_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, position_fwd,
                        (&(ps_position_fwd_args){.y = r->y,
                                                 .x = r->x[0],
                                                 .w = r->w[0],
                                                 .B = r->B,
                                                 .T = r->T,
                                                 .cols = n->n_out,
                                                 .n_positions = n->attr.table.n,
                                                 .first = r->first,
                                                 .dtype = r->dtype}));
}

static ps_status position_embedding_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, position_bwd,
                        (&(ps_position_bwd_args){.dw = r->dw[0],
                                                 .dy = r->dy,
                                                 .B = r->B,
                                                 .T = r->T,
                                                 .cols = n->n_out,
                                                 .n_positions = n->attr.table.n,
                                                 .dtype = r->dtype,
                                                 .grad_dtype = r->grad_dtype,
                                                 .accumulate_grad = r->accumulate_dw}));
}

static ps_status position_embedding_continues(const ps_program *p, const ps_node *n, int64_t positions)
{
    if (n->attr.table.n >= positions) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s has %lld positions, fewer than the %lld of generation.max_length",
                   p->params[n->params[0]].name, (long long)n->attr.table.n, (long long)positions);
}

static const ps_node_type position_embedding_type = {
    .name = "position_embedding",
    .forward = position_embedding_forward,
    .backward = position_embedding_backward,
    .continues = position_embedding_continues,
    .is_embedding = true,
    .forward_in_place = true,
    .passes_gradient = true,
};

ps_value ps_position_embedding(ps_builder *b, ps_value x, const char *name, int64_t n_positions)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    if (!ps_builder_is_sequence(b, x, name)) return -1;
    if (n_positions < b->program->T)
        return ps_builder_refuse(b, "%s%s has %lld positions, but sequences have %lld tokens", b->prefix, name,
                                 (long long)n_positions, (long long)b->program->T);
    const int64_t cols = ps_builder_cols(b, x);
    const int32_t w = ps_builder_add_param(b, name, ".weight", 2, n_positions, cols, 0, b->init_std);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &position_embedding_type,
                                         .inputs = {x, -1, -1},
                                         .params = {w, -1},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.table.n = n_positions},
                               cols);
}
