#include "data/sample_set.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"

typedef struct sample_entry {
    int64_t first;
    int32_t n_first; /* T fits: ps_sample_set_open checks it */
    int32_t label;
} sample_entry;

struct ps_sample_set {
    int32_t *ids;
    sample_entry *entries;
    int64_t n_ids, n;
    bool has_pairs;
};

/* While reading. */
typedef struct sample_reader {
    const char *path;
    ps_tokenizer *tokenizer;
    bool added_tokens;
    int64_t T;
    ps_labels *labels;
    bool is_collecting, has_numbers, has_names;
    ps_sample_set *set;
} sample_reader;

#define FAIL_AT(r, record, format, ...)                                                                                \
    PS_FAIL(PS_EFORMAT, "%s: line %lld, offset %lld: " format, (r)->path, (long long)(record)->line,                   \
            (long long)(record)->offset, __VA_ARGS__)

/* ---- labels ---- */

static ps_status read_name(sample_reader *r, const ps_jsonl_record *record, int32_t *label)
{
    ps_labels *l = r->labels;
    const int width = (int)ps_min_i64(record->label_name_bytes, 80);
    if (memchr(record->label_name, '\0', (size_t)record->label_name_bytes) != NULL)
        return FAIL_AT(r, record, "the label '%.*s' has a zero byte", width, record->label_name);
    *label = ps_labels_find(l, record->label_name, record->label_name_bytes);
    if (*label >= 0) return PS_OK;
    if (!r->is_collecting) {
        char known[400];
        return FAIL_AT(
            r, record,
            "the label '%.*s' is none of the classes %s; correct it, or name the classes, in their order, by "
            "data.labels",
            width, record->label_name, ps_label_list_describe(&l->list, known, sizeof known));
    }
    if (l->list.n == l->n_max)
        return FAIL_AT(r, record, "the label '%.*s' is one more than the model's %d classes", width, record->label_name,
                       l->n_max);
    *label = l->list.n;
    return ps_labels_add(l, record->label_name, record->label_name_bytes);
}

static ps_status read_label(sample_reader *r, const ps_jsonl_record *record, int32_t *label)
{
    const bool is_name = record->label_name != NULL;
    if (r->is_collecting && (is_name ? r->has_numbers : r->has_names))
        return FAIL_AT(r, record, "the label is %s, but those before it are %s; use one kind, or give data.labels",
                       is_name ? "a name" : "a number", is_name ? "numbers" : "names");
    r->has_numbers |= !is_name;
    r->has_names |= is_name;
    if (is_name) return read_name(r, record, label);
    if (record->label < 0 || record->label >= r->labels->n_max)
        return FAIL_AT(r, record, "label %lld, expected 0 to %d", (long long)record->label, r->labels->n_max - 1);
    *label = (int32_t)record->label;
    return PS_OK;
}

/* Names are numbered in the order of the file until all are known. */
static ps_status fix_labels(sample_reader *r)
{
    if (!r->is_collecting) return PS_OK;
    int32_t *new_id = NULL;
    PS_TRY(ps_mem_alloc((size_t)r->labels->list.n, sizeof *new_id, &new_id));
    ps_labels_fix(r->labels, new_id);
    if (r->has_names)
        for (int64_t i = 0; i < r->set->n; i++) r->set->entries[i].label = new_id[r->set->entries[i].label];
    ps_mem_free(new_id);
    return PS_OK;
}

/* ---- samples ---- */

static ps_status append(sample_reader *r, const ps_jsonl_record *record)
{
    ps_sample_set *s = r->set;
    int64_t n_ids, n_first;
    int32_t label = 0;
    PS_TRY(read_label(r, record, &label));
    PS_TRY(ps_mem_reserve(&s->ids, (size_t)(s->n_ids + r->T), sizeof *s->ids));
    PS_TRY(ps_mem_reserve(&s->entries, (size_t)s->n + 1, sizeof *s->entries));
    PS_TRY(ps_sample_encode(r->tokenizer, r->added_tokens, record->text, record->text_bytes, record->text_pair,
                            record->text_pair_bytes, r->T, s->ids + s->n_ids, &n_ids, &n_first));
    if (n_ids == 0) return FAIL_AT(r, record, "%s", "the text is empty: no token to look at");
    s->entries[s->n++] = (sample_entry){.first = s->n_ids, .n_first = (int32_t)n_first, .label = label};
    s->n_ids += n_ids;
    s->has_pairs |= record->text_pair != NULL;
    return PS_OK;
}

ps_status ps_sample_set_open(const char *path, const ps_jsonl_keys *keys, ps_tokenizer *tokenizer, bool added_tokens,
                             int64_t T, ps_labels *labels, ps_sample_set **out)
{
    PS_ASSERT(T >= 1 && T <= INT32_MAX && keys->label != NULL);
    *out = NULL;
    ps_status st;
    ps_jsonl *lines = NULL;
    sample_reader r = {.path = path,
                       .tokenizer = tokenizer,
                       .added_tokens = added_tokens,
                       .T = T,
                       .labels = labels,
                       .is_collecting = !labels->is_fixed};
    PS_TRY(ps_mem_alloc(1, sizeof *r.set, &r.set));
    PS_TRY_GOTO(ps_jsonl_open(path, keys, &lines));
    for (;;) {
        ps_jsonl_record record;
        bool has_record;
        PS_TRY_GOTO(ps_jsonl_next(lines, &record, &has_record));
        if (!has_record) break;
        PS_TRY_GOTO(append(&r, &record));
    }
    PS_TRY_GOTO(fix_labels(&r));
    *out = r.set;
    r.set = NULL;
out:
    ps_jsonl_close(lines);
    ps_sample_set_close(r.set);
    return st;
}

void ps_sample_set_close(ps_sample_set *s)
{
    if (s == NULL) return;
    ps_mem_free(s->ids);
    ps_mem_free(s->entries);
    ps_mem_free(s);
}

int64_t ps_sample_set_count(const ps_sample_set *s)
{
    return s->n;
}

bool ps_sample_set_has_pairs(const ps_sample_set *s)
{
    return s->has_pairs;
}

ps_sample ps_sample_set_get(const ps_sample_set *s, int64_t i)
{
    PS_ASSERT(i >= 0 && i < s->n);
    const sample_entry *e = &s->entries[i];
    const int64_t end = i + 1 < s->n ? e[1].first : s->n_ids;
    return (ps_sample){.ids = s->ids + e->first, .n_ids = end - e->first, .n_first = e->n_first, .label = e->label};
}
