/* decode.c - incremental decoding: ps_decode.
 *
 *     tokens      |================== KV cache ========================|== new: one pass ==|          |
 *     position    0                                                    length              + rows     max_length
 *
 * The plan has buffers for the longest pass (PS_DECODE_ROWS_MAX); shorter ones use the beginning of each. Passes have
 * one of a few sizes, so that workspace can be planned, and rows after the last token are padding: later rows overwrite
 * their entries in the cache before these are read. How tokens are split into passes is a function of their number and
 * position alone, so that the bits do not depend on budgets. */
#include "api/engine/engine.h"

#include <string.h>

static ps_status expect_decoding(const ps_engine *e, const char *call)
{
    if (e->settings.cache_positions == 0)
        return PS_FAIL(PS_ESTATE,
                       "%s: this engine has no KV cache; ps_initialize_generation_engine creates one with it", call);
    return ps_engine_expect(e, PS_ENGINE_READY, call);
}

static ps_status check_tokens(const ps_engine *e, const int32_t *tokens, int64_t n)
{
    if (tokens == NULL || n < 1) return PS_FAIL(PS_EINVAL, "ps_decode: at least one token is needed");
    if (n > e->settings.cache_positions - e->n_decoded)
        return PS_FAIL(PS_EINVAL,
                       "ps_decode: %lld tokens after %lld, but there is room for %lld (generation.max_length); "
                       "ps_decode_rewind starts again",
                       (long long)n, (long long)e->n_decoded, (long long)e->settings.cache_positions);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= e->program->n_input_tokens)
            return PS_FAIL(PS_EINVAL, "ps_decode: token %lld is %d, the model has %lld", (long long)i, tokens[i],
                           (long long)e->program->n_input_tokens);
    return PS_OK;
}

/* Rows of the next pass over n tokens with room for `room`: the fewest that hold all of them; but fewer than all when
 * more than half of the rows would be padding, or when there is no room for those. */
static int64_t pass_rows(const ps_code *p, int64_t n, int64_t room)
{
    int i = 0;
    while (i + 1 < p->n_row_counts && p->row_counts[i] < n) i++;
    while (i > 0 && (p->row_counts[i] > room || p->row_counts[i] > 2 * n)) i--;
    return p->row_counts[i];
}

static ps_status decode_pass(ps_engine *e, const int32_t *tokens, int64_t rows, int64_t n, float *logits)
{
    int32_t padded[PS_DECODE_ROWS_MAX] = {0};
    memcpy(padded, tokens, (size_t)n * sizeof *tokens);
    PS_TRY(ps_engine_run_outside_step(e, &(ps_pass){.kind = PS_PASS_INFER,
                                                    .batch = {.tokens = padded},
                                                    .output = logits,
                                                    .output_row = n - 1,
                                                    .first = e->n_decoded,
                                                    .rows = rows}));
    e->n_decoded += n;
    return PS_OK;
}

ps_status ps_decode(ps_engine *e, const int32_t *tokens, int64_t n, float *logits)
{
    PS_TRY(PS_NEED("engine tokens logits", e, tokens, logits));
    PS_TRY(expect_decoding(e, "ps_decode"));
    PS_TRY(check_tokens(e, tokens, n));
    for (int64_t done = 0, now; done < n; done += now) {
        const int64_t rows = pass_rows(e->shape->code, n - done, e->settings.cache_positions - e->n_decoded);
        now = ps_min_i64(rows, n - done);
        PS_TRY(decode_pass(e, tokens + done, rows, now, logits));
    }
    return PS_OK;
}

ps_status ps_decode_rewind(ps_engine *e, int64_t n)
{
    PS_TRY(PS_NEED("engine", e));
    PS_TRY(expect_decoding(e, "ps_decode_rewind"));
    if (n < 0 || n > e->n_decoded)
        return PS_FAIL(PS_EINVAL, "ps_decode_rewind: to %lld of %lld tokens", (long long)n, (long long)e->n_decoded);
    e->n_decoded = n;
    return PS_OK;
}

void ps_decode_get_length(const ps_engine *e, int64_t *length, int64_t *max_length)
{
    if (length != NULL) *length = e->n_decoded;
    if (max_length != NULL) *max_length = e->settings.cache_positions;
}
