/* largest.h - the largest model of a family that fits, by simulating.
 *
 * Models of a family are tried in shapes as people build them: heads of 128 columns, four times as wide inside (llama:
 * 8/3 times), between 24 and 400 columns for each layer. Widths come from a list; for each the largest number of layers
 * is searched. */
#ifndef PS_PLAN_LARGEST_H
#define PS_PLAN_LARGEST_H

#include "train/plan/simulate.h"

typedef struct ps_largest {
    int64_t n_params; /* 0: none fits */
    int64_t hidden_size, n_layers;
    ps_simulation simulation; /* of it, where there is one */
} ps_largest;

/* family: "gpt2", "llama" or "bert". Everything but the model's shape is the configuration's. PS_EINVAL for another
 * family. */
PS_NODISCARD ps_status ps_find_largest(const ps_config *config, const ps_hardware *hardware, const char *family,
                                       ps_largest *out);

#endif
