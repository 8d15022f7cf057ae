/* checkpoint_save.c - a checkpoint is written while training goes on.
 *
 *     training thread                               writer thread
 *     updates of chunks --snapshot--> pieces ==ring==> two safetensors files, hash
 *     (all handed out: the ring closes) -----------> sync, state.json, rename, `latest`, older ones removed
 *
 * With several ranks each writes its own two files so, into the folder that rank 0 has made. Writer threads do not talk
 * to each other: what makes the files a checkpoint is done by rank 0 in the finish, once all ranks have said that
 * theirs are on disk.
 *
 * Without a staging block (memory.save_buffer) there is no ring between: the training thread writes each piece itself,
 * straight from its chunk, and the writer thread begins at the sync. The files belong to the training thread until
 * then. */
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
#include "base/sized.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_state.h"
#include "comm/agree.h"
#include "device/worker.h"
#include "engine/engine.h"
#include "weights/checkpoint_folder.h"
#include "weights/piece_ring.h"

typedef struct saver {
    ps_comm *comm; /* NULL: one rank */
    int32_t rank;
    ps_checkpoint_folder folder;
    ps_checkpoint_state state;
    int64_t keep_last;
    ps_checkpoint_files files;
    ps_piece_ring *ring;
    bool has_ring; /* pieces go through it; else it only tells the writer thread when to begin */
    bool all_in;   /* every piece was handed out. The writer thread reads it when the ring is closed and empty */
    bool has_thread;
    pthread_t thread;

    int64_t begin_ns, end_ns, n_bytes;
    int64_t stall_ns; /* the training thread waited for this save in begin and in steps; finish adds its own time */
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

static void write_piece(saver *s, ps_list list, int32_t array, int64_t offset, const void *data, int64_t n_bytes)
{
    if (s->status != PS_OK) return;
    fail_save(s, ps_checkpoint_files_put(&s->files, list, array, offset, data, n_bytes));
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

/* The files of all ranks are there: make them a checkpoint. */
static ps_status complete(saver *s)
{
    PS_TRY(write_state(s));
    return ps_checkpoint_folder_commit(&s->folder, s->keep_last);
}

static ps_status complete_files(saver *s)
{
    ps_checkpoint_file *own = s->state.files + (size_t)s->rank * PS_CHECKPOINT_PART_COUNT;
    PS_TRY(ps_checkpoint_files_commit(&s->files, own));
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++) s->n_bytes += own[part].n_bytes;
    return s->comm == NULL ? complete(s) : PS_OK;
}

static void *writer_main(void *arg)
{
    saver *s = arg;
    ps_ring_piece p;
    while (ps_piece_ring_take(s->ring, &p)) {
        const int32_t array = p.index / PS_LISTS_MAX;
        write_piece(s, p.index % PS_LISTS_MAX, array, p.offset, p.data, p.n_bytes);
    }
    if (s->status == PS_OK && s->all_in) fail_save(s, complete_files(s));
    ps_checkpoint_files_cancel(&s->files);
    if (s->comm == NULL) ps_checkpoint_folder_close(&s->folder);
    s->end_ns = ps_clock_ns();
    atomic_store(&s->is_done, true);
    return NULL;
}

/* ---- the training thread's side ---- */

static void take_piece(void *user, ps_list list, int32_t tensor, int64_t offset, const float *values, int64_t n)
{
    saver *s = user;
    const int64_t begin = ps_clock_ns(), bytes = (int64_t)sizeof *values;
    const ps_checkpoint_slot slot = ps_checkpoint_files_find(&s->files, tensor, offset);
    offset -= slot.first;
    if (s->has_ring)
        ps_piece_ring_put(s->ring, &(ps_ring_piece){.index = slot.array * PS_LISTS_MAX + list,
                                                    .offset = offset * bytes,
                                                    .n_bytes = n * bytes,
                                                    .data = values});
    else
        write_piece(s, list, slot.array, offset * bytes, values, n * bytes);
    s->stall_ns += ps_clock_ns() - begin;
}

static void end_pieces(void *user)
{
    saver *s = user;
    s->all_in = true;
    ps_piece_ring_close(s->ring);
}

static ps_status take_state(saver *s, const ps_engine *e, const char *caller_json)
{
    const ps_settings *o = &e->settings;
    const ps_loss_scaler *scaler = &e->scaler;
    PS_TRY(ps_checkpoint_state_init(&s->state, o->ranks.n));
    ps_checkpoint_state *state = &s->state;
    state->steps = ps_runner_steps(e->runner);
    state->optimizer_steps = e->n_updates;
    state->micro_batches = ps_runner_steps(e->runner) * o->accumulation;
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
    state->has_loss_average = true;
    state->loss_average = e->loss_average;
    ps_arithmetic_of(o, &state->arithmetic);
    PS_TRY(ps_mem_strdup(e->config_json, &state->config_json));
    PS_TRY(ps_products_render(&e->products, &state->products_json));
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
    }
    ps_checkpoint_files_close(&s->files);
    ps_checkpoint_folder_close(&s->folder);
    ps_piece_ring_destroy(s->ring);
    ps_checkpoint_state_deinit(&s->state);
    ps_mem_free(s);
}

static ps_status expect_between_steps(const ps_engine *e, const char *call)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, call));
    PS_TRY(ps_engine_expect_values(e, call));
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: this engine is for inference", call);
    if (ps_runner_micro(e->runner) > 0)
        return PS_FAIL(PS_ESTATE, "%s: micro-batch %lld of %lld of a step is done; finish the step first", call,
                       (long long)ps_runner_micro(e->runner), (long long)e->settings.accumulation);
    return PS_OK;
}

/* Rank 0 makes the folder; the others are told its name. */
static ps_status make_folder(saver *s, const ps_engine *e, const char *folder, const char *caller_json,
                             char hidden[PS_CHECKPOINT_HIDDEN_MAX])
{
    ps_status st = take_state(s, e, caller_json);
    if (st == PS_OK && s->rank == 0) st = ps_checkpoint_folder_open(folder, s->state.steps, &s->folder);
    PS_TRY(ps_comm_agree(s->comm, st));
    memcpy(hidden, s->folder.hidden, PS_CHECKPOINT_HIDDEN_MAX);
    return s->comm == NULL ? PS_OK : ps_comm_broadcast(s->comm, hidden, PS_CHECKPOINT_HIDDEN_MAX, 0);
}

/* Of this rank. The folder must be on a file system that all ranks see. */
static ps_status begin_writing(saver *s, ps_engine *e, const char *folder, const char *hidden)
{
    if (s->rank > 0) PS_TRY(ps_checkpoint_folder_join(folder, s->state.steps, hidden, &s->folder));
    PS_TRY(ps_checkpoint_files_open(&s->files, e, s->folder.temporary));
    PS_TRY(open_ring(s, e));
    const ps_snapshot_sink sink = {.take = take_piece, .end = end_pieces, .user = s};
    PS_TRY(ps_runner_begin_snapshot(e->runner, &sink));
    const ps_status st = ps_worker_start("ps-checkpoint", writer_main, s, &s->thread);
    s->has_thread = st == PS_OK;
    return st;
}

static ps_status create_saver(const ps_engine *e, saver **out)
{
    ps_comm *comm = e->settings.ranks.comm;
    const int64_t begin_ns = ps_clock_ns();
    const ps_status st = ps_comm_agree(comm, ps_mem_alloc(1, sizeof **out, out));
    if (st != PS_OK) {
        ps_mem_free(*out);
        *out = NULL;
        return st;
    }
    saver *s = *out;
    s->begin_ns = begin_ns;
    s->comm = comm;
    s->rank = e->settings.ranks.rank;
    s->keep_last = e->settings.keep_checkpoints;
    return PS_OK;
}

ps_status ps_engine_begin_checkpoint(ps_engine *e, const char *folder, const char *caller_json)
{
    PS_TRY(PS_NEED("engine folder", e, folder));
    PS_TRY(expect_between_steps(e, "ps_engine_begin_checkpoint"));
    if (e->save.user != NULL)
        return PS_FAIL(PS_ESTATE, "ps_engine_begin_checkpoint: one is under way; call ps_engine_finish_checkpoint");
    saver *s = NULL;
    char hidden[PS_CHECKPOINT_HIDDEN_MAX];
    PS_TRY(create_saver(e, &s));
    ps_status st = make_folder(s, e, folder, caller_json, hidden);
    if (st == PS_OK) st = ps_comm_agree(s->comm, begin_writing(s, e, folder, hidden));
    if (st != PS_OK) {
        ps_runner_drop_snapshot(e->runner);
        close_saver(s);
        return st;
    }
    s->stall_ns = ps_clock_ns() - s->begin_ns;
    e->save = (ps_engine_save){.user = s, .close = close_saver};
    return PS_OK;
}

int ps_engine_checkpoint_is_done(const ps_engine *e)
{
    const saver *s = e->save.user;
    return s == NULL || atomic_load(&s->is_done);
}

/* What no update has handed out is handed out now. */
static ps_status finish_snapshot(saver *s, ps_engine *e)
{
    if (!ps_runner_has_snapshot(e->runner)) return PS_OK;
    ps_status st = expect_between_steps(e, "ps_engine_finish_checkpoint");
    if (st == PS_OK) st = ps_engine_check_device(e, ps_runner_finish_snapshot(e->runner));
    if (st != PS_OK) {
        ps_runner_drop_snapshot(e->runner);
        ps_piece_ring_close(s->ring);
    }
    return st;
}

/* The files of this rank are complete, or st says why not. All ranks tell; then rank 0 makes a checkpoint of them. */
static ps_status finish_together(saver *s, ps_status st)
{
    if (s->comm == NULL) return st;
    PS_TRY(ps_comm_agree(s->comm, st));
    ps_checkpoint_file own[PS_CHECKPOINT_PART_COUNT];
    memcpy(own, s->state.files + (size_t)s->rank * PS_CHECKPOINT_PART_COUNT, sizeof own);
    PS_TRY(ps_comm_all_gather(s->comm, own, sizeof own, s->state.files));
    s->n_bytes = 0;
    for (int i = 0; i < s->state.n_ranks * PS_CHECKPOINT_PART_COUNT; i++) s->n_bytes += s->state.files[i].n_bytes;
    st = PS_OK;
    if (s->rank == 0) st = complete(s);
    PS_TRY(ps_comm_agree(s->comm, st));
    s->end_ns = ps_clock_ns();
    return ps_comm_broadcast(s->comm, &s->n_bytes, sizeof s->n_bytes, 0); /* state.json is in it */
}

ps_status ps_engine_finish_checkpoint(ps_engine *e, ps_checkpoint_info *info)
{
    PS_TRY(PS_NEED("engine", e));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_checkpoint_info, &(ps_checkpoint_info){0}, info));
    saver *s = e->save.user;
    if (s == NULL) return PS_FAIL(PS_ESTATE, "ps_engine_finish_checkpoint: none was begun");
    const int64_t begin_ns = ps_clock_ns(), stall_ns = s->stall_ns; /* pieces that are taken now add to it, too */
    ps_status st = finish_snapshot(s, e);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
    if (st == PS_OK && s->status != PS_OK) st = PS_FAIL(s->status, "%s", s->message);
    st = finish_together(s, st);
    if (info != NULL) {
        ps_checkpoint_info done = {.step = s->state.steps,
                                   .bytes = s->n_bytes,
                                   .seconds = (double)(s->end_ns - s->begin_ns) * 1e-9,
                                   .stall_seconds = (double)(stall_ns + ps_clock_ns() - begin_ns) * 1e-9};
        (void)ps_checkpoint_name(s->state.steps, done.name);
        (void)PS_SIZED_GIVE(ps_checkpoint_info, &done, info);
    }
    close_saver(s);
    e->save = (ps_engine_save){0};
    return st;
}

ps_status ps_engine_save_checkpoint(ps_engine *e, const char *folder, const char *caller_json, ps_checkpoint_info *info)
{
    PS_TRY(PS_NEED("engine folder", e, folder));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_checkpoint_info, &(ps_checkpoint_info){0}, info));
    PS_TRY(ps_engine_begin_checkpoint(e, folder, caller_json));
    return ps_engine_finish_checkpoint(e, info);
}
