/* Tiny models against PyTorch (golden/make_gpt2_tiny.py) and Hugging Face's classes (golden/make_hf_tiny.py): losses,
 * gradient norms, every gradient of the first step, and all weights after the last; f32 within 1e-5, bf16 and fp16
 * within 2e-2 (adapters: 3e-2, as x A is rounded, too), relative to the norm of each tensor. */
#include <math.h>

#include "api/engine/engine.h"
#include "base/file.h"
#include "engine/engine_fixture.h"
#include "temp_folder.h"
#include "weights/safetensors.h"

typedef struct golden {
    ps_safetensors *file;
    double tolerance;
    bool sixteen_bit;
    bool is_span; /* the end is a softmax over positions, which does not feel what is added to all of them */
} golden;

/* NULL when the file lacks it. GPT-2's files have the names of the hub, without the prefix of the whole model. */
static const ps_safetensor *find(const golden *g, const char *prefix, const char *name)
{
    static const char base[] = "transformer.";
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const ps_safetensor *t = ps_safetensors_find(g->file, full);
    if (t != NULL || strncmp(name, base, sizeof base - 1) != 0) return t;
    snprintf(full, sizeof full, "%s%s", prefix, name + sizeof base - 1);
    return ps_safetensors_find(g->file, full);
}

static float *read_all(const golden *g, const char *prefix, const char *name, int64_t *n)
{
    const ps_safetensor *t = find(g, prefix, name);
    if (t == NULL) fail_msg("golden file lacks %s%s", prefix, name);
    *n = 1;
    for (int d = 0; d < t->n_dims; d++) *n *= t->shape[d];
    float *values = malloc((size_t)*n * 4);
    assert_ok(ps_safetensors_read(g->file, t, 0, values, *n * 4));
    return values;
}

/* A bias of keys has no gradient in exact arithmetic: softmax does not feel a constant added to a row of scores. What
 * is computed is rounding noise, which Adam blows up, so only what float32 itself is sure of can be compared. Where
 * keys are rotated there is a gradient, but a small one, of large parts that cancel. */
static bool is_noise(const golden *g, const char *prefix, const char *name)
{
    const bool is_gradient = strcmp(prefix, "grad.") == 0;
    if (strstr(name, "attention.self.key.bias") != NULL) return true;
    if (g->is_span && (strstr(name, "qa_outputs.bias") != NULL || strstr(name, "ln_f.bias") != NULL ||
                       strstr(name, "layer.1.output.LayerNorm.bias") != NULL))
        return true;
    return strstr(name, "k_proj.bias") != NULL && (g->sixteen_bit || !is_gradient);
}

/* Relative distance in the Euclidean norm. The middle third of c_attn.bias is a bias of keys. In 16 bits the gradients
 * of vectors, sums over all rows in which much cancels, get half as much again. */
static void compare(const golden *g, const char *prefix, const char *name, const float *ours, int n_dims)
{
    if (is_noise(g, prefix, name)) return;
    int64_t n;
    float *want = read_all(g, prefix, name, &n);
    const bool has_key_bias = strstr(name, "c_attn.bias") != NULL;
    const double tolerance = g->tolerance * (g->sixteen_bit && n_dims == 1 ? 1.5 : 1);
    double distance = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (has_key_bias && i >= n / 3 && i < 2 * n / 3) continue;
        const double d = (double)ours[i] - (double)want[i];
        distance += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    if (!(sqrt(distance) <= tolerance * sqrt(norm)))
        fail_msg("%s%s: relative distance %g, allowed %g", prefix, name, sqrt(distance / norm), tolerance);
    free(want);
}

static void put_initial_weights(const golden *g, ps_engine *e)
{
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const char *name;
        int n_dims;
        int64_t shape[2], n;
        assert_ok(get_tensor(e, t, &name, &n_dims, shape));
        float *values = read_all(g, "init.", name, &n);
        assert_int_equal(n, shape[0] * shape[1]);
        assert_ok(ps_engine_write_tensor(e, t, 0, n, values));
        free(values);
    }
}

/* scale: what ours are multiplied by. */
static void compare_all(const golden *g, ps_engine *e, const char *prefix, bool gradients, double scale)
{
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        assert_ok(get_tensor(e, t, &name, &n_dims, shape));
        const int64_t n = shape[0] * shape[1];
        float *values = malloc((size_t)n * 4);
        if (gradients && find(g, prefix, name) == NULL) { /* frozen: PyTorch has none either */
            assert_int_equal(ps_engine_read_gradient(e, t, 0, n, values), PS_EINVAL);
            free(values);
            continue;
        }
        if (gradients)
            assert_ok(ps_engine_read_gradient(e, t, 0, n, values));
        else
            assert_ok(ps_engine_read_tensor(e, t, 0, n, values));
        for (int64_t i = 0; i < n; i++) values[i] = (float)((double)values[i] / scale);
        compare(g, prefix, name, values, n_dims);
        free(values);
    }
}

static void assert_near(const char *what, int step, double ours, double want, double tolerance)
{
    if (!(fabs(ours - want) <= tolerance * fabs(want)))
        fail_msg("%s of step %d: %.9g, PyTorch %.9g", what, step, ours, want);
}

/* An input that only some models have: NULL when the file lacks it. */
static int32_t *read_input(const golden *g, const char *name)
{
    int64_t n;
    return find(g, "", name) == NULL ? NULL : (int32_t *)(void *)read_all(g, "", name, &n);
}

/* Between backward and step. */
typedef void change_gradients(ps_engine *e);

static void follow_changing(const char *path, ps_config *c, double tolerance, bool sixteen_bit,
                            change_gradients *change)
{
    golden g = {.tolerance = tolerance, .sixteen_bit = sixteen_bit};
    assert_ok(ps_safetensors_open(path, &g.file));
    g.is_span = find(&g, "init.", "qa_outputs.bias") != NULL;
    ps_engine *e = NULL;
    assert_ok(ps_engine_create(ps_model_from_config, c, c, PS_FOR_TRAINING, NULL,
                               &e)); /* without the weights that the folder lacks */
    int64_t B, T, K, n_steps, n;
    ps_engine_get_shape(e, &B, &T, &K, NULL);
    put_initial_weights(&g, e);
    float *losses = read_all(&g, "", "losses", &n_steps), *lrs = read_all(&g, "", "lrs", &n),
          *norms = read_all(&g, "", "grad_norms", &n);
    int32_t *tokens = (int32_t *)(void *)read_all(&g, "", "tokens", &n);
    assert_int_equal(n, n_steps * K * B * T);
    const bool has_values = find(&g, "", "values") != NULL;
    float *targets = read_all(&g, "", has_values ? "values" : "targets", &n);
    const int64_t n_targets = n / (n_steps * K); /* of a micro-batch */
    assert_true(n == n_targets * n_steps * K && n_targets % B == 0);
    int32_t *mask = read_input(&g, "attention_mask"), *types = read_input(&g, "token_type_ids");
    for (int step = 0; step < n_steps; step++) {
        double loss = 0, weight = 0;
        for (int64_t k = 0; k < K; k++) {
            const int64_t micro = step * K + k, at = micro * B * T;
            const float *const those = targets + micro * n_targets;
            const ps_batch batch = {.struct_size = sizeof batch,
                                    .tokens = tokens + at,
                                    .targets = has_values ? NULL : (const int32_t *)(const void *)those,
                                    .values = has_values ? those : NULL,
                                    .attention_mask = mask == NULL ? NULL : mask + at,
                                    .token_type_ids = types == NULL ? NULL : types + at};
            float part;
            assert_ok(ps_forward(e, &batch, &part));
            assert_ok(ps_backward(e));
            loss += (double)part / (double)K;
            ps_eval_info seen = {.struct_size = sizeof seen};
            assert_ok(ps_engine_get_eval_info(e, &seen));
            weight += seen.weight;
            if (step == 0 && k == K - 1) compare_all(&g, e, "grad.", true, weight / (double)(n_targets * K));
            if (change != NULL && k == K - 1) change(e);
            assert_ok(ps_step(e));
        }
        ps_step_info info = {.struct_size = sizeof info};
        ps_engine_get_step_info(e, &info);
        assert_near("loss", step, loss, (double)losses[step], tolerance);
        assert_near("gradient norm", step, info.grad_norm, (double)norms[step], tolerance);
        assert_near("learning rate", step, info.learning_rate, (double)lrs[step], 1e-6);
    }
    compare_all(&g, e, "final.", false, 1);
    free(losses);
    free(lrs);
    free(norms);
    free(tokens);
    free(targets);
    free(mask);
    free(types);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    ps_safetensors_close(g.file);
}

static void follow(const char *path, ps_config *c, double tolerance, bool sixteen_bit)
{
    follow_changing(path, c, tolerance, sixteen_bit, NULL);
}

#define TIED "scheduler.type=cosine", "scheduler.params.warmup_num_steps=2", "scheduler.params.total_num_steps=8"
#define UNTIED                                                                                                         \
    "model.tie_word_embeddings=false", "model.activation_function=gelu", "gradient_accumulation_steps=2",              \
        "optimizer.type=Adam", "optimizer.params.weight_decay=0.01", "optimizer.params.betas=[0.9, 0.999]",            \
        "gradient_clipping=0"
#define TIED_FILE "test/golden/gpt2_tiny.safetensors"
#define UNTIED_FILE "test/golden/gpt2_tiny_untied_erf.safetensors"

static void test_tied_f32(void **state)
{
    (void)state;
    follow(TIED_FILE, TINY(TIED), 1e-5, false);
    follow(TIED_FILE, TINY(TIED, "train.backend=ref"), 1e-5, false);
}

/* Names of one function, which the file's model calls gelu_new. */
static void test_names_of_tanh(void **state)
{
    (void)state;
    follow(TIED_FILE, TINY(TIED, "model.activation_function=gelu_pytorch_tanh"), 1e-5, false);
    follow(TIED_FILE, TINY(TIED, "model.activation_function=gelu_fast"), 1e-5, false);
}

static void test_tied_bf16(void **state)
{
    (void)state;
    follow(TIED_FILE, TINY(TIED, "bf16.enabled=true"), 2e-2, true);
}

static void test_tied_fp16(void **state)
{
    (void)state;
    follow(TIED_FILE, TINY(TIED, "fp16.enabled=true", "fp16.loss_scale=1"), 2e-2, true);
}

static void test_untied_accumulated_f32(void **state)
{
    (void)state;
    follow(UNTIED_FILE, TINY(UNTIED), 1e-5, false);
}

static void test_untied_accumulated_bf16(void **state)
{
    (void)state;
    follow(UNTIED_FILE, TINY(UNTIED, "bf16.enabled=true"), 2e-2, true);
}

static void test_portable(void **state)
{
    (void)state;
    follow(TIED_FILE, TINY(TIED, "train.isa=portable"), 1e-5, false);
    follow(TIED_FILE, TINY(TIED, "train.isa=portable", "bf16.enabled=true"), 2e-2, true);
}

#define SGD                                                                                                            \
    "optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]", "optimizer.params.lr=0.1",                            \
        "optimizer.params.momentum=0.9", "optimizer.params.dampening=0.25", "optimizer.params.weight_decay=0.01"
#define NESTEROV                                                                                                       \
    "optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]", "optimizer.params.lr=0.05",                           \
        "optimizer.params.momentum=0.8", "optimizer.params.nesterov=true", "optimizer.params.weight_decay=0.1",        \
        "gradient_accumulation_steps=2", "gradient_clipping=0"
#define SGD_FILE "test/golden/gpt2_tiny_sgd.safetensors"
#define NESTEROV_FILE "test/golden/gpt2_tiny_sgd_nesterov.safetensors"

static void test_sgd(void **state)
{
    (void)state;
    follow(SGD_FILE, TINY(TIED, SGD), 1e-5, false);
    follow(SGD_FILE, TINY(TIED, SGD, "train.backend=ref"), 1e-5, false);
    follow(SGD_FILE, TINY(TIED, SGD, "train.isa=portable"), 1e-5, false);
    follow(SGD_FILE, TINY(TIED, SGD, "bf16.enabled=true"), 2e-2, true);
    follow(SGD_FILE, TINY(TIED, SGD, "fp16.enabled=true", "fp16.loss_scale=1"), 2e-2, true);
}

#define FROZEN_FILE "test/golden/gpt2_tiny_frozen.safetensors"
#define FROZEN                                                                                                         \
    TIED, "gradient_clipping=0.2",                                                                                     \
        "train.freeze=*.w[tp]e.weight,*.h.0.*,*.h.1.ln_2.*,*.h.1.attn.c_attn.weight,*.h.1.mlp.c_proj.bias"

/* Of parameters without requires_grad. */
static void test_frozen(void **state)
{
    (void)state;
    follow(FROZEN_FILE, TINY(FROZEN), 1e-5, false);
    follow(FROZEN_FILE, TINY(FROZEN, "train.backend=ref"), 1e-5, false);
    follow(FROZEN_FILE, TINY(FROZEN, "activation_checkpointing.enabled=true"), 1e-5, false);
    follow(FROZEN_FILE, TINY(FROZEN, "bf16.enabled=true"), 2e-2, true);
    follow(FROZEN_FILE, TINY(FROZEN, "fp16.enabled=true", "fp16.loss_scale=1"), 2e-2, true);
}

#define GROUPS_FILE "test/golden/gpt2_tiny_groups.safetensors"
#define GROUPS                                                                                                         \
    TIED, "optimizer.param_groups=[{\"params\": [\"*wte*\", \"*.wpe.weight\"], \"lr\": 2e-4, \"weight_decay\": 0},"    \
          "{\"params\": \"*.h.0.*\", \"lr\": 5e-4, \"weight_decay\": 0.3, \"betas\": [0.8, 0.9], \"eps\": 1e-6},"      \
          "{\"params\": \"*.h.*\"}]"

/* Against param_groups; a third group has nothing of its own. */
static void test_groups(void **state)
{
    (void)state;
    follow(GROUPS_FILE, TINY(GROUPS), 1e-5, false);
    follow(GROUPS_FILE, TINY(GROUPS, "train.backend=ref"), 1e-5, false);
    follow(GROUPS_FILE, TINY(GROUPS, "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048"), 1e-5,
           false);
    follow(GROUPS_FILE, TINY(GROUPS, "bf16.enabled=true"), 2e-2, true);
}

static int64_t find_tensor(const ps_engine *e, const char *wanted, int64_t *n)
{
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        assert_ok(get_tensor(e, t, &name, &n_dims, shape));
        *n = shape[0] * shape[1];
        if (strcmp(name + strlen("transformer."), wanted) == 0) return t;
    }
    fail_msg("no %s", wanted);
    return -1;
}

/* As make_gpt2_tiny.py does it; a part of a tensor at a time. */
static void change_gradients_of_three(ps_engine *e)
{
    static const char *const names[] = {"h.0.mlp.c_fc.weight", "wte.weight", "ln_f.bias"};
    for (int i = 0; i < 3; i++) {
        int64_t n = 0;
        const int64_t t = find_tensor(e, names[i], &n), half = i == 1 ? TINY_VOCABULARY / 2 * 48 : n;
        float *values = malloc((size_t)n * 4);
        assert_ok(ps_engine_read_gradient(e, t, 0, half, values));
        for (int64_t k = 0; k < half; k++)
            values[k] = i == 0 ? 3 * values[k] : i == 1 ? 0 : values[k] + 0.125f * (float)e->loss_scale;
        assert_ok(ps_engine_write_gradient(e, t, 0, half / 3, values));
        assert_ok(ps_engine_write_gradient(e, t, half / 3, half - half / 3, values + half / 3));
        free(values);
    }
}

#define CHANGED_FILE "test/golden/gpt2_tiny_changed.safetensors"

/* Norm, clipping and updates are those of the gradients as they were left. */
static void test_changed_gradients(void **state)
{
    (void)state;
    follow_changing(CHANGED_FILE, TINY(TIED), 1e-5, false, change_gradients_of_three);
    follow_changing(CHANGED_FILE, TINY(TIED, "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048"),
                    1e-5, false, change_gradients_of_three);
    follow_changing(CHANGED_FILE, TINY(TIED, "zero.reuse_fp16_shard=false"), 1e-5, false, change_gradients_of_three);
    follow_changing(CHANGED_FILE, TINY(TIED, "bf16.enabled=true"), 2e-2, true, change_gradients_of_three);
    follow_changing(CHANGED_FILE, TINY(TIED, "fp16.enabled=true", "fp16.loss_scale=1"), 2e-2, true,
                    change_gradients_of_three);
}

static void test_sgd_nesterov(void **state)
{
    (void)state;
    follow(NESTEROV_FILE, TINY(NESTEROV), 1e-5, false);
    follow(NESTEROV_FILE, TINY(NESTEROV, "bf16.enabled=true"), 2e-2, true);
}

/* ---- Hugging Face's classes ---- */

static temp_folder work;

/* The model that the file's own config.json describes, trained as make_hf_tiny.py does with so many rows of T tokens and
 * a schedule of so many steps. */
static ps_config *config_for(const char *path, int B, int T, int n_steps, const char *more)
{
    ps_safetensors *file = NULL;
    ps_config *c = NULL;
    char text[1024];
    assert_ok(ps_safetensors_open(path, &file));
    const char *json = ps_safetensors_metadata_value(file, "config");
    assert_non_null(json);
    assert_ok(ps_file_write_all(temp_folder_file(&work, "config.json").text, json, (int64_t)strlen(json)));
    ps_safetensors_close(file);
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.95], "
             "\"eps\": 1e-8, \"weight_decay\": 0.1}}, "
             "\"scheduler\": {\"type\": \"cosine\", \"params\": {\"warmup_num_steps\": 2, "
             "\"total_num_steps\": %d}}, "
             "\"model\": {\"from_pretrained\": \"%s\"}, \"data\": {\"sequence_length\": %d}, "
             "\"memory\": {\"device\": \"64MB\", \"host\": 0, \"disk\": 0}, \"train\": {\"threads\": 2}%s}",
             B, n_steps, work.path, T, more);
    assert_ok(ps_config_parse(text, "golden", &c));
    return c;
}

static ps_config *config_of(const char *path, const char *more)
{
    return config_for(path, 2, 20, 8, more);
}

#define BF16 ", \"bf16\": {\"enabled\": true}"
#define FP16 ", \"fp16\": {\"enabled\": true, \"loss_scale\": 1}"
#define CHECKPOINTING ", \"activation_checkpointing\": {\"enabled\": true}"

static void follow_hf_within(const char *name, double sixteen_bit_tolerance)
{
    char path[128];
    snprintf(path, sizeof path, "test/golden/%s_tiny.safetensors", name);
    follow(path, config_of(path, ""), 1e-5, false);
    follow(path, config_of(path, CHECKPOINTING), 1e-5, false);
    follow(path, config_of(path, BF16), sixteen_bit_tolerance, true);
    follow(path, config_of(path, FP16), sixteen_bit_tolerance, true);
}

static void follow_hf(void **state)
{
    follow_hf_within(*state, 2e-2);
}

/* No norm stands before its branches: PyTorch's own gradients in bf16 are up to 5e-2 from those in f32, of Llama
 * 1.7e-2. Ours are within 3e-2 where weights of pairs stay floats, and near PyTorch's where they are rounded for tensor
 * cores. */
static void follow_olmo2(void **state)
{
    (void)state;
    follow_hf_within("olmo2", 3.5e-2);
}

/* ---- adapters: ten steps by peft ---- */

#define ALL_LINEAR                                                                                                     \
    ", \"lora\": {\"r\": 4, \"lora_alpha\": 8, \"target_modules\": \"all-linear\", "                                   \
    "\"rank_pattern\": {\"q_proj\": 8, \"0.mlp.up_proj\": 2}, \"alpha_pattern\": {\"v_proj\": 4}}"
#define WITH_HEAD                                                                                                      \
    ", \"lora\": {\"r\": 6, \"lora_alpha\": 4, \"use_rslora\": true, "                                                 \
    "\"target_modules\": [\"q_proj\", \"k_proj\", \"down_proj\"], \"modules_to_save\": [\"lm_head\"]}"
#define OF_BERT ", \"lora\": {\"r\": 4, \"lora_alpha\": 4, \"target_modules\": [\"query\", \"value\", \"dense\"]}"
#define OF_GPT2                                                                                                        \
    "scheduler.type=cosine", "scheduler.params.warmup_num_steps=2", "scheduler.params.total_num_steps=20", "lora.r=4", \
        "lora.lora_alpha=8", "lora.target_modules=c_attn,c_proj"
#define LORA_GPT2_FILE "test/golden/lora_gpt2_tiny.safetensors"

static void follow_lora(const char *name, const char *section)
{
    char path[128], more[1024];
    static const char *const others[] = {"", CHECKPOINTING, BF16, FP16};
    snprintf(path, sizeof path, "test/golden/lora_%s_tiny.safetensors", name);
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) {
        snprintf(more, sizeof more, "%s%s", section, others[i]);
        follow(path, config_for(path, 2, 20, 20, more), i < 2 ? 1e-5 : 3e-2, i >= 2);
    }
}

static void test_lora(void **state)
{
    (void)state;
    follow_lora("llama", ALL_LINEAR);
    follow_lora("qwen3", WITH_HEAD);
    follow_lora("bert", OF_BERT);
    follow(LORA_GPT2_FILE, TINY(OF_GPT2), 1e-5, false);
    follow(LORA_GPT2_FILE, TINY(OF_GPT2, "train.backend=ref"), 1e-5, false);
    follow(LORA_GPT2_FILE, TINY(OF_GPT2, "train.isa=portable"), 1e-5, false);
    follow(LORA_GPT2_FILE, TINY(OF_GPT2, "bf16.enabled=true"), 3e-2, true);
}

/* What is near 0 comes to be on the other side of it in 16 bits, and has a gradient or none: PyTorch's own in bf16 are
 * up to 1.6e-1 from those in f32. */
static void follow_relu(void **state)
{
    (void)state;
    follow_hf_within("bert_relu", 1.6e-1);
}

/* ---- other heads: ten steps, losses by the classes themselves ---- */

static ps_config *heads_config(const char *name, const char *path, const char *more)
{
    ps_config *c = config_for(path, 3, 12, 16, more);
    if (strcmp(name, "bert_weighted") == 0) { /* what the loss has that make_heads_tiny.py adds to the class */
        assert_ok(ps_config_set(c, "train.class_weights", "0.5,2,1.25"));
        assert_ok(ps_config_set(c, "train.label_smoothing", "0.1"));
        assert_ok(ps_config_set(c, "train.z_loss", "0.01"));
    }
    assert_ok(ps_config_validate(c));
    return c;
}

static void follow_heads(void **state)
{
    const char *name = *state;
    char path[128];
    snprintf(path, sizeof path, "test/golden/%s_heads.safetensors", name);
    follow(path, heads_config(name, path, ""), 1e-5, false);
    ps_config *ref = heads_config(name, path, "");
    assert_ok(ps_config_set(ref, "train.backend", "ref"));
    follow(path, ref, 1e-5, false);
    follow(path, heads_config(name, path, CHECKPOINTING), 1e-5, false);
    /* of 16 columns errors cancel less than of 32; in the order of tensor cores bert_qa comes to 4.01e-2 in bf16 */
    follow(path, heads_config(name, path, BF16), 4.5e-2, true);
    follow(path, heads_config(name, path, FP16), 4e-2, true);
}

static char bert_regression[] = "bert_regression", bert_multi[] = "bert_multi", bert_weighted[] = "bert_weighted",
            bert_token[] = "bert_token", bert_qa[] = "bert_qa", gpt2_regression[] = "gpt2_regression",
            gpt2_token[] = "gpt2_token", gpt2_qa[] = "gpt2_qa", llama_multi[] = "llama_multi",
            llama_token[] = "llama_token", llama_qa[] = "llama_qa", qwen2_qa[] = "qwen2_qa",
            mistral_token[] = "mistral_token";

#define HEADS(name)                                                                                                    \
    {                                                                                                                  \
        "follow_" #name, follow_heads, NULL, NULL, name                                                                \
    }

static char llama[] = "llama", llama_linear[] = "llama_linear", mistral[] = "mistral", qwen2[] = "qwen2",
            qwen3[] = "qwen3", bert_mlm[] = "bert_mlm", bert_untied[] = "bert_untied", bert_cls[] = "bert_cls",
            gpt2_cls[] = "gpt2_cls", llama_yarn[] = "llama_yarn", qwen3_yarn[] = "qwen3_yarn";

#define HF(name)                                                                                                       \
    {                                                                                                                  \
        "follow_" #name, follow_hf, NULL, NULL, name                                                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied_f32),
        cmocka_unit_test(test_names_of_tanh),
        cmocka_unit_test(test_tied_bf16),
        cmocka_unit_test(test_tied_fp16),
        cmocka_unit_test(test_untied_accumulated_f32),
        cmocka_unit_test(test_untied_accumulated_bf16),
        cmocka_unit_test(test_portable),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_sgd_nesterov),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_changed_gradients),
        HEADS(bert_regression),
        HEADS(bert_multi),
        HEADS(bert_weighted),
        HEADS(bert_token),
        HEADS(bert_qa),
        HEADS(gpt2_regression),
        HEADS(gpt2_token),
        HEADS(gpt2_qa),
        HEADS(llama_multi),
        HEADS(llama_token),
        HEADS(llama_qa),
        HEADS(qwen2_qa),
        HEADS(mistral_token),
        HF(llama),
        HF(llama_linear),
        HF(llama_yarn),
        HF(mistral),
        HF(qwen2),
        HF(qwen3),
        HF(qwen3_yarn),
        cmocka_unit_test(follow_olmo2),
        HF(bert_mlm),
        HF(bert_untied),
        cmocka_unit_test(follow_relu),
        HF(bert_cls),
        HF(gpt2_cls),
    };
    work = temp_folder_make();
    const int failed = RUN_ON_BACKENDS(tests);
    temp_folder_remove(&work);
    return failed;
}
