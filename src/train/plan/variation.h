/* variation.h - the same plan with changes: copies of a configuration and a site. */
#ifndef PS_PLAN_VARIATION_H
#define PS_PLAN_VARIATION_H

#include "train/plan/simulate.h"

typedef struct ps_variation {
    ps_config *config;
    ps_hardware hardware;
    bool has_hardware;
    int32_t n_ranks, rank; /* members of its site */
    bool takes_first_plan;
} ps_variation;

/* Copies; site may be NULL, as for ps_simulate. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_variation_init(ps_variation *v, const ps_config *config, const ps_site *site);
void ps_variation_deinit(ps_variation *v); /* an empty one is accepted */

/* An option as "train_micro_batch_size_per_gpu", "8"; or a key of the hardware, as "hardware.n_nodes", "2". */
PS_NODISCARD ps_status ps_variation_set(ps_variation *v, const char *key, const char *value);

/* Options as on a command line: "activation_checkpointing.enabled=true train_micro_batch_size_per_gpu=8". */
enum { PS_CHANGE_TEXT_MAX = 160 };
PS_NODISCARD ps_status ps_variation_change(ps_variation *v, const char *change);

/* ps_simulate without explaining. Refused options (PS_EINVAL, PS_ENOSYS) count as "does not fit" here. */
PS_NODISCARD ps_status ps_variation_simulate(const ps_variation *v, ps_deadline *deadline, ps_simulation *out);

enum { PS_VARIATION_BATCH_MAX = 80 };

/* The change that sets the micro-batch to B; a train_batch_size that is given no longer matches, and then follows from
 * it. */
const char *ps_variation_batch_text(const ps_options *o, int64_t B, char text[PS_VARIATION_BATCH_MAX]);

#endif
