/* test_own_framework.c - examples/own_framework.c: its gradients are those of finite differences, its updates those of
 * Adam written down here, and its bits the same in all budgets. */
int main_of_example(int argc, char **argv);
#define main main_of_example
#include "../../examples/own_framework.c"
#undef main

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assert_status.h"
#include "base/base.h"
#include "base/mem.h"
#include "temp_folder.h"

enum { TENSORS = 1 + 4 * LAYERS, LARGEST = VOCABULARY * WIDTH > HIDDEN *WIDTH ? VOCABULARY *WIDTH : HIDDEN *WIDTH };

static temp_folder folder;

/* changes: "key=value" with spaces between them */
static network open_network(const char *changes)
{
    ps_config *config = NULL;
    network n = {0};
    char one[128];
    assert_ok(ps_config_parse(options, "options", &config));
    assert_ok(ps_config_set(config, "memory.disk_path", folder.path));
    for (const char *at = changes; *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        assert_in_range(length, 3, sizeof one - 1);
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        assert_ok(set(config, one));
        at += length;
    }
    assert_ok(ps_client_create(config, NULL, &n.client));
    ps_config_destroy(config);
    assert_ok(add_parameters(&n));
    assert_ok(ps_client_begin(n.client));
    assert_int_equal(ps_client_get_tensor_count(n.client), TENSORS);
    return n;
}

static void close_network(network *n)
{
    assert_int_equal(activation_bytes, 0);
    ps_client_destroy(n->client);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static int64_t elements_of(const network *n, int32_t tensor)
{
    ps_client_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_get_tensor_info(n->client, tensor, &info));
    assert_in_range(info.elements, 1, LARGEST);
    return info.elements;
}

/* The sums of both passes' gradients. */
static void gradient_of(network *n, int32_t tensor, float *out)
{
    ps_client_place place = {.struct_size = sizeof place};
    assert_ok(ps_client_pin(n->client, tensor, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &place));
    assert_int_equal(place.gpu, -1);
    ps_to_floats(place.dtype, place.address, 0, elements_of(n, tensor), out);
    ps_client_unpin(n->client, tensor, PS_CLIENT_GRADIENT);
}

/* What comes before ps_client_step. */
static void both_passes(network *n, int number)
{
    int tokens[B], targets[B];
    for (int micro = 0; micro < MICRO_BATCHES; micro++) {
        float loss;
        n->is_last_pass = micro + 1 == MICRO_BATCHES;
        next_batch(number * MICRO_BATCHES + micro, tokens, targets);
        assert_ok(train(n, tokens, targets, &loss));
    }
}

/* ---- gradients ---- */

static double loss_with(network *n, int32_t tensor, const float *values)
{
    int tokens[B], targets[B];
    double sum = 0;
    assert_ok(ps_client_write_state(n->client, tensor, NULL, 0, elements_of(n, tensor), values));
    for (int micro = 0; micro < MICRO_BATCHES; micro++) {
        float loss;
        next_batch(micro, tokens, targets);
        assert_ok(evaluate(n, tokens, targets, &loss));
        sum += (double)loss / MICRO_BATCHES;
    }
    return sum;
}

/* Along the gradient, and a little across it, so that elements that it lacks would count. */
static void check_gradient(network *n, int32_t tensor, const float *gradient)
{
    static float values[LARGEST], moved[LARGEST], direction[LARGEST];
    const int64_t count = elements_of(n, tensor);
    double squares = 0, slope = 0;
    for (int64_t i = 0; i < count; i++) squares += (double)gradient[i] * (double)gradient[i];
    const float across = (float)sqrt(squares / (double)count) / 2;
    for (int64_t i = 0; i < count; i++) {
        direction[i] = gradient[i] + across * first_value(tensor + 1000, i);
        slope += (double)direction[i] * (double)gradient[i];
    }
    assert_true(slope > 0);
    const double step =
        0.02 / slope; /* the loss changes by 0.02: far above the rounding of its floats, and hardly bends */
    double loss[2];
    assert_ok(ps_client_read_state(n->client, tensor, NULL, 0, count, values));
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++)
            moved[i] = (float)((double)values[i] + (side == 0 ? -step : step) * (double)direction[i]);
        loss[side] = loss_with(n, tensor, moved);
    }
    assert_ok(ps_client_write_state(n->client, tensor, NULL, 0, count, values));
    const double found = (loss[1] - loss[0]) / (2 * step);
    if (fabs(found - slope) > 0.01 * slope) fail_msg("tensor %d: %g, not %g", tensor, slope, found);
}

static void test_gradients(void **state)
{
    (void)state;
    static float gradients[TENSORS][LARGEST];
    network n = open_network("");
    both_passes(&n, 0);
    for (int32_t t = 0; t < TENSORS; t++) {
        assert_true(ps_client_has_gradient(n.client, t));
        gradient_of(&n, t, gradients[t]);
    }
    assert_ok(ps_client_drop_gradients(n.client, -1));
    for (int32_t t = 0; t < TENSORS; t++) assert_false(ps_client_has_gradient(n.client, t));
    for (int32_t t = 0; t < TENSORS; t++) check_gradient(&n, t, gradients[t]);
    close_network(&n);
}

/* ---- updates ---- */

typedef struct adam {
    float w[LARGEST], m[LARGEST], v[LARGEST];
} adam;

/* Kingma, Ba: "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1. */
static void adam_update(adam *a, const float *gradient, int64_t count, int t)
{
    const double b1 = 0.9, b2 = 0.999, lr = 0.003, eps = 1e-8;
    for (int64_t i = 0; i < count; i++) {
        const double g = (double)gradient[i];
        a->m[i] = (float)(b1 * (double)a->m[i] + (1 - b1) * g);
        a->v[i] = (float)(b2 * (double)a->v[i] + (1 - b2) * g * g);
        const double m = (double)a->m[i] / (1 - pow(b1, t)), v = (double)a->v[i] / (1 - pow(b2, t));
        a->w[i] = (float)((double)a->w[i] - lr * m / (sqrt(v) + eps));
    }
}

/* Each update is 0.003 at most, of which 1 - beta2 as a float (0.00100004673) changes 3e-5. */
static void expect_close(const float *got, const float *want, int64_t count, int32_t tensor, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (fabs((double)got[i] - (double)want[i]) > 1e-6 * fabs((double)want[i]) + 4 * 3e-5 * 0.003)
            fail_msg("tensor %d, %s, element %lld: %.9g, not %.9g", tensor, what, (long long)i, (double)got[i],
                     (double)want[i]);
}

static void test_updates(void **state)
{
    (void)state;
    static adam all[TENSORS];
    static float values[LARGEST], gradients[TENSORS][LARGEST];
    network n = open_network("");
    memset(all, 0, sizeof all);
    for (int32_t t = 0; t < TENSORS; t++) {
        const int64_t count = elements_of(&n, t);
        assert_ok(ps_client_read_state(n.client, t, NULL, 0, count, all[t].w));
        const int64_t columns = t == 0 ? WIDTH : t % 4 == 1 ? WIDTH : HIDDEN;
        for (int64_t i = 0; i < count && (t == 0 || t % 2 == 1); i++) /* not of biases */
            assert_true(all[t].w[i] == first_value(t, i) / sqrtf((float)columns));
    }
    for (int step_number = 1; step_number <= 4; step_number++) {
        ps_client_step_info info = {.struct_size = sizeof info};
        both_passes(&n, step_number);
        for (int32_t t = 0; t < TENSORS; t++) gradient_of(&n, t, gradients[t]);
        assert_ok(ps_client_step(n.client, &info));
        assert_int_equal(info.step, step_number);
        double squares = 0;
        for (int32_t t = 0; t < TENSORS; t++) {
            const int64_t count = elements_of(&n, t);
            for (int64_t i = 0; i < count; i++) squares += (double)gradients[t][i] * (double)gradients[t][i];
            adam_update(&all[t], gradients[t], count, step_number);
            assert_ok(ps_client_read_state(n.client, t, NULL, 0, count, values));
            expect_close(values, all[t].w, count, t, "value");
            assert_ok(ps_client_read_state(n.client, t, "exp_avg", 0, count, values));
            expect_close(values, all[t].m, count, t, "exp_avg");
            assert_int_equal(ps_client_get_update_count(n.client, t), step_number);
        }
        assert_true(fabs(info.grad_norm - sqrt(squares)) < 1e-5 * sqrt(squares));
    }
    close_network(&n);
}

/* ---- budgets ---- */

typedef struct outcome {
    float losses[6];
    uint64_t hash;
    ps_client_info info;
} outcome;

static outcome run(const char *changes)
{
    outcome o = {.info.struct_size = sizeof o.info};
    network n = open_network(changes);
    for (int i = 0; i < 6; i++) assert_ok(step(&n, i, &o.losses[i]));
    assert_ok(hash_parameters(&n, &o.hash));
    assert_ok(ps_client_get_info(n.client, &o.info));
    close_network(&n);
    for (int tier = 0; tier < 3; tier++) assert_true(o.info.peak_bytes[tier] <= o.info.budget_bytes[tier]);
    assert_true(o.losses[5] < o.losses[0]);
    return o;
}

static void expect_same(const outcome *a, const outcome *b, const char *what)
{
    if (memcmp(a->losses, b->losses, sizeof a->losses) != 0 || a->hash != b->hash)
        fail_msg("%s: loss %.9g, parameters %llx, not %.9g, %llx", what, (double)b->losses[5],
                 (unsigned long long)b->hash, (double)a->losses[5], (unsigned long long)a->hash);
}

static void test_budgets(void **state)
{
    (void)state;
    static const char *const formats[] = {"", "bf16.enabled=true ", "fp16.enabled=true fp16.initial_scale_power=4 "};
    static const char *const budgets[] = {"memory.device=320KB memory.host=100KB memory.disk=16MB",
                                          "memory.device=320KB memory.host=16MB memory.disk=0",
                                          "memory.device=320KB memory.host=0 memory.disk=16MB",
                                          "memory.device=320KB memory.host=100KB memory.disk=16MB memory.prefetch=0"};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        char changes[256];
        snprintf(changes, sizeof changes, "%smemory.device=16MB memory.host=0 memory.disk=0", formats[f]);
        const outcome all = run(changes);
        assert_int_equal(all.info.moved_bytes[0] + all.info.moved_bytes[2] + all.info.moved_bytes[3], 0);
        for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
            snprintf(changes, sizeof changes, "%s%s", formats[f], budgets[i]);
            const outcome little = run(changes);
            expect_same(&all, &little, changes);
            if (little.info.budget_bytes[2] > 0) assert_true(little.info.moved_bytes[2] > 6 * 100000);
        }
    }
}

static int make_folder(void **state)
{
    (void)state;
    folder = temp_folder_make();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_budgets),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
