/* next_token.c - samples the next token from logits. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/same_math.h"
#include "base/sized.h"
#include "patrickstar_data.h"

/* Up to this many tokens are kept in order by insertion; for more the whole vocabulary is sorted. */
enum { INSERTION_MAX = 1024 };

static int32_t likeliest(const float *logits, int64_t V)
{
    int32_t best = 0;
    for (int32_t v = 1; v < V; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

static int by_logit(const void *a, const void *b, void *user)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const float *logits = user;
    if (logits[x] != logits[y]) return logits[x] > logits[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* The n most likely tokens in order: order [n]. */
static void insert_likeliest(const float *logits, int64_t V, int64_t n, int32_t *order)
{
    int64_t n_found = 0;
    for (int32_t v = 0; v < V; v++) {
        if (n_found == n && !(logits[v] > logits[order[n - 1]])) continue;
        int64_t at = n_found < n ? n_found++ : n - 1;
        for (; at > 0 && logits[v] > logits[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = v;
    }
}

/* All of them: order [V]. */
static void sort(const float *logits, int64_t V, int32_t *order)
{
    for (int32_t v = 0; v < V; v++) order[v] = v;
    qsort_r(order, (size_t)V, sizeof *order, by_logit, (void *)(uintptr_t)logits);
}

/* Sample one of the n tokens, which are sorted by probability. */
static int32_t draw(const float *logits, const int32_t *order, int64_t n, const ps_sample_options *o, int64_t index)
{
    const double top = (double)logits[order[0]];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ps_same_exp(((double)logits[order[i]] - top) / o->temperature);
    double left = (double)ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = o->seed}, (uint64_t)index)) * sum;
    for (int64_t i = 0; i < n; i++) {
        left -= ps_same_exp(((double)logits[order[i]] - top) / o->temperature);
        if (left < 0) return order[i];
    }
    return order[n - 1];
}

static ps_status check(const float *logits, int64_t n, const ps_sample_options *o)
{
    if (logits == NULL || n < 1 || n > INT32_MAX)
        return PS_FAIL(PS_EINVAL, "ps_sample_token: %lld logits, expected 1 to %d", (long long)n, INT32_MAX);
    if (!(o->temperature >= 0))
        return PS_FAIL(PS_EINVAL, "ps_sample_token: a temperature of %g, expected a number from 0", o->temperature);
    if (o->top_k < 0)
        return PS_FAIL(PS_EINVAL, "ps_sample_token: top_k = %lld, expected 0 (all tokens) or more",
                       (long long)o->top_k);
    for (int64_t v = 0; v < n; v++)
        if (!isfinite(logits[v]))
            return PS_FAIL(PS_ENUMERIC, "the model's output is not finite: the logit of token %lld is %g", (long long)v,
                           (double)logits[v]);
    return PS_OK;
}

ps_status ps_sample_token(const float *logits, int64_t n, const ps_sample_options *options, int64_t index,
                          int32_t *token)
{
    PS_TRY(PS_NEED("logits options token", logits, options, token));
    ps_sample_options o;
    int32_t few[INSERTION_MAX], *all = NULL;
    PS_TRY(PS_SIZED_TAKE(ps_sample_options, options, &o));
    PS_TRY(check(logits, n, &o));
    const int64_t k = o.top_k > 0 ? ps_min_i64(o.top_k, n) : n;
    if (o.temperature <= 0) {
        *token = likeliest(logits, n);
    } else if (k <= INSERTION_MAX) {
        insert_likeliest(logits, n, k, few);
        *token = draw(logits, few, k, &o, index);
    } else {
        PS_TRY(ps_mem_alloc((size_t)n, sizeof *all, &all));
        sort(logits, n, all);
        *token = draw(logits, all, k, &o, index);
        ps_mem_free(all);
    }
    return PS_OK;
}
