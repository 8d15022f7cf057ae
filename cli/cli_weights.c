#include "train/program.h"

#include <stdio.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "config/config.h"
#include "weights/checkpoint_folder.h"

/* Has the run left weights? */
static ps_status has_weights(const char *folder, bool *yes)
{
    char *path = NULL;
    *yes = false;
    PS_TRY(ps_folder_join(folder, "model.safetensors", &path));
    *yes = ps_file_exists(path);
    ps_mem_free(path);
    if (*yes || !ps_folder_exists(folder)) return PS_OK;
    path = NULL;
    PS_TRY(ps_checkpoint_folder_of_run(folder, &path));
    *yes = path != NULL;
    ps_mem_free(path);
    return PS_OK;
}

ps_status cli_choose_weights(const ps_config *config, const char *given, const char **path)
{
    const ps_options *o = ps_config_options(config);
    const char *run = o->train_output_dir, *base = o->model_from_pretrained;
    bool has_run = false;
    *path = given != NULL ? given : run;
    if (given != NULL) return PS_OK;
    PS_TRY(has_weights(run, &has_run));
    if (has_run || base[0] == '\0') return PS_OK;
    if (ps_config_gives(config, PS_OPTION_train_output_dir) || o->model_new_head)
        return PS_FAIL(
            PS_EIO,
            "%s (train.output_dir) has no weights: train first, or name others by --weights; for the model as it came "
            "--weights %s",
            run, base);
    fprintf(stderr, "pstar: no run in %s (train.output_dir): the weights are those of %s\n", run, base);
    *path = base;
    return PS_OK;
}

void program_clean_checkpoints(const char *folder)
{
    ps_checkpoint_folder_clean(folder);
}

ps_status program_has_checkpoints(const char *folder, bool *has_latest, bool *has_any)
{
    return ps_checkpoint_folder_has_any(folder, has_latest, has_any);
}
