#include "kernel/cpu/cpu_dnnl.h"

#include <pthread.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>

#include "base/mem.h"
#include "kernel/cpu/cpu_dnnl_level.h"
#include "kernel/cpu/cpu_matmul.h"

/* What makes two products the same primitive; compared as bytes, so it is cleared before it is filled. */
typedef struct dnnl_key {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t a_transposed, b_transposed, accumulate, has_bias;
    int32_t ab_dtype, c_dtype;
} dnnl_key;

typedef struct dnnl_entry {
    dnnl_key key;
    dnnl_primitive_t primitive; /* NULL: the entry is free */
    size_t scratch_bytes;
    uint64_t last_use;
    int n_users; /* threads that run it now */
} dnnl_entry;

/* A training step has some thirty shapes, and attention over T tokens seven for each of its T / 64 blocks of queries. */
#define DNNL_CACHE_SIZE 512

/* Making a primitive costs a millisecond: hence the cache. */
struct ps_dnnl {
    ps_cpu_isa isa;
    bool any_level;
    pthread_mutex_t lock;
    dnnl_engine_t engine; /* NULL until the first product */
    uint64_t clock;
    dnnl_entry entries[DNNL_CACHE_SIZE];
};

static ps_status dnnl_fail(dnnl_status_t status, const char *what, const dnnl_key *key)
{
    if (status == dnnl_out_of_memory)
        return PS_FAIL(PS_ENOMEM_HOST, "oneDNN: no memory to %s of a %lld x %lld x %lld product", what,
                       (long long)key->m, (long long)key->n, (long long)key->k);
    return PS_FAIL(PS_EDEVICE, "oneDNN: cannot %s of a %lld x %lld x %lld product of %s to %s (dnnl_status %d)", what,
                   (long long)key->m, (long long)key->n, (long long)key->k, ps_dtype_name((ps_dtype)key->ab_dtype),
                   ps_dtype_name((ps_dtype)key->c_dtype), (int)status);
}

static dnnl_key dnnl_key_of(const ps_matmul *p)
{
    dnnl_key key;
    memset(&key, 0, sizeof key);
    key.m = p->m, key.n = p->n, key.k = p->k;
    key.lda = p->lda, key.ldb = p->ldb, key.ldc = p->ldc;
    key.a_transposed = p->a_transposed, key.b_transposed = p->b_transposed;
    key.accumulate = p->accumulate, key.has_bias = p->bias != NULL;
    key.ab_dtype = (int32_t)p->ab_dtype, key.c_dtype = (int32_t)p->c_dtype;
    return key;
}

static dnnl_data_type_t dnnl_type_of(int32_t dtype)
{
    return dtype == PS_DTYPE_F32 ? dnnl_f32 : dtype == PS_DTYPE_BF16 ? dnnl_bf16 : dnnl_f16;
}

static dnnl_status_t dnnl_matrix(dnnl_memory_desc_t *md, int64_t rows, int64_t cols, int64_t ld, bool transposed,
                                 int32_t dtype)
{
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl_memory_desc_init_by_strides(md, 2, dims, dnnl_type_of(dtype), strides);
}

typedef struct dnnl_matrices {
    dnnl_memory_desc_t a, b, bias, c;
} dnnl_matrices;

static dnnl_status_t dnnl_matrices_init(dnnl_matrices *x, const dnnl_key *key)
{
    dnnl_status_t e = dnnl_matrix(&x->a, key->m, key->k, key->lda, key->a_transposed, key->ab_dtype);
    if (e == dnnl_success) e = dnnl_matrix(&x->b, key->k, key->n, key->ldb, key->b_transposed, key->ab_dtype);
    if (e == dnnl_success) e = dnnl_matrix(&x->bias, 1, key->n, key->n, false, key->ab_dtype);
    if (e == dnnl_success) e = dnnl_matrix(&x->c, key->m, key->n, key->ldc, false, key->c_dtype);
    return e;
}

static dnnl_status_t dnnl_attributes(dnnl_primitive_attr_t attr, bool accumulate)
{
    dnnl_status_t e = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (e != dnnl_success || !accumulate) return e;
    dnnl_post_ops_t ops;
    e = dnnl_post_ops_create(&ops);
    if (e != dnnl_success) return e;
    e = dnnl_post_ops_append_sum(ops, 1.0f);
    if (e == dnnl_success) e = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return e;
}

/* Fill entry->primitive and scratch_bytes. The lock is held. */
static dnnl_status_t dnnl_entry_create(const ps_dnnl *d, dnnl_entry *entry, const dnnl_key *key)
{
    dnnl_matrices x;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t e = dnnl_matrices_init(&x, key);
    if (e == dnnl_success) e = dnnl_matmul_desc_init(&desc, &x.a, &x.b, key->has_bias ? &x.bias : NULL, &x.c);
    if (e == dnnl_success) e = dnnl_primitive_attr_create(&attr);
    if (e == dnnl_success) e = dnnl_attributes(attr, key->accumulate);
    if (e == dnnl_success) e = dnnl_primitive_desc_create(&pd, &desc, attr, d->engine, NULL);
    if (e == dnnl_success) e = dnnl_primitive_create(&entry->primitive, pd);
    if (e == dnnl_success) {
        const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        entry->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
        entry->key = *key;
    }
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return e;
}

static void dnnl_entry_free(dnnl_entry *entry)
{
    if (entry->primitive) dnnl_primitive_destroy(entry->primitive);
    memset(entry, 0, sizeof *entry);
}

/* The entry for key, made if needed, with one more user. The lock is held. */
static ps_status dnnl_entry_get(ps_dnnl *d, const dnnl_key *key, dnnl_entry **out)
{
    dnnl_entry *victim = NULL;
    *out = NULL;
    for (int i = 0; i < DNNL_CACHE_SIZE; i++) {
        dnnl_entry *const e = &d->entries[i];
        if (e->primitive && memcmp(&e->key, key, sizeof *key) == 0) {
            *out = e;
            break;
        }
        if (e->n_users == 0 && (!victim || e->last_use < victim->last_use)) victim = e;
    }
    if (!*out) {
        if (!victim) return PS_FAIL(PS_EDEVICE, "oneDNN: %d products run at once; use fewer threads", DNNL_CACHE_SIZE);
        dnnl_entry_free(victim);
        const dnnl_status_t e = dnnl_entry_create(d, victim, key);
        if (e != dnnl_success) return dnnl_fail(e, "make the primitive", key);
        *out = victim;
    }
    (*out)->last_use = ++d->clock;
    (*out)->n_users++;
    return PS_OK;
}

/* The lock is held. */
static ps_status dnnl_start(ps_dnnl *d)
{
    if (d->engine != NULL) return PS_OK;
    PS_TRY(d->any_level ? ps_dnnl_level_fix_any() : ps_dnnl_level_fix(d->isa));
    const dnnl_status_t e = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (e == dnnl_success) return PS_OK;
    d->engine = NULL;
    return PS_FAIL(e == dnnl_out_of_memory ? PS_ENOMEM_HOST : PS_EDEVICE, "oneDNN: cannot start (dnnl_status %d)",
                   (int)e);
}

static ps_status dnnl_acquire(ps_dnnl *d, const dnnl_key *key, dnnl_entry **out)
{
    pthread_mutex_lock(&d->lock);
    ps_status st = dnnl_start(d);
    if (st == PS_OK) st = dnnl_entry_get(d, key, out);
    pthread_mutex_unlock(&d->lock);
    return st;
}

static void dnnl_release(ps_dnnl *d, dnnl_entry *entry)
{
    pthread_mutex_lock(&d->lock);
    entry->n_users--;
    pthread_mutex_unlock(&d->lock);
}

ps_status ps_dnnl_matmul_bytes(ps_dnnl *d, const ps_matmul *p, size_t *out)
{
    const dnnl_key key = dnnl_key_of(p);
    dnnl_entry *entry;
    *out = 0;
    PS_TRY(dnnl_acquire(d, &key, &entry));
    *out = entry->scratch_bytes;
    dnnl_release(d, entry);
    return PS_OK;
}

#define DNNL_MAX_ARGS 5

typedef struct dnnl_args {
    dnnl_exec_arg_t arg[DNNL_MAX_ARGS];
    int n;
} dnnl_args;

/* oneDNN's memory objects do not tell input from output, so constness ends here. */
static dnnl_status_t dnnl_args_add(const ps_dnnl *d, dnnl_args *args, int name, const dnnl_memory_desc_t *md,
                                   const void *data)
{
    void *handle;
    memcpy(&handle, &data, sizeof handle);
    args->arg[args->n].arg = name;
    const dnnl_status_t e = dnnl_memory_create(&args->arg[args->n].memory, md, d->engine, handle);
    if (e == dnnl_success) args->n++;
    return e;
}

static dnnl_status_t dnnl_run(const ps_dnnl *d, const dnnl_entry *entry, const ps_matmul *p, void *workspace)
{
    dnnl_matrices x;
    dnnl_args args = {.n = 0};
    dnnl_stream_t stream = NULL;
    dnnl_memory_desc_t scratch;
    const dnnl_dims_t scratch_dims = {(int64_t)entry->scratch_bytes};
    dnnl_status_t e = dnnl_matrices_init(&x, &entry->key);
    if (e == dnnl_success) e = dnnl_args_add(d, &args, DNNL_ARG_SRC, &x.a, p->a);
    if (e == dnnl_success) e = dnnl_args_add(d, &args, DNNL_ARG_WEIGHTS, &x.b, p->b);
    if (e == dnnl_success) e = dnnl_args_add(d, &args, DNNL_ARG_DST, &x.c, p->c);
    if (e == dnnl_success && p->bias) e = dnnl_args_add(d, &args, DNNL_ARG_BIAS, &x.bias, p->bias);
    if (e == dnnl_success && entry->scratch_bytes) {
        e = dnnl_memory_desc_init_by_tag(&scratch, 1, scratch_dims, dnnl_u8, dnnl_a);
        if (e == dnnl_success) e = dnnl_args_add(d, &args, DNNL_ARG_SCRATCHPAD, &scratch, workspace);
    }
    if (e == dnnl_success) e = dnnl_stream_create(&stream, d->engine, dnnl_stream_default_flags);
    if (e == dnnl_success) e = dnnl_primitive_execute(entry->primitive, stream, args.n, args.arg);
    if (e == dnnl_success) e = dnnl_stream_wait(stream);
    if (stream) dnnl_stream_destroy(stream);
    for (int i = 0; i < args.n; i++) dnnl_memory_destroy(args.arg[i].memory);
    return e;
}

ps_status ps_dnnl_matmul(ps_dnnl *d, const ps_matmul *p, void *workspace, size_t workspace_bytes)
{
    const dnnl_key key = dnnl_key_of(p);
    dnnl_entry *entry;
    PS_TRY(dnnl_acquire(d, &key, &entry));
    ps_status st = PS_OK;
    if (entry->scratch_bytes > workspace_bytes)
        st =
            PS_FAIL(PS_EINVAL, "oneDNN: a %lld x %lld x %lld product needs a workspace of %zu bytes, but was given %zu",
                    (long long)key.m, (long long)key.n, (long long)key.k, entry->scratch_bytes, workspace_bytes);
    const dnnl_status_t e = st == PS_OK ? dnnl_run(d, entry, p, workspace) : dnnl_success;
    dnnl_release(d, entry);
    return e == dnnl_success ? st : dnnl_fail(e, "run the primitive", &key);
}

int ps_dnnl_cache_count(ps_dnnl *d)
{
    int n = 0;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < DNNL_CACHE_SIZE; i++) n += d->entries[i].primitive != NULL;
    pthread_mutex_unlock(&d->lock);
    return n;
}

ps_status ps_dnnl_create(ps_cpu_isa isa, bool any_level, ps_dnnl **out)
{
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->isa = isa;
    (*out)->any_level = any_level;
    pthread_mutex_init(&(*out)->lock, NULL);
    return PS_OK;
}

void ps_dnnl_destroy(ps_dnnl *d)
{
    if (d == NULL) return;
    for (int i = 0; i < DNNL_CACHE_SIZE; i++) dnnl_entry_free(&d->entries[i]);
    if (d->engine != NULL) dnnl_engine_destroy(d->engine);
    pthread_mutex_destroy(&d->lock);
    ps_mem_free(d);
}
