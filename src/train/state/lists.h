/* lists.h - the chunk lists of a run, by number.
 *
 *     0   PARAM16    parameters as operators read them; their gradients overwrite them
 *     1   MASTER     fp32 parameters; of them the 16 bits that PARAM16 does not have with optimizer.params.state_format
 *                    = compact_split (base/split.h); not there with bf16_stochastic
 *     2   ...        the optimizer's states, as many as it has: MOMENTUM and VARIANCE of Adam
 *     n-3 GRAD       fp32 gradients that may not overwrite: accumulation, parameters read again
 *     n-2 GRAD_SUM   sums of them over micro-batches, where GRAD has those of one: with several ranks
 *     n-1 KEPT_GRAD  gradients that overwrote their parameters, kept until an update that was made before the norm was
 *                    known is valid or taken back (ps_settings.may_speculate); or
 *         GRAD16     without whole masters: gradients that would overwrite their parameters, in the same type
 *
 *   n   INPUTS     standalone: inputs of a checkpoint segment, until it is recomputed (train/graph/code.h)
 *
 * Parameters that are not trained are in separate chunks, of PARAM16 alone (ps_layout.n_mirrored).
 *
 * Lists MASTER to before GRAD are the optimizer's data: read and written by an update, and saved in a checkpoint. */
#ifndef PS_STATE_LISTS_H
#define PS_STATE_LISTS_H

#include "chunk/store.h"
#include "train/settings/settings.h"

enum { PS_LIST_PARAM16, PS_LIST_MASTER, PS_LIST_STATES };

_Static_assert(PS_TENSOR_ALIGN_ELEMENTS % PS_FORMAT_GROUP == 0, "a tensor in a chunk begins with a group");

/* Lists that do not exist with these settings have items of 0 bytes: for inference all but PARAM16. INPUTS has
 * n_standalone chunks, each for at most standalone_bytes. */
ps_lists ps_lists_of(const ps_settings *s, int32_t n_standalone, int64_t standalone_bytes);

/* The first of the lists whose content is kept over an update that may turn out to be wrong; the last is that before
 * GRAD. Without whole masters parameters are a part of what the update starts from. */
static inline ps_list ps_lists_first_kept(const ps_settings *s)
{
    return ps_settings_separates_gradients(s) ? PS_LIST_PARAM16 : PS_LIST_MASTER;
}

#define PS_LIST_TEXT_MAX 32

/* What list holds, for a person: "parameters (bf16)", "fp32 parameters", "optimizer momentum", "8-bit momentum", ...;
 * dtype is that of the parameters. */
const char *ps_lists_describe(const ps_lists *l, ps_list list, ps_dtype dtype, char text[PS_LIST_TEXT_MAX]);

static inline ps_list ps_lists_grad(const ps_lists *l)
{
    return l->n - 3;
}

static inline ps_list ps_lists_grad_sum(const ps_lists *l)
{
    return l->n - 2;
}

static inline ps_list ps_lists_kept_grad(const ps_lists *l)
{
    return l->n - 1;
}

#endif
