/* gpu_memory.c - device memory: physical pages, address ranges, and the mappings between them.
 *
 * A free page may still be mapped where it was used last, its *home* if that is a region: when the same piece of the
 * region is committed again, as in each step, the page is already mapped. */
#include <stdio.h>

#include "base/mem.h"
#include "device/cuda/gpu_impl.h"

#define BUCKETS 1024
#define NONE (-1)

typedef struct range range;

/* Of all pages; free ones are in a list and are taken from its front. */
typedef struct page {
    ps_cu_page handle;
    bool is_given;
    range *home; /* of a free page: still mapped in this region, at home_at; NULL: in none */
    int64_t home_at;
    int before, dependents; /* in the list; NONE: its ends */
} page;

/* Addresses of a block or region. */
struct range {
    ps_cu_address base;
    int64_t n_pages;
    ps_ticket until; /* of a freed range: ticket of the releases queue after which it is unused */
    range *next;     /* in its bucket, or in the list of freed ranges */
    struct {
        int page;        /* mapped here; NONE */
        bool is_given;   /* in use: neither of a freed block nor decommitted */
        ps_ticket until; /* if not in use, but mapped: as above */
    } at[];
};

struct ps_gpu_memory {
    ps_gpu *gpu;
    page *pages;
    int n_pages;
    int first_free, last_free;
    range *buckets[BUCKETS];
    range *given_up, *last_given_up; /* freed ranges, in order */
    int64_t n_maps, n_unmaps;
};

/* ---- pages ---- */

static void list_remove(ps_gpu_memory *m, int i)
{
    page *p = &m->pages[i];
    *(p->before == NONE ? &m->first_free : &m->pages[p->before].dependents) = p->dependents;
    *(p->dependents == NONE ? &m->last_free : &m->pages[p->dependents].before) = p->before;
}

/* Pages with a home are taken last. */
static void list_add(ps_gpu_memory *m, int i)
{
    page *p = &m->pages[i];
    const bool is_first = p->home == NULL;
    p->before = is_first ? NONE : m->last_free;
    p->dependents = is_first ? m->first_free : NONE;
    *(p->before == NONE ? &m->first_free : &m->pages[p->before].dependents) = i;
    *(p->dependents == NONE ? &m->last_free : &m->pages[p->dependents].before) = i;
}

static void free_page(ps_gpu_memory *m, int i, range *home, int64_t home_at)
{
    page *p = &m->pages[i];
    p->is_given = false;
    p->home = home;
    p->home_at = home_at;
    list_add(m, i);
}

static void give_page(ps_gpu_memory *m, int i)
{
    list_remove(m, i);
    m->pages[i].is_given = true;
    m->pages[i].home = NULL;
}

static ps_status refuse_page(const ps_gpu_memory *m, ps_cu_result r)
{
    ps_gpu *g = m->gpu;
    size_t free_bytes = 0, total_bytes = 0;
    if (r != PS_CU_OUT_OF_MEMORY) return ps_gpu_check(g, r, "device memory");
    (void)g->driver->memory_info(&free_bytes, &total_bytes);
    return PS_FAIL(PS_ENOMEM_DEV,
                   "cuda: GPU %d (%s) has no memory left: %lld of its %lld MiB are used by this process, %lld free; "
                   "the rest belongs to "
                   "other processes (see nvidia-smi): end them, or lower memory.device",
                   g->options.ordinal, g->name, (long long)(m->n_pages * g->page_bytes / PS_MIB),
                   (long long)((int64_t)total_bytes / PS_MIB), (long long)((int64_t)free_bytes / PS_MIB));
}

static ps_status make_page(ps_gpu_memory *m)
{
    const ps_gpu *g = m->gpu;
    const ps_cu_page_properties what = {.type = PS_CU_PAGE_PINNED, .location = {PS_CU_LOCATION_DEVICE, g->device}};
    ps_cu_page handle = 0;
    PS_TRY(ps_mem_reserve(&m->pages, (size_t)m->n_pages + 1, sizeof m->pages[0]));
    const ps_cu_result r = g->driver->page_create(&handle, (size_t)g->page_bytes, &what, 0);
    if (r != PS_CU_SUCCESS) return refuse_page(m, r);
    m->pages[m->n_pages] = (page){.handle = handle};
    free_page(m, m->n_pages++, NULL, 0);
    return PS_OK;
}

/* ---- mapping ---- */

static ps_cu_address address_of(const ps_gpu_memory *m, const range *r, int64_t i)
{
    return r->base + (ps_cu_address)(i * m->gpu->page_bytes);
}

static ps_status map_any_page(ps_gpu_memory *m, range *r, int64_t i)
{
    ps_gpu *g = m->gpu;
    if (m->first_free == NONE) PS_TRY(make_page(m));
    const int p = m->first_free;
    PS_TRY(ps_gpu_check(g, g->driver->page_map(address_of(m, r, i), (size_t)g->page_bytes, 0, m->pages[p].handle, 0),
                        "mapping of device memory"));
    give_page(m, p);
    m->n_maps++;
    r->at[i].page = p;
    r->at[i].is_given = true;
    return PS_OK;
}

/* No item uses it any more. */
static void unmap_page(ps_gpu_memory *m, range *r, int64_t i)
{
    (void)m->gpu->driver->page_unmap(address_of(m, r, i), (size_t)m->gpu->page_bytes);
    m->n_unmaps++;
    page *p = &m->pages[r->at[i].page];
    if (p->home == r && p->home_at == i) p->home = NULL;
    r->at[i].page = NONE;
}

/* For a piece that is not in use, or whose allocation failed. */
static void give_up_piece(ps_gpu_memory *m, range *r, int64_t first, int64_t n, bool is_region)
{
    const ps_ticket until = ps_queue_event(m->gpu->releases[0]).ticket;
    for (int64_t i = first; i < first + n; i++) {
        if (!r->at[i].is_given) continue;
        r->at[i].is_given = false;
        r->at[i].until = until;
        free_page(m, r->at[i].page, is_region ? r : NULL, i);
    }
}

static ps_status let_touch(ps_gpu_memory *m, const range *r, int64_t first, int64_t n)
{
    ps_gpu *g = m->gpu;
    const ps_cu_access access = {.location = {PS_CU_LOCATION_DEVICE, g->device}, .flags = PS_CU_ACCESS_READ_WRITE};
    return n == 0
               ? PS_OK
               : ps_gpu_check(g,
                              g->driver->page_access(address_of(m, r, first), (size_t)(n * g->page_bytes), &access, 1),
                              "access to device memory");
}

/* Unmaps pages that other ranges own by now. Not before the work that used them here is done. */
static void clear_piece(ps_gpu_memory *m, range *r, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++) {
        if (r->at[i].page == NONE || r->at[i].is_given) continue;
        const ps_event e = {m->gpu->releases[0], r->at[i].until};
        if (!ps_event_is_done(e)) ps_event_outlast(e, PS_BLOCK_PAGE);
        unmap_page(m, r, i);
    }
}

/* Prefers pages whose home this region is, before another allocation takes them. */
static ps_status map_piece(ps_gpu_memory *m, range *r, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++) {
        const int p = r->at[i].page;
        if (p == NONE || m->pages[p].is_given || m->pages[p].home != r || m->pages[p].home_at != i) continue;
        give_page(m, p);
        r->at[i].is_given = true;
    }
    clear_piece(m, r, first, n);
    for (int64_t i = first, n_new = 0; i <= first + n; i++) {
        const bool is_new = i < first + n && r->at[i].page == NONE;
        if (is_new) PS_TRY(map_any_page(m, r, i));
        if (!is_new) PS_TRY(let_touch(m, r, i - n_new, n_new));
        n_new = is_new ? n_new + 1 : 0;
    }
    return PS_OK;
}

/* ---- ranges ---- */

static range **bucket_of(ps_gpu_memory *m, ps_cu_address base)
{
    return &m->buckets[base / (ps_cu_address)m->gpu->page_bytes % BUCKETS];
}

static range *find_range(ps_gpu_memory *m, const void *base)
{
    range *r = *bucket_of(m, (ps_cu_address)(uintptr_t)base);
    while (r->base != (ps_cu_address)(uintptr_t)base) r = r->next;
    return r;
}

static void end_range(ps_gpu_memory *m, range *r)
{
    for (int64_t i = 0; i < r->n_pages; i++)
        if (r->at[i].page != NONE) unmap_page(m, r, i);
    (void)m->gpu->driver->address_free(r->base, (size_t)(r->n_pages * m->gpu->page_bytes));
    ps_mem_free(r);
}

/* Freed ranges that no item uses any more. */
static void sweep(ps_gpu_memory *m)
{
    while (m->given_up != NULL && ps_event_is_done((ps_event){m->gpu->releases[0], m->given_up->until})) {
        range *r = m->given_up;
        m->given_up = r->next;
        end_range(m, r);
    }
}

static ps_status new_range(ps_gpu_memory *m, int64_t bytes, range **out)
{
    ps_gpu *g = m->gpu;
    const int64_t n = bytes / g->page_bytes;
    range *r = NULL;
    *out = NULL;
    PS_TRY(ps_gpu_enter(g));
    sweep(m);
    PS_TRY(ps_mem_alloc(1, sizeof *r + (size_t)n * sizeof r->at[0], &r));
    const ps_cu_result result = g->driver->address_reserve(&r->base, (size_t)bytes, (size_t)g->page_bytes, 0, 0);
    if (result != PS_CU_SUCCESS) {
        ps_mem_free(r);
        return ps_gpu_check(g, result, "addresses of device memory");
    }
    r->n_pages = n;
    for (int64_t i = 0; i < n; i++) r->at[i].page = NONE;
    range **bucket = bucket_of(m, r->base);
    r->next = *bucket;
    *bucket = r;
    *out = r;
    return PS_OK;
}

static void give_up_range(ps_gpu_memory *m, range *r)
{
    range **p = bucket_of(m, r->base);
    while (*p != r) p = &(*p)->next;
    *p = r->next;
    give_up_piece(m, r, 0, r->n_pages, false);
    for (int64_t i = 0; i < r->n_pages; i++)
        if (r->at[i].page != NONE && m->pages[r->at[i].page].home == r) m->pages[r->at[i].page].home = NULL;
    r->until = ps_queue_event(m->gpu->releases[0]).ticket;
    r->next = NULL;
    *(m->given_up == NULL ? &m->given_up : &m->last_given_up->next) = r;
    m->last_given_up = r;
}

ps_status ps_gpu_memory_create(ps_gpu *g, ps_gpu_memory **out)
{
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->gpu = g;
    (*out)->first_free = (*out)->last_free = NONE;
    return PS_OK;
}

/* The releases are done. */
void ps_gpu_memory_destroy(ps_gpu_memory *m)
{
    if (m == NULL) return;
    for (range *r = m->given_up, *next; r != NULL; r = next) {
        next = r->next;
        end_range(m, r);
    }
    for (int i = 0; i < m->n_pages; i++) (void)m->gpu->driver->page_release(m->pages[i].handle);
    ps_mem_free(m->pages);
    ps_mem_free(m);
}

void ps_gpu_memory_get_stats(const ps_gpu_memory *m, ps_gpu_stats *out)
{
    out->page_bytes_made = m->n_pages * m->gpu->page_bytes;
    out->n_maps = m->n_maps;
    out->n_unmaps = m->n_unmaps;
}

/* ---- the device ---- */

static ps_gpu_memory *memory_of(const ps_device *dev)
{
    return ((ps_gpu *)ps_device_driver(dev))->memory;
}

static ps_status map_block(ps_device *dev, int64_t bytes, void **out)
{
    ps_gpu_memory *m = memory_of(dev);
    range *r;
    *out = NULL;
    PS_TRY(new_range(m, bytes, &r));
    const ps_status st = map_piece(m, r, 0, r->n_pages);
    if (st != PS_OK)
        give_up_range(m, r);
    else
        *out = (void *)(uintptr_t)r->base;
    return st;
}

static void unmap_block(ps_device *dev, void *p, int64_t bytes)
{
    (void)bytes;
    give_up_range(memory_of(dev), find_range(memory_of(dev), p));
}

static ps_status reserve_region(ps_device *dev, int64_t bytes, void **out)
{
    range *r;
    *out = NULL;
    PS_TRY(new_range(memory_of(dev), bytes, &r));
    *out = (void *)(uintptr_t)r->base;
    return PS_OK;
}

static ps_status commit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    ps_gpu_memory *m = memory_of(dev);
    const int64_t page_bytes = m->gpu->page_bytes;
    range *r = find_range(m, base);
    PS_TRY(ps_gpu_enter(m->gpu));
    sweep(m);
    const ps_status st = map_piece(m, r, offset / page_bytes, bytes / page_bytes);
    /* pages at home may be accessed there at once */
    if (st != PS_OK) give_up_piece(m, r, offset / page_bytes, bytes / page_bytes, false);
    return st;
}

static void decommit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    ps_gpu_memory *m = memory_of(dev);
    const int64_t page_bytes = m->gpu->page_bytes;
    give_up_piece(m, find_range(m, base), offset / page_bytes, bytes / page_bytes, true);
}

const ps_device_ops ps_gpu_device_ops = {.name = "cuda",
                                         .is_asynchronous = true,
                                         .release = ps_gpu_release,
                                         .map = map_block,
                                         .unmap = unmap_block,
                                         .reserve = reserve_region,
                                         .unreserve = unmap_block,
                                         .commit = commit,
                                         .decommit = decommit,
                                         .queue_create = ps_gpu_queue_create_of};
