/* cli_feed.h - the data that a configuration names, as a feed. */
#ifndef PSTAR_CLI_FEED_H
#define PSTAR_CLI_FEED_H

#include "config/config.h"
#include "data/feed.h"

/* What the model's head wants. n_labels: classes of a classifier. */
typedef struct cli_feed_task {
    ps_feed_task task;
    int32_t n_labels;
} cli_feed_task;

/* T = data.sequence_length, or model.n_positions. */
int64_t cli_sequence_length(const ps_options *o);

/* Open the files of the data section. Tokens of text are kept in train.output_dir, if that is a folder. */
PS_NODISCARD ps_status cli_feed_open(const ps_options *o, cli_feed_task task, ps_feed **out);

/* A feed's batch as the engine takes it. */
static inline ps_batch cli_batch(const ps_feed_batch *b)
{
    return (ps_batch){.tokens = b->tokens,
                      .targets = b->targets,
                      .attention_mask = b->attention_mask,
                      .token_type_ids = b->token_type_ids};
}

#endif
