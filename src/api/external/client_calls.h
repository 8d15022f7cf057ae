/* client_calls.h - internals of public calls that other public calls use too. */
#ifndef PS_EXTERNAL_CLIENT_CALLS_H
#define PS_EXTERNAL_CLIENT_CALLS_H

#include "api/external/sharding.h"

/* ---- client_create.c ---- */

/* Releases one reference; the last one frees all memory. */
void ps_client_leave_unreferenced(ps_client *c);

/* ---- broadcast_values.c ---- */

/* Initial values of all ranks become those of rank 0. PS_EINVAL, on all, where they have not added the same tensors. */
PS_NODISCARD ps_status ps_client_broadcast_values(ps_client *c);

/* ---- client_layout.c, in this order ---- */

/* Applies train.freeze. PS_EINVAL for a pattern without a tensor. */
PS_NODISCARD ps_status ps_client_freeze(ps_client *c);
/* PS_EINVAL naming the option: one of its patterns matches no tensor. */
PS_NODISCARD ps_status ps_client_check_patterns(const ps_client *c, const char *key, const char *patterns);
PS_NODISCARD ps_status ps_client_create_layout(ps_client *c);
PS_NODISCARD ps_status ps_client_cut_pieces(ps_client *c);

/* ---- client_access.c ---- */

/* Pins as ps_client_pin; the caller has entered already. */
PS_NODISCARD ps_status ps_client_pin_place(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode,
                                           ps_client_place *place);

/* ---- client_param_groups.c ---- */

/* Assigns tensors to the configured groups, by name. */
PS_NODISCARD ps_status ps_client_deal_groups(ps_client *c);
/* As ps_client_set_group, for an existing group. */
PS_NODISCARD ps_status ps_client_set_numbers(ps_client *c, int32_t group, const ps_client_group *numbers);

/* ---- client_values.c ---- */

/* Elements [first, first + n) of the tensor's value (list PS_VALUE_LIST), which the parameter follows, or of a state
 * that is allocated. */
PS_NODISCARD ps_status ps_client_put(ps_client *c, int32_t tensor, ps_list list, int64_t first, int64_t n,
                                     const float *in);

/* ---- client_checkpoint.c ---- */

/* Cancel saving. */
void ps_client_drop_checkpoint(ps_client *c);

#endif
