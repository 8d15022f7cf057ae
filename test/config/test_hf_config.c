/* Hugging Face's config.json read by model.from_pretrained, written by ps_hf_config_write; defaults of types and
 * presets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "config/hf_config.h"
#include "config/model/rotary.h"
#include "config/option/head.h"
#include "temp_folder.h"

static temp_folder work;

static void write_config_json(const char *text)
{
    assert_int_equal(ps_file_write_all(temp_folder_file(&work, "config.json").text, text, (int64_t)strlen(text)),
                     PS_OK);
}

/* The configuration {"model": {"from_pretrained": folder, more}}; NULL when it is refused. */
static ps_config *load(const char *more)
{
    char text[1024];
    ps_config *c = NULL;
    snprintf(text, sizeof text, "{\"model\": {\"from_pretrained\": \"%s\"%s%s}}", work.path, more[0] ? ", " : "", more);
    return ps_config_parse(text, "c.json", &c) == PS_OK ? c : NULL;
}

static const ps_options *options_of(ps_config *c)
{
    if (c == NULL) fail_msg("refused: %s", ps_last_error());
    return ps_config_options(c);
}

#define LLAMA                                                                                                          \
    "\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, " \
    "\"intermediate_size\": 96, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "    \
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"head_dim\": null, "         \
    "\"tie_word_embeddings\": false"

static void llama_of_version_4(void **state)
{
    (void)state;
    write_config_json("{" LLAMA ", \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", "
                      "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                      "\"original_max_position_embeddings\": 64}, \"torch_dtype\": \"bfloat16\"}");
    ps_config *c = load("\"num_hidden_layers\": 2");
    const ps_options *o = options_of(c);
    assert_int_equal(o->model_type, PS_CONFIG_MODEL_LLAMA);
    assert_int_equal(o->model_head, PS_CONFIG_HEAD_CAUSAL_LM);
    assert_int_equal(o->model_hidden_size, 64);
    assert_int_equal(o->model_num_hidden_layers, 2); /* what is given wins */
    assert_int_equal(o->model_num_key_value_heads, 2);
    assert_int_equal(o->model_head_dim, 0);
    assert_float_equal(o->model_layer_norm_eps, 1e-5, 0);
    assert_float_equal(o->model_rope_theta, 500000, 0);
    assert_int_equal(o->model_rope_scaling_rope_type, PS_CONFIG_ROPE_LLAMA3);
    assert_float_equal(o->model_rope_scaling_factor, 8, 0);
    assert_int_equal(o->model_rope_scaling_original_max_position_embeddings, 64);
    assert_false(o->model_tie_word_embeddings);
    assert_float_equal(o->model_resid_pdrop, 0, 0);
    assert_int_equal(ps_config_sequence_length(o), 128);
    ps_config_destroy(c);
}

static void llama_of_version_5(void **state)
{
    (void)state;
    write_config_json("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"linear\", \"rope_theta\": 20000.0, "
                      "\"factor\": 2.0}, \"dtype\": \"float32\"}");
    ps_config *c = load("");
    const ps_options *o = options_of(c);
    assert_float_equal(o->model_rope_theta, 20000, 0);
    assert_int_equal(o->model_rope_scaling_rope_type, PS_CONFIG_ROPE_LINEAR);
    assert_float_equal(o->model_rope_scaling_factor, 2, 0);
    ps_config_destroy(c);
}

/* What Qwen2.5 and gpt-oss's kin write, and what is left out. */
static void yarn(void **state)
{
    (void)state;
    write_config_json("{" LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
                      "\"original_max_position_embeddings\": 64, \"truncate\": false, \"attention_factor\": null}}");
    ps_config *c = load("");
    const ps_options *o = options_of(c);
    assert_int_equal(o->model_rope_scaling_rope_type, PS_CONFIG_ROPE_YARN);
    assert_float_equal(o->model_rope_scaling_factor, 4, 0);
    assert_int_equal(ps_rotary_original_positions(o), 64);
    assert_float_equal(o->model_rope_scaling_beta_fast, 32, 0);
    assert_float_equal(o->model_rope_scaling_beta_slow, 1, 0);
    assert_float_equal(o->model_rope_scaling_attention_factor, 0, 0);
    assert_false(o->model_rope_scaling_truncate);
    char *json = NULL;
    assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
    assert_null(strstr(json, "attention_factor"));
    assert_null(strstr(json, "low_freq_factor"));
    assert_non_null(strstr(json, "\"truncate\": false"));
    ps_free(json);
    ps_config_destroy(c);
    write_config_json("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", "
                      "\"rope_theta\": 5000.0, \"original_max_position_embeddings\": 64, \"attention_factor\": 1.5}}");
    c = load("");
    assert_float_equal(options_of(c)->model_rope_scaling_factor, 2, 0); /* by the two lengths */
    assert_float_equal(options_of(c)->model_rope_scaling_attention_factor, 1.5, 0);
    assert_true(options_of(c)->model_rope_scaling_truncate);
    ps_config_destroy(c);
    write_config_json("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": "
                      "2.0}}");
    c = load("");
    assert_int_equal(ps_rotary_original_positions(options_of(c)), 128);
    ps_config_destroy(c);
}

static void windows(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int64_t window, first;
    } cases[] = {
        {"{\"model_type\": \"mistral\", \"sliding_window\": 7}", 7, 0},
        {"{\"model_type\": \"mistral\", \"sliding_window\": null}", 0, 0},
        {"{\"model_type\": \"mistral\"}", 0, 0},
        {"{\"model_type\": \"qwen2\", \"sliding_window\": 7, \"use_sliding_window\": false}", 0, 0},
        {"{\"model_type\": \"qwen2\", \"sliding_window\": 7, \"use_sliding_window\": true, \"max_window_layers\": 3}",
         7, 3},
        {"{\"model_type\": \"qwen3\", \"sliding_window\": 9, \"use_sliding_window\": true, \"layer_types\": "
         "[\"full_attention\", \"sliding_attention\", \"sliding_attention\"]}",
         9, 1},
        {"{\"model_type\": \"qwen3\", \"sliding_window\": null, \"layer_types\": [\"full_attention\"]}", 0, 0},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        write_config_json(cases[i].json);
        ps_config *c = load("");
        const ps_options *o = options_of(c);
        assert_int_equal(o->model_sliding_window, cases[i].window);
        assert_int_equal(o->model_max_window_layers, cases[i].first);
        ps_config_destroy(c);
    }
}

static void bert_and_its_heads(void **state)
{
    (void)state;
    static const char bert[] =
        "{\"architectures\": [\"%s\"], \"model_type\": \"bert\", \"vocab_size\": 100, \"hidden_size\": 48, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 80, \"hidden_act\": \"gelu\", "
        "\"hidden_dropout_prob\": 0.25, \"attention_probs_dropout_prob\": 0.125, \"layer_norm_eps\": 1e-12, "
        "\"max_position_embeddings\": 64, \"type_vocab_size\": 3, \"position_embedding_type\": \"absolute\", "
        "\"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}}";
    static const struct {
        const char *class_name;
        ps_config_head head;
    } cases[] = {{"BertModel", PS_CONFIG_HEAD_NONE},
                 {"BertForMaskedLM", PS_CONFIG_HEAD_MASKED_LM},
                 {"BertForPreTraining", PS_CONFIG_HEAD_MASKED_LM},
                 {"BertForSequenceClassification", PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text, bert, cases[i].class_name);
        write_config_json(text);
        ps_config *c = load("");
        const ps_options *o = options_of(c);
        assert_int_equal(o->model_head, cases[i].head);
        assert_int_equal(o->model_type_vocab_size, 3);
        assert_int_equal(o->model_num_labels, 3);
        assert_float_equal(o->model_embd_pdrop, 0.25, 0);
        assert_float_equal(o->model_resid_pdrop, 0.25, 0);
        assert_float_equal(o->model_attn_pdrop, 0.125, 0);
        assert_int_equal(o->model_hidden_act, PS_CONFIG_ACTIVATION_GELU);
        ps_config_destroy(c);
    }
    ps_config *c = load("\"head\": \"sequence_classification\", \"num_labels\": 2, \"new_head\": true");
    assert_int_equal(options_of(c)->model_num_labels, 2);
    ps_config_destroy(c);
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *json, *more, *says;
    } cases[] = {
        {"[1]", "", "not a JSON object"},
        {"{\"a\": ", "", "config.json:1:"},
        {"{}", "", "no \"model_type\""},
        {"{\"model_type\": \"t5\"}", "", "\"t5\" is not supported; gpt2"},
        {"{" LLAMA "}", "\"type\": \"qwen2\"", "is a llama, but model.type is qwen2"},
        {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 4.0}}", "", "\"rope_type\""},
        {"{" LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"beta_slow\": 32}}", "",
         "beta_slow 32 is not below beta_fast 32"},
        {"{" LLAMA ", \"rope_parameters\": {\"partial_rotary_factor\": 0.5}}", "", "\"partial_rotary_factor\""},
        {"{" LLAMA ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}}", "",
         "layers of type \"full_attention\""},
        {"{" LLAMA ", \"attention_dropout\": 2}", "", "\"attention_dropout\""},
        {"{" LLAMA ", \"partial_rotary_factor\": 0.5}", "", "\"partial_rotary_factor\" is supported as 1.0 only"},
        {"{" LLAMA ", \"quantization_config\": {}}", "", "\"quantization_config\""},
        {"{" LLAMA ", \"quantization_config\": {\"quant_method\": \"gptq\"}}", "", "quant_method is \"gptq\""},
        {"{" LLAMA ", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}}", "",
         "without load_in_4bit"},
        {"{\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true}", "", "as false only"},
        {"{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\"}", "", "\"absolute\" only"},
        {"{\"model_type\": \"bert\", \"hidden_act\": \"relu2\"}", "", "\"hidden_act\""},
        {"{" LLAMA "}", "\"hidden_act\": \"relu\"", "model.hidden_act relu does not go with model.type llama"},
        {"{\"model_type\": \"bert\", \"architectures\": [\"BertForMultipleChoice\"]}", "", "BertForMultipleChoice"},
        {"{\"model_type\": \"olmo2\", \"architectures\": [\"Olmo2ForTokenClassification\"]}", "",
         "olmo2 has no head token_classification"},
        {"{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], \"problem_type\": "
         "\"ranking\"}",
         "", "\"problem_type\""},
        {"{\"model_type\": \"qwen3\", \"layer_types\": [\"sliding_attention\", \"full_attention\"]}", "",
         "full attention after sliding attention at 1"},
        {"{\"model_type\": \"qwen3\", \"layer_types\": [\"chunked\"]}", "", "\"layer_types\"[0]"},
        {"{\"model_type\": \"llama\", \"num_attention_heads\": 6, \"hidden_size\": 96, \"num_key_value_heads\": 4}", "",
         "6 is not a multiple of model.num_key_value_heads 4"},
        {"{\"model_type\": \"gpt2\"}", "\"rope_theta\": 5", "model.rope_theta has no effect with model.type gpt2"},
        {"{\"model_type\": \"gpt2\"}", "\"head\": \"masked_lm\"", "gpt2 has no head masked_lm"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        write_config_json(cases[i].json);
        ps_config *c = load(cases[i].more);
        if (c != NULL || strstr(ps_last_error(), cases[i].says) == NULL)
            fail_msg("case %zu: %s", i, c != NULL ? "accepted" : ps_last_error());
    }
    ps_config *c = NULL;
    assert_int_equal(ps_config_parse("{\"model\": {\"from_pretrained\": \"/nowhere\"}}", "c", &c), PS_EIO);
    assert_int_equal(ps_config_parse("{\"model\": {\"new_head\": true}}", "c", &c), PS_EINVAL);
}

#define CLASSIFIER "\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"]"

/* Names of classes are the folder's; of a new head only when they are names. */
static void labels_of_the_folder(void **state)
{
    (void)state;
    static const struct {
        const char *json, *more, *labels;
        int64_t n;
    } cases[] = {
        {"{" CLASSIFIER ", \"id2label\": {\"0\": \"yes\", \"1\": \"no\"}}", "", "yes,no", 2},
        {"{" CLASSIFIER ", \"id2label\": {\"1\": \"no\", \"0\": \"yes, sir\"}}", "", "[\"yes, sir\",\"no\"]", 2},
        {"{" CLASSIFIER ", \"id2label\": {\"0\": 5, \"1\": 7, \"2\": \"x\"}}", "", "5,7,x", 3},
        {"{" CLASSIFIER ", \"label2id\": {\"no\": 1, \"yes\": 0, \"so\": 2}}", "", "yes,no,so", 3},
        {"{" CLASSIFIER ", \"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"label2id\": {\"LABEL_0\": 0}}", "", "a,b", 2},
        {"{" CLASSIFIER "}", "", "LABEL_0,LABEL_1", 2},
        {"{" CLASSIFIER ", \"num_labels\": 3}", "", "LABEL_0,LABEL_1,LABEL_2", 3},
        {"{" CLASSIFIER "}", "\"new_head\": true", "", 2},
        {"{" CLASSIFIER ", \"id2label\": {\"0\": \"yes\", \"1\": \"no\"}}", "\"new_head\": true", "yes,no", 2},
        {"{" CLASSIFIER ", \"id2label\": {\"0\": \"yes\", \"1\": \"no\"}}", "\"new_head\": true, \"num_labels\": 3", "",
         3},
        {"{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"]}", "", "", 2},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        write_config_json(cases[i].json);
        ps_config *c = load(cases[i].more);
        assert_string_equal(options_of(c)->data_labels, cases[i].labels);
        assert_int_equal(options_of(c)->model_num_labels, cases[i].n);
        ps_config_destroy(c);
    }
}

static void labels_that_contradict_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *labels, *says;
    } cases[] = {{"\"id2label\": {\"0\": \"a\", \"2\": \"b\"}", "no name for class 1"},
                 {"\"id2label\": {\"0\": \"a\", \"1\": [\"b\"]}", "no name for class 1"},
                 {"\"id2label\": {\"0\": \"a\", \"1\": \"a\"}", "classes 0 and 1 have the same name, 'a'"},
                 {"\"id2label\": {\"0\": \"\", \"1\": \"a\"}", "the name of class 0 is empty"},
                 {"\"label2id\": {\"a\": 1, \"b\": 1}", "\"label2id\" has no name for class 0"},
                 {"\"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"label2id\": {\"a\": 1, \"b\": 0}",
                  "\"a\" is class 0 in \"id2label\", but 1 in \"label2id\""}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char text[512];
        snprintf(text, sizeof text, "{" CLASSIFIER ", %s}", cases[i].labels);
        write_config_json(text);
        assert_null(load(""));
        if (strstr(ps_last_error(), cases[i].says) == NULL) fail_msg("case %zu: %s", i, ps_last_error());
    }
    write_config_json("{" CLASSIFIER ", \"id2label\": {\"0\": \"yes\", \"1\": \"no\"}}");
    ps_config *c = load("");
    assert_int_equal(ps_config_set(c, "data.labels", "no,yes"), PS_OK);
    assert_int_equal(ps_config_validate(c), PS_EINVAL);
    assert_non_null(
        strstr(ps_last_error(), "'no' as class 0, but the model in model.from_pretrained has it as class 1"));
    assert_non_null(strstr(ps_last_error(), "0 'yes', 1 'no'"));
    assert_int_equal(ps_config_set(c, "data.labels", "ja,nein"), PS_OK); /* other names of the same classes */
    assert_int_equal(ps_config_validate(c), PS_OK);
    assert_int_equal(ps_config_set(c, "data.labels", "no,yes"), PS_OK);
    assert_int_equal(ps_config_set(c, "model.new_head", "true"), PS_OK);
    assert_int_equal(ps_config_validate(c), PS_OK);
    ps_config_destroy(c);
}

/* Names say nothing of a model that has no use for them. */
static void labels_that_nothing_uses_are_not_looked_at(void **state)
{
    (void)state;
    static const char *const labels[] = {"\"id2label\": {\"0\": \"A\", \"1\": \"A\"}", "\"id2label\": {\"0\": \"\"}",
                                         "\"id2label\": {\"a\": \"b\"}", "\"label2id\": {\"a\": 1}",
                                         "\"id2label\": {\"0\": \"a\"}, \"label2id\": {\"a\": 1}"};
    for (size_t i = 0; i < PS_ARRAY_LEN(labels); i++) {
        char text[1024];
        snprintf(text, sizeof text, "{" LLAMA ", %s, \"num_labels\": 0}", labels[i]);
        write_config_json(text);
        ps_config *c = load("");
        assert_string_equal(options_of(c)->data_labels, "");
        ps_config_destroy(c);
        snprintf(text, sizeof text, "{" CLASSIFIER ", %s}", labels[i]);
        write_config_json(text);
        assert_null(load(""));
        c = load("\"new_head\": true, \"num_labels\": 2");
        assert_string_equal(options_of(c)->data_labels, "");
        assert_int_equal(ps_config_set(c, "data.labels", "no,yes"), PS_OK);
        assert_int_equal(ps_config_validate(c), PS_OK);
        ps_config_destroy(c);
    }
}

/* So many that comparing each with each would take this test minutes. */
static void many_labels(void **state)
{
    (void)state;
    enum { N = 100000, BYTES = 64 * N };
    char *text = malloc(BYTES), *labels = NULL;
    assert_non_null(text);
    int n = snprintf(text, BYTES, "{" CLASSIFIER ", \"id2label\": {");
    for (int i = 0; i < N; i++)
        n += snprintf(text + n, (size_t)(BYTES - n), "%s\"%d\": \"c%d\"", i > 0 ? ", " : "", i, i);
    n += snprintf(text + n, (size_t)(BYTES - n), "}, \"label2id\": {");
    for (int i = N; i-- > 0;)
        n += snprintf(text + n, (size_t)(BYTES - n), "%s\"c%d\": %d", i < N - 1 ? ", " : "", i, i);
    snprintf(text + n, (size_t)(BYTES - n), "}}");
    write_config_json(text);
    ps_config *c = load("");
    assert_int_equal(options_of(c)->model_num_labels, N);
    assert_int_equal(ps_mem_strdup(options_of(c)->data_labels, &labels), PS_OK);
    assert_int_equal(ps_config_set(c, "data.labels", labels), PS_OK);
    assert_int_equal(ps_config_validate(c), PS_OK);
    ps_mem_free(labels);
    ps_config_destroy(c);
    free(text);
}

/* Names of data next to default ones. */
static void names_that_look_like_default_ones(void **state)
{
    (void)state;
    static const char *const given[] = {"LABEL_1", "LABEL_2,LABEL_1", "LABEL_1,LABEL_3", "LABEL_2,LABEL_3"};
    for (size_t i = 0; i < PS_ARRAY_LEN(given); i++) {
        char *json = NULL;
        ps_config *c = NULL;
        assert_int_equal(
            ps_config_parse("{\"model\": {\"head\": \"sequence_classification\", \"num_labels\": 3}}", "c", &c), PS_OK);
        assert_int_equal(ps_config_set(c, "data.labels", given[i]), PS_OK);
        assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
        ps_config_destroy(c);
        write_config_json(json);
        ps_free(json);
        c = load("");
        assert_int_equal(options_of(c)->model_num_labels, 3);
        assert_int_equal(strncmp(options_of(c)->data_labels, given[i], strlen(given[i])), 0);
        ps_config_destroy(c);
    }
}

/* A file's problem_type acts, and is written again; a new head begins without. */
static void problem_types_act(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ps_config_problem problem;
    } types[] = {{"multi_label_classification", PS_CONFIG_PROBLEM_MULTI_LABEL},
                 {"regression", PS_CONFIG_PROBLEM_REGRESSION},
                 {"single_label_classification", PS_CONFIG_PROBLEM_SINGLE_LABEL}};
    for (size_t i = 0; i < PS_ARRAY_LEN(types); i++) {
        char text[512], *json = NULL;
        snprintf(text, sizeof text, "{" CLASSIFIER ", \"num_labels\": 3, \"problem_type\": \"%s\"}", types[i].name);
        write_config_json(text);
        ps_config *c = load("");
        assert_int_equal(ps_head_problem(options_of(c)), types[i].problem);
        assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
        assert_non_null(strstr(json, types[i].name));
        ps_free(json);
        ps_config_destroy(c);
        c = load("\"new_head\": true");
        assert_int_equal(ps_head_problem(options_of(c)), PS_CONFIG_PROBLEM_SINGLE_LABEL);
        assert_int_equal(ps_hf_config_write(c, "float32", 9, &json), PS_OK);
        assert_true(strstr(json, "problem_type") == NULL || types[i].problem == PS_CONFIG_PROBLEM_SINGLE_LABEL);
        assert_non_null(strstr(json, "\"pad_token_id\": 9"));
        ps_free(json);
        ps_config_destroy(c);
        c = load("\"new_head\": true, \"problem_type\": \"regression\", \"num_labels\": 2");
        assert_int_equal(ps_head_problem(options_of(c)), PS_CONFIG_PROBLEM_REGRESSION);
        assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
        assert_non_null(strstr(json, "\"problem_type\": \"regression\""));
        ps_free(json);
        ps_config_destroy(c);
    }
}

/* As in transformers one label is a number, where nothing says otherwise. */
static void one_label_is_a_regression(void **state)
{
    (void)state;
    char *json = NULL;
    write_config_json("{" CLASSIFIER ", \"id2label\": {\"0\": \"grade\"}}");
    ps_config *c = load("");
    assert_int_equal(options_of(c)->model_num_labels, 1);
    assert_int_equal(ps_head_problem(options_of(c)), PS_CONFIG_PROBLEM_REGRESSION);
    assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
    assert_non_null(strstr(json, "\"problem_type\": \"regression\""));
    assert_non_null(strstr(json, "\"grade\""));
    ps_free(json);
    ps_config_destroy(c);
    assert_null(load("\"problem_type\": \"single_label_classification\""));
    assert_non_null(strstr(ps_last_error(), "model.num_labels = 1"));
    assert_non_null(strstr(ps_last_error(), "model.problem_type = regression"));
}

/* Classes of tokens have names too; and the class of a file is written as it was. */
static void heads_of_tokens(void **state)
{
    (void)state;
    char *json = NULL;
    write_config_json("{\"model_type\": \"llama\", \"architectures\": [\"LlamaForTokenClassification\"], "
                      "\"classifier_dropout\": 0.25, "
                      "\"id2label\": {\"0\": \"O\", \"1\": \"B-PER\", \"2\": \"I-PER\"}}");
    ps_config *c = load("");
    assert_int_equal(options_of(c)->model_head, PS_CONFIG_HEAD_TOKEN_CLASSIFICATION);
    assert_string_equal(options_of(c)->data_labels, "O,B-PER,I-PER");
    assert_true(options_of(c)->model_classifier_dropout == 0.25);
    assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
    assert_non_null(strstr(json, "LlamaForTokenClassification"));
    assert_non_null(strstr(json, "B-PER"));
    assert_null(strstr(json, "problem_type"));
    ps_free(json);
    ps_config_destroy(c);
    write_config_json("{\"model_type\": \"bert\", \"architectures\": [\"BertForQuestionAnswering\"]}");
    c = load("");
    assert_int_equal(options_of(c)->model_head, PS_CONFIG_HEAD_QUESTION_ANSWERING);
    assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
    assert_non_null(strstr(json, "BertForQuestionAnswering"));
    ps_free(json);
    ps_config_destroy(c);
}

static void set_from_pretrained_later(void **state)
{
    (void)state;
    write_config_json("{" LLAMA "}");
    ps_config *c = NULL;
    assert_int_equal(ps_config_create(&c), PS_OK);
    assert_int_equal(ps_config_set(c, "model.hidden_size", "32"), PS_OK);
    assert_int_equal(ps_config_set(c, "model.from_pretrained", work.path), PS_OK);
    assert_int_equal(ps_config_options(c)->model_type, PS_CONFIG_MODEL_LLAMA);
    assert_int_equal(ps_config_options(c)->model_hidden_size, 32);
    assert_int_equal(ps_config_set(c, "model.hidden_size", "null"), PS_OK);
    assert_int_equal(ps_config_options(c)->model_hidden_size, 64);
    char *before = NULL, *after = NULL;
    assert_int_equal(ps_config_dump_json(c, &before), PS_OK);
    assert_int_equal(ps_config_set(c, "model.from_pretrained", "/nowhere"), PS_EIO);
    assert_int_equal(ps_config_set(c, "train.steps", "100"), PS_OK);
    assert_int_equal(ps_config_dump_json(c, &after), PS_OK);
    assert_string_equal(after, before);
    ps_free(before);
    ps_free(after);
    assert_int_equal(ps_config_set(c, "model.from_pretrained", ""), PS_OK);
    assert_int_equal(ps_config_options(c)->model_type, PS_CONFIG_MODEL_GPT2);
    assert_int_equal(ps_config_options(c)->model_hidden_size, 768);
    ps_config_destroy(c);
}

/* A dumped configuration has every option: it can be read where the folder is not. */
static void a_dump_needs_no_folder(void **state)
{
    (void)state;
    write_config_json("{" LLAMA "}");
    ps_config *c = load(""), *again = NULL;
    char *text = NULL;
    options_of(c);
    assert_int_equal(ps_config_dump_json(c, &text), PS_OK);
    assert_int_equal(remove(temp_folder_file(&work, "config.json").text), 0);
    assert_int_equal(ps_config_parse(text, "dump", &again), PS_OK);
    assert_int_equal(ps_config_options(again)->model_hidden_size, 64);
    ps_free(text);
    ps_config_destroy(c);
    ps_config_destroy(again);
}

static void types_and_presets(void **state)
{
    (void)state;
    ps_config *c = NULL;
    assert_int_equal(ps_config_parse("{\"model\": {\"type\": \"mistral\", \"n_layer\": 2}}", "c", &c), PS_OK);
    assert_int_equal(ps_config_options(c)->model_num_key_value_heads, 8);
    assert_int_equal(ps_config_options(c)->model_sliding_window, 4096);
    assert_int_equal(ps_config_options(c)->model_num_hidden_layers, 2);
    assert_int_equal(ps_config_sequence_length(ps_config_options(c)), 2048);
    ps_config_destroy(c);
    assert_int_equal(ps_config_parse("{\"model\": {\"preset\": \"Bertlarge\"}}", "c", &c), PS_OK);
    assert_int_equal(ps_config_options(c)->model_type, PS_CONFIG_MODEL_BERT);
    assert_int_equal(ps_config_options(c)->model_head, PS_CONFIG_HEAD_MASKED_LM);
    assert_int_equal(ps_config_options(c)->model_hidden_size, 1024);
    assert_int_equal(ps_config_options(c)->model_vocab_size, 30522);
    ps_config_destroy(c);
    assert_int_equal(ps_config_parse("{\"model\": {\"n_embd\": 64, \"hidden_size\": 64}}", "c", &c), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "which line 1 gives, are the same option"));
}

/* Read, written and read again: the same options. */
static void written_files_are_read_again(void **state)
{
    (void)state;
    static const char *const files[] = {
        "{" LLAMA ", \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
        "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}, "
        "\"bos_token_id\": 17}",
        "{\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": 7, "
        "\"bos_token_id\": 17}",
        "{\"model_type\": \"qwen2\", \"architectures\": [\"Qwen2ForSequenceClassification\"], \"num_hidden_layers\": "
        "4, "
        "\"sliding_window\": 7, \"use_sliding_window\": true, \"max_window_layers\": 3, \"bos_token_id\": 17}",
        "{\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3Model\"], \"head_dim\": 32, \"bos_token_id\": 17}",
        "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], \"bos_token_id\": 17}",
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_inner\": null, \"bos_token_id\": 17}",
        "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_pytorch_tanh\", \"bos_token_id\": 17}",
        "{\"model_type\": \"bert\", \"hidden_act\": \"gelu_fast\", \"bos_token_id\": 17}",
        "{\"model_type\": \"bert\", \"hidden_act\": \"relu\", \"tie_word_embeddings\": false, \"bos_token_id\": 17}",
        "{\"model_type\": \"gpt2\", \"activation_function\": \"relu\", \"bos_token_id\": 17}",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(files); i++) {
        write_config_json(files[i]);
        ps_config *c = load(""), *again = NULL;
        options_of(c);
        char *json = NULL;
        assert_int_equal(ps_hf_config_write(c, "bfloat16", -1, &json), PS_OK);
        assert_non_null(strstr(json, "\"torch_dtype\": \"bfloat16\""));
        assert_non_null(strstr(json, "\"bos_token_id\": 17")); /* carried over */
        write_config_json(json);
        ps_free(json);
        again = load("");
        const ps_options *a = ps_config_options(c), *b = options_of(again);
        assert_int_equal(a->model_type, b->model_type);
        assert_int_equal(a->model_head, b->model_head);
        assert_int_equal(a->model_hidden_size, b->model_hidden_size);
        assert_int_equal(a->model_num_labels, b->model_num_labels);
        assert_int_equal(a->model_sliding_window, b->model_sliding_window);
        assert_int_equal(a->model_max_window_layers, b->model_max_window_layers);
        assert_int_equal(a->model_rope_scaling_rope_type, b->model_rope_scaling_rope_type);
        assert_float_equal(a->model_rope_scaling_factor, b->model_rope_scaling_factor, 0);
        assert_float_equal(a->model_rope_theta, b->model_rope_theta, 0);
        assert_float_equal(a->model_layer_norm_eps, b->model_layer_norm_eps, 0);
        assert_int_equal(a->model_tie_word_embeddings, b->model_tie_word_embeddings);
        assert_int_equal(a->model_hidden_act, b->model_hidden_act);
        ps_config_destroy(c);
        ps_config_destroy(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_of_version_4),
        cmocka_unit_test(llama_of_version_5),
        cmocka_unit_test(yarn),
        cmocka_unit_test(windows),
        cmocka_unit_test(bert_and_its_heads),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(labels_of_the_folder),
        cmocka_unit_test(labels_that_contradict_are_refused),
        cmocka_unit_test(many_labels),
        cmocka_unit_test(names_that_look_like_default_ones),
        cmocka_unit_test(labels_that_nothing_uses_are_not_looked_at),
        cmocka_unit_test(problem_types_act),
        cmocka_unit_test(one_label_is_a_regression),
        cmocka_unit_test(heads_of_tokens),
        cmocka_unit_test(set_from_pretrained_later),
        cmocka_unit_test(a_dump_needs_no_folder),
        cmocka_unit_test(types_and_presets),
        cmocka_unit_test(written_files_are_read_again),
    };
    work = temp_folder_make();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&work);
    return failed;
}
