#include "data/task_set.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/jsonl.h"
#include "data/sample.h"
#include "data/text_buffer.h"
#include "data/token_offsets.h"

typedef struct task_entry {
    int64_t first_id, first_target, line;
    int64_t question, context_first;
    int32_t n_first, context, context_end; /* of a row: T fits 32 bits */
} task_entry;

typedef struct task_question {
    char *context, **answers;
    int64_t context_bytes, n_answers;
} task_question;

struct ps_task_set {
    ps_task_kind kind;
    int32_t n_values;
    int32_t *ids, *targets;
    float *values;
    task_entry *entries;
    task_question *questions;
    int64_t n_ids, n_targets, n_values_all, n, n_questions;
    bool has_pairs;
};

/* The tokenizer's special tokens before a text, between two, and after; and the type of tokens after the first text. */
typedef struct borders {
    int32_t ids[3][PS_TASK_BORDER_MAX];
    int64_t n[3];
    bool second_has_type;
} borders;

typedef struct task_reader {
    const char *path;
    const ps_task_options *o;
    ps_labels *labels;
    bool is_collecting, has_numbers, has_names;
    borders around; /* of one text for words, of a pair for answers */
    ps_task_set *set;
    ps_jsonl *lines;
    ps_text_buffer text;      /* the words of a line */
    char *context;            /* of the last question; its tokens: */
    ps_token_offsets offsets; /* several questions of one context follow each other */
} task_reader;

#define FAIL_AT(r, record, format, ...)                                                                                \
    PS_FAIL(PS_EFORMAT, "%s: line %lld, offset %lld: " format, (r)->path, (long long)(record)->line,                   \
            (long long)(record)->offset, __VA_ARGS__)

/* ---- special tokens around texts ---- */

static int64_t find_ids(const ps_encoding *whole, int64_t from, const ps_encoding *part)
{
    for (int64_t i = from; part->n > 0 && i + part->n <= whole->n; i++)
        if (memcmp(whole->ids + i, part->ids, (size_t)part->n * sizeof *part->ids) == 0) return i;
    return -1;
}

static bool take_border(borders *b, int which, const ps_encoding *whole, int64_t begin, int64_t end)
{
    if (begin < 0 || end < begin || end - begin > PS_TASK_BORDER_MAX) return false;
    b->n[which] = end - begin;
    memcpy(b->ids[which], whole->ids + begin, (size_t)(end - begin) * sizeof *whole->ids);
    return true;
}

/* Determined from the encodings of a letter and of a pair of letters. */
static ps_status find_borders(task_reader *r)
{
    const bool is_pair = r->o->kind == PS_TASK_ANSWERS;
    const ps_encode_options whole_options = {0}, bare_options = {.bare = true};
    ps_encoding whole = {0}, bare = {0};
    ps_status st;
    PS_TRY_GOTO(
        ps_tokenizer_encode_sequence(r->o->tokenizer, &whole_options, "a", 1, is_pair ? "a" : NULL, is_pair, &whole));
    PS_TRY_GOTO(ps_tokenizer_encode_sequence(r->o->tokenizer, &bare_options, "a", 1, NULL, 0, &bare));
    const int64_t first = find_ids(&whole, 0, &bare);
    const int64_t second = is_pair && first >= 0 ? find_ids(&whole, first + bare.n, &bare) : first;
    bool is_found = take_border(&r->around, 0, &whole, first >= 0 ? 0 : -1, first);
    if (is_pair && is_found) is_found = take_border(&r->around, 1, &whole, first + bare.n, second);
    if (is_found) is_found = take_border(&r->around, 2, &whole, second + bare.n, whole.n);
    if (!is_found) {
        st = PS_FAIL(PS_EINVAL, "%s: the special tokens that the tokenizer adds to %s cannot be determined", r->path,
                     is_pair ? "a pair of texts" : "a text");
        goto out;
    }
    r->around.second_has_type = is_pair && whole.type_ids[second] == 1;
out:
    ps_encoding_deinit(&whole);
    ps_encoding_deinit(&bare);
    return st;
}

/* ---- labels ---- */

static ps_status find_name(task_reader *r, const ps_jsonl_record *at, const json_t *name, int32_t *label)
{
    ps_labels *l = r->labels;
    const char *text = json_string_value(name);
    const int64_t n_bytes = (int64_t)json_string_length(name);
    const int width = (int)ps_min_i64(n_bytes, 80);
    if (memchr(text, '\0', (size_t)n_bytes) != NULL || n_bytes == 0)
        return FAIL_AT(r, at, "the label '%.*s' is empty, or has a zero byte", width, text);
    *label = ps_labels_find(l, text, n_bytes);
    if (*label >= 0) return PS_OK;
    if (!r->is_collecting) {
        char known[400];
        return FAIL_AT(
            r, at,
            "the label '%.*s' is none of the classes %s; correct it, or name the classes, in their order, by "
            "data.labels",
            width, text, ps_label_list_describe(&l->list, known, sizeof known));
    }
    if (l->list.n == l->n_max)
        return FAIL_AT(r, at, "the label '%.*s' is one more than the model's %d classes", width, text, l->n_max);
    *label = l->list.n;
    return ps_labels_add(l, text, n_bytes);
}

static ps_status note_form(task_reader *r, const ps_jsonl_record *at, bool is_name)
{
    if (r->is_collecting && (is_name ? r->has_numbers : r->has_names))
        return FAIL_AT(r, at, "the label is %s, but those before it are %s; use one kind, or give data.labels",
                       is_name ? "a name" : "a number", is_name ? "numbers" : "names");
    r->has_numbers |= !is_name;
    r->has_names |= is_name;
    return PS_OK;
}

/* Names are numbered in the order of the file until all are known. */
static ps_status fix_labels(task_reader *r)
{
    ps_task_set *s = r->set;
    const int32_t n = r->labels->list.n;
    int32_t *new_id = NULL;
    float *row = NULL;
    ps_status st;
    if (!r->is_collecting) return PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *new_id, &new_id));
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_values, sizeof *row, &row));
    ps_labels_fix(r->labels, new_id);
    for (int64_t i = 0; r->has_names && i < s->n_targets; i++)
        if (s->targets[i] >= 0) s->targets[i] = new_id[s->targets[i]];
    for (int64_t i = 0; r->has_names && i < s->n_values_all; i += s->n_values) {
        memcpy(row, s->values + i, (size_t)s->n_values * sizeof *row);
        for (int32_t k = 0; k < n; k++) s->values[i + new_id[k]] = row[k];
    }
out:
    ps_mem_free(new_id);
    ps_mem_free(row);
    return st;
}

/* ---- texts with numbers or labels ---- */

static ps_status take_number(task_reader *r, const ps_jsonl_record *at, const json_t *json, float *out)
{
    const double number = json_number_value(json);
    if (!json_is_number(json) || !(fabs(number) <= 1e30))
        return ps_jsonl_fail_key(r->lines, at, r->o->label_key, json, "numbers");
    *out = (float)number;
    return PS_OK;
}

static ps_status take_numbers(task_reader *r, const ps_jsonl_record *at, const json_t *label, float *out)
{
    if (!json_is_array(label)) {
        if (r->o->n_values != 1)
            return ps_jsonl_fail_key(r->lines, at, r->o->label_key, label, "an array of model.num_labels numbers");
        return take_number(r, at, label, out);
    }
    if ((int64_t)json_array_size(label) != r->o->n_values)
        return FAIL_AT(r, at, "\"%s\" has %zu numbers, the model has %d", r->o->label_key, json_array_size(label),
                       r->o->n_values);
    for (int32_t i = 0; i < r->o->n_values; i++) PS_TRY(take_number(r, at, json_array_get(label, (size_t)i), &out[i]));
    return PS_OK;
}

static ps_status take_labels(task_reader *r, const ps_jsonl_record *at, const json_t *label, float *out)
{
    const bool is_array = json_is_array(label),
               has_names = json_is_string(label) || json_is_string(json_array_get(label, 0));
    const size_t n = is_array ? json_array_size(label) : 1;
    for (int32_t i = 0; i < r->o->n_values; i++) out[i] = 0;
    if (is_array && n == 0) return PS_OK; /* none of the classes */
    if (!is_array && !has_names)
        return ps_jsonl_fail_key(r->lines, at, r->o->label_key, label,
                                 "an array of names, or of 0 and 1 for each class");
    PS_TRY(note_form(r, at, has_names));
    if (!has_names) {
        PS_TRY(take_numbers(r, at, label, out));
        for (int32_t i = 0; i < r->o->n_values; i++)
            if (!(out[i] >= 0 && out[i] <= 1))
                return FAIL_AT(r, at, "\"%s\"[%d] is %g, expected 0 to 1", r->o->label_key, i, (double)out[i]);
        return PS_OK;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *name = is_array ? json_array_get(label, i) : label;
        int32_t class = 0;
        if (!json_is_string(name)) return ps_jsonl_fail_key(r->lines, at, r->o->label_key, name, "names only");
        PS_TRY(find_name(r, at, name, &class));
        out[class] = 1;
    }
    return PS_OK;
}

static ps_status begin_entry(task_reader *r, const ps_jsonl_record *at, int64_t n_ids)
{
    ps_task_set *s = r->set;
    PS_TRY(ps_mem_reserve(&s->ids, (size_t)(s->n_ids + n_ids), sizeof *s->ids));
    PS_TRY(ps_mem_reserve(&s->entries, (size_t)s->n + 1, sizeof *s->entries));
    s->entries[s->n] = (task_entry){.first_id = s->n_ids, .first_target = s->n_targets, .line = at->line};
    return PS_OK;
}

static ps_status append_text(task_reader *r, const ps_jsonl_record *at, const json_t *root)
{
    const ps_task_options *o = r->o;
    ps_task_set *s = r->set;
    const json_t *text = json_object_get(root, o->text_key), *pair = json_object_get(root, o->text_pair_key);
    const json_t *label = json_object_get(root, o->label_key);
    int64_t n_ids, n_first;
    if (!json_is_string(text)) return ps_jsonl_fail_key(r->lines, at, o->text_key, text, "a string");
    if (pair != NULL && !json_is_string(pair) && !json_is_null(pair))
        return ps_jsonl_fail_key(r->lines, at, o->text_pair_key, pair, "a string or nothing");
    PS_TRY(begin_entry(r, at, o->T));
    PS_TRY(ps_mem_reserve(&s->values, (size_t)(s->n_values_all + o->n_values), sizeof *s->values));
    float *const values = s->values + s->n_values_all;
    PS_TRY(o->kind == PS_TASK_NUMBERS ? take_numbers(r, at, label, values) : take_labels(r, at, label, values));
    PS_TRY(ps_sample_encode(o->tokenizer, o->added_tokens, json_string_value(text), (int64_t)json_string_length(text),
                            json_string_value(pair), (int64_t)json_string_length(pair), o->T, s->ids + s->n_ids, &n_ids,
                            &n_first));
    if (n_ids == 0) return FAIL_AT(r, at, "%s", "the text is empty: no token to look at");
    s->entries[s->n++].n_first = (int32_t)n_first;
    s->n_ids += n_ids;
    s->n_values_all += o->n_values;
    s->has_pairs |= n_first < n_ids;
    return PS_OK;
}

/* ---- words ---- */

static const json_t *labels_of_words(const task_reader *r, const json_t *root, const char **key)
{
    const char *const keys[] = {r->o->label_key, "labels", "ner_tags"};
    for (size_t i = 0; i < PS_ARRAY_LEN(keys); i++) {
        *key = keys[i];
        if (json_object_get(root, *key) != NULL) return json_object_get(root, *key);
    }
    *key = "labels";
    return NULL;
}

static ps_status take_word_label(task_reader *r, const ps_jsonl_record *at, const char *key, const json_t *json,
                                 int32_t *out)
{
    const bool is_name = json_is_string(json);
    if (!is_name && !json_is_integer(json)) return ps_jsonl_fail_key(r->lines, at, key, json, "integers or names");
    if (!is_name && json_integer_value(json) == PS_IGNORE_INDEX) {
        *out = PS_IGNORE_INDEX;
        return PS_OK;
    }
    PS_TRY(note_form(r, at, is_name));
    if (is_name) return find_name(r, at, json, out);
    const json_int_t label = json_integer_value(json);
    if (label < 0 || label >= r->labels->n_max)
        return FAIL_AT(r, at, "label %lld, expected 0 to %d", (long long)label, r->labels->n_max - 1);
    *out = (int32_t)label;
    return PS_OK;
}

/* Join the words by spaces; ends[i] is the beginning of word i + 1. */
static ps_status join_words(task_reader *r, const ps_jsonl_record *at, const json_t *words, int64_t *ends)
{
    r->text.n = 0;
    for (size_t i = 0; i < json_array_size(words); i++) {
        const json_t *word = json_array_get(words, i);
        if (!json_is_string(word)) return ps_jsonl_fail_key(r->lines, at, "tokens", word, "strings");
        if (i > 0) PS_TRY(ps_text_append(&r->text, " ", 1));
        PS_TRY(ps_text_append(&r->text, json_string_value(word), (int64_t)json_string_length(word)));
        ends[i] = r->text.n + 1;
    }
    return PS_OK;
}

/* The first token of a word has its label. Words that do not fit are dropped. */
static ps_status put_words(task_reader *r, const ps_token_offsets *t, const int64_t *ends, const int32_t *labels)
{
    ps_task_set *s = r->set;
    const borders *b = &r->around;
    const int64_t n = ps_min_i64(t->n, r->o->T - b->n[0] - b->n[2]);
    int32_t *const ids = s->ids + s->n_ids, *const targets = s->targets + s->n_targets;
    int64_t word = 0, last = -1, at = 0;
    for (int64_t i = 0; i < b->n[0]; i++, at++) ids[at] = b->ids[0][i], targets[at] = PS_IGNORE_INDEX;
    for (int64_t i = 0; i < n; i++, at++) {
        while (t->begin[i] >= ends[word]) word++;
        ids[at] = t->ids[i];
        targets[at] = word != last ? labels[word] : PS_IGNORE_INDEX;
        last = word;
    }
    for (int64_t i = 0; i < b->n[2]; i++, at++) ids[at] = b->ids[2][i], targets[at] = PS_IGNORE_INDEX;
    s->entries[s->n++].n_first = (int32_t)at;
    s->n_ids += at;
    s->n_targets += at;
    return PS_OK;
}

static ps_status append_words(task_reader *r, const ps_jsonl_record *at, const json_t *root)
{
    const char *key;
    const json_t *words = json_object_get(root, "tokens"), *given = labels_of_words(r, root, &key);
    const size_t n = json_array_size(words);
    ps_task_set *s = r->set;
    ps_token_offsets t = {0};
    int64_t *ends = NULL;
    int32_t *labels = NULL;
    ps_status st;
    if (!json_is_array(words)) return ps_jsonl_fail_key(r->lines, at, "tokens", words, "an array of words");
    if (!json_is_array(given)) return ps_jsonl_fail_key(r->lines, at, key, given, "an array, of a label for each word");
    if (n != json_array_size(given))
        return FAIL_AT(r, at, "\"tokens\" has %zu words, \"%s\" %zu labels", n, key, json_array_size(given));
    PS_TRY_GOTO(ps_mem_alloc(n, sizeof *ends, &ends));
    PS_TRY_GOTO(ps_mem_alloc(n, sizeof *labels, &labels));
    PS_TRY_GOTO(join_words(r, at, words, ends));
    for (size_t i = 0; i < n; i++) PS_TRY_GOTO(take_word_label(r, at, key, json_array_get(given, i), &labels[i]));
    PS_TRY_GOTO(ps_token_offsets_init(&t, r->o->tokenizer, r->o->added_tokens, r->text.bytes, r->text.n));
    if (t.n == 0) {
        st = FAIL_AT(r, at, "%s", "the words are empty: no token to look at");
        goto out;
    }
    PS_TRY_GOTO(begin_entry(r, at, r->o->T));
    PS_TRY_GOTO(ps_mem_reserve(&s->targets, (size_t)(s->n_targets + r->o->T), sizeof *s->targets));
    PS_TRY_GOTO(put_words(r, &t, ends, labels));
out:
    ps_token_offsets_deinit(&t);
    ps_mem_free(ends);
    ps_mem_free(labels);
    return st;
}

/* ---- answers ---- */

static ps_status keep_question(task_reader *r, const char *context, int64_t context_bytes, const json_t *texts)
{
    ps_task_set *s = r->set;
    PS_TRY(ps_mem_reserve(&s->questions, (size_t)s->n_questions + 1, sizeof *s->questions));
    task_question *q = &s->questions[s->n_questions++];
    *q = (task_question){.context_bytes = context_bytes};
    PS_TRY(ps_mem_alloc((size_t)context_bytes + 1, 1, &q->context));
    memcpy(q->context, context, (size_t)context_bytes);
    PS_TRY(ps_mem_alloc(json_array_size(texts), sizeof *q->answers, (void *)&q->answers));
    for (size_t i = 0; i < json_array_size(texts); i++, q->n_answers++)
        PS_TRY(ps_mem_strdup(json_string_value(json_array_get(texts, i)), &q->answers[i]));
    return PS_OK;
}

/* SQuAD counts characters, the library bytes. -1: the context has fewer. */
static int64_t byte_of_character(const char *text, int64_t n_bytes, int64_t n)
{
    int64_t at = 0;
    for (; n > 0 && at < n_bytes; n--) {
        at++;
        while (at < n_bytes && ((unsigned char)text[at] & 0xC0) == 0x80) at++;
    }
    return n == 0 ? at : -1;
}

/* The bytes of the first answer; *end = 0: there is none. */
static ps_status find_answer(task_reader *r, const ps_jsonl_record *at, const json_t *root, const char *context,
                             int64_t n_bytes, int64_t *begin, int64_t *end)
{
    const json_t *answers = json_object_get(root, "answers");
    const json_t *texts = json_object_get(answers, "text"), *starts = json_object_get(answers, "answer_start");
    *begin = *end = 0;
    if (!json_is_object(answers)) return ps_jsonl_fail_key(r->lines, at, "answers", answers, "an object");
    if (!json_is_array(texts)) return ps_jsonl_fail_key(r->lines, at, "answers.text", texts, "an array of strings");
    for (size_t i = 0; i < json_array_size(texts); i++)
        if (!json_is_string(json_array_get(texts, i)))
            return ps_jsonl_fail_key(r->lines, at, "answers.text", json_array_get(texts, i), "strings");
    if (!json_is_array(starts) || json_array_size(starts) != json_array_size(texts))
        return ps_jsonl_fail_key(r->lines, at, "answers.answer_start", starts, "an array with a place for each text");
    PS_TRY(keep_question(r, context, n_bytes, texts));
    if (json_array_size(texts) == 0) return PS_OK;
    const json_t *text = json_array_get(texts, 0), *start = json_array_get(starts, 0);
    const int64_t n = (int64_t)json_string_length(text);
    const int64_t from = json_is_integer(start) && json_integer_value(start) >= 0
                             ? byte_of_character(context, n_bytes, (int64_t)json_integer_value(start))
                             : -1;
    if (from < 0 || n == 0 || from + n > n_bytes || memcmp(context + from, json_string_value(text), (size_t)n) != 0)
        return FAIL_AT(r, at, "the context does not have the answer '%.*s' where answer_start says",
                       (int)ps_min_i64(n, 80), json_string_value(text));
    *begin = from;
    *end = from + n;
    return PS_OK;
}

/* Tokens [*first, *last] of the context are those that overlap the bytes [begin, end). */
static void tokens_of(const ps_token_offsets *t, int64_t begin, int64_t end, int64_t *first, int64_t *last)
{
    *first = *last = -1;
    for (int64_t i = 0; i < t->n; i++) {
        if (t->end[i] <= begin || t->begin[i] >= end) continue;
        if (*first < 0) *first = i;
        *last = i;
    }
}

typedef struct window {
    const int32_t *question;
    int64_t n_question, first, n; /* tokens of the context */
    int64_t answer_first, answer_last;
} window;

static ps_status put_window(task_reader *r, const ps_jsonl_record *at, const window *w)
{
    const borders *b = &r->around;
    ps_task_set *s = r->set;
    PS_TRY(begin_entry(r, at, r->o->T));
    PS_TRY(ps_mem_reserve(&s->targets, (size_t)s->n_targets + 2, sizeof *s->targets));
    task_entry *e = &s->entries[s->n];
    int32_t *ids = s->ids + s->n_ids;
    const int64_t front = b->n[0] + w->n_question + b->n[1], n = front + w->n + b->n[2];
    memcpy(ids, b->ids[0], (size_t)b->n[0] * sizeof *ids);
    memcpy(ids + b->n[0], w->question, (size_t)w->n_question * sizeof *ids);
    memcpy(ids + b->n[0] + w->n_question, b->ids[1], (size_t)b->n[1] * sizeof *ids);
    memcpy(ids + front, r->offsets.ids + w->first, (size_t)w->n * sizeof *ids);
    memcpy(ids + front + w->n, b->ids[2], (size_t)b->n[2] * sizeof *ids);
    const bool has_answer = w->answer_first >= w->first && w->answer_last < w->first + w->n && w->answer_first >= 0;
    s->targets[s->n_targets++] = has_answer ? (int32_t)(front + w->answer_first - w->first) : 0;
    s->targets[s->n_targets++] = has_answer ? (int32_t)(front + w->answer_last - w->first) : 0;
    e->n_first = (int32_t)(b->second_has_type ? front : n);
    e->question = s->n_questions - 1;
    e->context = (int32_t)front;
    e->context_end = (int32_t)(front + w->n);
    e->context_first = w->first;
    s->n_ids += n;
    s->n++;
    s->has_pairs |= b->second_has_type;
    return PS_OK;
}

static ps_status put_windows(task_reader *r, const ps_jsonl_record *at, const ps_encoding *question, int64_t begin,
                             int64_t end)
{
    const borders *b = &r->around;
    window w = {.question = question->ids, .n_question = question->n};
    const int64_t room = r->o->T - question->n - b->n[0] - b->n[1] - b->n[2];
    if (room <= r->o->doc_stride && room < r->offsets.n)
        return PS_FAIL(PS_EINVAL,
                       "%s: line %lld: next to a question of %lld tokens a row has room for %lld of the context, and "
                       "data.doc_stride = %lld of them repeat; give a longer data.sequence_length or a smaller "
                       "data.doc_stride",
                       r->path, (long long)at->line, (long long)question->n, (long long)room,
                       (long long)r->o->doc_stride);
    if (room < 1)
        return PS_FAIL(PS_EINVAL, "%s: line %lld: a question of %lld tokens leaves no room for its context", r->path,
                       (long long)at->line, (long long)question->n);
    tokens_of(&r->offsets, begin, end, &w.answer_first, &w.answer_last);
    do {
        w.n = ps_min_i64(room, r->offsets.n - w.first);
        PS_TRY(put_window(r, at, &w));
        w.first += w.n - r->o->doc_stride;
    } while (w.first + r->o->doc_stride < r->offsets.n);
    return PS_OK;
}

/* Questions of one context are usually consecutive. */
static ps_status take_context(task_reader *r, const json_t *context)
{
    const char *text = json_string_value(context);
    if (r->context != NULL && strcmp(r->context, text) == 0) return PS_OK;
    ps_mem_free(r->context);
    r->context = NULL;
    ps_token_offsets_deinit(&r->offsets);
    PS_TRY(ps_token_offsets_init(&r->offsets, r->o->tokenizer, r->o->added_tokens, text,
                                 (int64_t)json_string_length(context)));
    return ps_mem_strdup(text, &r->context);
}

static ps_status append_question(task_reader *r, const ps_jsonl_record *at, const json_t *root)
{
    const json_t *question = json_object_get(root, "question"), *context = json_object_get(root, "context");
    const ps_encode_options options = {.added_tokens = r->o->added_tokens, .bare = true};
    ps_encoding q = {0};
    int64_t begin, end;
    if (!json_is_string(question)) return ps_jsonl_fail_key(r->lines, at, "question", question, "a string");
    if (!json_is_string(context)) return ps_jsonl_fail_key(r->lines, at, "context", context, "a string");
    const int64_t n_bytes = (int64_t)json_string_length(context);
    if (memchr(json_string_value(context), '\0', (size_t)n_bytes) != NULL)
        return FAIL_AT(r, at, "%s", "the context has a zero byte");
    PS_TRY(find_answer(r, at, root, json_string_value(context), n_bytes, &begin, &end));
    PS_TRY(take_context(r, context));
    if (r->offsets.n == 0) return FAIL_AT(r, at, "%s", "the context is empty: no token to look at");
    PS_TRY(ps_tokenizer_encode_sequence(r->o->tokenizer, &options, json_string_value(question),
                                        (int64_t)json_string_length(question), NULL, 0, &q));
    const ps_status st = put_windows(r, at, &q, begin, end);
    ps_encoding_deinit(&q);
    return st;
}

/* ---- all lines ---- */

static ps_status append(task_reader *r, const ps_jsonl_record *at, const json_t *root)
{
    switch (r->o->kind) {
    case PS_TASK_NUMBERS:
    case PS_TASK_LABELS: return append_text(r, at, root);
    case PS_TASK_WORDS: return append_words(r, at, root);
    case PS_TASK_ANSWERS: break;
    }
    return append_question(r, at, root);
}

static ps_status read_lines(task_reader *r)
{
    const bool has_borders = r->o->kind == PS_TASK_WORDS || r->o->kind == PS_TASK_ANSWERS;
    if (has_borders) PS_TRY(find_borders(r));
    if (r->o->T < r->around.n[0] + r->around.n[1] + r->around.n[2] + 1)
        return PS_FAIL(PS_EINVAL, "a sequence length of %lld leaves no room between the special tokens",
                       (long long)r->o->T);
    for (;;) {
        ps_jsonl_record record;
        json_t *root;
        bool has_record;
        PS_TRY(ps_jsonl_next_object(r->lines, &record, &root, &has_record));
        if (!has_record) return PS_OK;
        PS_TRY(append(r, &record, root));
    }
}

ps_status ps_task_set_open(const char *path, const ps_task_options *options, ps_labels *labels, ps_task_set **out)
{
    const bool has_labels = options->kind == PS_TASK_LABELS || options->kind == PS_TASK_WORDS;
    task_reader r = {.path = path, .o = options, .labels = labels, .is_collecting = has_labels && !labels->is_fixed};
    ps_status st;
    PS_ASSERT(options->T >= 1 && options->T <= INT32_MAX);
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r.set, &r.set));
    r.set->kind = options->kind;
    r.set->n_values = options->kind <= PS_TASK_LABELS ? options->n_values : 0;
    PS_TRY_GOTO(ps_jsonl_open(path, NULL, &r.lines));
    PS_TRY_GOTO(read_lines(&r));
    PS_TRY_GOTO(fix_labels(&r));
    *out = r.set;
    r.set = NULL;
out:
    ps_jsonl_close(r.lines);
    ps_task_set_close(r.set);
    ps_token_offsets_deinit(&r.offsets);
    ps_mem_free(r.context);
    ps_mem_free(r.text.bytes);
    return st;
}

void ps_task_set_close(ps_task_set *s)
{
    if (s == NULL) return;
    for (int64_t i = 0; i < s->n_questions; i++) {
        ps_mem_free(s->questions[i].context);
        for (int64_t k = 0; k < s->questions[i].n_answers; k++) ps_mem_free(s->questions[i].answers[k]);
        ps_mem_free(s->questions[i].answers);
    }
    ps_mem_free(s->questions);
    ps_mem_free(s->ids);
    ps_mem_free(s->targets);
    ps_mem_free(s->values);
    ps_mem_free(s->entries);
    ps_mem_free(s);
}

int64_t ps_task_set_count(const ps_task_set *s)
{
    return s->n;
}

bool ps_task_set_has_pairs(const ps_task_set *s)
{
    return s->has_pairs;
}

ps_task_sample ps_task_set_get(const ps_task_set *s, int64_t i)
{
    PS_ASSERT(i >= 0 && i < s->n);
    const task_entry *e = &s->entries[i];
    const int64_t end = i + 1 < s->n ? e[1].first_id : s->n_ids;
    return (ps_task_sample){.ids = s->ids + e->first_id,
                            .n_ids = end - e->first_id,
                            .n_first = e->n_first,
                            .values = s->values != NULL ? s->values + i * s->n_values : NULL,
                            .targets = s->targets != NULL ? s->targets + e->first_target : NULL,
                            .line = e->line,
                            .question = e->question,
                            .context = e->context,
                            .context_end = e->context_end,
                            .context_first = e->context_first};
}

int64_t ps_task_set_question_count(const ps_task_set *s)
{
    return s->n_questions;
}

ps_task_question ps_task_set_question(const ps_task_set *s, int64_t i)
{
    PS_ASSERT(i >= 0 && i < s->n_questions);
    const task_question *q = &s->questions[i];
    return (ps_task_question){.context = q->context,
                              .context_bytes = q->context_bytes,
                              .answers = (const char *const *)q->answers,
                              .n_answers = q->n_answers};
}
