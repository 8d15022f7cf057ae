/* moment_trace.c - operators as moments: the first step is recorded, and from then on each step is predicted by the
 * last recorded one.
 *
 *     current step     trace: grows with each moment and each access
 *     predicted        the schedule's trace. As long as moments have its labels the store is given each, and
 *                      prefetches; at the first with another label the store gets no schedule for the rest
 *                      of the step
 *     end of step      does it differ from the predicted one? Then the next one is predicted from it
 *
 * Updates that could have been made early are predicted right after the last moment that used their chunk. */
#include "api/external/moment_trace.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/machine.h"
#include "base/mem.h"

/* NULL: none is predicted, or the step differs from the recorded one. */
const ps_moment *ps_client_predicted_moment(const ps_client *c)
{
    const ps_client_steps *s = &c->steps;
    const int32_t n = s->trace != NULL ? s->trace->n_moments : 0;
    const bool matches = s->trace != NULL ? s->matches : s->schedule != NULL;
    return matches && n < s->predicted->n_moments ? &s->predicted->moments[n] : NULL;
}

ps_status ps_client_report_framework(const ps_client *c, ps_status st, int64_t framework_bytes)
{
    char text[PS_CLIENT_FRAMEWORK_TEXT_MAX], advice[PS_CLIENT_ADVICE_TEXT_MAX], sizes[2][PS_BYTES_TEXT_MAX];
    if (st != PS_EBUDGET) return st;
    return PS_FAIL(
        st,
        "the framework itself has %s in use of the %s that budgets leave to it and to chunks, which find no room: %s; "
        "try %s",
        ps_bytes_format(framework_bytes, sizes[0]),
        ps_bytes_format(c->settings.budgets.bytes[PS_TIER_DEVICE], sizes[1]),
        ps_client_framework_text(c, framework_bytes, text), ps_client_step_advice(c, framework_bytes, 0, 0, advice));
}

/* ---- recording ---- */

ps_status ps_client_keep_label(ps_client *c, const char *label, const char **out)
{
    ps_client_steps *s = &c->steps;
    for (size_t i = 0; i < s->n_labels; i++)
        if (strcmp(s->labels[i], label) == 0) {
            *out = s->labels[i];
            return PS_OK;
        }
    PS_TRY(ps_mem_reserve(&s->labels, s->n_labels + 1, sizeof *s->labels));
    PS_TRY(ps_mem_strdup(label, &s->labels[s->n_labels]));
    *out = s->labels[s->n_labels++];
    return PS_OK;
}

void ps_client_finish_moment(ps_client *c, int64_t framework_bytes)
{
    ps_client_steps *s = &c->steps;
    const int64_t now = ps_clock_ns(), waited = ps_store_get_stats(c->tiers.store).wait_ns;
    if (s->trace != NULL && s->trace->n_moments > 0 && s->is_recording) {
        ps_moment *m = &s->trace->moments[s->trace->n_moments - 1];
        m->cost_ns = ps_max_i64(1, now - s->began_ns - (waited - s->waited_ns));
        m->non_model_bytes = ps_max_i64(m->non_model_bytes, framework_bytes);
    }
    s->began_ns = now;
    s->waited_ns = waited;
    s->peak_bytes = ps_max_i64(s->peak_bytes, framework_bytes);
}

/* Chunks pinned when the moment begins are accesses of it. */
static ps_status note_pinned_before(ps_client *c)
{
    ps_trace *t = c->steps.trace;
    memset(c->steps.wanted_bytes, 0, sizeof c->steps.wanted_bytes);
    for (int32_t i = 0; i < c->pinned.n; i++) {
        const ps_chunk_id id = c->pinned.ids[i];
        const ps_tier tier = ps_store_get_chunk(c->tiers.store, id).pin_tier;
        PS_TRY(ps_trace_add_access(t, id, tier, PS_ACCESS_READ));
        c->steps.wanted_bytes[tier] += ps_client_id_bytes(c, id);
    }
    return PS_OK;
}

static void drop_prediction(ps_client *c)
{
    c->steps.matches = c->steps.is_installed = false;
    ps_store_set_schedule(c->tiers.store, NULL);
}

bool ps_client_drop_prediction(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    if (s->trace == NULL || !s->matches) return false;
    drop_prediction(c);
    /* chunks that the moment was predicted to use may be evicted now */
    return ps_store_begin_moment(c->tiers.store, s->framework_bytes) == PS_OK;
}

/* continues: not a moment of the program, but a continuation of the one before. */
static ps_status begin_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes, bool continues)
{
    ps_client_steps *s = &c->steps;
    const ps_moment *next = ps_client_predicted_moment(c);
    const bool is_predicted =
        next != NULL && next->phase == phase && next->continues == continues && strcmp(next->label, label) == 0;
    if (is_predicted)
        label = next->label;
    else
        PS_TRY(ps_client_keep_label(c, label, &label));
    if (!is_predicted && s->matches) drop_prediction(c);
    PS_TRY(ps_trace_add_moment(s->trace, phase, label, framework_bytes, 1));
    s->trace->moments[s->trace->n_moments - 1].continues = continues;
    const ps_status noted = note_pinned_before(c);
    if (noted != PS_OK && s->matches) drop_prediction(c); /* the store's moment is no longer the trace's */
    PS_TRY(noted);
    ps_client_record_moment(c, phase, label, framework_bytes, true);
    s->is_recording = true;
    const int64_t bytes = is_predicted ? ps_max_i64(framework_bytes, next->non_model_bytes) : framework_bytes;
    s->framework_bytes = s->step_bytes = framework_bytes;
    ps_status st = ps_store_begin_moment(c->tiers.store, bytes);
    if (ps_client_release_prefetch(c, &st)) st = ps_store_begin_moment(c->tiers.store, bytes);
    if (st == PS_EBUDGET && ps_client_drop_prediction(c)) st = PS_OK;
    return ps_client_report_framework(c, st, framework_bytes);
}

ps_status ps_client_begin_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes)
{
    ps_client_steps *s = &c->steps;
    /* a backward pass may belong to a forward pass outside of a step: activations exist already */
    const bool has_activations = s->evaluation != NULL && phase == PS_PHASE_BACKWARD;
    ps_client_finish_moment(c, framework_bytes);
    s->evaluation = NULL;
    if (s->trace == NULL) {
        PS_TRY(ps_trace_create(&s->trace));
        s->matches = s->schedule != NULL;
        if (!has_activations) s->outside_bytes = framework_bytes;
    }
    return begin_moment(c, phase, label, framework_bytes, false);
}

void ps_client_retract_moment(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    s->trace->n_moments--;
    s->is_recording = false; /* the one before has ended */
    ps_client_unrecord_moment(c);
}

/* The chunk whose update this is; -1: none. Its first accesses may be of chunks that were pinned before. */
int32_t ps_client_updated_chunk(const ps_client *c, const ps_trace *t, const ps_moment *m)
{
    if (m->phase != PS_PHASE_UPDATE || m->n_accesses == 0) return -1;
    return ps_lists_index_of(&c->lists, c->layout, t->accesses[m->first_access + m->n_accesses - 1].chunk);
}

static bool has_access(const ps_trace *t, ps_chunk_id id)
{
    const ps_moment *m = &t->moments[t->n_moments - 1];
    for (int32_t i = 0; i < m->n_accesses; i++)
        if (t->accesses[m->first_access + i].chunk == id) return true;
    return false;
}

/* All accesses of a moment are resident together in the next step. A program with few moments, and many tensors used in
 * sequence within one, would find it too large; so the moment is continued as another one of the same name when
 * unpinned chunks amount to much. */
static bool is_too_large(const ps_client *c, ps_chunk_id id, ps_tier tier)
{
    const int64_t share = c->settings.budgets.bytes[tier] / 4;
    int64_t held = 0;
    if (c->steps.wanted_bytes[tier] + ps_client_id_bytes(c, id) <= share) return false;
    for (int32_t i = 0; i < c->pinned.n; i++)
        if (ps_store_get_chunk(c->tiers.store, c->pinned.ids[i]).pin_tier == tier)
            held += ps_client_id_bytes(c, c->pinned.ids[i]);
    return held < c->steps.wanted_bytes[tier];
}

static ps_status note_access(ps_client *c, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    ps_client_steps *s = &c->steps;
    if (!s->is_recording) return PS_OK;
    if (!has_access(s->trace, id)) {
        const ps_moment *now = &s->trace->moments[s->trace->n_moments - 1];
        if (is_too_large(c, id, tier)) PS_TRY(begin_moment(c, now->phase, now->label, s->framework_bytes, true));
        s->wanted_bytes[tier] += ps_client_id_bytes(c, id);
    }
    return ps_trace_add_access(s->trace, id, tier, mode);
}

/* ---- pins ---- */

static void note_pinned(ps_client *c, ps_chunk_id id)
{
    if (ps_store_get_chunk(c->tiers.store, id).pins == 1) c->pinned.ids[c->pinned.n++] = id;
}

/* If there is no room, prefetched groups need not stay on the device, nor predictions be kept. */
ps_status ps_client_pin_chunk(ps_client *c, ps_list list, int32_t chunk, ps_tier tier, ps_access_mode mode)
{
    const ps_chunk_id id = ps_store_chunk(c->layout, list, chunk);
    PS_TRY(note_access(c, id, tier, mode));
    ps_status st = ps_store_pin(c->tiers.store, id, tier, mode, NULL);
    if (ps_client_release_prefetch(c, &st)) st = ps_store_pin(c->tiers.store, id, tier, mode, NULL);
    if (st == PS_EBUDGET && ps_client_drop_prediction(c)) st = ps_store_pin(c->tiers.store, id, tier, mode, NULL);
    PS_TRY(st);
    note_pinned(c, id);
    return PS_OK;
}

ps_status ps_client_try_pin_chunk(ps_client *c, ps_list list, int32_t chunk, ps_tier tier, ps_access_mode mode)
{
    const ps_chunk_id id = ps_store_chunk(c->layout, list, chunk);
    PS_TRY(ps_store_pin(c->tiers.store, id, tier, mode, NULL));
    const ps_status st = note_access(c, id, tier, mode);
    if (st == PS_OK)
        note_pinned(c, id);
    else
        ps_store_unpin(c->tiers.store, id);
    return st;
}
