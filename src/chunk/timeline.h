/* timeline.h - estimated time: of computing, and of the end of each copy queue's transfers.
 *
 *     computing      |== op ==|== op ==|...wait...|== op ==|        now_ns
 *     host->device   |==== chunk 3 ====|== chunk 5 ==|              free_ns[link]
 *
 * The store decides by it: a copy counts as finished when the timeline says so, or when it is waited for. So what is
 * moved when depends on these estimates and never on how fast a copy really was. With the machine's bandwidths it also
 * predicts a step's duration: a simulation runs without payloads and reads this clock. For an asynchronous device,
 * whose queues wait for each other, device/sim_time.h predicts it. */
#ifndef PS_CHUNK_TIMELINE_H
#define PS_CHUNK_TIMELINE_H

#include "device/sim_time.h"

typedef enum ps_link {
    PS_LINK_HOST_TO_DEVICE,
    PS_LINK_DEVICE_TO_HOST,
    PS_LINK_DISK_READ,
    PS_LINK_DISK_WRITE,
    PS_LINK_COLLECTIVES, /* between ranks */
    PS_LINK_COUNT,
} ps_link;

const char *ps_link_name(ps_link l); /* "host->device", "device->host", "disk read", "disk write", "collectives" */

typedef struct ps_link_bandwidth {
    double bytes_per_s; /* > 0 */
    int64_t latency_ns; /* of each transfer */
    /* Share of a transfer's time, in [0, 1), that computing loses meanwhile, because both use the same cores or
     * memory. */
    double interference;
} ps_link_bandwidth;

typedef struct ps_link_bandwidths {
    ps_link_bandwidth link[PS_LINK_COUNT];
    /* [0, 1]: the fraction of its bandwidth that one direction loses while the other is busy. 0: they are independent;
     * 1: one direction at a time. */
    double ram_contention, disk_contention;
} ps_link_bandwidths;

/* The other direction of the same link; for collectives the link itself. */
ps_link ps_link_opposite(ps_link l);
/* ram_contention or disk_contention; 0 for collectives. */
double ps_link_contention(const ps_link_bandwidths *r, ps_link l);

/* Values of a PC's memory and NVMe disk. Wrong estimates cost time, never correctness. */
extern const ps_link_bandwidths ps_link_bandwidths_default;

typedef struct ps_timeline {
    ps_link_bandwidths throughput;
    int64_t now_ns; /* of the computing thread */
    int64_t free_ns[PS_LINK_COUNT];
    ps_sim_sums sums; /* by link; computing never waits for the host */
} ps_timeline;

/* Computing for ns, longer while copies interfere. */
void ps_timeline_compute(ps_timeline *t, int64_t ns);

/* Enqueue a transfer of `bytes`, or of a given duration (collectives). Returns its end; *begin_ns (may be NULL): its
 * begin. */
int64_t ps_timeline_transfer(ps_timeline *t, ps_link link, int64_t bytes, int64_t *begin_ns);
int64_t ps_timeline_occupy(ps_timeline *t, ps_link link, int64_t ns, int64_t *begin_ns);

/* Computing continues when a transfer of the link is done, not before done_ns. */
void ps_timeline_wait(ps_timeline *t, ps_link link, int64_t done_ns);

#endif
