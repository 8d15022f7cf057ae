/* loader.c - names, shapes, sizes and the state are checked before anything is replaced. Then each file is read once,
 * from its first byte to its last: a thread reads, the caller's thread hashes and puts the values into their chunks.
 * With several ranks each checks every p-th file in this way, and reads of the others only what it owns: with as many
 * ranks as have saved, each byte is read once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "api/checkpoint/checkpoint_check.h"
#include "api/checkpoint/checkpoint_names.h"
#include "api/checkpoint/loader.h"
#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/progress.h"
#include "chunk/comm/agree.h"
#include "device/stall.h"
#include "train/state/values.h"
#include "weights/checkpoint_folder.h"
#include "weights/read_stream.h"
#include "weights/safetensors.h"
#include "weights/tensor_piece.h"

/* The target of a file's tensor in the engine: elements [first, first + n) of a tensor. */
typedef struct target {
    ps_list list;
    int32_t tensor;
    int64_t first, n;
    ps_format format; /* in the file */
} target;

typedef struct open_file {
    char *path;
    ps_safetensors *header;
    target *targets; /* [count of the file's tensors] */
} open_file;

typedef struct named_target {
    char name[PS_CHECKPOINT_TENSOR_NAME_MAX];
    target target; /* the whole tensor */
} named_target;

/* What a file has for a name. */
typedef struct finding {
    int32_t name; /* number in loader.names */
    int64_t first, n;
    const char *path;
} finding;

struct ps_loader {
    const ps_model_state *model;
    char *folder;
    ps_checkpoint_state state;
    open_file *files;    /* [state.n_ranks * PS_CHECKPOINT_PART_COUNT] */
    named_target *names; /* [n_names] by name */
    size_t n_names;
    finding *findings; /* [n_findings] */
    size_t n_findings;
    char carried[PS_FORMAT_GROUP * sizeof(float)]; /* of a group that is read in part, its first bytes */
    ps_loader_put put;
    void *user;
};

/* ---- matching names ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const named_target *)a)->name, ((const named_target *)b)->name);
}

static ps_status add_name(ps_loader *l, int32_t tensor, const char *suffix, ps_list list)
{
    const ps_state_tensor *p = &l->model->tensors[tensor];
    named_target *n = &l->names[l->n_names++];
    n->target = (target){.list = list, .tensor = tensor, .n = p->elements};
    return ps_checkpoint_tensor_name(p->name, suffix, n->name);
}

static ps_status list_names(ps_loader *l)
{
    const ps_settings *s = l->model->settings;
    const int32_t n_tensors = l->model->n_tensors;
    const int32_t n_states = s->training ? s->optimizer.n_states : 0;
    PS_TRY(ps_mem_alloc((size_t)n_tensors * (1 + (size_t)n_states), sizeof *l->names, &l->names));
    for (int32_t t = 0; t < n_tensors; t++) {
        if (l->model->tensors[t].name == NULL || l->model->tensors[t].is_left_out) continue;
        PS_TRY(add_name(l, t, "", PS_VALUE_LIST));
        for (int32_t i = 0; i < n_states; i++)
            if (ps_state_tensor_has(l->model, &l->model->tensors[t], i))
                PS_TRY(add_name(l, t, s->optimizer.optimizer->states[i].suffix, PS_LIST_STATES + i));
    }
    qsort(l->names, l->n_names, sizeof *l->names, compare_names);
    return PS_OK;
}

/* How the file has the values of that list. False: not in any of the ways that values of it are saved. */
static bool find_format(const ps_loader *l, ps_list list, ps_safetensors_dtype dtype, bool is_piece, ps_format *out)
{
    const ps_format compact = list >= PS_LIST_STATES
                                  ? l->model->settings->optimizer.optimizer->states[list - PS_LIST_STATES].compact
                                  : PS_FORMAT_F32;
    *out = dtype == PS_SAFETENSORS_U8 ? compact : dtype == PS_SAFETENSORS_BF16 ? PS_FORMAT_BF16 : PS_FORMAT_F32;
    if (dtype == PS_SAFETENSORS_U8) return is_piece && compact != PS_FORMAT_F32;
    return dtype == PS_SAFETENSORS_F32 || (dtype == PS_SAFETENSORS_BF16 && list >= PS_LIST_STATES);
}

static ps_status check_tensor(const ps_loader *l, const open_file *f, const ps_safetensor *have,
                              const ps_tensor_piece *whole, bool is_piece, const named_target *want, ps_format *format)
{
    const ps_state_tensor *p = &l->model->tensors[want->target.tensor];
    bool same = whole->n_dims == p->n_dims;
    for (int d = 0; same && d < p->n_dims; d++) same = whole->shape[d] == p->shape[d];
    if (!same)
        return PS_FAIL(PS_EINVAL, "%s: tensor %s has %d dimensions [%lld, %lld], the model's has %d [%lld, %lld]",
                       f->path, want->name, whole->n_dims, (long long)(whole->n_dims > 0 ? whole->shape[0] : 0),
                       (long long)(whole->n_dims > 1 ? whole->shape[1] : 0), p->n_dims,
                       (long long)(p->n_dims > 0 ? p->shape[0] : 0), (long long)(p->n_dims > 1 ? p->shape[1] : 0));
    const int64_t align = have->dtype == PS_SAFETENSORS_BF16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    if (!find_format(l, want->target.list, have->dtype, is_piece, format) || have->offset % align != 0)
        return PS_FAIL(PS_EFORMAT,
                       "%s: tensor %s is %s at offset %lld, expected F32 at a multiple of 4, or of states in another "
                       "format BF16 at a multiple of 2 or groups in U8: the file is damaged; load another checkpoint",
                       f->path, want->name, ps_safetensors_dtype_name(have->dtype), (long long)have->offset);
    return PS_OK;
}

static ps_status add_finding(ps_loader *l, const finding *f)
{
    PS_TRY(ps_mem_reserve(&l->findings, l->n_findings + 1, sizeof *l->findings));
    l->findings[l->n_findings++] = *f;
    return PS_OK;
}

/* The states in the files differ from those of the optimizer: `name` is one too many, or missing. */
static ps_status another_optimizer(const ps_loader *l, const char *path, const char *name, bool is_missing)
{
    const ps_optimizer_setup *o = &l->model->settings->optimizer;
    char kept[PS_OPTIMIZER_KEPT_TEXT_MAX];
    return PS_FAIL(PS_EINVAL,
                   "%s: tensor %.128s %s: saved by another optimizer, or with other options, than optimizer.type = %s "
                   "now, which keeps %s of each parameter; set them back, or begin a new run from the weights alone "
                   "(train.init_from)",
                   path, name, is_missing ? "is in none of its files" : "is no state of this one", o->optimizer->name,
                   ps_optimizer_kept_text(o, kept));
}

/* A parameter that is trained now was frozen when it was saved, or the other way round. Its states could begin as
 * zeros; but Adam's bias corrections follow the number of steps, and its first updates would be several times too
 * large. */
static ps_status another_freezing(const ps_loader *l, const char *path, int64_t tensor, bool was_frozen)
{
    return PS_FAIL(PS_EINVAL,
                   "%s: parameter %.128s was %s when it was saved, and is %s now (train.freeze, ps_set_trainable), so "
                   "training could not continue with the same bits; set it back, or begin a new run from the weights "
                   "alone (train.init_from)",
                   path, l->model->tensors[tensor].name, was_frozen ? "frozen" : "trained",
                   was_frozen ? "trained" : "frozen");
}

/* The model's tensor of that name, or the state of one; NULL: none. */
static named_target *find_name(const ps_loader *l, const char *name)
{
    named_target key;
    if (snprintf(key.name, sizeof key.name, "%s", name) >= (int)sizeof key.name) return NULL;
    return bsearch(&key, l->names, l->n_names, sizeof *l->names, compare_names);
}

/* The model's parameter whose state has that name: its name and a suffix; -1: none. */
static int64_t parameter_of_state(const ps_loader *l, const char *name)
{
    char owner[PS_CHECKPOINT_TENSOR_NAME_MAX];
    const char *dot = strrchr(name, '.');
    if (dot == NULL || (size_t)(dot - name) >= sizeof owner) return -1;
    snprintf(owner, sizeof owner, "%.*s", (int)(dot - name), name);
    const named_target *found = find_name(l, owner);
    return found != NULL ? found->target.tensor : -1;
}

/* Tensor number i of a file: a piece, or a whole tensor as its only piece. */
static ps_status match_tensor(ps_loader *l, open_file *f, int i)
{
    const ps_safetensor *t = ps_safetensors_get(f->header, i);
    ps_tensor_piece piece;
    bool is_piece;
    PS_TRY(ps_tensor_piece_read(f->path, f->header, i, &piece, &is_piece));
    const char *name = is_piece ? piece.name : t->name;
    named_target *found = find_name(l, name);
    const int64_t owner = found == NULL ? parameter_of_state(l, name) : -1;
    if (owner >= 0 && !l->model->tensors[owner].is_trained) return another_freezing(l, f->path, owner, false);
    if (owner >= 0) return another_optimizer(l, f->path, name, false);
    if (found == NULL) return PS_FAIL(PS_EINVAL, "%s: tensor %.128s is not one of the model's", f->path, t->name);
    if (!is_piece) {
        piece.n_dims = t->n_dims;
        memcpy(piece.shape, t->shape, sizeof piece.shape);
    }
    f->targets[i] = found->target;
    PS_TRY(check_tensor(l, f, t, &piece, is_piece, found, &f->targets[i].format));
    if (is_piece) {
        f->targets[i].first = piece.first;
        f->targets[i].n = piece.n;
    }
    return add_finding(l, &(finding){.name = (int32_t)(found - l->names),
                                     .first = f->targets[i].first,
                                     .n = f->targets[i].n,
                                     .path = f->path});
}

static ps_status match_tensors(ps_loader *l, open_file *f)
{
    const int n = ps_safetensors_count(f->header);
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *f->targets, &f->targets));
    for (int i = 0; i < n; i++) PS_TRY(match_tensor(l, f, i));
    return PS_OK;
}

static int compare_findings(const void *a, const void *b)
{
    const finding *x = a, *y = b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* Checks that no element is there twice. */
static ps_status check_doubles(const ps_loader *l)
{
    for (size_t i = 1; i < l->n_findings; i++) {
        const finding *a = &l->findings[i - 1], *b = &l->findings[i];
        if (a->name == b->name && b->first < a->first + a->n)
            return PS_FAIL(PS_EFORMAT, "%s: tensor %s was in the file of another rank already%s", b->path,
                           l->names[b->name].name, b->n < l->names[b->name].target.n ? ", in part" : "");
    }
    return PS_OK;
}

/* A state is missing. Do the files have it for other parameters? */
static bool has_other_states(const ps_loader *l, ps_list list)
{
    for (size_t i = 0; i < l->n_findings; i++)
        if (l->names[l->findings[i].name].target.list == list) return true;
    return false;
}

static ps_status fail_missing_state(const ps_loader *l, const named_target *want)
{
    const bool has_whole = ps_optimizer_has_whole(&l->model->settings->optimizer); /* tensors differ in their states */
    if (has_other_states(l, want->target.list) && !has_whole)
        return another_freezing(l, l->folder, want->target.tensor, true);
    return another_optimizer(l, l->folder, want->name, true);
}

/* Checks that every element of every tensor is there exactly once. */
static ps_status check_findings(ps_loader *l)
{
    if (l->n_findings > 0) qsort(l->findings, l->n_findings, sizeof *l->findings, compare_findings);
    PS_TRY(check_doubles(l));
    const finding *f = l->findings, *end = f + l->n_findings;
    for (size_t i = 0; i < l->n_names; i++) {
        const named_target *want = &l->names[i];
        const bool is_missing = f == end || (size_t)f->name != i;
        if (is_missing && want->target.list >= PS_LIST_STATES) return fail_missing_state(l, want);
        if (is_missing)
            return PS_FAIL(PS_EINVAL,
                           "%s: tensor %s of this run's model is in none of its files: it was saved of another "
                           "model",
                           l->folder, want->name);
        int64_t n = 0;
        while (f < end && (size_t)f->name == i && ps_tensor_piece_follows(&n, f->first, f->n)) f++;
        if (n != want->target.n)
            return PS_FAIL(PS_EFORMAT, "%s: tensor %s: element %lld of %lld is in none of its files", l->folder,
                           want->name, (long long)n, (long long)want->target.n);
    }
    return PS_OK;
}

static int n_parts(const ps_loader *l)
{
    return l->model->settings->training ? PS_CHECKPOINT_PART_COUNT : PS_CHECKPOINT_OPTIMIZER;
}

static open_file *file_of(const ps_loader *l, int rank, int part)
{
    return &l->files[rank * PS_CHECKPOINT_PART_COUNT + part];
}

static const ps_checkpoint_file *expected_file(const ps_loader *l, int rank, int part)
{
    return &l->state.files[rank * PS_CHECKPOINT_PART_COUNT + part];
}

static ps_status open_one(ps_loader *l, int rank, int part)
{
    char name[PS_CHECKPOINT_FILE_NAME_MAX];
    open_file *f = file_of(l, rank, part);
    ps_file *file = NULL;
    (void)ps_checkpoint_file_name((ps_checkpoint_part)part, rank, l->state.n_ranks, name);
    PS_TRY(ps_folder_join(l->folder, name, &f->path));
    PS_TRY(ps_file_open(f->path, &file));
    const int64_t n_bytes = ps_file_bytes(file);
    ps_file_close(file);
    PS_TRY(ps_checkpoint_check_bytes(f->path, n_bytes, expected_file(l, rank, part)));
    PS_TRY(ps_safetensors_open(f->path, &f->header));
    return match_tensors(l, f);
}

ps_status ps_loader_check(ps_loader *l)
{
    PS_TRY(list_names(l));
    PS_TRY(ps_mem_alloc((size_t)l->state.n_ranks * PS_CHECKPOINT_PART_COUNT, sizeof *l->files, &l->files));
    for (int rank = 0; rank < l->state.n_ranks; rank++)
        for (int part = 0; part < n_parts(l); part++) PS_TRY(open_one(l, rank, part));
    return check_findings(l);
}

/* ---- content ---- */

/* As they are read: states are put group by group where they are no floats, in the file or here. */
static bool by_groups(const ps_loader *l, const target *t)
{
    return t->format != PS_FORMAT_F32 || ps_state_format(l->model, t->list) != PS_FORMAT_F32;
}

/* Bytes of a group's elements in the file. */
static int64_t group_bytes(const target *t)
{
    return ps_format_bytes(t->format, PS_FORMAT_GROUP);
}

/* Elements [first, ...) of the array, as far as it has them, from whole groups, or its last one in part. */
static ps_status put_groups(const ps_loader *l, const target *t, int64_t first, const char *groups, int64_t bytes)
{
    enum { AT_ONCE = 64 * PS_FORMAT_GROUP };
    float values[AT_ONCE];
    const int64_t unit = group_bytes(t), end = ps_min_i64(t->n, first + ps_ceil_div(bytes, unit) * PS_FORMAT_GROUP);
    for (int64_t n; first < end; first += n, groups += n / PS_FORMAT_GROUP * unit) {
        n = ps_min_i64(AT_ONCE, end - first);
        if (t->format == PS_FORMAT_F32)
            memcpy(values, groups, (size_t)n * sizeof *values);
        else
            ps_format_decode(t->format, groups, 0, values, n);
        PS_TRY(l->put(l->user, t->tensor, t->list, t->first + first, n, values));
    }
    return PS_OK;
}

/* Bytes [begin, begin + n) of the array in the file, which follow those before. A group that they end in the middle of
 * is kept for the next ones. */
static ps_status put_by_groups(ps_loader *l, const target *t, int64_t begin, const char *bytes, int64_t n,
                               int64_t array_bytes)
{
    const int64_t unit = group_bytes(t);
    if (begin % unit > 0) {
        const int64_t more = ps_min_i64(n, unit - begin % unit);
        memcpy(l->carried + begin % unit, bytes, (size_t)more);
        begin += more, bytes += more, n -= more;
        if (begin % unit > 0 && begin < array_bytes) return PS_OK;
        const int64_t whole = begin % unit > 0 ? begin % unit : unit;
        PS_TRY(put_groups(l, t, (begin - whole) / unit * PS_FORMAT_GROUP, l->carried, whole));
    }
    const int64_t rest = begin + n < array_bytes ? n % unit : 0;
    if (n > rest) PS_TRY(put_groups(l, t, begin / unit * PS_FORMAT_GROUP, bytes, n - rest));
    memcpy(l->carried, bytes + n - rest, (size_t)rest);
    return PS_OK;
}

/* Puts the elements that a piece of the file has of its tensor number i. */
static ps_status put_piece(ps_loader *l, const open_file *f, int i, const ps_ring_piece *p)
{
    const ps_safetensor *t = ps_safetensors_get(f->header, i);
    const target *to = &f->targets[i];
    const int64_t begin = ps_max_i64(p->offset, t->offset), item = (int64_t)sizeof(float);
    const int64_t end = ps_min_i64(p->offset + p->n_bytes, t->offset + t->n_bytes);
    if (begin >= end) return PS_OK;
    const char *values = (const char *)p->data + (begin - p->offset);
    if (by_groups(l, to)) return put_by_groups(l, to, begin - t->offset, values, end - begin, t->n_bytes);
    return l->put(l->user, to->tensor, to->list, to->first + (begin - t->offset) / item, (end - begin) / item,
                  (const float *)(const void *)values);
}

/* hash NULL: the stream has only ranges of the file. */
static ps_status place_content(ps_loader *l, const open_file *f, ps_read_stream *stream, XXH3_state_t *hash)
{
    const int n = ps_safetensors_count(f->header);
    ps_ring_piece p;
    int first = 0; /* tensors before it are complete */
    while (ps_read_stream_take(stream, &p)) {
        if (hash != NULL) XXH3_64bits_update(hash, p.data, (size_t)p.n_bytes);
        for (int i = first; i < n; i++) {
            const ps_safetensor *t = ps_safetensors_get(f->header, i);
            if (t->offset >= p.offset + p.n_bytes) break;
            PS_TRY(put_piece(l, f, i, &p));
            if (t->offset + t->n_bytes <= p.offset + p.n_bytes) first = i + 1;
        }
    }
    return PS_OK;
}

static ps_status load_ranges(ps_loader *l, const open_file *f, const ps_read_range *ranges, int n, XXH3_state_t *hash)
{
    ps_read_stream *stream = NULL;
    PS_TRY(ps_read_stream_open(ranges, n, &stream));
    const ps_status st = place_content(l, f, stream, hash);
    const ps_status read = ps_read_stream_close(stream);
    return st != PS_OK ? st : read;
}

/* Reads it from the first byte to the last. */
static ps_status load_whole(ps_loader *l, const open_file *f, const ps_file *content,
                            const ps_checkpoint_file *expected)
{
    XXH3_state_t *hash = XXH3_createState();
    if (hash == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a hash state");
    XXH3_64bits_reset(hash);
    const ps_read_range whole = {.file = content, .n_bytes = ps_file_bytes(content)};
    ps_status st = load_ranges(l, f, &whole, 1, hash);
    if (st == PS_OK) st = ps_checkpoint_check_xxh3(f->path, XXH3_64bits_digest(hash), expected);
    XXH3_freeState(hash);
    return st;
}

/* The next elements of a tensor that this rank owns, as ps_values_next_owned. All ranks own one in no chunk. */
static bool next_owned(const ps_loader *l, int32_t tensor, int64_t *first, int64_t *n)
{
    const ps_state_tensor *t = &l->model->tensors[tensor];
    if (t->in_layout >= 0) return ps_values_next_owned(l->model, t->in_layout, first, n);
    *n = t->elements - *first;
    return *n > 0;
}

/* The ranges of the file with elements that this rank owns, in order. Returns their number; ranges NULL: only counts
 * them. */
static int list_own(const ps_loader *l, const open_file *f, const ps_file *content, ps_read_range *ranges)
{
    const int n_tensors = ps_safetensors_count(f->header);
    int n = 0;
    for (int i = 0; i < n_tensors; i++) {
        const target *t = &f->targets[i];
        int64_t first = t->first, length;
        for (; next_owned(l, t->tensor, &first, &length) && first < t->first + t->n; first += length) {
            length = ps_min_i64(length, t->first + t->n - first);
            const ps_item item = ps_format_item(t->format);
            const ps_read_range r = {.file = content,
                                     .offset = ps_safetensors_get(f->header, i)->offset +
                                               ps_item_offset(item, first - t->first),
                                     .n_bytes = ps_item_bytes(item, length)};
            if (ranges != NULL) ranges[n] = r;
            n++;
        }
    }
    return n;
}

static ps_status load_own(ps_loader *l, const open_file *f, const ps_file *content)
{
    ps_read_range *ranges = NULL;
    const int n = list_own(l, f, content, NULL);
    if (n == 0) return PS_OK;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *ranges, &ranges));
    (void)list_own(l, f, content, ranges);
    const ps_status st = load_ranges(l, f, ranges, n, NULL);
    ps_mem_free(ranges);
    return st;
}

static ps_status load_file(ps_loader *l, int rank, int part)
{
    const open_file *f = file_of(l, rank, part);
    const ps_ranks *ranks = &l->model->settings->ranks;
    ps_file *content = NULL;
    PS_TRY(ps_file_open(f->path, &content));
    const ps_status st = rank % ranks->n == ranks->rank ? load_whole(l, f, content, expected_file(l, rank, part))
                                                        : load_own(l, f, content);
    ps_file_close(content);
    return st;
}

ps_status ps_loader_load(ps_loader *l, ps_loader_put put, void *user)
{
    l->put = put;
    l->user = user;
    for (int rank = 0; rank < l->state.n_ranks; rank++)
        for (int part = 0; part < n_parts(l); part++) {
            PS_TRY(ps_progress_report(PS_PROGRESS_LOAD, rank * n_parts(l) + part, l->state.n_ranks * n_parts(l)));
            PS_TRY(load_file(l, rank, part));
        }
    ps_stall_set_checkpoint(l->folder);
    return PS_OK;
}

/* ---- create, destroy ---- */

/* Two of one step differ in what their files hold. */
ps_status ps_loader_check_same(const ps_loader *l)
{
    ps_comm *comm = l->model->settings->ranks.comm;
    const ps_checkpoint_state *s = &l->state;
    const size_t n_files = (size_t)s->n_ranks * PS_CHECKPOINT_PART_COUNT;
    /* as much of the hash as a double holds */
    const double is[] = {(double)s->steps, (double)(XXH3_64bits(s->files, n_files * sizeof *s->files) >> 11)};
    double least[PS_ARRAY_LEN(is)], most[PS_ARRAY_LEN(is)];
    if (comm == NULL) return PS_OK;
    PS_TRY(ps_comm_find_range(comm, is, PS_ARRAY_LEN(is), least, most));
    if (least[0] == most[0] && least[1] == most[1]) return PS_OK;
    return PS_FAIL(PS_EIO,
                   "%s, of step %lld: the ranks have found different checkpoints%s: all ranks must give the same "
                   "folder and tag, in "
                   "one file system",
                   l->folder, (long long)s->steps, least[0] != most[0] ? ", of different steps" : " of the same step");
}

ps_status ps_loader_find_extra(const ps_loader *l, int rank, char **path)
{
    char name[PS_CHECKPOINT_FILE_NAME_MAX];
    *path = NULL;
    if (l->state.extra[rank].n_bytes < 0) return PS_OK;
    PS_TRY(ps_folder_join(l->folder, ps_checkpoint_extra_name(rank, l->state.n_ranks, name), path));
    const ps_status st = ps_checkpoint_check_file(*path, &l->state.extra[rank]);
    if (st == PS_OK) return PS_OK;
    ps_mem_free(*path);
    *path = NULL;
    return st;
}

ps_status ps_loader_open(const ps_model_state *model, const char *folder, ps_loader **out)
{
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->model = model;
    PS_TRY(ps_checkpoint_folder_find(folder, &(*out)->folder));
    return ps_checkpoint_state_load((*out)->folder, &(*out)->state);
}

const ps_checkpoint_state *ps_loader_state(const ps_loader *l)
{
    return &l->state;
}

const char *ps_loader_folder(const ps_loader *l)
{
    return l->folder;
}

/* What becomes of states and of masters; NULL: nothing is lost. */
static const char *lost_of_states(ps_config_state_format was, ps_config_state_format is)
{
    const bool are_floats = is == PS_CONFIG_STATE_FORMAT_FP32, are_bf16 = is == PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC;
    const bool were_8_bits = was == PS_CONFIG_STATE_FORMAT_COMPACT || was == PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT;
    if (are_bf16) return "states of the optimizer are rounded to bf16";
    return are_floats || were_8_bits ? NULL : "states of the optimizer are rounded to 8 bits";
}

static const char *lost_of_masters(ps_config_state_format was, ps_config_state_format is)
{
    if (is == PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC) return "masters are rounded to bf16";
    if (was == PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC || is != PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT) return NULL;
    return "one master in 131072 is rounded by 2^-24";
}

const char *ps_loader_describe_conversion(const ps_loader *l, char text[PS_LOADER_CONVERSION_MAX])
{
    const ps_settings *s = l->model->settings;
    const ps_config_state_format was = l->state.state_format, is = ps_optimizer_format(&s->optimizer);
    if (!s->training || s->optimizer.n_states == 0 || was == is) return NULL;
    const char *const states = lost_of_states(was, is), *const masters = lost_of_masters(was, is);
    const char *const first = states != NULL ? states : masters;
    snprintf(text, PS_LOADER_CONVERSION_MAX,
             "%s: saved with optimizer.params.state_format = %s, which is %s now: %s%s%s, and training continues with "
             "other bits than with the saved format",
             l->folder, ps_config_state_format_names[was], ps_config_state_format_names[is],
             first != NULL ? first : "states of the optimizer and masters are converted without loss",
             states != NULL && masters != NULL ? ", and " : "", states != NULL && masters != NULL ? masters : "");
    return text;
}

char *ps_loader_take_caller_json(ps_loader *l)
{
    char *text = l->state.caller_json;
    l->state.caller_json = NULL;
    return text;
}

void ps_loader_close(ps_loader *l)
{
    if (l == NULL) return;
    for (int i = 0; l->files != NULL && i < l->state.n_ranks * PS_CHECKPOINT_PART_COUNT; i++) {
        ps_safetensors_close(l->files[i].header);
        ps_mem_free(l->files[i].targets);
        ps_mem_free(l->files[i].path);
    }
    ps_mem_free(l->files);
    ps_mem_free(l->findings);
    ps_mem_free(l->names);
    ps_mem_free(l->folder);
    ps_checkpoint_state_deinit(&l->state);
    ps_mem_free(l);
}
