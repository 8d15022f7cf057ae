/* feed_kind.h - what the files of a feed hold, and the options that this leaves without effect. */
#ifndef PS_DATA_FEED_KIND_H
#define PS_DATA_FEED_KIND_H

#include "data/feed.h"

typedef enum ps_feed_kind {
    PS_FEED_TOKENS,
    PS_FEED_TEXT,
    PS_FEED_TEXTS, /* from here on JSON Lines */
    PS_FEED_MESSAGES,
    PS_FEED_PROMPTS, /* with completions, strings or messages */
    PS_FEED_ALPACA,
    PS_FEED_SHAREGPT,
    PS_FEED_LABELLED,
} ps_feed_kind;

/* By the file's name, the format and, of a causal LM's JSON Lines, the first line. The keys of the options are set.
 * PS_EINVAL when a classifier's file or one that data.jsonl_form is given for is not read as JSON Lines. */
PS_NODISCARD ps_status ps_feed_kind_of(const ps_feed_options *o, const char *path, ps_feed_kind *out);

/* PS_EINVAL naming an option that is given and that no file of these kinds uses. data.chat_format counts as used by
 * prompts: of those only the lines tell. */
PS_NODISCARD ps_status ps_feed_check_uses(const ps_feed_options *o, const ps_feed_kind *kinds, int n);

/* The same for data.chat_format when no line had messages. */
PS_NODISCARD ps_status ps_feed_refuse_chat_format(const ps_feed_options *o);

/* How lines of a kind are read; AUTO where the kind has no form of instructions. */
ps_config_jsonl_form ps_feed_form_of(ps_feed_kind kind);

/* How a file's lines are read: ps_instruct_form, ps_instruct_set_open. */
ps_instruct_options ps_feed_instruct_options(const ps_feed_options *o);

#endif
