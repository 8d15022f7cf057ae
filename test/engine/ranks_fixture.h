/* ranks_fixture.h - engines of several ranks, as threads of this process. */
#ifndef RANKS_FIXTURE_H
#define RANKS_FIXTURE_H

#include <pthread.h>

#include "api/engine/engine.h"
#include "chunk/comm/comm_impl.h"
#include "chunk/store_stats.h"
#include "device/blocking.h"
#include "engine/engine_fixture.h"

enum { RANKS_MAX = 4, RANKS_STAGING_BYTES = 1 << 16 };

typedef struct rank_result {
    ps_status st;
    char error[512];
    uint64_t hash;
    double losses[MAX_STEPS], norms[MAX_STEPS];
    ps_step_info last_step;
    ps_memory_info memory;
    ps_store_stats store; /* after the last step */
    int64_t sent_bytes;   /* of the last step, as the communicator counts them */
    ps_forecast forecast;
    int64_t chunk_elements;
} rank_result;

typedef struct rank_task rank_task;

/* What a rank does with its engine. */
typedef ps_status rank_run(ps_engine *e, ps_config *c, rank_task *t);

struct rank_task {
    ps_comm *comm;
    ps_model_func model;
    rank_run *run;
    const char *const *changes;
    int n_steps;
    rank_result result;
};

enum { RANK_TOKENS_MAX = 4 * 16 };

/* A step over this rank's share of the micro-batches: they are dealt out in turn. */
static inline ps_status rank_step(ps_engine *e, rank_task *t, int64_t step)
{
    const int32_t n = ps_comm_size(t->comm), rank = ps_comm_rank(t->comm);
    int64_t B, T, K;
    ps_engine_get_shape(e, &B, &T, &K, NULL);
    int32_t tokens[RANK_TOKENS_MAX], targets[TARGETS_MAX];
    float values[TARGETS_MAX];
    for (int64_t k = 0; k < K; k++) {
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, (step * K + k) * n + rank);
        const ps_batch batch = batch_for(e, tokens, targets, values);
        PS_TRY(ps_forward(e, &batch, NULL));
        PS_TRY(ps_backward(e));
        PS_TRY(ps_step(e));
    }
    return PS_OK;
}

static inline void rank_take(ps_engine *e, rank_result *r, int64_t step)
{
    r->last_step.struct_size = sizeof r->last_step;
    ps_engine_get_step_info(e, &r->last_step);
    r->losses[step] = r->last_step.loss;
    r->norms[step] = r->last_step.grad_norm;
}

static inline ps_status rank_train(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    rank_result *r = &t->result;
    for (int step = 0; step < t->n_steps; step++) {
        const int64_t sent = ps_comm_get_stats(t->comm).sent_bytes;
        PS_TRY(rank_step(e, t, step));
        rank_take(e, r, step);
        r->sent_bytes = ps_comm_get_stats(t->comm).sent_bytes - sent;
    }
    return PS_OK;
}

/* Steps in which the host does not wait before it reads results; but of a GPU for a piece of a region whose last use is
 * not over, as addresses are those of one page at a time (src/device/cuda/gpu_memory.c), and for room in a stream, which
 * has 512 commands of such a step. */
static inline ps_status rank_train_ahead(ps_engine *e, ps_config *c, rank_task *t)
{
    int32_t tokens[RANK_TOKENS_MAX], targets[RANK_TOKENS_MAX];
    int64_t B, T;
    (void)c;
    ps_engine_get_shape(e, &B, &T, NULL, NULL);
    for (int step = 0; step < 4; step++) {
        const ps_blocked before = ps_blocked_so_far();
        const int64_t wait_ns = ps_comm_get_stats(t->comm).wait_ns;
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, step);
        PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
        PS_TRY(ps_backward(e));
        const ps_blocked after = ps_blocked_so_far();
        for (int why = 0; why < PS_BLOCK_COUNT; why++)
            if (after.n[why] != before.n[why] && why != PS_BLOCK_PAGE && why != PS_BLOCK_FULL)
                return PS_FAIL(PS_ESTATE, "the host waits in step %d: %s", step, ps_block_name((ps_block)why));
        if (ps_comm_get_stats(t->comm).wait_ns != wait_ns)
            return PS_FAIL(PS_ESTATE, "the host waits in step %d: other ranks", step);
        PS_TRY(ps_step(e));
    }
    return PS_OK;
}

/* Rank 1 is gone in the second step. */
static inline ps_status rank_vanish(ps_engine *e, ps_config *c, rank_task *t)
{
    int32_t tokens[RANK_TOKENS_MAX], targets[RANK_TOKENS_MAX];
    int64_t B, T;
    (void)c;
    ps_engine_get_shape(e, &B, &T, NULL, NULL);
    PS_TRY(rank_step(e, t, 0));
    fill_batch(tokens, targets, B, T, TINY_VOCABULARY, 1);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    if (ps_comm_rank(t->comm) == 1) ps_comm_vanish(t->comm);
    PS_TRY(ps_backward(e));
    return ps_step(e);
}

#define ON_CPU "train.backend=cpu"
/* Where the bits come from that others are compared with: the cpu, whose bits the fake GPU has; CUDA has its own. */
#define FOR_BITS (OVER_GPU ? NOTHING : ON_CPU)

/* Over the fake GPU, unless a change says that it is for the cpu; and then with memory through which ranks send. */
static inline ps_status rank_config(const char *const *changes, ps_config **out)
{
    bool on_cpu = false;
    PS_TRY(ps_config_parse(tiny_config, "tiny", out));
    for (const char *const *change = changes; *change != NULL; change++) {
        char key[128];
        const char *equals = strchr(*change, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *change), *change);
        PS_TRY(ps_config_set(*out, key, equals + 1));
        on_cpu = on_cpu || strcmp(*change, ON_CPU) == 0;
    }
    if (on_cpu || !OVER_DISCRETE) return PS_OK;
    over_backend(*out);
    const ps_options *o = ps_config_options(*out);
    const int64_t least = RANKS_STAGING_BYTES + (o->memory_disk > 0 ? ASYNC_DISK_HOST_BYTES : 0);
    if (o->memory_host < least) over_set_number(*out, "memory.host", least);
    return PS_OK;
}

static inline ps_status rank_finish(ps_engine *e, rank_result *r)
{
    r->memory.struct_size = sizeof r->memory;
    ps_engine_get_memory_info(e, &r->memory);
    r->store = ps_store_get_stats(e->tiers.store);
    return ps_engine_get_weights_xxh3(e, &r->hash);
}

static inline void *rank_main(void *arg)
{
    rank_task *t = arg;
    rank_result *r = &t->result;
    ps_engine *e = NULL;
    ps_config *c = NULL;
    r->st = rank_config(t->changes, &c);
    if (r->st == PS_OK) r->st = ps_engine_create(t->model, c, c, PS_FOR_TRAINING, t->comm, &e);
    if (r->st == PS_OK) {
        r->forecast = e->shape->forecast;
        r->chunk_elements = e->exec_plan->layout->chunk_elements;
        r->st = t->run(e, c, t);
    }
    if (r->st == PS_OK) r->st = rank_finish(e, r);
    if (r->st != PS_OK) snprintf(r->error, sizeof r->error, "%s", ps_last_error());
    ps_engine_destroy(e);
    ps_config_destroy(c);
    ps_comm_close(t->comm);
    return NULL;
}

static double rank_timeout_s = 20;

/* The results of n ranks, which may have failed; they are valid until the next call. */
static inline const rank_task *try_ranks(ps_model_func model, int32_t n, int n_steps, rank_run *run,
                                         const char *const *changes)
{
    static rank_task tasks[RANKS_MAX];
    ps_comm *comms[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    assert_ok(ps_comm_open_threads(
        &(ps_comm_options){.timeout_s = rank_timeout_s, .staging_bytes = RANKS_STAGING_BYTES}, n, comms));
    for (int32_t i = 0; i < n; i++) {
        tasks[i] = (rank_task){.comm = comms[i], .model = model, .run = run, .changes = changes, .n_steps = n_steps};
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &tasks[i]), 0);
    }
    for (int32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    return tasks;
}

static inline void fail_ranks(int32_t n, int32_t rank, const char *const *changes, const char *error)
{
    for (; *changes != NULL; changes++) printf("%s ", *changes);
    fail_msg("%d ranks, rank %d: %s", n, rank, error);
}

/* The same where none may fail; weights, losses, norms are the same on all, and budgets hold. */
static inline const rank_task *run_ranks_of(ps_model_func model, int32_t n, int n_steps, rank_run *run,
                                            const char *const *changes)
{
    const rank_task *t = try_ranks(model, n, n_steps, run, changes);
    for (int32_t i = 0; i < n; i++) {
        const rank_result *r = &t[i].result;
        if (r->st != PS_OK) fail_ranks(n, i, changes, r->error);
        assert_true(r->hash == t[0].result.hash);
        assert_memory_equal(r->losses, t[0].result.losses, sizeof r->losses);
        assert_memory_equal(r->norms, t[0].result.norms, sizeof r->norms);
        assert_true(r->memory.device_peak_bytes <= r->memory.device_budget_bytes);
        assert_true(r->memory.host_peak_bytes <= r->memory.host_budget_bytes);
        assert_true(r->memory.disk_peak_bytes <= r->memory.disk_budget_bytes);
    }
    return t;
}

static inline const rank_task *run_ranks(int32_t n, int n_steps, rank_run *run, const char *const *changes)
{
    return run_ranks_of(ps_model_from_config, n, n_steps, run, changes);
}

#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define RANKS(n, n_steps, ...) run_ranks(n, n_steps, rank_train, CHANGES(__VA_ARGS__))
#define NOTHING "train.seed=7"
#define MSC "client.opts.with_mem_saving_comm=true"

#endif
