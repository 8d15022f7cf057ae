/* product_trial.h - whether matrix products work on this processor: the library that computes them is chosen by what the processor
 * announces, which is not always what it can do. */
#ifndef PS_KERNEL_PRODUCT_TRIAL_H
#define PS_KERNEL_PRODUCT_TRIAL_H

#include "kernel/backend.h"

/* One product of each kind (f32, bf16, bf16 to f32, fp16, and one that adds), checked to the bit. PS_EDEVICE naming the kind whose result
 * is wrong. A broken library may end the process by a signal instead: call it in a process that can be lost. */
PS_NODISCARD ps_status ps_backend_try_products(ps_backend *b);

#endif
