/* The way to run a step: found by trying, never slower than the first that fits, and close to the best of all
 * placements. On two memories, between which chunks are copied; of one, where nothing waits, there is nothing to find. */
#include "engine/engine_fixture.h"

#include "train/plan/search.h"

typedef struct planned {
    ps_config *config;
    ps_settings settings;
    ps_program *program;
    ps_code *code;
} planned;

static const ps_space *space_of_two(const ps_backend *self)
{
    static ps_space two;
    (void)self;
    two = ps_space_ram;
    two.is_unified_memory = false;
    return &two;
}

static void begin_on_one(planned *p, const char *const *changes)
{
    *p = (planned){.config = tiny_with(changes)};
    assert_ok(ps_settings_read(p->config, true, &p->settings));
    assert_ok(ps_settings_open_backend(&p->settings));
    const ps_code_options o = ps_settings_code_options(&p->settings);
    assert_ok(ps_program_build(ps_model_from_config, p->config, NULL, p->settings.B, p->settings.T, &p->program));
    assert_ok(ps_code_create(p->program, &o, &p->code));
}

static void begin(planned *p, const char *const *changes)
{
    static ps_backend_ops ops;
    begin_on_one(p, changes);
    ops = *p->settings.backend->ops;
    ops.space = space_of_two;
    p->settings.backend->ops = &ops;
}

static void end(planned *p)
{
    ps_code_destroy(p->code);
    ps_program_destroy(p->program);
    ps_settings_close_backend(&p->settings);
    ps_config_destroy(p->config);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static ps_status search(const planned *p, ps_exec_plan **b, ps_forecast *f)
{
    return ps_search_exec_plan(&p->settings, p->program, p->code, &p->settings.budgets, NULL, b, f);
}

/* The first that fits; the one found; and the fastest of all numbers of chunks that pass through the device, in each way
 * to run a step. */
typedef struct outcome {
    int64_t first_ns, found_ns, best_ns;
} outcome;

static int64_t best_of_all(const planned *p, const ps_exec_plan *like)
{
    int64_t best = INT64_MAX;
    for (int32_t n = 0; n <= like->n_kept_on_host; n++)
        for (int way = 0; way < 3; way++) {
            const ps_candidate v = {.update_time = way < 2 ? PS_UPDATE_DEFERRED : PS_UPDATE_AFTER,
                                    .update_lead_chunks = way == 1,
                                    .n_streamed = n};
            ps_exec_plan *b;
            ps_forecast f;
            const ps_status st = ps_search_try(&p->settings, p->program, p->code, &p->settings.budgets,
                                               like->layout->chunk_elements, v, NULL, NULL, &b, &f);
            assert_true(st == PS_OK || st == PS_EBUDGET);
            if (st == PS_OK) best = ps_min_i64(best, f.step.all_ns);
            ps_exec_plan_destroy(b);
        }
    return best;
}

static outcome outcome_of(const char *device, const char *accumulation, double link_bytes_per_s)
{
    outcome o;
    planned p;
    ps_exec_plan *b;
    ps_forecast f;
    begin(&p, (const char *const[]){"bf16.enabled=true", "memory.host=8MB", "default_chunk_size=4096",
                                    "client.mem_tracer.margin_use_ratio=1", device, accumulation, NULL});
    ps_link_bandwidth *links = p.settings.throughput.links.link;
    links[PS_LINK_HOST_TO_DEVICE].bytes_per_s = links[PS_LINK_DEVICE_TO_HOST].bytes_per_s = link_bytes_per_s;
    p.settings.takes_first_plan = true;
    assert_ok(search(&p, &b, &f));
    o.first_ns = f.step.all_ns;
    ps_exec_plan_destroy(b);
    p.settings.takes_first_plan = false;
    assert_ok(search(&p, &b, &f));
    o.found_ns = f.step.all_ns;
    o.best_ns = best_of_all(&p, b);
    ps_exec_plan_destroy(b);
    end(&p);
    return o;
}

/* One chunk ahead is too few where an update wants four from disk: the search looks farther. */
static void look_ahead_is_as_deep_as_helps(void **state)
{
    (void)state;
    planned p;
    ps_exec_plan *usual, *found;
    ps_forecast f, g;
    begin(&p, (const char *const[]){"bf16.enabled=true", "memory.device=400KB", "memory.host=0", "memory.disk=20MB",
                                    "default_chunk_size=4096", "memory.prefetch=1", NULL});
    p.settings.takes_first_plan = true;
    assert_ok(search(&p, &usual, &f));
    assert_int_equal(ps_exec_plan_store_options(usual).prefetch, 1);
    p.settings.takes_first_plan = false;
    assert_ok(search(&p, &found, &g));
    assert_true(ps_exec_plan_store_options(found).prefetch > 1);
    assert_true(g.step.all_ns < f.step.all_ns);
    ps_exec_plan_destroy(usual);
    ps_exec_plan_destroy(found);
    end(&p);
}

/* What waits for little is not searched; else nothing is lost by it. */
static void the_search_is_never_slower(void **state)
{
    (void)state;
    static const char *const devices[] = {"memory.device=500KB", "memory.device=700KB", "memory.device=1MB",
                                          "memory.device=64MB"};
    for (size_t i = 0; i < PS_ARRAY_LEN(devices); i++)
        for (int slow = 0; slow < 2; slow++) {
            const outcome o = outcome_of(devices[i], "gradient_accumulation_steps=1", slow ? 2e9 : 8e9);
            assert_true(o.found_ns <= o.first_ns);
            assert_true((double)o.found_ns <= 1.03 * (double)o.best_ns); /* sizes differ between processors' kernels */
            if (i == 3) assert_int_equal(o.found_ns, o.first_ns);
        }
}

/* Updates that come back late cost a wait for each chunk; one chunk sooner they do not. */
static void updates_lead(void **state)
{
    (void)state;
    planned p;
    ps_exec_plan *b[2];
    ps_forecast f[2];
    begin(&p, (const char *const[]){"bf16.enabled=true", "memory.host=8MB", "default_chunk_size=4096",
                                    "memory.device=500KB", NULL});
    for (int lead = 0; lead < 2; lead++) {
        const ps_candidate v = {.update_time = PS_UPDATE_DEFERRED, .update_lead_chunks = lead};
        assert_ok(ps_search_try(&p.settings, p.program, p.code, &p.settings.budgets, 4096, v, NULL, NULL, &b[lead],
                                &f[lead]));
    }
    assert_true(b[0]->n_resident_updates < b[0]->layout->n_chunks);
    assert_true(f[1].step.wait_ns[PS_LINK_HOST_TO_DEVICE] < f[0].step.wait_ns[PS_LINK_HOST_TO_DEVICE]);
    assert_int_equal(f[1].step.compute_ns, f[0].step.compute_ns);
    /* the same chunks in the same order, each before its first use */
    assert_int_equal(b[0]->n_ordered, b[1]->n_ordered);
    for (int32_t i = 0; i < b[0]->n_ordered; i++) {
        assert_int_equal(b[0]->update_order[i], b[1]->update_order[i]);
        const int32_t c = b[0]->update_order[i];
        assert_true(b[1]->update_moment[c] <= b[0]->update_moment[c]);
    }
    for (int lead = 0; lead < 2; lead++) ps_exec_plan_destroy(b[lead]);
    end(&p);
}

/* Where device and host are one memory, a chunk goes from one to the other in no time. */
static void unified_memory_waits_for_nothing(void **state)
{
    (void)state;
    for (int defers = 0; defers < 2; defers++) {
        planned p;
        ps_exec_plan *b;
        ps_forecast f;
        begin_on_one(&p,
                     (const char *const[]){"bf16.enabled=true", "memory.host=2MB", "memory.device=400KB",
                                           "default_chunk_size=4096", "memory.prefetch=0",
                                           defers ? "memory.defer_updates=true" : "memory.defer_updates=false", NULL});
        assert_ok(search(&p, &b, &f));
        assert_true(f.moved_bytes[PS_LINK_HOST_TO_DEVICE] > 0);
        assert_int_equal(f.moved_bytes[PS_LINK_DEVICE_TO_HOST], f.moved_bytes[PS_LINK_HOST_TO_DEVICE]);
        assert_int_equal(f.step.all_ns, f.step.compute_ns);
        ps_exec_plan_destroy(b);
        end(&p);
    }
}

static int32_t n_on_device(const ps_exec_plan *b)
{
    int32_t n = 0;
    for (int32_t c = 0; c < b->layout->n_chunks; c++) n += b->update_tier[c] == PS_TIER_DEVICE;
    return n;
}

static void so_many_pass_through_the_device(void **state)
{
    (void)state;
    planned p;
    begin(&p, (const char *const[]){"bf16.enabled=true", "memory.host=8MB", "memory.device=900KB",
                                    "default_chunk_size=4096", NULL});
    for (int32_t n = 0; n <= 9; n += 3) {
        ps_exec_plan *b;
        const ps_candidate v = {.n_streamed = n};
        assert_ok(ps_exec_plan_create(&p.settings, p.program, p.code, &p.settings.budgets, 4096, v, NULL, &b));
        const int32_t n_resident = b->n_resident_updates;
        assert_true(n_resident > 0);
        assert_int_equal(b->n_kept_on_host, b->layout->n_chunks - n_resident);
        assert_true(b->n_kept_on_host >= 9);
        assert_int_equal(n_on_device(b), n_resident + n);
        int32_t longest = 0, run = 0;
        for (int32_t c = n_resident; c < b->layout->n_chunks; c++) {
            run = b->update_tier[c] == PS_TIER_HOST ? run + 1 : 0;
            if (run > longest) longest = run;
        }
        if (n > 0) assert_true(longest <= ps_ceil_div(b->n_kept_on_host, n)); /* evenly */
        ps_exec_plan_destroy(b);
    }
    end(&p);
}

/* What is dirty leaves for the disk when it has to, and is written once: a step that hurries writes more. It is taken
 * only where that makes it faster. */
static void the_disk_is_spared(void **state)
{
    (void)state;
    planned p;
    ps_exec_plan *b[2], *found;
    ps_forecast f[2], g;
    begin_on_one(&p, (const char *const[]){"bf16.enabled=true", "memory.host=0", "memory.device=600KB",
                                           "memory.disk=20MB", "default_chunk_size=4096", "memory.prefetch=8", NULL});
    for (int evicts_dirty = 0; evicts_dirty < 2; evicts_dirty++) {
        const ps_candidate v = {.update_time = PS_UPDATE_DEFERRED, .evicts_dirty = evicts_dirty};
        assert_ok(ps_search_try(&p.settings, p.program, p.code, &p.settings.budgets, 4096, v, NULL, NULL,
                                &b[evicts_dirty], &f[evicts_dirty]));
    }
    const int64_t *const spared = f[0].moved_bytes, *const hurried = f[1].moved_bytes;
    assert_true((double)spared[PS_LINK_DISK_WRITE] < 0.95 * (double)hurried[PS_LINK_DISK_WRITE]);
    assert_true(spared[PS_LINK_DISK_READ] < hurried[PS_LINK_DISK_READ]);
    assert_ok(search(&p, &found, &g));
    if (found->candidate.evicts_dirty) assert_true(1.02 * (double)g.step.all_ns < (double)f[0].step.all_ns);
    for (int i = 0; i < 2; i++) ps_exec_plan_destroy(b[i]);
    ps_exec_plan_destroy(found);
    end(&p);
}

/* Does the group of span i have its memory at this moment? */
static bool holds(const ps_exec_plan *b, int32_t i, int32_t moment)
{
    for (int64_t micro = 0; micro < b->settings->accumulation; micro++)
        if (b->window_moment[micro * b->windows.n + i] <= moment &&
            moment <= b->instr_moment[micro * b->code->n_instrs + b->windows.windows[i].release_at])
            return true;
    return false;
}

/* What a moment wants, by the definition: its chunks and those of all held groups, each once. */
static int64_t wanted_by_definition(const ps_exec_plan *b, int32_t moment, ps_tier tier)
{
    const ps_moment *m = &b->trace->moments[moment];
    const int32_t n_ids = ps_lists_n_ids(&b->lists, b->layout);
    int64_t bytes = 0;
    bool held[4096] = {false};
    assert_true(n_ids <= (int32_t)PS_ARRAY_LEN(held));
    for (int32_t i = 0; i < b->windows.n; i++) {
        const ps_gather_window *window = &b->windows.windows[i];
        for (int32_t c = window->chunk; c < window->chunk + window->n_chunks && holds(b, i, moment); c++) {
            held[ps_store_chunk(b->layout, PS_LIST_PARAM16, c)] = true;
            for (ps_list l = ps_lists_grad(&b->lists); l <= ps_lists_grad_sum(&b->lists) && window->reduces; l++)
                held[ps_store_chunk(b->layout, l, c)] = true;
            if (tier != PS_TIER_DEVICE) continue;
            bytes += ps_exec_plan_chunk_bytes(b, PS_LIST_PARAM16);
            if (!window->reduces || !b->uses_grad_list[c]) continue;
            bytes += ps_exec_plan_chunk_bytes(b, ps_lists_grad(&b->lists));
            if (ps_exec_plan_owns(b, c)) bytes += ps_exec_plan_chunk_bytes(b, ps_lists_grad_sum(&b->lists));
        }
    }
    for (int32_t i = m->first_access; i < m->first_access + m->n_accesses; i++) {
        const ps_access *a = &b->trace->accesses[i];
        if (a->tier == tier && !held[a->chunk])
            bytes += ps_exec_plan_chunk_bytes(b, ps_lists_list_of(&b->lists, b->layout, a->chunk));
    }
    return bytes;
}

/* In one pass over all moments, with groups of several ranks held across some of them. */
static void moments_want_their_chunks_and_groups(void **state)
{
    (void)state;
    for (int32_t n_ranks = 1; n_ranks <= 3; n_ranks++)
        for (int way = 0; way < 2 * 4; way++) {
            planned p;
            ps_exec_plan *b;
            begin_on_one(&p, (const char *const[]){"bf16.enabled=true", "memory.host=8MB", "memory.device=900KB",
                                                   "gradient_accumulation_steps=3", "train.max_nonfinite_steps=1",
                                                   "gradient_clipping=0", NULL});
            assert_ok(ps_settings_plan_as_rank(&p.settings, p.config, n_ranks - 1, n_ranks));
            const ps_candidate v = {.update_time = way / 2 % 2 ? PS_UPDATE_DEFERRED : PS_UPDATE_AFTER,
                                    .n_early = way / 4 * 3,
                                    .groups_ahead = n_ranks > 1 ? way % 2 : 0};
            assert_ok(ps_exec_plan_create(&p.settings, p.program, p.code, &p.settings.budgets, 4096, v, NULL, &b));
            assert_int_equal(b->windows.n > 0, n_ranks > 1);
            for (int32_t m = 0; m < b->trace->n_moments; m++)
                for (int tier = 0; tier < PS_RAM_TIER_COUNT; tier++)
                    assert_int_equal(ps_exec_plan_wanted_bytes(b, m, (ps_tier)tier),
                                     wanted_by_definition(b, m, (ps_tier)tier));
            ps_exec_plan_destroy(b);
            end(&p);
        }
}

/* A step of a million micro-batches is not recorded when time is up. */
static void a_deadline_ends_recording(void **state)
{
    (void)state;
    planned p;
    ps_exec_plan *b;
    ps_deadline past = {.at_ns = 0};
    begin_on_one(
        &p, (const char *const[]){"memory.host=8MB", "memory.device=8MB", "gradient_accumulation_steps=1048576", NULL});
    assert_int_equal(
        ps_exec_plan_create(&p.settings, p.program, p.code, &p.settings.budgets, 4096, (ps_candidate){0}, &past, &b),
        PS_EBUDGET);
    assert_null(b);
    assert_true(past.timed_out);
    end(&p);
}

/* The same question, the same answer. */
static void searching_is_deterministic(void **state)
{
    (void)state;
    ps_candidate found[2];
    for (int i = 0; i < 2; i++) {
        planned p;
        ps_exec_plan *b;
        ps_forecast f;
        begin(&p, (const char *const[]){"bf16.enabled=true", "memory.host=2MB", "memory.device=600KB",
                                        "memory.disk=20MB", "gradient_accumulation_steps=2", NULL});
        assert_ok(search(&p, &b, &f));
        assert_in_range(f.cycle, 1, f.steps);
        found[i] = b->candidate;
        ps_exec_plan_destroy(b);
        end(&p);
    }
    assert_int_equal(found[0].update_time, found[1].update_time);
    assert_int_equal(found[0].update_lead_chunks, found[1].update_lead_chunks);
    assert_int_equal(found[0].n_streamed, found[1].n_streamed);
}

/* Each time has a search of its own, and the faster of both is taken: with a disk a mix, which puts it to use in both
 * passes. */
static void early_updates_are_found(void **state)
{
    (void)state;
    static const char *const ways[] = {"never", "auto", "always"};
    static const char *const tiers[] = {"memory.host=8MB", "memory.disk=20MB"};
    for (size_t t = 0; t < PS_ARRAY_LEN(tiers); t++) {
        int64_t ns[3];
        for (int way = 0; way < 3; way++) {
            planned p;
            ps_exec_plan *b;
            ps_forecast f;
            char change[64];
            snprintf(change, sizeof change, "memory.update_in_backward=%s", ways[way]);
            begin(&p, (const char *const[]){"bf16.enabled=true", "gradient_clipping=0", "train.max_nonfinite_steps=1",
                                            "memory.device=600KB", tiers[t], "default_chunk_size=4096", change, NULL});
            for (int l = 0; l < PS_LINK_COUNT; l++) p.settings.throughput.links.link[l].bytes_per_s = 2e9;
            assert_ok(search(&p, &b, &f));
            if (way != 1) assert_int_equal(b->candidate.n_early > 0, way == 2);
            if (t == 1 && way == 1) assert_true(b->candidate.n_early > 0 && b->n_deferred > 0);
            ns[way] = f.step.all_ns;
            ps_exec_plan_destroy(b);
            end(&p);
        }
        if (t == 0) {
            assert_true(ns[1] == ps_min_i64(ns[0], ns[2])); /* which is faster in RAM depends on the processor */
        } else {
            assert_true((double)ns[2] < 0.95 * (double)ns[0]);
            assert_true((double)ns[1] < 0.95 * (double)ns[2]);
        }
    }
}

/* Early updates alone, of a disk that computing hides: loads that begin later push out less that is needed once more. So
 * they move less, in the same time. */
static void loads_begin_late_enough(void **state)
{
    (void)state;
    planned p;
    ps_exec_plan *usual, *found;
    ps_forecast f, g;
    begin_on_one(&p, (const char *const[]){"bf16.enabled=true", "model.n_layer=12", "gradient_clipping=0",
                                           "train.max_nonfinite_steps=1", "memory.update_in_backward=always",
                                           "activation_checkpointing.enabled=true", "memory.host=0",
                                           "memory.device=2MB", "memory.disk=40MB", "default_chunk_size=4096", NULL});
    for (int l = 0; l < PS_LINK_COUNT; l++) p.settings.throughput.links.link[l].bytes_per_s = 4e9;
    assert_ok(ps_search_try(&p.settings, p.program, p.code, &p.settings.budgets, 4096,
                            (ps_candidate){.n_early = PS_EARLY_ALL}, NULL, NULL, &usual, &f));
    assert_ok(search(&p, &found, &g));
    for (ps_link l = PS_LINK_DISK_READ; l <= PS_LINK_DISK_WRITE; l++)
        assert_true((double)g.moved_bytes[l] < 0.9 * (double)f.moved_bytes[l]);
    assert_true((double)g.step.all_ns <= 1.02 * (double)f.step.all_ns);
    ps_exec_plan_destroy(usual);
    ps_exec_plan_destroy(found);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(look_ahead_is_as_deep_as_helps),
        cmocka_unit_test(the_search_is_never_slower),
        cmocka_unit_test(updates_lead),
        cmocka_unit_test(moments_want_their_chunks_and_groups),
        cmocka_unit_test(a_deadline_ends_recording),
        cmocka_unit_test(searching_is_deterministic),
        cmocka_unit_test(unified_memory_waits_for_nothing),
        cmocka_unit_test(so_many_pass_through_the_device),
        cmocka_unit_test(the_disk_is_spared),
        cmocka_unit_test(early_updates_are_found),
        cmocka_unit_test(loads_begin_late_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
