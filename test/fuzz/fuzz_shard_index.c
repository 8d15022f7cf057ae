/* model.safetensors.index.json: if it is taken, every tensor has a file, by number and by name, that is no path. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "weights/shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ps_shard_index *x = NULL;
    if (ps_shard_index_parse("fuzz", (const char *)data, (int64_t)n, &x) == PS_OK) {
        for (int i = 0; i < ps_shard_index_n_tensors(x); i++) {
            int file = -1;
            const char *name = ps_shard_index_tensor(x, i, &file);
            if (file < 0 || file >= ps_shard_index_n_files(x) || ps_shard_index_find(x, name) != file) abort();
        }
        for (int i = 0; i < ps_shard_index_n_files(x); i++)
            if (strchr(ps_shard_index_file(x, i), '/') != NULL) abort();
    }
    ps_shard_index_close(x);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
