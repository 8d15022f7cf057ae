/* weights_config.c - the configuration stored with weights, and its class names. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/model_folder.h"
#include "config/config.h"
#include "config/label_list.h"
#include "weights/checkpoint_folder.h"

#define STATE_BYTES_MAX (16 * PS_MIB)

/* ---- finding it ---- */

/* "config" of a state.json or summary.json. A state with "module" is of a model that another framework computes. */
static ps_status read_state_config(const char *path, const char *folder, ps_config **out)
{
    (void)folder;
    char *text = NULL, *inner = NULL;
    int64_t n;
    json_error_t error;
    ps_status st = PS_OK;
    PS_TRY(ps_file_read_all(path, STATE_BYTES_MAX, &text, &n));
    json_t *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        st = PS_FAIL(PS_EFORMAT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
        goto out;
    }
    if (json_object_get(root, "module") != NULL) goto out;
    inner = json_dumps(json_object_get(root, "config"), 0);
    st = inner != NULL ? ps_config_parse(inner, path, out) : PS_FAIL(PS_EFORMAT, "%s: no \"config\" in it", path);
out:
    free(inner);
    json_decref(root);
    ps_mem_free(text);
    return st;
}

/* The folder of a Hugging Face model. */
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

/* Call read(folder/name) when there is such a file and nothing was read yet. */
static ps_status read_if_there(const char *folder, const char *name,
                               ps_status (*read)(const char *path, const char *folder, ps_config **out),
                               ps_config **out)
{
    char *path = NULL;
    ps_status st = PS_OK;
    if (*out != NULL) return PS_OK;
    PS_TRY(ps_folder_join(folder, name, &path));
    if (ps_file_exists(path)) st = read(path, folder, out);
    ps_mem_free(path);
    return st;
}

static ps_status load_of_folder(const char *folder, ps_config **out)
{
    char *latest = NULL;
    PS_TRY(read_if_there(folder, PS_CHECKPOINT_STATE, read_state_config, out));
    PS_TRY(read_if_there(folder, "summary.json", read_state_config, out));
    PS_TRY(read_if_there(folder, "config.json", read_hf_config, out));
    if (*out != NULL) return PS_OK;
    PS_TRY(ps_checkpoint_folder_of_run(folder, &latest));
    const ps_status st = latest != NULL ? read_if_there(latest, PS_CHECKPOINT_STATE, read_state_config, out) : PS_OK;
    ps_mem_free(latest);
    return st;
}

/* Other files in the folder of a file may be unrelated. */
static ps_status load_sibling(const char *weights, ps_config **out)
{
    char *folder = NULL;
    PS_TRY(ps_folder_of(weights, &folder));
    if (load_of_folder(folder, out) != PS_OK) *out = NULL;
    ps_mem_free(folder);
    return PS_OK;
}

ps_status ps_config_load_of_weights(const char *path, ps_config **out)
{
    PS_TRY(PS_NEED_FOR(out, "path out", path, out));
    char hint[PS_MODEL_FOLDER_HINT_BYTES];
    if (ps_folder_exists(path)) return load_of_folder(path, out);
    if (access(path, F_OK) != 0) {
        const char *cause = strerror(errno);
        char *folder = NULL;
        PS_TRY(ps_model_folder_find(path, &folder));
        if (folder != NULL) {
            const ps_status st = load_of_folder(folder, out);
            ps_mem_free(folder);
            return st;
        }
        return PS_FAIL(PS_EIO, "%s: %s%s", path, cause, ps_model_folder_hint(path, hint));
    }
    return load_sibling(path, out);
}

/* ---- names of classes ---- */

/* A class in both lists must have the same number in both. */
static ps_status check_same(const char *given, const char *theirs, const char *weights)
{
    char problem[700], whose[200];
    ps_label_list a = {0}, b = {0};
    ps_status st;
    PS_TRY_GOTO(ps_label_list_parse(given, &a));
    PS_TRY_GOTO(ps_label_list_parse(theirs, &b));
    snprintf(whose, sizeof whose, "the model of %.150s", weights);
    if (ps_label_list_contradicts(&a, &b, whose, problem, sizeof problem)) st = PS_FAIL(PS_EINVAL, "%s", problem);
out:
    ps_label_list_deinit(&a);
    ps_label_list_deinit(&b);
    return st;
}

ps_status ps_config_take_chat_format(ps_config *config, const char *weights)
{
    PS_TRY(PS_NEED("config weights", config, weights));
    ps_config *theirs = NULL;
    if (ps_config_options(config)->data_chat_format != PS_CONFIG_CHAT_FORMAT_AUTO) return PS_OK;
    PS_TRY(ps_config_load_of_weights(weights, &theirs));
    if (theirs == NULL) return PS_OK;
    const ps_config_chat_format format = ps_config_options(theirs)->data_chat_format;
    ps_config_destroy(theirs);
    return ps_config_set(config, "data.chat_format", ps_config_chat_format_names[format]);
}

ps_status ps_config_take_labels(ps_config *config, const char *weights)
{
    PS_TRY(PS_NEED("config weights", config, weights));
    const ps_options *o = ps_config_options(config);
    ps_config *theirs = NULL;
    if (!ps_head_has_labels(o)) return PS_OK;
    PS_TRY(ps_config_load_of_weights(weights, &theirs));
    if (theirs == NULL) return PS_OK;
    const ps_options *t = ps_config_options(theirs);
    ps_status st = PS_OK;
    if (t->model_head == o->model_head && t->model_num_labels == o->model_num_labels && t->data_labels[0] != '\0')
        st = ps_config_gives(config, PS_OPTION_data_labels) ? check_same(o->data_labels, t->data_labels, weights)
                                                            : ps_config_set(config, "data.labels", t->data_labels);
    ps_config_destroy(theirs);
    return st;
}
