#include "weights/weight_source_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/folder.h"
#include "base/mem.h"
#include "weights/torch_file.h"

#define COMPARE_BYTES (256 * PS_KIB)

/* ---- one file ---- */

static ps_status add_weight(ps_weight_source *s, const ps_safetensor *t, int file)
{
    PS_TRY(ps_mem_reserve(&s->weights, (size_t)s->n + 1, sizeof *s->weights));
    s->weights[s->n++] = (ps_weight){.tensor = *t, .file = file};
    return PS_OK;
}

static ps_status add_piece(ps_weight_source *s, const ps_tensor_piece *piece, const ps_safetensor *t, int file)
{
    PS_TRY(ps_mem_reserve(&s->pieces, (size_t)s->n_pieces + 1, sizeof *s->pieces));
    s->pieces[s->n_pieces++] = (source_piece){.piece = *piece, .stored = *t, .file = file};
    return PS_OK;
}

static ps_status add_safetensors(ps_weight_source *s, source_file *f)
{
    PS_TRY(ps_safetensors_open(f->path, &f->safetensors));
    for (int i = 0; i < ps_safetensors_count(f->safetensors); i++) {
        ps_tensor_piece piece;
        bool is_piece;
        const ps_safetensor *t = ps_safetensors_get(f->safetensors, i);
        PS_TRY(ps_tensor_piece_read(f->path, f->safetensors, i, &piece, &is_piece));
        PS_TRY(is_piece ? add_piece(s, &piece, t, (int)(f - s->files)) : add_weight(s, t, (int)(f - s->files)));
    }
    return PS_OK;
}

static ps_status add_torch_tensor(ps_weight_source *s, const source_file *f, const ps_torch_zip *zip,
                                  const ps_torch_tensor *t)
{
    ps_safetensor placed;
    PS_TRY(ps_torch_file_place(f->path, zip, t, &placed));
    return add_weight(s, &placed, (int)(f - s->files));
}

static ps_status read_torch(ps_weight_source *s, source_file *f, const ps_torch_zip *zip)
{
    char *data = NULL;
    int64_t n = 0;
    PS_TRY(ps_torch_file_read_pickle(f->path, zip, &data, &n));
    const ps_status st = ps_torch_pickle_read(f->path, data, n, &f->pickle);
    ps_mem_free(data);
    PS_TRY(st);
    for (int i = 0; i < ps_torch_pickle_count(f->pickle); i++)
        PS_TRY(add_torch_tensor(s, f, zip, ps_torch_pickle_get(f->pickle, i)));
    return PS_OK;
}

static ps_status add_torch(ps_weight_source *s, source_file *f)
{
    ps_torch_zip *zip = NULL;
    PS_TRY(ps_file_open(f->path, &f->torch_file));
    PS_TRY(ps_torch_zip_open(f->torch_file, &zip));
    const ps_status st = read_torch(s, f, zip);
    ps_torch_zip_close(zip);
    return st;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && strcmp(s + n - n_end, end) == 0;
}

/* By name, or, for other names, by the first bytes: a zip file, or a pickle (which is refused later with a message). */
static ps_status is_torch_file(const char *path, bool *is_torch)
{
    ps_file *f = NULL;
    char head[2] = {0};
    *is_torch = ends_with(path, ".bin") || ends_with(path, ".pt") || ends_with(path, ".pth");
    if (*is_torch || ends_with(path, ".safetensors")) return PS_OK;
    PS_TRY(ps_file_open(path, &f));
    const ps_status st = ps_file_bytes(f) >= 2 ? ps_file_read(f, 0, head, 2) : PS_OK;
    ps_file_close(f);
    *is_torch = memcmp(head, "PK", 2) == 0 || memcmp(head, "\x80\x02", 2) == 0;
    return st;
}

ps_status ps_weight_source_add_file(ps_weight_source *s, char *path)
{
    bool is_torch = false;
    const ps_status st = ps_mem_reserve(&s->files, (size_t)s->n_files + 1, sizeof *s->files);
    if (st != PS_OK) ps_mem_free(path);
    PS_TRY(st);
    source_file *f = &s->files[s->n_files++];
    f->path = path;
    PS_TRY(is_torch_file(path, &is_torch));
    return is_torch ? add_torch(s, f) : add_safetensors(s, f);
}

/* ---- all files ---- */

static int compare_weights(const void *a, const void *b)
{
    const ps_weight *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    if (x->tensor.offset != y->tensor.offset) return x->tensor.offset < y->tensor.offset ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* A duplicate tensor: an error, or, if allowed, it must have the same bytes. */
static ps_status check_double(const ps_weight_source *s, const ps_weight *a, const ps_weight *b)
{
    bool is_equal = false;
    if (s->may_repeat) PS_TRY(ps_weight_source_is_equal(s, a, b, &is_equal));
    if (is_equal) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "tensor %.128s is in %s and in %s%s", a->tensor.name, s->files[a->file].path,
                   s->files[b->file].path, s->may_repeat ? ", and not the same" : "");
}

static int compare_pieces(const void *a, const void *b)
{
    const ps_tensor_piece *x = &((const source_piece *)a)->piece, *y = &((const source_piece *)b)->piece;
    const int names = strcmp(x->name, y->name);
    if (names != 0) return names;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Pieces [first, end) are of one tensor, and must cover it. */
static ps_status check_pieces(const ps_weight_source *s, int first, int end)
{
    const source_piece *a = &s->pieces[first];
    int64_t n = 0;
    for (int i = first; i < end; i++) {
        const source_piece *p = &s->pieces[i];
        const bool is_same =
            p->stored.dtype == a->stored.dtype && p->piece.n_dims == a->piece.n_dims &&
            memcmp(p->piece.shape, a->piece.shape, (size_t)a->piece.n_dims * sizeof *a->piece.shape) == 0;
        if (!is_same)
            return PS_FAIL(PS_EFORMAT, "tensor %.128s has another type or shape in %s than in %s", a->piece.name,
                           s->files[p->file].path, s->files[a->file].path);
        if (!ps_tensor_piece_follows(&n, p->piece.first, p->piece.n)) break;
    }
    if (n == a->piece.elements) return PS_OK;
    return PS_FAIL(
        PS_EFORMAT,
        "%s: of tensor %.128s element %lld of %lld is in no file, or in two: are these the files of all ranks?",
        s->files[a->file].path, a->piece.name, (long long)n, (long long)a->piece.elements);
}

/* Make a tensor of the pieces of each name. */
static ps_status join_pieces(ps_weight_source *s)
{
    if (s->n_pieces > 0) qsort(s->pieces, (size_t)s->n_pieces, sizeof *s->pieces, compare_pieces);
    for (int first = 0, end; first < s->n_pieces; first = end) {
        const source_piece *a = &s->pieces[first];
        for (end = first + 1; end < s->n_pieces && strcmp(s->pieces[end].piece.name, a->piece.name) == 0;) end++;
        if (s->n_files == 1) {
            for (int i = first; i < end; i++) PS_TRY(add_weight(s, &s->pieces[i].stored, s->pieces[i].file));
            continue;
        }
        PS_TRY(check_pieces(s, first, end));
        ps_safetensor whole = a->stored;
        whole.name = a->piece.name;
        whole.n_dims = a->piece.n_dims;
        memcpy(whole.shape, a->piece.shape, sizeof whole.shape);
        whole.n_bytes = a->piece.elements * ps_safetensors_dtype_bytes(whole.dtype);
        PS_TRY(add_weight(s, &whole, a->file));
        s->weights[s->n - 1].first_piece = first;
        s->weights[s->n - 1].n_pieces = end - first;
    }
    return PS_OK;
}

ps_status ps_weight_source_finish(ps_weight_source *s)
{
    PS_TRY(join_pieces(s));
    if (s->n > 0) qsort(s->weights, (size_t)s->n, sizeof *s->weights, compare_weights);
    PS_TRY(ps_name_index_init(&s->index, s->n));
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const int32_t first = ps_name_index_find(&s->index, s->weights[i].tensor.name);
        if (first >= 0) {
            PS_TRY(check_double(s, &s->weights[first], &s->weights[i]));
            continue;
        }
        s->weights[n] = s->weights[i];
        (void)ps_name_index_add(&s->index, s->weights[n].tensor.name, n);
        n++;
    }
    s->n = n;
    if (s->kind[0] == '\0')
        snprintf(s->kind, sizeof s->kind, "%s", s->files[0].safetensors != NULL ? "safetensors" : "torch.save");
    return PS_OK;
}

/* ---- open and read ---- */

ps_status ps_weight_source_open_files(const char *const *paths, int n, ps_weight_source **out)
{
    PS_ASSERT(n > 0);
    *out = NULL;
    ps_status st;
    ps_weight_source *s = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    for (int i = 0; i < n; i++) {
        char *path = NULL;
        PS_TRY_GOTO(ps_mem_strdup(paths[i], &path));
        PS_TRY_GOTO(ps_weight_source_add_file(s, path));
    }
    s->may_repeat = true;
    if (n > 1) snprintf(s->kind, sizeof s->kind, "%d files", n);
    PS_TRY_GOTO(ps_weight_source_finish(s));
    *out = s;
    s = NULL;
out:
    ps_weight_source_close(s);
    return st;
}

void ps_weight_source_close(ps_weight_source *s)
{
    if (s == NULL) return;
    ps_name_index_deinit(&s->index);
    ps_mem_free(s->weights);
    ps_mem_free(s->pieces);
    for (int i = 0; i < s->n_files; i++) {
        ps_torch_pickle_close(s->files[i].pickle);
        ps_file_close(s->files[i].torch_file);
        ps_safetensors_close(s->files[i].safetensors);
        ps_mem_free(s->files[i].path);
    }
    ps_mem_free(s->files);
    ps_mem_free(s);
}

const char *ps_weight_source_kind(const ps_weight_source *s)
{
    return s->kind;
}

int ps_weight_source_n_files(const ps_weight_source *s)
{
    return s->n_files;
}

const char *ps_weight_source_path(const ps_weight_source *s, int file)
{
    PS_ASSERT(file >= 0 && file < s->n_files);
    return s->files[file].path;
}

const char *ps_weight_source_metadata(const ps_weight_source *s, int file, const char *key)
{
    PS_ASSERT(file >= 0 && file < s->n_files);
    return s->files[file].safetensors != NULL ? ps_safetensors_metadata_value(s->files[file].safetensors, key) : NULL;
}

int ps_weight_source_count(const ps_weight_source *s)
{
    return s->n;
}

const ps_weight *ps_weight_source_get(const ps_weight_source *s, int i)
{
    PS_ASSERT(i >= 0 && i < s->n);
    return &s->weights[i];
}

int ps_weight_source_find(const ps_weight_source *s, const char *name)
{
    return ps_name_index_find(&s->index, name);
}

int ps_weight_source_same_as(const ps_weight_source *s, int i)
{
    const ps_weight *w = ps_weight_source_get(s, i);
    int first = i;
    if (w->n_pieces > 0 || w->tensor.n_bytes == 0) return i;
    for (int k = i - 1; k >= 0; k--) { /* in the order of the data */
        const ps_weight *x = &s->weights[k];
        if (x->n_pieces > 0 || x->file != w->file || x->tensor.offset != w->tensor.offset) break;
        if (x->tensor.n_bytes == w->tensor.n_bytes && x->tensor.dtype == w->tensor.dtype) first = k;
    }
    return first;
}

static const ps_file *file_at(const ps_weight_source *s, int file)
{
    const source_file *f = &s->files[file];
    return f->safetensors != NULL ? ps_safetensors_file(f->safetensors) : f->torch_file;
}

ps_read_range ps_weight_source_range(const ps_weight_source *s, const ps_weight *w, int64_t at)
{
    PS_ASSERT(at >= 0 && at < w->tensor.n_bytes);
    if (w->n_pieces == 0) return (ps_read_range){file_at(s, w->file), w->tensor.offset + at, w->tensor.n_bytes - at};
    const source_piece *p = &s->pieces[w->first_piece];
    for (; at >= p->stored.n_bytes; p++) at -= p->stored.n_bytes;
    return (ps_read_range){file_at(s, p->file), p->stored.offset + at, p->stored.n_bytes - at};
}

ps_status ps_weight_source_read(const ps_weight_source *s, const ps_weight *w, int64_t offset, void *dst,
                                int64_t n_bytes)
{
    PS_ASSERT(offset >= 0 && n_bytes >= 0 && offset + n_bytes <= w->tensor.n_bytes);
    for (int64_t done = 0; done < n_bytes;) {
        const ps_read_range x = ps_weight_source_range(s, w, offset + done);
        const int64_t n = ps_min_i64(x.n_bytes, n_bytes - done);
        PS_TRY(ps_file_read(x.file, x.offset, (char *)dst + done, n));
        done += n;
    }
    return PS_OK;
}

ps_status ps_weight_source_is_equal(const ps_weight_source *s, const ps_weight *a, const ps_weight *b, bool *is_equal)
{
    const ps_safetensor *x = &a->tensor, *y = &b->tensor;
    char *pieces = NULL;
    ps_status st;
    *is_equal = x->dtype == y->dtype && x->n_dims == y->n_dims &&
                memcmp(x->shape, y->shape, (size_t)x->n_dims * sizeof *x->shape) == 0;
    if (!*is_equal || a == b) return PS_OK;
    if (a->n_pieces + b->n_pieces == 0 && a->file == b->file && x->offset == y->offset) return PS_OK;
    PS_TRY(ps_mem_alloc(2, COMPARE_BYTES, &pieces));
    for (int64_t done = 0; done < x->n_bytes && *is_equal; done += COMPARE_BYTES) {
        const int64_t n = ps_min_i64(COMPARE_BYTES, x->n_bytes - done);
        PS_TRY_GOTO(ps_weight_source_read(s, a, done, pieces, n));
        PS_TRY_GOTO(ps_weight_source_read(s, b, done, pieces + COMPARE_BYTES, n));
        *is_equal = memcmp(pieces, pieces + COMPARE_BYTES, (size_t)n) == 0;
    }
    st = PS_OK;
out:
    ps_mem_free(pieces);
    return st;
}
