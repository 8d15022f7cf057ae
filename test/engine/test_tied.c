/* Parameters that two operators share: their gradients, and those of the parameters next to them, against finite
 * differences. */
#include "engine/engine_fixture.h"

#include <math.h>

enum { B = 2, T = 8, V = 23, C = 16 };

static int32_t tokens[B * T], targets[B * T];
static const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};

/* The loss reads the weight of a layer that has a bias of its own. */
static ps_status tied_to_linear(ps_builder *b, void *user)
{
    (void)user;
    const ps_value x = ps_token_embedding(b, "wte", V, C);
    const ps_value y = ps_gelu(b, ps_linear(b, x, "proj", V, 1), PS_ACTIVATION_GELU_TANH);
    ps_cross_entropy(b, ps_linear(b, y, "back", C, 1), "proj.weight", NULL, V, NULL);
    return PS_OK;
}

/* The loss adds the bias of a normalisation, whose weight the backward pass reads. */
static ps_status tied_to_norm(ps_builder *b, void *user)
{
    (void)user;
    const ps_value x = ps_token_embedding(b, "wte", V, C);
    const ps_value y = ps_layer_norm(b, ps_linear(b, x, "up", V, 0), "ln", 1e-5f);
    ps_cross_entropy(b, ps_linear(b, y, "down", C, 0), "wte.weight", "ln.bias", V, NULL);
    return PS_OK;
}

static int64_t find_tensor(const ps_engine *e, const char *wanted)
{
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        assert_ok(get_tensor(e, t, &name, &n_dims, shape));
        if (strcmp(name, wanted) == 0) return t;
    }
    fail_msg("no tensor %s", wanted);
    return -1;
}

static double loss_at(ps_engine *e, int64_t tensor, int64_t element, float value)
{
    ps_eval_info info = {.struct_size = sizeof info};
    float loss;
    assert_ok(ps_engine_write_tensor(e, tensor, element, 1, &value));
    assert_ok(ps_evaluate(e, &batch, &loss));
    ps_engine_get_eval_info(e, &info);
    return info.loss;
}

/* d loss / d element of the present parameters. */
static double difference(ps_engine *e, int64_t tensor, int64_t element)
{
    const float h = 1e-2f;
    float value;
    assert_ok(ps_engine_read_tensor(e, tensor, element, 1, &value));
    const double above = loss_at(e, tensor, element, value + h), below = loss_at(e, tensor, element, value - h);
    (void)loss_at(e, tensor, element, value);
    return (above - below) / (2 * (double)h);
}

/* In each of some steps, so that what one leaves would be seen in the next. The same batch is given for each
 * micro-batch. */
static void compare(ps_model_func model, const char *parameter, const char *more, const char *other)
{
    enum { STEPS = 3, N_ELEMENTS = 4 };
    ps_config *c = TINY("train.threads=1", "gradient_clipping=0", "optimizer.params.lr=0.1", "data.sequence_length=8",
                        more, other);
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(model, NULL, 0, c, &e));
    const int64_t tensor = find_tensor(e, parameter);
    int64_t K;
    ps_engine_get_shape(e, NULL, NULL, &K, NULL);
    for (int step = 0; step < STEPS; step++) {
        double want[N_ELEMENTS];
        float found[N_ELEMENTS];
        fill_batch(tokens, targets, B, T, V, step);
        for (int i = 0; i < N_ELEMENTS; i++) want[i] = difference(e, tensor, i);
        for (int64_t k = 0; k < K; k++) {
            assert_ok(ps_forward(e, &batch, NULL));
            assert_ok(ps_backward(e));
            if (k + 1 == K) assert_ok(ps_engine_read_gradient(e, tensor, 0, N_ELEMENTS, found));
            assert_ok(ps_step(e));
        }
        for (int i = 0; i < N_ELEMENTS; i++)
            if (fabs((double)found[i] - want[i]) > 2e-3 * fabs(want[i]) + 5e-5)
                fail_msg("%s, step %d, element %d: gradient %g, but by differences %g", parameter, step, i,
                         (double)found[i], want[i]);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void compare_all(ps_model_func model, const char *const *parameters)
{
    for (; *parameters != NULL; parameters++) {
        compare(model, *parameters, "gradient_accumulation_steps=1", "train.backend=ref");
        compare(model, *parameters, "gradient_accumulation_steps=1", "zero.reuse_fp16_shard=false");
        compare(model, *parameters, "gradient_accumulation_steps=3", "train.seed=7");
        compare(model, *parameters, "activation_checkpointing.enabled=true", "memory.disk=20MB");
    }
}

static void test_weight_of_a_biased_layer(void **state)
{
    (void)state;
    compare_all(tied_to_linear, (const char *const[]){"proj.bias", "proj.weight", "back.bias", NULL});
}

static void test_bias_of_a_normalisation(void **state)
{
    (void)state;
    compare_all(tied_to_norm, (const char *const[]){"ln.weight", "ln.bias", "up.weight", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weight_of_a_biased_layer),
        cmocka_unit_test(test_bias_of_a_normalisation),
    };
    return RUN_ON_BACKENDS(tests);
}
