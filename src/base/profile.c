#include "base/profile.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/machine.h"
#include "base/mem.h"

#define BLOCK_RECORDS ((int64_t)8192)
#define ENOUGH_BYTES (64 * PS_MIB)

struct ps_profile {
    const int64_t *now_ns; /* NULL: the machine's clock */
    _Atomic bool is_on;
    bool was_on;
    int64_t begin_ns;
    pthread_mutex_t lock; /* all below */
    ps_profile_record **blocks;
    int64_t n_blocks, n_records, n_lost;
};

ps_status ps_profile_create(const int64_t *now_ns, ps_profile **out)
{
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->now_ns = now_ns;
    pthread_mutex_init(&(*out)->lock, NULL);
    return PS_OK;
}

void ps_profile_use_clock(ps_profile *p, const int64_t *now_ns)
{
    if (p != NULL) p->now_ns = now_ns;
}

void ps_profile_destroy(ps_profile *p)
{
    if (p == NULL) return;
    for (int64_t i = 0; i < p->n_blocks; i++) ps_mem_free(p->blocks[i]);
    ps_mem_free(p->blocks);
    pthread_mutex_destroy(&p->lock);
    ps_mem_free(p);
}

static int64_t read_clock(const ps_profile *p)
{
    return p->now_ns != NULL ? *p->now_ns : ps_clock_ns();
}

void ps_profile_start(ps_profile *p)
{
    if (p == NULL) return;
    if (!p->was_on) p->begin_ns = read_clock(p);
    p->was_on = true;
    atomic_store(&p->is_on, true);
}

void ps_profile_stop(ps_profile *p)
{
    if (p != NULL) atomic_store(&p->is_on, false);
}

void ps_profile_clear(ps_profile *p)
{
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    for (int64_t i = 0; i < p->n_blocks; i++) ps_mem_free(p->blocks[i]);
    ps_mem_free(p->blocks);
    p->blocks = NULL;
    p->n_blocks = p->n_records = p->n_lost = 0;
    p->was_on = false;
    p->begin_ns = 0;
    pthread_mutex_unlock(&p->lock);
}

bool ps_profile_is_on(const ps_profile *p)
{
    return p != NULL && atomic_load_explicit(&p->is_on, memory_order_relaxed);
}

int64_t ps_profile_clock(const ps_profile *p)
{
    return ps_profile_is_on(p) ? read_clock(p) : 0;
}

static ps_status add_block(ps_profile *p)
{
    PS_TRY(ps_mem_reserve(&p->blocks, (size_t)p->n_blocks + 1, sizeof(ps_profile_record *)));
    PS_TRY(ps_mem_alloc((size_t)BLOCK_RECORDS, sizeof(ps_profile_record), &p->blocks[p->n_blocks]));
    p->n_blocks++;
    return PS_OK;
}

void ps_profile_append(ps_profile *p, const ps_profile_record *r)
{
    if (!ps_profile_is_on(p)) return;
    pthread_mutex_lock(&p->lock);
    if (p->n_records == p->n_blocks * BLOCK_RECORDS && add_block(p) != PS_OK) {
        p->n_lost++;
    } else {
        p->blocks[p->n_records / BLOCK_RECORDS][p->n_records % BLOCK_RECORDS] = *r;
        p->n_records++;
    }
    pthread_mutex_unlock(&p->lock);
}

int64_t ps_profile_begin_ns(const ps_profile *p)
{
    return p != NULL ? p->begin_ns : 0;
}

int64_t ps_profile_count(const ps_profile *p)
{
    return p != NULL ? p->n_records : 0;
}

const ps_profile_record *ps_profile_at(const ps_profile *p, int64_t i)
{
    PS_ASSERT(i >= 0 && i < p->n_records);
    return &p->blocks[i / BLOCK_RECORDS][i % BLOCK_RECORDS];
}

bool ps_profile_is_full(const ps_profile *p)
{
    return ps_profile_count(p) >= ENOUGH_BYTES / (int64_t)sizeof(ps_profile_record);
}

ps_status ps_profile_check(const ps_profile *p)
{
    if (p == NULL || p->n_lost == 0) return PS_OK;
    return PS_FAIL(PS_ENOMEM_HOST, "%lld records of the profile found no memory; record fewer steps (profile.steps)",
                   (long long)p->n_lost);
}
