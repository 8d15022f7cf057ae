/* instruct_set.h - instruction data: prompts with completions, and conversations, of which only a part are targets. One
 * sample per line of a JSONL file, tokenised when opened and kept in memory.
 *
 *     {"prompt": "The sky is", "completion": " blue."}            BOS? The sky is{ blue.EOS}
 *     {"prompt": [messages], "completion": [messages]}            as a conversation; targets in the completion only
 *     {"messages": [{"role": "user", "content": "Why?"}, ...]}    see chat_format.h
 *     {"conversations": [{"from": "human", "value": "Why?"}, ...]}    ShareGPT's; perhaps "system": "..."
 *     {"instruction": "Add.", "input": "1 and 2", "output": "3"}  see alpaca.h
 *
 * Targets are in braces. A prompt begins with the tokenizer's prefix of a text; a completion ends with its eos token. A
 * line is cut to T + 1 tokens, which become a row of T inputs and T targets. A line that then has no target is dropped
 * and counted.
 *
 * Memory: 4 bytes a token and 16 a line, at most twice that.
 *
 * Threads: can be read from several threads at once. */
#ifndef PS_DATA_INSTRUCT_SET_H
#define PS_DATA_INSTRUCT_SET_H

#include "base/status.h"
#include "config/config.h"
#include "data/tokenizer.h"

typedef struct ps_instruct_set ps_instruct_set;

typedef struct ps_instruct_options {
    ps_config_jsonl_form form; /* of the lines; AUTO, for ps_instruct_form only: by the first line */
    const char *text_key, *messages_key, *prompt_key, *completion_key;
    ps_config_chat_format chat_format; /* AUTO: by the template of the tokenizer, when there are messages */
    const char *tokenizer_path;        /* for AUTO */
    ps_tokenizer *tokenizer;
    bool added_tokens; /* text that spells an added token in a prompt or completion becomes it; messages are ordinary
                          text */
    int64_t T;         /* 1 to INT32_MAX */
} ps_instruct_options;

typedef struct ps_instruct_info {
    int64_t n_lines, n_cut, n_left_out; /* lines of the file; of these cut; of these without a target */
    int64_t n_tokens, n_targets;        /* of the samples */
    ps_config_chat_format chat_format;  /* of the messages; AUTO: there are none */
} ps_instruct_info;

/* Tokens of a sample, with marked targets (ps_target_mark). */
typedef struct ps_instruct_sample {
    const int32_t *entries;
    int64_t n, line; /* n >= 1; line in the file, from 1 */
} ps_instruct_sample;

/* Format of a file's lines: that of the options, or by the keys of the first line: instruction and output, else text,
 * messages, prompt and completion, conversations. PS_EIO, PS_EFORMAT. */
PS_NODISCARD ps_status ps_instruct_form(const char *path, const ps_instruct_options *options,
                                        ps_config_jsonl_form *out);

/* Read all lines, of any format except AUTO and TEXT. PS_EFORMAT with file, line and problem; also when no line has a
 * target. PS_EINVAL of the chat format (chat_format.h, chat_template.h), and for messages with added_tokens. */
PS_NODISCARD ps_status ps_instruct_set_open(const char *path, const ps_instruct_options *options,
                                            ps_instruct_set **out);
void ps_instruct_set_close(ps_instruct_set *s); /* NULL is accepted */

int64_t ps_instruct_set_count(const ps_instruct_set *s);
ps_instruct_info ps_instruct_set_info(const ps_instruct_set *s);
ps_instruct_sample ps_instruct_set_get(const ps_instruct_set *s, int64_t i); /* valid until close */

#endif
