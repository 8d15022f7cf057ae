/* measure_copy.c - bandwidth of copies and of the disk tier: alone, both directions at once, and processor time for
 * it. */
#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "device/disk_folders.h"
#include "train/measure/measure_impl.h"

/* The size of a chunk of a small model. Not a multiple of a huge page: two use three of them where there is room for
 * both, else partly small pages, with which a disk is slower (device.c). */
#define PAYLOAD_BYTES (3 * PS_MIB)

enum {
    N_PAYLOADS = 16, /* of the disk, each way */
    N_IN_FLIGHT = 4, /* of the disk, as many as prefetching usually has */
};

/* Both directions at once take the longer of the two times when nothing is shared, their sum when they alternate. */
static bool is_full_duplex(double both, double a, double b)
{
    const double longer = a > b ? a : b;
    return both < 0.5 * (longer + a + b);
}

/* Bandwidth of a direction that moves `bytes` alone in alone_s while both directions together take both_s. */
static double rate_at_once(double bytes, double both_s, double alone_s)
{
    return ps_measured(bytes / (both_s > alone_s ? both_s : alone_s));
}

static double between_0_and_1(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* ---- processors -------------------------------------------------------------------------------------------------- */

/* A pass of transfers, while nothing is computed. */
typedef struct pass_time {
    double wall_s, processor_s;
} pass_time;

static pass_time pass_begin(void)
{
    return (pass_time){.wall_s = (double)ps_clock_ns() * 1e-9, .processor_s = ps_processor_seconds()};
}

static void pass_end(pass_time *t)
{
    t->wall_s = (double)ps_clock_ns() * 1e-9 - t->wall_s;
    t->processor_s = ps_processor_seconds() - t->processor_s;
    if (t->wall_s <= 0) t->wall_s = 1e-9;
}

static void add_busy(ps_samples *n_busy, const pass_time *t)
{
    if (n_busy != NULL && n_busy->n < PS_SAMPLES_MAX) ps_samples_add(n_busy, t->processor_s / t->wall_s);
}

double ps_measure_interference(double n_busy, int n_threads, int n_cores)
{
    return between_0_and_1((n_busy + n_threads - n_cores) / n_threads);
}

/* Computing in parallel would be slowed by other processes too, differently each time; the processor time of transfers
 * alone is theirs only. */
static double interference_of(ps_measuring *m, ps_samples *n_busy, const char *name)
{
    const double busy = ps_measuring_report(m, n_busy, "", "%s: processors busy with it", name);
    if (m->options->gpu != NULL) return 0; /* it continues computing */
    return ps_measured(ps_measure_interference(busy, m->options->n_threads, ps_machine_cores(NULL)));
}

/* ---- link -------------------------------------------------------------------------------------------------------- */

typedef struct link {
    ps_device *device; /* device of the queues */
    ps_queue *to_device, *to_host;
    int n_blocks;
    int64_t block_bytes;
    char *host, *dev; /* [2 n_blocks block_bytes]: one half for each direction */
} link;

/* A pass over the blocks, in one direction or both at once. */
static ps_status copy_pass(const link *l, bool to_device, bool to_host, pass_time *t)
{
    char *const up_src = l->dev + l->n_blocks * l->block_bytes, *const up_dst = l->host + l->n_blocks * l->block_bytes;
    *t = pass_begin();
    for (int64_t at = 0; at < l->n_blocks * l->block_bytes; at += l->block_bytes) {
        if (to_device) PS_TRY(ps_queue_copy(l->to_device, l->dev + at, l->host + at, l->block_bytes));
        if (to_host) PS_TRY(ps_queue_copy(l->to_host, up_dst + at, up_src + at, l->block_bytes));
    }
    PS_TRY(ps_event_wait(ps_queue_event(l->to_device)));
    PS_TRY(ps_event_wait(ps_queue_event(l->to_host)));
    pass_end(t);
    return PS_OK;
}

/* Median seconds of a pass; n_busy (may be NULL): processors, a sample a pass. */
static ps_status measure_pass(ps_measuring *m, const link *l, bool to_device, bool to_host, ps_samples *n_busy,
                              double *out)
{
    const double gb = (double)(l->n_blocks * l->block_bytes) * (to_device && to_host ? 2e-9 : 1e-9);
    ps_samples s;
    ps_samples_begin(m, 1, &s);
    while (ps_samples_want(&s)) {
        pass_time t;
        PS_TRY(copy_pass(l, to_device, to_host, &t));
        ps_samples_add(&s, gb / t.wall_s);
        add_busy(n_busy, &t);
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
    ps_samples n_busy;
    PS_TRY(ps_measuring_take(m, &m->host, 2 * l->n_blocks * l->block_bytes, &l->host));
    PS_TRY(ps_measuring_take(m, &m->device, 2 * l->n_blocks * l->block_bytes, &l->dev));
    ps_samples_begin(m, 0, &n_busy);
    PS_TRY(measure_pass(m, l, true, false, &n_busy, &down));
    PS_TRY(measure_pass(m, l, false, true, &n_busy, &up));
    PS_TRY(measure_pass(m, l, true, true, NULL, &both));
    out->compute_interference = interference_of(m, &n_busy, "copy");
    PS_TRY(measure_copy_latency(m, l, &latency));
    out->to_device_bytes_per_s = ps_measured((double)(l->n_blocks * l->block_bytes) / down);
    out->to_host_bytes_per_s = ps_measured((double)(l->n_blocks * l->block_bytes) / up);
    out->latency_ns = (int64_t)(latency * 1e9);
    out->full_duplex = is_full_duplex(both, down, up);
    out->to_device_both_ways_bytes_per_s = rate_at_once((double)(l->n_blocks * l->block_bytes), both, down);
    out->to_host_both_ways_bytes_per_s = rate_at_once((double)(l->n_blocks * l->block_bytes), both, up);
    out->shared_by = 1;
    return PS_OK;
}

ps_status ps_measure_link(ps_measuring *m)
{
    ps_status st = PS_OK;
    link l = {.device = m->device.memory, .block_bytes = m->sizes->copy_bytes, .n_blocks = m->sizes->n_copies};
    PS_TRY_GOTO(ps_queue_create(l.device, "to-device", PS_QUEUE_COPY, &l.to_device));
    PS_TRY_GOTO(ps_queue_create(l.device, "to-host", PS_QUEUE_COPY, &l.to_host));
    PS_TRY_GOTO(measure_queues(m, &l));
out:
    ps_queue_destroy(l.to_device); /* waits for copies in flight */
    ps_queue_destroy(l.to_host);
    ps_measuring_release(m);
    return st;
}

/* ---- disk -------------------------------------------------------------------------------------------------------- */

/* The payloads. */
typedef struct payloads {
    ps_disk *disk;
    char *src[N_PAYLOADS], *dst[N_PAYLOADS];
} payloads;

typedef enum way { WAY_READ = 1, WAY_WRITE = 2, WAY_BOTH = 3 } way;

/* A pass over the payloads; with both directions the even ones are written and the odd ones read. */
static ps_status disk_pass(const payloads *v, way which, pass_time *time)
{
    ps_event t[N_IN_FLIGHT] = {0};
    ps_status st = PS_OK;
    *time = pass_begin();
    for (int i = 0; i < N_PAYLOADS + N_IN_FLIGHT && st == PS_OK; i++) {
        ps_event *slot = &t[i % N_IN_FLIGHT];
        st = ps_event_wait(*slot);
        *slot = (ps_event){NULL, 0};
        if (i >= N_PAYLOADS || st != PS_OK) continue;
        const bool is_write = which == WAY_WRITE || (which == WAY_BOTH && i % 2 == 0);
        st = is_write ? ps_disk_write(v->disk, (int64_t)i * PAYLOAD_BYTES, v->src[i], PAYLOAD_BYTES, NULL, slot)
                      : ps_disk_read(v->disk, (int64_t)i * PAYLOAD_BYTES, v->dst[i], PAYLOAD_BYTES, NULL, slot);
    }
    pass_end(time);
    return st;
}

static ps_status measure_disk_pass(ps_measuring *m, const payloads *v, way which, ps_samples *n_busy, double *out)
{
    static const char *const names[] = {
        [WAY_READ] = "reading", [WAY_WRITE] = "writing", [WAY_BOTH] = "half reading, half writing"};
    const double gb = (double)(N_PAYLOADS * PAYLOAD_BYTES) * 1e-9;
    ps_samples s;
    ps_samples_begin(m, 2, &s);
    while (ps_samples_want(&s)) {
        pass_time t;
        PS_TRY(disk_pass(v, which, &t));
        ps_samples_add(&s, gb / t.wall_s);
        add_busy(n_busy, &t);
    }
    *out = gb / ps_measuring_report(m, &s, "GB/s", "disk: %s", names[which]);
    return PS_OK;
}

static ps_status measure_disk_latency(ps_measuring *m, const payloads *v, double *seconds)
{
    ps_samples s;
    ps_event t;
    int i = 0;
    ps_samples_begin(m, 0.2, &s);
    while (ps_samples_want(&s)) {
        const int64_t begin = ps_clock_ns();
        PS_TRY(ps_disk_read(v->disk, (int64_t)(i++ % N_PAYLOADS) * PAYLOAD_BYTES, v->dst[0], PS_PAGE_BYTES, NULL, &t));
        PS_TRY(ps_event_wait(t));
        ps_samples_add(&s, ps_seconds_since(begin) * 1e6);
    }
    *seconds = 1e-6 * ps_measuring_report(m, &s, "us", "disk: reading one page");
    return PS_OK;
}

static ps_status measure_transfers(ps_measuring *m, payloads *v)
{
    ps_hardware_disk *out = &m->report->hardware.disk;
    double read, written, both, latency;
    pass_time first;
    ps_samples n_busy;
    for (int i = 0; i < N_PAYLOADS; i++) {
        PS_TRY(ps_measuring_take(m, &m->host, PAYLOAD_BYTES, &v->src[i]));
        PS_TRY(ps_measuring_take(m, &m->host, PAYLOAD_BYTES, &v->dst[i]));
    }
    PS_TRY(disk_pass(v, WAY_WRITE, &first)); /* allocates the file: slower than later ones */
    ps_samples_begin(m, 0, &n_busy);
    PS_TRY(measure_disk_pass(m, v, WAY_WRITE, &n_busy, &written));
    PS_TRY(measure_disk_pass(m, v, WAY_READ, &n_busy, &read));
    PS_TRY(measure_disk_pass(m, v, WAY_BOTH, NULL, &both));
    out->compute_interference = interference_of(m, &n_busy, "disk");
    PS_TRY(measure_disk_latency(m, v, &latency));
    out->read_bytes_per_s = ps_measured((double)(N_PAYLOADS * PAYLOAD_BYTES) / read);
    out->write_bytes_per_s = ps_measured((double)(N_PAYLOADS * PAYLOAD_BYTES) / written);
    out->latency_ns = (int64_t)(latency * 1e9);
    out->full_duplex = is_full_duplex(both, 0.5 * read, 0.5 * written);
    out->read_both_ways_bytes_per_s = rate_at_once(0.5 * (double)(N_PAYLOADS * PAYLOAD_BYTES), both, 0.5 * read);
    out->write_both_ways_bytes_per_s = rate_at_once(0.5 * (double)(N_PAYLOADS * PAYLOAD_BYTES), both, 0.5 * written);
    return PS_OK;
}

ps_status ps_measure_disk(ps_measuring *m)
{
    const char *folder = m->options->disk_folder;
    ps_hardware_disk *out = &m->report->hardware.disk;
    payloads v = {0};
    PS_TRY(ps_disk_open(folder, PS_DISK_AUTO, PS_DISK_QUEUE_DEPTH, &v.disk));
    const ps_status st = measure_transfers(m, &v);
    const ps_disk_stats stats = ps_disk_get_stats(v.disk);
    ps_disk_close(v.disk); /* waits for transfers in flight */
    ps_measuring_release(m);
    PS_TRY(st);
    PS_TRY(ps_disk_folders_free_bytes(folder, &out->bytes));
    out->present = true;
    snprintf(out->source, sizeof out->source, "%s In a folder %.100s, by %s, %s.", m->origin, folder, stats.backend,
             stats.direct ? "O_DIRECT" : "through the page cache");
    return PS_OK;
}
