/* client_walk.h - programs that do what comes to their mind: steps that go another way each time, pairs of
 * tensors in use at once, gradients that are added, parameters read after their gradients, tensors without one, frozen
 * ones that get one. What they see is the same in all budgets, and in f32 what plain arrays hold; on the fake GPU
 * it is what the processor has. Several ranks have gradients of their own, and see the same. Programs that repeat go the
 * same way four steps long, and tell of the last backward pass, so that updates may come within it. */
#ifndef CLIENT_WALK_H
#define CLIENT_WALK_H

#include <pthread.h>
#include <xxhash.h>

#include "device/cuda/gpu.h"
#include "external/client_fixture.h"

#define ALL "memory.device=4MB memory.host=0 memory.disk=0"

enum {
    TENSORS = 14,
    LARGEST = 9000,
    STEPS = OVER_GPU        ? 10
            : OVER_DISCRETE ? 16
                            : 24,
    FROZEN = 6,
    FROZEN_FOR_EVER = 7,
    UNMANAGED = 8,
    UNUSED = 9,
    SAME_WAY = 4
};

/* A run of three chunks, exactly one chunk, one element, no multiple of anything, many in one chunk. */
static const int64_t sizes[TENSORS] = {9000, 4096, 1, 1000, 4097, 33, 2500, 700, 130, 64, 31, 1, 3000, 2047};

/* Rows of those that are matrices where a program has any; 0: none. Some of several chunks, of one, frozen at first or
 * for ever, unmanaged; some thinner than a matrix is for bf16 products. */
static const int64_t rows[TENSORS] = {90, 64, 0, 20, 17, 3, 50, 70, 13, 0, 0, 1, 60, 0};

/* What the library should hold. */
typedef struct plain {
    float w[LARGEST], m[LARGEST], v[LARGEST];
    double gradient[LARGEST];
    bool has_gradient;
    int steps;
} plain;

typedef struct walk {
    ps_client *client;
    ps_dtype dtype;
    ps_rng_key dice;
    uint64_t thrown;
    int32_t order[TENSORS];
    int32_t number[TENSORS];
    uint64_t seen; /* hash of all bytes that were read */
    int n_recorded, step;
    int64_t n_deferred, n_early, n_speculated, n_taken_back;
    bool is_plain; /* compared with plain arrays */
    bool repeats, has_matrices;
    ps_comm *comm; /* NULL: alone */
    int32_t rank, n_ranks;
    void (*after_step)(struct walk *w); /* NULL: nothing */
    void *user;                         /* what that has */
} walk;

/* Ranks are threads. */
static _Thread_local plain arrays[TENSORS];
static _Thread_local float buffer[LARGEST], gradient[LARGEST];
static _Thread_local char raw[LARGEST * sizeof(float)];

static int roll(walk *w, int sides)
{
    return (int)(ps_rng_u32(w->dice, w->thrown++) % (uint32_t)sides);
}

static void see(walk *w, const void *bytes, int64_t n)
{
    w->seen = XXH3_64bits_withSeed(bytes, (size_t)n, w->seen);
}

/* On CUDA every second program has a stream of its own, on which it gets at places. */
static _Thread_local ps_cu_stream stream;
static int n_programs;

static void use_stream(ps_client *client)
{
    if (client->settings.backend_kind != PS_BACKEND_CUDA) {
        int somewhere;
        assert_int_equal(ps_client_use_stream(client, &somewhere), PS_ENOSYS);
        return;
    }
    if (info_of(client).n_ranks > 1 || n_programs++ % 2 == 0) return;
    assert_int_equal(ps_client_use_stream(client, NULL), PS_EINVAL);
    assert_int_equal(over.driver->stream_create(&stream, PS_CU_STREAM_NON_BLOCKING, 0), PS_CU_SUCCESS);
    assert_ok(ps_client_use_stream(client, stream));
    assert_int_equal(ps_client_use_stream(client, stream), PS_ESTATE);
}

static void end_stream(void)
{
    if (stream != NULL) assert_int_equal(over.driver->stream_destroy(stream), PS_CU_SUCCESS);
    stream = NULL;
}

static ps_status create(walk *w, const char *changes)
{
    static const ps_dtype given[] = {PS_DTYPE_F32, PS_DTYPE_BF16, PS_DTYPE_F16};
    char name[32];
    w->client = client_of_rank(changes, w->comm);
    for (int32_t t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof name, "t.%d", t);
        PS_TRY(add_matrix(w->client, name, w->has_matrices ? rows[t] : 0, sizes[t], given[t % 3],
                          t == FROZEN || t == FROZEN_FOR_EVER, t == UNMANAGED, &w->number[t]));
        assert_int_equal(w->number[t], t);
        w->order[t] = t;
    }
    use_stream(w->client);
    if (OVER_DISCRETE) PS_TRY(add_tensor(w->client, "gradients", LARGEST, PS_DTYPE_F32, 0, 1, &gradients_at));
    PS_TRY(ps_client_begin(w->client));
    for (int32_t t = 0; t < TENSORS; t++) {
        memset(&arrays[t], 0, sizeof arrays[t]);
        for (int64_t i = 0; i < sizes[t]; i++) {
            const float value = drawn((uint64_t)t, i);
            char rounded[4];
            ps_from_floats(given[t % 3], rounded, 0, 1, &value);
            ps_to_floats(given[t % 3], rounded, 0, 1, &arrays[t].w[i]);
        }
    }
    if (stream != NULL) assert_ptr_equal(ps_gpu_stream(w->client->tiers.compute[PS_TIER_DEVICE]), stream);
    w->dtype = info_of(w->client).dtype;
    return PS_OK;
}

/* All values of an f32 client are known to the bit between updates. */
static void look(walk *w, int32_t t, const ps_client_place *p)
{
    assert_int_equal(p->dtype, t == UNMANAGED ? PS_DTYPE_F32 : w->dtype);
    const int64_t bytes = sizes[t] * (int64_t)ps_dtype_bytes(p->dtype);
    get_bytes(w->client, p, 0, raw, bytes);
    see(w, raw, bytes);
    if (!w->is_plain) return;
    ps_to_floats(p->dtype, raw, 0, sizes[t], buffer);
    for (int64_t i = 0; i < sizes[t]; i++)
        if (buffer[i] != arrays[t].w[i])
            fail_msg("step %d, tensor %d, element %lld: %.9g, not %.9g", w->step, t, (long long)i, (double)buffer[i],
                     (double)arrays[t].w[i]);
}

static void begin_moment(walk *w, ps_client_phase phase, int32_t t)
{
    char label[32];
    snprintf(label, sizeof label, "operator %d of way %d", t, w->repeats ? w->step / SAME_WAY : 0);
    assert_ok(ps_client_moment(w->client, phase, label, 4096 * (t % 4)));
}

static void use(walk *w, ps_client_phase phase, int32_t t)
{
    begin_moment(w, phase, t);
    const ps_client_place p = pinned(w->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
    look(w, t, &p);
    if (roll(w, 5) == 0) { /* a pair */
        const int32_t other = w->order[roll(w, TENSORS)];
        const ps_client_place q = pinned(w->client, other, PS_CLIENT_PARAM, PS_CLIENT_READ);
        look(w, other, &q);
        ps_client_unpin(w->client, other, PS_CLIENT_PARAM);
    }
    look(w, t, &p);
    ps_client_unpin(w->client, t, PS_CLIENT_PARAM);
}

/* It follows from the parameter, so that a wrong one would show for ever. */
static void give(walk *w, int32_t t)
{
    if (t == UNUSED || t == FROZEN_FOR_EVER || (t == FROZEN && w->step < 8)) return;
    const ps_client_place p = pinned(w->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
    get_bytes(w->client, &p, 0, raw, sizes[t] * (int64_t)ps_dtype_bytes(p.dtype));
    ps_client_unpin(w->client, t, PS_CLIENT_PARAM);
    ps_to_floats(p.dtype, raw, 0, sizes[t], buffer);
    for (int32_t rank = 0; rank < w->n_ranks; rank++)
        for (int64_t i = 0; i < sizes[t]; i++) {
            const float value = buffer[i] / 4 + drawn((uint64_t)(1000 + w->step * 100 + t + 100000 * rank), i);
            if (rank == w->rank) gradient[i] = value;
            arrays[t].gradient[i] += (double)value / w->n_ranks;
        }
    arrays[t].has_gradient = true;
    give_gradient(w->client, t, gradient, sizes[t], roll(w, 4) == 0);
    assert_true(ps_client_has_gradient(w->client, t));
}

/* With several ranks it is somewhere, of one rank or all. */
static void look_at_gradient(walk *w, int32_t t)
{
    if (w->n_ranks > 1) return;
    if (!arrays[t].has_gradient) {
        ps_client_place p = {.struct_size = sizeof p};
        assert_int_equal(ps_client_pin(w->client, t, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &p), PS_ESTATE);
        return;
    }
    const ps_client_place p = pinned(w->client, t, PS_CLIENT_GRADIENT, PS_CLIENT_READ);
    get_bytes(w->client, &p, 0, raw, sizes[t] * (int64_t)ps_dtype_bytes(p.dtype));
    ps_to_floats(p.dtype, raw, 0, sizes[t], buffer);
    see(w, buffer, sizes[t] * 4);
    for (int64_t i = 0; w->is_plain && i < sizes[t]; i++)
        if (fabs((double)buffer[i] - arrays[t].gradient[i]) > 1e-6 * (1 + fabs(arrays[t].gradient[i])))
            fail_msg("gradient of tensor %d, element %lld: %.9g, not %.9g", t, (long long)i, (double)buffer[i],
                     arrays[t].gradient[i]);
    ps_client_unpin(w->client, t, PS_CLIENT_GRADIENT);
}

static void forget_gradients(void)
{
    for (int32_t t = 0; t < TENSORS; t++) {
        memset(arrays[t].gradient, 0, sizeof arrays[t].gradient);
        arrays[t].has_gradient = false;
    }
}

/* Kingma, Ba: "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1; with a count of steps for each. */
static void update_plainly(plain *a, int64_t n)
{
    const double b1 = 0.9, b2 = 0.999;
    if (!a->has_gradient) return;
    a->steps++;
    for (int64_t i = 0; i < n; i++) {
        const double g = (double)(float)a->gradient[i];
        a->m[i] = (float)(b1 * (double)a->m[i] + (1 - b1) * g);
        a->v[i] = (float)(b2 * (double)a->v[i] + (1 - b2) * g * g);
        const double m = (double)a->m[i] / (1 - pow(b1, a->steps)), v = (double)a->v[i] / (1 - pow(b2, a->steps));
        a->w[i] = (float)((double)a->w[i] - 0.01 * m / (sqrt(v) + 1e-8));
    }
}

/* The library rounds in another order, and has 1 - beta2 as a float (0.00100004673), so that exp_avg_sq is 5e-5 off and
 * an update 3e-5 of 0.1 at most; then the arrays continue with what it has, so that the next step is exact. */
static void compare(walk *w, int32_t t, const char *state, float *want, double tolerance)
{
    assert_ok(ps_client_read_state(w->client, t, state, 0, sizes[t], buffer));
    for (int64_t i = 0; i < sizes[t]; i++) {
        if (fabs((double)buffer[i] - (double)want[i]) > tolerance + 1e-6 * fabs((double)want[i]))
            fail_msg("step %d, %s of tensor %d, element %lld: %.9g, not %.9g", w->step, state == NULL ? "value" : state,
                     t, (long long)i, (double)buffer[i], (double)want[i]);
        want[i] = buffer[i];
    }
}

static void update(walk *w)
{
    for (int32_t t = 0; t < TENSORS; t++) update_plainly(&arrays[t], sizes[t]);
    const ps_client_step_info info = stepped(w->client);
    w->n_recorded += info.is_recorded;
    w->n_deferred += info.n_deferred;
    w->n_early += info.n_early;
    w->n_speculated += info.n_speculated;
    w->n_taken_back += info.n_taken_back;
    assert_int_equal(info.is_skipped, 0);
    see(w, &info.grad_norm, sizeof info.grad_norm);
    forget_gradients();
    for (int32_t t = 0; t < TENSORS; t++) {
        assert_int_equal(ps_client_get_update_count(w->client, t), arrays[t].steps);
        assert_false(ps_client_has_gradient(w->client, t));
        if (!w->is_plain) continue;
        compare(w, t, NULL, arrays[t].w, 3e-6);
        compare(w, t, "exp_avg", arrays[t].m, 1e-6);
        compare(w, t, "exp_avg_sq", arrays[t].v, 3e-6);
    }
}

/* What a program writes to a parameter, its fp32 value has too, and the other way round. */
static void write_somewhere(walk *w)
{
    const int32_t t = roll(w, TENSORS);
    const bool is_param = roll(w, 2) == 0 && t != UNMANAGED,
               has_no_whole = ps_settings_separates_gradients(&w->client->settings);
    const ps_client_what what = is_param || (has_no_whole && t != UNMANAGED) ? PS_CLIENT_PARAM : PS_CLIENT_MASTER;
    const int64_t at = roll(w, (int)sizes[t]);
    const float value = (float)(roll(w, 2001) - 1000) / 1024; /* exact in f32; rounded alike by both otherwise */
    if (what == PS_CLIENT_MASTER && (t == FROZEN_FOR_EVER || t == FROZEN || w->n_ranks > 1)) return;
    begin_moment(w, PS_CLIENT_OUTSIDE_STEP, t);
    const ps_client_place p = pinned(w->client, t, what, PS_CLIENT_WRITE);
    put_value(w->client, &p, at, value);
    ps_client_unpin(w->client, t, what);
    arrays[t].w[at] = value;
}

static void write_from_outside(walk *w)
{
    const int32_t t = roll(w, TENSORS);
    const int64_t first = roll(w, (int)sizes[t]), n = 1 + roll(w, (int)(sizes[t] - first));
    for (int64_t i = 0; i < n; i++) buffer[i] = drawn((uint64_t)(5000 + w->step), i);
    memcpy(arrays[t].w + first, buffer, (size_t)n * sizeof *buffer);
    assert_ok(ps_client_write_state(w->client, t, NULL, first, n, buffer));
}

static void backward(walk *w, bool is_last)
{
    if (w->repeats && is_last) assert_ok(ps_client_begin_last_backward(w->client));
    for (int i = TENSORS - 1; i >= 0; i--) {
        const int32_t t = w->order[i];
        if (roll(w, 12) == 0) continue; /* without part in this step */
        use(w, PS_CLIENT_BACKWARD, t);
        give(w, t);
        if ((!w->repeats || !is_last) && roll(w, 6) == 0) look_at_gradient(w, t);
        if (roll(w, 6) == 0)
            use(w, PS_CLIENT_BACKWARD, w->order[roll(w, TENSORS)]); /* read after its gradient, perhaps */
        if (roll(w, 6) == 0) give(w, w->order[roll(w, TENSORS)]);   /* used twice */
    }
}

static void drop_one(walk *w)
{
    const int32_t t = roll(w, TENSORS);
    assert_ok(ps_client_drop_gradients(w->client, t));
    assert_false(ps_client_has_gradient(w->client, t));
    memset(arrays[t].gradient, 0, sizeof arrays[t].gradient);
    arrays[t].has_gradient = false;
    if (roll(w, 2) == 0) use(w, PS_CLIENT_BACKWARD, t);
}

static void one_step(walk *w)
{
    if (w->repeats ? w->step % SAME_WAY == 0 : roll(w, 3) == 0) { /* another way */
        const int a = roll(w, TENSORS), b = roll(w, TENSORS);
        const int32_t t = w->order[a];
        w->order[a] = w->order[b];
        w->order[b] = t;
    }
    if (w->repeats) w->thrown = (uint64_t)(1 + w->step / SAME_WAY) << 20;
    for (int pass = 1 + roll(w, 2); pass > 0; pass--) {
        for (int i = 0; i < TENSORS; i++) use(w, PS_CLIENT_FORWARD, w->order[i]);
        backward(w, pass == 1);
    }
    if (!w->repeats && roll(w, 3) == 0) drop_one(w);
    if (!w->repeats && roll(w, 8) == 0) {
        assert_ok(ps_client_drop_gradients(w->client, -1));
        forget_gradients();
        return;
    }
    update(w);
    for (int i = roll(w, 3); i > 0; i--) use(w, PS_CLIENT_OUTSIDE_STEP, w->order[roll(w, TENSORS)]);
    if (roll(w, 3) == 0) write_somewhere(w);
    if (roll(w, 3) == 0) write_from_outside(w);
}

static void live(walk *w, const char *changes)
{
    assert_ok(create(w, changes));
    for (w->step = 0; w->step < STEPS; w->step++) {
        one_step(w);
        if (w->after_step != NULL) w->after_step(w);
    }
    for (int32_t t = 0; t < TENSORS; t++) {
        assert_ok(ps_client_read_state(w->client, t, NULL, 0, sizes[t], buffer));
        see(w, buffer, sizes[t] * 4);
        assert_int_equal(ps_client_get_pin_counts(w->client)[t], 0);
    }
    const ps_client_info info = info_of(w->client);
    for (int tier = 0; tier < 3; tier++) assert_true(info.peak_bytes[tier] <= info.budget_bytes[tier]);
    assert_true(w->n_recorded > 1);
    assert_int_equal(info.n_ranks, w->n_ranks);
    ps_client_destroy(w->client);
    end_stream();
}

/* ---- ranks ---- */

enum { RANKS_MAX = 3 };

typedef struct member {
    walk w;
    const char *changes;
} member;

static void *member_main(void *arg)
{
    member *m = arg;
    live(&m->w, m->changes);
    ps_comm_close(m->w.comm);
    return NULL;
}

/* first: what all ranks begin as, but for communicator and rank. Returns what they have seen. */
static uint64_t walked_by(int n, const char *changes, const walk *first)
{
    ps_comm *comms[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    static member m[RANKS_MAX];
    const ps_comm_options o = {.timeout_s = 60, .staging_bytes = 1 << 16};
    assert_ok(ps_comm_open_threads(&o, n, comms));
    for (int r = 0; r < n; r++) {
        m[r] = (member){.w = *first, .changes = changes};
        m[r].w.comm = comms[r];
        m[r].w.rank = r;
        m[r].w.n_ranks = n;
        assert_int_equal(pthread_create(&threads[r], NULL, member_main, &m[r]), 0);
    }
    for (int r = 0; r < n; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 1; r < n; r++)
        if (m[r].w.seen != m[0].w.seen)
            fail_msg("seed %d, %s: rank %d has seen other bits", (int)first->dice.seed, changes, r);
    expect_nothing_left();
    return m[0].w.seen;
}

/* In addition to what the library itself, and the tensor for gradients, take of a device that is apart. */
#define LITTLE (OVER_DISCRETE ? "memory.device=860KB " : "memory.device=180KB ")
#define THIRD "memory.host=100KB memory.disk=2MB"

#endif
