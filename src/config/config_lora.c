/* config_lora.c - the section lora: options that follow from adapter_config.json, and the rules between options. */
#include "base/mem.h"
#include "base/model_folder.h"
#include "config/config_state.h"
#include "config/option/head.h"

#include <string.h>

static void put(ps_config *config, ps_option_id id, ps_option_value value)
{
    if (!config->origin[id].given) ps_option_store(&ps_option_table[id], value, &config->options);
}

void ps_config_resolve_adapters(ps_config *config)
{
    const ps_config_adapter *a = &config->adapter;
    if (!a->is_set) return;
    put(config, PS_OPTION_lora_r, a->r);
    put(config, PS_OPTION_lora_lora_alpha, a->lora_alpha);
    put(config, PS_OPTION_lora_lora_dropout, a->lora_dropout);
    put(config, PS_OPTION_lora_use_rslora, a->use_rslora);
    put(config, PS_OPTION_lora_target_modules, (ps_option_value){.s = a->target_modules});
    put(config, PS_OPTION_lora_rank_pattern, (ps_option_value){.s = a->rank_pattern});
    put(config, PS_OPTION_lora_alpha_pattern, (ps_option_value){.s = a->alpha_pattern});
    put(config, PS_OPTION_lora_modules_to_save, (ps_option_value){.s = a->modules_to_save});
}

/* As of a dumped configuration: the file is then not needed. */
static bool is_complete(const ps_config *config)
{
    for (int i = PS_OPTION_lora_r; i <= PS_OPTION_lora_from_pretrained; i++)
        if (!config->origin[i].given) return false;
    return true;
}

ps_status ps_config_adopt_adapter(ps_config *config)
{
    const char *folder = config->options.lora_from_pretrained;
    ps_adapter_config_forget(&config->adapter);
    if (folder[0] == '\0' || is_complete(config)) return PS_OK;
    PS_TRY(ps_model_folder_check("lora.from_pretrained", folder));
    return ps_adapter_config_load(folder, &config->adapter);
}

ps_status ps_config_check_adapters(const ps_config *config)
{
    const ps_options *o = &config->options;
    if (o->lora_r > 0) {
        if (o->lora_target_modules[0] != '\0') return PS_OK;
        return ps_config_fail_for(config, PS_OPTION_lora_target_modules,
                                  "lora.target_modules is empty: no layer has an adapter; name some, or all-linear");
    }
    for (int i = PS_OPTION_lora_r + 1; i <= PS_OPTION_lora_from_pretrained; i++)
        if (!ps_config_has_default(config, (ps_option_id)i))
            return ps_config_fail_for(config, (ps_option_id)i,
                                      "%s has no effect without lora.r, the rank of the adapters (peft's default is 8)",
                                      ps_config_key(config, (ps_option_id)i));
    return PS_OK;
}
