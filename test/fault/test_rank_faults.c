/* The n-th fallible call of any of several ranks fails: all of them fail, with an error that names the rank; nothing
 * leaks, no rank waits for ever. */
#include "base/fault.h"
#include "cuda/fake_cpu.h"
#include "engine/ranks_fixture.h"

enum { N_RANKS = 2 };

static const char *const names[PS_FAULT_COUNT] = {
    [PS_FAULT_ALLOC] = "alloc", [PS_FAULT_COPY] = "copy",     [PS_FAULT_READ] = "read",
    [PS_FAULT_WRITE] = "write", [PS_FAULT_DEVICE] = "device", [PS_FAULT_LOST] = "lost"};

/* What a rank did, for what the others learn of it. */
typedef struct faulty_rank {
    ps_comm *comm;
    ps_config *config;
    bool is_created, has_finished; /* has_finished: it only waits for the others */
    ps_status st;
    char error[768];
    uint64_t hash;
} faulty_rank;

static ps_status step_once(ps_engine *e, int32_t rank, int64_t index)
{
    int32_t tokens[32], targets[32];
    int64_t B, length;
    ps_engine_get_shape(e, &B, &length, NULL, NULL);
    fill_batch(tokens, targets, B, length, TINY_VOCABULARY, N_RANKS * index + rank);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    PS_TRY(ps_backward(e));
    return ps_step(e);
}

/* Two steps, the second in another shape, which a rank may have to refuse for all. */
static ps_status two_steps(ps_engine *e, faulty_rank *r)
{
    const int32_t rank = ps_comm_rank(r->comm);
    PS_TRY(step_once(e, rank, 0));
    const ps_status st = ps_engine_set_shape(e, ps_model_from_config, r->config, 1, 8);
    PS_TRY(e->state == PS_ENGINE_FAILED || st == PS_ECOMM ? st : step_once(e, rank, 1));
    PS_TRY(ps_engine_get_weights_xxh3(e, &r->hash));
    return st;
}

static ps_status create_and_run(faulty_rank *r, ps_engine **e)
{
    PS_TRY(ps_engine_create(ps_model_from_config, r->config, r->config, PS_FOR_TRAINING, r->comm, e));
    r->is_created = true;
    PS_TRY(two_steps(*e, r));
    r->has_finished = true;
    return ps_comm_barrier(r->comm);
}

static void *faulty_main(void *arg)
{
    faulty_rank *r = arg;
    ps_engine *e = NULL;
    r->st = create_and_run(r, &e);
    if (r->st != PS_OK) snprintf(r->error, sizeof r->error, "%s", ps_last_error());
    ps_engine_destroy(e);
    ps_comm_close(r->comm);
    return NULL;
}

static void run_ranks_of_fault(ps_config *c, ps_fault_kind kind, long nth, bool persistent, faulty_rank ranks[N_RANKS])
{
    ps_comm *comms[N_RANKS];
    pthread_t threads[N_RANKS];
    /* threads that find no memory at all cannot even say so: then silence has to tell */
    const ps_comm_options o = {.timeout_s = persistent ? 0.3 : 20, .staging_bytes = 1 << 16};
    assert_ok(ps_comm_open_threads(&o, N_RANKS, comms));
    ps_fault_arm(kind, nth, persistent);
    for (int i = 0; i < N_RANKS; i++) {
        ranks[i] = (faulty_rank){.comm = comms[i], .config = c};
        assert_int_equal(pthread_create(&threads[i], NULL, faulty_main, &ranks[i]), 0);
    }
    for (int i = 0; i < N_RANKS; i++) pthread_join(threads[i], NULL);
}

static bool right_status(ps_fault_kind kind, ps_status st)
{
    switch (kind) {
    case PS_FAULT_ALLOC: return st == PS_ENOMEM_HOST || st == PS_ENOMEM_DEV;
    case PS_FAULT_COPY: return st == PS_EDEVICE || st == PS_EIO;
    case PS_FAULT_READ:
    case PS_FAULT_WRITE: return st == PS_EIO;
    case PS_FAULT_DEVICE:
    case PS_FAULT_LOST: return st == PS_EDEVICE;
    case PS_FAULT_COUNT: break;
    }
    return false;
}

/* True when all got through. One rank may report its own failure without a name, the others name it; where each call
 * from then on fails, a rank that knows may fail before it says so. A rank that had only to wait for the others may
 * have learnt of nothing. */
static bool check_ranks(const faulty_rank ranks[N_RANKS], ps_fault_kind kind, bool persistent, long nth)
{
    int n_failed = 0, n_unnamed = 0;
    for (int i = 0; i < N_RANKS; i++) {
        const faulty_rank *r = &ranks[i];
        if (r->st == PS_OK) continue;
        n_failed++;
        const bool is_named = strstr(r->error, "rank ") != NULL;
        if (!right_status(kind, r->st) && !(r->st == PS_ECOMM && (is_named || persistent)))
            fail_msg("%s %ld, rank %d: %s: %s", names[kind], nth, i, ps_status_name(r->st), r->error);
        n_unnamed += !is_named;
    }
    for (int i = 0; i < N_RANKS; i++)
        if (n_failed > 0 && ranks[i].st == PS_OK && !ranks[i].has_finished)
            fail_msg("%s %ld: rank %d does not know", names[kind], nth, i);
    if (!persistent && n_unnamed > 1) fail_msg("%s %ld: no rank says which one failed", names[kind], nth);
    if (n_failed == 0) assert_true(ranks[0].hash == ranks[1].hash);
    return n_failed == 0;
}

/* Every stride-th call, over a whole run; their number differs a little from run to run: signs of life. */
static void walk_faults_of(ps_fault_kind kind, long first, long stride, bool persistent, ps_config *c)
{
    const int64_t live = ps_mem_live_bytes();
    int n_failed[2] = {0}; /* in creation, later */
    bool is_done = false;
    for (long nth = first; !is_done; nth += stride) {
        faulty_rank ranks[N_RANKS];
        run_ranks_of_fault(c, kind, nth, persistent, ranks);
        const bool has_struck = ps_fault_has_struck(kind);
        ps_fault_arm(kind, -1, false);
        is_done = check_ranks(ranks, kind, persistent, nth) && !has_struck;
        if (!is_done) n_failed[ranks[0].is_created && ranks[1].is_created]++;
        if (ps_mem_live_bytes() != live)
            fail_msg("%s %ld: %lld bytes leak", names[kind], nth, (long long)(ps_mem_live_bytes() - live));
    }
    printf("%s, %s: %d failures in creation, %d later\n", names[kind], persistent ? "from then on" : "once",
           n_failed[0], n_failed[1]);
    /* that a device is lost may be heard of later only: it works late */
    assert_true((n_failed[0] > 0 || kind == PS_FAULT_LOST) && n_failed[1] > 0);
}

static void walk_faults(ps_fault_kind kind, long first, long stride, const char *more)
{
    for (int persistent = 0; persistent < 2; persistent++) {
        ps_config *c = TINY("bf16.enabled=true", "model.n_layer=1", "memory.device=330KB", "memory.host=128KB",
                            "memory.disk=20MB", "default_chunk_size=4096", "train.threads=1", more);
        walk_faults_of(kind, first, stride, persistent, c);
        ps_config_destroy(c);
    }
}

static void test_alloc(void **state)
{
    (void)state;
    walk_faults(PS_FAULT_ALLOC, 0, 251, NOTHING);
    walk_faults(PS_FAULT_ALLOC, 11, 997, MSC);
}

static void test_disk(void **state)
{
    (void)state;
    walk_faults(PS_FAULT_READ, 0, 29, NOTHING);
    walk_faults(PS_FAULT_WRITE, 0, 29, NOTHING);
}

/* Devices that the host cannot touch: a call into one of them fails, a copy to or from staging memory does, or one is
 * lost. All hear of it, those too whose devices wait for what was to come. */
static void walk_faults_over_async(ps_fault_kind kind, long stride, bool persistent, const char *more)
{
    fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES, .n_devices = N_RANKS, .are_alike = true});
    ps_config *c = TINY("bf16.enabled=true", "model.n_layer=1", "memory.device=400KB", "memory.host=400KB",
                        "default_chunk_size=4096", "train.threads=1", "comm.staging=65536", "train.backend=cuda", more);
    walk_faults_of(kind, 0, stride, persistent, c);
    ps_config_destroy(c);
    assert_true(fake_cpu_end());
}

static void test_device(void **state)
{
    (void)state;
    walk_faults_over_async(PS_FAULT_DEVICE, 47, false, NOTHING);
    walk_faults_over_async(PS_FAULT_DEVICE, 83, true, MSC);
}

/* Between memories that are two. */
static void test_copy(void **state)
{
    (void)state;
    walk_faults_over_async(PS_FAULT_COPY, 37, false, MSC);
    walk_faults_over_async(PS_FAULT_COPY, 59, true, NOTHING);
}

static void test_lost(void **state)
{
    (void)state;
    walk_faults_over_async(PS_FAULT_LOST, 31, false, NOTHING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc), cmocka_unit_test(test_disk), cmocka_unit_test(test_device),
        cmocka_unit_test(test_copy),  cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
