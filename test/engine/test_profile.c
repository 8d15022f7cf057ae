/* The profile of training steps: complete, consistent with what the engine counts, and without influence on what it
 * records. */
#include "cuda/fake_cpu.h"
#include "engine/profile_fixture.h"

#include <math.h>

#include "api/engine/engine.h"
#include "chunk/reason.h"
#include "device/disk.h"
#include "temp_folder.h"
#include "train/record/profile_sum.h"
#include "train/record/profile_write.h"

enum { N_STEPS = 6, FIRST = 3, LAST = 5, B = 2, T = 16 };

#define STEPS_KEY "profile.steps=3,5"

static const char *path_option(const temp_folder *f, char text[160])
{
    snprintf(text, 160, "profile.path=%s", temp_folder_file(f, "profile.json").text);
    return text;
}

static void set(ps_config *c, const char *key_value)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(key_value, "="), key_value);
    assert_ok(ps_config_set(c, key, strchr(key_value, '=') + 1));
}

static void one_step(ps_engine *e, int64_t step, float *loss)
{
    int32_t tokens[B * T], targets[B * T];
    int64_t accumulation;
    ps_engine_get_shape(e, NULL, NULL, &accumulation, NULL);
    for (int64_t k = 0; k < accumulation; k++) {
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, step * accumulation + k);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, loss));
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
    }
}

typedef struct outcome {
    uint64_t hash;
    float losses[N_STEPS];
    int64_t moved[LINKS], peak[TIERS]; /* of the steps FIRST .. LAST */
    int32_t n_moments;
    bool deferred;
} outcome;

static void add_moved(const ps_engine *e, int64_t sign, int64_t moved[LINKS])
{
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    moved[0] += sign * m.host_to_device_bytes;
    moved[1] += sign * m.device_to_host_bytes;
    moved[2] += sign * m.disk_read_bytes;
    moved[3] += sign * m.disk_write_bytes;
}

/* Train with the profile in `path`, or, NULL, without. */
static outcome run(const char *const *changes, const char *path)
{
    outcome o = {0};
    ps_config *c = tiny_with(changes);
    if (path != NULL) {
        assert_ok(ps_config_set(c, "profile.path", path));
        set(c, STEPS_KEY);
        assert_ok(ps_config_validate(c));
    }
    ps_engine *e = engine_of(c);
    o.n_moments = e->exec_plan->trace->n_moments;
    o.deferred = e->exec_plan->candidate.update_time == PS_UPDATE_DEFERRED;
    for (int step = 1; step <= N_STEPS; step++) {
        if (step == FIRST) ps_engine_reset_peaks(e);
        if (step == FIRST) add_moved(e, -1, o.moved);
        one_step(e, step, &o.losses[step - 1]);
        ps_profile_info info = {.struct_size = sizeof info};
        ps_engine_get_profile_info(e, &info);
        assert_int_equal(info.is_written, path != NULL && step >= LAST);
        assert_int_equal(info.last_step, path == NULL || step < FIRST ? 0 : step < LAST ? step : LAST);
        assert_string_equal(info.error, "");
        if (step != LAST) continue;
        ps_memory_info m = {.struct_size = sizeof m};
        add_moved(e, 1, o.moved);
        ps_engine_get_memory_info(e, &m);
        o.peak[0] = m.device_peak_bytes, o.peak[1] = m.host_peak_bytes, o.peak[2] = m.disk_peak_bytes;
    }
    assert_ok(ps_engine_get_weights_xxh3(e, &o.hash));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return o;
}

/* Every moment of each step once, in the step that says so. */
static void check_moments(const profile *p, int32_t n_moments)
{
    static int seen[MAX_STEPS][PROFILE_MOMENTS_MAX];
    memset(seen, 0, sizeof seen);
    size_t i;
    json_t *e;
    json_array_foreach(p->events, i, e)
    {
        const json_t *args = json_object_get(e, "args");
        if (is_category(e, "wait")) assert_true(step_of(p, span_of(e)) > 0);
        if (!is_category(e, "op")) continue;
        if (!is_separate(e)) assert_int_equal(step_of(p, span_of(e)), int_at(args, "step"));
        seen[int_at(args, "step")][int_at(args, "moment")]++;
        assert_true((json_object_get(args, "chunk") != NULL) == (strcmp(text_at(args, "phase"), "adam") == 0));
    }
    for (int step = FIRST; step <= LAST; step++)
        for (int32_t m = 0; m < n_moments; m++)
            if (seen[step][m] != 1) fail_msg("moment %d of step %d is there %d times", m, step, seen[step][m]);
}

static void check_sums(const profile *p, const outcome *o)
{
    const json_t *measured = json_object_get(p->facts, "measured"), *moved = json_object_get(measured, "moved_bytes");
    for (int tier = 0; tier < TIERS; tier++) {
        assert_int_equal(p->peak[tier], o->peak[tier]);
        assert_int_equal(int_at(json_object_get(measured, "peak_bytes"), tier_names[tier]), o->peak[tier]);
    }
    for (int link = 0; link < LINKS; link++) {
        if (p->moved[link] != o->moved[link])
            fail_msg("%s: %lld bytes in copies, %lld moved", link_names[link], (long long)p->moved[link],
                     (long long)o->moved[link]);
        assert_int_equal(int_at(moved, link_names[link]), o->moved[link] / (LAST - FIRST + 1));
    }
    double sum = 0;
    for (int step = FIRST; step <= LAST; step++) sum += p->steps[step].end - p->steps[step].begin;
    const double seconds = json_number_value(json_object_get(measured, "step_seconds"));
    assert_true(seconds > sum / (LAST - FIRST + 1) * 1e-6 - 1e-8 && seconds < sum / (LAST - FIRST + 1) * 1e-6 + 1e-8);
    const double busy = json_number_value(json_object_get(json_object_get(measured, "busy_seconds"), "compute"));
    assert_true(busy > 0 && busy <= seconds);
}

static void check_run(const char *const *changes, bool has_copies)
{
    const temp_folder f = temp_folder_make();
    const temp_path path = temp_folder_file(&f, "profile.json");
    const outcome without = run(changes, NULL), with = run(changes, path.text);
    assert_true(without.hash == with.hash);
    assert_memory_equal(without.losses, with.losses, sizeof with.losses);
    assert_memory_equal(without.moved, with.moved, sizeof with.moved);
    assert_memory_equal(without.peak, with.peak, sizeof with.peak);
    assert_int_equal(temp_folder_entries(&f, 0), 1);
    const profile p = profile_read(path.text);
    assert_int_equal(p.first_step, FIRST);
    assert_int_equal(p.last_step, LAST);
    check_moments(&p, with.n_moments);
    check_sums(&p, &with);
    assert_true((p.n_copies > 0) == has_copies);
    assert_string_equal(text_at(p.facts, "title"), "tiny");
    assert_true(json_is_false(json_object_get(p.facts, "simulated")));
    json_decref(p.root);
    temp_folder_remove(&f);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

#define CHANGES(...) ((const char *const[]){"bf16.enabled=true", "default_chunk_size=4096", __VA_ARGS__, NULL})

static void test_all_in_memory(void **state)
{
    (void)state;
    check_run(CHANGES("memory.device=64MB"), false);
}

static void test_host_tier(void **state)
{
    (void)state;
    check_run(CHANGES("memory.device=700KB", "memory.host=4MB"), true);
}

static void test_threads(void **state)
{
    (void)state;
    check_run(CHANGES("memory.device=750KB", "memory.host=300KB", "memory.disk=20MB", "memory.disk_backend=threads"),
              true);
}

static void test_uring(void **state)
{
    (void)state;
    ps_disk *d = NULL; /* where the kernel refuses it there is nothing to test */
    const ps_status st = ps_disk_open("/tmp", PS_DISK_URING, 2, &d);
    ps_disk_close(d);
    if (st == PS_ENOSYS) skip();
    check_run(CHANGES("memory.device=750KB", "memory.host=300KB", "memory.disk=20MB", "memory.disk_backend=io_uring"),
              true);
}

static void test_other_orders(void **state)
{
    (void)state;
    check_run(CHANGES("memory.device=900KB", "memory.disk=20MB", "memory.defer_updates=false"), true);
    check_run(CHANGES("memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "gradient_accumulation_steps=2"),
              true);
    check_run(CHANGES("memory.device=750KB", "memory.host=300KB", "memory.disk=20MB", "memory.prefetch=0"), true);
}

/* All operators are after their issue, where the device's marks say. */
static void check_marks(ps_config *c)
{
    const temp_folder f = temp_folder_make();
    ps_profile_sum s;
    int64_t n = 0;
    assert_ok(ps_config_set(c, "profile.path", temp_folder_file(&f, "profile.json").text));
    set(c, STEPS_KEY);
    ps_engine *e = engine_of(c);
    for (int step = 1; step <= LAST; step++) {
        float loss;
        one_step(e, step, &loss);
    }
    assert_ok(ps_profile_sum_init(&s, e->profiling.recorder));
    for (int64_t i = 0; i < ps_profile_count(s.profile); i++) {
        const ps_profile_record *r = ps_profile_at(s.profile, i);
        const ps_profile_span when = ps_profile_work_span(&s, r);
        if (r->kind != PS_PROFILE_OP) continue;
        assert_true(r->marks.first > 0 && r->marks.last > r->marks.first);
        assert_true(when.begin_ns > r->begin_ns && when.end_ns > when.begin_ns);
        n++;
    }
    assert_true(n > 0);
    ps_profile_sum_deinit(&s);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    temp_folder_remove(&f);
}

/* Operators of a device that computes later have its times: one after the other, inside of their steps. */
static void test_computed_later(void **state)
{
    (void)state;
    fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES});
    check_marks(TINY("memory.device=700KB", "memory.host=4MB", "train.backend=cuda"));
    check_run(CHANGES("memory.device=700KB", "memory.host=4MB", "train.backend=cuda"), true);
    check_run(CHANGES("memory.device=700KB", "memory.host=4MB", "train.backend=cuda", "memory.defer_updates=false"),
              true);
    assert_true(fake_cpu_end());
}

static void add_later(ps_profile *r, ps_profile_kind kind, int64_t ns, uint64_t ticket, int64_t moment)
{
    if (kind == PS_PROFILE_MARK) {
        ps_profile_add(
            r, &(ps_profile_record){.kind = kind, .chunk = -1, .begin_ns = ns, .copy = {.ticket = ticket, .link = 9}});
        return;
    }
    ps_profile_add(r, &(ps_profile_record){.kind = kind,
                                           .chunk = -1,
                                           .begin_ns = ns,
                                           .end_ns = ns + 1,
                                           .marks = {.first = ticket, .last = ticket + 1, .link = 9},
                                           .op = {.label = "later", .step = 1, .moment = (int32_t)moment}});
}

/* The marks may come in any order, and a mark that was never reached leaves the time of issue. */
static void test_marks(void **state)
{
    (void)state;
    ps_profile *r = NULL;
    ps_profile_sum s;
    assert_ok(ps_profile_create(NULL, &r));
    ps_profile_start(r);
    add_later(r, PS_PROFILE_OP, 1000, 3, 0);
    add_later(r, PS_PROFILE_OP, 1001, 5, 1);
    for (uint64_t ticket = 5; ticket >= 3; ticket--) add_later(r, PS_PROFILE_MARK, 5000 + (int64_t)ticket, ticket, 0);
    assert_ok(ps_profile_sum_init(&s, r));
    const ps_profile_span a = ps_profile_work_span(&s, ps_profile_at(r, 0)),
                          b = ps_profile_work_span(&s, ps_profile_at(r, 1));
    assert_int_equal(a.begin_ns, 5003);
    assert_int_equal(a.end_ns, 5004);
    assert_int_equal(b.begin_ns, 5005);
    assert_int_equal(b.end_ns, 1002);
    ps_profile_sum_deinit(&s);
    ps_profile_destroy(r);
}

/* ---- what is between steps ---- */

static void test_evaluation_is_outside(void **state)
{
    (void)state;
    const temp_folder f = temp_folder_make();
    char option[160];
    int32_t tokens[B * T], targets[B * T];
    float loss;
    ps_config *c = TINY("memory.device=800KB", "memory.disk=20MB", "default_chunk_size=4096", path_option(&f, option),
                        "profile.steps=[1, 2]");
    ps_engine *e = engine_of(c);
    fill_batch(tokens, targets, B, T, TINY_VOCABULARY, 0);
    one_step(e, 1, &loss);
    assert_ok(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
    one_step(e, 2, &loss);
    /* whether updates are deferred depends on the scratch of the processor's kernels */
    const bool is_deferred = e->exec_plan->candidate.update_time == PS_UPDATE_DEFERRED;
    const int32_t n_forward = e->shape->code->n_forward, n_updates = is_deferred ? e->exec_plan->n_ordered : 0;
    const profile p = profile_read(temp_folder_file(&f, "profile.json").text);
    int32_t n_outside = 0;
    size_t i;
    json_t *op;
    json_array_foreach(p.events, i, op) if (is_category(op, "op") && step_of(&p, span_of(op)) == 0) n_outside++;
    assert_int_equal(n_outside, n_forward + n_updates); /* updates were due before it */
    json_decref(p.root);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    temp_folder_remove(&f);
}

/* ---- when it is written ---- */

static void test_written_at_the_end(void **state)
{
    (void)state;
    const temp_folder f = temp_folder_make();
    const temp_path path = temp_folder_file(&f, "profile.json"), other = temp_folder_file(&f, "other.json");
    char option[160];
    float loss;
    ps_config *c = TINY(path_option(&f, option), "profile.steps=2,100");
    ps_engine *e = engine_of(c);
    ps_profile_info info = {.struct_size = sizeof info};
    one_step(e, 1, &loss);
    assert_int_equal(ps_engine_save_profile(e, other.text), PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "[2, 100]"));
    one_step(e, 2, &loss);
    assert_ok(ps_engine_save_profile(e, other.text)); /* recording continues */
    one_step(e, 3, &loss);
    ps_engine_get_profile_info(e, &info);
    assert_string_equal(info.path, path.text);
    assert_int_equal(info.first_step, 2);
    assert_int_equal(info.last_step, 3);
    assert_int_equal(info.is_written, 0);
    ps_engine_destroy(e);
    profile p = profile_read(path.text);
    assert_int_equal(p.last_step, 3);
    json_decref(p.root);
    p = profile_read(other.text);
    assert_int_equal(p.last_step, 2);
    json_decref(p.root);
    ps_config_destroy(c);
    temp_folder_remove(&f);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    const temp_folder f = temp_folder_make();
    float loss;
    ps_engine *e = NULL;
    ps_config *c = TINY("profile.path=/proc/nonexistent/profile.json");
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "profile.path cannot be written: /proc/nonexistent/profile.json"));
    ps_config_destroy(c);

    c = TINY("train.threads=1");
    e = engine_of(c);
    assert_int_equal(ps_engine_save_profile(e, temp_folder_file(&f, "x").text), PS_ESTATE);
    ps_engine_destroy(e);

    /* a folder that goes away fails no step */
    char option[160];
    set(c, path_option(&f, option));
    set(c, "profile.steps=1,1");
    e = engine_of(c);
    temp_folder_remove(&f);
    one_step(e, 1, &loss);
    one_step(e, 2, &loss);
    ps_profile_info info = {.struct_size = sizeof info};
    ps_engine_get_profile_info(e, &info);
    assert_int_equal(info.is_written, 0);
    assert_non_null(strstr(info.error, "cannot create"));
    assert_int_equal(ps_engine_save_profile(e, NULL), PS_EIO);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- the writer alone, in simulated time ---- */

static void add_copy(ps_profile *p, uint64_t ticket, int32_t chunk, int64_t asked, int64_t begin, int64_t end)
{
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_MOVED,
                                           .begin_ns = begin,
                                           .end_ns = end,
                                           .copy = {.ticket = ticket, .link = PS_LINK_DISK_READ}});
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_COPY,
                                           .chunk = chunk,
                                           .begin_ns = asked,
                                           .end_ns = asked,
                                           .copy = {.ticket = ticket,
                                                    .bytes = 1000,
                                                    .link = PS_LINK_DISK_READ,
                                                    .from = PS_TIER_DISK,
                                                    .to = PS_TIER_DEVICE,
                                                    .reason = PS_REASON_PREFETCH}});
}

static void expect_rate(const json_t *rate, const char *of, double reckoned, double seen)
{
    assert_string_equal(text_at(rate, "of"), of);
    assert_string_equal(text_at(rate, "unit"), "bytes/s");
    const double r = json_number_value(json_object_get(rate, "reckoned")),
                 s = json_number_value(json_object_get(rate, "seen"));
    if (fabs(r - reckoned) > 1e-5 * reckoned || fabs(s - seen) > 1e-5 * seen)
        fail_msg("%s: %g, seen %g, instead of %g, seen %g", of, r, s, reckoned, seen);
}

static void test_simulated_records(void **state)
{
    (void)state;
    const temp_folder f = temp_folder_make();
    const temp_path path = temp_folder_file(&f, "simulated.json");
    ps_config *c = TINY("default_chunk_size=4096");
    ps_engine *e = engine_of(c);
    int64_t now = 1000000;
    ps_profile *r = NULL;
    ps_forecast forecast = e->shape->forecast; /* the other way slows reading to half its rate */
    forecast.moved_bytes[PS_LINK_DISK_READ] = 3000;
    forecast.step.busy_ns[PS_LINK_DISK_READ] = 4000;
    const ps_profile_facts facts = {.title = "a \"name\"\n\xff",
                                    .simulated = true,
                                    .rank = 1,
                                    .n_ranks = 8,
                                    .exec_plan = e->exec_plan,
                                    .budgets = e->settings.budgets,
                                    .forecast = &forecast};
    assert_ok(ps_profile_create(&now, &r));
    assert_int_equal(ps_profile_write(r, &facts, path.text), PS_ESTATE);
    ps_profile_start(r);
    now += 100000;
    ps_profile_add(r, &(ps_profile_record){.kind = PS_PROFILE_OP,
                                           .chunk = -1,
                                           .begin_ns = now,
                                           .end_ns = now + 20000,
                                           .op = {.label = "all", .step = 1, .phase = PS_PHASE_BACKWARD}});
    add_copy(r, 2, 1, now, now + 40000, now + 60000); /* side by side for 10 us; tickets out of order */
    add_copy(r, 1, 0, now, now + 10000, now + 50000);
    add_copy(r, 7, 2, now, now + 150000, now + 260000); /* 50 us of it after the step */
    ps_profile_add(r, &(ps_profile_record){.kind = PS_PROFILE_COLLECTIVE,
                                           .chunk = -1,
                                           .begin_ns = now,
                                           .end_ns = now + 3000,
                                           .collective = {.name = "all-gather", .group = "node", .bytes = 12}});
    ps_profile_add(
        r, &(ps_profile_record){
               .kind = PS_PROFILE_STEP, .chunk = -1, .step = {.number = 1}, .begin_ns = now, .end_ns = now + 210000});
    assert_ok(ps_profile_write(r, &facts, path.text));
    const profile p = profile_read(path.text);
    assert_int_equal(p.n_collectives, 1);
    assert_true(p.steps[1].begin == 100 && p.steps[1].end == 310);
    assert_true(json_is_true(json_object_get(p.facts, "simulated")));
    assert_int_equal(int_at(p.facts, "rank"), 1);
    assert_int_equal(int_at(p.facts, "n_ranks"), 8);
    assert_string_equal(text_at(p.facts, "title"), "a \"name\"\n?");
    const json_t *measured = json_object_get(p.facts, "measured"), *busy = json_object_get(measured, "busy_seconds");
    assert_true(json_number_value(json_object_get(measured, "step_seconds")) == 210e-6);
    assert_string_equal(text_at(measured, "critical"), "disk read");
    assert_true(json_number_value(json_object_get(busy, "compute")) == 20e-6);
    assert_true(json_number_value(json_object_get(busy, "disk read")) == 110e-6);
    assert_true(json_number_value(json_object_get(busy, "collectives")) == 3e-6);
    assert_int_equal(int_at(json_object_get(measured, "moved_bytes"), "disk read"), 3000);
    /* the rates of no particular PC; moment 0 is an update that was deferred */
    const double expected_s = (double)e->exec_plan->trace->moments[0].cost_ns * 1e-9;
    const json_t *throughput = json_object_get(p.facts, "rates");
    assert_int_equal(json_array_size(throughput), 2);
    const double update_rate = e->settings.throughput.update_bytes_per_s[PS_TIER_DEVICE];
    assert_true(e->settings.throughput.compute.bytes_per_s != update_rate);
    expect_rate(json_array_get(throughput, 0), "updates", update_rate, update_rate * expected_s / 20e-6);
    expect_rate(json_array_get(throughput, 1), "disk read", 0.75e9, 3000 / 110e-6);
    const json_t *bound = json_object_get(p.facts, "bound");
    assert_string_equal(text_at(bound, "by"), "computing");
    assert_int_equal(llround(1e9 * json_number_value(json_object_get(json_object_get(bound, "seconds"), "computing"))),
                     e->shape->forecast.step.compute_ns);
    json_decref(p.root);
    ps_profile_destroy(r);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    temp_folder_remove(&f);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_in_memory),
        cmocka_unit_test(test_host_tier),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_uring),
        cmocka_unit_test(test_other_orders),
        cmocka_unit_test(test_computed_later),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_evaluation_is_outside),
        cmocka_unit_test(test_written_at_the_end),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_simulated_records),
    };
    return RUN_ON_BACKENDS(tests);
}
