/* A token file with a header: opened, checked, read. */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/token_file.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const fuzz_file file = fuzz_file_make(data, n);
    ps_token_file *f = NULL;
    if (ps_token_file_open(file.path, &f) == PS_OK) {
        const int64_t n_tokens = ps_token_file_count(f);
        int32_t last = -1;
        const ps_status checked = ps_token_file_check(f, 50257);
        const ps_status read = ps_token_file_read(f, n_tokens - 1, 1, 50257, &last);
        if (checked == PS_OK && (read != PS_OK || last < 0 || last >= 50257)) abort();
    }
    ps_token_file_close(f);
    close(file.fd);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
