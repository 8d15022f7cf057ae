/* device_fixture.h - for tests of devices: one of each kind that needs nothing else, and what it counts. */
#ifndef TEST_DEVICE_FIXTURE_H
#define TEST_DEVICE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/device.h"

#define PAGE PS_PAGE_BYTES

static const ps_device_ops *const all_ops[] = {&ps_device_cpu_ops, &ps_device_sim_ops};

static inline ps_device *device_new(const ps_device_ops *ops, int64_t budget)
{
    ps_device *d = NULL;
    assert_int_equal(ps_device_create(ops, "host", budget, &d), PS_OK);
    return d;
}

static inline void check_stats(const ps_device *d, int64_t used, int64_t kept, int64_t peak)
{
    const ps_device_stats s = ps_device_get_stats(d);
    assert_int_equal(s.used_bytes, used);
    assert_int_equal(s.kept_bytes, kept);
    assert_int_equal(s.peak_bytes, peak);
    assert_true(s.used_bytes + s.kept_bytes <= s.budget_bytes);
    assert_int_equal(ps_device_free_bytes(d), s.budget_bytes - used);
}

static inline void *block_new(ps_device *d, int64_t bytes)
{
    void *p = NULL;
    assert_int_equal(ps_device_alloc(d, bytes, &p), PS_OK);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % (uintptr_t)PAGE, 0);
    return p;
}

#endif
