/* sim_time.h - estimated time of queues that do nothing: when each item would begin and end, by the very events that
 * the items wait for.
 *
 *     host        issues at once; stands still where it waits                         host_ns
 *     compute     |== op ==|...|== op ==|== op ==|        an item begins when the one before it has ended, and all that
 *     to device   |== copy ==|== copy ==|                 its queue waits for
 *     releases    memory that is given back may be used for something else after this
 *
 * A *lane* is what the time of one or more queues is counted as. Copies of a lane that has a rate go over a wire, one
 * at a time: in the first gap that is long enough, whichever was issued first. Two lanes with one wire take turns; beside
 * copies of another wire a lane may be slower.
 *
 * Nothing follows from these times but predictions: what is issued does not depend on them. One thread. */
#ifndef PS_DEVICE_SIM_TIME_H
#define PS_DEVICE_SIM_TIME_H

#include "device/disk.h"

#define PS_SIM_LANES_MAX 12

typedef struct ps_sim_lane {
    double bytes_per_s; /* of copies; 0: they take no time */
    int64_t latency_ns; /* of each copy */
    double share;       /* of a copy's time, in [0, 1), that computing loses meanwhile */
    int wire;           /* [0, PS_SIM_LANES_MAX) */
    int beside;         /* another wire: while that is busy a copy loses this part of its rate */
    double contention;  /* [0, 1) */
} ps_sim_lane;

typedef struct ps_sim_sums {
    int64_t compute_ns, lost_ns;        /* of items of ps_sim_compute: as if alone; longer because of copies */
    int64_t busy_ns[PS_SIM_LANES_MAX];  /* items of the lane */
    int64_t waits_ns[PS_SIM_LANES_MAX]; /* the compute lane stood still for an item of this one */
    int64_t host_waits_ns;              /* ... because the host had not issued its next item yet */
} ps_sim_sums;

typedef struct ps_sim_time ps_sim_time;

/* lanes: [n_lanes], copied. Lane `compute` is the one whose waits are summed. */
PS_NODISCARD ps_status ps_sim_time_create(const ps_sim_lane *lanes, int n_lanes, int compute, ps_sim_time **out);
void ps_sim_time_destroy(ps_sim_time *t); /* after the devices, queues and disks that have it; NULL is accepted */
ps_sim_sums ps_sim_time_sums(const ps_sim_time *t);

/* That of a device, its driver; NULL: the device has none. Only ps_device_sim_later_ops can have. */
ps_sim_time *ps_sim_time_of(const ps_device *dev);

/* ---- queues of devices that have time; without, these do nothing ---- */

/* The queue's items are the lane's from now on. Before the first. */
void ps_sim_queue_join(ps_queue *q, int lane);
/* Transfers of a simulated disk. */
PS_NODISCARD ps_status ps_sim_disk_join(ps_disk *d, ps_sim_time *t, int read_lane, int write_lane);
/* An item that takes so long, and longer by what copies take from it meanwhile if it computes. */
void ps_sim_queue_spend(ps_queue *q, int64_t ns, bool computes);

/* What is issued to q next comes after all of the other queue so far, in time. Of what is issued nobody is told. */
void ps_sim_queue_come_after(ps_queue *q, const ps_queue *other);
/* The host goes on latency_ns after all of q so far. */
void ps_sim_queue_read_back(const ps_queue *q, int64_t latency_ns);

/* The queue's last item: since when the queue had stood still for it, and the lane that it waited for last; -1: the
 * host had not issued it. Before the first, and without time: zeros. */
typedef struct ps_sim_item {
    int64_t free_ns, begin_ns, end_ns;
    int cause;
} ps_sim_item;

ps_sim_item ps_sim_queue_last(const ps_queue *q);
/* Where that ends: a clock, for profiles. NULL without time. */
const int64_t *ps_sim_queue_clock(const ps_queue *q);

#endif
