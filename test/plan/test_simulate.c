/* Plans and runs: peaks and moved bytes are those of the run; several ranks; advice that holds; the largest
 * model. */
#include "cuda/fake_cpu.h"
#include "engine/engine_fixture.h"

#include <jansson.h>
#include <math.h>

#include "base/file.h"
#include "config/config.h"
#include "temp_folder.h"
#include "train/plan/advise.h"
#include "train/plan/hiding.h"
#include "train/plan/largest.h"
#include "train/plan/model_data_min.h"
#include "train/plan/variation.h"
#include "train/settings/params.h"

#define BF16 "bf16.enabled=true"

/* Two GPUs of 8 MB in each of two nodes. */
static const char hardware_text[] =
    "{\"name\": \"test bed\", \"n_nodes\": 2, \"gpus_per_node\": 2,"
    " \"device\": {\"bytes\": \"8MB\", \"page_bytes\": 4096, \"product_workspace_bytes\": 0,"
    "              \"memory_bytes_per_s\": 1e11, \"op_latency_ns\": 1000,"
    "              \"bf16\": {\"flop_per_s\": 1e12, \"achievable_fraction\": 0.5}},"
    " \"host\": {\"bytes\": \"64MB\", \"memory_bytes_per_s\": 2e10, \"adam_fraction\": 0.8},"
    " \"link\": {\"to_device_bytes_per_s\": 1e10, \"to_host_bytes_per_s\": 1e10, \"latency_ns\": 1000, "
    "\"full_duplex\": true},"
    " \"interconnect\": {\"bytes_per_s\": 5e10, \"latency_ns\": 2000},"
    " \"network\": {\"bytes_per_s\": 1e10, \"latency_ns\": 5000}}";

static ps_hardware test_bed(int64_t n_nodes, int64_t gpus_per_node)
{
    ps_hardware hw;
    assert_ok(ps_hardware_parse(hardware_text, "test bed", &hw));
    hw.n_nodes = n_nodes;
    hw.gpus_per_node = gpus_per_node;
    assert_ok(ps_hardware_check(&hw));
    return hw;
}

static int n_phases; /* of the plans compared so far */

/* Plan, then run as many steps as were simulated: the last one moved what the plan says, and no tier held more or
 * less. */
static void compare(const char *name, const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_simulation s;
    ps_memory_info before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    assert_ok(ps_simulate(c, NULL, false, NULL, &s));
    if (!s.fits) fail_msg("%s: %s", name, s.refusal);
    if (s.forecast.step.all_ns < s.bound.phases_ns)
        fail_msg("%s: a step of %lld ns, whose disk has phases of %lld", name, (long long)s.forecast.step.all_ns,
                 (long long)s.bound.phases_ns);
    n_phases += s.bound.phases_ns > 0;
    ps_engine *e = engine_of(c);
    for (int64_t step = 0; step < s.forecast.steps; step++) {
        ps_engine_get_memory_info(e, &before);
        assert_ok(tiny_step(e, step));
    }
    ps_engine_get_memory_info(e, &after);
    assert_int_equal(s.model_data_bytes, after.model_data_bytes);
    assert_int_equal(s.n_params, after.parameters);
    const int64_t moved[] = {after.host_to_device_bytes - before.host_to_device_bytes,
                             after.device_to_host_bytes - before.device_to_host_bytes,
                             after.disk_read_bytes - before.disk_read_bytes,
                             after.disk_write_bytes - before.disk_write_bytes};
    const int64_t peaks[] = {after.device_peak_bytes, after.host_peak_bytes, after.disk_peak_bytes};
    for (size_t l = 0; l < PS_ARRAY_LEN(moved); l++)
        if (moved[l] != s.forecast.moved_bytes[l])
            fail_msg("%s: %s moved %lld bytes, planned %lld", name, ps_link_name((ps_link)l), (long long)moved[l],
                     (long long)s.forecast.moved_bytes[l]);
    for (size_t t = 0; t < PS_ARRAY_LEN(peaks); t++)
        if (peaks[t] != s.forecast.peak_bytes[t])
            fail_msg("%s: %s held %lld bytes, planned %lld", name, ps_tier_name((ps_tier)t), (long long)peaks[t],
                     (long long)s.forecast.peak_bytes[t]);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        int64_t sum = s.forecast.peak[t].non_model_bytes + s.forecast.peak[t].other_bytes;
        for (ps_list l = 0; l < ps_lists_n_all(&s.lists); l++) sum += s.forecast.peak[t].list_bytes[l];
        assert_int_equal(sum, s.forecast.peak_bytes[t]);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

#define COMPARE(name, ...) compare(name, (const char *const[]){__VA_ARGS__, NULL})

#define FEW_ACTIVATIONS BF16, "model.n_layer=8", "activation_checkpointing.enabled=true"

#define DEEP_OFFLOAD BF16, "model.n_layer=8", OFFLOAD, "default_chunk_size=2048"

static void a_plan_is_what_happens(void **state)
{
    (void)state;
    COMPARE("in memory", BF16);
    COMPARE("f32", "train.seed=7");
    COMPARE("host", BF16, "memory.device=400KB", "memory.host=4MB", "default_chunk_size=2048");
    COMPARE("disk", BF16, "memory.device=500KB", "memory.disk=20MB", "default_chunk_size=2048");
    COMPARE("three tiers", BF16, "memory.device=400KB", "memory.host=300KB", "memory.disk=20MB",
            "default_chunk_size=4096");
    COMPARE("accumulation", BF16, "memory.device=600KB", "memory.host=4MB", "gradient_accumulation_steps=2");
    COMPARE("checkpointing", BF16, "activation_checkpointing.enabled=true", "memory.device=400KB", "memory.host=4MB");
    COMPARE("inputs on the host", DEEP_OFFLOAD, "memory.device=300KB", "memory.host=4MB");
    COMPARE("inputs on disk", DEEP_OFFLOAD, "memory.device=300KB", "memory.host=100KB", "memory.disk=20MB");
    COMPARE("inputs, two micro-batches", DEEP_OFFLOAD, "memory.device=500KB", "memory.host=8MB",
            "gradient_accumulation_steps=2");
    COMPARE("updates at once", BF16, "memory.defer_updates=false", "memory.device=500KB", "memory.host=4MB");
    COMPARE("no prefetch", BF16, "memory.prefetch=0", "memory.device=500KB", "memory.host=4MB");
    n_phases = 0;
    COMPARE("a disk for most", FEW_ACTIVATIONS, "memory.device=600KB", "memory.disk=20MB", "default_chunk_size=2048");
    COMPARE("a disk after the backward pass", FEW_ACTIVATIONS, "memory.defer_updates=false", "memory.device=600KB",
            "memory.disk=20MB", "default_chunk_size=2048");
    COMPARE("a disk, two micro-batches", FEW_ACTIVATIONS, "memory.device=600KB", "memory.disk=20MB",
            "default_chunk_size=2048", "gradient_accumulation_steps=2");
#define MAY_BE_EARLY FEW_ACTIVATIONS, "gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.disk=20MB"
    COMPARE("a disk, early updates", MAY_BE_EARLY, "memory.update_in_backward=always", "memory.device=600KB",
            "default_chunk_size=2048");
    COMPARE("a disk, early and deferred updates", MAY_BE_EARLY, "memory.device=600KB", "default_chunk_size=2048");
    COMPARE("a disk, both, two micro-batches", MAY_BE_EARLY, "memory.device=600KB", "default_chunk_size=2048",
            "gradient_accumulation_steps=2");
#undef MAY_BE_EARLY
    assert_int_equal(n_phases, 6);
    COMPARE("llama", BF16, "model.type=llama", "model.intermediate_size=96", "memory.device=500KB", "memory.host=4MB");
    assert_int_equal(ps_mem_live_bytes(), 0);
}

#define LATER BF16, "train.backend=cuda", "default_chunk_size=2048"

/* On a device that works later: results lie there, what goes to the disk goes through host memory, updates on the host
 * have a queue of their own. */
static void a_plan_is_what_happens_later(void **state)
{
    (void)state;
    fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES});
    COMPARE("in memory, later", LATER);
    COMPARE("inputs on the host, later", LATER, "model.n_layer=8", OFFLOAD, "memory.device=400KB", "memory.host=4MB");
    COMPARE("host, later", LATER, "memory.device=400KB", "memory.host=4MB");
    COMPARE("three tiers, later", LATER, "memory.device=400KB", "memory.host=700KB", "memory.disk=20MB");
    COMPARE("accumulation, later", LATER, "memory.device=600KB", "memory.host=4MB", "gradient_accumulation_steps=2");
    COMPARE("updates at once, later", LATER, "memory.defer_updates=false", "memory.device=500KB", "memory.host=4MB");
    assert_true(fake_cpu_end());
    fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = 2 * PS_MIB});
    COMPARE("large pages", BF16, "train.backend=cuda", "memory.device=80MB", "memory.host=80MB");
    assert_true(fake_cpu_end());
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* The same with a description of the machine, which moves chunks at other times. */
static void hardware_changes_the_plan_and_the_run_alike(void **state)
{
    (void)state;
    temp_folder f = temp_folder_make();
    char path[512], option[600];
    snprintf(path, sizeof path, "%s/hw.json", f.path);
    snprintf(option, sizeof option, "hardware=%s", path);
    ps_hardware hw = test_bed(1, 1);
    hw.link.to_device_bytes_per_s = hw.link.to_host_bytes_per_s = 1e7; /* a slow link */
    hw.link.full_duplex = false;
    hw.link.compute_interference = 0.5;
    assert_ok(ps_hardware_save(&hw, path));
    COMPARE("slow link", BF16, option, "memory.device=400KB", "memory.host=4MB", "default_chunk_size=2048");
    hw.link.to_device_both_ways_bytes_per_s = hw.link.to_host_both_ways_bytes_per_s = 8e6;
    assert_ok(ps_hardware_save(&hw, path));
    COMPARE("ways that slow each other", BF16, option, "memory.device=400KB", "memory.host=4MB",
            "default_chunk_size=2048");
    ps_config *c = TINY(option); /* f32 */
    ps_engine *e = NULL;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "device.f32.flop_per_s"));
    ps_config_destroy(c);
    temp_folder_remove(&f);
}

/* ---- time ---- */

static void a_step_is_computing_and_waiting(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, "memory.device=400KB", "memory.host=4MB", "default_chunk_size=2048");
    ps_hardware hw = test_bed(1, 1);
    ps_simulation s, faster;
    hw.link.to_device_bytes_per_s = 1e8;
    hw.link.compute_interference = 0.25;
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .takes_first_plan = true}, false, NULL, &s));
    assert_true(s.fits);
    int64_t sum = s.forecast.step.compute_ns + s.forecast.step.lost_ns;
    for (int l = 0; l < PS_LINK_COUNT; l++) sum += s.forecast.step.wait_ns[l];
    sum += s.forecast.step.host_wait_ns + s.forecast.step.idle_ns;
    assert_int_equal(sum, s.forecast.step.all_ns);
    assert_true(s.forecast.step.lost_ns > 0);
    assert_true(s.forecast.step.wait_ns[PS_LINK_HOST_TO_DEVICE] > 0);
    assert_string_equal(ps_step_time_critical(&s.forecast.step), "host->device");
    hw.link.to_device_bytes_per_s = 1e12;
    hw.link.to_host_bytes_per_s = 1e12;
    hw.link.latency_ns = 0;
    hw.link.compute_interference = 0;
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .takes_first_plan = true}, false, NULL, &faster));
    assert_string_equal(ps_step_time_critical(&faster.forecast.step), "host updates");
    assert_true(faster.forecast.step.host_wait_ns < faster.forecast.step.host_ns); /* while the device computes */
    hw.host.memory_bytes_per_s = 1e13;
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .takes_first_plan = true}, false, NULL, &faster));
    assert_int_equal(faster.forecast.step.lost_ns, 0);
    assert_true(faster.forecast.step.all_ns < s.forecast.step.all_ns);
    assert_string_equal(ps_step_time_critical(&faster.forecast.step), "compute");
    hw.device.bf16.flop_per_s *= 1e3;
    hw.device.memory_bytes_per_s *= 1e3;
    hw.device.op_latency_ns = 0;
    hw.host.memory_bytes_per_s *= 1e3;
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .takes_first_plan = true}, false, NULL, &s));
    assert_true(s.forecast.step.compute_ns * 100 < faster.forecast.step.compute_ns);
    ps_config_destroy(c);
}

static int32_t n_passing_through(const ps_simulation *s)
{
    return s->n_local_chunks - s->n_host_updates - s->n_resident_updates;
}

/* A host that computes slowly updates few chunks, if any: the others pass through the device as far as the link is
 * quick. All of them on the host take longer. */
static void updates_pass_through_a_quick_device(void **state)
{
    (void)state;
    ps_hardware hw = test_bed(1, 1);
    const double host_throughput[] = {1e9, 1e10, 1e13}, link_bandwidths[] = {1e8, 1e10, 1e12};
    int32_t n_passing[3][3];
    for (int h = 0; h < 3; h++)
        for (int l = 0; l < 3; l++) {
            ps_config *c = TINY(BF16, "memory.device=400KB", "memory.host=4MB", "default_chunk_size=2048");
            ps_simulation s, first;
            hw.host.memory_bytes_per_s = host_throughput[h];
            hw.link.to_device_bytes_per_s = hw.link.to_host_bytes_per_s = link_bandwidths[l];
            hw.link.latency_ns = 0;
            assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw}, false, NULL, &s));
            n_passing[h][l] = n_passing_through(&s);
            assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .takes_first_plan = true}, false, NULL, &first));
            n_passing[h][l] -= n_passing_through(&first); /* for which the host has no room */
            assert_true(s.forecast.step.all_ns <= first.forecast.step.all_ns);
            if (h == 0 && l == 2) assert_true(s.forecast.step.all_ns * 2 < first.forecast.step.all_ns);
            ps_config_destroy(c);
        }
    assert_int_equal(n_passing[2][2], 0); /* updating at once needs no help */
    assert_true(n_passing[0][2] > n_passing[1][2] && n_passing[1][2] > n_passing[2][2]);
    assert_true(n_passing[0][2] > n_passing[0][0]); /* a link that is slow carries few */
}

/* The more one way loses against the other the longer a step takes: over the link of a GPU, with the disk of a
 * processor. */
static void what_both_ways_cost_each_other_costs_a_step(void **state)
{
    (void)state;
    for (int has_gpu = 0; has_gpu < 2; has_gpu++) {
        int64_t before_ns = 0;
        ps_config *c = has_gpu ? TINY(BF16, "memory.device=400KB", "memory.host=4MB", "default_chunk_size=2048")
                               : TINY(BF16, "memory.device=500KB", "memory.disk=20MB", "default_chunk_size=2048");
        ps_hardware hw = test_bed(1, has_gpu);
        hw.host.memory_bytes_per_s = 1e13;
        hw.link.to_device_bytes_per_s = hw.link.to_host_bytes_per_s = 2e7;
        hw.disk = (ps_hardware_disk){
            .present = true, .bytes = PS_GIB, .read_bytes_per_s = 1e8, .write_bytes_per_s = 1e8, .full_duplex = true};
        for (double at_once = 1e8; at_once > 4e7; at_once -= 2.5e7) {
            ps_simulation s;
            hw.link.to_device_both_ways_bytes_per_s = hw.link.to_host_both_ways_bytes_per_s = at_once / 5;
            hw.disk.read_both_ways_bytes_per_s = hw.disk.write_both_ways_bytes_per_s = at_once;
            assert_ok(ps_hardware_check(&hw));
            assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .takes_first_plan = true}, false, NULL, &s));
            assert_true(s.fits && s.forecast.step.all_ns * 100 > before_ns * 102);
            before_ns = s.forecast.step.all_ns;
        }
        ps_config_destroy(c);
    }
}

/* ---- ranks ---- */

/* What all ranks send together; what rank 0, which owns most, holds. */
static void check_ranks(const ps_config *c, int32_t p, int64_t *held)
{
    const ps_hardware hw = test_bed(p > 2 ? 2 : 1, p > 1 ? 2 : 1);
    double sent = 0, expected = 0;
    for (int32_t rank = p - 1; rank >= 0; rank--) {
        ps_simulation s;
        assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .rank = rank}, false, NULL, &s));
        if (!s.fits) fail_msg("%s", s.refusal);
        assert_int_equal(s.ranks.n, p);
        assert_int_equal(s.ranks.rank, rank);
        sent += (double)s.forecast.moved_bytes[PS_LINK_COLLECTIVES];
        expected = 6.0 * (double)(p - 1) * (double)s.n_params;
        *held = 0;
        for (ps_list l = 0; l < ps_lists_n_all(&s.lists); l++)
            *held += s.forecast.peak[PS_TIER_DEVICE].list_bytes[l] + s.forecast.peak[PS_TIER_HOST].list_bytes[l];
    }
    /* tensors are aligned to 32 elements */
    if (sent < expected || sent > 1.02 * expected) fail_msg("%d ranks: %.0f, not %.0f", p, sent, expected);
}

/* What ranks refuse at their start, a plan for them refuses too. */
static void what_ranks_refuse_is_not_planned(void **state)
{
    (void)state;
    const ps_hardware hw = test_bed(1, 2);
    ps_simulation s;
    ps_config *c = TINY(BF16, "memory.device=auto", "memory.host=auto", "use_cpu_embedding=true");
    assert_int_equal(ps_simulate(c, &(ps_site){.hardware = &hw}, false, NULL, &s), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "use_cpu_embedding is for one rank: 2 ranks"));
    ps_config_destroy(c);
}

static void ranks_send_six_bytes_a_parameter(void **state)
{
    (void)state;
    for (int saves_memory = 0; saves_memory < 2; saves_memory++) {
        ps_config *c = TINY(BF16, "memory.device=auto", "memory.host=auto", "default_chunk_size=4096",
                            saves_memory ? "client.opts.with_mem_saving_comm=true" : "train.seed=7");
        int64_t most = INT64_MAX;
        for (int32_t p = 1; p <= 4; p *= 2) {
            int64_t held;
            check_ranks(c, p, &held);
            assert_true(held < most);
            most = held;
        }
        ps_config_destroy(c);
    }
}

static void ranks_of_this_machine(void **state)
{
    (void)state;
    ps_simulation one, two;
    const ps_hardware hw = test_bed(1, 2);
    ps_config *c = TINY(BF16, "memory.device=auto", "memory.host=auto"),
              *given = TINY(BF16, "memory.device=auto", "memory.host=8MB");
    assert_ok(ps_simulate(c, &(ps_site){.n_ranks = 1}, false, NULL, &one));
    assert_ok(ps_simulate(c, &(ps_site){.n_ranks = 2, .rank = 1}, false, NULL, &two));
    assert_int_equal(two.ranks.n, 2);
    assert_int_equal(two.ranks.rank, 1);
    /* what is "auto" is shared; the machine's free memory changes meanwhile */
    const double ratio = (double)two.budgets.bytes[PS_TIER_DEVICE] / (double)one.budgets.bytes[PS_TIER_DEVICE];
    assert_true(ratio > 0.3 && ratio < 0.7);
    assert_ok(ps_simulate(given, &(ps_site){.n_ranks = 1}, false, NULL, &one));
    assert_ok(ps_simulate(given, &(ps_site){.n_ranks = 2, .rank = 1}, false, NULL, &two));
    assert_int_equal(two.budgets.bytes[PS_TIER_DEVICE], 8000000);
    assert_int_equal(two.budgets.bytes[PS_TIER_DEVICE], one.budgets.bytes[PS_TIER_DEVICE]);
    ps_config_destroy(given);
    assert_int_equal(ps_simulate(c, &(ps_site){.n_ranks = 2, .rank = 2}, false, NULL, &two), PS_EINVAL);
    assert_int_equal(ps_simulate(c, &(ps_site){.rank = 1}, false, NULL, &two), PS_EINVAL);
    assert_int_equal(ps_simulate(c, &(ps_site){.hardware = &hw, .n_ranks = 3}, false, NULL, &two), PS_EINVAL);
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw, .n_ranks = 2, .rank = 1}, false, NULL, &two));
    ps_config_destroy(c);
}

static void saving_memory_holds_less_at_once(void **state)
{
    (void)state;
    const ps_hardware hw = test_bed(2, 2);
    ps_simulation groups, chunks;
    ps_config *c = TINY(BF16, "default_chunk_size=8192", "memory.device=4MB", "memory.host=4MB", "comm.staging=64KiB");
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw}, false, NULL, &groups));
    assert_ok(ps_config_set(c, "client.opts.with_mem_saving_comm", "true"));
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw}, false, NULL, &chunks));
    assert_true(groups.fits && chunks.fits);
    assert_true(chunks.forecast.peak_bytes[PS_TIER_DEVICE] < groups.forecast.peak_bytes[PS_TIER_DEVICE]);
    ps_config_destroy(c);
    /* gradients summed over micro-batches are sent after each of them */
    c = TINY(BF16, "gradient_accumulation_steps=2", "memory.host=8MB");
    assert_ok(ps_simulate(c, &(ps_site){.hardware = &hw}, false, NULL, &chunks));
    assert_true(chunks.fits);
    assert_true(chunks.forecast.moved_bytes[PS_LINK_COLLECTIVES] >
                2 * groups.forecast.moved_bytes[PS_LINK_COLLECTIVES]);
    ps_config_destroy(c);
}

static void a_simulated_profile_has_every_lane(void **state)
{
    (void)state;
    temp_folder f = temp_folder_make();
    char path[512];
    const ps_hardware hw = test_bed(2, 2);
    snprintf(path, sizeof path, "%s/profile.json", f.path);
    ps_config *c =
        TINY(BF16, "memory.device=400KB", "memory.host=4MB", "default_chunk_size=4096", "comm.staging=64KiB");
    assert_ok(ps_simulate_profile(c, &(ps_site){.hardware = &hw}, "tiny", path));
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const json_t *facts = json_object_get(root, "patrickstar");
    assert_true(json_is_true(json_object_get(facts, "simulated")));
    assert_int_equal(json_integer_value(json_object_get(facts, "n_ranks")), 4);
    const json_t *predicted = json_object_get(facts, "predicted"), *measured = json_object_get(facts, "measured");
    const double a = json_number_value(json_object_get(predicted, "step_seconds"));
    const double b = json_number_value(json_object_get(measured, "step_seconds"));
    assert_true(a > 0 && fabs(a - b) < 0.05 * a);
    double collectives = 0, compute = 0, copies = 0;
    size_t i;
    const json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *category = json_string_value(json_object_get(event, "cat"));
        const double duration = json_number_value(json_object_get(event, "dur"));
        if (category == NULL) continue;
        if (strcmp(category, "collective") == 0) collectives += duration;
        if (strcmp(category, "op") == 0) compute += duration;
        if (strcmp(category, "copy") == 0) copies += duration;
    }
    assert_true(collectives > 0 && compute > 0 && copies > 0);
    json_decref(root);
    ps_config_destroy(c);
    temp_folder_remove(&f);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- advice ---- */

/* The change of a piece of advice, tried once more. */
static ps_simulation follow(const ps_config *c, const ps_site *site, const ps_advice *a)
{
    ps_variation v;
    ps_simulation s;
    char text[PS_ADVICE_TEXT_MAX], *rest = text;
    memcpy(text, a->change, sizeof text);
    assert_ok(ps_variation_init(&v, c, site));
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        assert_ok(ps_variation_set(&v, word, equals + 1));
    }
    assert_ok(ps_variation_simulate(&v, NULL, &s));
    ps_variation_deinit(&v);
    return s;
}

/* What has a price: bits. */
enum { ADVISES_NO_SKIPS = 1, ADVISES_COMPACT = 2, ADVISES_RELEASE = 4 };

/* Returns those of them that it has. */
static int check_advice(ps_config *c, const ps_site *site, int least)
{
    int prices = 0;
    ps_simulation base;
    ps_advice advice[PS_ADVICE_MAX];
    int n;
    assert_ok(ps_simulate(c, site, false, NULL, &base));
    assert_ok(ps_advise(c, site, &base, NULL, advice, &n));
    if (n < least) fail_msg("no advice: %s", base.fits ? "fits" : base.refusal);
    for (int i = 0; i < n; i++) {
        const ps_simulation s = follow(c, site, &advice[i]);
        if (!s.fits) fail_msg("%s does not fit", advice[i].change);
        assert_true(fabs(ps_simulation_tokens_per_s(&s) - advice[i].tokens_per_s) < 1e-6 * advice[i].tokens_per_s);
        if (base.fits) assert_true(advice[i].tokens_per_s >= 1.02 * ps_simulation_tokens_per_s(&base));
        if (i > 0 && advice[i].cost == advice[i - 1].cost)
            assert_true(advice[i].tokens_per_s <= advice[i - 1].tokens_per_s);
        if (i > 0) assert_true(advice[i].cost >= advice[i - 1].cost);
        assert_string_equal(s.machine_refusal, "");
        /* steps are skipped no longer, or have other bits: more than a change of speed */
        const bool skips_none = strcmp(advice[i].change, "train.max_nonfinite_steps=1") == 0;
        const bool is_compact = strcmp(advice[i].change, "optimizer.params.state_format=compact") == 0;
        const bool is_split = strncmp(advice[i].change, "optimizer.params.state_format=compact_split ", 44) == 0;
        assert_int_equal(advice[i].price != NULL, skips_none || is_compact || is_split);
        assert_int_equal(advice[i].saved_bytes, ps_max_i64(0, base.model_data_bytes - s.model_data_bytes));
        if (is_compact || is_split) assert_true(advice[i].saved_bytes > 0);
        prices |=
            (skips_none ? ADVISES_NO_SKIPS : 0) | (is_compact ? ADVISES_COMPACT : 0) | (is_split ? ADVISES_RELEASE : 0);
    }
    ps_config_destroy(c);
    return prices;
}

/* A disk that is too small, and how large the machine's is. */
static void a_larger_disk_is_advised(void **state)
{
    (void)state;
    ps_hardware hw = test_bed(1, 0);
    hw.disk = (ps_hardware_disk){.present = true, .read_bytes_per_s = 1e9, .write_bytes_per_s = 1e9};
    const int64_t disks[] = {0, 100000, 300000, PS_GIB}; /* 0: this machine */
    const char *const advised[] = {"memory.disk=800kB", NULL, NULL, "memory.disk=800kB"};
    for (size_t i = 0; i < PS_ARRAY_LEN(disks); i++) {
        ps_simulation base;
        ps_advice advice[PS_ADVICE_MAX];
        const char *found = NULL;
        int n;
        ps_config *c =
            TINY(BF16, "memory.device=700KB", "memory.host=0", "memory.disk=100KB", "default_chunk_size=2048");
        hw.disk.bytes = disks[i];
        const ps_site site = {.hardware = disks[i] > 0 ? &hw : NULL};
        assert_ok(ps_simulate(c, &site, false, NULL, &base));
        assert_false(base.fits);
        assert_ok(ps_advise(c, &site, &base, NULL, advice, &n));
        for (int k = 0; k < n; k++)
            if (strncmp(advice[k].change, "memory.disk=", strlen("memory.disk=")) == 0) found = advice[k].change;
        if ((found == NULL) != (advised[i] == NULL) || (found != NULL && strcmp(found, advised[i]) != 0))
            fail_msg("of %lld bytes: %s", (long long)disks[i], found != NULL ? found : "no advice");
        ps_config_destroy(c);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void advice_holds_when_it_is_followed(void **state)
{
    (void)state;
    const ps_hardware hw = test_bed(1, 2);
    check_advice(TINY(BF16, "memory.device=300KB", "memory.host=4MB"), NULL, 1);
    assert_int_equal(check_advice(TINY(BF16, "memory.device=700KB", "memory.host=0", "memory.disk=20MB",
                                       "gradient_clipping=0", "default_chunk_size=2048", "memory.defer_updates=false"),
                                  NULL, 1),
                     ADVISES_NO_SKIPS | ADVISES_COMPACT | ADVISES_RELEASE);
    check_advice(TINY(BF16, "memory.device=300KB", "memory.host=4MB", "train_micro_batch_size_per_gpu=16"), NULL, 1);
    /* gradients that are accumulated, or clipped, are there until the step's end */
    assert_int_equal(check_advice(TINY(BF16, "memory.device=700KB", "memory.host=0", "memory.disk=20MB",
                                       "gradient_clipping=0", "gradient_accumulation_steps=2"),
                                  NULL, 0) &
                         ADVISES_RELEASE,
                     0);
    assert_int_equal(
        check_advice(TINY(BF16, "memory.device=700KB", "memory.host=0", "memory.disk=20MB", "gradient_clipping=1"),
                     NULL, 0) &
            ADVISES_RELEASE,
        0);
    check_advice(TINY(BF16, "memory.device=500KB", "memory.host=auto", "train_micro_batch_size_per_gpu=32",
                      "comm.staging=64KiB"),
                 &(ps_site){.hardware = &hw}, 1);
    check_advice(TINY(BF16, "memory.device=300KB", "memory.host=4MB", "comm.staging=64KiB"),
                 &(ps_site){.n_ranks = 2, .rank = 1}, 1);
    /* four times as many, which advice tries, are above the option's bound */
    check_advice(TINY(BF16, "memory.device=4MB", "memory.host=4MB", "memory.prefetch=1024"), NULL, 1);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- the batch that hides the disk ---- */

static ps_simulation with_batch(int64_t B, const char *device, const ps_site *site, ps_config **config)
{
    char batch[64];
    ps_simulation s;
    snprintf(batch, sizeof batch, "train_micro_batch_size_per_gpu=%lld", (long long)B);
    ps_config *c = TINY(BF16, "memory.host=0", "memory.disk=20MB", "default_chunk_size=2048",
                        "activation_checkpointing.enabled=true", batch, device);
    assert_ok(ps_simulate(c, site, false, NULL, &s));
    if (config != NULL)
        *config = c;
    else
        ps_config_destroy(c);
    return s;
}

static ps_hiding hiding(int64_t B, const char *device, const ps_site *site)
{
    ps_hiding h;
    ps_config *c;
    const ps_simulation base = with_batch(B, device, site, &c);
    assert_true(base.fits);
    assert_ok(ps_find_hiding(c, site, &base, NULL, &h));
    ps_config_destroy(c);
    return h;
}

static void the_batch_that_hides_the_disk_does(void **state)
{
    (void)state;
    ps_hardware hw = test_bed(1, 0);
    const ps_site site = {.hardware = &hw};
    hw.disk = (ps_hardware_disk){
        .present = true, .bytes = PS_GIB, .read_bytes_per_s = 1.5e9, .write_bytes_per_s = 1.5e9, .full_duplex = true};
    assert_true(hiding(1, "memory.device=4MB", &site).B == 0); /* all fits the device */

    hw.device.bf16.flop_per_s = 1e12 / 16;
    const ps_hiding hidden = hiding(1, "memory.device=600KB", &site);
    assert_true(hidden.fits && hidden.B > 2);
    const ps_simulation with = with_batch(hidden.B, "memory.device=600KB", &site, NULL);
    assert_true(with.fits && !ps_simulation_waits_for_disk(&with));
    assert_true(fabs(ps_simulation_tokens_per_s(&with) - hidden.tokens_per_s) < 1e-6 * hidden.tokens_per_s);
    const ps_simulation less = with_batch(hidden.B * 7 / 8, "memory.device=600KB", &site, NULL);
    assert_true(less.fits && ps_simulation_waits_for_disk(&less));

    const ps_hiding larger = hiding(1, "memory.device=400KB", &site);
    assert_true(!larger.fits && larger.B > larger.largest_B);
    const ps_simulation most = with_batch(larger.largest_B, "memory.device=400KB", &site, NULL);
    assert_true(most.fits && ps_simulation_waits_for_disk(&most));
    const ps_simulation more = with_batch(larger.largest_B + 1, "memory.device=400KB", &site, NULL);
    assert_true(!more.fits);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- options that a plan shows ---- */

#define TIGHT BF16, "memory.device=400KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=2048"

static ps_simulation tight(const char *change)
{
    ps_simulation s;
    ps_config *c = TINY(TIGHT, change);
    assert_ok(ps_simulate(c, &(ps_site){.takes_first_plan = true}, false, NULL, &s));
    if (!s.fits) fail_msg("%s: %s", change, s.refusal);
    ps_config_destroy(c);
    return s;
}

static int64_t sum_of_links(const int64_t values[PS_LINK_COUNT])
{
    int64_t sum = 0;
    for (int l = 0; l < PS_LINK_COUNT; l++) sum += values[l];
    return sum;
}

static void chunks_come_and_leave_as_asked(void **state)
{
    (void)state;
    const ps_simulation usual = tight("train.seed=7"), unasked = tight("memory.prefetch=0");
    const ps_step_time *step = &usual.forecast.step;
    const ps_simulation at_once = tight("memory.defer_updates=false");
    assert_true(ps_simulation_step_s(&unasked) > 1.2 * ps_simulation_step_s(&usual));
    assert_true(sum_of_links(step->wait_ns) < sum_of_links(step->busy_ns)); /* copies overlap computing */
    assert_true(usual.candidate.update_time == PS_UPDATE_DEFERRED && at_once.candidate.update_time == PS_UPDATE_AFTER);
}

/* ---- what is not searched for ---- */

/* Trials that began; the deadline is over once there are so many. */
typedef struct trials {
    int64_t n, most;
    ps_deadline deadline;
} trials;

static int count_trial(void *user, const ps_progress *p)
{
    trials *t = user;
    if (p->what == PS_PROGRESS_PLAN && ++t->n == t->most) t->deadline.at_ns = 0;
    return 0;
}

static trials trials_up_to(int64_t most)
{
    return (trials){.most = most, .deadline = {.at_ns = INT64_MAX}};
}

/* More model data than all tiers hold: not one trial for it, nor for changes that do not help. */
static void the_total_is_refused_by_arithmetic(void **state)
{
    (void)state;
    trials t = trials_up_to(0);
    ps_simulation s;
    ps_advice advice[PS_ADVICE_MAX];
    int n;
    ps_config *c = TINY(BF16, "model.n_layer=400", "model.n_embd=65536", "model.n_head=64", "memory.device=1GB",
                        "memory.host=2GB", "memory.disk=4GB", "train_micro_batch_size_per_gpu=64");
    ps_set_progress(count_trial, &t);
    assert_ok(ps_simulate(c, NULL, false, NULL, &s));
    assert_false(s.fits);
    assert_non_null(strstr(s.refusal, " of model data, room for "));
    assert_ok(ps_advise(c, NULL, &s, NULL, advice, &n));
    assert_int_equal(n, 0);
    assert_int_equal(t.n, 0);
    ps_set_progress(NULL, NULL);
    ps_config_destroy(c);
    /* a byte more than all of the model, and it is tried */
    ps_settings settings;
    ps_program *program;
    c = TINY(BF16, "train.freeze=*.h.1.*");
    assert_ok(ps_settings_read(c, true, &settings));
    assert_ok(ps_settings_build_program(&settings, ps_model_from_config, c, 2, 16, &program));
    int64_t bytes = 0;
    for (int32_t i = 0; i < program->n_params; i++)
        bytes += program->params[i].elements * (program->params[i].is_frozen ? 2 : 14);
    assert_int_equal(ps_model_data_min_bytes(&settings, program), bytes);
    const ps_budgets less = {.bytes = {bytes / 2, bytes / 4, bytes - bytes / 2 - bytes / 4 - 1}};
    const ps_budgets enough = {.bytes = {bytes / 2, bytes / 4, bytes - bytes / 2 - bytes / 4}};
    assert_int_equal(ps_model_data_min_check(&settings, program, &less), PS_EBUDGET);
    assert_ok(ps_model_data_min_check(&settings, program, &enough));
    ps_program_destroy(program);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* A question of those that a plan asks. */
typedef ps_status (*question)(const ps_config *c, const ps_simulation *base, ps_deadline *deadline);

static ps_status ask_plan(const ps_config *c, const ps_simulation *base, ps_deadline *deadline)
{
    ps_simulation s;
    (void)base;
    PS_TRY(ps_simulate(c, NULL, true, deadline, &s));
    assert_int_equal(s.timed_out, ps_deadline_timed_out(deadline));
    return PS_OK;
}

static ps_status ask_advice(const ps_config *c, const ps_simulation *base, ps_deadline *deadline)
{
    ps_advice advice[PS_ADVICE_MAX];
    int n;
    return ps_advise(c, NULL, base, deadline, advice, &n);
}

static ps_status ask_hiding(const ps_config *c, const ps_simulation *base, ps_deadline *deadline)
{
    ps_hiding h;
    PS_TRY(ps_find_hiding(c, NULL, base, deadline, &h));
    if (ps_deadline_timed_out(deadline)) assert_int_equal(h.B, 0);
    return PS_OK;
}

static ps_status ask_least(const ps_config *c, const ps_simulation *base, ps_deadline *deadline)
{
    int64_t bytes;
    (void)base;
    return ps_simulate_least_budget(c, NULL, PS_TIER_DEVICE, deadline, &bytes);
}

/* When time is up in the middle of a search, no other trial begins; and what was left out is said. With time enough the
 * answer is that without a deadline, in as many trials. */
static void a_deadline_ends_a_search(void **state)
{
    (void)state;
    static const question questions[] = {ask_plan, ask_advice, ask_hiding, ask_least};
    for (int fits = 0; fits < 2; fits++) {
        ps_simulation base;
        ps_config *c = TINY(BF16, fits ? "memory.device=600KB" : "memory.device=100KB", "memory.host=0",
                            "memory.disk=20MB", "default_chunk_size=2048", "gradient_accumulation_steps=2");
        assert_ok(ps_simulate(c, NULL, false, NULL, &base));
        assert_int_equal(base.fits, fits);
        for (size_t q = 0; q < PS_ARRAY_LEN(questions); q++) {
            if (fits ? questions[q] == ask_least : questions[q] == ask_hiding) continue;
            trials all = trials_up_to(0), cut = trials_up_to(2);
            ps_set_progress(count_trial, &all);
            assert_ok(questions[q](c, &base, &all.deadline));
            assert_false(all.deadline.timed_out);
            assert_true(all.n > cut.most);
            ps_set_progress(count_trial, &cut);
            assert_ok(questions[q](c, &base, &cut.deadline));
            assert_true(cut.deadline.timed_out);
            assert_int_equal(cut.n, cut.most);
        }
        ps_set_progress(NULL, NULL);
        ps_config_destroy(c);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* When time is up while the plans of other ranks are searched, this rank's plan is kept, and marked. */
static void a_deadline_keeps_the_plan_of_a_rank(void **state)
{
    (void)state;
    const ps_site site = {.n_ranks = 2};
    ps_simulation s;
    ps_config *c = TINY(BF16, "memory.device=1MB", "memory.host=1MB", "memory.disk=20MB", "default_chunk_size=2048",
                        "comm.staging=65536");
    trials all = trials_up_to(0);
    ps_set_progress(count_trial, &all);
    assert_ok(ps_simulate(c, &site, false, &all.deadline, &s));
    assert_true(s.fits);
    assert_false(s.timed_out);
    bool fitted = false;
    for (int most = 1; most < all.n; most++) {
        trials cut = trials_up_to(most);
        ps_set_progress(count_trial, &cut);
        assert_ok(ps_simulate(c, &site, false, &cut.deadline, &s));
        assert_true(s.timed_out);
        if (fitted && !s.fits) fail_msg("a plan was found before trial %d, and is lost", most);
        fitted = s.fits;
    }
    assert_true(fitted);
    ps_set_progress(NULL, NULL);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Budgets at the end of their range: what advice makes of them overflows nothing (under UndefinedBehaviorSanitizer). */
static void advice_near_budget_limit_does_not_overflow(void **state)
{
    (void)state;
    static const char *const sets[][4] = {
        {"memory.device=1152921504606846976", "memory.host=0", "memory.disk=0", NULL},
        {"memory.device=1152921504606846976", "memory.host=4096", "memory.disk=0", "use_cpu_embedding=true"},
        {"memory.device=100KB", "memory.host=0", "memory.disk=1152921504606846976", NULL},
        {"memory.device=100KB", "memory.host=0", "memory.disk=200000000000000000", NULL}};
    for (size_t i = 0; i < PS_ARRAY_LEN(sets); i++) {
        ps_simulation base;
        ps_advice advice[PS_ADVICE_MAX];
        int n;
        const char *const *with = sets[i];
        ps_config *c = tiny_with((const char *const[]){BF16, with[0], with[1], with[2], with[3], NULL});
        assert_ok(ps_simulate(c, NULL, false, NULL, &base));
        assert_ok(ps_advise(c, NULL, &base, NULL, advice, &n));
        for (int k = 0; k < n; k++) assert_null(strstr(advice[k].change, "=-"));
        ps_config_destroy(c);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- the largest ---- */

static void the_largest_fits_and_one_more_layer_does_not(void **state)
{
    (void)state;
    ps_hardware hw = test_bed(1, 2);
    hw.device.bytes = 64 * PS_MIB;
    hw.host.bytes = 96 * PS_MIB;
    ps_config *c =
        TINY(BF16, "memory.device=auto", "memory.host=auto", "model.n_positions=128", "data.sequence_length=128",
             "activation_checkpointing.enabled=true", "train_micro_batch_size_per_gpu=1", "comm.staging=64KiB",
             "client.mem_tracer.overall_gpu_mem_ratio=1", "client.mem_tracer.overall_cpu_mem_ratio=1");
    ps_largest l, smaller;
    assert_ok(ps_find_largest(c, &hw, "gpt2", &l));
    assert_true(l.n_params > 0 && l.simulation.fits);
    assert_true(14 * l.n_params < 2 * hw.device.bytes + hw.host.bytes);
    hw.host.bytes = 64 * PS_MIB;
    assert_ok(ps_find_largest(c, &hw, "gpt2", &smaller));
    assert_true(smaller.n_params < l.n_params);
    /* fewer bytes a parameter, a larger model: 6 without momentum */
    hw.host.bytes = 96 * PS_MIB;
    assert_ok(ps_config_set(c, "optimizer.type", "SGD"));
    assert_ok(ps_config_set(c, "optimizer.params.betas", "[0.9, 0.999]"));
    assert_ok(ps_find_largest(c, &hw, "gpt2", &l));
    assert_true(14 * l.n_params > 2 * hw.device.bytes + hw.host.bytes);
    assert_true(6 * l.n_params < 2 * hw.device.bytes + hw.host.bytes);
    assert_int_equal(ps_find_largest(c, &hw, "unknown", &l), PS_EINVAL);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_what_happens),
        cmocka_unit_test(a_plan_is_what_happens_later),
        cmocka_unit_test(hardware_changes_the_plan_and_the_run_alike),
        cmocka_unit_test(a_step_is_computing_and_waiting),
        cmocka_unit_test(updates_pass_through_a_quick_device),
        cmocka_unit_test(what_both_ways_cost_each_other_costs_a_step),
        cmocka_unit_test(what_ranks_refuse_is_not_planned),
        cmocka_unit_test(ranks_send_six_bytes_a_parameter),
        cmocka_unit_test(ranks_of_this_machine),
        cmocka_unit_test(saving_memory_holds_less_at_once),
        cmocka_unit_test(a_simulated_profile_has_every_lane),
        cmocka_unit_test(advice_holds_when_it_is_followed),
        cmocka_unit_test(a_larger_disk_is_advised),
        cmocka_unit_test(the_batch_that_hides_the_disk_does),
        cmocka_unit_test(chunks_come_and_leave_as_asked),
        cmocka_unit_test(the_total_is_refused_by_arithmetic),
        cmocka_unit_test(a_deadline_ends_a_search),
        cmocka_unit_test(a_deadline_keeps_the_plan_of_a_rank),
        cmocka_unit_test(advice_near_budget_limit_does_not_overflow),
        cmocka_unit_test(the_largest_fits_and_one_more_layer_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
