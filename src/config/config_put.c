/* config_put.c - stores values in a configuration, and updates derived options. */
#include "base/mem.h"
#include "base/model_folder.h"
#include "config/config_state.h"

/* A given budget of RAM turns off the automatic disk tier: the disk is used only as given. */
static void resolve_disk(ps_config *config)
{
    ps_options *o = &config->options;
    const bool gives_ram = o->memory_device != PS_BYTES_AUTO || o->memory_host != PS_BYTES_AUTO;
    const bool stays_on_device = o->zero_tensor_placement_policy == PS_CONFIG_PLACEMENT_CUDA;
    if (!config->origin[PS_OPTION_memory_disk].given && (gives_ram || stays_on_device)) o->memory_disk = 0;
}

/* Defaults of single optimizers: of Lion, the decay rate of its momentum; of Muon, those of torch.optim. */
static void resolve_optimizer(ps_config *config)
{
    ps_options *o = &config->options;
    const ps_config_origin *origin = config->origin;
    if (o->optimizer_type == PS_CONFIG_OPTIMIZER_MUON) {
        if (!origin[PS_OPTION_optimizer_params_momentum].given) o->optimizer_params_momentum = 0.95;
        if (!origin[PS_OPTION_optimizer_params_nesterov].given) o->optimizer_params_nesterov = true;
        if (!origin[PS_OPTION_optimizer_params_weight_decay].given) o->optimizer_params_weight_decay = 0.1;
    }
    if (o->optimizer_type == PS_CONFIG_OPTIMIZER_LION && !config->origin[PS_OPTION_optimizer_params_betas].given)
        o->optimizer_params_betas[1] = 0.99;
}

void ps_config_resolve(ps_config *config)
{
    for (int i = 0; i < PS_OPTION_COUNT; i++)
        if (!config->origin[i].given) ps_option_store(&ps_option_table[i], ps_option_table[i].value, &config->options);
    resolve_disk(config);
    resolve_optimizer(config);
    ps_config_resolve_model(config);
    ps_config_resolve_adapters(config);
}

ps_status ps_config_put(ps_config *config, ps_option_id id, ps_option_value value, ps_config_origin origin)
{
    const ps_option *option = &ps_option_table[id];
    char *copy = NULL;
    if (option->type == PS_OPTION_STRING && origin.given) {
        if (id == PS_OPTION_model_from_pretrained || id == PS_OPTION_data_tokenizer ||
            id == PS_OPTION_lora_from_pretrained)
            PS_TRY(ps_model_folder_find(value.s, &copy));
        if (copy == NULL) PS_TRY(ps_mem_strdup(value.s, &copy));
        value.s = copy;
    }
    ps_mem_free(config->text[id]);
    config->text[id] = copy;
    config->origin[id] = origin;
    ps_option_store(option, value, &config->options);
    ps_config_resolve(config);
    return PS_OK;
}
