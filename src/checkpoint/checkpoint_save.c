/* checkpoint_save.c - a checkpoint is written while training goes on.
 *
 *     training thread                               writer thread
 *     updates of chunks --snapshot--> pieces ==ring==> two safetensors files, hash
 *     (all handed out: the ring closes) -----------> sync, state.json, rename, `latest`, older ones removed
 *
 * Without a staging block (memory.save_buffer) there is no ring between: the training thread writes each piece itself, straight
 * from its chunk, and the writer thread begins at the sync. The files belong to the training thread until then. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/machine.h"
#include "base/mem.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_names.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/piece_ring.h"
#include "checkpoint/safetensors.h"
#include "device/worker.h"
#include "engine/engine.h"

typedef struct saver {
    ps_checkpoint_folder folder;
    ps_checkpoint_state state;
    int64_t keep_last;
    ps_safetensors_writer *files[PS_CHECKPOINT_PART_COUNT];
    int32_t *places; /* [n_tensors] number of the tensor in the order of the files */
    ps_piece_ring *ring;
    bool has_ring; /* pieces go through it; else it only tells the writer thread when to begin */
    bool all_in;   /* every piece was handed out. The writer thread reads it when the ring is closed and empty */
    bool has_thread;
    pthread_t thread;

    int64_t begin_ns, end_ns, stall_ns, n_bytes;
    atomic_bool is_done;
    ps_status status; /* of the thread that owns the files */
    char message[1024];
    char small_block[PS_PIECE_RING_BYTES_MIN];
} saver;

static void fail_save(saver *s, ps_status st)
{
    if (st == PS_OK || s->status != PS_OK) return;
    s->status = st;
    snprintf(s->message, sizeof s->message, "%s", ps_last_error());
}

/* ---- the writer's side ---- */

static void write_piece(saver *s, ps_list list, int32_t place, int64_t offset, const void *data, int64_t n_bytes)
{
    if (s->status != PS_OK) return;
    if (list == PS_LIST_MASTER)
        fail_save(s, ps_safetensors_writer_put(s->files[PS_CHECKPOINT_MODEL], place, offset, data, n_bytes));
    else
        fail_save(s, ps_safetensors_writer_put(s->files[PS_CHECKPOINT_OPTIMIZER],
                                               2 * place + (list == PS_LIST_VARIANCE), offset, data, n_bytes));
}

static ps_status write_state(saver *s)
{
    char *text = NULL, *path = NULL;
    int64_t n_bytes = 0;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_checkpoint_state_render(&s->state, &text, &n_bytes));
    PS_TRY_GOTO(ps_folder_join(s->folder.temporary, PS_CHECKPOINT_STATE, &path));
    PS_TRY_GOTO(ps_file_write_all(path, text, n_bytes));
    s->n_bytes += n_bytes;
out:
    ps_mem_free(path);
    ps_mem_free(text);
    return st;
}

static ps_status complete(saver *s)
{
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++) {
        ps_checkpoint_file *f = &s->state.files[part];
        PS_TRY(ps_safetensors_writer_xxh3(s->files[part], &f->xxh3, &f->n_bytes));
        s->n_bytes += f->n_bytes;
        ps_safetensors_writer *w = s->files[part];
        s->files[part] = NULL;
        PS_TRY(ps_safetensors_writer_commit(w));
    }
    PS_TRY(write_state(s));
    return ps_checkpoint_folder_commit(&s->folder, s->keep_last);
}

/* Whatever is not complete; nothing is left to do after a success. */
static void cancel_files(saver *s)
{
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++) {
        ps_safetensors_writer_cancel(s->files[part]);
        s->files[part] = NULL;
    }
    ps_checkpoint_folder_close(&s->folder);
}

static void *writer_main(void *arg)
{
    saver *s = arg;
    ps_ring_piece p;
    while (ps_piece_ring_take(s->ring, &p)) {
        const int32_t place = p.index / PS_LIST_COUNT;
        write_piece(s, (ps_list)(p.index % PS_LIST_COUNT), place, p.offset, p.data, p.n_bytes);
    }
    if (s->status == PS_OK && s->all_in) fail_save(s, complete(s));
    cancel_files(s);
    s->end_ns = ps_clock_ns();
    atomic_store(&s->is_done, true);
    return NULL;
}

/* ---- the training thread's side ---- */

static void take_piece(void *user, ps_list list, int32_t tensor, int64_t offset, const float *values, int64_t n)
{
    saver *s = user;
    const int64_t begin = ps_clock_ns(), bytes = (int64_t)sizeof *values;
    if (s->has_ring)
        ps_piece_ring_put(s->ring, &(ps_ring_piece){.index = s->places[tensor] * PS_LIST_COUNT + (int32_t)list,
                                                    .offset = offset * bytes,
                                                    .n_bytes = n * bytes,
                                                    .data = values});
    else
        write_piece(s, list, s->places[tensor], offset * bytes, values, n * bytes);
    s->stall_ns += ps_clock_ns() - begin;
}

static void end_pieces(void *user)
{
    saver *s = user;
    s->all_in = true;
    ps_piece_ring_close(s->ring);
}

/* Tensors in the order in which updates first visit them, so that files are written from front to back. */
static ps_status open_files(saver *s, const ps_engine *e)
{
    static const ps_safetensors_metadata metadata = {"format", "pt"};
    const ps_blueprint *b = e->blueprint;
    const int32_t n = e->program->n_params;
    ps_safetensor *tensors[PS_CHECKPOINT_PART_COUNT] = {NULL};
    char *names = NULL;
    int32_t n_placed = 0;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *s->places, &s->places));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *tensors[0], &tensors[0]));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n * 2, sizeof *tensors[1], &tensors[1]));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n * 2, PS_CHECKPOINT_TENSOR_NAME_MAX, &names));
    for (int32_t t = 0; t < n; t++) s->places[t] = -1;
    for (int32_t i = 0; i < b->n_ordered; i++)
        for (int32_t k = b->first_piece[b->adam_order[i]]; k < b->first_piece[b->adam_order[i] + 1]; k++) {
            const int32_t t = b->pieces[k].tensor;
            if (s->places[t] >= 0) continue;
            const ps_param *p = &e->program->params[t];
            ps_safetensor tensor = {.name = p->name, .dtype = PS_SAFETENSORS_F32, .n_dims = p->n_dims};
            for (int d = 0; d < p->n_dims; d++) tensor.shape[d] = p->shape[d];
            tensors[PS_CHECKPOINT_MODEL][n_placed] = tensor;
            for (int moment = 0; moment < 2; moment++) {
                char *name = names + (size_t)(2 * n_placed + moment) * PS_CHECKPOINT_TENSOR_NAME_MAX;
                tensor.name = name;
                PS_TRY_GOTO(ps_checkpoint_moment_name(p->name, moment, name));
                tensors[PS_CHECKPOINT_OPTIMIZER][2 * n_placed + moment] = tensor;
            }
            s->places[t] = n_placed++;
        }
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT && st == PS_OK; part++) {
        char name[PS_CHECKPOINT_FILE_NAME_MAX], *path = NULL;
        (void)ps_checkpoint_file_name((ps_checkpoint_part)part, 0, 1, name);
        st = ps_folder_join(s->folder.temporary, name, &path);
        if (st == PS_OK)
            st = ps_safetensors_writer_open(path, tensors[part], part == PS_CHECKPOINT_MODEL ? n : 2 * n, &metadata, 1,
                                            &s->files[part]);
        ps_mem_free(path);
    }
out:
    ps_mem_free(names);
    ps_mem_free(tensors[1]);
    ps_mem_free(tensors[0]);
    return st;
}

static ps_status take_state(saver *s, const ps_engine *e, const char *caller_json)
{
    const ps_settings *o = &e->settings;
    const ps_loss_scaler *scaler = &e->scaler;
    PS_TRY(ps_checkpoint_state_init(&s->state, 1));
    ps_checkpoint_state *state = &s->state;
    state->steps = e->runner.step;
    state->optimizer_steps = e->adam_steps;
    state->micro_batches = e->runner.step * o->accumulation;
    state->B = o->B;
    state->T = o->T;
    state->accumulation = o->accumulation;
    state->seed = (int64_t)o->seed;
    state->learning_rate = e->last_step.learning_rate;
    state->scale_is_dynamic = scaler->options.loss_scale == 0;
    state->scale = (double)scaler->scale;
    state->n_clean_steps = scaler->n_clean_steps;
    state->hysteresis_left = scaler->hysteresis_left;
    state->n_skipped_steps = scaler->n_skipped_steps;
    snprintf(state->dtype, sizeof state->dtype, "%s", ps_dtype_name(o->dtype));
    PS_TRY(ps_mem_strdup(e->config_json, &state->config_json));
    if (caller_json == NULL) return PS_OK;
    PS_TRY(ps_mem_strdup(caller_json, &state->caller_json));
    /* what is wrong with it is said now, not by the writer thread */
    char *text = NULL;
    int64_t n_bytes;
    const ps_status st = ps_checkpoint_state_render(state, &text, &n_bytes);
    ps_mem_free(text);
    return st;
}

static ps_status open_ring(saver *s, const ps_engine *e)
{
    s->has_ring = e->tiers.staging != NULL;
    void *block = s->has_ring ? e->tiers.staging : s->small_block;
    return ps_piece_ring_create(block, s->has_ring ? e->tiers.staging_bytes : PS_PIECE_RING_BYTES_MIN, &s->ring);
}

/* Give up what is not complete, wait for the rest, free. */
static void close_saver(void *user)
{
    saver *s = user;
    if (s->has_thread) {
        if (!s->all_in) ps_piece_ring_close(s->ring);
        pthread_join(s->thread, NULL);
    } else {
        cancel_files(s);
    }
    ps_piece_ring_destroy(s->ring);
    ps_checkpoint_state_deinit(&s->state);
    ps_mem_free(s->places);
    ps_mem_free(s);
}

static ps_status expect_between_steps(const ps_engine *e, const char *call)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, call));
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: this engine is for inference", call);
    if (e->runner.micro > 0)
        return PS_FAIL(PS_ESTATE, "%s: micro-batch %lld of %lld of a step is done; finish the step first", call,
                       (long long)e->runner.micro, (long long)e->settings.accumulation);
    return PS_OK;
}

ps_status ps_engine_begin_checkpoint(ps_engine *e, const char *folder, const char *caller_json)
{
    PS_TRY(expect_between_steps(e, "ps_engine_begin_checkpoint"));
    if (e->save.user != NULL)
        return PS_FAIL(PS_ESTATE, "ps_engine_begin_checkpoint: one is under way; call ps_engine_finish_checkpoint");
    const int64_t begin_ns = ps_clock_ns();
    ps_status st = PS_OK;
    saver *s = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    s->begin_ns = begin_ns;
    s->keep_last = e->settings.keep_checkpoints;
    PS_TRY_GOTO(take_state(s, e, caller_json));
    PS_TRY_GOTO(ps_checkpoint_folder_open(folder, s->state.steps, &s->folder));
    PS_TRY_GOTO(open_files(s, e));
    PS_TRY_GOTO(open_ring(s, e));
    const ps_snapshot_sink sink = {.take = take_piece, .end = end_pieces, .user = s};
    PS_TRY_GOTO(ps_snapshot_begin(&e->runner, &sink));
    st = ps_worker_start("ps-checkpoint", writer_main, s, &s->thread);
    if (st != PS_OK) {
        ps_snapshot_drop(&e->runner);
        goto out;
    }
    s->has_thread = true;
    s->stall_ns = ps_clock_ns() - begin_ns;
    e->save = (ps_engine_save){.user = s, .close = close_saver};
    return PS_OK;
out:
    close_saver(s);
    return st;
}

int ps_engine_checkpoint_is_done(const ps_engine *e)
{
    const saver *s = e->save.user;
    return s == NULL || atomic_load(&s->is_done);
}

ps_status ps_engine_finish_checkpoint(ps_engine *e, ps_checkpoint_info *info)
{
    if (info != NULL) *info = (ps_checkpoint_info){0};
    saver *s = e->save.user;
    if (s == NULL) return PS_FAIL(PS_ESTATE, "ps_engine_finish_checkpoint: none was begun");
    const int64_t begin_ns = ps_clock_ns();
    ps_status st = PS_OK;
    if (e->runner.snapshot.when != NULL) {
        st = expect_between_steps(e, "ps_engine_finish_checkpoint");
        if (st == PS_OK) {
            ps_engine_enter(e);
            st = ps_snapshot_finish(&e->runner);
        }
        if (st != PS_OK) {
            ps_snapshot_drop(&e->runner);
            ps_piece_ring_close(s->ring);
        }
    }
    pthread_join(s->thread, NULL);
    s->has_thread = false;
    if (info != NULL) {
        info->step = s->state.steps;
        info->bytes = s->n_bytes;
        info->seconds = (double)(s->end_ns - s->begin_ns) * 1e-9;
        info->stall_seconds = (double)(s->stall_ns + ps_clock_ns() - begin_ns) * 1e-9;
        (void)ps_checkpoint_name(s->state.steps, info->name);
    }
    if (st == PS_OK && s->status != PS_OK) st = PS_FAIL(s->status, "%s", s->message);
    close_saver(s);
    e->save = (ps_engine_save){0};
    return st;
}

ps_status ps_engine_save_checkpoint(ps_engine *e, const char *folder, const char *caller_json, ps_checkpoint_info *info)
{
    if (info != NULL) *info = (ps_checkpoint_info){0};
    PS_TRY(ps_engine_begin_checkpoint(e, folder, caller_json));
    return ps_engine_finish_checkpoint(e, info);
}
