#include "checkpoints.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ranks.h"

/* Number of samples at the beginning and at the end of the first epoch whose hash represents the order of all. */
#define FINGERPRINT_SAMPLES ((int64_t)16)

/* ---- the data ---- */

/* For instructions and similar data the targets are hashed as well; a classifier has one per row. Values have the size
 * of targets. */
static ps_status hash_samples(ps_rows *rows, int64_t T, int64_t n_targets, int64_t first, XXH3_state_t *state)
{
    for (int64_t i = 0; i < FINGERPRINT_SAMPLES; i++) {
        TRY(ps_rows_fill(rows, PS_SPLIT_TRAIN, first + i, 1));
        const ps_batch *b = ps_rows_batch(rows);
        XXH3_64bits_update(state, b->tokens, (size_t)T * sizeof *b->tokens);
        const void *targets = b->values != NULL ? (const void *)b->values : b->targets;
        XXH3_64bits_update(state, targets, (size_t)n_targets * sizeof *b->targets);
    }
    return PS_OK;
}

static ps_status take_fingerprint(checkpoints *c, const ps_data_loader *loader)
{
    const int64_t T = c->T;
    XXH3_state_t *state = XXH3_createState();
    ps_rows *rows = NULL;
    const int64_t n_targets = ps_data_loader_chooses_targets(loader) ? ps_data_loader_row_targets(loader, T) : 1;
    c->n_samples = ps_data_loader_sample_count(loader, PS_SPLIT_TRAIN);
    ps_status st =
        state != NULL ? ps_rows_create(loader, 1, &rows) : client_fail(PS_ENOMEM_HOST, "no memory for a hash");
    if (st == PS_OK) {
        XXH3_64bits_reset(state);
        st = hash_samples(rows, T, n_targets, 0, state);
    }
    if (st == PS_OK) st = hash_samples(rows, T, n_targets, max_i64(c->n_samples - FINGERPRINT_SAMPLES, 0), state);
    if (st == PS_OK) c->ends_xxh3 = XXH3_64bits_digest(state);
    ps_rows_destroy(rows);
    XXH3_freeState(state);
    return st;
}

/* The ranks have compared their data at the start, so only one of them reads it again. All call. */
static ps_status hash_all(checkpoints *c, const ps_data_loader *loader)
{
    TRY(ps_comm_agree(c->comm, ps_comm_rank(c->comm) == 0 ? ps_data_loader_xxh3(loader, &c->all_xxh3) : PS_OK));
    return ps_comm_broadcast(c->comm, &c->all_xxh3, sizeof c->all_xxh3, 0);
}

typedef struct hash_text {
    char text[17];
} hash_text;

static hash_text text_of(uint64_t hash)
{
    hash_text t;
    snprintf(t.text, sizeof t.text, "%016" PRIx64, hash);
    return t;
}

static char *caller_state(const checkpoints *c, int64_t step)
{
    const hash_text ends = text_of(c->ends_xxh3), all = text_of(c->all_xxh3);
    json_t *o = json_pack("{s:I, s:{s:I, s:s, s:s}}", "step", (json_int_t)step, "data", "samples",
                          (json_int_t)c->n_samples, "xxh3", ends.text, "all_xxh3", all.text);
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

/* The configuration stored with the checkpoint `path`, or with this run's latest; NULL: there is none, or it cannot be
 * read. */
static ps_config *saved_config(const ps_config *config, const char *path)
{
    char folder[CLIENT_FOLDER_MAX], *newest = NULL;
    ps_config *saved = NULL;
    const int n = path != NULL
                      ? snprintf(folder, sizeof folder, "%s", path)
                      : snprintf(folder, sizeof folder, "%s/checkpoints", client_string(config, "train.output_dir"));
    if (n >= (int)sizeof folder || ps_checkpoint_find(folder, &newest, NULL) != PS_OK) return NULL;
    const char *found = newest != NULL ? newest : path;
    if (found != NULL && ps_config_load_of_weights(found, &saved) != PS_OK) saved = NULL;
    ps_free(newest);
    return saved;
}

/* Append "data.shuffle was true and is false". A full text is unchanged. */
static void add_difference(const char *section, const char *key, const json_t *was, const json_t *is, char text[700])
{
    const size_t n = strlen(text);
    char *a = json_dumps(was, JSON_ENCODE_ANY), *b = json_dumps(is, JSON_ENCODE_ANY);
    char one[400];
    const int length = snprintf(one, sizeof one, "%s%s.%s was %.100s and is %.100s", n > 0 ? ", " : "", section, key,
                                a != NULL ? a : "?", b != NULL ? b : "?");
    if (length > 0 && n + (size_t)length < 700) snprintf(text + n, 700 - n, "%s", one);
    free(a);
    free(b);
}

/* The data options that differ from the checkpoint's; if none does, the files differ. */
static void find_differences(const checkpoints *c, const char *path, char text[700])
{
    char *was_text = NULL, *is_text = NULL;
    const char *key;
    ps_config *saved = saved_config(c->config, path);
    json_t *was = NULL, *is = NULL, *value;
    text[0] = '\0';
    if (saved != NULL && ps_config_dump_json(saved, &was_text) == PS_OK &&
        ps_config_dump_json(c->config, &is_text) == PS_OK) {
        was = json_loads(was_text, 0, NULL);
        is = json_loads(is_text, 0, NULL);
    }
    const json_t *old = json_object_get(was, "data");
    json_object_foreach(json_object_get(is, "data"), key, value)
    {
        const json_t *before = json_object_get(old, key);
        if (before != NULL && !json_equal(before, value)) add_difference("data", key, before, value, text);
    }
    const json_t *seed = json_object_get(json_object_get(is, "train"), "seed");
    const json_t *old_seed = json_object_get(json_object_get(was, "train"), "seed");
    if (old_seed != NULL && !json_equal(old_seed, seed)) add_difference("train", "seed", old_seed, seed, text);
    if (text[0] == '\0')
        snprintf(text, 700,
                 "the options of the data are the same, so the content of the files, or the tokenizer, is another");
    json_decref(was);
    json_decref(is);
    ps_free(was_text);
    ps_free(is_text);
    ps_config_destroy(saved);
}

/* Check that samples and their order are those of the run that saved the checkpoint. */
static ps_status check_data(const checkpoints *c, const char *path, const json_t *data)
{
    const hash_text ends = text_of(c->ends_xxh3), all = text_of(c->all_xxh3);
    const char *saved = json_string_value(json_object_get(data, "xxh3"));
    const char *saved_all = json_string_value(json_object_get(data, "all_xxh3"));
    const int64_t n_samples = json_integer_value(json_object_get(data, "samples"));
    const bool has_ends = n_samples == c->n_samples && saved != NULL && strcmp(saved, ends.text) == 0;
    if (has_ends && saved_all == NULL)
        printf("%s: saved by a version that kept no hash of all data: only its first and last samples are compared\n",
               path);
    if (has_ends && (saved_all == NULL || strcmp(saved_all, all.text) == 0)) return PS_OK;
    if (has_ends)
        return client_fail(
            PS_EINVAL,
            "%s: training saw other data: of as many samples the first and last are the same, but others, "
            "or those of validation, are not (xxh3 of all data %.16s, now %s). Set data.train and "
            "data.validation back to what they were, or begin a new run from the weights alone "
            "(train.init_from)",
            path, saved_all, all.text);
    char counts[128] = "", differences[700];
    if (n_samples != c->n_samples)
        snprintf(counts, sizeof counts, "%lld samples an epoch, now there are %lld; ", (long long)n_samples,
                 (long long)c->n_samples);
    find_differences(c, path, differences);
    return client_fail(
        PS_EINVAL,
        "%s: training saw other data: %s%s. Set it back, or begin a new run from the weights alone (train.init_from)",
        path, counts, differences);
}

/* The identification of the data is computed when it is first needed, as it reads all data. All ranks call. */
static ps_status know_data(checkpoints *c)
{
    if (c->knows_data) return PS_OK;
    TRY(ps_comm_agree(c->comm, take_fingerprint(c, c->loader)));
    TRY(hash_all(c, c->loader));
    c->knows_data = true;
    return PS_OK;
}

/* ---- start ---- */

/* On this rank only. */
static ps_status read_options(checkpoints *c, const ps_config *config)
{
    const char *folder = client_string(config, "train.output_dir");
    int32_t gives_minutes = 0;
    double minutes = 0;
    if ((size_t)snprintf(c->folder, sizeof c->folder, "%s/checkpoints", folder) >= sizeof c->folder)
        return client_fail(PS_EINVAL, "train.output_dir is longer than %zu characters", sizeof c->folder - 16);
    TRY(ps_config_get_double(config, "train.save_minutes", &minutes));
    TRY(ps_config_is_given(config, "train.save_minutes", &gives_minutes));
    c->save_interval = client_int(config, "train.save_interval");
    c->is_on = client_int(config, "train.save") != 0 || c->save_interval > 0 || (gives_minutes && minutes > 0);
    c->save_ns = c->is_on ? (int64_t)(minutes * 60e9) : 0;
    c->saved_ns = client_clock_ns();
    return PS_OK;
}

ps_status checkpoints_open(checkpoints *c, const ps_config *config, ps_engine *engine, ps_comm *comm, run_log *log,
                           progress *shown, const ps_data_loader *loader)
{
    *c = (checkpoints){
        .engine = engine, .comm = comm, .log = log, .progress = shown, .config = config, .loader = loader};
    ps_engine_get_shape(engine, NULL, &c->T, NULL, NULL);
    return ps_comm_agree(comm, read_options(c, config));
}

/* -1: there is no checkpoint, or it cannot be read. */
static int64_t saved_padding(const ps_config *config, const char *path)
{
    ps_config *saved = saved_config(config, path);
    int32_t is_known = 0;
    int64_t value = -1;
    if (saved != NULL && ps_config_is_given(saved, "data.pad_to_multiple_of", &is_known) == PS_OK)
        value = is_known ? client_int(saved, "data.pad_to_multiple_of") : 0;
    ps_config_destroy(saved);
    return value;
}

ps_status checkpoints_keep_padding(ps_config *config, ps_comm *comm, bool resume, const char *path, kept_padding *out)
{
    char text[32];
    int32_t is_given = 0;
    int64_t saved = resume && ps_comm_rank(comm) == 0 ? saved_padding(config, path) : -1;
    *out = (kept_padding){.configured = client_int(config, "data.pad_to_multiple_of")};
    if (!resume) return PS_OK;
    TRY(ps_comm_broadcast(comm, &saved, sizeof saved, 0));
    TRY(ps_config_is_given(config, "data.pad_to_multiple_of", &is_given));
    if (saved < 0 || saved == out->configured) return PS_OK;
    out->is_kept = true;
    out->was_given = is_given;
    snprintf(text, sizeof text, "%" PRId64, saved);
    return ps_config_set(config, "data.pad_to_multiple_of", text);
}

void checkpoints_report_padding(const kept_padding *k, const ps_config *config, const ps_data_loader *loader)
{
    const int64_t n = ps_data_loader_sample_count(loader, PS_SPLIT_TRAIN), T = ps_config_get_sequence_length(config);
    if (!k->is_kept || ps_data_loader_token_count(loader, PS_SPLIT_TRAIN, 0, n) == n * T) return;
    fprintf(stderr,
            "pstar train: training continues with the checkpoint's data.pad_to_multiple_of = %" PRId64
            ", not the %s %" PRId64 "; train.init_from begins a new run from its weights\n",
            client_int(config, "data.pad_to_multiple_of"), k->was_given ? "configured" : "default", k->configured);
}

/* Whether this run has a checkpoint. */
static ps_status find_own(const checkpoints *c, bool *yes)
{
    char *newest = NULL;
    int32_t is_latest = 0;
    TRY(ps_comm_agree(c->comm, ps_checkpoint_find(c->folder, &newest, &is_latest)));
    *yes = newest != NULL;
    ps_free(newest);
    TRY(ranks_any(c->comm, yes));
    if (!*yes) printf("no checkpoint in %s yet: training begins at the beginning\n", c->folder);
    if (*yes && !is_latest) printf("%s has no `latest`: the newest complete checkpoint is taken\n", c->folder);
    return PS_OK;
}

ps_status checkpoints_resume(checkpoints *c, const char *path, int64_t *step)
{
    bool is_there = true;
    *step = 0;
    if (path == NULL) TRY(find_own(c, &is_there));
    if (!is_there) return PS_OK;
    TRY(know_data(c));
    if (path == NULL) path = c->folder;
    char *text = NULL;
    json_t *state = NULL;
    ps_status st = PS_OK;
    TRY_GOTO(ps_engine_load_checkpoint(c->engine, path, &text));
    if (text != NULL) state = json_loads(text, 0, NULL);
    if (!json_is_integer(json_object_get(state, "step"))) {
        st = client_fail(PS_EINVAL, "%s: not saved by pstar train: the step and the data are not named in it", path);
        goto out;
    }
    TRY_GOTO(check_data(c, path, json_object_get(state, "data")));
    *step = c->saved_step = json_integer_value(json_object_get(state, "step"));
    printf("resumed from %s after step %lld\n", path, (long long)*step);
out:
    json_decref(state);
    ps_free(text);
    return st;
}

/* ---- saving ---- */

/* The result is equal on all ranks. */
static void report_failure(checkpoints *c, int64_t step)
{
    if (ps_comm_rank(c->comm) > 0) return;
    progress_clear(c->progress);
    fprintf(stderr, "pstar train: the checkpoint of step %lld failed: %s\n", (long long)step, ps_last_error());
    run_log_checkpoint(c->log, step, NULL, ps_last_error());
}

static ps_status finish_save(checkpoints *c)
{
    ps_checkpoint_info info = {.struct_size = sizeof info};
    char bytes[PS_BYTES_TEXT_MAX];
    if (!c->is_saving) return PS_OK;
    c->is_saving = false;
    const ps_status st = ps_engine_finish_checkpoint(c->engine, &info);
    if (st != PS_OK) {
        report_failure(c, c->saving_step);
        return st;
    }
    progress_clear(c->progress);
    printf("checkpoint %s: %s in %.2f s, training waited for %.3f s\n", info.name, ps_bytes_format(info.bytes, bytes),
           info.seconds, info.stall_seconds);
    fflush(stdout);
    run_log_checkpoint(c->log, c->saving_step, &info, NULL);
    return PS_OK;
}

static ps_status begin_write(checkpoints *c, int64_t step)
{
    TRY(know_data(c));
    char *state = caller_state(c, step);
    ps_status st = state != NULL ? PS_OK : client_fail(PS_ENOMEM_HOST, "no memory for the state of the run");
    st = ps_comm_agree(c->comm, st);
    if (st == PS_OK) st = ps_engine_begin_checkpoint(c->engine, c->folder, state);
    free(state);
    return st;
}

static ps_status begin_save(checkpoints *c, int64_t step)
{
    const ps_status st = begin_write(c, step);
    c->saved_ns = client_clock_ns();
    c->is_saving = st == PS_OK;
    c->saving_step = step;
    if (st == PS_OK)
        c->saved_step = step;
    else
        report_failure(c, step);
    return st;
}

/* By steps, or by rank 0's clock. */
static ps_status find_due(checkpoints *c, int64_t step, bool *is_due)
{
    *is_due = c->save_interval > 0 && step % c->save_interval == 0;
    if (*is_due || c->save_ns == 0) return PS_OK;
    *is_due = ps_comm_rank(c->comm) == 0 && client_clock_ns() - c->saved_ns >= c->save_ns;
    return ranks_any(c->comm, is_due);
}

void checkpoints_after_step(checkpoints *c, int64_t step)
{
    if (!c->is_on) return;
    bool is_due, waits = !ps_engine_checkpoint_is_done(c->engine);
    if (find_due(c, step, &is_due) != PS_OK) return;                 /* the next step reports the reason */
    if (c->is_saving && ranks_any(c->comm, &waits) != PS_OK) return; /* the next step reports the reason */
    /* both have reported the failure; training continues, and the next save is tried again */
    if (is_due || !waits) (void)finish_save(c);
    if (is_due) (void)begin_save(c, step);
}

void checkpoints_rescue(checkpoints *c)
{
    char cause[1024];
    snprintf(cause, sizeof cause, "%s", ps_last_error());
    (void)finish_save(c);
    (void)client_fail(PS_ENUMERIC, "%s", cause);
}

ps_status checkpoints_end(checkpoints *c, int64_t step)
{
    if (!c->is_on) return PS_OK;
    ps_status st = finish_save(c);
    if (step > 0 && (c->saved_step != step || st != PS_OK)) {
        st = begin_save(c, step);
        if (st == PS_OK) st = finish_save(c);
    }
    if (st != PS_OK) return client_fail(st, "the last step, %lld, is in no checkpoint; see above", (long long)step);
    return PS_OK;
}
