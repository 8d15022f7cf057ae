/* device_impl.h - shared by device.c and the backends only. */
#ifndef PS_DEVICE_DEVICE_IMPL_H
#define PS_DEVICE_DEVICE_IMPL_H

#include "device/device.h"

/* Fresh addresses without memory that cannot be touched, a multiple of `align` bytes (a power of two >= a page).
 * `bytes` is a multiple of pages; freed by munmap. PS_ENOMEM_HOST when the system refuses. */
PS_NODISCARD ps_status ps_address_reserve(int64_t bytes, int64_t align, void **out);

#endif
