/* Any bytes as a file that may be compressed: the same text in one piece and in small ones, or the same refusal. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/byte_source.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                                \
    if (!(condition)) abort()
#define TEXT_BYTES_MAX PS_MIB

/* Read at most TEXT_BYTES_MAX bytes in pieces of `piece`. */
static ps_status read_pieces(const char *path, int64_t piece, char *out, int64_t *n_read)
{
    ps_byte_source *s = NULL;
    ps_status st = ps_byte_source_open(path, &s);
    int64_t n = 1;
    *n_read = 0;
    while (st == PS_OK && n > 0 && *n_read < TEXT_BYTES_MAX) {
        const int64_t n_max = ps_min_i64(piece, TEXT_BYTES_MAX - *n_read);
        st = ps_byte_source_read(s, out + *n_read, n_max, &n);
        MUST(st != PS_OK || (n >= 0 && n <= n_max));
        if (st == PS_OK) *n_read += n;
    }
    ps_byte_source_close(s);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const fuzz_file file = fuzz_file_make(data, n);
    char *whole = malloc((size_t)TEXT_BYTES_MAX), *parts = malloc((size_t)TEXT_BYTES_MAX), *all = NULL;
    int64_t n_whole, n_parts, n_all;
    MUST(whole != NULL && parts != NULL);
    const ps_status st = read_pieces(file.path, TEXT_BYTES_MAX, whole, &n_whole);
    MUST(st == PS_OK || (st == PS_EFORMAT && ps_last_error()[0] != '\0'));
    MUST(read_pieces(file.path, 1 + (int64_t)(n % 61), parts, &n_parts) == st);
    MUST(memcmp(whole, parts, (size_t)ps_min_i64(n_whole, n_parts)) == 0);
    if (st == PS_OK) MUST(n_whole == n_parts);
    if (ps_byte_source_read_all(file.path, TEXT_BYTES_MAX - 1, "", &all, &n_all) == PS_OK) {
        MUST(st == PS_OK && n_all == n_whole && memcmp(all, whole, (size_t)n_all) == 0 && all[n_all] == '\0');
        ps_mem_free(all);
    }
    free(whole);
    free(parts);
    close(file.fd);
    MUST(ps_mem_live_bytes() == 0);
    return 0;
}
