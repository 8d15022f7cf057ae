/* cli_feed.h - the data that a configuration names, as a feed. */
#ifndef PSTAR_CLI_FEED_H
#define PSTAR_CLI_FEED_H

#include "config/config.h"
#include "data/feed.h"

/* Open the files of the data section for the task of model.head. Tokens of text are kept in train.output_dir, if that
 * is a folder. */
PS_NODISCARD ps_status cli_feed_open(const ps_options *o, ps_feed **out);

/* Print what became of lines of instructions, of each file of data; nothing for other data. */
void cli_print_instruct_info(const ps_options *o, const ps_feed *feed);

/* Between steps: the engine and the batch go on with rows of T tokens, with data.pad_to_multiple_of; the configured
 * length where the memory is so tight that a shorter one finds no schedule. PS_EBUDGET when neither does. */
PS_NODISCARD ps_status cli_set_length(ps_engine *engine, ps_config *config, int64_t T, ps_feed_batch *batch);

/* A feed's batch as the engine takes it. */
static inline ps_batch cli_batch(const ps_feed_batch *b)
{
    return (ps_batch){.tokens = b->tokens,
                      .targets = b->targets,
                      .values = b->values,
                      .attention_mask = b->attention_mask,
                      .token_type_ids = b->token_type_ids};
}

#endif
