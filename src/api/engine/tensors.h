/* tensors.h - whole tensors into and out of their chunks, piece by piece, for files. The public functions for ranges of
 * elements are in tensors.c too.
 *
 * With several ranks a tensor's elements are stored by the owners of its chunks. Each rank writes its part alone;
 * reading is a call of all ranks together, to which each owner contributes its part. */
#ifndef PS_ENGINE_TENSORS_H
#define PS_ENGINE_TENSORS_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/status.h"

/* Copy elements [first, first + n) of the tensor, of the given type, to dst, or take them from src. */
typedef ps_status (*ps_tensor_give_func)(void *user, int64_t first, int64_t n, void *dst);
typedef ps_status (*ps_tensor_take_func)(void *user, int64_t first, int64_t n, const void *src);

/* Replace the part of the first n elements of a tensor that this rank owns by the values of `give`, piece after piece,
 * in order. When the values are stored in that type, `give` writes straight into the chunk. After a failure of `give`
 * (its status) the tensor is partly replaced. Errors otherwise as ps_engine_write_tensor. */
PS_NODISCARD ps_status ps_engine_fill_tensor(ps_engine *e, int64_t tensor, int64_t n, ps_dtype dtype,
                                             ps_tensor_give_func give, void *user);

/* Pass a tensor's value (as ps_engine_read_tensor reads it), rounded to dtype, to `take` (NULL: this rank only
 * contributes), in order. All ranks together; after a failure of `take` this rank still contributes its part, then
 * returns that failure. */
PS_NODISCARD ps_status ps_engine_drain_tensor(ps_engine *e, int64_t tensor, ps_dtype dtype, ps_tensor_take_func take,
                                              void *user);

/* xxh3 of the values of tensors that are left out of checkpoints, as floats, in the model's order. All ranks together; it
 * reads them only when they have been written since the last call. */
PS_NODISCARD ps_status ps_engine_hash_base(ps_engine *e, uint64_t *hash);

#endif
