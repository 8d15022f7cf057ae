/* device_sim.c - a device of addresses without memory: touching one traps. Copies are complete when issued. */
#include "base/mem.h"
#include "device/device_impl.h"

#include <sys/mman.h>

typedef struct sim_stream {
    ps_stream base;
    ps_ticket issued;
} sim_stream;

static ps_status sim_map(ps_device *dev, int64_t bytes, void **out)
{
    (void)dev;
    return ps_address_reserve(bytes, PS_PAGE_BYTES, out);
}

static void sim_unmap(ps_device *dev, void *p, int64_t bytes)
{
    (void)dev;
    munmap(p, (size_t)bytes);
}

static ps_status sim_commit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev, (void)base, (void)offset, (void)bytes;
    return PS_OK;
}

static void sim_decommit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev, (void)base, (void)offset, (void)bytes;
}

static ps_status sim_stream_create(ps_device *dev, const char *name, ps_stream **out)
{
    (void)dev, (void)name;
    return ps_mem_alloc(1, sizeof(sim_stream), out);
}

static void sim_stream_destroy(ps_stream *stream)
{
    ps_mem_free(stream);
}

static ps_status sim_copy(ps_stream *stream, void *dst, const void *src, int64_t bytes, ps_ticket *out)
{
    sim_stream *s = (sim_stream *)stream;
    (void)dst, (void)src, (void)bytes;
    *out = ++s->issued;
    return PS_OK;
}

static ps_status sim_wait(ps_stream *stream, ps_ticket t)
{
    PS_ASSERT(t <= ((const sim_stream *)stream)->issued);
    (void)stream, (void)t;
    return PS_OK;
}

static bool sim_is_done(ps_stream *stream, ps_ticket t)
{
    (void)stream, (void)t;
    return true;
}

const ps_device_ops ps_device_sim_ops = {
    .name = "sim",
    .map = sim_map,
    .unmap = sim_unmap,
    .reserve = sim_map,
    .unreserve = sim_unmap,
    .commit = sim_commit,
    .decommit = sim_decommit,
    .stream_create = sim_stream_create,
    .stream_destroy = sim_stream_destroy,
    .copy = sim_copy,
    .wait = sim_wait,
    .is_done = sim_is_done,
};
