#include "train/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/same_math.h"

/* Above this many the whole vocabulary is sorted instead of kept in order by insertion. */
#define INSERTION_MAX 1024

ps_status sampler_init(sampler *s, int64_t V, double temperature, int64_t top_k, uint64_t seed)
{
    *s = (sampler){.temperature = temperature, .top_k = top_k, .seed = seed, .V = V};
    return ps_mem_alloc((size_t)V, sizeof *s->order, &s->order);
}

void sampler_deinit(sampler *s)
{
    ps_mem_free(s->order);
    *s = (sampler){0};
}

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

/* The n likeliest tokens, in order, at the beginning of s->order. */
static void find_likeliest(sampler *s, const float *logits, int64_t n)
{
    if (n > INSERTION_MAX) {
        for (int32_t v = 0; v < s->V; v++) s->order[v] = v;
        qsort_r(s->order, (size_t)s->V, sizeof *s->order, by_logit, (void *)(uintptr_t)logits);
        return;
    }
    int64_t n_found = 0;
    for (int32_t v = 0; v < s->V; v++) {
        if (n_found == n && !(logits[v] > logits[s->order[n - 1]])) continue;
        int64_t at = n_found < n ? n_found++ : n - 1;
        for (; at > 0 && logits[v] > logits[s->order[at - 1]]; at--) s->order[at] = s->order[at - 1];
        s->order[at] = v;
    }
}

/* One of the n tokens at the beginning of s->order, the likeliest of them first. */
static int32_t draw(const sampler *s, const float *logits, int64_t n, int64_t index)
{
    const double top = (double)logits[s->order[0]];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ps_same_exp(((double)logits[s->order[i]] - top) / s->temperature);
    double left = (double)ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = s->seed}, (uint64_t)index)) * sum;
    for (int64_t i = 0; i < n; i++) {
        left -= ps_same_exp(((double)logits[s->order[i]] - top) / s->temperature);
        if (left < 0) return s->order[i];
    }
    return s->order[n - 1];
}

ps_status sampler_choose(sampler *s, const float *logits, int64_t index, int32_t *out)
{
    for (int64_t v = 0; v < s->V; v++)
        if (!isfinite(logits[v]))
            return PS_FAIL(PS_ENUMERIC, "the model's output is not finite: the logit of token %lld is %g", (long long)v,
                           (double)logits[v]);
    if (s->temperature <= 0) {
        *out = likeliest(logits, s->V);
        return PS_OK;
    }
    const int64_t n = s->top_k > 0 ? ps_min_i64(s->top_k, s->V) : s->V;
    find_likeliest(s, logits, n);
    *out = draw(s, logits, n, index);
    return PS_OK;
}
