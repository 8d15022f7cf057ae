/* own_loss.c - a model with a custom loss: the focal loss, which emphasises hard targets.
 *
 *     loss = -(1 - p)^gamma log p,   p = softmax(logits)[target]
 *
 * (Lin, Goyal, Girshick, He, Dollar: "Focal Loss for Dense Object Detection", ICCV 2017)
 *
 * Build and run:
 *     cc -std=c11 own_loss.c -lpatrickstar -lm -o own_loss
 *     ./own_loss memory.device=2400KB memory.host=300KB memory.disk=16MB */
#include <math.h>
#include <patrickstar_own.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != PS_OK) return fprintf(stderr, "%s\n", ps_last_error()), 1;                                       \
    } while (0)

enum { NO_TARGET = -100 };

/* ---- the loss ---- */

typedef struct focal_options {
    double gamma;
} focal_options;

/* Scratch: a row of logits as floats. */
static int64_t focal_scratch(const ps_own_call *c, int is_backward)
{
    (void)is_backward;
    return c->x_columns[0] * (int64_t)sizeof(float);
}

/* saved[0]: the log of the sum of exponentials of each row */
static ps_status focal_forward(const ps_own_call *c)
{
    const focal_options *o = c->options;
    const int64_t n = c->x_columns[0];
    float *z = c->scratch;
    for (int64_t row = 0; row < c->rows; row++) {
        const int32_t target = c->targets[row];
        double sum = 0;
        int32_t largest = 0;
        ps_to_floats(c->dtype, c->x[0], row * n, n, z);
        for (int32_t i = 1; i < n; i++)
            if (z[i] > z[largest]) largest = i;
        for (int64_t i = 0; i < n; i++) sum += exp((double)z[i] - (double)z[largest]);
        c->saved[0][row] = (float)((double)z[largest] + log(sum));
        c->predicted[row] = largest;
        c->row_loss[row] = 0;
        if (target == NO_TARGET) continue;
        const double log_p = (double)z[target] - (double)c->saved[0][row];
        c->row_loss[row] = (float)(-pow(1 - exp(log_p), o->gamma) * log_p);
    }
    return PS_OK;
}

/* d loss / d z[i] = ((i == target) - p[i]) (gamma p (1 - p)^(gamma - 1) log p - (1 - p)^gamma), p = p[target] */
static ps_status focal_backward(const ps_own_call *c)
{
    const focal_options *o = c->options;
    const int64_t n = c->x_columns[0];
    float *z = c->scratch;
    for (int64_t row = 0; row < c->rows; row++) {
        const int32_t target = c->targets[row];
        const double lse = (double)c->saved[0][row];
        double factor = 0;
        ps_to_floats(c->dtype, c->x[0], row * n, n, z);
        if (target != NO_TARGET) {
            const double log_p = (double)z[target] - lse, p = exp(log_p), rest = fmax(1 - p, 1e-12);
            factor = (o->gamma * p * pow(rest, o->gamma - 1) * log_p - pow(rest, o->gamma)) * (double)c->scale;
        }
        for (int64_t i = 0; i < n; i++) z[i] = (float)(factor * ((i == target ? 1.0 : 0.0) - exp((double)z[i] - lse)));
        ps_from_floats(c->dtype, c->dx[0], row * n, n, z);
    }
    return PS_OK;
}

static const ps_own_operator focal = {
    .struct_size = sizeof focal,
    .name = "focal loss",
    .n_inputs = 1,
    .dtypes = 1u << PS_DTYPE_F32 | 1u << PS_DTYPE_BF16 | 1u << PS_DTYPE_F16,
    .backward_reads = PS_READS_X,
    .is_by_row = 1,
    .forward = focal_forward,
    .backward = focal_backward,
    .scratch_bytes = focal_scratch,
};

/* ---- a model with it ---- */

enum { B = 4, T = 32, VOCABULARY = 256, WIDTH = 64, HEADS = 4, LAYERS = 2, STEPS = 30 };

static ps_status model(ps_builder *b, void *user)
{
    ps_value x = ps_token_embedding(b, "wte", VOCABULARY, WIDTH);
    x = ps_position_embedding(b, x, "wpe", T);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "h.%d", i);
        ps_begin_block(b, name, 1);
        ps_value y = ps_linear(b, ps_layer_norm(b, x, "ln_1", 1e-5f), "attn.qkv", 3 * WIDTH, 1);
        x = ps_add(b, x, ps_linear(b, ps_attention(b, y, HEADS, 1, 0), "attn.out", WIDTH, 1));
        y = ps_linear(b, ps_layer_norm(b, x, "ln_2", 1e-5f), "mlp.up", 4 * WIDTH, 1);
        x = ps_add(b, x, ps_linear(b, ps_gelu(b, y, PS_ACTIVATION_GELU_TANH), "mlp.down", WIDTH, 1));
        ps_end_block(b);
    }
    const ps_own_use use = {.struct_size = sizeof use,
                            .op = &focal,
                            .x = {ps_linear(b, ps_layer_norm(b, x, "ln_f", 1e-5f), "head", VOCABULARY, 0)},
                            .saved_columns = {1},
                            .options = user,
                            .options_bytes = sizeof(focal_options)};
    ps_own_end(b, "focal", &use);
    return PS_OK;
}

static const char options[] = "{\"train_micro_batch_size_per_gpu\": 4, \"data\": {\"sequence_length\": 32},"
                              " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.003}},"
                              " \"train\": {\"threads\": 1}, \"memory\": {\"device\": \"16MB\", \"host\": 0}}";

/* "key=value" */
static ps_status set(ps_config *config, const char *change)
{
    char key[128];
    const char *equals = strchr(change, '=');
    if (equals == NULL || equals - change >= (int)sizeof key) {
        fprintf(stderr, "%s: expected key=value\n", change);
        exit(1);
    }
    snprintf(key, sizeof key, "%.*s", (int)(equals - change), change);
    return ps_config_set(config, key, equals + 1);
}

int main(int argc, char **argv)
{
    focal_options gamma = {2};
    ps_config *config = NULL;
    ps_engine *engine = NULL;
    CHECK(ps_config_parse(options, "options", &config));
    for (int i = 1; i < argc; i++) CHECK(set(config, argv[i]));
    CHECK(ps_config_validate(config));
    CHECK(ps_initialize_engine(model, &gamma, 0, config, &engine));
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[B * T], targets[B * T]; /* training data: each token is the previous one plus 7 */
        for (int i = 0; i < B * T; i++) {
            tokens[i] = (step * 11 + i / T * 50 + i % T * 7) % VOCABULARY;
            targets[i] = i % 5 == 0 ? NO_TARGET : (tokens[i] + 7) % VOCABULARY;
        }
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
        float loss;
        CHECK(ps_forward(engine, &batch, &loss));
        CHECK(ps_backward(engine));
        CHECK(ps_step(engine));
        if (step % 5 == 4) printf("step %d loss %.9g\n", step + 1, (double)loss);
    }
    ps_eval_info info = {.struct_size = sizeof info};
    uint64_t hash;
    CHECK(ps_engine_get_eval_info(engine, &info));
    printf("%lld of %lld right\n", (long long)info.n_correct, (long long)info.n_targets);
    CHECK(ps_engine_get_weights_xxh3(engine, &hash));
    printf("weights %016llx\n", (unsigned long long)hash);
    ps_engine_destroy(engine);
    ps_config_destroy(config);
    return 0;
}
