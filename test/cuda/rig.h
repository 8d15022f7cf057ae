/* rig.h - a GPU over the fake driver, its device and the host tier next to it. */
#ifndef TEST_CUDA_RIG_H
#define TEST_CUDA_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "assert_status.h"
#include "cuda/fake_driver.h"
#include "device/blocking.h"
#include "device/cuda/gpu.h"

#define PAGE (64 * PS_KIB)
#define DEVICE_BYTES (32 * PS_MIB)

typedef struct rig {
    ps_gpu *gpu;
    ps_device *device, *host;
} rig;

static inline rig rig_open(fake_options o)
{
    rig r;
    const ps_cuda_driver *d = fake_driver(&o);
    assert_ok(ps_gpu_open(d, &(ps_gpu_options){.poisons = true, .stream_commands = fake_depth()}, &r.gpu));
    const ps_space *s = ps_gpu_space(r.gpu);
    assert_ok(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", DEVICE_BYTES, &r.device));
    assert_ok(ps_device_create_on(s->host, s->driver, s->page_bytes, "host", DEVICE_BYTES, &r.host));
    return r;
}

static inline void rig_close(rig *r)
{
    ps_device_destroy(r->host);
    ps_device_destroy(r->device);
    ps_gpu_close(r->gpu);
    assert_true(fake_driver_end());
}

static inline ps_queue *queue_new(const rig *r)
{
    ps_queue *q = NULL;
    assert_ok(ps_queue_create(r->device, "work", PS_QUEUE_COMPUTE, &q));
    return q;
}

static inline void *block_new(ps_device *d, int64_t bytes)
{
    void *p = NULL;
    assert_ok(ps_device_alloc(d, bytes, &p));
    return p;
}

static inline void finish(ps_queue *q)
{
    assert_ok(ps_event_wait(ps_queue_event(q)));
}

#endif
