/* cli_tokenizer.h - the folder of a configuration's tokenizer files. */
#ifndef PSTAR_CLI_TOKENIZER_H
#define PSTAR_CLI_TOKENIZER_H

#include "config/config.h"

/* data.tokenizer, or model.from_pretrained, whichever is an existing folder, to copy its files; NULL when neither
 * is. */
const char *cli_tokenizer_folder(const ps_options *o);
/* When that is NULL, report on stderr which folder is named and missing. */
void cli_report_no_tokenizer(const char *command, const ps_options *o);

#endif
