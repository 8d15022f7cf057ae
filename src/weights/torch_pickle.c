/* torch_pickle.c - extracts the tensors from the result of the stack machine (torch_machine.c). */
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/name_index.h"
#include "weights/torch_pickle.h"
#include "weights/torch_tensor.h"

struct ps_torch_pickle {
    ps_torch_tensor *tensors; /* [n] */
    int n;
    char *texts; /* storage of names and storage keys */
};

/* Keys under which trainers nest a state_dict; the first one with a dictionary is used. */
static const torch_value *find_state_dict(const torch_machine *m)
{
    static const char *const wrappers[] = {"state_dict", "model", "module"};
    const torch_value *top = &m->values[m->result];
    for (size_t w = 0; w < PS_ARRAY_LEN(wrappers); w++)
        for (int32_t c = top->items.first; c >= 0; c = m->cells[m->cells[c].next].next) {
            const torch_value *inner = &m->values[m->cells[m->cells[c].next].value];
            if (inner->kind == TORCH_DICT && torch_text_is(&m->values[m->cells[c].value], wrappers[w])) return inner;
        }
    return top;
}

static ps_status take_tensors(ps_torch_pickle *p, const torch_machine *m)
{
    const torch_value *dict = find_state_dict(m);
    int64_t text_bytes = 0;
    for (int32_t c = dict->items.first; c >= 0; c = m->cells[m->cells[c].next].next) {
        const torch_value *key = &m->values[m->cells[c].value], *v = &m->values[m->cells[m->cells[c].next].value];
        if (key->kind != TORCH_TEXT) return PS_FAIL(PS_EFORMAT, "%s: a key of the state_dict is no string", m->path);
        if (v->kind != TORCH_TENSOR)
            return PS_FAIL(PS_EFORMAT, "%s: %.*s of the state_dict is no tensor", m->path,
                           (int)ps_min_i64((int64_t)key->text.n, 128), key->text.at);
        text_bytes += (int64_t)key->text.n + 2 + (int64_t)m->values[m->values[v->tensor.storage].storage.key].text.n;
    }
    /* distinct names have fewer bytes in total than the pickle, so more text means repeated references */
    if (text_bytes > 2 * m->n_data)
        return PS_FAIL(PS_EFORMAT, "%s: data.pkl of %lld bytes has names of %lld", m->path, (long long)m->n_data,
                       (long long)text_bytes);
    PS_TRY(ps_mem_alloc((size_t)dict->items.n / 2, sizeof *p->tensors, &p->tensors));
    PS_TRY(ps_mem_alloc((size_t)text_bytes, 1, &p->texts));
    char *texts = p->texts;
    for (int32_t c = dict->items.first; c >= 0; c = m->cells[m->cells[c].next].next) {
        ps_torch_tensor *t = &p->tensors[p->n++];
        t->tensor.name = torch_text_keep(&texts, &m->values[m->cells[c].value]);
        if (t->tensor.name == NULL) return PS_FAIL(PS_EFORMAT, "%s: a zero byte in a tensor's name", m->path);
        PS_TRY(torch_tensor_take(m, &m->values[m->cells[m->cells[c].next].value], &texts, t));
    }
    return PS_OK;
}

static ps_status check_doubles(const ps_torch_pickle *p, const char *path)
{
    ps_name_index index;
    ps_status st = ps_name_index_init(&index, p->n);
    for (int i = 0; i < p->n && st == PS_OK; i++)
        if (!ps_name_index_add(&index, p->tensors[i].tensor.name, i))
            st = PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is there twice", path, p->tensors[i].tensor.name);
    ps_name_index_deinit(&index);
    return st;
}

ps_status ps_torch_pickle_read(const char *path, const char *data, int64_t n, ps_torch_pickle **out)
{
    *out = NULL;
    ps_torch_pickle *p = NULL;
    torch_machine m = {.path = path, .data = (const uint8_t *)data, .n_data = n};
    ps_status st;
    PS_TRY_GOTO(torch_machine_run(&m));
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *p, &p));
    PS_TRY_GOTO(take_tensors(p, &m));
    PS_TRY_GOTO(check_doubles(p, path));
    *out = p;
    p = NULL;
out:
    torch_machine_free(&m);
    ps_torch_pickle_close(p);
    return st;
}

void ps_torch_pickle_close(ps_torch_pickle *p)
{
    if (p == NULL) return;
    ps_mem_free(p->texts);
    ps_mem_free(p->tensors);
    ps_mem_free(p);
}

int ps_torch_pickle_count(const ps_torch_pickle *p)
{
    return p->n;
}

const ps_torch_tensor *ps_torch_pickle_get(const ps_torch_pickle *p, int i)
{
    PS_ASSERT(i >= 0 && i < p->n);
    return &p->tensors[i];
}
