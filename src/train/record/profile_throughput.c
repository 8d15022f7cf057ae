#include "train/record/profile_throughput.h"

#include "base/mem.h"

const char *ps_profile_throughput_name(int kind)
{
    static const char *const names[PS_THROUGHPUT_LINKS] = {[PS_THROUGHPUT_ARITHMETIC] = "arithmetic",
                                                           [PS_THROUGHPUT_MEMORY] = "memory traffic",
                                                           [PS_THROUGHPUT_UPDATES] = "updates"};
    return kind < PS_THROUGHPUT_LINKS ? names[kind] : ps_link_name((ps_link)(kind - PS_THROUGHPUT_LINKS));
}

const char *ps_profile_throughput_unit(int kind)
{
    return kind == PS_THROUGHPUT_ARITHMETIC ? "FLOP/s" : "bytes/s";
}

/* By moment, [n_moments]; PS_THROUGHPUT_COUNT: collectives, which have no throughput here. */
static ps_status find_kinds(const ps_exec_plan *b, uint8_t **out)
{
    const double flops_per_ns = b->settings->throughput.compute.flops_per_s * 1e-9;
    const int64_t accumulation = b->settings->accumulation;
    uint8_t *kinds = NULL;
    PS_TRY(ps_mem_alloc((size_t)b->trace->n_moments, sizeof *kinds, &kinds));
    for (int32_t m = 0; m < b->trace->n_moments; m++)
        kinds[m] = b->trace->moments[m].phase == PS_PHASE_UPDATE ? PS_THROUGHPUT_UPDATES : PS_THROUGHPUT_COUNT;
    for (int64_t k = 0; k < accumulation; k++)
        for (int32_t i = 0; i < b->code->n_instrs; i++) {
            const ps_instr *instr = &b->code->instrs[i];
            const int32_t m = b->instr_moment[k * b->code->n_instrs + i];
            const bool is_arithmetic = 2 * instr->flops > (double)instr->cost_ns * flops_per_ns;
            kinds[m] = is_arithmetic ? PS_THROUGHPUT_ARITHMETIC : PS_THROUGHPUT_MEMORY;
        }
    *out = kinds;
    return PS_OK;
}

/* On an asynchronous device updates on the host are separate; they have another throughput. */
static bool is_separate(const ps_profile_record *r)
{
    return r->marks.link == ps_work_link(PS_TIER_HOST) && r->marks.last != 0;
}

static void sum_computing(const ps_profile_sum *s, const ps_trace *trace, const uint8_t *kinds,
                          ps_profile_throughput out[PS_THROUGHPUT_COUNT])
{
    for (int64_t i = 0, from = 0; i < ps_profile_count(s->profile); i++) {
        const ps_profile_record *r = ps_profile_at(s->profile, i);
        if (r->kind != PS_PROFILE_OP || is_separate(r) || r->op.moment < 0 || r->op.moment >= trace->n_moments)
            continue;
        const ps_profile_span span = ps_profile_work_span(s, r);
        const int64_t step = ps_profile_step_at(s, from, span.begin_ns);
        const int kind = kinds[r->op.moment];
        if (step == s->n_steps || kind == PS_THROUGHPUT_COUNT) continue;
        from = step;
        out[kind].predicted_ns += trace->moments[r->op.moment].cost_ns;
        out[kind].measured_ns += span.end_ns - span.begin_ns;
    }
    for (int kind = 0; kind < PS_THROUGHPUT_LINKS; kind++) {
        ps_profile_throughput *const rate = &out[kind];
        if (rate->measured_ns > 0) rate->seen = rate->reckoned * (double)rate->predicted_ns / (double)rate->measured_ns;
        rate->predicted_ns /= ps_max_i64(1, s->n_steps);
        rate->measured_ns /= ps_max_i64(1, s->n_steps);
    }
}

static void sum_links(const ps_profile_sum *s, const ps_forecast *forecast,
                      ps_profile_throughput out[PS_THROUGHPUT_COUNT])
{
    for (int link = 0; link < PS_LINK_COLLECTIVES; link++) {
        ps_profile_throughput *const rate = &out[PS_THROUGHPUT_LINKS + link];
        rate->predicted_ns = forecast->step.busy_ns[link];
        /* as planned: with latencies, and slowed while the other direction was busy */
        if (rate->predicted_ns > 0)
            rate->reckoned = (double)forecast->moved_bytes[link] * 1e9 / (double)rate->predicted_ns;
        rate->measured_ns = s->busy_ns[PS_LANE_LINKS + link];
        if (rate->measured_ns > 0) rate->seen = (double)s->moved_bytes[link] * 1e9 / (double)rate->measured_ns;
    }
}

ps_status ps_profile_throughput_find(const ps_profile_sum *s, const ps_exec_plan *b, const ps_forecast *forecast,
                                     ps_profile_throughput out[PS_THROUGHPUT_COUNT])
{
    const ps_throughput *throughput = &b->settings->throughput;
    uint8_t *kinds;
    for (int kind = 0; kind < PS_THROUGHPUT_COUNT; kind++) out[kind] = (ps_profile_throughput){0};
    out[PS_THROUGHPUT_ARITHMETIC].reckoned = throughput->compute.flops_per_s;
    out[PS_THROUGHPUT_MEMORY].reckoned = throughput->compute.bytes_per_s;
    out[PS_THROUGHPUT_UPDATES].reckoned = ps_settings_update_bytes_per_s(b->settings, PS_TIER_DEVICE);
    for (int link = 0; link < PS_LINK_COLLECTIVES; link++)
        out[PS_THROUGHPUT_LINKS + link].reckoned = throughput->links.link[link].bytes_per_s;
    PS_TRY(find_kinds(b, &kinds));
    sum_computing(s, b->trace, kinds, out);
    sum_links(s, forecast, out);
    ps_mem_free(kinds);
    return PS_OK;
}
