/* device_sim.c - a device of addresses without memory: touching one traps. Queues do nothing, and may
 * keep estimated time. */
#include "device/device_impl.h"
#include "device/queue_impl.h"
#include "device/sim_time_impl.h"

#include <sys/mman.h>

static ps_status take_addresses(ps_device *dev, int64_t bytes, void **out)
{
    (void)dev;
    return ps_address_reserve(bytes, PS_PAGE_BYTES, out);
}

static void give_addresses(ps_device *dev, void *p, int64_t bytes)
{
    (void)dev;
    munmap(p, (size_t)bytes);
}

static ps_status commit_range(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev, (void)base, (void)offset, (void)bytes;
    return PS_OK;
}

static void decommit_range(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev, (void)base, (void)offset, (void)bytes;
}

static ps_status create_queue(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out)
{
    (void)name, (void)kind;
    ps_sim_time *time = ps_sim_time_of(dev);
    PS_TRY(ps_queue_now_create(true, out));
    const ps_status st = time != NULL ? ps_sim_clock_create(time, false, &(*out)->observed) : PS_OK;
    if (st == PS_OK) return PS_OK;
    ps_queue_destroy(*out);
    *out = NULL;
    return st;
}

#define SIMULATED                                                                                                      \
    .is_simulated = true, .gives_zeros = true, .map = take_addresses, .unmap = give_addresses,                         \
    .reserve = take_addresses, .unreserve = give_addresses, .commit = commit_range, .decommit = decommit_range,        \
    .queue_create = create_queue

const ps_device_ops ps_device_sim_ops = {.name = "sim", SIMULATED};
const ps_device_ops ps_device_sim_async_ops = {.name = "sim async", .is_asynchronous = true, SIMULATED};
