#include "chunk/timeline.h"

#include "base/base.h"

const ps_link_bandwidths ps_link_bandwidths_default = {
    .link = {[PS_LINK_HOST_TO_DEVICE] = {.bytes_per_s = 8e9},
             [PS_LINK_DEVICE_TO_HOST] = {.bytes_per_s = 8e9},
             [PS_LINK_DISK_READ] = {.bytes_per_s = 1.5e9},
             [PS_LINK_DISK_WRITE] = {.bytes_per_s = 1.5e9},
             [PS_LINK_COLLECTIVES] = {.bytes_per_s = 1e9}},
};

const char *ps_link_name(ps_link l)
{
    static const char *const names[PS_LINK_COUNT] = {[PS_LINK_HOST_TO_DEVICE] = "host->device",
                                                     [PS_LINK_DEVICE_TO_HOST] = "device->host",
                                                     [PS_LINK_DISK_READ] = "disk read",
                                                     [PS_LINK_DISK_WRITE] = "disk write",
                                                     [PS_LINK_COLLECTIVES] = "collectives"};
    return l < PS_LINK_COUNT ? names[l] : "?";
}

ps_link ps_link_opposite(ps_link l)
{
    static const ps_link opposite[PS_LINK_COUNT] = {[PS_LINK_HOST_TO_DEVICE] = PS_LINK_DEVICE_TO_HOST,
                                                    [PS_LINK_DEVICE_TO_HOST] = PS_LINK_HOST_TO_DEVICE,
                                                    [PS_LINK_DISK_READ] = PS_LINK_DISK_WRITE,
                                                    [PS_LINK_DISK_WRITE] = PS_LINK_DISK_READ,
                                                    [PS_LINK_COLLECTIVES] = PS_LINK_COLLECTIVES};
    return opposite[l];
}

double ps_link_contention(const ps_link_bandwidths *r, ps_link l)
{
    switch (l) {
    case PS_LINK_HOST_TO_DEVICE:
    case PS_LINK_DEVICE_TO_HOST: return r->ram_contention;
    case PS_LINK_DISK_READ:
    case PS_LINK_DISK_WRITE: return r->disk_contention;
    case PS_LINK_COLLECTIVES:
    case PS_LINK_COUNT: break;
    }
    return 0;
}

/* How long the link will be busy, as seconds of it alone: while both directions are busy they move less, and each
 * counts half of the loss. */
static double rest_ns(const ps_timeline *t, ps_link l)
{
    const double own = (double)ps_max_i64(0, t->free_ns[l] - t->now_ns);
    const double other = (double)ps_max_i64(0, t->free_ns[ps_link_opposite(l)] - t->now_ns);
    return own - 0.5 * ps_link_contention(&t->throughput, l) * (own < other ? own : other);
}

/* A link that is busy for `rest` more takes its share of that time from computing; but if computing, including the
 * loss, ends sooner, of that: T = ns + share T, so share T = ns share / (1 - share). */
void ps_timeline_compute(ps_timeline *t, int64_t ns)
{
    double lost = 0;
    for (ps_link l = 0; l < PS_LINK_COUNT; l++) {
        const double share = t->throughput.link[l].interference, rest = rest_ns(t, l);
        if (share <= 0 || rest <= 0) continue;
        const double all = (double)ns * share / (1 - share);
        lost += rest * share < all ? rest * share : all;
    }
    t->sums.compute_ns += ns;
    t->sums.lost_ns += (int64_t)lost;
    t->now_ns += ns + (int64_t)lost;
}

/* Earlier transfers keep their end, and the later one bears the whole cost of contention. So while both directions are
 * busy, the measured amount is moved, in whichever order it was issued. */
int64_t ps_timeline_occupy(ps_timeline *t, ps_link link, int64_t ns, int64_t *begin_ns)
{
    const double contention = ps_link_contention(&t->throughput, link);
    const int64_t other_ns = t->free_ns[ps_link_opposite(link)];
    int64_t begin = ps_max_i64(t->now_ns, t->free_ns[link]);
    if (contention >= 1) begin = ps_max_i64(begin, other_ns);
    const ps_sim_span other_busy = {begin, ps_max_i64(begin, other_ns)};
    const int64_t end = ps_sim_end_contended(&other_busy, 1, contention, begin, ns);
    if (begin_ns != NULL) *begin_ns = begin;
    t->free_ns[link] = end;
    t->sums.busy_ns[link] += end - begin;
    return end;
}

int64_t ps_timeline_transfer(ps_timeline *t, ps_link link, int64_t bytes, int64_t *begin_ns)
{
    const ps_link_bandwidth *r = &t->throughput.link[link];
    return ps_timeline_occupy(t, link, r->latency_ns + ps_sim_copy_ns(bytes, r->bytes_per_s), begin_ns);
}

void ps_timeline_wait(ps_timeline *t, ps_link link, int64_t done_ns)
{
    if (done_ns <= t->now_ns) return;
    t->sums.waits_ns[link] += done_ns - t->now_ns;
    t->now_ns = done_ns;
}
