/* region.c - address ranges reserved once, whose pages are committed and decommitted: which of them are committed, and
 * how kept blocks become pieces of a region and back. */
#include "base/mem.h"
#include "device/device_budget.h"

struct ps_region {
    ps_device *dev;
    char *base;
    bool is_separate; /* the addresses are another region's */
    int64_t reserved_bytes, committed_bytes;
    uint64_t *committed; /* one bit a page, only with assertions */
    int64_t piece_bytes; /* size of all pieces so far; 0: none yet, MIXED_PIECES: they differ */
};

#define MIXED_PIECES ((int64_t)-1)
/* Regions of a plan may exceed any memory, so the page bitmap exists in debug builds only. */
#define TRACKS_PAGES (PS_DEBUG >= 1)

/* base NULL: reserves addresses. */
static ps_status create_region(ps_device *d, int64_t reserved_bytes, char *base, ps_region **out)
{
    *out = NULL;
    ps_region *r = NULL;
    void *own = NULL;
    ps_status st;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->dev = d;
    r->reserved_bytes = ps_device_round_to_pages(d, reserved_bytes);
    r->is_separate = base != NULL;
    if (base == NULL) PS_TRY_GOTO(d->ops->reserve(d, r->reserved_bytes, &own));
    r->base = base != NULL ? base : own;
    const int64_t n_words = TRACKS_PAGES ? ps_ceil_div(r->reserved_bytes, d->page_bytes * 64) : 0;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_words, sizeof r->committed[0], &r->committed));
    *out = r;
    return PS_OK;
out:
    if (own != NULL) d->ops->unreserve(d, own, r->reserved_bytes);
    ps_mem_free(r);
    return st;
}

ps_status ps_region_create(ps_device *d, int64_t reserved_bytes, ps_region **out)
{
    *out = NULL;
    if (reserved_bytes <= 0 || reserved_bytes > INT64_MAX / 2)
        return PS_FAIL(PS_EINVAL, "%s: region of %lld bytes", d->name, (long long)reserved_bytes);
    return create_region(d, reserved_bytes, NULL, out);
}

ps_status ps_region_create_paired(ps_device *d, const ps_region *of, ps_region **out)
{
    PS_ASSERT(d->ops == of->dev->ops && d->page_bytes == of->dev->page_bytes);
    return create_region(d, of->reserved_bytes, of->base, out);
}

void ps_region_destroy(ps_region *r)
{
    if (r == NULL) return;
    if (r->dev->ops->pieces_stay) (void)ps_device_reuse_piece(r->dev, r->base, 0, r->reserved_bytes);
    if (!r->is_separate) {
        ps_device_forget(r->dev, r->base, r->reserved_bytes);
        r->dev->ops->unreserve(r->dev, r->base, r->reserved_bytes);
    }
    ps_device_count_used(r->dev, -r->committed_bytes);
    ps_mem_free(r->committed);
    ps_mem_free(r);
}

void *ps_region_base(const ps_region *r)
{
    return r->base;
}

/* Flip the bits of pages [offset, offset + bytes). True when all of them were `before`. */
static bool region_flip(ps_region *r, int64_t offset, int64_t bytes, bool before)
{
    bool all = true;
    if (!TRACKS_PAGES) return true;
    const int64_t page_bytes = r->dev->page_bytes, end = (offset + bytes) / page_bytes;
    for (int64_t page = offset / page_bytes; page < end;) {
        const int64_t bit = page % 64, n = ps_min_i64(64 - bit, end - page);
        const uint64_t mask = (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << bit;
        uint64_t *word = &r->committed[page / 64];
        all = all && (*word & mask) == (before ? mask : 0);
        *word ^= mask;
        page += n;
    }
    return all;
}

static void region_check_range(const ps_region *r, int64_t offset, int64_t bytes)
{
    PS_ASSERT(offset >= 0 && offset % r->dev->page_bytes == 0);
    PS_ASSERT(bytes > 0 && bytes % r->dev->page_bytes == 0);
    PS_ASSERT(offset <= r->reserved_bytes - bytes);
    (void)r, (void)offset, (void)bytes;
}

static void note_committed(ps_region *r, int64_t offset, int64_t bytes)
{
    const bool was_free = region_flip(r, offset, bytes, false);
    PS_ASSERT(was_free);
    (void)was_free;
    r->committed_bytes += bytes;
}

static void note_decommitted(ps_region *r, int64_t offset, int64_t bytes)
{
    const bool was_committed = region_flip(r, offset, bytes, true);
    PS_ASSERT(was_committed);
    (void)was_committed;
    r->committed_bytes -= bytes;
}

/* Are pages of a piece of this size worth keeping? Where sizes differ a kept block is seldom reused, and until then
 * takes the room of others that would be. */
static bool region_is_uniform(ps_region *r, int64_t bytes)
{
    if (r->piece_bytes == 0) r->piece_bytes = bytes;
    if (r->piece_bytes != bytes) r->piece_bytes = MIXED_PIECES;
    return r->piece_bytes == bytes;
}

/* Commit by moving a kept block of exactly this size in, or by reusing the piece that stayed. False when there is none,
 * or it cannot be moved. */
static bool region_reuse(ps_region *r, int64_t offset, int64_t bytes, bool *is_new)
{
    ps_device *d = r->dev;
    if (d->ops->pieces_stay) {
        *is_new = false;
        return ps_device_reuse_piece(d, r->base, offset, bytes);
    }
    if (!region_is_uniform(r, bytes) || !d->can_move) return false;
    void *block = ps_device_reuse_block(d, bytes, is_new);
    if (block == NULL) return false;
    if (d->ops->move_in(d, r->base, offset, bytes, block) == PS_OK) return true;
    d->ops->unmap(d, block, bytes);
    return false;
}

/* Decommit by moving the pages out into a kept block, or by keeping the piece. False when they are to be
 * decommitted. */
static bool region_keep(ps_region *r, int64_t offset, int64_t bytes)
{
    ps_device *d = r->dev;
    if (d->ops->pieces_stay) {
        if (d->keep) ps_device_keep_piece(d, r->base, offset, bytes);
        return d->keep;
    }
    if (!region_is_uniform(r, bytes) || !d->can_move || !d->keep) return false;
    void *block = NULL;
    const ps_status st = d->ops->move_out(d, r->base, offset, bytes, &block);
    if (st == PS_ENOSYS) d->can_move = false;
    if (st == PS_OK) ps_device_keep_block(d, block, bytes);
    return st == PS_OK;
}

ps_status ps_region_commit(ps_region *r, int64_t offset, int64_t bytes)
{
    ps_device *d = r->dev;
    region_check_range(r, offset, bytes);
    PS_TRY(ps_device_admit(d, bytes));
    bool is_new = true;
    if (!region_reuse(r, offset, bytes, &is_new)) {
        is_new = true;
        ps_device_make_room(d, bytes);
        PS_TRY(d->ops->commit(d, r->base, offset, bytes));
    }
    d->gave_zeros = is_new && d->ops->gives_zeros;
    note_committed(r, offset, bytes);
    ps_device_count_used(d, bytes);
    ps_device_poison(d, r->base + offset, bytes);
    ps_device_observe_given(d, r->base + offset, bytes);
    return PS_OK;
}

void ps_region_decommit(ps_region *r, int64_t offset, int64_t bytes, const ps_events *after)
{
    region_check_range(r, offset, bytes);
    ps_device_release_after(r->dev, r->base + offset, bytes, after);
    note_decommitted(r, offset, bytes);
    ps_device_count_used(r->dev, -bytes);
    if (!region_keep(r, offset, bytes)) r->dev->ops->decommit(r->dev, r->base, offset, bytes);
}

void ps_region_let_go(ps_region *from, int64_t offset, int64_t bytes)
{
    region_check_range(from, offset, bytes);
    note_decommitted(from, offset, bytes);
    ps_device_let_go(from->dev, bytes);
}

void ps_region_adopt_pages(ps_region *to, ps_region *from, int64_t offset, int64_t bytes)
{
    PS_ASSERT(to->base == from->base);
    ps_device_adopt_pages(to->dev, from->dev, bytes);
    note_committed(to, offset, bytes);
    (void)region_is_uniform(to, bytes);
}
