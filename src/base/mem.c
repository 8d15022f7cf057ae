#include "base/mem.h"
#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A header before each block remembers its size, so that free needs none. 16 bytes keep malloc's alignment. */
typedef struct mem_header {
    _Alignas(16) size_t bytes;
} mem_header;

static atomic_llong live_bytes;

ps_status ps_mem_alloc(size_t n, size_t item_bytes, void *out_pointer)
{
    void **out = out_pointer;
    *out = NULL;
    size_t bytes, total;
    if (__builtin_mul_overflow(n, item_bytes, &bytes) || __builtin_add_overflow(bytes, sizeof(mem_header), &total))
        return PS_FAIL(PS_ENOMEM_HOST, "allocation of %zu items of %zu bytes overflows", n, item_bytes);
    mem_header *h = ps_fault_hit(PS_FAULT_ALLOC) ? NULL : calloc(1, total);
    if (h == NULL) return PS_FAIL(PS_ENOMEM_HOST, "cannot allocate %zu bytes of bookkeeping memory", bytes);
    h->bytes = bytes;
    atomic_fetch_add(&live_bytes, (long long)bytes);
    *out = h + 1;
    return PS_OK;
}

ps_status ps_mem_reserve(void *pointer_to_pointer, size_t n, size_t item_bytes)
{
    enum { LEAST = 16 };
    void **p = pointer_to_pointer;
    void *bigger = NULL;
    const size_t bytes = ps_mem_bytes(*p), had = bytes / item_bytes;
    if (n <= had) return PS_OK;
    size_t room = had + had / 2 > LEAST ? had + had / 2 : LEAST;
    if (room < n) room = n;
    PS_TRY(ps_mem_alloc(room, item_bytes, &bigger));
    if (*p != NULL) memcpy(bigger, *p, bytes);
    ps_mem_free(*p);
    *p = bigger;
    return PS_OK;
}

size_t ps_mem_bytes(const void *p)
{
    return p == NULL ? 0 : (size_t)((const mem_header *)p - 1)->bytes;
}

ps_status ps_mem_strdup(const char *s, char **out)
{
    const size_t bytes = strlen(s) + 1;
    PS_TRY(ps_mem_alloc(bytes, 1, out));
    memcpy(*out, s, bytes);
    return PS_OK;
}

void ps_mem_free(void *p)
{
    if (p == NULL) return;
    mem_header *h = (mem_header *)p - 1;
    atomic_fetch_sub(&live_bytes, (long long)h->bytes);
    free(h);
}

int64_t ps_mem_live_bytes(void)
{
    return atomic_load(&live_bytes);
}

void ps_free(void *memory)
{
    ps_mem_free(memory);
}
