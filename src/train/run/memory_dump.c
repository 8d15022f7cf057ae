#include "train/run/memory_dump.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "chunk/store_stats.h"

#define LARGEST_MOMENTS 8

/* Thread-local, as the last error: where initialisation fails there is no engine that could hold it. */
static _Thread_local char last_dump[PS_MEMORY_DUMP_MAX];

typedef struct page {
    char *text;
    size_t n;
} page;

__attribute__((format(printf, 2, 3))) static void put(page *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(p->text + p->n, PS_MEMORY_DUMP_MAX - p->n, fmt, ap);
    va_end(ap);
    if (n > 0) p->n = (size_t)ps_min_i64((int64_t)p->n + n, PS_MEMORY_DUMP_MAX - 1);
}

static void put_bytes(page *p, int64_t bytes)
{
    char text[PS_BYTES_TEXT_MAX];
    put(p, " %12s", bytes != 0 ? ps_bytes_format(bytes, text) : "-");
}

static void put_row(page *p, const char *name, const int64_t bytes[PS_TIER_COUNT])
{
    put(p, "%-24s", name);
    for (int t = 0; t < PS_TIER_COUNT; t++) put_bytes(p, bytes[t]);
    put(p, "\n");
}

/* ---- tiers ---- */

static ps_memory_use use_of(const char *name, const int64_t bytes[PS_TIER_COUNT])
{
    return (ps_memory_use){.struct_size = sizeof(ps_memory_use),
                           .name = name,
                           .device_bytes = bytes[PS_TIER_DEVICE],
                           .host_bytes = bytes[PS_TIER_HOST],
                           .disk_bytes = bytes[PS_TIER_DISK]};
}

int ps_memory_uses(const ps_lists *lists, const ps_tiers *t, ps_memory_use uses[PS_MEMORY_USES_MAX])
{
    const ps_store_stats s = ps_store_get_stats(t->store);
    const int64_t page_bytes = ps_device_page_bytes(t->ram[PS_TIER_DEVICE]);
    int64_t other[PS_TIER_COUNT] = {0}, staging[PS_TIER_COUNT] = {0};
    const int64_t cache[PS_TIER_COUNT] = {[PS_TIER_DEVICE] = ps_round_up(t->cache_bytes, page_bytes)};
    const int64_t activations[PS_TIER_COUNT] = {[PS_TIER_DEVICE] = s.non_model_bytes};
    int n = 0;
    staging[t->staging_tier] =
        ps_round_up(t->staging_bytes, page_bytes) + ps_round_up(t->batch_copies_bytes, page_bytes);
    staging[t->comm_staging_tier] += ps_round_up(t->comm_staging_bytes, page_bytes);
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++)
        other[i] =
            ps_device_get_stats(t->ram[i]).used_bytes - s.chunk_bytes[i] - activations[i] - staging[i] - cache[i];
    for (ps_list list = 0; list < ps_lists_n_all(lists); list++) {
        int64_t bytes[PS_TIER_COUNT];
        if (!ps_lists_exists(lists, list)) continue;
        for (int i = 0; i < PS_TIER_COUNT; i++) bytes[i] = s.use[i].list_bytes[list];
        uses[n++] = use_of(lists->list[list].name, bytes);
    }
    uses[n++] = use_of("activations", activations);
    uses[n++] = use_of("staging", staging);
    if (t->cache_bytes > 0) uses[n++] = use_of("keys and values", cache);
    uses[n++] = use_of("other", other);
    return n;
}

static void put_use(page *p, const char *name, const ps_memory_use *use)
{
    const int64_t bytes[PS_TIER_COUNT] = {
        [PS_TIER_DEVICE] = use->device_bytes, [PS_TIER_HOST] = use->host_bytes, [PS_TIER_DISK] = use->disk_bytes};
    char indented[PS_LIST_TEXT_MAX + 2];
    snprintf(indented, sizeof indented, "  %s", name);
    put_row(p, indented, bytes);
}

static void put_tiers(page *p, const ps_exec_plan *b, const ps_tiers *t)
{
    const ps_store_stats s = ps_store_get_stats(t->store);
    ps_memory_use uses[PS_MEMORY_USES_MAX];
    const int n = ps_memory_uses(&b->lists, t, uses);
    int64_t budget[PS_TIER_COUNT] = {0}, used[PS_TIER_COUNT] = {0}, peak[PS_TIER_COUNT] = {0};
    int64_t kept[PS_TIER_COUNT] = {0}, free_bytes[PS_TIER_COUNT];
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) {
        const ps_device_stats d = ps_device_get_stats(t->ram[i]);
        budget[i] = d.budget_bytes, used[i] = d.used_bytes, peak[i] = d.peak_bytes, kept[i] = d.kept_bytes;
    }
    budget[PS_TIER_DISK] = t->disk_budget_bytes;
    used[PS_TIER_DISK] = s.disk_bytes;
    peak[PS_TIER_DISK] = s.disk_peak_bytes;
    for (int i = 0; i < PS_TIER_COUNT; i++) free_bytes[i] = budget[i] - used[i];
    put(p, "%-24s %12s %12s %12s\n", "memory", "device", "host", "disk");
    put_row(p, "budget", budget);
    put_row(p, "peak", peak);
    put_row(p, "in use", used);
    int i = 0; /* uses of lists come first, in order */
    for (ps_list list = 0; list < ps_lists_n_all(&b->lists); list++) {
        char name[PS_LIST_TEXT_MAX];
        if (ps_lists_exists(&b->lists, list))
            put_use(p, ps_lists_describe(&b->lists, list, b->settings->dtype, name), &uses[i++]);
    }
    for (; i < n; i++) put_use(p, uses[i].name, &uses[i]);
    put_row(p, "free", free_bytes);
    put_row(p, "  kept for reuse", kept);
}

/* ---- chunks ---- */

/* State of a chunk: chunk/store.h. */
enum { COMPUTE, HOLD, RELEASED, STATES };
/* A pinned chunk is read or written now; an empty one has no content on any tier. */
static const char *const state_names[STATES] = {"pinned", "held", "empty"};

static void put_chunk_row(page *p, const ps_exec_plan *b, const ps_store *s, ps_list list)
{
    int32_t all = 0, on[PS_TIER_COUNT] = {0}, in[STATES] = {0};
    char name[PS_LIST_TEXT_MAX];
    for (int32_t i = 0; i < ps_lists_length(&b->lists, b->layout, list); i++) {
        if (!ps_exec_plan_has_chunk(b, list, i)) continue;
        const ps_chunk_info c = ps_store_get_chunk(s, ps_store_chunk(b->layout, list, i));
        all++;
        in[c.pins > 0 ? COMPUTE : c.copies != 0 ? HOLD : RELEASED]++;
        for (int t = 0; t < PS_TIER_COUNT; t++) on[t] += (c.copies & 1u << t) != 0;
    }
    put(p, "%-22s %8d", ps_lists_describe(&b->lists, list, b->settings->dtype, name), all);
    for (int t = 0; t < PS_TIER_COUNT; t++) put(p, " %8d", on[t]);
    for (int state = 0; state < STATES; state++) put(p, " %8d", in[state]);
    put(p, "\n");
}

static void put_chunks(page *p, const ps_exec_plan *b, const ps_store *s)
{
    put(p, "\n%-22s %8s", "chunks", "all");
    for (int t = 0; t < PS_TIER_COUNT; t++) put(p, " %8s", ps_tier_name((ps_tier)t));
    for (int state = 0; state < STATES; state++) put(p, " %8s", state_names[state]);
    put(p, "\n");
    for (ps_list list = 0; list < ps_lists_n_all(&b->lists); list++)
        if (ps_lists_exists(&b->lists, list)) put_chunk_row(p, b, s, list);
    put(p, "a chunk has %lld elements; %.2f %% of all is unused\n", (long long)b->layout->chunk_elements,
        ps_layout_waste(b->layout) * 100);
}

static void put_moved(page *p, const ps_store *s)
{
    const ps_store_stats stats = ps_store_get_stats(s);
    put(p, "\n%-24s %12s %12s\n", "moved so far", "bytes", "copies");
    for (int link = 0; link < PS_LINK_COUNT; link++) {
        put(p, "%-24s", ps_link_name((ps_link)link));
        put_bytes(p, stats.moved_bytes[link]);
        put(p, " %12lld\n", (long long)stats.n_moves[link]);
    }
}

/* ---- moments ---- */

static int64_t device_need(const ps_exec_plan *b, int32_t moment)
{
    return b->trace->moments[moment].non_model_bytes + ps_exec_plan_wanted_bytes(b, moment, PS_TIER_DEVICE);
}

static void put_moment(page *p, const ps_exec_plan *b, int32_t moment)
{
    const ps_moment *m = &b->trace->moments[moment];
    put(p, "%6d", moment);
    put_bytes(p, m->non_model_bytes);
    put_bytes(p, ps_exec_plan_wanted_bytes(b, moment, PS_TIER_DEVICE));
    put_bytes(p, ps_exec_plan_wanted_bytes(b, moment, PS_TIER_HOST));
    put(p, "  %s%s\n", m->label, ps_moment_suffix(m));
}

/* The few largest, largest first, the earlier of equals first. */
static void put_moments(page *p, const ps_exec_plan *b)
{
    int32_t largest[LARGEST_MOMENTS], n = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++) {
        int32_t at = n;
        while (at > 0 && device_need(b, largest[at - 1]) < device_need(b, m)) at--;
        if (at == LARGEST_MOMENTS) continue;
        if (n < LARGEST_MOMENTS) n++;
        memmove(&largest[at + 1], &largest[at], (size_t)(n - at - 1) * sizeof largest[0]);
        largest[at] = m;
    }
    put(p, "\n%6s %12s %12s %12s  operators of the step that need most device memory, of %d\n", "moment", "activations",
        "chunks", "host chunks", b->trace->n_moments);
    for (int32_t i = 0; i < n; i++) put_moment(p, b, largest[i]);
}

static void put_all(page *p, const ps_exec_plan *b, const ps_tiers *t)
{
    put_tiers(p, b, t);
    put_chunks(p, b, t->store);
    put_moved(p, t->store);
    put_moments(p, b);
}

void ps_memory_dump_write(const ps_exec_plan *b, const ps_tiers *t, char text[PS_MEMORY_DUMP_MAX])
{
    page p = {.text = text};
    put_all(&p, b, t);
}

void ps_memory_dump_keep(const ps_exec_plan *b, const ps_tiers *t, int32_t moment, ps_status st)
{
    if (st != PS_EBUDGET && st != PS_ENOMEM_DEV) return;
    page p = {.text = last_dump};
    if (moment >= 0)
        put(&p, "no room in moment %d of the step, %s%s\n\n", moment, b->trace->moments[moment].label,
            ps_moment_suffix(&b->trace->moments[moment]));
    else
        put(&p, "no room while parameters are created\n\n");
    put_all(&p, b, t);
}

void ps_memory_dump_forget(void)
{
    last_dump[0] = '\0';
}

/* ---- public ---- */

const char *ps_last_memory_dump(void)
{
    return last_dump;
}
