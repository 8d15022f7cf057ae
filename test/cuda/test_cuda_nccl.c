/* test_cuda_nccl.c - chunks from GPU to GPU by NCCL: that its binary interface is what nccl.h says, where the toolkit
 * is; the kernel that adds over ranks; and over the fake driver and a fake NCCL, ranks that are threads, every transfer
 * against messages, bit for bit, every failure, and ranks that leave. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assert_status.h"
#include "base/fault.h"
#include "base/mem.h"
#include "chunk/comm/comm_impl.h"
#include "chunk/comm/sum.h"
#include "comm/comm_conformance.h"
#include "cuda/fake_gpu.h"
#include "cuda/fake_nccl.h"
#include "device/cuda/nccl_collectives.h"
#include "kernel/cuda/cuda_operator.h"

/* ---- against the toolkit ---- */

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#endif
#ifdef NCCL_MAJOR

#define XX(type, name, symbol, params) _Static_assert(sizeof(&symbol) == sizeof(void *), #symbol);
#include "device/cuda/nccl.def"
#undef XX

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours)
SAME(sizeof(ps_nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(ps_nccl_result), sizeof(ncclResult_t));
SAME(PS_NCCL_SUCCESS, ncclSuccess);
SAME(PS_NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(PS_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(PS_NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(PS_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(PS_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(PS_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(PS_NCCL_IN_PROGRESS, ncclInProgress);
SAME(PS_NCCL_BYTES, ncclUint8);
SAME(PS_NCCL_NOT_GIVEN, NCCL_CONFIG_UNDEF_INT);
SAME(offsetof(ps_nccl_config, bytes), offsetof(ncclConfig_t, size));
SAME(offsetof(ps_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(ps_nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(ps_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
SAME(offsetof(ps_nccl_config, cluster_size), offsetof(ncclConfig_t, cgaClusterSize));
SAME(offsetof(ps_nccl_config, least_blocks), offsetof(ncclConfig_t, minCTAs));
SAME(offsetof(ps_nccl_config, most_blocks), offsetof(ncclConfig_t, maxCTAs));
SAME(offsetof(ps_nccl_config, network), offsetof(ncclConfig_t, netName));

#endif

/* ---- loading ---- */

static void test_libraries(void **state)
{
    (void)state;
    ps_nccl library;
    const ps_nccl *found, *again;
    ps_nccl_id id;
    char text[32];
    int version = 0;
    ps_nccl_describe_version(22809, text, sizeof text);
    assert_string_equal(text, "2.28.9");
    assert_fails(ps_nccl_take("libnccl_that_is_not.so.2", &library), PS_ENOSYS, "cannot load NCCL");
    assert_non_null(strstr(ps_last_error(), "LD_LIBRARY_PATH"));
    assert_fails(ps_nccl_take("libm.so.6", &library), PS_ENOSYS, "libm.so.6 has no ncclGetVersion");
    if (ps_nccl_load(&found) != PS_OK) {
        assert_null(found);
        skip(); /* there is none on this machine */
    }
    assert_int_equal(found->version(&version), PS_NCCL_SUCCESS);
    assert_true(version >= PS_NCCL_VERSION_LEAST);
    assert_string_equal(found->result_text(PS_NCCL_SUCCESS), "no error");
    assert_ok(ps_nccl_load(&again));
    assert_ptr_equal(found, again);
    assert_int_equal(found->unique_id(&id), PS_NCCL_SUCCESS); /* which needs no GPU */
}

/* ---- the kernel ---- */

static ps_status emulate_launch(void *self, const ps_cuda_launch *l)
{
    unsigned *seed = self;
    emulate(l->kernel, l->blocks, l->shared_bytes, l->args, (*seed)++);
    return PS_OK;
}

/* Odd sizes and addresses, more elements than a grid has threads at once, a byte after each that must stay. */
static void test_rank_sum(void **state)
{
    (void)state;
    enum { RANKS = 5, MOST = 3001 };
    static const int64_t sizes[] = {0, 1, 7, 8, 64, 1001, MOST};
    static _Alignas(64) char values[RANKS][MOST * 4 + 64], others[RANKS][MOST * 4 + 64];
    static char want[MOST * 4], got[MOST * 4 + 64];
    unsigned seed = 1;
    const ps_cuda_issuer to = {.launch = emulate_launch, .self = &seed};
    for (int d = 0; d < PS_DTYPE_COUNT; d++)
        for (int32_t p = 1; p <= RANKS; p++)
            for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
                for (int32_t rank = 0; rank<p; rank += p> 1 ? p - 1 : 1)
                    for (int shift = 0; shift < 2; shift++) {
                        const int64_t n = sizes[s], e = (int64_t)ps_dtype_bytes((ps_dtype)d);
                        const void *all[RANKS];
                        for (int32_t r = 0; r < p; r++) {
                            payload_fill((ps_dtype)d, values[r], n, r, 7 * p + d);
                            all[r] = values[r];
                            if (r != rank) memcpy(others[r < rank ? r : r - 1], values[r], (size_t)(n * e));
                        }
                        char *own = got + shift * e;
                        memcpy(own, values[rank], (size_t)(n * e));
                        memset(own + n * e, 0x55, 16);
                        ps_comm_sum((ps_dtype)d, all, p, n, want);
                        const ps_cuda_rank_sum_args a = {.own = own,
                                                         .others = others,
                                                         .n = n,
                                                         .stride = (int64_t)sizeof others[0] / e,
                                                         .n_ranks = p,
                                                         .rank = rank};
                        assert_ok(ps_cuda_rank_sum(&to, (ps_dtype)d, &a));
                        for (int64_t i = 0; i < n; i++)
                            if (!element_equal((ps_dtype)d, want, own, i))
                                fail_msg("%s, %d ranks, rank %d, element %lld of %lld", ps_dtype_name((ps_dtype)d), p,
                                         rank, (long long)i, (long long)n);
                        for (int i = 0; i < 16; i++) assert_int_equal(own[n * e + i], 0x55);
                    }
}

/* ---- ranks ---- */

enum { RANKS_MAX = 4, BLOCK_BYTES = 256 * 1024 };

typedef struct rank_thread rank_thread;
typedef int rank_run(rank_thread *r);

struct rank_thread {
    pthread_t thread;
    ps_comm *comm;
    rank_run *run;
    int ordinal;
    int64_t staging_bytes;
    /* what it opens */
    ps_backend *backend;
    ps_device *device;
    ps_queue *collective, *before, *dependents;
    char *block, *staging;
    ps_status st; /* of opening */
    char error[512];
    bool was_lulled; /* a queue that waits for transfers did not see that they failed */
    int n_failures;
};

static const ps_cuda_driver *driver;
static double timeout_s = 30;

static ps_status open_backend(rank_thread *r)
{
    ps_gpu *g;
    ps_backend *host;
    ps_cuda_gemms gemms;
    PS_TRY(ps_gpu_open(driver,
                       &(ps_gpu_options){.ordinal = r->ordinal, .poisons = true, .stream_commands = fake_depth()}, &g));
    PS_TRY(ps_backend_create_ref(&host));
    PS_TRY(fake_gpu_gemms(g, &gemms));
    return ps_backend_create_cuda(g, &fake_gpu_image, &gemms, NULL, host, &r->backend);
}

static ps_status open_memory(rank_thread *r)
{
    void *p;
    PS_TRY(open_backend(r));
    const ps_space *s = ps_backend_space(r->backend);
    PS_TRY(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", 4 * BLOCK_BYTES, &r->device));
    PS_TRY(ps_device_alloc(r->device, BLOCK_BYTES, &p));
    r->block = p;
    PS_TRY(ps_device_alloc(r->device, BLOCK_BYTES, &p));
    r->staging = p;
    PS_TRY(ps_queue_create(r->device, "exchange", PS_QUEUE_COLLECTIVES, &r->collective));
    PS_TRY(ps_queue_create(r->device, "before", PS_QUEUE_COMPUTE, &r->before));
    return ps_queue_create(r->device, "behind", PS_QUEUE_COMPUTE, &r->dependents);
}

static ps_status open_collectives(rank_thread *r)
{
    ps_collectives *x;
    const ps_nccl_options o = {.library = &fake_nccl,
                               .backend = r->backend,
                               .comm = r->comm,
                               .queue = r->collective,
                               .staging = r->staging,
                               .staging_bytes = r->staging_bytes};
    PS_TRY(ps_nccl_collectives_open(&o, &x));
    ps_comm_set_collectives(r->comm, x);
    if (ps_comm_size(r->comm) > 1 && r->comm->staging != NULL)
        return PS_FAIL(PS_EINVAL, "messages keep their staging memory beside NCCL's");
    return PS_OK;
}

static void close_rank(rank_thread *r)
{
    ps_comm_set_collectives(r->comm, NULL);
    ps_queue_destroy(r->dependents);
    ps_queue_destroy(r->before);
    ps_queue_destroy(r->collective);
    if (r->staging != NULL) ps_device_free(r->device, r->staging, BLOCK_BYTES, NULL);
    if (r->block != NULL) ps_device_free(r->device, r->block, BLOCK_BYTES, NULL);
    ps_device_destroy(r->device);
    ps_backend_destroy(r->backend);
    ps_comm_close(r->comm);
}

/* What is to fail once all have their memory. */
static ps_fault_kind armed;
static int armed_nth = -1;
static bool loses_gpu; /* where NCCL's failure is explained */

static void *rank_main(void *arg)
{
    rank_thread *r = arg;
    r->st = open_memory(r);
    if (r->st == PS_OK) r->st = ps_comm_barrier(r->comm);
    if (ps_comm_rank(r->comm) == 0 && armed_nth >= 0) ps_fault_arm(armed, armed_nth, false);
    if (ps_comm_rank(r->comm) == 0 && loses_gpu) fake_fail("memory_info", 0, PS_CU_ILLEGAL_ADDRESS);
    if (r->st == PS_OK) r->st = open_collectives(r);
    if (r->st != PS_OK) snprintf(r->error, sizeof r->error, "%s", ps_last_error());
    r->n_failures = r->run(r);
    close_rank(r);
    return NULL;
}

typedef struct rig_options {
    int32_t n;
    rank_run *run;
    bool shares_gpu;
    int64_t staging_bytes; /* 0: BLOCK_BYTES */
    uint64_t seed;
} rig_options;

/* Valid until the next call. What is between: fakes fail as a test wants. */
static rank_thread ranks[RANKS_MAX];

static void begin_fakes(const rig_options *o)
{
    driver = fake_driver(&(fake_options){.n_devices = o->shares_gpu ? 1 : o->n, .seed = o->seed});
    fake_gpu_add_kernels(NULL);
    fake_nccl_begin();
}

static void run_threads(const rig_options *o)
{
    ps_comm *comms[RANKS_MAX];
    assert_ok(ps_comm_open_threads(&(ps_comm_options){.timeout_s = timeout_s, .staging_bytes = 1 << 16}, o->n, comms));
    for (int32_t i = 0; i < o->n; i++) {
        ranks[i] = (rank_thread){.comm = comms[i],
                                 .run = o->run,
                                 .ordinal = o->shares_gpu ? 0 : i,
                                 .staging_bytes = o->staging_bytes > 0 ? o->staging_bytes : BLOCK_BYTES};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < o->n; i++) pthread_join(ranks[i].thread, NULL);
}

static void end_fakes(void)
{
    assert_true(fake_nccl_end());
    assert_true(fake_cublaslt_end());
    assert_true(fake_driver_end());
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void run_ranks(const rig_options *o)
{
    begin_fakes(o);
    run_threads(o);
    end_fakes();
    for (int32_t i = 0; i < o->n; i++) {
        if (ranks[i].st != PS_OK) fail_msg("rank %d: %s", i, ranks[i].error);
        assert_int_equal(ranks[i].n_failures, 0);
    }
}

/* ---- transfers ---- */

/* Parts in the device's memory, each `shift` elements from an aligned place; and the same in the host's. */
typedef struct twins {
    payloads host, device;
} twins;

static twins twins_new(const rank_thread *r, const layout *l, ps_dtype dtype, int shift)
{
    twins x = {.host = payloads_new(l, dtype)};
    const int64_t e = (int64_t)ps_dtype_bytes(dtype);
    int64_t at = 0;
    x.device = x.host;
    for (int32_t k = 0; k < l->n_parts; k++) {
        x.device.part[k].payload = r->block + at + shift * e;
        at += ps_round_up(l->n[k] * e + shift * e, 64);
    }
    if (at > BLOCK_BYTES) abort();
    return x;
}

typedef enum what { GATHER, REDUCE, ALL_REDUCE } what;

static ps_status begin(ps_collectives *x, what w, const ps_transfer *t, ps_event *done)
{
    return w == GATHER   ? ps_collectives_gather(x, t, done)
           : w == REDUCE ? ps_collectives_reduce(x, t, done)
                         : ps_collectives_all_reduce(x, t, done);
}

/* By the device without the host waiting before it looks, and by messages: the same bits where they count. */
static int check_transfer(rank_thread *r, what w, const layout *l, ps_dtype dtype, int shift, bool is_exact)
{
    const int32_t rank = ps_comm_rank(r->comm);
    const size_t e = ps_dtype_bytes(dtype);
    twins x = twins_new(r, l, dtype, shift);
    ps_events after = {.n = 0};
    ps_event done[2];
    if (w == GATHER)
        gather_fill(&x.host, dtype, rank, 3 + shift);
    else
        reduce_fill(&x.host, dtype, rank, 3 + shift);
    for (int32_t k = 0; k < l->n_parts; k++)
        CHECK(rank,
              ps_queue_put(r->before, x.device.part[k].payload, x.host.part[k].payload, l->n[k] * (int64_t)e) == PS_OK);
    ps_events_add(&after, ps_queue_event(r->before));
    ps_transfer t = transfer_of(&x.device, dtype, "a test");
    const ps_comm_stats stats = ps_comm_get_stats(r->comm);
    t.after = &after;
    CHECK(rank, begin(ps_comm_collectives(r->comm), w, &t, &done[0]) == PS_OK);
    const int64_t sent_bytes = ps_comm_get_stats(r->comm).sent_bytes - stats.sent_bytes;
    CHECK(rank, done[0].queue == r->collective);
    CHECK(rank, ps_queue_wait(r->dependents, done[0]) == PS_OK);
    t = transfer_of(&x.host, dtype, "a test");
    t.on_device = false; /* which goes by messages */
    CHECK(rank, begin(ps_comm_collectives(r->comm), w, &t, &done[1]) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(r->comm), done[1]) == PS_OK);
    CHECK(rank, ps_comm_get_stats(r->comm).sent_bytes - stats.sent_bytes == 2 * sent_bytes);
    for (int32_t k = 0; k < l->n_parts; k++) {
        char *got = malloc((size_t)l->n[k] * e + 1);
        CHECK(rank, ps_queue_get(r->dependents, got, x.device.part[k].payload, l->n[k] * (int64_t)e) == PS_OK);
        const bool counts_here = w != REDUCE || l->owner[k] == rank;
        for (int64_t i = 0; counts_here && is_exact && i < l->n[k]; i++)
            CHECK(rank, element_equal(dtype, x.host.part[k].payload, got, i));
        free(got);
    }
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(r->comm), done[0]) == PS_OK && ps_event_is_done(done[0]));
    CHECK(rank, payloads_free(&x.host, dtype));
    return 0;
}

static int check_all(rank_thread *r)
{
    const int32_t p = ps_comm_size(r->comm);
    if (r->st != PS_OK) return 1;
    for (int32_t i = 0; i < N_LAYOUTS; i++)
        for (int d = 0; d < PS_DTYPE_COUNT; d++)
            for (int w = GATHER; w <= ALL_REDUCE; w++) {
                const layout l = layout_make(i, p);
                if (check_transfer(r, (what)w, &l, (ps_dtype)d, (i + d) % 2, true) != 0) return 1;
            }
    return 0;
}

/* In one piece and in several; one rank, too. */
static void test_transfers(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= RANKS_MAX; n++)
        run_ranks(
            &(rig_options){.n = n, .run = check_all, .staging_bytes = n % 2 == 0 ? 0 : 3 * 320, .seed = (uint64_t)n});
}

/* Many begun before any is waited for, and nothing but order by events. */
static int check_begun(rank_thread *r)
{
    enum { MANY = 12, N = 1001 };
    const int32_t rank = ps_comm_rank(r->comm), p = ps_comm_size(r->comm);
    static _Thread_local uint16_t values[MANY][N], got[N], want[N];
    ps_comm_part parts[MANY];
    ps_event done[MANY];
    if (r->st != PS_OK) return 1;
    for (int k = 0; k < MANY; k++) {
        ps_events after = {.n = 0};
        parts[k] = (ps_comm_part){.payload = r->block + k * 4096, .n = N, .owner = k % p};
        payload_fill(PS_DTYPE_BF16, values[k], N, rank, k);
        CHECK(rank, ps_queue_put(r->before, parts[k].payload, values[k], sizeof values[k]) == PS_OK);
        ps_events_add(&after, ps_queue_event(r->before));
        const ps_transfer t = {.parts = &parts[k],
                               .n_parts = 1,
                               .dtype = PS_DTYPE_BF16,
                               .on_device = true,
                               .what = "many",
                               .after = &after};
        CHECK(rank, ps_collectives_all_reduce(ps_comm_collectives(r->comm), &t, &done[k]) == PS_OK);
    }
    for (int k = 0; k < MANY; k++) {
        CHECK(rank, ps_queue_wait(r->dependents, done[k]) == PS_OK);
        CHECK(rank, ps_queue_get(r->dependents, got, parts[k].payload, sizeof got) == PS_OK);
        sum_reference(PS_DTYPE_BF16, want, N, p, k);
        for (int64_t i = 0; i < N; i++) CHECK(rank, element_equal(PS_DTYPE_BF16, want, got, i));
    }
    return 0;
}

static void test_many(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run_ranks(&(rig_options){.n = 3, .run = check_begun, .seed = seed});
        assert_int_equal(ranks[0].st, PS_OK);
    }
}

/* On a stream that goes before those that compute. */
static void test_is_urgent(void **state)
{
    (void)state;
    const rig_options o = {.n = 2, .run = check_begun};
    begin_fakes(&o);
    run_threads(&o);
    const fake_nccl_stats s = fake_nccl_get_stats();
    end_fakes();
    assert_int_equal(ranks[0].n_failures + ranks[1].n_failures, 0);
    assert_true(s.n_groups > 0);
    assert_int_equal(s.n_urgent, s.n_groups);
}

/* ---- conditions ---- */

/* Begun one after the other. The host knows which are made; what is not made leaves the payload as it is, and counts for
 * nothing. */
static int check_only_if(rank_thread *r)
{
    enum { N = 1001 };
    const int32_t rank = ps_comm_rank(r->comm), p = ps_comm_size(r->comm);
    static _Thread_local uint16_t got[N], want[N];
    votes v[N_ROUNDS];
    if (r->st != PS_OK) return 1;
    for (int i = 0; i < N_ROUNDS; i++) {
        const ps_comm_part part = {.payload = r->block + i * 4096, .n = N, .owner = i % p};
        ps_events after = {.n = 0};
        ps_transfer_condition condition;
        payload_fill(PS_DTYPE_BF16, want, N, rank, i);
        CHECK(rank, ps_queue_put(r->before, part.payload, want, sizeof want) == PS_OK);
        ps_events_add(&after, ps_queue_event(r->before));
        const ps_comm_stats stats = ps_comm_get_stats(r->comm);
        CHECK(rank, begin_votes(r->comm, i, &v[i], &condition) == PS_OK);
        const ps_transfer t = {.parts = &part,
                               .n_parts = refuses(i, rank, p) ? 0 : 1,
                               .dtype = PS_DTYPE_BF16,
                               .on_device = true,
                               .what = "if no rank refuses",
                               .after = &after,
                               .only_if = &condition};
        ps_event done;
        CHECK(rank, begin(ps_comm_collectives(r->comm), GATHER, &t, &done) == PS_OK);
        CHECK(rank, ps_queue_wait(r->dependents, done) == PS_OK);
        CHECK(rank,
              ps_queue_wait_all(r->dependents, &after) == PS_OK); /* which done does not come after if it is not made */
        CHECK(rank, i % 3 == 0 || ps_comm_get_stats(r->comm).n_transfers == stats.n_transfers);
        CHECK(rank, i % 3 > 0 || ps_comm_get_stats(r->comm).n_transfers == stats.n_transfers + 1);
        CHECK(rank, ps_queue_get(r->dependents, got, part.payload, sizeof got) == PS_OK);
        if (i % 3 == 0) payload_fill(PS_DTYPE_BF16, want, N, part.owner, i);
        CHECK(rank, memcmp(got, want, sizeof got) == 0);
        CHECK(rank, ps_collectives_wait(ps_comm_collectives(r->comm), done) == PS_OK);
    }
    return 0;
}

static void test_conditions(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= RANKS_MAX; n++)
        run_ranks(&(rig_options){.n = n, .run = check_only_if, .seed = (uint64_t)n});
}

/* ---- sums ---- */

/* The ranks' values are 2^-8, 2^-8, 1. In the order of ranks and rounded once they make 1 + 2^-7. Rounded each time
 * from the last rank on, 1 + 2^-8, half way to the next number, would become 1, twice. */
static int check_sums(rank_thread *r)
{
    enum { N = 333 };
    const int32_t rank = ps_comm_rank(r->comm), p = ps_comm_size(r->comm);
    uint16_t values[N], got[N];
    if (r->st != PS_OK) return 1;
    for (int w = REDUCE; w <= ALL_REDUCE; w++) {
        for (int i = 0; i < N; i++) values[i] = ps_bf16_from_f32(rank == p - 1 ? 1.0f : 0.00390625f);
        CHECK(rank, ps_queue_put(r->before, r->block, values, sizeof values) == PS_OK);
        ps_events after = {.n = 0};
        ps_events_add(&after, ps_queue_event(r->before));
        const ps_comm_part parts[2] = {{r->block, 0, 0}, {r->block, N, 1}};
        const ps_transfer t = {
            .parts = parts, .n_parts = 2, .dtype = PS_DTYPE_BF16, .on_device = true, .what = "sums", .after = &after};
        ps_event done;
        CHECK(rank, begin(ps_comm_collectives(r->comm), (what)w, &t, &done) == PS_OK);
        CHECK(rank, ps_queue_wait(r->dependents, done) == PS_OK);
        CHECK(rank, ps_queue_get(r->dependents, got, r->block, sizeof got) == PS_OK);
        for (int i = 0; i < N && (w == ALL_REDUCE || rank == 1); i++) CHECK(rank, ps_bf16_to_f32(got[i]) == 1.0078125f);
    }
    return 0;
}

static void test_sums_are_rounded_once(void **state)
{
    (void)state;
    run_ranks(&(rig_options){.n = 3, .run = check_sums});
}

/* ---- failures ---- */

/* A gathering and a reduction; what came of them is in st and error. */
static int try_transfers(rank_thread *r)
{
    const int32_t p = ps_comm_size(r->comm);
    const layout l = layout_make(6, p);
    if (r->st != PS_OK) return 0;
    twins x = twins_new(r, &l, PS_DTYPE_BF16, 0);
    const ps_transfer t = transfer_of(&x.device, PS_DTYPE_BF16, "group 7");
    ps_event done;
    ps_status st = ps_queue_fill(r->before, r->block, 0, BLOCK_BYTES);
    if (st == PS_OK) st = ps_event_wait(ps_queue_event(r->before));
    for (int i = 0; i < 4 && st == PS_OK; i++) {
        st = begin(ps_comm_collectives(r->comm), i % 2 == 0 ? GATHER : REDUCE, &t, &done);
        if (st == PS_OK) st = ps_queue_wait(r->dependents, done);
    }
    if (st == PS_OK) st = ps_event_wait(ps_queue_event(r->dependents));
    r->was_lulled = st == PS_OK;
    if (st == PS_OK) st = ps_collectives_wait(ps_comm_collectives(r->comm), done);
    r->was_lulled = r->was_lulled && st != PS_OK;
    if (st != PS_OK) snprintf(r->error, sizeof r->error, "%s", ps_last_error());
    if (st != PS_OK && st != PS_ECOMM) ps_comm_fail(r->comm, r->error); /* as the engine does */
    r->st = st;
    (void)payloads_free(&x.host, PS_DTYPE_BF16);
    return 0;
}

/* Every function, its first call, its second, ... until all goes well: an error on all ranks, in one line, that says what
 * it was; no rank waits for ever, nothing is left. */
static void test_failing_calls(void **state)
{
    (void)state;
    static const struct {
        const char *function;
        ps_nccl_result with;
        const char *text;
    } cases[] = {{"unique_id", PS_NCCL_SYSTEM_ERROR, "NCCL: creating an id: unhandled system error"},
                 {"join", PS_NCCL_INVALID_USAGE, "NCCL: initialising the communicator: invalid usage"},
                 {"state", PS_NCCL_INTERNAL_ERROR, "internal error"},
                 {"group_start", PS_NCCL_INTERNAL_ERROR, "NCCL: group 7: internal error"},
                 {"group_end", PS_NCCL_INVALID_ARGUMENT, "NCCL: group 7: invalid argument"},
                 {"send", PS_NCCL_INTERNAL_ERROR, "NCCL: group 7: internal error"},
                 {"receive", PS_NCCL_INTERNAL_ERROR, "NCCL: group 7: internal error"},
                 {"broadcast", PS_NCCL_INTERNAL_ERROR, "NCCL: group 7: internal error"}};
    const rig_options o = {.n = 3, .run = try_transfers};
    for (size_t c = 0; c < PS_ARRAY_LEN(cases); c++) {
        bool has_failed = true;
        for (int nth = 0; has_failed && nth < 3; nth++) {
            begin_fakes(&o);
            fake_nccl_fail(cases[c].function, nth, cases[c].with);
            run_threads(&o);
            has_failed = ranks[0].st != PS_OK;
            if (nth == 0 && !has_failed) fail_msg("%s failed unnoticed", cases[c].function);
            for (int32_t i = 0; i < o.n; i++) {
                const char *error = ranks[i].error;
                if ((ranks[i].st != PS_OK) != has_failed) fail_msg("%s: rank %d: %s", cases[c].function, i, error);
                if (has_failed && (strstr(error, cases[c].text) == NULL || strchr(error, '\n') != NULL))
                    fail_msg("%s, rank %d: %s", cases[c].function, i, error);
            }
            end_fakes();
        }
    }
}

static int do_nothing(rank_thread *r)
{
    (void)r;
    return 0;
}

/* What one rank's GPU does while all meet is no error of NCCL's, and the others hear of it all the same. */
static void test_lost_while_meeting(void **state)
{
    (void)state;
    const rig_options o = {.n = 3, .run = do_nothing};
    int n_lost = 0;
    begin_fakes(&o);
    fake_nccl_fail("join", 0, PS_NCCL_INTERNAL_ERROR);
    loses_gpu = true;
    run_threads(&o);
    loses_gpu = false;
    for (int32_t i = 0; i < o.n; i++) {
        if (ranks[i].st == PS_EDEVICE)
            n_lost++;
        else if (ranks[i].st != PS_ECOMM || strstr(ranks[i].error, "failed: ") == NULL)
            fail_msg("rank %d: %s: %s", i, ps_status_name(ranks[i].st), ranks[i].error);
        assert_non_null(strstr(ranks[i].error, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
    assert_int_equal(n_lost, 1);
    assert_true(fake_nccl_end());
    assert_true(fake_cublaslt_end());
    (void)fake_driver_end(); /* a lost context keeps what it had */
}

/* Calls at the end: no error is reported, nothing is left. */
static void test_failing_ends(void **state)
{
    (void)state;
    const rig_options o = {.n = 2, .run = try_transfers};
    begin_fakes(&o);
    fake_nccl_fail("finalize", 0, PS_NCCL_INTERNAL_ERROR);
    run_threads(&o);
    for (int32_t i = 0; i < o.n; i++)
        if (ranks[i].st != PS_OK) fail_msg("rank %d: %s", i, ranks[i].error);
    end_fakes();
}

/* Memory, threads, and what the driver refuses: the first, the second, ... of whatever rank, until none is asked for. */
static void test_faults(void **state)
{
    (void)state;
    static const ps_fault_kind faults[] = {PS_FAULT_ALLOC, PS_FAULT_DEVICE};
    const rig_options o = {.n = 2, .run = try_transfers, .seed = 7};
    for (size_t f = 0; f < PS_ARRAY_LEN(faults); f++) {
        bool has_struck = true;
        int n_failed = 0;
        for (int nth = 0; has_struck && nth < 400; nth++) {
            begin_fakes(&o);
            armed = faults[f];
            armed_nth = nth;
            run_threads(&o);
            has_struck = ps_fault_has_struck(faults[f]);
            ps_fault_arm(faults[f], -1, false);
            armed_nth = -1;
            if (!has_struck && (ranks[0].st != PS_OK || ranks[1].st != PS_OK))
                fail_msg("nothing failed, but: %s, %s", ranks[0].error, ranks[1].error);
            n_failed += ranks[0].st != PS_OK || ranks[1].st != PS_OK;
            end_fakes();
        }
        assert_false(has_struck);
        assert_true(n_failed > 5);
    }
}

static void test_shared_gpu(void **state)
{
    (void)state;
    const rig_options o = {.n = 2, .run = try_transfers, .shares_gpu = true};
    begin_fakes(&o);
    run_threads(&o);
    for (int32_t i = 0; i < o.n; i++) {
        assert_int_equal(ranks[i].st, PS_ECOMM);
        if (strstr(ranks[i].error, "Duplicate GPU detected") == NULL || strchr(ranks[i].error, '\n') != NULL ||
            strstr(ranks[i].error, "comm.collectives = messages does without") == NULL)
            fail_msg("rank %d: %s", i, ranks[i].error);
    }
    end_fakes();
}

/* ---- ranks that leave ---- */

/* A rank still in the barrier may learn there of what comes next. */
static bool is_well_on_all(rank_thread *r)
{
    const ps_status st = ps_comm_barrier(r->comm);
    if (st == PS_OK) return true;
    r->st = st;
    snprintf(r->error, sizeof r->error, "%s", ps_last_error());
    return false;
}

/* Rank 1 goes, in one way or another, when the others are in the middle of transfers: streams that wait continue, and
 * fail. */
static int leave_badly(rank_thread *r)
{
    (void)try_transfers(r);
    if (!is_well_on_all(r)) return 1;
    if (r->st != PS_OK || ps_comm_rank(r->comm) != 1) return try_transfers(r);
    ps_comm_vanish(r->comm);
    return 0;
}

/* The same, but it fails in order. */
static int fail_late(rank_thread *r)
{
    (void)try_transfers(r);
    if (!is_well_on_all(r)) return 1;
    if (r->st != PS_OK || ps_comm_rank(r->comm) != 1) return try_transfers(r);
    ps_comm_fail(r->comm, "the disk is full");
    return 0;
}

static int leave_early(rank_thread *r)
{
    return ps_comm_rank(r->comm) == 1 ? 0 : try_transfers(r);
}

static int fail_early(rank_thread *r)
{
    if (ps_comm_rank(r->comm) == 1) {
        ps_comm_fail(r->comm, "the disk is full");
        return 0;
    }
    return try_transfers(r);
}

static void test_a_rank_leaves(void **state)
{
    (void)state;
    static const struct {
        rank_run *run;
        const char *text;
    } ways[] = {{leave_badly, "rank 1 ("},
                {leave_early, "it ended, or left before the others"},
                {fail_early, "the disk is full"},
                {fail_late, "the disk is full"}};
    timeout_s = 1;
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        const rig_options o = {.n = 3, .run = ways[w].run, .seed = w};
        begin_fakes(&o);
        run_threads(&o);
        for (int32_t i = 0; i < o.n; i += 2) {
            if (ranks[i].st != PS_ECOMM || strstr(ranks[i].error, ways[w].text) == NULL ||
                strstr(ranks[i].error, "rank 1 (") == NULL)
                fail_msg("way %zu, rank %d: %d, %s", w, i, ranks[i].st, ranks[i].error);
            assert_false(ranks[i].was_lulled);
        }
        end_fakes();
    }
    timeout_s = 30;
}

static atomic_int n_past_barrier;

/* NCCL finds out by itself, when all are idle: a rank still in the barrier would fail there. */
static int wait_sick(rank_thread *r)
{
    if (r->st != PS_OK || ps_comm_barrier(r->comm) != PS_OK) return 1;
    if (atomic_fetch_add(&n_past_barrier, 1) == 1) fake_nccl_sicken(PS_NCCL_INTERNAL_ERROR);
    for (int i = 0; i < 30000 && ps_comm_failed_rank(r->comm) < 0; i++) usleep(1000);
    (void)try_transfers(r);
    return 0;
}

static void test_sick(void **state)
{
    (void)state;
    const rig_options o = {.n = 2, .run = wait_sick};
    atomic_store(&n_past_barrier, 0);
    begin_fakes(&o);
    run_threads(&o);
    for (int32_t i = 0; i < o.n; i++) {
        if (ranks[i].st != PS_ECOMM || strstr(ranks[i].error, "NCCL: a transfer: internal error") == NULL)
            fail_msg("rank %d: %d, %s", i, ranks[i].st, ranks[i].error);
    }
    end_fakes();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_rank_sum),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_is_urgent),
        cmocka_unit_test(test_sums_are_rounded_once),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_lost_while_meeting),
        cmocka_unit_test(test_failing_ends),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_shared_gpu),
        cmocka_unit_test(test_a_rank_leaves),
        cmocka_unit_test(test_sick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
