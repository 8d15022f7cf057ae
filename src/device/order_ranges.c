#include "device/order_ranges.h"

#include <string.h>

void ps_order_ranges_init(ps_order_ranges *r)
{
    *r = (ps_order_ranges){.first_free = -1};
}

void ps_order_ranges_deinit(ps_order_ranges *r)
{
    ps_mem_free(r->range);
    ps_mem_free(r->touch);
    ps_order_ranges_init(r);
}

/* ---- lists of accesses ---- */

/* Reserves everything that one addition needs, so that nothing can fail in the middle of it. */
static ps_status reserve(ps_order_ranges *r, int32_t n_ranges, int32_t n_touches)
{
    PS_TRY(ps_mem_reserve(&r->range, (size_t)(r->n + n_ranges), sizeof *r->range));
    const int64_t more = ps_max_i64(n_touches - r->n_free, 0);
    return ps_mem_reserve(&r->touch, (size_t)(r->n_touches + more), sizeof *r->touch);
}

static int32_t take(ps_order_ranges *r, const ps_touch *copied, int32_t next)
{
    int32_t i = r->first_free;
    if (i < 0) {
        i = r->n_touches++;
    } else {
        r->first_free = r->touch[i].next;
        r->n_free--;
    }
    r->touch[i] = *copied;
    r->touch[i].next = next;
    return i;
}

/* Frees the first entry of a list; returns the rest. */
static int32_t drop_first(ps_order_ranges *r, int32_t first)
{
    const int32_t rest = r->touch[first].next;
    r->touch[first].next = r->first_free;
    r->first_free = first;
    r->n_free++;
    return rest;
}

static int32_t copy_list(ps_order_ranges *r, int32_t first)
{
    int32_t copy = -1, *end = &copy;
    for (int32_t i = first; i >= 0; i = r->touch[i].next) {
        *end = take(r, &r->touch[i], -1);
        end = &r->touch[*end].next;
    }
    return copy;
}

static int32_t list_len(const ps_order_ranges *r, int32_t first)
{
    int32_t n = 0;
    for (int32_t i = first; i >= 0; i = r->touch[i].next) n++;
    return n;
}

static bool is_same(const ps_touch *a, const ps_touch *b)
{
    return a->lane == b->lane && a->seq == b->seq && a->access.is_write == b->access.is_write &&
           a->access.begin == b->access.begin && a->access.end == b->access.end;
}

static bool is_same_list(const ps_order_ranges *r, int32_t i, int32_t k)
{
    while (i >= 0 && k >= 0 && is_same(&r->touch[i], &r->touch[k])) {
        i = r->touch[i].next;
        k = r->touch[k].next;
    }
    return i < 0 && k < 0;
}

static bool is_known(const ps_order_view *v, const ps_touch *a)
{
    return ps_clock_knows(v->host, a->lane, a->seq);
}

static bool is_before(const ps_order_view *v, const ps_touch *a, const ps_touch *b)
{
    return a->lane == b->lane || is_known(v, a) || ps_clock_knows(v->item, a->lane, a->seq);
}

/* The list of a range that b accesses, after adding b. */
static int32_t add_access(ps_order_ranges *r, const ps_order_view *v, int32_t first, const ps_touch *b)
{
    int32_t *link = &first;
    while (*link >= 0) {
        const ps_touch *a = &r->touch[*link];
        const bool both_read = !a->access.is_write && !b->access.is_write;
        const bool in_order = is_before(v, a, b);
        if (!in_order && !both_read) v->report(v->user, a, b);
        if (in_order && (b->access.is_write || both_read || is_known(v, a)))
            *link = drop_first(r, *link);
        else
            link = &r->touch[*link].next;
    }
    if (b->lane >= 0) *link = take(r, b, -1);
    return first;
}

/* ---- ranges ---- */

/* The first range that ends after `at`. */
static int32_t find(const ps_order_ranges *r, uint64_t at)
{
    int32_t low = 0, high = r->n;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (r->range[mid].end > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static void insert(ps_order_ranges *r, int32_t i, ps_touched_range range)
{
    memmove(&r->range[i + 1], &r->range[i], (size_t)(r->n - i) * sizeof *r->range);
    r->range[i] = range;
    r->n++;
}

/* Splits a range at `at`. Returns the first range after it. */
static int32_t cut(ps_order_ranges *r, uint64_t at)
{
    const int32_t i = find(r, at);
    if (i == r->n || r->range[i].begin >= at) return i;
    ps_touched_range head = r->range[i];
    head.end = at;
    head.first = copy_list(r, head.first);
    r->range[i].begin = at;
    insert(r, i, head);
    return i + 1;
}

/* Removes ranges [from, to) without accesses, and merges neighbours with equal lists. */
static void tidy(ps_order_ranges *r, int32_t from, int32_t to)
{
    int32_t out = from;
    for (int32_t i = from; i < to; i++) {
        const ps_touched_range range = r->range[i];
        ps_touched_range *before = out > from ? &r->range[out - 1] : NULL;
        if (range.first < 0) continue;
        if (before != NULL && before->end == range.begin && is_same_list(r, before->first, range.first)) {
            before->end = range.end;
            for (int32_t k = range.first; k >= 0;) k = drop_first(r, k);
        } else {
            r->range[out++] = range;
        }
    }
    memmove(&r->range[out], &r->range[to], (size_t)(r->n - to) * sizeof *r->range);
    r->n -= to - out;
}

/* Two splits copy a list each; an access is added to each range that it overlaps, and to the gaps between them. */
static ps_status reserve_for(ps_order_ranges *r, uint64_t begin, uint64_t end)
{
    int32_t n_met = 0, n_touches = 0;
    for (int32_t i = find(r, begin); i < r->n && r->range[i].begin < end; i++, n_met++)
        n_touches += list_len(r, r->range[i].first);
    return reserve(r, n_met + 3, 2 * n_touches + 2 * n_met + 3);
}

ps_status ps_order_ranges_add(ps_order_ranges *r, const ps_order_view *v, const ps_touch *b)
{
    const uint64_t begin = b->access.begin, end = b->access.end;
    if (begin >= end) return PS_OK;
    PS_TRY(reserve_for(r, begin, end));
    const int32_t first = cut(r, begin);
    (void)cut(r, end);
    int32_t i = first;
    for (uint64_t at = begin; at < end; at = r->range[i].end, i++) {
        const uint64_t next = i < r->n && r->range[i].begin < end ? r->range[i].begin : end;
        if (next > at) insert(r, i, (ps_touched_range){at, next, -1});
        r->range[i].first = add_access(r, v, r->range[i].first, b);
    }
    tidy(r, first > 0 ? first - 1 : 0, i < r->n ? i + 1 : i);
    return PS_OK;
}

ps_status ps_order_ranges_forget(ps_order_ranges *r, uint64_t begin, uint64_t end)
{
    PS_TRY(reserve_for(r, begin, end));
    const int32_t first = cut(r, begin);
    (void)cut(r, end);
    int32_t i = first;
    for (; i < r->n && r->range[i].begin < end; i++)
        while (r->range[i].first >= 0) r->range[i].first = drop_first(r, r->range[i].first);
    tidy(r, first, i);
    return PS_OK;
}

void ps_order_ranges_sweep(ps_order_ranges *r, const ps_order_view *v)
{
    enum { FEW = 64 };
    if (r->n < 2 * r->n_swept + FEW) return;
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t *link = &r->range[i].first; *link >= 0;) {
            if (is_known(v, &r->touch[*link]))
                *link = drop_first(r, *link);
            else
                link = &r->touch[*link].next;
        }
    tidy(r, 0, r->n);
    r->n_swept = r->n;
}
