/* rows.c - memory for a micro-batch of a feed, as the engine takes it. */
#include "base/mem.h"
#include "data/feed.h"

struct ps_rows {
    const ps_feed *feed;
    ps_feed_batch arrays;
    ps_batch batch;
};

ps_status ps_rows_create(const ps_feed *feed, int64_t n_rows, ps_rows **out)
{
    PS_TRY(PS_NEED_FOR(out, "feed out", feed, out));
    ps_rows *r = NULL;
    if (n_rows < 1) return PS_FAIL(PS_EINVAL, "ps_rows_create: %lld rows, at least one is needed", (long long)n_rows);
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->feed = feed;
    const ps_status st = ps_feed_batch_init(&r->arrays, feed, n_rows);
    if (st != PS_OK) {
        ps_mem_free(r);
        return st;
    }
    r->batch = (ps_batch){.struct_size = sizeof r->batch,
                          .tokens = r->arrays.tokens,
                          .targets = r->arrays.targets,
                          .attention_mask = r->arrays.attention_mask,
                          .token_type_ids = r->arrays.token_type_ids,
                          .values = r->arrays.values};
    *out = r;
    return PS_OK;
}

void ps_rows_destroy(ps_rows *r)
{
    if (r == NULL) return;
    ps_feed_batch_deinit(&r->arrays);
    ps_mem_free(r);
}

void ps_rows_set_length(ps_rows *r, int64_t T)
{
    r->arrays.T = T;
}

ps_status ps_rows_fill(ps_rows *r, ps_split split, int64_t first_sample, int64_t n)
{
    PS_TRY(PS_NEED("rows", r));
    return ps_feed_get(r->feed, split, first_sample, n, &r->arrays);
}

ps_status ps_rows_fill_once(ps_rows *r, ps_split split, int64_t first_sample, int64_t n)
{
    PS_TRY(PS_NEED("rows", r));
    return ps_feed_get_once(r->feed, split, first_sample, n, &r->arrays);
}

const ps_batch *ps_rows_batch(const ps_rows *r)
{
    return &r->batch;
}
