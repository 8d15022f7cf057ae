/* broadcast_values.c - all ranks begin with the same tensors, and with rank 0's values of them: programs draw random
 * ones by different seeds, and each chunk gets its values from one rank only. */
#include <string.h>
#include <xxhash.h>

#include "api/external/client_calls.h"
#include "base/mem.h"

static bool has_values(const ps_client_tensor_state *t)
{
    return !t->is_dropped && t->given.address != NULL;
}

static int64_t given_bytes(const ps_client_tensor_state *t)
{
    return t->elements * (int64_t)ps_dtype_bytes(t->given_dtype);
}

/* Hash of everything but the values. */
static uint64_t hash_kind(const ps_client_tensor_state *t)
{
    const int32_t kind[] = {t->n_dims, (int32_t)t->given_dtype, t->is_frozen, t->is_unmanaged, t->is_dropped};
    XXH64_hash_t hash = XXH3_64bits_withSeed(kind, sizeof kind, 0);
    hash = XXH3_64bits_withSeed(t->shape, (size_t)t->n_dims * sizeof *t->shape, hash);
    return XXH3_64bits_withSeed(t->name, strlen(t->name), hash);
}

static uint64_t hash_values(const ps_client_tensor_state *t)
{
    return has_values(t) ? XXH3_64bits(t->given.address, (size_t)given_bytes(t)) : 0;
}

/* ---- the same tensors ---- */

static ps_status expect_count(const ps_client *c, int64_t n_first)
{
    if (c->n_tensors == n_first) return PS_OK;
    return PS_FAIL(PS_EINVAL, "rank %d has %d tensors, rank 0 has %lld: all ranks must add the same, in the same order",
                   c->settings.ranks.rank, c->n_tensors, (long long)n_first);
}

static ps_status expect_kinds(const ps_client *c, const uint64_t *of_first)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (hash_kind(&c->tensors[i]) != of_first[i])
            return PS_FAIL(
                PS_EINVAL,
                "tensor %d of rank %d (%.200s) has another name, shape or type on rank 0: all ranks must add "
                "the same, in the same order",
                i, c->settings.ranks.rank, c->tensors[i].name);
    return PS_OK;
}

/* hashes: [n_tensors], scratch. */
static ps_status compare_tensors(ps_client *c, uint64_t *hashes)
{
    for (int32_t i = 0; i < c->n_tensors; i++) hashes[i] = hash_kind(&c->tensors[i]);
    PS_TRY(ps_comm_broadcast(c->comm, hashes, c->n_tensors * (int64_t)sizeof *hashes, 0));
    return ps_comm_agree(c->comm, expect_kinds(c, hashes));
}

/* ---- the same values ---- */

/* own, of_first: [n_tensors] scratch. differs: [n_tensors] 1 where some rank has other values than rank 0. */
static ps_status compare_values(ps_client *c, uint64_t *own, uint64_t *of_first, double *differs)
{
    const int32_t n = c->n_tensors;
    for (int32_t i = 0; i < n; i++) {
        own[i] = hash_values(&c->tensors[i]);
        ps_staging_file_release(c->staging_file, &c->tensors[i].given);
    }
    memcpy(of_first, own, (size_t)n * sizeof *own);
    PS_TRY(ps_comm_broadcast(c->comm, of_first, n * (int64_t)sizeof *of_first, 0));
    for (int32_t i = 0; i < n; i++) differs[i] = own[i] != of_first[i];
    return ps_comm_all_reduce(c->comm, differs, n, PS_COMM_MAX);
}

static ps_status take_values(ps_client *c, const double *differs)
{
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        if (differs[i] == 0 || !has_values(t)) continue;
        PS_TRY(ps_comm_broadcast(c->comm, t->given.address, given_bytes(t), 0));
        ps_staging_file_release(c->staging_file, &t->given);
    }
    return PS_OK;
}

/* ---- ps_client_broadcast_values ---- */

static ps_status start(ps_client *c, uint64_t *own, uint64_t *of_first, double *differs)
{
    PS_TRY(compare_tensors(c, of_first));
    PS_TRY(compare_values(c, own, of_first, differs));
    return take_values(c, differs);
}

ps_status ps_client_broadcast_values(ps_client *c)
{
    int64_t n_first = c->n_tensors;
    const size_t n = (size_t)c->n_tensors;
    uint64_t *own = NULL, *of_first = NULL;
    double *differs = NULL;
    if (c->comm == NULL) return PS_OK;
    PS_TRY(ps_comm_broadcast(c->comm, &n_first, sizeof n_first, 0));
    PS_TRY(ps_comm_agree(c->comm, expect_count(c, n_first)));
    ps_status st = ps_mem_alloc(n, sizeof *own, &own);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *of_first, &of_first);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *differs, &differs);
    st = ps_comm_agree(c->comm, st);
    if (st == PS_OK) st = start(c, own, of_first, differs);
    ps_mem_free(own);
    ps_mem_free(of_first);
    ps_mem_free(differs);
    return st;
}
