/* profile_fixture.h - a profile's file, read back, and the rules that every one keeps. */
#ifndef PROFILE_FIXTURE_H
#define PROFILE_FIXTURE_H

#include <jansson.h>

#include "engine/engine_fixture.h"

enum { TIERS = 3, LINKS = 4, PROFILE_CHUNKS_MAX = 4096, PROFILE_MOMENTS_MAX = 4096 };

static const char *const tier_names[TIERS] = {"device", "host", "disk"};
static const char *const link_names[LINKS] = {"host->device", "device->host", "disk read", "disk write"};

typedef struct span {
    double begin, end; /* microseconds */
} span;

typedef struct profile {
    json_t *root, *events, *facts;
    int64_t first_step, last_step;
    span steps[MAX_STEPS];
    int64_t moved[LINKS], peak[TIERS];
    int n_ops, n_waits, n_copies, n_phases, n_collectives;
} profile;

static inline const char *text_at(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (s == NULL) fail_msg("no text %s in an event", key);
    return s;
}

static inline int64_t int_at(const json_t *o, const char *key)
{
    if (!json_is_integer(json_object_get(o, key))) fail_msg("no integer %s", key);
    return json_integer_value(json_object_get(o, key));
}

static inline int index_of_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    fail_msg("unknown name %s", name);
    return -1;
}

static inline span span_of(const json_t *e)
{
    const double begin = json_number_value(json_object_get(e, "ts"));
    return (span){begin, begin + json_number_value(json_object_get(e, "dur"))};
}

/* Computed by the host next to the device: at any time from its issue on. */
static inline int is_separate(const json_t *e)
{
    return json_integer_value(json_object_get(e, "tid")) == 10;
}

static inline int is_category(const json_t *e, const char *category)
{
    const char *c = json_string_value(json_object_get(e, "cat"));
    return c != NULL && strcmp(c, category) == 0;
}

/* A nanosecond of tolerance: times have three decimals. */
static inline int is_inside(span inner, span outer)
{
    return inner.begin >= outer.begin - 0.0015 && inner.end <= outer.end + 0.0015;
}

static inline int step_of(const profile *p, span s)
{
    for (int64_t k = p->first_step; k <= p->last_step; k++)
        if (is_inside(s, p->steps[k])) return (int)k;
    return 0;
}

/* Steps follow each other; ops of the computing thread do not overlap each other, nor do waits overlap ops. */
static inline void check_thread(profile *p)
{
    size_t i;
    json_t *e;
    double op_end[2] = {0}; /* of the device, and of the host next to it */
    p->first_step = json_integer_value(json_array_get(json_object_get(p->facts, "steps"), 0));
    p->last_step = json_integer_value(json_array_get(json_object_get(p->facts, "steps"), 1));
    assert_in_range(p->last_step, p->first_step, MAX_STEPS - 1);
    int64_t next = p->first_step;
    json_array_foreach(p->events, i, e)
    {
        if (!is_category(e, "step")) continue;
        assert_int_equal(int_at(json_object_get(e, "args"), "step"), next);
        p->steps[next] = span_of(e);
        if (next > p->first_step) assert_true(p->steps[next].begin >= p->steps[next - 1].end);
        next++;
    }
    assert_int_equal(next, p->last_step + 1);
    json_array_foreach(p->events, i, e)
    {
        const span s = span_of(e);
        if (is_category(e, "op") || is_category(e, "wait")) {
            double *end = &op_end[is_separate(e)];
            if (s.begin < *end - 0.0015) fail_msg("%s begins before the one before it has ended", text_at(e, "name"));
            assert_true(s.end >= s.begin);
            *end = s.end;
            p->n_ops += is_category(e, "op");
            p->n_waits += is_category(e, "wait");
        }
        p->n_phases += is_category(e, "phase");
        p->n_collectives += is_category(e, "collective");
    }
}

/* What is on a tier comes and goes in turn, and adds up to the counters, which stay in the budgets. */
static inline void check_places(profile *p)
{
    static int64_t bytes_of[PROFILE_CHUNKS_MAX];
    static int there[TIERS][PROFILE_CHUNKS_MAX];
    memset(bytes_of, 0, sizeof bytes_of);
    memset(there, 0, sizeof there);
    int64_t sum[TIERS] = {0}, non_model = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(p->facts, "chunks"), i, e)
    {
        assert_in_range(int_at(e, "id"), 0, PROFILE_CHUNKS_MAX - 1);
        bytes_of[int_at(e, "id")] = int_at(e, "bytes");
        assert_true(json_array_size(json_object_get(e, "tensors")) > 0);
    }
    json_array_foreach(p->events, i, e)
    {
        const json_t *args = json_object_get(e, "args");
        if (is_category(e, "chunk")) {
            const int tier = index_of_name(tier_names, TIERS, text_at(args, "tier"));
            const int64_t id = int_at(args, "chunk");
            const int comes = strcmp(text_at(e, "name"), "place") == 0;
            if (bytes_of[id] == 0) fail_msg("chunk %d is not in the list", (int)id);
            if (there[tier][id] == comes)
                fail_msg("chunk %d %s twice on %s", (int)id, text_at(e, "name"), tier_names[tier]);
            there[tier][id] = comes;
            sum[tier] += comes ? bytes_of[id] : -bytes_of[id];
            if (strcmp(text_at(args, "reason"), "start") == 0) assert_true(span_of(e).begin == 0);
        } else if (is_category(e, "memory")) {
            char name[16];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(text_at(e, "name"), " "), text_at(e, "name"));
            const int tier = index_of_name(tier_names, TIERS, name);
            const int64_t all = int_at(args, "chunks") + (tier == 0 ? int_at(args, "non_model") : 0) +
                                (tier < 2 ? int_at(args, "other") : 0);
            if (tier < 2)
                assert_int_equal(int_at(args, "chunks"), sum[tier]);
            else
                assert_true(int_at(args, "chunks") >= sum[tier]); /* slots are kept */
            assert_true(all <= int_at(json_object_get(p->facts, "budgets"), tier_names[tier]));
            if (all > p->peak[tier]) p->peak[tier] = all;
            if (tier == 0) non_model = int_at(args, "non_model");
        } else if (is_category(e, "op") && !json_is_true(json_object_get(p->facts, "simulated"))) {
            assert_true(non_model >= int_at(args, "non_model_bytes"));
        }
    }
}

/* Copies run on the queue of their ends; those between device and host one after the other. */
static inline void check_copies(profile *p)
{
    double queue_end[LINKS] = {0};
    size_t i;
    json_t *e;
    json_array_foreach(p->events, i, e)
    {
        if (!is_category(e, "copy")) continue;
        const json_t *args = json_object_get(e, "args");
        const int link = (int)int_at(e, "tid") - 4;
        const span s = span_of(e);
        const char *from = text_at(args, "from"), *to = text_at(args, "to");
        const int64_t id = int_at(args, "chunk"), n = int_at(p->facts, "n_chunks");
        char name[64];
        assert_in_range(link, 0, LINKS - 1);
        if (link == 2)
            assert_string_equal(from, "disk");
        else if (link == 3)
            assert_string_equal(to, "disk");
        else
            assert_true(strcmp(from, tier_names[1 - link]) == 0 && strcmp(to, tier_names[link]) == 0);
        assert_true(s.begin >= 0 && (link < 2 ? s.end >= s.begin : s.end > s.begin)); /* handed over in no time */
        if (link < 2) assert_true(s.begin >= queue_end[link] - 0.0015);
        queue_end[link] = s.end;
        snprintf(name, sizeof name, "%s %d", text_at(args, "list"), (int)int_at(args, "index"));
        assert_string_equal(text_at(e, "name"), name);
        assert_int_equal(id % n, int_at(args, "index"));
        p->moved[link] += int_at(args, "bytes");
        p->n_copies++;
    }
}

/* Phases fill the steps without gaps, and each op is in a phase of its name. */
static inline void check_phases(profile *p)
{
    double filled[MAX_STEPS] = {0};
    size_t i, k = 0;
    json_t *e;
    const json_t *phase = NULL;
    json_array_foreach(p->events, i, e)
    {
        if (!is_category(e, "phase")) continue;
        const int step = step_of(p, span_of(e));
        filled[step] += span_of(e).end - span_of(e).begin;
    }
    for (int64_t step = p->first_step; step <= p->last_step; step++) {
        const double missing = p->steps[step].end - p->steps[step].begin - filled[step];
        if (missing > 0.1 || missing < -0.1) fail_msg("phases leave %g us of step %d", missing, (int)step);
    }
    json_array_foreach(p->events, i, e)
    {
        if (!is_category(e, "op") || is_separate(e)) continue;
        while (phase == NULL || !is_inside(span_of(e), span_of(phase))) {
            if (k == json_array_size(p->events)) fail_msg("%s lies in no phase", text_at(e, "name"));
            phase = json_array_get(p->events, k++);
            if (!is_category(phase, "phase")) phase = NULL;
        }
        assert_string_equal(text_at(json_object_get(e, "args"), "phase"), text_at(phase, "name"));
    }
}

/* Read a file and check all that is true of any; json_decref(p.root) by the caller. */
static inline profile profile_read(const char *path)
{
    profile p = {0};
    json_error_t error;
    p.root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (p.root == NULL) fail_msg("%s:%d: %s", path, error.line, error.text);
    p.events = json_object_get(p.root, "traceEvents");
    p.facts = json_object_get(p.root, "patrickstar");
    assert_true(json_is_array(p.events) && json_is_object(p.facts));
    assert_int_equal(int_at(p.facts, "version"), 1);
    check_thread(&p);
    check_places(&p);
    check_copies(&p);
    check_phases(&p);
    return p;
}

#endif
