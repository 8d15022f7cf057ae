/* device_sim.c - a device of addresses without memory: touching one traps. Copies are complete when issued. */
#include "base/mem.h"
#include "device/device_impl.h"

#include <sys/mman.h>

typedef struct sim_stream {
    ps_stream base;
    ps_ticket issued;
} sim_stream;

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

static ps_status stream_create(ps_device *dev, const char *name, ps_stream **out)
{
    (void)dev, (void)name;
    return ps_mem_alloc(1, sizeof(sim_stream), out);
}

static void stream_destroy(ps_stream *stream)
{
    ps_mem_free(stream);
}

static ps_status stream_copy(ps_stream *stream, void *dst, const void *src, int64_t bytes, ps_ticket *out)
{
    sim_stream *s = (sim_stream *)stream;
    (void)dst, (void)src, (void)bytes;
    *out = ++s->issued;
    return PS_OK;
}

static ps_status stream_wait(ps_stream *stream, ps_ticket t)
{
    PS_ASSERT(t <= ((const sim_stream *)stream)->issued);
    (void)stream, (void)t;
    return PS_OK;
}

static bool stream_is_done(ps_stream *stream, ps_ticket t)
{
    (void)stream, (void)t;
    return true;
}

const ps_device_ops ps_device_sim_ops = {
    .name = "sim",
    .map = take_addresses,
    .unmap = give_addresses,
    .reserve = take_addresses,
    .unreserve = give_addresses,
    .commit = commit_range,
    .decommit = decommit_range,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .copy = stream_copy,
    .wait = stream_wait,
    .is_done = stream_is_done,
};
