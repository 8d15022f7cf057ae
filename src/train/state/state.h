/* state.h - the model state shared by both front ends: parameters, fp32 values and optimizer states in the chunks of
 * lists.h, over tiers. A driver (run/, external/) decides which chunks are pinned where and when; this state computes
 * on them. */
#ifndef PS_STATE_STATE_H
#define PS_STATE_STATE_H

#include "kernel/kernel.h"
#include "train/settings/settings.h"
#include "train/state/lists.h"
#include "train/state/pieces.h"
#include "train/state/tiers.h"

/* A tensor of the model. */
typedef struct ps_state_tensor {
    const char *name;
    const int64_t *shape; /* [n_dims] */
    int32_t n_dims;
    int32_t in_layout; /* its number there, -1: in no chunk, and replicated on all ranks */
    int64_t elements;
    bool is_trained;  /* it has states of the optimizer */
    bool is_whole;    /* the optimizer updates it as a whole, and it has the states of such tensors */
    bool is_left_out; /* of checkpoints, which have the hash of all such values */
} ps_state_tensor;

/* A tensor of the layout that may be stored as records (base/quantized.h), from its place on, all in one chunk. */
typedef struct ps_stored_tensor {
    ps_quant quant;
    int64_t elements; /* its own; its place has those of PARAM16 whose bytes it takes */
} ps_stored_tensor;

/* All of it belongs to the driver. */
typedef struct ps_model_state {
    const ps_settings *settings;
    const ps_layout *layout;
    const ps_lists *lists;
    const ps_pieces *pieces;
    const ps_tiers *tiers;
    const ps_tier *update_tier;   /* [n_chunks] where the chunk is updated, or created when it is first written */
    const bool *has_master;       /* [n_chunks] the chunk is in MASTER and further lists; NULL: by layout->n_mirrored */
    const uint32_t *chunk_states; /* [n_chunks] 1 << i for each state of the optimizer whose list has the chunk; NULL:
                                   * all of them for trained chunks */
    const ps_state_tensor *tensors; /* [n_tensors] that pieces refer to; NULL without files */
    int32_t n_tensors;
    const ps_stored_tensor *stored; /* [layout->n_tensors]; NULL: no tensor is quantized */
} ps_model_state;

/* Has the tensor, one of `tensors`, state i of the optimizer? */
static inline bool ps_state_tensor_has(const ps_model_state *s, const ps_state_tensor *t, int32_t i)
{
    return t->is_trained && (ps_optimizer_states_of(&s->settings->optimizer, t->is_whole) >> i & 1);
}

static inline ps_quant ps_state_quant(const ps_model_state *s, int32_t tensor)
{
    return s->stored != NULL ? s->stored[tensor].quant : PS_QUANT_NONE;
}

/* Of a tensor of the layout. */
static inline int64_t ps_state_elements(const ps_model_state *s, int32_t tensor)
{
    return s->stored != NULL ? s->stored[tensor].elements : s->layout->places[tensor].elements;
}

/* Does this rank own the chunk? */
static inline bool ps_state_owns(const ps_model_state *s, int32_t chunk)
{
    return ps_ranks_owns(&s->settings->ranks, chunk);
}

/* Is the chunk one of trained parameters? Others are in PARAM16 alone. */
static inline bool ps_state_trains(const ps_model_state *s, int32_t chunk)
{
    return s->has_master != NULL ? s->has_master[chunk] : chunk < s->layout->n_mirrored;
}

/* Is the trained chunk in the list, of MASTER to before GRAD? */
static inline bool ps_state_has_list(const ps_model_state *s, ps_list list, int32_t chunk)
{
    return list < PS_LIST_STATES || s->chunk_states == NULL || (s->chunk_states[chunk] >> (list - PS_LIST_STATES) & 1);
}

/* The list with the values of the chunk's tensors. */
static inline ps_list ps_state_value_list(const ps_model_state *s, int32_t chunk)
{
    return ps_state_trains(s, chunk) && ps_lists_exists(s->lists, PS_LIST_MASTER) ? PS_LIST_MASTER : PS_LIST_PARAM16;
}

/* The backend that computes on a tier; its queue is that of the tiers. */
ps_backend *ps_state_backend(const ps_model_state *s, ps_tier tier);

/* Address of an element of a pinned chunk; where elements are in groups, of one with which a group begins. */
void *ps_state_element(const ps_model_state *s, ps_list list, int32_t chunk, int64_t offset);

/* Type of the list's elements as they are used: the settings' type for parameters and their kept gradients, else fp32. */
ps_dtype ps_state_dtype(const ps_model_state *s, ps_list list);

/* Are the list's elements floats of which PARAM16 has a part? MASTER with compact_split: its chunks are read and written
 * together with those of PARAM16. */
static inline bool ps_state_is_split(const ps_model_state *s, ps_list list)
{
    return list == PS_LIST_MASTER && s->settings->optimizer.is_split;
}

/* How the list's elements are stored, where they are used as floats but are none; else PS_FORMAT_F32. */
ps_format ps_state_format(const ps_model_state *s, ps_list list);

/* dst[i] = src[i], i < n, on the tier's queue. */
PS_NODISCARD ps_status ps_state_cast(const ps_model_state *s, ps_tier tier, void *dst, ps_dtype dst_dtype,
                                     const void *src, ps_dtype src_dtype, int64_t n);

/* The same from host memory outside of tiers, by the host, into a payload that is pinned on the tier. */
PS_NODISCARD ps_status ps_state_put(const ps_model_state *s, ps_tier tier, void *dst, ps_dtype dst_dtype,
                                    const void *src, ps_dtype src_dtype, int64_t n);

/* n values of a tensor from `offset` of the chunk on, from host memory outside of tiers, into PARAM16, and MASTER where
 * the chunk has one: both pinned on the tier. */
PS_NODISCARD ps_status ps_state_put_values(const ps_model_state *s, ps_tier tier, int32_t chunk, int64_t offset,
                                           const float *values, int64_t n);

/* The same for a quantized tensor: its values from `first` on, with which a record begins, into PARAM16. */
PS_NODISCARD ps_status ps_state_put_quantized(const ps_model_state *s, ps_tier tier, const ps_piece *p, int64_t first,
                                              const float *values, int64_t n);

/* PARAM16 = MASTER rounded, of a piece whose chunks of both are pinned on the tier; nothing without whole masters. */
PS_NODISCARD ps_status ps_state_round_master(const ps_model_state *s, ps_tier tier, const ps_piece *p);

/* Arguments of the update of a piece. */
typedef struct ps_piece_update {
    bool skips;        /* the step's gradients are not finite: parameters are rounded again from the masters */
    ps_list gradients; /* PARAM16: they overwrite their parameters, in the parameters' type, as in KEPT_GRAD and GRAD16;
                        * else in fp32 */
    const ps_optimizer_setup *optimizer;
    ps_optimizer_step step;
    float weight_decay;
    ps_rng_key rounding; /* of the tensor in this step, where the optimizer rounds at random */
    int64_t rows, cols;  /* the piece is a whole matrix, and updated as such; 0: element by element */
} ps_piece_update;

#define PS_STREAMS_ROUNDING ((uint64_t)3 << 62) /* as in runner_impl.h */

/* Of the tensor's update number `step`, where the optimizer rounds at random: a function of seed, step and name, not of
 * the order of updates, nor of who makes them. */
ps_rng_key ps_state_rounding_key(const ps_settings *s, int64_t step, const char *name);

/* Update a piece whose chunks of PARAM16, MASTER, the optimizer's states and the gradients are pinned on the tier; if
 * it skips, those of PARAM16 and MASTER suffice. Of a whole matrix with the tier's update_scratch. */
PS_NODISCARD ps_status ps_state_update_piece(const ps_model_state *s, ps_tier tier, const ps_piece *p,
                                             const ps_piece_update *u);

#endif
