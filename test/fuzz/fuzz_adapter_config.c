/* Any bytes as peft's adapter_config.json: refused with a message, or options that can be written and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/adapter_config.h"
#include "config/config_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What is written has other names where the file says all-linear. */
static void check_again(const ps_config *c, const ps_config_adapter *first)
{
    static const char *const modules[] = {"h.0.attn.c_attn", "h.0.mlp.c_fc"};
    ps_config_adapter again;
    char *json = NULL;
    if (ps_adapter_config_write(c, &(ps_adapter_modules){.layers = modules, .n = 2}, &json) != PS_OK) abort();
    if (ps_adapter_config_read(json, (int64_t)strlen(json), "again", &again) != PS_OK) abort();
    if (again.r.i != first->r.i || again.lora_alpha.d[0] != first->lora_alpha.d[0] ||
        again.use_rslora.b != first->use_rslora.b)
        abort();
    ps_adapter_config_forget(&again);
    ps_mem_free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ps_config *c = NULL;
    if (ps_config_create(&c) != PS_OK) abort();
    ps_config_adapter read;
    if (ps_adapter_config_read((const char *)data, (int64_t)n, "adapter_config.json", &read) == PS_OK) {
        c->adapter = read;
        if (ps_config_set(c, "train.seed", "1") != PS_OK) abort(); /* settles what was read */
        if (ps_config_validate(c) == PS_OK) check_again(c, &read);
    } else if (ps_last_error()[0] == '\0') {
        abort();
    }
    ps_config_destroy(c);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
