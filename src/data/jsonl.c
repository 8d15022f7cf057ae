#include "data/jsonl.h"

#include <jansson.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "config/json_tolerant.h"
#include "data/byte_source.h"

#define BUFFER_BYTES (64 * PS_KIB) /* to begin with */
#define LINE_BYTES_MAX (256 * PS_MIB)
#define BYTE_ORDER_MARK "\xEF\xBB\xBF"

/*     offset 0                text_at - (end - begin)    text_at
 *     |--- lines returned  ---|--- buffer[begin..end) ---|--- not yet read ---| */
struct ps_jsonl {
    ps_byte_source *source;
    ps_jsonl_keys keys;
    char *buffer;
    int64_t capacity, begin, end;
    int64_t text_at, n_lines, n_records;
    bool is_at_end; /* of the source */
    json_t *root;   /* of the last record, whose strings it owns */
};

ps_status ps_jsonl_open(const char *path, const ps_jsonl_keys *keys, ps_jsonl **out)
{
    *out = NULL;
    ps_status st;
    ps_jsonl *r = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    if (keys != NULL) r->keys = *keys;
    PS_TRY_GOTO(ps_byte_source_open(path, &r->source));
    PS_TRY_GOTO(ps_mem_alloc((size_t)BUFFER_BYTES, 1, &r->buffer));
    r->capacity = BUFFER_BYTES;
    *out = r;
    r = NULL;
out:
    ps_jsonl_close(r);
    return st;
}

void ps_jsonl_close(ps_jsonl *r)
{
    if (r == NULL) return;
    json_decref(r->root);
    ps_mem_free(r->buffer);
    ps_byte_source_close(r->source);
    ps_mem_free(r);
}

/* ---- lines ---- */

/* Read more bytes after `end`, or find that there are none. */
static ps_status fill_buffer(ps_jsonl *r)
{
    if (r->begin > 0) {
        memmove(r->buffer, r->buffer + r->begin, (size_t)(r->end - r->begin));
        r->end -= r->begin;
        r->begin = 0;
    }
    if (r->end == r->capacity) {
        if (r->capacity >= LINE_BYTES_MAX)
            return PS_FAIL(PS_EFORMAT, "%s: line %lld, offset %lld: longer than %lld bytes",
                           ps_byte_source_path(r->source), (long long)r->n_lines + 1, (long long)(r->text_at - r->end),
                           (long long)LINE_BYTES_MAX);
        PS_TRY(ps_mem_reserve(&r->buffer, (size_t)ps_min_i64(r->capacity * 2, LINE_BYTES_MAX), 1));
        r->capacity = (int64_t)ps_mem_bytes(r->buffer);
    }
    int64_t n;
    PS_TRY(ps_byte_source_read(r->source, r->buffer + r->end, r->capacity - r->end, &n));
    r->end += n;
    r->text_at += n;
    r->is_at_end = n == 0;
    return PS_OK;
}

/* The next line without its end, or *line = NULL when there is none. */
static ps_status read_line(ps_jsonl *r, const char **line, int64_t *n_bytes, int64_t *offset)
{
    int64_t scanned = 0;
    const char *newline = NULL;
    *line = NULL;
    for (;;) {
        newline = memchr(r->buffer + r->begin + scanned, '\n', (size_t)(r->end - r->begin - scanned));
        scanned = r->end - r->begin;
        if (newline != NULL || r->is_at_end) break;
        PS_TRY(fill_buffer(r));
    }
    if (scanned == 0) return PS_OK;
    *line = r->buffer + r->begin;
    *n_bytes = newline != NULL ? newline - *line : scanned;
    *offset = r->text_at - scanned;
    r->begin += *n_bytes + (newline != NULL);
    r->n_lines++;
    return PS_OK;
}

static bool is_blank(const char *line, int64_t n_bytes)
{
    for (int64_t i = 0; i < n_bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

/* ---- records ---- */

const char *ps_jsonl_type_name(const json_t *value)
{
    static const char *const names[] = {[JSON_OBJECT] = "an object",
                                        [JSON_ARRAY] = "an array",
                                        [JSON_STRING] = "a string",
                                        [JSON_INTEGER] = "an integer",
                                        [JSON_REAL] = "a number with a fraction or out of range",
                                        [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false",
                                        [JSON_NULL] = "null"};
    return value == NULL ? "missing" : names[json_typeof(value)];
}

ps_status ps_jsonl_fail_key(const ps_jsonl *r, const ps_jsonl_record *at, const char *key, const json_t *value,
                            const char *expected)
{
    return PS_FAIL(PS_EFORMAT, "%s: line %lld, offset %lld: \"%s\" is %s, expected %s", ps_byte_source_path(r->source),
                   (long long)at->line, (long long)at->offset, key, ps_jsonl_type_name(value), expected);
}

static ps_status parse_line(ps_jsonl *r, const char *line, int64_t n_bytes, const ps_jsonl_record *at)
{
    json_error_t error;
    PS_TRY(ps_json_load_tolerant(line, (size_t)n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &r->root, &error));
    if (json_is_object(r->root)) return PS_OK;
    if (r->root != NULL)
        return PS_FAIL(PS_EFORMAT, "%s: line %lld, offset %lld: the line is %s, expected an object",
                       ps_byte_source_path(r->source), (long long)at->line, (long long)at->offset,
                       ps_jsonl_type_name(r->root));
    const enum json_error_code code = json_error_code(&error);
    const bool is_cut = code == json_error_premature_end_of_input && r->is_at_end && at->offset + n_bytes == r->text_at;
    return PS_FAIL(PS_EFORMAT, "%s: line %lld, offset %lld: %s: %s%s", ps_byte_source_path(r->source),
                   (long long)at->line, (long long)(at->offset + error.position),
                   code == json_error_invalid_utf8 ? "invalid UTF-8" : "no valid JSON", error.text,
                   is_cut ? "; the file ends within this line: is it truncated?" : "");
}

static ps_status take_record(const ps_jsonl *r, ps_jsonl_record *record)
{
    const json_t *text = json_object_get(r->root, r->keys.text), *pair = NULL, *label = NULL;
    if (!json_is_string(text)) return ps_jsonl_fail_key(r, record, r->keys.text, text, "a string");
    record->text = json_string_value(text);
    record->text_bytes = (int64_t)json_string_length(text);
    if (r->keys.text_pair != NULL) pair = json_object_get(r->root, r->keys.text_pair);
    if (json_is_string(pair)) {
        record->text_pair = json_string_value(pair);
        record->text_pair_bytes = (int64_t)json_string_length(pair);
    } else if (pair != NULL && !json_is_null(pair)) {
        return ps_jsonl_fail_key(r, record, r->keys.text_pair, pair, "a string or nothing");
    }
    if (r->keys.label == NULL) return PS_OK;
    label = json_object_get(r->root, r->keys.label);
    if (json_is_integer(label)) {
        record->label = (int64_t)json_integer_value(label);
        return PS_OK;
    }
    if (!json_is_string(label)) return ps_jsonl_fail_key(r, record, r->keys.label, label, "an integer or a string");
    record->label_name = json_string_value(label);
    record->label_name_bytes = (int64_t)json_string_length(label);
    return PS_OK;
}

ps_status ps_jsonl_next_object(ps_jsonl *r, ps_jsonl_record *record, json_t **root, bool *has_record)
{
    const char *line;
    int64_t n_bytes = 0;
    json_decref(r->root);
    *root = r->root = NULL;
    *has_record = false;
    do {
        *record = (ps_jsonl_record){0};
        PS_TRY(read_line(r, &line, &n_bytes, &record->offset));
        if (line == NULL && r->n_records == 0)
            return PS_FAIL(PS_EFORMAT, "%s: line %lld, offset %lld: the file ends without any JSON object",
                           ps_byte_source_path(r->source), (long long)r->n_lines + 1, (long long)r->text_at);
        if (line == NULL) return PS_OK;
        if (record->offset == 0 && n_bytes >= 3 && memcmp(line, BYTE_ORDER_MARK, 3) == 0) {
            line += 3;
            n_bytes -= 3;
            record->offset = 3;
        }
    } while (is_blank(line, n_bytes));
    record->line = r->n_lines;
    PS_TRY(parse_line(r, line, n_bytes, record));
    r->n_records++;
    *root = r->root;
    *has_record = true;
    return PS_OK;
}

ps_status ps_jsonl_next(ps_jsonl *r, ps_jsonl_record *record, bool *has_record)
{
    json_t *root;
    PS_TRY(ps_jsonl_next_object(r, record, &root, has_record));
    if (!*has_record) return PS_OK;
    const ps_status st = take_record(r, record);
    *has_record = st == PS_OK;
    return st;
}
