/* test_disk_pieces.c - which piece goes next, to which file, and what becomes of it: a disk without threads, whose part
 * the test plays. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device/disk_impl.h"

#define PAGE PS_PAGE_BYTES

/* Nobody issues or waits here: transfers are queued as if what they come after were done. */
static void disk_init(ps_disk *d, int n_files)
{
    *d = (ps_disk){.n_files = n_files};
    for (int i = 0; i < n_files; i++) d->files[i] = (ps_disk_file){.fd = -1, .is_direct = true};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->has_work, NULL);
    pthread_cond_init(&d->has_progress, NULL);
}

static void disk_deinit(ps_disk *d)
{
    while (d->first != NULL) {
        ps_disk_transfer *t = d->first;
        d->first = t->next;
        ps_mem_free(t);
    }
    pthread_cond_destroy(&d->has_progress);
    pthread_cond_destroy(&d->has_work);
    pthread_mutex_destroy(&d->lock);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static ps_disk_transfer *queue(ps_disk *d, bool is_write, int64_t offset, int64_t bytes)
{
    ps_disk_transfer *t = NULL;
    assert_int_equal(ps_mem_alloc(1, sizeof *t, &t), PS_OK);
    *t = (ps_disk_transfer){.is_write = is_write, .is_admitted = true, .offset = offset, .bytes = bytes};
    t->ticket = ++d->queue.issued;
    *(d->last != NULL ? &d->last->next : &d->first) = t;
    d->last = t;
    ps_disk_queue_transfer(d, t);
    return t;
}

static ps_disk_piece take(ps_disk *d)
{
    ps_disk_piece p;
    assert_int_equal(ps_disk_take(d, false, &p), PS_DISK_TAKEN);
    return p;
}

static void assert_nothing(ps_disk *d, ps_disk_take_result expected)
{
    ps_disk_piece p;
    assert_int_equal(ps_disk_take(d, false, &p), expected);
}

static void finish(ps_disk *d, ps_disk_piece p)
{
    assert_true(ps_disk_piece_advance(&p, p.bytes - p.done_bytes));
    ps_disk_finish(d, &p);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void test_a_read_does_not_wait_for_a_long_queue_of_writes(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    const ps_disk_transfer *w = queue(&d, true, 0, 256 * PS_MIB);
    const ps_disk_piece first = take(&d), second = take(&d);
    assert_ptr_equal(first.transfer, w);
    assert_ptr_equal(second.transfer, w);
    const ps_disk_transfer *r = queue(&d, false, 512 * PS_MIB, 6 * PS_MIB);
    ps_disk_piece p = take(&d); /* 8 MiB of writes under way, none of reads */
    assert_ptr_equal(p.transfer, r);
    p = take(&d);
    assert_ptr_equal(p.transfer, r);
    assert_int_equal(p.bytes, 2 * PS_MIB);
    p = take(&d);
    assert_ptr_equal(p.transfer, w);
    disk_deinit(&d);
}

static void test_reads_and_writes_take_turns_by_bytes(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    queue(&d, true, 0, 64 * PS_MIB);
    for (int i = 0; i < 32; i++) queue(&d, false, 64 * PS_MIB + i * PS_MIB, PS_MIB);
    int64_t taken[2] = {0, 0};
    for (int i = 0; i < 20; i++) {
        const ps_disk_piece p = take(&d);
        taken[p.is_write] += p.bytes;
        assert_in_range(taken[0] + 4 * PS_MIB - taken[1], 0, 8 * PS_MIB);
    }
    disk_deinit(&d);
}

/* However deep the queue: so much of a direction is under way, and no more until something of it is done. */
static void test_enough_is_under_way(void **state)
{
    (void)state;
    for (int n_files = 1; n_files <= 2; n_files++) {
        ps_disk d;
        disk_init(&d, n_files);
        ps_disk_transfer *w = queue(&d, true, 0, 256 * PS_MIB);
        int64_t bytes = 0;
        ps_disk_piece p = take(&d), next;
        for (bytes = p.bytes; ps_disk_take(&d, false, &next) == PS_DISK_TAKEN;) bytes += next.bytes;
        assert_int_equal(bytes, n_files * 32 * PS_MIB);
        queue(&d, false, 256 * PS_MIB, PAGE);
        assert_false(take(&d).is_write); /* the other direction is not kept from it */
        assert_nothing(&d, PS_DISK_NOTHING);
        finish(&d, p);
        p = take(&d);
        assert_ptr_equal(p.transfer, w);
        assert_nothing(&d, PS_DISK_NOTHING);
        d.closing = true; /* there are pieces still */
        assert_nothing(&d, PS_DISK_NOTHING);
        disk_deinit(&d);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Every page has a place of its own, and each file its share. */
static void test_each_page_has_its_place_in_one_of_the_files(void **state)
{
    (void)state;
    enum { PAGES = 24 * 256 };
    for (int n_files = 1; n_files <= 3; n_files++) {
        static uint8_t seen[3][PAGES];
        int64_t bytes[3] = {0}, furthest = 0;
        ps_disk d;
        memset(seen, 0, sizeof seen);
        disk_init(&d, n_files);
        const int64_t sizes[] = {5 * PAGE, 7 * PS_MIB, PS_MIB - 5 * PAGE, 3 * PAGE, 16 * PS_MIB - 3 * PAGE};
        int64_t at = 0;
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); at += sizes[i++]) {
            queue(&d, true, at, sizes[i]);
            for (ps_disk_piece p; ps_disk_take(&d, false, &p) == PS_DISK_TAKEN; finish(&d, p)) {
                for (int64_t page = p.offset / PAGE; page < (p.offset + p.bytes) / PAGE; page++)
                    assert_int_equal(seen[p.file][page]++, 0);
                bytes[p.file] += p.bytes;
                furthest = ps_max_i64(furthest, p.offset + p.bytes);
            }
        }
        for (int i = 0; i < n_files; i++) assert_int_equal(bytes[i], 24 * PS_MIB / n_files);
        assert_int_equal(furthest, 24 * PS_MIB / n_files); /* no gaps */
        assert_null(d.first);
        disk_deinit(&d);
    }
}

/* What was written in one piece is found where it is read in others. */
static void test_places_do_not_depend_on_how_a_transfer_is_cut(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 3);
    for (int64_t page = 0; page < 10 * 256; page += 77) {
        queue(&d, false, 0, 10 * PS_MIB);
        queue(&d, true, page * PAGE, PAGE);
        int whole_file = -1, file = -1;
        int64_t whole_offset = -1, offset = -1;
        int64_t at = 0;
        for (ps_disk_piece p; ps_disk_take(&d, false, &p) == PS_DISK_TAKEN; finish(&d, p)) {
            if (p.is_write) {
                file = p.file, offset = p.offset;
                continue;
            }
            if (page * PAGE >= at && page * PAGE < at + p.bytes)
                whole_file = p.file, whole_offset = p.offset + page * PAGE - at;
            at += p.bytes;
        }
        assert_int_equal(file, whole_file);
        assert_int_equal(offset, whole_offset);
    }
    disk_deinit(&d);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void test_short_transfers_go_on(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    queue(&d, false, 0, 10 * PAGE);
    ps_disk_piece p = take(&d);
    assert_false(ps_disk_piece_advance(&p, 3 * PAGE + 100)); /* from a page on */
    assert_int_equal(p.done_bytes, 3 * PAGE);
    assert_false(ps_disk_piece_advance(&p, -EINTR));
    assert_false(ps_disk_piece_advance(&p, -EAGAIN));
    assert_int_equal(p.done_bytes, 3 * PAGE);
    assert_true(ps_disk_piece_advance(&p, 7 * PAGE));
    assert_int_equal(p.error, 0);
    ps_disk_finish(&d, &p);
    assert_null(d.first);
    assert_int_equal(d.read_bytes, 10 * PAGE);
    disk_deinit(&d);
}

/* The second of two files fails: the rest is not tried, the failure says which, and what else waits goes on. */
static void test_a_failure_is_of_its_file(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 2);
    const ps_disk_transfer *bad = queue(&d, true, 4 * PS_MIB, 8 * PS_MIB);
    const ps_disk_transfer *good = queue(&d, true, 64 * PS_MIB, PS_MIB);
    ps_disk_piece a = take(&d), b = take(&d);
    assert_int_equal(a.file, 0);
    assert_int_equal(b.file, 1);
    assert_true(ps_disk_piece_advance(&b, -EIO));
    ps_disk_finish(&d, &b);
    assert_false(ps_disk_transfer_is_done(bad)); /* the other piece flies */
    ps_disk_piece p = take(&d);
    assert_ptr_equal(p.transfer, good);
    finish(&d, p);
    finish(&d, a);
    assert_true(ps_disk_transfer_is_done(bad));
    assert_int_equal(bad->error, EIO);
    assert_int_equal(bad->error_file, 1);
    assert_int_equal(bad->error_offset, 2 * PS_MIB);
    assert_int_equal(bad->error_wanted, PS_MIB);
    assert_int_equal(d.write_bytes, PS_MIB);
    assert_ptr_equal(d.first, bad); /* kept until it is told */
    assert_null(bad->next);
    d.closing = true;
    assert_nothing(&d, PS_DISK_CLOSED);
    disk_deinit(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_read_does_not_wait_for_a_long_queue_of_writes),
        cmocka_unit_test(test_reads_and_writes_take_turns_by_bytes),
        cmocka_unit_test(test_enough_is_under_way),
        cmocka_unit_test(test_each_page_has_its_place_in_one_of_the_files),
        cmocka_unit_test(test_places_do_not_depend_on_how_a_transfer_is_cut),
        cmocka_unit_test(test_short_transfers_go_on),
        cmocka_unit_test(test_a_failure_is_of_its_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
