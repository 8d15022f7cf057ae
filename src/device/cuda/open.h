/* open.h - opens a GPU of this system for computing: its driver, the kernels of the plug-in (plugin.h), the libraries
 * for matrix multiplication (cublaslt.h) and attention (cudnn_attention.h). */
#ifndef PS_CUDA_OPEN_H
#define PS_CUDA_OPEN_H

#include "device/cuda/backend_cuda.h"
#include "device/cuda/nccl.h"

/* What computes attention: train.attention. */
typedef enum ps_cuda_attention_choice {
    PS_CUDA_ATTENTION_AUTO,  /* the library where it is installed */
    PS_CUDA_ATTENTION_OWN,   /* own kernels only */
    PS_CUDA_ATTENTION_CUDNN, /* the library is required */
    PS_CUDA_ATTENTION_CHOICES,
} ps_cuda_attention_choice;

/* The sources of the parts. */
typedef struct ps_cuda_parts {
    ps_status (*driver)(const ps_cuda_driver **out);
    ps_status (*image)(const ps_cuda_image **out);
    ps_status (*gemms)(ps_gpu *gpu, ps_cuda_gemms *out);
    int64_t gemm_bytes; /* workspace_bytes of gemms */
    ps_status (*nccl)(const ps_nccl **out);
    int64_t nccl_bytes;                                          /* GPU memory that NCCL is estimated to allocate */
    ps_status (*attention)(ps_gpu *gpu, ps_cuda_attention *out); /* NULL: no library; PS_ENOSYS: not installed */
    /* For tests: a backend in place of kernels and libraries; it owns gpu and host, on failure too. gpu NULL: to
     * measure with, on pages of this size. NULL: the CUDA backend. */
    ps_status (*backend)(ps_gpu *gpu, int64_t page_bytes, ps_backend *host, ps_backend **out);
    const char *(*visible)(void); /* NULL: the environment's CUDA_VISIBLE_DEVICES */
    bool poisons;                 /* of ps_gpu_options */
    int stream_commands;          /* of ps_gpu_options */
    bool checks_order;            /* a checker of order (device/order.h) observes what is issued */
} ps_cuda_parts;

/* For tests: from now on the process uses these parts, and a GPU is present; NULL: those of the system again. *parts
 * must stay valid. Not to be called while a function of this header runs or a GPU is open. */
void ps_cuda_use_parts(const ps_cuda_parts *parts);
const ps_cuda_parts *ps_cuda_get_parts(void);

/* Is NVIDIA hardware or a driver present? Otherwise reports need not mention it. Nothing is loaded. */
bool ps_cuda_is_expected(void);

/* The value of CUDA_VISIBLE_DEVICES for this process; NULL: all GPUs. */
const char *ps_cuda_visible(void);

typedef struct ps_cuda_found {
    int n_gpus;       /* listed in CUDA_VISIBLE_DEVICES */
    ps_gpu_info info; /* of the GPU that was examined, as are the next members */
    int64_t page_bytes;
    int64_t usable_bytes; /* free now, less what kernels and libraries allocate: a budget "auto" */
    char attention[40];   /* as of ps_backend_cuda_attention */
} ps_cuda_found;

/* Examines GPU number ordinal modulo n_gpus: opens and closes it; the first time in a process it also multiplies
 * matrices, to measure what libraries allocate. PS_ENOSYS, in one line with reason and remedy, when it cannot be used,
 * or the kernels or the library are missing; PS_ENOMEM_DEV when other processes occupy its memory. */
PS_NODISCARD ps_status ps_cuda_find(int ordinal, ps_cuda_attention_choice attention, ps_cuda_found *out);

/* Opens GPU number `ordinal` for computing; host: as for ps_backend_create_cuda. The backend owns all parts, host on
 * failure too. Errors as of the parts. */
PS_NODISCARD ps_status ps_backend_open_cuda(int ordinal, ps_cuda_attention_choice attention, ps_backend *host,
                                            ps_backend **out);

#endif
