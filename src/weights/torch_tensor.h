/* torch_tensor.h - extracts texts and tensors from the values of a torch_machine. */
#ifndef PS_WEIGHTS_TORCH_TENSOR_H
#define PS_WEIGHTS_TORCH_TENSOR_H

#include <stdbool.h>

#include "weights/torch_machine.h"
#include "weights/torch_pickle.h"

bool torch_text_is(const torch_value *v, const char *text);

/* Copy a text to *texts, which has room, with a terminating zero byte, and advance *texts. NULL when the text contains
 * a zero byte. */
const char *torch_text_keep(char **texts, const torch_value *v);

/* Extract tensor v, whose name is out->tensor.name; the key of its storage is copied to *texts. PS_EFORMAT names a
 * tensor that is not a dense array, or not within its storage. */
PS_NODISCARD ps_status torch_tensor_take(const torch_machine *m, const torch_value *v, char **texts,
                                         ps_torch_tensor *out);

#endif
