/* test_optimizer.c - what the options make of an optimizer: its states, its bytes, which options do not go together,
 * and first updates to the last digit. Longer runs: test/engine/test_golden.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "train/optim/optimizer.h"

static ps_status read(const char *optimizer, ps_optimizer_setup *out)
{
    char text[256];
    ps_config *c = NULL;
    snprintf(text, sizeof text, "{\"optimizer\": {%s}}", optimizer);
    const ps_status parsed = ps_config_parse(text, "c.json", &c);
    const ps_status st = parsed == PS_OK ? ps_optimizer_read(ps_config_options(c), out) : parsed;
    ps_config_destroy(c);
    return st;
}

static void test_states(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *suffixes[2];
        int32_t n_states;
    } cases[] = {
        {"\"type\": \"Adam\"", "Adam", {".exp_avg", ".exp_avg_sq"}, 2},
        {"\"params\": {\"betas\": [0, 0.5]}", "AdamW", {".exp_avg", ".exp_avg_sq"}, 2},
        {"\"type\": \"sgd\", \"params\": {\"momentum\": 0.9}", "SGD", {".momentum_buffer"}, 1},
        {"\"type\": \"SGD\", \"params\": {\"weight_decay\": 0.1}", "SGD", {NULL}, 0},
        {"\"type\": \"lion\"", "Lion", {".exp_avg"}, 1},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_optimizer_setup o;
        if (read(cases[i].text, &o) != PS_OK) fail_msg("%s", ps_last_error());
        assert_string_equal(o.optimizer->name, cases[i].name);
        assert_int_equal(o.n_states, cases[i].n_states);
        for (int32_t k = 0; k < o.n_states; k++)
            assert_string_equal(o.optimizer->states[k].suffix, cases[i].suffixes[k]);
        assert_int_equal(ps_optimizer_bytes(&o, 3), 3 * (4 + 4 * cases[i].n_states));
        /* bf16: gradient in, parameter out, the others both */
        assert_int_equal(ps_optimizer_traffic_bytes(&o, ps_optimizer_states_of(&o, false), 3, 6),
                         3 * (4 + 8 + 8 * cases[i].n_states));
    }
}

/* In groups of 32, also where a tensor does not fill its last one. */
static void test_compact(void **state)
{
    (void)state;
    ps_optimizer_setup o;
    assert_int_equal(read("\"params\": {\"state_format\": \"compact\"}", &o), PS_OK);
    assert_true(o.is_compact);
    assert_int_equal(ps_optimizer_state_format(&o, 0), PS_FORMAT_SIGNED);
    assert_int_equal(ps_optimizer_state_format(&o, 1), PS_FORMAT_ROOT);
    assert_int_equal(ps_optimizer_bytes(&o, 64), 64 * 4 + 2 * 72);
    assert_int_equal(ps_optimizer_bytes(&o, 65), 65 * 4 + 2 * 108);
    assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 40, true, false), 40 * 4 + 2 * 72);
    assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 40, false, false), 40 * 4);
    assert_int_equal(ps_optimizer_traffic_bytes(&o, 3, 64, 128), 2 * (64 * 4 + 2 * 72) + 2 * 128);
}

/* Masters are half as large, but whole in a checkpoint. */
static void test_compact_split(void **state)
{
    (void)state;
    ps_optimizer_setup o;
    assert_int_equal(read("\"params\": {\"state_format\": \"compact_split\"}}, \"bf16\": {\"enabled\": true", &o),
                     PS_OK);
    assert_true(o.is_compact && o.is_split);
    assert_int_equal(ps_optimizer_bytes(&o, 64), 64 * 2 + 2 * 72);
    assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 40, true, false), 40 * 4 + 2 * 72);
    assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 40, false, false), 40 * 4);
    /* the parameter in and out, the gradient in */
    assert_int_equal(ps_optimizer_traffic_bytes(&o, 3, 64, 128), 2 * (64 * 2 + 2 * 72) + 3 * 128);
}

/* No masters, but in a checkpoint. */
static void test_bf16_stochastic(void **state)
{
    (void)state;
    static const char *const types[] = {"Adam", "AdamW"};
    for (size_t i = 0; i < PS_ARRAY_LEN(types); i++) {
        ps_optimizer_setup o;
        char text[160];
        snprintf(text, sizeof text,
                 "\"type\": \"%s\", \"params\": {\"state_format\": \"bf16_stochastic\"}}, \"bf16\": "
                 "{\"enabled\": true",
                 types[i]);
        assert_int_equal(read(text, &o), PS_OK);
        assert_true(o.is_stochastic && !o.is_compact && !o.is_split);
        assert_int_equal(ps_optimizer_state_format(&o, 1), PS_FORMAT_BF16);
        assert_int_equal(ps_optimizer_bytes(&o, 33), 33 * 4);
        assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 40, true, false), 40 * (4 + 4));
        assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 40, false, false), 40 * 4);
        assert_int_equal(ps_optimizer_traffic_bytes(&o, 3, 64, 128), 64 * 14);
    }
}

/* Those with one state. */
static void test_compact_momentum(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"state_format\": \"compact\"}",
        "\"type\": \"Lion\", \"params\": {\"state_format\": \"compact\"}"};
    for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
        ps_optimizer_setup o;
        assert_int_equal(read(texts[i], &o), PS_OK);
        assert_true(o.is_compact);
        assert_int_equal(ps_optimizer_state_format(&o, 0), PS_FORMAT_SIGNED);
        assert_int_equal(ps_optimizer_bytes(&o, 64), 64 * 4 + 72);
    }
}

static void test_options_that_do_not_go_together(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"\"type\": \"SGD\", \"params\": {\"betas\": [0.8, 0.9]}",
         "c.json:1:51: optimizer.params.betas has no effect with optimizer.type SGD; remove it"},
        {"\"type\": \"SGD\", \"params\": {\"state_format\": \"compact\"}",
         "optimizer.params.state_format = compact has no effect without optimizer.params.momentum"},
        {"\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"state_format\": \"compact_split\"}",
         "compact_split needs optimizer.type Adam or AdamW, found SGD; set compact here"},
        {"\"type\": \"Lion\", \"params\": {\"state_format\": \"bf16_stochastic\"}",
         "bf16_stochastic needs optimizer.type Adam or AdamW, found Lion; set compact here"},
        {"\"params\": {\"state_format\": \"bf16_stochastic\"}",
         "bf16 parameters without masters, but parameters are fp32; set bf16.enabled = true, or compact here"},
        {"\"params\": {\"state_format\": \"8bit\"}", "optimizer.params.state_format"},
        {"\"params\": {\"state_format\": \"compact_split\"}",
         "but parameters are fp32; set bf16.enabled = true, or compact here"},
        {"\"type\": \"Lion\", \"params\": {\"eps\": 1e-6}",
         "optimizer.params.eps has no effect with optimizer.type Lion; remove it"},
        {"\"type\": \"SGD\", \"params\": {\"eps\": 1e-6}",
         "optimizer.params.eps has no effect with optimizer.type SGD; remove it"},
        {"\"params\": {\"momentum\": 0.9}",
         "c.json:1:39: optimizer.params.momentum has no effect with optimizer.type AdamW; remove it"},
        {"\"type\": \"Adam\", \"params\": {\"nesterov\": true}",
         "optimizer.params.nesterov has no effect with optimizer.type Adam; remove it"},
        {"\"type\": \"SGD\", \"params\": {\"dampening\": 0.5}",
         "optimizer.params.dampening has no effect without optimizer.params.momentum; remove it"},
        {"\"type\": \"SGD\", \"params\": {\"nesterov\": true}", "but they are 0 and 0"},
        {"\"type\": \"SGD\", \"params\": {\"nesterov\": true, \"momentum\": 0.5, \"dampening\": 0.25}",
         "but they are 0.5 and 0.25"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        ps_optimizer_setup o;
        assert_int_equal(read(bad[i].text, &o), PS_EINVAL);
        if (strstr(ps_last_error(), bad[i].message) == NULL) fail_msg("%s", ps_last_error());
    }
    ps_optimizer_setup o;
    assert_int_equal(read("\"type\": \"SGD\", \"params\": {\"betas\": [0.9, 0.999], \"nesterov\": false}", &o), PS_OK);
}

static void test_defaults_of_lion(void **state)
{
    (void)state;
    ps_optimizer_setup o;
    assert_int_equal(read("\"type\": \"Lion\"", &o), PS_OK);
    assert_true(o.betas[0] == 0.9 && o.betas[1] == 0.99);
    assert_int_equal(read("\"type\": \"Lion\", \"params\": {\"betas\": [0.9, 0.999]}", &o), PS_OK);
    assert_true(o.betas[1] == 0.999);
    assert_int_equal(read("\"type\": \"AdamW\"", &o), PS_OK);
    assert_true(o.betas[1] == 0.999);
}

/* Each is one of the numbers that the update gets; what it does with them is tested with the kernels. */
static void test_options_arrive(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\"params\": {\"betas\": [0.375, 0.999]}",
        "\"params\": {\"betas\": [0.9, 0.375]}",
        "\"params\": {\"eps\": 0.375}",
        "\"type\": \"SGD\", \"params\": {\"momentum\": 0.375}",
        "\"type\": \"Lion\", \"params\": {\"betas\": [0.375, 0.999]}",
        "\"type\": \"Lion\", \"params\": {\"betas\": [0.9, 0.375]}",
        "\"type\": \"SGD\", \"params\": {\"momentum\": 0.5, \"dampening\": 0.375}",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
        ps_optimizer_setup o;
        assert_int_equal(read(texts[i], &o), PS_OK);
        int found = (o.betas[0] == 0.375) + (o.betas[1] == 0.375) + (o.eps == 0.375);
        for (int k = 0; k < PS_OPTIMIZER_NUMBERS_MAX; k++) found += o.number[k] == 0.375;
        if (found != 1) fail_msg("%s is no number of the update", texts[i]);
    }
}

/* ---- first updates, in the numbers of the options ---- */

enum { N_STEPS = 3, N_ELEMENTS = 4 };

typedef struct run {
    float master[N_ELEMENTS], state[2][N_ELEMENTS];
} run;

static const float gradients[N_STEPS][N_ELEMENTS] = {
    {0.5f, -0.0078125f, 3.0f, 1e-4f}, {-0.25f, 0.03125f, 1.0f, 1e-4f}, {0.125f, -0.5f, 0.75f, -3e-4f}};

/* Of weights that begin as zeros, so that nothing hides the digits of what is taken from them. */
static run update(ps_backend *b, const char *text, int n_steps)
{
    ps_optimizer_setup o;
    run r = {.master = {0}};
    assert_int_equal(read(text, &o), PS_OK);
    for (int t = 0; t < n_steps; t++) {
        float param[N_ELEMENTS];
        const ps_optimizer_step s = {.t = t + 1, .lr = 1e-3f, .grad_scale = 1};
        const ps_optimizer_piece p = {.param = param,
                                      .grad = gradients[t],
                                      .master = r.master,
                                      .state = {o.n_states > 0 ? r.state[0] : NULL, o.n_states > 1 ? r.state[1] : NULL},
                                      .n = N_ELEMENTS};
        assert_int_equal(ps_optimizer_update(b, NULL, &o, &s, &p), PS_OK);
    }
    return r;
}

/* Some roundings of a float, each 6e-8: where 1 - beta is taken of a float, means are off by 1e-5 and more. */
#define ROUNDINGS 4e-7

static void assert_close(const char *what, int i, float ours, double want)
{
    if (!(fabs((double)ours - want) <= ROUNDINGS * fabs(want)))
        fail_msg("%s[%d]: %.9g, expected %.9g: off by %.2g", what, i, (double)ours, want, (double)ours / want - 1);
}

static void check_adam(ps_backend *b)
{
    static const double betas[][2] = {{0.9, 0.999}, {0.9, 0.95}, {0.99, 0.9999}, {0, 0.5}};
    for (size_t k = 0; k < PS_ARRAY_LEN(betas); k++) {
        char text[64];
        const double beta1 = betas[k][0], beta2 = betas[k][1];
        double w[N_ELEMENTS] = {0}, m[N_ELEMENTS] = {0}, v[N_ELEMENTS] = {0};
        snprintf(text, sizeof text, "\"params\": {\"betas\": [%g, %g]}", beta1, beta2);
        for (int t = 1; t <= N_STEPS; t++) {
            const run r = update(b, text, t);
            for (int i = 0; i < N_ELEMENTS; i++) {
                const double g = (double)gradients[t - 1][i], lr = (double)1e-3f;
                m[i] = beta1 * m[i] + (1 - beta1) * g;
                v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                w[i] -= lr * (m[i] / (1 - pow(beta1, t))) / (sqrt(v[i] / (1 - pow(beta2, t))) + 1e-8);
                assert_close("exp_avg", i, r.state[0][i], m[i]);
                assert_close("exp_avg_sq", i, r.state[1][i], v[i]);
                if (t == 1) assert_close("weight", i, r.master[i], w[i]);
            }
        }
    }
}

/* Without a momentum that is worth one the buffer is (1 - dampening) of the second gradient. */
static void check_sgd(ps_backend *b)
{
    const run r = update(b, "\"type\": \"SGD\", \"params\": {\"momentum\": 1e-20, \"dampening\": 0.9999}", 2);
    for (int i = 0; i < N_ELEMENTS; i++)
        assert_close("momentum_buffer", i, r.state[0][i], (1 - 0.9999) * (double)gradients[1][i]);
}

static void check_lion(ps_backend *b)
{
    double w[N_ELEMENTS] = {0}, m[N_ELEMENTS] = {0};
    for (int t = 1; t <= N_STEPS; t++) {
        const run r = update(b, "\"type\": \"Lion\"", t);
        for (int i = 0; i < N_ELEMENTS; i++) {
            const double g = (double)gradients[t - 1][i];
            w[i] -= copysign((double)1e-3f, 0.9 * m[i] + (1 - 0.9) * g);
            m[i] = 0.99 * m[i] + (1 - 0.99) * g;
            assert_close("exp_avg", i, r.state[0][i], m[i]);
            assert_close("weight", i, r.master[i], w[i]);
        }
    }
}

/* torch.optim.AdamW(lr=1e-3, weight_decay=0) of PyTorch 2.15 on the CPU, from zeros, with these gradients. */
static void check_torch(ps_backend *b)
{
    static const double adamw[N_STEPS][N_ELEMENTS] = {
        {-0.000999999931, 0.000999998651, -0.00100000005, -0.00099989993},
        {-0.001266337, 0.00044049538, -0.00187106407, -0.00199980009},
        {-0.00160676613, 0.00105019799, -0.00267374283, -0.00175131287},
    };
    for (int t = 1; t <= N_STEPS; t++) {
        const run r = update(b, "\"params\": {\"betas\": [0.9, 0.999]}", t);
        for (int i = 0; i < N_ELEMENTS; i++) assert_close("weight of torch", i, r.master[i], adamw[t - 1][i]);
    }
}

static void test_first_updates(void **state)
{
    (void)state;
    ps_backend *backends[2] = {NULL};
    assert_int_equal(ps_backend_create_ref(&backends[0]), PS_OK);
    assert_int_equal(ps_backend_create_cpu(PS_CPU_PORTABLE, 1, &backends[1]), PS_OK);
    for (size_t i = 0; i < PS_ARRAY_LEN(backends); i++) {
        check_adam(backends[i]);
        check_torch(backends[i]);
        check_sgd(backends[i]);
        check_lion(backends[i]);
        ps_backend_destroy(backends[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),           cmocka_unit_test(test_options_arrive),
        cmocka_unit_test(test_defaults_of_lion), cmocka_unit_test(test_options_that_do_not_go_together),
        cmocka_unit_test(test_first_updates),    cmocka_unit_test(test_compact),
        cmocka_unit_test(test_compact_split),    cmocka_unit_test(test_bf16_stochastic),
        cmocka_unit_test(test_compact_momentum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
