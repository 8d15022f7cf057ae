/* alpaca.h - a line of Stanford's Alpaca as a conversation.
 *
 *     {"instruction": "Translate to French.", "input": "Good morning", "output": "Bonjour"}
 *
 * `input` may be missing or empty. LLaMA-Factory's `system`, a text, and `history`, a list of pairs of texts that came
 * before, are read too; the answers in it are targets as the last one, which is what LLaMA-Factory does.
 *
 * In Alpaca's own form (PS_CONFIG_CHAT_FORMAT_ALPACA) the texts are those that Stanford trained on, with one preamble
 * where there is an input and another where there is none. In any other the input stands in a line of its own behind
 * the instruction, as LLaMA-Factory has it. */
#ifndef PS_DATA_ALPACA_H
#define PS_DATA_ALPACA_H

#include "data/chat_message.h"

/* What Alpaca's form has in front of an instruction where no system message says something else. */
#define PS_ALPACA_REQUEST "Write a response that appropriately completes the request."
#define PS_ALPACA_PREAMBLE "Below is an instruction that describes a task. " PS_ALPACA_REQUEST

/* Append the line's messages, whose strings are used as long as the chat is. PS_EFORMAT naming the key: where is the
 * beginning of messages. */
PS_NODISCARD ps_status ps_alpaca_append(ps_chat *c, const json_t *line, bool has_own_form, const char *where);

#endif
