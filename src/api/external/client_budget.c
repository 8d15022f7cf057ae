/* client_budget.c - memory that a client needs of its budgets, whether they suffice, and the tier that updates a
 * chunk. */
#include <stdio.h>

#include "api/external/client_budget.h"
#include "base/bytes.h"
#include "base/machine.h"
#include "train/state/footprint.h"

/* ---- sizes ---- */

static int64_t chunk_bytes(const ps_client *c, ps_list list)
{
    return ps_payload_bytes(&c->settings, c->layout, &c->lists, list);
}

int64_t ps_client_chunk_bytes_in(const ps_client *c, int32_t chunk, ps_list end)
{
    int64_t bytes = 0;
    for (ps_list list = 0; list < end; list++)
        if (ps_client_has_list(c, list, chunk)) bytes += chunk_bytes(c, list);
    return bytes;
}

/* Of a trained chunk at the end of the backward pass: gradients that may not overwrite parameters, too. Updates use them
 * up before only where a step was recorded, and those that are separate in any case are known then. */
static int64_t trained_bytes(const ps_client *c, int32_t chunk)
{
    const bool has_gradients = ps_settings_separates_gradients(&c->settings);
    return ps_client_chunk_bytes_in(c, chunk, ps_lists_grad(&c->lists)) +
           (has_gradients ? chunk_bytes(c, ps_lists_kept_grad(&c->lists)) : 0);
}

/* Of a chunk in all lists. */
static int64_t most_chunk_bytes(const ps_client *c)
{
    int64_t most = 0;
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        most = ps_max_i64(most, ps_client_chunk_bytes_in(c, k, c->lists.n));
    return most;
}

void ps_client_find_update_bytes(ps_client *c)
{
    c->update_bytes = most_chunk_bytes(c);
    for (int32_t i = 0; i < c->layout->n_runs; i++) {
        const ps_run *r = &c->layout->runs[i];
        int64_t bytes = 0;
        for (int32_t k = r->first; k < r->first + r->n_chunks && ps_client_is_in_whole_run(c, k); k++)
            bytes += ps_client_chunk_bytes_in(c, k, c->lists.n);
        c->update_bytes = ps_max_i64(c->update_bytes, bytes);
    }
}

static int64_t chunks_bytes(const ps_client *c)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->layout->n_chunks; i++) {
        const bool is_frozen = c->tensors[c->pieces.all[c->pieces.first[i]].tensor].is_frozen;
        if (ps_client_owns(c, i)) bytes += is_frozen ? chunk_bytes(c, PS_LIST_PARAM16) : trained_bytes(c, i);
    }
    return bytes;
}

int64_t ps_client_unmanaged_bytes(const ps_client *c, const ps_client_tensor_state *t)
{
    return (int64_t)sizeof(float) * ps_round_up(t->elements, PS_TENSOR_ALIGN_ELEMENTS) * (c->lists.n - 2);
}

static int64_t all_unmanaged_bytes(const ps_client *c)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < c->n_tensors; t++)
        if (c->tensors[t].is_unmanaged && !c->tensors[t].is_dropped)
            bytes += ps_client_unmanaged_bytes(c, &c->tensors[t]);
    return bytes;
}

int64_t ps_client_results_bytes(const ps_client *c, int64_t *sums_bytes)
{
    const int64_t n_sums = c->pieces.n + c->n_tensors;
    *sums_bytes = ps_round_up(n_sums * (int64_t)sizeof *c->sums, 64);
    if (ps_backend_space(c->settings.backend)->device->host_can_touch) return 0;
    return *sums_bytes + 2 * PS_CLIENT_SCRATCH_ELEMENTS * (int64_t)sizeof(float);
}

ps_tiers_desc ps_client_tiers(const ps_client *c)
{
    int64_t sums;
    ps_tiers_desc o = ps_tiers_desc_of(&c->settings, &c->settings.budgets, c->layout, &c->lists);
    o.results_bytes = ps_client_results_bytes(c, &sums);
    o.unmanaged_bytes = all_unmanaged_bytes(c);
    o.counts_non_model = true;
    o.n_keeping = c->n_keeping;
    o.profile = c->profile;
    o.order = c->order;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (ps_client_may_update_on(c, (ps_tier)t)) o.update_scratch_bytes[t] = c->update_scratch.bytes;
    return o;
}

void ps_client_count_blocks(const ps_client *c, int64_t blocks[PS_RAM_TIER_COUNT])
{
    const ps_tiers_desc o = ps_client_tiers(c);
    ps_tiers_count_blocks(&o, blocks);
}

int64_t ps_client_device_room(const ps_client *c)
{
    const int64_t page = ps_settings_page_bytes(&c->settings);
    int64_t blocks[PS_RAM_TIER_COUNT];
    ps_client_count_blocks(c, blocks);
    return c->settings.budgets.bytes[PS_TIER_DEVICE] / page * page - blocks[PS_TIER_DEVICE];
}

/* With "auto" none, unless it is a small part of the budget. */
void ps_client_choose_save_buffer(ps_client *c)
{
    enum { AUTO_SHARE = 16 };
    ps_settings *s = &c->settings;
    const int64_t budget = s->budgets.bytes[ps_tiers_staging_tier(ps_backend_space(s->backend), &s->budgets)];
    s->staging_bytes = ps_settings_save_buffer_bytes(s);
    if (s->save_buffer_bytes == PS_BYTES_AUTO && budget < AUTO_SHARE * s->staging_bytes) s->staging_bytes = 0;
}

/* What the framework takes in a step is not known yet, so that no budget can be named that suffices. */
static ps_status refuse(const char *key, int64_t given, int64_t wanted, const char *what, const char *other)
{
    char given_text[PS_BYTES_TEXT_MAX], wanted_text[PS_BYTES_TEXT_MAX];
    return PS_FAIL(PS_EBUDGET, "%s is %s, and %s: raise it to at least %s=%s%s", key,
                   ps_bytes_format(given, given_text), what, key, ps_bytes_round_up(wanted, wanted_text), other);
}

/* Of a tensor in use, with other ranks' chunks that are gathered with it. */
static int32_t held_chunks(const ps_client *c, const ps_place *p)
{
    const ps_chunk_group first = ps_client_chunk_group(c, ps_client_chunk_group_of(c, p->chunk));
    const ps_chunk_group last = ps_client_chunk_group(c, ps_client_chunk_group_of(c, p->chunk + p->n_chunks - 1));
    return last.chunk + last.n_chunks - first.chunk;
}

/* Of the largest group, the first one. */
static int32_t group_chunks(const ps_client *c)
{
    return ps_client_chunk_group(c, 0).n_chunks;
}

int64_t ps_client_separate_fp32_bytes(const ps_client *c)
{
    const int64_t wide = chunk_bytes(c, ps_lists_grad(&c->lists)), one = chunk_bytes(c, PS_LIST_PARAM16) + wide;
    return ps_max_i64(one, c->settings.ranks.n > 1 ? group_chunks(c) * wide : 0);
}

int64_t ps_client_stuck_bytes(const ps_client *c)
{
    const int64_t *b = c->settings.budgets.bytes, page = ps_settings_page_bytes(&c->settings);
    const int64_t param = chunk_bytes(c, PS_LIST_PARAM16);
    const int64_t of_others = c->settings.ranks.n > 1 ? PS_CLIENT_GROUPS_KEPT * group_chunks(c) * param : 0;
    int64_t blocks[PS_RAM_TIER_COUNT], bytes = of_others;
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        if (ps_client_owns(c, k)) bytes += c->has_master[k] ? trained_bytes(c, k) : param;
    ps_client_count_blocks(c, blocks);
    return bytes - (b[PS_TIER_HOST] / page * page - blocks[PS_TIER_HOST]) - b[PS_TIER_DISK];
}

enum { WHAT_BYTES = 480 };

/* `what` (of WHAT_BYTES) gets the purpose of the bytes. */
static int64_t least_device_bytes(const ps_client *c, char what[WHAT_BYTES])
{
    const int64_t update = ps_client_update_bytes(c), separate = ps_client_separate_fp32_bytes(c);
    const int64_t group = group_chunks(c) * chunk_bytes(c, PS_LIST_PARAM16);
    int64_t widest = separate, blocks[PS_RAM_TIER_COUNT];
    char text[PS_BYTES_TEXT_MAX];
    snprintf(what, WHAT_BYTES, "a chunk of parameters with its fp32 values or gradients takes %s there",
             ps_bytes_format(separate, text));
    for (int32_t i = 0; i < c->layout->n_tensors; i++) {
        int64_t bytes = held_chunks(c, &c->layout->places[i]) * chunk_bytes(c, PS_LIST_PARAM16);
        /* in its last group gradients move off their parameters while earlier ones are pinned */
        if (c->settings.ranks.n > 1) bytes = ps_max_i64(bytes, bytes - group + separate);
        if (bytes <= widest) continue;
        widest = bytes;
        snprintf(what, WHAT_BYTES, "the chunks of %.200s take %s", c->tensors[c->in_order[i]].name,
                 ps_bytes_format(bytes, text));
    }
    ps_client_count_blocks(c, blocks);
    const bool is_host_enough = c->settings.budgets.bytes[PS_TIER_HOST] >= update + blocks[PS_TIER_HOST] &&
                                ps_client_may_update_on(c, PS_TIER_HOST);
    if (widest < update && !is_host_enough)
        snprintf(what, WHAT_BYTES, "the update of a chunk takes %s there, where memory.host has too little",
                 ps_bytes_format(update, text));
    if (c->update_scratch.bytes > 0) {
        const size_t length = strlen(what);
        snprintf(what + length, WHAT_BYTES - length, ", next to %s of scratch for %s of %.120s, a whole matrix",
                 ps_bytes_format(c->update_scratch.bytes, text), c->settings.optimizer.optimizer->name,
                 c->update_scratch.matrix);
    }
    return ps_max_i64(widest, is_host_enough ? 0 : update) + blocks[PS_TIER_DEVICE];
}

bool ps_client_has_room_for_all(const ps_client *c, int64_t framework_bytes)
{
    int64_t blocks[PS_RAM_TIER_COUNT];
    ps_client_count_blocks(c, blocks);
    const int64_t room = c->settings.budgets.bytes[PS_TIER_DEVICE] - blocks[PS_TIER_DEVICE] - framework_bytes;
    int64_t bytes = 0;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) bytes += ps_client_chunk_bytes_in(c, k, c->lists.n);
    return bytes <= room;
}

int64_t ps_client_least_device_bytes(const ps_client *c)
{
    char what[WHAT_BYTES];
    return least_device_bytes(c, what);
}

int64_t ps_client_first_limit(const ps_client *c)
{
    return ps_unscheduled_bytes(&c->settings, c->settings.budgets.bytes[PS_TIER_DEVICE], ps_client_update_bytes(c));
}

/* Does the machine have the memory that chunks use of the budgets? In the first step the device has few of them, and
 * the lower tiers the rest; later it has as many as fit. Initial values are in a file in the folder of the disk tier,
 * and are freed. */
static ps_status check_machine(const ps_client *c, int64_t all, int64_t first_limit,
                               const int64_t blocks[PS_RAM_TIER_COUNT])
{
    const ps_settings *s = &c->settings;
    const int64_t *b = s->budgets.bytes;
    const int64_t device = b[PS_TIER_DEVICE] - blocks[PS_TIER_DEVICE], host = b[PS_TIER_HOST] - blocks[PS_TIER_HOST];
    const int64_t below = all - ps_min_i64(all, ps_min_i64(device, first_limit));
    const int64_t on_host = ps_min_i64(below, host);
    int64_t on_disk = ps_min_i64(below - on_host, b[PS_TIER_DISK]);
    for (int32_t t = 0; t < c->n_tensors && on_disk > 0; t++)
        if (c->tensors[t].given.address != NULL) on_disk -= c->tensors[t].given.bytes;
    on_disk = ps_max_i64(0, on_disk);
    /* both places of optimizer data that is kept over early updates */
    if (c->n_keeping > 0) on_disk += 2 * (ps_client_keeping_bytes(c, c->n_keeping) - ps_client_keeping_bytes(c, 0));
    const int64_t planned[PS_TIER_COUNT] = {[PS_TIER_DEVICE] =
                                                blocks[PS_TIER_DEVICE] + ps_min_i64(all - on_host, device),
                                            [PS_TIER_HOST] = blocks[PS_TIER_HOST] + on_host,
                                            [PS_TIER_DISK] = ps_min_i64(on_disk, b[PS_TIER_DISK])};
    return ps_settings_check_capacity(s, planned, s->ranks.comm != NULL ? ps_comm_local_size(s->ranks.comm) : 1);
}

/* all: of this rank's chunks. first_limit: as of ps_client_first_limit. The disk of memory.disk = auto is used where
 * RAM does not suffice; the framework's part of RAM is not known yet, and a third of it is assumed. */
static ps_status check_sums(ps_client *c, int64_t all, int64_t first_limit, const int64_t blocks[PS_RAM_TIER_COUNT])
{
    const int64_t *b = c->settings.budgets.bytes;
    char what[WHAT_BYTES], text[2][PS_BYTES_TEXT_MAX];
    if ((b[PS_TIER_DEVICE] + b[PS_TIER_HOST]) / 3 * 2 < all) (void)ps_settings_take_spare_disk(&c->settings);
    const int64_t ram = b[PS_TIER_DEVICE] - blocks[PS_TIER_DEVICE] + b[PS_TIER_HOST] - blocks[PS_TIER_HOST];
    if (ram + b[PS_TIER_DISK] >= all) return check_machine(c, all, first_limit, blocks);
    snprintf(what, sizeof what,
             "parameters, fp32 values and optimizer states take %s, of which device and host hold %s",
             ps_bytes_format(all, text[0]), ps_bytes_format(ram, text[1]));
    return refuse("memory.disk", b[PS_TIER_DISK], all, what,
                  c->settings.memory.limit_kind == PS_LIMIT_TIERS
                      ? ", or memory.device or memory.host by as much; activations come on top"
                      : ", or memory.total by as much; activations come on top");
}

/* Gaps between tensors, blocks outside of chunks, and tensors frozen by train.freeze are not known yet. */
ps_status ps_client_check_expected(ps_client *c, int64_t trained, int64_t frozen)
{
    static const int64_t no_blocks[PS_RAM_TIER_COUNT];
    const ps_lists lists = ps_lists_of(&c->settings, 0, 0);
    const int64_t most = INT64_MAX / 64; /* elements; each takes less in all lists together */
    if (trained < 0 || frozen < 0 || trained > most || frozen > most)
        return PS_FAIL(PS_EINVAL,
                       "ps_client_expect: %lld and %lld elements, expected 0 or more, and at most 2^63 bytes",
                       (long long)trained, (long long)frozen);
    int64_t bytes = ps_item_bytes(lists.list[PS_LIST_PARAM16].item, trained + frozen);
    if (c->settings.frozen[0] == '\0')
        bytes += ps_optimizer_bytes(&c->settings.optimizer, trained) +
                 (ps_settings_separates_gradients(&c->settings) ? 2 * trained : 0);
    return check_sums(c, bytes / c->settings.ranks.n, c->settings.budgets.bytes[PS_TIER_DEVICE], no_blocks);
}

/* Without memory.total the settings have not examined it: memory before there were chunks, with its libraries. */
static int64_t process_bytes(const ps_client *c)
{
    ps_machine_rss_info now;
    int64_t resident;
    if (c->settings.memory.limit_kind == PS_LIMIT_TOTAL || ps_machine_rss(NULL, &now) != PS_OK ||
        ps_machine_private(c->steps.statm, &resident) != PS_OK)
        return c->settings.memory.process_bytes;
    const int64_t before = c->steps.base_bytes > 0 ? c->steps.base_bytes : resident;
    return ps_settings_process_bytes(now.resident_bytes - resident + before, c->settings.threads);
}

int64_t ps_client_total_for(const ps_client *c, int64_t device_bytes)
{
    const int64_t total = ps_settings_total_for(&c->settings, device_bytes, c->settings.budgets.bytes[PS_TIER_HOST]);
    return total - c->settings.memory.process_bytes + process_bytes(c);
}

static ps_status refuse_device(const ps_client *c, int64_t least, const char *what)
{
    static const char more[] = ", and by what the framework itself takes; or choose a smaller default_chunk_size";
    const ps_settings_memory *m = &c->settings.memory;
    const int64_t given = c->settings.budgets.bytes[PS_TIER_DEVICE];
    if (!ps_settings_is_total(&c->settings)) return refuse("memory.device", given, least, what, more);
    return refuse("memory.total", m->total_bytes, ps_client_total_for(c, least), what, more);
}

/* The framework's memory is known only after a step has been recorded. */
ps_status ps_client_check_budgets(ps_client *c)
{
    const int64_t *b = c->settings.budgets.bytes;
    const int64_t page = ps_settings_page_bytes(&c->settings);
    int64_t blocks[PS_RAM_TIER_COUNT];
    char what[WHAT_BYTES];
    const int64_t least = least_device_bytes(c, what);
    if (b[PS_TIER_DEVICE] / page * page < least) return refuse_device(c, least, what);
    ps_client_count_blocks(c, blocks);
    return check_sums(c, chunks_bytes(c), ps_client_first_limit(c), blocks);
}

/* ---- the tier of updates ---- */

/* Unified memory: chunks go to the other tier by zero-copy moves. */
static bool prefers_device(const ps_client *c)
{
    const bool is_same = ps_backend_space(c->settings.backend)->is_unified_memory;
    return is_same &&
           c->settings.budgets.bytes[PS_TIER_DEVICE] >= 2 * (ps_client_update_bytes(c) + c->update_scratch.bytes);
}

/* Without whole matrices a lack of room shows when chunks are pinned. */
bool ps_client_may_update_on(const ps_client *c, ps_tier tier)
{
    const int64_t least = ps_client_update_bytes(c) + c->update_scratch.bytes;
    if (tier == PS_TIER_DEVICE || c->update_scratch.bytes == 0) return true;
    return c->settings.budgets.bytes[tier] >= least + c->settings.staging_bytes && !prefers_device(c);
}

ps_tier ps_client_update_tier(const ps_client *c, int32_t chunk)
{
    const ps_run run = ps_client_updated_with(c, chunk);
    for (int32_t i = c->pieces.first[run.first]; i < c->pieces.first[run.first + run.n_chunks]; i++) {
        const int32_t t = c->pieces.all[i].tensor;
        if (c->pin_counts[t] > 0 || c->tensors[t].pins[PS_CLIENT_MASTER] > 0 ||
            c->tensors[t].pins[PS_CLIENT_GRADIENT] > 0)
            return PS_TIER_DEVICE; /* the tier where it is in use */
    }
    const bool is_in_margin = run.first / c->settings.ranks.n < c->n_margin;
    if (is_in_margin || c->settings.budgets.bytes[PS_TIER_HOST] < ps_client_update_bytes(c)) return PS_TIER_DEVICE;
    return prefers_device(c) || !ps_client_may_update_on(c, PS_TIER_HOST) ? PS_TIER_DEVICE : PS_TIER_HOST;
}

int32_t ps_client_least_margin(const ps_client *c)
{
    const int64_t below = c->settings.budgets.bytes[PS_TIER_HOST] + c->settings.budgets.bytes[PS_TIER_DISK];
    const int64_t n_own = (c->layout->n_chunks + c->settings.ranks.n - 1) / c->settings.ranks.n;
    return (int32_t)ps_max_i64(0, n_own - below / most_chunk_bytes(c));
}

int64_t ps_client_moment_bytes(const ps_client *c, const ps_trace *t, int32_t moment, int64_t grain)
{
    const ps_moment *m = &t->moments[moment];
    int64_t bytes = 0;
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &t->accesses[m->first_access + i];
        if (a->tier == PS_TIER_DEVICE) bytes += ps_round_up(ps_client_id_bytes(c, a->chunk), grain);
    }
    return bytes;
}

/* With unified memory there is nothing to gain. */
int32_t ps_client_count_margin(const ps_client *c, const ps_trace *t)
{
    int64_t most = 0;
    if (ps_backend_space(c->settings.backend)->is_unified_memory) return 0;
    for (int32_t i = 0; i < t->n_moments; i++)
        most = ps_max_i64(most, t->moments[i].non_model_bytes + ps_client_moment_bytes(c, t, i, 1));
    return (int32_t)ps_margin_chunks(&c->settings, c->layout, c->settings.budgets.bytes[PS_TIER_DEVICE] - most);
}
