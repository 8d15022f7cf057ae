/* cli_weights.h - selects the weights of a command that does not train. */
#ifndef PSTAR_CLI_WEIGHTS_H
#define PSTAR_CLI_WEIGHTS_H

#include "client.h"

/* The path of the weights, valid as long as config and given; config_path: path of the configuration. It is `given` (a
 * file, a checkpoint, a run, a Hugging Face model); if NULL, train.output_dir; or, where the user did not give that and
 * it has no weights, model.from_pretrained, which a line on stderr reports. PS_EIO when there are none. */
PS_NODISCARD ps_status cli_choose_weights(const ps_config *config, const char *config_path, const char *given,
                                          const char **path);

/* Load weights that cli_choose_weights has chosen into an engine that began empty. With adapters (lora.r) the base comes
 * first: the path may have no more than what a run trains. */
PS_NODISCARD ps_status cli_load_weights(ps_engine *engine, const ps_config *config, const char *path);

#endif
