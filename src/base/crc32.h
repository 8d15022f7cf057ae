/* crc32.h - the CRC-32 of zip files (PKWARE APPNOTE 4.4.7; ITU-T V.42), eight bytes at a time. */
#ifndef PS_BASE_CRC32_H
#define PS_BASE_CRC32_H

#include <stdint.h>

typedef struct ps_crc32_table {
    uint32_t of[8][256]; /* of[k][b]: what byte b does, with k bytes behind it */
} ps_crc32_table;

void ps_crc32_table_init(ps_crc32_table *t);

/* The sum of some bytes, whose sum is crc, and of those n behind them; of no bytes it is 0. */
uint32_t ps_crc32_update(const ps_crc32_table *t, uint32_t crc, const void *data, int64_t n);

#endif
