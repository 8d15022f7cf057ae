/* rows.c - memory for a micro-batch of a data loader, as a ps_batch. */
#include "base/mem.h"
#include "data/data_loader.h"

struct ps_rows {
    const ps_data_loader *loader;
    int64_t n_rows;
    ps_data_loader_batch arrays;
    ps_batch batch;
};

ps_status ps_rows_create(const ps_data_loader *loader, int64_t n_rows, ps_rows **out)
{
    PS_TRY(PS_NEED_FOR(out, "loader out", loader, out));
    ps_rows *r = NULL;
    if (n_rows < 1) return PS_FAIL(PS_EINVAL, "ps_rows_create: %lld rows, at least one is needed", (long long)n_rows);
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->loader = loader;
    r->n_rows = n_rows;
    const ps_status st = ps_data_loader_batch_init(&r->arrays, loader, n_rows);
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
    ps_data_loader_batch_deinit(&r->arrays);
    ps_mem_free(r);
}

void ps_rows_set_length(ps_rows *r, int64_t T)
{
    r->arrays.T = T;
}

/* The arrays have room for n_rows rows of the sequence length; samples longer than T would be cut. */
static ps_status check(const ps_rows *r, const char *call, ps_split split, int64_t first_sample, int64_t n)
{
    const int64_t T = r->arrays.T, T_max = ps_data_loader_sequence(r->loader);
    if ((int)split < 0 || split >= PS_SPLIT_COUNT)
        return PS_FAIL(PS_EINVAL, "%s: split %d, expected 0 to %d", call, (int)split, PS_SPLIT_COUNT - 1);
    if (n < 0 || n > r->n_rows)
        return PS_FAIL(PS_EINVAL, "%s: %lld samples, expected 0 to %lld, the rows that there are", call, (long long)n,
                       (long long)r->n_rows);
    if (first_sample < 0 || first_sample > INT64_MAX - n)
        return PS_FAIL(PS_EINVAL, "%s: sample %lld, samples are counted from 0", call, (long long)first_sample);
    if (T < 0 || T > T_max)
        return PS_FAIL(PS_EINVAL,
                       "%s: ps_rows_set_length has set rows of %lld tokens, expected 1 to %lld, the "
                       "sequence length, or 0 for that",
                       call, (long long)T, (long long)T_max);
    if (T == 0 || n == 0 || ps_data_loader_sample_count(r->loader, split) == 0) return PS_OK;
    const int64_t needed = ps_data_loader_length(r->loader, split, first_sample, n);
    if (T >= needed) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s: ps_rows_set_length has set rows of %lld tokens, but samples from %lld on need %lld "
                   "(ps_data_loader_length)",
                   call, (long long)T, (long long)first_sample, (long long)needed);
}

ps_status ps_rows_fill(ps_rows *r, ps_split split, int64_t first_sample, int64_t n)
{
    PS_TRY(PS_NEED("rows", r));
    PS_TRY(check(r, "ps_rows_fill", split, first_sample, n));
    return ps_data_loader_get(r->loader, split, first_sample, n, &r->arrays);
}

ps_status ps_rows_fill_once(ps_rows *r, ps_split split, int64_t first_sample, int64_t n)
{
    PS_TRY(PS_NEED("rows", r));
    PS_TRY(check(r, "ps_rows_fill_once", split, first_sample, n));
    return ps_data_loader_get_once(r->loader, split, first_sample, n, &r->arrays);
}

const ps_batch *ps_rows_batch(const ps_rows *r)
{
    return &r->batch;
}
