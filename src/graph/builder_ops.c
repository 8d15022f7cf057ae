/* builder_ops.c - the operators that a model calls; each appends a node to the program. */
#include <math.h>

#include "base/mem.h"
#include "graph/builder.h"
#include "graph/rope_scaling.h"

static int64_t cols_of(const ps_builder *b, ps_value x)
{
    return b->program->values[x].cols;
}

/* A value with a row for every token, not one a sequence. */
static bool is_sequence(ps_builder *b, ps_value x, const char *user)
{
    if (!ps_builder_is_value(b, x, user)) return false;
    if (b->program->values[x].rows == b->program->B * b->program->T) return true;
    ps_builder_refuse(b, "%s%s: its input has one row a sequence, not one a token", b->prefix, user);
    return false;
}

/* Two different values of equal shape. */
static bool are_alike(ps_builder *b, ps_value x, ps_value y, const char *user)
{
    if (!ps_builder_is_value(b, x, user) || !ps_builder_is_value(b, y, user)) return false;
    const ps_value_info *v = &b->program->values[x], *w = &b->program->values[y];
    if (x == y)
        ps_builder_refuse(b, "%s%s: both inputs are value %d", b->prefix, user, (int)x);
    else if (v->cols != w->cols)
        ps_builder_refuse(b, "%s%s: %lld and %lld columns", b->prefix, user, (long long)v->cols, (long long)w->cols);
    else if (v->rows != w->rows)
        ps_builder_refuse(b, "%s%s: %lld and %lld rows", b->prefix, user, (long long)v->rows, (long long)w->rows);
    else
        return true;
    return false;
}

static ps_value add_embedding(ps_builder *b, const char *name, int64_t n, int64_t columns, ps_batch_array ids)
{
    const int32_t w = ps_builder_add_param(b, name, ".weight", 2, n, columns, 0, b->init_std);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &ps_node_token_embedding,
                                         .inputs = {-1, -1, -1},
                                         .params = {w, -1},
                                         .reads_batch = 1u << ids,
                                         .n_out = columns,
                                         .attr.table = {.n = n, .ids = ids}},
                               columns);
}

ps_value ps_token_embedding(ps_builder *b, const char *name, int64_t n_tokens, int64_t columns)
{
    b->program->n_input_tokens = ps_min_i64(b->program->n_input_tokens, n_tokens);
    return add_embedding(b, name, n_tokens, columns, PS_BATCH_TOKENS);
}

ps_value ps_token_type_embedding(ps_builder *b, const char *name, int64_t n_types, int64_t columns)
{
    b->program->n_types = ps_min_i64(b->program->n_types, n_types);
    return add_embedding(b, name, n_types, columns, PS_BATCH_TOKEN_TYPES);
}

ps_value ps_position_embedding(ps_builder *b, ps_value x, const char *name, int64_t n_positions)
{
    if (!is_sequence(b, x, name)) return -1;
    if (n_positions < b->program->T)
        return ps_builder_refuse(b, "%s%s has %lld positions, but sequences have %lld tokens", b->prefix, name,
                                 (long long)n_positions, (long long)b->program->T);
    const int64_t cols = cols_of(b, x);
    const int32_t w = ps_builder_add_param(b, name, ".weight", 2, n_positions, cols, 0, b->init_std);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &ps_node_position_embedding,
                                         .inputs = {x, -1, -1},
                                         .params = {w, -1},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.table.n = n_positions},
                               cols);
}

ps_value ps_layer_norm(ps_builder *b, ps_value x, const char *name, float eps)
{
    if (!ps_builder_is_value(b, x, name)) return -1;
    const int64_t cols = cols_of(b, x);
    const int32_t w = ps_builder_add_param(b, name, ".weight", 1, 1, cols, 1, 0);
    const int32_t bias = ps_builder_add_param(b, name, ".bias", 1, 1, cols, 0, 0);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &ps_node_layer_norm,
                                         .inputs = {x, -1, -1},
                                         .params = {w, bias},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.norm = {.eps = eps, .group = cols}},
                               cols);
}

ps_value ps_rms_norm(ps_builder *b, ps_value x, const char *name, int64_t group, float eps)
{
    if (!ps_builder_is_value(b, x, name)) return -1;
    const int64_t cols = cols_of(b, x);
    if (group == 0) group = cols;
    if (group < 1 || cols % group != 0)
        return ps_builder_refuse(b, "%s%s: %lld columns cannot be split into groups of %lld", b->prefix, name,
                                 (long long)cols, (long long)group);
    const int32_t w = ps_builder_add_param(b, name, ".weight", 1, 1, group, 1, 0);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &ps_node_rms_norm,
                                         .inputs = {x, -1, -1},
                                         .params = {w, -1},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.norm = {.eps = eps, .group = group}},
                               cols);
}

static ps_value add_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias,
                           ps_weight_layout layout)
{
    if (!ps_builder_is_value(b, x, name)) return -1;
    const int64_t n_in = cols_of(b, x);
    const bool out_in = layout == PS_WEIGHT_OUT_IN;
    const int32_t w =
        ps_builder_add_param(b, name, ".weight", 2, out_in ? n_out : n_in, out_in ? n_in : n_out, 0, b->init_std);
    const int32_t bias = has_bias ? ps_builder_add_param(b, name, ".bias", 1, 1, n_out, 0, 0) : -1;
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &ps_node_linear,
                                         .inputs = {x, -1, -1},
                                         .params = {w, bias},
                                         .n_in = n_in,
                                         .n_out = n_out,
                                         .attr.linear.layout = layout},
                               n_out);
}

ps_value ps_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias)
{
    return add_linear(b, x, name, n_out, has_bias, PS_WEIGHT_OUT_IN);
}

ps_value ps_conv1d(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias)
{
    return add_linear(b, x, name, n_out, has_bias, PS_WEIGHT_IN_OUT);
}

ps_value ps_gelu(ps_builder *b, ps_value x, ps_activation kind)
{
    if (!ps_builder_is_value(b, x, "gelu")) return -1;
    const int64_t cols = cols_of(b, x);
    return ps_builder_add_node(b, "gelu",
                               (ps_node){.type = &ps_node_gelu,
                                         .inputs = {x, -1, -1},
                                         .params = {-1, -1},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.gelu.kind = kind == PS_ACTIVATION_GELU_ERF ? PS_GELU_ERF : PS_GELU_TANH},
                               cols);
}

ps_value ps_swiglu(ps_builder *b, ps_value gate, ps_value up)
{
    if (!are_alike(b, gate, up, "swiglu")) return -1;
    const int64_t cols = cols_of(b, gate);
    return ps_builder_add_node(
        b, "swiglu",
        (ps_node){.type = &ps_node_swiglu, .inputs = {gate, up, -1}, .params = {-1, -1}, .n_in = cols, .n_out = cols},
        cols);
}

ps_value ps_tanh(ps_builder *b, ps_value x)
{
    if (!ps_builder_is_value(b, x, "tanh")) return -1;
    const int64_t cols = cols_of(b, x);
    return ps_builder_add_node(
        b, "tanh",
        (ps_node){.type = &ps_node_tanh, .inputs = {x, -1, -1}, .params = {-1, -1}, .n_in = cols, .n_out = cols}, cols);
}

ps_value ps_add(ps_builder *b, ps_value x, ps_value y)
{
    if (!are_alike(b, x, y, "add")) return -1;
    const int64_t cols = cols_of(b, x);
    return ps_builder_add_node(
        b, "add",
        (ps_node){.type = &ps_node_add, .inputs = {x, y, -1}, .params = {-1, -1}, .n_in = cols, .n_out = cols}, cols);
}

ps_value ps_dropout(ps_builder *b, ps_value x, float p)
{
    if (!ps_builder_is_value(b, x, "dropout")) return -1;
    if (!(p >= 0 && p < 1))
        return ps_builder_refuse(b, "%sdropout: probability %g is not in [0, 1)", b->prefix, (double)p);
    if (p == 0) return x;
    const int64_t cols = cols_of(b, x);
    return ps_builder_add_node(b, "dropout",
                               (ps_node){.type = &ps_node_dropout,
                                         .inputs = {x, -1, -1},
                                         .params = {-1, -1},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.dropout.p = p},
                               cols);
}

ps_value ps_rotary_embedding(ps_builder *b, ps_value x, int64_t head_size, const ps_rope *options)
{
    if (!is_sequence(b, x, "rope")) return -1;
    const int64_t cols = cols_of(b, x);
    if (head_size < 2 || head_size % 2 != 0 || cols % head_size != 0)
        return ps_builder_refuse(b, "%srope: %lld columns cannot be split into heads of an even size %lld", b->prefix,
                                 (long long)cols, (long long)head_size);
    if (!ps_rope_is_sane(options))
        return ps_builder_refuse(
            b,
            "%srope: theta %g, factor %g, low_freq_factor %g, high_freq_factor %g, beta_slow %g, "
            "beta_fast %g, original_positions %lld: what the scaling uses must be above 0, and low below high",
            b->prefix, options->theta, options->factor, options->low_freq_factor, options->high_freq_factor,
            options->beta_slow, options->beta_fast, (long long)options->original_positions);
    float *frequencies = NULL;
    const ps_status st = ps_mem_alloc((size_t)(head_size / 2), sizeof *frequencies, &frequencies);
    if (st != PS_OK) {
        b->failure = st;
        return -1;
    }
    ps_rope_frequencies(options, head_size, frequencies);
    const ps_value y = ps_builder_add_node(b, "rope",
                                           (ps_node){.type = &ps_node_rope,
                                                     .inputs = {x, -1, -1},
                                                     .params = {-1, -1},
                                                     .constants = frequencies,
                                                     .n_in = cols,
                                                     .n_out = cols,
                                                     .attr.rope = {.D = head_size, .scale = ps_rope_scale(options)}},
                                           cols);
    if (y < 0) ps_mem_free(frequencies);
    return y;
}

static ps_value add_attention(ps_builder *b, const ps_value inputs[PS_NODE_INPUTS], int64_t n_in, int64_t D,
                              const ps_attention_options *o, bool packed)
{
    if (!(o->dropout_p >= 0 && o->dropout_p < 1))
        return ps_builder_refuse(b, "%sattention: dropout probability %g is not in [0, 1)", b->prefix,
                                 (double)o->dropout_p);
    if (o->window < 0)
        return ps_builder_refuse(b, "%sattention: a window of %lld keys", b->prefix, (long long)o->window);
    return ps_builder_add_node(b, "attention",
                               (ps_node){.type = &ps_node_attention,
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
    if (!is_sequence(b, qkv, "attention")) return -1;
    const int64_t cols = cols_of(b, qkv);
    if (n_heads < 1 || cols % (3 * n_heads) != 0)
        return ps_builder_refuse(b, "%sattention: %lld columns cannot be split into q, k, v of %lld heads", b->prefix,
                                 (long long)cols, (long long)n_heads);
    const ps_value inputs[PS_NODE_INPUTS] = {qkv, -1, -1};
    const ps_attention_options o = {
        .n_heads = n_heads, .n_kv_heads = n_heads, .causal = causal, .dropout_p = dropout_p};
    return add_attention(b, inputs, cols, cols / 3 / n_heads, &o, true);
}

ps_value ps_grouped_attention(ps_builder *b, ps_value q, ps_value k, ps_value v, const ps_attention_options *o)
{
    if (!is_sequence(b, q, "attention") || !is_sequence(b, k, "attention") || !is_sequence(b, v, "attention"))
        return -1;
    if (q == k || q == v || k == v)
        return ps_builder_refuse(b, "%sattention: two of q, k, v are the same value", b->prefix);
    const int64_t H = o->n_heads, KV = o->n_kv_heads, cols = cols_of(b, q);
    if (H < 1 || KV < 1 || H % KV != 0 || cols % H != 0 || cols_of(b, k) != cols / H * KV ||
        cols_of(b, v) != cols_of(b, k))
        return ps_builder_refuse(b,
                                 "%sattention: q, k, v of %lld, %lld and %lld columns do not fit %lld heads of queries "
                                 "and %lld of keys and values",
                                 b->prefix, (long long)cols, (long long)cols_of(b, k), (long long)cols_of(b, v),
                                 (long long)H, (long long)KV);
    const ps_value inputs[PS_NODE_INPUTS] = {q, k, v};
    return add_attention(b, inputs, cols, cols / H, o, false);
}

ps_value ps_pool(ps_builder *b, ps_value x, ps_pooling kind)
{
    if (!is_sequence(b, x, "pool")) return -1;
    const int64_t cols = cols_of(b, x);
    return ps_builder_add_node(b, "pool",
                               (ps_node){.type = &ps_node_pool,
                                         .inputs = {x, -1, -1},
                                         .params = {-1, -1},
                                         .reads_batch = 1u << PS_BATCH_MASK,
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.pool.kind = kind == PS_POOLING_LAST ? PS_POOL_LAST : PS_POOL_FIRST},
                               cols);
}

/* The parameter `name` if it is declared, else a new one; -1 when its shape is another. */
static int32_t find_or_add(ps_builder *b, const char *name, int n_dims, int64_t rows, int64_t cols, double std)
{
    ps_program *p = b->program;
    const int32_t w = ps_builder_find_param(p, name);
    if (w < 0) return ps_builder_add_param(b, name, "", n_dims, rows, cols, 0, std);
    const int64_t *have = p->params[w].shape;
    const bool same = p->params[w].n_dims == n_dims && p->params[w].elements == rows * cols &&
                      (n_dims == 1 || (have[0] == rows && have[1] == cols));
    if (same) return w;
    return ps_builder_refuse(b, "loss: weight %s is [%lld, %lld], wanted [%lld, %lld]", name, (long long)have[0],
                             (long long)have[1], (long long)rows, (long long)cols);
}

void ps_cross_entropy(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n_classes)
{
    if (!ps_builder_is_value(b, x, weight)) return;
    ps_program *p = b->program;
    const int64_t cols = cols_of(b, x), rows = p->values[x].rows;
    const int32_t w = find_or_add(b, weight, 2, n_classes, cols, b->init_std);
    const int32_t bias_param = bias == NULL ? -1 : find_or_add(b, bias, 1, 1, n_classes, 0);
    ps_builder_add_node(b, "loss",
                        (ps_node){.type = &ps_node_loss,
                                  .inputs = {x, -1, -1},
                                  .params = {w, bias_param},
                                  .reads_batch = 1u << PS_BATCH_TARGETS,
                                  .n_in = cols,
                                  .attr.table = {.n = n_classes, .ids = PS_BATCH_TARGETS}},
                        0);
    p->has_loss = true;
    p->n_outputs = n_classes;
    p->n_targets = rows;
    b->ended = true;
}

void ps_lm_loss(ps_builder *b, ps_value x, const char *weight, int64_t n_tokens)
{
    ps_cross_entropy(b, x, weight, NULL, n_tokens);
}

void ps_hidden_states(ps_builder *b, ps_value x)
{
    if (!ps_builder_is_value(b, x, "hidden_states")) return;
    ps_program *p = b->program;
    p->n_outputs = cols_of(b, x);
    ps_builder_add_node(
        b, "hidden_states",
        (ps_node){.type = &ps_node_hidden_states, .inputs = {x, -1, -1}, .params = {-1, -1}, .n_in = cols_of(b, x)}, 0);
    b->ended = true;
}
