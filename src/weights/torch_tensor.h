/* torch_tensor.h - texts and tensors among the values of a torch_machine, taken out of it. */
#ifndef PS_WEIGHTS_TORCH_TENSOR_H
#define PS_WEIGHTS_TORCH_TENSOR_H

#include <stdbool.h>

#include "weights/torch_machine.h"
#include "weights/torch_pickle.h"

bool torch_text_is(const torch_value *v, const char *text);

/* A copy of a text in *texts, which has room, with a zero byte behind it; *texts moves on. NULL when there is a zero
 * byte in it. */
const char *torch_text_keep(char **texts, const torch_value *v);

/* The tensor v, whose name out->tensor.name is; the key of its storage is kept in *texts. PS_EFORMAT names what is no
 * plain array or does not lie in its storage. */
PS_NODISCARD ps_status torch_tensor_take(const torch_machine *m, const torch_value *v, char **texts,
                                         ps_torch_tensor *out);

#endif
