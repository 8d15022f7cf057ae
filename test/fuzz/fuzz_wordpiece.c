/* A byte of options, a vocab.txt, a zero byte, a text: what is taken must encode any bytes, and decode its ids. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    const uint8_t *end = data + n, *zero = memchr(data + 1, 0, n - 1), *text = zero != NULL ? zero + 1 : end;
    const ps_wordpiece_options options = {
        .keep_case = data[0] & 1, .keep_accents = data[0] & 2, .strip_accents = data[0] & 4, .keep_cjk = data[0] & 8};
    ps_tokenizer *t = NULL;
    if (ps_tokenizer_create_wordpiece("vocab.txt", (const char *)data + 1, (zero != NULL ? zero : end) - data - 1,
                                      &options, &t) == PS_OK) {
        const ps_encode_options with_added = {.added_tokens = true};
        ps_encoding e = {0};
        char *back = NULL;
        int64_t n_back;
        if (ps_tokenizer_encode_sequence(t, &with_added, text, end - text, NULL, 0, &e) != PS_OK) abort();
        if (ps_tokenizer_decode(t, e.ids, e.n, &back, &n_back) != PS_OK) abort();
        ps_mem_free(back);
        ps_encoding_deinit(&e);
    }
    ps_tokenizer_close(t);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
