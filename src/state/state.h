/* state.h - what is trained, as both front ends have it: parameters, fp32 values and optimizer states in the chunks of
 * lists.h, over tiers. A driver (run/, external/) says which chunks are pinned where and when; what is computed there is
 * the state's. */
#ifndef PS_STATE_STATE_H
#define PS_STATE_STATE_H

#include "kernel/kernel.h"
#include "settings/settings.h"
#include "state/lists.h"
#include "state/pieces.h"
#include "state/tiers.h"

/* A tensor of the model. */
typedef struct ps_state_tensor {
    const char *name;
    const int64_t *shape; /* [n_dims] */
    int32_t n_dims;
    int32_t in_layout; /* its number there, -1: it is in no chunk, but on all ranks alike */
    int64_t elements;
    bool is_trained; /* it has states of the optimizer */
} ps_state_tensor;

/* All of it is the driver's. */
typedef struct ps_model_state {
    const ps_settings *settings;
    const ps_layout *layout;
    const ps_lists *lists;
    const ps_pieces *pieces;
    const ps_tiers *tiers;
    const ps_tier *update_tier; /* [n_chunks] where the chunk is updated, or made when it is first written */
    const bool *has_master; /* [n_chunks] the chunk is in MASTER and further lists; NULL: layout->n_mirrored says so */
    const ps_state_tensor *tensors; /* [n_tensors] that pieces name; NULL where nobody reads or writes files */
    int32_t n_tensors;
} ps_model_state;

/* Is the chunk this rank's? */
static inline bool ps_state_owns(const ps_model_state *s, int32_t chunk)
{
    return ps_ranks_owns(&s->settings->ranks, chunk);
}

/* Is the chunk one of trained parameters? Others are in PARAM16 alone. */
static inline bool ps_state_trains(const ps_model_state *s, int32_t chunk)
{
    return s->has_master != NULL ? s->has_master[chunk] : chunk < s->layout->n_mirrored;
}

/* Which list has the values of the chunk's tensors. */
static inline ps_list ps_state_value_list(const ps_model_state *s, int32_t chunk)
{
    return ps_state_trains(s, chunk) && s->lists->list[PS_LIST_MASTER].item_bytes > 0 ? PS_LIST_MASTER
                                                                                      : PS_LIST_PARAM16;
}

/* What computes on a tier; its queue there is that of the tiers. */
ps_backend *ps_state_backend(const ps_model_state *s, ps_tier tier);

/* Address of an element of a chunk that is pinned. */
void *ps_state_element(const ps_model_state *s, ps_list list, int32_t chunk, int64_t offset);

/* Of elements of the list: the settings' type for parameters, else fp32. */
ps_dtype ps_state_dtype(const ps_model_state *s, ps_list list);

/* dst[i] = src[i], i < n, by the tier's queue. */
PS_NODISCARD ps_status ps_state_cast(const ps_model_state *s, ps_tier tier, void *dst, ps_dtype dst_dtype,
                                     const void *src, ps_dtype src_dtype, int64_t n);

/* The same from memory of the host's own, by the host, into a payload that is pinned on the tier. */
PS_NODISCARD ps_status ps_state_put(const ps_model_state *s, ps_tier tier, void *dst, ps_dtype dst_dtype,
                                    const void *src, ps_dtype src_dtype, int64_t n);

/* PARAM16 = MASTER rounded, of a piece whose chunks of both are pinned on the tier. */
PS_NODISCARD ps_status ps_state_round_master(const ps_model_state *s, ps_tier tier, const ps_piece *p);

/* What the update of a piece computes with. */
typedef struct ps_piece_update {
    bool skips;        /* the step's gradients are not finite: parameters are rounded anew from the masters */
    ps_list gradients; /* PARAM16: they lie over their parameters, in the parameters' type; else in fp32 */
    const ps_optimizer_setup *optimizer;
    ps_optimizer_step step;
    float weight_decay;
} ps_piece_update;

/* Update a piece whose chunks of PARAM16, MASTER, the optimizer's states and the gradients are pinned on the tier; when
 * it skips, those of PARAM16 and MASTER are enough. */
PS_NODISCARD ps_status ps_state_update_piece(const ps_model_state *s, ps_tier tier, const ps_piece *p,
                                             const ps_piece_update *u);

#endif
