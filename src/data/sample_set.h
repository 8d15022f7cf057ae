/* sample_set.h - the samples of a classifier, one per line of a JSONL file, tokenised when opened and kept in memory.
 *
 *     ids      [sum of lengths] int32     | a b c | d e | f g h i | ...      each sample at most T
 *     samples  [n]                        first id, ids of its first text, label
 *
 * Memory: 4 bytes a token and 16 bytes a line, up to 1.5 times that while it grows; padding is not stored.
 *
 * Threads: can be read from several threads at once. */
#ifndef PS_DATA_SAMPLE_SET_H
#define PS_DATA_SAMPLE_SET_H

#include "base/status.h"
#include "data/jsonl.h"
#include "data/labels.h"
#include "data/sample.h"

typedef struct ps_sample_set ps_sample_set;

typedef struct ps_sample {
    const int32_t *ids;
    int64_t n_ids, n_first; /* n_first < n_ids: the rest belongs to the second text */
    int32_t label;
} ps_sample;

/* Read all lines. added_tokens: as for ps_sample_encode. labels: names are looked up in it; if it is not fixed yet, new
 * names are added and then fixed. A label is an integer in [0, labels->n_max), or a name; without a list a file must
 * not have both. PS_EFORMAT with file, line and offset for a label out of range or unknown, for more different names
 * than n_max, and for a text without tokens; other errors as of ps_jsonl_next and ps_sample_encode. */
PS_NODISCARD ps_status ps_sample_set_open(const char *path, const ps_jsonl_keys *keys, ps_tokenizer *tokenizer,
                                          bool added_tokens, int64_t T, ps_labels *labels, ps_sample_set **out);
void ps_sample_set_close(ps_sample_set *s); /* NULL is accepted */

int64_t ps_sample_set_count(const ps_sample_set *s);
bool ps_sample_set_has_pairs(const ps_sample_set *s); /* some line has a second text */

/* Sample i, 0 <= i < count; its ids are valid as long as the set. */
ps_sample ps_sample_set_get(const ps_sample_set *s, int64_t i);

#endif
