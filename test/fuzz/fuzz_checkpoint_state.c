/* state.json of a checkpoint: as it is, and sealed with the right checksum, so that what follows is reached.
 * What is taken can be written and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/checkpoint/checkpoint_state.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_text(const char *text, int64_t n)
{
    ps_checkpoint_state a, b;
    char *again = NULL;
    int64_t n_again = 0;
    if (ps_checkpoint_state_parse(text, n, "fuzz", &a) != PS_OK) {
        if (a.files != NULL || a.extra != NULL || a.module_json != NULL || a.caller_json != NULL ||
            a.config_json != NULL)
            abort();
        return;
    }
    if (ps_checkpoint_state_render(&a, &again, &n_again) != PS_OK) abort();
    if (ps_checkpoint_state_parse(again, n_again, "again", &b) != PS_OK) abort();
    if (a.steps != b.steps || a.micro_batches != b.micro_batches || a.n_ranks != b.n_ranks || a.seed != b.seed) abort();
    if (a.loss_average != b.loss_average) abort();
    if (memcmp(a.files, b.files, sizeof *a.files * (size_t)a.n_ranks * PS_CHECKPOINT_PART_COUNT) != 0) abort();
    if (memcmp(a.extra, b.extra, sizeof *a.extra * (size_t)a.n_ranks) != 0) abort();
    if ((a.module_json == NULL) != (b.module_json == NULL)) abort();
    ps_checkpoint_state_deinit(&a);
    ps_checkpoint_state_deinit(&b);
    ps_mem_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *sealed = NULL;
    int64_t n_sealed = 0;
    try_text((const char *)data, (int64_t)n);
    if (ps_checkpoint_state_seal((const char *)data, (int64_t)n, &sealed, &n_sealed) != PS_OK) abort();
    try_text(sealed, n_sealed);
    ps_mem_free(sealed);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
