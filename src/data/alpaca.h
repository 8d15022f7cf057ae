/* alpaca.h - converts a line of Stanford's Alpaca to a conversation.
 *
 *     {"instruction": "Translate to French.", "input": "Good morning", "output": "Bonjour"}
 *
 * `input` may be missing or empty. LLaMA-Factory's `system`, a text, and `history`, a list of pairs of earlier texts,
 * are read, too. Answers in the history are targets like the last answer, as in LLaMA-Factory.
 *
 * In Alpaca's own format (PS_CONFIG_CHAT_FORMAT_ALPACA) the texts are those that Stanford trained on, with one preamble
 * where there is an input and another where there is none. In other formats the input is a separate line after the
 * instruction, as in LLaMA-Factory. */
#ifndef PS_DATA_ALPACA_H
#define PS_DATA_ALPACA_H

#include "data/chat_message.h"

/* Alpaca's preamble of an instruction, used when there is no system message. */
#define PS_ALPACA_REQUEST "Write a response that appropriately completes the request."
#define PS_ALPACA_PREAMBLE "Below is an instruction that describes a task. " PS_ALPACA_REQUEST

/* Append the line's messages; their strings must live as long as the chat. PS_EFORMAT naming the key; where: the
 * beginning of messages. */
PS_NODISCARD ps_status ps_alpaca_append(ps_chat *c, const json_t *line, bool has_own_form, const char *where);

#endif
