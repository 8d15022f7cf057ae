/* rates.h - what a hardware description says of computing, in the terms of the kernels' cost model. */
#ifndef PS_PLAN_RATES_H
#define PS_PLAN_RATES_H

#include "config/hardware.h"
#include "kernel/cost.h"

/* Operators on a device. PS_EINVAL naming the key when the description offers no products of type t. */
PS_NODISCARD ps_status ps_rates_of_device(const ps_hardware *hw, ps_dtype t, ps_device_rates *out);

/* Operators on the host, with all its cores. A number format that is not offered counts no arithmetic. */
ps_device_rates ps_rates_of_host(const ps_hardware *hw);

/* Seconds of Adam on the host over operands of so many bytes (ps_kernel_cost of adam), all cores of a node together. */
double ps_rates_host_adam_seconds(const ps_hardware *hw, double bytes);

#endif
