/* profile_chunks.h - the chunks of a run, and the tensors in them: for a profile. */
#ifndef PS_RECORD_PROFILE_CHUNKS_H
#define PS_RECORD_PROFILE_CHUNKS_H

#include "train/run/exec_plan.h"

typedef struct ps_profile_chunks {
    const ps_layout *layout; /* must outlive it */
    ps_lists lists;
    int64_t page_bytes; /* payloads are whole pages of this size */
    bool *is_there;     /* [ps_lists_n_ids] by id */
    const char **names; /* [layout->n_tensors] of tensors; they must outlive it */
    ps_pieces pieces;   /* of tensors by their numbers in the layout */
} ps_profile_chunks;

/* All chunks of lists that exist; names are "", to be filled in by the caller. PS_ENOMEM_HOST: it is empty then. */
PS_NODISCARD ps_status ps_profile_chunks_init(const ps_layout *layout, const ps_lists *lists, int64_t page_bytes,
                                              ps_profile_chunks *c);
/* Those of an execution plan, with the names of its program's parameters; both must outlive it. */
PS_NODISCARD ps_status ps_profile_chunks_init_planned(const ps_exec_plan *b, ps_profile_chunks *c);
void ps_profile_chunks_deinit(ps_profile_chunks *c); /* an empty one is accepted */

#endif
