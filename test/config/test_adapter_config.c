/* peft's adapter_config.json, read by lora.from_pretrained and written by ps_adapter_config_write; the section lora. */
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
#include "config/adapter_config.h"
#include "temp_folder.h"

static temp_folder work;

#define BASICS "\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\", \"mlp.up_proj\"]"

/* The configuration {"lora": {"from_pretrained": folder, more}} over such a file; NULL when it is refused. */
static ps_config *load(const char *file, const char *more)
{
    char text[2048];
    ps_config *c = NULL;
    snprintf(text, sizeof text, "{%s}", file);
    assert_int_equal(
        ps_file_write_all(temp_folder_file(&work, "adapter_config.json").text, text, (int64_t)strlen(text)), PS_OK);
    snprintf(text, sizeof text, "{\"lora\": {\"from_pretrained\": \"%s\"%s%s}}", work.path, more[0] ? ", " : "", more);
    return ps_config_parse(text, "c.json", &c) == PS_OK ? c : NULL;
}

static const ps_options *options_of(const ps_config *c)
{
    if (c == NULL) fail_msg("refused: %s", ps_last_error());
    return ps_config_options(c);
}

static void refused(const char *file, const char *words)
{
    ps_config *c = load(file, "");
    if (c != NULL) fail_msg("taken: %s", file);
    if (strstr(ps_last_error(), words) == NULL || strstr(ps_last_error(), "adapter_config.json") == NULL)
        fail_msg("%s", ps_last_error());
}

/* As peft 0.14 writes it. */
static void what_peft_writes(void **state)
{
    (void)state;
    ps_config *c =
        load("\"alpha_pattern\": {\"v_proj\": 3}, \"auto_mapping\": null, \"base_model_name_or_path\": \"base\", "
             "\"bias\": \"none\", \"eva_config\": null, \"exclude_modules\": null, \"fan_in_fan_out\": false, "
             "\"inference_mode\": true, \"init_lora_weights\": true, \"layer_replication\": null, "
             "\"layers_pattern\": null, \"layers_to_transform\": null, \"loftq_config\": {}, "
             "\"lora_alpha\": 6, \"lora_bias\": false, \"lora_dropout\": 0.25, \"megatron_config\": null, "
             "\"megatron_core\": \"megatron.core\", \"modules_to_save\": [\"score\"], \"peft_type\": \"LORA\", "
             "\"r\": 4, \"rank_pattern\": {\"q_proj\": 2, \"layers.0.v_proj\": 1}, \"revision\": null, "
             "\"target_modules\": [\"v_proj\", \"q_proj\"], \"task_type\": \"CAUSAL_LM\", "
             "\"use_dora\": false, \"use_rslora\": true, \"qalora_group_size\": 16, \"new_in_2030\": null",
             "");
    const ps_options *o = options_of(c);
    assert_int_equal(o->lora_r, 4);
    assert_true(o->lora_lora_alpha == 6 && o->lora_lora_dropout == 0.25 && o->lora_use_rslora);
    assert_string_equal(o->lora_target_modules, "v_proj,q_proj");
    assert_string_equal(o->lora_rank_pattern, "q_proj=2,layers.0.v_proj=1");
    assert_string_equal(o->lora_alpha_pattern, "v_proj=3");
    assert_string_equal(o->lora_modules_to_save, "score");
    ps_config_destroy(c);
    c = load(BASICS, "\"lora_alpha\": 5, \"alpha_pattern\": \"up_proj=7\"");
    o = options_of(c); /* peft's defaults, and what the user gives */
    assert_int_equal(o->lora_r, 8);
    assert_true(o->lora_lora_alpha == 5 && o->lora_lora_dropout == 0 && !o->lora_use_rslora);
    assert_string_equal(o->lora_alpha_pattern, "up_proj=7");
    ps_config_destroy(c);
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    refused("\"target_modules\": [\"q\"]", "peft_type");
    refused("\"peft_type\": \"IA3\", \"target_modules\": [\"q\"]", "IA3");
    refused("\"peft_type\": \"LORA\"", "target_modules");
    refused("\"peft_type\": \"LORA\", \"target_modules\": []", "target_modules");
    refused("\"peft_type\": \"LORA\", \"target_modules\": \".*q_proj\"", "regular expression");
    refused(BASICS ", \"r\": 0", "\"r\"");
    refused(BASICS ", \"r\": \"8\"", "\"r\"");
    refused(BASICS ", \"lora_alpha\": -1", "lora_alpha");
    refused(BASICS ", \"rank_pattern\": {\"q_proj\": 0}", "rank_pattern");
    refused(BASICS ", \"rank_pattern\": {\"layers\\\\.[01].q_proj\": 4}", "regular expression");
    refused(BASICS ", \"use_dora\": true", "use_dora");
    refused(BASICS ", \"bias\": \"all\"", "bias");
    refused(BASICS ", \"layers_to_transform\": [1]", "layers_to_transform");
    refused(BASICS ", \"loftq_config\": {\"loftq_bits\": 4}", "loftq_config");
    refused(BASICS ", \"init_lora_weights\": \"pissa\"", "init_lora_weights");
    refused(BASICS ", \"new_in_2030\": 2", "new_in_2030");
    refused("\"peft_type\": \"LORA\", \"peft_type\": \"LORA\"", "duplicate");
}

static void section(const char *text, const char *words)
{
    ps_config *c = NULL;
    char all[512];
    snprintf(all, sizeof all, "{\"lora\": {%s}}", text);
    const ps_status st = ps_config_parse(all, "c.json", &c);
    if ((st == PS_OK) != (words == NULL)) fail_msg("%s: %s", text, st == PS_OK ? "taken" : ps_last_error());
    if (words != NULL && strstr(ps_last_error(), words) == NULL) fail_msg("%s", ps_last_error());
    ps_config_destroy(c);
}

static void the_section(void **state)
{
    (void)state;
    section("\"r\": 8, \"alpha\": 16, \"dropout\": 0.1, \"bias\": \"none\", \"use_dora\": false, "
            "\"init_lora_weights\": true, \"layers_pattern\": null, \"rank_pattern\": {\"q_proj\": 2}",
            NULL);
    section("\"r\": 8, \"init_lora_weights\": \"gaussian\", \"target_modules\": [\"a\", \"b.*\"]", NULL);
    section("\"lora_alpha\": 16", "without lora.r");
    section("\"r\": 8, \"target_modules\": []", "lora.target_modules is empty");
    section("\"r\": 8, \"bias\": \"all\"", "lora.bias is not supported");
    section("\"r\": 8, \"use_dora\": true", "lora.use_dora is not supported");
    section("\"r\": 8, \"init_lora_weights\": false", "lora.init_lora_weights must be one of");
    section("\"r\": 8, \"rank_pattern\": {\"q_proj\": 0.5}", "lora.rank_pattern must be an object");
    section("\"r\": 8, \"rank_pattern\": \"q_proj\"", "lora.rank_pattern must be an object");
    section("\"r\": 8, \"alpha_pattern\": \"q_proj=2,\"", "lora.alpha_pattern must be an object");
    section("\"r\": 8, \"rank\": 8", "unknown key");
}

/* What is written is read again as the same adapters. */
static void written_and_read(void **state)
{
    (void)state;
    static const char *const layers[] = {"model.layers.0.q_proj", "model.layers.1.q_proj", "model.layers.0.up_proj"};
    static const char *const saved[] = {"model.norm", "score"};
    const ps_adapter_modules modules = {.layers = layers, .n = 3, .saved = saved, .n_saved = 2};
    ps_config *c = NULL;
    char *json = NULL;
    assert_int_equal(ps_config_parse("{\"model\": {\"head\": \"sequence_classification\"}, \"lora\": {\"r\": 4, "
                                     "\"lora_alpha\": 2.5, \"target_modules\": \"all-linear\", \"rank_pattern\": "
                                     "{\"*.1.q_proj\": 2}, \"alpha_pattern\": {\"up_proj\": 3}, \"modules_to_save\": "
                                     "\"norm\"}}",
                                     "c.json", &c),
                     PS_OK);
    assert_int_equal(ps_adapter_config_write(c, &modules, &json), PS_OK);
    for (const char *const *word =
             (const char *const[]){"\"lora_alpha\": 2.5", "\"fan_in_fan_out\": true", "\"SEQ_CLS\"", "\"r\": 4",
                                   "\"model.layers.1.q_proj\": 2", "\"up_proj\": 3", "\"bias\": \"none\"", NULL};
         *word != NULL; word++)
        if (strstr(json, *word) == NULL) fail_msg("no %s in %s", *word, json);
    json[strlen(json) - 1] = '\0'; /* without braces */
    ps_config *again = load(json + 1, "");
    const ps_options *o = options_of(again);
    assert_string_equal(o->lora_target_modules, "q_proj,up_proj");
    assert_string_equal(o->lora_rank_pattern, "model.layers.1.q_proj=2");
    assert_string_equal(o->lora_modules_to_save, "norm,score");
    ps_mem_free(json);
    ps_config_destroy(again);
    ps_config_destroy(c);
}

/* The order of patterns, of which the first one counts; of names that are there twice the first; modules for patterns. */
static void written_in_order(void **state)
{
    (void)state;
    static const char *const layers[] = {"model.layers.0.q_proj", "model.layers.1.q_proj"};
    static const char *const saved[] = {"model.layers.0.norm", "model.layers.0.norm", "model.layers.1.norm"};
    const ps_adapter_modules modules = {.layers = layers, .n = 2, .saved = saved, .n_saved = 3};
    ps_config *c = NULL;
    char *json = NULL;
    assert_int_equal(ps_config_parse("{\"lora\": {\"r\": 4, \"target_modules\": \"q_proj\", \"rank_pattern\": "
                                     "{\"q_proj\": 2, \"0.q_proj\": 3}, \"modules_to_save\": \"layers.*.norm\"}}",
                                     "c.json", &c),
                     PS_OK);
    assert_int_equal(ps_config_set(c, "lora.alpha_pattern", "q_proj=2,q_proj=30,0.q_proj=5"), PS_OK);
    assert_int_equal(ps_adapter_config_write(c, &modules, &json), PS_OK);
    json[strlen(json) - 1] = '\0'; /* without braces */
    ps_config *again = load(json + 1, "");
    assert_string_equal(options_of(again)->lora_rank_pattern, "q_proj=2,0.q_proj=3");
    assert_string_equal(options_of(again)->lora_alpha_pattern, "q_proj=2,0.q_proj=5");
    assert_string_equal(options_of(again)->lora_modules_to_save, "model.layers.0.norm,model.layers.1.norm");
    ps_mem_free(json);
    ps_config_destroy(again);
    ps_config_destroy(c);
}

static void set_later(void **state)
{
    (void)state;
    ps_config *c = load(BASICS ", \"r\": 3", "");
    assert_int_equal(options_of(c)->lora_r, 3);
    assert_int_equal(ps_config_set(c, "lora.from_pretrained", "/nowhere"), PS_EIO);
    assert_int_equal(options_of(c)->lora_r, 3);
    assert_int_equal(ps_config_set(c, "lora.from_pretrained", "\"\""), PS_OK);
    assert_int_equal(options_of(c)->lora_r, 0);
    assert_int_equal(ps_config_set(c, "lora.from_pretrained", work.path), PS_OK);
    assert_string_equal(options_of(c)->lora_target_modules, "q_proj,mlp.up_proj");
    ps_config_destroy(c);
}

static int set_up(void **state)
{
    (void)state;
    work = temp_folder_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(&work);
    assert_int_equal(ps_mem_live_bytes(), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_peft_writes), cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(the_section),      cmocka_unit_test(written_and_read),
        cmocka_unit_test(written_in_order), cmocka_unit_test(set_later),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
