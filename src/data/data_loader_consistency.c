/* data_loader_consistency.c - whether all ranks have the same data. */
#include "base/base.h"
#include "chunk/comm/agree.h"
#include "chunk/comm/consistency.h"
#include "data/data_loader.h"

ps_status ps_comm_check_data_loader(ps_comm *c, const ps_data_loader *loader)
{
    PS_TRY(PS_NEED("loader", loader));
    uint64_t hash = 0;
    if (c == NULL || ps_comm_size(c) == 1) return PS_OK;
    PS_TRY(ps_comm_agree(c, ps_data_loader_xxh3(loader, &hash)));
    const ps_consistency_item t[] = {
        {"number of training samples", (uint64_t)ps_data_loader_sample_count(loader, PS_SPLIT_TRAIN),
         "data.train differs"},
        {"number of validation samples", (uint64_t)ps_data_loader_sample_count(loader, PS_SPLIT_VALIDATION),
         "data.validation differs"},
        {"hash of all data", hash, "data.train, data.validation or the tokenizer differs"}};
    return ps_comm_check_consistency(c, t, (int)PS_ARRAY_LEN(t));
}
