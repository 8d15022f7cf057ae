/* timeline.h - estimated time: how far computing has come, and when each copy queue will have done what it was given.
 *
 *     computing      |== op ==|== op ==|...wait...|== op ==|        now_ns
 *     host->device   |==== chunk 3 ====|== chunk 5 ==|              free_ns[link]
 *
 * The store moves chunks by it: a copy counts as finished when the timeline says so, or when it is waited for. So what
 * is moved when depends on these estimates and never on how fast a copy really was. With rates that are the machine's
 * it is also the prediction of a step's duration: simulating is running without payloads and reading this clock. On a
 * device that works later, whose queues wait for each other, the prediction is that of device/sim_time.h. */
#ifndef PS_CHUNK_TIMELINE_H
#define PS_CHUNK_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ps_link {
    PS_LINK_HOST_TO_DEVICE,
    PS_LINK_DEVICE_TO_HOST,
    PS_LINK_DISK_READ,
    PS_LINK_DISK_WRITE,
    PS_LINK_COLLECTIVES, /* between ranks */
    PS_LINK_COUNT,
} ps_link;

const char *ps_link_name(ps_link l); /* "host->device", "device->host", "disk read", "disk write", "collectives" */

typedef struct ps_link_rate {
    double bytes_per_s; /* > 0 */
    int64_t latency_ns; /* of each transfer */
    /* Share of a transfer's time, in [0, 1), that computing loses meanwhile, because both need the same cores or
     * memory. */
    double interference;
} ps_link_rate;

typedef struct ps_link_rates {
    ps_link_rate link[PS_LINK_COUNT];
    /* [0, 1]: the part of its rate that one way loses while the other is busy. 0: neither notices the other; 1: one way
     * at a time. */
    double ram_contention, disk_contention;
} ps_link_rates;

/* The other way of the same wires; of collectives themselves. */
ps_link ps_link_opposite(ps_link l);
/* ram_contention or disk_contention; of collectives 0. */
double ps_link_contention(const ps_link_rates *r, ps_link l);

/* What a PC's memory and NVMe disk do. Wrong estimates cost time, never correctness. */
extern const ps_link_rates ps_link_rates_default;

typedef struct ps_timeline {
    ps_link_rates rates;
    int64_t now_ns; /* of the computing thread */
    int64_t free_ns[PS_LINK_COUNT];
    /* sums */
    int64_t compute_ns;             /* of operators, as if nothing else ran */
    int64_t lost_ns;                /* to interference */
    int64_t busy_ns[PS_LINK_COUNT]; /* transfers */
    int64_t wait_ns[PS_LINK_COUNT]; /* computing stood still for a transfer of the link */
} ps_timeline;

/* Compute for ns, longer while copies interfere. */
void ps_timeline_compute(ps_timeline *t, int64_t ns);

/* Enqueue a transfer of `bytes`, or of a given duration (collectives). Returns when it will be done; *begin_ns (may be
 * NULL): when it begins. */
int64_t ps_timeline_transfer(ps_timeline *t, ps_link link, int64_t bytes, int64_t *begin_ns);
int64_t ps_timeline_occupy(ps_timeline *t, ps_link link, int64_t ns, int64_t *begin_ns);

/* Computing goes on when a transfer of the link is done, not before done_ns. */
void ps_timeline_wait(ps_timeline *t, ps_link link, int64_t done_ns);

#endif
