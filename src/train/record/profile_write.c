#include "train/record/profile_write.h"

#include "base/text_out.h"
#include "chunk/reason.h"
#include "chunk/sim_lanes.h"
#include "train/record/profile_throughput.h"
#include "train/run/bound.h"

/* Rows of the picture ("threads" of the format). */
enum {
    TID_STEPS,
    TID_PHASES,
    TID_COMPUTE,
    TID_WAITS,
    TID_LINKS,
    TID_COLLECTIVES = TID_LINKS + PS_LINK_COLLECTIVES,
    TID_CHUNKS = TID_LINKS + PS_LINK_COUNT,
    TID_HOST, /* computing on the host in parallel with an asynchronous device */
    TID_COUNT
};

typedef struct writer {
    ps_text_out *j;
    const ps_profile *p;
    const ps_profile_facts *facts;
    const ps_profile_chunks *chunks;
    ps_profile_sum sum;
    ps_profile_throughput throughput[PS_THROUGHPUT_COUNT];
} writer;

/* ---- events: each begins with a comma; the metadata come first ---- */

/* In microseconds, as the format has times. */
static void put_time(writer *w, const char *key, int64_t ns)
{
    ps_text_out_format(w->j, ",\"%s\":", key);
    ps_text_out_fixed(w->j, ns, 3);
}

/* Times count from when recording began. */
static void begin_event(writer *w, const char *type, int tid, const char *category, int64_t begin_ns)
{
    ps_text_out_format(w->j, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"cat\":\"%s\"", type, w->facts->rank, tid,
                       category);
    put_time(w, "ts", begin_ns - ps_profile_begin_ns(w->p));
}

static void begin_span(writer *w, int tid, const char *category, int64_t begin_ns, int64_t end_ns)
{
    begin_event(w, "X", tid, category, begin_ns);
    put_time(w, "dur", end_ns - begin_ns);
}

/* Updates are "adam" in the file, whichever optimizer makes them: doc/profile.md. */
static const char *phase_name(ps_phase phase)
{
    return phase == PS_PHASE_UPDATE ? "adam" : ps_phase_name(phase);
}

static const char *list_of(const writer *w, int32_t chunk)
{
    const ps_profile_chunks *c = w->chunks;
    return c->lists.list[ps_lists_list_of(&c->lists, c->layout, chunk)].name;
}

static int index_of(const writer *w, int32_t chunk)
{
    return ps_lists_index_of(&w->chunks->lists, w->chunks->layout, chunk);
}

static void put_step(writer *w, const ps_profile_record *r)
{
    const ps_profile_span span = ps_profile_work_span(&w->sum, r);
    begin_span(w, TID_STEPS, "step", span.begin_ns, span.end_ns);
    ps_text_out_format(w->j, ",\"name\":\"step %lld\",\"args\":{\"step\":%lld", (long long)r->step.number,
                       (long long)r->step.number);
    if (r->step.n_speculated > 0)
        ps_text_out_format(w->j, ",\"speculated\":%d,\"taken_back\":%d", r->step.n_speculated, r->step.n_taken_back);
    if (r->step.recomputed) ps_text_out_format(w->j, ",\"recomputed\":true");
    ps_text_out_format(w->j, "}}");
}

/* Computed by the host in parallel with the device. */
static bool is_separate(const ps_profile_record *r)
{
    return r->marks.link == ps_work_link(PS_TIER_HOST) && r->marks.last != 0;
}

static void put_op(writer *w, const ps_profile_record *r)
{
    const ps_profile_span span = ps_profile_work_span(&w->sum, r);
    begin_span(w, is_separate(r) ? TID_HOST : TID_COMPUTE, "op", span.begin_ns, span.end_ns);
    ps_text_out_format(w->j, ",\"name\":");
    ps_text_out_json(w->j, r->op.label);
    ps_text_out_format(w->j, ",\"args\":{\"moment\":%d,\"phase\":\"%s\",\"step\":%lld,\"non_model_bytes\":%lld",
                       r->op.moment, phase_name((ps_phase)r->op.phase), (long long)r->op.step,
                       (long long)r->op.non_model_bytes);
    if (r->chunk >= 0) ps_text_out_format(w->j, ",\"chunk\":%d", r->chunk);
    if (r->op.is_recompute) ps_text_out_format(w->j, ",\"recompute\":true");
    ps_text_out_format(w->j, "}}");
}

static void put_wait(writer *w, const ps_profile_record *r)
{
    begin_span(w, TID_WAITS, "wait", r->begin_ns, r->end_ns);
    const char *link = ps_sim_lane_name(r->copy.link);
    if (r->chunk < 0) {
        ps_text_out_format(w->j, ",\"name\":\"wait for %s\",\"args\":{\"link\":\"%s\"}}", link, link);
        return;
    }
    ps_text_out_format(w->j, ",\"name\":\"wait for %s %d\",\"args\":{\"chunk\":%d,\"link\":\"%s\"}}",
                       list_of(w, r->chunk), index_of(w, r->chunk), r->chunk, link);
}

static void put_copy(writer *w, const ps_profile_record *r)
{
    const ps_profile_span span = ps_profile_copy_span(&w->sum, r);
    begin_span(w, TID_LINKS + r->copy.link, "copy", span.begin_ns, span.end_ns);
    ps_text_out_format(w->j, ",\"name\":\"%s %d\",\"args\":{\"chunk\":%d,\"list\":\"%s\",\"index\":%d,\"bytes\":%lld",
                       list_of(w, r->chunk), index_of(w, r->chunk), r->chunk, list_of(w, r->chunk),
                       index_of(w, r->chunk), (long long)r->copy.bytes);
    ps_text_out_format(w->j, ",\"from\":\"%s\",\"to\":\"%s\",\"reason\":\"%s\"}}", ps_tier_name((ps_tier)r->copy.from),
                       ps_tier_name((ps_tier)r->copy.to), ps_reason_name((ps_reason)r->copy.reason));
}

static void put_collective(writer *w, const ps_profile_record *r)
{
    begin_span(w, TID_COLLECTIVES, "collective", r->begin_ns, r->end_ns);
    ps_text_out_format(w->j, ",\"name\":");
    ps_text_out_json(w->j, r->collective.name);
    ps_text_out_format(w->j, ",\"args\":{\"bytes\":%lld,\"group\":", (long long)r->collective.bytes);
    ps_text_out_json(w->j, r->collective.group);
    ps_text_out_format(w->j, "}}");
}

static void put_place(writer *w, const ps_profile_record *r)
{
    begin_event(w, "i", TID_CHUNKS, "chunk", r->begin_ns);
    ps_text_out_format(w->j, ",\"s\":\"t\",\"name\":\"%s\",\"args\":{\"chunk\":%d,\"tier\":\"%s\",\"reason\":\"%s\"}}",
                       r->kind == PS_PROFILE_ARRIVE ? "place" : "leave", r->chunk,
                       ps_tier_name((ps_tier)r->residency.tier), ps_reason_name((ps_reason)r->residency.reason));
}

static void put_memory(writer *w, const ps_profile_record *r)
{
    const ps_tier tier = (ps_tier)r->memory.tier;
    begin_event(w, "C", 0, "memory", r->begin_ns);
    ps_text_out_format(w->j, ",\"name\":\"%s bytes\",\"args\":{\"chunks\":%lld", ps_tier_name(tier),
                       (long long)r->memory.chunk_bytes);
    if (tier == PS_TIER_DEVICE) ps_text_out_format(w->j, ",\"non_model\":%lld", (long long)r->memory.non_model_bytes);
    if (tier != PS_TIER_DISK) ps_text_out_format(w->j, ",\"other\":%lld", (long long)r->memory.other_bytes);
    ps_text_out_format(w->j, "}}");
}

static void put_record(writer *w, const ps_profile_record *r)
{
    switch (r->kind) {
    case PS_PROFILE_STEP: put_step(w, r); break;
    case PS_PROFILE_OP: put_op(w, r); break;
    case PS_PROFILE_WAIT: put_wait(w, r); break;
    case PS_PROFILE_COPY: put_copy(w, r); break;
    case PS_PROFILE_MOVED:
    case PS_PROFILE_MARK: break; /* written with its COPY, its OP */
    case PS_PROFILE_COLLECTIVE: put_collective(w, r); break;
    case PS_PROFILE_ARRIVE:
    case PS_PROFILE_LEAVE: put_place(w, r); break;
    case PS_PROFILE_MEMORY: put_memory(w, r); break;
    }
}

static void put_metadata(writer *w)
{
    const int rank = w->facts->rank;
    ps_text_out_format(w->j, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}",
                       rank, rank);
    for (int tid = TID_STEPS; tid < TID_COUNT; tid++) {
        static const char *const names[] = {
            [TID_STEPS] = "steps", [TID_PHASES] = "phases", [TID_COMPUTE] = "compute",
            [TID_WAITS] = "waits", [TID_CHUNKS] = "chunks", [TID_HOST] = "host compute"};
        const char *name = names[tid] != NULL ? names[tid] : ps_link_name((ps_link)(tid - TID_LINKS));
        ps_text_out_format(
            w->j, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", rank,
            tid, name);
        ps_text_out_format(
            w->j, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
            rank, tid, tid);
    }
}

/* ---- phases: the moments of one phase that follow each other ---- */

typedef struct phase_span {
    int phase;    /* -1: none yet */
    int64_t step; /* index in sum.steps; n_steps: outside of any */
    int64_t begin_ns, end_ns;
} phase_span;

static void put_phase(writer *w, const phase_span *s)
{
    if (s->phase < 0) return;
    begin_span(w, TID_PHASES, "phase", s->begin_ns, s->end_ns);
    ps_text_out_format(w->j, ",\"name\":\"%s\"}", phase_name((ps_phase)s->phase));
}

/* A step is phases from its begin to its end: time between two moments belongs to the later one's phase. */
static void put_phases(writer *w)
{
    const ps_profile_sum *sum = &w->sum;
    phase_span now = {.phase = -1};
    for (int64_t i = 0, from = 0; i < ps_profile_count(w->p); i++) {
        const ps_profile_record *r = ps_profile_at(w->p, i);
        if (r->kind != PS_PROFILE_OP || is_separate(r)) continue;
        const ps_profile_span span = ps_profile_work_span(sum, r);
        const int64_t step = ps_profile_step_at(sum, from, span.begin_ns);
        if (step < sum->n_steps) from = step;
        if (now.phase < 0 || step != now.step) {
            if (now.phase >= 0 && now.step < sum->n_steps) now.end_ns = sum->step_spans[now.step].end_ns;
            put_phase(w, &now);
            now = (phase_span){.phase = r->op.phase,
                               .step = step,
                               .begin_ns = step < sum->n_steps ? sum->step_spans[step].begin_ns : span.begin_ns};
        } else if (r->op.phase != now.phase) {
            put_phase(w, &now);
            now.phase = r->op.phase;
            now.begin_ns = now.end_ns;
        }
        now.end_ns = span.end_ns;
    }
    if (now.phase >= 0 && now.step < sum->n_steps) now.end_ns = sum->step_spans[now.step].end_ns;
    put_phase(w, &now);
}

/* ---- facts of the run ---- */

static bool is_planned(const writer *w)
{
    return w->facts->exec_plan != NULL;
}

static void put_tensors(writer *w, int32_t index)
{
    const ps_profile_chunks *c = w->chunks;
    for (int32_t i = c->pieces.first[index]; i < c->pieces.first[index + 1]; i++) {
        if (i > c->pieces.first[index]) ps_text_out_format(w->j, ",");
        ps_text_out_json(w->j, c->names[c->pieces.all[i].tensor]);
    }
}

static void put_chunks(writer *w)
{
    const ps_profile_chunks *c = w->chunks;
    const char *separator = "";
    for (ps_list list = 0; list < ps_lists_n_all(&c->lists); list++)
        for (int32_t i = 0; i < ps_lists_length(&c->lists, c->layout, list); i++) {
            const ps_chunk_id id = ps_store_chunk(c->layout, list, i);
            if (!c->is_there[id]) continue;
            const int64_t bytes = ps_round_up(ps_lists_chunk_bytes(&c->lists, c->layout, list), c->page_bytes);
            ps_text_out_format(w->j, "%s\n  {\"id\":%d,\"list\":\"%s\",\"index\":%d,\"bytes\":%lld,\"tensors\":[",
                               separator, id, c->lists.list[list].name, i, (long long)bytes);
            if (!ps_lists_is_standalone(&c->lists, list)) put_tensors(w, i);
            ps_text_out_format(w->j, "]}");
            separator = ",";
        }
}

static void put_tier_bytes(writer *w, const char *key, const int64_t bytes[PS_TIER_COUNT])
{
    ps_text_out_format(w->j, "\"%s\":{\"device\":%lld,\"host\":%lld,\"disk\":%lld}", key,
                       (long long)bytes[PS_TIER_DEVICE], (long long)bytes[PS_TIER_HOST],
                       (long long)bytes[PS_TIER_DISK]);
}

static void put_link_bytes(writer *w, const int64_t bytes[PS_LINK_COUNT])
{
    ps_text_out_format(w->j, "\"moved_bytes\":{");
    for (int link = 0; link < PS_LINK_COUNT; link++)
        ps_text_out_format(w->j, "%s\"%s\":%lld", link > 0 ? "," : "", ps_link_name((ps_link)link),
                           (long long)bytes[link]);
    ps_text_out_format(w->j, "}");
}

static void put_predicted(writer *w)
{
    const ps_step_time *t = &w->facts->forecast->step;
    ps_text_out_format(w->j, "\n \"predicted\":{\"step_seconds\":");
    ps_text_out_fixed(w->j, t->all_ns, 9);
    ps_text_out_format(w->j, ",\"critical\":\"%s\",\"busy_seconds\":{\"compute\":", ps_step_time_critical(t));
    ps_text_out_fixed(w->j, t->compute_ns + t->lost_ns, 9);
    for (int link = 0; link < PS_LINK_COUNT; link++) {
        ps_text_out_format(w->j, ",\"%s\":", ps_link_name((ps_link)link));
        ps_text_out_fixed(w->j, t->busy_ns[link], 9);
    }
    ps_text_out_format(w->j, "},");
    put_tier_bytes(w, "peak_bytes", w->facts->forecast->peak_bytes);
    ps_text_out_format(w->j, ",");
    put_link_bytes(w, w->facts->forecast->moved_bytes);
    ps_text_out_format(w->j, "}");
}

static void put_measured(writer *w)
{
    const ps_profile_sum *s = &w->sum;
    ps_text_out_format(w->j, "\n \"measured\":{\"step_seconds\":");
    ps_text_out_fixed(w->j, s->step_ns, 9);
    ps_text_out_format(w->j, ",\"critical\":\"%s\",\"busy_seconds\":{", ps_profile_lane_name(s->critical));
    for (int lane = 0; lane < PS_LANE_COUNT; lane++) {
        ps_text_out_format(w->j, "%s\"%s\":", lane > 0 ? "," : "", ps_profile_lane_name(lane));
        ps_text_out_fixed(w->j, s->busy_ns[lane], 9);
    }
    ps_text_out_format(w->j, "},");
    put_tier_bytes(w, "peak_bytes", s->peak_bytes);
    ps_text_out_format(w->j, ",");
    put_link_bytes(w, s->moved_bytes);
    ps_text_out_format(w->j, "}");
}

static void put_bound(writer *w)
{
    const ps_bound b = ps_bound_of_plan(w->facts->exec_plan, w->facts->forecast);
    const char *separator = "";
    ps_text_out_format(w->j, "\n \"bound\":{\"by\":\"%s\",\"seconds\":{", ps_bound_part_name(b.by));
    for (ps_bound_part p = 0; p < PS_BOUND_COUNT; p++) {
        if (b.part_ns[p] == 0) continue;
        ps_text_out_format(w->j, "%s\"%s\":", separator, ps_bound_part_name(p));
        ps_text_out_fixed(w->j, b.part_ns[p], 9);
        separator = ",";
    }
    if (b.phases_ns > 0) {
        ps_text_out_format(w->j, "%s\"%s\":", separator, ps_bound_phases_name);
        ps_text_out_fixed(w->j, b.phases_ns, 9);
    }
    ps_text_out_format(w->j, "}}");
}

/* Only of kinds that the steps contain. */
static void put_throughput(writer *w)
{
    const char *separator = "";
    ps_text_out_format(w->j, "\n \"rates\":[");
    for (int kind = 0; kind < PS_THROUGHPUT_COUNT; kind++) {
        const ps_profile_throughput *r = &w->throughput[kind];
        if (r->measured_ns == 0) continue;
        ps_text_out_format(w->j, "%s\n  {\"of\":\"%s\",\"unit\":\"%s\",\"reckoned\":%.6g,\"seen\":%.6g}", separator,
                           ps_profile_throughput_name(kind), ps_profile_throughput_unit(kind), r->reckoned, r->seen);
        separator = ",";
    }
    ps_text_out_format(w->j, "]");
}

static void put_facts(writer *w)
{
    const ps_profile_facts *f = w->facts;
    const ps_profile_sum *s = &w->sum;
    const ps_layout *l = w->chunks->layout;
    const int64_t first = s->n_steps > 0 ? s->steps[0]->step.number : 0;
    const int64_t last = s->n_steps > 0 ? s->steps[s->n_steps - 1]->step.number : 0;
    ps_text_out_format(w->j, "\"patrickstar\":{\"version\":1,\"simulated\":%s,\"rank\":%d,\"n_ranks\":%d,\n \"title\":",
                       f->simulated ? "true" : "false", f->rank, f->n_ranks);
    ps_text_out_json(w->j, f->title);
    ps_text_out_format(w->j, ",\"begin_ns\":0,\"steps\":[%lld,%lld],\n ", (long long)first, (long long)last);
    put_tier_bytes(w, "budgets", f->budgets.bytes);
    ps_text_out_format(w->j, ",\n \"chunk_elements\":%lld,\"n_chunks\":%d,\"n_lists\":%d,\"waste\":",
                       (long long)l->chunk_elements, l->n_chunks, w->chunks->lists.n);
    ps_text_out_fixed(w->j, (int64_t)(ps_layout_waste(l) * 1e6), 6);
    ps_text_out_format(w->j, ",\n \"chunks\":[");
    put_chunks(w);
    ps_text_out_format(w->j, "],");
    if (is_planned(w)) {
        put_predicted(w);
        ps_text_out_format(w->j, ",");
    }
    put_measured(w);
    if (is_planned(w)) {
        ps_text_out_format(w->j, ",");
        put_bound(w);
        ps_text_out_format(w->j, ",");
        put_throughput(w);
    }
    ps_text_out_format(w->j, "}");
}

static ps_status write_file(writer *w, const char *path)
{
    ps_text_out out;
    w->j = &out;
    PS_TRY(ps_text_out_open(w->j, path));
    ps_text_out_format(w->j, "{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[\n");
    put_metadata(w);
    put_phases(w);
    for (int64_t i = 0; i < ps_profile_count(w->p); i++) put_record(w, ps_profile_at(w->p, i));
    ps_text_out_format(w->j, "],\n");
    put_facts(w);
    ps_text_out_format(w->j, "}\n");
    return ps_text_out_close(w->j);
}

ps_status ps_profile_write(const ps_profile *p, const ps_profile_facts *facts, const char *path)
{
    ps_status st = PS_OK;
    ps_profile_chunks planned = {0};
    writer w = {.p = p, .facts = facts, .chunks = facts->chunks};
    if (ps_profile_count(p) == 0) return PS_FAIL(PS_ESTATE, "%s: nothing was recorded", path);
    PS_TRY(ps_profile_sum_init(&w.sum, p));
    if (is_planned(&w)) {
        PS_TRY_GOTO(ps_profile_throughput_find(&w.sum, facts->exec_plan, facts->forecast, w.throughput));
        PS_TRY_GOTO(ps_profile_chunks_init_planned(facts->exec_plan, &planned));
        w.chunks = &planned;
    }
    st = write_file(&w, path);
out:
    ps_profile_chunks_deinit(&planned);
    ps_profile_sum_deinit(&w.sum);
    return st;
}
