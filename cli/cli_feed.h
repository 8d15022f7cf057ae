/* cli_feed.h - the data that a configuration names, as a feed. */
#ifndef PSTAR_CLI_FEED_H
#define PSTAR_CLI_FEED_H

#include "config/config.h"
#include "data/feed.h"

/* Open the files of the data section for the task of model.head. Tokens of text are kept in train.output_dir, if that is a
 * folder. */
PS_NODISCARD ps_status cli_feed_open(const ps_options *o, ps_feed **out);

/* A feed's batch as the engine takes it. */
static inline ps_batch cli_batch(const ps_feed_batch *b)
{
    return (ps_batch){.tokens = b->tokens,
                      .targets = b->targets,
                      .attention_mask = b->attention_mask,
                      .token_type_ids = b->token_type_ids};
}

#endif
