/* cli_weights.h - which weights the commands use that do not train, and what is known of them. */
#ifndef PSTAR_CLI_WEIGHTS_H
#define PSTAR_CLI_WEIGHTS_H

#include "config/config.h"

/* The path of them, valid as long as config and given: `given` (a file, a checkpoint, a run, a Hugging Face model)
 * unless it is NULL, else the run in train.output_dir, its newest checkpoint where it has not ended. A run that the
 * configuration names and that has no weights is PS_EIO; where it names none, model.from_pretrained's own are taken,
 * and that is said on stderr. */
PS_NODISCARD ps_status cli_choose_weights(const ps_config *config, const char *given, const char **path);

#endif
