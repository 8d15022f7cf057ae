#include "weights/torch_optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "weights/torch_file.h"
#include "weights/torch_tensor.h"

/* Kinds of states of one optimizer: Adam has three, ASGD five. */
enum { KINDS_MAX = 8 };

struct ps_torch_optimizer {
    ps_file *file; /* NULL: opened from a pickle */
    ps_torch_param *params;
    int n, n_groups;
    ps_torch_state *states;
    char *texts; /* storage of names and keys */
    const char *kinds[KINDS_MAX];
    int n_kinds;
};

typedef struct reader {
    const torch_machine *m;
    ps_torch_optimizer *o;
    char *texts; /* position of the next text */
} reader;

/* An entry of "state": its key, and its value, a dictionary. */
typedef struct entry {
    int64_t number;
    int32_t value;
} entry;

/* ---- dictionaries and lists ---- */

/* Cells of a dictionary: each key is followed by its value. */
static int32_t next_key(const torch_machine *m, int32_t key_cell)
{
    return m->cells[m->cells[key_cell].next].next;
}

static int32_t value_at(const torch_machine *m, int32_t key_cell)
{
    return m->cells[m->cells[key_cell].next].value;
}

/* The value of a key, of the required kind; NULL: none. */
static const torch_value *find(const torch_machine *m, const torch_value *dict, const char *key, torch_kind kind)
{
    for (int32_t c = dict->items.first; c >= 0; c = next_key(m, c)) {
        const torch_value *v = &m->values[value_at(m, c)];
        if (v->kind == kind && torch_text_is(&m->values[m->cells[c].value], key)) return v;
    }
    return NULL;
}

static ps_status find_optimizer(const torch_machine *m, const torch_value **state, const torch_value **groups)
{
    static const char *const wrappers[] = {"optimizer", "optimizer_state_dict"};
    const torch_value *dict = &m->values[m->result];
    for (size_t w = 0; w < PS_ARRAY_LEN(wrappers); w++) {
        const torch_value *inner = find(m, dict, wrappers[w], TORCH_DICT);
        if (inner != NULL) dict = inner;
    }
    *state = find(m, dict, "state", TORCH_DICT);
    *groups = find(m, dict, "param_groups", TORCH_LIST);
    if (*state != NULL && *groups != NULL) return PS_OK;
    return PS_FAIL(PS_EFORMAT,
                   "%s: no \"%s\" in it: not the state_dict of an optimizer; save optimizer.state_dict() by torch.save",
                   m->path, *state == NULL ? "state" : "param_groups");
}

static int32_t size_of(const torch_value *list)
{
    return list != NULL ? list->items.n : 0;
}

/* Distinct lists and dictionaries have fewer items in total than the pickle has bytes; more items mean that one is
 * referenced repeatedly. */
static ps_status check_sizes(const torch_machine *m, const torch_value *state, const torch_value *groups)
{
    int64_t n = 0;
    for (int32_t c = groups->items.first; c >= 0 && n <= m->n_data; c = m->cells[c].next) {
        const torch_value *group = &m->values[m->cells[c].value];
        if (group->kind != TORCH_DICT) return PS_FAIL(PS_EFORMAT, "%s: a group that is no dictionary", m->path);
        n += group->items.n;
        if (n <= m->n_data)
            n += size_of(find(m, group, "params", TORCH_LIST)) + size_of(find(m, group, "param_names", TORCH_LIST));
    }
    for (int32_t c = state->items.first; c >= 0 && n <= m->n_data; c = next_key(m, c)) {
        const torch_value *states = &m->values[value_at(m, c)];
        if (states->kind == TORCH_DICT) n += states->items.n;
    }
    if (n <= m->n_data) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: data.pkl of %lld bytes has lists of more items", m->path, (long long)m->n_data);
}

/* ---- parameters ---- */

static ps_status take_names(reader *r, const torch_value *group, ps_torch_param *params, int32_t n)
{
    const torch_machine *m = r->m;
    const torch_value *names = find(m, group, "param_names", TORCH_LIST);
    if (names == NULL) return PS_OK;
    if (names->items.n != n)
        return PS_FAIL(PS_EFORMAT, "%s: a group of %d parameters has %d \"param_names\"", m->path, n, names->items.n);
    for (int32_t c = names->items.first, i = 0; c >= 0; c = m->cells[c].next, i++) {
        const torch_value *name = &m->values[m->cells[c].value];
        if (name->kind != TORCH_TEXT || (params[i].name = torch_text_keep(&r->texts, name)) == NULL)
            return PS_FAIL(PS_EFORMAT, "%s: \"param_names\" has something that is no name", m->path);
    }
    return PS_OK;
}

static ps_status take_group(reader *r, const torch_value *group, const torch_value *numbers)
{
    const torch_machine *m = r->m;
    ps_torch_param *first = &r->o->params[r->o->n];
    for (int32_t c = numbers->items.first; c >= 0; c = m->cells[c].next) {
        const torch_value *number = &m->values[m->cells[c].value];
        if (number->kind != TORCH_INTEGER)
            return PS_FAIL(PS_EFORMAT, "%s: \"params\" of a group has something that is no number", m->path);
        r->o->params[r->o->n++] = (ps_torch_param){.number = number->integer, .step = -1};
    }
    return take_names(r, group, first, numbers->items.n);
}

static const torch_value *numbers_of(const torch_machine *m, int32_t group_cell)
{
    return find(m, &m->values[m->cells[group_cell].value], "params", TORCH_LIST);
}

static ps_status take_params(reader *r, const torch_value *groups)
{
    const torch_machine *m = r->m;
    int64_t n = 0;
    for (int32_t c = groups->items.first; c >= 0; c = m->cells[c].next) {
        const torch_value *numbers = numbers_of(m, c);
        if (numbers == NULL) return PS_FAIL(PS_EFORMAT, "%s: a group without its list of \"params\"", m->path);
        n += numbers->items.n;
        r->o->n_groups++;
    }
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *r->o->params, &r->o->params));
    for (int32_t c = groups->items.first; c >= 0; c = m->cells[c].next)
        PS_TRY(take_group(r, &m->values[m->cells[c].value], numbers_of(m, c)));
    return PS_OK;
}

/* ---- states ---- */

static ps_status keep_kind(reader *r, const torch_value *key, const char **out)
{
    ps_torch_optimizer *o = r->o;
    for (int k = 0; k < o->n_kinds; k++) {
        *out = o->kinds[k];
        if (torch_text_is(key, o->kinds[k])) return PS_OK;
    }
    if (o->n_kinds == KINDS_MAX || key->text.n > 64 || (*out = torch_text_keep(&r->texts, key)) == NULL)
        return PS_FAIL(PS_EFORMAT, "%s: more than %d kinds of states, or one of a strange name", r->m->path, KINDS_MAX);
    o->kinds[o->n_kinds++] = *out;
    return PS_OK;
}

/* Entries that are neither a tensor nor "step" are options that old optimizers store for each parameter. */
static ps_status take_states(reader *r, const torch_value *dict, ps_torch_param *p, ps_torch_state *states)
{
    const torch_machine *m = r->m;
    p->states = states;
    for (int32_t c = dict->items.first; c >= 0; c = next_key(m, c)) {
        const torch_value *key = &m->values[m->cells[c].value], *v = &m->values[value_at(m, c)];
        if (key->kind != TORCH_TEXT)
            return PS_FAIL(PS_EFORMAT, "%s: parameter %lld has a state whose name is no text", m->path,
                           (long long)p->number);
        if (v->kind == TORCH_INTEGER && torch_text_is(key, "step")) p->step = v->integer;
        if (v->kind != TORCH_TENSOR) continue;
        ps_torch_state *s = &states[p->n_states];
        PS_TRY(keep_kind(r, key, &s->stored.tensor.name));
        for (int i = 0; i < p->n_states; i++)
            if (states[i].stored.tensor.name == s->stored.tensor.name)
                return PS_FAIL(PS_EFORMAT, "%s: parameter %lld has %s twice", m->path, (long long)p->number,
                               s->stored.tensor.name);
        PS_TRY(torch_tensor_take(m, v, &r->texts, &s->stored));
        p->n_states++;
    }
    return PS_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* "state" by number. */
static ps_status list_entries(const torch_machine *m, const torch_value *state, entry *entries)
{
    size_t n = 0;
    for (int32_t c = state->items.first; c >= 0; c = next_key(m, c)) {
        const torch_value *key = &m->values[m->cells[c].value];
        if (key->kind != TORCH_INTEGER || m->values[value_at(m, c)].kind != TORCH_DICT)
            return PS_FAIL(PS_EFORMAT, "%s: \"state\" has something else than the states of numbered parameters",
                           m->path);
        entries[n++] = (entry){key->integer, value_at(m, c)};
    }
    if (n > 0) qsort(entries, n, sizeof *entries, compare_entries);
    for (size_t i = 1; i < n; i++)
        if (entries[i].number == entries[i - 1].number)
            return PS_FAIL(PS_EFORMAT, "%s: the state of parameter %lld is there twice", m->path,
                           (long long)entries[i].number);
    return PS_OK;
}

/* Tensors in the entries, and bytes of the keys of their storages. */
static int64_t count_states(const torch_machine *m, const entry *entries, size_t n, int64_t *text_bytes)
{
    int64_t n_states = 0;
    for (size_t i = 0; i < n; i++)
        for (int32_t c = m->values[entries[i].value].items.first; c >= 0; c = next_key(m, c)) {
            const torch_value *v = &m->values[value_at(m, c)];
            if (v->kind != TORCH_TENSOR) continue;
            n_states++;
            *text_bytes += 1 + (int64_t)m->values[m->values[v->tensor.storage].storage.key].text.n;
        }
    return n_states;
}

static ps_status fill_states(reader *r, const entry *entries, size_t n_entries)
{
    ps_torch_optimizer *o = r->o;
    ps_torch_state *next = o->states;
    size_t n_used = 0;
    for (int i = 0; i < o->n; i++) {
        const entry key = {.number = o->params[i].number};
        const entry *e = n_entries > 0 ? bsearch(&key, entries, n_entries, sizeof *entries, compare_entries) : NULL;
        if (e == NULL) continue;
        if (n_used++ == n_entries)
            return PS_FAIL(PS_EFORMAT, "%s: parameter %lld is in two groups", r->m->path, (long long)key.number);
        PS_TRY(take_states(r, &r->m->values[e->value], &o->params[i], next));
        next += o->params[i].n_states;
    }
    if (n_used == n_entries) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: %zu parameters have states, but only %zu of them are in a group", r->m->path,
                   n_entries, n_used);
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static ps_status check_numbers(const ps_torch_optimizer *o, const char *path)
{
    int64_t *numbers = NULL;
    ps_status st = PS_OK;
    PS_TRY(ps_mem_alloc((size_t)o->n, sizeof *numbers, &numbers));
    for (int i = 0; i < o->n; i++) numbers[i] = o->params[i].number;
    if (o->n > 0) qsort(numbers, (size_t)o->n, sizeof *numbers, compare_numbers);
    for (int i = 1; i < o->n && st == PS_OK; i++)
        if (numbers[i] == numbers[i - 1])
            st = PS_FAIL(PS_EFORMAT, "%s: parameter %lld is in two groups", path, (long long)numbers[i]);
    ps_mem_free(numbers);
    return st;
}

/* ---- the whole file ---- */

/* Bytes of texts of parameters, and of kinds of states. */
static int64_t name_bytes(const torch_machine *m, const torch_value *groups)
{
    int64_t n = KINDS_MAX * 65;
    for (int32_t c = groups->items.first; c >= 0; c = m->cells[c].next) {
        const torch_value *names = find(m, &m->values[m->cells[c].value], "param_names", TORCH_LIST);
        for (int32_t k = names != NULL ? names->items.first : -1; k >= 0; k = m->cells[k].next) {
            const torch_value *name = &m->values[m->cells[k].value];
            if (name->kind == TORCH_TEXT) n += 1 + (int64_t)name->text.n;
        }
    }
    return n;
}

static ps_status take_all(reader *r, entry **entries)
{
    const torch_machine *m = r->m;
    ps_torch_optimizer *o = r->o;
    const torch_value *state = NULL, *groups = NULL;
    PS_TRY(find_optimizer(m, &state, &groups));
    PS_TRY(check_sizes(m, state, groups));
    const size_t n_entries = (size_t)state->items.n / 2;
    PS_TRY(ps_mem_alloc(n_entries, sizeof **entries, entries));
    PS_TRY(list_entries(m, state, *entries));
    int64_t text_bytes = name_bytes(m, groups);
    const int64_t n_states = count_states(m, *entries, n_entries, &text_bytes);
    if (text_bytes > 2 * m->n_data + KINDS_MAX * 65) /* likewise */
        return PS_FAIL(PS_EFORMAT, "%s: data.pkl of %lld bytes has names of %lld", m->path, (long long)m->n_data,
                       (long long)text_bytes);
    PS_TRY(ps_mem_alloc((size_t)text_bytes, 1, &o->texts));
    PS_TRY(ps_mem_alloc((size_t)n_states, sizeof *o->states, &o->states));
    r->texts = o->texts;
    PS_TRY(take_params(r, groups));
    PS_TRY(check_numbers(o, m->path));
    return fill_states(r, *entries, n_entries);
}

ps_status ps_torch_optimizer_parse(const char *path, const char *data, int64_t n, ps_torch_optimizer **out)
{
    *out = NULL;
    ps_torch_optimizer *o = NULL;
    entry *entries = NULL;
    torch_machine m = {.path = path, .data = (const uint8_t *)data, .n_data = n};
    ps_status st;
    PS_TRY_GOTO(torch_machine_run(&m));
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *o, &o));
    reader r = {.m = &m, .o = o};
    PS_TRY_GOTO(take_all(&r, &entries));
    *out = o;
    o = NULL;
out:
    torch_machine_free(&m);
    ps_mem_free(entries);
    ps_torch_optimizer_close(o);
    return st;
}

static ps_status place_states(const char *path, const ps_torch_zip *zip, ps_torch_optimizer *o)
{
    ps_torch_state *s = o->states;
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < o->params[i].n_states; k++, s++) {
            const ps_status st = ps_torch_file_place(path, zip, &s->stored, &s->tensor);
            if (st != PS_OK) return st;
        }
    return PS_OK;
}

static ps_status open_zip(const char *path, const ps_file *file, ps_torch_optimizer **out)
{
    ps_torch_zip *zip = NULL;
    char *data = NULL;
    int64_t n = 0;
    ps_status st;
    PS_TRY_GOTO(ps_torch_zip_open(file, &zip));
    PS_TRY_GOTO(ps_torch_file_read_pickle(path, zip, &data, &n));
    PS_TRY_GOTO(ps_torch_optimizer_parse(path, data, n, out));
    PS_TRY_GOTO(place_states(path, zip, *out));
out:
    ps_mem_free(data);
    ps_torch_zip_close(zip);
    return st;
}

ps_status ps_torch_optimizer_open(const char *path, ps_torch_optimizer **out)
{
    ps_file *file = NULL;
    *out = NULL;
    PS_TRY(ps_file_open(path, &file));
    const ps_status st = open_zip(path, file, out);
    if (st == PS_OK) {
        (*out)->file = file;
        return PS_OK;
    }
    ps_torch_optimizer_close(*out);
    *out = NULL;
    ps_file_close(file);
    return st;
}

void ps_torch_optimizer_close(ps_torch_optimizer *o)
{
    if (o == NULL) return;
    ps_file_close(o->file);
    ps_mem_free(o->params);
    ps_mem_free(o->states);
    ps_mem_free(o->texts);
    ps_mem_free(o);
}

int ps_torch_optimizer_count(const ps_torch_optimizer *o)
{
    return o->n;
}

const ps_torch_param *ps_torch_optimizer_get(const ps_torch_optimizer *o, int i)
{
    PS_ASSERT(i >= 0 && i < o->n);
    return &o->params[i];
}

int ps_torch_optimizer_n_groups(const ps_torch_optimizer *o)
{
    return o->n_groups;
}

ps_status ps_torch_optimizer_read(const ps_torch_optimizer *o, const ps_torch_state *s, int64_t offset, void *dst,
                                  int64_t n_bytes)
{
    PS_ASSERT(o->file != NULL && offset >= 0 && n_bytes >= 0 && offset + n_bytes <= s->tensor.n_bytes);
    return ps_file_read(o->file, s->tensor.offset + offset, dst, n_bytes);
}
