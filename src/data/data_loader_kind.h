/* data_loader_kind.h - the kind of data in a file, and the options without effect for it. */
#ifndef PS_DATA_LOADER_KIND_H
#define PS_DATA_LOADER_KIND_H

#include "data/data_loader.h"

typedef enum ps_data_loader_kind {
    PS_DATA_LOADER_TOKENS,
    PS_DATA_LOADER_TEXT,
    PS_DATA_LOADER_TEXTS, /* from here on JSON Lines */
    PS_DATA_LOADER_MESSAGES,
    PS_DATA_LOADER_PROMPTS, /* with completions, strings or messages */
    PS_DATA_LOADER_ALPACA,
    PS_DATA_LOADER_SHAREGPT,
    PS_DATA_LOADER_LABELLED,
} ps_data_loader_kind;

/* Determine the kind from the file's name, the format and, for a causal LM's JSON Lines, the first line. The keys of
 * the options must be set. PS_EINVAL when the file of a classifier, or one with data.jsonl_form given, is not read as
 * JSON Lines. */
PS_NODISCARD ps_status ps_data_loader_kind_of(const ps_data_loader_options *o, const char *path,
                                              ps_data_loader_kind *out);

/* PS_EINVAL naming an option that is given and that no file of these kinds uses. data.chat_format counts as used by
 * prompts, as only their lines show whether they have messages. */
PS_NODISCARD ps_status ps_data_loader_check_uses(const ps_data_loader_options *o, const ps_data_loader_kind *kinds,
                                                 int n);

/* The same for data.chat_format when no line had messages. */
PS_NODISCARD ps_status ps_data_loader_refuse_chat_format(const ps_data_loader_options *o);

/* Format of a kind's lines; AUTO where the kind has no instructions. */
ps_config_jsonl_form ps_data_loader_form_of(ps_data_loader_kind kind);

/* Options for ps_instruct_form and ps_instruct_set_open. */
ps_instruct_options ps_data_loader_instruct_options(const ps_data_loader_options *o);

#endif
