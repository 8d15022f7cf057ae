#include "base/model_folder.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"

enum { REPOSITORY_BYTES = 100, REVISION_BYTES = 100, COMMIT_BYTES = 65, CACHE_BYTES = 1024 };

typedef struct hub_name {
    char repository[REPOSITORY_BYTES]; /* "organisation/name" */
    char revision[REVISION_BYTES];
    bool has_revision; /* given by "@" */
} hub_name;

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

/* "NAME" or "NAME/NAME", of letters, digits, '-', '_' and '.', not beginning like a path. */
static bool is_repository(const char *text)
{
    const size_t n = strspn(text, name_letters);
    if (n == 0 || text[0] == '.' || text[n] == '\0') return n > 0 && text[0] != '.';
    const size_t n_name = strspn(text + n + 1, name_letters);
    return text[n] == '/' && n_name > 0 && text[n + 1] != '.' && text[n + 1 + n_name] == '\0';
}

/* The name of a branch may have slashes ("refs/pr/1"), but does not leave its folder. */
static bool is_revision(const char *text)
{
    if (text[0] == '\0' || text[0] == '.' || text[0] == '/' || strstr(text, "/.") != NULL) return false;
    for (; *text != '\0'; text++)
        if (*text != '/' && strchr(name_letters, *text) == NULL) return false;
    return true;
}

static bool read_hub_name(const char *path, hub_name *out)
{
    const char *at = strchr(path, '@');
    const size_t n = at != NULL ? (size_t)(at - path) : strlen(path);
    const char *revision = at != NULL ? at + 1 : "main";
    if (n >= sizeof out->repository || strlen(revision) >= sizeof out->revision) return false;
    snprintf(out->repository, sizeof out->repository, "%.*s", (int)n, path);
    snprintf(out->revision, sizeof out->revision, "%s", revision);
    out->has_revision = at != NULL;
    return is_repository(out->repository) && is_revision(revision);
}

/* ---- the cache ---- */

/* A path under construction; n >= CACHE_BYTES: it is too long. */
typedef struct cache_path {
    char *text; /* [CACHE_BYTES] */
    size_t n;
} cache_path;

static void append(cache_path *p, const char *text, size_t n)
{
    if (p->n + n < CACHE_BYTES) snprintf(p->text + p->n, n + 1, "%.*s", (int)n, text);
    p->n = p->n + n < CACHE_BYTES ? p->n + n : CACHE_BYTES;
}

/* The value of "$NAME" or "${NAME}" at *at, which then is after it; NULL: there is none, or no such variable. */
static const char *variable_at(const char **at)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    char name[CACHE_BYTES];
    const bool has_braces = **at == '$' && (*at)[1] == '{';
    const char *begin = *at + (has_braces ? 2 : 1);
    const size_t n = **at != '$' ? 0 : has_braces ? strcspn(begin, "}") : strspn(begin, letters);
    if (n == 0 || n >= sizeof name || (has_braces && begin[n] != '}')) return NULL;
    snprintf(name, sizeof name, "%.*s", (int)n, begin);
    const char *value = getenv(name);
    if (value != NULL) *at = begin + n + has_braces;
    return value;
}

/* The value of an environment variable as huggingface_hub reads it (os.path.expanduser, then os.path.expandvars), and a
 * folder in it; false: not set. */
static bool folder_of_variable(const char *variable, const char *inside, char out[CACHE_BYTES])
{
    const char *at = getenv(variable), *home = getenv("HOME");
    cache_path p = {out, 0};
    if (at == NULL || at[0] == '\0') return false;
    if (at[0] == '~' && (at[1] == '/' || at[1] == '\0') && home != NULL) {
        append(&p, home, strlen(home));
        at++;
    }
    while (*at != '\0') {
        const char *value = variable_at(&at);
        if (value != NULL)
            append(&p, value, strlen(value));
        else
            append(&p, at++, 1);
    }
    append(&p, inside, strlen(inside));
    return p.n < CACHE_BYTES;
}

static bool find_cache(char out[CACHE_BYTES])
{
    return folder_of_variable("HF_HUB_CACHE", "", out) || folder_of_variable("HUGGINGFACE_HUB_CACHE", "", out) ||
           folder_of_variable("HF_HOME", "/hub", out) ||
           folder_of_variable("XDG_CACHE_HOME", "/huggingface/hub", out) ||
           folder_of_variable("HOME", "/.cache/huggingface/hub", out);
}

/* "<cache>/models--organisation--name/" */
static void find_repository(const char *cache, const hub_name *name, char out[PATH_MAX])
{
    size_t n = (size_t)snprintf(out, PATH_MAX, "%s/models--", cache);
    for (const char *at = name->repository; *at != '\0'; at++)
        n += (size_t)snprintf(out + n, PATH_MAX - n, *at == '/' ? "--" : "%c", *at);
    snprintf(out + n, PATH_MAX - n, "/");
}

/* The commit of the revision, which a file names; a revision without such a file is a commit itself. */
static void find_commit(const char *repository, const hub_name *name, char out[REVISION_BYTES])
{
    char path[PATH_MAX + REVISION_BYTES + 8];
    snprintf(out, REVISION_BYTES, "%s", name->revision);
    snprintf(path, sizeof path, "%srefs/%s", repository, name->revision);
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    char commit[COMMIT_BYTES] = "";
    const size_t n = fread(commit, 1, sizeof commit - 1, file);
    fclose(file);
    commit[n] = '\0';
    commit[strspn(commit, "0123456789abcdef")] = '\0';
    if (commit[0] != '\0') snprintf(out, REVISION_BYTES, "%s", commit);
}

ps_status ps_model_folder_find(const char *path, char **out)
{
    hub_name name;
    char cache[CACHE_BYTES], repository[PATH_MAX], commit[REVISION_BYTES], folder[PATH_MAX + REVISION_BYTES + 16];
    *out = NULL;
    if (access(path, F_OK) == 0 || !read_hub_name(path, &name) || !find_cache(cache)) return PS_OK;
    find_repository(cache, &name, repository);
    find_commit(repository, &name, commit);
    snprintf(folder, sizeof folder, "%ssnapshots/%s", repository, commit);
    return ps_folder_exists(folder) ? ps_mem_strdup(folder, out) : PS_OK;
}

/* ---- messages ---- */

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
    char here[PATH_MAX], cache[CACHE_BYTES];
    hub_name name;
    out[0] = '\0';
    if (!read_hub_name(path, &name) || is_path(path)) return out;
    if (!find_cache(cache)) snprintf(cache, sizeof cache, "the Hugging Face cache");
    snprintf(out, PS_MODEL_FOLDER_HINT_BYTES,
             " in %.150s, and %.150s has no revision %s of %s; nothing is fetched from the network. Download it first: "
             "`hf download %s%s%s` (huggingface-cli download in older versions)",
             getcwd(here, sizeof here) != NULL ? here : "the working folder", cache, name.revision, name.repository,
             name.repository, name.has_revision ? " --revision " : "", name.has_revision ? name.revision : "");
    return out;
}

const char *ps_model_folder_rest_hint(const char *folder, char out[PS_MODEL_FOLDER_HINT_BYTES])
{
    static const char models[] = "models--", snapshots[] = "/snapshots/";
    char repository[REPOSITORY_BYTES];
    const char *begin = strstr(folder, models), *end = strstr(folder, snapshots);
    out[0] = '\0';
    if (begin == NULL || end == NULL || end < begin || (size_t)(end - begin) >= sizeof repository) return out;
    begin += sizeof models - 1;
    snprintf(repository, sizeof repository, "%.*s", (int)(end - begin), begin);
    char *dashes = strstr(repository, "--"); /* names have none */
    if (dashes != NULL) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
    end += sizeof snapshots - 1;
    snprintf(out, PS_MODEL_FOLDER_HINT_BYTES,
             "; this snapshot is not complete: `hf download %s --revision %.*s` fetches what is missing", repository,
             (int)strcspn(end, "/"), end);
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
