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

ps_link ps_link_opposite(ps_link l)
{
    static const ps_link opposite[PS_LINK_COUNT] = {[PS_LINK_HOST_TO_DEVICE] = PS_LINK_DEVICE_TO_HOST,
                                                    [PS_LINK_DEVICE_TO_HOST] = PS_LINK_HOST_TO_DEVICE,
                                                    [PS_LINK_DISK_READ] = PS_LINK_DISK_WRITE,
                                                    [PS_LINK_DISK_WRITE] = PS_LINK_DISK_READ,
                                                    [PS_LINK_COLLECTIVES] = PS_LINK_COLLECTIVES};
    return opposite[l];
}

double ps_link_contention(const ps_link_rates *r, ps_link l)
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

/* How long the link will move something, as seconds of it alone: while both ways are busy they move less than that, and
 * each is counted half of what is missing. */
static double rest_ns(const ps_timeline *t, ps_link l)
{
    const double own = (double)ps_max_i64(0, t->free_ns[l] - t->now_ns);
    const double other = (double)ps_max_i64(0, t->free_ns[ps_link_opposite(l)] - t->now_ns);
    return own - 0.5 * ps_link_contention(&t->rates, l) * (own < other ? own : other);
}

/* A link that is busy for `rest` more takes its share of that time from computing; but when computing, as long as it
 * becomes, ends sooner, of that: T = ns + share T, so share T = ns share / (1 - share). */
void ps_timeline_compute(ps_timeline *t, int64_t ns)
{
    double lost = 0;
    for (ps_link l = 0; l < PS_LINK_COUNT; l++) {
        const double share = t->rates.link[l].interference, rest = rest_ns(t, l);
        if (share <= 0 || rest <= 0) continue;
        const double all = (double)ns * share / (1 - share);
        lost += rest * share < all ? rest * share : all;
    }
    t->compute_ns += ns;
    t->lost_ns += (int64_t)lost;
    t->now_ns += ns + (int64_t)lost;
}

/* What was issued before keeps the time that it was told, and the later transfer bears all that the two cost each
 * other. So while both ways are busy, as much is moved as was measured, in whichever order it was issued. */
int64_t ps_timeline_occupy(ps_timeline *t, ps_link link, int64_t ns, int64_t *begin_ns)
{
    const double moves = 1 - ps_link_contention(&t->rates, link); /* of its rate, beside the other way */
    int64_t begin = ps_max_i64(t->now_ns, t->free_ns[link]), end = begin + ns;
    const int64_t beside = ps_max_i64(0, t->free_ns[ps_link_opposite(link)] - begin); /* the other way is busy */
    if (moves <= 0) {
        begin += beside;
        end = begin + ns;
    } else if (moves < 1) {
        const double moved = moves * (double)beside;
        end = begin + ((double)ns > moved ? beside + ns - (int64_t)moved : (int64_t)((double)ns / moves));
    }
    if (begin_ns != NULL) *begin_ns = begin;
    t->free_ns[link] = end;
    t->busy_ns[link] += end - begin;
    return end;
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
