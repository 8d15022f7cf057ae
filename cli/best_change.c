/* best_change.c - the change of a configuration that makes a run fastest, by simulation.
 *
 * Budgets that the configuration leaves open, wholly or as memory.total, depend on what the process and the machine use
 * when they are read: at the end of a run both count the engine's own chunks, and a simulation would get less memory
 * than the run had. So the search works on a copy of the configuration with the engine's budgets as bytes. Freeing the
 * engine first would not do: malloc need not return what the run took. A larger memory.device is advised only where the
 * configuration itself gives memory.device, and the host tier does not follow from it: else it would mean other budgets
 * than those simulated. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "train/plan/advise.h"
#include "train/plan/variation.h"
#include "train/program.h"
#include "train/settings/settings.h"

static ps_status set_bytes(ps_variation *v, const char *key, int64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, bytes);
    return ps_variation_set(v, key, text);
}

static ps_status fix_budgets(ps_variation *v, const ps_config *config, const ps_memory_info *m)
{
    PS_TRY(ps_variation_set(v, "memory.total", "auto"));
    PS_TRY(set_bytes(v, "memory.device", m->device_budget_bytes));
    PS_TRY(set_bytes(v, "memory.host", m->host_budget_bytes));
    PS_TRY(set_bytes(v, "memory.disk", m->disk_budget_bytes));
    if (m->disk_budget_bytes == 0) return PS_OK;
    return ps_variation_set(v, "memory.disk_path", ps_settings_likely_disk_folders(config));
}

static bool can_be_applied(const ps_config *config, const ps_memory_info *m, const ps_advice *a)
{
    const ps_options *o = ps_config_options(config);
    const bool keeps_host = o->memory_host != PS_BYTES_AUTO || m->host_budget_bytes == 0;
    const bool gives_device = o->memory_total == PS_BYTES_AUTO && o->memory_device != PS_BYTES_AUTO && keeps_host;
    return gives_device || strstr(a->change, "memory.device=") == NULL;
}

/* A base whose search timed out may be slower than the run, and gains over it too large. */
static ps_status find(const ps_config *config, const ps_memory_info *memory, const ps_variation *v, const ps_site *site,
                      ps_deadline *deadline, program_change *out)
{
    ps_simulation now;
    ps_advice advice[PS_ADVICE_MAX];
    int n = 0;
    PS_TRY(ps_simulate(v->config, site, false, deadline, &now));
    if (!now.fits || now.timed_out) return PS_OK;
    PS_TRY(ps_advise(v->config, site, &now, deadline, advice, &n));
    for (int i = 0; i < n && out->text[0] == '\0'; i++) {
        if (!can_be_applied(config, memory, &advice[i])) continue;
        snprintf(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1, advice[i].change);
        out->gain = advice[i].gain;
        out->price = advice[i].price;
    }
    return PS_OK;
}

void program_find_change(const ps_config *config, const ps_memory_info *memory, int n_ranks, double seconds,
                         program_change *out)
{
    const ps_site site = {.n_ranks = n_ranks};
    const ps_hardware *known = NULL;
    ps_hardware room;
    ps_variation v;
    ps_deadline deadline = ps_deadline_in((int64_t)(seconds * 1e9));
    *out = (program_change){0};
    if (ps_config_hardware(config, &room, &known) != PS_OK || known == NULL) return;
    ps_status st = ps_variation_init(&v, config, &site);
    if (st == PS_OK) st = fix_budgets(&v, config, memory);
    if (st == PS_OK) st = find(config, memory, &v, &site, &deadline, out);
    if (st != PS_OK) *out = (program_change){0};
    ps_variation_deinit(&v);
}
