#include "checkpoints.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/status.h"
#include "checkpoint/checkpoint_folder.h"

/* Tokens at the beginning and at the end that stand for the whole. */
#define FINGERPRINT_TOKENS ((int64_t)65536)

/* ---- the data ---- */

static ps_status take_fingerprint(checkpoints *c, const ps_dataset *data)
{
    int32_t *tokens = NULL;
    c->n_tokens = ps_dataset_token_count(data);
    const int64_t n = ps_min_i64(FINGERPRINT_TOKENS, c->n_tokens);
    PS_TRY(ps_mem_alloc((size_t)n, 2 * sizeof *tokens, &tokens));
    ps_status st = ps_dataset_read(data, 0, n, tokens);
    if (st == PS_OK) st = ps_dataset_read(data, c->n_tokens - n, n, tokens + n);
    c->data_xxh3 = XXH3_64bits(tokens, (size_t)n * 2 * sizeof *tokens);
    ps_mem_free(tokens);
    return st;
}

static char *caller_state(const checkpoints *c, int64_t step)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, c->data_xxh3);
    json_t *o =
        json_pack("{s:I, s:{s:I, s:s, s:f, s:b}}", "step", (json_int_t)step, "data", "tokens", (json_int_t)c->n_tokens,
                  "xxh3", hash, "validation_split", c->o->data_validation_split, "shuffle", (int)c->o->data_shuffle);
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(o);
    return text;
}

/* The same samples in the same order as in the run that saved this? */
static ps_status check_data(const checkpoints *c, const char *path, const json_t *data)
{
    static const char remedy[] = "training could not go on with the same samples; set it back, or begin a new run from "
                                 "the weights alone (train.init_from)";
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, c->data_xxh3);
    const char *saved = json_string_value(json_object_get(data, "xxh3"));
    const int64_t n_tokens = json_integer_value(json_object_get(data, "tokens"));
    if (n_tokens != c->n_tokens || saved == NULL || strcmp(saved, hash) != 0)
        return PS_FAIL(PS_EINVAL, "%s: data.train had %lld tokens (xxh3 of both ends %.16s), %s has %lld (%s): %s",
                       path, (long long)n_tokens, saved != NULL ? saved : "?", c->o->data_train, (long long)c->n_tokens,
                       hash, remedy);
    const double split = json_number_value(json_object_get(data, "validation_split"));
    if (split < c->o->data_validation_split || split > c->o->data_validation_split)
        return PS_FAIL(PS_EINVAL, "%s: saved with data.validation_split = %g, it is %g now: %s", path, split,
                       c->o->data_validation_split, remedy);
    if (json_is_true(json_object_get(data, "shuffle")) != c->o->data_shuffle)
        return PS_FAIL(PS_EINVAL, "%s: data.shuffle was another: %s", path, remedy);
    return PS_OK;
}

/* ---- beginning ---- */

ps_status checkpoints_open(checkpoints *c, const ps_options *o, ps_engine *engine, run_log *log, progress *shown,
                           const ps_dataset *data, bool resume)
{
    *c = (checkpoints){.engine = engine, .log = log, .progress = shown, .o = o};
    if ((size_t)snprintf(c->folder, sizeof c->folder, "%s/checkpoints", o->train_output_dir) >= sizeof c->folder)
        return PS_FAIL(PS_EINVAL, "train.output_dir is longer than %zu characters", sizeof c->folder - 16);
    if (o->train_save_interval == 0 && !resume) return PS_OK;
    bool has_latest;
    ps_checkpoint_folder_clean(c->folder);
    PS_TRY(ps_checkpoint_folder_has_latest(c->folder, &has_latest));
    if (!resume && has_latest)
        return PS_FAIL(
            PS_EINVAL,
            "%s has checkpoints of an earlier run: go on with --resume, or name another train.output_dir, or "
            "remove them",
            c->folder);
    return take_fingerprint(c, data);
}

ps_status checkpoints_resume(checkpoints *c, const char *path, int64_t *step)
{
    *step = 0;
    bool has_latest = true;
    if (path == NULL) PS_TRY(ps_checkpoint_folder_has_latest(c->folder, &has_latest));
    if (!has_latest) {
        printf("no checkpoint in %s yet: training begins at the beginning\n", c->folder);
        return PS_OK;
    }
    if (path == NULL) path = c->folder;
    char *text = NULL;
    json_t *state = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_engine_load_checkpoint(c->engine, path, &text));
    if (text != NULL) state = json_loads(text, 0, NULL);
    if (!json_is_integer(json_object_get(state, "step"))) {
        st = PS_FAIL(PS_EINVAL, "%s: not saved by pstar train: the step and the data are not named in it", path);
        goto out;
    }
    PS_TRY_GOTO(check_data(c, path, json_object_get(state, "data")));
    *step = c->saved_step = json_integer_value(json_object_get(state, "step"));
    printf("resumed from %s after step %lld\n", path, (long long)*step);
out:
    json_decref(state);
    ps_free(text);
    return st;
}

/* ---- saving ---- */

static void report_failure(checkpoints *c, int64_t step)
{
    progress_clear(c->progress);
    fprintf(stderr, "pstar train: the checkpoint of step %lld failed: %s\n", (long long)step, ps_last_error());
    run_log_checkpoint(c->log, step, NULL, ps_last_error());
}

static ps_status finish_save(checkpoints *c)
{
    ps_checkpoint_info info;
    char bytes[PS_BYTES_TEXT_MAX];
    if (!c->is_saving) return PS_OK;
    c->is_saving = false;
    const ps_status st = ps_engine_finish_checkpoint(c->engine, &info);
    if (st != PS_OK) {
        report_failure(c, c->saving_step);
        return st;
    }
    progress_clear(c->progress);
    printf("checkpoint %s: %s in %.2f s, training stood %.3f s\n", info.name, ps_bytes_format(info.bytes, bytes),
           info.seconds, info.stall_seconds);
    fflush(stdout);
    run_log_checkpoint(c->log, c->saving_step, &info, NULL);
    return PS_OK;
}

static ps_status begin_save(checkpoints *c, int64_t step)
{
    char *state = caller_state(c, step);
    const ps_status st = state != NULL ? ps_engine_begin_checkpoint(c->engine, c->folder, state)
                                       : PS_FAIL(PS_ENOMEM_HOST, "no memory for the state of the run");
    free(state);
    c->is_saving = st == PS_OK;
    c->saving_step = step;
    if (st == PS_OK)
        c->saved_step = step;
    else
        report_failure(c, step);
    return st;
}

void checkpoints_after_step(checkpoints *c, int64_t step)
{
    if (c->o->train_save_interval == 0) return;
    const bool is_due = step % c->o->train_save_interval == 0;
    /* both have reported what failed; training goes on, and the next save is tried again */
    if (is_due || ps_engine_checkpoint_is_done(c->engine)) (void)finish_save(c);
    if (is_due) (void)begin_save(c, step);
}

ps_status checkpoints_end(checkpoints *c, int64_t step)
{
    if (c->o->train_save_interval == 0) return PS_OK;
    ps_status st = finish_save(c);
    if (step > 0 && (c->saved_step != step || st != PS_OK)) {
        st = begin_save(c, step);
        if (st == PS_OK) st = finish_save(c);
    }
    if (st != PS_OK) return PS_FAIL(st, "the last step, %lld, is in no checkpoint; see above", (long long)step);
    return PS_OK;
}
