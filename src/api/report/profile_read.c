/* profile_read.c - a profile's file into memory; what it says is checked before it is used. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/report/member.h"
#include "api/report/profile_read.h"
#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"

#define PROFILE_BYTES_MAX (512 * PS_MIB)
#define PROFILE_VERSION 1

/* A hundred days in microseconds: nanoseconds then stay far from the end of int64_t, and exact in a double. */
#define TIME_US_MAX 8.64e12
#define BYTES_MAX ((int64_t)1 << 60)
#define SECONDS_MAX 1e9
#define RATE_MAX 1e21

const char *const ps_report_profile_tier_names[PS_REPORT_N_TIERS] = {"device", "host", "disk"};
const char *const ps_report_profile_lane_names[PS_REPORT_N_LANES] = {
    "steps",     "phases",     "compute",     "waits",  "host->device", "device->host",
    "disk read", "disk write", "collectives", "chunks", "host compute"};
const char *const ps_report_profile_phase_names[PS_REPORT_N_PHASES] = {"forward", "backward", "adam"};
const char *const ps_report_profile_reason_names[PS_REPORT_N_REASONS] = {"wanted", "prefetch", "write back"};

static const char *const counter_names[PS_REPORT_N_TIERS] = {"device bytes", "host bytes", "disk bytes"};
static const char *const category_names[] = {"step", "phase", "op", "wait", "copy", "collective"};

typedef struct reader {
    ps_member_place at;
    ps_report_profile *p;
    int *chunk_of_id;             /* into p->chunks, or -1 */
    int n_ids, n_layout, n_lists; /* ids; chunks of a list; lists of tensors */
} reader;

static ps_status read_chunk_id(const reader *r, const json_t *args, int *out)
{
    int id;
    *out = -1;
    PS_TRY(ps_member_int(&r->at, args, "chunk", 0, r->n_ids - 1, &id));
    *out = r->chunk_of_id[id];
    if (*out >= 0) return PS_OK;
    return ps_member_unexpected(&r->at, "chunk", "the id of a chunk of patrickstar.chunks",
                                json_object_get(args, "chunk"));
}

/* ---- facts ---- */

static ps_status read_tensors(const reader *r, const json_t *object, ps_report_profile_chunk *c)
{
    const json_t *names;
    PS_TRY(ps_member_array(&r->at, object, "tensors", &names));
    const size_t n = json_array_size(names);
    PS_TRY(ps_mem_alloc(n, sizeof *c->tensors, &c->tensors));
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name == NULL) return ps_member_unexpected(&r->at, "tensors", "names", json_array_get(names, i));
        PS_TRY(ps_mem_strdup(name, &c->tensors[i]));
        c->n_tensors = (int)i + 1;
    }
    return PS_OK;
}

/* The name of a chunk's list, which all chunks of that number share. */
static ps_status read_list(reader *r, const json_t *object, int number)
{
    const char *name;
    char expected[PS_REPORT_LIST_NAME_MAX + 40];
    char *known = r->p->list_names[number];
    PS_TRY(ps_member_string(&r->at, object, "list", &name));
    if (known[0] != '\0' && strcmp(name, known) != 0) {
        snprintf(expected, sizeof expected, "'%s' as of the chunks before it", known);
        return ps_member_unexpected(&r->at, "list", expected, json_object_get(object, "list"));
    }
    if (name[0] == '\0' || strlen(name) >= PS_REPORT_LIST_NAME_MAX)
        return ps_member_unexpected(&r->at, "list", "a short name", json_object_get(object, "list"));
    strcpy(known, name);
    return PS_OK;
}

static ps_status read_chunk(reader *r, const json_t *object, int i)
{
    ps_report_profile_chunk *c = &r->p->chunks[i];
    int id;
    snprintf(r->at.where, sizeof r->at.where, "patrickstar.chunks[%d]", i);
    PS_TRY(ps_member_int(&r->at, object, "id", 0, r->n_ids - 1, &id));
    c->list = (int)ps_min_i64(id / r->n_layout, r->n_lists); /* n_chunks to each; then those apart */
    PS_TRY(read_list(r, object, c->list));
    r->p->n_standalone_chunks += c->list == r->n_lists;
    PS_TRY(ps_member_int(&r->at, object, "index", 0, r->p->n_chunks - 1, &c->index));
    PS_TRY(ps_member_integer(&r->at, object, "bytes", 0, BYTES_MAX, &c->bytes));
    if (r->chunk_of_id[id] >= 0)
        return ps_member_unexpected(&r->at, "id", "an id of its own", json_object_get(object, "id"));
    r->chunk_of_id[id] = i;
    return read_tensors(r, object, c);
}

static ps_status read_chunks(reader *r, const json_t *facts)
{
    const json_t *chunks;
    ps_report_profile *p = r->p;
    PS_TRY(ps_member_array(&r->at, facts, "chunks", &chunks));
    /* a list has at most n_chunks of them, and the first one has all: so this also bounds the table of ids */
    const int n = (int)ps_min_i64((int64_t)json_array_size(chunks), INT32_MAX / PS_REPORT_LISTS_MAX);
    PS_TRY(ps_member_int(&r->at, facts, "n_chunks", 0, n, &r->n_layout));
    r->n_lists = PS_REPORT_LISTS_MAX - 1; /* in older files there are none apart */
    if (json_object_get(facts, "n_lists") != NULL)
        PS_TRY(ps_member_int(&r->at, facts, "n_lists", 1, PS_REPORT_LISTS_MAX - 1, &r->n_lists));
    r->n_ids = r->n_layout == 0 ? 0 : (r->n_layout * r->n_lists + n);
    PS_TRY(ps_mem_alloc((size_t)r->n_ids, sizeof *r->chunk_of_id, &r->chunk_of_id));
    for (int i = 0; i < r->n_ids; i++) r->chunk_of_id[i] = -1;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *p->chunks, &p->chunks));
    p->n_chunks = n;
    for (int i = 0; i < n; i++) PS_TRY(read_chunk(r, json_array_get(chunks, (size_t)i), i));
    return PS_OK;
}

static ps_status read_budgets(const reader *r, const json_t *facts)
{
    const json_t *budgets;
    PS_TRY(ps_member_object(&r->at, facts, "budgets", &budgets));
    for (int i = 0; i < PS_REPORT_N_TIERS; i++)
        PS_TRY(
            ps_member_integer(&r->at, budgets, ps_report_profile_tier_names[i], 0, INT64_MAX, &r->p->budget_bytes[i]));
    return PS_OK;
}

static ps_status read_steps(const reader *r, const json_t *facts)
{
    const json_t *steps;
    ps_report_profile *p = r->p;
    PS_TRY(ps_member_array(&r->at, facts, "steps", &steps));
    if (json_array_size(steps) != 2) return ps_member_unexpected(&r->at, "steps", "two integers", steps);
    PS_TRY(ps_member_check_integer(&r->at, json_array_get(steps, 0), "steps", 0, INT64_MAX, &p->first_step));
    return ps_member_check_integer(&r->at, json_array_get(steps, 1), "steps", p->first_step, INT64_MAX, &p->last_step);
}

static void forget_account(ps_report_profile_account *a)
{
    *a = (ps_report_profile_account){.step_seconds = -1};
    for (int i = 0; i < PS_REPORT_N_LANES; i++) a->busy_seconds[i] = -1, a->moved_bytes[i] = -1;
    for (int i = 0; i < PS_REPORT_N_TIERS; i++) a->peak_bytes[i] = -1;
}

/* Sizes under names, each of which may be missing. */
static ps_status read_sizes(const reader *r, const json_t *account, const char *key, const char *const *names, int n,
                            int64_t *out)
{
    const json_t *sizes;
    if (!ps_member_is_given(json_object_get(account, key))) return PS_OK;
    PS_TRY(ps_member_object(&r->at, account, key, &sizes));
    for (int i = 0; i < n; i++)
        if (ps_member_is_given(json_object_get(sizes, names[i])))
            PS_TRY(ps_member_integer(&r->at, sizes, names[i], 0, BYTES_MAX, &out[i]));
    return PS_OK;
}

static ps_status read_account(reader *r, const json_t *facts, const char *key, ps_report_profile_account *a)
{
    const json_t *account, *busy = NULL;
    const char *critical;
    forget_account(a);
    if (!ps_member_is_given(json_object_get(facts, key))) return PS_OK;
    PS_TRY(ps_member_object(&r->at, facts, key, &account));
    snprintf(r->at.where, sizeof r->at.where, "patrickstar.%s", key);
    if (ps_member_is_given(json_object_get(account, "step_seconds")))
        PS_TRY(ps_member_number(&r->at, account, "step_seconds", SECONDS_MAX, &a->step_seconds));
    if (ps_member_is_given(json_object_get(account, "critical"))) {
        PS_TRY(ps_member_string(&r->at, account, "critical", &critical));
        PS_TRY(ps_mem_strdup(critical, &a->critical));
    }
    if (ps_member_is_given(json_object_get(account, "busy_seconds")))
        PS_TRY(ps_member_object(&r->at, account, "busy_seconds", &busy));
    for (int i = 0; busy != NULL && i < PS_REPORT_N_LANES; i++)
        if (ps_member_is_given(json_object_get(busy, ps_report_profile_lane_names[i])))
            PS_TRY(ps_member_number(&r->at, busy, ps_report_profile_lane_names[i], SECONDS_MAX, &a->busy_seconds[i]));
    PS_TRY(read_sizes(r, account, "moved_bytes", ps_report_profile_lane_names, PS_REPORT_N_LANES, a->moved_bytes));
    return read_sizes(r, account, "peak_bytes", ps_report_profile_tier_names, PS_REPORT_N_TIERS, a->peak_bytes);
}

static ps_status read_bound(reader *r, const json_t *facts)
{
    ps_report_profile_bound *b = &r->p->bound;
    const json_t *bound, *parts;
    const char *name;
    json_t *part;
    char by[PS_REPORT_NAME_MAX];
    if (!ps_member_is_given(json_object_get(facts, "bound"))) return PS_OK;
    PS_TRY(ps_member_object(&r->at, facts, "bound", &bound));
    snprintf(r->at.where, sizeof r->at.where, "patrickstar.bound");
    PS_TRY(ps_member_short(&r->at, bound, "by", by, PS_REPORT_NAME_MAX));
    PS_TRY(ps_member_object(&r->at, bound, "seconds", &parts));
    b->by = -1;
    json_object_foreach((json_t *)(uintptr_t)parts, name, part)
    {
        if (b->n == PS_REPORT_PARTS_MAX || strlen(name) >= PS_REPORT_NAME_MAX)
            return ps_member_unexpected(&r->at, "seconds", "a few short names", parts);
        PS_TRY(ps_member_number(&r->at, parts, name, SECONDS_MAX, &b->seconds[b->n]));
        strcpy(b->names[b->n], name);
        if (strcmp(name, by) == 0) b->by = b->n;
        b->n++;
    }
    return b->by >= 0 ? PS_OK
                      : ps_member_unexpected(&r->at, "by", "a name of the seconds", json_object_get(bound, "by"));
}

static ps_status read_throughput(reader *r, const json_t *facts)
{
    const json_t *throughput;
    ps_report_profile *p = r->p;
    if (!ps_member_is_given(json_object_get(facts, "rates"))) return PS_OK;
    snprintf(r->at.where, sizeof r->at.where, "patrickstar");
    PS_TRY(ps_member_array(&r->at, facts, "rates", &throughput));
    if (json_array_size(throughput) > PS_REPORT_THROUGHPUTS_MAX)
        return ps_member_unexpected(&r->at, "rates", "at most 16 of them", throughput);
    for (size_t i = 0; i < json_array_size(throughput); i++) {
        const json_t *rate = json_array_get(throughput, i);
        snprintf(r->at.where, sizeof r->at.where, "patrickstar.rates[%zu]", i);
        PS_TRY(ps_member_short(&r->at, rate, "of", p->throughput[i].of, PS_REPORT_NAME_MAX));
        PS_TRY(ps_member_short(&r->at, rate, "unit", p->throughput[i].unit, PS_REPORT_NAME_MAX));
        PS_TRY(ps_member_number(&r->at, rate, "reckoned", RATE_MAX, &p->throughput[i].reckoned));
        PS_TRY(ps_member_number(&r->at, rate, "seen", RATE_MAX, &p->throughput[i].seen));
        p->n_throughputs = (int)i + 1;
    }
    return PS_OK;
}

static ps_status read_facts(reader *r, const json_t *root)
{
    const json_t *facts;
    const char *title;
    ps_report_profile *p = r->p;
    int version;
    snprintf(r->at.where, sizeof r->at.where, "the top object");
    PS_TRY(ps_member_object(&r->at, root, "patrickstar", &facts));
    snprintf(r->at.where, sizeof r->at.where, "patrickstar");
    PS_TRY(ps_member_int(&r->at, facts, "version", PROFILE_VERSION, PROFILE_VERSION, &version));
    const json_t *simulated = json_object_get(facts, "simulated");
    if (!json_is_boolean(simulated)) return ps_member_unexpected(&r->at, "simulated", "true or false", simulated);
    p->is_simulated = json_is_true(simulated);
    PS_TRY(ps_member_int(&r->at, facts, "n_ranks", 1, INT32_MAX, &p->n_ranks));
    PS_TRY(ps_member_int(&r->at, facts, "rank", 0, p->n_ranks - 1, &p->rank));
    PS_TRY(ps_member_string(&r->at, facts, "title", &title));
    PS_TRY(ps_mem_strdup(title, &p->title));
    PS_TRY(read_steps(r, facts));
    PS_TRY(read_budgets(r, facts));
    PS_TRY(ps_member_integer(&r->at, facts, "chunk_elements", 0, BYTES_MAX, &p->chunk_elements));
    p->waste = -1;
    if (ps_member_is_given(json_object_get(facts, "waste")))
        PS_TRY(ps_member_number(&r->at, facts, "waste", 1, &p->waste));
    PS_TRY(read_chunks(r, facts));
    PS_TRY(read_account(r, facts, "predicted", &p->predicted));
    PS_TRY(read_account(r, facts, "measured", &p->measured));
    PS_TRY(read_bound(r, facts));
    return read_throughput(r, facts);
}

/* ---- events ---- */

static ps_status read_time(const reader *r, const json_t *event, const char *key, int64_t *out_ns)
{
    double us;
    PS_TRY(ps_member_number(&r->at, event, key, TIME_US_MAX, &us));
    *out_ns = (int64_t)llround(us * 1e3);
    return PS_OK;
}

/* Which args a span has depends on its row. */
static ps_status read_span_args(const reader *r, const json_t *event, ps_report_profile_span *s)
{
    const json_t *args = NULL;
    int name, from, to;
    if (s->lane == PS_REPORT_PHASES) {
        PS_TRY(ps_member_name(&r->at, event, "name", ps_report_profile_phase_names, PS_REPORT_N_PHASES, &name));
        s->phase = (ps_report_profile_phase)name;
        return PS_OK;
    }
    if (s->lane == PS_REPORT_STEPS) return PS_OK;
    PS_TRY(ps_member_object(&r->at, event, "args", &args));
    if (s->lane == PS_REPORT_COMPUTE || s->lane == PS_REPORT_HOST_COMPUTE) {
        PS_TRY(ps_member_name(&r->at, args, "phase", ps_report_profile_phase_names, PS_REPORT_N_PHASES, &name));
        s->phase = (ps_report_profile_phase)name;
        return ps_member_is_given(json_object_get(args, "chunk")) ? read_chunk_id(r, args, &s->chunk) : PS_OK;
    }
    if (s->lane == PS_REPORT_COLLECTIVES) return ps_member_integer(&r->at, args, "bytes", 0, BYTES_MAX, &s->bytes);
    if (s->lane == PS_REPORT_WAITS) {
        if (ps_member_is_given(json_object_get(args, "chunk")))
            PS_TRY(read_chunk_id(r, args, &s->chunk)); /* none: a collective */
        PS_TRY(ps_member_name(&r->at, args, "link", ps_report_profile_lane_names, PS_REPORT_N_LANES, &name));
        s->link = (ps_report_profile_lane)name;
        return PS_OK;
    }
    PS_TRY(read_chunk_id(r, args, &s->chunk));
    PS_TRY(ps_member_integer(&r->at, args, "bytes", 0, BYTES_MAX, &s->bytes));
    PS_TRY(ps_member_name(&r->at, args, "from", ps_report_profile_tier_names, PS_REPORT_N_TIERS, &from));
    PS_TRY(ps_member_name(&r->at, args, "to", ps_report_profile_tier_names, PS_REPORT_N_TIERS, &to));
    PS_TRY(ps_member_name(&r->at, args, "reason", ps_report_profile_reason_names, PS_REPORT_N_REASONS, &name));
    s->reason = (ps_report_profile_reason)name;
    return PS_OK;
}

/* A span's row follows from its category; a copy's is one of four, and an operator's one of two, by
 * its tid. False: other tools' spans. */
static bool find_lane(const char *category, json_int_t tid, ps_report_profile_lane *out)
{
    static const ps_report_profile_lane lanes[] = {PS_REPORT_STEPS, PS_REPORT_PHASES,         PS_REPORT_COMPUTE,
                                                   PS_REPORT_WAITS, PS_REPORT_HOST_TO_DEVICE, PS_REPORT_COLLECTIVES};
    for (size_t i = 0; i < PS_ARRAY_LEN(lanes); i++) {
        if (strcmp(category, category_names[i]) != 0) continue;
        *out = lanes[i];
        if (lanes[i] == PS_REPORT_COMPUTE && tid == PS_REPORT_HOST_COMPUTE) *out = PS_REPORT_HOST_COMPUTE;
        if (lanes[i] != PS_REPORT_HOST_TO_DEVICE) return true;
        *out = (ps_report_profile_lane)tid;
        return tid >= PS_REPORT_HOST_TO_DEVICE && tid <= PS_REPORT_DISK_WRITE;
    }
    return false;
}

static ps_status read_span(const reader *r, const json_t *event, int order)
{
    const char *category = json_string_value(json_object_get(event, "cat")), *name;
    const json_int_t tid = json_integer_value(json_object_get(event, "tid"));
    ps_report_profile_lane lane;
    int64_t duration_ns;
    if (category == NULL || !find_lane(category, tid, &lane)) return PS_OK;
    ps_report_profile_span *s = &r->p->spans[r->p->n_spans];
    *s = (ps_report_profile_span){.lane = lane, .chunk = -1, .link = lane, .order = order};
    PS_TRY(ps_member_string(&r->at, event, "name", &name));
    PS_TRY(read_time(r, event, "ts", &s->begin_ns));
    PS_TRY(read_time(r, event, "dur", &duration_ns));
    s->end_ns = s->begin_ns + duration_ns;
    PS_TRY(read_span_args(r, event, s));
    PS_TRY(ps_mem_strdup(name, &s->name));
    r->p->n_spans++;
    return PS_OK;
}

static ps_status read_change(const reader *r, const json_t *event, int order)
{
    static const char *const names[] = {"leave", "place"};
    const char *category = json_string_value(json_object_get(event, "cat"));
    const json_t *args;
    int is_there, tier;
    if (category == NULL || strcmp(category, "chunk") != 0) return PS_OK;
    ps_report_profile_change *c = &r->p->changes[r->p->n_changes];
    PS_TRY(ps_member_name(&r->at, event, "name", names, 2, &is_there));
    PS_TRY(read_time(r, event, "ts", &c->at_ns));
    PS_TRY(ps_member_object(&r->at, event, "args", &args));
    PS_TRY(read_chunk_id(r, args, &c->chunk));
    PS_TRY(ps_member_name(&r->at, args, "tier", ps_report_profile_tier_names, PS_REPORT_N_TIERS, &tier));
    c->tier = (ps_report_profile_tier)tier;
    c->is_there = is_there == 1;
    c->order = order;
    r->p->n_changes++;
    return PS_OK;
}

static ps_status read_sample(const reader *r, const json_t *event, int order)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    const json_t *args;
    int tier = 0;
    while (name != NULL && tier < PS_REPORT_N_TIERS && strcmp(name, counter_names[tier]) != 0) tier++;
    if (name == NULL || tier == PS_REPORT_N_TIERS) return PS_OK;
    ps_report_profile_sample *s = &r->p->samples[r->p->n_samples];
    *s = (ps_report_profile_sample){.tier = (ps_report_profile_tier)tier, .order = order};
    PS_TRY(read_time(r, event, "ts", &s->at_ns));
    PS_TRY(ps_member_object(&r->at, event, "args", &args));
    PS_TRY(ps_member_integer(&r->at, args, "chunks", 0, BYTES_MAX, &s->chunk_bytes));
    if (ps_member_is_given(json_object_get(args, "non_model")))
        PS_TRY(ps_member_integer(&r->at, args, "non_model", 0, BYTES_MAX, &s->non_model_bytes));
    if (ps_member_is_given(json_object_get(args, "other")))
        PS_TRY(ps_member_integer(&r->at, args, "other", 0, BYTES_MAX, &s->other_bytes));
    r->p->n_samples++;
    return PS_OK;
}

/* qsort is not stable: equal times keep the file's order by `order`. */
static int compare(int64_t a, int64_t b, int a_order, int b_order)
{
    return a != b ? (a > b) - (a < b) : (a_order > b_order) - (a_order < b_order);
}

static int by_begin(const void *a, const void *b)
{
    const ps_report_profile_span *x = a, *y = b;
    return compare(x->begin_ns, y->begin_ns, x->order, y->order);
}

static int by_change_time(const void *a, const void *b)
{
    const ps_report_profile_change *x = a, *y = b;
    return compare(x->at_ns, y->at_ns, x->order, y->order);
}

static int by_sample_time(const void *a, const void *b)
{
    const ps_report_profile_sample *x = a, *y = b;
    return compare(x->at_ns, y->at_ns, x->order, y->order);
}

static ps_status read_event(reader *r, const json_t *event, int i)
{
    const char *kind;
    snprintf(r->at.where, sizeof r->at.where, "traceEvents[%d]", i);
    if (!json_is_object(event)) return ps_member_unexpected(&r->at, "traceEvents", "an object", event);
    PS_TRY(ps_member_string(&r->at, event, "ph", &kind));
    if (strcmp(kind, "X") == 0) return read_span(r, event, i);
    if (strcmp(kind, "i") == 0) return read_change(r, event, i);
    if (strcmp(kind, "C") == 0) return read_sample(r, event, i);
    return PS_OK;
}

static ps_status read_events(reader *r, const json_t *root)
{
    ps_report_profile *p = r->p;
    const json_t *events;
    static const char *const kinds[] = {"X", "i", "C"}; /* spans, changes, samples */
    size_t n_events[PS_ARRAY_LEN(kinds)] = {0};
    snprintf(r->at.where, sizeof r->at.where, "the top object");
    PS_TRY(ps_member_array(&r->at, root, "traceEvents", &events));
    const int n = (int)json_array_size(events); /* PROFILE_BYTES_MAX keeps it far below INT_MAX */
    for (int i = 0; i < n; i++) {
        const char *kind = json_string_value(json_object_get(json_array_get(events, (size_t)i), "ph"));
        for (size_t k = 0; kind != NULL && k < PS_ARRAY_LEN(kinds); k++) n_events[k] += strcmp(kind, kinds[k]) == 0;
    }
    PS_TRY(ps_mem_alloc(n_events[0], sizeof *p->spans, &p->spans));
    PS_TRY(ps_mem_alloc(n_events[1], sizeof *p->changes, &p->changes));
    PS_TRY(ps_mem_alloc(n_events[2], sizeof *p->samples, &p->samples));
    for (int i = 0; i < n; i++) PS_TRY(read_event(r, json_array_get(events, (size_t)i), i));
    qsort(p->spans, (size_t)p->n_spans, sizeof *p->spans, by_begin);
    qsort(p->changes, (size_t)p->n_changes, sizeof *p->changes, by_change_time);
    qsort(p->samples, (size_t)p->n_samples, sizeof *p->samples, by_sample_time);
    return PS_OK;
}

static ps_status parse(const char *path, const char *text, int64_t n_bytes, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL) return PS_FAIL(PS_EFORMAT, "%s:%d:%d: no JSON: %s", path, error.line, error.column, error.text);
    if (!json_is_object(*out)) return PS_FAIL(PS_EFORMAT, "%s: expected a JSON object with \"traceEvents\"", path);
    return PS_OK;
}

ps_status ps_report_profile_read(const char *path, ps_report_profile **out)
{
    ps_status st = PS_OK;
    reader r = {.at.path = path};
    char *text = NULL;
    int64_t n_bytes;
    json_t *root = NULL;
    *out = NULL;
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *r.p, &r.p));
    PS_TRY_GOTO(ps_file_read_all(path, PROFILE_BYTES_MAX, &text, &n_bytes));
    PS_TRY_GOTO(parse(path, text, n_bytes, &root));
    PS_TRY_GOTO(read_facts(&r, root));
    PS_TRY_GOTO(read_events(&r, root));
    *out = r.p;
    r.p = NULL;
out:
    json_decref(root);
    ps_mem_free(text);
    ps_mem_free(r.chunk_of_id);
    ps_report_profile_destroy(r.p);
    return st;
}

void ps_report_profile_destroy(ps_report_profile *p)
{
    if (p == NULL) return;
    for (int i = 0; p->chunks != NULL && i < p->n_chunks; i++) {
        for (int k = 0; k < p->chunks[i].n_tensors; k++) ps_mem_free(p->chunks[i].tensors[k]);
        ps_mem_free(p->chunks[i].tensors);
    }
    for (int i = 0; i < p->n_spans; i++) ps_mem_free(p->spans[i].name);
    ps_mem_free(p->chunks);
    ps_mem_free(p->spans);
    ps_mem_free(p->changes);
    ps_mem_free(p->samples);
    ps_mem_free(p->predicted.critical);
    ps_mem_free(p->measured.critical);
    ps_mem_free(p->title);
    ps_mem_free(p);
}
