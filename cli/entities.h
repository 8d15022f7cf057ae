/* entities.h - what labels of tokens name: runs of B-TYPE and I-TYPE, as seqeval and conlleval count them.
 *
 * An entity begins at B-, at I- of another type than the label before, and at I- behind O; it ends where the next one
 * begins, or at O. */
#ifndef PSTAR_ENTITIES_H
#define PSTAR_ENTITIES_H

#include <stdbool.h>

#include "data/feed.h"

/* Of each class: its letter, 'O', 'B' or 'I', and a number for its type. */
typedef struct entity_names {
    char *letter;
    int32_t *type;
    int64_t n;
} entity_names;

typedef struct entity_counts {
    int64_t n_true, n_predicted, n_both;
} entity_counts;

/* *are_entities: the feed names all n classes, each "O", "B-..." or "I-...". */
PS_NODISCARD ps_status entity_names_init(entity_names *e, const ps_feed *feed, int64_t n, bool *are_entities);
void entity_names_deinit(entity_names *e); /* an empty one is accepted */

/* Of a text of n labelled words. */
entity_counts entities_count(const entity_names *e, const int32_t *labels, const int32_t *predicted, int64_t n);

#endif
