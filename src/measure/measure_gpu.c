/* measure_gpu.c - what memory costs to be had beside and on a GPU: page-locked by the driver, and mapped. No key of the
 * description: plans take both to be had before the first step. */
#include "base/machine.h"
#include "measure/measure_impl.h"

enum { N_BLOCKS = 8 };

typedef struct taken {
    ps_device *of;
    int64_t bytes; /* of each */
    void *block[N_BLOCKS];
    int n;
} taken;

static void give_back(taken *t)
{
    while (t->n > 0) {
        t->n--;
        ps_device_free(t->of, t->block[t->n], t->bytes, NULL);
    }
}

static ps_status take_all(taken *t, int n)
{
    while (t->n < n) {
        PS_TRY(ps_device_alloc(t->of, t->bytes, &t->block[t->n]));
        t->n++;
        PS_TRY(ps_event_wait(ps_device_gave_after(t->of)));
    }
    return PS_OK;
}

/* One sample: each time would be another kind of memory. */
static ps_status measure_taking(ps_measuring *m, taken *t, int n, double scale, const char *unit, const char *what)
{
    ps_samples s = {.n_least = 1};
    const int64_t begin = ps_clock_ns();
    const ps_status st = take_all(t, n);
    const double seconds = ps_seconds_since(begin);
    give_back(t);
    PS_TRY(st);
    const double amount = (double)n * (double)t->bytes;
    ps_samples_add(&s, scale > 0 ? scale * amount / seconds
                                 : 1e6 * seconds / (amount / (double)ps_device_page_bytes(t->of)));
    (void)ps_measuring_report(m, &s, unit, "%s", what);
    return PS_OK;
}

ps_status ps_measure_taking(ps_measuring *m)
{
    const int64_t page = ps_device_page_bytes(m->device.memory);
    taken host = {.of = m->host.memory, .bytes = 4 * m->sizes->copy_bytes};
    taken pages = {.of = m->device.memory, .bytes = 4 * page};
    taken whole = {.of = m->device.memory, .bytes = 4 * page * N_BLOCKS};
    PS_TRY(measure_taking(m, &host, N_BLOCKS, 1e-9, "GB/s", "page-locked memory, the first time"));
    PS_TRY(measure_taking(m, &host, N_BLOCKS, 1e-9, "GB/s", "page-locked memory, again"));
    PS_TRY(measure_taking(m, &pages, N_BLOCKS, 0, "us", "a page of device memory, the first time"));
    return measure_taking(m, &whole, 1, 0, "us", "a page of device memory, mapped elsewhere");
}
