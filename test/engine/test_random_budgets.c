/* Accepted configurations run exactly as planned: tiny models with options and budgets drawn at random, most of them
 * tight. Each that is accepted trains as many steps as its trial ran, with the trial's peaks and bytes moved. But where
 * each step's updates are taken back, it stays within the budgets, with the weights of a run in which none are.
 *
 *   PS_TEST_SEEDS  how many seeds, of RUNS runs each; 1
 *   PS_TEST_SEED   the first; 1 */
#include "engine/candidate_fixture.h"
#include "engine/engine_fixture.h"

#include <stdarg.h>

#include "chunk/store_stats.h"
#include "train/plan/simulate.h"

enum { RUNS = 200, CHANGES_MAX = 24 };

static uint64_t state_of_draws;
static int n_muon;
static int n_shares;              /* runs with some updates early and others deferred */
static int n_recomputed;          /* runs with passes that were made a second time */
static int n_right, n_taken_back; /* runs with speculative updates that were all valid, or all taken back */

/* xorshift64* (Vigna 2016): a number in [0, n). */
static int64_t draw(int64_t n)
{
    state_of_draws ^= state_of_draws >> 12;
    state_of_draws ^= state_of_draws << 25;
    state_of_draws ^= state_of_draws >> 27;
    return (int64_t)((state_of_draws * 0x2545f4914f6cdd1dull >> 33) % (uint64_t)n);
}

/* Options of a run, as "key=value" texts. */
typedef struct drawn {
    const char *changes[CHANGES_MAX + 1];
    char texts[CHANGES_MAX][96];
    int n;
} drawn;

__attribute__((format(printf, 2, 3))) static void change(drawn *d, const char *format, ...)
{
    va_list ap;
    assert_true(d->n < CHANGES_MAX);
    va_start(ap, format);
    vsnprintf(d->texts[d->n], sizeof d->texts[0], format, ap);
    va_end(ap);
    d->changes[d->n] = d->texts[d->n];
    d->n++;
}

static void draw_model(drawn *d)
{
    const int64_t format = draw(4);
    if (format < 2) change(d, "bf16.enabled=true");
    if (format == 2) change(d, "fp16.enabled=true");
    if (format == 2) change(d, "fp16.loss_scale=128"); /* no step is skipped */
    change(d, "model.n_layer=%lld", 1 + (long long)draw(6));
    change(d, "model.n_embd=%lld", 16 * (1 + (long long)draw(3)));
    change(d, "model.n_head=2");
    change(d, "train_micro_batch_size_per_gpu=%lld", 1 + (long long)draw(4));
    if (draw(4) == 0) change(d, "gradient_accumulation_steps=2");
    const int64_t checkpointing = draw(3);
    if (checkpointing > 0) change(d, "activation_checkpointing.enabled=true");
    if (checkpointing > 1) change(d, "client.opts.with_activation_offload=true");
}

/* Muon, with matrices in one chunk and in several; or Adam, with gradients beside the parameters where these are
 * bf16. */
static void draw_states(drawn *d)
{
    static const char *const formats[] = {"fp32", "compact", "compact_split", "bf16_stochastic"};
    bool is_bf16 = false;
    for (int i = 0; i < d->n; i++) is_bf16 |= strcmp(d->texts[i], "bf16.enabled=true") == 0;
    if (draw(4) == 0) {
        n_muon++;
        change(d, "optimizer.type=Muon");
        change(d, "optimizer.params.lr=0.001");
        change(d, "optimizer.params.ns_gemms=%s", draw(2) == 0 ? "fp32" : "bf16");
        return;
    }
    change(d, "optimizer.params.state_format=%s", formats[draw(is_bf16 ? 4 : 2)]);
}

static void draw_placement(drawn *d)
{
    static const int64_t prefetches[] = {0, 1, 2, 8};
    if (draw(4) > 0) change(d, "default_chunk_size=%lld", 1024ll << draw(4));
    if (draw(2) == 0) change(d, "client.mem_tracer.with_static_partition=true");
    if (draw(2) == 0) change(d, "client.mem_tracer.warmup_gpu_chunk_mem_ratio=0.%lld", 1 + (long long)draw(9));
    change(d, "memory.prefetch=%lld", (long long)prefetches[draw(4)]);
    const bool defers = draw(3) > 0;
    if (!defers) change(d, "memory.defer_updates=false");
    if (defers && draw(3) == 0) {
        change(d, "memory.update_in_backward=speculate");
        change(d, "gradient_clipping=%s", draw(3) > 0 ? "1000" : "0.01"); /* none is clipped, or all are */
    } else if (draw(4) > 0 && strstr(d->texts[1], "fp16") == NULL) {
        change(d, "gradient_clipping=0");
        change(d, "train.max_nonfinite_steps=1");
    }
    draw_states(d);
    if (draw(5) == 0) change(d, "optimizer.params.use_hybrid_adam=false");
}

/* Bytes of all lists, rounded up to kilobytes: about what is somewhere at any time. */
static int64_t model_data_bytes(const drawn *d)
{
    ps_simulation s;
    ps_config *c = tiny_with(d->changes);
    over_set(c, "memory.host", "64MB"); /* some options need a host */
    assert_ok(ps_simulate_sizes(c, NULL, &s));
    ps_config_destroy(c);
    return s.model_data_bytes;
}

/* Budgets about as large as the model together, in parts that change from run to run; or a disk that holds all, or all
 * but a little. */
static void draw_budgets(drawn *d, int64_t bytes)
{
    const int64_t percent = 60 + draw(140), all = bytes * percent / 100;
    const int64_t device = all * (20 + draw(80)) / 100 + PS_KIB * draw(200);
    int64_t host = draw(3) == 0 ? 0 : all * (1 + draw(99)) / 100;
    int64_t disk = draw(3) == 0 ? 0 : draw(2) == 0 ? bytes * (95 + draw(15)) / 100 : all * (1 + draw(99)) / 100;
    if (host == 0 && strstr(d->texts[d->n - 1], "use_hybrid_adam") != NULL) host = all / 2 + 1;
    for (int i = 0; i < d->n; i++)
        if (strstr(d->texts[i], "speculate") != NULL) disk = bytes * (130 + draw(200)) / 100; /* keeps some, or all */
    change(d, "memory.device=%lld", (long long)device);
    change(d, "memory.host=%lld", (long long)host);
    change(d, "memory.disk=%lld", (long long)disk);
}

static void fail_run(int64_t seed, int run, const drawn *d, const char *why)
{
    char text[CHANGES_MAX * 96];
    size_t used = 0;
    for (int i = 0; i < d->n; i++) used += (size_t)snprintf(text + used, sizeof text - used, " %s", d->changes[i]);
    fail_msg("seed %lld, run %d:%s: %s", (long long)seed, run, text, why);
}

/* Is everything as the trial had it? moved: bytes before the last step. */
static bool is_as_planned(const ps_engine *e, const int64_t before[PS_LINK_COUNT])
{
    const ps_forecast *f = &e->shape->forecast;
    const ps_store_stats s = ps_store_get_stats(e->tiers.store);
    bool is_same = s.disk_peak_bytes == f->peak_bytes[PS_TIER_DISK];
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        is_same = is_same && ps_device_get_stats(e->tiers.ram[t]).peak_bytes == f->peak_bytes[t];
    for (int l = 0; l < PS_LINK_COUNT; l++) is_same = is_same && s.moved_bytes[l] - before[l] == f->moved_bytes[l];
    return is_same;
}

/* Where updates may be early: of a share of the chunks that the search would not come to, if that fits. The execution
 * plan of before, or NULL. */
static ps_exec_plan *draw_share(ps_engine *e, int64_t seed, int run, const drawn *d)
{
    ps_exec_plan *former;
    if (!ps_settings_updates_in_backward(&e->settings) || draw(4) == 0) return NULL;
    const bool defers = e->settings.may_speculate || draw(3) > 0;
    ps_candidate v = share_of(e, (int)draw(7), defers ? PS_UPDATE_DEFERRED : PS_UPDATE_AFTER);
    v.ahead_halvings = (int32_t)(draw(2) * draw(8));
    const ps_status st = use_candidate(e, v, &former);
    if (st != PS_OK && st != PS_EBUDGET) fail_run(seed, run, d, ps_last_error());
    n_shares += former != NULL && e->exec_plan->candidate.n_early > 0 && e->exec_plan->n_deferred > 0;
    return former;
}

static void expect_budgets_kept(const ps_engine *e, int64_t seed, int run, const drawn *d)
{
    ps_memory_info m = {.struct_size = sizeof m};
    assert_ok(ps_engine_get_memory_info(e, &m));
    if (m.device_peak_bytes > m.device_budget_bytes || m.host_peak_bytes > m.host_budget_bytes ||
        m.disk_peak_bytes > m.disk_budget_bytes)
        fail_run(seed, run, d, "a budget was exceeded");
}

/* Weights after so many steps, in memory. */
static uint64_t hash_in_memory(const drawn *d, int64_t n_steps)
{
    ps_config *c = tiny_with(d->changes);
    uint64_t hash;
    over_set(c, "memory.update_in_backward", "never");
    over_set(c, "memory.device", "64MB");
    over_set(c, "memory.host", "64MB");
    ps_engine *e = engine_of(c);
    for (int64_t step = 0; step < n_steps; step++) assert_ok(tiny_step(e, step));
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return hash;
}

/* Train as long as the trial did; the engine is given up. */
static void run_as_planned(ps_engine *e, int64_t seed, int run, const drawn *d)
{
    ps_exec_plan *former = draw_share(e, seed, run, d);
    ps_store_stats before = {.disk_bytes = 0};
    int64_t n_speculated = 0, n_wrong = 0, n_recomputed_steps = 0;
    uint64_t hash;
    for (int64_t step = 0; step < e->shape->forecast.steps; step++) {
        before = ps_store_get_stats(e->tiers.store);
        if (tiny_step(e, step) != PS_OK) fail_run(seed, run, d, ps_last_error());
        n_speculated += e->last_step.n_speculated;
        n_wrong += e->last_step.n_taken_back;
        n_recomputed_steps += e->last_step.recomputed;
    }
    expect_budgets_kept(e, seed, run, d);
    if (n_wrong == 0 && !is_as_planned(e, before.moved_bytes))
        fail_run(seed, run, d, "peaks or bytes moved are not as planned");
    if (n_speculated > 0) {
        assert_ok(ps_engine_get_weights_xxh3(e, &hash));
        if (hash != hash_in_memory(d, e->shape->forecast.steps)) fail_run(seed, run, d, "other weights");
        *(n_wrong > 0 ? &n_taken_back : &n_right) += 1;
        n_recomputed += n_recomputed_steps > 0;
    }
    assert_ordered(e);
    ps_engine_destroy(e);
    ps_exec_plan_destroy(former);
}

/* True when it was accepted. */
static bool try_run(int64_t seed, int run)
{
    drawn d = {.n = 0};
    ps_simulation plan;
    ps_engine *e = NULL;
    static const char *const ways[] = {"recompute", "keep", "recompute", ""};
    setenv("PS_TEST_WRONG_STEPS", ways[run % 4], 1); /* of speculation */
    change(&d, "train.threads=1");
    draw_model(&d);
    draw_placement(&d);
    draw_budgets(&d, model_data_bytes(&d));
    ps_config *c = tiny_with(d.changes);
    if (ps_simulate(c, NULL, false, NULL, &plan) != PS_OK) fail_run(seed, run, &d, ps_last_error());
    if (plan.fits && ps_initialize_engine(ps_model_from_config, c, 0, c, &e) != PS_OK)
        fail_run(seed, run, &d, ps_last_error());
    if (plan.fits) run_as_planned(e, seed, run, &d);
    ps_config_destroy(c);
    return plan.fits;
}

static int64_t number_of(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

static void what_is_accepted_runs_as_planned(void **state)
{
    (void)state;
    const int64_t first = number_of("PS_TEST_SEED", 2), n_seeds = number_of("PS_TEST_SEEDS", 1);
    const int64_t n_runs = RUNS * n_seeds;
    int64_t n_accepted = 0;
    for (int64_t seed = first; seed < first + n_seeds; seed++) {
        state_of_draws = (uint64_t)seed * 0x9e3779b97f4a7c15ull + 1;
        for (int run = 0; run < RUNS; run++) n_accepted += try_run(seed, run);
        printf("until seed %lld: %lld of %lld accepted, %d with Muon drawn, %d with a mix of updates, %d with valid "
               "speculative ones, %d took them back, %d recomputed\n",
               (long long)seed, (long long)n_accepted, (long long)(RUNS * (seed - first + 1)), n_muon, n_shares,
               n_right, n_taken_back, n_recomputed);
    }
    assert_true(n_accepted > n_runs / 8 && n_shares > n_runs / 64 && n_muon > n_runs / 16);
    assert_true(OVER_DISCRETE || (n_right > n_runs / 64 && n_taken_back > n_runs / 128 && n_recomputed > 0));
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_accepted_runs_as_planned)};
    return RUN_ON_BACKENDS(tests);
}
