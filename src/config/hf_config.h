/* hf_config.h - writes the config.json of a Hugging Face model folder from the options of a model.
 *
 * Reading a config.json is part of the configuration: model.from_pretrained. */
#ifndef PS_CONFIG_HF_CONFIG_H
#define PS_CONFIG_HF_CONFIG_H

#include "config/config.h"

/* The config.json with which Hugging Face's transformers loads this model; dtype is torch's name for the type of the
 * stored weights ("float32", "bfloat16", "float16"). Other keys of model.from_pretrained's config.json (special token
 * ids, label names) are copied when that file still exists. pad_token (-1: none) is the tokenizer's padding, which a
 * classifier of transformers searches in its input; that of the folder has precedence. The caller frees *json with
 * ps_free. */
PS_NODISCARD ps_status ps_hf_config_write(const ps_config *config, const char *dtype, int32_t pad_token, char **json);

#endif
