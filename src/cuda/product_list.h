/* product_list.h - which products work on a GPU consists of, found by carrying it out on a backend that computes
 * nothing; and the fastest algorithms for them, measured. */
#ifndef PS_CUDA_PRODUCT_LIST_H
#define PS_CUDA_PRODUCT_LIST_H

#include "cuda/backend_cuda.h"

/* Each shape once, in the order in which they came. */
typedef struct ps_cuda_product_list {
    ps_cuda_shape *shapes;
    size_t n;
} ps_cuda_product_list;

void ps_cuda_product_list_deinit(ps_cuda_product_list *l); /* zeros are accepted */

/* Its operators are those of CUDA, with the same scratch, but all that they do is to note their products in the list,
 * which must outlive it: no queue is needed, and addresses are not touched. products: of the backend that is meant; they
 * must outlive it too. */
PS_NODISCARD ps_status ps_backend_create_cuda_lister(const ps_cuda_products *products, ps_cuda_product_list *list,
                                                     ps_backend **out);

/* Measure what t has not yet, in at most max_bytes of the memory of the GPU, on which nothing else is under way and no
 * device is open; t gets it. What needs more memory is left out. *n: so many were measured. */
PS_NODISCARD ps_status ps_cuda_product_list_measure(const ps_cuda_product_list *l, ps_backend *cuda, int64_t max_bytes,
                                                    ps_cuda_product_table *t, int *n);

#endif
