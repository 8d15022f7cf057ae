/* order.h - a permutation of n numbers for each (seed, epoch), computed element by element without a table.
 *
 * A Feistel network permutes 2^(2 half_bits) >= n numbers (Luby and Rackoff, SIAM J. Comput. 17, 1988), and is repeated
 * until the result falls below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). */
#ifndef PS_DATA_ORDER_H
#define PS_DATA_ORDER_H

#include <stdint.h>

/* Element i of the permutation of 0 .. n - 1; 0 <= i < n. */
int64_t ps_order_at(uint64_t seed, uint64_t epoch, int64_t n, int64_t i);

#endif
