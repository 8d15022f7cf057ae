/* chat_format.h - conversations as token ids, in the forms that models were trained with.
 *
 *   chatml   <|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n{A<|im_end|>}\n ...
 *   llama3   BOS<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>
 *            <|start_header_id|>assistant<|end_header_id|>\n\n{A<|eot_id|>} ...          (on one line)
 *   llama2   BOS[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]{ A EOS}BOS[INST] U [/INST]{ A EOS} ...
 *   mistral  BOS[INST] U [/INST]{AEOS}[INST] U [/INST]{AEOS} ...
 *   alpaca   S\n\n### Instruction:\nU\n\n### Response:\n{AEOS}\n\n### Instruction:\nU\n\n### Response:\n{AEOS} ...
 *            behind what the tokenizer puts in front of texts; without a system message S is Alpaca's preamble (alpaca.h)
 *
 * What stands in braces (which are not part of the form) is to be predicted: the assistant's words and the token that
 * ends them. The ids are those of transformers' apply_chat_template with the public template of that form. <|...|> are
 * added tokens of the tokenizer and must be there; [INST] and [/INST] are where it has them, else text. BOS and EOS are
 * the tokenizer's. llama2 and llama3 take white space from both ends of contents. Contents are only text: "<|im_end|>"
 * in one becomes the tokens of its characters.
 *
 * What stands between two special tokens is encoded at once, as transformers does. Where the words of the assistant
 * begin within such a piece, targets begin with the first token that the piece does not share with what stands before
 * them: when a token straddles the border, it is a target.
 *
 * Threads: as the tokenizer, one at a time. */
#ifndef PS_DATA_CHAT_FORMAT_H
#define PS_DATA_CHAT_FORMAT_H

#include "config/config.h"
#include "data/chat_message.h"
#include "data/text_buffer.h"
#include "data/tokenizer.h"

/* In lists of ids with targets, one to be predicted is stored as its complement. */
static inline int32_t ps_target_mark(int32_t id)
{
    return ~id;
}

static inline bool ps_target_is_marked(int32_t entry)
{
    return entry < 0;
}

static inline int32_t ps_target_id(int32_t entry)
{
    return entry < 0 ? ~entry : entry;
}

/* Zeroed is empty. */
typedef struct ps_chat_encoder {
    ps_config_chat_format format;
    ps_tokenizer *tokenizer;
    const char *default_system; /* in front of a conversation without a system message; NULL: nothing */
    int32_t bos, eos;
    ps_id_list front;     /* what the tokenizer puts in front of a text; found for alpaca only */
    bool has_token;       /* a special token stands before the piece */
    ps_text_buffer piece; /* what is encoded at once */
    int64_t target_from;  /* byte of the piece where targets begin; -1: none */
} ps_chat_encoder;

/* Tokenizer and default_system must live until deinit; the format is not AUTO. PS_EINVAL naming a token that the form
 * needs and the tokenizer lacks. */
PS_NODISCARD ps_status ps_chat_encoder_init(ps_chat_encoder *e, ps_config_chat_format format,
                                            const char *default_system, ps_tokenizer *tokenizer);
void ps_chat_encoder_deinit(ps_chat_encoder *e);

/* Append a conversation, targets marked. where: the beginning of messages. PS_EFORMAT naming the message for an order
 * of roles that the form does not have, and for no message at all. */
PS_NODISCARD ps_status ps_chat_encode(ps_chat_encoder *e, const ps_chat *chat, const char *where, ps_id_list *out);

/* Append what stands before the assistant's next words: the conversation, and what the form has in front of an answer.
 * No targets. Errors as of ps_chat_encode; PS_EFORMAT also where the form has no answer after such a conversation. */
PS_NODISCARD ps_status ps_chat_encode_prompt(ps_chat_encoder *e, const ps_chat *chat, const char *where,
                                             ps_id_list *out);

/* Append what the tokenizer puts in front of a text, such as its bos token. */
PS_NODISCARD ps_status ps_chat_find_front(ps_tokenizer *tokenizer, ps_id_list *front);

/* The token that ends an answer. */
int32_t ps_chat_end_of_answer(const ps_chat_encoder *e);

/* Append text of which the bytes from target_from on (-1: none) are targets. options: how it is encoded, bare. */
PS_NODISCARD ps_status ps_chat_encode_text(ps_tokenizer *tokenizer, const ps_encode_options *options, const char *text,
                                           int64_t n_bytes, int64_t target_from, ps_id_list *out);

#endif
