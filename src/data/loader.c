#include "data/loader.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/rng.h"

#define ROUNDS 6
#define HALF_BITS_MIN 4

struct ps_loader {
    const ps_dataset *dataset;
    int64_t sequence;
    int64_t n_windows[PS_SPLIT_COUNT], first_window[PS_SPLIT_COUNT];
    uint64_t seed;
    bool in_file_order;
};

/* Place i of a permutation of n numbers, chosen by (seed, epoch), without a table: a Feistel network permutes
 * 2^(2 half_bits) >= n numbers (Luby and Rackoff, SIAM J. Comput. 17, 1988), and is repeated until it falls below n
 * (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). At most some four repetitions on average, except
 * for tiny n, where the domain is kept large because few bits permute badly. */
static int64_t loader_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t i)
{
    int half_bits = HALF_BITS_MIN;
    while ((int64_t)1 << 2 * half_bits < n) half_bits++;
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half_bits) - 1);
    const ps_rng_key key = {seed, epoch};
    uint64_t x = (uint64_t)i;
    do {
        uint32_t left = (uint32_t)(x >> half_bits), right = (uint32_t)x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint32_t words[4];
            ps_rng_block(key, round << 32 | right, words);
            const uint32_t next = left ^ (words[0] & mask);
            left = right;
            right = next;
        }
        x = (uint64_t)left << half_bits | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

ps_status ps_loader_create(const ps_dataset *dataset, const ps_loader_options *options, ps_loader **out)
{
    *out = NULL;
    const int64_t n_tokens = ps_dataset_token_count(dataset), sequence = options->sequence;
    const double fraction = options->validation_fraction;
    if (sequence < 1 || sequence > INT32_MAX)
        return PS_FAIL(PS_EINVAL, "sequence length %lld, expected 1 to %d", (long long)sequence, INT32_MAX);
    if (!(fraction >= 0 && fraction < 1))
        return PS_FAIL(PS_EINVAL, "validation fraction %g, expected at least 0 and below 1", fraction);
    const int64_t n_windows = (n_tokens - 1) / sequence, n_needed = 1 + (fraction > 0);
    if (n_windows < n_needed)
        return PS_FAIL(PS_EINVAL,
                       "%s: %lld tokens, but %s needs %lld of them at sequence length %lld; use a longer text or a "
                       "shorter sequence",
                       ps_dataset_path(dataset), (long long)n_tokens,
                       fraction > 0 ? "a window to train on and one to validate on" : "one window",
                       (long long)(n_needed * sequence + 1), (long long)sequence);
    int64_t n_validation = (int64_t)((double)n_windows * fraction);
    if (fraction > 0) n_validation = ps_min_i64(ps_max_i64(n_validation, 1), n_windows - 1);
    ps_loader *l = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *l, &l));
    l->dataset = dataset;
    l->sequence = sequence;
    l->seed = options->seed;
    l->in_file_order = options->in_file_order;
    l->n_windows[PS_SPLIT_TRAIN] = n_windows - n_validation;
    l->n_windows[PS_SPLIT_VALIDATION] = n_validation;
    l->first_window[PS_SPLIT_VALIDATION] = n_windows - n_validation;
    *out = l;
    return PS_OK;
}

void ps_loader_destroy(ps_loader *l)
{
    ps_mem_free(l);
}

int64_t ps_loader_window_count(const ps_loader *l, ps_split split)
{
    return l->n_windows[split];
}

int64_t ps_loader_window_of(const ps_loader *l, ps_split split, int64_t sample)
{
    const int64_t n = l->n_windows[split], epoch = sample / n, place = sample % n;
    if (split == PS_SPLIT_TRAIN && !l->in_file_order) return loader_permute(l->seed, (uint64_t)epoch, n, place);
    return l->first_window[split] + place;
}

ps_status ps_loader_get(const ps_loader *l, ps_split split, int64_t first_sample, int64_t n_samples, int32_t *tokens,
                        int32_t *targets)
{
    PS_ASSERT(first_sample >= 0 && n_samples >= 0);
    const int64_t T = l->sequence;
    if (l->n_windows[split] == 0)
        return PS_FAIL(PS_EINVAL, "%s: no validation windows; set a validation fraction above 0",
                       ps_dataset_path(l->dataset));
    for (int64_t row = 0; row < n_samples; row++, tokens += T, targets += T) {
        const int64_t begin = ps_loader_window_of(l, split, first_sample + row) * T;
        PS_TRY(ps_dataset_read(l->dataset, begin, T, tokens));
        /* the targets are the tokens one place on; only the last one is not among them */
        memcpy(targets, tokens + 1, (size_t)(T - 1) * sizeof *targets);
        PS_TRY(ps_dataset_read(l->dataset, begin + T, 1, targets + T - 1));
    }
    return PS_OK;
}
