/* node_rope.c - rotary position embedding; the frequencies are constants of the node. */
#include "base/mem.h"
#include "base/sized.h"
#include "train/graph/builder.h"
#include "train/graph/rope_scaling.h"

static ps_status rope_call(ps_node_run *r, void *y, const void *x, bool inverse, bool accumulate)
{
    const ps_node *n = r->node;
    return ps_node_call(r, rope,
                        (&(ps_rope_args){.y = y,
                                         .x = x,
                                         .inv_freq = r->constants,
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

static const ps_node_type rope_type = {
    .name = "rope",
    .forward = rope_forward,
    .backward = rope_backward,
    .ends_pair = PS_PAIR_RMSNORM_ROPE,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_rotary_embedding(ps_builder *b, ps_value x, int64_t head_size, const ps_rope *options)
{
    ps_rope own;
    if (!ps_builder_is_sequence(b, x, "rope")) return -1;
    if (PS_SIZED_TAKE(ps_rope, options, &own) != PS_OK)
        return ps_builder_refuse(b, "%srope: %s", b->prefix, ps_last_error());
    const int64_t cols = ps_builder_cols(b, x);
    if (head_size < 2 || head_size % 2 != 0 || cols % head_size != 0)
        return ps_builder_refuse(b, "%srope: %lld columns cannot be split into heads of an even size %lld", b->prefix,
                                 (long long)cols, (long long)head_size);
    if (!ps_rope_is_sane(&own))
        return ps_builder_refuse(
            b,
            "%srope: theta %g, factor %g, low_freq_factor %g, high_freq_factor %g, beta_slow %g, "
            "beta_fast %g, original_positions %lld: what the scaling uses must be above 0, and low below high",
            b->prefix, own.theta, own.factor, own.low_freq_factor, own.high_freq_factor, own.beta_slow, own.beta_fast,
            (long long)own.original_positions);
    float *frequencies = NULL;
    const ps_status st = ps_mem_alloc((size_t)(head_size / 2), sizeof *frequencies, &frequencies);
    if (st != PS_OK) {
        b->failure = st;
        return -1;
    }
    ps_rope_frequencies(&own, head_size, frequencies);
    const ps_value y = ps_builder_add_node(b, "rope",
                                           (ps_node){.type = &rope_type,
                                                     .inputs = {x, -1, -1},
                                                     .params = {-1, -1},
                                                     .constants = frequencies,
                                                     .n_constants = head_size / 2,
                                                     .n_in = cols,
                                                     .n_out = cols,
                                                     .attr.rope = {.D = head_size, .scale = ps_rope_scale(&own)}},
                                           cols);
    if (y < 0) ps_mem_free(frequencies);
    return y;
}
