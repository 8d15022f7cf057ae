/* entities.h - what labels of tokens name: runs of B-TYPE and I-TYPE, as seqeval and conlleval count them.
 *
 * An entity begins at B-, at I- of another type than the label before, and at I- behind O; it ends where the next one
 * begins, or at O. */
#ifndef PS_DATA_ENTITIES_H
#define PS_DATA_ENTITIES_H

#include <stdbool.h>

#include "data/feed.h"

/* Of each class: its letter, 'O', 'B' or 'I', and a number for its type. */
typedef struct ps_entity_names {
    char *letter;
    int32_t *type;
    int64_t n;
} ps_entity_names;

typedef struct ps_entity_counts {
    int64_t n_true, n_predicted, n_both;
} ps_entity_counts;

/* *are_entities: the feed names all n classes, each "O", "B-..." or "I-...". */
PS_NODISCARD ps_status ps_entity_names_init(ps_entity_names *e, const ps_feed *feed, int64_t n, bool *are_entities);
void ps_entity_names_deinit(ps_entity_names *e); /* an empty one is accepted */

/* Of a text of n labelled words. */
ps_entity_counts ps_entities_count(const ps_entity_names *e, const int32_t *labels, const int32_t *predicted,
                                   int64_t n);

#endif
