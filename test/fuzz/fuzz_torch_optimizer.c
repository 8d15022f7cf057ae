/* data.pkl of an optimizer's file: if it is taken, numbers differ and every state is in its storage and has a name. */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "weights/torch_optimizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_param(const ps_torch_param *p)
{
    for (int k = 0; k < p->n_states; k++) {
        const ps_torch_tensor *t = &p->states[k].stored;
        int64_t n_bytes = ps_safetensors_dtype_bytes(t->tensor.dtype);
        for (int d = 0; d < t->tensor.n_dims; d++) n_bytes *= t->tensor.shape[d];
        if (t->tensor.n_bytes != n_bytes || t->tensor.offset < 0 || t->tensor.name == NULL || t->storage == NULL ||
            t->tensor.offset + n_bytes > t->storage_bytes)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ps_torch_optimizer *o = NULL;
    if (ps_torch_optimizer_parse("fuzz", (const char *)data, (int64_t)n, &o) == PS_OK)
        for (int i = 0; i < ps_torch_optimizer_count(o); i++) {
            check_param(ps_torch_optimizer_get(o, i));
            for (int k = 0; k < i && k < 64; k++)
                if (ps_torch_optimizer_get(o, k)->number == ps_torch_optimizer_get(o, i)->number) abort();
        }
    ps_torch_optimizer_close(o);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
