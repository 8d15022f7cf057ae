/* test_step_order.c - what a step issues to the queues of a device that works later is ordered by its waits, by all of
 * them and by nothing else: a trial of it is looked at by the checker of order (device/order.h), with each kind of wait
 * switched off in turn. */
#include "cuda/fake_cpu.h"
#include "engine/engine_fixture.h"

#include "device/order.h"
#include "train/plan/search.h"
#include "train/run/runner.h"

#define N_STEPS 4

typedef struct planned_run {
    int32_t rank, n_ranks;
    const char *const *changes;
} planned_run;

typedef struct planned {
    ps_config *config;
    ps_settings settings;
    ps_program *program;
    ps_code *code;
    ps_exec_plan *exec_plan;
} planned;

static void begin(planned *p, const planned_run *run)
{
    ps_forecast f;
    *p = (planned){.config = tiny_with(run->changes)};
    assert_ok(ps_settings_read(p->config, true, &p->settings));
    assert_ok(ps_settings_plan_as_rank(&p->settings, p->config, run->rank, run->n_ranks));
    assert_ok(ps_settings_open_backend(&p->settings));
    const ps_code_options o = ps_settings_code_options(&p->settings);
    assert_ok(ps_program_build(ps_model_from_config, p->config, NULL, p->settings.B, p->settings.T, &p->program));
    assert_ok(ps_code_create(p->program, &o, &p->code));
    assert_ok(ps_search_exec_plan(&p->settings, p->program, p->code, &p->settings.budgets, NULL, &p->exec_plan, &f));
}

static void end(planned *p)
{
    ps_exec_plan_destroy(p->exec_plan);
    ps_code_destroy(p->code);
    ps_program_destroy(p->program);
    ps_settings_close_backend(&p->settings);
    ps_config_destroy(p->config);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void run_steps(ps_runner *r)
{
    assert_ok(ps_runner_create_params(r, false));
    for (int step = 0; step < N_STEPS; step++) {
        do {
            assert_ok(ps_runner_forward(r, &(ps_pass){.kind = PS_PASS_TRAIN}));
            assert_ok(ps_runner_backward(r, NULL));
        } while (!ps_runner_end_micro(r));
        assert_ok(ps_runner_update(r, NULL));
    }
}

typedef struct outcome {
    ps_order_stats stats;
    int64_t n_waits[PS_WAIT_SITE_COUNT];
    char text[256]; /* of the first report */
} outcome;

/* Steps on simulated tiers in place of a device that works later; skipped: PS_WAIT_SITE_COUNT for none. */
static outcome look_at(const planned *p, ps_wait_site skipped)
{
    static const ps_device_ops ops = {.name = "later",
                                      .is_asynchronous = true}; /* simulated: of these nothing is called */
    static const ps_space later = {.device = &ops, .host = &ops, .page_bytes = PS_PAGE_BYTES};
    outcome out = {.text = ""};
    ps_order *order = NULL;
    ps_tiers tiers;
    ps_runner *r = NULL;
    assert_ok(ps_order_create(true, &order));
    if (skipped < PS_WAIT_SITE_COUNT) ps_order_skip(order, skipped);
    ps_tiers_desc o = ps_exec_plan_tiers(p->exec_plan, &p->settings.budgets);
    o.simulated = true;
    o.space = &later;
    o.order = order;
    assert_ok(ps_tiers_open(&o, &tiers));
    assert_ok(ps_runner_create(p->exec_plan, &tiers, &(ps_runner_options){.compute = false}, &r));
    run_steps(r);
    ps_runner_destroy(r);
    out.stats = ps_order_get_stats(order);
    for (ps_wait_site site = 0; site < PS_WAIT_SITE_COUNT; site++) out.n_waits[site] = ps_order_n_waits(order, site);
    if (ps_order_text(order, 0) != NULL) snprintf(out.text, sizeof out.text, "%s", ps_order_text(order, 0));
    ps_tiers_close(&tiers);
    ps_order_destroy(order);
    return out;
}

/* Budgets in which chunks and activations push each other out, with updates on both tiers. */
static const char *const tight[] = {"bf16.enabled=true", "memory.device=400KB", "memory.host=2MB",
                                    "default_chunk_size=4096", NULL};
static const char *const with_disk[] = {"bf16.enabled=true", "memory.device=400KB",     "memory.host=300KB",
                                        "memory.disk=4MB",   "default_chunk_size=4096", NULL};

static const char *const accumulating[] = {"bf16.enabled=true",
                                           "memory.device=600KB",
                                           "memory.host=4MB",
                                           "gradient_accumulation_steps=3",
                                           "default_chunk_size=4096",
                                           "memory.prefetch=8",
                                           "memory.defer_updates=false",
                                           NULL};
static const char *const saving[] = {"bf16.enabled=true",
                                     "memory.device=600KB",
                                     "memory.host=4MB",
                                     "comm.staging=65536",
                                     "gradient_accumulation_steps=2",
                                     "default_chunk_size=4096",
                                     "client.opts.with_mem_saving_comm=true",
                                     NULL};
static const char *const dealt_out[] = {"bf16.enabled=true",  "memory.device=450KB",     "memory.host=1MB",
                                        "comm.staging=65536", "default_chunk_size=4096", NULL};
/* Embeddings by the host's kernels, next to a device that they cannot reach. */
static const char *const on_host[] = {"bf16.enabled=true",
                                      "memory.device=400KB",
                                      "memory.host=2MB",
                                      "default_chunk_size=4096",
                                      "train.backend=cuda",
                                      "use_cpu_embedding=true",
                                      NULL};
static const planned_run runs[] = {{0, 1, tight},  {0, 1, with_disk}, {0, 1, accumulating},
                                   {1, 2, saving}, {0, 3, dealt_out}, {0, 1, on_host}};

static void test_a_step_is_ordered(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(runs); i++) {
        planned p;
        begin(&p, &runs[i]);
        const outcome o = look_at(&p, PS_WAIT_SITE_COUNT);
        if (o.stats.n_reports > 0) print_message("%s\n", o.text);
        assert_int_equal(o.stats.n_reports, 0);
        assert_int_equal(o.stats.n_unnamed, 0);
        assert_true(o.stats.n_items > 100);
        end(&p);
    }
}

/* The list that it prints is that of all waits there are. */
static void test_each_wait_is_needed(void **state)
{
    (void)state;
    int64_t n_waits[PS_WAIT_SITE_COUNT] = {0}, n_reports[PS_WAIT_SITE_COUNT] = {0};
    char text[PS_WAIT_SITE_COUNT][sizeof((outcome *)0)->text] = {""};
    for (size_t i = 0; i < PS_ARRAY_LEN(runs); i++) {
        planned p;
        begin(&p, &runs[i]);
        for (ps_wait_site site = 0; site < PS_WAIT_SITE_COUNT; site++) {
            const outcome o = look_at(&p, site);
            n_waits[site] += o.n_waits[site];
            n_reports[site] += o.stats.n_reports;
            if (text[site][0] == '\0') memcpy(text[site], o.text, sizeof o.text);
        }
        end(&p);
    }
    print_message("%-12s %7s %8s  %s\n", "wait", "times", "reports", "what it is for; the first report without it");
    for (ps_wait_site site = 0; site < PS_WAIT_SITE_COUNT; site++)
        print_message("%-12s %7lld %8lld  %s\n%31s%s\n", ps_wait_site_name(site), (long long)n_waits[site],
                      (long long)n_reports[site], ps_wait_site_text(site), "", text[site]);
    for (ps_wait_site site = 0; site < PS_WAIT_SITE_COUNT; site++) {
        assert_true(n_waits[site] > 0);
        assert_true(n_reports[site] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_is_ordered),
        cmocka_unit_test(test_each_wait_is_needed),
    };
    if (!OVER_DISCRETE) fake_cpu_begin(&(fake_options){.page_bytes = PS_PAGE_BYTES});
    return RUN_ON_BACKENDS(tests);
}
