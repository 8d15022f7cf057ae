/* chat_prompt.h - what a user says, as the prompt of a model that was taught to answer. */
#ifndef PSTAR_CHAT_PROMPT_H
#define PSTAR_CHAT_PROMPT_H

#include "config/config.h"
#include "data/text_buffer.h"
#include "data/tokenizer.h"

/* Append text as a message of the user, and what stands before the answer, in the form of data.chat_format; *end is the
 * token that ends the answer. PS_EINVAL when the text is no UTF-8; else what chat_format.h and chat_template.h say. */
PS_NODISCARD ps_status chat_prompt_encode(const ps_options *o, ps_tokenizer *tokenizer, const char *text,
                                          int64_t n_bytes, ps_id_list *out, int32_t *end);

#endif
