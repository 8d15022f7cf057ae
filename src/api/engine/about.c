/* about.c - hardware of an engine: what computes, how the disk is used, and a lower bound of the step's duration. */
#include <stdio.h>
#include <string.h>

#include "api/engine/engine.h"
#include "base/base.h"
#include "base/sized.h"

static const char *backend_name(const ps_settings *s)
{
    if (s->backend_kind == PS_BACKEND_CUDA || s->backend_kind == PS_BACKEND_REF)
        return ps_backend_kind_name(s->backend_kind);
    return ps_cpu_isa_name(s->isa);
}

void ps_engine_report(ps_engine *e, const char *text)
{
    const size_t n = strlen(e->notices);
    snprintf(e->notices + n, sizeof e->notices - n, "%s%s", n > 0 ? "; " : "", text);
}

const char *ps_engine_get_notices(const ps_engine *e)
{
    return e->notices;
}

ps_status ps_engine_get_device_info(const ps_engine *e, ps_device_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    const ps_settings *s = &e->settings;
    ps_device_info info = {.backend = backend_name(s),
                           .gpu = "",
                           .why_not_gpu = s->backend_kind != PS_BACKEND_CUDA ? s->gpu.why_not : "",
                           .attention = "",
                           .why_not_nccl = "",
                           .memory = e->memory_text};
    if (s->backend_kind == PS_BACKEND_CUDA) {
        info.gpu = s->gpu.found.info.name;
        info.attention = s->gpu.found.attention;
        info.gpu_number = s->gpu.ordinal;
        info.n_gpus = s->gpu.found.n_gpus;
        info.gpu_bytes = s->gpu.found.info.total_bytes;
        info.usable_bytes = ps_gpu_choice_share_bytes(&s->gpu, s->nccl.is_used);
        info.n_sharers = s->gpu.n_sharers;
        info.has_nccl = s->nccl.is_used;
        info.why_not_nccl = s->nccl.why_not;
    }
    return PS_SIZED_GIVE(ps_device_info, &info, out);
}

ps_status ps_engine_get_disk_info(const ps_engine *e, ps_disk_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    ps_disk_info info = {.backend = "", .ways = "", .folders = ""};
    if (e->tiers.disk != NULL) {
        const ps_disk_stats s = ps_disk_get_stats(e->tiers.disk);
        info = (ps_disk_info){.backend = s.backend,
                              .ways = s.ways,
                              .n_files = s.n_files,
                              .is_direct = s.direct,
                              .processor_ns = s.processor_ns,
                              .folders = e->settings.tiers.disk_folders};
    }
    return PS_SIZED_GIVE(ps_disk_info, &info, out);
}

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

ps_status ps_engine_get_bound_info(const ps_engine *e, const ps_config *config, ps_bound_info *out)
{
    PS_TRY(PS_NEED("engine config out", e, config, out));
    const ps_step_time *planned = &e->shape->forecast.step;
    ps_hardware room;
    const ps_hardware *hw = NULL;
    ps_bound_info info = {0};
    char text[PS_BOUND_TEXT_MAX];
    _Static_assert(PS_BOUND_TEXT_MAX <= sizeof info.text, "a text of a bound fits");
    PS_TRY(ps_config_hardware(config, &room, &hw));
    if (hw != NULL) {
        const ps_bound bound = ps_bound_of_plan(e->exec_plan, &e->shape->forecast);
        info.planned_s = seconds(planned->all_ns);
        info.planned_compute_s = seconds(planned->compute_ns + planned->lost_ns);
        info.planned_wait_s = seconds(planned->all_ns - planned->compute_ns - planned->lost_ns);
        info.bound_s = seconds(ps_bound_ns(&bound));
        info.disk_phases_s = seconds(bound.phases_ns);
        snprintf(info.by, sizeof info.by, "%s", ps_bound_part_name(bound.by));
        if (info.bound_s > 0) snprintf(info.text, sizeof info.text, "%s", ps_bound_text(&bound, text));
        snprintf(info.between, sizeof info.between, "%s", ps_bound_between(&bound, planned, text));
    }
    return PS_SIZED_GIVE(ps_bound_info, &info, out);
}
