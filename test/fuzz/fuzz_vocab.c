/* vocab.json, a zero byte, merges.txt, a zero byte, a text: if the vocabulary is taken, the text must round-trip. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const uint8_t *cut(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *zero = p < end ? memchr(p, 0, (size_t)(end - p)) : NULL;
    return zero != NULL ? zero : end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *end = data + n, *merges = cut(data, end), *text = cut(merges + (merges < end), end);
    const int64_t vocab_bytes = merges - data;
    merges += merges < end;
    const int64_t merges_bytes = text - merges;
    text += text < end;
    ps_tokenizer *t = NULL;
    if (ps_tokenizer_create("vocab.json", (const char *)data, vocab_bytes, "merges.txt", (const char *)merges,
                            merges_bytes, &t) == PS_OK) {
        int32_t *ids = NULL;
        char *back = NULL;
        int64_t n_ids, n_back;
        if (ps_tokenizer_encode(t, text, end - text, &ids, &n_ids) != PS_OK) abort();
        if (ps_tokenizer_decode(t, ids, n_ids, &back, &n_back) != PS_OK) abort();
        if (n_back != end - text || memcmp(back, text, (size_t)n_back) != 0) abort();
        ps_mem_free(ids);
        ps_mem_free(back);
    }
    ps_tokenizer_close(t);
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
