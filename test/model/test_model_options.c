/* Options of a model that shape no tensor, as they arrive in the program that is built. */
#include "engine/engine_fixture.h"

#include <math.h>

#include "config/config.h"
#include "train/graph/node.h"
#include "train/graph/program.h"

static ps_program *program_of(ps_config *c)
{
    ps_program *p = NULL;
    assert_ok(ps_program_build(ps_model_from_config, c, NULL, 2, 16, &p));
    ps_config_destroy(c);
    return p;
}

static ps_config *parse(const char *text)
{
    ps_config *c = NULL;
    assert_ok(ps_config_parse(text, "model", &c));
    return c;
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6;
}

/* Weights begin with the deviation that was asked for; gpt2's into the residual stream with it by the root of twice the
 * blocks. */
static void initializer_range_is_the_deviation_of_weights(void **state)
{
    (void)state;
    static const char *const models[] = {
        "{\"model\": {\"initializer_range\": 0.3, \"hidden_size\": 48, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 3}}",
        "{\"model\": {\"initializer_range\": 0.3, \"hidden_size\": 48, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 3,"
        " \"type\": \"llama\"}}",
        "{\"model\": {\"initializer_range\": 0.3, \"hidden_size\": 48, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 3,"
        " \"type\": \"bert\"}}",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(models); i++) {
        ps_program *p = program_of(parse(models[i]));
        int n_weights = 0;
        for (int32_t k = 0; k < p->n_params; k++) {
            const ps_param *param = &p->params[k];
            if (param->init_std == 0) continue; /* a bias, a norm */
            const bool is_scaled = i == 0 && strstr(param->name, "c_proj.weight") != NULL;
            if (!is_near(param->init_std, is_scaled ? 0.3 / 2 : 0.3))
                fail_msg("%s begins with %g", param->name, param->init_std);
            n_weights++;
        }
        assert_true(n_weights > 8);
        ps_program_destroy(p);
    }
}

static bool is_a(const ps_node *n, const char *type)
{
    return strcmp(n->type->name, type) == 0;
}

/* Dropout after the pooler of a BERT that classifies. */
static double classifier_dropout_of(const char *text)
{
    ps_program *p = program_of(parse(text));
    double found = -1;
    for (int32_t k = 1; k < p->n_nodes; k++)
        if (is_a(&p->nodes[k], "dropout") && is_a(&p->nodes[k - 1], "tanh")) found = (double)p->nodes[k].attr.dropout.p;
    ps_program_destroy(p);
    return found;
}

static void classifier_dropout_is_of_the_classifier(void **state)
{
    (void)state;
#define CLASSIFIER                                                                                                     \
    "{\"model\": {\"type\": \"bert\", \"head\": \"sequence_classification\", \"hidden_size\": 48, "                    \
    "\"num_attention_heads\": 3,"                                                                                      \
    " \"num_hidden_layers\": 1, \"hidden_dropout_prob\": 0.25"
    assert_true(is_near(classifier_dropout_of(CLASSIFIER ", \"classifier_dropout\": 0.5}}"), 0.5));
    assert_true(is_near(classifier_dropout_of(CLASSIFIER "}}"), 0.25));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initializer_range_is_the_deviation_of_weights),
        cmocka_unit_test(classifier_dropout_is_of_the_classifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
