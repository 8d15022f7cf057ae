/* weights.c - all parameters of an engine in one safetensors file, streamed piece by piece. */
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "checkpoint/safetensors.h"

/* Elements moved at once: a buffer of 4 MiB, whatever the model. */
#define PIECE_ELEMENTS ((int64_t)1 << 20)

static ps_status describe(const ps_engine *e, int64_t tensor, ps_safetensor *out)
{
    int64_t shape[2];
    *out = (ps_safetensor){.dtype = PS_SAFETENSORS_F32};
    PS_TRY(ps_engine_tensor_info(e, tensor, &out->name, &out->n_dims, shape));
    for (int d = 0; d < out->n_dims; d++) out->shape[d] = shape[d];
    return PS_OK;
}

static int64_t elements_of(const ps_safetensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->shape[d];
    return n;
}

ps_status ps_engine_save_weights(ps_engine *e, const char *path)
{
    static const ps_safetensors_metadata metadata = {"format", "pt"};
    const int64_t n = ps_engine_n_tensors(e);
    ps_safetensor *tensors = NULL;
    float *piece = NULL;
    ps_safetensors_writer *w = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *tensors, &tensors));
    PS_TRY_GOTO(ps_mem_alloc((size_t)PIECE_ELEMENTS, sizeof *piece, &piece));
    for (int64_t t = 0; t < n; t++) PS_TRY_GOTO(describe(e, t, &tensors[t]));
    PS_TRY_GOTO(ps_safetensors_writer_open(path, tensors, (int)n, &metadata, 1, &w));
    for (int64_t t = 0; t < n; t++)
        for (int64_t done = 0, all = elements_of(&tensors[t]); done < all; done += PIECE_ELEMENTS) {
            const int64_t here = ps_min_i64(PIECE_ELEMENTS, all - done);
            PS_TRY_GOTO(ps_engine_read_tensor(e, t, done, here, piece));
            PS_TRY_GOTO(ps_safetensors_writer_append(w, (int)t, piece, here * (int64_t)sizeof *piece));
        }
    st = ps_safetensors_writer_commit(w);
    w = NULL;
out:
    ps_safetensors_writer_cancel(w);
    ps_mem_free(piece);
    ps_mem_free(tensors);
    return st;
}

/* The file has exactly the engine's tensors, with their shapes, in f32. Looked at before anything is written. */
static ps_status check_tensors(const ps_engine *e, const ps_safetensors *file, const char *path)
{
    for (int64_t t = 0; t < ps_engine_n_tensors(e); t++) {
        ps_safetensor want;
        PS_TRY(describe(e, t, &want));
        const ps_safetensor *have = ps_safetensors_find(file, want.name);
        if (have == NULL) return PS_FAIL(PS_EFORMAT, "%s: tensor %s is missing", path, want.name);
        bool same = have->n_dims == want.n_dims;
        for (int d = 0; same && d < want.n_dims; d++) same = have->shape[d] == want.shape[d];
        if (!same)
            return PS_FAIL(PS_EFORMAT, "%s: tensor %s has %d dimensions [%lld, %lld], the model's has %d [%lld, %lld]",
                           path, want.name, have->n_dims, (long long)(have->n_dims > 0 ? have->shape[0] : 0),
                           (long long)(have->n_dims > 1 ? have->shape[1] : 0), want.n_dims, (long long)want.shape[0],
                           (long long)(want.n_dims > 1 ? want.shape[1] : 0));
        if (have->dtype != PS_SAFETENSORS_F32)
            return PS_FAIL(PS_EFORMAT, "%s: tensor %s is %s, expected F32", path, want.name,
                           ps_safetensors_dtype_name(have->dtype));
    }
    for (int i = 0; i < ps_safetensors_count(file); i++) {
        const char *name = ps_safetensors_get(file, i)->name;
        bool known = false;
        for (int64_t t = 0; t < ps_engine_n_tensors(e) && !known; t++) {
            ps_safetensor want;
            PS_TRY(describe(e, t, &want));
            known = strcmp(want.name, name) == 0;
        }
        if (!known) return PS_FAIL(PS_EFORMAT, "%s: tensor %s is not one of the model's", path, name);
    }
    return PS_OK;
}

ps_status ps_engine_load_weights(ps_engine *e, const char *path)
{
    ps_safetensors *file = NULL;
    float *piece = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_safetensors_open(path, &file));
    PS_TRY_GOTO(check_tensors(e, file, path));
    PS_TRY_GOTO(ps_mem_alloc((size_t)PIECE_ELEMENTS, sizeof *piece, &piece));
    for (int64_t t = 0; t < ps_engine_n_tensors(e); t++) {
        ps_safetensor want;
        PS_TRY_GOTO(describe(e, t, &want));
        const ps_safetensor *have = ps_safetensors_find(file, want.name);
        for (int64_t done = 0, all = elements_of(&want); done < all; done += PIECE_ELEMENTS) {
            const int64_t here = ps_min_i64(PIECE_ELEMENTS, all - done);
            PS_TRY_GOTO(
                ps_safetensors_read(file, have, done * (int64_t)sizeof *piece, piece, here * (int64_t)sizeof *piece));
            PS_TRY_GOTO(ps_engine_write_tensor(e, t, done, here, piece));
        }
    }
out:
    ps_mem_free(piece);
    ps_safetensors_close(file);
    return st;
}
