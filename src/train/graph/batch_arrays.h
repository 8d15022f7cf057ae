/* batch_arrays.h - the arrays of a micro-batch by number. */
#ifndef PS_GRAPH_BATCH_ARRAYS_H
#define PS_GRAPH_BATCH_ARRAYS_H

#include "patrickstar.h"
#include "train/graph/node.h"

static inline void ps_batch_list_arrays(const ps_batch *b, const void *arrays[PS_BATCH_ARRAY_COUNT])
{
    arrays[PS_BATCH_TOKENS] = b->tokens;
    arrays[PS_BATCH_TARGETS] = b->targets;
    arrays[PS_BATCH_VALUES] = b->values;
    arrays[PS_BATCH_MASK] = b->attention_mask;
    arrays[PS_BATCH_TOKEN_TYPES] = b->token_type_ids;
}

static inline ps_batch ps_batch_of_arrays(const void *const arrays[PS_BATCH_ARRAY_COUNT])
{
    return (ps_batch){.struct_size = sizeof(ps_batch),
                      .tokens = arrays[PS_BATCH_TOKENS],
                      .targets = arrays[PS_BATCH_TARGETS],
                      .values = arrays[PS_BATCH_VALUES],
                      .attention_mask = arrays[PS_BATCH_MASK],
                      .token_type_ids = arrays[PS_BATCH_TOKEN_TYPES]};
}

#endif
