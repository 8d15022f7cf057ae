/* chat_template.h - recognises the format of a chat template by its hash; templates are Jinja programs, which are not
 * run here.
 *
 * The template of a folder is chat_template.jinja, else the chat_template of tokenizer_config.json: a text, or the
 * entry named "default" of a list of {"name", "template"}. Known templates are public ones whose ids tests compare with
 * transformers, and those that this library writes (chat_template_text.c). A template that differs in any character
 * except a final newline is unknown. */
#ifndef PS_DATA_CHAT_TEMPLATE_H
#define PS_DATA_CHAT_TEMPLATE_H

#include <stdbool.h>

#include "base/status.h"
#include "config/config.h"

typedef struct ps_chat_template {
    ps_config_chat_format format;
    const char *default_system; /* static; put before a conversation without a system message; NULL: none */
} ps_chat_template;

/* A known template of the format, static. has_bos, for alpaca only: the tokenizer puts its bos token before texts. */
const char *ps_chat_template_text(ps_config_chat_format format, bool has_bos);

/* The probable format of a template, from its tokens; AUTO: none. */
ps_config_chat_format ps_chat_template_guess(const char *text, int64_t n_bytes);

/* PS_EINVAL when the template is unknown, with `name`, its probable format and the alternatives. */
PS_NODISCARD ps_status ps_chat_template_known(const char *text, int64_t n_bytes, const char *name,
                                              ps_chat_template *out);

/* The template of a tokenizer's folder: its text, NULL when there is none, and the file that has it or would have it;
 * both are freed by ps_mem_free. PS_EIO, PS_EFORMAT of the files. */
PS_NODISCARD ps_status ps_chat_template_read(const char *tokenizer_path, char **text, int64_t *n_bytes, char **path);

/* The same for a tokenizer's path: a folder, or a file in it. PS_EINVAL also when there is no template; PS_EIO,
 * PS_EFORMAT of its files. */
PS_NODISCARD ps_status ps_chat_template_of(const char *tokenizer_path, ps_chat_template *out);

#endif
