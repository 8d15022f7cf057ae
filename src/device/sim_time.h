/* sim_time.h - estimated time of simulated queues: when each item would begin and end, by the same events that the
 * items wait for.
 *
 *     host        issues at once; blocks where it waits                         host_ns
 *     compute     |== op ==|...|== op ==|== op ==|        an item begins when the one before it has ended, and all that
 *     to device   |== copy ==|== copy ==|                 its queue waits for
 *     releases    freed memory may be reused after this
 *
 * A *lane* is the time line of one or more queues. Copies of a lane with a bandwidth use a wire, one at a time: in the
 * first gap that is long enough, whichever was issued first. Two lanes with one wire alternate; a lane may be slower
 * while another wire is busy.
 *
 * These times serve predictions only: what is issued does not depend on them. One thread. */
#ifndef PS_DEVICE_SIM_TIME_H
#define PS_DEVICE_SIM_TIME_H

#include "device/disk.h"

#define PS_SIM_LANES_MAX 12

typedef struct ps_sim_lane {
    double bytes_per_s;  /* of copies; 0: they take no time */
    int64_t latency_ns;  /* of each copy */
    double share;        /* of a copy's time, in [0, 1), that computing loses meanwhile */
    int wire;            /* [0, PS_SIM_LANES_MAX) */
    int contending_wire; /* another wire: while it is busy a copy loses the fraction `contention` of its bandwidth */
    double contention;   /* [0, 1) */
} ps_sim_lane;

typedef struct ps_sim_sums {
    int64_t compute_ns,
        lost_ns; /* of items of ps_sim_queue_spend that compute: without copies; the extra time due to copies */
    int64_t busy_ns[PS_SIM_LANES_MAX];  /* items of the lane */
    int64_t waits_ns[PS_SIM_LANES_MAX]; /* the compute lane waited for an item of this one */
    int64_t host_waits_ns;              /* ... because the host had not issued its next item yet */
} ps_sim_sums;

/* ---- arithmetic, shared with the store's timeline (chunk/timeline.h) ---- */

typedef struct ps_sim_span {
    int64_t begin_ns, end_ns;
} ps_sim_span;

/* Duration of a copy of so many bytes, without latency. */
static inline int64_t ps_sim_copy_ns(int64_t bytes, double bytes_per_s)
{
    return (int64_t)((double)bytes * 1e9 / bytes_per_s);
}

/* When a copy of duration ns ends if it begins at begin_ns. While the other direction is busy (n intervals, one after
 * the other) it loses the fraction `contention` of its bandwidth, in [0, 1); copies of the other direction are not
 * slowed further. */
int64_t ps_sim_end_contended(const ps_sim_span *busy, int n, double contention, int64_t begin_ns, int64_t ns);

/* ---- time ---- */

typedef struct ps_sim_time ps_sim_time;

/* lanes: [n_lanes], copied. Lane `compute` is the one whose waits are summed. */
PS_NODISCARD ps_status ps_sim_time_create(const ps_sim_lane *lanes, int n_lanes, int compute, ps_sim_time **out);
void ps_sim_time_destroy(ps_sim_time *t); /* after the devices, queues and disks that have it; NULL is accepted */
ps_sim_sums ps_sim_time_sums(const ps_sim_time *t);

/* The time of a device, its driver; NULL: none. Only devices of ps_device_sim_async_ops can have it. */
ps_sim_time *ps_sim_time_of(const ps_device *dev);

/* ---- queues of devices that have time; on others these calls do nothing ---- */

/* The queue's items belong to the lane from now on. To be called before the first item. */
void ps_sim_queue_join(ps_queue *q, int lane);
/* Transfers of a simulated disk. */
PS_NODISCARD ps_status ps_sim_disk_join(ps_disk *d, ps_sim_time *t, int read_lane, int write_lane);
/* An item of this duration; if it computes, copies at the same time lengthen it. */
void ps_sim_queue_spend(ps_queue *q, int64_t ns, bool computes);

/* What is issued to q next comes after all of the other queue so far, in time. Observers are not informed. */
void ps_sim_queue_come_after(ps_queue *q, const ps_queue *other);
/* The host continues latency_ns after all of q so far. */
void ps_sim_queue_read_back(const ps_queue *q, int64_t latency_ns);

/* The queue's last item: since when the queue had waited for it, and the lane that it waited for last; -1: the host had
 * not issued it. Before the first item, and without time: zeros. */
typedef struct ps_sim_item {
    int64_t free_ns, begin_ns, end_ns;
    int cause;
} ps_sim_item;

ps_sim_item ps_sim_queue_last(const ps_queue *q);
/* The end of that item: a clock, for profiles. NULL without time. */
const int64_t *ps_sim_queue_clock(const ps_queue *q);

#endif
