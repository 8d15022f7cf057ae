/* bench_store.c - what keeping the books of chunks costs: pins, moments, look-ahead, choosing victims.
 *
 * usage: bench_store [STEPS] [key=value ...]     (default 2 steps; options as in a configuration)
 *
 * Steps of a GPT-2 of 24 thousand million parameters, in about 10,000 chunks of the size that GPT-2 124M gets, on
 * simulated tiers: the runner and the store make the same calls as in a run, nothing is computed and nothing copied. So
 * the time of a step is all bookkeeping. It is divided by the time that a step would take by the rates of the
 * configuration: first with everything on the device, then with a quarter there and the rest on the host, then with a
 * tenth in each and the rest on disk. */
#include <string.h>

#include "bench.h"
#include "train/plan/search.h"

#define N_TRIED 2 /* steps before those that are counted */

static const char base_config[] =
    "{\"train_micro_batch_size_per_gpu\": 4, \"bf16\": {\"enabled\": true}, \"default_chunk_size\": 2367488,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4}},"
    " \"model\": {\"preset\": \"gpt2\", \"hidden_size\": 4096, \"num_hidden_layers\": 118, \"num_attention_heads\": "
    "32},"
    " \"data\": {\"sequence_length\": 512}}";

typedef struct planned {
    ps_settings settings;
    ps_program *program;
    ps_code *code;
    ps_exec_plan *exec_plan;
    ps_forecast forecast;
} planned;

static void make_plan(planned *p, const ps_config *config)
{
    *p = (planned){.program = NULL};
    bench_check(ps_settings_read(config, true, &p->settings));
    p->settings.plans_only = true;
    p->settings.takes_first_plan = true;
    bench_check(ps_settings_open_backend(&p->settings));
    const ps_code_options o = ps_settings_code_options(&p->settings);
    bench_check(ps_program_build(ps_model_from_config, (void *)(uintptr_t)config, NULL, p->settings.B, p->settings.T,
                                 &p->program));
    bench_check(ps_code_create(p->program, &o, &p->code));
    bench_check(ps_search_exec_plan(&p->settings, p->program, p->code, &p->settings.budgets, NULL, &p->exec_plan,
                                    &p->forecast));
}

static void drop_plan(planned *p)
{
    ps_exec_plan_destroy(p->exec_plan);
    ps_code_destroy(p->code);
    ps_program_destroy(p->program);
    ps_settings_close_backend(&p->settings);
}

/* Seconds of `n` steps and of creating the parameters; nothing is recorded. */
static double time_steps(const planned *p, int64_t n)
{
    ps_profile *profile = NULL;
    bench_check(ps_profile_create(NULL, &profile));
    const double begin = bench_now();
    bench_check(ps_trial_record(p->exec_plan, &p->settings.budgets, n + 1, n, profile));
    const double seconds = bench_now() - begin;
    ps_profile_destroy(profile);
    return seconds;
}

static void set_bytes(ps_config *config, const char *key, int64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)bytes);
    bench_check(ps_config_set(config, key, text));
}

static void measure(ps_config *config, const char *name, int64_t device, int64_t host, int64_t disk, int n_steps)
{
    planned p;
    set_bytes(config, "memory.device", device);
    set_bytes(config, "memory.host", host);
    set_bytes(config, "memory.disk", disk);
    make_plan(&p, config);
    const double books_s = (time_steps(&p, N_TRIED + n_steps) - time_steps(&p, N_TRIED)) / n_steps;
    const double step_s = (double)p.forecast.step.all_ns * 1e-9;
    printf("%-26s %7d %8d %12.4f %12.2f %9.3f\n", name, p.exec_plan->layout->n_chunks, p.exec_plan->trace->n_moments,
           books_s, step_s, books_s / step_s * 100);
    fflush(stdout);
    drop_plan(&p);
}

int main(int argc, char **argv)
{
    int n_steps = 2;
    planned all;
    ps_config *config = NULL;
    bench_check(ps_config_parse(base_config, "bench_store", &config));
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals != NULL) *equals = '\0';
        if (equals != NULL)
            bench_check(ps_config_set(config, argv[i], equals + 1));
        else
            n_steps = atoi(argv[i]);
    }
    if (n_steps < 1) {
        fprintf(stderr, "usage: bench_store [STEPS] [key=value ...]\n");
        return 1;
    }
    set_bytes(config, "memory.device", INT64_C(1) << 44);
    set_bytes(config, "memory.host", 0);
    set_bytes(config, "memory.disk", 0);
    bench_check(ps_config_validate(config));
    make_plan(&all, config);
    const int64_t need = ps_exec_plan_model_data_bytes(all.exec_plan) + all.code->non_model_bytes;
    drop_plan(&all);
    printf("%-26s %7s %8s %12s %12s %9s\n", "", "chunks", "moments", "books s", "step s", "percent");
    measure(config, "all on the device", INT64_C(1) << 44, 0, 0, n_steps);
    measure(config, "1/4 device, rest in host", need / 4, need, 0, n_steps);
    measure(config, "1/10 each, rest on disk", need / 10, need / 10, need, n_steps);
    ps_config_destroy(config);
    return 0;
}
