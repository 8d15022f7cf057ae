/* program_0_2.c - a program as it was compiled with the header of 0.2.0. It trains, and checks that a newer library
 * writes nothing after the members that the program knows. usage: program_0_2 CHECKPOINT_FOLDER */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "patrickstar_0_2.h"

static int n_failed;

static void expect(int is_true, const char *what)
{
    if (is_true) return;
    n_failed++;
    fprintf(stderr, "not true: %s (%s)\n", what, ps_last_error());
}

#define EXPECT(condition) expect(condition, #condition)

/* A structure with what must stay as it is after it. */
#define GUARDED(type, name)                                                                                            \
    struct {                                                                                                           \
        type own;                                                                                                      \
        unsigned char guard[256];                                                                                      \
    } name;                                                                                                            \
    memset(&name, 0xa5, sizeof name);                                                                                  \
    name.own.struct_size = sizeof name.own

static int is_intact(const unsigned char guard[256])
{
    for (int i = 0; i < 256; i++)
        if (guard[i] != 0xa5) return 0;
    return 1;
}

enum { B = 2, T = 8, V = 32, C = 16, D = 8 };

static ps_status model(ps_builder *b, void *user)
{
    (void)user;
    GUARDED(ps_rope, rope);
    rope.own = (ps_rope){.struct_size = sizeof rope.own, .theta = 10000};
    GUARDED(ps_attention_options, attention);
    attention.own =
        (ps_attention_options){.struct_size = sizeof attention.own, .n_heads = C / D, .n_kv_heads = C / D, .causal = 1};
    ps_value x = ps_layer_norm(b, ps_token_embedding(b, "embedding", V, C), "norm", 1e-5f);
    const ps_value q = ps_rotary_embedding(b, ps_linear(b, x, "q", C, 0), D, &rope.own);
    const ps_value k = ps_rotary_embedding(b, ps_linear(b, x, "k", C, 0), D, &rope.own);
    x = ps_grouped_attention(b, q, k, ps_linear(b, x, "v", C, 0), &attention.own);
    ps_cross_entropy(b, x, "head.weight", NULL, V, NULL);
    return PS_OK;
}

static void train(ps_engine *engine, const char *folder)
{
    int32_t tokens[B * T], targets[B * T];
    for (int i = 0; i < B * T; i++) tokens[i] = targets[i] = i % V;
    GUARDED(ps_batch, batch);
    batch.own = (ps_batch){.struct_size = sizeof batch.own, .tokens = tokens, .targets = targets};
    float loss = 0;
    for (int step = 0; step < 2; step++) {
        EXPECT(ps_forward(engine, &batch.own, &loss) == PS_OK);
        EXPECT(ps_backward(engine) == PS_OK);
        EXPECT(ps_step(engine) == PS_OK);
    }
    EXPECT(isfinite(loss) && loss > 0);

    GUARDED(ps_eval_info, eval);
    EXPECT(ps_engine_get_eval_info(engine, &eval.own) == PS_OK && is_intact(eval.guard));
    EXPECT((float)eval.own.loss == loss && eval.own.n_targets == B * T);
    GUARDED(ps_step_info, step);
    EXPECT(ps_engine_get_step_info(engine, &step.own) == PS_OK && is_intact(step.guard));
    EXPECT(step.own.step == 2 && (float)step.own.loss == loss && step.own.grad_norm > 0);
    GUARDED(ps_memory_info, memory);
    EXPECT(ps_engine_get_memory_info(engine, &memory.own) == PS_OK && is_intact(memory.guard));
    EXPECT(memory.own.parameters == 2 * V * C + 2 * C + 3 * C * C);
    EXPECT(memory.own.device_peak_bytes == memory.own.planned_device_peak_bytes && memory.own.planned_sent_bytes == 0);
    GUARDED(ps_checkpoint_info, saved);
    EXPECT(ps_engine_save_checkpoint(engine, folder, NULL, &saved.own) == PS_OK && is_intact(saved.guard));
    EXPECT(strcmp(saved.own.name, "step-000002") == 0);

    batch.own.struct_size = 0;
    EXPECT(ps_forward(engine, &batch.own, &loss) == PS_EINVAL);
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    int major = -1, minor = -1;
    EXPECT(ps_version(&major, &minor, NULL) != NULL);
    EXPECT(major == PS_VERSION_MAJOR && minor >= PS_VERSION_MINOR);
    ps_config *config = NULL;
    ps_engine *engine = NULL;
    EXPECT(ps_config_parse("{\"train_micro_batch_size_per_gpu\": 2, \"data\": {\"sequence_length\": 8},"
                           " \"memory\": {\"device\": \"16MB\"}, \"train\": {\"threads\": 1}}",
                           "options", &config) == PS_OK);
    EXPECT(ps_initialize_engine(model, NULL, 0, config, &engine) == PS_OK);
    if (engine != NULL) train(engine, argv[1]);
    ps_engine_destroy(engine);
    ps_config_destroy(config);
    return n_failed != 0;
}
