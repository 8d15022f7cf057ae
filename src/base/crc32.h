/* crc32.h - the CRC-32 of zip files (PKWARE APPNOTE 4.4.7; ITU-T V.42), eight bytes at a time. */
#ifndef PS_BASE_CRC32_H
#define PS_BASE_CRC32_H

#include <stdint.h>

typedef struct ps_crc32_table {
    uint32_t of[8][256]; /* of[k][b]: effect of byte b followed by k bytes */
} ps_crc32_table;

void ps_crc32_table_init(ps_crc32_table *t);

/* Extend crc, the CRC of preceding bytes (0 for none), by n bytes. */
uint32_t ps_crc32_update(const ps_crc32_table *t, uint32_t crc, const void *data, int64_t n);

#endif
