/* export_template.h - which chat template an exported folder gets. */
#ifndef PSTAR_EXPORT_TEMPLATE_H
#define PSTAR_EXPORT_TEMPLATE_H

#include "config/config.h"

/* The template of the form that a run with these options was trained in, static; NULL where that of the tokenizer's folder
 * stays as it is: it is the same, or the run names no form. Says what it puts in the place of another one, and where it
 * cannot tell. PS_EIO, PS_EFORMAT of the tokenizer's files. */
PS_NODISCARD ps_status export_template_choose(const ps_options *o, const char *tokenizer_folder, const char **out);

#endif
