/* moment.c - operators as moments: the first step is watched, and from then on each step is foretold by the last one
 * that was watched.
 *
 *     step under way   trace: grows with each moment and each access
 *     foretold         the schedule's trace. As long as moments come with its labels the store is told of each, and
 *                      brings what is to come; at the first that has another label it is told of no schedule for the rest
 *                      of the step
 *     end of step      was it another step than the foretold one? Then it is what the next one is foretold from
 *
 * Updates that could have come early are foretold where they could: right after the last moment that used their chunk. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/machine.h"
#include "base/mem.h"
#include "external/client_impl.h"

/* What is measured changes a little all the time; the store looks again at all that is to come when it is told of
 * more. */
static const int64_t grain_bytes = (int64_t)4 << 20;

/* NULL: none is foretold, or the step has gone another way. */
static const ps_moment *foretold_moment(const ps_client_steps *s)
{
    const int32_t n = s->trace != NULL ? s->trace->n_moments : 0;
    const bool follows = s->trace != NULL ? s->follows : s->schedule != NULL;
    return follows && n < s->foretold->n_moments ? &s->foretold->moments[n] : NULL;
}

/* ---- the framework's own memory ---- */

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
    if (m->dial != PS_DIAL_TOTAL || c->settings.backend_kind == PS_BACKEND_CUDA) return PS_OK;
    PS_TRY(ps_machine_rss(NULL, &now));
    PS_TRY(ps_resident_measure(&c->steps.resident, &resident));
    /* pages of libraries and of files that are mapped are in the one and not in the other; the system may drop them */
    c->steps.base_bytes = resident + ps_max_i64(0, m->process_bytes - now.resident_bytes);
    c->steps.counts_process = true;
    return PS_OK;
}

ps_status ps_client_begin_measuring(ps_client *c)
{
    int64_t resident;
    if (c->steps.counts_process) return PS_OK;
    PS_TRY(ps_resident_measure(&c->steps.resident, &resident));
    c->steps.base_bytes = resident - used_bytes(c);
    return PS_OK;
}

static ps_status measure_once(const ps_client *c, int64_t *bytes)
{
    int64_t resident;
    PS_TRY(ps_resident_measure(&c->steps.resident, &resident));
    const int64_t own = resident - used_bytes(c) - c->steps.base_bytes;
    *bytes = own <= 0 ? 0 : ps_round_up(own, grain_bytes);
    return PS_OK;
}

/* What has been freed may still be in the heap. */
static ps_status measure_trimmed(const ps_client *c, int64_t *bytes)
{
    ps_resident_trim();
    return measure_once(c, bytes);
}

static bool has_room_for_least(const ps_client *c, int64_t framework_bytes)
{
    const int64_t room = c->settings.budgets.bytes[PS_TIER_DEVICE] - framework_bytes;
    return room > framework_bytes || room >= ps_client_least_device_bytes(c);
}

bool ps_client_takes_more_than_foretold(const ps_client *c, int64_t framework_bytes)
{
    const ps_moment *next = foretold_moment(&c->steps);
    return next != NULL && framework_bytes > next->non_model_bytes + 4 * grain_bytes;
}

/* The heap is asked to give back what has been freed before more than was foretold counts; where nothing is foretold,
 * before chunks find no room (a checkpoint that was loaded and dropped lies in the heap, say). But not where chunks
 * have room beside it anyway: it would come back page by page, which takes longer than the update. */
static ps_status measure(ps_client *c, int64_t *bytes)
{
    PS_TRY(measure_once(c, bytes));
    const bool is_expected = foretold_moment(&c->steps) != NULL ? !ps_client_takes_more_than_foretold(c, *bytes)
                                                                : has_room_for_least(c, *bytes);
    if (is_expected || ps_client_has_room_for_all(c, *bytes)) return PS_OK;
    return measure_trimmed(c, bytes);
}

const char *ps_client_framework_text(const ps_client *c, int64_t framework_bytes,
                                     char text[PS_CLIENT_FRAMEWORK_TEXT_MAX])
{
    char outside[PS_BYTES_TEXT_MAX], activations[PS_BYTES_TEXT_MAX];
    const int64_t before = ps_min_i64(c->steps.outside_bytes, framework_bytes);
    snprintf(text, PS_CLIENT_FRAMEWORK_TEXT_MAX,
             "the program holds %s outside of chunks since before the step (a loaded checkpoint, say: let go of it, or "
             "load it by mmap), and activations take %s (smaller batches, checkpointing)",
             ps_bytes_format(before, outside), ps_bytes_format(framework_bytes - before, activations));
    return text;
}

static ps_status check_framework(const ps_client *c, ps_status st, int64_t framework_bytes)
{
    char text[PS_CLIENT_FRAMEWORK_TEXT_MAX], advice[PS_CLIENT_ADVICE_TEXT_MAX];
    if (st != PS_EBUDGET) return st;
    return PS_FAIL(
        st,
        "the framework itself has %lld bytes in use of the %lld that budgets leave to it and to chunks, which "
        "find no room: %s; %s would do: %s",
        (long long)framework_bytes, (long long)c->settings.budgets.bytes[PS_TIER_DEVICE],
        ps_client_framework_text(c, framework_bytes, text), ps_client_step_advice(c, framework_bytes, 0, 0, advice),
        ps_last_error());
}

/* ---- watching ---- */

static ps_status keep_label(ps_client_steps *s, const char *label, const char **out)
{
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

/* The moment that ends now took so long without waiting, and the framework had this much at its end. */
static void finish_moment(ps_client *c, int64_t framework_bytes)
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

/* What is in use when the moment begins is in use in it. */
static ps_status note_held(ps_client *c)
{
    ps_trace *t = c->steps.trace;
    memset(c->steps.wanted_bytes, 0, sizeof c->steps.wanted_bytes);
    for (int32_t i = 0; i < c->held.n; i++) {
        const ps_chunk_id id = c->held.ids[i];
        const ps_tier tier = ps_store_pin_tier(c->tiers.store, id);
        PS_TRY(ps_trace_add_access(t, id, tier, PS_ACCESS_READ));
        c->steps.wanted_bytes[tier] += ps_client_id_bytes(c, id);
    }
    return PS_OK;
}

static void unfollow(ps_client *c)
{
    c->steps.follows = c->steps.is_installed = false;
    ps_store_set_schedule(c->tiers.store, NULL);
}

bool ps_client_stop_following(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    if (s->trace == NULL || !s->follows) return false;
    unfollow(c);
    /* what the moment was foretold to want may leave now */
    return ps_store_begin_moment(c->tiers.store, s->told_bytes) == PS_OK;
}

/* continues: not the program's, but more of the one before. */
static ps_status begin_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes, bool continues)
{
    ps_client_steps *s = &c->steps;
    const ps_moment *next = foretold_moment(s);
    const bool is_foretold =
        next != NULL && next->phase == phase && next->continues == continues && strcmp(next->label, label) == 0;
    if (is_foretold)
        label = next->label;
    else
        PS_TRY(keep_label(s, label, &label));
    if (!is_foretold && s->follows) unfollow(c);
    PS_TRY(ps_trace_add_moment(s->trace, phase, label, framework_bytes, 1));
    s->trace->moments[s->trace->n_moments - 1].continues = continues;
    const ps_status noted = note_held(c);
    if (noted != PS_OK && s->follows) unfollow(c); /* the store's moment is not the trace's any more */
    PS_TRY(noted);
    ps_client_record_moment(c, phase, label, framework_bytes, true);
    s->is_recording = true;
    const int64_t bytes = is_foretold ? ps_max_i64(framework_bytes, next->non_model_bytes) : framework_bytes;
    s->told_bytes = s->step_bytes = framework_bytes;
    ps_status st = ps_store_begin_moment(c->tiers.store, bytes);
    if (st == PS_EBUDGET && c->sharing.ahead.state == PS_CLIENT_AHEAD_UNDER_WAY) {
        PS_TRY(ps_client_finish_ahead(c));
        st = ps_store_begin_moment(c->tiers.store, bytes);
    }
    if (st == PS_EBUDGET && ps_client_stop_following(c)) st = PS_OK;
    return check_framework(c, st, framework_bytes);
}

ps_status ps_client_begin_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes)
{
    ps_client_steps *s = &c->steps;
    /* a backward pass may be of a forward pass that was no part of a step: activations are there already */
    const bool has_activations = s->evaluation != NULL && phase == PS_PHASE_BACKWARD;
    finish_moment(c, framework_bytes);
    s->evaluation = NULL;
    if (s->trace == NULL) {
        PS_TRY(ps_trace_create(&s->trace));
        s->follows = s->schedule != NULL;
        if (!has_activations) s->outside_bytes = framework_bytes;
    }
    return begin_moment(c, phase, label, framework_bytes, false);
}

const ps_moment *ps_client_present_moment(const ps_client *c)
{
    const ps_client_steps *s = &c->steps;
    return s->is_recording && s->trace->n_moments > 0 ? &s->trace->moments[s->trace->n_moments - 1] : NULL;
}

void ps_client_retract_moment(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    s->trace->n_moments--;
    s->is_recording = false; /* the one before has ended */
    ps_client_unrecord_moment(c);
}

/* Which chunk's update is this? -1: it is none. Before the lists of the chunk there may be what was held. */
static int32_t updated_chunk(const ps_client *c, const ps_trace *t, const ps_moment *m)
{
    if (m->phase != PS_PHASE_UPDATE || m->n_accesses == 0) return -1;
    return ps_lists_index_of(&c->lists, c->layout, t->accesses[m->first_access + m->n_accesses - 1].chunk);
}

int32_t ps_client_foretold_update(const ps_client *c)
{
    const ps_moment *next = foretold_moment(&c->steps);
    return next != NULL ? updated_chunk(c, c->steps.foretold, next) : -1;
}

static bool has_access(const ps_trace *t, ps_chunk_id id)
{
    const ps_moment *m = &t->moments[t->n_moments - 1];
    for (int32_t i = 0; i < m->n_accesses; i++)
        if (t->accesses[m->first_access + i].chunk == id) return true;
    return false;
}

/* What a moment accesses is brought together in the next step. A program that says few moments, and uses one tensor
 * after the other within one, would find it too large; so it goes on in another one of that name when what has been let
 * go since it began begins to count. */
static bool is_too_large(const ps_client *c, ps_chunk_id id, ps_tier tier)
{
    const int64_t share = c->settings.budgets.bytes[tier] / 4;
    int64_t held = 0;
    if (c->steps.wanted_bytes[tier] + ps_client_id_bytes(c, id) <= share) return false;
    for (int32_t i = 0; i < c->held.n; i++)
        if (ps_store_pin_tier(c->tiers.store, c->held.ids[i]) == tier) held += ps_client_id_bytes(c, c->held.ids[i]);
    return held < c->steps.wanted_bytes[tier];
}

ps_status ps_client_note_access(ps_client *c, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    ps_client_steps *s = &c->steps;
    if (!s->is_recording) return PS_OK;
    if (!has_access(s->trace, id)) {
        const ps_moment *now = &s->trace->moments[s->trace->n_moments - 1];
        if (is_too_large(c, id, tier)) PS_TRY(begin_moment(c, now->phase, now->label, s->told_bytes, true));
        s->wanted_bytes[tier] += ps_client_id_bytes(c, id);
    }
    return ps_trace_add_access(s->trace, id, tier, mode);
}

/* ---- early updates ---- */

static bool uses_chunk(const ps_client *c, const ps_trace *t, const ps_moment *m, int32_t chunk)
{
    for (int32_t i = m->first_access; i < m->first_access + m->n_accesses; i++)
        if (ps_lists_index_of(&c->lists, c->layout, t->accesses[i].chunk) == chunk) return true;
    return false;
}

/* Of a moment that goes on in others, the last: the program begins none between them. */
int32_t ps_client_last_use(const ps_client *c, int32_t chunk)
{
    const ps_trace *t = c->steps.trace;
    int32_t last = t != NULL ? t->n_moments - 1 : -1;
    while (last >= c->updates.first_moment && !uses_chunk(c, t, &t->moments[last], chunk)) last--;
    if (last < c->updates.first_moment || t->moments[last].phase != PS_PHASE_BACKWARD) return -1;
    while (last + 1 < t->n_moments && t->moments[last + 1].continues) last++;
    return last + 1 < t->n_moments && ps_client_may_update_after(c, chunk, last) ? last : -1;
}

/* After which moment of the trace this one, at the step's end, could have come; -1: none. */
static int32_t could_follow(const ps_client *c, const ps_trace *t, int32_t moment)
{
    const int32_t chunk = updated_chunk(c, t, &t->moments[moment]);
    return chunk >= 0 && moment > c->updates.could_follow[chunk] ? c->updates.could_follow[chunk] : -1;
}

static ps_status copy_moment(const ps_trace *from, int32_t moment, int64_t non_model_bytes, ps_trace *to)
{
    const ps_moment *m = &from->moments[moment];
    PS_TRY(ps_trace_add_moment(to, m->phase, m->label, non_model_bytes, m->cost_ns));
    to->moments[to->n_moments - 1].continues = m->continues;
    for (int32_t i = m->first_access; i < m->first_access + m->n_accesses; i++)
        PS_TRY(ps_trace_add_access(to, from->accesses[i].chunk, from->accesses[i].tier, from->accesses[i].mode));
    return PS_OK;
}

/* Of their chunks none will wait in the next step's forward pass. */
static ps_status copy_with_early(const ps_client *c, const ps_trace *from, ps_trace *to)
{
    int32_t first = from->n_moments; /* of those that could have come sooner */
    for (int32_t i = from->n_moments - 1; i >= 0; i--)
        if (could_follow(c, from, i) >= 0) first = i;
    for (int32_t i = 0; i < from->n_moments; i++) {
        const int32_t chunk = updated_chunk(c, from, &from->moments[i]);
        const int64_t bytes = from->moments[i].non_model_bytes;
        if (chunk < 0 || c->updates.could_follow[chunk] < 0) PS_TRY(copy_moment(from, i, bytes, to));
        for (int32_t k = first; k < from->n_moments; k++)
            if (could_follow(c, from, k) == i) PS_TRY(copy_moment(from, k, bytes, to));
    }
    return PS_OK;
}

/* The trace of the step that ends, as the next one is to go. Without memory for it that stays as it was. */
static void place_early_updates(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    ps_trace *placed = NULL;
    bool has_any = false;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) has_any = has_any || c->updates.could_follow[k] >= 0;
    if (!has_any || ps_trace_create(&placed) != PS_OK) return;
    if (copy_with_early(c, s->trace, placed) == PS_OK) {
        ps_trace *old = s->trace;
        s->trace = placed;
        placed = old;
    }
    ps_trace_destroy(placed);
}

/* ---- the next step ---- */

static bool is_same(const ps_trace *a, const ps_trace *b)
{
    if (a->n_moments != b->n_moments || a->n_accesses != b->n_accesses) return false;
    for (int32_t i = 0; i < a->n_moments; i++) {
        const ps_moment *m = &a->moments[i], *n = &b->moments[i];
        if (m->phase != n->phase || m->label != n->label || m->n_accesses != n->n_accesses ||
            m->continues != n->continues)
            return false;
    }
    for (int32_t i = 0; i < a->n_accesses; i++) {
        const ps_access *x = &a->accesses[i], *y = &b->accesses[i];
        if (x->chunk != y->chunk || x->tier != y->tier || x->mode != y->mode) return false;
    }
    return true;
}

/* From the step that has just ended. Without memory for it the next one is not foretold. */
static void foretell(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    ps_schedule *schedule = NULL;
    const ps_status st = ps_schedule_create(s->trace, ps_lists_n_ids(&c->lists, c->layout), &schedule);
    ps_store_set_schedule(c->tiers.store, schedule);
    s->is_installed = st == PS_OK;
    if (!c->settings.static_partition) ps_store_limit_chunks(c->tiers.store, PS_TIER_DEVICE, INT64_MAX);
    if (s->foretold == NULL) c->n_margin = (int32_t)ps_max_i64(c->n_margin, ps_client_count_margin(c, s->trace));
    ps_schedule_destroy(s->schedule);
    ps_trace_destroy(s->foretold);
    s->schedule = schedule;
    s->foretold = s->trace;
    s->trace = NULL;
}

void ps_client_abandon_step(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    ps_trace_destroy(s->trace);
    s->trace = NULL;
    ps_client_begin_record(c);
    s->is_recording = s->follows = false;
    if (s->is_installed) ps_store_go_to(c->tiers.store, 0);
}

void ps_client_end_step(ps_client *c, bool *was_watched)
{
    ps_client_steps *s = &c->steps;
    *was_watched = false;
    s->evaluation = NULL;
    ps_client_record_step(c);
    ps_client_begin_record(c);
    if (s->trace == NULL) return;
    finish_moment(c, s->step_bytes);
    s->is_recording = false;
    place_early_updates(c);
    if (s->trace->n_moments > 0 && (s->foretold == NULL || !is_same(s->trace, s->foretold))) {
        *was_watched = true;
        foretell(c);
    } else if (!s->is_installed && s->schedule != NULL) {
        ps_store_set_schedule(c->tiers.store, s->schedule);
        s->is_installed = true;
    }
    ps_trace_destroy(s->trace);
    s->trace = NULL;
}

void ps_client_steps_deinit(ps_client_steps *s)
{
    ps_schedule_destroy(s->schedule);
    ps_trace_destroy(s->foretold);
    ps_trace_destroy(s->trace);
    for (size_t i = 0; i < s->n_labels; i++) ps_mem_free(s->labels[i]);
    ps_mem_free(s->labels);
    ps_resident_close(&s->resident);
}

/* ---- beside a step ---- */

/* A pass of an evaluation begins with the label that the first one began with. All ranks begin it together, also where
 * the parameters are here already: else one rank alone could evaluate a small model, and no larger one. */
static ps_status begin_pass(ps_client *c, const char *label, int64_t framework_bytes)
{
    ps_client_steps *s = &c->steps;
    if (s->evaluation == NULL) s->evaluation = label;
    if (s->evaluation != label) return PS_OK;
    if (s->trace == NULL) s->outside_bytes = framework_bytes;
    return ps_client_break(c, ps_client_announce_evaluation(c));
}

/* Nothing is foretold of it, and the step is foretold as before: what is there stays as the step wants it, as far as there
 * is room beside what the framework has. */
static ps_status begin_aside(ps_client *c, const char *label, int64_t framework_bytes, bool is_measured)
{
    ps_client_steps *s = &c->steps;
    finish_moment(c, framework_bytes);
    s->is_recording = false;
    PS_TRY(keep_label(s, label, &label));
    PS_TRY(begin_pass(c, label, framework_bytes));
    ps_status st = ps_store_claim_aside(c->tiers.store, framework_bytes);
    if (st == PS_EBUDGET && is_measured) {
        PS_TRY(measure_trimmed(c, &framework_bytes));
        st = ps_store_claim_aside(c->tiers.store, framework_bytes);
    }
    PS_TRY(check_framework(c, st, framework_bytes));
    s->told_bytes = framework_bytes;
    ps_client_record_moment(c, PS_PHASE_FORWARD, label, framework_bytes, false);
    return PS_OK;
}

/* ---- from outside ---- */

static ps_status moment(ps_client *c, ps_client_phase phase, const char *label, int64_t framework_bytes)
{
    const bool is_measured = framework_bytes == PS_CLIENT_MEASURE;
    if (phase < PS_CLIENT_FORWARD || phase > PS_CLIENT_ASIDE)
        return PS_FAIL(PS_EINVAL, "ps_client_moment: %d is no ps_client_phase", (int)phase);
    if (framework_bytes < PS_CLIENT_MEASURE)
        return PS_FAIL(PS_EINVAL, "ps_client_moment: %lld bytes; PS_CLIENT_MEASURE is %d", (long long)framework_bytes,
                       PS_CLIENT_MEASURE);
    if (is_measured && c->settings.backend_kind == PS_BACKEND_CUDA)
        return PS_FAIL(PS_EINVAL, "ps_client_moment: what a framework has of a GPU's memory only it can tell");
    if (is_measured) PS_TRY(measure(c, &framework_bytes));
    if (phase == PS_CLIENT_ASIDE) PS_TRY(ps_client_tell_ranks(c, ps_client_flush(c)));
    if (phase == PS_CLIENT_ASIDE) return begin_aside(c, label, framework_bytes, is_measured);
    PS_TRY(ps_client_tell_ranks(c, ps_client_update_as_foretold(c, framework_bytes)));
    PS_TRY(ps_client_begin_moment(c, phase == PS_CLIENT_FORWARD ? PS_PHASE_FORWARD : PS_PHASE_BACKWARD, label,
                                  framework_bytes));
    return c->sharing.ahead.state == PS_CLIENT_AHEAD_POSTPONED ? ps_client_gather_ahead(c) : PS_OK;
}

ps_status ps_client_moment(ps_client *c, ps_client_phase phase, const char *label, int64_t framework_bytes)
{
    PS_TRY(PS_NEED("client label", c, label));
    PS_TRY(ps_client_enter(c, "ps_client_moment", PS_CLIENT_IS_READY));
    const ps_status st = moment(c, phase, label, framework_bytes);
    ps_client_leave(c);
    return st;
}
