/* client_moment.c - operators of the program: moments of a step, or of a pass outside of a step. */
#include "api/external/client_calls.h"

/* A pass of an evaluation begins with the label of the first one. All ranks begin it together, even if all parameters
 * are resident: otherwise one rank alone could evaluate a small model, and no larger one. */
static ps_status begin_pass(ps_client *c, const char *label, int64_t framework_bytes)
{
    ps_client_steps *s = &c->steps;
    if (s->evaluation == NULL) s->evaluation = label;
    if (s->evaluation != label) return PS_OK;
    if (s->trace == NULL) s->outside_bytes = framework_bytes;
    const ps_client_message m = {.kind = PS_CLIENT_EVALUATE, .tensor = -1};
    return ps_client_break(c, ps_client_announce(c, &m, NULL, 0));
}

/* Such a pass is not predicted, and the step's prediction stays: resident chunks stay as the step needs them, as far as
 * there is room next to the framework's memory. */
static ps_status begin_outside_step(ps_client *c, const char *label, int64_t framework_bytes, bool is_measured)
{
    ps_client_steps *s = &c->steps;
    ps_client_finish_moment(c, framework_bytes);
    s->is_recording = false;
    PS_TRY(ps_client_keep_label(c, label, &label));
    PS_TRY(begin_pass(c, label, framework_bytes));
    ps_status st = ps_store_claim_outside_step(c->tiers.store, framework_bytes);
    if (ps_client_release_prefetch(c, &st)) st = ps_store_claim_outside_step(c->tiers.store, framework_bytes);
    if (st == PS_EBUDGET && is_measured) {
        PS_TRY(ps_client_measure_framework(c, true, &framework_bytes));
        st = ps_store_claim_outside_step(c->tiers.store, framework_bytes);
    }
    PS_TRY(ps_client_report_framework(c, st, framework_bytes));
    s->framework_bytes = framework_bytes;
    ps_client_record_moment(c, PS_PHASE_FORWARD, label, framework_bytes, false);
    return PS_OK;
}

static ps_status moment(ps_client *c, ps_client_phase phase, const char *label, int64_t framework_bytes)
{
    const bool is_measured = framework_bytes == PS_CLIENT_MEASURE;
    if (phase < PS_CLIENT_FORWARD || phase > PS_CLIENT_OUTSIDE_STEP)
        return PS_FAIL(PS_EINVAL, "ps_client_moment: %d is no ps_client_phase", (int)phase);
    if (framework_bytes < PS_CLIENT_MEASURE)
        return PS_FAIL(PS_EINVAL, "ps_client_moment: %lld bytes; PS_CLIENT_MEASURE is %d", (long long)framework_bytes,
                       PS_CLIENT_MEASURE);
    if (is_measured && c->settings.backend_kind == PS_BACKEND_CUDA)
        return PS_FAIL(PS_EINVAL, "ps_client_moment: a framework's GPU memory can only be measured by itself");
    if (is_measured) PS_TRY(ps_client_measure_framework(c, false, &framework_bytes));
    if (phase == PS_CLIENT_OUTSIDE_STEP) PS_TRY(ps_client_break_ranks(c, ps_client_flush(c)));
    if (phase == PS_CLIENT_OUTSIDE_STEP) return begin_outside_step(c, label, framework_bytes, is_measured);
    PS_TRY(ps_client_break_ranks(c, ps_client_update_as_predicted(c, framework_bytes)));
    return ps_client_begin_moment(c, phase == PS_CLIENT_FORWARD ? PS_PHASE_FORWARD : PS_PHASE_BACKWARD, label,
                                  framework_bytes);
}

ps_status ps_client_moment(ps_client *c, ps_client_phase phase, const char *label, int64_t framework_bytes)
{
    PS_TRY(PS_NEED("client label", c, label));
    PS_TRY(ps_client_enter(c, "ps_client_moment", PS_CLIENT_IS_READY));
    return ps_client_leave(c, moment(c, phase, label, framework_bytes));
}
