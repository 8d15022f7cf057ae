/* hf_classes.c - the classes of a classifier in a config.json: id2label, label2id, num_labels, problem_type.
 *
 * In transformers, class i has the name id2label[i]; without id2label there are two classes, LABEL_0 and LABEL_1. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/hf_config_impl.h"
#include "config/option/head.h"

enum { DEFAULT_CLASSES = 2, DEFAULT_CLASSES_MAX = 1 << 16 };

/* transformers' default name of class i: "LABEL_0". Returns out. */
static const char *default_label(int64_t i, char out[32])
{
    snprintf(out, 32, "LABEL_%lld", (long long)i);
    return out;
}

/* ---- reading ---- */

static ps_status add_name(ps_label_list *l, const char *name, const char *path)
{
    if (name[0] == '\0') return PS_FAIL(PS_EFORMAT, "%s: the name of class %d is empty", path, l->n);
    return ps_label_list_add(l, name, (int64_t)strlen(name));
}

/* Some folders have numbers for names. */
static ps_status add_json_name(ps_label_list *l, const json_t *name, const char *path)
{
    char number[32];
    if (json_is_string(name)) return add_name(l, json_string_value(name), path);
    if (!json_is_integer(name))
        return PS_FAIL(PS_EFORMAT, "%s: \"id2label\" has no name for class %d; its keys are \"0\", \"1\", ...", path,
                       l->n);
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(name));
    return add_name(l, number, path);
}

static ps_status read_id2label(const json_t *names, const char *path, ps_label_list *l)
{
    for (size_t i = 0; i < json_object_size(names); i++) {
        char id[24];
        snprintf(id, sizeof id, "%zu", i);
        PS_TRY(add_json_name(l, json_object_get(names, id), path));
    }
    return PS_OK;
}

/* The classes must be 0 .. n - 1. */
static ps_status read_label2id(json_t *ids, const char *path, ps_label_list *l)
{
    const size_t n = json_object_size(ids);
    const char *name, **names = NULL;
    json_t *id;
    ps_status st = PS_OK;
    PS_TRY(ps_mem_alloc(n, sizeof *names, (void *)&names));
    json_object_foreach(ids, name, id)
    {
        const json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;
        if (i >= 0 && i < (json_int_t)n) names[i] = name;
    }
    for (size_t i = 0; i < n && st == PS_OK; i++)
        st = names[i] != NULL ? add_name(l, names[i], path)
                              : PS_FAIL(PS_EFORMAT, "%s: \"label2id\" has no name for class %zu", path, i);
    ps_mem_free(names);
    return st;
}

/* Names must be unique. A name that label2id has, too, must be the same class there; label2id may have its default. */
static ps_status check_names(json_t *ids, const char *path, const ps_label_list *l)
{
    int32_t a, b;
    const char *key;
    json_t *id, *index;
    PS_TRY(ps_label_list_index(l, &index, &a, &b));
    ps_status st =
        a < 0 ? PS_OK
              : PS_FAIL(PS_EFORMAT, "%s: classes %d and %d have the same name, '%.80s'", path, a, b, l->names[a]);
    json_object_foreach(ids, key, id)
    {
        const json_t *class = json_object_get(index, key);
        if (st == PS_OK && class != NULL && json_is_integer(id) && !json_equal(class, id))
            st = PS_FAIL(PS_EFORMAT,
                         "%s: \"%.80s\" is class %lld in \"id2label\", but %lld in \"label2id\"; correct one of them",
                         path, key, (long long)json_integer_value(class), (long long)json_integer_value(id));
    }
    json_decref(index);
    return st;
}

static ps_status add_defaults(const json_t *root, ps_label_list *l)
{
    const json_t *given = json_object_get(root, "num_labels");
    const int64_t n = json_is_integer(given) ? json_integer_value(given) : DEFAULT_CLASSES;
    for (int64_t i = 0; i < n && n <= DEFAULT_CLASSES_MAX; i++) {
        char name[32];
        default_label(i, name);
        PS_TRY(ps_label_list_add(l, name, (int64_t)strlen(name)));
    }
    return PS_OK;
}

static bool is_named(const ps_label_list *l)
{
    char name[32];
    for (int32_t i = 0; i < l->n; i++)
        if (strcmp(l->names[i], default_label(i, name)) != 0) return true;
    return false;
}

ps_status ps_hf_classes_read(json_t *root, const char *path, ps_config_classes *out)
{
    const json_t *names = json_object_get(root, "id2label");
    json_t *ids = json_object_get(root, "label2id");
    if (json_object_size(names) > 0) {
        PS_TRY(read_id2label(names, path, &out->list));
        PS_TRY(check_names(ids, path, &out->list));
    } else if (json_object_size(ids) > 0) {
        PS_TRY(read_label2id(ids, path, &out->list));
    } else {
        PS_TRY(add_defaults(root, &out->list));
    }
    out->are_named = is_named(&out->list);
    return ps_label_list_format(&out->list, &out->text);
}

void ps_hf_classes_forget(ps_config_classes *c)
{
    ps_label_list_deinit(&c->list);
    ps_mem_free(c->text);
    *c = (ps_config_classes){0};
}

/* ---- writing ---- */

static void add_class(json_t *names, json_t *ids, int64_t i, const char *name)
{
    char id[24];
    snprintf(id, sizeof id, "%lld", (long long)i);
    json_object_set_new(names, id, json_string(name));
    json_object_set_new(ids, name, json_integer(i));
}

/* A class without a name gets its default name, or, where another class of the data has that name, the next free
 * default name from *next on. */
static const char *free_label(const json_t *ids, int64_t i, int64_t *next, char text[32])
{
    (void)default_label(i, text);
    while (json_object_get(ids, text) != NULL) (void)default_label((*next)++, text);
    return text;
}

/* Without problem_type, transformers derives the task from the number of labels and the type of the targets. */
static void write_problem(const ps_options *o, json_t *root)
{
    const char *problem = json_string_value(json_object_get(root, "problem_type"));
    const ps_config_problem learnt = ps_head_problem(o);
    const char *name = ps_config_problem_names[learnt];
    const bool is_plain =
        o->model_head == PS_CONFIG_HEAD_TOKEN_CLASSIFICATION || learnt == PS_CONFIG_PROBLEM_SINGLE_LABEL;
    if (!is_plain)
        json_object_set_new(root, "problem_type", json_string(name));
    else if (problem != NULL && strcmp(problem, ps_config_problem_names[PS_CONFIG_PROBLEM_SINGLE_LABEL]) != 0)
        json_object_del(root, "problem_type");
}

/* Names of the pretrained model are kept when their count is right and the data have no names. */
ps_status ps_hf_classes_write(const ps_options *o, json_t *root)
{
    const bool has_names = (int64_t)json_object_size(json_object_get(root, "id2label")) == o->model_num_labels;
    ps_label_list given;
    if (!ps_head_has_labels(o)) return PS_OK;
    write_problem(o, root);
    if (has_names && o->data_labels[0] == '\0') return PS_OK;
    PS_TRY(ps_label_list_parse(o->data_labels, &given));
    json_t *names = json_object(), *ids = json_object();
    int64_t next = o->model_num_labels;
    for (int64_t i = 0; i < o->model_num_labels; i++) {
        char text[32];
        add_class(names, ids, i, i < given.n ? given.names[i] : free_label(ids, i, &next, text));
    }
    json_object_set_new(root, "id2label", names);
    json_object_set_new(root, "label2id", ids);
    json_object_set_new(root, "num_labels", json_integer(o->model_num_labels));
    ps_label_list_deinit(&given);
    return PS_OK;
}
