/* node_norm.c - normalisation of rows. */
#include <math.h>

#include "train/graph/builder.h"

static bool check_eps(ps_builder *b, const char *name, float eps)
{
    if (eps >= 0 && !isinf(eps)) return true;
    ps_builder_refuse(b, "%s%s: eps %g, expected a number from 0 on", b->prefix, name, (double)eps);
    return false;
}

/* ---- layer norm: saved mean, rstd ---- */

static ps_status layer_norm_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, layernorm_fwd,
                        (&(ps_layernorm_fwd_args){.y = r->y,
                                                  .mean = r->saved[0],
                                                  .rstd = r->saved[1],
                                                  .x = r->x[0],
                                                  .w = r->w[0],
                                                  .b = r->w[1],
                                                  .rows = ps_node_rows(r),
                                                  .cols = n->n_out,
                                                  .eps = n->attr.norm.eps,
                                                  .dtype = r->dtype}));
}

static ps_status layer_norm_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, layernorm_bwd,
                        (&(ps_layernorm_bwd_args){.dx = r->dx[0],
                                                  .dw = r->dw[0],
                                                  .db = r->dw[1],
                                                  .dy = r->dy,
                                                  .x = r->x[0],
                                                  .w = r->w[0],
                                                  .mean = r->saved[0],
                                                  .rstd = r->saved[1],
                                                  .rows = ps_node_rows(r),
                                                  .cols = n->n_out,
                                                  .dtype = r->dtype,
                                                  .grad_dtype = r->grad_dtype,
                                                  .accumulate_dx = r->accumulate_dx[0],
                                                  .accumulate_grad = r->accumulate_dw,
                                                  .workspace = r->workspace}));
}

static int64_t layer_norm_saved_cols(const ps_node *n, int i)
{
    (void)n;
    return i < 2;
}

static const ps_node_type layer_norm_type = {
    .name = "layer_norm",
    .forward = layer_norm_forward,
    .backward = layer_norm_backward,
    .saved_cols = layer_norm_saved_cols,
    .backward_reads_x = true,
    .backward_reads_w = {true, false},
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_layer_norm(ps_builder *b, ps_value x, const char *name, float eps)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    if (!ps_builder_is_value(b, x, name) || !check_eps(b, name, eps)) return -1;
    const int64_t cols = ps_builder_cols(b, x);
    const int32_t w = ps_builder_add_param(b, name, ".weight", 1, 1, cols, 1, 0);
    const int32_t bias = ps_builder_add_param(b, name, ".bias", 1, 1, cols, 0, 0);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &layer_norm_type,
                                         .inputs = {x, -1, -1},
                                         .params = {w, bias},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.norm = {.eps = eps, .group = cols}},
                               cols);
}

/* ---- RMS norm, of whole rows or of each group of columns: saved rstd. As a pair: then each group is rotated ---- */

static ps_status rms_norm_rope_forward(ps_node_run *r)
{
    const ps_node *n = r->node, *rope = r->fused;
    return ps_node_call(r, rmsnorm_rope_fwd,
                        (&(ps_rmsnorm_rope_fwd_args){.y = r->y,
                                                     .rstd = r->saved[0],
                                                     .x = r->x[0],
                                                     .w = r->w[0],
                                                     .inv_freq = r->constants,
                                                     .B = r->B,
                                                     .T = r->T,
                                                     .H = n->n_out / n->attr.norm.group,
                                                     .D = n->attr.norm.group,
                                                     .first = r->first,
                                                     .eps = n->attr.norm.eps,
                                                     .scale = rope->attr.rope.scale,
                                                     .dtype = r->dtype,
                                                     .workspace = r->workspace}));
}

static ps_status rms_norm_rope_backward(ps_node_run *r)
{
    const ps_node *n = r->node, *rope = r->fused;
    return ps_node_call(r, rmsnorm_rope_bwd,
                        (&(ps_rmsnorm_rope_bwd_args){.dx = r->dx[0],
                                                     .dw = r->dw[0],
                                                     .dy = r->dy,
                                                     .x = r->x[0],
                                                     .w = r->w[0],
                                                     .rstd = r->saved[0],
                                                     .inv_freq = r->constants,
                                                     .B = r->B,
                                                     .T = r->T,
                                                     .H = n->n_out / n->attr.norm.group,
                                                     .D = n->attr.norm.group,
                                                     .first = r->first,
                                                     .scale = rope->attr.rope.scale,
                                                     .dtype = r->dtype,
                                                     .grad_dtype = r->grad_dtype,
                                                     .accumulate_grad = r->accumulate_dw,
                                                     .workspace = r->workspace}));
}

static bool is_norm_of_heads(const ps_node *norm, const ps_node *rope)
{
    return norm->attr.norm.group == rope->attr.rope.D;
}

static ps_status rms_norm_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->fused != NULL) return rms_norm_rope_forward(r);
    return ps_node_call(r, rmsnorm_fwd,
                        (&(ps_rmsnorm_fwd_args){.y = r->y,
                                                .rstd = r->saved[0],
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .rows = ps_node_rows(r) * (n->n_out / n->attr.norm.group),
                                                .cols = n->attr.norm.group,
                                                .eps = n->attr.norm.eps,
                                                .dtype = r->dtype}));
}

static ps_status rms_norm_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->fused != NULL) return rms_norm_rope_backward(r);
    return ps_node_call(r, rmsnorm_bwd,
                        (&(ps_rmsnorm_bwd_args){.dx = r->dx[0],
                                                .dw = r->dw[0],
                                                .dy = r->dy,
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .rstd = r->saved[0],
                                                .rows = ps_node_rows(r) * (n->n_out / n->attr.norm.group),
                                                .cols = n->attr.norm.group,
                                                .dtype = r->dtype,
                                                .grad_dtype = r->grad_dtype,
                                                .accumulate_dx = r->accumulate_dx[0],
                                                .accumulate_grad = r->accumulate_dw,
                                                .workspace = r->workspace}));
}

static int64_t rms_norm_saved_cols(const ps_node *n, int i)
{
    return i == 0 ? n->n_out / n->attr.norm.group : 0;
}

static const ps_node_type rms_norm_type = {
    .name = "rms_norm",
    .forward = rms_norm_forward,
    .backward = rms_norm_backward,
    .saved_cols = rms_norm_saved_cols,
    .begins_pair = PS_PAIR_RMSNORM_ROPE,
    .backward_pairs = true,
    .pairs = is_norm_of_heads,
    .backward_reads_x = true,
    .backward_reads_w = {true, false},
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_rms_norm(ps_builder *b, ps_value x, const char *name, int64_t group, float eps)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    if (!ps_builder_is_value(b, x, name) || !check_eps(b, name, eps)) return -1;
    const int64_t cols = ps_builder_cols(b, x);
    if (group == 0) group = cols;
    if (group < 1 || cols % group != 0)
        return ps_builder_refuse(b, "%s%s: %lld columns cannot be split into groups of %lld", b->prefix, name,
                                 (long long)cols, (long long)group);
    const int32_t w = ps_builder_add_param(b, name, ".weight", 1, 1, group, 1, 0);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &rms_norm_type,
                                         .inputs = {x, -1, -1},
                                         .params = {w, -1},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.norm = {.eps = eps, .group = group}},
                               cols);
}
