/* adapter_config.h - writes peft's adapter_config.json. Reading one is part of the configuration: lora.from_pretrained. */
#ifndef PS_CONFIG_ADAPTER_CONFIG_H
#define PS_CONFIG_ADAPTER_CONFIG_H

#include "config/config.h"

#define PS_ADAPTER_CONFIG "adapter_config.json"
#define PS_ADAPTER_WEIGHTS "adapter_model.safetensors"

/* What a file of adapters has, as the class of transformers names it. */
typedef struct ps_adapter_modules {
    const char *const *layers; /* [n] with an adapter */
    int n;
    const char *const *saved; /* [n_saved] trained themselves; a name may repeat */
    int n_saved;
} ps_adapter_modules;

/* The adapter_config.json with which peft loads adapters that the section lora of config describes. The caller frees
 * *json with ps_mem_free. */
PS_NODISCARD ps_status ps_adapter_config_write(const ps_config *config, const ps_adapter_modules *modules, char **json);

#endif
