/* adapter_merge.h - folds adapters into the weights of their base: W + s B A.
 *
 * Adapters are those of a peft folder, or of a run of pstar (names with or without "base_model.model."). All of A and B
 * are in memory, a matrix of the base never is. */
#ifndef PS_WEIGHTS_ADAPTER_MERGE_H
#define PS_WEIGHTS_ADAPTER_MERGE_H

#include "config/config.h"
#include "weights/weight_copy.h"

typedef struct ps_adapter_merge ps_adapter_merge;

/* base: its tensors; adapter: outlives the merge. config describes the adapters (lora) and the model. PS_EFORMAT names a
 * tensor without its counterpart, with another shape, or of a layer that the base lacks. */
PS_NODISCARD ps_status ps_adapter_merge_open(const ps_config *config, const ps_weight_source *base,
                                             const ps_weight_source *adapter, const char *path, ps_adapter_merge **out);
void ps_adapter_merge_close(ps_adapter_merge *m); /* NULL is accepted */

int ps_adapter_merge_count(const ps_adapter_merge *m); /* of matrices that change */
/* What is added to the base's tensor of that name; NULL: nothing. */
const ps_weight_delta *ps_adapter_merge_delta(const ps_adapter_merge *m, const char *name);
/* The adapter's tensor that takes the place of the base's of that name; -1: none. */
int ps_adapter_merge_find(const ps_adapter_merge *m, const char *name);
const ps_weight_source *ps_adapter_merge_source(const ps_adapter_merge *m);

#endif
