/* chat_format.h - encodes conversations as token ids, in the chat formats of models.
 *
 *   chatml   <|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n{A<|im_end|>}\n ...
 *   llama3   BOS<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>
 *            <|start_header_id|>assistant<|end_header_id|>\n\n{A<|eot_id|>} ...          (on one line)
 *   llama2   BOS[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]{ A EOS}BOS[INST] U [/INST]{ A EOS} ...
 *   mistral  BOS[INST] U [/INST]{AEOS}[INST] U [/INST]{AEOS} ...
 *   alpaca   S\n\n### Instruction:\nU\n\n### Response:\n{AEOS}\n\n### Instruction:\nU\n\n### Response:\n{AEOS} ...
 *            after the tokenizer's prefix of texts; without a system message S is Alpaca's preamble (alpaca.h)
 *
 * Targets are in braces (which are not part of the format): the assistant's words and the token that ends them. The ids
 * equal those of transformers' apply_chat_template with the public template of that format. <|...|> are added tokens,
 * which the tokenizer must have; [INST] and [/INST] are added tokens where it has them, else text. BOS and EOS are the
 * tokenizer's. llama2 and llama3 strip white space from contents. Contents are ordinary text: "<|im_end|>" in one
 * becomes the tokens of its characters.
 *
 * Text between two special tokens is encoded as one piece, as in transformers. Where the assistant's words begin within
 * a piece, the first target is the first token that contains a byte of these words, also when it begins before them.
 *
 * Threads: as the tokenizer, one at a time. */
#ifndef PS_DATA_CHAT_FORMAT_H
#define PS_DATA_CHAT_FORMAT_H

#include "config/config.h"
#include "data/chat_message.h"
#include "data/text_buffer.h"
#include "data/tokenizer.h"

/* In lists of ids with targets, a target is stored as its complement. */
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
    const char *default_system; /* put before a conversation without a system message; NULL: none */
    int32_t bos, eos;
    ps_id_list front;     /* the tokenizer's prefix of a text; set for alpaca only */
    bool has_token;       /* a special token precedes the piece */
    ps_text_buffer piece; /* the present piece */
    int64_t target_from;  /* byte of the piece where targets begin; -1: none */
} ps_chat_encoder;

/* Tokenizer and default_system must live until deinit; the format is not AUTO. PS_EINVAL naming a token that the format
 * needs and the tokenizer lacks. */
PS_NODISCARD ps_status ps_chat_encoder_init(ps_chat_encoder *e, ps_config_chat_format format,
                                            const char *default_system, ps_tokenizer *tokenizer);
void ps_chat_encoder_deinit(ps_chat_encoder *e);

/* Append a conversation with marked targets. where: the beginning of messages. PS_EFORMAT for a conversation without
 * messages, and, naming the message, for an order of roles that the format does not allow. */
PS_NODISCARD ps_status ps_chat_encode(ps_chat_encoder *e, const ps_chat *chat, const char *where, ps_id_list *out);

/* Append a prompt for the assistant's next answer: the conversation and the format's beginning of an answer, without
 * targets. Errors as of ps_chat_encode; PS_EFORMAT also where the format has no answer after this conversation. */
PS_NODISCARD ps_status ps_chat_encode_prompt(ps_chat_encoder *e, const ps_chat *chat, const char *where,
                                             ps_id_list *out);

/* Append the tokenizer's prefix of a text, such as its bos token. */
PS_NODISCARD ps_status ps_chat_find_front(ps_tokenizer *tokenizer, ps_id_list *front);

/* Token that ends an answer. */
int32_t ps_chat_end_of_answer(const ps_chat_encoder *e);

/* Append text whose bytes from target_from on (-1: none) are targets. options: encoding options, with bare set. */
PS_NODISCARD ps_status ps_chat_encode_text(ps_tokenizer *tokenizer, const ps_encode_options *options, const char *text,
                                           int64_t n_bytes, int64_t target_from, ps_id_list *out);

#endif
