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

/* No thread issues or waits here: transfers are queued as if what they come after were done. */
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

/* It is not touched: an address says of which offset it is. */
static char *memory_of(int64_t offset)
{
    return (char *)(uintptr_t)(PS_GIB + offset);
}

static ps_disk_transfer *queue(ps_disk *d, bool is_write, int64_t offset, int64_t bytes)
{
    ps_disk_transfer *t = NULL;
    assert_int_equal(ps_mem_alloc(1, sizeof *t, &t), PS_OK);
    *t = (ps_disk_transfer){
        .is_write = is_write, .is_admitted = true, .buffer = memory_of(offset), .offset = offset, .bytes = bytes};
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
    assert_ptr_equal(first.part[0].transfer, w);
    assert_ptr_equal(second.part[0].transfer, w);
    const ps_disk_transfer *r = queue(&d, false, 512 * PS_MIB, 6 * PS_MIB);
    ps_disk_piece p = take(&d); /* 8 MiB of writes under way, none of reads */
    assert_ptr_equal(p.part[0].transfer, r);
    p = take(&d);
    assert_ptr_equal(p.part[0].transfer, r);
    assert_int_equal(p.bytes, 2 * PS_MIB);
    p = take(&d);
    assert_ptr_equal(p.part[0].transfer, w);
    disk_deinit(&d);
}

static void test_reads_and_writes_take_turns_by_bytes(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    queue(&d, true, 0, 64 * PS_MIB);
    for (int i = 0; i < 32; i++) queue(&d, false, 64 * PS_MIB + i * 2 * PS_MIB, PS_MIB);
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
        assert_ptr_equal(p.part[0].transfer, w);
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
    assert_int_equal(p.part[0].error, 0);
    ps_disk_finish(&d, &p);
    assert_null(d.first);
    assert_int_equal(d.read_bytes, 10 * PAGE);
    disk_deinit(&d);
}

/* The second of two files fails: the rest is not tried, the failure says which, and what else waits is done. */
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
    assert_ptr_equal(p.part[0].transfer, good);
    finish(&d, p);
    finish(&d, a);
    assert_true(ps_disk_transfer_is_done(bad));
    assert_int_equal(bad->error, EIO);
    assert_int_equal(bad->error_file, 1);
    assert_int_equal(bad->error_offset, 2 * PS_MIB);
    assert_int_equal(bad->error_wanted, PS_MIB);
    assert_int_equal(d.write_bytes, PS_MIB);
    assert_ptr_equal(d.first, bad); /* kept until it is reported */
    assert_null(bad->next);
    d.closing = true;
    assert_nothing(&d, PS_DISK_CLOSED);
    disk_deinit(&d);
}

/* ---- several as one ---------------------------------------------------------------------------------------------- */

static void assert_buffer(const ps_disk_piece *p, int i, int64_t offset, int64_t bytes)
{
    assert_in_range(i, 0, p->n_buffers - 1);
    assert_ptr_equal(p->buffer[i].iov_base, memory_of(offset));
    assert_int_equal(p->buffer[i].iov_len, bytes);
}

/* The chunk's master, momentum and variance, and the next chunk's as far as they fit as a whole. */
static void test_neighbours_that_wait_go_as_one_request(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    int64_t at = 7 * PS_MIB;
    for (int i = 0; i < 4; i++, at += 9 * PS_MIB / 8) queue(&d, true, at, 9 * PS_MIB / 8);
    queue(&d, true, at + PAGE, PAGE); /* there is a gap */
    queue(&d, true, at, PAGE);        /* after it in the queue */
    ps_disk_piece p = take(&d), r[3];
    queue(&d, false, at + PAGE, PAGE); /* another direction */
    queue(&d, false, 64 * PS_MIB, 5 * PS_MIB);
    queue(&d, false, 69 * PS_MIB, PS_MIB); /* follows a large one, and its end */
    assert_true(p.is_write);
    assert_int_equal(p.n_parts, 3);
    assert_int_equal(p.offset, 7 * PS_MIB);
    assert_int_equal(p.bytes, 27 * PS_MIB / 8);
    for (int i = 0; i < 3; i++) assert_buffer(&p, i, 7 * PS_MIB + i * 9 * PS_MIB / 8, 9 * PS_MIB / 8);
    assert_int_equal(d.directions[true].flying_bytes, 27 * PS_MIB / 8);
    for (int i = 0; i < 3; i++) r[i] = take(&d);
    assert_true(!r[0].is_write && r[0].n_parts == 1 && r[0].bytes == PAGE);
    assert_true(!r[1].is_write && r[1].n_parts == 1 && r[1].bytes == 4 * PS_MIB);
    assert_true(r[2].is_write && r[2].n_parts == 1 && r[2].bytes == 9 * PS_MIB / 8);
    const int64_t written = d.write_bytes;
    finish(&d, p);
    assert_int_equal(d.write_bytes - written, 27 * PS_MIB / 8);
    for (int i = 0; i < 3; i++) finish(&d, r[i]);
    for (ps_disk_piece next; ps_disk_take(&d, false, &next) == PS_DISK_TAKEN; finish(&d, next))
        if (!next.is_write) {
            assert_int_equal(next.n_parts, 2);
            assert_buffer(&next, 0, 68 * PS_MIB, PS_MIB);
            assert_buffer(&next, 1, 69 * PS_MIB, PS_MIB);
        } else {
            assert_int_equal(next.n_parts, 1);
        }
    assert_null(d.first);
    assert_int_equal(d.n_requests, 7);
    assert_int_equal(d.directions[true].flying_bytes + d.directions[false].flying_bytes, 0);
    disk_deinit(&d);
}

/* No more than a system call takes, and of several files no more than the stripe. */
static void test_a_request_has_its_limits(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    for (int i = 0; i < PS_DISK_PARTS_MAX + 4; i++) queue(&d, false, i * PAGE, PAGE);
    ps_disk_piece p = take(&d);
    assert_int_equal(p.n_parts, PS_DISK_PARTS_MAX);
    finish(&d, p);
    p = take(&d);
    assert_int_equal(p.n_parts, 4);
    finish(&d, p);
    disk_deinit(&d);
    disk_init(&d, 2);
    for (int i = 0; i < 8; i++) queue(&d, true, i * PS_MIB / 2, PS_MIB / 2);
    for (int i = 0; i < 4; i++) {
        p = take(&d);
        assert_int_equal(p.n_parts, 2);
        assert_int_equal(p.file, i % 2);
        assert_int_equal(p.offset, i / 2 * PS_MIB);
        finish(&d, p);
    }
    static const int64_t quarters[] = {3, 1, 2, 2, 1}; /* of a MiB: three of three, across the ends of stripes */
    for (int i = 0; i < 3; i++) queue(&d, true, i * 3 * PS_MIB / 4, 3 * PS_MIB / 4);
    for (size_t i = 0; i < PS_ARRAY_LEN(quarters); i++) {
        p = take(&d);
        assert_int_equal(p.n_parts, 1);
        assert_int_equal(p.bytes, quarters[i] * PS_MIB / 4);
        finish(&d, p);
    }
    assert_null(d.first);
    disk_deinit(&d);
}

static void test_short_transfers_of_several_go_on(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    for (int i = 0; i < 3; i++) queue(&d, false, i * 4 * PAGE, 4 * PAGE);
    ps_disk_piece p = take(&d);
    assert_false(ps_disk_piece_advance(&p, 6 * PAGE + 5)); /* in the second */
    assert_int_equal(p.done_bytes, 6 * PAGE);
    assert_int_equal(p.n_buffers, 2);
    assert_buffer(&p, 0, 6 * PAGE, 2 * PAGE);
    assert_buffer(&p, 1, 8 * PAGE, 4 * PAGE);
    assert_false(ps_disk_piece_advance(&p, -EAGAIN));
    assert_int_equal(p.n_buffers, 2);
    assert_false(ps_disk_piece_advance(&p, 2 * PAGE)); /* to its very end */
    assert_int_equal(p.n_buffers, 1);
    assert_buffer(&p, 0, 8 * PAGE, 4 * PAGE);
    assert_true(ps_disk_piece_advance(&p, 4 * PAGE));
    ps_disk_finish(&d, &p);
    assert_null(d.first);
    assert_int_equal(d.read_bytes, 12 * PAGE);
    disk_deinit(&d);
}

/* A request of four fails: each is tried by itself, and the failure is reported for its owner, with its own place. */
static void test_a_failure_is_of_its_transfer(void **state)
{
    (void)state;
    ps_disk d;
    disk_init(&d, 1);
    ps_disk_transfer *t[4];
    for (int i = 0; i < 4; i++) t[i] = queue(&d, true, i * 4 * PAGE, 4 * PAGE);
    ps_disk_piece p = take(&d);
    assert_int_equal(p.n_parts, 4);
    assert_false(ps_disk_piece_advance(&p, 5 * PAGE)); /* the first, and a page of the second */
    assert_false(ps_disk_piece_advance(&p, -EIO));
    assert_int_equal(p.n_buffers, 1);
    assert_buffer(&p, 0, 5 * PAGE, 3 * PAGE);
    assert_false(ps_disk_piece_advance(&p, -EIO)); /* it is the second's */
    assert_int_equal(p.n_buffers, 1);
    assert_buffer(&p, 0, 8 * PAGE, 4 * PAGE);
    assert_false(ps_disk_piece_advance(&p, 4 * PAGE));
    assert_buffer(&p, 0, 12 * PAGE, 4 * PAGE);
    assert_true(ps_disk_piece_advance(&p, 100)); /* no whole page: full */
    ps_disk_finish(&d, &p);
    assert_ptr_equal(d.first, t[1]);
    assert_ptr_equal(t[1]->next, t[3]);
    assert_null(t[3]->next);
    assert_int_equal(d.write_bytes, 8 * PAGE);
    for (int i = 1; i < 4; i += 2) {
        assert_true(ps_disk_transfer_is_done(t[i]));
        assert_int_equal(t[i]->error, EIO);
        assert_int_equal(t[i]->error_offset, i * 4 * PAGE);
        assert_int_equal(t[i]->error_wanted, 4 * PAGE);
        assert_int_equal(t[i]->error_got, i == 1 ? PAGE : 0);
    }
    assert_int_equal(d.directions[true].flying_bytes, 0);
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
        cmocka_unit_test(test_neighbours_that_wait_go_as_one_request),
        cmocka_unit_test(test_a_request_has_its_limits),
        cmocka_unit_test(test_short_transfers_of_several_go_on),
        cmocka_unit_test(test_a_failure_is_of_its_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
