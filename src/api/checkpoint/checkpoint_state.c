#include "api/checkpoint/checkpoint_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/mem.h"

#define STATE_FORMAT "patrickstar checkpoint"
/* 2: with several ranks, tensors may be stored in pieces. One rank writes files that programs of version 1 can read.
 * 3: with data of a module of another framework in addition to tensors. 4: with compact states of the optimizer.
 * 5: with bf16 ones. 6: without the frozen parameters of an adapter's base. */
#define STATE_VERSION 6
#define STATE_GENERATOR "philox4x32-10"
/* Counters beyond this are damage: their products with batch sizes must fit. */
#define STATE_STEPS_MAX ((int64_t)1 << 40)
#define STATE_BATCH_MAX ((int64_t)1 << 24)

#define SEAL_FORMAT ",\n  \"state_xxh3\": \"%016" PRIx64 "\"\n}\n"
enum { SEAL_BYTES = 39, SEAL_ROOM = 48 };

const char *ps_checkpoint_file_name(ps_checkpoint_part part, int rank, int n_ranks,
                                    char name[PS_CHECKPOINT_FILE_NAME_MAX])
{
    static const char *const kinds[] = {[PS_CHECKPOINT_MODEL] = "model", [PS_CHECKPOINT_OPTIMIZER] = "optimizer"};
    snprintf(name, PS_CHECKPOINT_FILE_NAME_MAX, "%s-%d-of-%d.safetensors", kinds[part], rank, n_ranks);
    return name;
}

const char *ps_checkpoint_extra_name(int rank, int n_ranks, char name[PS_CHECKPOINT_FILE_NAME_MAX])
{
    snprintf(name, PS_CHECKPOINT_FILE_NAME_MAX, "extra-%d-of-%d.pt", rank, n_ranks);
    return name;
}

/* Files for n_ranks, none of them extra; all zero otherwise. */
static ps_status init(ps_checkpoint_state *s, int n_ranks)
{
    *s = (ps_checkpoint_state){.n_ranks = n_ranks};
    PS_TRY(ps_mem_alloc((size_t)n_ranks * PS_CHECKPOINT_PART_COUNT, sizeof *s->files, &s->files));
    PS_TRY(ps_mem_alloc((size_t)n_ranks, sizeof *s->extra, &s->extra));
    for (int i = 0; i < n_ranks; i++) s->extra[i].n_bytes = -1;
    return PS_OK;
}

void ps_checkpoint_state_deinit(ps_checkpoint_state *s)
{
    ps_mem_free(s->files);
    ps_mem_free(s->extra);
    ps_mem_free(s->module_json);
    ps_mem_free(s->caller_json);
    ps_mem_free(s->config_json);
    *s = (ps_checkpoint_state){0};
}

/* ---- creation ---- */

ps_status ps_checkpoint_state_take(ps_checkpoint_state *s, const ps_settings *o, const ps_loss_scaler *scaler,
                                   const char *caller_json)
{
    PS_TRY(init(s, o->ranks.n));
    s->seed = (int64_t)o->seed;
    snprintf(s->dtype, sizeof s->dtype, "%s", ps_dtype_name(o->dtype));
    s->state_format = ps_optimizer_format(&o->optimizer);
    ps_arithmetic_of(o, &s->arithmetic);
    s->scale_is_dynamic = scaler->options.loss_scale == 0;
    s->scale = (double)scaler->scale;
    s->n_clean_steps = scaler->n_clean_steps;
    s->hysteresis_left = scaler->hysteresis_left;
    s->n_skipped_steps = scaler->n_skipped_steps;
    return caller_json != NULL ? ps_mem_strdup(caller_json, &s->caller_json) : PS_OK;
}

ps_status ps_checkpoint_state_restore_scaler(const ps_checkpoint_state *s, ps_loss_scaler *scaler)
{
    const ps_loss_scaler_options *o = &scaler->options;
    scaler->n_skipped_steps = s->n_skipped_steps;
    if (o->loss_scale == 0 && s->scale_is_dynamic) {
        scaler->scale = s->scale < (double)o->min_loss_scale   ? o->min_loss_scale
                        : s->scale > (double)o->max_loss_scale ? o->max_loss_scale
                                                               : (float)s->scale;
        scaler->n_clean_steps = ps_min_i64(s->n_clean_steps, o->loss_scale_window - 1);
        scaler->hysteresis_left = (int)ps_max_i64(1, ps_min_i64(s->hysteresis_left, o->hysteresis));
    }
    return ps_loss_scaler_check(scaler);
}

/* ---- writing ---- */

ps_status ps_checkpoint_state_seal(const char *body, int64_t n_bytes, char **out, int64_t *out_bytes)
{
    char seal[SEAL_ROOM];
    *out = NULL;
    *out_bytes = 0;
    const int n = snprintf(seal, sizeof seal, SEAL_FORMAT, XXH3_64bits(body, (size_t)n_bytes));
    PS_ASSERT(n == SEAL_BYTES);
    PS_TRY(ps_mem_alloc((size_t)(n_bytes + n) + 1, 1, out));
    memcpy(*out, body, (size_t)n_bytes);
    memcpy(*out + n_bytes, seal, (size_t)n);
    *out_bytes = n_bytes + n;
    return PS_OK;
}

/* Parses an object; null for NULL. */
static ps_status parse_object(const char *what, const char *text, json_t **out)
{
    json_error_t error;
    *out = text == NULL ? json_null() : json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL) return PS_FAIL(PS_EINVAL, "%s: line %d: %s", what, error.line, error.text);
    if (text == NULL || json_is_object(*out)) return PS_OK;
    json_decref(*out);
    *out = NULL;
    return PS_FAIL(PS_EINVAL, "%s is not a JSON object", what);
}

static json_t *file_json(const char *name, const ps_checkpoint_file *f)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, f->xxh3);
    return json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)f->n_bytes, "xxh3", hash);
}

static json_t *files_json(const ps_checkpoint_state *s)
{
    json_t *files = json_array();
    for (int i = 0; i < s->n_ranks * PS_CHECKPOINT_PART_COUNT; i++) {
        char name[PS_CHECKPOINT_FILE_NAME_MAX];
        (void)ps_checkpoint_file_name((ps_checkpoint_part)(i % PS_CHECKPOINT_PART_COUNT), i / PS_CHECKPOINT_PART_COUNT,
                                      s->n_ranks, name);
        json_array_append_new(files, file_json(name, &s->files[i]));
    }
    return files;
}

static bool has_extra(const ps_checkpoint_state *s)
{
    for (int i = 0; i < s->n_ranks; i++)
        if (s->extra[i].n_bytes >= 0) return true;
    return false;
}

static json_t *extra_json(const ps_checkpoint_state *s)
{
    json_t *files = json_array();
    for (int i = 0; i < s->n_ranks; i++) {
        char name[PS_CHECKPOINT_FILE_NAME_MAX];
        json_array_append_new(files, s->extra[i].n_bytes < 0
                                         ? json_null()
                                         : file_json(ps_checkpoint_extra_name(i, s->n_ranks, name), &s->extra[i]));
    }
    return files;
}

static int version_of(const ps_checkpoint_state *s)
{
    if (s->has_base) return STATE_VERSION;
    if (s->state_format == PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC) return 5;
    if (s->state_format != PS_CONFIG_STATE_FORMAT_FP32) return 4;
    if (s->module_json != NULL || has_extra(s)) return 3;
    return s->n_ranks > 1 ? 2 : 1;
}

static json_t *numbers_json(const ps_checkpoint_state *s)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH);
    return json_pack("{s:s, s:i, s:s, s:i, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I}, s:{s:s, s:I, s:I}, s:{s:I, s:f},"
                     " s:{s:b, s:f, s:I, s:I, s:I}, s:s, s:s, s:{s:s, s:s, s:s}}",
                     "format", STATE_FORMAT, "version", version_of(s), "program", version, "ranks", s->n_ranks, "steps",
                     (json_int_t)s->steps, "optimizer_steps", (json_int_t)s->optimizer_steps, "micro_batches",
                     (json_int_t)s->micro_batches, "samples", (json_int_t)(s->micro_batches * s->B * s->n_ranks),
                     "batch", "micro_batch_size", (json_int_t)s->B, "sequence_length", (json_int_t)s->T,
                     "accumulation_steps", (json_int_t)s->accumulation, "generator", "kind", STATE_GENERATOR, "seed",
                     (json_int_t)s->seed, "micro_batch", (json_int_t)s->micro_batches, "lr_schedule", "step",
                     (json_int_t)s->optimizer_steps, "learning_rate", s->learning_rate, "loss_scaler", "dynamic",
                     (int)s->scale_is_dynamic, "scale", s->scale, "clean_steps", (json_int_t)s->n_clean_steps,
                     "hysteresis_left", (json_int_t)s->hysteresis_left, "skipped_steps", (json_int_t)s->n_skipped_steps,
                     "dtype", s->dtype, "loss_average", ps_config_loss_average_names[s->loss_average], "arithmetic",
                     "kernels", s->arithmetic.kernels, "attention", s->arithmetic.attention, "reductions",
                     s->arithmetic.reductions);
}

ps_status ps_checkpoint_state_render(const ps_checkpoint_state *s, char **out, int64_t *out_bytes)
{
    *out = NULL;
    *out_bytes = 0;
    ps_status st = PS_OK;
    json_t *caller = NULL, *config = NULL, *module = NULL, *state = NULL;
    char *text = NULL;
    PS_TRY_GOTO(parse_object("the caller's state", s->caller_json, &caller));
    PS_TRY_GOTO(parse_object("the configuration", s->config_json, &config));
    PS_TRY_GOTO(parse_object("the state of a module", s->module_json, &module));
    state = numbers_json(s);
    const char *format = ps_config_state_format_names[s->state_format];
    char base[17];
    snprintf(base, sizeof base, "%016" PRIx64, s->base_xxh3);
    if ((s->has_base && json_object_set_new(state, "base_xxh3", json_string(base)) != 0) ||
        (s->state_format != PS_CONFIG_STATE_FORMAT_FP32 &&
         json_object_set_new(state, "state_format", json_string(format)) != 0) ||
        (s->module_json != NULL && json_object_set(state, "module", module) != 0) ||
        (has_extra(s) && json_object_set_new(state, "extra_files", extra_json(s)) != 0)) {
        st = PS_FAIL(PS_ENOMEM_HOST, "no memory for state.json");
        goto out;
    }
    if (json_object_set_new(state, "files", files_json(s)) == 0 && json_object_set(state, "caller", caller) == 0 &&
        json_object_set(state, "config", config) == 0)
        text = json_dumps(state, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (text == NULL) {
        st = PS_FAIL(PS_ENOMEM_HOST, "no memory for state.json");
        goto out;
    }
    st = ps_checkpoint_state_seal(text, (int64_t)strlen(text) - (int64_t)strlen("\n}"), out, out_bytes);
out:
    free(text);
    json_decref(state);
    json_decref(module);
    json_decref(config);
    json_decref(caller);
    return st;
}

/* ---- reading ---- */

typedef struct state_reader {
    const char *path;
    const json_t *root;
} state_reader;

/* The value at "key" or "object.key". */
static const json_t *get(const state_reader *r, const char *object, const char *key)
{
    return json_object_get(object == NULL ? r->root : json_object_get(r->root, object), key);
}

static ps_status fail_wrong(const state_reader *r, const char *object, const char *key, const char *expected)
{
    return PS_FAIL(PS_EFORMAT, "%s: \"%s%s%s\" is missing or not %s", r->path, object != NULL ? object : "",
                   object != NULL ? "." : "", key, expected);
}

static ps_status read_int(const state_reader *r, const char *object, const char *key, int64_t min, int64_t max,
                          int64_t *out)
{
    const json_t *v = get(r, object, key);
    char expected[64];
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min, (long long)max);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return fail_wrong(r, object, key, expected);
    *out = json_integer_value(v);
    return PS_OK;
}

static ps_status read_real(const state_reader *r, const char *object, const char *key, double *out)
{
    const json_t *v = get(r, object, key);
    if (!json_is_number(v) || !isfinite(json_number_value(v)) || json_number_value(v) < 0)
        return fail_wrong(r, object, key, "a number >= 0");
    *out = json_number_value(v);
    return PS_OK;
}

static ps_status expect_text(const state_reader *r, const char *object, const char *key, const char *wanted)
{
    const char *text = json_string_value(get(r, object, key));
    if (text == NULL || strcmp(text, wanted) != 0) return fail_wrong(r, object, key, wanted);
    return PS_OK;
}

/* The object at `key` as a separate text; NULL for null. */
static ps_status copy_object(const state_reader *r, const char *key, char **out)
{
    const json_t *v = get(r, NULL, key);
    if (json_is_null(v)) return PS_OK;
    if (!json_is_object(v)) return fail_wrong(r, NULL, key, "an object or null");
    char *text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (text == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for %s of %s", key, r->path);
    const ps_status st = ps_mem_strdup(text, out);
    free(text);
    return st;
}

/* 16 lower-case digits and nothing else. */
static bool parse_hash(const char *text, uint64_t *out)
{
    char again[17];
    if (text == NULL || strlen(text) != 16) return false;
    *out = strtoull(text, NULL, 16);
    snprintf(again, sizeof again, "%016" PRIx64, *out);
    return strcmp(again, text) == 0;
}

/* Entry i of the array at `key`, which must be of the file `name`. */
static ps_status read_file(const state_reader *r, const char *key, size_t i, const char *name, ps_checkpoint_file *out)
{
    const json_t *file = json_array_get(get(r, NULL, key), i), *bytes = json_object_get(file, "bytes");
    const char *found = json_string_value(json_object_get(file, "name"));
    if (found == NULL || strcmp(found, name) != 0)
        return PS_FAIL(PS_EFORMAT, "%s: \"%s\"[%zu] is named \"%.64s\", expected \"%s\"", r->path, key, i,
                       found != NULL ? found : "", name);
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
        !parse_hash(json_string_value(json_object_get(file, "xxh3")), &out->xxh3))
        return PS_FAIL(PS_EFORMAT, "%s: \"%s\"[%zu], %s: \"bytes\" or \"xxh3\" is missing or malformed", r->path, key,
                       i, name);
    out->n_bytes = json_integer_value(bytes);
    return PS_OK;
}

static ps_status expect_array(const state_reader *r, const char *key, size_t n, const char *what)
{
    const json_t *files = get(r, NULL, key);
    if (json_is_array(files) && json_array_size(files) == n) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: \"%s\" is not an array of %zu entries, %s", r->path, key, n, what);
}

static ps_status read_files(const state_reader *r, ps_checkpoint_state *s)
{
    const size_t n = (size_t)s->n_ranks * PS_CHECKPOINT_PART_COUNT;
    char name[PS_CHECKPOINT_FILE_NAME_MAX];
    PS_TRY(expect_array(r, "files", n, "two for each rank"));
    for (size_t i = 0; i < n; i++) {
        (void)ps_checkpoint_file_name((ps_checkpoint_part)(i % PS_CHECKPOINT_PART_COUNT),
                                      (int)(i / PS_CHECKPOINT_PART_COUNT), s->n_ranks, name);
        PS_TRY(read_file(r, "files", i, name, &s->files[i]));
    }
    if (get(r, NULL, "extra_files") == NULL) return PS_OK;
    PS_TRY(expect_array(r, "extra_files", (size_t)s->n_ranks, "one for each rank"));
    for (int i = 0; i < s->n_ranks; i++) {
        if (json_is_null(json_array_get(get(r, NULL, "extra_files"), (size_t)i))) continue;
        (void)ps_checkpoint_extra_name(i, s->n_ranks, name);
        PS_TRY(read_file(r, "extra_files", (size_t)i, name, &s->extra[i]));
    }
    return PS_OK;
}

static ps_status read_scaler(const state_reader *r, ps_checkpoint_state *s)
{
    const json_t *dynamic = get(r, "loss_scaler", "dynamic");
    if (!json_is_boolean(dynamic)) return fail_wrong(r, "loss_scaler", "dynamic", "true or false");
    s->scale_is_dynamic = json_is_true(dynamic);
    PS_TRY(read_real(r, "loss_scaler", "scale", &s->scale));
    PS_TRY(read_int(r, "loss_scaler", "clean_steps", 0, STATE_STEPS_MAX, &s->n_clean_steps));
    PS_TRY(read_int(r, "loss_scaler", "hysteresis_left", 0, STATE_STEPS_MAX, &s->hysteresis_left));
    return read_int(r, "loss_scaler", "skipped_steps", 0, STATE_STEPS_MAX, &s->n_skipped_steps);
}

static ps_status read_counters(const state_reader *r, ps_checkpoint_state *s)
{
    PS_TRY(read_int(r, NULL, "steps", 0, STATE_STEPS_MAX, &s->steps));
    PS_TRY(read_int(r, NULL, "optimizer_steps", 0, STATE_STEPS_MAX, &s->optimizer_steps));
    PS_TRY(read_int(r, "batch", "micro_batch_size", 1, STATE_BATCH_MAX, &s->B));
    PS_TRY(read_int(r, "batch", "sequence_length", 1, STATE_BATCH_MAX, &s->T));
    PS_TRY(read_int(r, "batch", "accumulation_steps", 1, STATE_BATCH_MAX, &s->accumulation));
    PS_TRY(read_int(r, NULL, "micro_batches", 0, INT64_MAX, &s->micro_batches));
    if (s->micro_batches / s->accumulation != s->steps || s->micro_batches % s->accumulation != 0)
        return fail_wrong(r, NULL, "micro_batches", "steps times accumulation_steps");
    PS_TRY(expect_text(r, "generator", "kind", STATE_GENERATOR));
    PS_TRY(read_int(r, "generator", "seed", 0, INT64_MAX, &s->seed));
    PS_TRY(read_int(r, "generator", "micro_batch", s->micro_batches, s->micro_batches, &s->micro_batches));
    PS_TRY(read_int(r, "lr_schedule", "step", s->optimizer_steps, s->optimizer_steps, &s->optimizer_steps));
    return read_real(r, "lr_schedule", "learning_rate", &s->learning_rate);
}

static ps_status read_loss_average(const state_reader *r, ps_checkpoint_state *s)
{
    static const ps_config_loss_average rules[] = {PS_CONFIG_LOSS_AVERAGE_TARGETS,
                                                   PS_CONFIG_LOSS_AVERAGE_MICRO_BATCHES};
    const json_t *v = get(r, NULL, "loss_average");
    s->loss_average = PS_CONFIG_LOSS_AVERAGE_MICRO_BATCHES;
    s->has_loss_average = v != NULL;
    if (v == NULL) return PS_OK;
    for (size_t i = 0; i < PS_ARRAY_LEN(rules); i++) {
        s->loss_average = rules[i];
        if (json_is_string(v) && strcmp(json_string_value(v), ps_config_loss_average_names[rules[i]]) == 0)
            return PS_OK;
    }
    return fail_wrong(r, NULL, "loss_average", "\"targets\" or \"micro_batches\"");
}

static ps_status read_state_format(const state_reader *r, ps_checkpoint_state *s)
{
    static const ps_config_state_format formats[] = {
        PS_CONFIG_STATE_FORMAT_COMPACT, PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT, PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC};
    const json_t *v = get(r, NULL, "state_format");
    s->state_format = PS_CONFIG_STATE_FORMAT_FP32;
    if (v == NULL) return PS_OK;
    for (size_t i = 0; i < PS_ARRAY_LEN(formats); i++) {
        s->state_format = formats[i];
        if (json_is_string(v) && strcmp(json_string_value(v), ps_config_state_format_names[formats[i]]) == 0)
            return PS_OK;
    }
    return fail_wrong(r, NULL, "state_format", "\"compact\", \"compact_split\" or \"bf16_stochastic\"");
}

static ps_status read_base(const state_reader *r, ps_checkpoint_state *s)
{
    const json_t *v = get(r, NULL, "base_xxh3");
    s->has_base = v != NULL;
    if (v == NULL || parse_hash(json_string_value(v), &s->base_xxh3)) return PS_OK;
    return fail_wrong(r, NULL, "base_xxh3", "16 hexadecimal digits");
}

static ps_status read_name(const state_reader *r, const char *key, char out[PS_ARITHMETIC_NAME_MAX])
{
    const char *text = json_string_value(get(r, "arithmetic", key));
    if (text == NULL || strlen(text) >= PS_ARITHMETIC_NAME_MAX) return fail_wrong(r, "arithmetic", key, "a short text");
    strcpy(out, text);
    return PS_OK;
}

static ps_status read_arithmetic(const state_reader *r, ps_arithmetic *out)
{
    if (get(r, NULL, "arithmetic") == NULL) return PS_OK;
    PS_TRY(read_name(r, "kernels", out->kernels));
    PS_TRY(read_name(r, "attention", out->attention));
    return read_name(r, "reductions", out->reductions);
}

static ps_status read_all(const state_reader *r, ps_checkpoint_state *s)
{
    int64_t version, n_ranks;
    PS_TRY(expect_text(r, NULL, "format", STATE_FORMAT));
    PS_TRY(read_int(r, NULL, "version", 1, INT32_MAX, &version));
    if (version > STATE_VERSION)
        return PS_FAIL(PS_EFORMAT, "%s: version %lld, this program knows up to %d: use the program that wrote it",
                       r->path, (long long)version, STATE_VERSION);
    PS_TRY(read_int(r, NULL, "ranks", 1, PS_CHECKPOINT_RANKS_MAX, &n_ranks));
    PS_TRY(init(s, (int)n_ranks));
    PS_TRY(read_counters(r, s));
    PS_TRY(read_scaler(r, s));
    const char *dtype = json_string_value(get(r, NULL, "dtype"));
    if (dtype == NULL || strlen(dtype) >= sizeof s->dtype) return fail_wrong(r, NULL, "dtype", "a number format");
    strcpy(s->dtype, dtype);
    PS_TRY(read_loss_average(r, s));
    PS_TRY(read_state_format(r, s));
    PS_TRY(read_base(r, s));
    PS_TRY(read_arithmetic(r, &s->arithmetic));
    PS_TRY(read_files(r, s));
    if (get(r, NULL, "module") != NULL) PS_TRY(copy_object(r, "module", &s->module_json));
    PS_TRY(copy_object(r, "caller", &s->caller_json));
    return copy_object(r, "config", &s->config_json);
}

static ps_status check_seal(const char *text, int64_t n_bytes, const char *path)
{
    char seal[SEAL_ROOM];
    if (n_bytes < SEAL_BYTES)
        return PS_FAIL(PS_EFORMAT, "%s: %lld bytes, too few for the state of a checkpoint: the file is cut off", path,
                       (long long)n_bytes);
    const int64_t n_body = n_bytes - SEAL_BYTES;
    snprintf(seal, sizeof seal, SEAL_FORMAT, XXH3_64bits(text, (size_t)n_body));
    if (memcmp(text + n_body, seal, SEAL_BYTES) != 0)
        return PS_FAIL(PS_EFORMAT, "%s: the content has xxh3 %.16s, but the file does not end with it: it is damaged",
                       path, seal + 19);
    return PS_OK;
}

ps_status ps_checkpoint_state_parse(const char *text, int64_t n_bytes, const char *path, ps_checkpoint_state *s)
{
    *s = (ps_checkpoint_state){0};
    json_error_t error;
    PS_TRY(check_seal(text, n_bytes, path));
    json_t *root = json_loadb(text, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) return PS_FAIL(PS_EFORMAT, "%s: line %d: %s", path, error.line, error.text);
    const state_reader r = {.path = path, .root = root};
    const ps_status st = read_all(&r, s);
    if (st != PS_OK) ps_checkpoint_state_deinit(s);
    json_decref(root);
    return st;
}
