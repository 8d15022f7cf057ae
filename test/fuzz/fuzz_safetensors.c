/* A safetensors file: if it is taken, all tensors can be found by name and read, and fill the file to its end. */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "fuzz_file.h"
#include "weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const fuzz_file file = fuzz_file_make(data, n);
    ps_safetensors *s = NULL;
    if (ps_safetensors_open(file.path, &s) == PS_OK) {
        uint8_t *bytes = malloc(n + 1);
        int64_t end = -1;
        for (int i = 0; i < ps_safetensors_count(s); i++) {
            const ps_safetensor *t = ps_safetensors_get(s, i);
            if (ps_safetensors_find(s, t->name) != t || (end >= 0 && t->offset != end)) abort();
            if (ps_safetensors_read(s, t, 0, bytes, t->n_bytes) != PS_OK) abort();
            end = t->offset + t->n_bytes;
        }
        if (end >= 0 && end != (int64_t)n) abort();
        (void)ps_safetensors_metadata_value(s, "format");
        free(bytes);
    }
    ps_safetensors_close(s);
    close(file.fd);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
