/* client_advice.c - a budget that would suffice: the step's peak on the device, and the option to raise. */
#include <stdio.h>

#include "api/external/client_budget.h"
#include "base/bytes.h"

/* Measured memory is in steps of 4 MB, and each operator's temporary memory comes on top. */
static const int64_t slack_bytes = (int64_t)16 << 20;

const char *ps_client_advice(const ps_client *c, int64_t device_bytes, char text[PS_CLIENT_ADVICE_TEXT_MAX])
{
    const bool is_tier = c->settings.memory.limit_kind == PS_LIMIT_TIERS || c->settings.backend_kind == PS_BACKEND_CUDA;
    const int64_t bytes = is_tier ? device_bytes : ps_client_total_for(c, device_bytes);
    char readable[PS_BYTES_TEXT_MAX];
    snprintf(text, PS_CLIENT_ADVICE_TEXT_MAX, "%s=%s", is_tier ? "memory.device" : "memory.total",
             ps_bytes_round_up(bytes, readable));
    return text;
}

/* ---- needs of a step ---- */

/* Of chunks, at any time. */
static int64_t least_chunk_bytes(const ps_client *c)
{
    int64_t blocks[PS_RAM_TIER_COUNT];
    ps_client_count_blocks(c, blocks);
    return ps_max_i64(ps_client_least_device_bytes(c), ps_client_stuck_bytes(c) + blocks[PS_TIER_DEVICE]);
}

/* Peak over all moments, if activations are `growth` times those of the trace and the program holds `outside`
 * before. */
static int64_t most_of_trace(const ps_client *c, const ps_trace *t, int64_t outside, double growth)
{
    const int64_t least = least_chunk_bytes(c);
    int64_t most = 0;
    for (int32_t i = 0; i < t->n_moments; i++) {
        const int64_t activations = ps_max_i64(0, t->moments[i].non_model_bytes - outside);
        most = ps_max_i64(most, ps_max_i64(ps_client_moment_bytes(c, t, i, 1), least) +
                                    (int64_t)((double)activations * growth));
    }
    return most + outside;
}

/* Peak of the trace so far, the forward pass or all but updates, which adapt to the room they find. */
static int32_t count_operators(const ps_trace *t, bool is_forward)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->n_moments; i++)
        n += is_forward ? t->moments[i].phase == PS_PHASE_FORWARD : t->moments[i].phase != PS_PHASE_UPDATE;
    return n;
}

/* The recorded step's moment at the position of the current step; NULL: it had ended. */
static const ps_moment *recorded_operator(const ps_client_steps *s)
{
    if (s->predicted == NULL || s->trace == NULL) return NULL;
    int32_t left = count_operators(s->trace, false);
    for (int32_t i = 0; i < s->predicted->n_moments && left > 0; i++)
        if (s->predicted->moments[i].phase != PS_PHASE_UPDATE && --left == 0) return &s->predicted->moments[i];
    return NULL;
}

/* Activations grow with each operator of the forward pass: the fraction of it that is done. By the recorded step's
 * operators, or, in the first step, by the elements of the tensors used so far. At least 1/256. */
static double forward_share(const ps_client *c)
{
    const ps_trace *now = c->steps.trace, *recorded = c->steps.predicted;
    double done = 0, all = 0;
    if (now == NULL || count_operators(now, false) == 0) return 1;
    if (count_operators(now, false) > count_operators(now, true)) return 1; /* the backward pass has begun */
    if (recorded != NULL) {
        all = count_operators(recorded, true);
        done = count_operators(now, true);
    } else {
        all = c->layout->n_chunks;
        for (int32_t k = 0; k < c->layout->n_chunks; k++) {
            const ps_chunk_id id = ps_store_chunk(c->layout, PS_LIST_PARAM16, k);
            bool is_used = false;
            for (int32_t i = 0; i < now->n_accesses && !is_used; i++) is_used = now->accesses[i].chunk == id;
            done += is_used;
        }
    }
    if (done >= all) return 1;
    return done < all / 256 ? 1.0 / 256 : done / all;
}

static int64_t needed_device_bytes(const ps_client *c, int64_t framework_bytes, int64_t more_bytes, bool *is_estimate)
{
    const ps_client_steps *s = &c->steps;
    const int64_t outside = ps_min_i64(s->outside_bytes, framework_bytes), activations = framework_bytes - outside;
    const int64_t chunks = ps_max_i64(more_bytes, least_chunk_bytes(c));
    const ps_moment *recorded = recorded_operator(s);
    int64_t needed = framework_bytes + chunks;
    *is_estimate = true;
    if (recorded != NULL && framework_bytes <= recorded->non_model_bytes) {
        *is_estimate = false; /* as large as the recorded one */
        return ps_max_i64(needed, most_of_trace(c, s->predicted, outside, 1)) + slack_bytes;
    }
    const int64_t then = recorded != NULL ? recorded->non_model_bytes - outside : 0;
    if (then > slack_bytes) {
        const double growth = (double)activations / (double)then;
        needed = ps_max_i64(needed, most_of_trace(c, s->predicted, outside, growth));
    } else {
        /* the backward pass has gradients of activations in addition */
        const double share = forward_share(c);
        needed = ps_max_i64(needed, outside + (int64_t)((double)activations / share) + chunks);
    }
    return needed + activations / 20 + slack_bytes;
}

const char *ps_client_step_advice(const ps_client *c, int64_t framework_bytes, int64_t more_bytes, int64_t least_bytes,
                                  char text[PS_CLIENT_ADVICE_TEXT_MAX])
{
    char option[PS_CLIENT_ADVICE_TEXT_MAX];
    bool is_estimate;
    int64_t needed = needed_device_bytes(c, framework_bytes, more_bytes, &is_estimate);
    needed = ps_max_i64(needed, least_bytes);
    if (needed <= c->settings.budgets.bytes[PS_TIER_DEVICE]) { /* which has turned out to be too little */
        needed = c->settings.budgets.bytes[PS_TIER_DEVICE] + slack_bytes;
        is_estimate = true;
    }
    ps_client_advice(c, needed, option);
    snprintf(text, PS_CLIENT_ADVICE_TEXT_MAX, "%s%.100s", is_estimate ? "about " : "", option);
    return text;
}

const char *ps_client_framework_text(const ps_client *c, int64_t framework_bytes,
                                     char text[PS_CLIENT_FRAMEWORK_TEXT_MAX])
{
    char outside[PS_BYTES_TEXT_MAX], activations[PS_BYTES_TEXT_MAX];
    const int64_t before = ps_min_i64(c->steps.outside_bytes, framework_bytes);
    if (before < slack_bytes)
        snprintf(text, PS_CLIENT_FRAMEWORK_TEXT_MAX,
                 "smaller batches or activation checkpointing take less (the program held %s before the step)",
                 ps_bytes_format(before, outside));
    else
        snprintf(
            text, PS_CLIENT_FRAMEWORK_TEXT_MAX,
            "the program holds %s outside of chunks since before the step (a loaded checkpoint, say: let go of it, or "
            "load it by mmap), and activations take %s (smaller batches, checkpointing)",
            ps_bytes_format(before, outside), ps_bytes_format(framework_bytes - before, activations));
    return text;
}
