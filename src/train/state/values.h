/* values.h - read or replace the part of a tensor that is in chunks, on their current tiers (chunk/view.h): no chunk
 * moves. Between moments, with no update pending. Tensors are given by their number in the layout.
 *
 * With several ranks a tensor's elements are stored by the owners of its chunks. Each rank replaces its part alone;
 * reading is a call of all ranks together, to which each owner contributes its part. */
#ifndef PS_STATE_VALUES_H
#define PS_STATE_VALUES_H

#include "chunk/view.h"
#include "train/state/state.h"

/* Bytes of a view, and of a message of an owner. */
#define PS_VALUES_ELEMENTS (PS_VIEW_BYTES_MAX / (int64_t)sizeof(float))

/* In place of a list: for each chunk the one with its tensors' values, ps_state_value_list. */
enum { PS_VALUE_LIST = -1 };

/* Values of MASTER are floats, also where PARAM16 has a part of them: both are read, and a write replaces both. */

/* Called with a part of a tensor: `values`, of this type, are its elements [p->tensor_offset, + p->n). States, and
 * quantized parameters, are passed as floats, and rounded to nearest; where a write replaces a group in part, the rest
 * of it is rounded again. */
typedef ps_status (*ps_values_func)(void *user, ps_dtype dtype, void *values, const ps_piece *p);

/* Call `use` for the parts of [first, first + n) that this rank owns, in order. Errors as ps_view_open. */
PS_NODISCARD ps_status ps_values_each(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first, int64_t n,
                                      ps_access_mode mode, ps_values_func use, void *user);
/* For all of [first, first + n), the same on all ranks; with several ranks as floats. A failure of `use` is this rank's
 * alone: it still contributes its part, and fails at the end. A rank that cannot read informs the others. */
PS_NODISCARD ps_status ps_values_each_of_all(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first,
                                             int64_t n, ps_values_func use, void *user);

/* [n] floats, on all ranks. */
PS_NODISCARD ps_status ps_values_read(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first, int64_t n,
                                      float *out);
/* The part of [first, first + n) that this rank owns becomes `in`, in this list alone. */
PS_NODISCARD ps_status ps_values_write(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first, int64_t n,
                                       const float *in);

/* out[p->n]: where MASTER is split, the values of a piece of this rank's, of at most PS_VALUES_ELEMENTS. */
PS_NODISCARD ps_status ps_values_join(const ps_model_state *s, const ps_piece *p, float *out);

/* The first range of a tensor at or after element *first that this rank owns, in one chunk or several adjacent ones:
 * *first and *n, in elements. False: it owns none from there on. A single rank owns all. */
bool ps_values_next_owned(const ps_model_state *s, int32_t tensor, int64_t *first, int64_t *n);

/* PS_EINVAL: the tensor of this name has no elements [first, first + n). */
PS_NODISCARD ps_status ps_values_check_range(const char *name, int64_t elements, int64_t first, int64_t n);

/* *out: the list of the optimizer's state of this name. PS_EINVAL naming the call. */
PS_NODISCARD ps_status ps_values_find_list(const ps_settings *s, const char *call, const char *state, ps_list *out);
/* PS_EINVAL: the tensor of this name has no such state, as it is updated as a whole, or by elements. */
PS_NODISCARD ps_status ps_values_expect_state(const ps_settings *s, const char *name, bool is_whole, ps_list list);

/* dst[i] = src[i], i < n, by the host, in host memory outside of tiers. */
PS_NODISCARD ps_status ps_values_cast(const ps_model_state *s, void *dst, ps_dtype to, const void *src, ps_dtype from,
                                      int64_t n);

#endif
