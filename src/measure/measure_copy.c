/* measure_copy.c - rates of copies and of the disk tier: alone, both ways at once, and while all cores compute. */
#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "device/disk_folders.h"
#include "measure/measure_impl.h"

#define BLOCK_BYTES (8 * PS_MIB)
#define BUSY_BYTES (2 * PS_MIB) /* a copy while computing: many fit into a product */
/* As a chunk of a small model, in memory of its own: partly huge pages, partly small ones, which a disk is slower
 * with. */
#define PAYLOAD_BYTES (3 * PS_MIB)

enum {
    N_BLOCKS = 16,    /* in a pass */
    N_BUSY = 32,      /* copies under way while computing */
    N_PAYLOADS = 16,  /* of the disk, each way */
    N_IN_FLIGHT = 4,  /* of the disk, as many as prefetching usually has */
    QUEUE_DEPTH = 32, /* requests of the disk, as memory.queue_depth */
    ROWS = 256,
    C = 768 /* of the product that computes meanwhile */
};

/* Both ways at once take the longer of the two times when nothing is shared, their sum when they take turns. */
static bool is_full_duplex(double both, double a, double b)
{
    const double longer = a > b ? a : b;
    return both < 0.5 * (longer + a + b);
}

/* What a way that moves `bytes` alone in alone_s moves while both ways take both_s for as much each. */
static double rate_at_once(double bytes, double both_s, double alone_s)
{
    return ps_measured(bytes / (both_s > alone_s ? both_s : alone_s));
}

static double between_0_and_1(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* ---- a way to move bytes: a queue, or the disk ------------------------------------------------------------------- */

typedef struct mover {
    ps_queue *queue; /* NULL: the disk */
    ps_disk *disk;
    int n; /* transfers under way at once */
    int64_t bytes;
    char *src[N_BUSY], *dst[N_BUSY];
    ps_event done[N_BUSY];
} mover;

/* Begin transfer i; a disk writes even ones and reads odd ones. */
static ps_status begin_transfer(mover *v, int i)
{
    if (v->queue != NULL) {
        PS_TRY(ps_queue_copy(v->queue, v->dst[i], v->src[i], v->bytes));
        v->done[i] = ps_queue_event(v->queue);
        return PS_OK;
    }
    if (i % 2 == 0) return ps_disk_write(v->disk, i * v->bytes, v->src[i], v->bytes, NULL, &v->done[i]);
    return ps_disk_read(v->disk, i * v->bytes, v->dst[i], v->bytes, NULL, &v->done[i]);
}

/* ---- computing meanwhile ----------------------------------------------------------------------------------------- */

typedef struct product {
    ps_linear_fwd_args args;
    size_t workspace_bytes;
} product;

static ps_status prepare_product(ps_measuring *m, product *p)
{
    ps_linear_fwd_args *const a = &p->args;
    void *x, *w;
    *a = (ps_linear_fwd_args){.rows = ROWS,
                              .n_in = C,
                              .n_out = C,
                              .layout = PS_WEIGHT_IN_OUT,
                              .dtype = PS_DTYPE_F32,
                              .y_dtype = PS_DTYPE_F32};
    PS_TRY(ps_measuring_take(m, ROWS * C * 4, &a->y));
    PS_TRY(ps_measuring_take(m, ROWS * C * 4, &x));
    PS_TRY(ps_measuring_take(m, C * C * 4, &w));
    PS_TRY(ps_kernel_measure(m->backend, PS_OP_linear_fwd, a, &p->workspace_bytes));
    PS_TRY(ps_measuring_take(m, ps_max_i64(64, (int64_t)p->workspace_bytes), &a->workspace));
    a->x = x, a->w = w;
    return ps_run_linear_fwd(m->backend, NULL, a, p->workspace_bytes);
}

/* Products one after another for `seconds`; with a mover (may be NULL), transfers go on all the while. *product_s: time
 * of one product; *elapsed_s: of all; *n_moved: transfers that were completed. */
static ps_status compute(ps_measuring *m, const product *p, mover *v, double seconds, double *product_s,
                         double *elapsed_s, int64_t *n_moved)
{
    int64_t n_products = 0;
    *n_moved = 0;
    for (int i = 0; v != NULL && i < v->n; i++) PS_TRY(begin_transfer(v, i));
    const int64_t begin = ps_clock_ns();
    do {
        PS_TRY(ps_run_linear_fwd(m->backend, NULL, &p->args, p->workspace_bytes));
        n_products++;
        for (int i = 0; v != NULL && i < v->n; i++) {
            if (!ps_event_is_done(v->done[i])) continue;
            PS_TRY(ps_event_wait(v->done[i]));
            PS_TRY(begin_transfer(v, i));
            (*n_moved)++;
        }
        *elapsed_s = ps_seconds_since(begin);
    } while (*elapsed_s < seconds);
    *product_s = *elapsed_s / (double)n_products;
    for (int i = 0; v != NULL && i < v->n; i++) PS_TRY(ps_event_wait(v->done[i]));
    return PS_OK;
}

/* Seconds of computing lost for each second that the transfers would have taken alone. transfer_s: of one transfer
 * alone. */
static ps_status measure_interference(ps_measuring *m, mover *v, double transfer_s, const char *name, double *out)
{
    enum { N_ROUNDS = 9 };
    product p;
    ps_samples s;
    PS_TRY(prepare_product(m, &p));
    ps_samples_begin(m, 0, &s);
    for (int i = 0; i < N_ROUNDS; i++) {
        double alone_s, busy_s, elapsed_s;
        int64_t n_moved;
        PS_TRY(compute(m, &p, NULL, m->slice_s / N_ROUNDS, &alone_s, &elapsed_s, &n_moved));
        PS_TRY(compute(m, &p, v, 2 * m->slice_s / N_ROUNDS, &busy_s, &elapsed_s, &n_moved));
        const double lost_s = elapsed_s * (1 - alone_s / busy_s);
        /* where none was completed, one was under way all the while */
        const double moving_s = n_moved > 0 ? (double)n_moved * transfer_s : elapsed_s;
        ps_samples_add(&s, between_0_and_1(lost_s / moving_s));
    }
    *out = ps_measured(ps_measuring_report(m, &s, "", "%s: computing lost for a second of it", name));
    return PS_OK;
}

/* ---- link -------------------------------------------------------------------------------------------------------- */

typedef struct link {
    ps_device *device; /* whose queues they are */
    ps_queue *to_device, *to_host;
    char *host, *dev; /* [2 N_BLOCKS BLOCK_BYTES]: one half for each way */
} link;

/* A pass over the blocks, one way or both at once. */
static ps_status copy_pass(const link *l, bool to_device, bool to_host, double *seconds)
{
    char *const up_src = l->dev + N_BLOCKS * BLOCK_BYTES, *const up_dst = l->host + N_BLOCKS * BLOCK_BYTES;
    const int64_t begin = ps_clock_ns();
    for (int64_t at = 0; at < N_BLOCKS * BLOCK_BYTES; at += BLOCK_BYTES) {
        if (to_device) PS_TRY(ps_queue_copy(l->to_device, l->dev + at, l->host + at, BLOCK_BYTES));
        if (to_host) PS_TRY(ps_queue_copy(l->to_host, up_dst + at, up_src + at, BLOCK_BYTES));
    }
    PS_TRY(ps_event_wait(ps_queue_event(l->to_device)));
    PS_TRY(ps_event_wait(ps_queue_event(l->to_host)));
    *seconds = ps_seconds_since(begin);
    return PS_OK;
}

/* Median seconds of a pass. */
static ps_status measure_pass(ps_measuring *m, const link *l, bool to_device, bool to_host, double *out)
{
    const double gb = (double)(N_BLOCKS * BLOCK_BYTES) * (to_device && to_host ? 2e-9 : 1e-9);
    ps_samples s;
    ps_samples_begin(m, 1, &s);
    while (ps_samples_want(&s)) {
        double seconds;
        PS_TRY(copy_pass(l, to_device, to_host, &seconds));
        ps_samples_add(&s, gb / seconds);
    }
    *out = gb / ps_measuring_report(m, &s, "GB/s", "copy: %s",
                                    !to_host     ? "host to device"
                                    : !to_device ? "device to host"
                                                 : "both ways at once");
    return PS_OK;
}

static ps_status measure_copy_latency(ps_measuring *m, const link *l, double *seconds)
{
    ps_samples s;
    ps_samples_begin(m, 0.2, &s);
    while (ps_samples_want(&s)) {
        const int64_t begin = ps_clock_ns();
        PS_TRY(ps_queue_copy(l->to_device, l->dev, l->host, PS_PAGE_BYTES));
        PS_TRY(ps_event_wait(ps_queue_event(l->to_device)));
        ps_samples_add(&s, ps_seconds_since(begin) * 1e6);
    }
    *seconds = 1e-6 * ps_measuring_report(m, &s, "us", "copy: one page, and waiting for it");
    return PS_OK;
}

static ps_status measure_queues(ps_measuring *m, link *l)
{
    ps_hardware_link *out = &m->report->hardware.link;
    double down, up, both, latency;
    PS_TRY(ps_measuring_take(m, 2 * N_BLOCKS * BLOCK_BYTES, &l->host));
    PS_TRY(ps_measuring_take(m, 2 * N_BLOCKS * BLOCK_BYTES, &l->dev));
    PS_TRY(measure_pass(m, l, true, false, &down));
    PS_TRY(measure_pass(m, l, false, true, &up));
    PS_TRY(measure_pass(m, l, true, true, &both));
    PS_TRY(measure_copy_latency(m, l, &latency));
    out->to_device_bytes_per_s = ps_measured((double)(N_BLOCKS * BLOCK_BYTES) / down);
    out->to_host_bytes_per_s = ps_measured((double)(N_BLOCKS * BLOCK_BYTES) / up);
    out->latency_ns = (int64_t)(latency * 1e9);
    out->full_duplex = is_full_duplex(both, down, up);
    out->to_device_both_ways_bytes_per_s = rate_at_once((double)(N_BLOCKS * BLOCK_BYTES), both, down);
    out->to_host_both_ways_bytes_per_s = rate_at_once((double)(N_BLOCKS * BLOCK_BYTES), both, up);
    out->shared_by = 1;
    mover v = {.queue = l->to_device, .n = N_BUSY, .bytes = BUSY_BYTES};
    for (int i = 0; i < N_BUSY; i++) v.src[i] = l->host + i * BUSY_BYTES, v.dst[i] = l->dev + i * BUSY_BYTES;
    return measure_interference(m, &v, down * (double)BUSY_BYTES / (double)(N_BLOCKS * BLOCK_BYTES), "copy",
                                &out->compute_interference);
}

ps_status ps_measure_link(ps_measuring *m)
{
    ps_status st = PS_OK;
    link l = {.device = m->ram};
    PS_TRY_GOTO(ps_queue_create(l.device, "to-device", PS_QUEUE_COPY, &l.to_device));
    PS_TRY_GOTO(ps_queue_create(l.device, "to-host", PS_QUEUE_COPY, &l.to_host));
    PS_TRY_GOTO(measure_queues(m, &l));
out:
    ps_queue_destroy(l.to_device); /* waits for copies under way */
    ps_queue_destroy(l.to_host);
    ps_measuring_release(m);
    return st;
}

/* ---- disk -------------------------------------------------------------------------------------------------------- */

typedef enum way { WAY_READ = 1, WAY_WRITE = 2, WAY_BOTH = 3 } way;

/* A pass over the payloads; with both ways the even ones are written and the odd ones read. */
static ps_status disk_pass(const mover *v, way which, double *seconds)
{
    ps_event t[N_IN_FLIGHT] = {0};
    ps_status st = PS_OK;
    const int64_t begin = ps_clock_ns();
    for (int i = 0; i < N_PAYLOADS + N_IN_FLIGHT && st == PS_OK; i++) {
        ps_event *slot = &t[i % N_IN_FLIGHT];
        st = ps_event_wait(*slot);
        *slot = (ps_event){NULL, 0};
        if (i >= N_PAYLOADS || st != PS_OK) continue;
        const bool is_write = which == WAY_WRITE || (which == WAY_BOTH && i % 2 == 0);
        st = is_write ? ps_disk_write(v->disk, i * v->bytes, v->src[i], v->bytes, NULL, slot)
                      : ps_disk_read(v->disk, i * v->bytes, v->dst[i], v->bytes, NULL, slot);
    }
    *seconds = ps_seconds_since(begin);
    return st;
}

static ps_status measure_disk_pass(ps_measuring *m, const mover *v, way which, double *out)
{
    static const char *const names[] = {
        [WAY_READ] = "reading", [WAY_WRITE] = "writing", [WAY_BOTH] = "half reading, half writing"};
    const double gb = (double)(N_PAYLOADS * PAYLOAD_BYTES) * 1e-9;
    ps_samples s;
    ps_samples_begin(m, 2, &s);
    while (ps_samples_want(&s)) {
        double seconds;
        PS_TRY(disk_pass(v, which, &seconds));
        ps_samples_add(&s, gb / seconds);
    }
    *out = gb / ps_measuring_report(m, &s, "GB/s", "disk: %s", names[which]);
    return PS_OK;
}

static ps_status measure_disk_latency(ps_measuring *m, const mover *v, double *seconds)
{
    ps_samples s;
    ps_event t;
    int i = 0;
    ps_samples_begin(m, 0.2, &s);
    while (ps_samples_want(&s)) {
        const int64_t begin = ps_clock_ns();
        PS_TRY(ps_disk_read(v->disk, i++ % N_PAYLOADS * v->bytes, v->dst[0], PS_PAGE_BYTES, NULL, &t));
        PS_TRY(ps_event_wait(t));
        ps_samples_add(&s, ps_seconds_since(begin) * 1e6);
    }
    *seconds = 1e-6 * ps_measuring_report(m, &s, "us", "disk: reading one page");
    return PS_OK;
}

static ps_status measure_transfers(ps_measuring *m, mover *v)
{
    ps_hardware_disk *out = &m->report->hardware.disk;
    double first, read, written, both, latency;
    for (int i = 0; i < N_PAYLOADS; i++) {
        PS_TRY(ps_measuring_take(m, PAYLOAD_BYTES, &v->src[i]));
        PS_TRY(ps_measuring_take(m, PAYLOAD_BYTES, &v->dst[i]));
    }
    PS_TRY(disk_pass(v, WAY_WRITE, &first)); /* finds room: slower than later ones */
    PS_TRY(measure_disk_pass(m, v, WAY_WRITE, &written));
    PS_TRY(measure_disk_pass(m, v, WAY_READ, &read));
    PS_TRY(measure_disk_pass(m, v, WAY_BOTH, &both));
    PS_TRY(measure_disk_latency(m, v, &latency));
    out->read_bytes_per_s = ps_measured((double)(N_PAYLOADS * PAYLOAD_BYTES) / read);
    out->write_bytes_per_s = ps_measured((double)(N_PAYLOADS * PAYLOAD_BYTES) / written);
    out->latency_ns = (int64_t)(latency * 1e9);
    out->full_duplex = is_full_duplex(both, 0.5 * read, 0.5 * written);
    out->read_both_ways_bytes_per_s = rate_at_once(0.5 * (double)(N_PAYLOADS * PAYLOAD_BYTES), both, 0.5 * read);
    out->write_both_ways_bytes_per_s = rate_at_once(0.5 * (double)(N_PAYLOADS * PAYLOAD_BYTES), both, 0.5 * written);
    return measure_interference(m, v, 0.5 * (read + written) / N_PAYLOADS, "disk", &out->compute_interference);
}

ps_status ps_measure_disk(ps_measuring *m)
{
    const char *folder = m->options->disk_folder;
    ps_hardware_disk *out = &m->report->hardware.disk;
    mover v = {.n = N_PAYLOADS, .bytes = PAYLOAD_BYTES};
    PS_TRY(ps_disk_open(folder, PS_DISK_AUTO, QUEUE_DEPTH, &v.disk));
    const ps_status st = measure_transfers(m, &v);
    const ps_disk_stats stats = ps_disk_get_stats(v.disk);
    ps_disk_close(v.disk); /* waits for transfers under way */
    ps_measuring_release(m);
    PS_TRY(st);
    PS_TRY(ps_disk_folders_free_bytes(folder, &out->bytes));
    out->present = true;
    snprintf(out->source, sizeof out->source, "%s In a folder %.100s, by %s, %s.", m->origin, folder, stats.backend,
             stats.direct ? "O_DIRECT" : "through the page cache");
    return PS_OK;
}
