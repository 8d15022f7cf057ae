/* test_gpu_ranks.c - several ranks on CUDA, as threads of this process: a GPU each, or one that they share; chunks go by
 * messages or NCCL. The losses of processors within rounding, the same bits whatever moves, by either of them, memory
 * and bytes as planned; and a GPU that one of them loses. Over the fake driver and a fake NCCL only, which are begun anew
 * for each number of GPUs. */
#include "engine/ranks_fixture.h"

#include <math.h>

#include "cuda/fake_impl.h"

enum { STEPS = 3 };

#define SMALL "bf16.enabled=true", "model.n_layer=1"
#define TWO_MICRO_BATCHES "gradient_accumulation_steps=2"
#define TWO_TIERS "memory.device=450KB", "memory.host=2MB", "default_chunk_size=4096"
#define THREE_TIERS "memory.device=450KB", "memory.disk=4MB", "memory.disk_path=/tmp", "default_chunk_size=4096"

static void again(fake_options o)
{
    assert_true(mock_gpu_end());
    if (o.page_bytes == 0) o.page_bytes = ASYNC_PAGE_BYTES;
    if (o.seed == 0) o.seed = (uint64_t)over.seed;
    mock_gpu_begin(&o);
}

#define BY_MESSAGES "comm.collectives=messages"
#define BY_NCCL "comm.collectives=nccl"

static const char *const carriers[] = {BY_MESSAGES, BY_NCCL};

static void begin_gpus(int n)
{
    again((fake_options){.n_devices = n});
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void compare_with_processors(int n, const char *dtype, const char *accumulation, double tolerance)
{
    const char *const *changes = CHANGES(dtype, "model.n_layer=1", accumulation);
    const rank_result want = RANKS(n, STEPS, dtype, "model.n_layer=1", accumulation, ON_CPU)->result;
    const rank_result got = run_ranks(n, STEPS, rank_train, changes)->result;
    for (int s = 0; s < STEPS; s++)
        if (!(fabs(got.losses[s] / want.losses[s] - 1) <= tolerance))
            fail_msg("%d ranks, %s, step %d: loss %.9g, of processors %.9g", n, dtype, s, got.losses[s],
                     want.losses[s]);
    if (got.hash == want.hash) fail_msg("the processor's very bits: it was not the GPU that computed");
}

static void test_losses(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        begin_gpus(n);
        compare_with_processors(n, "bf16.enabled=false", NOTHING, 1e-5);
        compare_with_processors(n, "bf16.enabled=true", TWO_MICRO_BATCHES, 2e-2);
    }
}

/* ---- promises ---------------------------------------------------------------------------------------------------- */

static const char *const variations[][4] = {
    {TWO_TIERS, NOTHING},
    {"default_chunk_size=8192", "memory.prefetch=0", MSC, NOTHING},
    {TWO_TIERS, MSC},
    {THREE_TIERS},
    {"memory.host=4MB", "optimizer.params.use_hybrid_adam=false", "default_chunk_size=4096", NOTHING},
    {BY_MESSAGES, NOTHING, NOTHING, NOTHING},
    {BY_MESSAGES, TWO_TIERS},
    {BY_NCCL, "comm.staging=65536", MSC, NOTHING},
};

static uint64_t hash_of(int n, const char *accumulation, const char *const variation[4])
{
    return RANKS(n, STEPS, SMALL, accumulation, variation[0], variation[1], variation[2], variation[3])->result.hash;
}

/* One micro-batch on two ranks, two on three, in turn with the variations. */
static void test_same_bits(void **state)
{
    (void)state;
    static const char *const as_it_is[4] = {NOTHING, NOTHING, NOTHING, NOTHING};
    for (int n = 2; n <= 3; n++) {
        const char *const accumulation = n == 2 ? NOTHING : TWO_MICRO_BATCHES;
        begin_gpus(n);
        const uint64_t want = hash_of(n, accumulation, as_it_is);
        for (size_t i = 0; i < PS_ARRAY_LEN(variations); i++)
            if (is_my_share_of(2) && hash_of(n, accumulation, variations[i]) != want)
                fail_msg("%d ranks, %s: other bits by %s, %s, %s, %s", n, accumulation, variations[i][0],
                         variations[i][1], variations[i][2], variations[i][3]);
    }
}

/* With frozen parameters and groups with rates of their own; what is frozen is gathered, and no gradient of it is sent. */
static void test_frozen_and_groups(void **state)
{
    (void)state;
    static const char freeze[] = "train.freeze=*.w?e.weight,*.ln_1.*,*.c_fc.weight";
    static const char groups[] = "optimizer.param_groups=[{\"params\": [\"*.attn.*\"], \"lr\": 2e-3, "
                                 "\"weight_decay\": 0.3}]";
    begin_gpus(2);
    const rank_result all = RANKS(2, STEPS, SMALL, groups, BY_NCCL)->result;
    const rank_result want = RANKS(2, STEPS, SMALL, groups, freeze, BY_NCCL)->result;
    assert_true(want.sent_bytes < all.sent_bytes);
    assert_true(want.hash != RANKS(2, STEPS, SMALL, freeze, BY_NCCL)->result.hash);
    for (size_t i = 0; i < PS_ARRAY_LEN(carriers); i++) {
        const rank_result *r =
            &RANKS(2, STEPS, SMALL, groups, freeze, TWO_TIERS, i ? MSC : NOTHING, carriers[i])->result;
        assert_true(r->hash == want.hash);
        assert_memory_equal(r->losses, want.losses, sizeof want.losses);
        assert_memory_equal(r->norms, want.norms, sizeof want.norms);
    }
}

/* Peaks and bytes are those of the plan, and chunks did move. */
static void test_as_planned(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int way = 0; way < 4; way++) {
            begin_gpus(n);
            const rank_task *t = RANKS(n, STEPS + 2, SMALL, TWO_TIERS, way / 2 ? MSC : NOTHING, carriers[way % 2]);
            assert_int_equal(fake_nccl_calls("join"), way % 2 * n);
            for (int i = 0; i < n; i++) {
                const rank_result *r = &t[i].result;
                assert_int_equal(r->sent_bytes, r->forecast.moved_bytes[PS_LINK_COLLECTIVES]);
                assert_int_equal(r->memory.device_peak_bytes, r->forecast.peak_bytes[PS_TIER_DEVICE]);
                assert_int_equal(r->memory.host_peak_bytes, r->forecast.peak_bytes[PS_TIER_HOST]);
                assert_true(r->memory.host_to_device_bytes > 0 && r->memory.device_to_host_bytes > 0);
            }
        }
}

static void test_the_host_does_not_wait(void **state)
{
    (void)state;
    begin_gpus(2);
    for (size_t i = 0; i < PS_ARRAY_LEN(carriers); i++) {
        run_ranks(2, 0, rank_train_ahead, CHANGES(SMALL, TWO_TIERS, carriers[i]));
        run_ranks(2, 0, rank_train_ahead, CHANGES(SMALL, TWO_TIERS, MSC, carriers[i]));
    }
}

/* ---- by NCCL ----------------------------------------------------------------------------------------------------- */

/* All that is issued goes by the checker of order, transfers too. */
static void test_order_of_transfers(void **state)
{
    (void)state;
    begin_gpus(2);
    mock_gpu_check_order(true);
    (void)RANKS(2, 2, SMALL, TWO_TIERS, BY_NCCL);
    (void)RANKS(2, 2, SMALL, TWO_TIERS, MSC, TWO_MICRO_BATCHES, BY_NCCL);
    mock_gpu_check_order(false);
}

static bool began_in_time;

/* The last kernel of backward, which waits until a reduction has begun, on its own stream. */
static void wait_for_reduction(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                               const void *args)
{
    const bool is_step = fake_nccl_calls("join") == 2; /* not the pass on zeros before it */
    if (is_step) began_in_time = fake_nccl_await_reductions(1) && began_in_time;
    fake_gpu_emulate(user, grid, block, shared_bytes, args);
}

static void test_reductions_begin_in_backward(void **state)
{
    (void)state;
    static const char last[] = "ps_gpu_embedding_sum_bf16";
    begin_gpus(2);
    struct ps_cu_function_state *f = fake.kernels;
    while (f < fake.kernels + fake.n_kernels && strcmp(f->name, last) != 0) f++;
    assert_true(f < fake.kernels + fake.n_kernels);
    f->run = wait_for_reduction;
    began_in_time = true;
    (void)RANKS(2, 1, SMALL, "default_chunk_size=4096", BY_NCCL);
    const fake_nccl_stats s = fake_nccl_get_stats();
    assert_true(began_in_time);
    assert_true(s.n_groups > s.n_reductions && s.n_urgent == s.n_groups);
}

static void expect_refusal(int n, const char *text, const char *const *changes)
{
    const rank_task *t = try_ranks(ps_model_from_config, n, 0, rank_train, changes);
    for (int i = 0; i < n; i++)
        if (t[i].result.st != PS_EINVAL || strstr(t[i].result.error, text) == NULL)
            fail_msg("rank %d: %d, %s", i, t[i].result.st, t[i].result.error);
}

static void test_refusals(void **state)
{
    (void)state;
    begin_gpus(1);
    expect_refusal(2, "comm.collectives = nccl: 2 ranks share GPU 0, and NCCL requires one each",
                   CHANGES("memory.device=200MiB", BY_NCCL));
    expect_refusal(2, "comm.collectives = nccl: it is for GPUs, and train.backend is cpu", CHANGES(ON_CPU, BY_NCCL));
}

/* ---- which GPU, and how much of it ------------------------------------------------------------------------------- */

/* Where a rank runs, and what it is to get. */
typedef struct place {
    const char *host, *visible; /* visible: CUDA_VISIBLE_DEVICES; NULL: not set */
    int32_t ordinal, n_sharers;
} place;

/* A rank that only reads its settings. */
typedef struct seat {
    const place *place;
    ps_comm *comm;
    ps_settings settings;
    ps_status st;
    char error[512];
} seat;

static _Thread_local const char *visible_here;

static const char *get_visible(void)
{
    return visible_here;
}

static void *take_seat(void *arg)
{
    seat *t = arg;
    ps_config *c = NULL;
    visible_here = t->place->visible;
    t->st = rank_config(CHANGES("memory.device=auto"), &c);
    if (t->st == PS_OK) t->st = ps_config_set(c, "train.backend", "auto");
    if (t->st == PS_OK) t->st = ps_settings_read_of_rank(c, true, t->comm, &t->settings);
    if (t->st == PS_OK) t->st = ps_settings_join(&t->settings, c, t->comm);
    if (t->st != PS_OK) snprintf(t->error, sizeof t->error, "%s", ps_last_error());
    ps_config_destroy(c);
    ps_comm_close(t->comm);
    return NULL;
}

/* The communicator of rank `rank` believes that its ranks are on these machines. */
static void set_hosts(ps_comm *c, int32_t rank, const place *places, int32_t n)
{
    c->local_rank = c->local_size = 0;
    for (int32_t i = 0; i < n; i++) {
        snprintf(c->hello[i].host, sizeof c->hello[i].host, "%s", places[i].host);
        if (strcmp(places[i].host, places[rank].host) != 0) continue;
        c->local_rank += i < rank;
        c->local_size++;
    }
}

/* Valid until the next call. */
static const seat *run_seats(int32_t n, const place *places)
{
    static seat seats[RANKS_MAX];
    ps_comm *comms[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    assert_ok(ps_comm_open_threads(
        &(ps_comm_options){.timeout_s = rank_timeout_s, .staging_bytes = RANKS_STAGING_BYTES}, n, comms));
    for (int32_t i = 0; i < n; i++) set_hosts(comms[i], i, places, n);
    mock_gpu.parts.visible = get_visible;
    for (int32_t i = 0; i < n; i++) {
        seats[i] = (seat){.place = &places[i], .comm = comms[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, take_seat, &seats[i]), 0);
    }
    for (int32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    mock_gpu.parts.visible = NULL;
    return seats;
}

/* The settings of rank 0. */
static const ps_settings *expect_seats(const char *what, int32_t n, const place *places)
{
    const seat *seats = run_seats(n, places);
    for (int32_t i = 0; i < n; i++) {
        const ps_settings *s = &seats[i].settings;
        if (seats[i].st != PS_OK) fail_msg("%s, rank %d: %s", what, i, seats[i].error);
        if (s->gpu.ordinal != places[i].ordinal || s->gpu.n_sharers != places[i].n_sharers)
            fail_msg("%s: rank %d has GPU %d with %d ranks on it, not %d with %d", what, i, s->gpu.ordinal,
                     s->gpu.n_sharers, places[i].ordinal, places[i].n_sharers);
        assert_int_equal(s->budgets.bytes[PS_TIER_DEVICE], seats[0].settings.budgets.bytes[PS_TIER_DEVICE]);
    }
    return &seats[0].settings;
}

#define SEATS(what, n, ...) (void)expect_seats(what, n, (const place[]){__VA_ARGS__})

static void test_turns(void **state)
{
    (void)state;
    begin_gpus(2);
    SEATS("a GPU each", 2, {"a", NULL, 0, 1}, {"a", NULL, 1, 1});
    SEATS("one more", 3, {"a", NULL, 0, 2}, {"a", NULL, 1, 1}, {"a", NULL, 0, 2});
    SEATS("two each", 4, {"a", NULL, 0, 2}, {"a", NULL, 1, 2}, {"a", NULL, 0, 2}, {"a", NULL, 1, 2});
    SEATS("two machines", 4, {"a", NULL, 0, 1}, {"b", NULL, 0, 1}, {"a", NULL, 1, 1}, {"b", NULL, 1, 1});
    SEATS("two that leave others", 4, {"a", "0,1", 0, 1}, {"a", "0,1", 1, 1}, {"b", "2,3", 0, 1}, {"b", "2,3", 1, 1});
    SEATS("dealt out", 3, {"a", "0", 0, 1}, {"a", "1", 0, 1}, {"b", "0", 0, 1});
    SEATS("in pairs", 4, {"a", "0,1", 0, 1}, {"a", "2,3", 0, 1}, {"a", "0,1", 1, 1}, {"a", "2,3", 1, 1});
}

static atomic_int n_asked;

static ps_status every_other_has_none(const ps_nccl **out)
{
    *out = &fake_nccl;
    return atomic_fetch_add(&n_asked, 1) % 2 == 0 ? PS_OK : PS_FAIL(PS_ENOSYS, "cannot load NCCL");
}

/* "auto" is one thing on all ranks, and what NCCL wants of the GPU is left to it. */
static void test_choice(void **state)
{
    (void)state;
    static const place two[2] = {{"a", NULL, 0, 1}, {"a", NULL, 1, 1}},
                       sharers[2] = {{"a", NULL, 0, 2}, {"a", NULL, 0, 2}};
    begin_gpus(2);
    const ps_settings *s = expect_seats("both have it", 2, two);
    const int64_t bytes = s->budgets.bytes[PS_TIER_DEVICE];
    assert_true(s->nccl.is_used && s->nccl.why_not[0] == '\0');
    assert_int_equal(s->comm_staging_bytes, bytes / 64 / 4096 * 4096);
    mock_gpu.parts.nccl = every_other_has_none;
    const seat *seats = run_seats(2, two);
    int n_without = 0;
    for (int i = 0; i < 2; i++) {
        s = &seats[i].settings;
        assert_int_equal(seats[i].st, PS_OK);
        assert_false(s->nccl.is_used);
        assert_int_equal(s->comm_staging_bytes, RANKS_STAGING_BYTES);
        assert_int_equal(s->budgets.bytes[PS_TIER_DEVICE], bytes + PS_MIB);
        n_without += strstr(s->nccl.why_not, "cannot load NCCL") != NULL;
        assert_true(strstr(s->nccl.why_not, "cannot load NCCL") != NULL ||
                    strstr(s->nccl.why_not, "another rank cannot use NCCL") != NULL);
    }
    assert_int_equal(n_without, 1);
    begin_gpus(1);
    assert_non_null(strstr(expect_seats("sharing", 2, sharers)->nccl.why_not, "2 ranks share GPU 0"));
}

/* Another rank may have it for itself: compute mode exclusive. */
static void test_only_the_own_is_opened(void **state)
{
    (void)state;
    begin_gpus(3);
    (void)RANKS(1, 1, SMALL, NOTHING);
    const int once = fake_opened(0);
    assert_int_equal(fake_opened(1) + fake_opened(2), 0);
    begin_gpus(3);
    (void)RANKS(3, 1, SMALL, NOTHING);
    for (int i = 0; i < 3; i++) assert_int_equal(fake_opened(i), once);
}

static void expect_named(const char *error, const char *text)
{
    if (strstr(error, "rank 1 (") != error || strstr(error, text) == NULL) fail_msg("not \"%s\": %s", text, error);
}

/* One error, which names the rank that cannot and says why; a run must not be on a GPU in part. */
static void test_one_has_none(void **state)
{
    (void)state;
    again((fake_options){.n_devices = 3, .mode = PS_CU_MODE_PROHIBITED, .mode_from = 1});
    const rank_task *t = try_ranks(ps_model_from_config, 3, 0, rank_train, CHANGES("memory.host=2MB"));
    const seat *seats = run_seats(3, (const place[]){{"a", NULL, 0, 1}, {"a", NULL, 1, 1}, {"a", NULL, 2, 1}});
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t[i].result.st, PS_ENOSYS);
        assert_int_equal(seats[i].st, PS_EINVAL);
        expect_named(t[i].result.error,
                     "train.backend = cuda: GPU 1 (Fake 1) cannot be used: its compute mode forbids");
        expect_named(seats[i].error, "cpu on this one, as GPU 1 (Fake 1) cannot be used: its compute mode forbids");
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Attention of all GPUs but the second. */
static ps_status attention_of_most(ps_gpu *gpu, ps_cuda_attention *out)
{
    ps_gpu_info info;
    *out = (ps_cuda_attention){0};
    PS_TRY(ps_gpu_get_info(gpu, &info));
    return strcmp(info.name, "Fake 1") == 0 ? PS_FAIL(PS_ENOSYS, "not here") : mock_gpu_attention(gpu, out);
}

/* Two that would compute attention by different things: no error of one, so all say what each has. */
static void test_one_has_no_cudnn(void **state)
{
    (void)state;
    begin_gpus(2);
    mock_gpu_install_cudnn();
    (void)RANKS(2, 1, SMALL, NOTHING);
    assert_true(fake_cudnn_calls("execute") > 0);
    mock_gpu.parts.attention = attention_of_most;
    ps_cuda_use_parts(&mock_gpu.parts);
    const rank_task *t = try_ranks(ps_model_from_config, 2, 0, rank_train, CHANGES(SMALL));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t[i].result.st, PS_EINVAL);
        assert_non_null(strstr(t[i].result.error, "ranks compute attention by different libraries"));
        assert_non_null(strstr(t[i].result.error, "set train.attention = own"));
    }
    (void)RANKS(2, 1, SMALL, "train.attention=own");
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* What each loads outside of its budget has room, too. */
static void test_budget_of_sharers(void **state)
{
    (void)state;
    begin_gpus(1);
    for (int n = 1; n <= 3; n++) {
        const place places[3] = {{"a", NULL, 0, n}, {"a", NULL, 0, n}, {"a", NULL, 0, n}};
        const ps_settings *s = expect_seats("sharing", n, places);
        const ps_cuda_found *f = &s->gpu.found;
        const int64_t share_bytes = ps_gpu_choice_share_bytes(&s->gpu, s->nccl.is_used),
                      loaded_bytes = f->info.free_bytes - f->usable_bytes;
        assert_true(loaded_bytes > 100 * PS_MIB);
        assert_in_range(n * (share_bytes + loaded_bytes), f->info.free_bytes - n, f->info.free_bytes);
        assert_int_equal(s->budgets.bytes[PS_TIER_DEVICE], (int64_t)((double)share_bytes * 0.8));
    }
    const rank_task *t = try_ranks(ps_model_from_config, 2, 0, rank_train, CHANGES("memory.device=260MiB"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t[i].result.st, PS_EBUDGET);
        assert_non_null(strstr(t[i].result.error, "can be used by each of 2 ranks: lower it, or leave it out"));
    }
    (void)RANKS(2, 0, "memory.device=250MiB");
}

/* On one GPU, on one of them and on one each. */
static void test_sharing_changes_no_bit(void **state)
{
    (void)state;
    uint64_t want = 0;
    for (int n_gpus = 1; n_gpus <= 3; n_gpus++) {
        begin_gpus(n_gpus);
        const uint64_t hash = RANKS(3, STEPS, SMALL, n_gpus == 1 ? "memory.device=450KB" : "memory.device=auto",
                                    "memory.host=2MB", "default_chunk_size=4096")
                                  ->result.hash;
        if (n_gpus == 1) want = hash;
        assert_true(hash == want);
    }
}

/* ---- one cannot be opened ---------------------------------------------------------------------------------------- */

/* Those of the driver. The second GPU gets nothing of them. */
static ps_cu_result (*page_create)(ps_cu_page *, size_t, const ps_cu_page_properties *, unsigned long long);
static ps_cu_result (*stream_create)(ps_cu_stream *, unsigned, int);

static ps_cu_result no_page(ps_cu_page *out, size_t bytes, const ps_cu_page_properties *page, unsigned long long flags)
{
    return fake_ordinal() == 1 ? PS_CU_OUT_OF_MEMORY : page_create(out, bytes, page, flags);
}

/* That goes before others: NCCL's. */
static ps_cu_result no_urgent_stream(ps_cu_stream *out, unsigned flags, int priority)
{
    return fake_ordinal() == 1 && priority != 0 ? PS_CU_OUT_OF_MEMORY : stream_create(out, flags, priority);
}

/* What each opens alone, the last of it NCCL's stream: no rank continues to the rendezvous, and all say what it was. */
static void test_memory_of_one(void **state)
{
    (void)state;
    static const struct {
        const char *nccl_collectives_state, *text;
        bool has_pages;
    } cases[] = {{BY_MESSAGES, "cuda: GPU 1 (Fake 1) has no memory left", false},
                 {BY_NCCL, "cuda: GPU 1 (Fake 1) has no memory left", false},
                 {BY_NCCL, "collectives", true}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        begin_gpus(3);
        ps_cuda_driver table = *mock_gpu.driver;
        page_create = table.page_create;
        stream_create = table.stream_create;
        if (cases[i].has_pages)
            table.stream_create = no_urgent_stream;
        else
            table.page_create = no_page;
        mock_gpu.driver = &table;
        const rank_task *t =
            try_ranks(ps_model_from_config, 3, 0, rank_train, CHANGES(SMALL, cases[i].nccl_collectives_state));
        for (int k = 0; k < 3; k++) {
            expect_named(t[k].result.error, cases[i].text);
            assert_int_equal(t[k].result.st, t[1].result.st);
        }
        assert_int_equal(fake_nccl_calls("join"), 0);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    begin_gpus(1);
}

/* ---- one is lost ------------------------------------------------------------------------------------------------- */

/* Whatever the moment: one error on all ranks, which names the one whose GPU it was; and all is freed. */
static void test_a_gpu_is_lost(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int i = 0; i < 6; i++) {
            again((fake_options){.n_devices = n, .seed = (uint64_t)(i + 1)});
            const bool is_start = i / 2 == 0; /* before the ranks' first step */
            fake_break_device(1, 150 + 431 * (i / 2), PS_CU_ECC_UNCORRECTABLE);
            const rank_task *t =
                try_ranks(ps_model_from_config, n, 20, rank_train, CHANGES(SMALL, THREE_TIERS, carriers[i % 2]));
            for (int32_t k = 0; k < n; k++) {
                const rank_result *r = &t[k].result;
                assert_int_equal(r->st, k == 1 || is_start ? PS_EDEVICE : PS_ECOMM);
                if (k != 1 && strstr(r->error, "rank 1 (") != r->error) fail_msg("rank %d: %s", k, r->error);
                if (strstr(r->error, "cuda: GPU 1 (Fake 1) is lost: ") == NULL || strchr(r->error, '\n') != NULL)
                    fail_msg("rank %d: %s", k, r->error);
            }
            assert_int_equal(ps_mem_live_bytes(), 0);
        }
    begin_gpus(1);
}

/* Streams that wait for what it was to send fail, and their hosts then. */
static void test_a_rank_vanishes(void **state)
{
    (void)state;
    static const char *const groups[] = {NOTHING, MSC};
    rank_timeout_s = 2;
    for (size_t g = 0; g < 2 * PS_ARRAY_LEN(groups); g++) {
        begin_gpus(3);
        const rank_task *t =
            try_ranks(ps_model_from_config, 3, 0, rank_vanish, CHANGES(SMALL, groups[g / 2], carriers[g % 2]));
        for (int32_t i = 0; i < 3; i++) {
            const rank_result *r = &t[i].result;
            assert_int_equal(r->st, PS_ECOMM);
            if (strstr(r->error, i == 1 ? "has vanished" : "rank 1 (") == NULL) fail_msg("rank %d: %s", i, r->error);
        }
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    rank_timeout_s = 20;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_frozen_and_groups),
        cmocka_unit_test(test_as_planned),
        cmocka_unit_test(test_the_host_does_not_wait),
        cmocka_unit_test(test_order_of_transfers),
        cmocka_unit_test(test_reductions_begin_in_backward),

        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_only_the_own_is_opened),
        cmocka_unit_test(test_one_has_none),
        cmocka_unit_test(test_one_has_no_cudnn),
        cmocka_unit_test(test_budget_of_sharers),
        cmocka_unit_test(test_sharing_changes_no_bit),
        cmocka_unit_test(test_memory_of_one),
        cmocka_unit_test(test_a_gpu_is_lost),
        cmocka_unit_test(test_a_rank_vanishes),
    };
    if (!mock_gpu_is_hardware()) return RUN_ON_BACKENDS(tests);
    printf("not tried: several GPUs are those of the fake driver\n");
    return 0;
}
