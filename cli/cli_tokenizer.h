/* cli_tokenizer.h - where the files of the tokenizer lie that a configuration uses. */
#ifndef PSTAR_CLI_TOKENIZER_H
#define PSTAR_CLI_TOKENIZER_H

#include "config/config.h"

/* data.tokenizer, or the folder of model.from_pretrained, whichever is a folder that is there, to copy its files; NULL when
 * there is none. */
const char *cli_tokenizer_folder(const ps_options *o);
/* On stderr, when that is NULL: which folder is named, and is not there. */
void cli_tell_no_tokenizer(const char *command, const ps_options *o);

#endif
