/* cli_vocabulary.h - as many rows in a model's token embeddings as the tokenizer has tokens. */
#ifndef PSTAR_CLI_VOCABULARY_H
#define PSTAR_CLI_VOCABULARY_H

#include "config/config.h"

/* With model.resize_token_embeddings, where model.vocab_size was not given: set it to what the tokenizer needs, rounded up to
 * model.pad_to_multiple_of, and never below that of model.from_pretrained. */
PS_NODISCARD ps_status cli_resize_vocabulary(ps_config *config);

#endif
