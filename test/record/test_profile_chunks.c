/* test_profile_chunks.c - a profile without an execution plan: chunks of a foreign framework, driven by hand, as a file that
 * a report reads; and what takes which memory then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/report/figures.h"
#include "assert_status.h"
#include "base/fault.h"
#include "base/mem.h"
#include "chunk/store_stats.h"
#include "temp_folder.h"
#include "train/record/profile_write.h"
#include "train/run/memory_dump.h"

/* chunks of 2048: wte in 0, 1 and the begin of 2, b after it, c in 3, d in 4 of PARAM16 alone */
enum { TENSORS = 4, CHUNKS = 5, MIRRORED = 4, WORDS = 2048 };
enum { VALUES, STATE, GRADIENTS, LISTS }; /* the last one has chunk 3 alone */

static const char *const names[TENSORS] = {"wte", "b", "\"c\"", "d"};
static const char *const held[CHUNKS][2] = {{"wte"}, {"wte"}, {"wte", "b"}, {"\"c\""}, {"d"}};
static const ps_lists lists = {.n = LISTS, .list = {{"VALUES", {4, 1}}, {"STATE", {8, 1}}, {"GRADIENTS", {4, 1}}}};

static ps_layout *layout_of(void)
{
    ps_layout *l = NULL;
    const int64_t elements[TENSORS] = {2 * WORDS + 1000, 1000, WORDS, 700};
    const bool in_first_list_only[TENSORS] = {false, false, false, true};
    assert_ok(ps_layout_create(elements, in_first_list_only, TENSORS, WORDS, &l));
    assert_int_equal(l->n_chunks, CHUNKS);
    assert_int_equal(l->n_mirrored, MIRRORED);
    return l;
}

static ps_profile_chunks chunks_of(const ps_layout *l)
{
    ps_profile_chunks c;
    assert_ok(ps_profile_chunks_init(l, &lists, PS_PAGE_BYTES, &c));
    for (int32_t t = 0; t < TENSORS; t++) c.names[t] = names[t];
    for (int32_t i = 0; i < 3; i++) c.is_there[ps_store_chunk(l, GRADIENTS, i)] = false;
    return c;
}

static void test_which_chunks(void **state)
{
    (void)state;
    ps_layout *l = layout_of();
    ps_profile_chunks c = {0};
    for (long nth = 0;; nth++) {
        ps_fault_arm(PS_FAULT_ALLOC, nth, false);
        const ps_status st = ps_profile_chunks_init(l, &lists, PS_PAGE_BYTES, &c);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        if (st == PS_OK) break;
        assert_int_equal(st, PS_ENOMEM_HOST);
        assert_null(c.layout);
    }
    for (ps_list list = 0; list < LISTS; list++)
        for (int32_t i = 0; i < CHUNKS; i++)
            assert_int_equal(c.is_there[ps_store_chunk(l, list, i)], list == VALUES || i < MIRRORED);
    ps_profile_chunks_deinit(&c);
    ps_lists without = lists;
    without.list[STATE].item.bytes = 0;
    assert_ok(ps_profile_chunks_init(l, &without, PS_PAGE_BYTES, &c));
    assert_false(c.is_there[ps_store_chunk(l, STATE, 0)]);
    assert_true(c.is_there[ps_store_chunk(l, GRADIENTS, 0)]);
    ps_profile_chunks_deinit(&c);
    ps_layout_destroy(l);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- a run by hand ---- */

typedef struct world {
    temp_folder folder;
    ps_layout *layout;
    ps_profile *recorder;
    ps_tiers tiers;
} world;

static void open_world(world *w)
{
    w->folder = temp_folder_make();
    w->layout = layout_of();
    assert_ok(ps_profile_create(NULL, &w->recorder));
    ps_tier_options tiers = {.disk_backend = PS_DISK_THREADS};
    strcpy(tiers.disk_folders, w->folder.path);
    const ps_tiers_desc o = {.space = &ps_space_ram,
                             .budgets.bytes = {12 * PS_PAGE_BYTES, 8 * PS_PAGE_BYTES, PS_MIB},
                             .options = &tiers,
                             .layout = w->layout,
                             .lists = lists,
                             .staging_bytes = PS_PAGE_BYTES,
                             .profile = w->recorder};
    void *activations;
    assert_ok(ps_tiers_open(&o, &w->tiers));
    assert_ok(ps_store_reserve_non_model(w->tiers.store, 2 * PS_PAGE_BYTES, &activations));
}

static void close_world(world *w)
{
    ps_tiers_close(&w->tiers);
    ps_profile_destroy(w->recorder);
    ps_layout_destroy(w->layout);
    temp_folder_remove(&w->folder);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* An operator on one chunk. */
static void operate(world *w, ps_phase phase, const char *label, int32_t moment, ps_chunk_id chunk, int64_t bytes)
{
    assert_ok(ps_store_begin_moment(w->tiers.store, bytes));
    assert_ok(ps_store_pin(w->tiers.store, chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE, NULL));
    const ps_work_time begin = ps_work_now(&w->tiers, PS_TIER_DEVICE);
    ps_work_record(
        &w->tiers, PS_TIER_DEVICE, &begin,
        &(ps_profile_record){
            .kind = PS_PROFILE_OP,
            .chunk = -1,
            .op = {.label = label, .step = 1, .non_model_bytes = bytes, .moment = moment, .phase = (int32_t)phase}});
    ps_store_unpin(w->tiers.store, chunk);
}

/* Twice over all chunks, in less memory than they take. */
static void run(world *w)
{
    int32_t moment = 0;
    ps_profile_start(w->recorder);
    ps_store_profile_start(w->tiers.store);
    const ps_work_time begin = ps_work_now(&w->tiers, PS_TIER_DEVICE);
    for (int32_t i = 0; i < CHUNKS; i++)
        operate(w, PS_PHASE_FORWARD, "layer", moment++, ps_store_chunk(w->layout, VALUES, i), PS_PAGE_BYTES);
    for (int32_t i = 0; i < MIRRORED; i++)
        operate(w, PS_PHASE_BACKWARD, "layer", moment++, ps_store_chunk(w->layout, STATE, i), 2 * PS_PAGE_BYTES);
    operate(w, PS_PHASE_UPDATE, "update", moment++, ps_store_chunk(w->layout, GRADIENTS, 3), 0);
    ps_work_record(&w->tiers, PS_TIER_DEVICE, &begin,
                   &(ps_profile_record){.kind = PS_PROFILE_STEP, .chunk = -1, .step = {.number = 1}});
    ps_store_profile_synchronize(w->tiers.store);
    ps_profile_stop(w->recorder);
}

static void check_chunks(const ps_report_profile *p)
{
    assert_int_equal(p->n_chunks, CHUNKS + MIRRORED + 1);
    for (int i = 0; i < p->n_chunks; i++) {
        const ps_report_profile_chunk *c = &p->chunks[i];
        assert_string_equal(p->list_names[c->list], lists.list[c->list].name);
        assert_int_equal(c->bytes, WORDS * lists.list[c->list].item.bytes);
        assert_int_equal(c->n_tensors, held[c->index][1] != NULL ? 2 : 1);
        for (int k = 0; k < c->n_tensors; k++) assert_string_equal(c->tensors[k], held[c->index][k]);
    }
    assert_int_equal(p->chunks[p->n_chunks - 1].index, 3);
}

/* Chunks that come and go add up to the counters, and nothing was predicted. */
static void check_records(const ps_report_profile *p)
{
    int n_ops[PS_REPORT_N_PHASES] = {0}, n_copies = 0;
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if (s->lane == PS_REPORT_COMPUTE) {
            n_ops[s->phase]++;
            assert_string_equal(s->name, s->phase == PS_REPORT_UPDATE ? "update" : "layer");
        }
        n_copies += s->lane >= PS_REPORT_HOST_TO_DEVICE && s->lane <= PS_REPORT_DISK_WRITE;
    }
    assert_int_equal(n_ops[PS_REPORT_FORWARD], CHUNKS);
    assert_int_equal(n_ops[PS_REPORT_BACKWARD], MIRRORED);
    assert_int_equal(n_ops[PS_REPORT_UPDATE], 1);
    assert_true(n_copies > 3);
    int64_t there[PS_REPORT_N_TIERS] = {0}, counted[PS_REPORT_N_TIERS] = {0};
    for (int i = 0; i < p->n_changes; i++)
        there[p->changes[i].tier] += p->chunks[p->changes[i].chunk].bytes * (p->changes[i].is_there ? 1 : -1);
    for (int i = 0; i < p->n_samples; i++) counted[p->samples[i].tier] = p->samples[i].chunk_bytes;
    for (int tier = 0; tier < PS_RAM_TIER_COUNT; tier++) assert_int_equal(there[tier], counted[tier]);
    assert_true(counted[PS_REPORT_DEVICE] > 0 && counted[PS_REPORT_DISK] > 0);
    assert_true(p->predicted.step_seconds < 0 && p->measured.step_seconds > 0);
    assert_int_equal(p->bound.n, 0);
    assert_int_equal(p->n_throughputs, 0);
}

static void test_a_file_without_a_plan(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    const temp_path path = temp_folder_file(&w.folder, "profile.json");
    ps_profile_chunks chunks = chunks_of(w.layout);
    const ps_profile_facts facts = {.title = "by hand",
                                    .rank = 1,
                                    .n_ranks = 2,
                                    .budgets.bytes = {12 * PS_PAGE_BYTES, 8 * PS_PAGE_BYTES, PS_MIB},
                                    .chunks = &chunks};
    assert_int_equal(ps_profile_write(w.recorder, &facts, path.text), PS_ESTATE);
    run(&w);
    assert_ok(ps_profile_write(w.recorder, &facts, path.text));
    ps_report_profile *p = NULL;
    ps_figures *figures = NULL;
    assert_ok(ps_report_profile_read(path.text, &p));
    assert_string_equal(p->title, "by hand");
    assert_int_equal(p->rank, 1);
    assert_int_equal(p->first_step, 1);
    check_chunks(p);
    check_records(p);
    assert_ok(ps_figures_create(p, &figures));
    ps_figures_destroy(figures);
    ps_report_profile_destroy(p);
    ps_profile_chunks_deinit(&chunks);
    close_world(&w);
}

static void test_what_takes_memory(void **state)
{
    (void)state;
    world w;
    ps_memory_use uses[PS_MEMORY_USES_MAX];
    int64_t sum[PS_TIER_COUNT] = {0};
    open_world(&w);
    run(&w);
    const int n = ps_memory_uses(&lists, &w.tiers, uses);
    assert_int_equal(n, LISTS + 3);
    for (int i = 0; i < LISTS; i++) assert_string_equal(uses[i].name, lists.list[i].name);
    for (int i = 0; i < n; i++) {
        sum[PS_TIER_DEVICE] += uses[i].device_bytes;
        sum[PS_TIER_HOST] += uses[i].host_bytes;
        sum[PS_TIER_DISK] += uses[i].disk_bytes;
    }
    for (int tier = 0; tier < PS_RAM_TIER_COUNT; tier++)
        assert_int_equal(sum[tier], ps_device_get_stats(w.tiers.ram[tier]).used_bytes);
    assert_int_equal(sum[PS_TIER_DISK], ps_store_get_stats(w.tiers.store).disk_bytes);
    assert_int_equal(uses[GRADIENTS].device_bytes, WORDS * 4);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_chunks),
        cmocka_unit_test(test_a_file_without_a_plan),
        cmocka_unit_test(test_what_takes_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
