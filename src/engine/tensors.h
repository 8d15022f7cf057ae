/* tensors.h - whole tensors into and out of their chunks, piece by piece, for files. The public functions that read and
 * write ranges of elements are in tensors.c too.
 *
 * With several ranks a tensor's elements lie with the owners of its chunks. Writing is each rank's own business;
 * reading is a call of all ranks together, to which each owner gives its part. */
#ifndef PS_ENGINE_TENSORS_H
#define PS_ENGINE_TENSORS_H

#include <stdbool.h>

#include "base/status.h"
#include "tensor/dtype.h"

/* Put elements [first, first + n) of the tensor, of the type agreed on, into dst, or take them from src. */
typedef ps_status (*ps_tensor_give_func)(void *user, int64_t first, int64_t n, void *dst);
typedef ps_status (*ps_tensor_take_func)(void *user, int64_t first, int64_t n, const void *src);

/* Replace what this rank owns of the first n elements of a tensor by what `give` gives, piece after piece, in order.
 * When the values are stored in that type, `give` writes straight into the chunk. After a failure of `give` (its
 * status) the tensor is partly replaced. Errors otherwise as ps_engine_write_tensor. */
PS_NODISCARD ps_status ps_engine_fill_tensor(ps_engine *e, int64_t tensor, int64_t n, ps_dtype dtype,
                                             ps_tensor_give_func give, void *user);

/* Hand a tensor's value (as ps_engine_read_tensor reads it), rounded to dtype, to `take` (NULL: this rank only gives),
 * in order. All ranks together; after a failure of `take` this rank still gives its part, then returns that failure. */
PS_NODISCARD ps_status ps_engine_drain_tensor(ps_engine *e, int64_t tensor, ps_dtype dtype, ps_tensor_take_func take,
                                              void *user);

#endif
