/* framework_memory.c - the framework's memory, if the device's memory is the processor's: private memory of the process
 * other than chunks. */
#include <malloc.h>

#include "api/external/moment_trace.h"
#include "base/machine.h"

static int64_t used_bytes(const ps_client *c)
{
    int64_t bytes = 0;
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) {
        const ps_device_stats s = ps_device_get_stats(c->tiers.ram[i]);
        bytes += s.used_bytes + s.kept_bytes;
    }
    return bytes - ps_store_get_stats(c->tiers.store).non_model_bytes;
}

ps_status ps_client_count_process(ps_client *c)
{
    const ps_settings_memory *m = &c->settings.memory;
    ps_machine_rss_info now;
    int64_t resident;
    if (m->limit_kind != PS_LIMIT_TOTAL || c->settings.backend_kind == PS_BACKEND_CUDA) return PS_OK;
    PS_TRY(ps_machine_rss(NULL, &now));
    PS_TRY(ps_machine_private(c->steps.statm, &resident));
    /* mapped files and libraries are in one number and not in the other; the system may drop their pages */
    c->steps.base_bytes = resident + ps_max_i64(0, m->process_bytes - now.resident_bytes);
    c->steps.counts_process = true;
    return PS_OK;
}

ps_status ps_client_begin_measuring(ps_client *c)
{
    int64_t resident;
    if (c->steps.counts_process) return PS_OK;
    PS_TRY(ps_machine_private(c->steps.statm, &resident));
    c->steps.base_bytes = resident - used_bytes(c);
    return PS_OK;
}

static ps_status measure_once(const ps_client *c, int64_t *bytes)
{
    int64_t resident;
    PS_TRY(ps_machine_private(c->steps.statm, &resident));
    const int64_t own = resident - used_bytes(c) - c->steps.base_bytes;
    *bytes = own <= 0 ? 0 : ps_round_up(own, PS_CLIENT_GRAIN_BYTES);
    return PS_OK;
}

static bool has_room_for_least(const ps_client *c, int64_t framework_bytes)
{
    const int64_t room = c->settings.budgets.bytes[PS_TIER_DEVICE] - framework_bytes;
    return room > framework_bytes || room >= ps_client_least_device_bytes(c);
}

bool ps_client_takes_more_than_predicted(const ps_client *c, int64_t framework_bytes)
{
    const ps_moment *next = ps_client_predicted_moment(c);
    return next != NULL && framework_bytes > next->non_model_bytes + 4 * PS_CLIENT_GRAIN_BYTES;
}

/* The heap is trimmed (malloc_trim) before more memory than predicted counts; without a prediction, before chunks find
 * no room (the heap may hold a checkpoint that was loaded and dropped, say). But not if chunks have room anyway: the
 * pages would be faulted in again, which takes longer than the update. */
ps_status ps_client_measure_framework(const ps_client *c, bool trims, int64_t *bytes)
{
    if (!trims) {
        PS_TRY(measure_once(c, bytes));
        const bool is_expected = ps_client_predicted_moment(c) != NULL ? !ps_client_takes_more_than_predicted(c, *bytes)
                                                                       : has_room_for_least(c, *bytes);
        if (is_expected || ps_client_has_room_for_all(c, *bytes)) return PS_OK;
    }
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return measure_once(c, bytes);
}
