#include "base/fault.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/option/option.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The message without the [file:line] that debug builds append. */
static void assert_message(const char *expected)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", ps_last_error());
    char *suffix = strstr(message, " [src/");
    if (suffix != NULL) *suffix = '\0';
    assert_string_equal(message, expected);
}

static ps_config *parse(const char *text)
{
    ps_config *config = NULL;
    if (ps_config_parse(text, "c.json", &config) != PS_OK) fail_msg("%s", ps_last_error());
    return config;
}

static void table_is_sound(void **state)
{
    (void)state;
    for (int i = 0; i < PS_OPTION_COUNT; i++) {
        const ps_option *option = &ps_option_table[i];
        char field[PS_OPTION_KEY_MAX], text[PS_OPTION_TEXT_MAX], suggestion[PS_OPTION_KEY_MAX];
        const char *word;
        for (int k = 0; (word = ps_option_other_name_at((ps_option_id)i, k)) != NULL; k++) {
            const ps_option_alias *other;
            assert_int_equal(ps_option_find(word, &other), PS_OPTION_COUNT); /* else it would be read */
            assert_true(ps_option_suggest(word, suggestion));                /* once only */
            assert_string_equal(suggestion, option->key);
        }
        assert_in_range(strlen(option->key), 1, PS_OPTION_KEY_MAX - 1);
        const ps_option_alias *alias;
        assert_int_equal(ps_option_find(option->key, &alias), i);
        assert_null(alias);
        for (int k = 0; (alias = ps_option_alias_at((ps_option_id)i, k)) != NULL; k++)
            assert_true(!alias->is_scaled || option->type == PS_OPTION_DOUBLE ||
                        (alias->factor > 0 && (option->type == PS_OPTION_INT || option->type == PS_OPTION_BYTES)));
        assert_in_range(strlen(ps_option_expectation(option, text)), 1, PS_OPTION_TEXT_MAX - 2);
        assert_true(strlen(option->help) > 10 && option->help[strlen(option->help) - 1] == '.');
        /* the default is an allowed value */
        ps_config *config = NULL;
        assert_int_equal(ps_config_create(&config), PS_OK);
        FILE *out = fmemopen(field, sizeof field, "w");
        ps_option_write_value(option, option->value, out);
        fputc('\0', out);
        fclose(out);
        if (ps_config_set(config, option->key, field) != PS_OK) fail_msg("%s", ps_last_error());
        ps_config_destroy(config);
    }
}

/* options.def spells each name twice; they must agree. */
static void fields_are_named_after_keys(void **state)
{
    (void)state;
#define CHECK(field_, key_)                                                                                            \
    do {                                                                                                               \
        char field[] = key_;                                                                                           \
        for (char *c = field; *c != '\0'; c++)                                                                         \
            if (*c == '.') *c = '_';                                                                                   \
        assert_string_equal(field, #field_);                                                                           \
    } while (0);
#define OPT_BOOL(field, key, ...) CHECK(field, key)
#define OPT_INT(field, key, ...) CHECK(field, key)
#define OPT_DOUBLE(field, key, ...) CHECK(field, key)
#define OPT_PAIR(field, key, ...) CHECK(field, key)
#define OPT_RANGE(field, key, ...) CHECK(field, key)
#define OPT_STRING(field, key, ...) CHECK(field, key)
#define OPT_ENUM(field, key, ...) CHECK(field, key)
#define OPT_BYTES(field, key, ...) CHECK(field, key)
#include "config/option/options.def"
#undef CHECK
}

static void patrickstar_readme_is_accepted(void **state)
{
    (void)state;
    ps_config *config = NULL;
    if (ps_config_load("test/data/config/patrickstar_readme.json", &config) != PS_OK) fail_msg("%s", ps_last_error());
    const ps_options *o = ps_config_options(config);
    assert_int_equal(o->optimizer_type, PS_CONFIG_OPTIMIZER_ADAM);
    assert_true(o->optimizer_params_lr == 0.001 && o->optimizer_params_eps == 1e-6);
    assert_true(o->optimizer_params_betas[0] == 0.9 && o->optimizer_params_betas[1] == 0.999);
    assert_true(o->optimizer_params_use_hybrid_adam && o->fp16_enabled);
    assert_int_equal(o->fp16_initial_scale_power, 8);
    assert_int_equal(o->default_chunk_size, 64 * 1024 * 1024);
    assert_true(o->client_mem_tracer_overall_gpu_mem_ratio == 0.9);
    assert_false(o->client_opts_with_mem_saving_comm); /* not in the file: the default */
    assert_false(ps_config_gives(config, PS_OPTION_client_opts_with_mem_saving_comm));
    assert_true(ps_config_gives(config, PS_OPTION_fp16_enabled));
    ps_config_destroy(config);
}

static void patrickstar_example_is_accepted(void **state)
{
    (void)state;
    ps_config *config = NULL;
    if (ps_config_load("test/data/config/patrickstar_example.json", &config) != PS_OK) fail_msg("%s", ps_last_error());
    const ps_options *o = ps_config_options(config);
    char ignored[PS_CONFIG_IGNORED_TEXT_MAX];
    (void)ps_config_describe_ignored(config, ignored);
    assert_non_null(strstr(ignored, "client.mem_tracer.with_static_partition: without effect"));
    assert_non_null(strstr(ignored, "client.opts.with_mem_cache: without effect"));
    assert_non_null(strstr(ignored, "client.opts.with_async_move: without effect"));
    assert_true(o->client_opts_with_mem_saving_comm && o->use_cpu_embedding && o->gradient_clipping == -1);
    ps_config_destroy(config);
}

/* Keys without effect take any value of their type; the one that holds anyway is not worth a word. */
static void ignored_keys_are_told(void **state)
{
    (void)state;
    char text[PS_CONFIG_IGNORED_TEXT_MAX], *dumped = NULL;
    ps_config *config = NULL;
#define MONITOR(value) "{\"client\": {\"mem_tracer\": {\"use_async_mem_monitor\": " value "}}}"
    assert_int_equal(ps_config_parse(MONITOR("true"), "c.json", &config), PS_OK);
    assert_string_equal(ps_config_describe_ignored(config, text), "");
    assert_int_equal(ps_config_set(config, "client.mem_tracer.use_async_mem_monitor", "false"), PS_OK);
    assert_string_equal(ps_config_describe_ignored(config, text),
                        "client.mem_tracer.use_async_mem_monitor: without effect, as memory is counted, not sampled");
    assert_int_equal(ps_config_dump_json(config, &dumped), PS_OK);
    assert_null(strstr(dumped, "use_async_mem_monitor"));
    assert_int_equal(ps_config_set(config, "client.mem_tracer.use_async_mem_monitor", "7"), PS_EINVAL);
    ps_free(dumped);
    ps_config_destroy(config);
    assert_int_equal(ps_config_parse(MONITOR("7"), "c.json", &config), PS_EINVAL);
    assert_message("c.json:1:53: client.mem_tracer.use_async_mem_monitor has a value of another type than true");
#undef MONITOR
}

static void disk_path_without_a_disk_tier_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        bool is_told;
    } cases[] = {
        {"{\"memory\": {\"device\": \"4GB\", \"disk_path\": \"/nvme\"}}", true},
        {"{\"memory\": {\"host\": \"4GB\", \"disk_path\": \"/nvme\"}}", true},
        {"{\"memory\": {\"disk_path\": \"/nvme\"}}", false},
        {"{\"memory\": {\"total\": \"4GB\", \"disk_path\": \"/nvme\"}}", false},
        {"{\"memory\": {\"device\": \"4GB\", \"disk\": \"auto\", \"disk_path\": \"/nvme\"}}", false},
        {"{\"memory\": {\"device\": \"4GB\", \"disk\": 0, \"disk_path\": \"/nvme\"}}", false},
        {"{\"memory\": {\"device\": \"4GB\"}}", false},
    };
    char text[PS_CONFIG_IGNORED_TEXT_MAX];
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_config *config = parse(cases[i].json);
        (void)ps_config_describe_ignored(config, text);
        const bool is_told = strstr(text, "memory.disk_path: without effect, as there is no disk tier") != NULL;
        if (is_told != cases[i].is_told) fail_msg("%s: \"%s\"", cases[i].json, text);
        if (is_told) assert_non_null(strstr(text, "memory.disk = auto, or a size, makes one"));
        ps_config_destroy(config);
    }
}

static void deepspeed_config_is_accepted(void **state)
{
    (void)state;
    ps_config *config = NULL;
    if (ps_config_load("test/data/config/deepspeed.json", &config) != PS_OK) fail_msg("%s", ps_last_error());
    const ps_options *o = ps_config_options(config);
    assert_int_equal(o->optimizer_type, PS_CONFIG_OPTIMIZER_ADAMW);
    assert_int_equal(o->scheduler_type, PS_CONFIG_SCHEDULER_WARMUP_DECAY_LR);
    assert_int_equal(o->scheduler_params_warmup_type, PS_CONFIG_WARMUP_LINEAR);
    assert_int_equal(o->scheduler_params_warmup_num_steps, 100);
    assert_int_equal(o->train_batch_size, 16);
    assert_true(o->bf16_enabled && !o->fp16_enabled);
    ps_config_destroy(config);
}

static void bad_files_are_refused_with_place_and_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        ps_status st;
    } cases[] = {
        /* syntax */
        {"", "c.json:1:1: '[' or '{' expected near end of file", PS_EFORMAT},
        {"{\n  \"a\" 1}", "c.json:2:7: ':' expected near '1'", PS_EFORMAT},
        {"{\"train\": {\"steps\": 1}", "c.json:1:22: '}' expected near end of file", PS_EFORMAT},
        {"{\"train\": {\"steps\": 1,\n\"steps\": 2}}", "c.json:2:7: duplicate object key near '\"steps\"'", PS_EFORMAT},
        {"{}\n x", "c.json:2:2: end of file expected near 'x'", PS_EFORMAT},
        {" [1]", "c.json:1:2: a configuration must be an object, { ... }", PS_EINVAL},
        /* unknown keys */
        {"{\"optimizer\": {\n  \"params\": {\n    \"lrr\": 1}}}",
         "c.json:3:5: unknown key 'optimizer.params.lrr'; did you mean 'optimizer.params.lr'?", PS_EINVAL},
        {"{\"optimiser\": {}}", "c.json:1:2: unknown key 'optimiser'; did you mean 'optimizer'?", PS_EINVAL},
        {"{\"optimizer\": {\"prams\": {\"lr\": 1}}}",
         "c.json:1:16: unknown key 'optimizer.prams'; did you mean 'optimizer.params'?", PS_EINVAL},
        {"{\"n_lyaer\": 3}", "c.json:1:2: unknown key 'n_lyaer'; --help-config lists the keys", PS_EINVAL},
        {"{\"n_layer\": 3}", "c.json:1:2: unknown key 'n_layer'; did you mean 'model.n_layer'?", PS_EINVAL},
        {"{\"train_micro_batch_size\": 3}",
         "c.json:1:2: unknown key 'train_micro_batch_size'; did you mean 'train_micro_batch_size_per_gpu'?", PS_EINVAL},
        {"{\"train\": {\"num_train_epochs\": 3}}",
         "c.json:1:12: unknown key 'train.num_train_epochs'; did you mean 'train.epochs'?", PS_EINVAL},
        {"{\"MAX_LENGTH\": 3}", "c.json:1:2: unknown key 'MAX_LENGTH'; did you mean 'data.sequence_length'?",
         PS_EINVAL},
        {"{\"eval_steps\": 3}", "c.json:1:2: unknown key 'eval_steps'; did you mean 'train.eval_interval'?", PS_EINVAL},
        {"{\"load_in_4bit\": true}",
         "c.json:1:2: load_in_4bit is not supported: all weights are trained in full; the budgets in memory.* make "
         "the "
         "model fit",
         PS_EINVAL},
        {"{\"enabled\": 3}", "c.json:1:2: unknown key 'enabled'; --help-config lists the keys", PS_EINVAL},
        {"{\"train.steps\": 3}", "c.json:1:2: unknown key 'train.steps'; in a file sections are objects, not dots",
         PS_EINVAL},
        {"{\"a\\nb\": 3}", "c.json:1:2: unknown key 'a?b'; --help-config lists the keys", PS_EINVAL},
        /* types and ranges */
        {"{\"train\": 3}", "c.json:1:11: train must be an object that holds its options", PS_EINVAL},
        {"{\"bf16\": true}", "c.json:1:10: bf16 must be an object that holds its options: {\"enabled\": true}",
         PS_EINVAL},
        {"{\"model\": \"org/name\"}",
         "c.json:1:11: model must be an object that holds its options: {\"from_pretrained\": \"org/name\"}", PS_EINVAL},
        {"{\"scheduler\": \"cosine\"}",
         "c.json:1:15: scheduler must be an object that holds its options: {\"type\": \"cosine\"}", PS_EINVAL},
        {"{\"data\": \"chat.jsonl\"}",
         "c.json:1:10: data must be an object that holds its options: {\"train\": \"chat.jsonl\"}", PS_EINVAL},
        {"{\"optimizer\": {\"params\": {\"lr\": \"0.1\"}}}",
         "c.json:1:33: optimizer.params.lr must be a number of at least 0, not \"0.1\"", PS_EINVAL},
        {"{\"optimizer\": {\"params\": {\"lr\": -0.5}}}",
         "c.json:1:33: optimizer.params.lr must be a number of at least 0, not -0.5", PS_EINVAL},
        {"{\"optimizer\": {\"params\": {\"eps\": 0}}}",
         "c.json:1:34: optimizer.params.eps must be a number above 0, not 0", PS_EINVAL},
        {"{\"optimizer\": {\"params\": {\"betas\": [0.9, 1]}}}",
         "c.json:1:36: optimizer.params.betas must be two numbers in [0, 1), not [0.9,1]", PS_EINVAL},
        {"{\"optimizer\": {\"params\": {\"betas\": [0.9]}}}",
         "c.json:1:36: optimizer.params.betas must be two numbers in [0, 1), not [0.9]", PS_EINVAL},
        {"{\"profile\": {\"path\": \"p.json\",\n  \"steps\": [5, 3]}}",
         "c.json:2:12: profile.steps must be two integers from 1 to 1000000000, the first not above the last, not "
         "[5,3]",
         PS_EINVAL},
        {"{\"profile\": {\"steps\": [0, 3]}}",
         "c.json:1:23: profile.steps must be two integers from 1 to 1000000000, the first not above the last, not "
         "[0,3]",
         PS_EINVAL},
        {"{\"profile\": {\"steps\": [1, 2.5]}}",
         "c.json:1:23: profile.steps must be two integers from 1 to 1000000000, the first not above the last, not "
         "[1,2.5]",
         PS_EINVAL},
        {"{\"profile\": {\"steps\": [1, 2]}}",
         "c.json:1:23: profile.steps has no effect without profile.path; give the file's name", PS_EINVAL},
        {"{\"optimizer\": {\"type\": \"Lamb\"}}",
         "c.json:1:24: optimizer.type must be one of Adam, AdamW, SGD, Lion, Muon, not \"Lamb\"", PS_EINVAL},
        {"{\"fp16\": {\"enabled\": 1}}", "c.json:1:22: fp16.enabled must be true or false, not 1", PS_EINVAL},
        {"{\"train\": {\"steps\": -1}}", "c.json:1:21: train.steps must be an integer from 0 to 1000000000, not -1",
         PS_EINVAL},
        {"{\"train\": {\"steps\": 1.5}}", "c.json:1:21: train.steps must be an integer from 0 to 1000000000, not 1.5",
         PS_EINVAL},
        {"{\"train\": {\"seed\": 1e300}}", "c.json:1:20: train.seed must be an integer of at least 0, not 1e+300",
         PS_EINVAL},
        {"{\"memory\": {\"disk_path\": [\"/a\", \"\"]}}",
         "c.json:1:26: memory.disk_path must be a string, or an array of strings that are not empty and have no "
         "commas, "
         "not an array",
         PS_EINVAL},
        {"{\"memory\": {\"disk_path\": [\"/a\", 3]}}",
         "c.json:1:26: memory.disk_path must be a string, or an array of strings that are not empty and have no "
         "commas, "
         "not an array",
         PS_EINVAL},
        {"{\"data\": {\"train\": [\"a\"]}}", "c.json:1:20: data.train must be a string, not an array", PS_EINVAL},
        {"{\"data\": {\"train\": {}}}", "c.json:1:20: data.train must be a string, not an object", PS_EINVAL},
        {"{\"memory\": {\"disk\": \"much\"}}",
         "c.json:1:21: memory.disk must be a size (64MB, 1.5GiB, bytes) of at least 0 and at most 1EiB, "
         "or auto, not \"much\"",
         PS_EINVAL},
        {"{\"memory\": {\"host\": \"64 apples\"}}",
         "c.json:1:21: memory.host must be a size (64MB, 1.5GiB, bytes) of at least 0 and at most 1EiB, "
         "or auto, not \"64 apples\"",
         PS_EINVAL},
        {"{\"memory\": \"much\"}",
         "c.json:1:12: memory must be a size (64MB, 1.5GiB, bytes) of at least 1 and at most 1EiB, "
         "or auto, not \"much\"",
         PS_EINVAL},
        {"{\"memory\": [\"8GB\"]}",
         "c.json:1:12: memory must be a size (64MB, 1.5GiB, bytes) of at least 1 and at most 1EiB, "
         "or auto, not an array",
         PS_EINVAL},
        {"{\"memory\": {\"host\": -1}}",
         "c.json:1:21: memory.host must be a size (64MB, 1.5GiB, bytes) of at least 0 and at most 1EiB, "
         "or auto, not -1",
         PS_EINVAL},
        /* keys of others */
        {"{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}",
         "c.json:1:52: activation_checkpointing.cpu_checkpointing moves what is kept for each checkpoint segment, and "
         "there "
         "are none: it needs activation_checkpointing.enabled true",
         PS_EINVAL},
        {"{\"zero_optimization\": {\"stage\": 3}}",
         "c.json:1:2: zero_optimization is not supported: chunks replace it; set the budgets in memory.*", PS_EINVAL},
        {"{\"optimizer\": {\"params\": {\"bias_correction\": false}}}",
         "c.json:1:27: optimizer.params.bias_correction is not supported: the correction is always made", PS_EINVAL},
        {"{\"release_after_init\": 1}",
         "c.json:1:2: release_after_init is not supported: remove it: parameters are initialised in their "
         "chunks, with the same bits",
         PS_EINVAL},
        /* across keys */
        {"{\"fp16\": {\"enabled\": true},\n \"bf16\": {\"enabled\": true}}",
         "c.json:2:22: fp16.enabled and bf16.enabled exclude each other; keep one", PS_EINVAL},
        {"{\"gradient_clipping\": 0.5,\n \"memory\": {\"update_in_backward\": \"always\"}}",
         "c.json:2:35: memory.update_in_backward = always: gradient_clipping 0.5 needs the norm of all gradients "
         "before "
         "the first update; set gradient_clipping = 0, or auto here",
         PS_EINVAL},
        {"{\"fp16\": {\"enabled\": true},\n \"memory\": {\"update_in_backward\": \"always\"}}",
         "c.json:2:35: memory.update_in_backward = always: fp16 skips steps whose gradients overflow, which is known "
         "after the backward pass only; use bf16.enabled, or auto here",
         PS_EINVAL},
        {"{\"memory\": {\"update_in_backward\": \"always\"}}",
         "c.json:1:35: memory.update_in_backward = always: a step whose gradients are not finite could not be skipped, "
         "but train.max_nonfinite_steps is 5; set it to 1, which ends the run then, or auto here",
         PS_EINVAL},
        {"{\"memory\": {\"update_in_backward\": \"speculate\", \"defer_updates\": false}}",
         "c.json:1:35: memory.update_in_backward = speculate: updates that turn out to be wrong are made again before "
         "the next forward pass uses them; set memory.defer_updates = true, or never here",
         PS_EINVAL},
        {"{\"train_batch_size\": 9, \"gradient_accumulation_steps\": 2, \"train_micro_batch_size_per_gpu\": 4}",
         "c.json:1:22: train_batch_size is 9, but train_micro_batch_size_per_gpu 4 times gradient_accumulation_steps 2 "
         "is 8, which does not divide it; leave one of them out or make them agree",
         PS_EINVAL},
        {"{\"client\": {\"mem_tracer\": {\"margin_use_ratio\": 0.5}},\n \"zero\": {\"gpu_margin_mem_ratio\": 0.4}}",
         "c.json:2:11: zero.gpu_margin_mem_ratio and client.mem_tracer.margin_use_ratio, which line 1 gives, are the "
         "same option; keep one",
         PS_EINVAL},
        {"{\"zero\": {\"gpu_margin_mem_ratio\": 0.4},\n \"client\": {\"mem_tracer\": {\"margin_use_ratio\": 0.5}}}",
         "c.json:2:28: client.mem_tracer.margin_use_ratio and zero.gpu_margin_mem_ratio, which line 1 gives, are the "
         "same option; keep one",
         PS_EINVAL},
        {"{\"model\": {\"n_layer\": 3,\n \"num_hidden_layers\": 3}}",
         "c.json:2:2: model.num_hidden_layers and model.n_layer, which line 1 gives, are the same option; keep one",
         PS_EINVAL},
        /* other names, with their own units */
        {"{\"model\": {\"n_layer\": 0}}", "c.json:1:23: model.n_layer must be an integer from 1 to 65536, not 0",
         PS_EINVAL},
        {"{\"zero\": {\"gpu_margin_mem_ratio\": 1.5}}",
         "c.json:1:35: zero.gpu_margin_mem_ratio must be a number in [0, 1], not 1.5", PS_EINVAL},
        {"{\"zero\": {\"warmup_non_model_data_ratio\": 1}}",
         "c.json:1:42: zero.warmup_non_model_data_ratio must be a number in [0, 1), not 1", PS_EINVAL},
        {"{\"zero\": {\"reduce_scatter_bucket_size_mb\": \"4MB\"}}",
         "c.json:1:44: zero.reduce_scatter_bucket_size_mb must be an integer from 1 to 1099511, not \"4MB\"",
         PS_EINVAL},
        {"{\"comm\": {\"staging\": \"1MB\"}, \"zero\": {\"reduce_scatter_bucket_size_mb\": 2}}",
         "c.json:1:39: zero.reduce_scatter_bucket_size_mb and comm.staging, which line 1 gives, are the same option; "
         "keep one",
         PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"gpu\"}}",
         "c.json:1:38: zero.tensor_placement_policy must be one of auto, cpu, cuda, not \"gpu\"", PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"cuda\", \"gpu_margin_mem_ratio\": 0.5}}",
         "c.json:1:70: zero.gpu_margin_mem_ratio has no effect with zero.tensor_placement_policy cuda", PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"cpu\"}, \"client\": {\"mem_tracer\": {\"margin_use_ratio\": "
         "0.5}}}",
         "c.json:1:92: client.mem_tracer.margin_use_ratio has no effect with zero.tensor_placement_policy cpu",
         PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"cuda\"}, \"memory\": {\"host\": \"1GB\"}}",
         "c.json:1:66: memory.host: with zero.tensor_placement_policy cuda nothing leaves the device; remove it",
         PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"cuda\"}, \"memory\": {\"disk\": \"1GB\"}}",
         "c.json:1:66: memory.disk: with zero.tensor_placement_policy cuda nothing leaves the device; remove it",
         PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"cuda\"}, \"use_cpu_embedding\": true}",
         "c.json:1:68: use_cpu_embedding: with zero.tensor_placement_policy cuda nothing leaves the device; remove it",
         PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"cuda\"}, \"optimizer\": {\"params\": {\"use_hybrid_adam\": "
         "false}}}",
         "c.json:1:91: optimizer.params.use_hybrid_adam: with zero.tensor_placement_policy cuda nothing leaves the "
         "device; remove it",
         PS_EINVAL},
        {"{\"zero\": {\"tensor_placement_policy\": \"cpu\"}, \"memory\": {\"host\": 0, \"device\": \"1GB\"}}",
         "c.json:1:38: zero.tensor_placement_policy cpu needs a host tier; give memory.host memory", PS_EINVAL},
        {"{\"model\": {\"n_head\": 5}}",
         "c.json:1:22: model.hidden_size 768 is not a multiple of model.num_attention_heads 5 (given as model.n_head)",
         PS_EINVAL},
        {"{\"model\": {\"n_embd\": 770}}", "model.hidden_size 770 is not a multiple of model.num_attention_heads 12",
         PS_EINVAL},
        {"{\"data\": {\"sequence_length\": 2048}}",
         "c.json:1:30: data.sequence_length 2048 exceeds model.max_position_embeddings 1024", PS_EINVAL},
        {"{\"activation_checkpointing\": {\"number_checkpoints\": 13}}",
         "c.json:1:53: activation_checkpointing.number_checkpoints 13 exceeds model.num_hidden_layers 12", PS_EINVAL},
        {"{\"scheduler\": {\"type\": \"linear\", \"params\": {\"cos_min_ratio\": 0.5}}}",
         "c.json:1:62: scheduler.params.cos_min_ratio has no effect with scheduler.type linear; remove it", PS_EINVAL},
        {"{\"scheduler\": {\"type\": \"cosine\", \"params\": {\"warmup_num_steps\": 5, \"total_num_steps\": 4}}}",
         "c.json:1:65: scheduler.params.warmup_num_steps 5 exceeds scheduler.params.total_num_steps 4", PS_EINVAL},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.5}}}",
         "c.json:1:64: scheduler.params.warmup_min_lr 0.5 exceeds scheduler.params.warmup_max_lr 0.001", PS_EINVAL},
        {"{\"fp16\": {\"min_loss_scale\": 8, \"max_loss_scale\": 4}}",
         "c.json:1:29: fp16.min_loss_scale 8 exceeds fp16.max_loss_scale 4", PS_EINVAL},
        {"{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 25}}",
         "c.json:1:51: fp16.initial_scale_power 25 begins at 3.35544e+07, outside fp16.min_loss_scale 1 to "
         "fp16.max_loss_scale 1.67772e+07",
         PS_EINVAL},
        {"{\"client\": {\"mem_tracer\": {\"use_fake_dist\": true}}}",
         "c.json:1:28: client.mem_tracer.use_fake_dist is not supported: pstar plan simulates ranks", PS_EINVAL},
        {"{\"train\": {\"steps\": 5, \"epochs\": 2.5}}",
         "c.json:1:34: train.epochs 2.5 and train.steps 5 both say how long to train; keep one (on the command line, "
         "train.steps=null or train.epochs=null takes the file's away)",
         PS_EINVAL},
        {"{\"data\": {\"validation\": \"a\", \"validation_split\": 0.1}}",
         "c.json:1:50: data.validation_split has no effect beside data.validation; keep one", PS_EINVAL},
        {"{\"data\": {\"labels\": \"no,yes\"}}",
         "c.json:1:21: data.labels has no effect with model.head causal_lm, only with sequence_classification or "
         "token_classification; remove it",
         PS_EINVAL},
        {"{\"data\": {\"label_key\": \"y\"}}",
         "c.json:1:24: data.label_key has no effect with model.head causal_lm, only with sequence_classification or "
         "token_classification; remove it",
         PS_EINVAL},
        {"{\"data\": {\"mlm_probability\": 0.3}}",
         "c.json:1:30: data.mlm_probability has no effect with model.head causal_lm, only with masked_lm; remove it",
         PS_EINVAL},
        {"{\"model\": {\"head\": \"sequence_classification\"}, \"data\": {\"chat_format\": \"chatml\"}}",
         "c.json:1:72: data.chat_format has no effect with model.head sequence_classification, only with causal_lm; "
         "remove it",
         PS_EINVAL},
        {"{\"model\": {\"type\": \"bert\", \"head\": \"masked_lm\", \"hidden_act\": \"gelu\"}, \"data\": "
         "{\"prompt_key\": \"p\"}}",
         "c.json:1:95: data.prompt_key has no effect with model.head masked_lm, only with causal_lm; remove it",
         PS_EINVAL},
        {"{\"model\": {\"problem_type\": \"regression\"}}",
         "c.json:1:28: model.problem_type has no effect with model.head causal_lm, only with sequence_classification; "
         "remove it",
         PS_EINVAL},
        {"{\"model\": {\"head\": \"token_classification\", \"num_labels\": 1}}",
         "c.json:1:58: model.num_labels = 1: a choice among one class learns nothing; give at least 2", PS_EINVAL},
        {"{\"model\": {\"head\": \"sequence_classification\", \"num_labels\": 1}, "
         "\"train\": {\"label_smoothing\": 0.1}}",
         "c.json:1:94: train.label_smoothing has no effect with model.problem_type regression; remove it", PS_EINVAL},
        {"{\"model\": {\"head\": \"question_answering\"}, \"train\": {\"z_loss\": 0.1}}",
         "c.json:1:63: train.z_loss has no effect with model.head question_answering; remove it", PS_EINVAL},
        {"{\"train\": {\"class_weights\": \"1,2\"}}",
         "c.json:1:29: train.class_weights has no effect with model.head causal_lm; remove it", PS_EINVAL},
        {"{\"model\": {\"head\": \"sequence_classification\"}, \"train\": {\"class_weights\": \"1,2,3\"}}",
         "c.json:1:75: train.class_weights = \"1,2,3\": expected 2 numbers, one for each class", PS_EINVAL},
        {"{\"model\": {\"head\": \"sequence_classification\"}, \"train\": {\"class_weights\": \"1,-2\"}}",
         "c.json:1:75: train.class_weights = \"1,-2\": entry 1 is no number from 0 on", PS_EINVAL},
        {"{\"model\": {\"head\": \"sequence_classification\"}, \"train\": {\"class_weights\": \"[0, 0]\"}}",
         "c.json:1:75: train.class_weights = \"[0, 0]\": all are 0", PS_EINVAL},
        {"{\"train\": {\"eval_interval\": 5}}",
         "c.json:1:29: train.eval_interval needs data.validation or data.validation_split to evaluate on", PS_EINVAL},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        int stale;
        ps_config *config = (void *)&stale; /* must become NULL */
        const ps_status st = ps_config_parse(cases[i].text, "c.json", &config);
        if (st == PS_OK) fail_msg("accepted: %s", cases[i].text);
        assert_message(cases[i].message);
        assert_int_equal(st, cases[i].st);
        assert_null(config);
    }
}

/* Values of names with other units; a value that leaves the option alone, and a default next to one that does not. */
static void other_names_have_other_units(void **state)
{
    (void)state;
    ps_config *config = parse("{\"zero\": {\"reduce_scatter_bucket_size_mb\": 3, \"gpu_margin_mem_ratio\": 0.25,"
                              " \"warmup_non_model_data_ratio\": 0.75}}");
    const ps_options *o = ps_config_options(config);
    assert_int_equal(o->comm_staging, 3000000);
    assert_true(o->client_mem_tracer_margin_use_ratio == 0.25);
    assert_true(o->client_mem_tracer_warmup_gpu_chunk_mem_ratio == 0.25);
    assert_int_equal(ps_config_set(config, "zero.reduce_scatter_bucket_size_mb", "5"), PS_OK);
    assert_int_equal(o->comm_staging, 5000000);
    assert_int_equal(ps_config_set(config, "zero.reduce_scatter_bucket_size_mb", "null"), PS_OK);
    assert_int_equal(o->comm_staging, PS_BYTES_AUTO);
    assert_int_equal(ps_config_set(config, "zero.gpu_margin_mem_ratio", "-1"), PS_EINVAL);
    assert_message("zero.gpu_margin_mem_ratio must be a number in [0, 1], not -1");
    ps_config_destroy(config);

    config = parse("{\"zero\": {\"gpu_margin_mem_ratio\": -1, \"reduce_scatter_bucket_size_mb\": 2},"
                   " \"client\": {\"mem_tracer\": {\"margin_use_ratio\": 0.5}}, \"comm\": {\"staging\": \"auto\"}}");
    o = ps_config_options(config);
    assert_true(o->client_mem_tracer_margin_use_ratio == 0.5);
    assert_int_equal(o->comm_staging, 2000000);
    ps_config_destroy(config);

    config = parse("{\"client\": {\"mem_tracer\": {\"margin_use_ratio\": 0.8}}, \"comm\": {\"staging\": \"7MB\"},"
                   " \"zero\": {\"gpu_margin_mem_ratio\": 0, \"reduce_scatter_bucket_size_mb\": 7}}");
    o = ps_config_options(config);
    assert_true(o->client_mem_tracer_margin_use_ratio == 0);
    assert_int_equal(o->comm_staging, 7000000);
    ps_config_destroy(config);
}

static void null_is_the_default(void **state)
{
    (void)state;
    ps_config *config = parse("{\"model\": {\"n_inner\": null}, \"data\": {\"train\": null}}");
    assert_false(ps_config_gives(config, PS_OPTION_model_intermediate_size));
    assert_int_equal(ps_config_set(config, "train.steps", "7"), PS_OK);
    assert_int_equal(ps_config_options(config)->train_steps, 7);
    assert_int_equal(ps_config_set(config, "train.steps", "null"), PS_OK);
    assert_int_equal(ps_config_options(config)->train_steps, 100);
    ps_config_destroy(config);
}

static void presets_fill_what_is_open(void **state)
{
    (void)state;
    ps_config *config = parse("{\"model\": {\"n_layer\": 2, \"preset\": \"GPT2-XL\"}}");
    const ps_options *o = ps_config_options(config);
    assert_int_equal(o->model_num_hidden_layers, 2);
    assert_int_equal(o->model_hidden_size, 1600);
    assert_int_equal(o->model_num_attention_heads, 25);
    assert_int_equal(o->model_vocab_size, 50257);
    assert_int_equal(ps_config_set(config, "model.preset", "GPT_DS_40B"), PS_OK);
    assert_int_equal(o->model_num_hidden_layers, 2);
    assert_int_equal(o->model_hidden_size, 8192);
    assert_int_equal(ps_config_set(config, "model.preset", "none"), PS_OK);
    assert_int_equal(o->model_hidden_size, 768);
    ps_config_destroy(config);
}

/* In place of a file: the name of a preset, in any case; a folder goes first. */
static void presets_are_configurations(void **state)
{
    (void)state;
    ps_config *config = NULL;
    assert_int_equal(ps_config_load("Llama-3.1-8B", &config), PS_OK);
    const ps_options *o = ps_config_options(config);
    assert_int_equal(o->model_type, PS_CONFIG_MODEL_LLAMA);
    assert_int_equal(o->model_vocab_size, 128256);
    assert_int_equal(o->model_intermediate_size, 14336);
    assert_int_equal(o->model_num_key_value_heads, 8);
    assert_int_equal(o->model_rope_scaling_rope_type, PS_CONFIG_ROPE_LLAMA3);
    assert_false(o->model_tie_word_embeddings);
    ps_config_destroy(config);

    char assigned_layers[] = "model.num_hidden_layers=3", *const assigned[] = {assigned_layers};
    assert_int_equal(ps_config_load_assigned("qwen3-0.6b", assigned, 1, &config), PS_OK);
    o = ps_config_options(config);
    assert_int_equal(o->model_num_hidden_layers, 3);
    assert_int_equal(o->model_head_dim, 128);
    assert_int_equal(o->model_max_position_embeddings, 40960);
    assert_true(o->model_tie_word_embeddings);
    ps_config_destroy(config);
}

static void folders_of_a_file_become_one_text(void **state)
{
    (void)state;
    ps_config *config = parse("{\"memory\": {\"disk_path\": [\"/disk1\", \"/disk2\"]}}");
    assert_string_equal(ps_config_options(config)->memory_disk_path, "/disk1,/disk2");
    ps_config_destroy(config);
    config = parse("{\"memory\": {\"disk_path\": null}}");
    assert_string_equal(ps_config_options(config)->memory_disk_path, "");
    ps_config_destroy(config);
}

/* One number for the whole section; its other options are in an object as ever. */
static void memory_may_be_one_size(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t total;
    } good[] = {{"{\"memory\": \"8GB\"}", 8000000000},
                {"{\"memory\": 123456}", 123456},
                {"{\"memory\": \"auto\"}", PS_BYTES_AUTO},
                {"{\"memory\": null}", PS_BYTES_AUTO},
                {"{\"memory\": {\"total\": \"1GiB\", \"prefetch\": 3}}", PS_GIB}};
    for (size_t i = 0; i < PS_ARRAY_LEN(good); i++) {
        char *text = NULL;
        ps_config *config = parse(good[i].text);
        assert_true(ps_config_options(config)->memory_total == good[i].total);
        assert_int_equal(ps_config_dump_json(config, &text), PS_OK);
        ps_config_destroy(config);
        config = parse(text);
        assert_true(ps_config_options(config)->memory_total == good[i].total);
        ps_config_destroy(config);
        ps_free(text);
    }
}

static void words_of_the_command_line_are_set(void **state)
{
    (void)state;
    static const struct {
        const char *key, *word, *json; /* the word, and as what the dump shows it */
    } good[] = {
        {"memory.host", "1.5GiB", "\"host\": 1610612736"},
        {"memory", "8GB", "\"total\": 8000000000"},
        {"memory.total", "8GB", "\"total\": 8000000000"},
        {"memory.device", "64MB", "\"device\": 64000000"},
        {"memory.device", "\"auto\"", "\"device\": \"auto\""},
        {"memory.device", "4096", "\"device\": 4096"},
        {"optimizer.params.betas", "0.9,0.95", "\"betas\": [0.9, 0.95]"},
        {"optimizer.params.betas", "[0, 0.5]", "\"betas\": [0, 0.5]"},
        {"optimizer.type", "adam", "\"type\": \"Adam\""},
        {"optimizer.params.lr", "3e-4", "\"lr\": 0.0003"},
        {"data.train", "true", "\"train\": \"true\""},
        {"data.train", "a b\"c\\", "\"train\": \"a b\\\"c\\\\\""},
        {"data.train", "\"q\\n\"", "\"train\": \"q\\u000a\""},
        {"memory.disk_path", "/a,/b", "\"disk_path\": \"/a,/b\""},
        {"memory.disk_path", "[\"/a\", \"/b c\", \"d\"]", "\"disk_path\": \"/a,/b c,d\""},
        {"memory.disk_path", "[\"/a\"]", "\"disk_path\": \"/a\""},
        {"data.train", "[\"/a\"]", "\"train\": \"[\\\"/a\\\"]\""},
        {"train.seed", "9223372036854775807", "\"seed\": 9223372036854775807"},
        {"train.save", "false", "\"save\": false"},
        {"default_chunk_size", "1e6", "\"default_chunk_size\": 1000000"},
    };
    ps_config *config = NULL;
    assert_int_equal(ps_config_create(&config), PS_OK);
    for (size_t i = 0; i < PS_ARRAY_LEN(good); i++) {
        char *text = NULL;
        if (ps_config_set(config, good[i].key, good[i].word) != PS_OK) fail_msg("%s", ps_last_error());
        assert_int_equal(ps_config_dump_json(config, &text), PS_OK);
        if (strstr(text, good[i].json) == NULL) fail_msg("no %s in %s", good[i].json, text);
        ps_free(text);
    }
    ps_config_destroy(config);
}

static void bad_words_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *key, *word, *message;
    } cases[] = {
        {"lr", "1", "unknown key 'lr'; did you mean 'optimizer.params.lr'?"},
        {"optimizer.params.rl", "1", "unknown key 'optimizer.params.rl'; did you mean 'optimizer.params.lr'?"},
        {"train.stepps", "1", "unknown key 'train.stepps'; did you mean 'train.steps'?"},
        {"optimizer", "{}", "'optimizer' is a section; set one of its keys, as in optimizer.KEY=VALUE"},
        {"bf16", "true", "'bf16' is a section: bf16.enabled=true"},
        {"model", "org/name", "'model' is a section: model.from_pretrained=org/name"},
        {"learning_rate", "1", "unknown key 'learning_rate'; did you mean 'optimizer.params.lr'?"},
        {"", "1", "unknown key ''; --help-config lists the keys"},
        {"flops_profiler.enabled", "true", "flops_profiler is not supported: remove it"},
        {"train.steps", "ten", "train.steps must be an integer from 0 to 1000000000, not \"ten\""},
        {"train.steps", "", "train.steps must be an integer from 0 to 1000000000, not \"\""},
        {"memory.disk_path", "[\"/a\",]",
         "memory.disk_path begins with [ and is no JSON array (unexpected token near ']'): \"[\"/a\",]\""},
        {"train.save", "yes", "train.save must be true or false, not \"yes\""},
        {"optimizer.params.betas", "0.9", "optimizer.params.betas must be two numbers in [0, 1), not [0.9]"},
        {"profile.steps", "7",
         "profile.steps must be two integers from 1 to 1000000000, the first not above the last, not [7]"},
        {"profile.steps", "1,2,3",
         "profile.steps must be two integers from 1 to 1000000000, the first not above the last, not [1,2,3]"},
        {"memory.disk_path", "[\"/a,\", \"/b\"]",
         "memory.disk_path must be a string, or an array of strings that are not empty and have no commas, not an "
         "array"},
        {"data.train", "\xff", "the value of data.train is not valid UTF-8"},
    };
    ps_config *config = parse("{\"data\": {\"train\": \"t.txt\"}, \"train\": {\"steps\": 9}}");
    char *before = NULL, *after = NULL;
    assert_int_equal(ps_config_dump_json(config, &before), PS_OK);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_int_equal(ps_config_set(config, cases[i].key, cases[i].word), PS_EINVAL);
        assert_message(cases[i].message);
    }
    assert_int_equal(ps_config_dump_json(config, &after), PS_OK);
    assert_string_equal(before, after);
    ps_free(before);
    ps_free(after);
    ps_config_destroy(config);
}

/* A file with this text; its path. */
static const char *file_with(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/test_config.%d.json", (int)getpid());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* As in argv. */
#define WORD(text) ((char[]){text})

static void assignments_win_over_the_file(void **state)
{
    (void)state;
    /* wrong by itself, wrong with others, a folder that is not there, under another name */
    const char *path = file_with("{\"train\": {\"steps\": \"many\"}, \"fp16\": {\"enabled\": true},"
                                 " \"bf16\": {\"enabled\": true}, \"model\": {\"from_pretrained\": \"/nowhere\","
                                 " \"n_layer\": -1}, \"data\": {\"train\": 5}}");
    char *const words[] = {WORD("train.steps=7"),          WORD("bf16.enabled=null"),
                           WORD("model.from_pretrained="), WORD("model.num_hidden_layers=3"),
                           WORD("data.train=a=b"),         WORD("train.steps=8")};
    ps_config *config = NULL;
    assert_int_equal(ps_config_load_assigned(path, words, PS_ARRAY_LEN(words), &config), PS_OK);
    const ps_options *o = ps_config_options(config);
    assert_int_equal(o->train_steps, 8);
    assert_int_equal(o->model_num_hidden_layers, 3);
    assert_true(o->fp16_enabled && !o->bf16_enabled);
    assert_string_equal(o->data_train, "a=b");
    ps_config_destroy(config);
    /* without one of them the file is wrong, and nothing else is */
    for (size_t left_out = 0; left_out + 1 < PS_ARRAY_LEN(words); left_out++) {
        char *some[PS_ARRAY_LEN(words)];
        int n = 0;
        for (size_t i = 0; i < PS_ARRAY_LEN(words); i++)
            if (i != left_out && (left_out != 0 || i != 5)) some[n++] = words[i];
        assert_int_not_equal(ps_config_load_assigned(path, some, n, &config), PS_OK);
        assert_null(config);
    }
    unlink(path);
}

static void unknown_keys_are_errors_whatever_is_assigned(void **state)
{
    (void)state;
    const char *path = file_with("{\"train\": {\"stepps\": 1}}");
    char *const known[] = {WORD("train.steps=7")}, *const unknown[] = {WORD("train.stepps=7")},
                *const no_value[] = {WORD("train.steps")};
    char expected[256];
    ps_config *config = NULL;
    assert_int_equal(ps_config_load_assigned(path, known, 1, &config), PS_EINVAL);
    snprintf(expected, sizeof expected, "%s:1:12: unknown key 'train.stepps'; did you mean 'train.steps'?", path);
    assert_message(expected);
    assert_int_equal(ps_config_load_assigned(path, unknown, 1, &config), PS_EINVAL);
    assert_message("unknown key 'train.stepps'; did you mean 'train.steps'?");
    assert_int_equal(ps_config_load_assigned(path, no_value, 1, &config), PS_EINVAL);
    assert_message("'train.steps' is not of the form key=value");
    unlink(path);
}

/* What was given and nothing else; read again it means the same, also where a default depends on what was given. */
static void given_options_are_dumped(void **state)
{
    (void)state;
    ps_config *config = parse("{\"model\": {\"type\": \"llama\", \"hidden_size\": 768}, \"train\": {\"seed\": null},"
                              " \"optimizer\": {\"params\": {\"lr\": 0.5}}}");
    char *given = NULL, *all = NULL, *all_again = NULL;
    assert_int_equal(ps_config_dump_given_json(config, &given), PS_OK);
    assert_string_equal(given,
                        "{\n    \"optimizer\": {\n        \"params\": {\n            \"lr\": 0.5\n        }\n    },\n"
                        "    \"model\": {\n        \"type\": \"llama\",\n        \"hidden_size\": 768\n    }\n}\n");
    assert_int_equal(ps_config_dump_json(config, &all), PS_OK);
    ps_config *again = parse(given);
    assert_int_equal(ps_config_dump_json(again, &all_again), PS_OK);
    assert_string_equal(all, all_again);
    ps_free(given), ps_free(all), ps_free(all_again);
    ps_config_destroy(config);
    ps_config_destroy(again);
    config = parse("{}");
    assert_int_equal(ps_config_dump_given_json(config, &given), PS_OK);
    again = parse(given);
    ps_free(given);
    ps_config_destroy(config);
    ps_config_destroy(again);
}

static void dump_is_read_back_in_every_locale(void **state)
{
    (void)state;
    /* A locale with a decimal comma, where the machine has one. */
    static const char *const comma[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8"};
    int n_tried = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(comma); i++) {
        if (setlocale(LC_NUMERIC, comma[i]) == NULL) continue;
        n_tried++;
        char *first = NULL, *second = NULL;
        ps_config *config = parse("{\"optimizer\": {\"params\": {\"lr\": 0.1234567890123456789, \"eps\": 4.9e-324}},"
                                  " \"memory\": {\"host\": \"0.5MB\"}, \"data\": {\"train\": \"\\u00e9\\u0001/\"}}");
        assert_int_equal(ps_config_dump_json(config, &first), PS_OK);
        ps_config *again = parse(first);
        assert_int_equal(ps_config_dump_json(again, &second), PS_OK);
        assert_string_equal(first, second);
        assert_true(ps_config_options(again)->optimizer_params_lr == 0.1234567890123456789);
        assert_int_equal(ps_config_options(again)->memory_host, 500000);
        assert_string_equal(ps_config_options(again)->data_train, "\xc3\xa9\x01/");
        ps_free(first);
        ps_free(second);
        ps_config_destroy(config);
        ps_config_destroy(again);
    }
    setlocale(LC_NUMERIC, "C");
    if (n_tried == 1) skip(); /* it has none */
}

static void files_that_cannot_be_read_are_errors(void **state)
{
    (void)state;
    ps_config *config = NULL;
    assert_int_equal(ps_config_load("test/data/config/missing.json", &config), PS_EIO);
    assert_message("cannot open configuration 'test/data/config/missing.json': No such file or directory");
    assert_int_equal(ps_config_load("org/model", &config), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "cannot open configuration 'org/model': No such file or directory, and no "
                                            "model.preset has this name, in "));
    assert_non_null(strstr(ps_last_error(), "`hf download org/model`"));
    assert_int_equal(ps_config_load("test/data", &config), PS_EIO);
    assert_message("test/data/config.json: cannot open: No such file or directory");
    assert_int_equal(ps_config_load("/dev/zero", &config), PS_EINVAL);
    assert_message("'/dev/zero' is larger than 16 MiB, too large for a configuration");
    assert_null(config);
}

/* A NUL inside a file must not hide the rest of it. */
static void file_with_nul_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/test_config_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{}\0{", 4), 4);
    close(fd);
    ps_config *config = NULL;
    assert_int_equal(ps_config_load(path, &config), PS_EFORMAT);
    unlink(path);
}

/* Fail the n-th allocation, for every n until all succeed: right code, nothing leaks, the object stays usable. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    const int64_t live = ps_mem_live_bytes();
    bool done = false;
    for (long n = 0; !done; n++) {
        ps_config *config = NULL;
        char *text = NULL;
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        char *const word[] = {WORD("data.train=zeroth.txt")};
        ps_status st = ps_config_load_assigned("test/data/config/patrickstar_readme.json", word, 1, &config);
        if (st == PS_OK) st = ps_config_set(config, "data.train", "first.txt");
        if (st == PS_OK) {
            st = ps_config_set(config, "data.train", "second.txt");
            assert_string_equal(ps_config_options(config)->data_train, st == PS_OK ? "second.txt" : "first.txt");
        }
        if (st == PS_OK) st = ps_config_dump_json(config, &text);
        done = !ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, done ? PS_OK : PS_ENOMEM_HOST);
        ps_free(text);
        ps_config_destroy(config);
        assert_int_equal(ps_mem_live_bytes(), live);
    }
}

/* A value of each type, by its key or another name; nothing else. */
static void values_are_read_by_key(void **state)
{
    (void)state;
    ps_config *c = NULL;
    int64_t i, first, last;
    double d;
    const char *s;
    assert_int_equal(ps_config_create(&c), PS_OK);
    assert_int_equal(ps_config_set(c, "train.steps", "17"), PS_OK);
    assert_int_equal(ps_config_set(c, "memory.device", "2MB"), PS_OK);
    assert_int_equal(ps_config_set(c, "train.save", "false"), PS_OK);
    assert_int_equal(ps_config_set(c, "optimizer.params.lr", "0.25"), PS_OK);
    assert_int_equal(ps_config_set(c, "optimizer.type", "SGD"), PS_OK);
    assert_int_equal(ps_config_set(c, "data.train", "here"), PS_OK);
    assert_int_equal(ps_config_set(c, "profile.steps", "3,9"), PS_OK);
    assert_int_equal(ps_config_get_int(c, "train.steps", &i), PS_OK);
    assert_int_equal(i, 17);
    assert_int_equal(ps_config_get_double(c, "train.steps", &d), PS_OK);
    assert_true(d == 17);
    assert_int_equal(ps_config_get_int(c, "memory.device", &i), PS_OK);
    assert_int_equal(i, 2000000);
    assert_int_equal(ps_config_get_int(c, "train.save", &i), PS_OK);
    assert_int_equal(i, 0);
    assert_int_equal(ps_config_get_double(c, "optimizer.params.lr", &d), PS_OK);
    assert_true(d == 0.25);
    assert_int_equal(ps_config_get_string(c, "optimizer.type", &s), PS_OK);
    assert_string_equal(s, "SGD");
    assert_int_equal(ps_config_get_string(c, "data.train", &s), PS_OK);
    assert_string_equal(s, "here");
    assert_int_equal(ps_config_get_range(c, "profile.steps", &first, &last), PS_OK);
    assert_int_equal(first, 3);
    assert_int_equal(last, 9);

    assert_int_equal(ps_config_get_int(c, "train.stesp", &i), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "train.steps"));
    assert_int_equal(ps_config_get_int(c, "optimizer.params.lr", &i), PS_EINVAL);
    assert_int_equal(ps_config_get_double(c, "data.train", &d), PS_EINVAL);
    assert_int_equal(ps_config_get_string(c, "train.steps", &s), PS_EINVAL);
    assert_null(s);
    assert_int_equal(ps_config_get_range(c, "train.steps", &first, &last), PS_EINVAL);

    int32_t yes = -1;
    assert_int_equal(ps_config_is_given(c, "train.steps", &yes), PS_OK);
    assert_int_equal(yes, 1);
    assert_int_equal(ps_config_set(c, "train.steps", "null"), PS_OK);
    assert_int_equal(ps_config_is_given(c, "train.steps", &yes), PS_OK);
    assert_int_equal(yes, 0);
    assert_int_equal(ps_config_is_given(c, "train.stesp", &yes), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "train.steps"));

    char *help = NULL;
    assert_int_equal(ps_config_help(&help), PS_OK);
    assert_non_null(strstr(help, "train.steps"));
    ps_free(help);
    ps_config_destroy(c);
}

static int n_options_in(const char *help)
{
    int n = 0;
    for (const char *at = help; (at = strstr(at, "\n\n  ")) != NULL; at++) n++;
    return n;
}

static void help_of_a_part(void **state)
{
    (void)state;
    char *all, *none;
    assert_int_equal(ps_config_help(&all), PS_OK);
    assert_int_equal(n_options_in(all), PS_OPTION_COUNT);
    int n_memory = 0;
    for (int i = 0; i < PS_OPTION_COUNT; i++) n_memory += strncmp(ps_option_table[i].key, "memory.", 7) == 0;
    char *section, *one, *by_alias, *by_key;
    assert_int_equal(ps_config_help_of("memory", &section), PS_OK);
    assert_int_equal(ps_config_help_of("memory.total", &one), PS_OK);
    assert_int_equal(n_options_in(section), n_memory);
    assert_int_equal(n_options_in(one), 1);
    assert_non_null(strstr(section, one + strcspn(one, "\n"))); /* the same words in each */
    assert_non_null(strstr(all, strstr(one, "\n\n  memory.total=")));
    const ps_option_alias *alias = NULL;
    for (ps_option_id id = 0; id < PS_OPTION_COUNT && alias == NULL; id++) alias = ps_option_alias_at(id, 0);
    assert_non_null(alias);
    assert_int_equal(ps_config_help_of(alias->key, &by_alias), PS_OK);
    assert_int_equal(ps_config_help_of(ps_option_table[alias->id].key, &by_key), PS_OK);
    assert_string_equal(by_alias, by_key);
    static const struct {
        const char *name, *says;
    } wrong[] = {{"memory.totl", "did you mean 'memory.total'?"},
                 {"xyzzy", "'xyzzy' is no option and no section of options"},
                 {"memory.", "'memory.' is no option"},
                 {"", "'' is no option"},
                 {"activation_checkpointing.profile", "activation_checkpointing.profile is not supported: remove it"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        none = all;
        const ps_status st = ps_config_help_of(wrong[i].name, &none);
        if (st != PS_EINVAL || none != NULL || strstr(ps_last_error(), wrong[i].says) == NULL)
            fail_msg("%s: %s: %s", wrong[i].name, ps_status_name(st), ps_last_error());
    }
    ps_free(all);
    ps_free(section);
    ps_free(one);
    ps_free(by_alias);
    ps_free(by_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(fields_are_named_after_keys),
        cmocka_unit_test(patrickstar_readme_is_accepted),
        cmocka_unit_test(patrickstar_example_is_accepted),
        cmocka_unit_test(ignored_keys_are_told),
        cmocka_unit_test(disk_path_without_a_disk_tier_is_told),
        cmocka_unit_test(deepspeed_config_is_accepted),
        cmocka_unit_test(bad_files_are_refused_with_place_and_remedy),
        cmocka_unit_test(other_names_have_other_units),
        cmocka_unit_test(null_is_the_default),
        cmocka_unit_test(values_are_read_by_key),
        cmocka_unit_test(help_of_a_part),
        cmocka_unit_test(presets_fill_what_is_open),
        cmocka_unit_test(presets_are_configurations),
        cmocka_unit_test(folders_of_a_file_become_one_text),
        cmocka_unit_test(memory_may_be_one_size),
        cmocka_unit_test(words_of_the_command_line_are_set),
        cmocka_unit_test(bad_words_change_nothing),
        cmocka_unit_test(assignments_win_over_the_file),
        cmocka_unit_test(unknown_keys_are_errors_whatever_is_assigned),
        cmocka_unit_test(given_options_are_dumped),
        cmocka_unit_test(dump_is_read_back_in_every_locale),
        cmocka_unit_test(files_that_cannot_be_read_are_errors),
        cmocka_unit_test(file_with_nul_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
