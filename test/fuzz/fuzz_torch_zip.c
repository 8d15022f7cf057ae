/* A file of torch.save as a whole (or safetensors: what it begins with decides): if it is taken, all tensors can be
 * found and read. */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "fuzz_file.h"
#include "weights/weight_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const fuzz_file file = fuzz_file_make(data, n);
    const char *path = file.path;
    ps_weight_source *s = NULL;
    if (ps_weight_source_open_files(&path, 1, &s) == PS_OK) {
        uint8_t *bytes = malloc(n + 1);
        for (int i = 0; i < ps_weight_source_count(s); i++) {
            const ps_weight *w = ps_weight_source_get(s, i);
            if (ps_weight_source_find(s, w->tensor.name) != i || w->tensor.n_bytes > (int64_t)n) abort();
            if (ps_weight_source_read(s, w, 0, bytes, w->tensor.n_bytes) != PS_OK) abort();
        }
        free(bytes);
    }
    ps_weight_source_close(s);
    close(file.fd);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
