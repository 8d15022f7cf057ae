/* bench_step.c - seconds of a whole training step of GPT-2 124M in bf16, phase by phase.
 *
 * usage: bench_step [STEPS] [key=value ...]     (default 8 steps; two more come first and are not counted)
 * Prints a line of medians and minima; with memory.device and memory.host given, the cost of offloading shows against a
 * run without them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "patrickstar.h"

#define WARM_UP 2
#define MAX_STEPS 256

static const char base_config[] =
    "{\"train_micro_batch_size_per_gpu\": 4, \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4, \"weight_decay\": 0.1}},"
    " \"model\": {\"preset\": \"gpt2\", \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"attn_pdrop\": 0},"
    " \"data\": {\"sequence_length\": 64}, \"memory\": {\"device\": \"6GB\", \"host\": 0, \"disk\": 0}}";

static void check(ps_status st)
{
    if (st == PS_OK) return;
    fprintf(stderr, "bench_step: %s\n", ps_last_error());
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *values, int n)
{
    double sorted[MAX_STEPS];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

static double least(const double *values, int n)
{
    double m = values[0];
    for (int i = 1; i < n; i++) m = values[i] < m ? values[i] : m;
    return m;
}

static double seconds(void)
{
    return (double)ps_clock_ns() * 1e-9;
}

int main(int argc, char **argv)
{
    int n_steps = 8, first_option = 1;
    if (argc > 1 && strchr(argv[1], '=') == NULL) n_steps = atoi(argv[1]), first_option = 2;
    if (n_steps < 1 || n_steps > MAX_STEPS) n_steps = 8;
    ps_config *config = NULL;
    ps_engine *engine = NULL;
    check(ps_config_parse(base_config, "bench_step", &config));
    for (int i = first_option; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL) continue;
        *equals = '\0';
        check(ps_config_set(config, argv[i], equals + 1));
    }
    check(ps_config_validate(config));
    check(ps_initialize_engine(ps_model_from_config, config, 0, config, &engine));
    int64_t B, T, V;
    ps_engine_get_shape(engine, &B, &T, NULL, &V);
    int32_t *tokens = malloc((size_t)(B * T) * 4), *targets = malloc((size_t)(B * T) * 4);
    for (int64_t i = 0; i < B * T; i++)
        tokens[i] = (int32_t)(i * 7919 % V), targets[i] = (int32_t)((i * 7919 + 7919) % V);
    double forward[MAX_STEPS], backward[MAX_STEPS], update[MAX_STEPS], all[MAX_STEPS];
    ps_memory_info before, after;
    float loss = 0;
    for (int step = -WARM_UP; step < n_steps; step++) {
        if (step == 0) ps_engine_get_memory_info(engine, &before);
        const double t0 = seconds();
        check(ps_forward(engine, &(ps_batch){.tokens = tokens, .targets = targets}, &loss));
        const double t1 = seconds();
        check(ps_backward(engine));
        const double t2 = seconds();
        check(ps_step(engine));
        const double t3 = seconds();
        if (step < 0) continue;
        forward[step] = t1 - t0, backward[step] = t2 - t1, update[step] = t3 - t2, all[step] = t3 - t0;
    }
    ps_engine_get_memory_info(engine, &after);
    const double step_s = median(all, n_steps);
    const double moved = (double)(after.host_to_device_bytes + after.device_to_host_bytes + after.disk_read_bytes +
                                  after.disk_write_bytes - before.host_to_device_bytes - before.device_to_host_bytes -
                                  before.disk_read_bytes - before.disk_write_bytes) /
                         n_steps;
    const double flops = 6.0 * (double)after.parameters * (double)(B * T);
    printf("B=%lld T=%lld parameters=%lld device=%.0f MB host=%.0f MB\n", (long long)B, (long long)T,
           (long long)after.parameters, (double)after.device_budget_bytes * 1e-6,
           (double)after.host_budget_bytes * 1e-6);
    printf("%-10s %8s %8s\n", "seconds", "median", "least");
    printf("%-10s %8.4f %8.4f\n", "forward", median(forward, n_steps), least(forward, n_steps));
    printf("%-10s %8.4f %8.4f\n", "backward", median(backward, n_steps), least(backward, n_steps));
    printf("%-10s %8.4f %8.4f\n", "update", median(update, n_steps), least(update, n_steps));
    printf("%-10s %8.4f %8.4f\n", "step", step_s, least(all, n_steps));
    printf("%.0f tokens/s, %.0f GFLOP/s (6 N tokens / time), moved %.0f MB a step, waiting %.1f %%, loss %.4f\n",
           (double)(B * T) / step_s, flops / step_s * 1e-9, moved * 1e-6,
           (double)(after.wait_ns - before.wait_ns) * 1e-9 / (step_s * n_steps) * 100, (double)loss);
    printf("MB a step: host->device %.0f, device->host %.0f, disk read %.0f, disk write %.0f; chunks %lld of %lld "
           "elements, "
           "activations %.1f MB, model data %.1f MB\n",
           (double)(after.host_to_device_bytes - before.host_to_device_bytes) / n_steps * 1e-6,
           (double)(after.device_to_host_bytes - before.device_to_host_bytes) / n_steps * 1e-6,
           (double)(after.disk_read_bytes - before.disk_read_bytes) / n_steps * 1e-6,
           (double)(after.disk_write_bytes - before.disk_write_bytes) / n_steps * 1e-6, (long long)after.n_chunks,
           (long long)after.chunk_elements, (double)after.non_model_peak_bytes * 1e-6,
           (double)after.model_data_bytes * 1e-6);
    free(tokens);
    free(targets);
    ps_engine_destroy(engine);
    ps_config_destroy(config);
    return 0;
}
