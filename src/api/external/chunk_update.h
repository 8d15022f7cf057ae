/* chunk_update.h - updates of chunks, immediate, deferred, or within the backward pass; and synchronization of
 * parameters, fp32 values and gradients with each other. */
#ifndef PS_EXTERNAL_CHUNK_UPDATE_H
#define PS_EXTERNAL_CHUNK_UPDATE_H

#include "api/external/moment_trace.h"

/* ---- chunk_update.c ---- */

/* The numbers for the updates of a tensor. */
ps_piece_update ps_client_update_of(const ps_client *c, const ps_client_tensor_state *t);
/* Update a chunk whose gradients are not used yet, with those of ps_client_updated_with. framework_bytes: of its
 * moment. */
PS_NODISCARD ps_status ps_client_update_chunk(ps_client *c, int32_t chunk, int64_t framework_bytes);
/* Is any of its lists in use? */
bool ps_client_is_any_list_pinned(const ps_client *c, int32_t chunk);
/* Carry out deferred updates: of this rank's chunks of a group; of those that the coming use of a tensor needs, with
 * several ranks of the groups that are gathered for it; of all. PS_EBUDGET: no room now, and they stay deferred. After
 * any other failure the client is unusable. */
PS_NODISCARD ps_status ps_client_flush_group(ps_client *c, int32_t group);
PS_NODISCARD ps_status ps_client_flush_tensor(ps_client *c, int32_t tensor);
PS_NODISCARD ps_status ps_client_flush(ps_client *c);
/* Cancels deferred updates: all values and states are about to be replaced. */
void ps_client_drop_updates(ps_client *c);
/* A moment of the program is about to begin, before which the recorded step has updates: deferred ones, and early ones
 * of chunks that have all their gradients. */
PS_NODISCARD ps_status ps_client_update_as_predicted(ps_client *c, int64_t framework_bytes);
/* All trained tensors of the chunk have a gradient, with several ranks the sum over ranks, that the program has not
 * changed. */
bool ps_client_can_be_early(ps_client *c, int32_t chunk);
/* The step ends: no more early updates in it. */
void ps_client_end_early_updates(ps_client *c);
/* The program needs `what` of the tensor, in the state before its update: PS_ESTATE if that has been made early. With
 * several ranks this client is then unusable, as others may wait for it. */
PS_NODISCARD ps_status ps_client_check_not_updated_early(ps_client *c, int32_t tensor, const char *what);
/* PS_ESTATE: the program reads or drops gradients after early updates may have used them. */
PS_NODISCARD ps_status ps_client_check_gradients_complete(const ps_client *c, const char *what);
/* A chunk's gradients have been used, or are no longer wanted: its lists of gradients are discarded. */
void ps_client_end_gradients(ps_client *c, int32_t chunk);
/* Gradients of the chunk have left this place: its list is discarded where it has no other. */
void ps_client_discard_unused(ps_client *c, int32_t chunk, ps_client_gradient_place place);
/* After ps_client_validate and the step: updates that were taken back are made again, as decided; where there is no room
 * now they stay deferred. */
PS_NODISCARD ps_status ps_client_update_taken_back(ps_client *c);
/* The fp32 values or states of the chunk, or of the tensor, are about to change, other than by an update: a checkpoint
 * that is being saved takes the values before. */
PS_NODISCARD ps_status ps_client_save_first(ps_client *c, int32_t chunk);
PS_NODISCARD ps_status ps_client_save_tensor_first(ps_client *c, int32_t tensor);

/* ---- early_validation.c ---- */

/* Before an early update that may be taken back: the disk keeps the chunk's optimizer data. is_unvalidated of the chunk
 * stays false where it cannot. PS_EIO as ps_store_keep. */
PS_NODISCARD ps_status ps_client_keep_states(ps_client *c, int32_t chunk);
/* That update is not made, or stands: nothing is kept. */
void ps_client_forget_states(ps_client *c, int32_t chunk);
/* Within it, its lists pinned on the tier: gradients that it will overwrite move to list KEPT_GRAD. */
PS_NODISCARD ps_status ps_client_keep_gradients(ps_client *c, int32_t chunk, ps_tier tier);
/* Can an early update of the chunk be kept in the next step, once the present one has ended as decided? */
bool ps_client_can_keep_next(const ps_client *c, int32_t chunk);
/* The step is decided. are_right: it is neither clipped nor skipped, so early updates stand. Otherwise they are taken
 * back: optimizer data is that of before, and is_unvalidated stays true until ps_client_update_taken_back. *n: of this
 * rank. PS_EIO. */
PS_NODISCARD ps_status ps_client_validate(ps_client *c, bool are_right, int32_t *n);
/* After an update that stands: optimizer data that the next early update is expected to keep begins to be written to the
 * disk. PS_EIO. */
PS_NODISCARD ps_status ps_client_write_ahead(ps_client *c, int32_t chunk);

/* ---- value_sync.c ---- */

/* The program has written to one of parameter and master: update the other one. */
PS_NODISCARD ps_status ps_client_sync_value(ps_client *c, int32_t tensor);
/* Chunks of the tensor have masters from now on. */
PS_NODISCARD ps_status ps_client_need_master(ps_client *c, int32_t tensor);
/* Moves gradients that overwrite the parameter, or are in list GRAD16, to list GRAD. PS_ESTATE: the program has a pointer to them in use. */
PS_NODISCARD ps_status ps_client_restore_param(ps_client *c, int32_t tensor);
/* Rounds a separate gradient, which is pinned, as if it were in place. */
PS_NODISCARD ps_status ps_client_round_gradient(ps_client *c, const ps_piece *p);
/* PS_ESTATE naming the call when the program has a pointer to the gradient in use; tensor -1: any gradient's. */
PS_NODISCARD ps_status ps_client_check_gradient_unpinned(const ps_client *c, int32_t tensor, const char *call);

/* ---- gradient_sums.c ---- */

ps_dtype ps_client_gradient_dtype(const ps_client *c, const ps_piece *p);
/* Add the sums of n elements to those of a piece, or of an unmanaged tensor; clears: they begin with these. */
PS_NODISCARD ps_status ps_client_add_sums(ps_client *c, ps_grad_sums *sums, int32_t tensor, const void *gradient,
                                          ps_dtype dtype, int64_t n, bool clears);
/* Compute the sums of a piece's gradient, which is pinned. */
PS_NODISCARD ps_status ps_client_sum_piece(ps_client *c, const ps_piece *p);
/* The sums over all gradients of this rank; waits for them. */
PS_NODISCARD ps_status ps_client_sum_gradients(ps_client *c, ps_grad_sums *all);

#endif
