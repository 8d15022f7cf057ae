#include "api/external/client_options.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "config/option/option.h"

typedef struct wish {
    bool is_given;
    const char *text, *remedy;
} wish;

static ps_status check_wishes(const ps_options *o)
{
    const wish wishes[] = {
        {o->client_opts_with_activation_offload, "client.opts.with_activation_offload = true",
         "activations are the framework's: torch.autograd.graph.save_on_cpu does so"},
        {o->activation_checkpointing_enabled, "activation_checkpointing.enabled = true",
         "the framework computes: torch.utils.checkpoint, model.gradient_checkpointing_enable()"},
        {o->zero_gradient_predivide_factor != 1 && o->zero_gradient_predivide_factor != 0,
         "zero.gradient_predivide_factor", "gradients of ranks are summed up in fp32"},
        {o->train_epochs > 0, "train.epochs",
         "the loop is yours: train.steps tells a scheduler where to end, epochs times the batches of one"},
        {o->train_log_to[0] != '\0', "train.log_to",
         "the loop is yours, and its losses: torch.utils.tensorboard.SummaryWriter"},
        {o->lora_r > 0, "lora.r", "adapters of PyTorch modules are peft's, which are trained as any module"},
        {o->profile_path[0] != '\0', "profile.path", "ps_client_save_profile writes one; Python: patrickstar.profiler"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(wishes); i++)
        if (wishes[i].is_given) return PS_FAIL(PS_EINVAL, "%s: not here; %s", wishes[i].text, wishes[i].remedy);
    return PS_OK;
}

/* A section with its '.', or one option. */
static bool is_unused(const char *key)
{
    static const char *const keys[] = {
        "model.",
        "data.",
        "generation.",

        "activation_checkpointing.",
        "use_cpu_embedding",
        "memory.keep_logits",
        "profile.",
        "train.label_smoothing",
        "train.z_loss",
        "train.class_weights",
        "train.loss_average",
        "train.log_interval",
        "train.eval_interval",
        "train.eval_steps",
        "train.attention",
        "train.save",
        "train.save_minutes",
        "train.init_from",
        "train.init_optimizer",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(keys); i++) {
        const size_t n = strlen(keys[i]);
        if (keys[i][n - 1] == '.' ? strncmp(key, keys[i], n) == 0 : strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

ps_status ps_client_check_options(const ps_config *config)
{
    char text[PS_CONFIG_IGNORED_TEXT_MAX] = "";
    size_t n = 0;
    PS_TRY(check_wishes(ps_config_options(config)));
    /* train.seed seeds the random rounding of updates */
    const bool draws =
        ps_config_options(config)->optimizer_params_state_format == PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC;
    for (ps_option_id i = 0; i < PS_OPTION_COUNT; i++) {
        const char *key = ps_option_table[i].key;
        const bool is_without_effect = is_unused(key) || (i == PS_OPTION_train_seed && !draws);
        if (!ps_config_gives(config, i) || !is_without_effect || n >= sizeof text) continue;
        const int length = snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? ", " : "", key);
        n += length > 0 ? (size_t)length : 0;
    }
    if (n > 0) ps_log(PS_LOG_WARNING, "%s: without effect on modules of another framework", text);
    if (ps_config_describe_ignored(config, text)[0] != '\0') ps_log(PS_LOG_WARNING, "%s", text);
    return PS_OK;
}
