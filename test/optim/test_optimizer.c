/* test_optimizer.c - what the options make of an optimizer: its states, its bytes, and which options do not go
 * together. What it computes: test/engine/test_golden.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "optim/optimizer.h"

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
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_optimizer_setup o;
        if (read(cases[i].text, &o) != PS_OK) fail_msg("%s", ps_last_error());
        assert_string_equal(o.optimizer->name, cases[i].name);
        assert_int_equal(o.n_states, cases[i].n_states);
        for (int32_t k = 0; k < o.n_states; k++)
            assert_string_equal(o.optimizer->states[k].suffix, cases[i].suffixes[k]);
        assert_int_equal(ps_optimizer_bytes(&o), 4 + 4 * cases[i].n_states);
        /* bf16: gradient in, parameter out, the others both */
        assert_int_equal(ps_optimizer_traffic_bytes(&o, 2), 4 + 8 + 8 * cases[i].n_states);
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

/* Each is one of the numbers that the update gets; what it does with them is tested with the kernels. */
static void test_options_arrive(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\"params\": {\"betas\": [0.375, 0.999]}",
        "\"params\": {\"betas\": [0.9, 0.375]}",
        "\"params\": {\"eps\": 0.375}",
        "\"type\": \"SGD\", \"params\": {\"momentum\": 0.375}",
        "\"type\": \"SGD\", \"params\": {\"momentum\": 0.5, \"dampening\": 0.375}",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
        ps_optimizer_setup o;
        int found = 0;
        assert_int_equal(read(texts[i], &o), PS_OK);
        for (int k = 0; k < PS_OPTIMIZER_NUMBERS_MAX; k++) found += o.number[k] == 0.375;
        if (found != 1) fail_msg("%s is no number of the update", texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_options_arrive),
        cmocka_unit_test(test_options_that_do_not_go_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
