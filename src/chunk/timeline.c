#include "chunk/timeline.h"

#include "base/base.h"

const ps_link_rates ps_link_rates_default = {
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

/* A link that is busy for `rest` more takes its share of that time from computing; but when computing, as long as it
 * becomes, ends sooner, of that: T = ns + share T, so share T = ns share / (1 - share). */
void ps_timeline_compute(ps_timeline *t, int64_t ns)
{
    double lost = 0;
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        const double share = t->rates.link[l].interference, rest = (double)(t->free_ns[l] - t->now_ns);
        if (share <= 0 || rest <= 0) continue;
        const double all = (double)ns * share / (1 - share);
        lost += rest * share < all ? rest * share : all;
    }
    t->compute_ns += ns;
    t->lost_ns += (int64_t)lost;
    t->now_ns += ns + (int64_t)lost;
}

/* The link that cannot work while this one does; the link itself when there is none. */
static ps_link opposite(const ps_timeline *t, ps_link link)
{
    switch (link) {
    case PS_LINK_HOST_TO_DEVICE: return t->rates.ram_is_half_duplex ? PS_LINK_DEVICE_TO_HOST : link;
    case PS_LINK_DEVICE_TO_HOST: return t->rates.ram_is_half_duplex ? PS_LINK_HOST_TO_DEVICE : link;
    case PS_LINK_DISK_READ: return t->rates.disk_is_half_duplex ? PS_LINK_DISK_WRITE : link;
    case PS_LINK_DISK_WRITE: return t->rates.disk_is_half_duplex ? PS_LINK_DISK_READ : link;
    case PS_LINK_COLLECTIVES:
    case PS_LINK_COUNT: break;
    }
    return link;
}

int64_t ps_timeline_occupy(ps_timeline *t, ps_link link, int64_t ns, int64_t *begin_ns)
{
    const ps_link other = opposite(t, link);
    const int64_t begin = ps_max_i64(t->now_ns, ps_max_i64(t->free_ns[link], t->free_ns[other]));
    if (begin_ns != NULL) *begin_ns = begin;
    t->free_ns[link] = begin + ns;
    t->busy_ns[link] += ns;
    return begin + ns;
}

int64_t ps_timeline_transfer(ps_timeline *t, ps_link link, int64_t bytes, int64_t *begin_ns)
{
    const ps_link_rate *r = &t->rates.link[link];
    return ps_timeline_occupy(t, link, r->latency_ns + (int64_t)((double)bytes * 1e9 / r->bytes_per_s), begin_ns);
}

void ps_timeline_wait(ps_timeline *t, ps_link link, int64_t done_ns)
{
    if (done_ns <= t->now_ns) return;
    t->wait_ns[link] += done_ns - t->now_ns;
    t->now_ns = done_ns;
}
