/* own_operator.c - a model with a custom operator: the activation Snake, whose frequencies are trained.
 *
 *     y = x + sin(a x)^2 / a,   a: a parameter a column       (Ziyin, Hartwig, Ueda: "Neural Networks Fail to Learn
 *                                                              Periodic Functions and How to Fix It", NeurIPS 2020)
 *
 * Build and run:
 *     cc -std=c11 own_operator.c -lpatrickstar -lm -o own_operator
 *     ./own_operator memory.device=2400KB memory.host=300KB memory.disk=16MB
 *
 * Any option of doc/config.md can follow. Losses and weights are the same for all budgets. */
#include <math.h>
#include <patrickstar_own.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != PS_OK) return fprintf(stderr, "%s\n", ps_last_error()), 1;                                       \
    } while (0)

/* ---- the operator ---- */

/* Scratch: a row of x, of a, and of the output, as floats. */
static int64_t snake_scratch(const ps_own_call *c, int is_backward)
{
    (void)is_backward;
    return 3 * c->y_columns * (int64_t)sizeof(float);
}

static ps_status snake_forward(const ps_own_call *c)
{
    const int64_t n = c->y_columns;
    float *x = c->scratch, *a = x + n, *y = a + n;
    ps_to_floats(c->dtype, c->w[0], 0, n, a);
    for (int64_t row = 0; row < c->rows; row++) {
        ps_to_floats(c->dtype, c->x[0], row * n, n, x);
        for (int64_t i = 0; i < n; i++) {
            const float s = sinf(a[i] * x[i]);
            y[i] = x[i] + s * s / a[i];
        }
        ps_from_floats(c->dtype, c->y, row * n, n, y);
    }
    return PS_OK;
}

/* dx = dy (1 + sin(2 a x));   da = sum over rows of dy (x sin(2 a x) / a - sin(a x)^2 / a^2) */
static ps_status snake_backward(const ps_own_call *c)
{
    const int64_t n = c->y_columns;
    float *x = c->scratch, *a = x + n, *d = a + n, *da = c->dw[0];
    ps_to_floats(c->dtype, c->w[0], 0, n, a);
    if (da != NULL) memset(da, 0, (size_t)n * sizeof *da); /* NULL: it is frozen */
    for (int64_t row = 0; row < c->rows; row++) {
        ps_to_floats(c->dtype, c->x[0], row * n, n, x);
        ps_to_floats(c->dtype, c->dy, row * n, n, d);
        for (int64_t i = 0; i < n; i++) {
            const float s = sinf(a[i] * x[i]), twice = sinf(2 * a[i] * x[i]);
            if (da != NULL) da[i] += d[i] * (x[i] * twice - s * s / a[i]) / a[i];
            d[i] *= 1 + twice;
        }
        if (c->dx[0] != NULL) ps_from_floats(c->dtype, c->dx[0], row * n, n, d);
    }
    return PS_OK;
}

static double snake_flops(const ps_own_call *c, int is_backward)
{
    return (is_backward ? 60.0 : 30.0) * (double)(c->rows * c->y_columns);
}

static const ps_own_operator snake = {
    .struct_size = sizeof snake,
    .name = "snake",
    .n_inputs = 1,
    .n_parameters = 1,
    .dtypes = 1u << PS_DTYPE_F32 | 1u << PS_DTYPE_BF16 | 1u << PS_DTYPE_F16,
    .backward_reads = PS_READS_X | PS_READS_W,
    .is_by_row = 1,
    .forward = snake_forward,
    .backward = snake_backward,
    .scratch_bytes = snake_scratch,
    .flops = snake_flops,
};

/* ---- a model with it ---- */

enum { B = 4, T = 32, VOCABULARY = 256, WIDTH = 64, HEADS = 4, LAYERS = 3, STEPS = 30 };

static ps_status model(ps_builder *b, void *user)
{
    (void)user;
    ps_value x = ps_token_embedding(b, "wte", VOCABULARY, WIDTH);
    x = ps_position_embedding(b, x, "wpe", T);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "h.%d", i);
        ps_begin_block(b, name, 1);
        ps_value y = ps_linear(b, ps_layer_norm(b, x, "ln_1", 1e-5f), "attn.qkv", 3 * WIDTH, 1);
        x = ps_add(b, x, ps_linear(b, ps_attention(b, y, HEADS, 1, 0), "attn.out", WIDTH, 1));
        y = ps_linear(b, ps_layer_norm(b, x, "ln_2", 1e-5f), "mlp.up", 4 * WIDTH, 1);
        const ps_own_use use = {.struct_size = sizeof use,
                                .op = &snake,
                                .x = {y},
                                .parameters = {{.suffix = "a", .columns = 4 * WIDTH, .mean = 1, .std = 0.1}}};
        y = ps_own_apply(b, "mlp.snake", &use);
        x = ps_add(b, x, ps_linear(b, y, "mlp.down", WIDTH, 1));
        ps_end_block(b);
    }
    ps_cross_entropy(b, ps_layer_norm(b, x, "ln_f", 1e-5f), "wte.weight", NULL, VOCABULARY, NULL);
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
    ps_config *config = NULL;
    ps_engine *engine = NULL;
    CHECK(ps_config_parse(options, "options", &config));
    for (int i = 1; i < argc; i++) CHECK(set(config, argv[i]));
    CHECK(ps_config_validate(config));
    CHECK(ps_initialize_engine(model, NULL, 0, config, &engine));
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[B * T], targets[B * T]; /* training data: each token is the previous one plus 7 */
        for (int i = 0; i < B * T; i++) {
            tokens[i] = (step * 11 + i / T * 50 + i % T * 7) % VOCABULARY;
            targets[i] = (tokens[i] + 7) % VOCABULARY;
        }
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
        float loss;
        CHECK(ps_forward(engine, &batch, &loss));
        CHECK(ps_backward(engine));
        CHECK(ps_step(engine));
        if (step % 5 == 4) printf("step %d loss %.9g\n", step + 1, (double)loss);
    }
    uint64_t hash;
    CHECK(ps_engine_get_weights_xxh3(engine, &hash));
    printf("weights %016llx\n", (unsigned long long)hash);
    ps_engine_destroy(engine);
    ps_config_destroy(config);
    return 0;
}
