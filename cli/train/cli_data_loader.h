/* cli_data_loader.h - the data loader of a configuration. */
#ifndef PSTAR_CLI_DATA_LOADER_H
#define PSTAR_CLI_DATA_LOADER_H

#include "client.h"

/* ps_data_loader_from_config, with train.output_dir, if it is a folder, as cache of tokens. */
PS_NODISCARD ps_status cli_data_loader_open(const ps_config *config, ps_data_loader **out);

/* The same on each rank; all ranks call. Rank 0 is first, so that the others find its cached tokens. All must have the
 * same data (ps_comm_check_data_loader). */
PS_NODISCARD ps_status cli_data_loader_open_on_ranks(const ps_config *config, ps_comm *comm, ps_data_loader **out);

/* Print the statistics of instruction data, for each file; nothing for other data. */
void cli_print_instruct_info(const ps_config *config, const ps_data_loader *loader);

/* Call between steps: with data.pad_to_multiple_of set the length of engine and rows to T tokens, or to the configured
 * length `whole` where no schedule fits for a shorter one. PS_EBUDGET when neither fits. */
PS_NODISCARD ps_status cli_set_length(ps_engine *engine, ps_config *config, int64_t whole, int64_t T, ps_rows *rows);

#endif
