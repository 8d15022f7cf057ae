/* adapter_config.h - writes peft's adapter_config.json. Reading one is part of the configuration: lora.from_pretrained. */
#ifndef PS_CONFIG_ADAPTER_CONFIG_H
#define PS_CONFIG_ADAPTER_CONFIG_H

#include "config/config.h"

#define PS_ADAPTER_CONFIG "adapter_config.json"
#define PS_ADAPTER_WEIGHTS "adapter_model.safetensors"

/* The adapter_config.json with which peft loads adapters that the section lora of config describes. modules: the layers
 * that have one, as the class of transformers names them. The caller frees *json with ps_mem_free. */
PS_NODISCARD ps_status ps_adapter_config_write(const ps_config *config, const char *const *modules, int n, char **json);

#endif
