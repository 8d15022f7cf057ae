/* The table of algorithms for matrix products, of the cache folder or a checkpoint. What is taken can be written and read
 * again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/product_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ps_cuda_product_table a, b;
    char *again = NULL;
    if (ps_cuda_product_table_parse((const char *)data, (int64_t)n, "fuzz", &a) != PS_OK) {
        if (a.choices != NULL || a.n != 0 || ps_mem_live_bytes() != 0) abort();
        return 0;
    }
    if (ps_cuda_product_table_render(&a, &again) != PS_OK) abort();
    if (ps_cuda_product_table_parse(again, (int64_t)strlen(again), "again", &b) != PS_OK) abort();
    if (!ps_cuda_site_is_same(&a.site, &b.site) || a.n != b.n) abort();
    if (a.n > 0 && memcmp(a.choices, b.choices, a.n * sizeof *a.choices) != 0) abort();
    ps_cuda_product_table_deinit(&a);
    ps_cuda_product_table_deinit(&b);
    ps_mem_free(again);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
