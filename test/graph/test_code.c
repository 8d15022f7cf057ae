/* Programs and their code: builder errors, lives of buffers, recomputation, gradients of graphs whose values have many
 * readers. */
#include "engine/engine_fixture.h"

#include <math.h>

#include "kernel/backend.h"
#include "random_graph.h"
#include "train/graph/code.h"

enum { V = 13, T = 4, C = 6, B = 2 };

/* ---- models ---- */

static ps_value block(ps_builder *b, ps_value x, const char *name, int checkpoint)
{
    ps_begin_block(b, name, checkpoint);
    ps_value h = ps_layer_norm(b, x, "ln_1", 1e-5f);
    h = ps_linear(b, h, "qkv", 3 * C, 1);
    h = ps_attention(b, h, 2, 1, 0);
    h = ps_conv1d(b, h, "proj", C, 1);
    x = ps_add(b, x, h);
    h = ps_layer_norm(b, x, "ln_2", 1e-5f);
    h = ps_linear(b, h, "fc", 2 * C, 0);
    h = ps_gelu(b, h, PS_ACTIVATION_GELU_ERF);
    h = ps_linear(b, h, "out", C, 1);
    x = ps_add(b, h, x); /* the residual second */
    ps_end_block(b);
    return x;
}

static ps_status model_blocks(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    ps_value x = ps_token_embedding(b, "wte", V, C);
    x = ps_position_embedding(b, x, "wpe", T + 1);
    x = block(b, x, "a", 1);
    x = ps_gelu(b, x, PS_ACTIVATION_GELU_TANH); /* between two segments */
    x = block(b, x, "b", 1);
    x = ps_layer_norm(b, x, "ln_f", 1e-5f);
    ps_cross_entropy(b, x, "wte.weight", NULL, V, NULL);
    return PS_OK;
}

/* A value read three times, and added to something twice. */
static ps_status model_thrice(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    const ps_value x = ps_token_embedding(b, "wte", V, C);
    const ps_value p = ps_linear(b, x, "p", C, 1), q = ps_conv1d(b, x, "q", C, 1);
    const ps_value r = ps_gelu(b, x, PS_ACTIVATION_GELU_TANH);
    ps_value y = ps_add(b, ps_add(b, p, q), r);
    y = ps_add(b, y, p);
    y = ps_add(b, x, y);
    ps_cross_entropy(b, y, "head", NULL, V, NULL);
    return PS_OK;
}

/* One reads a product alone, so its result overwrites it; one reads a value that others read; one is run again. */
static ps_status model_relu(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    const ps_value x = ps_token_embedding(b, "wte", V, C), p = ps_linear(b, x, "p", C, 1);
    ps_begin_block(b, "a", 1);
    const ps_value q = ps_relu(b, ps_linear(b, p, "q", 2 * C, 1));
    const ps_value y = ps_add(b, ps_linear(b, q, "r", C, 0), ps_relu(b, p));
    ps_end_block(b);
    ps_cross_entropy(b, ps_relu(b, y), "head", NULL, V, NULL);
    return PS_OK;
}

/* Sums of sums: gradients that several values share, the first input of an add among them. */
static ps_status model_diamond(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    const ps_value x = ps_token_embedding(b, "wte", V, C);
    const ps_value v = ps_linear(b, x, "v", C, 0), w = ps_linear(b, x, "w", C, 0), k = ps_linear(b, x, "k", C, 0);
    const ps_value u = ps_add(b, v, k);
    const ps_value n = ps_layer_norm(b, u, "n", 1e-5f);
    const ps_value z = ps_add(b, v, w);
    ps_cross_entropy(b, ps_add(b, n, z), "head", NULL, V, NULL);
    return PS_OK;
}

static ps_status model_diamond_swapped(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    const ps_value x = ps_token_embedding(b, "wte", V, C);
    const ps_value v = ps_linear(b, x, "v", C, 0), w = ps_linear(b, x, "w", C, 0), k = ps_linear(b, x, "k", C, 0);
    const ps_value u = ps_add(b, k, v);
    const ps_value g = ps_gelu(b, u, PS_ACTIVATION_GELU_ERF);
    const ps_value z = ps_add(b, w, v);
    ps_cross_entropy(b, ps_add(b, z, g), "head", NULL, V, NULL);
    return PS_OK;
}

/* Position embeddings pass gradients on as adds do: x, x + p and x + p + q meet again. */
static ps_status model_positions(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    const ps_value x = ps_token_embedding(b, "wte", V, C);
    const ps_value p = ps_position_embedding(b, x, "p", T), q = ps_position_embedding(b, p, "q", T);
    const ps_value l = ps_layer_norm(b, ps_add(b, q, x), "l", 1e-5f);
    const ps_value e = ps_token_embedding(b, "second", V, C);
    ps_cross_entropy(b, ps_add(b, ps_add(b, p, l), ps_add(b, e, x)), "second.weight", NULL, V, NULL);
    return PS_OK;
}

/* After a block, each of the other ends. */
typedef enum other_end {
    END_SQUARED,
    END_LOGISTIC,
    END_SPAN,
    END_TERMS, /* cross-entropy with weights, smoothing and z-loss */
    END_COUNT,
} other_end;

static ps_status model_end(ps_builder *b, void *user)
{
    const other_end *end = user;
    ps_set_initializer_range(b, 0.3);
    ps_value x = block(b, ps_token_embedding(b, "wte", V, C), "a", 1);
    float weights[V];
    for (int i = 0; i < V; i++) weights[i] = (float)(1 + i % 3) / 2;
    const ps_cross_entropy_options options = {
        .struct_size = sizeof options, .class_weights = weights, .label_smoothing = 0.2f, .z_loss = 0.05f};
    switch (*end) {
    case END_SQUARED: ps_mse_loss(b, ps_pool(b, x, PS_POOLING_LAST), "score", NULL, 1); break;
    case END_LOGISTIC: ps_bce_with_logits_loss(b, x, "score", "bias", 3); break;
    case END_SPAN: ps_span_loss(b, x, "qa", "bias"); break;
    case END_TERMS: ps_cross_entropy(b, x, "wte.weight", "bias", V, &options); break;
    case END_COUNT: break;
    }
    return PS_OK;
}

static random_graph graph_of(uint32_t seed)
{
    return (random_graph){seed, "lcngp+++", .V = V, .T = T, .C = C};
}

/* ---- gradients against finite differences of the whole loss ---- */

static void gradient_config(ps_config **c, const char *const *changes)
{
    /* micro_batches: gradients are those of the mean over the targets that take part, nothing else divided by */
    *c = TINY("train.threads=1", "train.backend=ref", "gradient_clipping=0", "model.n_positions=4",
              "train.loss_average=micro_batches");
    for (; *changes != NULL; changes += 2) assert_ok(ps_config_set(*c, changes[0], changes[1]));
    assert_ok(ps_config_validate(*c));
}

static void check_gradients(ps_model_func model, void *user, const char *const *changes)
{
    ps_config *c = NULL;
    gradient_config(&c, changes);
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(model, user, 0, c, &e));
    int64_t b, t;
    ps_engine_get_shape(e, &b, &t, NULL, NULL);
    int32_t tokens[64], targets[64];
    float values[64];
    assert_true(b * t <= 64 && e->program->n_targets <= 64);
    fill_batch(tokens, targets, b, t, V, 5);
    targets[1] = -100;
    const bool is_plain = e->program->n_outputs == V;
    const ps_batch batch = is_plain ? (ps_batch){.struct_size = sizeof batch, .tokens = tokens, .targets = targets}
                                    : batch_for(e, tokens, targets, values);
    float *grads[128];
    assert_ok(ps_forward(e, &batch, NULL));
    assert_ok(ps_backward(e));
    const int64_t n_tensors = ps_engine_get_tensor_count(e);
    assert_true(n_tensors <= 128);
    for (int64_t i = 0; i < n_tensors; i++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        assert_ok(get_tensor(e, i, &name, &n_dims, shape));
        const int64_t n = shape[0] * (n_dims == 2 ? shape[1] : 1);
        grads[i] = calloc((size_t)n, sizeof(float));
        assert_ok(ps_engine_read_gradient(e, i, 0, n, grads[i]));
    }
    ps_engine_destroy(e);
    /* a fresh engine has the same parameters */
    assert_ok(ps_initialize_engine(model, user, 0, c, &e));
    for (int64_t i = 0; i < n_tensors; i++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        assert_ok(get_tensor(e, i, &name, &n_dims, shape));
        const int64_t n = shape[0] * (n_dims == 2 ? shape[1] : 1);
        for (int64_t k = 0; k < n; k += 1 + n / 5) {
            float was, loss[2];
            const float h = 0.0005f; /* relu has a corner: a small step crosses none here */
            assert_ok(ps_engine_read_tensor(e, i, k, 1, &was));
            for (int side = 0; side < 2; side++) {
                const float moved = was + (side ? -h : h);
                assert_ok(ps_engine_write_tensor(e, i, k, 1, &moved));
                assert_ok(ps_evaluate(e, &batch, &loss[side]));
            }
            assert_ok(ps_engine_write_tensor(e, i, k, 1, &was));
            const float slope = (loss[0] - loss[1]) / (2 * h);
            const float tolerance = 2e-3f + 0.02f * fabsf(slope);
            if (!(fabsf(slope - grads[i][k]) <= tolerance))
                fail_msg("%s[%lld]: gradient %g, loss says %g", name, (long long)k, (double)grads[i][k], (double)slope);
        }
        free(grads[i]);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static const char *const plain[] = {NULL};
static const char *const checkpointed[] = {"activation_checkpointing.enabled", "true", NULL};
static const char *const offloaded[] = {"activation_checkpointing.enabled", "true",
                                        "client.opts.with_activation_offload", "true", NULL};
static const char *const one_segment[] = {"activation_checkpointing.enabled", "true",
                                          "activation_checkpointing.number_checkpoints", "1", NULL};

static void test_gradients(void **state)
{
    (void)state;
    check_gradients(model_blocks, NULL, plain);
    check_gradients(model_blocks, NULL, checkpointed);
    check_gradients(model_blocks, NULL, one_segment);
    check_gradients(model_blocks, NULL, offloaded);
    check_gradients(model_diamond, NULL, offloaded);
    check_gradients(model_relu, NULL, offloaded);
    check_gradients(model_thrice, NULL, plain);
    check_gradients(model_positions, NULL, plain);
    check_gradients(model_relu, NULL, plain);
    check_gradients(model_relu, NULL, checkpointed);
}

static void test_gradients_of_ends(void **state)
{
    (void)state;
    for (other_end end = 0; end < END_COUNT; end++) {
        check_gradients(model_end, &end, plain);
        check_gradients(model_end, &end, checkpointed);
    }
}

/* Whose size is that of no version. */
static ps_status model_small_options(ps_builder *b, void *user)
{
    (void)user;
    const ps_cross_entropy_options options = {.struct_size = offsetof(ps_cross_entropy_options, z_loss)};
    ps_cross_entropy(b, ps_token_embedding(b, "wte", V, C), "wte.weight", NULL, V, &options);
    return PS_OK;
}

static void test_size_of_options(void **state)
{
    (void)state;
    ps_program *p = NULL;
    assert_int_equal(ps_program_build(model_small_options, NULL, NULL, B, T, &p), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "ps_cross_entropy_options"));
}

static void test_gradients_shared(void **state)
{
    (void)state;
    check_gradients(model_diamond, NULL, plain);
    check_gradients(model_diamond_swapped, NULL, plain);
}

static void test_gradients_random(void **state)
{
    (void)state;
    static const char *const *const ways[] = {plain, checkpointed, one_segment, offloaded};
    for (uint32_t seed = 0; seed < 200; seed++) {
        random_graph graph = graph_of(seed);
        check_gradients(model_random, &graph, ways[seed % PS_ARRAY_LEN(ways)]);
    }
}

/* ---- code ---- */

enum { PLAIN, CHECKPOINTS, OFFLOADS, WAYS };

static ps_code *code_of(ps_model_func model, void *user, int way, int32_t n_checkpoints, ps_program **program)
{
    ps_backend *backend;
    ps_code *p = NULL;
    assert_ok(ps_backend_create_ref(&backend));
    const ps_code_options o = {.backend = backend,
                               .dtype = PS_DTYPE_F32,
                               .training = true,
                               .checkpointing = way != PLAIN,
                               .offloads_inputs = way == OFFLOADS,
                               .n_checkpoints = n_checkpoints,
                               .may_overwrite_params = true};
    assert_ok(ps_program_build(model, user, NULL, B, T, program));
    assert_ok(ps_code_create(*program, &o, &p));
    ps_backend_destroy(backend);
    return p;
}

static void check_code(const ps_code *p)
{
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *a = &p->buffers[i];
        if (a->first > a->last) continue;
        assert_int_equal(a->offset % 64, 0);
        for (int32_t k = 0; k < i; k++) {
            const ps_buffer *b = &p->buffers[k];
            if (b->first > a->last || b->last < a->first) continue;
            if (a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                fail_msg("buffers %d and %d overlap in time and place", i, k);
        }
        for (int32_t m = a->first; m <= a->last; m++) assert_true(p->instrs[m].non_model_bytes >= a->offset + a->bytes);
        assert_true(a->offset + a->bytes <= p->non_model_bytes);
    }
    /* nothing is read before it was written; accumulation only onto something written */
    bool *written = calloc((size_t)p->n_buffers, sizeof *written);
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
        if (p->batch[i] >= 0) written[p->batch[i]] = true;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        const ps_instr *in = &p->instrs[m];
        assert_int_equal(in->kind == PS_INSTR_FORWARD || in->kind == PS_INSTR_OFFLOAD, m < p->n_forward);
        for (int k = 0; k < PS_NODE_INPUTS; k++) {
            if (in->x[k] >= 0) assert_true(written[in->x[k]]);
            if (in->dx[k] >= 0 && in->accumulate_dx[k]) assert_true(written[in->dx[k]]);
        }
        if (in->dy >= 0) assert_true(written[in->dy]);
        if (in->kind == PS_INSTR_BACKWARD && in->saved[0] >= 0) assert_true(written[in->saved[0]]);
        if (in->y >= 0) written[in->y] = true;
        if (in->between >= 0) written[in->between] = true;
        for (int k = 0; k < PS_NODE_INPUTS; k++) {
            if (in->dx[k] >= 0) written[in->dx[k]] = true;
            if (in->saved[k] >= 0) written[in->saved[k]] = true;
        }
    }
    free(written);
    /* what is fetched has been offloaded before, once, and is nowhere else in between */
    int32_t n_fetched = 0, *offloaded_at = calloc((size_t)p->n_offloaded + 1, sizeof *offloaded_at);
    for (int32_t m = 0; m < p->n_instrs; m++) {
        const ps_instr *in = &p->instrs[m];
        if (in->kind != PS_INSTR_OFFLOAD && in->kind != PS_INSTR_FETCH) continue;
        assert_in_range(in->offload_index, 0, p->n_offloaded - 1);
        assert_in_range(in->offload_bytes, 1, p->offload_bytes);
        if (in->kind == PS_INSTR_OFFLOAD) {
            assert_int_equal(offloaded_at[in->offload_index], 0);
            assert_int_equal(p->buffers[in->x[0]].last, m);
            offloaded_at[in->offload_index] = m;
        } else {
            const ps_instr *from = &p->instrs[offloaded_at[in->offload_index]];
            assert_int_equal(from->kind, PS_INSTR_OFFLOAD);
            assert_int_equal(from->offload_bytes, in->offload_bytes);
            assert_int_equal(p->buffers[in->y].first, m);
            n_fetched++;
        }
    }
    assert_int_equal(n_fetched, p->n_offloaded);
    free(offloaded_at);
    /* each parameter's gradient is completed exactly once */
    int *completed = calloc((size_t)p->program->n_params, sizeof *completed);
    for (int32_t m = 0; m < p->n_instrs; m++)
        for (int k = 0; k < PS_NODE_PARAMS; k++)
            if (p->instrs[m].completes_grad[k]) completed[p->program->nodes[p->instrs[m].node].params[k]]++;
    for (int32_t w = 0; w < p->program->n_params; w++) assert_int_equal(completed[w], 1);
    free(completed);
}

static void test_lives(void **state)
{
    (void)state;
    static const ps_model_func models[] = {model_blocks,          model_thrice,    model_diamond,
                                           model_diamond_swapped, model_positions, model_relu};
    for (size_t i = 0; i < PS_ARRAY_LEN(models); i++)
        for (int way = PLAIN; way < WAYS; way++) {
            ps_program *program = NULL;
            ps_code *p = code_of(models[i], NULL, way, 0, &program);
            check_code(p);
            ps_code_destroy(p);
            ps_program_destroy(program);
        }
    for (uint32_t seed = 0; seed < 200; seed++) {
        random_graph graph = graph_of(seed);
        ps_program *program = NULL;
        ps_code *p = code_of(model_random, &graph, (int)(seed % WAYS), (int32_t)(seed / WAYS % 3), &program);
        check_code(p);
        ps_code_destroy(p);
        ps_program_destroy(program);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static int32_t recomputed(const ps_code *p, const char *label)
{
    const ps_node *nodes = p->program->nodes;
    int32_t n = 0;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        const ps_instr *i = &p->instrs[m];
        if (i->kind != PS_INSTR_RECOMPUTE) continue;
        n += strcmp(nodes[i->node].label, label) == 0;
        n += i->fused >= 0 && strcmp(nodes[i->fused].label, label) == 0;
    }
    return n;
}

static void test_recomputation(void **state)
{
    (void)state;
    ps_program *program = NULL, *second = NULL;
    ps_code *kept = code_of(model_blocks, NULL, PLAIN, 0, &program);
    ps_code *p = code_of(model_blocks, NULL, CHECKPOINTS, 0, &second);
    assert_true(p->non_model_bytes < kept->non_model_bytes);
    for (int32_t m = 0; m < kept->n_instrs; m++) assert_int_not_equal(kept->instrs[m].kind, PS_INSTR_RECOMPUTE);
    static const char *const once[] = {"a.ln_1", "a.qkv",  "a.attention", "a.proj", "a.ln_2",
                                       "a.fc",   "a.gelu", "b.ln_1",      "b.gelu"};
    for (size_t i = 0; i < PS_ARRAY_LEN(once); i++) assert_int_equal(recomputed(p, once[i]), 1);
    /* no backward reads what these made, and nothing outside a segment runs twice */
    static const char *const never[] = {"a.out", "b.out", "gelu", "wte", "wpe", "ln_f", "loss"};
    for (size_t i = 0; i < PS_ARRAY_LEN(never); i++) assert_int_equal(recomputed(p, never[i]), 0);
    ps_code_destroy(p);
    ps_code_destroy(kept);
    ps_program_destroy(program);
    ps_program_destroy(second);
}

/* Segments that an operator outside keeps apart stay apart when merged: both are run again. */
static void test_merged_segments(void **state)
{
    (void)state;
    ps_program *program = NULL;
    ps_code *p = code_of(model_blocks, NULL, CHECKPOINTS, 1, &program);
    assert_int_equal(recomputed(p, "b.fc"), 1);
    assert_int_equal(recomputed(p, "a.fc"), 1);
    check_code(p);
    ps_code_destroy(p);
    ps_program_destroy(program);
}

static void test_overwriting(void **state)
{
    (void)state;
    ps_program *program = NULL;
    ps_code *p = code_of(model_blocks, NULL, CHECKPOINTS, 0, &program);
    /* no node reads a parameter after its first gradient, not even the tied one: the embedding's backward only adds */
    for (int32_t w = 0; w < program->n_params; w++) assert_true(p->grad_overwrites_param[w]);
    for (int32_t w = 0; w < program->n_params; w++) {
        int32_t first_grad = INT32_MAX;
        for (int32_t m = 0; m < p->n_instrs; m++) {
            const ps_instr *in = &p->instrs[m];
            const ps_node *n = &program->nodes[in->node];
            for (int k = 0; k < PS_NODE_PARAMS; k++) {
                if (n->params[k] != w || in->kind == PS_INSTR_JOIN) continue;
                const bool reads = in->kind != PS_INSTR_BACKWARD || n->type->backward_reads_w[k];
                if (reads) assert_true(m <= first_grad);
                if (in->kind == PS_INSTR_BACKWARD && first_grad == INT32_MAX) first_grad = m;
            }
        }
    }
    ps_code_destroy(p);
    ps_backend *backend;
    assert_ok(ps_backend_create_ref(&backend));
    const ps_code_options o = {.backend = backend, .dtype = PS_DTYPE_F32, .training = true};
    assert_ok(ps_code_create(program, &o, &p));
    ps_backend_destroy(backend);
    for (int32_t w = 0; w < program->n_params; w++) assert_false(p->grad_overwrites_param[w]);
    ps_code_destroy(p);
    ps_program_destroy(program);
}

/* ---- canaries ---- */

static void test_guards_name_operator_and_buffer(void **state)
{
    (void)state;
    if (PS_CODE_GUARD_BYTES == 0) skip(); /* debug builds have them */
    ps_program *program = NULL;
    ps_code *p = code_of(model_diamond, NULL, PLAIN, 0, &program);
    char *base = NULL;
    assert_ok(ps_mem_alloc((size_t)p->non_model_bytes, 1, &base));
    int n_workspaces = 0;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        const ps_instr *instr = &p->instrs[m];
        for (int32_t i = 0; i < p->n_buffers; i++) {
            const ps_buffer *b = &p->buffers[i];
            if (b->first > m || b->last < m) continue;
            ps_code_guard_set(p, instr, base);
            memset(base + b->offset, 0x11, (size_t)b->bytes); /* all that it may */
            assert_ok(ps_code_guard_check(p, instr, base));
            base[b->offset + b->bytes]++;
            assert_int_equal(ps_code_guard_check(p, instr, base), PS_ESTATE);
            assert_non_null(strstr(ps_last_error(), instr->label));
            if (i != instr->workspace) continue;
            assert_non_null(strstr(ps_last_error(), "past its workspace"));
            n_workspaces++;
        }
    }
    assert_true(n_workspaces > 0);
    ps_mem_free(base);
    ps_code_destroy(p);
    ps_program_destroy(program);
}

/* ---- builder errors ---- */

typedef struct wrong {
    const char *says;
    int which;
} wrong;

static ps_status model_wrong(ps_builder *b, void *user)
{
    const int which = *(const int *)user;
    float none[V] = {0}, one[V] = {1, -1};
    const ps_cross_entropy_options smoothed = {.struct_size = sizeof smoothed, .label_smoothing = 1},
                                   zeros = {.struct_size = sizeof zeros, .class_weights = none},
                                   negative = {.struct_size = sizeof negative, .class_weights = one};
    ps_value x = ps_token_embedding(b, "wte", which == 1 ? 0 : V, C);
    assert_int_equal(ps_builder_batch_size(b), B);
    assert_int_equal(ps_builder_sequence_length(b), T);
    switch (which) {
    case 0: x = ps_linear(b, ps_linear(b, x, "fc", C, 1), "fc", C, 1); break;
    case 2: x = ps_linear(b, x, "fc", -1, 1); break;
    case 3: x = ps_add(b, x, ps_linear(b, x, "fc", C + 1, 1)); break;
    case 4: ps_linear(b, x, "unused", C, 1); break;
    case 5: return PS_OK; /* no loss */
    case 6: ps_begin_block(b, "open", 0); break;
    case 7: ps_end_block(b); break;
    case 8:
        for (int i = 0; i < 20; i++) ps_begin_block(b, "deep", 0);
        break;
    case 9: x = ps_attention(b, x, 4, 1, 0); break;
    case 10: x = ps_attention(b, x, 2, 1, 1); break;
    case 11: x = ps_dropout(b, x, -0.5f); break;
    case 12: x = ps_position_embedding(b, x, "wpe", T - 1); break;
    case 13: x = 77; break;
    case 14: x = ps_add(b, x, x); break;
    case 15: {
        char longest[300];
        memset(longest, 'x', sizeof longest - 1);
        longest[sizeof longest - 1] = '\0';
        ps_begin_block(b, longest, 0);
        break;
    }
    case 16: ps_cross_entropy(b, x, "wte.weight", NULL, V + 1, NULL); break;
    case 17: ps_cross_entropy(b, x, "head", NULL, V, NULL); break; /* and once more below */
    case 18: return PS_ENOSYS;
    case 20: ps_cross_entropy(b, x, "wte.weight", NULL, V, &smoothed); break;
    case 21: ps_cross_entropy(b, x, "wte.weight", NULL, V, &zeros); break;
    case 22: ps_cross_entropy(b, x, "wte.weight", NULL, V, &negative); break;
    case 23: ps_span_loss(b, ps_pool(b, x, PS_POOLING_FIRST), "qa", NULL); break;
    case 24: ps_mse_loss(b, x, "wte.weight", NULL, 1); break;
    case 25: ps_bce_with_logits_loss(b, x, "b", NULL, 0); break;
    case 26: x = ps_layer_norm(b, x, "ln", -1); break;
    case 27: x = ps_rms_norm(b, x, "ln", 0, NAN); break;
    case 28: x = ps_layer_norm(b, x, "ln", INFINITY); break;
    case 29: ps_set_initializer_range(b, (double)NAN); break;
    case 30: ps_set_initializer_range(b, -0.02); break;
    case 31: x = ps_gelu(b, x, (ps_activation)9); break;
    case 32: x = ps_pool(b, x, (ps_pooling)7); break;
    case 19: x = ps_linear(b, x, "fc", (int64_t)1 << 42, 0); break;
    default: break;
    }
    ps_cross_entropy(b, x, "wte.weight", NULL, V, NULL);
    return PS_OK;
}

static void test_builder_errors(void **state)
{
    (void)state;
    static const wrong cases[] = {{"fc.weight is declared twice", 0},
                                  {"wte.weight has shape", 1},
                                  {"fc.weight has shape", 2},
                                  {"6 and 7 columns", 3},
                                  {"the result of unused is not used", 4},
                                  {"declares no end", 5},
                                  {"not ended", 6},
                                  {"without ps_begin_block", 7},
                                  {"deeper than", 8},
                                  {"4 heads", 9},
                                  {"probability 1", 10},
                                  {"probability -0.5", 11},
                                  {"3 positions", 12},
                                  {"input 77 is not a value", 13},
                                  {"both inputs", 14},
                                  {"longer than", 15},
                                  {"wanted [14, 6]", 16},
                                  {"nothing may follow the end", 17},
                                  {"more than any memory holds", 19},
                                  {"label_smoothing 1", 20},
                                  {"the weights of all 13", 21},
                                  {"the weight of class 1 is -1", 22},
                                  {"one row a sequence", 23},
                                  {"wanted [1, 6]", 24},
                                  {"b has shape", 25},
                                  {"ln: eps -1", 26},
                                  {"ln: eps nan", 27},
                                  {"ln: eps inf", 28},
                                  {"nan is no standard deviation", 29},
                                  {"-0.02 is no standard deviation", 30},
                                  {"9 is no ps_activation", 31},
                                  {"7 is no ps_pooling", 32}};
    ps_program *p = NULL;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        int which = cases[i].which;
        assert_int_equal(ps_program_build(model_wrong, &which, NULL, B, T, &p), PS_EINVAL);
        assert_null(p);
        if (strstr(ps_last_error(), cases[i].says) == NULL) fail_msg("case %d says: %s", which, ps_last_error());
    }
    int which = 18;
    assert_int_equal(ps_program_build(model_wrong, &which, NULL, B, T, &p), PS_ENOSYS);
    assert_int_equal(ps_program_build(model_wrong, &which, NULL, 0, T, &p), PS_EINVAL);
    assert_int_equal(ps_program_build(model_wrong, &which, NULL, INT64_MAX / 2, T, &p), PS_EINVAL);
    which = 99; /* nothing wrong */
    assert_ok(ps_program_build(model_wrong, &which, NULL, B, T, &p));
    ps_program_destroy(p);
    ps_program_destroy(NULL);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static ps_status model_narrow_input(ps_builder *b, void *user)
{
    (void)user;
    ps_cross_entropy(b, ps_token_embedding(b, "wte", V - 3, C), "head", NULL, V, NULL);
    return PS_OK;
}

/* Tokens are checked against every embedding, not only against the loss. */
static void test_tokens_fit_embedding(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "model.n_positions=4");
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(model_narrow_input, NULL, 0, c, &e));
    int32_t tokens[B * T] = {0}, targets[B * T] = {0};
    targets[0] = V - 1;
    tokens[3] = V - 4;
    assert_ok(ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                          &(float){0}));
    tokens[3] = V - 3;
    assert_int_equal(
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL),
        PS_EINVAL);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builder_errors),       cmocka_unit_test(test_lives),
        cmocka_unit_test(test_recomputation),        cmocka_unit_test(test_merged_segments),
        cmocka_unit_test(test_overwriting),          cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_gradients_of_ends),    cmocka_unit_test(test_size_of_options),
        cmocka_unit_test(test_gradients_shared),

        cmocka_unit_test(test_gradients_random),     cmocka_unit_test(test_guards_name_operator_and_buffer),
        cmocka_unit_test(test_tokens_fit_embedding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
