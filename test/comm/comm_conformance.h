/* comm_conformance.h - what every communicator must do, whatever its back end: run by each of its ranks, thread or
 * process.
 *
 * cmocka's checks are for one thread, so these count and print. */
#ifndef PS_TEST_COMM_CONFORMANCE_H
#define PS_TEST_COMM_CONFORMANCE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/rng.h"
#include "chunk/comm/comm_impl.h"
#include "device/device.h"

#define CHECK(rank, condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s (%s)\n", __FILE__, __LINE__, (int)(rank), #condition,                  \
                    ps_last_error());                                                                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { LAYOUT_MAX = 12 };

/* Parts' elements and owners, for p ranks. */
typedef struct layout {
    int32_t n_parts;
    int64_t n[LAYOUT_MAX];
    int32_t owner[LAYOUT_MAX];
} layout;

enum { N_LAYOUTS = 7 };

static layout layout_make(int32_t i, int32_t p)
{
    layout l = {0};
    static const int64_t odd[LAYOUT_MAX] = {1001, 3, 0, 257, 4096, 1, 0, 77, 2048, 31, 5, 999};
    switch (i) {
    case 0: l.n_parts = 0; break;
    case 1: l.n_parts = 1; break; /* fewer parts than ranks: a broadcast, a reduction */
    case 2: l.n_parts = p; break;
    case 3: l.n_parts = LAYOUT_MAX; break; /* more than ranks */
    case 4: l.n_parts = p - 1; break;
    case 5: l.n_parts = 2; break; /* both of one rank */
    default: l.n_parts = p; break;
    }
    for (int32_t k = 0; k < l.n_parts; k++) {
        l.n[k] = i == 6 ? 5000 : odd[(k + i) % LAYOUT_MAX];
        l.owner[k] = i == 1 || i == 5 ? p - 1 : (k * 5 + i) % p;
    }
    return l;
}

/* Any bits: subnormals, infinities and NaN among them; half of the fp32 values near each other, so that sums round. */
static void payload_fill(ps_dtype dtype, void *payload, int64_t n, int32_t rank, int64_t seed)
{
    const ps_rng_key key = {.seed = (uint64_t)seed, .stream = (uint64_t)rank};
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = ps_rng_u32(key, (uint64_t)i);
        if (dtype != PS_DTYPE_F32) {
            /* mostly of equal size, sometimes anything */
            uint16_t h = (uint16_t)bits;
            if (bits >> 28 != 0) h = (uint16_t)((h & 0x83ffu) | (dtype == PS_DTYPE_BF16 ? 0x3f80u : 0x3c00u));
            memcpy((char *)payload + 2 * i, &h, sizeof h);
            continue;
        }
        if (bits >> 28 != 0) bits = (bits & 0x80ffffffu) | 0x3f000000u;
        memcpy((char *)payload + 4 * i, &bits, sizeof bits);
    }
}

static bool is_nan(float x)
{
    return x != x;
}

/* Bit for bit; NaN is NaN. */
static bool element_equal(ps_dtype dtype, const void *a, const void *b, int64_t i)
{
    const int64_t bytes = (int64_t)ps_dtype_bytes(dtype);
    if (memcmp((const char *)a + i * bytes, (const char *)b + i * bytes, (size_t)bytes) == 0) return true;
    return is_nan(ps_dtype_load(dtype, a, i)) && is_nan(ps_dtype_load(dtype, b, i));
}

static void sum_reference(ps_dtype dtype, void *out, int64_t n, int32_t p, int64_t seed)
{
    void *values = malloc((size_t)n * 4 + 1);
    float *sum = malloc((size_t)n * sizeof *sum + 1);
    for (int32_t r = 0; r < p; r++) {
        payload_fill(dtype, values, n, r, seed);
        for (int64_t i = 0; i < n; i++)
            sum[i] = r == 0 ? ps_dtype_load(dtype, values, i) : sum[i] + ps_dtype_load(dtype, values, i);
    }
    for (int64_t i = 0; i < n; i++) ps_dtype_store(dtype, out, i, sum[i]);
    free(sum);
    free(values);
}

typedef struct payloads {
    ps_comm_part part[LAYOUT_MAX];
    int32_t n;
} payloads;

/* With a byte after each that must stay. */
static payloads payloads_new(const layout *l, ps_dtype dtype)
{
    payloads x = {.n = l->n_parts};
    for (int32_t k = 0; k < l->n_parts; k++) {
        const size_t bytes = (size_t)l->n[k] * ps_dtype_bytes(dtype);
        char *payload = malloc(bytes + 1);
        memset(payload, 0x55, bytes + 1);
        x.part[k] = (ps_comm_part){.payload = payload, .n = l->n[k], .owner = l->owner[k]};
    }
    return x;
}

static bool payloads_free(payloads *x, ps_dtype dtype)
{
    bool is_intact = true;
    for (int32_t k = 0; k < x->n; k++) {
        is_intact = is_intact && ((char *)x->part[k].payload)[(size_t)x->part[k].n * ps_dtype_bytes(dtype)] == 0x55;
        free(x->part[k].payload);
    }
    return is_intact;
}

/* Which changes nothing unless the communicator has been given a device. */
static ps_transfer transfer_of(const payloads *x, ps_dtype dtype, const char *what)
{
    return (ps_transfer){.parts = x->part, .n_parts = x->n, .dtype = dtype, .on_device = true, .what = what};
}

/* Are chunks sent by messages or not at all, so that what is sent is counted? */
static bool counts(const ps_comm *c)
{
    return c->chunks == &c->own;
}

static int64_t bytes_of_owner(const layout *l, ps_dtype dtype, int32_t owner) /* -1: of all */
{
    int64_t n = 0;
    for (int32_t k = 0; k < l->n_parts; k++) n += owner < 0 || l->owner[k] == owner ? l->n[k] : 0;
    return n * (int64_t)ps_dtype_bytes(dtype);
}

static void gather_fill(payloads *x, ps_dtype dtype, int32_t rank, int64_t seed)
{
    for (int32_t k = 0; k < x->n; k++)
        if (x->part[k].owner == rank) payload_fill(dtype, x->part[k].payload, x->part[k].n, rank, seed + k);
}

static bool gather_is_right(const payloads *x, ps_dtype dtype, int64_t seed)
{
    bool is_right = true;
    for (int32_t k = 0; k < x->n; k++) {
        const size_t bytes = (size_t)x->part[k].n * ps_dtype_bytes(dtype);
        void *want = malloc(bytes + 1);
        payload_fill(dtype, want, x->part[k].n, x->part[k].owner, seed + k);
        is_right = is_right && memcmp(want, x->part[k].payload, bytes) == 0;
        free(want);
    }
    return is_right;
}

static void reduce_fill(payloads *x, ps_dtype dtype, int32_t rank, int64_t seed)
{
    for (int32_t k = 0; k < x->n; k++) payload_fill(dtype, x->part[k].payload, x->part[k].n, rank, seed + k);
}

static bool reduce_is_right(const payloads *x, ps_dtype dtype, int32_t rank, int32_t p, int64_t seed)
{
    bool is_right = true;
    for (int32_t k = 0; k < x->n; k++) {
        const ps_comm_part *part = &x->part[k];
        if (part->owner != rank) continue;
        void *want = malloc((size_t)part->n * 4 + 1);
        sum_reference(dtype, want, part->n, p, seed + k);
        for (int64_t i = 0; i < part->n; i++) is_right = is_right && element_equal(dtype, want, part->payload, i);
        free(want);
    }
    return is_right;
}

static int check_gather(ps_comm *c, const layout *l, ps_dtype dtype, int64_t seed)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const ps_comm_stats before = ps_comm_get_stats(c);
    payloads x = payloads_new(l, dtype);
    const ps_transfer t = transfer_of(&x, dtype, "a test");
    ps_event done;
    gather_fill(&x, dtype, rank, seed);
    CHECK(rank, ps_collectives_gather(ps_comm_collectives(c), &t, &done) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_OK && ps_event_is_done(done));
    CHECK(rank, gather_is_right(&x, dtype, seed));
    CHECK(rank, payloads_free(&x, dtype));
    if (!counts(c)) return 0;
    const ps_comm_stats after = ps_comm_get_stats(c);
    CHECK(rank, after.n_transfers == before.n_transfers + 1);
    const int64_t all_bytes = bytes_of_owner(l, dtype, -1), own_bytes = bytes_of_owner(l, dtype, rank);
    int64_t want = (p - 1) * own_bytes;
    for (int32_t r = 0; r < p; r++) /* of one owner: each rank but the one before it passes on */
        if (all_bytes > 0 && bytes_of_owner(l, dtype, r) == all_bytes) want = (rank + 1) % p != r ? all_bytes : 0;
    CHECK(rank, after.sent_bytes - before.sent_bytes == want);
    return 0;
}

static int check_reduce(ps_comm *c, const layout *l, ps_dtype dtype, int64_t seed)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const ps_comm_stats before = ps_comm_get_stats(c);
    payloads x = payloads_new(l, dtype);
    const ps_transfer t = transfer_of(&x, dtype, "a test");
    ps_event done;
    reduce_fill(&x, dtype, rank, seed);
    CHECK(rank, ps_collectives_reduce(ps_comm_collectives(c), &t, &done) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_OK && ps_event_is_done(done));
    CHECK(rank, reduce_is_right(&x, dtype, rank, p, seed));
    CHECK(rank, payloads_free(&x, dtype));
    if (!counts(c)) return 0;
    const ps_comm_stats after = ps_comm_get_stats(c);
    CHECK(rank, after.sent_bytes - before.sent_bytes == bytes_of_owner(l, dtype, -1) - bytes_of_owner(l, dtype, rank));
    return 0;
}

static int check_all_reduce(ps_comm *c, const layout *l, ps_dtype dtype, int64_t seed)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    payloads x = payloads_new(l, dtype);
    const ps_transfer t = transfer_of(&x, dtype, "a test");
    ps_event done;
    reduce_fill(&x, dtype, rank, seed);
    CHECK(rank, ps_collectives_all_reduce(ps_comm_collectives(c), &t, &done) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_OK && ps_event_is_done(done));
    for (int32_t r = 0; r < p; r++) CHECK(rank, reduce_is_right(&x, dtype, r, p, seed));
    CHECK(rank, payloads_free(&x, dtype));
    return 0;
}

/* ---- events ---- */

typedef struct late_fill {
    payloads *x;
    int32_t rank;
    int64_t seed;
    int after_us;
    ps_status st;
} late_fill;

static ps_status late_fill_run(void *self, const void *args)
{
    const late_fill *f = args;
    (void)self;
    usleep((unsigned)f->after_us);
    if (f->st != PS_OK) return PS_FAIL(f->st, "the device is lost");
    reduce_fill(f->x, PS_DTYPE_BF16, f->rank, f->seed);
    return PS_OK;
}

typedef struct late_copy {
    const payloads *x;
    void *to;
} late_copy;

static ps_status late_copy_run(void *self, const void *args)
{
    const late_copy *f = args;
    (void)self;
    memcpy(f->to, f->x->part[0].payload, (size_t)f->x->part[0].n * 2);
    return PS_OK;
}

static ps_status queue_late(ps_queue *q, ps_status (*run)(void *, const void *), const void *args, size_t args_bytes)
{
    return ps_queue_call(q, &(ps_call){.name = "late", .run = run, .args = args, .args_bytes = args_bytes});
}

/* Sums of what devices have written late, on two queues, each rank at another time; and a queue that reads them. */
static int check_events(ps_comm *c, ps_queue *before[2], ps_queue *dependents)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const layout l = layout_make(6, p);
    payloads x[2] = {payloads_new(&l, PS_DTYPE_BF16), payloads_new(&l, PS_DTYPE_BF16)}, nothing = {.n = 0};
    uint16_t copy[2][5000];
    ps_event done[2];
    CHECK(rank, l.n[0] == 5000);
    for (int i = 0; i < 2; i++) {
        const late_fill fill = {.x = &x[i], .rank = rank, .seed = 40 + 10 * i, .after_us = 3000 * (p - rank)};
        ps_transfer t = transfer_of(&x[i], PS_DTYPE_BF16, "late payloads");
        ps_events after = {.n = 0};
        CHECK(rank, queue_late(before[1 - i], late_fill_run, &(late_fill){.x = &nothing}, sizeof fill) == PS_OK);
        ps_events_add(&after, ps_queue_event(before[1 - i]));
        CHECK(rank, queue_late(before[i], late_fill_run, &fill, sizeof fill) == PS_OK);
        ps_events_add(&after, ps_queue_event(before[i]));
        t.after = &after;
        CHECK(rank, ps_collectives_all_reduce(ps_comm_collectives(c), &t, &done[i]) == PS_OK);
        CHECK(rank, ps_queue_wait(dependents, done[i]) == PS_OK);
        CHECK(rank, queue_late(dependents, late_copy_run, &(late_copy){&x[i], copy[i]}, sizeof(late_copy)) == PS_OK);
    }
    CHECK(rank, ps_event_wait(ps_queue_event(dependents)) == PS_OK && ps_event_is_done(done[1]));
    for (int i = 0; i < 2; i++) {
        CHECK(rank, memcmp(copy[i], x[i].part[0].payload, sizeof copy[i]) == 0);
        for (int32_t r = 0; r < p; r++) CHECK(rank, reduce_is_right(&x[i], PS_DTYPE_BF16, r, p, 40 + 10 * i));
        CHECK(rank, payloads_free(&x[i], PS_DTYPE_BF16));
    }
    return 0;
}

/* Queues with a thread each: RAM's queues of copies. */
static int with_queues(ps_comm *c, int (*run)(ps_comm *c, ps_queue *before[2], ps_queue *dependents))
{
    ps_device *ram = NULL;
    ps_queue *q[3] = {NULL};
    CHECK(ps_comm_rank(c), ps_device_create(&ps_device_cpu_ops, "device", 0, &ram) == PS_OK);
    for (int i = 0; i < 3; i++) CHECK(ps_comm_rank(c), ps_queue_create(ram, "late", PS_QUEUE_COPY, &q[i]) == PS_OK);
    const int rc = run(c, q, q[2]);
    for (int i = 2; i >= 0; i--) ps_queue_destroy(q[i]);
    ps_device_destroy(ram);
    return rc;
}

/* Gathers and reductions of several layouts, all begun before any is waited for. */
static int check_many(ps_comm *c)
{
    enum { MANY = 24 };
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    payloads x[MANY];
    ps_event done[MANY];
    for (int32_t i = 0; i < MANY; i++) {
        const layout l = layout_make(i % N_LAYOUTS, p);
        const ps_dtype dtype = (ps_dtype)(i % PS_DTYPE_COUNT);
        x[i] = payloads_new(&l, dtype);
        if (i % 2 == 0) {
            gather_fill(&x[i], dtype, rank, 100 * i);
            const ps_transfer t = transfer_of(&x[i], dtype, "many");
            CHECK(rank, ps_collectives_gather(ps_comm_collectives(c), &t, &done[i]) == PS_OK);
        } else {
            reduce_fill(&x[i], dtype, rank, 100 * i);
            const ps_transfer t = transfer_of(&x[i], dtype, "many");
            CHECK(rank, ps_collectives_reduce(ps_comm_collectives(c), &t, &done[i]) == PS_OK);
        }
        CHECK(rank, p == 1 || done[i].ticket > 0);
    }
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done[MANY - 1]) == PS_OK);
    for (int32_t i = 0; i < MANY; i++) {
        const ps_dtype dtype = (ps_dtype)(i % PS_DTYPE_COUNT);
        CHECK(rank, ps_event_is_done(done[i]));
        CHECK(rank,
              i % 2 == 0 ? gather_is_right(&x[i], dtype, 100 * i) : reduce_is_right(&x[i], dtype, rank, p, 100 * i));
        CHECK(rank, payloads_free(&x[i], dtype));
    }
    return 0;
}

/* ---- conditions ---- */

enum { N_ROUNDS = 9, VOTES_MAX = 8 };

/* What each rank says of a transfer, which messages bring. */
typedef struct votes {
    int32_t n;
    char all[VOTES_MAX];
} votes;

static bool no_rank_refuses(const void *arg)
{
    const votes *v = arg;
    for (int32_t r = 0; r < v->n; r++)
        if (v->all[r] != 0) return false;
    return true;
}

/* No rank refuses the transfer of this number, or the last one does, or all. */
static bool refuses(int i, int32_t rank, int32_t p)
{
    return i % 3 == 2 || (i % 3 == 1 && rank == p - 1);
}

/* Begins with the messages; before they are here the votes say the opposite of what they will. */
static ps_status begin_votes(ps_comm *c, int i, votes *v, ps_transfer_condition *out)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    v->n = p;
    memset(v->all, i % 3 == 0, sizeof v->all);
    v->all[rank] = refuses(i, rank, p);
    *out = (ps_transfer_condition){.holds = no_rank_refuses, .arg = v};
    return p > 1 ? ps_comm_begin_all_gather(c, v->all, 1, &out->known) : PS_OK;
}

static bool is_untouched(const payloads *x, ps_dtype dtype, int32_t rank, int64_t seed)
{
    bool is_same = true;
    for (int32_t k = 0; k < x->n; k++) {
        const size_t bytes = (size_t)x->part[k].n * ps_dtype_bytes(dtype);
        void *want = malloc(bytes + 1);
        payload_fill(dtype, want, x->part[k].n, rank, seed + k);
        is_same = is_same && memcmp(want, x->part[k].payload, bytes) == 0;
        free(want);
    }
    return is_same;
}

static ps_status begin_by_number(ps_comm *c, int i, const ps_transfer *t, ps_event *done)
{
    ps_collectives *x = ps_comm_collectives(c);
    return i / 3 == 0   ? ps_collectives_gather(x, t, done)
           : i / 3 == 1 ? ps_collectives_reduce(x, t, done)
                        : ps_collectives_all_reduce(x, t, done);
}

/* Transfers that are made if no rank refuses, and such as always are between them; all begun before any is waited for.
 * A rank that refuses has no part in its transfer. */
static int check_conditions(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const layout l = layout_make(6, p);
    const ps_dtype dtype = PS_DTYPE_BF16;
    const int64_t n_before = ps_comm_get_stats(c).n_transfers;
    votes v[N_ROUNDS];
    payloads x[N_ROUNDS], always[N_ROUNDS];
    ps_event done[N_ROUNDS], last;
    for (int i = 0; i < N_ROUNDS; i++) {
        ps_transfer_condition condition;
        x[i] = payloads_new(&l, dtype);
        always[i] = payloads_new(&l, dtype);
        reduce_fill(&x[i], dtype, rank, 100 * i);
        gather_fill(&always[i], dtype, rank, 100 * i + 50);
        ps_transfer t = transfer_of(&always[i], dtype, "in any case");
        CHECK(rank, ps_collectives_gather(ps_comm_collectives(c), &t, &last) == PS_OK);
        CHECK(rank, begin_votes(c, i, &v[i], &condition) == PS_OK);
        t = transfer_of(&x[i], dtype, "if no rank refuses");
        t.only_if = &condition;
        if (refuses(i, rank, p)) t.n_parts = 0;
        CHECK(rank, begin_by_number(c, i, &t, &done[i]) == PS_OK);
    }
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done[N_ROUNDS - 1]) == PS_OK);
    for (int i = 0; i < N_ROUNDS; i++) {
        const bool is_made = i % 3 == 0;
        CHECK(rank, ps_event_is_done(done[i]) && ps_event_wait(done[i]) == PS_OK);
        CHECK(rank, is_made || is_untouched(&x[i], dtype, rank, 100 * i));
        CHECK(rank, !is_made || i / 3 > 0 || gather_is_right(&x[i], dtype, 100 * i));
        CHECK(rank, !is_made || i / 3 == 0 || reduce_is_right(&x[i], dtype, rank, p, 100 * i));
        CHECK(rank, gather_is_right(&always[i], dtype, 100 * i + 50));
        CHECK(rank, payloads_free(&x[i], dtype) && payloads_free(&always[i], dtype));
    }
    /* an all-reduce is two */
    if (p > 1 && counts(c)) CHECK(rank, ps_comm_get_stats(c).n_transfers == n_before + N_ROUNDS + 4);
    return 0;
}

/* A sum that depends on its order. */
static double order_value(int32_t rank)
{
    static const double v[] = {1.0, 1e16, 1.0, -1e16};
    return v[rank % 4] + (rank >= 4 ? 1 : 0);
}

static int check_small(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const int64_t sent_bytes = ps_comm_get_stats(c).sent_bytes, n_transfers = ps_comm_get_stats(c).n_transfers;
    double v[3] = {order_value(rank), rank, 1}, want = order_value(0);
    for (int32_t r = 1; r < p; r++) want += order_value(r);
    CHECK(rank, ps_comm_all_reduce(c, v, 3, PS_COMM_SUM) == PS_OK);
    CHECK(rank, v[0] == want && v[1] == p * (p - 1) / 2 && v[2] == p);
    v[0] = 10 - rank;
    CHECK(rank, ps_comm_all_reduce(c, v, 1, PS_COMM_MIN) == PS_OK && v[0] == 10 - (p - 1));
    v[0] = -rank;
    CHECK(rank, ps_comm_all_reduce(c, v, 1, PS_COMM_MAX) == PS_OK && v[0] == 0);
    v[0] = rank == p - 1 ? __builtin_nan("") : 1;
    CHECK(rank, ps_comm_all_reduce(c, v, 1, PS_COMM_MAX) == PS_OK && v[0] != v[0]);
    CHECK(rank, ps_comm_all_reduce(c, v, 0, PS_COMM_SUM) == PS_OK);
    char mine[13], *all = calloc((size_t)p, sizeof mine);
    memset(mine, 'a' + rank, sizeof mine);
    CHECK(rank, ps_comm_all_gather(c, mine, sizeof mine, all) == PS_OK);
    for (int32_t i = 0; i < p * (int32_t)sizeof mine; i++) CHECK(rank, all[i] == 'a' + i / (int32_t)sizeof mine);
    CHECK(rank, ps_comm_all_gather(c, mine, 0, all) == PS_OK);
    free(all);
    for (int32_t root = 0; root < p; root++) {
        char data[1000];
        memset(data, rank == root ? 'x' : '-', sizeof data);
        CHECK(rank, ps_comm_broadcast(c, data, sizeof data, root) == PS_OK);
        for (size_t i = 0; i < sizeof data; i++) CHECK(rank, data[i] == 'x');
        CHECK(rank, ps_comm_broadcast(c, data, 0, root) == PS_OK);
    }
    for (int i = 0; i < 10; i++) CHECK(rank, ps_comm_barrier(c) == PS_OK);
    CHECK(rank, ps_comm_get_stats(c).sent_bytes == sent_bytes && ps_comm_get_stats(c).n_transfers == n_transfers);
    return 0;
}

/* The same wrong arguments on all ranks: each gets an error, none waits, and the communicator stays usable. */
static int check_refusals(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    double v[1] = {1};
    char mine[1] = "", *all = calloc((size_t)p, 1);
    for (int i = 0; i < 2; i++) {
        CHECK(rank, ps_comm_broadcast(c, mine, 1, i == 0 ? p : -1) == PS_EINVAL);
        CHECK(rank, strstr(ps_last_error(), "ps_comm_broadcast: root ") != NULL);
    }
    CHECK(rank, ps_comm_broadcast(c, mine, -1, 0) == PS_EINVAL);
    CHECK(rank, ps_comm_all_gather(c, mine, -1, all) == PS_EINVAL);
    CHECK(rank, strstr(ps_last_error(), "bytes -1, expected 0 to ") != NULL);
    CHECK(rank, ps_comm_all_reduce(c, v, -1, PS_COMM_SUM) == PS_EINVAL);
    CHECK(rank, ps_comm_all_reduce(c, v, INT64_MAX / 8 + 1, PS_COMM_SUM) == PS_EINVAL);
    CHECK(rank, ps_comm_all_reduce(c, v, 1, (ps_comm_op)3) == PS_EINVAL);
    CHECK(rank, strcmp(ps_comm_host(c, p), "unknown host") == 0 && strcmp(ps_comm_host(c, -1), "unknown host") == 0);
    CHECK(rank, ps_comm_failed_rank(c) == -1 && ps_comm_barrier(c) == PS_OK);
    free(all);
    return 0;
}

static int check_identity(ps_comm *c, int32_t p, const char *describe)
{
    const int32_t rank = ps_comm_rank(c);
    CHECK(rank, ps_comm_size(c) == p && rank >= 0 && rank < p);
    CHECK(rank, ps_comm_local_size(c) == p && ps_comm_local_rank(c) == rank); /* all run on one machine here */
    for (int32_t r = 0; r < p; r++) CHECK(rank, strcmp(ps_comm_host(c, r), ps_comm_host(c, rank)) == 0);
    CHECK(rank, strncmp(ps_comm_describe(c), describe, strlen(describe)) == 0);
    CHECK(rank, ps_comm_failed_rank(c) == -1);
    return 0;
}

/* The number of failed checks, 0 or 1: the first ends it. */
static inline int conformance_run(ps_comm *c, int32_t p, const char *describe)
{
    static const int64_t message_bytes[] = {PS_COMM_MESSAGE_BYTES, 1000, 90};
    if (check_identity(c, p, describe) != 0) return 1;
    for (size_t m = 0; m < PS_ARRAY_LEN(message_bytes); m++) {
        ps_comm_set_message_bytes(c, message_bytes[m]);
        for (int32_t i = 0; i < N_LAYOUTS; i++) {
            const layout l = layout_make(i, p);
            for (int d = 0; d < PS_DTYPE_COUNT; d++)
                if (check_gather(c, &l, (ps_dtype)d, 10 + i) != 0 || check_reduce(c, &l, (ps_dtype)d, 20 + i) != 0 ||
                    check_all_reduce(c, &l, (ps_dtype)d, 30 + i) != 0)
                    return 1;
        }
    }
    ps_comm_set_message_bytes(c, PS_COMM_MESSAGE_BYTES);
    return check_many(c) != 0 || check_conditions(c) != 0 || with_queues(c, check_events) != 0 || check_small(c) != 0 ||
           check_refusals(c) != 0;
}

#endif
