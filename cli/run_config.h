/* run_config.h - the configuration that lies beside weights. */
#ifndef PSTAR_RUN_CONFIG_H
#define PSTAR_RUN_CONFIG_H

#include "patrickstar.h"

/* What a checkpoint, a run, or a Hugging Face model says of itself; of a run without an end, its newest checkpoint.
 * PS_EIO when the folder says nothing. */
PS_NODISCARD ps_status run_config_find(const char *folder, ps_config **out);

#endif
