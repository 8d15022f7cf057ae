/* open.h - a GPU of this system to compute on: its driver, the kernels of the plug-in (plugin.h), the library of
 * matrix products (cublaslt.h) and that of attention (cudnn_attention.h) put together. */
#ifndef PS_CUDA_OPEN_H
#define PS_CUDA_OPEN_H

#include "cuda/backend_cuda.h"
#include "cuda/nccl.h"

/* Who computes attention, as train.attention says it. */
typedef enum ps_cuda_attention_choice {
    PS_CUDA_ATTENTION_AUTO,  /* the library where it is installed */
    PS_CUDA_ATTENTION_OWN,   /* kernels alone */
    PS_CUDA_ATTENTION_CUDNN, /* the library must be there */
    PS_CUDA_ATTENTION_CHOICES,
} ps_cuda_attention_choice;

/* Where the parts come from. */
typedef struct ps_cuda_parts {
    ps_status (*driver)(const ps_cuda_driver **out);
    ps_status (*image)(const ps_cuda_image **out);
    ps_status (*products)(ps_gpu *gpu, ps_cuda_products *out);
    int64_t product_bytes; /* workspace_bytes of the products */
    ps_status (*nccl)(const ps_nccl **out);
    int64_t nccl_bytes; /* of a GPU's memory that it is taken to want for itself */
    ps_status (*attention)(ps_gpu *gpu, ps_cuda_attention *out); /* NULL: there is none; PS_ENOSYS: none is installed */
    const char *(*visible)(void); /* NULL: what the environment says in CUDA_VISIBLE_DEVICES */
    bool poisons;                 /* of ps_gpu_options */
    bool checks_order;            /* what is issued shall go by a checker (device/order.h) */
} ps_cuda_parts;

/* For tests: from now on these are the parts of this process, and a GPU is there; NULL: those of the system again. *parts
 * must last as long. Not while anything here is called or open. */
void ps_cuda_use_parts(const ps_cuda_parts *parts);
const ps_cuda_parts *ps_cuda_get_parts(void);

/* Is there something of NVIDIA's? Else there is no need for a word about it. Nothing is loaded. */
bool ps_cuda_is_expected(void);

/* Which GPUs are left to this process, as CUDA_VISIBLE_DEVICES says it; NULL: all. */
const char *ps_cuda_visible(void);

typedef struct ps_cuda_found {
    int n_gpus;       /* that CUDA_VISIBLE_DEVICES leaves */
    ps_gpu_info info; /* of the one that was looked at, as is what follows */
    int64_t page_bytes;
    int64_t usable_bytes; /* of what is free now, when kernels and libraries are loaded: a budget "auto" */
    char attention[40];   /* who computes it: ps_backend_cuda_attention */
} ps_cuda_found;

/* Looks at GPU number ordinal modulo n_gpus: it is opened for this, and closed again; the first time in a process it
 * multiplies matrices too, to measure what libraries take. PS_ENOSYS in one line that says why, and what to do, when it
 * cannot be used, or the kernels or the library are not there; PS_ENOMEM_DEV when others have its memory. */
PS_NODISCARD ps_status ps_cuda_find(int ordinal, ps_cuda_attention_choice attention, ps_cuda_found *out);

/* To compute on GPU number `ordinal`; host: as of ps_backend_create_cuda. It owns all of it, host on failure too. Errors
 * as of its parts. */
PS_NODISCARD ps_status ps_backend_open_cuda(int ordinal, ps_cuda_attention_choice attention, ps_backend *host,
                                            ps_backend **out);

#endif
