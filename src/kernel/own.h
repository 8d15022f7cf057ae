/* own.h - calling a user's operator (ps_own_operator), wherever it is computed.
 *
 *     workspace   | the function's scratch | dw of parameter 0, as floats | dw of parameter 1 |    those that are wanted
 *
 * The function writes gradients of parameters as floats into scratch; whoever calls it then rounds them into place, or
 * adds them. So it needs not know that a gradient may lie over its parameter, nor of what type it is. */
#ifndef PS_KERNEL_OWN_H
#define PS_KERNEL_OWN_H

#include "kernel/kernel.h"

ps_own_functions ps_own_functions_of(const ps_own_operator *op, bool is_backward);

/* More is no scratch that any memory holds; sums with it stay far below 2^63. */
#define PS_OWN_SCRATCH_MAX ((int64_t)1 << 44)

/* Before anything else is asked of a: PS_EINVAL naming the operator unless its function gives 0 to PS_OWN_SCRATCH_MAX. */
PS_NODISCARD ps_status ps_own_check_scratch(const ps_own_args *a, ps_device_type device, bool is_backward);

int64_t ps_own_workspace_bytes(const ps_own_args *a, ps_device_type device, bool is_backward);

/* What the function gets; options, and dw and scratch in a's workspace, are valid as long as a is. stream is NULL. */
ps_own_call ps_own_call_of(const ps_own_args *a, ps_device_type device, bool is_backward);

/* Call the device's function. What it returns is the result, PS_EINVAL where that is no ps_status, with a message that
 * names the operator; PS_ENOSYS when it has none. */
PS_NODISCARD ps_status ps_own_run(const ps_own_args *a, const ps_own_call *call);

#endif
