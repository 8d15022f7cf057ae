#include "api/checkpoint/checkpoint_check.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "weights/checkpoint_folder.h"

#define STATE_BYTES_MAX (256 * PS_MIB)

ps_status ps_checkpoint_state_load(const char *folder, ps_checkpoint_state *s)
{
    char *path = NULL, *text = NULL;
    int64_t n_bytes = 0;
    ps_status st = PS_OK;
    *s = (ps_checkpoint_state){0};
    PS_TRY_GOTO(ps_folder_join(folder, PS_CHECKPOINT_STATE, &path));
    PS_TRY_GOTO(ps_file_read_all(path, STATE_BYTES_MAX, &text, &n_bytes));
    PS_TRY_GOTO(ps_checkpoint_state_parse(text, n_bytes, path, s));
out:
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}

ps_status ps_checkpoint_check_bytes(const char *path, int64_t n_bytes, const ps_checkpoint_file *expected)
{
    if (n_bytes == expected->n_bytes) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: %lld bytes, but " PS_CHECKPOINT_STATE " says %lld: %s", path, (long long)n_bytes,
                   (long long)expected->n_bytes, n_bytes < expected->n_bytes ? "it was cut off" : "it is another file");
}

ps_status ps_checkpoint_check_xxh3(const char *path, uint64_t xxh3, const ps_checkpoint_file *expected)
{
    if (xxh3 == expected->xxh3) return PS_OK;
    return PS_FAIL(PS_EFORMAT,
                   "%s: damaged: xxh3 %016" PRIx64 ", but " PS_CHECKPOINT_STATE " says %016" PRIx64
                   "; use another checkpoint",
                   path, xxh3, expected->xxh3);
}

static ps_status read_module_config(const char *module, char **config)
{
    json_t *root = json_loads(module, 0, NULL), *given = json_object_get(root, "config");
    char *text = json_is_object(given) ? json_dumps(given, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    const ps_status st = text != NULL ? ps_mem_strdup(text, config) : PS_OK;
    free(text);
    json_decref(root);
    return st;
}

ps_status ps_checkpoint_module_config(const ps_weight_source *s, bool *is_module, char **config)
{
    char *folder = NULL, *path = NULL;
    ps_checkpoint_state state = {0};
    ps_status st = PS_OK;
    int rank, n_ranks;
    *is_module = false;
    *config = NULL;
    if (ps_weight_source_n_files(s) == 0) return PS_OK;
    const char *file = ps_weight_source_path(s, 0), *slash = strrchr(file, '/');
    if (!ps_weight_source_is_rank_name(slash != NULL ? slash + 1 : file, &rank, &n_ranks)) return PS_OK;
    PS_TRY_GOTO(ps_folder_of(file, &folder));
    PS_TRY_GOTO(ps_folder_join(folder, PS_CHECKPOINT_STATE, &path));
    if (!ps_file_exists(path)) goto out;
    PS_TRY_GOTO(ps_checkpoint_state_load(folder, &state));
    *is_module = state.module_json != NULL;
    if (*is_module) st = read_module_config(state.module_json, config);
out:
    ps_checkpoint_state_deinit(&state);
    ps_mem_free(path);
    ps_mem_free(folder);
    return st;
}

/* ---- the files of a source ---- */

/* The state of one folder at a time, as files of one folder are consecutive. */
typedef struct checker {
    char *folder;
    bool has_state;
    ps_checkpoint_state state;
} checker;

static void checker_deinit(checker *c)
{
    ps_checkpoint_state_deinit(&c->state);
    ps_mem_free(c->folder);
    *c = (checker){0};
}

static ps_status enter_folder(checker *c, const char *file)
{
    char *folder = NULL, *path = NULL;
    ps_status st;
    PS_TRY_GOTO(ps_folder_of(file, &folder));
    if (c->folder != NULL && strcmp(c->folder, folder) == 0) goto out;
    checker_deinit(c);
    PS_TRY_GOTO(ps_folder_join(folder, PS_CHECKPOINT_STATE, &path));
    if (ps_file_exists(path)) {
        PS_TRY_GOTO(ps_checkpoint_state_load(folder, &c->state));
        c->has_state = true;
    }
    c->folder = folder;
    folder = NULL;
out:
    ps_mem_free(path);
    ps_mem_free(folder);
    return st;
}

ps_status ps_checkpoint_check_file(const char *path, const ps_checkpoint_file *expected)
{
    ps_file *file = NULL;
    uint64_t xxh3 = 0;
    PS_TRY(ps_file_open(path, &file));
    ps_status st = ps_checkpoint_check_bytes(path, ps_file_bytes(file), expected);
    ps_file_close(file);
    if (st == PS_OK) st = ps_file_xxh3(path, &xxh3);
    return st == PS_OK ? ps_checkpoint_check_xxh3(path, xxh3, expected) : st;
}

static ps_status check_file(checker *c, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    int rank, n_ranks;
    if (!ps_weight_source_is_rank_name(name, &rank, &n_ranks)) return PS_OK;
    PS_TRY(enter_folder(c, path));
    if (!c->has_state) return PS_OK;
    if (n_ranks != c->state.n_ranks)
        return PS_FAIL(PS_EFORMAT,
                       "%s: its name says %d rank%s, but " PS_CHECKPOINT_STATE " in this folder says %d: the folder "
                       "mixes two checkpoints; keep the files of one",
                       path, n_ranks, n_ranks == 1 ? "" : "s", c->state.n_ranks);
    return ps_checkpoint_check_file(path, &c->state.files[rank * PS_CHECKPOINT_PART_COUNT + PS_CHECKPOINT_MODEL]);
}

ps_status ps_checkpoint_check_source(const ps_weight_source *s)
{
    checker c = {0};
    ps_status st = PS_OK;
    for (int i = 0; i < ps_weight_source_n_files(s) && st == PS_OK; i++)
        st = check_file(&c, ps_weight_source_path(s, i));
    checker_deinit(&c);
    return st;
}

/* ---- a checkpoint ---- */

static ps_status check_of_folder(const char *folder, const char *name, const ps_checkpoint_file *expected)
{
    char *path = NULL;
    PS_TRY(ps_folder_join(folder, name, &path));
    const ps_status st = ps_checkpoint_check_file(path, expected);
    ps_mem_free(path);
    return st;
}

static ps_status check_rank(const char *folder, const ps_checkpoint_state *s, int rank)
{
    char name[PS_CHECKPOINT_FILE_NAME_MAX];
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++)
        PS_TRY(check_of_folder(folder, ps_checkpoint_file_name((ps_checkpoint_part)part, rank, s->n_ranks, name),
                               &s->files[rank * PS_CHECKPOINT_PART_COUNT + part]));
    if (s->extra[rank].n_bytes < 0) return PS_OK;
    return check_of_folder(folder, ps_checkpoint_extra_name(rank, s->n_ranks, name), &s->extra[rank]);
}

ps_status ps_checkpoint_check(const char *folder)
{
    ps_checkpoint_state state;
    PS_TRY(PS_NEED("folder", folder));
    PS_TRY(ps_checkpoint_state_load(folder, &state));
    ps_status st = PS_OK;
    for (int rank = 0; rank < state.n_ranks && st == PS_OK; rank++) st = check_rank(folder, &state, rank);
    ps_checkpoint_state_deinit(&state);
    return st;
}
