/* sharding.h - with several ranks: groups of chunks are gathered and reduced. With one rank all functions return at
 * once. */
#ifndef PS_EXTERNAL_SHARDING_H
#define PS_EXTERNAL_SHARDING_H

#include "api/external/chunk_update.h"

/* ---- sharding.c ---- */

PS_NODISCARD ps_status ps_client_sharding_init(ps_client *c);
void ps_client_sharding_deinit(ps_client_sharding *s);
/* Gathers the groups of the tensor's chunks, so that every rank has their parameters. */
PS_NODISCARD ps_status ps_client_gather(ps_client *c, int32_t tensor, int32_t chunk);
/* Prepares a gathering of the group: its parameters are up to date, and its chunks pinned. insists: if there is no
 * room, drops predictions of the step. PS_EBUDGET: nothing is pinned. */
PS_NODISCARD ps_status ps_client_prepare_gather(ps_client *c, int32_t group, bool insists);
/* Moves the tensor's gradient off its parameter: only the owner has the parameter, the others gather it again. */
void ps_client_reshard_tensor(ps_client *c, int32_t tensor);
/* The tensor is about to get a gradient, which may overwrite its parameter. */
PS_NODISCARD ps_status ps_client_prepare_for_gradient(ps_client *c, int32_t tensor);
/* The tensor has got a gradient: groups that have all of theirs are reduced, each piece to its owner. */
PS_NODISCARD ps_status ps_client_note_gradient(ps_client *c, int32_t tensor);
/* All ranks make a step: reduces the rest. */
PS_NODISCARD ps_status ps_client_reduce_remaining(ps_client *c);
/* Parameters change: all copies of other ranks' chunks are invalid. */
PS_NODISCARD ps_status ps_client_reshard_all(ps_client *c);

/* ---- prefetch.c: after a failure here the client is unusable ---- */

/* Prefetch the next gathering of the recorded step, unless one is in progress. */
PS_NODISCARD ps_status ps_client_issue_prefetch(ps_client *c);

#endif
