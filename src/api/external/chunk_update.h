/* chunk_update.h - updates of chunks, immediate, deferred, or within the backward pass; and synchronization of
 * parameters, fp32 values and gradients with each other. */
#ifndef PS_EXTERNAL_CHUNK_UPDATE_H
#define PS_EXTERNAL_CHUNK_UPDATE_H

#include "api/external/moment_trace.h"

/* ---- chunk_update.c ---- */

/* The numbers for the updates of a tensor. */
ps_piece_update ps_client_update_of(const ps_client *c, const ps_client_tensor_state *t);
/* Update a chunk whose gradients are not used yet. framework_bytes: of its moment. */
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
/* The fp32 values or states of the chunk, or of the tensor, are about to change, other than by an update: a checkpoint
 * that is being saved takes the values before. */
PS_NODISCARD ps_status ps_client_save_first(ps_client *c, int32_t chunk);
PS_NODISCARD ps_status ps_client_save_tensor_first(ps_client *c, int32_t tensor);

/* ---- value_sync.c ---- */

/* The program has written to one of parameter and master: update the other one. */
PS_NODISCARD ps_status ps_client_sync_value(ps_client *c, int32_t tensor);
/* Chunks of the tensor have masters from now on. */
PS_NODISCARD ps_status ps_client_need_master(ps_client *c, int32_t tensor);
/* Moves gradients that overwrite the parameter to list GRAD. PS_ESTATE: the program has a pointer to them in use. */
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
