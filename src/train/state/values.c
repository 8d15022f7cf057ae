#include "train/state/values.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/split.h"

/* Few enough for one thread. Pieces are small, files slower than memory, and on a busy machine waking others takes
 * longer than the work. */
#define CAST_ELEMENTS 8192

ps_status ps_values_cast(const ps_model_state *s, void *dst, ps_dtype to, const void *src, ps_dtype from, int64_t n)
{
    if (to == from) {
        memcpy(dst, src, (size_t)n * ps_dtype_bytes(to));
        return PS_OK;
    }
    for (int64_t done = 0; done < n; done += CAST_ELEMENTS) {
        const ps_cast_args a = {.dst = (char *)dst + done * (int64_t)ps_dtype_bytes(to),
                                .src = (const char *)src + done * (int64_t)ps_dtype_bytes(from),
                                .n = ps_min_i64(CAST_ELEMENTS, n - done),
                                .dst_dtype = to,
                                .src_dtype = from};
        PS_TRY(ps_run_cast(ps_backend_host(s->settings->backend), NULL, &a, 0));
    }
    return PS_OK;
}

/* A view from element `at` on, of at most n. Of a quantized tensor chunk_offset is that of the record with `at`, in
 * elements of PARAM16. */
static ps_piece piece_at(const ps_model_state *s, int32_t tensor, int64_t at, int64_t n)
{
    const ps_quant quant = ps_state_quant(s, tensor);
    const ps_place *place = &s->layout->places[tensor];
    n = ps_min_i64(n, PS_VALUES_ELEMENTS);
    if (quant == PS_QUANT_NONE) return ps_piece_from(s->layout, tensor, at, n);
    const int64_t bytes_before = ps_item_offset(ps_quant_item(quant), at / PS_QUANT_RECORD * PS_QUANT_RECORD);
    return (ps_piece){.tensor = tensor,
                      .chunk = place->chunk,
                      .chunk_offset = place->offset + bytes_before / s->lists->list[PS_LIST_PARAM16].item.bytes,
                      .tensor_offset = at,
                      .n = n};
}

bool ps_values_next_owned(const ps_model_state *s, int32_t tensor, int64_t *first, int64_t *n)
{
    const int64_t end = ps_state_elements(s, tensor);
    *n = 0;
    for (int64_t at = *first; at < end;) {
        const ps_piece p = piece_at(s, tensor, at, end - at);
        const bool is_own = ps_state_owns(s, p.chunk);
        if (!is_own && *n > 0) return true;
        if (is_own && *n == 0) *first = at;
        if (is_own) *n += p.n;
        at += p.n;
    }
    return *n > 0;
}

static ps_list list_of(const ps_model_state *s, ps_list list, int32_t chunk)
{
    return list == PS_VALUE_LIST ? ps_state_value_list(s, chunk) : list;
}

/* How a piece is stored, where its elements are used as floats but are none. */
typedef struct coding {
    ps_item item;     /* of its elements */
    ps_quant quant;   /* if it is quantized */
    ps_format format; /* else */
    int64_t before;   /* elements of the first group before the piece */
    int64_t left;     /* elements of the tensor from the first group on */
} coding;

static coding coding_of(const ps_model_state *s, ps_list list, const ps_piece *p)
{
    const ps_quant quant = list == PS_LIST_PARAM16 ? ps_state_quant(s, p->tensor) : PS_QUANT_NONE;
    const ps_item item = quant != PS_QUANT_NONE ? ps_quant_item(quant) : s->lists->list[list].item;
    const int64_t before = (quant != PS_QUANT_NONE ? p->tensor_offset : p->chunk_offset) % item.elements;
    return (coding){.item = item,
                    .quant = quant,
                    .format = ps_state_format(s, list),
                    .before = before,
                    .left = ps_state_elements(s, p->tensor) - p->tensor_offset + before};
}

static bool is_coded(const coding *c)
{
    return c->quant != PS_QUANT_NONE || c->format != PS_FORMAT_F32;
}

static void decode(const coding *c, const void *groups, int64_t first, float *values, int64_t n)
{
    if (c->quant != PS_QUANT_NONE)
        ps_dequantize(c->quant, groups, first, values, n);
    else
        ps_format_decode(c->format, groups, first, values, n);
}

/* What follows the tensor in its last record becomes 0. */
static void encode(const coding *c, void *groups, const float *values, int64_t n)
{
    if (c->quant != PS_QUANT_NONE)
        ps_quantize(c->quant, groups, values, ps_min_i64(n, c->left));
    else
        ps_format_encode(c->format, groups, values, n);
}

/* From the group on in which the piece begins. */
static ps_status open_view(const ps_model_state *s, ps_list list, const ps_piece *p, ps_access_mode mode, ps_view *v)
{
    const coding c = coding_of(s, list, p);
    const ps_item item = s->lists->list[list].item; /* by which chunk_offset counts */
    const int64_t first = c.quant != PS_QUANT_NONE ? p->chunk_offset : p->chunk_offset - c.before;
    return ps_view_open(s->tiers->store, ps_store_chunk(s->layout, list, p->chunk), s->update_tier[p->chunk],
                        ps_item_offset(item, first), ps_item_bytes(c.item, c.before + p->n), mode, v);
}

/* st, or when that is PS_OK the failure of closing. */
static ps_status close_view(const ps_model_state *s, ps_view *v, ps_status st)
{
    const ps_status closed = ps_view_close(s->tiers->store, v);
    return st != PS_OK ? st : closed;
}

/* Elements that are no floats are used as such. Those of the same groups are decoded too, and encoded again after a
 * write. */
static ps_status use_decoded(const coding *c, const ps_piece *p, ps_access_mode mode, ps_values_func use, void *user,
                             void *groups)
{
    const int64_t n = ps_round_up(c->before + p->n, c->item.elements);
    float *values = NULL;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *values, &values));
    decode(c, groups, 0, values, n);
    const ps_status st = use(user, PS_DTYPE_F32, values + c->before, p);
    if (st == PS_OK && mode != PS_ACCESS_READ) encode(c, groups, values, n);
    ps_mem_free(values);
    return st;
}

/* Views of a piece in PARAM16 and MASTER, of which values are made. */
typedef struct split_view {
    ps_view params, lows;
} split_view;

static ps_status open_split(const ps_model_state *s, const ps_piece *p, ps_access_mode mode, split_view *v)
{
    PS_TRY(open_view(s, PS_LIST_PARAM16, p, mode, &v->params));
    const ps_status st = open_view(s, PS_LIST_MASTER, p, mode, &v->lows);
    return st == PS_OK ? PS_OK : close_view(s, &v->params, st);
}

static ps_status close_split(const ps_model_state *s, split_view *v, ps_status st)
{
    return close_view(s, &v->params, close_view(s, &v->lows, st));
}

ps_status ps_values_join(const ps_model_state *s, const ps_piece *p, float *out)
{
    split_view v;
    PS_TRY(open_split(s, p, PS_ACCESS_READ, &v));
    ps_split_join_all(v.params.bytes, v.lows.bytes, out, p->n);
    return close_split(s, &v, PS_OK);
}

static ps_status use_joined(const ps_model_state *s, const ps_piece *p, ps_access_mode mode, ps_values_func use,
                            void *user, float *values)
{
    split_view v;
    PS_TRY(open_split(s, p, mode, &v));
    ps_split_join_all(v.params.bytes, v.lows.bytes, values, p->n);
    const ps_status st = use(user, PS_DTYPE_F32, values, p);
    if (st == PS_OK && mode != PS_ACCESS_READ) ps_split_all(values, v.params.bytes, v.lows.bytes, p->n);
    return close_split(s, &v, st);
}

static ps_status use_split(const ps_model_state *s, const ps_piece *p, ps_access_mode mode, ps_values_func use,
                           void *user)
{
    float *values = NULL;
    PS_TRY(ps_mem_alloc((size_t)p->n, sizeof *values, &values));
    const ps_status st = use_joined(s, p, mode, use, user, values);
    ps_mem_free(values);
    return st;
}

static ps_status use_view(const ps_model_state *s, ps_list list, const ps_piece *p, ps_access_mode mode,
                          ps_values_func use, void *user)
{
    ps_view v;
    if (ps_state_is_split(s, list)) return use_split(s, p, mode, use, user);
    const coding c = coding_of(s, list, p);
    PS_TRY(open_view(s, list, p, mode, &v));
    return close_view(s, &v,
                      is_coded(&c) ? use_decoded(&c, p, mode, use, user, v.bytes)
                                   : use(user, ps_state_dtype(s, list), v.bytes, p));
}

ps_status ps_values_each(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first, int64_t n,
                         ps_access_mode mode, ps_values_func use, void *user)
{
    for (int64_t done = 0; done < n;) {
        const ps_piece p = piece_at(s, tensor, first + done, n - done);
        if (ps_state_owns(s, p.chunk)) PS_TRY(use_view(s, list_of(s, list, p.chunk), &p, mode, use, user));
        done += p.n;
    }
    return PS_OK;
}

/* ---- of all ranks ---- */

typedef struct sharing {
    const ps_model_state *s;
    ps_values_func use;
    void *user;
    float *room; /* [PS_VALUES_ELEMENTS] for values of other ranks, and own ones that are not floats */
    ps_status used;
    char message[512]; /* of a failure of `use` */
} sharing;

static void use_shared(sharing *h, float *values, const ps_piece *p)
{
    if (h->used != PS_OK) return;
    h->used = h->use(h->user, PS_DTYPE_F32, values, p);
    if (h->used != PS_OK) snprintf(h->message, sizeof h->message, "%s", ps_last_error());
}

static ps_status share_piece(sharing *h, const ps_piece *p, float *values)
{
    const ps_ranks *ranks = &h->s->settings->ranks;
    const ps_comm_part part = {.payload = values, .n = p->n, .owner = ps_ranks_owner(ranks, p->chunk)};
    ps_collectives *x = ps_comm_messages(ranks->comm);
    ps_event done;
    PS_TRY(ps_collectives_gather(
        x, &(ps_transfer){.parts = &part, .n_parts = 1, .dtype = PS_DTYPE_F32, .what = "tensors"}, &done));
    PS_TRY(ps_collectives_wait(x, done));
    use_shared(h, values, p);
    return PS_OK;
}

static ps_status share_own(sharing *h, ps_list list, const ps_piece *p)
{
    const ps_list here = list_of(h->s, list, p->chunk);
    const ps_dtype dtype = ps_state_dtype(h->s, here);
    const coding c = coding_of(h->s, here, p);
    ps_view v;
    if (ps_state_is_split(h->s, here)) {
        PS_TRY(ps_values_join(h->s, p, h->room));
        return share_piece(h, p, h->room);
    }
    PS_TRY(open_view(h->s, here, p, PS_ACCESS_READ, &v));
    if (is_coded(&c)) {
        decode(&c, v.bytes, c.before, h->room, p->n);
        return close_view(h->s, &v, share_piece(h, p, h->room));
    }
    if (dtype == PS_DTYPE_F32) return close_view(h->s, &v, share_piece(h, p, v.bytes));
    ps_status st = ps_values_cast(h->s, h->room, PS_DTYPE_F32, v.bytes, dtype, p->n);
    if (st == PS_OK) st = share_piece(h, p, h->room);
    return close_view(h->s, &v, st);
}

static ps_status share_all(sharing *h, ps_list list, int32_t tensor, int64_t first, int64_t n)
{
    PS_TRY(ps_mem_alloc((size_t)PS_VALUES_ELEMENTS, sizeof *h->room, &h->room));
    for (int64_t done = 0; done < n;) {
        const ps_piece p = piece_at(h->s, tensor, first + done, n - done);
        PS_TRY(ps_state_owns(h->s, p.chunk) ? share_own(h, list, &p) : share_piece(h, &p, h->room));
        done += p.n;
    }
    return PS_OK;
}

ps_status ps_values_each_of_all(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first, int64_t n,
                                ps_values_func use, void *user)
{
    if (s->settings->ranks.n == 1) return ps_values_each(s, list, tensor, first, n, PS_ACCESS_READ, use, user);
    sharing h = {.s = s, .use = use, .user = user};
    const ps_status st = share_all(&h, list, tensor, first, n);
    ps_mem_free(h.room);
    if (st != PS_OK) ps_comm_fail(s->settings->ranks.comm, ps_last_error());
    PS_TRY(st);
    return h.used == PS_OK ? PS_OK : PS_FAIL(h.used, "%s", h.message);
}

/* ---- as floats ---- */

/* The caller's array; it begins with element `first` of the tensor. */
typedef struct array {
    const ps_model_state *s;
    float *out;
    const float *in;
    int64_t first;
} array;

static ps_status read_piece(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    const array *a = user;
    return ps_values_cast(a->s, a->out + (p->tensor_offset - a->first), PS_DTYPE_F32, values, dtype, p->n);
}

static ps_status write_piece(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    const array *a = user;
    return ps_values_cast(a->s, values, dtype, a->in + (p->tensor_offset - a->first), PS_DTYPE_F32, p->n);
}

ps_status ps_values_read(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first, int64_t n, float *out)
{
    array a = {.s = s, .out = out, .first = first};
    return ps_values_each_of_all(s, list, tensor, first, n, read_piece, &a);
}

ps_status ps_values_write(const ps_model_state *s, ps_list list, int32_t tensor, int64_t first, int64_t n,
                          const float *in)
{
    array a = {.s = s, .in = in, .first = first};
    return ps_values_each(s, list, tensor, first, n, PS_ACCESS_WRITE, write_piece, &a);
}

ps_status ps_values_check_range(const char *name, int64_t elements, int64_t first, int64_t n)
{
    if (first >= 0 && n >= 0 && n <= elements && first <= elements - n) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%.200s: %lld elements from %lld of %lld", name, (long long)n, (long long)first,
                   (long long)elements);
}

ps_status ps_values_find_list(const ps_settings *s, const char *call, const char *state, ps_list *out)
{
    const ps_optimizer_setup *o = &s->optimizer;
    const int32_t i = ps_optimizer_find_state(o, state);
    char kept[PS_OPTIMIZER_KEPT_TEXT_MAX];
    *out = PS_LIST_STATES + i;
    if (i >= 0) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: \"%.64s\" is no state of optimizer.type = %s with these options, which keeps %s",
                   call, state, o->optimizer->name, ps_optimizer_kept_text(o, kept));
}

ps_status ps_values_expect_state(const ps_settings *s, const char *name, bool is_whole, ps_list list)
{
    const ps_optimizer_setup *o = &s->optimizer;
    const int32_t i = list - PS_LIST_STATES;
    if (ps_optimizer_states_of(o, is_whole) >> i & 1) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s has no %s: optimizer.type = %s updates it %s", name, ps_optimizer_state_name(o, i),
                   o->optimizer->name, is_whole ? "as a whole matrix" : "by elements, as AdamW");
}
