/* engine_fixture.h - small models and runs for the tests of the engine. */
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H

#include <math.h>
#include <string.h>

#include "api/engine/engine.h"
#include "base/mem.h"
#include "engine/backends.h"
#include "named_bytes.h"

/* Fail with the library's message. */
#define assert_ok(expr)                                                                                                \
    do {                                                                                                               \
        const ps_status st_ = (expr);                                                                                  \
        if (st_ != PS_OK) fail_msg("%s: %s", ps_status_name(st_), ps_last_error());                                    \
    } while (0)

enum { TINY_VOCABULARY = 131 };

/* The configuration of a tiny GPT-2 (131 tokens, T = 16, C = 48, 2 blocks, 3 heads, B = 2), f32, all in memory. */
static const char tiny_config[] =
    "{\"train_micro_batch_size_per_gpu\": 2,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.95], \"eps\": 1e-8,"
    "                 \"weight_decay\": 0.1}},"
    " \"gradient_clipping\": 0.5,"
    " \"model\": {\"vocab_size\": 131, \"n_positions\": 16, \"n_embd\": 48, \"n_layer\": 2, \"n_head\": 3,"
    "             \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"attn_pdrop\": 0},"
    " \"memory\": {\"device\": \"64MB\", \"host\": 0, \"disk\": 0},"
    " \"train\": {\"seed\": 7, \"threads\": 2}}";

/* A configuration with changes: "key=value" strings up to NULL; over the backend that is tested. */
static inline ps_config *tiny_with(const char *const *changes)
{
    ps_config *c = NULL;
    assert_ok(ps_config_parse(tiny_config, "tiny", &c));
    for (; changes != NULL && *changes != NULL; changes++) {
        char key[256];
        const char *equals = strchr(*changes, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *changes), *changes);
        assert_ok(ps_config_set(c, key, equals + 1));
    }
    over_backend(c);
    assert_ok(ps_config_validate(c));
    return c;
}

#define OFFLOAD "activation_checkpointing.enabled=true", "client.opts.with_activation_offload=true"
#define TINY(...) tiny_with((const char *const[]){__VA_ARGS__, NULL})

static inline ps_engine *engine_of(ps_config *c)
{
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(ps_model_from_config, c, 0, c, &e));
    return e;
}

/* The least device budget that fits with these changes, as the refusal of a smaller one says: what fits depends on the
 * scratch of kernels, and that on the processor. */
static inline int64_t smallest_device(const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = NULL;
    assert_ok(ps_config_set(c, "memory.device", "4096"));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    assert_null(e);
    ps_config_destroy(c);
    return named_bytes(ps_last_error(), "memory.device=");
}

static inline ps_status get_tensor(const ps_engine *e, int64_t tensor, const char **name, int *n_dims, int64_t shape[2])
{
    ps_tensor_info info = {.struct_size = sizeof info};
    const ps_status st = ps_engine_get_tensor_info(e, tensor, &info);
    *name = info.name;
    *n_dims = info.n_dims;
    memcpy(shape, info.shape, sizeof info.shape);
    return st;
}

/* Deterministic tokens for micro-batch number `index`: a noisy counting pattern, so that there is something to
 * learn. */
static inline void fill_batch(int32_t *tokens, int32_t *targets, int64_t B, int64_t T, int32_t V, int64_t index)
{
    uint32_t state = (uint32_t)(index * 7919 + 17);
    for (int64_t b = 0; b < B; b++) {
        int32_t token = (int32_t)((uint32_t)(index * 31 + b * 11) % (uint32_t)V);
        for (int64_t t = 0; t <= T; t++) {
            if (t < T) tokens[b * T + t] = token;
            if (t > 0) targets[b * T + t - 1] = token;
            state = state * 1664525u + 1013904223u;
            token = (token + 1 + (int32_t)(state >> 30)) % V;
        }
    }
}

/* Step `index`, from 0, of as many micro-batches as the configuration says. */
static inline ps_status tiny_step(ps_engine *e, int64_t index)
{
    int32_t tokens[64 * 16], targets[64 * 16];
    int64_t B, T, K;
    ps_engine_get_shape(e, &B, &T, &K, NULL);
    assert_true(B * T <= (int64_t)PS_ARRAY_LEN(tokens));
    for (int64_t k = 0; k < K; k++) {
        float loss;
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, index * K + k);
        PS_TRY(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
        PS_TRY(ps_backward(e));
        PS_TRY(ps_step(e));
    }
    return PS_OK;
}

/* What the engine's loss is of, for these tokens: the targets of fill_batch for a language model; else a label of each
 * sequence or token, two positions of each sequence, or values in [0, 1]. A few take no part. */
static inline ps_batch batch_for(const ps_engine *e, int32_t *tokens, int32_t *targets, float *values)
{
    const ps_program *p = e->shape->program;
    const int64_t n_tokens = p->B * p->T;
    if (p->n_outputs == TINY_VOCABULARY)
        return (ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets};
    for (int64_t i = 0; i < p->n_targets; i++) {
        const int32_t token = tokens[i * n_tokens / p->n_targets];
        const bool is_left_out = p->n_targets > p->B && i % 5 == 3;
        values[i] = is_left_out ? NAN : (float)((token + i) % 11) / 10;
        targets[i] = is_left_out ? -100 : (int32_t)((token + i) % p->n_target_classes);
    }
    const bool are_values = p->target_array == PS_BATCH_VALUES;
    return (ps_batch){.struct_size = sizeof(ps_batch),
                      .tokens = tokens,
                      .targets = are_values ? NULL : targets,
                      .values = are_values ? values : NULL};
}

enum { TARGETS_MAX = 256 };

#define MAX_STEPS 40

typedef struct run_result {
    uint64_t hash;
    float losses[MAX_STEPS];
    double norms[MAX_STEPS];
    ps_memory_info memory;
} run_result;

/* The checker of order, where there is one, has looked at what was done, knows all bytes, and found
 * nothing. */
static inline void assert_ordered(const ps_engine *e)
{
    if (e->order == NULL) return;
    const ps_order_stats s = ps_order_get_stats(e->order);
    if (s.n_reports > 0) fail_msg("%s", ps_order_text(e->order, 0));
    assert_int_equal(s.n_unnamed, 0);
    assert_true(s.n_items > 0);
}

/* Train n_steps (at most MAX_STEPS) steps; the engine and the configuration are given up. */
static inline run_result train(ps_config *c, int n_steps)
{
    run_result r = {0};
    ps_engine *e = engine_of(c);
    int64_t B, T, K;
    ps_engine_get_shape(e, &B, &T, &K, NULL);
    assert_true(B * T <= TARGETS_MAX && e->program->n_targets <= TARGETS_MAX);
    float values[TARGETS_MAX];
    int32_t *tokens = calloc((size_t)(B * T), sizeof *tokens), *targets = calloc(TARGETS_MAX, sizeof *targets);
    for (int step = 0; step < n_steps; step++) {
        for (int64_t k = 0; k < K; k++) {
            float loss;
            fill_batch(tokens, targets, B, T, TINY_VOCABULARY, step * K + k);
            const ps_batch batch = batch_for(e, tokens, targets, values);
            assert_ok(ps_forward(e, &batch, &loss));
            assert_ok(ps_backward(e));
            assert_ok(ps_step(e));
            r.losses[step] += loss / (float)K;
        }
        ps_step_info info = {.struct_size = sizeof info};
        ps_engine_get_step_info(e, &info);
        r.norms[step] = info.grad_norm;
        r.memory.struct_size = sizeof r.memory;
        ps_engine_get_memory_info(e, &r.memory);
        assert_true(r.memory.device_peak_bytes <= r.memory.device_budget_bytes);
        assert_true(r.memory.host_peak_bytes <= r.memory.host_budget_bytes);
        assert_true(r.memory.disk_peak_bytes <= r.memory.disk_budget_bytes);
    }
    assert_ok(ps_engine_get_weights_xxh3(e, &r.hash));
    free(tokens);
    free(targets);
    assert_ordered(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return r;
}

#endif
