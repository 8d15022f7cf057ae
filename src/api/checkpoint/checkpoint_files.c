#include "api/checkpoint/checkpoint_files.h"

#include "api/checkpoint/checkpoint_names.h"
#include "base/folder.h"
#include "base/mem.h"
#include "weights/tensor_piece.h"

typedef char piece_text[PS_TENSOR_PIECE_NAME_MAX];

/* The headers of both files under construction. */
typedef struct header {
    const ps_model_state *model;
    ps_checkpoint_files *files;
    int32_t n, capacity;                              /* arrays of the model's file */
    ps_safetensor *tensors[PS_CHECKPOINT_PART_COUNT]; /* [capacity], [n_states * capacity] */
    piece_text *names[PS_CHECKPOINT_PART_COUNT];      /* the same */
    bool has_pieces;
    /* of the file that is being opened: "format", then the shapes of tensors stored in pieces */
    int n_metadata;
    ps_safetensors_metadata *metadata; /* allocated for the maximum; keys and values are in texts */
    piece_text *texts;                 /* two for each shape */
} header;

/* Number of chunks with elements of the tensor. A tensor in no chunk has as many slots, all equal. */
static int32_t n_slots(const header *h, int32_t tensor)
{
    const ps_state_tensor *t = &h->model->tensors[tensor];
    if (t->in_layout >= 0) return h->model->layout->places[t->in_layout].n_chunks;
    return (int32_t)((t->elements + h->files->chunk_elements - 1) / h->files->chunk_elements);
}

static ps_status header_init(header *h)
{
    const ps_model_state *m = h->model;
    ps_checkpoint_files *f = h->files;
    f->chunk_elements = m->layout->chunk_elements;
    PS_TRY(ps_mem_alloc((size_t)m->n_tensors + 1, sizeof *f->first_slot, &f->first_slot));
    for (int32_t t = 0; t < m->n_tensors; t++) {
        f->first_slot[t] = h->capacity;
        h->capacity += n_slots(h, t);
    }
    f->first_slot[m->n_tensors] = h->capacity;
    const size_t n = (size_t)h->capacity;
    PS_TRY(ps_mem_alloc(n, sizeof *f->slots, &f->slots));
    for (int32_t i = 0; i < h->capacity; i++) f->slots[i].array = -1;
    f->n_states = m->settings->optimizer.n_states;
    const size_t n_states = (size_t)f->n_states;
    PS_TRY(ps_mem_alloc(n * n_states, sizeof *f->state_arrays, &f->state_arrays));
    h->has_pieces = m->settings->ranks.n > 1;
    PS_TRY(ps_mem_alloc(n, sizeof *h->tensors[0], &h->tensors[PS_CHECKPOINT_MODEL]));
    PS_TRY(ps_mem_alloc(n * n_states, sizeof *h->tensors[0], &h->tensors[PS_CHECKPOINT_OPTIMIZER]));
    PS_TRY(ps_mem_alloc(n, sizeof *h->names[0], &h->names[PS_CHECKPOINT_MODEL]));
    PS_TRY(ps_mem_alloc(n * n_states, sizeof *h->names[0], &h->names[PS_CHECKPOINT_OPTIMIZER]));
    const size_t n_shapes = (size_t)m->n_tensors * (n_states > 0 ? n_states : 1);
    PS_TRY(ps_mem_alloc(n_shapes + 1, sizeof *h->metadata, &h->metadata));
    return ps_mem_alloc(n_shapes * 2, sizeof *h->texts, &h->texts);
}

static void header_deinit(header *h)
{
    ps_mem_free(h->texts);
    ps_mem_free(h->metadata);
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++) {
        ps_mem_free(h->names[part]);
        ps_mem_free(h->tensors[part]);
    }
}

/* Compact states of a tensor are bytes, in pieces, one if need be, so that the metadata have its shape. */
static bool has_compact(const header *h, const ps_state_tensor *p)
{
    return h->model->settings->optimizer.is_compact && h->files->n_states > 0 && p->in_layout >= 0 && p->is_trained;
}

static ps_status set_compact(header *h, int32_t i, const char *name, int64_t first, int64_t n)
{
    ps_safetensor *t = &h->tensors[PS_CHECKPOINT_OPTIMIZER][i];
    *t = (ps_safetensor){.name = h->names[PS_CHECKPOINT_OPTIMIZER][i],
                         .dtype = PS_SAFETENSORS_U8,
                         .n_dims = 2,
                         .shape = {ps_ceil_div(n, PS_FORMAT_GROUP), (int64_t)sizeof(ps_compact_group)}};
    return ps_tensor_piece_name(name, first, n, h->names[PS_CHECKPOINT_OPTIMIZER][i]);
}

/* Array number i of a part, of parameter `name` or one of its states: the whole tensor, or its piece. */
static ps_status set_tensor(header *h, ps_checkpoint_part part, int32_t i, const char *name, const ps_state_tensor *p,
                            const ps_piece *piece)
{
    if (part == PS_CHECKPOINT_OPTIMIZER && has_compact(h, p))
        return set_compact(h, i, name, piece != NULL ? piece->tensor_offset : 0,
                           piece != NULL ? piece->n : p->elements);
    ps_safetensor *t = &h->tensors[part][i];
    *t = (ps_safetensor){.name = h->names[part][i], .dtype = PS_SAFETENSORS_F32};
    if (part == PS_CHECKPOINT_OPTIMIZER && p->in_layout >= 0 && h->model->settings->optimizer.is_stochastic)
        t->dtype = PS_SAFETENSORS_BF16;
    if (piece != NULL) {
        t->n_dims = 1;
        t->shape[0] = piece->n;
        return ps_tensor_piece_name(name, piece->tensor_offset, piece->n, h->names[part][i]);
    }
    t->n_dims = p->n_dims;
    for (int d = 0; d < p->n_dims; d++) t->shape[d] = p->shape[d];
    snprintf(h->names[part][i], sizeof h->names[part][i], "%s", name);
    return PS_OK;
}

static const char *state_suffix(const header *h, int32_t i)
{
    return h->model->settings->optimizer.optimizer->states[i].suffix;
}

static ps_status add_array(header *h, const ps_state_tensor *p, const ps_piece *piece)
{
    char whole_name[PS_CHECKPOINT_TENSOR_NAME_MAX];
    PS_TRY(ps_checkpoint_tensor_name(p->name, "", whole_name)); /* for which a reader has room */
    PS_TRY(set_tensor(h, PS_CHECKPOINT_MODEL, h->n, p->name, p, piece));
    const int32_t n_states = h->files->n_states;
    for (int32_t i = 0; i < n_states; i++) {
        int32_t *array = &h->files->state_arrays[n_states * h->n + i];
        char name[PS_CHECKPOINT_TENSOR_NAME_MAX];
        *array = -1;
        if (!ps_state_tensor_has(h->model, p, i)) continue;
        PS_TRY(ps_checkpoint_tensor_name(p->name, state_suffix(h, i), name));
        *array = h->files->n_state_arrays++;
        PS_TRY(set_tensor(h, PS_CHECKPOINT_OPTIMIZER, *array, name, p, piece));
    }
    h->n++;
    return PS_OK;
}

static ps_status add_piece(header *h, const ps_piece *piece)
{
    ps_checkpoint_files *f = h->files;
    const ps_state_tensor *p = &h->model->tensors[piece->tensor];
    if (p->is_left_out) return PS_OK;
    const int32_t n_chunks = n_slots(h, piece->tensor);
    ps_checkpoint_slot *slots = f->slots + f->first_slot[piece->tensor];
    if (h->has_pieces && n_chunks > 1) {
        slots[piece->tensor_offset / f->chunk_elements] = (ps_checkpoint_slot){h->n, piece->tensor_offset};
        return add_array(h, p, piece);
    }
    if (slots[0].array >= 0) return PS_OK; /* another chunk of the same tensor has set it */
    for (int32_t k = 0; k < n_chunks; k++) slots[k].array = h->n;
    return add_array(h, p, NULL);
}

static ps_status add_chunk(header *h, int32_t chunk, bool are_trained)
{
    const ps_pieces *p = h->model->pieces;
    for (int32_t k = p->first[chunk]; k < p->first[chunk + 1]; k++)
        if (h->model->tensors[p->all[k].tensor].is_trained == are_trained) PS_TRY(add_piece(h, &p->all[k]));
    return PS_OK;
}

static ps_status add_chunks(header *h, bool are_trained)
{
    for (int32_t c = 0; c < h->model->layout->n_chunks; c++)
        if (ps_state_owns(h->model, c)) PS_TRY(add_chunk(h, c, are_trained));
    return PS_OK;
}

/* Tensors in no chunk are replicated: rank 0 stores them. */
static ps_status add_others(header *h, bool are_trained)
{
    for (int32_t t = 0; t < h->model->n_tensors && h->model->settings->ranks.rank == 0; t++) {
        const ps_state_tensor *p = &h->model->tensors[t];
        if (p->name == NULL || p->in_layout >= 0 || p->is_trained != are_trained || p->is_left_out) continue;
        for (int32_t k = 0; k < n_slots(h, t); k++) h->files->slots[h->files->first_slot[t] + k].array = h->n;
        PS_TRY(add_array(h, p, NULL));
    }
    return PS_OK;
}

/* Frozen tensors come last. */
static ps_status list_tensors(header *h, const int32_t *order, int32_t n)
{
    if (order == NULL) PS_TRY(add_chunks(h, true));
    for (int32_t i = 0; i < n; i++) PS_TRY(add_chunk(h, order[i], true));
    PS_TRY(add_others(h, true));
    PS_TRY(add_chunks(h, false));
    return add_others(h, false);
}

static ps_status add_shape(header *h, const char *name, const ps_state_tensor *p)
{
    ps_safetensors_metadata *m = &h->metadata[h->n_metadata];
    char *key = h->texts[2 * (h->n_metadata - 1)], *value = h->texts[2 * (h->n_metadata - 1) + 1];
    PS_TRY(ps_tensor_piece_key(name, key));
    ps_tensor_piece_shape(p->n_dims, p->shape, value);
    *m = (ps_safetensors_metadata){key, value};
    h->n_metadata++;
    return PS_OK;
}

/* "format" for torch's readers, and the shapes of the tensors of which the file has pieces. */
static ps_status list_metadata(header *h, ps_checkpoint_part part)
{
    const ps_model_state *m = h->model;
    const ps_checkpoint_files *f = h->files;
    h->metadata[0] = (ps_safetensors_metadata){"format", "pt"};
    h->n_metadata = 1;
    for (int32_t t = 0; t < m->n_tensors; t++) {
        const ps_state_tensor *p = &m->tensors[t];
        const int32_t n_chunks = p->in_layout >= 0 ? n_slots(h, t) : 0;
        const bool are_pieces =
            (h->has_pieces && n_chunks > 1) || (part == PS_CHECKPOINT_OPTIMIZER && has_compact(h, p));
        bool has = false;
        for (int32_t k = 0; k < n_chunks; k++) has |= are_pieces && f->slots[f->first_slot[t] + k].array >= 0;
        if (!has) continue;
        if (part == PS_CHECKPOINT_MODEL) PS_TRY(add_shape(h, p->name, p));
        for (int32_t i = 0; i < f->n_states && part == PS_CHECKPOINT_OPTIMIZER; i++) {
            char name[PS_CHECKPOINT_TENSOR_NAME_MAX];
            if (!ps_state_tensor_has(m, p, i)) continue;
            PS_TRY(ps_checkpoint_tensor_name(p->name, state_suffix(h, i), name));
            PS_TRY(add_shape(h, name, p));
        }
    }
    return PS_OK;
}

static ps_status open_part(header *h, const char *folder, ps_checkpoint_part part)
{
    char name[PS_CHECKPOINT_FILE_NAME_MAX], *path = NULL;
    const ps_ranks *ranks = &h->model->settings->ranks;
    PS_TRY(list_metadata(h, part));
    (void)ps_checkpoint_file_name(part, ranks->rank, ranks->n, name);
    PS_TRY(ps_folder_join(folder, name, &path));
    const ps_status st = ps_safetensors_writer_open(path, h->tensors[part],
                                                    part == PS_CHECKPOINT_MODEL ? h->n : h->files->n_state_arrays,
                                                    h->metadata, h->n_metadata, &h->files->writers[part]);
    ps_mem_free(path);
    return st;
}

ps_status ps_checkpoint_files_open(ps_checkpoint_files *f, const ps_model_state *model, const int32_t *order, int32_t n,
                                   const char *folder)
{
    *f = (ps_checkpoint_files){0};
    header h = {.model = model, .files = f};
    ps_status st;
    PS_TRY_GOTO(header_init(&h));
    PS_TRY_GOTO(list_tensors(&h, order, n));
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++)
        PS_TRY_GOTO(open_part(&h, folder, (ps_checkpoint_part)part));
out:
    header_deinit(&h);
    return st;
}

void ps_checkpoint_files_cancel(ps_checkpoint_files *f)
{
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++) {
        ps_safetensors_writer_cancel(f->writers[part]);
        f->writers[part] = NULL;
    }
}

void ps_checkpoint_files_close(ps_checkpoint_files *f)
{
    ps_checkpoint_files_cancel(f);
    ps_mem_free(f->state_arrays);
    ps_mem_free(f->slots);
    ps_mem_free(f->first_slot);
    *f = (ps_checkpoint_files){0};
}

ps_status ps_checkpoint_files_put(ps_checkpoint_files *f, ps_list list, int32_t array, int64_t offset, const void *data,
                                  int64_t n_bytes)
{
    if (list == PS_LIST_MASTER)
        return ps_safetensors_writer_put(f->writers[PS_CHECKPOINT_MODEL], array, offset, data, n_bytes);
    return ps_safetensors_writer_put(f->writers[PS_CHECKPOINT_OPTIMIZER],
                                     f->state_arrays[f->n_states * array + list - PS_LIST_STATES], offset, data,
                                     n_bytes);
}

ps_status ps_checkpoint_files_commit(ps_checkpoint_files *f, ps_checkpoint_file written[PS_CHECKPOINT_PART_COUNT])
{
    for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++) {
        PS_TRY(ps_safetensors_writer_xxh3(f->writers[part], &written[part].xxh3, &written[part].n_bytes));
        ps_safetensors_writer *w = f->writers[part];
        f->writers[part] = NULL;
        PS_TRY(ps_safetensors_writer_commit(w));
    }
    return PS_OK;
}
