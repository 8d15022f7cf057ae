/* Any bytes as the JSON of a weight that bitsandbytes quantized: refused with a message, or sizes that can be computed
 * with. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "weights/bnb_weight.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ps_bnb_weight w;
    if (ps_bnb_state_parse("fuzz", (const char *)data, (int64_t)n, &w) == PS_OK) {
        int64_t elements = 1;
        if (w.n_dims < 1 || w.n_dims > PS_SAFETENSORS_DIMS_MAX) abort();
        for (int d = 0; d < w.n_dims; d++)
            if (w.shape[d] < 1 || __builtin_mul_overflow(elements, w.shape[d], &elements)) abort();
        if (elements != w.elements || w.block < 2 || w.nested_block < 0 || !isfinite(w.nested_offset)) abort();
    } else if (ps_last_error()[0] == '\0') {
        abort();
    }
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
