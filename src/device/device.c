/* device.c - the budget: what may be drawn on it, and which freed pages are kept. Regions are in region.c; backends map
 * and copy memory (device_cpu.c, device_sim.c). */
#include "device/device.h"
#include "base/bytes.h"
#include "base/fault.h"
#include "base/mem.h"
#include "device/device_budget.h"
#include "device/device_impl.h"
#include "device/order.h"
#include "device/queue_impl.h"
#include "device/sim_time_impl.h"

#include <string.h>
#include <sys/mman.h>

/* ---- device ------------------------------------------------------------------------------------------------------ */

/* A simulated device releases memory on a queue if order or time is observed. */
static ps_status open_releases(ps_device *d)
{
    const bool is_looked_at =
        d->ops->is_simulated && d->observed.order != NULL && ps_order_is_as_if_later(d->observed.order);
    ps_sim_time *time = ps_sim_time_of(d);
    if (!is_looked_at && time == NULL) return PS_OK;
    PS_TRY(ps_host_queue_create("releases", &d->releases));
    ps_queue_set_order(d->releases, d->observed.order);
    return time != NULL ? ps_sim_clock_create(time, false, &d->releases->observed) : PS_OK;
}

ps_status ps_device_create(const ps_device_ops *ops, const char *name, int64_t budget_bytes, ps_device **out)
{
    return ps_device_create_on(ops, NULL, PS_PAGE_BYTES, name, budget_bytes, out);
}

ps_status ps_device_create_on(const ps_device_ops *ops, void *driver, int64_t page_bytes, const char *name,
                              int64_t budget_bytes, ps_device **out)
{
    *out = NULL;
    PS_ASSERT(page_bytes >= PS_PAGE_BYTES && page_bytes % PS_PAGE_BYTES == 0);
    if (budget_bytes < 0) return PS_FAIL(PS_EINVAL, "%s: budget of %lld bytes", name, (long long)budget_bytes);
    ps_device *d = NULL;
    ps_status st;
    PS_TRY(ps_mem_alloc(1, sizeof *d, &d));
    PS_TRY_GOTO(ps_mem_strdup(name, &d->name));
    d->ops = ops;
    d->driver = driver;
    d->page_bytes = page_bytes;
    d->budget_bytes = budget_bytes / page_bytes * page_bytes;
    d->keep = true;
    d->can_move = ops->move_out != NULL;
    PS_TRY_GOTO(open_releases(d));
    *out = d;
    return PS_OK;
out:
    ps_queue_destroy(d->releases);
    ps_mem_free(d->name);
    ps_mem_free(d);
    return st;
}

void ps_device_forget(const ps_device *d, const void *p, int64_t bytes)
{
    const ps_use all = {p, bytes, true, NULL};
    if (d->ops->is_simulated) ps_announce(&d->observed, &(ps_notice){.kind = PS_NOTICE_FORGOTTEN, .uses = &all});
}

static void unmap(ps_device *d, void *block, int64_t bytes)
{
    ps_device_forget(d, block, bytes);
    d->ops->unmap(d, block, bytes);
}

static kept_block take_kept(ps_device *d, int i)
{
    const kept_block b = d->kept[i];
    d->n_kept--;
    memmove(&d->kept[i], &d->kept[i + 1], (size_t)(d->n_kept - i) * sizeof d->kept[0]);
    d->kept_bytes -= b.bytes;
    return b;
}

static void drop_kept(ps_device *d, int i)
{
    const kept_block b = take_kept(d, i);
    if (b.region == NULL)
        unmap(d, b.p, b.bytes);
    else
        d->ops->decommit(d, b.region, (char *)b.p - b.region, b.bytes);
}

static void drop_all_kept(ps_device *d)
{
    while (d->n_kept > 0) drop_kept(d, 0);
}

/* Frees are no longer announced; all of them so far are over. */
static void stop_looking(ps_device *d)
{
    if (d->looked_at != NULL) ps_queue_set_order(d->looked_at, NULL);
    d->looked_at = NULL;
    if (d->releases != NULL) d->released = (ps_event){NULL, 0};
    ps_queue_destroy(d->releases);
    d->releases = NULL;
    d->observed.order = NULL;
}

void ps_device_destroy(ps_device *d)
{
    if (d == NULL) return;
    PS_ASSERT(d->used_bytes == 0);
    drop_all_kept(d);
    /* the next owner of these addresses is not ordered after earlier ones */
    ps_event_outlast(d->released, PS_BLOCK_FREE);
    stop_looking(d);
    ps_mem_free(d->name);
    ps_mem_free(d);
}

const char *ps_device_name(const ps_device *d)
{
    return d->name;
}

const ps_device_ops *ps_device_get_ops(const ps_device *d)
{
    return d->ops;
}

bool ps_device_has_memory(const ps_device *d)
{
    return !d->ops->is_simulated;
}

bool ps_device_host_can_touch(const ps_device *d)
{
    return d->ops->host_can_touch;
}

bool ps_device_is_asynchronous(const ps_device *d)
{
    return d->ops->is_asynchronous;
}

int64_t ps_device_page_bytes(const ps_device *d)
{
    return d->page_bytes;
}

void *ps_device_driver(const ps_device *d)
{
    return d->driver;
}

ps_status ps_device_set_order(ps_device *d, ps_order *o)
{
    stop_looking(d);
    d->observed.order = o;
    ps_observe(&d->observed, PS_OBSERVER_ORDER, o != NULL);
    return open_releases(d);
}

ps_order *ps_device_order(const ps_device *d)
{
    return d->observed.order;
}

ps_device_stats ps_device_get_stats(const ps_device *d)
{
    return (ps_device_stats){.budget_bytes = d->budget_bytes,
                             .used_bytes = d->used_bytes,
                             .peak_bytes = d->peak_bytes,
                             .kept_bytes = d->kept_bytes};
}

void ps_device_reset_peak(ps_device *d)
{
    d->peak_bytes = d->used_bytes;
}

void ps_device_set_keep(ps_device *d, bool keep)
{
    d->keep = keep;
    if (!keep) drop_all_kept(d);
}

void ps_device_forbid_moves(ps_device *d)
{
    d->can_move = false;
}

int64_t ps_device_free_bytes(const ps_device *d)
{
    return d->budget_bytes - d->used_bytes;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

int64_t ps_device_round_to_pages(const ps_device *d, int64_t bytes)
{
    return ps_round_up(bytes, d->page_bytes);
}

static ps_status refuse(const ps_device *d, int64_t bytes, const char *why)
{
    char text[3][PS_BYTES_TEXT_MAX];
    return PS_FAIL(PS_ENOMEM_DEV, "%s memory: %s needed, %s of %s in use: %s", d->name, ps_bytes_format(bytes, text[0]),
                   ps_bytes_format(d->used_bytes, text[1]), ps_bytes_format(d->budget_bytes, text[2]), why);
}

/* Compares before rounding, which could overflow. */
ps_status ps_device_admit(const ps_device *d, int64_t bytes)
{
    PS_ASSERT(bytes > 0);
    if (bytes > ps_device_free_bytes(d)) return refuse(d, bytes, "raise the budget or free memory first");
    if (ps_fault_hit(PS_FAULT_ALLOC)) return refuse(d, bytes, "the system refused");
    return PS_OK;
}

void ps_device_make_room(ps_device *d, int64_t bytes)
{
    while (d->used_bytes + d->kept_bytes + bytes > d->budget_bytes) drop_kept(d, 0);
}

void ps_device_count_used(ps_device *d, int64_t bytes)
{
    d->used_bytes += bytes;
    d->peak_bytes = ps_max_i64(d->peak_bytes, d->used_bytes);
    PS_ASSERT(d->used_bytes >= 0 && d->used_bytes + d->kept_bytes <= d->budget_bytes);
}

void ps_device_poison(ps_device *d, void *p, int64_t bytes)
{
#if PS_DEBUG >= 3
    if (d->ops->host_can_touch && d->ops->release == NULL) memset(p, 0xff, (size_t)bytes);
    d->gave_zeros = false;
#else
    (void)d, (void)p, (void)bytes;
#endif
}

bool ps_device_gave_zeros(const ps_device *d)
{
    return d->gave_zeros;
}

static void keep(ps_device *d, kept_block b)
{
    if (d->n_kept == KEPT_MAX) drop_kept(d, 0);
    d->kept[d->n_kept++] = b;
    d->kept_bytes += b.bytes;
}

void ps_device_keep_block(ps_device *d, void *block, int64_t bytes)
{
    keep(d, (kept_block){.p = block, .bytes = bytes});
}

void ps_device_keep_piece(ps_device *d, char *region, int64_t offset, int64_t bytes)
{
    keep(d, (kept_block){.p = region + offset, .bytes = bytes, .region = region});
}

bool ps_device_reuse_piece(ps_device *d, const char *region, int64_t offset, int64_t bytes)
{
    for (int i = d->n_kept - 1; i >= 0; i--) {
        if (d->kept[i].region != region) continue;
        const int64_t first = (char *)d->kept[i].p - region, n = d->kept[i].bytes;
        if (first >= offset + bytes || first + n <= offset) continue;
        if (first == offset && n == bytes) {
            (void)take_kept(d, i);
            return true;
        }
        drop_kept(d, i);
    }
    return false;
}

void *ps_device_reuse_block(ps_device *d, int64_t bytes, bool *is_new)
{
    for (int i = d->n_kept - 1; i >= 0; i--) {
        if (d->kept[i].bytes != bytes || d->kept[i].region != NULL) continue;
        const kept_block b = take_kept(d, i);
        *is_new = b.is_new;
        return b.p;
    }
    return NULL;
}

#define TOGETHER_MAX 16
#define TOGETHER_BYTES (32 * PS_MIB)

/* The number of blocks that fill large pages best, if no other kept block has to be released for them. */
static int blocks_together(const ps_device *d, int64_t bytes)
{
    const int64_t large = d->ops->large_page_bytes;
    const int64_t free_bytes = ps_min_i64(d->budget_bytes - d->used_bytes - d->kept_bytes, TOGETHER_BYTES);
    int best = 1;
    if (large == 0 || !d->keep) return best;
    for (int n = 2; n <= TOGETHER_MAX && n * bytes <= free_bytes; n++)
        if (n * bytes / large * best > best * bytes / large * n) best = n; /* more large pages a block */
    return best;
}

/* Maps several adjacent blocks; the others are kept for later allocations. */
static ps_status map_together(ps_device *d, int n, int64_t bytes, void **out)
{
    PS_TRY(d->ops->map(d, n * bytes, out));
    while (--n > 0) keep(d, (kept_block){.p = (char *)*out + n * bytes, .bytes = bytes, .is_new = true});
    return PS_OK;
}

/* Kept blocks may hold the memory that the system lacks: release them and try again. */
static ps_status map_block(ps_device *d, int64_t bytes, void **out)
{
    const int n = blocks_together(d, bytes);
    if (n > 1 && map_together(d, n, bytes, out) == PS_OK) return PS_OK;
    ps_device_make_room(d, bytes);
    const ps_status st = d->ops->map(d, bytes, out);
    if (st == PS_OK || d->n_kept == 0) return st;
    drop_all_kept(d);
    return d->ops->map(d, bytes, out);
}

/* Asynchronous devices wait, and may write, on a queue for releases; the host does so for simulated ones. */
static void announce_release(ps_device *d, const void *p, int64_t bytes, const ps_events *after)
{
    const ps_use use = {p, bytes, true, NULL};
    if (d->releases != NULL) {
        d->released = ps_host_queue_begin_item(d->releases, "release", after, &use, 1);
        ps_host_queue_end(d->releases, d->released.ticket, PS_OK);
        return;
    }
    ps_queue *q = d->released.queue;
    if (q == NULL || d->observed.order == NULL) return;
    if (q->observed.order == NULL) ps_queue_set_order(q, d->observed.order);
    d->looked_at = q;
    ps_queue_announce_issued(q, (ps_notice){.after = after, .name = "release", .uses = &use, .n_uses = 1});
}

void ps_device_observe_given(ps_device *d, const void *p, int64_t bytes)
{
    if (d->releases != NULL) announce_release(d, p, bytes, NULL);
}

ps_status ps_device_alloc(ps_device *d, int64_t bytes, void **out)
{
    *out = NULL;
    PS_TRY(ps_device_admit(d, bytes));
    bytes = ps_device_round_to_pages(d, bytes);
    bool is_new = true;
    *out = ps_device_reuse_block(d, bytes, &is_new);
    if (*out == NULL) PS_TRY(map_block(d, bytes, out));
    d->gave_zeros = is_new && d->ops->gives_zeros;
    ps_device_count_used(d, bytes);
    ps_device_poison(d, *out, bytes);
    ps_device_observe_given(d, *out, bytes);
    return PS_OK;
}

void ps_device_release_after(ps_device *d, void *p, int64_t bytes, const ps_events *after)
{
    ps_events waits_for = {.n = 0};
    for (int i = 0; after != NULL && i < after->n; i++)
        if (!ps_order_skips(d->observed.order, PS_WAIT_FREE)) ps_events_add(&waits_for, after->event[i]);
    if (d->ops->release != NULL || d->releases != NULL) {
        if (d->ops->release != NULL) d->released = d->ops->release(d, p, bytes, &waits_for);
        announce_release(d, p, bytes, &waits_for);
        return;
    }
    const ps_use use = {p, bytes, true, NULL};
    for (int i = 0; i < waits_for.n; i++) ps_event_outlast(waits_for.event[i], PS_BLOCK_FREE);
    ps_announce(&d->observed, &(ps_notice){.kind = PS_NOTICE_TOUCHED, .name = "free", .uses = &use});
}

ps_event ps_device_gave_after(const ps_device *d)
{
    return d->released;
}

void ps_device_free(ps_device *d, void *block, int64_t bytes, const ps_events *after)
{
    if (block == NULL) return;
    ps_device_release_after(d, block, bytes, after);
    bytes = ps_device_round_to_pages(d, bytes);
    ps_device_poison(d, block, bytes); /* makes a use after free visible */
    ps_device_count_used(d, -bytes);
    if (d->keep)
        ps_device_keep_block(d, block, bytes);
    else
        unmap(d, block, bytes);
}

ps_status ps_device_claim(ps_device *d, int64_t bytes)
{
    PS_TRY(ps_device_admit(d, bytes));
    ps_device_make_room(d, ps_device_round_to_pages(d, bytes));
    ps_device_count_used(d, ps_device_round_to_pages(d, bytes));
    return PS_OK;
}

void ps_device_unclaim(ps_device *d, int64_t bytes)
{
    ps_device_count_used(d, -ps_device_round_to_pages(d, bytes));
}

void ps_device_let_go(ps_device *from, int64_t bytes)
{
    ps_device_count_used(from, -ps_device_round_to_pages(from, bytes));
}

/* Exchanges kept memory in the other direction: otherwise one device would create pages while the other releases
 * some. */
static void pass_kept(ps_device *d, ps_device *to)
{
    const kept_block b = d->kept[0];
    if (!to->keep || to->n_kept == KEPT_MAX || to->used_bytes + to->kept_bytes + b.bytes > to->budget_bytes) {
        drop_kept(d, 0);
        return;
    }
    (void)take_kept(d, 0);
    keep(to, b);
}

void ps_device_adopt_pages(ps_device *to, ps_device *from, int64_t bytes)
{
    bytes = ps_device_round_to_pages(to, bytes);
    PS_ASSERT(to->ops == from->ops && !to->ops->is_asynchronous && to->page_bytes == from->page_bytes);
    while (to->n_kept > 0 && to->used_bytes + to->kept_bytes + bytes > to->budget_bytes) pass_kept(to, from);
    ps_device_count_used(to, bytes);
}

ps_status ps_address_reserve(int64_t bytes, int64_t align, void **out)
{
    /* more than needed, so that an aligned range is in it; then both ends are unmapped */
    const int64_t slack = align > PS_PAGE_BYTES ? align : 0;
    *out = NULL;
    if (bytes > INT64_MAX - slack) return PS_FAIL(PS_ENOMEM_HOST, "cannot reserve %lld bytes", (long long)bytes);
    char *p = mmap(NULL, (size_t)(bytes + slack), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return PS_FAIL(PS_ENOMEM_HOST, "cannot reserve %lld bytes of addresses", (long long)bytes);
    const int64_t head = ps_round_up((int64_t)(uintptr_t)p, align) - (int64_t)(uintptr_t)p;
    if (head > 0) munmap(p, (size_t)head);
    if (slack - head > 0) munmap(p + head + bytes, (size_t)(slack - head));
    *out = p + head;
    return PS_OK;
}
