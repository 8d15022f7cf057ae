#include "weights/export.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/folder_writer.h"
#include "base/lora.h"
#include "base/mem.h"
#include "config/adapter_config.h"
#include "weights/adapter_merge.h"
#include "weights/weight_copy.h"
#include "weights/weight_names.h"

#define COPY_BYTES (256 * PS_KIB)

#define CHAT_TEMPLATE "chat_template.jinja"

static const char *const tokenizer_files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    CHAT_TEMPLATE,
    "chat_template.json",
};

typedef struct exporter {
    const ps_weight_source *source;
    const ps_export_options *o;
    ps_export_info *info;
    const char *folder;     /* in which the files are created */
    ps_weight_copy *copies; /* [n] */
    int *shard_of;          /* [n] */
    char **names;           /* [n] */
    int n;
} exporter;

static ps_status write_text(const char *folder, const char *name, const char *text)
{
    char *path = NULL;
    PS_TRY(ps_folder_join(folder, name, &path));
    const ps_status st = ps_file_write_all(path, text, (int64_t)strlen(text));
    ps_mem_free(path);
    return st;
}

/* ---- names and shards ---- */

/* The i-th additional name of a tensor that the source lacks, NULL: no more. In safetensors a tied tensor has one name,
 * unless the class has two separate tensors. */
static const char *tied_name(const exporter *x, const char *type, const char *name, int i)
{
    const char *tied, *untied_with;
    if (!x->o->ties_head || type == NULL) return NULL;
    for (int k = 0; (tied = ps_weight_tied_name(type, name, k, &untied_with)) != NULL; k++) {
        const bool is_untied = untied_with != NULL && ps_weight_source_find(x->source, untied_with) >= 0;
        if (ps_weight_source_find(x->source, tied) < 0 && (x->o->is_torch || is_untied) && i-- == 0) return tied;
    }
    return NULL;
}

static ps_status add_copy(exporter *x, int weight, const char *name)
{
    PS_TRY(ps_mem_reserve(&x->copies, (size_t)x->n + 1, sizeof *x->copies));
    PS_TRY(ps_mem_reserve(&x->names, (size_t)x->n + 1, sizeof *x->names));
    PS_TRY(ps_mem_strdup(name, &x->names[x->n]));
    x->copies[x->n] = (ps_weight_copy){.weight = weight, .name = x->names[x->n]};
    x->n++;
    return PS_OK;
}

/* As peft names them: of the class's tensors in its own model. */
static ps_status name_adapter_tensors(exporter *x)
{
    static const char prefix[] = PS_LORA_PREFIX;
    char text[PS_WEIGHT_NAME_MAX];
    for (int i = 0; i < ps_weight_source_count(x->source); i++) {
        const char *name = ps_weight_source_get(x->source, i)->tensor.name;
        const bool has_prefix = strncmp(name, prefix, sizeof prefix - 1) == 0;
        snprintf(text, sizeof text, "%s%s", has_prefix ? "" : prefix, name);
        PS_TRY(add_copy(x, i, text));
    }
    return PS_OK;
}

/* Tensors of modules that the adapter's folder has whole take the place of the base's. */
static ps_status merge_tensors(exporter *x)
{
    const ps_adapter_merge *m = x->o->merge;
    for (int i = 0; m != NULL && i < x->n; i++) {
        ps_weight_copy *c = &x->copies[i];
        const char *name = ps_weight_source_get(x->source, c->weight)->tensor.name;
        c->delta = ps_adapter_merge_delta(m, name);
        const int own = ps_adapter_merge_find(m, name);
        if (own < 0) continue;
        c->from = ps_adapter_merge_source(m);
        c->weight = own;
    }
    return PS_OK;
}

static ps_status name_tensors(exporter *x)
{
    ps_status st = PS_OK;
    char text[PS_WEIGHT_NAME_MAX];
    json_t *config = x->o->config_json != NULL ? json_loads(x->o->config_json, 0, NULL) : NULL;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    for (int i = 0; i < ps_weight_source_count(x->source); i++) {
        const char *name = ps_weight_source_get(x->source, i)->tensor.name, *tied;
        PS_TRY_GOTO(add_copy(x, i, type != NULL ? ps_weight_class_name(type, name, text) : name));
        for (int k = 0; (tied = tied_name(x, type, name, k)) != NULL; k++) PS_TRY_GOTO(add_copy(x, i, tied));
    }
    st = merge_tensors(x);
out:
    json_decref(config);
    return st;
}

/* Whether it shares its data with the previous copy. */
static bool is_shared(const exporter *x, int i)
{
    return x->o->is_torch && i > 0 && x->copies[i].from == NULL && x->copies[i].delta == NULL &&
           ps_weight_source_same_as(x->source, x->copies[i].weight) ==
               ps_weight_source_same_as(x->source, x->copies[i - 1].weight);
}

static int64_t copied_bytes(const exporter *x, int i)
{
    const ps_weight_copy *c = &x->copies[i];
    const ps_weight *w = ps_weight_source_get(c->from != NULL ? c->from : x->source, c->weight);
    const int64_t items = w->tensor.n_bytes / ps_safetensors_dtype_bytes(w->tensor.dtype);
    return items * ps_safetensors_dtype_bytes(ps_weight_copy_dtype(w, x->o->dtype));
}

/* Assign shards in order, a new one when the next tensor would not fit, as transformers does. Shared data counts
 * once. */
static void fill_shards(exporter *x)
{
    int64_t shard_bytes = 0;
    x->info->n_shards = 1;
    for (int i = 0; i < x->n; i++) {
        const bool shares = is_shared(x, i);
        const int64_t n_bytes = shares ? 0 : copied_bytes(x, i);
        if (!shares && shard_bytes > 0 && x->o->adapter_json == NULL && n_bytes > x->o->max_shard_bytes - shard_bytes) {
            x->info->n_shards++;
            shard_bytes = 0;
        }
        x->shard_of[i] = x->info->n_shards - 1;
        shard_bytes += n_bytes;
        x->info->tensor_bytes += n_bytes;
    }
}

static void shard_name(const exporter *x, int shard, char out[64])
{
    if (x->o->adapter_json != NULL) {
        snprintf(out, 64, PS_ADAPTER_WEIGHTS);
        return;
    }
    const char *stem = x->o->is_torch ? "pytorch_model" : "model", *end = x->o->is_torch ? "bin" : "safetensors";
    if (x->info->n_shards == 1)
        snprintf(out, 64, "%s.%s", stem, end);
    else
        snprintf(out, 64, "%s-%05d-of-%05d.%s", stem, shard + 1, x->info->n_shards, end);
}

static ps_status write_index(const exporter *x)
{
    char name[64];
    if (x->info->n_shards == 1) return PS_OK;
    json_t *map = json_object();
    for (int i = 0; i < x->n; i++) {
        shard_name(x, x->shard_of[i], name);
        json_object_set_new(map, x->copies[i].name, json_string(name));
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)x->info->tensor_bytes, "weight_map", map);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    const char *const index = x->o->is_torch ? "pytorch_model.bin.index.json" : "model.safetensors.index.json";
    const ps_status st = text != NULL ? write_text(x->folder, index, text)
                                      : PS_FAIL(PS_ENOMEM_HOST, "no memory for the index of %d tensors", x->n);
    free(text);
    return st;
}

static ps_status write_shards(const exporter *x)
{
    for (int first = 0, end = 0, shard = 0; shard < x->info->n_shards; shard++, first = end) {
        char name[64], *path = NULL;
        while (end < x->n && x->shard_of[end] == shard) end++;
        shard_name(x, shard, name);
        PS_TRY(ps_folder_join(x->folder, name, &path));
        const ps_status st =
            ps_weight_copy_file(x->source, x->copies + first, end - first, x->o->dtype, path, &x->info->nonfinite);
        ps_mem_free(path);
        PS_TRY(st);
    }
    return write_index(x);
}

static ps_status check_finite(const exporter *x)
{
    const ps_weight_nonfinite *f = &x->info->nonfinite;
    if (f->n_tensors == 0 || x->o->allows_nonfinite) return PS_OK;
    if (f->n_too_large > 0)
        return PS_FAIL(PS_ENUMERIC, "%lld values in %d tensors (the first: %s) would be infinite%s in %s; %s",
                       (long long)f->n_too_large, f->n_tensors, f->first, x->o->merge != NULL ? " or NaN" : "",
                       x->o->dtype != NULL ? ps_dtype_name(*x->o->dtype) : "the type that they have",
                       x->o->merge != NULL ? "choose --dtype f32, and look whether the adapter has such values"
                                           : "choose bf16 or f32, or allow that with --allow-nonfinite");
    return PS_FAIL(PS_ENUMERIC, "%lld values in %d tensors (the first: %s) are infinite or NaN; %s",
                   (long long)f->n_values, f->n_tensors, f->first,
                   x->o->merge != NULL ? "take another base or adapter"
                                       : "export an older checkpoint, or allow that with --allow-nonfinite");
}

/* ---- other files ---- */

static ps_status copy_bytes(const ps_file *from, ps_file_writer *to, char *piece)
{
    for (int64_t done = 0; done < ps_file_bytes(from); done += COPY_BYTES) {
        const int64_t n = ps_min_i64(COPY_BYTES, ps_file_bytes(from) - done);
        PS_TRY(ps_file_read(from, done, piece, n));
        PS_TRY(ps_file_writer_write(to, done, piece, n));
    }
    return PS_OK;
}

/* Copy the file if it exists. */
static ps_status copy_file(exporter *x, const char *name)
{
    char *from_path = NULL, *to_path = NULL, *piece = NULL;
    ps_file *from = NULL;
    ps_file_writer *to = NULL;
    ps_status st;
    PS_TRY_GOTO(ps_folder_join(x->o->tokenizer_folder, name, &from_path));
    if (!ps_file_exists(from_path) || (x->o->chat_template != NULL && strcmp(name, CHAT_TEMPLATE) == 0)) goto out;
    PS_TRY_GOTO(ps_folder_join(x->folder, name, &to_path));
    PS_TRY_GOTO(ps_mem_alloc(COPY_BYTES, 1, &piece));
    PS_TRY_GOTO(ps_file_open(from_path, &from));
    PS_TRY_GOTO(ps_file_writer_open(to_path, &to));
    PS_TRY_GOTO(copy_bytes(from, to, piece));
    st = ps_file_writer_commit(to);
    to = NULL;
    x->info->n_copied++;
out:
    ps_file_writer_cancel(to);
    ps_file_close(from);
    ps_mem_free(piece);
    ps_mem_free(to_path);
    ps_mem_free(from_path);
    return st;
}

static ps_status write_all(exporter *x)
{
    const bool is_adapter = x->o->adapter_json != NULL;
    PS_TRY((is_adapter ? name_adapter_tensors : name_tensors)(x));
    PS_TRY(ps_mem_alloc((size_t)x->n, sizeof *x->shard_of, &x->shard_of));
    x->info->n_tensors = x->n;
    fill_shards(x);
    PS_TRY(write_shards(x));
    PS_TRY(check_finite(x));
    if (is_adapter) PS_TRY(write_text(x->folder, PS_ADAPTER_CONFIG, x->o->adapter_json));
    if (x->o->config_json != NULL && !is_adapter) PS_TRY(write_text(x->folder, "config.json", x->o->config_json));
    for (size_t i = 0; x->o->tokenizer_folder != NULL && i < PS_ARRAY_LEN(tokenizer_files); i++)
        PS_TRY(copy_file(x, tokenizer_files[i]));
    if (x->o->chat_template != NULL) PS_TRY(write_text(x->folder, CHAT_TEMPLATE, x->o->chat_template));
    if (x->o->tokenizer_folder != NULL && x->o->has_generation) PS_TRY(copy_file(x, "generation_config.json"));
    return PS_OK;
}

ps_status ps_export(const ps_weight_source *s, const char *folder, const ps_export_options *o, ps_export_info *info)
{
    PS_ASSERT(o->max_shard_bytes > 0);
    exporter x = {.source = s, .o = o, .info = info};
    ps_folder_writer *w = NULL;
    ps_status st;
    *info = (ps_export_info){0};
    PS_TRY_GOTO(ps_folder_writer_open(folder, o->is_replacing, &w));
    x.folder = ps_folder_writer_path(w);
    PS_TRY_GOTO(write_all(&x));
    st = ps_folder_writer_commit(w);
    w = NULL;
out:
    ps_folder_writer_cancel(w);
    for (int i = 0; x.names != NULL && i < x.n; i++) ps_mem_free(x.names[i]);
    ps_mem_free(x.names);
    ps_mem_free(x.shard_of);
    ps_mem_free(x.copies);
    return st;
}
