/* product_table.h - which algorithm of cuBLASLt multiplies which shapes: what was measured once, as a table that is kept
 * in a file, told to other ranks, and stored in checkpoints. Nothing here needs CUDA.
 *
 *     {
 *       "format": "patrickstar products", "version": 2,
 *       "gpu": "NVIDIA H100 80GB HBM3", "processors": 132, "driver": 13000, "cublaslt": 130100,
 *       "workspace_bytes": 33554432,
 *       "products": [{"m", "n", "k", "y_stride", "a_stride", "b_stride", "type": "bf16", "y_type": "bf16",
 *                     "a_transposed": false, "b_transposed": true, "bias": true, "accumulates": false, "addend": true,
 *                     "gelu_derivative": false, "a_align": 64, "place": 2, "algorithm": "128 hexadecimal digits"}]
 *     }
 *
 * Version 1 has no products that something follows: "addend" and "gelu_derivative" are false where they are missing.
 * An algorithm is 8 words of which only that version of the library knows what they say: they are checked by it before
 * use (cublasLtMatmulAlgoCheck), and here nothing but their number. */
#ifndef PS_CUDA_PRODUCT_TABLE_H
#define PS_CUDA_PRODUCT_TABLE_H

#include <stdbool.h>

#include "kernel/cuda/cuda_operator.h"

/* All that an algorithm is chosen by. */
typedef struct ps_cuda_shape {
    int64_t m, n, k, y_stride, a_stride, b_stride;
    int32_t dtype, y_dtype; /* ps_dtype */
    bool is_a_transposed, is_b_transposed, has_bias, accumulates;
    bool has_addend, has_gelu_x;
    uint8_t a_align; /* PS_CUDA_PRODUCT_ALIGN, or what less it is of a row within an array */
    char unused;
} ps_cuda_shape;

_Static_assert(sizeof(ps_cuda_shape) == 6 * sizeof(int64_t) + 4 * sizeof(int32_t),
               "shapes are compared by their bytes");

ps_cuda_shape ps_cuda_shape_of(const ps_cuda_product *p);

/* Where a choice holds: elsewhere algorithms are others, or others the fastest. */
typedef struct ps_cuda_site {
    char gpu[128];
    int64_t processors; /* of a part of a GPU fewer */
    int64_t driver_version, library_version;
    int64_t workspace_bytes; /* that each product is given */
} ps_cuda_site;

bool ps_cuda_site_is_same(const ps_cuda_site *a, const ps_cuda_site *b);

#define PS_CUDA_ALGORITHM_WORDS 8

typedef struct ps_cuda_choice {
    ps_cuda_shape shape;
    uint64_t algorithm[PS_CUDA_ALGORITHM_WORDS];
    int32_t place; /* among those that the library's heuristics gave, 0: their first */
} ps_cuda_choice;

typedef struct ps_cuda_product_table {
    ps_cuda_site site;
    ps_cuda_choice *choices;
    size_t n;
} ps_cuda_product_table;

void ps_cuda_product_table_deinit(ps_cuda_product_table *t); /* zeros are accepted */

/* NULL: it has none for this shape. */
const ps_cuda_choice *ps_cuda_product_table_find(const ps_cuda_product_table *t, const ps_cuda_shape *shape);
/* Add it, or put it in the place of the one for the same shape. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_cuda_product_table_put(ps_cuda_product_table *t, const ps_cuda_choice *c);

/* Of a text beyond this nothing is read. */
#define PS_CUDA_PRODUCT_TABLE_BYTES_MAX (4 * PS_MIB)

/* The table as text; freed by ps_mem_free. */
PS_NODISCARD ps_status ps_cuda_product_table_render(const ps_cuda_product_table *t, char **out);
/* Read a text; messages call it `name`. PS_EFORMAT for what is no such table, naming the entry; *out is empty then. */
PS_NODISCARD ps_status ps_cuda_product_table_parse(const char *text, int64_t n_bytes, const char *name,
                                                   ps_cuda_product_table *out);

#endif
