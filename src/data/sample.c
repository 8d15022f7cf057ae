#include "data/sample.h"

#include <string.h>

#include "base/base.h"

ps_specials ps_specials_of(const ps_tokenizer *t)
{
    if (t == NULL) return PS_SPECIALS_NONE;
    return (ps_specials){.cls = ps_tokenizer_role(t, PS_ROLE_CLS),
                         .sep = ps_tokenizer_role(t, PS_ROLE_SEP),
                         .mask = ps_tokenizer_role(t, PS_ROLE_MASK),
                         .pad = ps_tokenizer_role(t, PS_ROLE_PAD),
                         .eot = ps_tokenizer_eot(t)};
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

ps_status ps_sample_encode(ps_tokenizer *t, bool added_tokens, const char *text, int64_t text_bytes, const char *pair,
                           int64_t pair_bytes, int64_t T, int32_t *out, int64_t *n_ids, int64_t *n_first)
{
    const ps_encode_options options = {.added_tokens = added_tokens, .max_length = T};
    ps_encoding e;
    PS_TRY(ps_tokenizer_encode_sequence(t, &options, text, text_bytes, pair, pair_bytes, &e));
    PS_ASSERT(e.n <= T);
    memcpy(out, e.ids, (size_t)e.n * sizeof *out);
    *n_ids = e.n;
    *n_first = 0;
    while (*n_first < e.n && e.type_ids[*n_first] == 0) ++*n_first;
    ps_encoding_deinit(&e);
    return PS_OK;
}
