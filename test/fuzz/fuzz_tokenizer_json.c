/* A tokenizer.json, a zero byte, a text: what is opened must encode it, or say why not, and decode what it encoded. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *end = data + n, *zero = n > 0 ? memchr(data, 0, n) : NULL, *text = zero != NULL ? zero + 1 : end;
    ps_tokenizer *t = NULL;
    if (ps_tokenizer_create_json("t.json", (const char *)data, (zero != NULL ? zero : end) - data, &t) == PS_OK) {
        const ps_encode_options options = {.added_tokens = true, .max_length = n % 3 == 0 ? 8 : 0};
        ps_encoding e = {0};
        char *back = NULL;
        int64_t n_back;
        /* a byte without a token and a hopeless expression are errors here */
        if (ps_tokenizer_encode_sequence(t, &options, text, end - text, n % 2 == 0 ? "a b" : NULL, 3, &e) == PS_OK) {
            if (options.max_length > 0 && e.n > options.max_length) abort();
            if (ps_tokenizer_decode_plain(t, e.ids, e.n, &back, &n_back) != PS_OK) abort();
        }
        ps_mem_free(back);
        ps_encoding_deinit(&e);
    }
    ps_tokenizer_close(t);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
