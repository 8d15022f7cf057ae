/* cli_tokenizer.h - which tokenizer the commands use, and as many rows in a model's token embeddings as it has
 * tokens. */
#ifndef PSTAR_CLI_TOKENIZER_H
#define PSTAR_CLI_TOKENIZER_H

#include "config/config.h"

/* data.tokenizer, or the folder of model.from_pretrained when it has one; "" when there is none. */
const char *cli_tokenizer_path(const ps_options *o);

/* The folder of them that is there, to copy its files; NULL when there is none. */
const char *cli_tokenizer_folder(const ps_options *o);

/* With model.resize_token_embeddings, where model.vocab_size was not given: set it to what the tokenizer needs, rounded
 * up to model.pad_to_multiple_of, and never below that of model.from_pretrained. */
PS_NODISCARD ps_status cli_resize_vocabulary(ps_config *config);

#endif
