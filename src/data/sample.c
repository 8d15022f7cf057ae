#include "data/sample.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"

ps_specials ps_specials_of(const ps_tokenizer *t)
{
    ps_specials s = PS_SPECIALS_NONE;
    if (t != NULL) s.eot = ps_tokenizer_eot(t);
    return s;
}

int ps_specials_contain(const ps_specials *s, int32_t id)
{
    return id >= 0 && (id == s->cls || id == s->sep || id == s->mask || id == s->pad || id == s->eot);
}

int32_t ps_specials_filler(const ps_specials *s)
{
    if (s->pad >= 0) return s->pad;
    return s->eot >= 0 ? s->eot : 0;
}

/* Cut one token after the other, the pair's when it is at least as long as the text: when both give way, the text has the
 * odd one. */
static void sample_cut(int64_t *n_text, int64_t *n_pair, int64_t room)
{
    const int64_t text_half = (room + 1) / 2, pair_half = room / 2;
    if (*n_text + *n_pair <= room) return;
    *n_text = *n_pair <= pair_half ? room - *n_pair : ps_min_i64(*n_text, text_half);
    *n_pair = room - *n_text;
}

ps_status ps_sample_encode(ps_tokenizer *t, const ps_specials *s, const char *text, int64_t text_bytes,
                           const char *pair, int64_t pair_bytes, int64_t T, int32_t *out, int64_t *n_ids,
                           int64_t *n_first)
{
    int32_t *text_ids = NULL, *pair_ids = NULL;
    int64_t n_text, n_pair = 0, n = 0;
    ps_status st;
    const int64_t room = T - (s->cls >= 0) - (s->sep >= 0 ? (pair != NULL ? 2 : 1) : 0);
    if (room < 1)
        return PS_FAIL(PS_EINVAL, "a sequence length of %lld leaves no room between the special tokens", (long long)T);
    PS_TRY_GOTO(ps_tokenizer_encode(t, text, text_bytes, &text_ids, &n_text));
    if (pair != NULL) PS_TRY_GOTO(ps_tokenizer_encode(t, pair, pair_bytes, &pair_ids, &n_pair));
    sample_cut(&n_text, &n_pair, room);
    if (s->cls >= 0) out[n++] = s->cls;
    memcpy(out + n, text_ids, (size_t)n_text * sizeof *out);
    n += n_text;
    if (s->sep >= 0) out[n++] = s->sep;
    *n_first = n;
    if (pair != NULL) {
        memcpy(out + n, pair_ids, (size_t)n_pair * sizeof *out);
        n += n_pair;
        if (s->sep >= 0) out[n++] = s->sep;
    }
    *n_ids = n;
out:
    ps_mem_free(pair_ids);
    ps_mem_free(text_ids);
    return st;
}
