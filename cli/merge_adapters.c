#include "merge_adapters.h"

#include <stdio.h>

#include "api/checkpoint/checkpoint_check.h"
#include "base/base.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "cli.h"
#include "config/adapter_config.h"
#include "config/hf_config.h"
#include "weights/adapter_merge.h"
#include "weights/export.h"
#include "weights/weight_convert.h"

/* The section lora: of a run its own configuration's, of a folder of peft that of its adapter_config.json. The model is
 * the base's. */
static ps_status describe(const char *base, const char *adapter, ps_config **config, ps_config **of_adapter)
{
    char *path = NULL;
    PS_TRY(ps_config_load_of_weights(base, config));
    if (*config == NULL) return PS_FAIL(PS_EIO, "%s: no config.json in it: expected a Hugging Face model", base);
    PS_TRY(ps_folder_join(adapter, PS_ADAPTER_CONFIG, &path));
    const bool is_peft = ps_file_exists(path);
    ps_mem_free(path);
    if (is_peft) return ps_config_set(*config, "lora.from_pretrained", adapter);
    PS_TRY(ps_config_load_of_weights(adapter, of_adapter));
    if (*of_adapter != NULL && ps_config_options(*of_adapter)->lora_r > 0) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: no " PS_ADAPTER_CONFIG " in it, and no run with adapters (lora.r)", adapter);
}

static ps_status read_dtype(const char *text, ps_dtype *dtype, const ps_dtype **out)
{
    *out = text != NULL ? dtype : NULL;
    if (text == NULL || ps_weight_dtype_parse(text, dtype)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "--dtype %s: expected f32, bf16 or f16", text);
}

static const char *torch_dtype(const ps_weight_source *s, const ps_dtype *asked)
{
    static const char *const names[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = "float32", [PS_DTYPE_BF16] = "bfloat16", [PS_DTYPE_F16] = "float16"};
    ps_dtype first = PS_DTYPE_F32;
    if (asked != NULL) return names[*asked];
    if (!ps_weight_dtype(ps_weight_source_get(s, 0)->tensor.dtype, &first)) first = PS_DTYPE_F32;
    return names[first];
}

ps_status merge_adapters(const char *const paths[3], const char *dtype_text, bool is_replacing)
{
    ps_config *config = NULL, *of_adapter = NULL;
    ps_weight_source *base = NULL, *adapter = NULL;
    ps_adapter_merge *m = NULL;
    ps_dtype dtype;
    ps_export_options o = {.max_shard_bytes = PS_EXPORT_SHARD_BYTES, .is_replacing = is_replacing};
    ps_export_info info;
    char *json = NULL, bytes_text[PS_BYTES_TEXT_MAX];
    ps_status st;
    PS_TRY_GOTO(read_dtype(dtype_text, &dtype, &o.dtype));
    PS_TRY_GOTO(describe(paths[0], paths[1], &config, &of_adapter));
    PS_TRY_GOTO(ps_weight_source_open(paths[0], &base));
    PS_TRY_GOTO(ps_weight_source_open(paths[1], &adapter));
    PS_TRY_GOTO(ps_checkpoint_check_source(adapter));
    PS_TRY_GOTO(ps_adapter_merge_open(of_adapter != NULL ? of_adapter : config, base, adapter, paths[1], &m));
    PS_TRY_GOTO(ps_hf_config_write(config, torch_dtype(base, o.dtype), -1, &json));
    o.config_json = json;
    o.tokenizer_folder = paths[0];
    o.has_generation = ps_config_options(config)->model_head == PS_CONFIG_HEAD_CAUSAL_LM;
    o.merge = m;
    PS_TRY_GOTO(ps_export(base, paths[2], &o, &info));
    for (int i = 0; i < ps_weight_source_n_files(base); i++) printf("from %s\n", ps_weight_source_path(base, i));
    for (int i = 0; i < ps_weight_source_n_files(adapter); i++) printf("from %s\n", ps_weight_source_path(adapter, i));
    printf("%s: %d tensors, %d of them with an adapter added, %s, config.json\n", paths[2], info.n_tensors,
           ps_adapter_merge_count(m), ps_bytes_format(info.tensor_bytes, bytes_text));
out:
    ps_free(json);
    ps_adapter_merge_close(m);
    ps_weight_source_close(adapter);
    ps_weight_source_close(base);
    ps_config_destroy(of_adapter);
    ps_config_destroy(config);
    return st;
}
