/* mem.h - the only malloc in the library: bookkeeping memory (never model data, which lies in memory of devices).
 *
 * Counts live bytes, so that tests can prove that nothing leaks; each call is a fault point (PS_FAULT_ALLOC). */
#ifndef PS_BASE_MEM_H
#define PS_BASE_MEM_H

#include "base/status.h"

/* Zero-filled memory for n items of `item_bytes`; *out = NULL and PS_ENOMEM_HOST when it cannot be had.
 * n == 0 yields a valid pointer that must be freed like any other. */
PS_NODISCARD ps_status ps_mem_alloc(size_t n, size_t item_bytes, void *out_pointer);

/* Room for n items in *pointer (may be NULL), which grows by half at least, so that appending copies each item a few
 * times in all. New ones are zero-filled. On failure *pointer is unchanged. */
PS_NODISCARD ps_status ps_mem_reserve(void *pointer_to_pointer, size_t n, size_t item_bytes);

/* Bytes that the memory at p, of these calls, has room for; 0 for NULL. */
size_t ps_mem_bytes(const void *p);

/* A copy of the string. */
PS_NODISCARD ps_status ps_mem_strdup(const char *s, char **out);

void ps_mem_free(void *p); /* NULL is accepted */

int64_t ps_mem_live_bytes(void); /* all threads together */

#endif
