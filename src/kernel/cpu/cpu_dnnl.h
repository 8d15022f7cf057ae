/* cpu_dnnl.h - matrix products by oneDNN; its calls are made in cpu_dnnl.c and cpu_dnnl_level.c, and nowhere else.
 *
 * Primitives are kept in a cache of limited size, least recently used out first. Callable from any thread. */
#ifndef PS_KERNEL_CPU_DNNL_H
#define PS_KERNEL_CPU_DNNL_H

#include "base/base.h"
#include "kernel/backend.h"

typedef struct ps_matmul ps_matmul; /* cpu_matmul.h */

/* oneDNN at a level of instruction sets, and its primitives. The teams of all threads that use it must have the same size. */
typedef struct ps_dnnl ps_dnnl;

/* For kernels of `isa`, or with any_level for whatever the process uses. Nothing of oneDNN is called before the first product is
 * measured or run; that can fail as ps_dnnl_level_fix says. */
PS_NODISCARD ps_status ps_dnnl_create(ps_cpu_isa isa, bool any_level, ps_dnnl **out);
void ps_dnnl_destroy(ps_dnnl *d); /* NULL is accepted */

/* *out: scratch for ps_dnnl_matmul, a function of everything in p but the pointers (bias: whether there is one), and of the
 * number of threads. Errors as ps_dnnl_matmul; *out is 0 then. */
PS_NODISCARD ps_status ps_dnnl_matmul_bytes(ps_dnnl *d, const ps_matmul *p, size_t *out);

/* Supported: f32 to f32, and on machines with 16-bit products bf16 to bf16 or f32.
 * workspace: 64-byte aligned, of workspace_bytes. m, n, k >= 1.
 * PS_EINVAL when that is less than ps_dnnl_matmul_bytes; PS_ENOMEM_HOST, PS_EDEVICE with oneDNN's status when it refuses. */
PS_NODISCARD ps_status ps_dnnl_matmul(ps_dnnl *d, const ps_matmul *p, void *workspace, size_t workspace_bytes);

/* Primitives in the cache. */
int ps_dnnl_cache_count(ps_dnnl *d);

#endif
