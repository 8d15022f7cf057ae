#include "chunk/view.h"

#include "base/mem.h"
#include "chunk/store_impl.h"

/* Memory for n bytes, aligned for disk reads. */
static ps_status take_pages(ps_view *v, int64_t n)
{
    PS_TRY(ps_mem_alloc((size_t)(n + PS_PAGE_BYTES), 1, &v->memory));
    v->pages = (void *)(uintptr_t)ps_round_up((int64_t)(uintptr_t)v->memory, PS_PAGE_BYTES);
    v->n_bytes = n;
    return PS_OK;
}

/* Read the view's pages from the chunk's slot, or write them there. */
static ps_status transfer_pages(ps_store *s, const ps_view *v, ps_link link)
{
    ps_event e;
    PS_TRY(link == PS_LINK_DISK_READ ? ps_disk_read(s->r.disk, v->disk_offset, v->pages, v->n_bytes, NULL, &e)
                                     : ps_disk_write(s->r.disk, v->disk_offset, v->pages, v->n_bytes, NULL, &e));
    s->m.moved_bytes[link] += v->n_bytes;
    s->m.n_moves[link]++;
    return ps_event_wait(e);
}

static bool is_out_of_reach(const ps_store *s, ps_tier tier)
{
    return ps_device_has_memory(s->r.ram[tier]) && !ps_device_host_can_touch(s->r.ram[tier]);
}

/* A payload that the host cannot access is copied through the compute queue. */
static ps_status open_copy(ps_store *s, ps_tier tier, int64_t bytes, ps_view *v)
{
    PS_TRY(take_pages(v, bytes));
    PS_TRY(ps_queue_get(s->r.compute[tier], v->pages, v->payload, bytes)); /* the pin has made the queue wait */
    v->bytes = v->pages;
    return PS_OK;
}

static ps_status open_payload(ps_store *s, ps_tier tier, int64_t offset, int64_t bytes, ps_access_mode mode, ps_view *v)
{
    char *payload = NULL;
    PS_TRY(ps_store_pin(s, v->chunk, tier, mode, (void *)&payload));
    v->is_pinned = true;
    v->bytes = v->payload = payload + offset;
    ps_status st = PS_OK;
    if (is_out_of_reach(s, tier)) {
        st = open_copy(s, tier, bytes, v);
    } else {
        st = ps_residency_await_whole(&s->r, v->chunk, tier, NULL, PS_WAIT_ARRIVAL);
        if (st == PS_OK && v->is_changed) st = ps_residency_await_unused(&s->r, v->chunk, tier, NULL, PS_WAIT_CHANGE);
    }
    if (st != PS_OK) ps_store_unpin(s, v->chunk);
    return st;
}

static ps_status open_slot(ps_store *s, int64_t offset, int64_t bytes, ps_view *v)
{
    const int64_t first = offset / PS_PAGE_BYTES * PS_PAGE_BYTES;
    v->disk_offset = s->r.chunks[v->chunk].disk_offset + first;
    PS_TRY(take_pages(v, ps_round_up(offset + bytes, PS_PAGE_BYTES) - first));
    v->bytes = (char *)v->pages + (offset - first);
    return transfer_pages(s, v, PS_LINK_DISK_READ);
}

static ps_status open_view(ps_store *s, ps_tier tier, int64_t offset, int64_t bytes, ps_access_mode mode, ps_view *v)
{
    const chunk *c = &s->r.chunks[v->chunk];
    /* a transfer to the tier completes first; content about to change may not be copied meanwhile */
    if (mode != PS_ACCESS_READ || c->current == TIER_BIT(PS_TIER_DISK)) PS_TRY(ps_movement_retire(&s->m, v->chunk));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (is_current(c, (ps_tier)t)) return open_payload(s, (ps_tier)t, offset, bytes, mode, v);
    const bool is_kept = mode != PS_ACCESS_READ && c->keeps && c->kept_offset == NO_SLOT; /* by this change */
    if (is_current(c, PS_TIER_DISK) && !is_kept) return open_slot(s, offset, bytes, v);
    if (mode != PS_ACCESS_READ) return open_payload(s, tier, offset, bytes, mode, v);
    PS_TRY(take_pages(v, bytes)); /* zeros */
    v->bytes = v->pages;
    return PS_OK;
}

ps_status ps_view_open(ps_store *s, ps_chunk_id id, ps_tier tier, int64_t offset, int64_t bytes, ps_access_mode mode,
                       ps_view *v)
{
    PS_ASSERT(bytes <= PS_VIEW_BYTES_MAX && offset + bytes <= s->r.chunks[id].bytes && mode != PS_ACCESS_OVERWRITE);
    *v = (ps_view){.chunk = id, .is_changed = mode != PS_ACCESS_READ};
    const ps_status st = open_view(s, tier, offset, bytes, mode, v);
    if (st == PS_OK) return PS_OK;
    ps_mem_free(v->memory);
    *v = (ps_view){0};
    return st;
}

ps_status ps_view_close(ps_store *s, ps_view *v)
{
    ps_status st = PS_OK;
    if (v->is_pinned) {
        if (v->is_changed && v->bytes != v->payload)
            st = ps_queue_put(s->r.compute[s->r.chunks[v->chunk].pin_tier], v->payload, v->bytes, v->n_bytes);
        ps_store_unpin(s, v->chunk);
    } else if (v->is_changed)
        st = transfer_pages(s, v, PS_LINK_DISK_WRITE);
    ps_mem_free(v->memory);
    *v = (ps_view){0};
    return st;
}
