/* The public functions: order of calls, bad arguments, tensors across chunk boundaries, inference. */
#include "engine/engine_fixture.h"

#include <math.h>

enum { B = 2, T = 16, V = 131 };

static int32_t tokens[B * T], targets[B * T];
static const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};

static void expect_state(ps_status st, const char *call, const char *after)
{
    assert_int_equal(st, PS_ESTATE);
    if (strstr(ps_last_error(), call) == NULL || strstr(ps_last_error(), after) == NULL)
        fail_msg("not \"%s ... %s\": %s", call, after, ps_last_error());
}

static void test_order_of_calls(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "gradient_accumulation_steps=2");
    ps_engine *e = engine_of(c);
    float value = 0, logits[V];
    fill_batch(tokens, targets, B, T, V, 0);
    expect_state(ps_backward(e), "ps_backward", "after ps_step or initialisation");
    expect_state(ps_step(e), "ps_step", "it follows ps_backward");
    expect_state(ps_engine_read_gradient(e, 0, 0, 1, &value), "ps_engine_read_gradient", "it follows ps_backward");
    assert_ok(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, 0, logits));
    for (int k = 0; k < 2; k++) {
        assert_ok(ps_forward(e, &batch, NULL));
        expect_state(ps_forward(e, &batch, NULL), "ps_forward", "after ps_forward");
        expect_state(ps_step(e), "ps_step", "after ps_forward");
        expect_state(ps_evaluate(e, &batch, &value), "ps_evaluate", "after ps_forward");
        expect_state(ps_engine_write_tensor(e, 0, 0, 1, &value), "ps_engine_write_tensor", "after ps_forward");
        assert_ok(ps_backward(e));
        expect_state(ps_backward(e), "ps_backward", "after ps_backward");
        expect_state(ps_forward(e, &batch, NULL), "ps_forward", "after ps_backward");
        assert_ok(ps_engine_read_gradient(e, 0, 0, 1, &value));
        assert_ok(ps_step(e));
        ps_step_info info = {.struct_size = sizeof info};
        ps_engine_get_step_info(e, &info);
        assert_int_equal(info.step, k); /* the first call only ends a micro-batch */
    }
    assert_ok(ps_evaluate(e, &batch, &value));
    ps_engine_destroy(e);
    ps_engine_destroy(NULL);
    ps_config_destroy(c);
}

/* A model function that fails: with a text, without one, and with a number that is no status. */
static ps_status failing_model(ps_builder *b, void *user)
{
    const int *how = user;
    (void)b;
    return how[1] ? ps_set_last_error((ps_status)how[0], "its own text") : (ps_status)how[0];
}

static void test_failing_models(void **state)
{
    static const struct {
        int how[2];
        ps_status want;
        const char *says;
    } cases[] = {{{PS_EINVAL, 0}, PS_EINVAL, "the model function returned -1 (invalid argument or configuration)"},
                 {{PS_EIO, 0}, PS_EIO, "the model function returned -4 ("},
                 {{PS_EIO, 1}, PS_EIO, "its own text"},
                 {{12345, 0}, PS_EINVAL, "the model function returned 12345 (unknown status)"},
                 {{-99, 1}, PS_EINVAL, "the model function returned -99 (unknown status): its own text"}};
    (void)state;
    ps_config *c = TINY("train.threads=1");
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_engine *e = NULL;
        (void)ps_set_last_error(PS_EIO, "an older error");
        assert_int_equal(ps_initialize_engine(failing_model, (void *)(uintptr_t)cases[i].how, 0, c, &e), cases[i].want);
        if (strstr(ps_last_error(), cases[i].says) == NULL || strstr(ps_last_error(), "older") != NULL)
            fail_msg("not \"%s\": %s", cases[i].says, ps_last_error());
    }
    ps_config_destroy(c);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "train.seed=1");
    ps_engine *e = (ps_engine *)(void *)&c;
    assert_int_equal(ps_initialize_engine(NULL, c, 0, c, &e), PS_EINVAL);
    assert_null(e);
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, NULL, &e), PS_EINVAL);
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 1, c, &e), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "local_rank 1"));
    e = engine_of(c);
    float value = 0, loss;
    fill_batch(tokens, targets, B, T, V, 0);
    static const struct {
        int at;
        int32_t token, target;
        const char *says;
    } wrong[] = {{3, V, 0, "token 3 of the batch is 131"},
                 {31, -1, 0, "token 31 of the batch is -1"},
                 {0, INT32_MAX, 0, "token 0"},
                 {5, 0, V, "target 5 of the batch is 131"},
                 {6, 0, -1, "target 6 of the batch is -1"},
                 {7, 0, INT32_MIN, "target 7"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
        fill_batch(tokens, targets, B, T, V, 0);
        tokens[wrong[i].at] = wrong[i].token;
        targets[wrong[i].at] = wrong[i].target;
        assert_int_equal(ps_forward(e, &batch, &loss), PS_EINVAL);
        if (strstr(ps_last_error(), wrong[i].says) == NULL) fail_msg("%s", ps_last_error());
        assert_int_equal(ps_evaluate(e, &batch, &loss), PS_EINVAL);
    }
    fill_batch(tokens, targets, B, T, V, 0);
    assert_int_equal(
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = NULL, .targets = targets}, NULL),
        PS_EINVAL);
    assert_int_equal(
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = NULL}, NULL),
        PS_EINVAL);
    assert_int_equal(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = NULL}, &loss),
        PS_EINVAL);
    const int64_t n = ps_engine_get_tensor_count(e);
    const char *name;
    int n_dims;
    int64_t shape[2];
    assert_int_equal(get_tensor(e, n, &name, &n_dims, shape), PS_EINVAL);
    assert_int_equal(get_tensor(e, -1, &name, &n_dims, shape), PS_EINVAL);
    assert_ok(get_tensor(e, 0, &name, &n_dims, shape));
    assert_string_equal(name, "transformer.wte.weight");
    assert_int_equal(n_dims, 2);
    assert_int_equal(shape[0], V);
    const int64_t all = shape[0] * shape[1];
    assert_int_equal(ps_engine_read_tensor(e, 0, all, 1, &value), PS_EINVAL);
    assert_int_equal(ps_engine_read_tensor(e, 0, -1, 1, &value), PS_EINVAL);
    assert_int_equal(ps_engine_read_tensor(e, 0, 0, -1, &value), PS_EINVAL);
    assert_int_equal(ps_engine_read_tensor(e, 0, INT64_MAX, INT64_MAX, &value), PS_EINVAL);
    assert_int_equal(ps_engine_write_tensor(e, 0, 1, all, &value), PS_EINVAL);
    assert_int_equal(ps_engine_write_tensor(e, n, 0, 1, &value), PS_EINVAL);
    assert_ok(ps_engine_read_tensor(e, 0, all, 0, &value)); /* nothing */
    /* a batch in which nothing counts: loss 0, and the step continues */
    for (int i = 0; i < B * T; i++) targets[i] = -100;
    assert_ok(ps_forward(e, &batch, &loss));
    assert_true(loss == 0);
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* wte takes a run of chunks; read and write pieces that begin and end anywhere, then train over what was written. */
static void test_tensors_across_chunks(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "bf16.enabled=true", "default_chunk_size=2048", "memory.device=700KB",
                        "memory.disk=20MB");
    ps_engine *e = engine_of(c);
    enum { N = V * 48 };
    static float model[N], read[N];
    ps_memory_info info = {.struct_size = sizeof info};
    ps_engine_get_memory_info(e, &info);
    assert_true(info.chunk_elements < N);
    assert_ok(ps_engine_read_tensor(e, 0, 0, N, model));
    uint32_t seed = 5;
    for (int i = 0; i < 40; i++) {
        seed = seed * 1664525u + 1013904223u;
        const int64_t first = (seed >> 8) % N, n = 1 + (int64_t)((seed >> 5) % (uint32_t)(N - first));
        for (int64_t k = first; k < first + n; k++) model[k] += 0.001f * (float)(k % 7);
        assert_ok(ps_engine_write_tensor(e, 0, first, n, model + first));
        assert_ok(ps_engine_read_tensor(e, 0, first, n, read));
        assert_memory_equal(read, model + first, (size_t)n * sizeof *read);
    }
    assert_ok(ps_engine_read_tensor(e, 0, 0, N, read));
    assert_memory_equal(read, model, sizeof model);
    uint64_t hash, other;
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    /* the operators see what was written: equal to an engine with all in memory, given the same values */
    float loss[2];
    fill_batch(tokens, targets, B, T, V, 3);
    assert_ok(ps_evaluate(e, &batch, &loss[0]));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    c = TINY("train.threads=1", "bf16.enabled=true");
    e = engine_of(c);
    assert_ok(ps_engine_write_tensor(e, 0, 0, N, model));
    assert_ok(ps_engine_get_weights_xxh3(e, &other));
    assert_ok(ps_evaluate(e, &batch, &loss[1]));
    assert_true(hash == other);
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static ps_engine *inference_engine(ps_config *c)
{
    ps_engine *e = NULL;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    return e;
}

static void test_inference(void **state)
{
    (void)state;
    static const char *const formats[] = {"bf16.enabled=false", "bf16.enabled=true"};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        ps_config *c[3] = {
            TINY("train.threads=1", formats[f]),
            TINY("train.threads=1", formats[f], "memory.device=160KB", "memory.disk=20MB", "default_chunk_size=2048"),
            TINY("train.threads=1", formats[f], "memory.device=160KB", "memory.host=4MB", "default_chunk_size=4096")};
        ps_engine *e[3], *training = engine_of(c[0]);
        float loss, same;
        fill_batch(tokens, targets, B, T, V, 9);
        targets[4] = -100;
        assert_ok(ps_evaluate(training, &batch, &loss));
        for (int i = 0; i < 3; i++) {
            e[i] = inference_engine(c[i]);
            assert_ok(ps_evaluate(e[i], &batch, &same));
            assert_memory_equal(&loss, &same, sizeof loss); /* the bits of the training engine's evaluation */
        }
        double sum = 0;
        int counted = 0;
        for (int64_t row = 0; row < B * T; row++) {
            float logits[3][V];
            for (int i = 0; i < 3; i++)
                assert_ok(
                    ps_infer(e[i], &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, row, logits[i]));
            assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
            assert_memory_equal(logits[0], logits[2], sizeof logits[0]);
            if (targets[row] < 0) continue;
            double most = -INFINITY, total = 0;
            for (int v = 0; v < V; v++) most = fmax(most, (double)logits[0][v]);
            for (int v = 0; v < V; v++) total += exp((double)logits[0][v] - most);
            sum += most + log(total) - (double)logits[0][targets[row]];
            counted++;
        }
        if (fabs(sum / counted - (double)loss) > 1e-4) fail_msg("%g, not %g", sum / counted, (double)loss);
        float logits[V], value = 0;
        uint64_t hash;
        assert_int_equal(ps_infer(e[0], &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, B * T, logits),
                         PS_EINVAL);
        assert_int_equal(ps_infer(e[0], &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, -2, logits),
                         PS_EINVAL);
        assert_int_equal(ps_infer(e[0], &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = NULL}, 0, logits),
                         PS_EINVAL);
        tokens[0] = V;
        assert_int_equal(ps_infer(e[0], &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, 0, logits),
                         PS_EINVAL);
        tokens[0] = 0;
        expect_state(ps_forward(e[0], &batch, NULL), "ps_forward", "inference");
        assert_int_equal(ps_backward(e[0]), PS_ESTATE);
        assert_int_equal(ps_step(e[0]), PS_ESTATE);
        assert_int_equal(ps_engine_get_weights_xxh3(e[0], &hash), PS_ESTATE);
        value = 0.5f;
        assert_ok(ps_engine_write_tensor(e[1], 2, 3, 1, &value));
        value = 0;
        assert_ok(ps_engine_read_tensor(e[1], 2, 3, 1, &value));
        assert_true(value == 0.5f);
        ps_engine_destroy(training);
        for (int i = 0; i < 3; i++) ps_engine_destroy(e[i]), ps_config_destroy(c[i]);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Engines with different numbers of threads take turns on one thread: each computes as if alone. */
static void test_two_engines(void **state)
{
    (void)state;
    float loss;
    double norm[4];
    for (int turn = 0; turn < 2; turn++) { /* alone, then side by side */
        ps_config *c[2] = {TINY("train.threads=1"), tiny_with((const char *const[]){"train.threads=3", NULL})};
        ps_engine *e[2] = {engine_of(c[0]), NULL};
        if (turn == 1) e[1] = engine_of(c[1]);
        for (int i = 0; i < 2; i++) {
            if (e[i] == NULL) e[i] = engine_of(c[i]);
            fill_batch(tokens, targets, B, T, V, 0);
            assert_ok(ps_forward(e[i], &batch, &loss));
            assert_ok(ps_backward(e[i]));
            assert_ok(ps_step(e[i]));
            ps_step_info info = {.struct_size = sizeof info};
            ps_engine_get_step_info(e[i], &info);
            norm[2 * turn + i] = info.grad_norm;
        }
        for (int i = 0; i < 2; i++) ps_engine_destroy(e[i]), ps_config_destroy(c[i]);
    }
    assert_true(norm[0] == norm[2] && norm[1] == norm[3]);
}

/* Refused before anything is touched: the engine gives what it gives without them. */
static void test_bad_token_types(void **state)
{
    (void)state;
    ps_config *c = TINY("model.type=bert", "model.head=masked_lm", "model.hidden_act=gelu", "model.type_vocab_size=2");
    ps_engine *e = engine_of(c);
    int32_t types[B * T] = {0};
    float loss, before;
    fill_batch(tokens, targets, B, T, V, 0);
    const ps_batch typed = {.struct_size = sizeof typed, .tokens = tokens, .targets = targets, .token_type_ids = types};
    assert_ok(ps_evaluate(e, &typed, &before));
    for (int bad = 0; bad < 2; bad++) {
        types[9] = bad ? 2 : -1;
        assert_int_equal(ps_forward(e, &typed, &loss), PS_EINVAL);
        const char *says = bad ? "token type 9 of the batch is 2, the model has 2" : "token type 9 of the batch is -1";
        if (strstr(ps_last_error(), says) == NULL) fail_msg("%s", ps_last_error());
        assert_int_equal(ps_evaluate(e, &typed, &loss), PS_EINVAL);
    }
    types[9] = 0;
    assert_ok(ps_forward(e, &typed, &loss));
    assert_true(loss == before);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Values in place of targets, and positions: what is wrong is named, and what takes no part counts nothing. */
static void test_batches_of_heads(void **state)
{
    (void)state;
    ps_config *c = TINY("model.head=sequence_classification", "model.num_labels=2", "model.problem_type=regression");
    ps_engine *e = engine_of(c);
    float values[B * 2], loss;
    ps_eval_info info = {.struct_size = sizeof info};
    fill_batch(tokens, targets, B, T, V, 0);
    const ps_batch numbers = {.struct_size = sizeof numbers, .tokens = tokens, .values = values};
    for (int i = 0; i < B * 2; i++) values[i] = NAN;
    assert_ok(ps_evaluate(e, &numbers, &loss));
    ps_engine_get_eval_info(e, &info);
    assert_true(loss == 0 && info.n_targets == 0 && info.weight == 0);
    values[3] = 0.5f;
    assert_ok(ps_evaluate(e, &numbers, &loss));
    ps_engine_get_eval_info(e, &info);
    assert_true(loss > 0 && info.n_targets == 1 && info.weight == 1 && info.n_correct == 0);
    values[2] = INFINITY;
    assert_int_equal(ps_forward(e, &numbers, &loss), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "value 2 of the batch is infinite"));
    assert_int_equal(
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss),
        PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "the batch has no values"));
    ps_engine_destroy(e);
    ps_config_destroy(c);

    c = TINY("model.head=sequence_classification", "model.num_labels=2",
             "model.problem_type=multi_label_classification");
    e = engine_of(c);
    for (int i = 0; i < B * 2; i++) values[i] = i == 1 ? NAN : (float)i / (B * 2);
    assert_ok(ps_evaluate(e, &numbers, &loss));
    for (int i = 0; i < 2; i++) {
        values[3] = i == 0 ? 2.0f : -1.0f;
        assert_int_equal(ps_forward(e, &numbers, &loss), PS_EINVAL);
        assert_int_equal(ps_evaluate(e, &numbers, &loss), PS_EINVAL);
        const char *says = i == 0 ? "value 3 of the batch is 2, expected 0 to 1" : "value 3 of the batch is -1,";
        assert_non_null(strstr(ps_last_error(), says));
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);

    c = TINY("model.head=question_answering");
    e = engine_of(c);
    int32_t positions[B * 2] = {0, T - 1, -100, 3};
    const ps_batch spans = {.struct_size = sizeof spans, .tokens = tokens, .targets = positions};
    assert_ok(ps_evaluate(e, &spans, &loss));
    ps_engine_get_eval_info(e, &info);
    assert_true(loss > 0 && info.n_targets == B * 2 - 1);
    positions[1] = T;
    assert_int_equal(ps_forward(e, &spans, &loss), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "target 1 of the batch is 16, the model has 16"));
    ps_engine_destroy(e);
    ps_config_destroy(c);

    c = TINY("model.head=token_classification", "model.num_labels=3", "train.class_weights=1,0.5,0", "train.z_loss=0");
    e = engine_of(c);
    for (int i = 0; i < B * T; i++) targets[i] = i % 4 == 3 ? -100 : i % 4;
    assert_ok(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
    ps_engine_get_eval_info(e, &info);
    assert_true(info.n_targets == B * T / 4 * 3 && info.weight == B * T / 4 * 1.5);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* What a step says of its micro-batches is the same, whether their losses were asked for or not. */
static void test_losses_that_are_not_asked_for(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "gradient_accumulation_steps=3");
    ps_engine *e[2] = {engine_of(c), engine_of(c)};
    double sum = 0;
    for (int k = 0; k < 3; k++) {
        float loss, offload_index;
        ps_eval_info asked = {.struct_size = sizeof asked}, unasked = {.struct_size = sizeof unasked};
        fill_batch(tokens, targets, B, T, V, k);
        assert_ok(ps_evaluate(e[0], &batch, &offload_index)); /* leaves the step's losses alone */
        assert_ok(ps_forward(e[0], &batch, &loss));
        assert_ok(ps_forward(e[1], &batch, NULL));
        assert_true(loss == offload_index);
        ps_engine_get_eval_info(e[0], &asked);
        if (k == 1) {
            ps_engine_get_eval_info(e[1], &unasked);
            assert_true(unasked.loss == asked.loss && unasked.n_targets == asked.n_targets);
        }
        sum += (double)loss;
        for (int i = 0; i < 2; i++) assert_ok(ps_backward(e[i]));
        for (int i = 0; i < 2; i++) assert_ok(ps_step(e[i]));
    }
    for (int i = 0; i < 2; i++) {
        ps_step_info info = {.struct_size = sizeof info};
        ps_engine_get_step_info(e[i], &info);
        assert_true(info.loss == sum / 3);
        ps_engine_destroy(e[i]);
    }
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_calls),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_failing_models),
        cmocka_unit_test(test_tensors_across_chunks),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_two_engines),
        cmocka_unit_test(test_bad_token_types),
        cmocka_unit_test(test_batches_of_heads),
        cmocka_unit_test(test_losses_that_are_not_asked_for),
    };
    return RUN_ON_BACKENDS(tests);
}
