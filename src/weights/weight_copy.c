#include "weights/weight_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "kernel/backend.h"
#include "weights/weight_convert.h"
#include "weights/weight_writer.h"

#define PIECE_ELEMENTS ((int64_t)1 << 17)

typedef struct copier {
    const ps_weight_source *source;
    ps_weight_writer *writer;
    ps_backend *backend;
    char *in, *out; /* [PIECE_ELEMENTS] of at most 8 bytes; of at most 4 */
    float *sum;     /* [PIECE_ELEMENTS] with a delta */
    double *row;    /* of a delta: as many as the widest matrix has columns */
} copier;

ps_safetensors_dtype ps_weight_copy_dtype(const ps_weight *w, const ps_dtype *dtype)
{
    const bool is_rounded = dtype != NULL && ps_weight_is_float(w->tensor.dtype);
    return is_rounded ? ps_weight_safetensors_dtype(*dtype) : w->tensor.dtype;
}

/* Convert n elements in c->in from type `from` to `to`; the result is in *out. */
static ps_status copier_round(copier *c, ps_safetensors_dtype from, ps_safetensors_dtype to, int64_t n,
                              const char **out)
{
    ps_dtype src = PS_DTYPE_F32, dst;
    *out = c->in;
    if (from == to || !ps_weight_dtype(to, &dst)) return PS_OK;
    if (!ps_weight_dtype(from, &src)) {
        src = PS_DTYPE_F32;
        ps_weight_f64_to_f32((const double *)(void *)c->in, (float *)(void *)c->in, n);
    }
    if (src == dst) return PS_OK;
    *out = c->out;
    return ps_run_cast(c->backend, NULL,
                       &(ps_cast_args){.dst = c->out, .src = c->in, .n = n, .dst_dtype = dst, .src_dtype = src}, 0);
}

/* Add elements [first, first + n) of a delta, row by row. */
static void add_delta(copier *c, const ps_weight_delta *d, int64_t first, int64_t n, float *values)
{
    const int64_t cols = d->is_in_out ? d->n_out : d->n_in, rows = d->is_in_out ? d->n_in : d->n_out;
    const float *const across = d->is_in_out ? d->b : d->a, *const down = d->is_in_out ? d->a : d->b;
    for (int64_t done = 0; done < n;) {
        const int64_t row = (first + done) / cols, col = (first + done) % cols, here = ps_min_i64(cols - col, n - done);
        memset(c->row, 0, (size_t)here * sizeof *c->row);
        for (int64_t k = 0; k < d->r; k++) {
            const double factor = d->scale * (double)down[k * rows + row];
            const float *const from = across + k * cols + col;
            for (int64_t i = 0; i < here; i++) c->row[i] += factor * (double)from[i];
        }
        for (int64_t i = 0; i < here; i++) values[done + i] = (float)((double)values[done + i] + c->row[i]);
        done += here;
    }
}

/* The piece in c->in, of type *from, with the delta added, is then in c->in as fp32, or as F64 if that is asked for. */
static ps_status copier_add(copier *c, const ps_weight_delta *d, int64_t first, int64_t n, ps_safetensors_dtype to,
                            ps_safetensors_dtype *from)
{
    const char *floats;
    PS_TRY(copier_round(c, *from, PS_SAFETENSORS_F32, n, &floats));
    memcpy(c->sum, floats, (size_t)n * sizeof *c->sum);
    add_delta(c, d, first, n, c->sum);
    *from = to == PS_SAFETENSORS_F64 ? PS_SAFETENSORS_F64 : PS_SAFETENSORS_F32;
    if (to != PS_SAFETENSORS_F64) memcpy(c->in, c->sum, (size_t)n * sizeof *c->sum);
    for (int64_t i = 0; to == PS_SAFETENSORS_F64 && i < n; i++) ((double *)(void *)c->in)[i] = (double)c->sum[i];
    return PS_OK;
}

static void note_nonfinite(ps_weight_nonfinite *found, const ps_weight *w, int64_t n_before, int64_t n_after)
{
    if (found == NULL || n_after == 0) return;
    if (found->n_tensors++ == 0) snprintf(found->first, sizeof found->first, "%s", w->tensor.name);
    found->n_values += n_before;
    found->n_too_large += n_after - n_before;
}

static const ps_weight_source *source_of(const ps_weight_source *s, const ps_weight_copy *copy)
{
    return copy->from != NULL ? copy->from : s;
}

static ps_status copier_copy(copier *c, const ps_weight_copy *copy, int i, ps_safetensors_dtype to,
                             ps_weight_nonfinite *found)
{
    const ps_weight_source *const source = source_of(c->source, copy);
    const ps_weight *const w = ps_weight_source_get(source, copy->weight);
    int64_t n_before = 0, n_after = 0;
    const int64_t item = ps_safetensors_dtype_bytes(w->tensor.dtype), n_all = w->tensor.n_bytes / item;
    for (int64_t done = 0; done < n_all; done += PIECE_ELEMENTS) {
        const int64_t n = ps_min_i64(PIECE_ELEMENTS, n_all - done);
        const char *piece;
        ps_safetensors_dtype from = w->tensor.dtype;
        PS_TRY(ps_weight_source_read(source, w, done * item, c->in, n * item));
        if (found != NULL) n_before += ps_weight_count_nonfinite(w->tensor.dtype, c->in, n);
        if (copy->delta != NULL) PS_TRY(copier_add(c, copy->delta, done, n, to, &from));
        PS_TRY(copier_round(c, from, to, n, &piece));
        if (found != NULL) n_after += ps_weight_count_nonfinite(to, piece, n);
        PS_TRY(ps_weight_writer_append(c->writer, i, piece, n * ps_safetensors_dtype_bytes(to)));
    }
    note_nonfinite(found, w, n_before, n_after);
    return PS_OK;
}

/* same_as[i]: the first copy with the same source as copy i. */
static ps_status find_same(const ps_weight_source *s, const ps_weight_copy *copies, int n, int *same_as)
{
    int *copy_of = NULL; /* [tensors of the source], 1 + the copy */
    PS_TRY(ps_mem_alloc((size_t)ps_weight_source_count(s), sizeof *copy_of, &copy_of));
    for (int i = 0; i < n; i++) {
        same_as[i] = i;
        if (copies[i].from != NULL || copies[i].delta != NULL) continue;
        int *first = &copy_of[ps_weight_source_same_as(s, copies[i].weight)];
        if (*first == 0) *first = 1 + i;
        same_as[i] = *first - 1;
    }
    ps_mem_free(copy_of);
    return PS_OK;
}

ps_status ps_weight_copy_file(const ps_weight_source *s, const ps_weight_copy *copies, int n, const ps_dtype *dtype,
                              const char *path, ps_weight_nonfinite *found)
{
    copier c = {.source = s};
    ps_safetensor *tensors = NULL;
    int *same_as = NULL;
    ps_status st;
    PS_TRY_GOTO(ps_backend_create_cpu(ps_cpu_isa_detect(), ps_cpu_threads(), &c.backend));
    PS_TRY_GOTO(ps_mem_alloc((size_t)PIECE_ELEMENTS, sizeof(double), &c.in));
    PS_TRY_GOTO(ps_mem_alloc((size_t)PIECE_ELEMENTS, sizeof(float), &c.out));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *tensors, &tensors));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *same_as, &same_as));
    int64_t widest = 0;
    for (int i = 0; i < n; i++) {
        const ps_weight *w = ps_weight_source_get(source_of(s, &copies[i]), copies[i].weight);
        if (copies[i].delta != NULL) widest = ps_max_i64(widest, w->tensor.shape[1]);
        tensors[i] = w->tensor;
        tensors[i].name = copies[i].name;
        tensors[i].dtype = ps_weight_copy_dtype(w, dtype);
    }
    PS_TRY_GOTO(ps_mem_alloc(widest > 0 ? (size_t)PIECE_ELEMENTS : 0, sizeof *c.sum, &c.sum));
    PS_TRY_GOTO(ps_mem_alloc((size_t)widest, sizeof *c.row, &c.row));
    PS_TRY_GOTO(find_same(s, copies, n, same_as));
    PS_TRY_GOTO(ps_weight_writer_open(path, tensors, n, same_as, &c.writer));
    for (int i = 0; i < n; i++)
        if (ps_weight_writer_wants(c.writer, i)) PS_TRY_GOTO(copier_copy(&c, &copies[i], i, tensors[i].dtype, found));
    st = ps_weight_writer_commit(c.writer);
    c.writer = NULL;
out:
    ps_weight_writer_cancel(c.writer);
    ps_mem_free(same_as);
    ps_mem_free(tensors);
    ps_mem_free(c.row);
    ps_mem_free(c.sum);
    ps_mem_free(c.out);
    ps_mem_free(c.in);
    ps_backend_destroy(c.backend);
    return st;
}

static int copier_compare_names(const void *a, const void *b)
{
    return strcmp(((const ps_weight_copy *)a)->name, ((const ps_weight_copy *)b)->name);
}

/* Sorted by name, so that the file does not depend on the division of the source. */
ps_status ps_weight_merge(const ps_weight_source *s, const char *path)
{
    const int n = ps_weight_source_count(s);
    ps_weight_copy *copies = NULL;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *copies, &copies));
    for (int i = 0; i < n; i++)
        copies[i] = (ps_weight_copy){.weight = i, .name = ps_weight_source_get(s, i)->tensor.name};
    if (n > 0) qsort(copies, (size_t)n, sizeof *copies, copier_compare_names);
    const ps_status st = ps_weight_copy_file(s, copies, n, NULL, path, NULL);
    ps_mem_free(copies);
    return st;
}
