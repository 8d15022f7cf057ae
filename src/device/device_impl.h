/* device_impl.h - what device.c and the backends share; nobody else includes it. */
#ifndef PS_DEVICE_DEVICE_IMPL_H
#define PS_DEVICE_DEVICE_IMPL_H

#include "device/device.h"

/* Fresh addresses that cannot be touched, a multiple of `align` bytes (a power of two >= a page). No memory behind
 * them. `bytes` is a multiple of pages; given back with munmap. PS_ENOMEM_HOST when the system refuses. */
PS_NODISCARD ps_status ps_address_reserve(int64_t bytes, int64_t align, void **out);

#endif
