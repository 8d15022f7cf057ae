/* Any bytes as the config.json of a model folder: refused with a message, or options that can be written and read
 * again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/config_state.h"
#include "config/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ps_config *c = NULL, *again = NULL;
    char *json = NULL;
    if (ps_config_create(&c) != PS_OK || ps_config_create(&again) != PS_OK) abort();
    if (ps_hf_config_read(c, (const char *)data, (int64_t)n, "config.json") == PS_OK) {
        if (ps_config_set(c, "train.seed", "1") != PS_OK) abort(); /* settles what was read */
        if (ps_config_validate(c) == PS_OK) {
            if (ps_hf_config_write(c, "float32", -1, &json) != PS_OK) abort();
            if (ps_hf_config_read(again, json, (int64_t)strlen(json), "again") != PS_OK) abort();
            ps_free(json);
        }
    } else if (ps_last_error()[0] == '\0') {
        abort();
    }
    ps_config_destroy(c);
    ps_config_destroy(again);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
