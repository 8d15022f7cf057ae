/* cmd_export.c - pstar export: exports a checkpoint for Hugging Face's transformers. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/checkpoint/checkpoint_check.h"
#include "base/base.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/lora.h"
#include "base/mem.h"
#include "base/status.h"
#include "cli.h"
#include "cli_tokenizer.h"
#include "config/adapter_config.h"
#include "config/hf_config.h"
#include "data/tokenizer.h"
#include "export_template.h"
#include "weights/export.h"
#include "weights/weight_convert.h"

typedef struct export_arguments {
    const char *paths[2];
    int n_paths;
    const char *config, *dtype, *format, *shard_size, *tokenizer;
    bool force, allows_nonfinite;
} export_arguments;

/* ---- export ---- */

/* torch's name of the type of the files: the requested type, or that of the first tensor. */
static const char *torch_dtype(const ps_weight_source *s, const ps_dtype *asked)
{
    static const char *const names[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = "float32", [PS_DTYPE_BF16] = "bfloat16", [PS_DTYPE_F16] = "float16"};
    ps_dtype first = PS_DTYPE_F32;
    if (asked != NULL) return names[*asked];
    if (ps_weight_source_count(s) > 0 && !ps_weight_dtype(ps_weight_source_get(s, 0)->tensor.dtype, &first))
        first = PS_DTYPE_F32;
    return names[first];
}

static ps_status read_options(const export_arguments *a, ps_export_options *o, ps_dtype *dtype)
{
    *o = (ps_export_options){.tokenizer_folder = a->tokenizer,
                             .max_shard_bytes = PS_EXPORT_SHARD_BYTES,
                             .is_replacing = a->force,
                             .allows_nonfinite = a->allows_nonfinite};
    if (a->dtype != NULL && !ps_weight_dtype_parse(a->dtype, dtype))
        return PS_FAIL(PS_EINVAL, "--dtype %s: expected f32, bf16 or f16", a->dtype);
    if (a->dtype != NULL) o->dtype = dtype;
    if (a->format != NULL && strcmp(a->format, "safetensors") != 0 && strcmp(a->format, "pt") != 0)
        return PS_FAIL(PS_EINVAL, "--format %s: expected safetensors or pt", a->format);
    o->is_torch = a->format != NULL && strcmp(a->format, "pt") == 0;
    if (a->shard_size != NULL) PS_TRY(ps_bytes_parse(a->shard_size, &o->max_shard_bytes));
    if (o->max_shard_bytes < 1)
        return PS_FAIL(PS_EINVAL, "--max-shard-size %s: expected at least 1 byte", a->shard_size);
    if (a->tokenizer != NULL && !ps_folder_exists(a->tokenizer))
        return PS_FAIL(PS_EIO, "--tokenizer %s is no folder", a->tokenizer);
    return PS_OK;
}

/* -1: none. An unsupported tokenizer is copied all the same. */
static int32_t pad_token(const char *folder)
{
    ps_tokenizer *t = NULL;
    if (folder == NULL || ps_tokenizer_open(folder, &t) != PS_OK) return -1;
    const int32_t id = ps_tokenizer_role(t, PS_ROLE_PAD);
    ps_tokenizer_close(t);
    return id;
}

static ps_status find_config(const export_arguments *a, ps_config **out)
{
    if (a->config != NULL) return ps_config_load(a->config, out);
    PS_TRY(ps_config_load_of_weights(a->paths[0], out));
    if (*out != NULL) return PS_OK;
    return PS_FAIL(PS_EIO,
                   "%s has no state.json, summary.json, config.json or checkpoints/latest; name the configuration by "
                   "--config",
                   a->paths[0]);
}

/* Options of the exported folder from the run's configuration; *json is set to its config.json. */
static ps_status describe_run(const export_arguments *a, const ps_weight_source *s, ps_export_options *o,
                              ps_config **config, char **json)
{
    PS_TRY(find_config(a, config));
    const ps_options *run = ps_config_options(*config);
    if (o->tokenizer_folder == NULL) o->tokenizer_folder = cli_tokenizer_folder(run);
    if (o->tokenizer_folder == NULL) cli_report_no_tokenizer("export", run);
    PS_TRY(export_template_choose(run, o->tokenizer_folder, &o->chat_template));
    o->has_generation = run->model_head == PS_CONFIG_HEAD_CAUSAL_LM;
    o->ties_head = o->has_generation || run->model_head == PS_CONFIG_HEAD_MASKED_LM;
    return ps_hf_config_write(*config, torch_dtype(s, o->dtype), pad_token(o->tokenizer_folder), json);
}

/* The same for a PyTorch module, whose config.json, `given`, is in the checkpoint. */
static ps_status describe_module(const ps_weight_source *s, ps_export_options *o, const char *given, char **json)
{
    if (given == NULL)
        return PS_FAIL(PS_EINVAL,
                       "%s: saved from a module that is no model of Hugging Face's transformers, so that there is no "
                       "config.json: pstar merge writes its weights as one file",
                       ps_weight_source_path(s, 0));
    json_t *config = json_loads(given, 0, NULL);
    json_object_set_new(config, "torch_dtype", json_string(torch_dtype(s, o->dtype)));
    if (json_object_get(config, "dtype") != NULL) /* its name since transformers 5 */
        json_object_set_new(config, "dtype", json_string(torch_dtype(s, o->dtype)));
    char *text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(config);
    const ps_status st =
        text != NULL ? ps_mem_strdup(text, json) : PS_FAIL(PS_ENOMEM_HOST, "no memory for config.json");
    free(text);
    o->has_generation = true;
    o->ties_head = true;
    return st;
}

static void tell(const export_arguments *a, const ps_weight_source *s, const ps_export_options *o,
                 const ps_export_info *info)
{
    char bytes_text[PS_BYTES_TEXT_MAX];
    for (int i = 0; i < ps_weight_source_n_files(s); i++) printf("from %s\n", ps_weight_source_path(s, i));
    printf("%s: %d tensors, %s in %d file%s, %s", a->paths[1], info->n_tensors,
           ps_bytes_format(info->tensor_bytes, bytes_text), info->n_shards, info->n_shards == 1 ? "" : "s",
           o->adapter_json != NULL ? PS_ADAPTER_CONFIG : "config.json");
    if (o->tokenizer_folder != NULL)
        printf(", %d file%s copied from %s", info->n_copied, info->n_copied == 1 ? "" : "s", o->tokenizer_folder);
    putchar('\n');
    if (info->nonfinite.n_tensors > 0)
        fprintf(
            stderr,
            "pstar export: %lld values in %d tensors are infinite or NaN, %lld of them by rounding (the first: %s)\n",
            (long long)(info->nonfinite.n_values + info->nonfinite.n_too_large), info->nonfinite.n_tensors,
            (long long)info->nonfinite.n_too_large, info->nonfinite.first);
}

static bool has_adapters(const ps_weight_source *s)
{
    for (int i = 0; i < ps_weight_source_count(s); i++)
        if (ps_lora_is_parameter(ps_weight_source_get(s, i)->tensor.name)) return true;
    return false;
}

/* Of a run with adapters, for peft: *json is set to its adapter_config.json. A folder of peft's is copied likewise. */
static ps_status describe_adapter(const export_arguments *a, const ps_weight_source *s, ps_export_options *o,
                                  ps_config **config, char **json)
{
    const int n = ps_weight_source_count(s);
    const size_t prefix = strlen(PS_LORA_PREFIX);
    char **modules = NULL; /* layers from the beginning on, saved ones from the end */
    int n_modules = 0, n_saved = 0;
    ps_status st;
    if (o->is_torch) return PS_FAIL(PS_EINVAL, "--format pt: peft's adapters are safetensors");
    PS_TRY_GOTO(find_config(a, config));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *modules, (void *)&modules));
    for (int i = 0; i < n; i++) {
        const char *name = ps_weight_source_get(s, i)->tensor.name;
        const int length = ps_lora_module_length(name, PS_LORA_A);
        const bool is_saved = !ps_lora_is_parameter(name) && strrchr(name, '.') != NULL;
        if (length == 0 && !is_saved) continue;
        const size_t skipped = strncmp(name, PS_LORA_PREFIX, prefix) == 0 ? prefix : 0;
        char **const module = &modules[is_saved ? n - ++n_saved : n_modules++];
        PS_TRY_GOTO(ps_mem_strdup(name + skipped, module));
        *(is_saved ? strrchr(*module, '.') : *module + ((size_t)length - skipped)) = '\0';
    }
    const ps_adapter_modules m = {.layers = (const char *const *)modules,
                                  .n = n_modules,
                                  .saved = (const char *const *)modules + (n - n_saved),
                                  .n_saved = n_saved};
    st = ps_adapter_config_write(*config, &m, json);
out:
    for (int i = 0; modules != NULL && i < n; i++) ps_mem_free(modules[i]);
    ps_mem_free(modules);
    return st;
}

static ps_status run_export(const export_arguments *a)
{
    ps_config *config = NULL;
    ps_weight_source *s = NULL;
    ps_export_options o;
    ps_export_info info;
    ps_dtype dtype;
    bool is_module;
    char *json = NULL, *given = NULL;
    ps_status st;
    PS_TRY_GOTO(read_options(a, &o, &dtype));
    PS_TRY_GOTO(ps_weight_source_open(a->paths[0], &s));
    PS_TRY_GOTO(ps_checkpoint_check_source(s));
    PS_TRY_GOTO(ps_checkpoint_module_config(s, &is_module, &given));
    if (has_adapters(s) && !is_module) {
        PS_TRY_GOTO(describe_adapter(a, s, &o, &config, &json));
        o.adapter_json = json;
    } else {
        PS_TRY_GOTO(is_module && a->config == NULL ? describe_module(s, &o, given, &json)
                                                   : describe_run(a, s, &o, &config, &json));
        o.config_json = json;
    }
    PS_TRY_GOTO(ps_export(s, a->paths[1], &o, &info));
    tell(a, s, &o, &info);
out:
    ps_mem_free(given);
    ps_free(json);
    ps_weight_source_close(s);
    ps_config_destroy(config);
    return st;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    export_arguments *a = state->input;
    switch (key) {
    case 'c': a->config = arg; return 0;
    case 'd': a->dtype = arg; return 0;
    case 'F': a->format = arg; return 0;
    case 's': a->shard_size = arg; return 0;
    case 't': a->tokenizer = arg; return 0;
    case 'f': a->force = true; return 0;
    case 'n': a->allows_nonfinite = true; return 0;
    case ARGP_KEY_ARG:
        if (a->n_paths == 2) argp_usage(state);
        a->paths[a->n_paths++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->n_paths != 2) argp_usage(state);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_export(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"config", 'c', "FILE", 0, "The run's configuration (default: the one that is kept with the weights)", 0},
        {"dtype", 'd', "TYPE", 0, "Round weights to f32, bf16 or f16 (default: as they are)", 0},
        {"format", 'F', "FORMAT", 0, "Write safetensors (default), or pt: pytorch_model.bin, as torch.save writes it",
         0},
        {"max-shard-size", 's', "SIZE", 0, "Bytes of weights in a file, such as 2GB (default: 5GB)", 0},
        {"tokenizer", 't', "FOLDER", 0,
         "Copy the tokenizer's files from there (default: data.tokenizer, or the model's folder)", 0},
        {"force", 'f', NULL, 0, "Replace FOLDER if it is there; it must hold files only", 0},
        {"allow-nonfinite", 'n', NULL, 0,
         "Write infinities and NaNs, or values that the type cannot hold, all the same", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "CHECKPOINT FOLDER",
        .doc =
            "Write a folder that Hugging Face's transformers loads: config.json, "
            "weights, tokenizer. CHECKPOINT is a checkpoint's folder, the output "
            "folder of pstar train (its model.safetensors, else its newest "
            "checkpoint), a folder of checkpoints, a Hugging Face model, or, with --config, a file of weights. "
            "Of a run with adapters the folder is one that peft loads: adapter_config.json, adapter_model.safetensors. "
            "Files of a checkpoint are first compared with the hashes in its "
            "state.json."};
    export_arguments a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    return program_report("export", run_export(&a));
}
