/* builder.c - recording a program: parameters, values, nodes, blocks. The operators are in node_*.c. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/graph/builder.h"

ps_value ps_builder_refuse(ps_builder *b, const char *fmt, ...)
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

/* Room for one more item in an array of the program. */
#define GROW(b, array, n) failed((b), ps_mem_reserve(&(array), (size_t)(n) + 1, sizeof *(array)))

static ps_status join(const char *prefix, const char *name, const char *suffix, char **out)
{
    *out = NULL;
    const size_t bytes = strlen(prefix) + strlen(name) + strlen(suffix) + 1;
    PS_TRY(ps_mem_alloc(bytes, 1, out));
    snprintf(*out, bytes, "%s%s%s", prefix, name, suffix);
    return PS_OK;
}

int32_t ps_builder_find_param(const ps_builder *b, const char *name)
{
    return ps_name_index_find(&b->names, name);
}

/* Limits the parameters so that bytes of all lists can be counted. */
static bool is_too_much(const ps_builder *b, int64_t elements)
{
    return elements > PS_BUILDER_PARAMETERS_MAX - b->n_elements;
}

/* With adapters of the configuration, only they and what they save are trained. */
static bool freezes_by_name(const ps_builder *b, const char *parameter)
{
    return b->adapters != NULL && !ps_adapter_choice_trains(b->adapters, parameter);
}

int32_t ps_builder_add_param(ps_builder *b, const char *name, const char *suffix, int n_dims, int64_t rows,
                             int64_t cols, double mean, double std)
{
    ps_program *p = b->program;
    char *full = NULL;
    if (b->failure != PS_OK || failed(b, join(b->prefix, name, suffix, &full))) return -1;
    if (ps_builder_find_param(b, full) >= 0) {
        ps_builder_refuse(b, "parameter %s is declared twice", full);
    } else if (cols < 1 || rows < 1 || cols > PS_BUILDER_PARAMETERS_MAX / rows) {
        ps_builder_refuse(b, "parameter %s has shape [%lld, %lld]", full, (long long)rows, (long long)cols);
    } else if (is_too_much(b, rows * cols)) {
        ps_builder_refuse(b, "more than %lld parameters with %s", (long long)PS_BUILDER_PARAMETERS_MAX, full);
    } else if (!GROW(b, p->params, p->n_params) && !failed(b, ps_name_index_reserve(&b->names, p->n_params + 1))) {
        (void)ps_name_index_add(&b->names, full, p->n_params);
        b->n_elements += rows * cols;
        p->params[p->n_params++] = (ps_param){.name = full,
                                              .n_dims = n_dims,
                                              .shape = {n_dims == 2 ? rows : cols, n_dims == 2 ? cols : 1},
                                              .elements = rows * cols,
                                              .init_mean = mean,
                                              .init_std = std,
                                              .is_frozen = b->freezes || freezes_by_name(b, full),
                                              .is_left_out = freezes_by_name(b, full)};
        return p->n_params - 1;
    }
    ps_mem_free(full);
    return -1;
}

bool ps_builder_is_named(ps_builder *b, const char *call, const char *what, const char *name)
{
    if (b->failure != PS_OK) return false;
    if (name == NULL) ps_builder_refuse(b, "%s%s: %s is NULL", b->prefix, call, what);
    return name != NULL;
}

bool ps_builder_is_value(ps_builder *b, ps_value x, const char *user)
{
    if (b->failure != PS_OK) return false;
    if (x > 0 && x < b->program->n_values) return true;
    ps_builder_refuse(b, "%s%s: input %d is not a value of this model%s", b->prefix, user, (int)x,
                      x == 0 ? ": it was not set" : "");
    return false;
}

int64_t ps_builder_cols(const ps_builder *b, ps_value x)
{
    return b->program->values[x].cols;
}

bool ps_builder_is_sequence(ps_builder *b, ps_value x, const char *user)
{
    if (!ps_builder_is_value(b, x, user)) return false;
    if (b->program->values[x].rows == b->program->B * b->program->T) return true;
    ps_builder_refuse(b, "%s%s: its input has one row a sequence, not one a token", b->prefix, user);
    return false;
}

bool ps_builder_are_alike(ps_builder *b, ps_value x, ps_value y, const char *user)
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

ps_value ps_builder_add_node(ps_builder *b, const char *name, ps_node node, int64_t out_cols)
{
    ps_program *p = b->program;
    if (b->failure != PS_OK) return -1;
    if (b->ended) return ps_builder_refuse(b, "%s%s: nothing may follow the end of the model", b->prefix, name);
    if (GROW(b, p->nodes, p->n_nodes) || GROW(b, p->values, p->n_values)) return -1;
    node.segment = b->checkpoint_depth > 0 ? b->segment : -1;
    node.rows = node.inputs[0] >= 0 ? p->values[node.inputs[0]].rows : p->B * p->T;
    node.output = -1;
    if (out_cols > PS_BUILDER_VALUE_MAX / node.rows)
        return ps_builder_refuse(b, "%s%s: a result of [%lld, %lld] is more than any memory holds", b->prefix, name,
                                 (long long)node.rows, (long long)out_cols);
    if (failed(b, join(b->prefix, name, "", &node.label))) return -1;
    if (out_cols > 0) {
        const int64_t out_rows = node.type->gives_row_a_sequence ? p->B : node.rows;
        node.output = p->n_values++;
        p->values[node.output] = (ps_value_info){.rows = out_rows, .cols = out_cols, .maker = p->n_nodes};
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
    if (!(std >= 0) || isinf(std))
        ps_builder_refuse(b, "ps_set_initializer_range: %g is no standard deviation, expected a number from 0 on", std);
    b->init_std = std;
}

void ps_set_trainable(ps_builder *b, int is_trainable)
{
    b->freezes = !is_trainable;
}

void ps_begin_block(ps_builder *b, const char *name, int checkpoint)
{
    if (!PS_BUILDER_NEEDS(b, name)) return;
    const size_t used = strlen(b->prefix);
    if (used + strlen(name) + 2 > sizeof b->prefix) {
        ps_builder_refuse(b, "block name %s%s is longer than %zu characters", b->prefix, name, sizeof b->prefix - 2);
        return;
    }
    if (b->depth == PS_BUILDER_DEPTH_MAX) {
        ps_builder_refuse(b, "blocks nest deeper than %d at %s%s", PS_BUILDER_DEPTH_MAX, b->prefix, name);
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
        ps_builder_refuse(b, "ps_end_block without ps_begin_block");
        return;
    }
    if (b->checkpoint_depth == b->depth) b->checkpoint_depth = 0;
    b->prefix[b->outer_prefix[--b->depth]] = '\0';
}

/* ---- building ---- */

/* The program that the function describes. A failure without a text must not be reported with an older text. */
static ps_status describe(ps_builder *b, ps_model_func model, void *user)
{
    const unsigned n_told = ps_fail_count();
    const ps_status st = model(b, user);
    const bool has_told = ps_fail_count() != n_told; /* by ps_set_last_error, or in a call */
    if (st == PS_OK) return b->failure;
    if (has_told && ps_status_is_known(st)) return st;
    return PS_FAIL(ps_status_is_known(st) ? st : PS_EINVAL, "the model function returned %d (%s)%s%s", (int)st,
                   ps_status_text(st), has_told ? ": " : "", has_told ? ps_last_error() : "");
}

ps_status ps_program_build(ps_model_func model, void *user, const ps_adapter_choice *adapters, int64_t B, int64_t T,
                           ps_program **out)
{
    *out = NULL;
    if (B < 1 || T < 1 || B > INT32_MAX / T)
        return PS_FAIL(PS_EINVAL, "micro-batch of %lld sequences of %lld tokens", (long long)B, (long long)T);
    ps_status st = PS_OK;
    ps_program *p = NULL;
    ps_builder b = {.init_std = 0.02, .adapters = adapters};
    PS_TRY(ps_mem_alloc(1, sizeof *p, &p));
    PS_TRY_GOTO(ps_mem_reserve(&p->values, 1, sizeof *p->values));
    p->values[0] = (ps_value_info){.maker = -1};
    p->n_values = 1;
    p->B = B;
    p->T = T;
    p->n_input_tokens = p->n_types = INT64_MAX;
    b.program = p;
    PS_TRY_GOTO(describe(&b, model, user));
    if (!b.ended || b.depth != 0) {
        st =
            PS_FAIL(PS_EINVAL, "model: %s", b.ended ? "a block is not ended" : "it declares no end (ps_cross_entropy)");
        goto out;
    }
    for (int32_t v = 1; v < p->n_values; v++)
        if (p->values[v].n_readers == 0) {
            st = PS_FAIL(PS_EINVAL, "model: the result of %s is not used", p->nodes[p->values[v].maker].label);
            goto out;
        }
    *out = p;
    p = NULL;
out:
    ps_name_index_deinit(&b.names);
    ps_program_destroy(p);
    return st;
}

void ps_program_destroy(ps_program *p)
{
    if (p == NULL) return;
    for (int32_t i = 0; i < p->n_params; i++) ps_mem_free(p->params[i].name);
    for (int32_t i = 0; i < p->n_nodes; i++) {
        ps_mem_free(p->nodes[i].label);
        ps_mem_free(p->nodes[i].constants);
    }
    ps_mem_free(p->params);
    ps_mem_free(p->values);
    ps_mem_free(p->nodes);
    ps_mem_free(p);
}
