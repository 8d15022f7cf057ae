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

/* Loading a base has drawn its adapters, or read those of lora.from_pretrained. */
ps_status cli_load_weights(ps_engine *engine, const ps_config *config, const char *path)
{
    if (client_int(config, "lora.r") == 0) return ps_engine_load_pretrained(engine, path, NULL, NULL);
    TRY(ps_engine_begin_weights(engine, config, config, NULL));
    if (strcmp(path, client_string(config, "model.from_pretrained")) == 0) return PS_OK;
    return ps_engine_load_pretrained(engine, path, NULL, NULL);
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
