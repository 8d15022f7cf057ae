/* An optimizer of PyTorch's, imported: the next steps agree with PyTorch's within 1e-5 (golden/make_gpt2_optimizer.py), and
 * have the same bits in any budgets; numbers of parameters are those of transformers' classes; what does not fit is
 * refused before anything is changed. */
#include <math.h>

#include "engine/engine_fixture.h"

#include "api/engine/optimizer_import.h"
#include "base/fault.h"
#include "base/file.h"
#include "config/hf_config.h"
#include "engine/ranks_fixture.h"
#include "temp_folder.h"
#include "weights/safetensors.h"

enum { B = 2, T = 8, N_STEPS = 5 };

#define MODEL "train.threads=1", "model.n_positions=8", "model.n_embd=16", "model.n_head=2", "data.sequence_length=8"
#define COSINE "scheduler.type=cosine", "scheduler.params.warmup_num_steps=2", "scheduler.params.total_num_steps=10"
#define ADAM "optimizer.type=Adam", "optimizer.params.weight_decay=0", COSINE
#define SGD                                                                                                            \
    "optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]", "optimizer.params.lr=0.1",                            \
        "optimizer.params.momentum=0.9", "optimizer.params.dampening=0.25", "optimizer.params.weight_decay=0.01",      \
        "gradient_clipping=0"
#define SMALL "default_chunk_size=1024"
#define GOLDEN(kind) "test/golden/gpt2_optimizer_" kind

static void read_golden(const ps_safetensors *f, const char *prefix, const char *name, void *out, int64_t n)
{
    char full[256];
    const size_t base = strncmp(name, "transformer.", 12) == 0 ? 12 : 0;
    snprintf(full, sizeof full, "%s%s", prefix, name + base);
    const ps_safetensor *t = ps_safetensors_find(f, full);
    if (t == NULL || t->n_bytes != n * 4) fail_msg("golden file: %s", full);
    assert_ok(ps_safetensors_read(f, t, 0, out, t->n_bytes));
}

static int64_t elements_of(const ps_engine *e, int64_t tensor, const char **name)
{
    int n_dims;
    int64_t shape[2];
    assert_ok(get_tensor(e, tensor, name, &n_dims, shape));
    return shape[0] * shape[1];
}

/* An engine as PyTorch left it after three steps. */
static void begin(ps_engine *e, const ps_safetensors *f, const char *kind)
{
    static _Thread_local float values[4096];
    char path[128];
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const char *name;
        const int64_t n = elements_of(e, t, &name);
        read_golden(f, "init.", name, values, n);
        assert_ok(ps_engine_write_tensor(e, t, 0, n, values));
    }
    snprintf(path, sizeof path, GOLDEN("%s.pt"), kind);
    assert_ok(ps_engine_load_optimizer(e, path));
}

static void assert_near(const char *what, int step, double ours, double want, double tolerance)
{
    if (!(fabs(ours - want) <= tolerance * fabs(want)))
        fail_msg("%s of step %d: %.9g, PyTorch %.9g", what, step, ours, want);
}

/* Relative, in the Euclidean norm. The middle third of c_attn.bias, of keys, has no gradient but rounding noise. */
static void compare_final(ps_engine *e, const ps_safetensors *f)
{
    static _Thread_local float ours[4096], want[4096];
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const char *name;
        const int64_t n = elements_of(e, t, &name);
        const bool has_key_bias = strstr(name, "c_attn.bias") != NULL;
        double distance = 0, norm = 0;
        assert_ok(ps_engine_read_tensor(e, t, 0, n, ours));
        read_golden(f, "final.", name, want, n);
        for (int64_t i = 0; i < n; i++) {
            if (has_key_bias && i >= n / 3 && i < 2 * n / 3) continue;
            const double d = (double)ours[i] - (double)want[i];
            distance += d * d;
            norm += (double)want[i] * (double)want[i];
        }
        if (!(sqrt(distance) <= 1e-5 * sqrt(norm))) fail_msg("%s: relative distance %g", name, sqrt(distance / norm));
    }
}

static ps_safetensors *open_golden(const char *kind)
{
    char path[128];
    ps_safetensors *f = NULL;
    snprintf(path, sizeof path, GOLDEN("%s.safetensors"), kind);
    assert_ok(ps_safetensors_open(path, &f));
    return f;
}

static uint64_t follow(const char *kind, ps_config *c)
{
    ps_safetensors *f = open_golden(kind);
    ps_engine *e = engine_of(c);
    int32_t tokens[N_STEPS * B * T], targets[N_STEPS * B * T];
    float losses[N_STEPS], lrs[N_STEPS], norms[N_STEPS];
    uint64_t hash;
    begin(e, f, kind);
    read_golden(f, "", "tokens", tokens, N_STEPS * B * T);
    read_golden(f, "", "targets", targets, N_STEPS * B * T);
    read_golden(f, "", "losses", losses, N_STEPS);
    read_golden(f, "", "lrs", lrs, N_STEPS);
    read_golden(f, "", "grad_norms", norms, N_STEPS);
    for (int step = 0; step < N_STEPS; step++) {
        const ps_batch batch = {
            .struct_size = sizeof batch, .tokens = tokens + step * B * T, .targets = targets + step * B * T};
        ps_step_info info = {.struct_size = sizeof info};
        assert_ok(ps_forward(e, &batch, NULL));
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
        ps_engine_get_step_info(e, &info);
        assert_near("loss", step, info.loss, (double)losses[step], 1e-5);
        assert_near("gradient norm", step, info.grad_norm, (double)norms[step], 1e-5);
        assert_near("learning rate", step, info.learning_rate, (double)lrs[step], 1e-6);
    }
    compare_final(e, f);
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    ps_safetensors_close(f);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
    return hash;
}

static void test_next_steps(void **state)
{
    (void)state;
    const uint64_t hash = follow("adamw", TINY(MODEL, COSINE));
    assert_true(follow("adamw", TINY(MODEL, COSINE, SMALL, "memory.device=300KB", "memory.disk=20MB")) == hash);
    assert_true(follow("adamw", TINY(MODEL, COSINE, SMALL, "memory.defer_updates=false",
                                     "memory.update_in_backward=never")) == hash);
    follow("adam", TINY(MODEL, ADAM));
    follow("named", TINY(MODEL, COSINE));
    follow("sgd", TINY(MODEL, SGD));
}

/* Each rank has one of the two rows. */
static ps_status rank_follow(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    ps_safetensors *f = open_golden("adamw");
    int32_t tokens[N_STEPS * B * T], targets[N_STEPS * B * T];
    float losses[N_STEPS];
    begin(e, f, "adamw");
    read_golden(f, "", "tokens", tokens, N_STEPS * B * T);
    read_golden(f, "", "targets", targets, N_STEPS * B * T);
    read_golden(f, "", "losses", losses, N_STEPS);
    for (int step = 0; step < N_STEPS; step++) {
        const int at = (step * B + ps_comm_rank(t->comm)) * T;
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens + at, .targets = targets + at};
        PS_TRY(ps_forward(e, &batch, NULL));
        PS_TRY(ps_backward(e));
        PS_TRY(ps_step(e));
        rank_take(e, &t->result, step);
        assert_near("loss", step, t->result.losses[step], (double)losses[step], 1e-5);
    }
    compare_final(e, f);
    ps_safetensors_close(f);
    return PS_OK;
}

static void test_ranks(void **state)
{
    (void)state;
    (void)run_ranks(2, N_STEPS, rank_follow, CHANGES(MODEL, COSINE, SMALL, "train_micro_batch_size_per_gpu=1"));
}

/* By the configuration, with the weights of before. */
static void test_configured(void **state)
{
    (void)state;
    char setting[256];
    temp_folder folder = temp_folder_make();
    const temp_path weights = temp_folder_file(&folder, "model.safetensors");
    ps_config *c = TINY(MODEL, COSINE);
    ps_engine *e = engine_of(c), *inference = NULL;
    ps_safetensors *f = open_golden("adamw");
    float want[16], found[16];
    begin(e, f, "adamw");
    assert_ok(ps_engine_save_weights(e, weights.text));
    assert_ok(ps_engine_read_state(e, 3, "exp_avg_sq", 0, 16, want));
    ps_engine_destroy(e);
    snprintf(setting, sizeof setting, "%s", weights.text);
    assert_ok(ps_config_set(c, "train.init_from", setting));
    assert_ok(ps_config_set(c, "train.init_optimizer", GOLDEN("adamw.pt")));
    e = engine_of(c);
    assert_int_equal(ps_engine_get_update_count(e), 3);
    assert_ok(ps_engine_read_state(e, 3, "exp_avg_sq", 0, 16, found));
    assert_memory_equal(want, found, sizeof want);
    ps_engine_destroy(e);
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &inference)); /* has no use for it */
    ps_engine_destroy(inference);
    assert_ok(ps_config_set(c, "train.init_optimizer", "/proc/nonexistent.pt"));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EIO);
    ps_safetensors_close(f);
    ps_config_destroy(c);
    temp_folder_remove(&folder);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- numbers ---- */

/* named_parameters() of transformers 4.49, with one block. */
static const char *const llama_names[] = {
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.self_attn.q_proj.bias",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.0.self_attn.k_proj.bias",
    "model.layers.0.self_attn.v_proj.weight",
    "model.layers.0.self_attn.v_proj.bias",
    "model.layers.0.self_attn.o_proj.weight",
    "model.layers.0.self_attn.o_proj.bias",
    "model.layers.0.mlp.gate_proj.weight",
    "model.layers.0.mlp.gate_proj.bias",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.0.mlp.up_proj.bias",
    "model.layers.0.mlp.down_proj.weight",
    "model.layers.0.mlp.down_proj.bias",
    "model.layers.0.input_layernorm.weight",
    "model.layers.0.post_attention_layernorm.weight",
    "model.norm.weight",
    "lm_head.weight",
    NULL,
};
static const char *const olmo2_names[] = {
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.0.self_attn.v_proj.weight",
    "model.layers.0.self_attn.o_proj.weight",
    "model.layers.0.self_attn.q_norm.weight",
    "model.layers.0.self_attn.k_norm.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
    "model.layers.0.post_attention_layernorm.weight",
    "model.layers.0.post_feedforward_layernorm.weight",
    "model.norm.weight",
    "lm_head.weight",
    NULL,
};
static const char *const bert_names[] = {
    "bert.embeddings.word_embeddings.weight",
    "bert.embeddings.position_embeddings.weight",
    "bert.embeddings.token_type_embeddings.weight",
    "bert.embeddings.LayerNorm.weight",
    "bert.embeddings.LayerNorm.bias",
    "bert.encoder.layer.0.attention.self.query.weight",
    "bert.encoder.layer.0.attention.self.query.bias",
    "bert.encoder.layer.0.attention.self.key.weight",
    "bert.encoder.layer.0.attention.self.key.bias",
    "bert.encoder.layer.0.attention.self.value.weight",
    "bert.encoder.layer.0.attention.self.value.bias",
    "bert.encoder.layer.0.attention.output.dense.weight",
    "bert.encoder.layer.0.attention.output.dense.bias",
    "bert.encoder.layer.0.attention.output.LayerNorm.weight",
    "bert.encoder.layer.0.attention.output.LayerNorm.bias",
    "bert.encoder.layer.0.intermediate.dense.weight",
    "bert.encoder.layer.0.intermediate.dense.bias",
    "bert.encoder.layer.0.output.dense.weight",
    "bert.encoder.layer.0.output.dense.bias",
    "bert.encoder.layer.0.output.LayerNorm.weight",
    "bert.encoder.layer.0.output.LayerNorm.bias",
    "cls.predictions.bias",
    "cls.predictions.transform.dense.weight",
    "cls.predictions.transform.dense.bias",
    "cls.predictions.transform.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias",
    "cls.predictions.decoder.weight",
    NULL,
};
static const char *const gpt2_names[] = {
    "transformer.wte.weight",
    "transformer.wpe.weight",
    "transformer.h.0.ln_1.weight",
    "transformer.h.0.ln_1.bias",
    "transformer.h.0.attn.c_attn.weight",
    "transformer.h.0.attn.c_attn.bias",
    "transformer.h.0.attn.c_proj.weight",
    "transformer.h.0.attn.c_proj.bias",
    "transformer.h.0.ln_2.weight",
    "transformer.h.0.ln_2.bias",
    "transformer.h.0.mlp.c_fc.weight",
    "transformer.h.0.mlp.c_fc.bias",
    "transformer.h.0.mlp.c_proj.weight",
    "transformer.h.0.mlp.c_proj.bias",
    "transformer.ln_f.weight",
    "transformer.ln_f.bias",
    NULL,
};

static void expect_order(const char *model, const char *const *names)
{
    char text[1024];
    ps_config *c = NULL;
    int32_t order[64];
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 1, \"model\": {%s}, \"memory\": {\"device\": \"64MB\", \"host\": 0, "
             "\"disk\": 0}, \"train\": {\"threads\": 1}, \"data\": {\"sequence_length\": 8}}",
             model);
    assert_ok(ps_config_parse(text, "order", &c));
    ps_engine *e = engine_of(c);
    for (int k = 0; k < PS_NUMBERING_COUNT; k++) {
        int n_found = 0;
        assert_ok(ps_optimizer_numbering(e, (ps_param_numbering)k, order));
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; names[i] != NULL; i++) {
                const char *name;
                int n_dims;
                int64_t shape[2];
                if (n_found == ps_engine_get_tensor_count(e)) break;
                assert_ok(get_tensor(e, order[n_found], &name, &n_dims, shape));
                const bool is_vector = strstr(names[i], "norm") != NULL || strstr(names[i], "Norm") != NULL ||
                                       strstr(names[i], "ln_") != NULL || strstr(names[i], "bias") != NULL;
                if (k == PS_NUMBERED_THROUGH ? pass == 1 : is_vector != (pass == (k == PS_NUMBERED_DECAYING))) continue;
                if (strcmp(name, names[i]) != 0) fail_msg("number %d: %s, not %s", n_found, name, names[i]);
                n_found++;
            }
        assert_int_equal(n_found, ps_engine_get_tensor_count(e));
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

#define LLAMA_SIZES                                                                                                    \
    "\"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 1, "                   \
    "\"num_attention_heads\": 4, \"max_position_embeddings\": 32"

static void test_orders(void **state)
{
    (void)state;
    expect_order("\"type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": true, " LLAMA_SIZES, llama_names);
    expect_order("\"type\": \"olmo2\", " LLAMA_SIZES, olmo2_names);
    expect_order("\"type\": \"bert\", \"tie_word_embeddings\": false, " LLAMA_SIZES, bert_names);
    expect_order("\"vocab_size\": 61, \"n_positions\": 8, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2", gpt2_names);
}

/* ---- odd files ---- */

static void expect_fails(ps_status st, ps_status wanted, const char *message)
{
    if (st != wanted || strstr(ps_last_error(), message) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", ps_status_name(st), ps_last_error(), message);
}

static void expect_state(ps_engine *e, const char *state, float of_one, int64_t n_updates)
{
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        static float found[4096];
        const char *name;
        const int64_t n = elements_of(e, t, &name);
        assert_ok(ps_engine_read_state(e, t, state, 0, n, found));
        for (int64_t i = 0; i < n; i++)
            if (found[i] != of_one * (float)(i % 64) / 64)
                fail_msg("%s.%s[%d] is %g", name, state, (int)i, (double)found[i]);
    }
    assert_int_equal(ps_engine_get_update_count(e), n_updates);
}

static void test_odd_files(void **state)
{
    (void)state;
    ps_config *c = TINY(MODEL, "gradient_accumulation_steps=2"), *sgd = TINY(MODEL, SGD),
              *larger = TINY(MODEL, "model.n_embd=32"), *deeper = TINY(MODEL, "model.n_layer=3");
    ps_engine *e = engine_of(c), *of_sgd = engine_of(sgd), *of_larger = engine_of(larger),
              *of_deeper = engine_of(deeper);
    assert_ok(ps_engine_load_optimizer(e, GOLDEN("odd_types.pt")));
    expect_state(e, "exp_avg", 1, 7);
    expect_state(e, "exp_avg_sq", 1, 7);
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("odd_three.pt")), PS_EFORMAT,
                 "3 groups of parameters without names");
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("odd_steps.pt")), PS_EFORMAT,
                 "step of transformer.h.0.attn.c_attn.weight is 4, but of transformer.wte.weight 3");
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("odd_missing.pt")), PS_EINVAL,
                 "exp_avg of transformer.h.0.attn.c_attn.weight is missing");
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("odd_amsgrad.pt")), PS_EINVAL,
                 "max_exp_avg_sq of transformer.wte.weight is no state of this one");
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("sgd.pt")), PS_EINVAL, "momentum_buffer of ");
    expect_fails(ps_engine_load_optimizer(of_sgd, GOLDEN("adamw.pt")), PS_EINVAL,
                 "than optimizer.type = SGD here, which keeps momentum_buffer");
    expect_fails(
        ps_engine_load_optimizer(of_larger, GOLDEN("adam.pt")), PS_EFORMAT,
        "exp_avg of parameter 0 is [131, 16], but the model's transformer.wte.weight, which should be this one, "
        "is [131, 32]");
    expect_fails(ps_engine_load_optimizer(of_larger, GOLDEN("named.pt")), PS_EFORMAT, "of another model");
    expect_fails(ps_engine_load_optimizer(of_deeper, GOLDEN("adamw.pt")), PS_EFORMAT,
                 "an optimizer of 28 parameters, and the model has 40");
    expect_fails(ps_engine_load_optimizer(e, "test/golden/torch_old_plain.pt"), PS_EFORMAT, "no \"state\" in it");
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("adamw.safetensors")), PS_EFORMAT, "not written by torch.save");
    expect_state(e, "exp_avg", 1, 7); /* as before */
    assert_ok(ps_engine_load_optimizer(e, GOLDEN("odd_fresh.pt")));
    expect_state(e, "exp_avg_sq", 0, 0);
    ps_engine_destroy(e), ps_engine_destroy(of_sgd), ps_engine_destroy(of_larger), ps_engine_destroy(of_deeper);
    ps_config_destroy(c), ps_config_destroy(sgd), ps_config_destroy(larger), ps_config_destroy(deeper);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Frozen parameters have no states here, whether the file has them, lacks them, or does not know these parameters. */
static void test_frozen(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN("odd_trained.pt"), GOLDEN("odd_missing.pt"), GOLDEN("odd_fresh.pt")};
    ps_config *c = TINY(MODEL, "train.freeze=transformer.h.0.attn.c_attn.weight"), *all = TINY(MODEL);
    ps_engine *e = engine_of(c), *whole = engine_of(all);
    expect_fails(ps_engine_load_optimizer(whole, GOLDEN("odd_trained.pt")), PS_EFORMAT,
                 "an optimizer of 27 parameters, and the model has 28, of which 28 are trained");
    for (size_t i = 0; i < PS_ARRAY_LEN(files); i++) {
        const bool is_unreduced = i == 2;
        assert_ok(ps_engine_load_optimizer(e, files[i]));
        assert_int_equal(ps_engine_get_update_count(e), is_unreduced ? 0 : 3);
        for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
            const char *name;
            float found[16];
            (void)elements_of(e, t, &name);
            const bool is_frozen = strcmp(name, "transformer.h.0.attn.c_attn.weight") == 0;
            const ps_status st = ps_engine_read_state(e, t, "exp_avg_sq", 0, 16, found);
            if (is_frozen) expect_fails(st, PS_EINVAL, "it has no gradient, and no state of the optimizer");
            if (is_frozen) continue;
            assert_ok(st);
            for (int k = 0; k < 16; k++) assert_true(found[k] == (is_unreduced ? 0 : (float)k / 64));
        }
    }
    ps_engine_destroy(e), ps_engine_destroy(whole);
    ps_config_destroy(c), ps_config_destroy(all);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_wrong_times(void **state)
{
    (void)state;
    ps_config *c = TINY(MODEL, "gradient_accumulation_steps=2");
    ps_engine *e = engine_of(c), *inference = NULL;
    int32_t tokens[B * T] = {0}, targets[B * T] = {0};
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &inference));
    expect_fails(ps_engine_load_optimizer(inference, GOLDEN("adamw.pt")), PS_ESTATE, "an inference engine");
    assert_ok(ps_forward(e, &batch, NULL));
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("adamw.pt")), PS_ESTATE, "ps_engine_load_optimizer");
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
    expect_fails(ps_engine_load_optimizer(e, GOLDEN("adamw.pt")), PS_ESTATE, "finish the current step");
    ps_engine_destroy(e), ps_engine_destroy(inference);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Each allocation and each read failing, one after the other: an error, no leak, and it works afterwards. */
static void test_faults(void **state)
{
    (void)state;
    ps_config *c = TINY(MODEL);
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_optimizer(e, GOLDEN("odd_types.pt")));
    const int64_t live_bytes = ps_mem_live_bytes();
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ};
    for (size_t kind = 0; kind < PS_ARRAY_LEN(kinds); kind++) {
        int n_failed = 0;
        for (long n = 0;; n++) {
            ps_fault_arm(kinds[kind], n, false);
            const ps_status st = ps_engine_load_optimizer(e, GOLDEN("odd_types.pt"));
            const bool has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
            if (!has_struck) break;
            assert_int_equal(st, kinds[kind] == PS_FAULT_ALLOC ? PS_ENOMEM_HOST : PS_EIO);
            n_failed++;
        }
        assert_true(n_failed > 4);
        assert_ok(ps_engine_load_optimizer(e, GOLDEN("odd_types.pt")));
    }
    expect_state(e, "exp_avg", 1, 7);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_steps),  cmocka_unit_test(test_ranks),     cmocka_unit_test(test_configured),
        cmocka_unit_test(test_orders),      cmocka_unit_test(test_odd_files), cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_wrong_times), cmocka_unit_test(test_faults),
    };
    return RUN_ON_BACKENDS(tests);
}
