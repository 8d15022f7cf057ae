#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"
#include "weights/weight_names.h"

static void test_buffers_and_heads(void **state)
{
    (void)state;
    static const char *const buffers[] = {
        "transformer.h.11.attn.bias",   "h.0.attn.bias",
        "h.0.attn.masked_bias",         "model.layers.3.self_attn.rotary_emb.inv_freq",
        "bert.embeddings.position_ids", "embeddings.position_ids"};
    static const char *const others[] = {"h.0.attn.c_attn.bias",
                                         "x.attn.bias",
                                         "h..attn.bias",
                                         "h.a.attn.bias",
                                         "xh.0.attn.bias",
                                         "attn.bias",
                                         "lm_head.weight",
                                         "my_embeddings.position_ids",
                                         ""};
    static const char *const heads[] = {"lm_head.weight",    "score.weight",         "classifier.bias",
                                        "qa_outputs.weight", "cls.predictions.bias", "bert.pooler.dense.weight",
                                        "pooler.dense.bias"};
    for (size_t i = 0; i < PS_ARRAY_LEN(buffers); i++)
        if (!ps_weight_is_buffer(buffers[i]) || ps_weight_is_head(buffers[i])) fail_msg("%s", buffers[i]);
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++)
        if (ps_weight_is_buffer(others[i])) fail_msg("%s", others[i]);
    for (size_t i = 0; i < PS_ARRAY_LEN(heads); i++)
        if (!ps_weight_is_head(heads[i]) || ps_weight_is_buffer(heads[i])) fail_msg("%s", heads[i]);
    assert_false(ps_weight_is_head("transformer.wte.weight"));
    assert_false(ps_weight_is_head("my.classifier.weight"));
}

static void test_class_names(void **state)
{
    (void)state;
    static const struct {
        const char *type, *name, *expected;
    } cases[] = {
        {"gpt2", "h.0.ln_1.weight", "transformer.h.0.ln_1.weight"},
        {"gpt2", "transformer.wte.weight", "transformer.wte.weight"},
        {"gpt2", "lm_head.weight", "lm_head.weight"},
        {"gpt2", "score.weight", "score.weight"},
        {"qwen3", "layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
        {"bert", "pooler.dense.weight", "bert.pooler.dense.weight"},
        {"bert", "cls.predictions.bias", "cls.predictions.bias"},
        {"unknown", "wte.weight", "wte.weight"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char text[PS_WEIGHT_NAME_MAX], longest[2 * PS_WEIGHT_NAME_MAX];
        assert_string_equal(ps_weight_class_name(cases[i].type, cases[i].name, text), cases[i].expected);
        memset(longest, 'x', sizeof longest);
        longest[sizeof longest - 1] = '\0';
        assert_ptr_equal(ps_weight_class_name("gpt2", longest, text), longest);
        assert_false(ps_weight_name_candidate(longest, 0, text));
    }
}

#define NAMES_MAX 8

/* What must come of a file's tensors and a model's parameters: for each tensor the number of its parameter, -1 ignored,
 * or nothing but a message. */
typedef struct match_case {
    const char *have[NAMES_MAX], *want[NAMES_MAX];
    bool new_head;
    int of_have[NAMES_MAX], n_new;
    const char *message;
} match_case;

static int count(const char *const *names)
{
    int n = 0;
    while (n < NAMES_MAX && names[n] != NULL) n++;
    return n;
}

static const match_case match_cases[] = {
    {.have = {"a", "b"}, .want = {"b", "a"}, .of_have = {1, 0}},
    /* the base's prefix on either side */
    {.have = {"wte.weight", "h.0.attn.bias"}, .want = {"transformer.wte.weight"}, .of_have = {0, -1}},
    {.have = {"transformer.wte.weight"}, .want = {"wte.weight"}, .of_have = {0}},
    {.have = {"model.norm.weight"}, .want = {"norm.weight"}, .of_have = {0}},
    {.have = {"bert.x", "x"}, .want = {"x"}, .message = "tensors bert.x and x are both the model's x"},
    /* a parameter that has the name of a buffer is a parameter */
    {.have = {"h.0.attn.bias"}, .want = {"h.0.attn.bias"}, .of_have = {0}},
    {.have = {"h.0.attn.c_attn.bias"}, .want = {"a"}, .message = "h.0.attn.c_attn.bias is not one of the model's"},
    /* old BERT */
    {.have = {"module.transformer.wte.weight", "_orig_mod.module.wpe.weight", "module.lm_head.weight",
              "module.h.0.attn.bias"},
     .want = {"transformer.wte.weight", "transformer.wpe.weight"},
     .of_have = {0, 1, -1, -1}},
    {.have = {"embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.beta"},
     .want = {"bert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.weight"},
     .of_have = {1, 0}},
    /* tied */
    {.have = {"lm_head.weight", "transformer.wte.weight"}, .want = {"wte.weight"}, .of_have = {-1, 0}},
    {.have = {"lm_head.weight"}, .want = {"model.embed_tokens.weight"}, .of_have = {0}},
    {.have = {"lm_head.weight", "wte.weight"}, .want = {"transformer.wte.weight", "lm_head.weight"}, .of_have = {1, 0}},
    {.have = {"wte.weight"},
     .want = {"transformer.wte.weight", "lm_head.weight"},
     .message = "tensor lm_head.weight is missing; with model.new_head"},
    {.have = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.predictions.bias",
              "bert.embeddings.word_embeddings.weight"},
     .want = {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"},
     .of_have = {-1, -1, 1, 0}},
    /* an output table of its own: the class computes with decoder.bias, and does not use the other; whatever their
     * order */
    {.have = {"cls.predictions.bias", "cls.predictions.decoder.bias", "cls.predictions.decoder.weight"},
     .want = {"cls.predictions.decoder.weight", "cls.predictions.bias"},
     .of_have = {-1, 1, 0}},
    {.have = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.predictions.bias"},
     .want = {"cls.predictions.decoder.weight", "cls.predictions.bias"},
     .of_have = {0, 1, -1}},
    {.have = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
     .want = {"cls.predictions.decoder.weight", "cls.predictions.bias"},
     .of_have = {0, 1}},
    {.have = {"cls.predictions.decoder.weight", "cls.predictions.bias"},
     .want = {"cls.predictions.decoder.weight", "cls.predictions.bias"},
     .of_have = {0, 1}},
    /* heads */
    {.have = {"a", "bert.pooler.dense.weight"},
     .want = {"a"},
     .message = "bert.pooler.dense.weight is not one of the model's: it belongs to another head; with model.new_head"},
    {.have = {"a", "pooler.dense.weight", "cls.seq_relationship.bias"},
     .want = {"a", "classifier.weight", "classifier.bias"},
     .new_head = true,
     .of_have = {0, -1, -1},
     .n_new = 2},
    {.have = {"a", "zz"}, .want = {"a"}, .new_head = true, .message = "tensor zz is not one of the model's"},
    {.have = {"a"}, .want = {"a", "h.1.w"}, .new_head = true, .message = "tensor h.1.w is missing"},
    {.have = {NULL}, .want = {"a"}, .message = "tensor a is missing"},
    {.have = {NULL}, .want = {NULL}},
};

static void test_matching(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(match_cases); i++) {
        const match_case *c = &match_cases[i];
        ps_weight_match m;
        const int n_have = count(c->have), n_want = count(c->want);
        const ps_status st = ps_weight_match_init(&m, "file", c->have, n_have, c->want, n_want, NULL, c->new_head);
        if (c->message != NULL) {
            assert_int_equal(st, PS_EFORMAT);
            if (strstr(ps_last_error(), c->message) == NULL) fail_msg("case %zu: %s", i, ps_last_error());
            assert_non_null(strstr(ps_last_error(), "file: "));
        } else {
            if (st != PS_OK) fail_msg("case %zu: %s", i, ps_last_error());
            int n_ignored = 0;
            for (int k = 0; k < n_have; k++) {
                if (m.of_have[k] != c->of_have[k]) fail_msg("case %zu: %s goes to %d", i, c->have[k], m.of_have[k]);
                if (m.of_have[k] >= 0) assert_int_equal(m.of_want[m.of_have[k]], k);
                n_ignored += m.of_have[k] < 0;
            }
            assert_int_equal(m.n_ignored, n_ignored);
            assert_int_equal(m.n_loaded, n_have - n_ignored);
            assert_int_equal(m.n_new, c->n_new);
            assert_int_equal(m.n_loaded + m.n_new, n_want);
        }
        ps_weight_match_deinit(&m);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* What is left out as a copy is compared with what it is a copy of. */
static void test_copies(void **state)
{
    (void)state;
    static const char *const have[] = {"lm_head.weight", "wte.weight", "h.0.attn.bias"}, *const want[] = {"wte.weight"};
    ps_weight_match m;
    assert_int_equal(ps_weight_match_init(&m, "file", have, 3, want, 1, NULL, false), PS_OK);
    assert_int_equal(m.copy_of[0], 0);
    assert_int_equal(m.copy_of[1], -1);
    assert_int_equal(m.copy_of[2], -1);
    assert_int_equal(m.first_new, -1);
    ps_weight_match_deinit(&m);
}

/* What the class of a tied model has besides, by any of the forms of a name. */
static void test_tied_names(void **state)
{
    (void)state;
    static const struct {
        const char *type, *name, *tied, *untied_with;
    } cases[] = {
        {"gpt2", "transformer.wte.weight", "lm_head.weight", NULL},
        {"gpt2", "wte.weight", "lm_head.weight", NULL},
        {"gpt2", "transformer.wpe.weight", NULL, NULL},
        {"llama", "model.embed_tokens.weight", "lm_head.weight", NULL},
        {"qwen3", "model.embed_tokens.weight", "lm_head.weight", NULL},
        {"llama", "wte.weight", NULL, NULL},
        {"bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", NULL},
        {"bert", "cls.predictions.bias", "cls.predictions.decoder.bias", "cls.predictions.decoder.weight"},
        {"nothing", "wte.weight", NULL, NULL},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const char *untied_with = NULL, *tied = ps_weight_tied_name(cases[i].type, cases[i].name, 0, &untied_with);
        if (cases[i].tied == NULL)
            assert_null(tied);
        else
            assert_string_equal(tied, cases[i].tied);
        if (cases[i].untied_with == NULL)
            assert_null(untied_with);
        else
            assert_string_equal(untied_with, cases[i].untied_with);
        assert_null(ps_weight_tied_name(cases[i].type, cases[i].name, 1, &untied_with));
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b"};
    for (long n = 0;; n++) {
        ps_weight_match m;
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        const ps_status st = ps_weight_match_init(&m, "file", names, 2, names, 2, NULL, false);
        const bool has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        ps_weight_match_deinit(&m);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        assert_int_equal(ps_mem_live_bytes(), 0);
        if (!has_struck) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_and_heads), cmocka_unit_test(test_class_names),
        cmocka_unit_test(test_matching),          cmocka_unit_test(test_copies),
        cmocka_unit_test(test_tied_names),        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
