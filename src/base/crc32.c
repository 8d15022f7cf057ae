#include "base/crc32.h"

#define POLYNOMIAL 0xedb88320u /* bits in the order of the wire: x^31 is bit 0 */

void ps_crc32_table_init(ps_crc32_table *t)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (POLYNOMIAL & (0u - (crc & 1u)));
        t->of[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++) t->of[k][b] = t->of[k - 1][b] >> 8 ^ t->of[0][t->of[k - 1][b] & 0xff];
}

/* "Slicing by 8": Kounavis and Berry, "A systematic approach to building high performance software-based CRC
 * generators", ISCC 2005. Byte by byte, each step depends on the previous table load; here eight loads are independent,
 * and only the four bytes of the present CRC form a dependency. */
uint32_t ps_crc32_update(const ps_crc32_table *t, uint32_t crc, const void *data, int64_t n)
{
    const uint8_t *p = data;
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = t->of[7][crc & 0xff] ^ t->of[6][crc >> 8 & 0xff] ^ t->of[5][crc >> 16 & 0xff] ^ t->of[4][crc >> 24] ^
              t->of[3][p[4]] ^ t->of[2][p[5]] ^ t->of[1][p[6]] ^ t->of[0][p[7]];
    }
    for (; n > 0; n--) crc = crc >> 8 ^ t->of[0][(crc ^ *p++) & 0xff];
    return ~crc;
}
