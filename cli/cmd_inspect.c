/* cmd_inspect.c - pstar inspect: lists a file or folder of weights without reading the weights. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/status.h"
#include "cli.h"
#include "weights/weight_source.h"

#define JSON_BYTES_MAX (16 * PS_MIB)

typedef struct inspect_arguments {
    const char *path;
    bool json;
} inspect_arguments;

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static json_t *shape_of(const ps_safetensor *t)
{
    json_t *shape = json_array();
    for (int d = 0; d < t->n_dims; d++) json_array_append_new(shape, json_integer(t->shape[d]));
    return shape;
}

static int64_t elements_of(const ps_safetensor *t)
{
    return t->n_bytes / ps_safetensors_dtype_bytes(t->dtype);
}

static json_t *tensor_json(const ps_weight_source *s, const ps_weight *w)
{
    return json_pack("{s:s, s:s, s:o, s:I, s:I, s:s}", "name", w->tensor.name, "dtype",
                     ps_safetensors_dtype_name(w->tensor.dtype), "shape", shape_of(&w->tensor), "elements",
                     (json_int_t)elements_of(&w->tensor), "bytes", (json_int_t)w->tensor.n_bytes, "file",
                     file_name(ps_weight_source_path(s, w->file)));
}

/* A member of a JSON file in the folder of the weights; new reference or NULL. */
static json_t *folder_member(const char *folder, const char *name, const char *key)
{
    char *path = NULL, *text = NULL;
    int64_t n;
    json_t *member = NULL;
    if (ps_folder_join(folder, name, &path) != PS_OK) return NULL;
    if (ps_file_exists(path) && ps_file_read_all(path, JSON_BYTES_MAX, &text, &n) == PS_OK) {
        json_t *root = json_loadb(text, (size_t)n, 0, NULL);
        member = json_incref(json_object_get(root, key));
        json_decref(root);
    }
    ps_mem_free(text);
    ps_mem_free(path);
    return member;
}

/* Metadata from the folder of the weights: {"model_type": .., "step": .., "format": ..}, as available. */
static json_t *facts_json(const ps_weight_source *s)
{
    json_t *facts = json_object();
    char *folder = NULL;
    const char *first = ps_weight_source_path(s, 0), *format = ps_weight_source_metadata(s, 0, "format");
    if (format != NULL) json_object_set_new(facts, "format", json_string(format));
    if (ps_folder_of(first, &folder) != PS_OK) return facts;
    static const struct {
        const char *file, *key, *name;
    } looks[] = {{"config.json", "model_type", "model_type"},
                 {"config.json", "architectures", "architectures"},
                 {"state.json", "steps", "step"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(looks); i++) {
        json_t *member = folder_member(folder, looks[i].file, looks[i].key);
        if (member != NULL) json_object_set_new(facts, looks[i].name, member);
    }
    ps_mem_free(folder);
    return facts;
}

typedef struct totals {
    int64_t elements, bytes;
} totals;

static totals sum_up(const ps_weight_source *s)
{
    totals t = {0, 0};
    for (int i = 0; i < ps_weight_source_count(s); i++) {
        const ps_safetensor *x = &ps_weight_source_get(s, i)->tensor;
        t.elements += elements_of(x);
        t.bytes += x->n_bytes;
    }
    return t;
}

static void print_json(const ps_weight_source *s)
{
    const totals t = sum_up(s);
    json_t *tensors = json_array(), *files = json_array();
    for (int i = 0; i < ps_weight_source_count(s); i++)
        json_array_append_new(tensors, tensor_json(s, ps_weight_source_get(s, i)));
    for (int i = 0; i < ps_weight_source_n_files(s); i++)
        json_array_append_new(files, json_string(ps_weight_source_path(s, i)));
    json_t *root =
        json_pack("{s:s, s:o, s:o, s:I, s:I, s:o}", "kind", ps_weight_source_kind(s), "files", files, "facts",
                  facts_json(s), "elements", (json_int_t)t.elements, "bytes", (json_int_t)t.bytes, "tensors", tensors);
    (void)json_dumpf(root, stdout, JSON_INDENT(1));
    printf("\n");
    json_decref(root);
}

static void print_table(const ps_weight_source *s)
{
    int width = 4;
    const int n = ps_weight_source_count(s), n_files = ps_weight_source_n_files(s);
    for (int i = 0; i < n; i++)
        width = (int)ps_max_i64(width, ps_min_i64(60, (int64_t)strlen(ps_weight_source_get(s, i)->tensor.name)));
    printf("%-*s  %-7s %-18s %14s%s\n", width, "name", "dtype", "shape", "bytes", n_files > 1 ? "  file" : "");
    for (int i = 0; i < n; i++) {
        const ps_weight *w = ps_weight_source_get(s, i);
        json_t *shape = shape_of(&w->tensor);
        char name[256], *text = json_dumps(shape, 0);
        printf("%-*s  %-7s %-18s %14" PRId64 "%s%s\n", width, ps_printable_copy(w->tensor.name, name, sizeof name),
               ps_safetensors_dtype_name(w->tensor.dtype), text != NULL ? text : "", w->tensor.n_bytes,
               n_files > 1 ? "  " : "", n_files > 1 ? file_name(ps_weight_source_path(s, w->file)) : "");
        free(text);
        json_decref(shape);
    }
}

static void print_facts(const ps_weight_source *s)
{
    char bytes_text[PS_BYTES_TEXT_MAX];
    const totals t = sum_up(s);
    json_t *facts = facts_json(s), *value;
    const char *key;
    printf("\n%d tensors, %" PRId64 " elements, %s (%s)\n", ps_weight_source_count(s), t.elements,
           ps_bytes_format(t.bytes, bytes_text), ps_weight_source_kind(s));
    for (int i = 0; i < ps_weight_source_n_files(s); i++) printf("file           %s\n", ps_weight_source_path(s, i));
    json_object_foreach(facts, key, value)
    {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        const char *shown = json_is_string(value) ? json_string_value(value) : text != NULL ? text : "";
        char name[64], fact[2048];
        printf("%-14s %s\n", ps_printable_copy(key, name, sizeof name), ps_printable_copy(shown, fact, sizeof fact));
        free(text);
    }
    json_decref(facts);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    inspect_arguments *a = state->input;
    switch (key) {
    case 'j': a->json = true; return 0;
    case ARGP_KEY_ARG:
        if (a->path != NULL) argp_usage(state);
        a->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->path == NULL) argp_error(state, "which file or folder?");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_inspect(int argc, char **argv)
{
    static const struct argp_option options[] = {{"json", 'j', NULL, 0, "Print JSON instead of a table", 0}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "FILE|FOLDER",
                                     .doc = "List the tensors of a safetensors file, a file of torch.save, a Hugging "
                                            "Face folder or a checkpoint: names, "
                                            "types, shapes, sizes. Checks the files' structure, reads no weights."};
    inspect_arguments a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ps_weight_source *s = NULL;
    const int code = program_report("inspect", ps_weight_source_open(a.path, &s));
    if (s != NULL && a.json) print_json(s);
    if (s != NULL && !a.json) {
        print_table(s);
        print_facts(s);
    }
    ps_weight_source_close(s);
    return code;
}
