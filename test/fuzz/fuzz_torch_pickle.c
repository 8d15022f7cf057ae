/* data.pkl of a file of torch.save: if it is taken, every tensor is in its storage and has a name. */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "weights/torch_pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ps_torch_pickle *p = NULL;
    if (ps_torch_pickle_read("fuzz", (const char *)data, (int64_t)n, &p) == PS_OK)
        for (int i = 0; i < ps_torch_pickle_count(p); i++) {
            const ps_torch_tensor *t = ps_torch_pickle_get(p, i);
            int64_t n_bytes = ps_safetensors_dtype_bytes(t->tensor.dtype);
            for (int d = 0; d < t->tensor.n_dims; d++) n_bytes *= t->tensor.shape[d];
            if (t->tensor.n_bytes != n_bytes || t->tensor.offset < 0 || t->tensor.name == NULL || t->storage == NULL ||
                t->tensor.offset + n_bytes > t->storage_bytes)
                abort();
        }
    ps_torch_pickle_close(p);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
