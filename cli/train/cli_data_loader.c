#include "cli_data_loader.h"

#include <stdio.h>
#include <unistd.h>

ps_status cli_data_loader_open(const ps_config *config, ps_data_loader **out)
{
    const char *folder = client_string(config, "train.output_dir");
    return ps_data_loader_from_config(config, access(folder, F_OK) == 0 ? folder : NULL, out);
}

ps_status cli_data_loader_open_on_ranks(const ps_config *config, ps_comm *comm, ps_data_loader **out)
{
    const bool is_first = ps_comm_rank(comm) == 0;
    *out = NULL;
    TRY(ps_comm_agree(comm, is_first ? cli_data_loader_open(config, out) : PS_OK));
    TRY(ps_comm_agree(comm, is_first ? PS_OK : cli_data_loader_open(config, out)));
    return ps_comm_check_data_loader(comm, *out);
}

void cli_print_instruct_info(const ps_config *config, const ps_data_loader *loader)
{
    static const char *const keys[PS_SPLIT_COUNT] = {"data.train", "data.validation"};
    for (int split = 0; split < PS_SPLIT_COUNT; split++) {
        char *text = NULL;
        if (ps_data_loader_describe(loader, (ps_split)split, &text) == PS_OK && text[0] != '\0')
            printf("%s: %s\n", client_string(config, keys[split]), text);
        ps_free(text);
    }
}

ps_status cli_set_length(ps_engine *engine, ps_config *config, int64_t whole, int64_t T, ps_rows *rows)
{
    const int64_t B = client_int(config, "train_micro_batch_size_per_gpu");
    if (client_int(config, "data.pad_to_multiple_of") == 0) return PS_OK;
    ps_status st = ps_engine_set_shape(engine, ps_model_from_config, config, B, T);
    if (st == PS_EBUDGET && T < whole) st = ps_engine_set_shape(engine, ps_model_from_config, config, B, T = whole);
    if (st == PS_OK) ps_rows_set_length(rows, T);
    return st;
}
