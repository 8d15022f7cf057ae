/* tensors.h - whole tensors into and out of their chunks, piece by piece, for files. Public access to parts is in tensors.c too. */
#ifndef PS_ENGINE_TENSORS_H
#define PS_ENGINE_TENSORS_H

#include "base/status.h"
#include "tensor/dtype.h"

/* Put elements [first, first + n) of the tensor, of the type agreed on, into dst, or take them from src. */
typedef ps_status (*ps_tensor_give_func)(void *user, int64_t first, int64_t n, void *dst);
typedef ps_status (*ps_tensor_take_func)(void *user, int64_t first, int64_t n, const void *src);

/* Replace a tensor's value by what `give` gives, piece after piece, in order. When the values are stored in that type, `give`
 * writes straight into the chunk. After a failure of `give` (its status) the tensor is partly replaced. Errors otherwise as
 * ps_engine_write_tensor. */
PS_NODISCARD ps_status ps_engine_fill_tensor(ps_engine *e, int64_t tensor, ps_dtype dtype, ps_tensor_give_func give,
                                             void *user);

/* Hand a tensor's value (as ps_engine_read_tensor reads it), rounded to dtype, to `take`, in order. */
PS_NODISCARD ps_status ps_engine_drain_tensor(ps_engine *e, int64_t tensor, ps_dtype dtype, ps_tensor_take_func take,
                                              void *user);

#endif
