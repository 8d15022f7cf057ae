/* character_pairs.h - a set of pairs of characters. */
#ifndef PS_DATA_CHARACTER_PAIRS_H
#define PS_DATA_CHARACTER_PAIRS_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_character_pairs { /* zeroed: empty, without room */
    uint64_t *slots;                /* [mask + 1] open addressing, linear probing; 0: free */
    uint64_t mask;
    uint64_t ascii[128 * 128 / 64]; /* a bit for each pair of ASCII; these are not in the table */
} ps_character_pairs;

PS_NODISCARD ps_status ps_character_pairs_init(ps_character_pairs *s, int64_t n_pairs_max);
void ps_character_pairs_deinit(ps_character_pairs *s); /* an empty one is accepted */

/* Add a pair; there must be room for it. */
void ps_character_pairs_add(ps_character_pairs *s, int32_t left, int32_t right);
bool ps_character_pairs_have(const ps_character_pairs *s, int32_t left, int32_t right);

#endif
