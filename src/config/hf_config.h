/* hf_config.h - the config.json of a Hugging Face model folder, written from the options of a model.
 *
 * Reading it is part of a configuration: model.from_pretrained. */
#ifndef PS_CONFIG_HF_CONFIG_H
#define PS_CONFIG_HF_CONFIG_H

#include "config/config.h"

/* The config.json with which Hugging Face's transformers loads this model; dtype is torch's name of the stored weights'
 * type ("float32", "bfloat16", "float16"). What model.from_pretrained's config.json says beyond our options (special
 * token ids, label names) is carried over when that file is still there. pad_token (-1: none) is the tokenizer's
 * padding, which a classifier of transformers looks for in its input; one that the folder names wins. The caller frees
 * *json with ps_free. */
PS_NODISCARD ps_status ps_hf_config_write(const ps_config *config, const char *dtype, int32_t pad_token, char **json);

#endif
