#include "run_config.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "weights/checkpoint_folder.h"

#define STATE_BYTES_MAX (16 * PS_MIB)

/* "config" of a state.json or summary.json. */
static ps_status read_state_config(const char *path, const char *folder, ps_config **out)
{
    (void)folder;
    char *text = NULL, *inner = NULL;
    int64_t n;
    json_error_t error;
    ps_status st;
    PS_TRY(ps_file_read_all(path, STATE_BYTES_MAX, &text, &n));
    json_t *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        st = PS_FAIL(PS_EFORMAT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
        goto out;
    }
    inner = json_dumps(json_object_get(root, "config"), 0);
    st = inner != NULL ? ps_config_parse(inner, path, out) : PS_FAIL(PS_EFORMAT, "%s: no \"config\" in it", path);
out:
    free(inner);
    json_decref(root);
    ps_mem_free(text);
    return st;
}

/* Read `read(folder/name)` when there is such a file; *out stays NULL when there is none. */
static ps_status read_if_there(const char *folder, const char *name,
                               ps_status (*read)(const char *path, const char *folder, ps_config **out),
                               ps_config **out)
{
    char *path = NULL;
    ps_status st = PS_OK;
    PS_TRY(ps_folder_join(folder, name, &path));
    if (*out == NULL && ps_file_exists(path)) st = read(path, folder, out);
    ps_mem_free(path);
    return st;
}

/* A folder that is a Hugging Face model already. */
static ps_status read_hf_config(const char *path, const char *folder, ps_config **out)
{
    (void)path;
    ps_status st;
    PS_TRY(ps_config_create(out));
    PS_TRY_GOTO(ps_config_set(*out, "model.from_pretrained", folder));
    PS_TRY_GOTO(ps_config_validate(*out));
    return PS_OK;
out:
    ps_config_destroy(*out);
    *out = NULL;
    return st;
}

ps_status run_config_find(const char *folder, ps_config **out)
{
    char *latest = NULL;
    *out = NULL;
    PS_TRY(read_if_there(folder, "state.json", read_state_config, out));
    PS_TRY(read_if_there(folder, "summary.json", read_state_config, out));
    PS_TRY(read_if_there(folder, "config.json", read_hf_config, out));
    if (*out != NULL) return PS_OK;
    PS_TRY(ps_checkpoint_folder_of_run(folder, &latest));
    const ps_status st = latest != NULL ? read_if_there(latest, "state.json", read_state_config, out) : PS_OK;
    ps_mem_free(latest);
    PS_TRY(st);
    if (*out != NULL) return PS_OK;
    return PS_FAIL(PS_EIO,
                   "%s has no state.json, summary.json, config.json or checkpoints/latest; name the configuration by "
                   "--config",
                   folder);
}
