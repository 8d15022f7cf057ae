/* Pieces of all sizes come out in order, whole and with the bytes that went in, however small the ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/mem.h"
#include "weights/piece_ring.h"

#define N_PIECES 400

static unsigned char byte_at(int32_t index, int64_t offset)
{
    return (unsigned char)((uint64_t)(index * 131 + offset * 7) * 2654435761u >> 9);
}

/* 1 byte to several times the ring */
static int64_t size_of(int32_t index)
{
    return index % 50 == 49 ? 100000 : 1 + (int64_t)index * index * 37 % (index % 3 == 0 ? 9000 : 300);
}

static void *put_all(void *arg)
{
    unsigned char *bytes = malloc(100000);
    for (int32_t i = 0; i < N_PIECES && bytes != NULL; i++) {
        for (int64_t k = 0; k < size_of(i); k++) bytes[k] = byte_at(i, 5 + k);
        ps_piece_ring_put(arg, &(ps_ring_piece){.index = i, .offset = 5, .n_bytes = size_of(i), .data = bytes});
    }
    free(bytes);
    ps_piece_ring_close(arg);
    return NULL;
}

static void pass_through(int64_t ring_bytes)
{
    ps_piece_ring *r = NULL;
    pthread_t thread;
    char *block = malloc((size_t)ring_bytes);
    assert_int_equal(ps_piece_ring_create(block, ring_bytes, &r), PS_OK);
    assert_int_equal(pthread_create(&thread, NULL, put_all, r), 0);
    int32_t index = 0;
    int64_t done = 0, parts = 0;
    ps_ring_piece p;
    for (; ps_piece_ring_take(r, &p); parts++) {
        assert_int_equal(p.index, index);
        assert_int_equal(p.offset, 5 + done);
        assert_true((const char *)p.data >= block && (const char *)p.data + p.n_bytes <= block + ring_bytes);
        const unsigned char *bytes = p.data;
        for (int64_t k = 0; k < p.n_bytes; k++)
            if (bytes[k] != byte_at(index, p.offset + k)) fail_msg("piece %d, byte %lld", index, (long long)(done + k));
        done += p.n_bytes;
        if (done < size_of(index)) continue;
        assert_int_equal(done, size_of(index));
        index++;
        done = 0;
    }
    pthread_join(thread, NULL);
    assert_int_equal(index, N_PIECES);
    assert_true(parts > N_PIECES || ring_bytes > 10000000);
    assert_false(ps_piece_ring_take(r, &p));
    ps_piece_ring_destroy(r);
    free(block);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[] = {
        PS_PIECE_RING_BYTES_MIN, PS_PIECE_RING_BYTES_MIN + 63, 20000, 65536, 100064, 20000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) pass_through(sizes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
