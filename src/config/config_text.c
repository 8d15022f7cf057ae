/* config_text.c - the text of a configuration: read from a file, or generated for a model name. */
#include "config/config_text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/model_folder.h"
#include "config/option/option.h"

enum { FILE_MAX_BYTES = 1 << 24 };

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* "; model.preset is one of gpt2, gpt2-medium, ..." */
static void list_presets(char *text, size_t bytes)
{
    const ps_option *preset = &ps_option_table[PS_OPTION_model_preset];
    size_t n = (size_t)snprintf(text, bytes, "; model.preset is one of");
    for (int i = PS_CONFIG_PRESET_NONE + 1; i < preset->n_names && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%s %s", i > PS_CONFIG_PRESET_NONE + 1 ? "," : "", preset->names[i]);
}

static ps_status fail_open(const char *path)
{
    char hint[PS_MODEL_FOLDER_HINT_BYTES] = "", presets[512] = "";
    const int error = errno;
    if (error == ENOENT) (void)ps_model_folder_hint(path, hint);
    if (hint[0] != '\0') list_presets(presets, sizeof presets);
    return PS_FAIL(PS_EIO, "cannot open configuration '%s': %s%s%s%s", path, strerror(error),
                   hint[0] != '\0' ? ", and no model.preset has this name," : "", hint, presets);
}

static bool is_preset(const char *name)
{
    const ps_option *preset = &ps_option_table[PS_OPTION_model_preset];
    for (int i = PS_CONFIG_PRESET_NONE + 1; i < preset->n_names; i++)
        if (strcasecmp(preset->names[i], name) == 0) return true;
    return false;
}

/* {"model": {"KEY": "VALUE"}} */
static ps_status write_model(const char *key, const char *value, char **text, size_t *n_bytes)
{
    json_t *root = json_pack("{s:{s:s}}", "model", key, value);
    char *dumped = root != NULL ? json_dumps(root, 0) : NULL;
    json_decref(root);
    if (dumped == NULL)
        return PS_FAIL(PS_EINVAL, "the configuration's name is not UTF-8, or there is no memory for it");
    const ps_status st = ps_mem_strdup(dumped, text);
    *n_bytes = strlen(dumped);
    free(dumped);
    return st;
}

/* Read the whole file and a NUL into *text, to be freed. In pieces, as a pipe has no known size. */
static ps_status read_file(const char *path, char **text, size_t *n_bytes)
{
    enum { PIECE_BYTES = 1 << 14 };
    ps_status st = PS_OK;
    size_t n_read;
    *text = NULL;
    *n_bytes = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return fail_open(path);
    do {
        PS_TRY_GOTO(ps_mem_reserve(text, *n_bytes + PIECE_BYTES + 1, 1));
        n_read = fread(*text + *n_bytes, 1, PIECE_BYTES, file);
        *n_bytes += n_read;
    } while (n_read > 0 && *n_bytes <= FILE_MAX_BYTES);
    if (ferror(file))
        st = PS_FAIL(PS_EIO, "cannot read configuration '%s': %s", path, strerror(errno));
    else if (*n_bytes > FILE_MAX_BYTES)
        st =
            PS_FAIL(PS_EINVAL, "'%s' is larger than %d MiB, too large for a configuration", path, FILE_MAX_BYTES >> 20);
    else
        (*text)[*n_bytes] = '\0';
out:
    fclose(file);
    if (st != PS_OK) {
        ps_mem_free(*text);
        *text = NULL;
    }
    return st;
}

ps_status ps_config_text(const char *path, char **text, size_t *n_bytes)
{
    if (is_folder(path)) return write_model("from_pretrained", path, text, n_bytes);
    if (access(path, F_OK) != 0 && is_preset(path)) return write_model("preset", path, text, n_bytes);
    char *folder = NULL;
    PS_TRY(ps_model_folder_find(path, &folder));
    if (folder == NULL) return read_file(path, text, n_bytes);
    const ps_status st = write_model("from_pretrained", folder, text, n_bytes);
    ps_mem_free(folder);
    return st;
}
