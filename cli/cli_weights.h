/* cli_weights.h - which weights the commands use that do not train. */
#ifndef PSTAR_CLI_WEIGHTS_H
#define PSTAR_CLI_WEIGHTS_H

#include "config/config.h"

/* Into the engine: those of `path` (a file, a checkpoint, a run, a Hugging Face model) when it is given, else those of the run
 * in train.output_dir, its newest checkpoint where it has not ended; a model that was not trained yet is model.from_pretrained's
 * own. */
PS_NODISCARD ps_status cli_load_weights(ps_engine *engine, const ps_options *o, const char *path);

/* data.tokenizer, or the folder of model.from_pretrained when it has one; "" when there is none. */
const char *cli_tokenizer_path(const ps_options *o);

#endif
