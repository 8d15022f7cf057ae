/* export_template.h - selects the chat template of an exported folder. */
#ifndef PSTAR_EXPORT_TEMPLATE_H
#define PSTAR_EXPORT_TEMPLATE_H

#include "config/config.h"

/* The static template of the chat format of a run with these options; NULL when the template of the tokenizer's folder
 * is kept, as it is the same, or the run has no format. Prints a notice when it replaces another template, and when the
 * format is unknown. PS_EIO, PS_EFORMAT of the tokenizer's files. */
PS_NODISCARD ps_status export_template_choose(const ps_options *o, const char *tokenizer_folder, const char **out);

#endif
