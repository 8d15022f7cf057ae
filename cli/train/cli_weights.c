#include "cli_weights.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether the run has written weights. */
static ps_status has_weights(const char *run, bool *yes)
{
    char path[4200], *newest = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", run);
    *yes = access(path, F_OK) == 0;
    if (*yes) return PS_OK;
    snprintf(path, sizeof path, "%s/checkpoints", run);
    TRY(ps_checkpoint_find(path, &newest, NULL));
    *yes = newest != NULL;
    ps_free(newest);
    return PS_OK;
}

/* Has the file all parameters but adapters? */
static bool is_base(const ps_engine *engine, const ps_load_info *info)
{
    const int64_t n = ps_engine_get_tensor_count(engine);
    int64_t n_others = 0;
    for (int64_t t = 0; t < n; t++) {
        ps_tensor_info tensor = {.struct_size = sizeof tensor};
        if (ps_engine_get_tensor_info(engine, t, &tensor) != PS_OK) return false;
        n_others += strstr(tensor.name, ".lora_") == NULL;
    }
    return info->n_loaded + info->n_new == n_others;
}

/* Loading a base has drawn its adapters, or read those of lora.from_pretrained; another base has none, and may have
 * replaced modules that those save. */
ps_status cli_load_weights(ps_engine *engine, const ps_config *config, const char *path)
{
    const char *const adapter = client_string(config, "lora.from_pretrained");
    ps_load_info info = {.struct_size = sizeof info};
    if (client_int(config, "lora.r") == 0) return ps_engine_load_pretrained(engine, path, NULL, NULL);
    TRY(ps_engine_begin_weights(engine, config, config, NULL));
    if (strcmp(path, client_string(config, "model.from_pretrained")) == 0) return PS_OK;
    TRY(ps_engine_load_pretrained(engine, path, NULL, &info));
    if (adapter[0] == '\0' || !is_base(engine, &info)) return PS_OK;
    return ps_engine_load_pretrained(engine, adapter, NULL, NULL);
}

ps_status cli_choose_weights(const ps_config *config, const char *config_path, const char *given, const char **path)
{
    char usual[CLIENT_FOLDER_MAX];
    const char *run = client_string(config, "train.output_dir"), *base = client_string(config, "model.from_pretrained");
    bool has_run = false;
    *path = given != NULL ? given : run;
    if (given != NULL) return PS_OK;
    TRY(has_weights(run, &has_run));
    if (has_run || base[0] == '\0') return PS_OK;
    const bool is_named = strcmp(run, client_usual_output_folder(config_path, usual)) != 0;
    if (is_named || client_int(config, "model.new_head"))
        return client_fail(
            PS_EIO,
            "%s (train.output_dir) has no weights: train first, or name others by --weights; for the model as it came "
            "--weights %s",
            run, base);
    fprintf(stderr, "pstar: no run in %s (train.output_dir): the weights are those of %s\n", run, base);
    *path = base;
    return PS_OK;
}
