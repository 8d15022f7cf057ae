/* bench_step.c - seconds of a whole training step of GPT-2 124M in bf16, phase by phase, and the cost of offloading.
 * Phases of a step with gradient_accumulation_steps are sums over its micro-batches.
 *
 * usage: bench_step [--offload] [STEPS] [key=value ...]     (default 8 steps; two more come first and are not counted)
 *
 * Prints medians and minima. With --offload the same steps run three times more in this process: with a device of a
 * quarter of what all in memory needs and the rest (and HOST_ALLOWANCE) in host memory; with that device and the rest
 * on disk; and once more all in memory, so that a machine whose speed drifts shows. Each is divided by the mean of the
 * two runs in memory. */
#include <string.h>

#include "bench.h"

#define WARM_UP 2
#define MB 1e-6

/* Chunks move whole and a budget that holds the model to the byte leaves none of them room to trade places: the host
 * gets this part of the need above its share. */
#define HOST_ALLOWANCE 32

static const char base_config[] =
    "{\"train_micro_batch_size_per_gpu\": 4, \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4, \"weight_decay\": 0.1}},"
    " \"model\": {\"preset\": \"gpt2\", \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"attn_pdrop\": 0},"
    " \"data\": {\"sequence_length\": 64}, \"memory\": {\"device\": \"6GB\", \"host\": 0, \"disk\": 0}}";

typedef struct result {
    int64_t B, T, micro_batches;
    bench_samples forward, backward, update, all;
    ps_memory_info memory;                                      /* after the last step */
    int64_t to_device, to_host, disk_read, disk_write, wait_ns; /* over the counted steps */
    float loss;
} result;

static void run_steps(ps_engine *engine, const ps_batch *batch, int n_steps, result *out)
{
    ps_memory_info before = {.struct_size = sizeof before};
    for (int step = -WARM_UP; step < n_steps; step++) {
        if (step == 0) ps_engine_get_memory_info(engine, &before);
        double forward = 0, backward = 0, update = 0;
        for (int64_t micro = 0; micro < out->micro_batches; micro++) {
            const double t0 = bench_now();
            bench_check(ps_forward(engine, batch, &out->loss));
            const double t1 = bench_now();
            bench_check(ps_backward(engine));
            const double t2 = bench_now();
            bench_check(ps_step(engine));
            forward += t1 - t0, backward += t2 - t1, update += bench_now() - t2;
        }
        if (step < 0) continue;
        bench_add(&out->forward, forward), bench_add(&out->backward, backward);
        bench_add(&out->update, update), bench_add(&out->all, forward + backward + update);
    }
    out->memory.struct_size = sizeof out->memory;
    ps_engine_get_memory_info(engine, &out->memory);
    out->to_device = out->memory.host_to_device_bytes - before.host_to_device_bytes;
    out->to_host = out->memory.device_to_host_bytes - before.device_to_host_bytes;
    out->disk_read = out->memory.disk_read_bytes - before.disk_read_bytes;
    out->disk_write = out->memory.disk_write_bytes - before.disk_write_bytes;
    out->wait_ns = out->memory.wait_ns - before.wait_ns;
}

/* A refusal is the caller's to report; a failure later ends the program. */
static ps_status measure(ps_config *config, int n_steps, result *out)
{
    ps_engine *engine = NULL;
    int64_t vocabulary;
    memset(out, 0, sizeof *out);
    PS_TRY(ps_config_validate(config));
    PS_TRY(ps_initialize_engine(ps_model_from_config, config, 0, config, &engine));
    ps_engine_get_shape(engine, &out->B, &out->T, &out->micro_batches, &vocabulary);
    const int64_t rows = out->B * out->T;
    int32_t *tokens = malloc((size_t)rows * sizeof *tokens), *targets = malloc((size_t)rows * sizeof *targets);
    if (tokens == NULL || targets == NULL) {
        fprintf(stderr, "bench_step: no memory for a batch\n");
        exit(1);
    }
    for (int64_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)(i * 7919 % vocabulary);
        targets[i] = (int32_t)((i * 7919 + 7919) % vocabulary);
    }
    run_steps(engine, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, n_steps, out);
    free(tokens);
    free(targets);
    ps_engine_destroy(engine);
    return PS_OK;
}

static void print_phase(const char *name, bench_samples *s)
{
    const double median = bench_median(s);
    printf("%-10s %8.4f %8.4f\n", name, median, bench_least(s));
}

static void print_result(result *r)
{
    const double n = r->all.n, step_s = bench_median(&r->all), tokens = (double)(r->B * r->T * r->micro_batches);
    const ps_memory_info *m = &r->memory;
    printf("B=%lld T=%lld micro-batches=%lld parameters=%lld device=%.0f MB host=%.0f MB\n", (long long)r->B,
           (long long)r->T, (long long)r->micro_batches, (long long)m->parameters, (double)m->device_budget_bytes * MB,
           (double)m->host_budget_bytes * MB);
    printf("%-10s %8s %8s\n", "seconds", "median", "least");
    print_phase("forward", &r->forward);
    print_phase("backward", &r->backward);
    print_phase("update", &r->update);
    print_phase("step", &r->all);
    printf("%.0f tokens/s, %.0f GFLOP/s (6 N tokens / time), waiting %.1f %%, loss %.4f\n", tokens / step_s,
           6.0 * (double)m->parameters * tokens / step_s * 1e-9, (double)r->wait_ns * 1e-9 / (step_s * n) * 100,
           (double)r->loss);
    printf("MB a step: host->device %.0f, device->host %.0f, disk read %.0f, disk write %.0f\n",
           (double)r->to_device / n * MB, (double)r->to_host / n * MB, (double)r->disk_read / n * MB,
           (double)r->disk_write / n * MB);
    printf("chunks %lld of %lld elements, activations %.1f MB, model data %.1f MB\n", (long long)m->n_chunks,
           (long long)m->chunk_elements, (double)m->non_model_peak_bytes * MB, (double)m->model_data_bytes * MB);
}

static void set_budget(ps_config *config, const char *key, int64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)bytes);
    bench_check(ps_config_set(config, key, text));
}

static void print_offload(const char *name, ps_status st, result *r, double in_memory_s)
{
    if (st != PS_OK) {
        printf("%-26s %s: %s\n", name, ps_status_name(st), ps_last_error());
        return;
    }
    const double n = r->all.n, step_s = bench_median(&r->all);
    const double moved = (double)(r->to_device + r->to_host + r->disk_read + r->disk_write) / n;
    printf("%-26s %9.4f %9.4f %8.2f %9.0f %9.1f %10.0f %9.6f\n", name, step_s, bench_least(&r->all),
           step_s / in_memory_s, moved * MB, (double)r->wait_ns * 1e-7 / (step_s * n),
           (double)r->memory.device_peak_bytes * MB, (double)r->loss);
}

static void offload(ps_config *config, int n_steps, result *first)
{
    static result host, disk, again;
    const int64_t need = first->memory.model_data_bytes + first->memory.non_model_peak_bytes, quarter = need / 4;
    set_budget(config, "memory.device", quarter);
    set_budget(config, "memory.host", need - quarter + need / HOST_ALLOWANCE);
    const ps_status host_st = measure(config, n_steps, &host);
    if (host_st != PS_OK) print_offload("1/4 device, rest in host", host_st, &host, 1);
    set_budget(config, "memory.host", 0);
    bench_check(ps_config_set(config, "memory.disk", "auto"));
    const ps_status disk_st = measure(config, n_steps, &disk);
    if (disk_st != PS_OK) print_offload("1/4 device, rest on disk", disk_st, &disk, 1);
    bench_check(ps_config_set(config, "memory.disk", "0"));
    set_budget(config, "memory.device", first->memory.device_budget_bytes);
    bench_check(measure(config, n_steps, &again));
    const double in_memory_s = 0.5 * (bench_median(&first->all) + bench_median(&again.all));
    printf("\noffloading: all in memory needs %.0f MB, a quarter is %.0f MB\n", (double)need * MB,
           (double)quarter * MB);
    printf("%-26s %9s %9s %8s %9s %9s %10s %9s\n", "", "median s", "least s", "ratio", "MB moved", "waiting %",
           "device MB", "loss");
    print_offload("all in memory", PS_OK, first, in_memory_s);
    print_offload("all in memory, again", PS_OK, &again, in_memory_s);
    if (host_st == PS_OK) print_offload("1/4 device, rest in host", PS_OK, &host, in_memory_s);
    if (disk_st == PS_OK) print_offload("1/4 device, rest on disk", PS_OK, &disk, in_memory_s);
}

int main(int argc, char **argv)
{
    static result r;
    int n_steps = 8;
    bool with_offload = false;
    ps_config *config = NULL;
    bench_check(ps_config_parse(base_config, "bench_step", &config));
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (strcmp(argv[i], "--offload") == 0) {
            with_offload = true;
        } else if (equals != NULL) {
            *equals = '\0';
            bench_check(ps_config_set(config, argv[i], equals + 1));
        } else {
            n_steps = atoi(argv[i]);
        }
    }
    if (n_steps < 1 || n_steps > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "usage: bench_step [--offload] [STEPS] [key=value ...], 1 to %d steps\n", BENCH_SAMPLES_MAX);
        return 1;
    }
    bench_check(measure(config, n_steps, &r));
    print_result(&r);
    if (with_offload) offload(config, n_steps, &r);
    ps_config_destroy(config);
    return 0;
}
