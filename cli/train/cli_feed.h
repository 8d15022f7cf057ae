/* cli_feed.h - the data that a configuration names, as a feed. */
#ifndef PSTAR_CLI_FEED_H
#define PSTAR_CLI_FEED_H

#include "client.h"

/* ps_feed_from_config. Tokens of text are kept in train.output_dir, if that is a folder. */
PS_NODISCARD ps_status cli_feed_open(const ps_config *config, ps_feed **out);

/* The same on each rank; all call. Rank 0 first: the tokens of a text, which it keeps in a file, are then there for the
 * others. They must have the same data (ps_comm_check_feed). */
PS_NODISCARD ps_status cli_feed_open_on_ranks(const ps_config *config, ps_comm *comm, ps_feed **out);

/* Print what became of lines of instructions, of each file of data; nothing for other data. */
void cli_print_instruct_info(const ps_config *config, const ps_feed *feed);

/* Between steps: the engine and the rows go on with T tokens, with data.pad_to_multiple_of; with the configured length,
 * whole, where the memory is so tight that a shorter one finds no schedule. PS_EBUDGET when neither does. */
PS_NODISCARD ps_status cli_set_length(ps_engine *engine, ps_config *config, int64_t whole, int64_t T, ps_rows *rows);

#endif
