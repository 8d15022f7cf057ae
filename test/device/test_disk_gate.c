/* test_disk_gate.c - transfers of the disk that come after events: they begin when these are done, and what becomes of
 * failures before them. With io_uring where there is one, and with threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/status.h"
#include "device/blocking.h"
#include "device/disk.h"

#define assert_ok(expr) assert_int_equal((expr), PS_OK)
#define PAGE PS_PAGE_BYTES

enum { N = 24, LOOK_US = 2000 };

static const ps_disk_backend backends[] = {PS_DISK_AUTO, PS_DISK_THREADS};

typedef struct rig {
    ps_disk *disk;
    ps_queue *host; /* ended by the test */
    char *pages;    /* N + 1 to write from, as many to read into */
} rig;

static rig rig_open(ps_disk_backend backend)
{
    rig r = {0};
    assert_ok(ps_disk_open("/tmp", backend, 4, &r.disk));
    assert_ok(ps_host_queue_create("work", &r.host));
    r.pages = mmap(NULL, 2 * (N + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(r.pages != MAP_FAILED);
    return r;
}

static void rig_close(rig *r)
{
    ps_disk_close(r->disk);
    ps_queue_destroy(r->host);
    munmap(r->pages, 2 * (N + 1) * PAGE);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static char *out_page(const rig *r, int i)
{
    return r->pages + i * PAGE;
}

static char *in_page(const rig *r, int i)
{
    return r->pages + (N + 1 + i) * PAGE;
}

static ps_events after_one(ps_event e)
{
    ps_events all = {.n = 0};
    ps_events_add(&all, e);
    return all;
}

static ps_event write_page(const rig *r, int i, ps_event after)
{
    ps_event e;
    const ps_events all = after_one(after);
    assert_ok(ps_disk_write(r->disk, i * PAGE, out_page(r, i), PAGE, &all, &e));
    return e;
}

static ps_event read_page(const rig *r, int i, ps_event after)
{
    ps_event e;
    const ps_events all = after_one(after);
    assert_ok(ps_disk_read(r->disk, i * PAGE, in_page(r, i), PAGE, &all, &e));
    return e;
}

static void end(const rig *r, ps_event e, ps_status st)
{
    ps_host_queue_end(r->host, e.ticket, st);
}

/* What is written is what is there when the event is done, and what is read what was written before; the caller
 * continues meanwhile. Others overtake what waits. */
static void test_it_begins_after_its_events(void **state)
{
    (void)state;
    for (size_t b = 0; b < PS_ARRAY_LEN(backends); b++) {
        rig r = rig_open(backends[b]);
        ps_event made[N], read[N];
        const ps_blocked before = ps_blocked_so_far();
        for (int i = 0; i < N; i++) {
            made[i] = ps_host_queue_begin(r.host);
            memset(out_page(&r, i), 'x', PAGE);
            read[i] = read_page(&r, i, write_page(&r, i, made[i]));
        }
        const ps_event alone = write_page(&r, N, (ps_event){NULL, 0});
        const ps_blocked after = ps_blocked_so_far();
        assert_memory_equal(&after, &before, sizeof before);
        assert_ok(ps_event_wait(alone));
        usleep(LOOK_US);
        assert_false(ps_event_is_done(read[0]));
        assert_int_equal(ps_disk_get_stats(r.disk).write_bytes, PAGE);
        for (int i = 0; i < N; i++) {
            memset(out_page(&r, i), 'a' + i, PAGE);
            end(&r, made[i], PS_OK);
        }
        for (int i = N - 1; i >= 0; i--) {
            assert_ok(ps_event_wait(read[i]));
            assert_memory_equal(in_page(&r, i), out_page(&r, i), PAGE);
        }
        assert_int_equal(ps_blocked_so_far().n[PS_BLOCK_DISK], before.n[PS_BLOCK_DISK] + N + 1);
        rig_close(&r);
    }
}

/* All of several events count; what is done already holds nothing up. */
static void test_after_several(void **state)
{
    (void)state;
    for (size_t b = 0; b < PS_ARRAY_LEN(backends); b++) {
        rig r = rig_open(backends[b]);
        ps_queue *other = NULL;
        ps_event e;
        assert_ok(ps_host_queue_create("other", &other));
        const ps_event first = ps_host_queue_begin(r.host), second = ps_host_queue_begin(other);
        ps_events all = after_one(first);
        ps_events_add(&all, second);
        assert_ok(ps_disk_write(r.disk, 0, out_page(&r, 0), PAGE, &all, &e));
        ps_host_queue_end(other, second.ticket, PS_OK);
        usleep(LOOK_US);
        assert_false(ps_event_is_done(e));
        end(&r, first, PS_OK);
        assert_ok(ps_event_wait(e));
        assert_ok(ps_disk_write(r.disk, 0, out_page(&r, 0), PAGE, &all, &e));
        assert_ok(ps_event_wait(e));
        ps_queue_destroy(other);
        rig_close(&r);
    }
}

/* A failure before it is its own, and it is not tried; whether that was known when it was issued or came later. */
static void test_what_fails_before_it(void **state)
{
    (void)state;
    for (size_t b = 0; b < PS_ARRAY_LEN(backends); b++)
        for (int is_known = 0; is_known < 2; is_known++) {
            rig r = rig_open(backends[b]);
            const ps_event made = ps_host_queue_begin(r.host);
            if (is_known) end(&r, made, PS_FAIL(PS_ENUMERIC, "the maker fell asleep"));
            const ps_event write = write_page(&r, 0, made);
            if (!is_known) end(&r, made, PS_FAIL(PS_ENUMERIC, "the maker fell asleep"));
            assert_int_equal(ps_event_wait(write), PS_ENUMERIC);
            assert_non_null(strstr(ps_last_error(), "the maker fell asleep"));
            assert_ok(ps_event_wait(write)); /* reported once */
            assert_int_equal(ps_disk_get_stats(r.disk).write_bytes, 0);
            rig_close(&r);
        }
}

/* A transfer before it that failed is over, no more; a wait for that one still fails. */
static void test_a_transfer_that_fails_before_it(void **state)
{
    (void)state;
    for (size_t b = 0; b < PS_ARRAY_LEN(backends); b++)
        for (int is_held = 0; is_held < 2; is_held++) {
            rig r = rig_open(backends[b]);
            assert_ok(ps_event_wait(write_page(&r, 0, (ps_event){NULL, 0})));
            const ps_event made = is_held ? ps_host_queue_begin(r.host) : (ps_event){NULL, 0};
            ps_fault_arm(PS_FAULT_WRITE, 0, false);
            const ps_event fails = write_page(&r, 1, made), read = read_page(&r, 0, fails);
            ps_fault_arm(PS_FAULT_WRITE, -1, false);
            if (is_held) {
                usleep(LOOK_US);
                assert_false(ps_event_is_done(fails)); /* what it came after may use its buffer */
                end(&r, made, PS_OK);
            }
            assert_ok(ps_event_wait(read));
            assert_int_equal(ps_event_wait(fails), PS_EIO);
            rig_close(&r);
        }
}

/* These are not waited for; the disk closes when what they come after is done. */
static void test_closing_with_some_that_wait(void **state)
{
    (void)state;
    for (size_t b = 0; b < PS_ARRAY_LEN(backends); b++) {
        rig r = rig_open(backends[b]);
        ps_device *d = NULL;
        ps_queue *copies = NULL;
        assert_ok(ps_device_create(&ps_device_cpu_ops, "host", PAGE, &d));
        assert_ok(ps_queue_create(d, "copies", PS_QUEUE_COPY, &copies));
        for (int i = 0; i < N; i++) {
            assert_ok(ps_queue_copy(copies, out_page(&r, i), in_page(&r, i), PAGE));
            (void)read_page(&r, i, write_page(&r, i, ps_queue_event(copies)));
        }
        ps_disk_close(r.disk);
        r.disk = NULL;
        assert_true(ps_event_is_done(ps_queue_event(copies)));
        ps_queue_destroy(copies);
        ps_device_destroy(d);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_begins_after_its_events),  cmocka_unit_test(test_after_several),
        cmocka_unit_test(test_what_fails_before_it),        cmocka_unit_test(test_a_transfer_that_fails_before_it),
        cmocka_unit_test(test_closing_with_some_that_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
