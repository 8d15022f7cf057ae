/* builder.c - the functions a model calls; each appends a node to the program. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "graph/program.h"

#define MAX_DEPTH 16

struct ps_builder {
    ps_program *program;
    ps_status failure;               /* the first; later calls do nothing */
    char prefix[256];                /* names of the open blocks, each with a dot */
    int32_t depth, checkpoint_depth; /* open blocks; depth at which the open segment began, 0: none */
    size_t outer_prefix[MAX_DEPTH];  /* length of the prefix around each open block */
    int32_t segment;
    double init_std;
    bool ended; /* the loss was declared */
};

__attribute__((format(printf, 2, 3))) static ps_value refuse(ps_builder *b, const char *fmt, ...)
{
    if (b->failure != PS_OK) return -1;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    b->failure = PS_FAIL(PS_EINVAL, "model: %s", text);
    return -1;
}

static bool failed(ps_builder *b, ps_status st)
{
    if (b->failure == PS_OK) b->failure = st;
    return b->failure != PS_OK;
}

/* Append one item to a growing array of the program. */
#define GROW(b, array, n, capacity) failed((b), grow_if_full(&(array), (n), &(capacity), sizeof *(array)))

static ps_status grow_if_full(void *array, int32_t n, int32_t *capacity, size_t item_bytes)
{
    if (n < *capacity) return PS_OK;
    const int32_t bigger = *capacity ? 2 * *capacity : 64;
    PS_TRY(ps_mem_grow(array, (size_t)n, (size_t)bigger, item_bytes));
    *capacity = bigger;
    return PS_OK;
}

static ps_status join(const char *prefix, const char *name, const char *suffix, char **out)
{
    *out = NULL;
    const size_t bytes = strlen(prefix) + strlen(name) + strlen(suffix) + 1;
    PS_TRY(ps_mem_alloc(bytes, 1, out));
    snprintf(*out, bytes, "%s%s%s", prefix, name, suffix);
    return PS_OK;
}

static int32_t find_param(const ps_program *p, const char *name)
{
    for (int32_t i = 0; i < p->n_params; i++)
        if (strcmp(p->params[i].name, name) == 0) return i;
    return -1;
}

/* n_dims 1: a vector of `cols`, rows is 1. The name is prefix + name + suffix. */
static int32_t add_param(ps_builder *b, const char *name, const char *suffix, int n_dims, int64_t rows, int64_t cols,
                         double mean, double std)
{
    ps_program *p = b->program;
    char *full = NULL;
    if (b->failure != PS_OK || failed(b, join(b->prefix, name, suffix, &full))) return -1;
    if (find_param(p, full) >= 0) {
        refuse(b, "parameter %s is declared twice", full);
    } else if (cols < 1 || rows < 1 || cols > INT64_MAX / 64 / rows) {
        refuse(b, "parameter %s has shape [%lld, %lld]", full, (long long)rows, (long long)cols);
    } else if (!GROW(b, p->params, p->n_params, p->param_capacity)) {
        p->params[p->n_params++] = (ps_param){.name = full,
                                              .n_dims = n_dims,
                                              .shape = {n_dims == 2 ? rows : cols, n_dims == 2 ? cols : 1},
                                              .elements = rows * cols,
                                              .init_mean = mean,
                                              .init_std = std};
        return p->n_params - 1;
    }
    ps_mem_free(full);
    return -1;
}

static bool is_value(ps_builder *b, ps_value x, const char *user)
{
    if (b->failure != PS_OK) return false;
    if (x >= 0 && x < b->program->n_values) return true;
    refuse(b, "%s%s: input %d is not a value of this model", b->prefix, user, (int)x);
    return false;
}

static int64_t cols_of(const ps_builder *b, ps_value x)
{
    return b->program->values[x].cols;
}

/* Append the node; its output has n_out columns (0: no output). Returns the output. */
static ps_value add_node(ps_builder *b, const char *name, ps_node node, int64_t out_cols)
{
    ps_program *p = b->program;
    if (b->failure != PS_OK) return -1;
    if (b->ended) return refuse(b, "%s%s: nothing may follow the loss", b->prefix, name);
    if (GROW(b, p->nodes, p->n_nodes, p->node_capacity) || GROW(b, p->values, p->n_values, p->value_capacity))
        return -1;
    if (failed(b, join(b->prefix, name, "", &node.label))) return -1;
    node.segment = b->checkpoint_depth > 0 ? b->segment : -1;
    node.output = -1;
    if (out_cols > 0) {
        node.output = p->n_values++;
        p->values[node.output] = (ps_value_info){.cols = out_cols, .maker = p->n_nodes};
    }
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        if (node.inputs[i] >= 0) p->values[node.inputs[i]].n_readers++;
    p->nodes[p->n_nodes++] = node;
    return node.output;
}

/* ---- public functions ---- */

int64_t ps_builder_batch_size(const ps_builder *b)
{
    return b->program->B;
}

int64_t ps_builder_sequence_length(const ps_builder *b)
{
    return b->program->T;
}

void ps_set_initializer_range(ps_builder *b, double std)
{
    b->init_std = std;
}

void ps_begin_block(ps_builder *b, const char *name, int checkpoint)
{
    const size_t used = strlen(b->prefix);
    if (used + strlen(name) + 2 > sizeof b->prefix) {
        refuse(b, "block name %s%s is longer than %zu characters", b->prefix, name, sizeof b->prefix - 2);
        return;
    }
    if (b->depth == MAX_DEPTH) {
        refuse(b, "blocks nest deeper than %d at %s%s", MAX_DEPTH, b->prefix, name);
        return;
    }
    snprintf(b->prefix + used, sizeof b->prefix - used, "%s.", name);
    b->outer_prefix[b->depth++] = used;
    if (checkpoint && b->checkpoint_depth == 0) {
        b->checkpoint_depth = b->depth;
        b->segment = b->program->n_segments++;
    }
}

void ps_end_block(ps_builder *b)
{
    if (b->depth == 0) {
        refuse(b, "ps_end_block without ps_begin_block");
        return;
    }
    if (b->checkpoint_depth == b->depth) b->checkpoint_depth = 0;
    b->prefix[b->outer_prefix[--b->depth]] = '\0';
}

ps_value ps_token_embedding(ps_builder *b, const char *name, int64_t n_tokens, int64_t columns)
{
    const int32_t w = add_param(b, name, ".weight", 2, n_tokens, columns, 0, b->init_std);
    b->program->n_input_tokens = ps_min_i64(b->program->n_input_tokens, n_tokens);
    return add_node(b, name,
                    (ps_node){.type = &ps_node_token_embedding,
                              .inputs = {-1, -1},
                              .params = {w, -1},
                              .n_out = columns,
                              .attr.table.n = n_tokens},
                    columns);
}

ps_value ps_position_embedding(ps_builder *b, ps_value x, const char *name, int64_t n_positions)
{
    if (!is_value(b, x, name)) return -1;
    if (n_positions < b->program->T)
        return refuse(b, "%s%s has %lld positions, but sequences have %lld tokens", b->prefix, name,
                      (long long)n_positions, (long long)b->program->T);
    const int64_t cols = cols_of(b, x);
    const int32_t w = add_param(b, name, ".weight", 2, n_positions, cols, 0, b->init_std);
    return add_node(b, name,
                    (ps_node){.type = &ps_node_position_embedding,
                              .inputs = {x, -1},
                              .params = {w, -1},
                              .n_in = cols,
                              .n_out = cols,
                              .attr.table.n = n_positions},
                    cols);
}

ps_value ps_layer_norm(ps_builder *b, ps_value x, const char *name, float eps)
{
    if (!is_value(b, x, name)) return -1;
    const int64_t cols = cols_of(b, x);
    const int32_t w = add_param(b, name, ".weight", 1, 1, cols, 1, 0);
    const int32_t bias = add_param(b, name, ".bias", 1, 1, cols, 0, 0);
    return add_node(b, name,
                    (ps_node){.type = &ps_node_layer_norm,
                              .inputs = {x, -1},
                              .params = {w, bias},
                              .n_in = cols,
                              .n_out = cols,
                              .attr.layer_norm.eps = eps},
                    cols);
}

static ps_value add_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias,
                           ps_weight_layout layout)
{
    if (!is_value(b, x, name)) return -1;
    const int64_t n_in = cols_of(b, x);
    const bool out_in = layout == PS_WEIGHT_OUT_IN;
    const int32_t w = add_param(b, name, ".weight", 2, out_in ? n_out : n_in, out_in ? n_in : n_out, 0, b->init_std);
    const int32_t bias = has_bias ? add_param(b, name, ".bias", 1, 1, n_out, 0, 0) : -1;
    return add_node(b, name,
                    (ps_node){.type = &ps_node_linear,
                              .inputs = {x, -1},
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
    if (!is_value(b, x, "gelu")) return -1;
    const int64_t cols = cols_of(b, x);
    return add_node(b, "gelu",
                    (ps_node){.type = &ps_node_gelu,
                              .inputs = {x, -1},
                              .params = {-1, -1},
                              .n_in = cols,
                              .n_out = cols,
                              .attr.gelu.kind = kind == PS_ACTIVATION_GELU_ERF ? PS_GELU_ERF : PS_GELU_TANH},
                    cols);
}

ps_value ps_add(ps_builder *b, ps_value x, ps_value y)
{
    if (!is_value(b, x, "add") || !is_value(b, y, "add")) return -1;
    if (cols_of(b, x) != cols_of(b, y))
        return refuse(b, "%sadd: %lld and %lld columns", b->prefix, (long long)cols_of(b, x), (long long)cols_of(b, y));
    if (x == y) return refuse(b, "%sadd: both inputs are value %d", b->prefix, (int)x);
    return add_node(
        b, "add",
        (ps_node){
            .type = &ps_node_add, .inputs = {x, y}, .params = {-1, -1}, .n_in = cols_of(b, x), .n_out = cols_of(b, x)},
        cols_of(b, x));
}

ps_value ps_dropout(ps_builder *b, ps_value x, float p)
{
    if (!is_value(b, x, "dropout")) return -1;
    if (!(p >= 0 && p < 1)) return refuse(b, "%sdropout: probability %g is not in [0, 1)", b->prefix, (double)p);
    if (p == 0) return x;
    const int64_t cols = cols_of(b, x);
    return add_node(b, "dropout",
                    (ps_node){.type = &ps_node_dropout,
                              .inputs = {x, -1},
                              .params = {-1, -1},
                              .n_in = cols,
                              .n_out = cols,
                              .attr.dropout.p = p},
                    cols);
}

ps_value ps_attention(ps_builder *b, ps_value qkv, int64_t n_heads, int causal, float dropout_p)
{
    if (!is_value(b, qkv, "attention")) return -1;
    const int64_t cols = cols_of(b, qkv);
    if (n_heads < 1 || cols % (3 * n_heads) != 0)
        return refuse(b, "%sattention: %lld columns cannot be split into q, k, v of %lld heads", b->prefix,
                      (long long)cols, (long long)n_heads);
    if (!(dropout_p >= 0 && dropout_p < 1))
        return refuse(b, "%sattention: dropout probability %g is not in [0, 1)", b->prefix, (double)dropout_p);
    return add_node(b, "attention",
                    (ps_node){.type = &ps_node_attention,
                              .inputs = {qkv, -1},
                              .params = {-1, -1},
                              .n_in = cols,
                              .n_out = cols / 3,
                              .attr.attention = {.n_heads = n_heads, .causal = causal != 0, .dropout_p = dropout_p}},
                    cols / 3);
}

void ps_lm_loss(ps_builder *b, ps_value x, const char *weight, int64_t n_tokens)
{
    if (!is_value(b, x, weight)) return;
    ps_program *p = b->program;
    const int64_t cols = cols_of(b, x);
    int32_t w = find_param(p, weight);
    if (w < 0) w = add_param(b, weight, "", 2, n_tokens, cols, 0, b->init_std);
    if (w >= 0 && (p->params[w].shape[0] != n_tokens || p->params[w].shape[1] != cols)) {
        refuse(b, "loss: weight %s is [%lld, %lld], wanted [%lld, %lld]", weight, (long long)p->params[w].shape[0],
               (long long)p->params[w].shape[1], (long long)n_tokens, (long long)cols);
        return;
    }
    add_node(
        b, "lm_loss",
        (ps_node){
            .type = &ps_node_lm_loss, .inputs = {x, -1}, .params = {w, -1}, .n_in = cols, .attr.table.n = n_tokens},
        0);
    p->n_tokens = n_tokens;
    b->ended = true;
}

/* ---- building ---- */

ps_status ps_program_build(ps_model_func model, void *user, int64_t B, int64_t T, ps_program **out)
{
    *out = NULL;
    if (B < 1 || T < 1 || B > INT32_MAX / T)
        return PS_FAIL(PS_EINVAL, "micro-batch of %lld sequences of %lld tokens", (long long)B, (long long)T);
    ps_status st = PS_OK;
    ps_program *p = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *p, &p));
    p->B = B;
    p->T = T;
    p->n_input_tokens = INT64_MAX;
    ps_builder b = {.program = p, .init_std = 0.02};
    PS_TRY_GOTO(model(&b, user));
    PS_TRY_GOTO(b.failure);
    if (!b.ended || b.depth != 0) {
        st = PS_FAIL(PS_EINVAL, "model: %s", b.ended ? "a block is not ended" : "it declares no loss (ps_lm_loss)");
        goto out;
    }
    for (int32_t v = 0; v < p->n_values; v++)
        if (p->values[v].n_readers == 0) {
            st = PS_FAIL(PS_EINVAL, "model: nobody uses the result of %s", p->nodes[p->values[v].maker].label);
            goto out;
        }
    *out = p;
    p = NULL;
out:
    ps_program_destroy(p);
    return st;
}

void ps_program_destroy(ps_program *p)
{
    if (p == NULL) return;
    for (int32_t i = 0; i < p->n_params; i++) ps_mem_free(p->params[i].name);
    for (int32_t i = 0; i < p->n_nodes; i++) ps_mem_free(p->nodes[i].label);
    ps_mem_free(p->params);
    ps_mem_free(p->values);
    ps_mem_free(p->nodes);
    ps_mem_free(p);
}
