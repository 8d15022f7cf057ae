/* weight_source_folder.c - opens a path: finds the files of weights in a folder. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/model_folder.h"
#include "weights/checkpoint_folder.h"
#include "weights/shard_index.h"
#include "weights/weight_source_impl.h"

static ps_status add_in(ps_weight_source *s, const char *folder, const char *name)
{
    char *path = NULL;
    PS_TRY(ps_folder_join(folder, name, &path));
    return ps_weight_source_add_file(s, path);
}

/* Check that every tensor is in the shard that the index names, and that no shard has other tensors. */
static ps_status check_index(const ps_weight_source *s, const ps_shard_index *x, const char *path)
{
    ps_name_index found;
    ps_status st = ps_name_index_init(&found, s->n);
    for (int i = 0; i < s->n && st == PS_OK; i++) {
        const ps_weight *w = &s->weights[i];
        const int file = ps_shard_index_find(x, w->tensor.name);
        if (file != w->file)
            st = PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is in %s, but the index %s", path, w->tensor.name,
                         s->files[w->file].path, file < 0 ? "lacks it" : "names another file");
        (void)ps_name_index_add(&found, w->tensor.name, i);
    }
    for (int i = 0; i < ps_shard_index_n_tensors(x) && st == PS_OK; i++) {
        int file;
        const char *name = ps_shard_index_tensor(x, i, &file);
        if (ps_name_index_find(&found, name) < 0)
            st = PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is missing in %s", path, name, s->files[file].path);
    }
    ps_name_index_deinit(&found);
    return st;
}

static ps_status add_shards(ps_weight_source *s, const char *folder, const char *name, const char *format)
{
    char *path = NULL;
    ps_shard_index *x = NULL;
    ps_status st;
    PS_TRY(ps_folder_join(folder, name, &path));
    PS_TRY_GOTO(ps_shard_index_open(path, &x));
    const int n = ps_shard_index_n_files(x);
    for (int i = 0; i < n; i++) PS_TRY_GOTO(add_in(s, folder, ps_shard_index_file(x, i)));
    if (n == 0) {
        st = PS_FAIL(PS_EFORMAT, "%s: its \"weight_map\" is empty", path);
        goto out;
    }
    snprintf(s->kind, sizeof s->kind, "%d shards of %s", n, format);
    st = check_index(s, x, path);
out:
    ps_shard_index_close(x);
    ps_mem_free(path);
    return st;
}

bool ps_weight_source_is_rank_name(const char *name, int *rank, int *n)
{
    char again[64];
    if (sscanf(name, "model-%9d-of-%9d.safetensors", rank, n) != 2 || *rank < 0 || *rank >= *n) return false;
    snprintf(again, sizeof again, "model-%d-of-%d.safetensors", *rank, *n);
    return strcmp(name, again) == 0;
}

/* Open the files of all ranks; *n_found is 0 when there is none. */
static ps_status add_ranks(ps_weight_source *s, const char *folder, int *n_found)
{
    ps_folder_list l;
    ps_status st = PS_OK;
    int world = 0;
    *n_found = 0;
    PS_TRY(ps_folder_list_read(folder, &l));
    for (int i = 0; i < l.n; i++) {
        int rank, n;
        if (!ps_weight_source_is_rank_name(l.names[i], &rank, &n)) continue;
        if (world != 0 && n != world) {
            st = PS_FAIL(PS_EFORMAT, "%s: files of %d ranks and of %d", folder, world, n);
            goto out;
        }
        world = n;
        ++*n_found;
    }
    if (*n_found == 0) goto out;
    for (int rank = 0; rank < world; rank++) {
        char name[64];
        snprintf(name, sizeof name, "model-%d-of-%d.safetensors", rank, world);
        PS_TRY_GOTO(add_in(s, folder, name));
    }
    s->may_repeat = true; /* every rank has the unmanaged parameters */
    snprintf(s->kind, sizeof s->kind, "checkpoint of %d rank%s", world, world == 1 ? "" : "s");
out:
    ps_folder_list_free(&l);
    return st;
}

/* Open the files of PatrickStar's ranks, "model-{rank}.pt": each has the parameters that its rank owns, and those of
 * all ranks. *n is 0 when there is no model-0.pt; a missing rank is noticed by missing tensors. */
static ps_status add_patrickstar_ranks(ps_weight_source *s, const char *folder, int *n)
{
    for (*n = 0;; ++*n) {
        char name[64], *path = NULL;
        snprintf(name, sizeof name, "model-%d.pt", *n);
        PS_TRY(ps_folder_join(folder, name, &path));
        if (!ps_file_exists(path)) {
            ps_mem_free(path);
            break;
        }
        PS_TRY(ps_weight_source_add_file(s, path));
    }
    s->may_repeat = s->may_repeat || *n > 0;
    if (*n > 0) snprintf(s->kind, sizeof s->kind, "PatrickStar's files of %d rank%s", *n, *n == 1 ? "" : "s");
    return PS_OK;
}

static ps_status has_file(const char *folder, const char *name, bool *out)
{
    char *path = NULL;
    PS_TRY(ps_folder_join(folder, name, &path));
    *out = ps_file_exists(path);
    ps_mem_free(path);
    return PS_OK;
}

static ps_status add_folder(ps_weight_source *s, const char *folder, bool may_be_run);

static ps_status add_checkpoint(ps_weight_source *s, const char *folder, bool may_be_run)
{
    int n_ranks;
    char *latest = NULL, hint[PS_MODEL_FOLDER_HINT_BYTES];
    PS_TRY(add_ranks(s, folder, &n_ranks));
    if (n_ranks == 0) PS_TRY(add_patrickstar_ranks(s, folder, &n_ranks));
    if (n_ranks > 0) return PS_OK;
    if (may_be_run) PS_TRY(ps_checkpoint_folder_of_run(folder, &latest));
    if (latest == NULL)
        return PS_FAIL(PS_EIO,
                       "%s: no weights in this folder: expected model.safetensors, pytorch_model.bin, one of them with "
                       ".index.json, model-0-of-1.safetensors, model-0.pt, latest, or checkpoints/latest%s",
                       folder, ps_model_folder_rest_hint(folder, hint));
    const ps_status st = add_folder(s, latest, false);
    ps_mem_free(latest);
    return st;
}

/* may_be_run: path may also be a run, which means its newest checkpoint. */
static ps_status add_folder(ps_weight_source *s, const char *folder, bool may_be_run)
{
    static const struct {
        const char *name, *shards_of;
    } looks[] = {{"model.safetensors", NULL},
                 {"model.safetensors.index.json", "safetensors"},
                 {"pytorch_model.bin", NULL},
                 {"pytorch_model.bin.index.json", "torch.save"},
                 {"adapter_model.safetensors", NULL}};
    for (size_t i = 0; i < PS_ARRAY_LEN(looks); i++) {
        bool is_there;
        PS_TRY(has_file(folder, looks[i].name, &is_there));
        if (!is_there) continue;
        return looks[i].shards_of != NULL ? add_shards(s, folder, looks[i].name, looks[i].shards_of)
                                          : add_in(s, folder, looks[i].name);
    }
    return add_checkpoint(s, folder, may_be_run);
}

ps_status ps_weight_source_open(const char *path, ps_weight_source **out)
{
    ps_status st;
    ps_weight_source *s = NULL;
    char *snapshot = NULL;
    *out = NULL;
    PS_TRY(ps_model_folder_find(path, &snapshot));
    const char *folder = snapshot != NULL ? snapshot : path;
    if (!ps_folder_exists(folder)) { /* also a snapshot that has gone since */
        st = ps_weight_source_open_files(&path, 1, out);
        goto out;
    }
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *s, &s));
    PS_TRY_GOTO(add_folder(s, folder, true));
    PS_TRY_GOTO(ps_weight_source_finish(s));
    *out = s;
    s = NULL;
out:
    ps_mem_free(snapshot);
    ps_weight_source_close(s);
    return st;
}
