/* access.c - places of tensors: pinned for the program, or lent as tensors of DLPack. */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sized.h"
#include "foreign/client_impl.h"
#include "patrickstar_own.h"

/* ---- chunks ---- */

ps_status ps_client_hold(ps_client *c, ps_list list, int32_t chunk, ps_tier tier, ps_access_mode mode)
{
    const ps_chunk_id id = ps_store_chunk(c->layout, list, chunk);
    ps_client_held *h = &c->held;
    PS_TRY(ps_client_note_access(c, id, tier, mode));
    ps_status st = ps_store_pin(c->tiers.store, id, tier, mode, NULL);
    if (st == PS_EBUDGET && ps_client_stop_following(c)) st = ps_store_pin(c->tiers.store, id, tier, mode, NULL);
    PS_TRY(st);
    if (h->count[id]++ == 0) h->ids[h->n++] = id;
    return PS_OK;
}

void ps_client_let_go(ps_client *c, ps_list list, int32_t chunk)
{
    const ps_chunk_id id = ps_store_chunk(c->layout, list, chunk);
    ps_client_held *h = &c->held;
    ps_store_unpin(c->tiers.store, id);
    if (--h->count[id] > 0) return;
    int32_t i = h->n - 1;
    while (h->ids[i] != id) i--;
    memmove(h->ids + i, h->ids + i + 1, (size_t)(--h->n - i) * sizeof *h->ids);
}

void *ps_client_element(const ps_client *c, ps_list list, int32_t chunk, int64_t offset)
{
    char *payload = ps_store_payload(c->tiers.store, ps_store_chunk(c->layout, list, chunk));
    return payload + offset * c->lists.list[list].item_bytes;
}

ps_status ps_client_cast(ps_client *c, ps_tier tier, void *dst, ps_dtype dst_dtype, const void *src, ps_dtype src_dtype,
                         int64_t n)
{
    return ps_run_cast(ps_client_backend(c, tier), c->tiers.compute[tier],
                       &(ps_cast_args){.dst = dst, .src = src, .n = n, .dst_dtype = dst_dtype, .src_dtype = src_dtype},
                       0);
}

/* ---- parameter and master ---- */

/* The parameter follows its master. */
static ps_status round_master(ps_client *c, const ps_client_piece *p)
{
    return ps_client_cast(c, PS_TIER_DEVICE, ps_client_element(c, PS_LIST_PARAM16, p->chunk, p->chunk_offset),
                          c->settings.dtype, ps_client_element(c, PS_LIST_MASTER, p->chunk, p->chunk_offset),
                          PS_DTYPE_F32, p->n);
}

/* The master follows its parameter, where that is not what the master rounds to: elements that nobody has changed keep
 * their bits. By the host, wherever they are: parameters are seldom written to. */
static ps_status widen_param(ps_client *c, const ps_client_piece *p)
{
    enum { AT_ONCE = 4096 };
    _Alignas(64) float masters[AT_ONCE];
    _Alignas(64) char params[AT_ONCE * sizeof(float)], rounded[AT_ONCE * sizeof(float)];
    const ps_dtype dtype = c->settings.dtype;
    const size_t item = ps_dtype_bytes(dtype);
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    for (int64_t done = 0; done < p->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, p->n - done), at = p->chunk_offset + done;
        float *master = ps_client_element(c, PS_LIST_MASTER, p->chunk, at);
        PS_TRY(ps_queue_get(q, masters, master, n * (int64_t)sizeof *masters));
        PS_TRY(ps_queue_get(q, params, ps_client_element(c, PS_LIST_PARAM16, p->chunk, at), n * (int64_t)item));
        ps_from_floats(dtype, rounded, 0, n, masters);
        if (memcmp(params, rounded, (size_t)n * item) == 0) continue;
        for (int64_t i = 0; i < n; i++)
            if (memcmp(params + (size_t)i * item, rounded + (size_t)i * item, item) != 0)
                ps_to_floats(dtype, params, i, 1, &masters[i]);
        PS_TRY(ps_queue_put(q, master, masters, n * (int64_t)sizeof *masters));
    }
    return PS_OK;
}

/* Where the device has both. */
static ps_status follow(ps_client *c, const ps_client_piece *p, ps_list from, ps_list to)
{
    PS_TRY(ps_client_hold(c, from, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    ps_status st = ps_client_hold(c, to, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = to == PS_LIST_MASTER ? widen_param(c, p) : round_master(c, p);
        ps_client_let_go(c, to, p->chunk);
    }
    ps_client_let_go(c, from, p->chunk);
    return st;
}

static ps_status follow_all(ps_client *c, int32_t tensor, ps_list from, ps_list to)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_client_piece *p = ps_client_piece_of(c, t, k);
        if (c->has_master[p->chunk]) PS_TRY(follow(c, p, from, to));
    }
    return PS_OK;
}

static bool is_overwritten(const ps_client *c, const ps_client_tensor_state *t)
{
    for (int32_t k = 0; k < t->n_pieces; k++)
        if (ps_client_piece_of(c, t, k)->gradient == PS_GRADIENT_OVER) return true;
    return false;
}

ps_status ps_client_settle(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (t->is_param_newer) PS_TRY(follow_all(c, tensor, PS_LIST_PARAM16, PS_LIST_MASTER));
    t->is_param_newer = false;
    if (!t->is_master_newer || is_overwritten(c, t)) return PS_OK; /* the parameter comes when it is asked for */
    PS_TRY(follow_all(c, tensor, PS_LIST_MASTER, PS_LIST_PARAM16));
    t->is_master_newer = false;
    return PS_OK;
}

/* All tensors of such a chunk are without gradient so far, so their parameters are there. */
static ps_status make_master(ps_client *c, int32_t chunk)
{
    PS_TRY(ps_client_hold(c, PS_LIST_PARAM16, chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    ps_status st = ps_client_hold(c, PS_LIST_MASTER, chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = ps_client_cast(c, PS_TIER_DEVICE, ps_client_element(c, PS_LIST_MASTER, chunk, 0), PS_DTYPE_F32,
                            ps_client_element(c, PS_LIST_PARAM16, chunk, 0), c->settings.dtype,
                            c->layout->used_elements[chunk]);
        ps_client_let_go(c, PS_LIST_MASTER, chunk);
    }
    ps_client_let_go(c, PS_LIST_PARAM16, chunk);
    c->has_master[chunk] = st == PS_OK;
    return st;
}

ps_status ps_client_need_master(ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++)
        if (!c->has_master[p.chunk + k] && ps_client_owns(c, p.chunk + k)) PS_TRY(make_master(c, p.chunk + k));
    return PS_OK;
}

/* ---- places ---- */

static ps_list list_of(const ps_client *c, int32_t tensor, ps_client_what what)
{
    if (what == PS_CLIENT_PARAM) return PS_LIST_PARAM16;
    if (what == PS_CLIENT_MASTER) return PS_LIST_MASTER;
    return ps_client_gradient_list(c, ps_client_piece_of(c, &c->tensors[tensor], 0));
}

static int32_t *pins_of(ps_client *c, int32_t tensor, ps_client_what what)
{
    return what == PS_CLIENT_PARAM ? &c->pin_counts[tensor] : &c->tensors[tensor].pins[what];
}

/* With several ranks a gradient is one rank's as long as it is not summed up, then its owner's. */
static ps_status expect_gradient_here(const ps_client *c, const ps_client_tensor_state *t)
{
    for (int32_t k = 0; k < t->n_pieces; k++)
        if (ps_client_piece_of(c, t, k)->gradient == PS_GRADIENT_NONE)
            return PS_FAIL(PS_ESTATE, "%.200s: its gradient is with rank %d, who owns it", t->name,
                           ps_client_piece_of(c, t, k)->chunk % c->settings.ranks.n);
    return PS_OK;
}

/* A failure has left it half moved: the rest follows. */
static bool is_torn(const ps_client *c, const ps_client_tensor_state *t)
{
    for (int32_t k = 1; k < t->n_pieces; k++)
        if (ps_client_piece_of(c, t, k)->gradient != ps_client_piece_of(c, t, 0)->gradient) return true;
    return false;
}

static ps_status expect_own(const ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++)
        if (!ps_client_owns(c, p.chunk + k))
            return PS_FAIL(PS_ESTATE, "%.200s: its fp32 value is with rank %d, who owns it; ps_client_read gives it",
                           c->tensors[tensor].name, (p.chunk + k) % c->settings.ranks.n);
    return PS_OK;
}

/* What is asked for is there, and up to date. */
static ps_status make_ready(ps_client *c, int32_t tensor, ps_client_what what)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (what == PS_CLIENT_GRADIENT) {
        if (!t->has_gradient) return PS_FAIL(PS_ESTATE, "%.200s has no gradient", t->name);
        if (t->is_apart) return PS_OK;
        PS_TRY(expect_gradient_here(c, t));
        return is_torn(c, t) ? ps_client_restore(c, tensor) : PS_OK;
    }
    if (t->is_apart) return PS_OK;
    if (what == PS_CLIENT_PARAM && t->has_gradient && !t->keeps_param) {
        ps_client_unshare(c, tensor);
        t->keeps_param = true;
        c->n_restored++;
    }
    if (what == PS_CLIENT_PARAM && is_overwritten(c, t)) PS_TRY(ps_client_restore(c, tensor));
    if (what == PS_CLIENT_MASTER) PS_TRY(expect_own(c, tensor));
    if (what == PS_CLIENT_MASTER) PS_TRY(ps_client_need_master(c, tensor));
    return t->is_param_newer || t->is_master_newer ? ps_client_settle(c, tensor) : PS_OK;
}

static ps_status hold_all(ps_client *c, int32_t tensor, ps_list list, bool is_param, ps_access_mode mode)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++) {
        ps_status st = list == PS_LIST_PARAM16 && is_param ? ps_client_gather(c, p.chunk + k) : PS_OK;
        if (st == PS_OK) st = ps_client_hold(c, list, p.chunk + k, PS_TIER_DEVICE, mode);
        if (st == PS_OK) continue;
        while (k-- > 0) ps_client_let_go(c, list, p.chunk + k);
        return st;
    }
    return PS_OK;
}

static void *apart_place(const ps_client *c, const ps_client_tensor_state *t, ps_client_what what)
{
    return ps_client_apart(t, what == PS_CLIENT_GRADIENT ? ps_lists_grad(&c->lists) : PS_LIST_MASTER);
}

/* Who has the room, and how much more would do: all that is in use stays, and this comes beside it. */
static ps_status tell_room(const ps_client *c, const ps_client_tensor_state *t, ps_status st)
{
    char cause[256];
    int64_t held = 0;
    const int64_t framework = ps_store_get_stats(c->tiers.store).non_model_bytes;
    if (st != PS_EBUDGET) return st;
    strncpy(cause, ps_last_error(), sizeof cause - 1);
    cause[sizeof cause - 1] = '\0';
    for (int32_t i = 0; i < c->held.n; i++) {
        const ps_list list = ps_lists_list_of(&c->lists, c->layout, c->held.ids[i]);
        held += ps_lists_chunk_bytes(&c->lists, c->layout, list);
    }
    const int64_t wanted = t->n_pieces * ps_lists_chunk_bytes(&c->lists, c->layout, PS_LIST_PARAM16);
    const int64_t budget = c->settings.budgets.bytes[PS_TIER_DEVICE];
    const char *label = ps_client_moment_label(c);
    return PS_FAIL(
        st,
        "%.200s%s%.100s: no room for its chunks, %lld bytes, beside chunks in use, %lld bytes, and %lld of the "
        "framework itself, in memory.device = %lld: %lld would do, as would smaller chunks "
        "(default_chunk_size) or letting tensors go before others are used: %s",
        t->name, label != NULL ? " in " : "", label != NULL ? label : "", (long long)wanted, (long long)held,
        (long long)framework, (long long)budget, (long long)ps_max_i64(budget + wanted, held + wanted + framework),
        cause);
}

/* Other ranks are about to wait for this one in an exchange that it does not come to. */
static ps_status tell_ranks(ps_client *c, ps_status st)
{
    return c->comm != NULL && st != PS_EINVAL && st != PS_ESTATE ? ps_client_break(c, st) : st;
}

static ps_status pin(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, ps_client_place *place)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (what < 0 || what >= PS_CLIENT_WHAT_COUNT) return PS_FAIL(PS_EINVAL, "%d is no ps_client_what", (int)what);
    if (mode != PS_CLIENT_READ && mode != PS_CLIENT_WRITE)
        return PS_FAIL(PS_EINVAL, "%d is no ps_client_mode", (int)mode);
    PS_TRY(tell_room(c, t, make_ready(c, tensor, what)));
    const ps_list list = list_of(c, tensor, what);
    *place = (ps_client_place){.dtype = t->is_apart || list != PS_LIST_PARAM16 ? PS_DTYPE_F32 : c->settings.dtype,
                               .gpu = c->settings.backend_kind == PS_BACKEND_CUDA ? c->settings.gpu.ordinal : -1};
    if (t->is_apart) {
        place->address = apart_place(c, t, what);
    } else {
        const ps_access_mode access = mode == PS_CLIENT_READ ? PS_ACCESS_READ : PS_ACCESS_WRITE;
        PS_TRY(tell_room(c, t, hold_all(c, tensor, list, what == PS_CLIENT_PARAM, access)));
        const ps_place p = ps_client_place_of(c, tensor);
        place->address = ps_client_element(c, list, p.chunk, p.offset);
    }
    ++*pins_of(c, tensor, what);
    t->is_writing[what] = t->is_writing[what] || mode == PS_CLIENT_WRITE;
    return PS_OK;
}

/* What may have been written, the other one is to have; by whoever needs it first, who can say so when it fails. */
static void unpin(ps_client *c, int32_t tensor, ps_client_what what)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    int32_t *pins = pins_of(c, tensor, what);
    PS_ASSERT(*pins > 0);
    if (t->is_writing[what] && !t->is_apart) {
        t->is_param_newer = t->is_param_newer || what == PS_CLIENT_PARAM;
        t->is_master_newer = t->is_master_newer || what == PS_CLIENT_MASTER;
    }
    if (t->is_writing[what] && what == PS_CLIENT_GRADIENT) t->is_gradient_changed = true;
    if (!t->is_apart) {
        const ps_list list = list_of(c, tensor, what);
        const ps_place p = ps_client_place_of(c, tensor);
        for (int32_t k = 0; k < p.n_chunks; k++) ps_client_let_go(c, list, p.chunk + k);
    }
    if (--*pins == 0) t->is_writing[what] = false;
}

ps_status ps_client_pin(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, ps_client_place *place)
{
    PS_TRY(PS_NEED("client place", c, place));
    ps_client_place own;
    PS_TRY(ps_client_enter_with(c, "ps_client_pin", PS_CLIENT_READY, tensor));
    ps_status st = tell_ranks(c, pin(c, tensor, what, mode, &own));
    if (st == PS_OK) {
        st = PS_SIZED_GIVE(ps_client_place, &own, place);
        if (st != PS_OK) unpin(c, tensor, what);
    }
    ps_client_leave(c);
    return st;
}

void ps_client_unpin(ps_client *c, int32_t tensor, ps_client_what what)
{
    if (c == NULL || c->process != getpid()) return;
    pthread_mutex_lock(&c->lock);
    if (c->pin_counts != NULL && tensor >= 0 && tensor < c->n_tensors && what >= 0 &&
        what<PS_CLIENT_WHAT_COUNT && * pins_of(c, tensor, what)> 0)
        unpin(c, tensor, what);
    pthread_mutex_unlock(&c->lock);
}

/* ---- DLPack ---- */

/* Its binary interface, version 0 (github.com/dmlc/dlpack, dlpack.h): names are ours. */
enum { DL_CPU = 1, DL_CUDA = 2, DL_FLOAT = 2, DL_BFLOAT = 4 };

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t n_dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct lent {
    dl_managed managed; /* first: that is who comes back */
    ps_client *client;
    int32_t tensor;
    ps_client_what what;
    int64_t shape[PS_CLIENT_DIMS_MAX], strides[PS_CLIENT_DIMS_MAX];
} lent;

static void come_back(dl_managed *m)
{
    lent *l = (lent *)m;
    ps_client *c = l->client;
    if (c->process != getpid()) return; /* a copy in a process that was forked off: the tensor is the parent's */
    pthread_mutex_lock(&c->lock);
    unpin(c, l->tensor, l->what);
    const bool is_last = --c->n_lent == 0 && c->is_closing;
    pthread_mutex_unlock(&c->lock);
    ps_mem_free(l);
    if (is_last) ps_client_free(c);
}

static void describe(const ps_client_tensor_state *t, const ps_client_place *p, lent *l)
{
    int64_t stride = 1;
    memcpy(l->shape, t->shape, sizeof l->shape);
    for (int32_t i = t->n_dims - 1; i >= 0; i--) {
        l->strides[i] = stride;
        stride *= t->shape[i];
    }
    l->managed = (dl_managed){.tensor = {.data = p->address,
                                         .device_type = p->gpu >= 0 ? DL_CUDA : DL_CPU,
                                         .device_id = p->gpu >= 0 ? p->gpu : 0,
                                         .n_dims = t->n_dims,
                                         .code = p->dtype == PS_DTYPE_BF16 ? DL_BFLOAT : DL_FLOAT,
                                         .bits = (uint8_t)(8 * ps_dtype_bytes(p->dtype)),
                                         .lanes = 1,
                                         .shape = l->shape,
                                         .strides = l->strides},
                              .context = l,
                              .deleter = come_back};
}

static ps_status lend(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, void **managed)
{
    ps_client_place place;
    lent *l;
    PS_TRY(ps_mem_alloc(1, sizeof *l, &l));
    const ps_status st = pin(c, tensor, what, mode, &place);
    if (st != PS_OK) {
        ps_mem_free(l);
        return st;
    }
    l->client = c;
    l->tensor = tensor;
    l->what = what;
    describe(&c->tensors[tensor], &place, l);
    c->n_lent++;
    *managed = &l->managed;
    return PS_OK;
}

ps_status ps_client_lend(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, void **managed)
{
    PS_TRY(PS_NEED_FOR(managed, "client managed", c, managed));
    PS_TRY(ps_client_enter_with(c, "ps_client_lend", PS_CLIENT_READY, tensor));
    const ps_status st = tell_ranks(c, lend(c, tensor, what, mode, managed));
    ps_client_leave(c);
    return st;
}
