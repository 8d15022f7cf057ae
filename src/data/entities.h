/* entities.h - entities in labels of tokens: runs of B-TYPE and I-TYPE, as seqeval and conlleval count them.
 *
 * An entity begins at B-, at I- of another type than the previous label, and at I- after O. It ends at O, or where the
 * next one begins. */
#ifndef PS_DATA_ENTITIES_H
#define PS_DATA_ENTITIES_H

#include <stdbool.h>

#include "data/data_loader.h"

/* For each class: its letter, 'O', 'B' or 'I', and a number for its type. */
typedef struct ps_entity_names {
    char *letter;
    int32_t *type;
    int64_t n;
} ps_entity_names;

typedef struct ps_entity_counts {
    int64_t n_true, n_predicted, n_both;
} ps_entity_counts;

/* *are_entities: the data loader has names for all n classes, each "O", "B-..." or "I-...". */
PS_NODISCARD ps_status ps_entity_names_init(ps_entity_names *e, const ps_data_loader *loader, int64_t n,
                                            bool *are_entities);
void ps_entity_names_deinit(ps_entity_names *e); /* an empty one is accepted */

/* Count the entities of a text of n labelled words. */
ps_entity_counts ps_entities_count(const ps_entity_names *e, const int32_t *labels, const int32_t *predicted,
                                   int64_t n);

#endif
