/* Two operators run as one: where code does it, that no bit of loss or gradients tells, and that memory does not
 * grow. */
#include "engine/engine_fixture.h"

#include "kernel/backend.h"
#include "random_graph.h"
#include "train/graph/code.h"
#include "train/graph/fuse.h"

enum { V = 13, T = 5, C = 6, B = 2 };

/* ---- models ---- */

static ps_status model_blocks(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    ps_value x = ps_token_embedding(b, "wte", V, C);
    for (int i = 0; i < 2; i++) {
        ps_begin_block(b, i == 0 ? "a" : "b", 1);
        ps_value h = ps_layer_norm(b, x, "ln_1", 1e-5f);
        h = ps_conv1d(b, h, "proj", C, 1);
        x = ps_add(b, x, h);
        h = ps_layer_norm(b, x, "ln_2", 1e-5f);
        h = ps_conv1d(b, h, "fc", 2 * C, i == 0);
        h = ps_gelu(b, h, i == 0 ? PS_ACTIVATION_GELU_TANH : PS_ACTIVATION_GELU_ERF);
        h = ps_linear(b, h, "out", C, 1);
        x = ps_add(b, h, x); /* the residual second */
        ps_end_block(b);
    }
    ps_cross_entropy(b, x, "wte.weight", NULL, V, NULL);
    return PS_OK;
}

/* Neighbours that stay apart: a value with two readers, others between, segments between, a gelu with another reader of
 * its input. */
static ps_status model_unfused(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    const ps_value x = ps_token_embedding(b, "wte", V, C);
    const ps_value p = ps_linear(b, x, "p", C, 1);
    const ps_value q = ps_gelu(b, p, PS_ACTIVATION_GELU_TANH);
    const ps_value r = ps_linear(b, q, "r", C, 1);
    const ps_value s = ps_layer_norm(b, x, "s", 1e-5f);
    const ps_value t = ps_add(b, ps_add(b, r, s), p);
    ps_begin_block(b, "inner", 1);
    const ps_value u = ps_linear(b, t, "u", C, 0);
    ps_end_block(b);
    const ps_value v = ps_gelu(b, u, PS_ACTIVATION_GELU_TANH);
    ps_begin_block(b, "second", 1);
    const ps_value w = ps_linear(b, v, "w", C, 0);
    ps_end_block(b);
    ps_cross_entropy(b, w, "head", NULL, V, NULL);
    return PS_OK;
}

/* As Qwen3 with dropout; then a norm of whole rows before a rotation, and a rotation of other heads, which are no
 * pairs. */
static ps_status model_pairs(ps_builder *b, void *user)
{
    (void)user;
    const ps_rope rope = {.struct_size = sizeof rope, .theta = 100};
    const ps_attention_options attention = {
        .struct_size = sizeof attention, .n_heads = C / 2, .n_kv_heads = C / 2, .causal = 1};
    ps_set_initializer_range(b, 0.3);
    ps_value x = ps_token_embedding(b, "wte", V, C);
    ps_begin_block(b, "a", 1);
    const ps_value n = ps_rms_norm(b, x, "norm", 0, 1e-5f);
    const ps_value q = ps_rotary_embedding(b, ps_rms_norm(b, ps_linear(b, n, "q", C, 0), "q_norm", 2, 1e-5f), 2, &rope);
    const ps_value k = ps_rotary_embedding(b, ps_rms_norm(b, ps_linear(b, n, "k", C, 0), "k_norm", 2, 1e-5f), 2, &rope);
    ps_value h = ps_linear(b, ps_grouped_attention(b, q, k, ps_linear(b, n, "v", C, 0), &attention), "o", C, 0);
    x = ps_add(b, x, ps_dropout(b, h, 0.25f));
    ps_end_block(b);
    ps_begin_block(b, "b", 1);
    h = ps_rotary_embedding(b, ps_rms_norm(b, x, "whole", 0, 1e-5f), 2, &rope);
    h = ps_rotary_embedding(b, ps_rms_norm(b, h, "other", 3, 1e-5f), 2, &rope);
    ps_end_block(b);
    ps_cross_entropy(b, h, "wte.weight", NULL, V, NULL);
    return PS_OK;
}

/* ---- running code by hand ---- */

typedef struct setting {
    ps_backend *backend;
    ps_dtype dtype;
    bool training, checkpointing;
} setting;

typedef struct outcome {
    float losses[B * T];
    float *grads; /* all parameters, one after another */
    int64_t n_grads, non_model_bytes;
} outcome;

static ps_code *code_of(const ps_program *program, const setting *s)
{
    ps_code *p = NULL;
    const ps_code_options o = {
        .backend = s->backend, .dtype = s->dtype, .training = s->training, .checkpointing = s->checkpointing};
    assert_ok(ps_code_create(program, &o, &p));
    return p;
}

static void *aligned(int64_t bytes)
{
    void *block = aligned_alloc(64, (size_t)ps_round_up(bytes + 1, 64));
    assert_non_null(block);
    return block;
}

/* Parameters of the program, small and all different. */
static void make_params(const ps_program *program, ps_dtype dtype, void **w)
{
    for (int32_t i = 0; i < program->n_params; i++) {
        const ps_param *p = &program->params[i];
        w[i] = aligned(p->elements * (int64_t)sizeof(float));
        for (int64_t k = 0; k < p->elements; k++) {
            const uint32_t word = ps_rng_u32((ps_rng_key){.seed = 3, .stream = (uint64_t)i}, (uint64_t)k);
            ps_dtype_store(dtype, w[i], k, (float)p->init_mean + ps_rng_unit(word) - 0.5f);
        }
    }
}

static void run_instr(const ps_code *p, const setting *s, const ps_instr *instr, char *base, void *const *w,
                      float *const *dw, outcome *out)
{
    const ps_program *program = p->program;
    const ps_node *n = &program->nodes[instr->node];
    ps_node_run r = {.backend = s->backend,
                     .dtype = s->dtype,
                     .B = B,
                     .T = T,
                     .node = n,
                     .training = s->training,
                     .loss_scale = 1,
                     .accumulate_dw = instr->accumulate_dw,
                     .grad_dtype = PS_DTYPE_F32,
                     .output_row = -1};
    ps_code_bind(p, instr, base, &r);
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        if (n->params[k] < 0) continue;
        r.w[k] = w[n->params[k]];
        r.dw[k] = dw[n->params[k]];
        if (instr->clears_grad[k]) memset(r.dw[k], 0, (size_t)program->params[n->params[k]].elements * sizeof(float));
    }
    if (instr->kind == PS_INSTR_JOIN)
        assert_ok(ps_run_add(
            s->backend, NULL,
            &(ps_add_args){.y = r.y, .a = r.x[0], .b = r.x[1], .n = instr->join_elements, .dtype = s->dtype}, 0));
    else
        assert_ok(instr->kind == PS_INSTR_BACKWARD ? n->type->backward(&r) : n->type->forward(&r));
    if (n->output < 0 && instr->kind == PS_INSTR_FORWARD) memcpy(out->losses, r.saved[1], sizeof out->losses);
}

/* Losses of the rows and gradients of one micro-batch. */
static outcome run(const ps_program *program, const setting *s)
{
    outcome out = {.n_grads = 0};
    ps_code *p = code_of(program, s);
    out.non_model_bytes = p->non_model_bytes;
    char *base = aligned(p->non_model_bytes);
    memset(base, 0xFF, (size_t)p->non_model_bytes); /* NaN */
    void *w[64];
    float *dw[64];
    assert_true(program->n_params <= 64);
    make_params(program, s->dtype, w);
    for (int32_t i = 0; i < program->n_params; i++) out.n_grads += program->params[i].elements;
    out.grads = calloc((size_t)out.n_grads, sizeof(float));
    int64_t at = 0;
    for (int32_t i = 0; i < program->n_params; i++) {
        dw[i] = aligned(program->params[i].elements * (int64_t)sizeof(float));
        memset(dw[i], 0, (size_t)program->params[i].elements * sizeof(float));
    }
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) {
        if (p->batch[i] < 0) continue;
        const ps_buffer *b = &p->buffers[p->batch[i]];
        for (int32_t k = 0; k < B * T; k++)
            ((int32_t *)(void *)(base + b->offset))[k] = i == PS_BATCH_MASK ? 1 : (k * 7 + i) % V;
    }
    for (int32_t m = 0; m < p->n_instrs; m++) run_instr(p, s, &p->instrs[m], base, w, dw, &out);
    for (int32_t i = 0; i < program->n_params; i++) {
        memcpy(out.grads + at, dw[i], (size_t)program->params[i].elements * sizeof(float));
        at += program->params[i].elements;
        free(w[i]);
        free(dw[i]);
    }
    free(base);
    ps_code_destroy(p);
    return out;
}

/* The same backend with nothing on its list. Its state has to stay where it is: the table alone is exchanged. */
static outcome run_unfused(const ps_program *program, const setting *s)
{
    const ps_backend_ops *lists = s->backend->ops;
    ps_backend_ops ops = *lists;
    ops.epilogues = ops.pairs = 0;
    s->backend->ops = &ops;
    const outcome out = run(program, s);
    s->backend->ops = lists;
    return out;
}

static void check_same(ps_model_func model, void *user, ps_backend *backend, const char *name)
{
    ps_program *program = NULL;
    assert_ok(ps_program_build(model, user, NULL, B, T, &program));
    for (int flags = 0; flags < 5; flags++) {
        const setting s = {.backend = backend,
                           .dtype = flags & 1 ? PS_DTYPE_BF16 : PS_DTYPE_F32,
                           .training = flags < 4,
                           .checkpointing = flags & 2};
        outcome one = run(program, &s), two = run_unfused(program, &s);
        for (int i = 0; i < B * T; i++) assert_true(one.losses[i] > 0);
        if (memcmp(one.losses, two.losses, sizeof one.losses) != 0 ||
            memcmp(one.grads, two.grads, (size_t)one.n_grads * sizeof(float)) != 0)
            fail_msg("%s, flags %d: fusing is seen in losses or gradients", name, flags);
        free(one.grads);
        free(two.grads);
    }
    ps_program_destroy(program);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        ps_backend *backend = NULL;
        assert_ok(i == 0 ? ps_backend_create_ref(&backend)
                         : ps_backend_create_cpu(ps_cpu_isa_detect(), ps_cpu_threads(), &backend));
        check_same(model_blocks, NULL, backend, "blocks");
        check_same(model_unfused, NULL, backend, "apart");
        check_same(model_pairs, NULL, backend, "pairs");
        for (uint32_t seed = 0; seed < 100; seed++) {
            random_graph graph = {seed, "llcngg++", .is_chained = true, .V = V, .T = T, .C = C};
            check_same(model_random, &graph, backend, "random");
            random_graph of_pairs = {seed, "lhhrrd++", .is_chained = true, .V = V, .T = T, .C = C};
            check_same(model_random, &of_pairs, backend, "random, pairs");
        }
        ps_backend_destroy(backend);
    }
}

/* ---- what is fused ---- */

static const ps_instr *find(const ps_code *p, const char *label)
{
    const ps_instr *found = NULL;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        if (strcmp(p->instrs[m].label, label) != 0) continue;
        assert_null(found);
        found = &p->instrs[m];
    }
    return found;
}

static const ps_instr *find_fused(const ps_code *p, const char *label)
{
    const ps_instr *i = find(p, label);
    if (i == NULL) fail_msg("no instruction %s", label);
    assert_true(i->fused >= 0);
    return i;
}

static int n_fused(const ps_code *p)
{
    int n = 0;
    for (int32_t m = 0; m < p->n_instrs; m++) n += p->instrs[m].fused >= 0;
    return n;
}

static void test_patterns(void **state)
{
    (void)state;
    ps_program *program = NULL;
    setting s = {.training = true};
    assert_ok(ps_backend_create_ref(&s.backend));
    assert_ok(ps_program_build(model_blocks, NULL, NULL, B, T, &program));

    ps_code *p = code_of(program, &s);
    assert_true(find_fused(p, "a.fc+gelu forward")->between >= 0);
    assert_true(find_fused(p, "a.out+add forward")->between < 0);
    assert_true(find_fused(p, "b.proj+add forward")->x[1] >= 0);
    assert_true(find_fused(p, "b.out+gelu backward")->x[1] == find(p, "b.fc+gelu forward")->between);
    assert_null(find(p, "a.gelu backward"));
    assert_int_equal(n_fused(p), 2 * 4);
    ps_code_destroy(p);

    /* forward leaves out what is made again */
    s.checkpointing = true;
    p = code_of(program, &s);
    assert_true(find_fused(p, "a.fc+gelu forward")->between < 0);
    assert_true(find_fused(p, "a.fc+gelu recompute")->between >= 0);
    assert_null(find(p, "a.out+add recompute"));
    assert_non_null(find_fused(p, "a.proj+add recompute"));
    ps_code_destroy(p);

    s.training = s.checkpointing = false;
    p = code_of(program, &s);
    assert_true(find_fused(p, "b.fc+gelu forward")->between < 0);
    ps_code_destroy(p);
    ps_program_destroy(program);

    assert_ok(ps_program_build(model_unfused, NULL, NULL, B, T, &program));
    s.training = s.checkpointing = true;
    p = code_of(program, &s);
    assert_int_equal(n_fused(p), 0);
    ps_code_destroy(p);
    ps_program_destroy(program);
    ps_backend_destroy(s.backend);
}

static void test_pairs(void **state)
{
    (void)state;
    ps_program *program = NULL;
    setting s = {.training = true};
    assert_ok(ps_backend_create_ref(&s.backend));
    assert_ok(ps_program_build(model_pairs, NULL, NULL, B, T, &program));
    for (int checkpointing = 0; checkpointing < 2; checkpointing++) {
        s.checkpointing = checkpointing;
        ps_code *p = code_of(program, &s);
        const char *kind = checkpointing ? "recompute" : "forward";
        char label[64];
        snprintf(label, sizeof label, "a.q_norm+rope %s", kind);
        const ps_instr *q = find_fused(p, label), *back = find_fused(p, "a.q_norm+rope backward");
        assert_true(q->between < 0 && q->saved[0] >= 0);
        assert_true(back->saved[0] == q->saved[0] && back->x[0] == q->x[0]);
        assert_true(back->dx[0] == back->dy); /* which no other node waits for */
        assert_non_null(find_fused(p, "a.k_norm+rope backward"));
        assert_true(find_fused(p, "a.dropout+add forward")->x[1] >= 0);
        assert_non_null(find(p, "a.dropout backward"));
        assert_int_equal(find(p, "a.dropout backward")->fused, -1);
        assert_int_equal(n_fused(p), (checkpointing ? 2 : 1) * 2 + 2 + 1);
        ps_code_destroy(p);
    }
    const ps_backend_ops *lists = s.backend->ops;
    static const struct {
        ps_pair_kind kind;
        int n;
    } cases[] = {{PS_PAIR_NONE, 0}, {PS_PAIR_RMSNORM_ROPE, 6}, {PS_PAIR_DROPOUT_ADD, 1}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_backend_ops ops = *lists;
        ops.epilogues = 0, ops.pairs = 1u << cases[i].kind;
        s.backend->ops = &ops;
        ps_code *p = code_of(program, &s);
        assert_int_equal(n_fused(p), cases[i].n);
        ps_code_destroy(p);
    }
    s.backend->ops = lists;
    const outcome one = run(program, &s), two = run_unfused(program, &s);
    assert_true(one.non_model_bytes <= two.non_model_bytes);
    free(one.grads);
    free(two.grads);
    ps_program_destroy(program);
    ps_backend_destroy(s.backend);
}

/* A segment ends between the two: with checkpointing they are apart, and so they are without, backward. */
static ps_status model_pair_across(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    ps_value x = ps_token_embedding(b, "wte", V, C);
    ps_begin_block(b, "a", 1);
    x = ps_rms_norm(b, ps_linear(b, x, "p", C, 0), "norm", 2, 1e-5f);
    ps_end_block(b);
    x = ps_linear(b, ps_rotary_embedding(b, x, 2, &(ps_rope){.struct_size = sizeof(ps_rope), .theta = 100}), "q", C, 0);
    ps_cross_entropy(b, x, "head", NULL, V, NULL);
    return PS_OK;
}

static void test_pair_across_segments(void **state)
{
    (void)state;
    ps_program *program = NULL;
    setting s = {.training = true};
    assert_ok(ps_backend_create_ref(&s.backend));
    assert_ok(ps_program_build(model_pair_across, NULL, NULL, B, T, &program));
    for (int checkpointing = 0; checkpointing < 2; checkpointing++) {
        s.checkpointing = checkpointing;
        ps_code *p = code_of(program, &s);
        assert_int_equal(n_fused(p), checkpointing ? 0 : 1);
        assert_non_null(find(p, "a.norm backward"));
        ps_code_destroy(p);
    }
    ps_program_destroy(program);
    ps_backend_destroy(s.backend);
}

/* So it is with epilogues that have bits of their own; others are fused where nothing parts them. */
static ps_status model_epilogues_across(ps_builder *b, void *user)
{
    (void)user;
    ps_set_initializer_range(b, 0.3);
    ps_value x = ps_token_embedding(b, "wte", V, C), residual = x;
    ps_begin_block(b, "a", 1);
    x = ps_linear(b, ps_gelu(b, ps_linear(b, x, "p", C, 0), PS_ACTIVATION_GELU_TANH), "q", C, 0);
    ps_end_block(b);
    x = ps_gelu(b, ps_add(b, x, residual), PS_ACTIVATION_GELU_TANH);
    ps_begin_block(b, "b", 1);
    x = ps_linear(b, x, "r", C, 0);
    ps_end_block(b);
    ps_cross_entropy(b, x, "head", NULL, V, NULL);
    return PS_OK;
}

static void test_unrounded_across_segments(void **state)
{
    (void)state;
    ps_program *program = NULL;
    setting s = {.training = true};
    assert_ok(ps_backend_create_ref(&s.backend));
    assert_ok(ps_program_build(model_epilogues_across, NULL, NULL, B, T, &program));
    const ps_backend_ops *lists = s.backend->ops;
    for (int flags = 0; flags < 4; flags++) {
        ps_backend_ops ops = *lists;
        const bool is_unrounded = flags & 2;
        if (is_unrounded) ops.unrounded = 1u << PS_EPILOGUE_ADD | 1u << PS_EPILOGUE_GELU_BWD;
        s.backend->ops = &ops;
        s.checkpointing = flags & 1;
        ps_code *p = code_of(program, &s);
        /* within a: gelu forward (once more again), and backward; across: q+add, and gelu backward with r's */
        assert_int_equal(n_fused(p), s.checkpointing ? 3 : is_unrounded ? 2 : 4);
        ps_code_destroy(p);
    }
    s.backend->ops = lists;
    ps_program_destroy(program);
    ps_backend_destroy(s.backend);
}

/* Code is for what the backend lists. */
static void test_lists(void **state)
{
    (void)state;
    ps_program *program = NULL;
    setting s = {.training = true};
    assert_ok(ps_backend_create_ref(&s.backend));
    assert_ok(ps_program_build(model_blocks, NULL, NULL, B, T, &program));
    const ps_backend_ops *lists = s.backend->ops;
    static const struct {
        ps_epilogue_kind kind;
        int n;
    } cases[] = {{PS_EPILOGUE_NONE, 0}, {PS_EPILOGUE_GELU, 2}, {PS_EPILOGUE_ADD, 4}, {PS_EPILOGUE_GELU_BWD, 2}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_backend_ops ops = *lists;
        ops.epilogues = 1u << cases[i].kind;
        s.backend->ops = &ops;
        ps_code *p = code_of(program, &s);
        assert_int_equal(n_fused(p), cases[i].n);
        ps_code_destroy(p);
    }
    s.backend->ops = lists;
    ps_program_destroy(program);
    ps_backend_destroy(s.backend);
}

/* Where a gelu's input need not be kept, the peak is lower; elsewhere as before. */
static void test_memory(void **state)
{
    (void)state;
    ps_program *program = NULL;
    setting s = {.training = false};
    assert_ok(ps_backend_create_ref(&s.backend));
    assert_ok(ps_program_build(model_blocks, NULL, NULL, B, T, &program));
    for (int training = 0; training < 2; training++) {
        s.training = training;
        outcome one = run(program, &s), two = run_unfused(program, &s);
        if (training)
            assert_true(one.non_model_bytes <= two.non_model_bytes);
        else
            assert_true(one.non_model_bytes < two.non_model_bytes);
        free(one.grads);
        free(two.grads);
    }
    ps_program_destroy(program);
    ps_backend_destroy(s.backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_pair_across_segments),
        cmocka_unit_test(test_unrounded_across_segments),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
