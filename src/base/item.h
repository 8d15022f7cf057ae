/* item.h - the storage of an array's elements: each by itself, or in groups of adjacent ones with bytes in common.
 *
 *     {4, 1}      floats
 *     {36, 32}    compact states: groups of a scale and 32 codes of 8 bits
 *
 * An array begins with a group; the last one may be used in part, and takes its bytes all the same. */
#ifndef PS_BASE_ITEM_H
#define PS_BASE_ITEM_H

#include "base/base.h"

typedef struct ps_item {
    int32_t bytes;    /* of a group; 0: there is no array */
    int32_t elements; /* of a group */
} ps_item;

/* Bytes of n elements from the beginning of a group on. */
static inline int64_t ps_item_bytes(ps_item item, int64_t n)
{
    if (item.bytes == 0) return 0;
    return item.elements == 1 ? n * item.bytes : ps_ceil_div(n, item.elements) * item.bytes;
}

/* Bytes before element i, with which a group begins. */
static inline int64_t ps_item_offset(ps_item item, int64_t i)
{
    PS_ASSERT(item.elements == 1 || i % item.elements == 0);
    return ps_item_bytes(item, i);
}

/* As many elements as groups of at most `bytes` together have. */
static inline int64_t ps_item_elements(ps_item item, int64_t bytes)
{
    return bytes / item.bytes * item.elements;
}

#endif
