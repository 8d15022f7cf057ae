/* weight_files.c - the parameters of an engine from files and into one, streamed piece by piece.
 *
 * With several ranks all call: rank 0 writes what the owners send; each rank reads from loaded files what it owns. */
#include "api/engine/weight_files.h"

#include <stdio.h>
#include <string.h>

#include "api/checkpoint/checkpoint_check.h"
#include "api/engine/engine.h"
#include "api/engine/tensors.h"
#include "base/base.h"
#include "base/lora.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "train/state/values.h"
#include "weights/bnb_weight.h"
#include "weights/read_stream.h"
#include "weights/weight_convert.h"
#include "weights/weight_names.h"
#include "weights/weight_source.h"
#include "weights/weight_writer.h"

static void describe(const ps_engine *e, int64_t tensor, ps_safetensor *out)
{
    const ps_param *p = &e->program->params[tensor];
    out->name = p->name;
    out->n_dims = p->n_dims;
    for (int d = 0; d < p->n_dims; d++) out->shape[d] = p->shape[d];
}

/* NULL: one rank. */
static ps_comm *comm_of(const ps_engine *e)
{
    return e->settings.ranks.comm;
}

/* ---- saving ---- */

typedef struct saver {
    ps_weight_writer *writer;
    int n_tensors; /* begun */
    int64_t item_bytes;
} saver;

static ps_status save_piece(void *user, int64_t first, int64_t n, const void *src)
{
    const saver *s = user;
    (void)first;
    return ps_weight_writer_append(s->writer, s->n_tensors - 1, src, n * s->item_bytes);
}

/* The parameters that a file of this engine's weights has. */
static bool is_written(const ps_engine *e, int64_t tensor)
{
    return !e->program->params[tensor].is_left_out;
}

static ps_status open_writer(saver *s, const ps_engine *e, const char *path, ps_dtype dtype)
{
    const int64_t n = ps_engine_get_tensor_count(e);
    ps_safetensor *tensors = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *tensors, &tensors));
    int n_written = 0;
    for (int64_t t = 0; t < n; t++) {
        if (!is_written(e, t)) continue;
        tensors[n_written].dtype = ps_weight_safetensors_dtype(dtype);
        describe(e, t, &tensors[n_written++]);
    }
    st = ps_weight_writer_open(path, tensors, n_written, NULL, &s->writer);
out:
    ps_mem_free(tensors);
    return st;
}

ps_status ps_weights_save(ps_engine *e, const char *path, ps_dtype dtype)
{
    const int64_t n = ps_engine_get_tensor_count(e);
    const bool writes = e->settings.ranks.rank == 0;
    saver s = {.item_bytes = (int64_t)ps_dtype_bytes(dtype)};
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_comm_agree(comm_of(e), writes ? open_writer(&s, e, path, dtype) : PS_OK));
    for (int64_t t = 0; t < n && st == PS_OK; t++) {
        if (!is_written(e, t)) continue;
        s.n_tensors++;
        const ps_status reported = ps_progress_report(PS_PROGRESS_SAVE, t, n);
        const ps_status drained = ps_engine_drain_tensor(e, t, dtype, writes ? save_piece : NULL, &s);
        st = ps_comm_agree(comm_of(e), drained != PS_OK ? drained : reported);
    }
    if (st == PS_OK && writes) {
        st = ps_weight_writer_commit(s.writer);
        s.writer = NULL;
    }
    st = ps_comm_agree(comm_of(e), st);
out:
    ps_weight_writer_cancel(s.writer);
    return st;
}

ps_status ps_engine_save_weights(ps_engine *e, const char *path)
{
    PS_TRY(PS_NEED("engine path", e, path));
    if (path[0] == '\0')
        return PS_FAIL(PS_EINVAL, "ps_engine_save_weights: path is empty, expected the name of a file");
    PS_TRY(ps_comm_agree(comm_of(e), ps_engine_expect_values(e, "ps_engine_save_weights")));
    return ps_weights_save(e, path, PS_DTYPE_F32);
}

/* ---- loading ---- */

typedef struct loading {
    ps_engine *e;
    const char *path;
    ps_weight_source *source;
    ps_weight_match match;
    const char **have, **want; /* names */
    int n_have, n_want;
    int *tensor_of;        /* [n_have] number in the source; parts of quantized weights are left out */
    ps_bnb_weight **quant; /* [n_have] how it is quantized; NULL: it is not */
    bool *may_lack;        /* [n_want] */
    ps_load_options options;
    int64_t n_new_rows;
    ps_read_range *ranges; /* of the stream */
    ps_read_stream *stream;
} loading;

static void loading_deinit(loading *l)
{
    const ps_status unread = ps_read_stream_close(l->stream); /* the rest is not needed */
    (void)unread;
    ps_mem_free(l->ranges);
    for (int i = 0; l->quant != NULL && i < l->n_have; i++) ps_mem_free(l->quant[i]);
    ps_mem_free(l->quant);
    ps_mem_free(l->tensor_of);
    ps_weight_match_deinit(&l->match);
    ps_weight_source_close(l->source);
    ps_mem_free(l->may_lack);
    ps_mem_free(l->have);
    ps_mem_free(l->want);
}

static const ps_weight *weight_of(const loading *l, int have)
{
    return ps_weight_source_get(l->source, l->tensor_of[have]);
}

/* As it is for the model: of a quantized one its values. */
static ps_safetensor tensor_of(const loading *l, int have)
{
    const ps_bnb_weight *q = l->quant[have];
    ps_safetensor t = weight_of(l, have)->tensor;
    if (q == NULL) return t;
    t.dtype = PS_SAFETENSORS_F32;
    t.n_dims = q->n_dims;
    memcpy(t.shape, q->shape, sizeof t.shape);
    t.n_bytes = q->elements * (int64_t)sizeof(float);
    return t;
}

/* "[50257, 768]" */
static const char *shape_text(const ps_safetensor *t, char text[128])
{
    size_t n = 0;
    text[n++] = '[';
    for (int d = 0; d < t->n_dims && n < 100; d++)
        n += (size_t)snprintf(text + n, 128 - n, "%s%lld", d > 0 ? ", " : "", (long long)t->shape[d]);
    snprintf(text + n, 128 - n, "]");
    return text;
}

/* Fewer tokens in the file than in the model, where that is permitted. */
static bool has_new_rows(const loading *l, const ps_safetensor *file, const ps_safetensor *model)
{
    return l->options.allow_new_rows && ps_weight_is_vocabulary(model->name) && file->n_dims == model->n_dims &&
           file->shape[0] < model->shape[0] && (model->n_dims == 1 || file->shape[1] == model->shape[1]);
}

static ps_status check_shape(loading *l, int have, int want)
{
    ps_safetensor model = {0};
    const ps_safetensor of_file = tensor_of(l, have), *const file = &of_file;
    char a[128], b[128];
    describe(l->e, want, &model);
    if (!ps_weight_is_float(file->dtype))
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is %s, expected F64, F32, BF16 or F16%s", l->path, file->name,
                       ps_safetensors_dtype_name(file->dtype),
                       ps_safetensors_dtype_bytes(file->dtype) == 1
                           ? "; load quantized weights in Python and save them in one of these"
                           : "");
    bool is_same = file->n_dims == model.n_dims;
    for (int d = 0; is_same && d < model.n_dims; d++) is_same = file->shape[d] == model.shape[d];
    if (!is_same && has_new_rows(l, file, &model)) {
        l->n_new_rows = ps_max_i64(l->n_new_rows, model.shape[0] - file->shape[0]);
        is_same = true;
    }
    if (!is_same)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is %s, the model's %s is %s%s", l->path, file->name,
                       shape_text(file, a), model.name, shape_text(&model, b),
                       !l->options.allow_new_rows && ps_weight_is_vocabulary(model.name) &&
                               file->shape[0] < model.shape[0]
                           ? "; with model.resize_token_embeddings it gets more rows"
                           : "");
    return PS_OK;
}

/* A tied tensor that the file has twice, with different values, is not tied there. */
static ps_status check_copy(const loading *l, int have, int want)
{
    const ps_weight *copy = weight_of(l, have), *used = weight_of(l, l->match.of_want[want]);
    bool is_equal;
    PS_TRY(ps_weight_source_is_equal(l->source, copy, used, &is_equal));
    if (is_equal) return PS_OK;
    return PS_FAIL(PS_EFORMAT,
                   "%s: tensor %.128s differs from %.128s, but the model ties them (model.tie_word_embeddings)",
                   l->path, copy->tensor.name, used->tensor.name);
}

/* Elements of a tensor, from the stream, as F32 when the file has F64 or quantized values. */
typedef struct reader {
    ps_read_stream *stream;
    ps_safetensors_dtype dtype;
    const ps_weight_source *source;
    const ps_bnb_weight *quant;
} reader;

static ps_status read_quantized(const reader *r, int64_t first, int64_t n, float *dst)
{
    uint8_t codes[4096];
    for (int64_t done = 0; done < n; done += 2 * (int64_t)sizeof codes) {
        const int64_t here = ps_min_i64(2 * (int64_t)sizeof codes, n - done);
        PS_TRY(ps_read_stream_read(r->stream, codes, ps_bnb_code_bytes(here)));
        PS_TRY(ps_bnb_weight_values(r->source, r->quant, first + done, codes, dst + done, here));
    }
    return PS_OK;
}

static ps_status read_piece(void *user, int64_t first, int64_t n, void *dst)
{
    const reader *r = user;
    if (r->quant != NULL) return read_quantized(r, first, n, dst);
    if (r->dtype != PS_SAFETENSORS_F64)
        return ps_read_stream_read(r->stream, dst, n * ps_safetensors_dtype_bytes(r->dtype));
    double wide[1024];
    for (int64_t done = 0; done < n; done += (int64_t)PS_ARRAY_LEN(wide)) {
        const int64_t here = ps_min_i64((int64_t)PS_ARRAY_LEN(wide), n - done);
        PS_TRY(ps_read_stream_read(r->stream, wide, here * (int64_t)sizeof *wide));
        ps_weight_f64_to_f32(wide, (float *)dst + done, here);
    }
    return PS_OK;
}

static int64_t elements_of(const ps_safetensor *t)
{
    return t->n_bytes / ps_safetensors_dtype_bytes(t->dtype);
}

static ps_status fill_all(const loading *l, ps_read_stream *stream)
{
    for (int i = 0; i < l->n_have; i++) {
        const ps_safetensor t = tensor_of(l, i);
        reader r = {.stream = stream, .dtype = t.dtype, .source = l->source, .quant = l->quant[i]};
        ps_dtype dtype;
        if (l->match.of_have[i] < 0) continue;
        PS_TRY(ps_progress_report(PS_PROGRESS_LOAD, i, l->n_have));
        if (!ps_weight_dtype(r.dtype, &dtype)) dtype = PS_DTYPE_F32;
        PS_TRY(ps_engine_fill_tensor(l->e, l->match.of_have[i], elements_of(&t), dtype, read_piece, &r));
    }
    return PS_OK;
}

/* Bytes in the file before element n of a tensor; of two elements in a byte n is even, or their number. */
static int64_t bytes_before(const loading *l, int have, int64_t n)
{
    return l->quant[have] != NULL ? ps_bnb_code_bytes(n)
                                  : n * ps_safetensors_dtype_bytes(weight_of(l, have)->tensor.dtype);
}

/* The ranges that this rank reads, in the order of the files, without ignored tensors. Adjacent ones are merged.
 * Returns their number; with ranges NULL it writes none and counts adjacent ones separately, an upper bound. */
static int list_ranges(const loading *l, ps_read_range *ranges)
{
    const ps_model_state s = ps_engine_model_state(l->e);
    int n = 0;
    for (int i = 0; i < l->n_have; i++) {
        const ps_weight *w = weight_of(l, i);
        const ps_safetensor t = tensor_of(l, i);
        const int64_t n_elements = elements_of(&t);
        int64_t first = 0, length;
        if (l->match.of_have[i] < 0) continue;
        for (; ps_values_next_owned(&s, l->match.of_have[i], &first, &length) && first < n_elements; first += length)
            for (int64_t at = bytes_before(l, i, first),
                         end = bytes_before(l, i, ps_min_i64(first + length, n_elements));
                 at < end;) {
                ps_read_range x = ps_weight_source_range(l->source, w, at);
                x.n_bytes = ps_min_i64(x.n_bytes, end - at);
                at += x.n_bytes;
                ps_read_range *last = ranges != NULL && n > 0 ? &ranges[n - 1] : NULL;
                if (last != NULL && last->file == x.file && last->offset + last->n_bytes == x.offset) {
                    last->n_bytes += x.n_bytes;
                    continue;
                }
                if (ranges != NULL) ranges[n] = x;
                n++;
            }
    }
    return n;
}

/* A file of adapters need not have their base, if the engine has one by now. Any other file need not have adapters. */
static void allow_absence(const loading *l)
{
    bool has_adapters = false;
    for (int i = 0; i < l->n_have; i++) has_adapters |= ps_lora_is_parameter(l->have[i]);
    for (int i = 0; i < l->n_want; i++)
        l->may_lack[i] = has_adapters ? !is_written(l->e, i) && (l->e->is_filled == NULL || l->e->is_filled[i])
                                      : ps_lora_is_parameter(l->want[i]);
}

/* A file of adapters has no part of their base, which would then be in no file of a run. */
static ps_status check_saved(const loading *l, int have, int want)
{
    bool has_adapters = false;
    if (is_written(l->e, want)) return PS_OK;
    for (int i = 0; i < l->n_have; i++) has_adapters |= ps_lora_is_parameter(l->have[i]);
    if (!has_adapters) return PS_OK;
    return PS_FAIL(PS_EFORMAT,
                   "%s: tensor %.128s is beside adapters in it, but the model's %s is not trained with them: name its "
                   "module in lora.modules_to_save",
                   l->path, l->have[have], l->want[want]);
}

static ps_status list_have(loading *l)
{
    const int n = ps_weight_source_count(l->source);
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *l->have, (void *)&l->have));
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *l->tensor_of, &l->tensor_of));
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *l->quant, (void *)&l->quant));
    for (int i = 0; i < n; i++) {
        if (ps_bnb_is_part(l->source, i)) continue;
        l->have[l->n_have] = ps_weight_source_get(l->source, i)->tensor.name;
        l->tensor_of[l->n_have] = i;
        PS_TRY(ps_bnb_weight_read(l->source, i, &l->quant[l->n_have++]));
    }
    return PS_OK;
}

/* All errors are detected here, before anything is written. */
static ps_status prepare(loading *l)
{
    PS_TRY(ps_engine_expect(l->e, PS_ENGINE_READY, "ps_engine_load_pretrained"));
    PS_TRY(ps_weight_source_open(l->path, &l->source));
    PS_TRY(ps_checkpoint_check_source(l->source));
    l->n_want = (int)ps_engine_get_tensor_count(l->e);
    PS_TRY(list_have(l));
    PS_TRY(ps_mem_alloc((size_t)l->n_want, sizeof *l->want, (void *)&l->want));
    for (int i = 0; i < l->n_want; i++) {
        ps_safetensor t = {0};
        describe(l->e, i, &t);
        l->want[i] = t.name;
    }
    PS_TRY(ps_mem_alloc((size_t)l->n_want, sizeof *l->may_lack, &l->may_lack));
    allow_absence(l);
    PS_TRY(ps_weight_match_init(&l->match, l->path, l->have, l->n_have, l->want, l->n_want, l->may_lack,
                                l->options.allow_new_head));
    for (int i = 0; i < l->n_have; i++) {
        if (l->match.of_have[i] >= 0) PS_TRY(check_shape(l, i, l->match.of_have[i]));
        if (l->match.of_have[i] >= 0) PS_TRY(check_saved(l, i, l->match.of_have[i]));
        if (l->match.copy_of[i] >= 0) PS_TRY(check_copy(l, i, l->match.copy_of[i]));
    }
    PS_TRY(ps_mem_alloc((size_t)list_ranges(l, NULL), sizeof *l->ranges, &l->ranges));
    return ps_read_stream_open(l->ranges, list_ranges(l, l->ranges), &l->stream);
}

static ps_status load_all(loading *l)
{
    ps_status st = fill_all(l, l->stream);
    if (st == PS_OK) st = ps_engine_init_remaining(l->e);
    const ps_status read = ps_read_stream_close(l->stream);
    l->stream = NULL;
    return st != PS_OK ? st : read;
}

ps_status ps_weights_load(ps_engine *e, const char *path, const ps_load_options *options, ps_load_info *info)
{
    loading l = {.e = e, .path = path, .options = *options};
    ps_status st;
    if (info != NULL) *info = (ps_load_info){0};
    PS_TRY_GOTO(ps_comm_agree(comm_of(e), prepare(&l)));
    PS_TRY_GOTO(ps_engine_check_agreed(e, ps_comm_agree(comm_of(e), load_all(&l))));
    if (info != NULL)
        *info = (ps_load_info){.n_loaded = l.match.n_loaded,
                               .n_new = l.match.n_new,
                               .n_ignored = l.match.n_ignored,
                               .n_new_rows = l.n_new_rows,
                               .first_new = l.match.n_new > 0 ? l.want[l.match.first_new] : NULL};
out:
    loading_deinit(&l);
    return st;
}

ps_status ps_engine_load_pretrained(ps_engine *e, const char *path, const ps_load_options *options, ps_load_info *info)
{
    PS_TRY(PS_NEED("engine path", e, path));
    ps_load_info loaded;
    ps_load_options own = {0};
    if (options != NULL) PS_TRY(PS_SIZED_TAKE(ps_load_options, options, &own));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_load_info, &(ps_load_info){0}, info));
    PS_TRY(ps_weights_load(e, path, &own, &loaded));
    return info != NULL ? PS_SIZED_GIVE(ps_load_info, &loaded, info) : PS_OK;
}
