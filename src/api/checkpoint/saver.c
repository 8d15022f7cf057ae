/* saver.c - the threads that write a checkpoint.
 *
 *     training thread                               writer thread
 *     updates of chunks --snapshot--> pieces ==ring==> two safetensors files, hash
 *     (all passed on: the ring closes) -------------> sync, state.json, rename, `latest`, older ones removed
 *
 * An extra file is written whole when the saver is created. With several ranks each writes its own files so, into the
 * folder that rank 0 has created. Writer threads of ranks do not communicate: rank 0 turns the files into a checkpoint
 * in the finish, once all ranks have reported that theirs are on disk.
 *
 * Without a staging block (memory.save_buffer) there is no ring in between: the training thread writes each piece
 * itself, straight from its chunk, and the writer thread begins at the sync. The files belong to the training thread
 * until then. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "api/checkpoint/checkpoint_files.h"
#include "api/checkpoint/saver.h"
#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "device/stall.h"
#include "device/worker.h"
#include "weights/checkpoint_folder.h"
#include "weights/piece_ring.h"

struct ps_saver {
    ps_comm *comm; /* NULL: one rank */
    int32_t rank;
    ps_snapshot *snapshot;
    ps_checkpoint_folder folder;
    char name[PS_CHECKPOINT_NAME_MAX];
    ps_checkpoint_state state;
    int64_t keep_last;
    ps_checkpoint_files files;
    ps_piece_ring *ring;
    bool has_ring; /* pieces go through it; otherwise it only starts the writer thread */
    bool all_in;   /* all pieces are in the ring. Read by the writer thread when the ring is closed and empty */
    bool has_thread;
    pthread_t thread;

    int64_t begin_ns, end_ns, n_bytes;
    int64_t stall_ns;  /* the training thread waited for this save in begin and in steps */
    int64_t finish_ns; /* since when it only waits; 0: it does not */
    atomic_bool is_done;
    ps_status status; /* written by the thread that owns the files */
    char message[1024];
    char small_block[PS_PIECE_RING_BYTES_MIN];
};

static void fail_save(ps_saver *s, ps_status st)
{
    if (st == PS_OK || s->status != PS_OK) return;
    s->status = st;
    snprintf(s->message, sizeof s->message, "%s", ps_last_error());
}

/* ---- writer thread ---- */

static void write_piece(ps_saver *s, ps_list list, int32_t array, int64_t offset, const void *data, int64_t n_bytes)
{
    if (s->status != PS_OK) return;
    fail_save(s, ps_checkpoint_files_put(&s->files, list, array, offset, data, n_bytes));
}

static ps_status write_state(ps_saver *s)
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

/* The files of all ranks are there: turn them into a checkpoint. */
static ps_status complete(ps_saver *s)
{
    PS_TRY(write_state(s));
    PS_TRY(ps_checkpoint_folder_commit(&s->folder, s->keep_last));
    ps_stall_set_checkpoint(s->folder.final);
    return PS_OK;
}

static void count_bytes(ps_saver *s)
{
    s->n_bytes = 0;
    for (int i = 0; i < s->state.n_ranks * PS_CHECKPOINT_PART_COUNT; i++) s->n_bytes += s->state.files[i].n_bytes;
    for (int i = 0; i < s->state.n_ranks; i++) s->n_bytes += ps_max_i64(0, s->state.extra[i].n_bytes);
}

static ps_status complete_files(ps_saver *s)
{
    ps_checkpoint_file *own = s->state.files + (size_t)s->rank * PS_CHECKPOINT_PART_COUNT;
    PS_TRY(ps_checkpoint_files_commit(&s->files, own));
    count_bytes(s);
    return s->comm == NULL ? complete(s) : PS_OK;
}

static void *writer_main(void *arg)
{
    ps_saver *s = arg;
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

/* ---- training thread ---- */

static void take_piece(void *user, ps_list list, ps_item item, int32_t tensor, int64_t offset, const void *values,
                       int64_t n)
{
    ps_saver *s = user;
    const int64_t begin = ps_clock_ns();
    const ps_checkpoint_slot slot = ps_checkpoint_files_find(&s->files, tensor, offset);
    if (slot.array < 0) return; /* left out, in a chunk with others */
    if (list >= PS_LIST_STATES && !ps_checkpoint_files_has(&s->files, list, slot.array))
        return; /* zeros, in a chunk with tensors that have this state */
    const int64_t at = ps_item_offset(item, offset - slot.first), bytes = ps_item_bytes(item, n);
    if (s->has_ring)
        ps_piece_ring_put(
            s->ring, &(ps_ring_piece){
                         .index = slot.array * PS_LISTS_MAX + list, .offset = at, .n_bytes = bytes, .data = values});
    else
        write_piece(s, list, slot.array, at, values, bytes);
    if (s->finish_ns == 0) s->stall_ns += ps_clock_ns() - begin;
}

static void end_pieces(void *user)
{
    ps_saver *s = user;
    s->all_in = true;
    ps_piece_ring_close(s->ring);
}

/* Errors in the caller's arguments are reported now, not by the writer thread. */
static ps_status take_state(ps_saver *s, const ps_saver_desc *d)
{
    const ps_ranks *ranks = &d->model->settings->ranks;
    char *text = NULL;
    int64_t n_bytes = 0;
    s->state = *d->state;
    *d->state = (ps_checkpoint_state){0};
    PS_TRY(d->status);
    PS_ASSERT(s->state.n_ranks == ranks->n);
    const ps_status st = ps_checkpoint_state_render(&s->state, &text, &n_bytes);
    ps_mem_free(text);
    return st;
}

static ps_status open_ring(ps_saver *s, const ps_tiers *t)
{
    s->has_ring = t->staging != NULL;
    void *block = s->has_ring ? t->staging : s->small_block;
    return ps_piece_ring_create(block, s->has_ring ? t->staging_bytes : PS_PIECE_RING_BYTES_MIN, &s->ring);
}

void ps_saver_close(ps_saver *s)
{
    if (s == NULL) return;
    ps_snapshot_drop(s->snapshot);
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

/* What rank 0 sends to the others. */
typedef struct made_folder {
    char hidden[PS_CHECKPOINT_HIDDEN_MAX], name[PS_CHECKPOINT_NAME_MAX];
} made_folder;

/* Rank 0 creates the folder; the others are sent its name. */
static ps_status make_folder(ps_saver *s, const ps_saver_desc *d, made_folder *made)
{
    ps_status st = take_state(s, d);
    if (st == PS_OK && s->rank == 0) st = ps_checkpoint_folder_open(d->folder, d->tag, s->state.steps, &s->folder);
    PS_TRY(ps_comm_agree(s->comm, st));
    *made = (made_folder){0};
    strcpy(made->hidden, s->folder.hidden);
    strcpy(made->name, s->name);
    return s->comm == NULL ? PS_OK : ps_comm_broadcast(s->comm, made, sizeof *made, 0);
}

static ps_status write_extra(ps_saver *s, const ps_saver_desc *d)
{
    char name[PS_CHECKPOINT_FILE_NAME_MAX], *path = NULL;
    if (d->extra == NULL) return PS_OK;
    PS_TRY(ps_folder_join(s->folder.temporary, ps_checkpoint_extra_name(s->rank, s->state.n_ranks, name), &path));
    const ps_status st = ps_file_write_all(path, d->extra, d->extra_bytes);
    ps_mem_free(path);
    s->state.extra[s->rank] =
        (ps_checkpoint_file){.n_bytes = d->extra_bytes, .xxh3 = XXH3_64bits(d->extra, (size_t)d->extra_bytes)};
    return st;
}

/* On this rank. The folder must be on a file system that all ranks share. */
static ps_status open_files(ps_saver *s, const ps_saver_desc *d, const made_folder *made)
{
    if (strcmp(made->name, s->name) != 0)
        return PS_FAIL(PS_EINVAL, "rank %d saves checkpoint %s, and rank 0 %s: all ranks must give the same tag",
                       s->rank, s->name, made->name);
    if (s->rank > 0) PS_TRY(ps_checkpoint_folder_join(d->folder, d->tag, s->state.steps, made->hidden, &s->folder));
    PS_TRY(write_extra(s, d));
    PS_TRY(ps_checkpoint_files_open(&s->files, d->model, d->order, d->n, s->folder.temporary));
    return open_ring(s, d->model->tiers);
}

static ps_status allocate(const ps_saver_desc *d, ps_saver **out)
{
    const ps_ranks *ranks = &d->model->settings->ranks;
    const int64_t begin_ns = ps_clock_ns();
    const ps_status st = ps_comm_agree(ranks->comm, ps_mem_alloc(1, sizeof **out, out));
    if (st != PS_OK) {
        ps_mem_free(*out);
        *out = NULL;
        ps_checkpoint_state_deinit(d->state);
        return st;
    }
    ps_saver *s = *out;
    s->begin_ns = begin_ns;
    s->comm = ranks->comm;
    s->rank = ranks->rank;
    s->snapshot = d->snapshot;
    s->keep_last = d->keep_last;
    if (d->tag != NULL)
        snprintf(s->name, sizeof s->name, "%s", d->tag);
    else
        (void)ps_checkpoint_name(d->state->steps, s->name);
    return PS_OK;
}

ps_snapshot_sink ps_saver_sink(ps_saver *s)
{
    return (ps_snapshot_sink){.take = take_piece, .end = end_pieces, .user = s};
}

static ps_status begin_snapshot(ps_saver *s, const ps_saver_desc *d)
{
    const ps_snapshot_sink sink = ps_saver_sink(s);
    PS_TRY(ps_snapshot_begin(s->snapshot, d->model, d->pending, &sink));
    PS_TRY(ps_worker_start("ps-checkpoint", writer_main, s, &s->thread));
    s->has_thread = true;
    return PS_OK;
}

ps_status ps_saver_create(const ps_saver_desc *d, ps_saver **out)
{
    made_folder made;
    *out = NULL;
    PS_TRY(allocate(d, out));
    ps_saver *s = *out;
    ps_status st = make_folder(s, d, &made);
    if (st == PS_OK) st = ps_comm_agree(s->comm, open_files(s, d, &made));
    if (st == PS_OK) st = ps_comm_agree(s->comm, begin_snapshot(s, d));
    s->stall_ns = ps_clock_ns() - s->begin_ns;
    if (st == PS_OK) return PS_OK;
    ps_saver_close(s);
    *out = NULL;
    return st;
}

bool ps_saver_is_done(const ps_saver *s)
{
    return atomic_load(&s->is_done);
}

void ps_saver_begin_finish(ps_saver *s)
{
    s->finish_ns = ps_clock_ns();
}

/* The files of this rank are complete, or st is the error. All ranks report; then rank 0 turns them into a
 * checkpoint. */
static ps_status finish_together(ps_saver *s, ps_status st)
{
    if (s->comm == NULL) return st;
    PS_TRY(ps_comm_agree(s->comm, st));
    ps_checkpoint_file own[PS_CHECKPOINT_PART_COUNT];
    memcpy(own, s->state.files + (size_t)s->rank * PS_CHECKPOINT_PART_COUNT, sizeof own);
    PS_TRY(ps_comm_all_gather(s->comm, own, sizeof own, s->state.files));
    const ps_checkpoint_file extra = s->state.extra[s->rank];
    PS_TRY(ps_comm_all_gather(s->comm, &extra, sizeof extra, s->state.extra));
    count_bytes(s);
    st = PS_OK;
    if (s->rank == 0) st = complete(s);
    PS_TRY(ps_comm_agree(s->comm, st));
    ps_stall_set_checkpoint(s->folder.final);
    s->end_ns = ps_clock_ns();
    return ps_comm_broadcast(s->comm, &s->n_bytes, sizeof s->n_bytes, 0); /* includes state.json */
}

static ps_status finish(ps_saver *s, ps_status st, ps_checkpoint_info *info)
{
    if (st != PS_OK) ps_piece_ring_close(s->ring);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
    if (st == PS_OK && s->status != PS_OK) st = PS_FAIL(s->status, "%s", s->message);
    st = finish_together(s, st);
    if (info == NULL) return st;
    ps_checkpoint_info done = {.step = s->state.steps,
                               .bytes = s->n_bytes,
                               .seconds = (double)(s->end_ns - s->begin_ns) * 1e-9,
                               .stall_seconds = (double)(s->stall_ns + ps_clock_ns() - s->finish_ns) * 1e-9};
    snprintf(done.name, sizeof done.name, "%s", s->name);
    (void)PS_SIZED_GIVE(ps_checkpoint_info, &done, info);
    return st;
}

ps_status ps_saver_finish(ps_saver **s, ps_status st, ps_checkpoint_info *info)
{
    st = finish(*s, st, info);
    ps_saver_close(*s);
    *s = NULL;
    return st;
}
