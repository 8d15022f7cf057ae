/* own.h - calls a user's operator (ps_own_operator), for all backends.
 *
 *     workspace | the function's scratch | dw of parameter 0, as floats | dw of parameter 1 | those that are needed
 *
 * The function writes gradients of parameters as floats to scratch; the backend then rounds them into the gradient, or
 * adds them. So the function does not depend on in-place gradients or on the type of gradients. */
#ifndef PS_KERNEL_OWN_H
#define PS_KERNEL_OWN_H

#include "kernel/kernel.h"

ps_own_functions ps_own_functions_of(const ps_own_operator *op, bool is_backward);

/* Above the memory of any machine, and small enough that sums do not overflow. */
#define PS_OWN_SCRATCH_MAX ((int64_t)1 << 44)

/* Check first: PS_EINVAL naming the operator unless its scratch_bytes function returns 0 to PS_OWN_SCRATCH_MAX. */
PS_NODISCARD ps_status ps_own_check_scratch(const ps_own_args *a, ps_device_type device, bool is_backward);

int64_t ps_own_workspace_bytes(const ps_own_args *a, ps_device_type device, bool is_backward);

/* The argument of the function; options, and dw and scratch in a's workspace, are valid as long as a. stream is
 * NULL. */
ps_own_call ps_own_call_of(const ps_own_args *a, ps_device_type device, bool is_backward);

/* Call the device's function, and return its status; PS_EINVAL, naming the operator, when that is not a ps_status;
 * PS_ENOSYS without a function. */
PS_NODISCARD ps_status ps_own_run(const ps_own_args *a, const ps_own_call *call);

#endif
