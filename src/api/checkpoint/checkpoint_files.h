/* checkpoint_files.h - the two files of one rank while they are written: masters, and the optimizer's states.
 *
 * A file has the tensors of the chunks that the rank owns, in the order in which updates first visit them, so that it
 * is written from front to back: whole tensors, and with several ranks pieces of those in several chunks
 * (tensor_piece.h). Threads: open first; then one thread at a time. ps_checkpoint_files_find from any. */
#ifndef PS_CHECKPOINT_CHECKPOINT_FILES_H
#define PS_CHECKPOINT_CHECKPOINT_FILES_H

#include "api/checkpoint/checkpoint_state.h"
#include "train/state/state.h"
#include "weights/safetensors.h"

/* The place of a tensor's elements in one of its chunks: in an array of a file, which is the tensor or a piece of
 * it. */
typedef struct ps_checkpoint_slot {
    int32_t array; /* its number in the order of the files; -1: another rank stores them, or none does */
    int64_t first; /* element of the tensor with which the array begins */
} ps_checkpoint_slot;

typedef struct ps_checkpoint_files {
    ps_safetensors_writer *writers[PS_CHECKPOINT_PART_COUNT];
    ps_checkpoint_slot *slots; /* by tensor and chunk: those of tensor t begin at first_slot[t] */
    int32_t *first_slot;       /* [n_tensors + 1] */
    int64_t chunk_elements;
    int32_t n_states; /* of the optimizer */
    int32_t
        *state_arrays; /* [arrays of masters * n_states] numbers of the states of each in the optimizer's file, -1: it
                             * does not have that state */
    int32_t n_state_arrays; /* in the optimizer's file */
} ps_checkpoint_files;

/* Begin this rank's files in `folder`, which exists. order: [n] its trained chunks as updates visit them; NULL: by
 * number. Close also after a failure. */
PS_NODISCARD ps_status ps_checkpoint_files_open(ps_checkpoint_files *f, const ps_model_state *model,
                                                const int32_t *order, int32_t n, const char *folder);
void ps_checkpoint_files_cancel(ps_checkpoint_files *f); /* removes files that are not committed */
void ps_checkpoint_files_close(ps_checkpoint_files *f);  /* and frees */

static inline ps_checkpoint_slot ps_checkpoint_files_find(const ps_checkpoint_files *f, int32_t tensor, int64_t element)
{
    const int64_t n = f->first_slot[tensor + 1] - f->first_slot[tensor];
    const int64_t slot = ps_min_i64(element / f->chunk_elements, n - 1); /* a quantized tensor is in one chunk */
    return f->slots[f->first_slot[tensor] + slot];
}

/* Has the optimizer's file this state of the array? */
static inline bool ps_checkpoint_files_has(const ps_checkpoint_files *f, ps_list list, int32_t array)
{
    return f->state_arrays[f->n_states * array + list - PS_LIST_STATES] >= 0;
}

/* n_bytes of `list` (masters or a state) from byte `offset` of an array on; each byte once, in any order. */
PS_NODISCARD ps_status ps_checkpoint_files_put(ps_checkpoint_files *f, ps_list list, int32_t array, int64_t offset,
                                               const void *data, int64_t n_bytes);
/* All bytes are written: sync, and return size and hash of each. */
PS_NODISCARD ps_status ps_checkpoint_files_commit(ps_checkpoint_files *f,
                                                  ps_checkpoint_file written[PS_CHECKPOINT_PART_COUNT]);

#endif
