/* largest.h - the largest model of a family that fits, by simulating; and by the published rules of other systems.
 *
 * A family is a model type in shapes as they are built: heads of 128 columns, four times as wide inside (llama: 8/3 times), between
 * 24 and 400 columns a layer. Widths are tried from a list, and of each the largest number of layers. */
#ifndef PS_PLAN_LARGEST_H
#define PS_PLAN_LARGEST_H

#include "plan/simulate.h"

/* Who is to hold the model. */
typedef enum ps_system {
    PS_SYSTEM_OURS, /* simulated */
    PS_SYSTEM_PATRICKSTAR, /* 14 bytes a parameter over all memory, of which the shares 0.8 are used, in chunks with 5 % waste */
    PS_SYSTEM_ZERO_OFFLOAD, /* ZeRO-Offload: 16-bit parameters on every device, 16 bytes a parameter on the host of a node */
    PS_SYSTEM_ZERO_3, /* ZeRO-3 with offload: 16-bit parameters over the devices, 16 bytes a parameter over the hosts */
    PS_SYSTEM_DATA_PARALLEL, /* PyTorch's DistributedDataParallel: 16 bytes a parameter on every device */
    PS_SYSTEM_COUNT,
} ps_system;

const char *ps_system_name(ps_system s);
const char *ps_system_rule(ps_system s); /* in words, with the source */

typedef struct ps_largest {
    int64_t n_params; /* 0: none fits */
    int64_t hidden_size, n_layers;
    ps_simulation simulation; /* of it; OURS only */
} ps_largest;

/* family: "gpt2", "llama" or "bert". Everything but the model's shape is the configuration's. PS_EINVAL for another family. */
PS_NODISCARD ps_status ps_find_largest(const ps_config *config, const ps_hardware *hardware, const char *family,
                                       ps_system system, ps_largest *out);

/* Does this very model fit by the rule? need: bytes of one device and of a node's host (may be NULL). */
PS_NODISCARD ps_status ps_system_fits(const ps_config *config, const ps_hardware *hardware, ps_system system,
                                      bool *fits, int64_t need[PS_RAM_TIER_COUNT]);

#endif
