#include "base/model_folder.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"

/* "NAME" or "NAME/NAME", of letters, digits, '-', '_' and '.', not beginning like a path. */
static bool is_hub_name(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t n = strspn(path, letters);
    if (n == 0 || path[0] == '.' || path[n] == '\0') return n > 0 && path[0] != '.';
    const size_t n_name = strspn(path + n + 1, letters);
    return path[n] == '/' && n_name > 0 && path[n + 1 + n_name] == '\0';
}

/* A file extension, or an existing parent folder, means a path. */
static bool is_path(const char *path)
{
    static const char *const ends[] = {".safetensors", ".json", ".jsonl", ".bin", ".pt",   ".pth",
                                       ".txt",         ".u16",  ".model", ".csv", ".gguf", ".md"};
    const char *slash = strchr(path, '/'), *dot = strrchr(path, '.');
    char first[100];
    for (size_t i = 0; dot != NULL && i < PS_ARRAY_LEN(ends); i++)
        if (strcasecmp(dot, ends[i]) == 0) return true;
    if (slash == NULL || (size_t)(slash - path) >= sizeof first) return false;
    snprintf(first, sizeof first, "%.*s", (int)(slash - path), path);
    return ps_folder_exists(first);
}

const char *ps_model_folder_hint(const char *path, char out[PS_MODEL_FOLDER_HINT_BYTES])
{
    char here[PATH_MAX];
    out[0] = '\0';
    if (is_hub_name(path) && strlen(path) < 100 && !is_path(path))
        snprintf(
            out, PS_MODEL_FOLDER_HINT_BYTES,
            " in %.200s; nothing is fetched from the network: a model of that name on the Hugging Face hub becomes "
            "a folder by `hf download %s --local-dir FOLDER` (huggingface-cli download in older versions)",
            getcwd(here, sizeof here) != NULL ? here : "the working folder", path);
    return out;
}

ps_status ps_model_folder_check(const char *what, const char *path)
{
    char hint[PS_MODEL_FOLDER_HINT_BYTES];
    if (ps_folder_exists(path)) return PS_OK;
    if (ps_file_exists(path))
        return PS_FAIL(PS_EIO, "%s: %s is a file; give the folder with config.json and the weights", what, path);
    return PS_FAIL(PS_EIO, "%s: there is no folder %s%s", what, path, ps_model_folder_hint(path, hint));
}
