#include "train/plan/variation.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define HARDWARE_PREFIX "hardware."

/* The text of a configuration does not have the machine that `hardware = auto` stands for. */
static ps_status bring_machine(const ps_config *from, ps_config *to)
{
    ps_hardware room;
    const ps_hardware *known;
    PS_TRY(ps_config_hardware(from, &room, &known));
    if (known == NULL) return PS_OK;
    ps_config_know_machine(to, known);
    return ps_config_set(to, "hardware", "auto");
}

ps_status ps_variation_init(ps_variation *v, const ps_config *config, const ps_site *site)
{
    char *text = NULL;
    const ps_site nowhere = {0}, *at = site != NULL ? site : &nowhere;
    *v = (ps_variation){.has_hardware = at->hardware != NULL,
                        .n_ranks = at->n_ranks,
                        .rank = at->rank,
                        .takes_first_plan = at->takes_first_plan};
    if (v->has_hardware) v->hardware = *at->hardware;
    PS_TRY(ps_config_dump_json(config, &text));
    const ps_status st = ps_config_parse(text, "configuration", &v->config);
    ps_free(text);
    PS_TRY(st);
    PS_TRY(ps_config_set_disk_folder(v->config, ps_config_disk_folder(config)));
    if (ps_config_allows_speculation(config)) PS_TRY(ps_config_allow_speculation(v->config));
    return bring_machine(config, v->config);
}

void ps_variation_deinit(ps_variation *v)
{
    ps_config_destroy(v->config);
    *v = (ps_variation){0};
}

ps_status ps_variation_set(ps_variation *v, const char *key, const char *value)
{
    const size_t n = strlen(HARDWARE_PREFIX);
    if (strncmp(key, HARDWARE_PREFIX, n) != 0) return ps_config_set(v->config, key, value);
    if (!v->has_hardware) return PS_FAIL(PS_EINVAL, "%s: no hardware is described", key);
    return ps_hardware_set(&v->hardware, key + n, value);
}

ps_status ps_variation_change(ps_variation *v, const char *change)
{
    char text[PS_CHANGE_TEXT_MAX], *rest = text;
    ps_status st = PS_OK;
    snprintf(text, sizeof text, "%s", change);
    for (char *word; st == PS_OK && (word = strsep(&rest, " ")) != NULL;) {
        char *equals = strchr(word, '=');
        PS_ASSERT(equals != NULL);
        *equals = '\0';
        st = ps_variation_set(v, word, equals + 1);
    }
    return st;
}

ps_status ps_variation_simulate(const ps_variation *v, ps_deadline *deadline, ps_simulation *out)
{
    const ps_site site = {.hardware = v->has_hardware ? &v->hardware : NULL,
                          .n_ranks = v->n_ranks,
                          .rank = v->rank,
                          .takes_first_plan = v->takes_first_plan};
    ps_status st = ps_config_validate(v->config);
    if (st == PS_OK && v->has_hardware) st = ps_hardware_check(&v->hardware);
    if (st == PS_OK) st = ps_simulate(v->config, &site, false, deadline, out);
    if (st != PS_EINVAL && st != PS_ENOSYS) return st;
    *out = (ps_simulation){0};
    strncpy(out->refusal, ps_last_error(), sizeof out->refusal - 1);
    return PS_OK;
}

const char *ps_variation_batch_text(const ps_options *o, int64_t B, char text[PS_VARIATION_BATCH_MAX])
{
    snprintf(text, PS_VARIATION_BATCH_MAX, "train_micro_batch_size_per_gpu=%lld%s", (long long)B,
             o->train_batch_size != 0 ? " train_batch_size=0" : "");
    return text;
}
