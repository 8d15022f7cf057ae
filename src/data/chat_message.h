/* chat_message.h - reads the messages of a conversation from JSON: role and content.
 *
 *     [{"role": "system", "content": "Be brief."},
 *      {"role": "user", "content": [{"type": "text", "text": "Is it "}, {"type": "text", "text": "open?"}]},
 *      {"role": "assistant", "content": "Yes."}]
 *
 * ShareGPT's names are accepted, too: {"from": "human", "value": "Is it open?"}, with "gpt" for the assistant.
 *
 * Other roles, tool calls, and parts that are not text are refused by name; other keys of a message are ignored. */
#ifndef PS_DATA_CHAT_MESSAGE_H
#define PS_DATA_CHAT_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

typedef enum ps_chat_role { PS_CHAT_SYSTEM, PS_CHAT_USER, PS_CHAT_ASSISTANT, PS_CHAT_ROLE_COUNT } ps_chat_role;

extern const char *const ps_chat_role_names[PS_CHAT_ROLE_COUNT]; /* "system", "user", "assistant" */

typedef struct ps_chat_message {
    ps_chat_role role;
    bool is_given; /* part of a prompt: an assistant's words in it are not targets */
    const char *content;
    int64_t n_bytes;
    char *joined; /* owned, the content when it was given in parts; else NULL */
} ps_chat_message;

/* Zeroed is empty. */
typedef struct ps_chat {
    ps_chat_message *messages;
    int64_t n;
} ps_chat;

/* Append the messages of `list`; its strings must live as long as the chat. key: name of the list; where: the beginning
 * of messages ("chat.jsonl: line 3, offset 120"). PS_EFORMAT naming the message and the problem. */
PS_NODISCARD ps_status ps_chat_append(ps_chat *c, const json_t *list, const char *key, bool is_given,
                                      const char *where);

void ps_chat_clear(ps_chat *c); /* remove all messages; the memory is kept */
void ps_chat_deinit(ps_chat *c);

#endif
