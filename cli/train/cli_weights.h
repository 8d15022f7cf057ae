/* cli_weights.h - which weights a command uses that does not train. */
#ifndef PSTAR_CLI_WEIGHTS_H
#define PSTAR_CLI_WEIGHTS_H

#include "client.h"

/* The path of the weights to use, valid as long as config and given; config_path: of the configuration. `given` (a file, a checkpoint, a run, a Hugging
 * Face model), or when it is NULL train.output_dir, or where the user did not name it and nothing was trained there
 * model.from_pretrained, which a line on stderr then says. PS_EIO when there are none. */
PS_NODISCARD ps_status cli_choose_weights(const ps_config *config, const char *config_path, const char *given,
                                          const char **path);

#endif
