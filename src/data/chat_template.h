/* chat_template.h - which form a chat template is, by its hash: templates are programs (Jinja) and not run here.
 *
 * Where a folder has chat_template.jinja that is the template, else the chat_template of tokenizer_config.json: a text,
 * or of a list of {"name", "template"} the one named "default". The known ones are public templates of which tests
 * compare all ids with those of transformers, and those that are written here (chat_template_text.c); one that differs
 * in a character that is not its last newline is not known. */
#ifndef PS_DATA_CHAT_TEMPLATE_H
#define PS_DATA_CHAT_TEMPLATE_H

#include <stdbool.h>

#include "base/status.h"
#include "config/config.h"

typedef struct ps_chat_template {
    ps_config_chat_format format;
    const char *default_system; /* static; put before a conversation without system message; NULL: nothing is */
} ps_chat_template;

/* A template of the form, static; has_bos: of alpaca only, the tokenizer puts its bos token in front of texts. Known. */
const char *ps_chat_template_text(ps_config_chat_format format, bool has_bos);

/* What a template looks like, by the tokens in it; AUTO: none of the forms. */
ps_config_chat_format ps_chat_template_guess(const char *text, int64_t n_bytes);

/* PS_EINVAL when the template is none of the known ones, with `name`, what it looks like and the ways out. */
PS_NODISCARD ps_status ps_chat_template_known(const char *text, int64_t n_bytes, const char *name,
                                              ps_chat_template *out);

/* The template beside a tokenizer: its text, NULL when there is none, and the file that has it or would have it; both are
 * freed by ps_mem_free. PS_EIO, PS_EFORMAT of the files. */
PS_NODISCARD ps_status ps_chat_template_read(const char *tokenizer_path, char **text, int64_t *n_bytes, char **path);

/* That of a tokenizer: a folder, or a file in it. PS_EINVAL also when there is none; PS_EIO, PS_EFORMAT of its
 * files. */
PS_NODISCARD ps_status ps_chat_template_of(const char *tokenizer_path, ps_chat_template *out);

#endif
