/* log_read.c - metrics.jsonl into memory; what it says is checked before it is used. */
#include "api/report/log_read.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"

#define METRICS_BYTES_MAX (512 * PS_MIB)
#define STEP_MAX ((int64_t)1 << 53) /* exact in the page's numbers */
#define FIRST_BYTES 4096            /* enough for the keys of a first line */

const char *const ps_report_log_keys[PS_REPORT_LOG_N] = {
#define XX(value, key) [value] = key,
    PS_REPORT_LOG_MAP(XX)
#undef XX
};

typedef struct reader {
    const char *path;
    int64_t line;
    ps_report_log *m;
} reader;

/* ---- which file ---- */

/* {"step":1, as the first bytes of an object that is not a profile's. */
static bool begins_with_step(const char *text)
{
    static const char *const parts[] = {"{", "\"step\"", ":"};
    for (size_t i = 0; i < PS_ARRAY_LEN(parts); i++) {
        text += strspn(text, " \t\r\n");
        if (strncmp(text, parts[i], strlen(parts[i])) != 0) return false;
        text += strlen(parts[i]);
    }
    return true;
}

ps_status ps_report_log_find(const char *path, char **out)
{
    ps_status st = PS_OK;
    ps_file *file = NULL;
    char *in_folder = NULL, first[FIRST_BYTES + 1] = "";
    *out = NULL;
    if (ps_folder_exists(path)) {
        PS_TRY(ps_folder_join(path, "metrics.jsonl", &in_folder));
        if (ps_file_exists(in_folder)) {
            *out = in_folder;
            return PS_OK;
        }
        ps_mem_free(in_folder);
        return PS_FAIL(PS_EIO,
                       "%s: there is no metrics.jsonl in this folder: name the train.output_dir of a run that has made "
                       "a step, or a profile",
                       path);
    }
    PS_TRY(ps_file_open(path, &file));
    PS_TRY_GOTO(ps_file_read(file, 0, first, ps_min_i64(ps_file_bytes(file), FIRST_BYTES)));
    if (begins_with_step(first)) st = ps_mem_strdup(path, out);
out:
    ps_file_close(file);
    return st;
}

/* ---- values ---- */

static ps_status unexpected(const reader *r, const char *key, const char *expected)
{
    return PS_FAIL(PS_EFORMAT, "%s:%lld: \"%s\": expected %s; is this the metrics.jsonl of a run?", r->path,
                   (long long)r->line, key, expected);
}

/* A number, or NaN where it is missing or null. */
static ps_status read_number(const reader *r, const json_t *object, const char *key, double *out)
{
    const json_t *json = json_object_get(object, key);
    *out = NAN;
    if (json == NULL || json_is_null(json)) return PS_OK;
    if (!json_is_number(json)) return unexpected(r, key, "a number or null");
    *out = json_number_value(json);
    return PS_OK;
}

static ps_status read_step_number(const reader *r, const json_t *object, int64_t *out)
{
    const json_t *json = json_object_get(object, "step");
    *out = (int64_t)json_integer_value(json);
    if (!json_is_integer(json) || *out < 1 || *out > STEP_MAX)
        return unexpected(r, "step", "an integer from 1 to 2^53");
    return PS_OK;
}

/* The largest number of the ranks takes the place of rank 0's. */
static ps_status read_ranks(const reader *r, const json_t *ranks, ps_report_log_step *s)
{
    if (ranks == NULL) return PS_OK;
    if (!json_is_array(ranks) || json_array_size(ranks) > INT32_MAX) return unexpected(r, "ranks", "an array");
    r->m->n_ranks = (int32_t)ps_max_i64(r->m->n_ranks, (int64_t)json_array_size(ranks));
    for (size_t i = 0; i < json_array_size(ranks); i++)
        for (int k = PS_REPORT_LOG_DEVICE_BYTES; k <= PS_REPORT_LOG_DISK_BYTES; k++) {
            double value;
            PS_TRY(read_number(r, json_array_get(ranks, i), ps_report_log_keys[k], &value));
            if (!(value <= s->values[k]) && !isnan(value)) s->values[k] = value;
        }
    return PS_OK;
}

static ps_status read_bool(const reader *r, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL && !json_is_boolean(value)) return unexpected(r, key, "true or false");
    *out = json_is_true(value);
    return PS_OK;
}

static ps_status read_step(reader *r, const json_t *object)
{
    ps_report_log *m = r->m;
    PS_TRY(ps_mem_reserve(&m->steps, (size_t)m->n_steps + 1, sizeof *m->steps));
    ps_report_log_step *s = &m->steps[m->n_steps];
    *s = (ps_report_log_step){0};
    PS_TRY(read_step_number(r, object, &s->step));
    if (m->n_steps > 0 && s->step <= s[-1].step)
        return PS_FAIL(PS_EFORMAT, "%s:%lld: step %lld follows step %lld; expected a larger number", r->path,
                       (long long)r->line, (long long)s->step, (long long)s[-1].step);
    for (int k = 0; k < PS_REPORT_LOG_N; k++) PS_TRY(read_number(r, object, ps_report_log_keys[k], &s->values[k]));
    PS_TRY(read_bool(r, object, "skipped", &s->is_skipped));
    PS_TRY(read_bool(r, object, "taken_back", &s->is_taken_back));
    PS_TRY(read_ranks(r, json_object_get(object, "ranks"), s));
    m->n_steps++;
    return PS_OK;
}

static ps_status read_save(reader *r, const json_t *object, const char *key)
{
    ps_report_log *m = r->m;
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL) return unexpected(r, key, "a string");
    PS_TRY(ps_mem_reserve(&m->saves, (size_t)m->n_saves + 1, sizeof *m->saves));
    ps_report_log_save *s = &m->saves[m->n_saves];
    *s = (ps_report_log_save){0};
    PS_TRY(read_step_number(r, object, &s->step));
    PS_TRY(read_number(r, object, "bytes", &s->bytes));
    PS_TRY(read_number(r, object, "seconds", &s->seconds));
    PS_TRY(read_number(r, object, "stall_s", &s->stall_seconds));
    PS_TRY(ps_mem_strdup(text, strcmp(key, "checkpoint") == 0 ? &s->name : &s->error));
    m->n_saves++;
    return PS_OK;
}

/* ---- lines ---- */

/* is_cut: the line has no end. */
static ps_status read_line(reader *r, const char *line, size_t n_bytes, bool is_cut)
{
    json_error_t error;
    ps_status st = PS_OK;
    json_t *object = json_loadb(line, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL && is_cut) return PS_OK;
    if (object == NULL)
        return PS_FAIL(PS_EFORMAT, "%s:%lld:%d: no JSON: %s", r->path, (long long)r->line, error.column, error.text);
    if (json_object_get(object, "loss") != NULL)
        st = read_step(r, object);
    else if (json_object_get(object, "checkpoint") != NULL)
        st = read_save(r, object, "checkpoint");
    else if (json_object_get(object, "checkpoint_error") != NULL)
        st = read_save(r, object, "checkpoint_error");
    json_decref(object);
    return st;
}

static ps_status read_lines(reader *r, const char *text, int64_t n_bytes)
{
    for (const char *line = text, *end = text + n_bytes; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline != NULL ? newline + 1 : end;
        const size_t n = (size_t)((newline != NULL ? newline : end) - line);
        r->line++;
        if (n > strspn(line, " \t\r")) PS_TRY(read_line(r, line, n, newline == NULL));
        line = next;
    }
    if (r->m->n_steps > 0) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: there is no step in this file; is it the metrics.jsonl of a run?", r->path);
}

ps_status ps_report_log_read(const char *path, ps_report_log **out)
{
    ps_status st = PS_OK;
    reader r = {.path = path};
    char *text = NULL;
    int64_t n_bytes = 0;
    *out = NULL;
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *r.m, &r.m));
    r.m->n_ranks = 1;
    PS_TRY_GOTO(strchr(path, '/') != NULL ? ps_folder_of(path, &r.m->title) : ps_mem_strdup(path, &r.m->title));
    PS_TRY_GOTO(ps_file_read_all(path, METRICS_BYTES_MAX, &text, &n_bytes));
    PS_TRY_GOTO(read_lines(&r, text, n_bytes));
    *out = r.m;
    r.m = NULL;
out:
    ps_mem_free(text);
    ps_report_log_destroy(r.m);
    return st;
}

void ps_report_log_destroy(ps_report_log *m)
{
    if (m == NULL) return;
    for (int64_t i = 0; i < m->n_saves; i++) {
        ps_mem_free(m->saves[i].name);
        ps_mem_free(m->saves[i].error);
    }
    ps_mem_free(m->saves);
    ps_mem_free(m->steps);
    ps_mem_free(m->title);
    ps_mem_free(m);
}
