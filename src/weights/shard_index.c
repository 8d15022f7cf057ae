#include "weights/shard_index.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/name_index.h"

/* A tensor needs about 100 bytes of it. */
#define INDEX_BYTES_MAX (100 * PS_MIB)

struct ps_shard_index {
    json_t *root;       /* owns all names */
    const char **files; /* [n_files], sorted */
    const char **names; /* [n_tensors] */
    int32_t *file_of;   /* [n_tensors] */
    int n_files, n_tensors;
    ps_name_index by_file, by_name;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether a file name is an entry of the folder, not a path. */
static bool is_file_name(const char *s)
{
    return s != NULL && s[0] != '\0' && s[0] != '.' && strchr(s, '/') == NULL;
}

static ps_status collect_files(ps_shard_index *x, const char *path, json_t *map)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        if (!is_file_name(file))
            return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: expected the name of a file in this folder, found %.128s",
                           path, name, file != NULL ? file : "no string");
        x->names[x->n_tensors++] = name;
        if (ps_name_index_add(&x->by_file, file, 0)) x->files[x->n_files++] = file;
    }
    if (x->n_files > 0) qsort(x->files, (size_t)x->n_files, sizeof *x->files, compare_names);
    /* again, with the sorted numbers */
    ps_name_index_deinit(&x->by_file);
    PS_TRY(ps_name_index_init(&x->by_file, x->n_files));
    for (int i = 0; i < x->n_files; i++) (void)ps_name_index_add(&x->by_file, x->files[i], i);
    for (int i = 0; i < x->n_tensors; i++) {
        x->file_of[i] = ps_name_index_find(&x->by_file, json_string_value(json_object_get(map, x->names[i])));
        (void)ps_name_index_add(&x->by_name, x->names[i], i);
    }
    return PS_OK;
}

ps_status ps_shard_index_parse(const char *path, const char *text, int64_t n, ps_shard_index **out)
{
    *out = NULL;
    ps_status st;
    ps_shard_index *x = NULL;
    json_error_t error;
    PS_TRY(ps_mem_alloc(1, sizeof *x, &x));
    x->root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (x->root == NULL) {
        st = PS_FAIL(PS_EFORMAT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
        goto out;
    }
    json_t *map = json_object_get(x->root, "weight_map");
    if (!json_is_object(map)) {
        st = PS_FAIL(PS_EFORMAT, "%s: no object \"weight_map\" in it", path);
        goto out;
    }
    const size_t n_tensors = json_object_size(map);
    PS_TRY_GOTO(ps_mem_alloc(n_tensors, sizeof *x->files, (void *)&x->files));
    PS_TRY_GOTO(ps_mem_alloc(n_tensors, sizeof *x->names, (void *)&x->names));
    PS_TRY_GOTO(ps_mem_alloc(n_tensors, sizeof *x->file_of, &x->file_of));
    PS_TRY_GOTO(ps_name_index_init(&x->by_file, (int64_t)n_tensors));
    PS_TRY_GOTO(ps_name_index_init(&x->by_name, (int64_t)n_tensors));
    PS_TRY_GOTO(collect_files(x, path, map));
    *out = x;
    x = NULL;
out:
    ps_shard_index_close(x);
    return st;
}

ps_status ps_shard_index_open(const char *path, ps_shard_index **out)
{
    char *text;
    int64_t n;
    *out = NULL;
    PS_TRY(ps_file_read_all(path, INDEX_BYTES_MAX, &text, &n));
    const ps_status st = ps_shard_index_parse(path, text, n, out);
    ps_mem_free(text);
    return st;
}

void ps_shard_index_close(ps_shard_index *x)
{
    if (x == NULL) return;
    ps_name_index_deinit(&x->by_name);
    ps_name_index_deinit(&x->by_file);
    ps_mem_free(x->file_of);
    ps_mem_free(x->names);
    ps_mem_free(x->files);
    json_decref(x->root);
    ps_mem_free(x);
}

int ps_shard_index_n_files(const ps_shard_index *x)
{
    return x->n_files;
}

const char *ps_shard_index_file(const ps_shard_index *x, int i)
{
    PS_ASSERT(i >= 0 && i < x->n_files);
    return x->files[i];
}

int ps_shard_index_n_tensors(const ps_shard_index *x)
{
    return x->n_tensors;
}

const char *ps_shard_index_tensor(const ps_shard_index *x, int i, int *file)
{
    PS_ASSERT(i >= 0 && i < x->n_tensors);
    *file = x->file_of[i];
    return x->names[i];
}

int ps_shard_index_find(const ps_shard_index *x, const char *tensor)
{
    const int32_t i = ps_name_index_find(&x->by_name, tensor);
    return i >= 0 ? x->file_of[i] : -1;
}
