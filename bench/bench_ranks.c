/* bench_ranks.c - a training step of several ranks of this machine: how much of the time that they talk is hidden under
 * computing.
 *
 * usage: mpirun -n 2 bench_ranks [STEPS] [key=value ...]     (default 4 steps a round; one more comes first and is not counted)
 *
 * GPT-2 124M in bf16, each rank with its share of the cores. For each way to communicate: medians of seconds a step;
 * how long transfers were under way; how much of it computing went on ("hidden") or stood still ("exposed"); how
 * long it stood still while nothing was under way ("late": for ranks that are not there yet, or for small sums);
 * processor time; bytes sent. Means over the ranks. With them rank 0 alone, with the same cores. The ways take
 * turns, so that others on the machine disturb all alike. Last, transfers of 32 MB a rank while no rank computes,
 * next to plain copies. */
#include <string.h>
#include <time.h>

#include "api/engine/engine.h"
#include "base/profile.h"
#include "bench.h"
#include "chunk/comm/comm.h"

enum { WARM_UP = 1, ROUNDS = 3, RAW_TIMES = 9 };
#define MB 1e-6
#define RAW_BYTES 32000000

static const char base_config[] =
    "{\"train_micro_batch_size_per_gpu\": 4, \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4, \"weight_decay\": 0.1}},"
    " \"model\": {\"preset\": \"gpt2\", \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"attn_pdrop\": 0},"
    " \"data\": {\"sequence_length\": 64}, \"memory\": {\"device\": \"3GB\", \"host\": 0, \"disk\": 0}}";

typedef struct result {
    bench_samples step, cpu, busy, exposed, late;
    double sent_bytes, n_transfers; /* a step */
    float loss;
} result;

/* Of all threads of this process. */
static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double overlap(const ps_profile_record *a, const ps_profile_record *b)
{
    const int64_t begin = ps_max_i64(a->begin_ns, b->begin_ns), end = ps_min_i64(a->end_ns, b->end_ns);
    return end > begin ? (double)(end - begin) * 1e-9 : 0;
}

static double length(const ps_profile_record *r)
{
    return (double)(r->end_ns - r->begin_ns) * 1e-9;
}

/* What was recorded since record `from`. Transfers follow each other, and so do waits. */
static void add_communication(const ps_profile *p, int64_t from, result *out)
{
    double busy = 0, waits = 0, both = 0;
    const int64_t n = ps_profile_count(p);
    for (int64_t i = from; i < n; i++) {
        const ps_profile_record *a = ps_profile_at(p, i);
        if (a->kind == PS_PROFILE_WAIT) waits += length(a);
        if (a->kind != PS_PROFILE_COLLECTIVE) continue;
        busy += length(a);
        for (int64_t k = from; k < n; k++)
            if (ps_profile_at(p, k)->kind == PS_PROFILE_WAIT) both += overlap(a, ps_profile_at(p, k));
    }
    bench_add(&out->busy, busy);
    bench_add(&out->exposed, both);
    bench_add(&out->late, waits - both);
}

static void run_steps(ps_engine *e, ps_comm *comm, const ps_batch *batch, int n_steps, result *out)
{
    ps_profile *profile = NULL;
    ps_comm_stats before = {0};
    bench_check(ps_profile_create(NULL, &profile));
    ps_profile_start(profile);
    if (comm != NULL) ps_comm_set_profile(comm, profile, PS_LINK_COLLECTIVES);
    for (int step = -WARM_UP; step < n_steps; step++) {
        if (comm != NULL) bench_check(ps_comm_barrier(comm));
        if (comm != NULL && step == 0) before = ps_comm_get_stats(comm);
        const int64_t from = ps_profile_count(profile);
        const double begin = bench_now(), cpu = cpu_now();
        bench_check(ps_forward(e, batch, &out->loss));
        bench_check(ps_backward(e));
        bench_check(ps_step(e));
        if (step < 0) continue;
        bench_add(&out->step, bench_now() - begin);
        bench_add(&out->cpu, cpu_now() - cpu);
        add_communication(profile, from, out);
    }
    if (comm != NULL) {
        const ps_comm_stats after = ps_comm_get_stats(comm);
        out->sent_bytes = (double)(after.sent_bytes - before.sent_bytes) / n_steps;
        out->n_transfers = (double)(after.n_transfers - before.n_transfers) / n_steps;
        ps_comm_set_profile(comm, NULL, 0);
    }
    ps_profile_destroy(profile);
}

/* comm NULL: alone. */
static void measure(const ps_config *config, ps_comm *comm, int n_steps, result *out)
{
    ps_engine *e = NULL;
    int64_t B, T, V;
    const int32_t rank = comm != NULL ? ps_comm_rank(comm) : 0;
    bench_check(ps_engine_create(ps_model_from_config, (void *)(uintptr_t)config, config, PS_FOR_TRAINING, comm, &e));
    ps_engine_get_shape(e, &B, &T, NULL, &V);
    int32_t *tokens = malloc((size_t)(2 * B * T) * sizeof *tokens);
    if (tokens == NULL) exit(1);
    for (int64_t i = 0; i < B * T; i++) {
        tokens[i] = (int32_t)((i + rank) * 7919 % V);
        tokens[B * T + i] = (int32_t)((i + rank + 1) * 7919 % V);
    }
    run_steps(e, comm, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = tokens + B * T},
              n_steps, out);
    free(tokens);
    ps_engine_destroy(e);
}

static void print_result(const char *name, ps_comm *comm, result *r)
{
    enum { STEP, LEAST, CPU, BUSY, EXPOSED, LATE, SENT, TRANSFERS, N };
    double v[N] = {bench_median(&r->step),    bench_least(&r->step),  bench_median(&r->cpu), bench_median(&r->busy),
                   bench_median(&r->exposed), bench_median(&r->late), r->sent_bytes,         r->n_transfers};
    if (comm != NULL) {
        bench_check(ps_comm_all_reduce(comm, v, N, PS_COMM_SUM));
        for (int i = 0; i < N; i++) v[i] /= ps_comm_size(comm);
        if (ps_comm_rank(comm) > 0) return;
    }
    printf("%-26s %8.4f %8.4f %8.4f %8.4f %8.4f %8.4f %8.4f %6.0f %6.0f %6.2f %9.6f\n", name, v[STEP], v[LEAST], v[CPU],
           v[BUSY], v[BUSY] - v[EXPOSED], v[EXPOSED], v[LATE], v[SENT] * MB, v[TRANSFERS],
           v[BUSY] > 0 ? v[SENT] / v[BUSY] * 1e-9 : 0, (double)r->loss);
    fflush(stdout);
}

static void set(ps_config *c, const char *key, const char *value)
{
    bench_check(ps_config_set(c, key, value));
}

/* ---- transfers alone ---- */

typedef enum raw_kind { RAW_COPY, RAW_GATHER, RAW_REDUCE, RAW_BROADCAST, RAW_KINDS } raw_kind;

static void raw_once(raw_kind kind, ps_comm *comm, char *payloads, char *copy)
{
    const int32_t n = ps_comm_size(comm);
    ps_comm_part parts[64];
    ps_event done = {.queue = NULL};
    const int64_t elements = RAW_BYTES / (int64_t)ps_dtype_bytes(PS_DTYPE_BF16);
    for (int32_t r = 0; r < n; r++)
        parts[r] = (ps_comm_part){.payload = payloads + (int64_t)r * RAW_BYTES, .n = elements, .owner = r};
    ps_collectives *x = ps_comm_collectives(comm);
    ps_transfer t = {.parts = parts, .n_parts = n, .dtype = PS_DTYPE_BF16, .what = "bench"};
    switch (kind) {
    case RAW_COPY: memcpy(copy, payloads, RAW_BYTES); break;
    case RAW_GATHER: bench_check(ps_collectives_gather(x, &t, &done)); break;
    case RAW_REDUCE: bench_check(ps_collectives_reduce(x, &t, &done)); break;
    case RAW_BROADCAST:
        t.n_parts = 1;
        bench_check(ps_collectives_gather(x, &t, &done));
        break;
    case RAW_KINDS: break;
    }
    bench_check(ps_collectives_wait(x, done));
}

static void raw(ps_comm *comm)
{
    static const char *const names[] = {"memcpy on each rank at once", "all-gather", "reduce-scatter", "broadcast"};
    const int32_t n = ps_comm_size(comm);
    char *payloads = malloc((size_t)n * RAW_BYTES), *copy = malloc(RAW_BYTES);
    if (n > 64 || payloads == NULL || copy == NULL) exit(1);
    memset(payloads, 0, (size_t)n * RAW_BYTES);
    memset(copy, 0, RAW_BYTES);
    if (ps_comm_rank(comm) == 0)
        printf("\n%-34s %8s %8s %6s\n", "32 MB of each rank, bf16", "median s", "least s", "GB/s");
    for (int kind = 0; kind < RAW_KINDS; kind++) {
        bench_samples s = {.n = 0};
        for (int i = -1; i < RAW_TIMES; i++) {
            bench_check(ps_comm_barrier(comm));
            const double begin = bench_now();
            raw_once((raw_kind)kind, comm, payloads, copy);
            if (i >= 0) bench_add(&s, bench_now() - begin);
        }
        const double bytes = (double)RAW_BYTES * (kind == RAW_GATHER || kind == RAW_REDUCE ? n - 1 : 1);
        if (ps_comm_rank(comm) == 0)
            printf("%-34s %8.4f %8.4f %6.2f\n", names[kind], bench_median(&s), bench_least(&s),
                   bytes / bench_median(&s) * 1e-9);
    }
    free(payloads);
    free(copy);
}

static void run_rounds(ps_config *config, ps_comm *comm, int n_steps)
{
    static const char *const ways[][3] = {{"groups, ahead", "false", "4"},
                                          {"groups, when needed", "false", "0"},
                                          {"chunks (MSC), ahead", "true", "4"},
                                          {"chunks (MSC), when needed", "true", "0"}};
    static result alone, results[PS_ARRAY_LEN(ways)];
    for (int round = 0; round < ROUNDS; round++) {
        if (ps_comm_rank(comm) == 0) measure(config, NULL, n_steps, &alone);
        for (size_t i = 0; i < PS_ARRAY_LEN(ways); i++) {
            bench_check(ps_comm_barrier(comm));
            set(config, "client.opts.with_mem_saving_comm", ways[i][1]);
            set(config, "memory.prefetch", ways[i][2]);
            measure(config, comm, n_steps, &results[i]);
        }
    }
    if (ps_comm_rank(comm) == 0) print_result("rank 0 alone", NULL, &alone);
    for (size_t i = 0; i < PS_ARRAY_LEN(ways); i++) print_result(ways[i][0], comm, &results[i]);
}

int main(int argc, char **argv)
{
    int n_steps = 4;
    ps_config *config = NULL;
    ps_comm *comm = NULL;
    bench_check(ps_config_parse(base_config, "bench_ranks", &config));
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals != NULL) *equals = '\0', set(config, argv[i], equals + 1);
        if (equals == NULL) n_steps = atoi(argv[i]);
    }
    bench_check(ps_config_validate(config));
    bench_check(ps_comm_open(&(ps_comm_options){.timeout_s = 60, .staging_bytes = 16000000}, &comm));
    const int32_t n = ps_comm_size(comm);
    char threads[16];
    const int cores = ps_machine_cores(NULL) / n;
    snprintf(threads, sizeof threads, "%d", cores > 1 ? cores : 1);
    set(config, "train.threads", threads);
    if (n < 2 || n_steps < 1 || n_steps > BENCH_SAMPLES_MAX / ROUNDS) {
        fprintf(stderr, "usage: mpirun -n 2 bench_ranks [STEPS] [key=value ...], 1 to %d steps\n",
                BENCH_SAMPLES_MAX / ROUNDS);
        return 1;
    }
    if (ps_comm_rank(comm) == 0) {
        printf("%d ranks, %s, threads each: %s\n", n, ps_comm_describe(comm), threads);
        printf("%-26s %8s %8s %8s %8s %8s %8s %8s %6s %6s %6s %9s\n", "seconds a step", "median", "least", "cpu",
               "talking", "hidden", "exposed", "late", "MB", "times", "GB/s", "loss");
    }
    run_rounds(config, comm, n_steps);
    raw(comm);
    ps_comm_close(comm);
    ps_config_destroy(config);
    return 0;
}
