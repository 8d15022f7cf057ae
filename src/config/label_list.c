#include "config/label_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int32_t ps_label_list_find(const ps_label_list *l, const char *name, int64_t n_bytes)
{
    for (int32_t i = 0; i < l->n; i++)
        if (strncmp(l->names[i], name, (size_t)n_bytes) == 0 && l->names[i][n_bytes] == '\0') return i;
    return -1;
}

ps_status ps_label_list_add(ps_label_list *l, const char *name, int64_t n_bytes)
{
    char *copy = NULL;
    PS_TRY(ps_mem_alloc((size_t)n_bytes + 1, 1, &copy));
    memcpy(copy, name, (size_t)n_bytes);
    const ps_status st = ps_mem_reserve(&l->names, (size_t)l->n + 1, sizeof *l->names);
    if (st != PS_OK) {
        ps_mem_free(copy);
        return st;
    }
    l->names[l->n++] = copy;
    return PS_OK;
}

void ps_label_list_deinit(ps_label_list *l)
{
    for (int32_t i = 0; i < l->n; i++) ps_mem_free(l->names[i]);
    ps_mem_free(l->names);
    *l = (ps_label_list){0};
}

ps_status ps_label_list_index(const ps_label_list *l, json_t **index, int32_t *a, int32_t *b)
{
    *a = *b = -1;
    *index = json_object();
    bool has_memory = *index != NULL;
    for (int32_t i = 0; i < l->n && has_memory; i++) {
        const json_t *first = json_object_get(*index, l->names[i]);
        if (first == NULL) {
            has_memory = json_object_set_new_nocheck(*index, l->names[i], json_integer(i)) == 0;
        } else if (*a < 0) {
            *a = (int32_t)json_integer_value(first);
            *b = i;
        }
    }
    if (has_memory) return PS_OK;
    json_decref(*index);
    *index = NULL;
    return PS_FAIL(PS_ENOMEM_HOST, "no memory for the names of labels");
}

static ps_status take_name(ps_label_list *l, const char *name, size_t n_bytes, const char *text)
{
    if (n_bytes == 0) return PS_FAIL(PS_EINVAL, "data.labels = \"%.200s\" has an empty name", text);
    return ps_label_list_add(l, name, (int64_t)n_bytes);
}

static ps_status check_once(const ps_label_list *l, const char *text)
{
    json_t *index;
    int32_t a, b;
    PS_TRY(ps_label_list_index(l, &index, &a, &b));
    json_decref(index);
    if (a < 0) return PS_OK;
    return PS_FAIL(PS_EINVAL, "data.labels = \"%.200s\" has '%.80s' twice", text, l->names[a]);
}

static ps_status parse_array(ps_label_list *l, const char *text)
{
    ps_status st = PS_OK;
    size_t i;
    json_t *name, *root = json_loads(text, 0, NULL);
    if (!json_is_array(root)) st = PS_FAIL(PS_EINVAL, "data.labels = \"%.200s\" is no JSON array of names", text);
    json_array_foreach(root, i, name)
    {
        if (st == PS_OK && !json_is_string(name))
            st = PS_FAIL(PS_EINVAL, "data.labels = \"%.200s\": entry %zu is no name", text, i);
        if (st == PS_OK) st = take_name(l, json_string_value(name), json_string_length(name), text);
    }
    json_decref(root);
    return st;
}

static ps_status parse_words(ps_label_list *l, const char *text)
{
    for (const char *at = text;; at++) {
        const size_t n_bytes = strcspn(at, ",");
        PS_TRY(take_name(l, at, n_bytes, text));
        at += n_bytes;
        if (*at == '\0') return PS_OK;
    }
}

ps_status ps_label_list_parse(const char *text, ps_label_list *l)
{
    *l = (ps_label_list){0};
    if (text[0] == '\0') return PS_OK;
    ps_status st = text[0] == '[' ? parse_array(l, text) : parse_words(l, text);
    if (st == PS_OK) st = check_once(l, text);
    if (st != PS_OK) ps_label_list_deinit(l);
    return st;
}

static char *format_array(const ps_label_list *l)
{
    json_t *names = json_array();
    for (int32_t i = 0; i < l->n; i++) json_array_append_new(names, json_string(l->names[i]));
    char *text = (int32_t)json_array_size(names) == l->n ? json_dumps(names, JSON_COMPACT) : NULL;
    json_decref(names);
    return text;
}

ps_status ps_label_list_format(const ps_label_list *l, char **text)
{
    size_t n_bytes = 1;
    /* text that ps_config_set would parse as JSON is written as JSON */
    bool is_plain =
        l->n == 0 || (strchr("[\"", l->names[0][0]) == NULL && !(l->n == 1 && strcmp(l->names[0], "null") == 0));
    *text = NULL;
    for (int32_t i = 0; i < l->n; i++) {
        n_bytes += strlen(l->names[i]) + 1;
        is_plain = is_plain && strchr(l->names[i], ',') == NULL;
    }
    if (!is_plain) {
        char *array = format_array(l);
        const ps_status st =
            array != NULL ? ps_mem_strdup(array, text) : PS_FAIL(PS_ENOMEM_HOST, "no memory for the names of labels");
        free(array);
        return st;
    }
    PS_TRY(ps_mem_alloc(n_bytes, 1, text));
    for (int32_t i = 0, at = 0; i < l->n; i++)
        at += snprintf(*text + at, n_bytes - (size_t)at, "%s%s", i > 0 ? "," : "", l->names[i]);
    return PS_OK;
}

const char *ps_label_list_describe(const ps_label_list *l, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < l->n; i++) {
        const size_t n = strlen(l->names[i]) + 20;
        if (at + n + sizeof ", ..." > bytes) {
            snprintf(out + at, bytes - at, "%s...", i > 0 ? ", " : "");
            break;
        }
        at += (size_t)snprintf(out + at, bytes - at, "%s%d '%s'", i > 0 ? ", " : "", i, l->names[i]);
    }
    return out;
}

bool ps_label_list_contradicts(const ps_label_list *given, const ps_label_list *theirs, const char *whose, char *out,
                               size_t bytes)
{
    for (int32_t i = 0; i < given->n; i++) {
        const char *name = given->names[i];
        if (i < theirs->n && strcmp(name, theirs->names[i]) == 0) continue;
        const int32_t class = ps_label_list_find(theirs, name, (int64_t)strlen(name));
        char known[300];
        if (class < 0) continue;
        snprintf(out, bytes,
                 "data.labels has '%.80s' as class %d, but %s has it as class %d: %s; leave data.labels out", name, i,
                 whose, class, ps_label_list_describe(theirs, known, sizeof known));
        return true;
    }
    return false;
}
