/* mem.h - the only malloc in the library, for bookkeeping memory; model data are in memory of devices.
 *
 * Counts live bytes, so that tests can prove that nothing leaks; each call is a fault point (PS_FAULT_ALLOC). */
#ifndef PS_BASE_MEM_H
#define PS_BASE_MEM_H

#include "base/status.h"

/* Zero-filled memory for n items of `item_bytes`; *out = NULL and PS_ENOMEM_HOST when there is none. n == 0 yields a
 * valid pointer that must be freed like any other. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_mem_alloc(size_t n, size_t item_bytes, void *out_pointer);

/* Ensure room for n items in *pointer (may be NULL). Room grows by at least half, so that appending takes amortised
 * constant time. New items are zero-filled. On failure *pointer is unchanged. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_mem_reserve(void *pointer_to_pointer, size_t n, size_t item_bytes);

/* Capacity in bytes of memory that these calls have allocated; 0 for NULL. */
PS_PRIVATE_API size_t ps_mem_bytes(const void *p);

/* A copy of the string. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_mem_strdup(const char *s, char **out);

PS_PRIVATE_API void ps_mem_free(void *p); /* NULL is accepted */

int64_t ps_mem_live_bytes(void); /* of all threads */

#endif
