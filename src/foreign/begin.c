/* begin.c - chunks are laid out, memory is opened, and first values move there: a chunk at a time, and what has moved
 * is given back, so that the model never exists twice. */
#include <stdio.h>

#include "base/bytes.h"
#include "base/glob.h"
#include "base/mem.h"
#include "comm/agree.h"
#include "foreign/client_impl.h"

ps_backend *ps_client_backend(const ps_client *c, ps_tier tier)
{
    ps_backend *b = c->settings.backend;
    return tier == PS_TIER_HOST ? ps_backend_host(b) : b;
}

static int64_t chunk_bytes(const ps_client *c, ps_list list)
{
    const int64_t bytes = ps_lists_chunk_bytes(&c->lists, c->layout, list);
    return ps_round_up(bytes, ps_settings_page_bytes(&c->settings));
}

/* What the update of a chunk has in memory at once. */
static int64_t update_bytes(const ps_client *c)
{
    int64_t bytes = 0;
    for (ps_list list = 0; list < c->lists.n; list++) bytes += chunk_bytes(c, list);
    return bytes;
}

ps_tier ps_client_update_tier(const ps_client *c, int32_t chunk)
{
    for (int32_t i = c->first_piece[chunk]; i < c->first_piece[chunk + 1]; i++) {
        const int32_t t = c->pieces[i].tensor;
        if (c->pin_counts[t] > 0 || c->tensors[t].pins[PS_CLIENT_MASTER] > 0 ||
            c->tensors[t].pins[PS_CLIENT_GRADIENT] > 0)
            return PS_TIER_DEVICE; /* where it is in use */
    }
    const int64_t *budget = c->settings.budgets.bytes, bytes = update_bytes(c);
    if (chunk / c->settings.ranks.n < c->n_margin || budget[PS_TIER_HOST] < bytes) return PS_TIER_DEVICE;
    /* one memory: what the device does not keep is handed over, and the other way round */
    const bool is_same = ps_backend_space(c->settings.backend)->is_one_memory;
    return is_same && budget[PS_TIER_DEVICE] >= 2 * bytes ? PS_TIER_DEVICE : PS_TIER_HOST;
}

/* ---- who is trained ---- */

static ps_status check_pattern(const ps_client *c, const char *pattern)
{
    for (int32_t t = 0; t < c->n_tensors; t++)
        if (!c->tensors[t].is_dropped && ps_glob_matches(pattern, c->tensors[t].name)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "train.freeze: '%.200s' matches none of the %d tensors", pattern, c->n_tensors);
}

static ps_status freeze(ps_client *c)
{
    char pattern[256];
    for (int i = 0; ps_glob_get(c->settings.frozen, i, pattern, sizeof pattern); i++) PS_TRY(check_pattern(c, pattern));
    for (int32_t t = 0; t < c->n_tensors; t++) {
        ps_client_tensor_state *x = &c->tensors[t];
        if (!x->is_dropped && ps_glob_any_matches(c->settings.frozen, x->name, NULL)) x->is_frozen = true;
    }
    return PS_OK;
}

/* ---- layout ---- */

/* What frozen tensors may be trained later, so their chunks are in all lists; but in chunks of their own, which take
 * no memory there until then. */
static ps_status lay_out(ps_client *c, int64_t *sizes, bool *is_alone)
{
    const ps_settings *s = &c->settings;
    const int64_t item = (int64_t)ps_dtype_bytes(s->dtype), *budget = s->budgets.bytes;
    const int64_t set_bytes = ps_optimizer_bytes(&s->optimizer) + 2 * item;
    const int64_t unit = ps_max_i64(PS_CHUNK_UNIT_ELEMENTS, ps_settings_page_bytes(s) / item);
    int64_t total = 0, size = s->chunk_elements;
    int32_t n = 0;
    for (int32_t t = 0; t < c->n_tensors; t++) {
        ps_client_tensor_state *x = &c->tensors[t];
        if (x->is_dropped || x->is_apart) continue;
        x->in_layout = n;
        c->in_order[n] = t;
        is_alone[n] = x->is_frozen;
        sizes[n++] = x->elements;
        total += x->elements;
    }
    if (n == 0) return PS_FAIL(PS_EINVAL, "ps_client_begin: there is no tensor for chunks");
    if (size == 0) {
        /* five updates fit where they run; the parameters of one operator take a ninth of the device */
        const int64_t update_budget = ps_max_i64(budget[PS_TIER_DEVICE], budget[PS_TIER_HOST]);
        const int64_t by_memory = ps_min_i64(update_budget / (5 * set_bytes), budget[PS_TIER_DEVICE] / (9 * item));
        const int64_t least = ps_max_i64(32768, ps_min_i64(total / (256 * (int64_t)s->ranks.n), 64 * PS_MIB));
        const int64_t most = ps_min_i64(ps_min_i64(by_memory, total / (4 * (int64_t)s->ranks.n)), 128 * PS_MIB);
        PS_TRY(ps_layout_search_parted(sizes, is_alone, n, unit, ps_min_i64(least, ps_max_i64(most, unit)),
                                       ps_max_i64(most, unit), &size));
    }
    PS_TRY(ps_layout_create_parted(sizes, is_alone, n, ps_round_up(size, unit), &c->layout));
    c->layout->n_mirrored = c->layout->n_chunks;
    return PS_OK;
}

static ps_status create_layout(ps_client *c)
{
    int64_t *sizes = NULL;
    bool *is_alone = NULL;
    const size_t n = (size_t)c->n_tensors;
    ps_status st = ps_mem_alloc(n, sizeof *c->in_order, &c->in_order);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *c->pin_counts, &c->pin_counts);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *sizes, &sizes);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *is_alone, &is_alone);
    if (st == PS_OK) st = lay_out(c, sizes, is_alone);
    ps_mem_free(is_alone);
    ps_mem_free(sizes);
    return st;
}

static ps_client_piece piece_at(const ps_client *c, int32_t tensor, int64_t at)
{
    const ps_place p = ps_client_place_of(c, tensor);
    const int64_t size = c->layout->chunk_elements, k = (p.offset + at) / size, offset = (p.offset + at) % size;
    return (ps_client_piece){.tensor = tensor,
                             .chunk = p.chunk + (int32_t)k,
                             .chunk_offset = offset,
                             .tensor_offset = at,
                             .n = ps_min_i64(p.elements - at, size - offset)};
}

/* By chunk: first how many each has, then where they begin, then themselves. */
static ps_status cut_pieces(ps_client *c)
{
    const ps_layout *l = c->layout;
    int32_t n = 0;
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks + 2, sizeof *c->first_piece, &c->first_piece));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->has_master, &c->has_master));
    for (int32_t i = 0; i < l->n_tensors; i++)
        for (int32_t k = 0; k < l->places[i].n_chunks; k++) c->first_piece[l->places[i].chunk + k + 2]++;
    for (int32_t i = 2; i < l->n_chunks + 2; i++) c->first_piece[i] += c->first_piece[i - 1];
    PS_TRY(ps_mem_alloc((size_t)c->first_piece[l->n_chunks + 1], sizeof *c->pieces, &c->pieces));
    PS_TRY(ps_mem_alloc((size_t)c->first_piece[l->n_chunks + 1], sizeof *c->by_tensor, &c->by_tensor));
    for (int32_t i = 0; i < l->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[c->in_order[i]];
        t->first_piece = n;
        for (int64_t at = 0; at < t->elements;) {
            const ps_client_piece p = piece_at(c, c->in_order[i], at);
            c->by_tensor[n++] = c->first_piece[p.chunk + 1];
            c->pieces[c->first_piece[p.chunk + 1]++] = p;
            at += p.n;
        }
        t->n_pieces = n - t->first_piece;
    }
    return PS_OK;
}

/* ---- budgets ---- */

static int64_t chunks_bytes(const ps_client *c)
{
    int64_t bytes = 0;
    const ps_list n = ps_lists_grad(&c->lists);
    for (int32_t i = 0; i < c->layout->n_chunks; i++) {
        const bool is_frozen = c->tensors[c->pieces[c->first_piece[i]].tensor].is_frozen;
        if (!ps_client_owns(c, i)) continue;
        for (ps_list list = 0; list < (is_frozen ? 1 : n); list++) bytes += chunk_bytes(c, list);
    }
    return bytes;
}

/* Value, states and gradient. */
static int64_t apart_bytes(const ps_client *c, const ps_client_tensor_state *t)
{
    return (int64_t)sizeof(float) * ps_round_up(t->elements, PS_TENSOR_ALIGN_ELEMENTS) * (c->lists.n - 2);
}

static int64_t all_apart_bytes(const ps_client *c)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < c->n_tensors; t++)
        if (c->tensors[t].is_apart && !c->tensors[t].is_dropped) bytes += apart_bytes(c, &c->tensors[t]);
    return bytes;
}

/* Where the host cannot touch the device: what kernels sum up, and scratch. */
static int64_t results_bytes(const ps_client *c, int64_t *sums_bytes)
{
    const int64_t n_sums = ps_client_piece_count(c) + c->n_tensors;
    *sums_bytes = ps_round_up(n_sums * (int64_t)sizeof *c->sums, 64);
    if (ps_backend_space(c->settings.backend)->device->host_can_touch) return 0;
    return *sums_bytes + 2 * PS_CLIENT_SCRATCH_ELEMENTS * (int64_t)sizeof(float);
}

/* What of the tiers is no chunk's, in pages. */
static void count_blocks(const ps_client *c, int64_t blocks[PS_RAM_TIER_COUNT])
{
    const ps_settings *s = &c->settings;
    const int64_t page = ps_settings_page_bytes(s);
    int64_t sums;
    const ps_tier staging = ps_tiers_staging_tier(ps_backend_space(s->backend), &s->budgets);
    blocks[PS_TIER_HOST] = 0;
    blocks[PS_TIER_DEVICE] = ps_round_up(all_apart_bytes(c), page) + ps_round_up(results_bytes(c, &sums), page);
    blocks[s->nccl.is_used ? PS_TIER_DEVICE : staging] += ps_round_up(ps_settings_comm_bytes(s), page);
}

static ps_status refuse(const char *key, int64_t given, int64_t wanted, const char *what, const char *other)
{
    char given_text[PS_BYTES_TEXT_MAX], wanted_text[PS_BYTES_TEXT_MAX];
    return PS_FAIL(PS_EBUDGET, "%s is %s (%lld bytes), and %s: %s = %lld (%s) would do%s", key,
                   ps_bytes_format(given, given_text), (long long)given, what, key, (long long)wanted,
                   ps_bytes_format(wanted, wanted_text), other);
}

/* What can be told before a step has been watched; what the framework itself takes comes to light then. */
static ps_status check_budgets(const ps_client *c)
{
    const int64_t *b = c->settings.budgets.bytes;
    const int64_t page = ps_settings_page_bytes(&c->settings), update = update_bytes(c), all = chunks_bytes(c);
    int64_t widest = 0;
    char what[320];
    for (int32_t i = 0; i < c->layout->n_tensors; i++) {
        const int64_t bytes = c->layout->places[i].n_chunks * chunk_bytes(c, PS_LIST_PARAM16);
        if (bytes <= widest) continue;
        widest = bytes;
        snprintf(what, sizeof what, "the chunks of %.200s take %lld bytes", c->tensors[c->in_order[i]].name,
                 (long long)bytes);
    }
    int64_t blocks[PS_RAM_TIER_COUNT];
    count_blocks(c, blocks);
    const bool is_host_enough = b[PS_TIER_HOST] >= update + blocks[PS_TIER_HOST];
    const int64_t device_least = ps_max_i64(widest, is_host_enough ? 0 : update) + blocks[PS_TIER_DEVICE];
    if (widest < update && !is_host_enough)
        snprintf(what, sizeof what, "the update of a chunk takes %lld bytes there, where memory.host has too little",
                 (long long)update);
    if (b[PS_TIER_DEVICE] / page * page < device_least)
        return refuse("memory.device", b[PS_TIER_DEVICE], device_least, what, "; or a smaller default_chunk_size");
    const int64_t ram = b[PS_TIER_DEVICE] - blocks[PS_TIER_DEVICE] + b[PS_TIER_HOST] - blocks[PS_TIER_HOST];
    if (ram + b[PS_TIER_DISK] >= all) return PS_OK;
    snprintf(what, sizeof what,
             "parameters, fp32 values and optimizer states take %lld bytes, of which device and "
             "host hold %lld",
             (long long)all, (long long)ram);
    return refuse("memory.disk", b[PS_TIER_DISK], all, what, ", as would more of memory.device or memory.host");
}

/* ---- memory ---- */

/* What host and disk cannot keep between steps, the device does. */
static void keep_margin(ps_client *c)
{
    const int64_t below = c->settings.budgets.bytes[PS_TIER_HOST] + c->settings.budgets.bytes[PS_TIER_DISK];
    const int64_t n_own = (c->layout->n_chunks + c->settings.ranks.n - 1) / c->settings.ranks.n;
    c->n_margin = (int32_t)ps_max_i64(0, n_own - below / update_bytes(c));
}

static ps_status open_tiers(ps_client *c)
{
    const ps_settings *s = &c->settings;
    const bool is_apart = !ps_backend_space(s->backend)->device->host_can_touch;
    int64_t sums;
    const int64_t results = results_bytes(c, &sums);
    if (s->checks_order) PS_TRY(ps_order_create(false, &c->order));
    const ps_tiers_options o = {.space = ps_backend_space(s->backend),
                                .budgets = s->budgets,
                                .disk_folders = s->disk_folders,
                                .disk_backend = s->disk_backend,
                                .queue_depth = s->queue_depth,
                                .keep_freed_memory = s->keep_freed_memory,
                                .layout = c->layout,
                                .lists = c->lists,
                                .policy = s->policy,
                                .prefetch = s->prefetch,
                                .spares_writes = true,
                                .wait_at_once = s->wait_at_once,
                                .rates = &s->rates.links,
                                .comm_staging_bytes = ps_settings_comm_bytes(s),
                                .comm_on_device = s->nccl.is_used,
                                .results_bytes = results,
                                .apart_bytes = all_apart_bytes(c),
                                .counts_non_model = true,
                                .profile = c->profile,
                                .order = c->order};
    const size_t n_ids = (size_t)ps_lists_n_ids(&c->lists, c->layout);
    PS_TRY(ps_mem_alloc(n_ids, sizeof *c->held.count, &c->held.count));
    PS_TRY(ps_mem_alloc(n_ids, sizeof *c->held.ids, &c->held.ids));
    PS_TRY(ps_tiers_open(&o, &c->tiers));
    keep_margin(c);
    if (is_apart) {
        c->sums = c->tiers.results;
        c->scratch = (float *)(void *)((char *)c->tiers.results + sums);
        return PS_OK;
    }
    PS_TRY(ps_mem_alloc((size_t)sums, 1, &c->sums));
    return ps_mem_alloc(2 * (size_t)PS_CLIENT_SCRATCH_ELEMENTS, sizeof *c->scratch, &c->scratch);
}

/* ---- first values ---- */

/* n elements of what was given, to the device or the host. */
static ps_status move_values(ps_client *c, const ps_client_tensor_state *t, int64_t first, int64_t n, ps_tier tier,
                             void *dst, ps_dtype dst_dtype)
{
    enum { AT_ONCE = 16384 };
    _Alignas(64) char rounded[AT_ONCE * sizeof(float)];
    ps_backend *host = ps_backend_host(c->settings.backend);
    const char *src = (const char *)t->given.address + first * (int64_t)ps_dtype_bytes(t->given_dtype);
    const bool is_reached = ps_device_host_can_touch(c->tiers.ram[PS_TIER_DEVICE]); /* else fills may be under way */
    const int64_t at_once = is_reached ? n : AT_ONCE;
    for (int64_t done = 0; done < n; done += at_once) {
        const int64_t here = ps_min_i64(at_once, n - done);
        char *to = (char *)dst + done * (int64_t)ps_dtype_bytes(dst_dtype);
        const ps_cast_args a = {.dst = is_reached ? (void *)to : rounded,
                                .src = src + done * (int64_t)ps_dtype_bytes(t->given_dtype),
                                .n = here,
                                .dst_dtype = dst_dtype,
                                .src_dtype = t->given_dtype};
        PS_TRY(ps_run_cast(host, NULL, &a, 0));
        if (!is_reached)
            PS_TRY(ps_queue_put(c->tiers.compute[tier], to, rounded, here * (int64_t)ps_dtype_bytes(dst_dtype)));
    }
    return PS_OK;
}

static ps_status fill_piece(ps_client *c, const ps_client_piece *p, ps_tier tier)
{
    ps_client_tensor_state *t = &c->tensors[p->tensor];
    void *param = ps_client_element(c, PS_LIST_PARAM16, p->chunk, p->chunk_offset);
    if (!c->has_master[p->chunk]) {
        PS_TRY(move_values(c, t, p->tensor_offset, p->n, tier, param, c->settings.dtype));
    } else {
        void *master = ps_client_element(c, PS_LIST_MASTER, p->chunk, p->chunk_offset);
        PS_TRY(move_values(c, t, p->tensor_offset, p->n, tier, master, PS_DTYPE_F32));
        PS_TRY(ps_client_cast(c, tier, param, c->settings.dtype, master, PS_DTYPE_F32, p->n));
    }
    return PS_OK;
}

/* Of a chunk that has been filled, or is another rank's. */
static void give_back(ps_client *c, int32_t chunk)
{
    for (int32_t i = c->first_piece[chunk]; i < c->first_piece[chunk + 1]; i++) {
        ps_client_tensor_state *t = &c->tensors[c->pieces[i].tensor];
        if (c->pieces[i].tensor_offset + c->pieces[i].n < t->elements) continue;
        ps_nursery_give(c->nursery, &t->given);
        t->given.address = NULL;
    }
}

static ps_status fill_chunk(ps_client *c, int32_t chunk)
{
    const ps_tier tier = ps_client_update_tier(c, chunk);
    c->has_master[chunk] = !c->tensors[c->pieces[c->first_piece[chunk]].tensor].is_frozen;
    PS_TRY(ps_client_hold(c, PS_LIST_PARAM16, chunk, tier, PS_ACCESS_WRITE));
    ps_status st = PS_OK;
    if (c->has_master[chunk]) st = ps_client_hold(c, PS_LIST_MASTER, chunk, tier, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        for (int32_t i = c->first_piece[chunk]; i < c->first_piece[chunk + 1] && st == PS_OK; i++)
            st = fill_piece(c, &c->pieces[i], tier);
        if (c->has_master[chunk]) ps_client_let_go(c, PS_LIST_MASTER, chunk);
    }
    ps_client_let_go(c, PS_LIST_PARAM16, chunk);
    return st;
}

/* At the start of its part of the block, whose size is *at so far. */
static ps_status fill_apart(ps_client *c, ps_client_tensor_state *t, int64_t *at)
{
    const int64_t bytes = apart_bytes(c, t);
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    t->apart = (float *)(void *)((char *)c->tiers.apart + *at);
    *at += bytes;
    PS_TRY(ps_queue_fill(q, t->apart, 0, bytes));
    PS_TRY(ps_event_wait(ps_queue_event(q)));
    PS_TRY(move_values(c, t, 0, t->elements, PS_TIER_DEVICE, t->apart, PS_DTYPE_F32));
    ps_nursery_give(c->nursery, &t->given);
    t->given.address = NULL;
    return PS_OK;
}

static ps_status fill(ps_client *c)
{
    int64_t at = 0;
    for (int32_t t = 0; t < c->n_tensors; t++)
        if (c->tensors[t].is_apart && !c->tensors[t].is_dropped) PS_TRY(fill_apart(c, &c->tensors[t], &at));
    for (int32_t i = 0; i < c->layout->n_chunks; i++) {
        if (ps_client_owns(c, i)) PS_TRY(fill_chunk(c, i));
        give_back(c, i);
    }
    return PS_OK;
}

/* ---- together ---- */

static ps_status prepare(ps_client *c)
{
    PS_TRY(freeze(c));
    PS_TRY(create_layout(c));
    c->lists = ps_lists_of(&c->settings, &(ps_code){0});
    PS_TRY(cut_pieces(c));
    PS_TRY(ps_client_deal_groups(c));
    PS_TRY(ps_client_sharing_init(c));
    return check_budgets(c);
}

/* Chunks may take this much of the device until the framework's own need is known; but one update fits in any case. */
static void limit_chunks(ps_client *c)
{
    const int64_t share = (int64_t)((double)c->settings.budgets.bytes[PS_TIER_DEVICE] * c->settings.unscheduled_share);
    ps_store_limit_chunks(c->tiers.store, PS_TIER_DEVICE, ps_max_i64(share, update_bytes(c)));
}

static ps_status begin(ps_client *c)
{
    PS_TRY(ps_comm_agree(c->comm, prepare(c)));
    PS_TRY(ps_comm_agree(c->comm, open_tiers(c)));
    PS_TRY(ps_comm_agree(c->comm, ps_carrier_open(&c->carrier, &c->settings, &c->tiers)));
    PS_TRY(ps_comm_agree(c->comm, ps_carrier_join(&c->carrier, &c->settings, &c->tiers)));
    limit_chunks(c);
    PS_TRY(ps_comm_agree(c->comm, fill(c)));
    return ps_client_begin_measuring(c);
}

ps_status ps_client_begin(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_begin", PS_CLIENT_BUILDING));
    const ps_status st = begin(c);
    if (st == PS_OK)
        c->stage = PS_CLIENT_READY;
    else
        (void)ps_client_break(c, st);
    ps_client_leave(c);
    return st;
}
