/* tensors.c - parameters and gradients from outside, piece by piece, wherever their chunks are. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/sized.h"
#include "chunk/view.h"
#include "comm/agree.h"
#include "engine/engine.h"
#include "engine/tensors.h"

int64_t ps_engine_get_tensor_count(const ps_engine *e)
{
    return e->program->n_params;
}

static ps_status check_range(const ps_engine *e, int64_t tensor, int64_t first, int64_t n)
{
    if (tensor < 0 || tensor >= e->program->n_params)
        return PS_FAIL(PS_EINVAL, "tensor %lld of %d", (long long)tensor, e->program->n_params);
    const ps_param *p = &e->program->params[tensor];
    if (first < 0 || n < 0 || n > p->elements || first > p->elements - n)
        return PS_FAIL(PS_EINVAL, "%s: %lld elements from %lld of %lld", p->name, (long long)n, (long long)first,
                       (long long)p->elements);
    return PS_OK;
}

ps_status ps_engine_get_tensor_info(const ps_engine *e, int64_t tensor, ps_tensor_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    PS_TRY(check_range(e, tensor, 0, 0));
    const ps_param *p = &e->program->params[tensor];
    const ps_tensor_info info = {.name = p->name,
                                 .n_dims = p->n_dims,
                                 .is_trained = e->settings.training && !p->is_frozen,
                                 .shape = {p->shape[0], p->shape[1]},
                                 .elements = p->elements,
                                 .group = p->group};
    return PS_SIZED_GIVE(ps_tensor_info, &info, out);
}

static ps_dtype list_dtype(const ps_engine *e, ps_list list)
{
    return list == PS_LIST_PARAM16 ? e->settings.dtype : PS_DTYPE_F32;
}

/* ---- pieces: what a view shows at once of a tensor, all of it in one chunk ---- */

/* What one view shows, what an owner sends at once, and the room that the other ranks have for it. */
#define PIECE_ELEMENTS (PS_VIEW_BYTES_MAX / (int64_t)sizeof(float))

/* To be done with a piece: `values`, of the list's type, are the elements [first, first + n) of the tensor. */
typedef ps_status (*piece_func)(ps_engine *e, void *user, ps_list list, void *values, int64_t first, int64_t n);

/* The piece that begins with element `at` of a tensor, of at most n elements. */
static ps_piece piece_at(const ps_engine *e, int32_t tensor, int64_t at, int64_t n)
{
    return ps_piece_from(e->blueprint->layout, tensor, at, ps_min_i64(n, PIECE_ELEMENTS));
}

bool ps_engine_next_owned(const ps_engine *e, int64_t tensor, int64_t *first, int64_t *n)
{
    const int64_t end = e->program->params[tensor].elements;
    *n = 0;
    for (int64_t at = *first; at < end;) {
        const ps_piece p = piece_at(e, (int32_t)tensor, at, end - at);
        const bool is_own = ps_blueprint_owns(e->blueprint, p.chunk);
        if (!is_own && *n > 0) return true;
        if (is_own && *n == 0) *first = at;
        if (is_own) *n += p.n;
        at += p.n;
    }
    return *n > 0;
}

static ps_status expect_looked_at(const ps_engine *e)
{
    if (e->state == PS_ENGINE_FAILED) return ps_engine_expect(e, PS_ENGINE_READY, "access to tensors");
    if (e->state == PS_ENGINE_BACKWARD && e->settings.may_update_early) /* on all ranks, whatever each one's plan */
        return PS_FAIL(PS_ESTATE,
                       "between ps_backward and ps_step some parameters may be updated already, and gradients "
                       "used up, as updates may run within the backward pass; set memory.update_in_backward "
                       "= never to look at them");
    return PS_OK;
}

/* Before chunks are looked at. */
static ps_status enter_tensors(ps_engine *e)
{
    PS_TRY(expect_looked_at(e));
    return ps_engine_check(e, ps_runner_flush(e->runner));
}

/* Of a call that all ranks make: with the same range of the same tensor, st being what else this rank has found, or none
 * goes on. */
static ps_status enter_call(ps_engine *e, ps_status st, const char *call, int64_t tensor, int64_t first, int64_t n)
{
    if (st == PS_OK) st = check_range(e, tensor, first, n);
    if (st == PS_OK) st = expect_looked_at(e);
    return ps_comm_agree_alike(e->settings.ranks.comm, st, call,
                               (const double[]){(double)tensor, (double)first, (double)n}, 3);
}

static ps_status view_piece(ps_engine *e, ps_list list, const ps_piece *p, ps_access_mode mode, ps_view *v)
{
    const int64_t item = e->blueprint->lists.list[list].item_bytes;
    return ps_view_open(e->tiers.store, ps_store_chunk(e->blueprint->layout, list, p->chunk),
                        e->blueprint->update_tier[p->chunk], p->chunk_offset * item, p->n * item, mode, v);
}

/* st, or when that is PS_OK the failure of closing. */
static ps_status end_view(ps_engine *e, ps_view *v, ps_status st)
{
    const ps_status closed = ps_view_close(e->tiers.store, v);
    return st != PS_OK ? st : closed;
}

/* Call `use` for the pieces of [first, first + n) that this rank owns, in order. */
static ps_status for_pieces(ps_engine *e, ps_list list, int32_t tensor, int64_t first, int64_t n, ps_access_mode mode,
                            piece_func use, void *user)
{
    PS_TRY(enter_tensors(e));
    if (mode != PS_ACCESS_READ) e->n_decoded = 0; /* keys and values of other parameters */
    for (int64_t done = 0; done < n;) {
        const ps_piece p = piece_at(e, tensor, first + done, n - done);
        if (ps_blueprint_owns(e->blueprint, p.chunk)) {
            ps_view v;
            PS_TRY(ps_engine_check_device(e, view_piece(e, list, &p, mode, &v)));
            PS_TRY(ps_engine_check_device(e, end_view(e, &v, use(e, user, list, v.bytes, first + done, p.n))));
        }
        done += p.n;
    }
    return PS_OK;
}

/* ---- reading, all ranks together ---- */

typedef struct sharing {
    ps_engine *e;
    ps_list list;
    ps_dtype dtype;
    piece_func use;
    void *user;
    char *room; /* [PIECE_ELEMENTS] for values of others */
    ps_status used;
    char message[512]; /* of a failure of `use` */
} sharing;

/* What this rank does with values is not the others' concern: it goes on, and fails at the end. */
static void use_shared(sharing *h, void *values, int64_t first, int64_t n)
{
    if (h->used != PS_OK) return;
    h->used = h->use(h->e, h->user, h->list, values, first, n);
    if (h->used != PS_OK) snprintf(h->message, sizeof h->message, "%s", ps_last_error());
}

static ps_status share_piece(sharing *h, const ps_piece *p, void *own, int64_t first)
{
    const ps_comm_part part = {
        .payload = own != NULL ? own : h->room, .n = p->n, .owner = ps_ranks_owner(&h->e->settings.ranks, p->chunk)};
    ps_collectives *carrier = ps_comm_collectives(h->e->settings.ranks.comm);
    ps_event done;
    PS_TRY(ps_collectives_gather(
        carrier, &(ps_transfer){.parts = &part, .n_parts = 1, .dtype = h->dtype, .what = "tensors"}, &done));
    PS_TRY(ps_collectives_wait(carrier, done));
    use_shared(h, part.payload, first, p->n);
    return PS_OK;
}

static ps_status share_all(sharing *h, int32_t tensor, int64_t first, int64_t n)
{
    ps_engine *e = h->e;
    PS_TRY(enter_tensors(e));
    PS_TRY(ps_mem_alloc((size_t)PIECE_ELEMENTS, ps_dtype_bytes(h->dtype), &h->room));
    for (int64_t done = 0; done < n;) {
        const ps_piece p = piece_at(e, tensor, first + done, n - done);
        if (ps_blueprint_owns(e->blueprint, p.chunk)) {
            ps_view own;
            PS_TRY(view_piece(e, h->list, &p, PS_ACCESS_READ, &own));
            PS_TRY(end_view(e, &own, share_piece(h, &p, own.bytes, first + done)));
        } else {
            PS_TRY(share_piece(h, &p, NULL, first + done));
        }
        done += p.n;
    }
    return PS_OK;
}

/* As for_pieces for reading, but of all owners: all ranks see all elements of [first, first + n), in order. An owner
 * that cannot read tells the others. */
static ps_status for_all_pieces(ps_engine *e, ps_list list, int32_t tensor, int64_t first, int64_t n, piece_func use,
                                void *user)
{
    if (e->settings.ranks.n == 1) return for_pieces(e, list, tensor, first, n, PS_ACCESS_READ, use, user);
    sharing h = {.e = e, .list = list, .dtype = list_dtype(e, list), .use = use, .user = user};
    const ps_status st = ps_engine_check_device(e, share_all(&h, tensor, first, n));
    ps_mem_free(h.room);
    if (st != PS_OK) ps_comm_fail(e->settings.ranks.comm, ps_last_error());
    PS_TRY(st);
    return h.used == PS_OK ? PS_OK : PS_FAIL(h.used, "%s", h.message);
}

/* ---- elements as the caller has them ---- */

/* The caller's array; it begins with element `first` of the tensor. */
typedef struct array {
    float *out;
    const float *in;
    int64_t first;
} array;

static ps_status read_piece(ps_engine *e, void *user, ps_list list, void *values, int64_t first, int64_t n)
{
    const array *a = user;
    return ps_run_cast(ps_backend_host(e->settings.backend), NULL,
                       &(ps_cast_args){.dst = a->out + (first - a->first),
                                       .src = values,
                                       .n = n,
                                       .dst_dtype = PS_DTYPE_F32,
                                       .src_dtype = list_dtype(e, list)},
                       0);
}

/* Rounded at once: few enough for one thread. Pieces are small, files slower than memory, and on a busy machine waking
 * others takes longer than the work. */
#define CAST_ELEMENTS 8192

static ps_status cast(const ps_engine *e, void *dst, ps_dtype to, const void *src, ps_dtype from, int64_t n)
{
    for (int64_t done = 0; done < n; done += CAST_ELEMENTS) {
        const ps_cast_args a = {.dst = (char *)dst + done * (int64_t)ps_dtype_bytes(to),
                                .src = (const char *)src + done * (int64_t)ps_dtype_bytes(from),
                                .n = ps_min_i64(CAST_ELEMENTS, n - done),
                                .dst_dtype = to,
                                .src_dtype = from};
        PS_TRY(ps_run_cast(ps_backend_host(e->settings.backend), NULL, &a, 0));
    }
    return PS_OK;
}

static ps_status write_piece(ps_engine *e, void *user, ps_list list, void *values, int64_t first, int64_t n)
{
    const array *a = user;
    const float *in = a->in + (first - a->first);
    if (list_dtype(e, list) == PS_DTYPE_F32) {
        memcpy(values, in, (size_t)n * sizeof *in);
        return PS_OK;
    }
    return cast(e, values, list_dtype(e, list), in, PS_DTYPE_F32, n);
}

ps_list ps_engine_value_list(const ps_engine *e, int64_t tensor)
{
    return e->settings.training && !e->program->params[tensor].is_frozen ? PS_LIST_MASTER : PS_LIST_PARAM16;
}

ps_status ps_engine_read_tensor(ps_engine *e, int64_t tensor, int64_t first, int64_t n, float *out)
{
    PS_TRY(PS_NEED("engine out", e, PS_NEED_IF(n > 0, out)));
    static const char call[] = "ps_engine_read_tensor";
    PS_TRY(enter_call(e, ps_engine_expect_values(e, call), call, tensor, first, n));
    array a = {.out = out, .first = first};
    return for_all_pieces(e, ps_engine_value_list(e, tensor), (int32_t)tensor, first, n, read_piece, &a);
}

ps_status ps_engine_put_values(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n, const float *in)
{
    array a = {.in = in, .first = first};
    PS_TRY(check_range(e, tensor, first, n));
    PS_TRY(for_pieces(e, list, (int32_t)tensor, first, n, PS_ACCESS_WRITE, write_piece, &a));
    if (list != PS_LIST_MASTER) return PS_OK;
    return for_pieces(e, PS_LIST_PARAM16, (int32_t)tensor, first, n, PS_ACCESS_WRITE, write_piece, &a);
}

ps_status ps_engine_write_tensor(ps_engine *e, int64_t tensor, int64_t first, int64_t n, const float *in)
{
    PS_TRY(PS_NEED("engine in", e, PS_NEED_IF(n > 0, in)));
    static const char call[] = "ps_engine_write_tensor";
    ps_status st = ps_engine_expect(e, PS_ENGINE_READY, call);
    if (st == PS_OK) st = ps_engine_expect_values(e, call);
    PS_TRY(enter_call(e, st, call, tensor, first, n));
    /* a checkpoint under way has the values of before */
    PS_TRY(ps_engine_check_device(e, ps_runner_finish_snapshot(e->runner)));
    return ps_engine_put_values(e, ps_engine_value_list(e, tensor), tensor, first, n, in);
}

/* Of a tensor's gradient. */
typedef struct sum {
    ps_grad_sums *sums;
    int32_t tensor;
} sum;

/* A tensor that there is has gradient and states. */
static ps_status expect_trained(const ps_engine *e, int64_t tensor)
{
    if (tensor < 0 || tensor >= e->program->n_params) return PS_OK;
    const ps_param *p = &e->program->params[tensor];
    if (!p->is_frozen) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s is frozen (train.freeze, ps_set_trainable): it has no gradient, and no state of the optimizer",
                   p->name);
}

/* ---- states of the optimizer ---- */

const char *ps_engine_get_state_name(const ps_engine *e, int32_t i)
{
    const ps_optimizer_setup *o = &e->settings.optimizer;
    if (!e->settings.training || i < 0 || i >= o->n_states) return NULL;
    return o->optimizer->states[i].suffix + 1; /* behind its dot */
}

static ps_status no_such_state(const ps_engine *e, const char *call, const char *state)
{
    char kept[128] = "";
    for (int32_t i = 0; ps_engine_get_state_name(e, i) != NULL; i++) {
        const size_t n = strlen(kept);
        snprintf(kept + n, sizeof kept - n, "%s%s", i > 0 ? ", " : "", ps_engine_get_state_name(e, i));
    }
    return PS_FAIL(PS_EINVAL, "%s: \"%.64s\" is no state of optimizer.type = %s with these options, which keeps %s",
                   call, state != NULL ? state : "NULL", e->settings.optimizer.optimizer->name,
                   kept[0] != '\0' ? kept : "none");
}

static ps_status find_state(const ps_engine *e, const char *call, int64_t tensor, const char *state, ps_list *out)
{
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: an inference engine has no optimizer", call);
    for (int32_t i = 0; ps_engine_get_state_name(e, i) != NULL; i++) {
        *out = PS_LIST_STATES + i;
        if (state != NULL && strcmp(state, ps_engine_get_state_name(e, i)) == 0) return expect_trained(e, tensor);
    }
    return no_such_state(e, call, state);
}

ps_status ps_engine_read_state(ps_engine *e, int64_t tensor, const char *state, int64_t first, int64_t n, float *out)
{
    PS_TRY(PS_NEED("engine state out", e, state, PS_NEED_IF(n > 0, out)));
    static const char call[] = "ps_engine_read_state";
    ps_list list = 0;
    PS_TRY(enter_call(e, find_state(e, call, tensor, state, &list), call, tensor, first, n));
    array a = {.out = out, .first = first};
    return for_all_pieces(e, list, (int32_t)tensor, first, n, read_piece, &a);
}

ps_status ps_engine_write_state(ps_engine *e, int64_t tensor, const char *state, int64_t first, int64_t n,
                                const float *in)
{
    PS_TRY(PS_NEED("engine state in", e, state, PS_NEED_IF(n > 0, in)));
    static const char call[] = "ps_engine_write_state";
    ps_list list = 0;
    ps_status st = find_state(e, call, tensor, state, &list);
    if (st == PS_OK) st = ps_engine_expect(e, PS_ENGINE_READY, call);
    PS_TRY(enter_call(e, st, call, tensor, first, n));
    /* a checkpoint under way has the values of before */
    PS_TRY(ps_engine_check_device(e, ps_runner_finish_snapshot(e->runner)));
    return ps_engine_put_values(e, list, tensor, first, n, in);
}

int64_t ps_engine_get_update_count(const ps_engine *e)
{
    return e->n_updates;
}

static ps_status check_update_count(const ps_engine *e, const char *call, int64_t n_updates)
{
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: an inference engine has no optimizer", call);
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, call));
    if (ps_runner_micro(e->runner) > 0) return PS_FAIL(PS_ESTATE, "%s: finish the step under way first", call);
    if (n_updates >= 0 && n_updates <= PS_UPDATES_MAX) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: %lld updates, expected 0 to %lld", call, (long long)n_updates,
                   (long long)PS_UPDATES_MAX);
}

ps_status ps_engine_set_update_count(ps_engine *e, int64_t n_updates)
{
    PS_TRY(PS_NEED("engine", e));
    static const char call[] = "ps_engine_set_update_count";
    PS_TRY(ps_comm_agree_alike(e->settings.ranks.comm, check_update_count(e, call, n_updates), call,
                               (const double[]){(double)n_updates}, 1));
    e->n_updates = n_updates;
    e->last_step.step = n_updates;
    return PS_OK;
}

static ps_status enter_gradient(ps_engine *e, const char *call, int64_t tensor, int64_t first, int64_t n)
{
    ps_status st = ps_engine_expect(e, PS_ENGINE_BACKWARD, call);
    if (st == PS_OK) st = expect_trained(e, tensor);
    return enter_call(e, st, call, tensor, first, n);
}

ps_status ps_engine_read_gradient(ps_engine *e, int64_t tensor, int64_t first, int64_t n, float *out)
{
    PS_TRY(PS_NEED("engine out", e, PS_NEED_IF(n > 0, out)));
    PS_TRY(enter_gradient(e, "ps_engine_read_gradient", tensor, first, n));
    array a = {.out = out, .first = first};
    const ps_list list = ps_blueprint_sum_list(e->blueprint, (int32_t)tensor);
    return for_all_pieces(e, list, (int32_t)tensor, first, n, read_piece, &a);
}

ps_status ps_engine_write_gradient(ps_engine *e, int64_t tensor, int64_t first, int64_t n, const float *in)
{
    PS_TRY(PS_NEED("engine in", e, PS_NEED_IF(n > 0, in)));
    PS_TRY(enter_gradient(e, "ps_engine_write_gradient", tensor, first, n));
    array a = {.in = in, .first = first};
    const ps_list list = ps_blueprint_sum_list(e->blueprint, (int32_t)tensor);
    e->has_new_gradients = true;
    return for_pieces(e, list, (int32_t)tensor, first, n, PS_ACCESS_WRITE, write_piece, &a);
}

/* A view begins at a multiple of PS_GRAD_STATS_BLOCK elements of its tensor, as chunks and views are multiples of it. */
static ps_status sum_piece(ps_engine *e, void *user, ps_list list, void *values, int64_t first, int64_t n)
{
    const sum *s = user;
    PS_ASSERT(first % PS_GRAD_STATS_BLOCK == 0);
    const ps_grad_stats_args a = {
        .sums = s->sums, .x = values, .n = n, .tensor = s->tensor, .dtype = list_dtype(e, list)};
    return ps_run_grad_stats(ps_backend_host(e->settings.backend), NULL, &a, 0);
}

ps_status ps_engine_sum_gradients(ps_engine *e, ps_grad_sums *out)
{
    *out = (ps_grad_sums){0};
    for (int32_t t = 0; t < e->program->n_params; t++) {
        const ps_param *p = &e->program->params[t];
        sum s = {.sums = out, .tensor = t};
        if (p->is_frozen) continue;
        PS_TRY(for_pieces(e, ps_blueprint_sum_list(e->blueprint, t), t, 0, p->elements, PS_ACCESS_READ, sum_piece, &s));
    }
    return PS_OK;
}

/* ---- whole tensors ---- */

/* Elements given or taken at once: few, so that what was read is still in the cache when it is rounded. */
#define HANDED_ELEMENTS 32768

typedef struct transfer {
    int32_t tensor;
    ps_dtype dtype;
    ps_tensor_give_func give;
    ps_tensor_take_func take;
    void *user;
} transfer;

/* Elements in chunks: `values`, and the same as operators read them unless `rounded` is NULL. */
typedef struct filling {
    ps_engine *e;
    const transfer *t;
    ps_dtype dtype, rounded_dtype;
    char *values, *rounded;
    int64_t first, n;
} filling;

static ps_status fill_handed(const filling *f, int64_t done)
{
    float handed[HANDED_ELEMENTS];
    const int64_t n = ps_min_i64(HANDED_ELEMENTS, f->n - done);
    char *const at = f->values + done * (int64_t)ps_dtype_bytes(f->dtype);
    const bool in_place = f->t->dtype == f->dtype;
    PS_TRY(f->t->give(f->t->user, f->first + done, n, in_place ? (void *)at : handed));
    if (!in_place) PS_TRY(cast(f->e, at, f->dtype, handed, f->t->dtype, n));
    if (f->rounded == NULL) return PS_OK;
    char *const rounded_at = f->rounded + done * (int64_t)ps_dtype_bytes(f->rounded_dtype);
    return cast(f->e, rounded_at, f->rounded_dtype, at, f->dtype, n);
}

static ps_status fill_values(const filling *f)
{
    for (int64_t done = 0; done < f->n; done += HANDED_ELEMENTS) PS_TRY(fill_handed(f, done));
    return PS_OK;
}

/* Masters and 16-bit parameters together. */
static ps_status fill_piece(ps_engine *e, void *user, ps_list list, void *values, int64_t first, int64_t n)
{
    const transfer *t = user;
    filling f = {.e = e, .t = t, .dtype = list_dtype(e, list), .values = values, .first = first, .n = n};
    if (list == PS_LIST_PARAM16) return fill_values(&f);
    const ps_piece at = piece_at(e, t->tensor, first, n);
    ps_view rounded;
    PS_TRY(view_piece(e, PS_LIST_PARAM16, &at, PS_ACCESS_WRITE, &rounded));
    f.rounded = rounded.bytes;
    f.rounded_dtype = list_dtype(e, PS_LIST_PARAM16);
    return end_view(e, &rounded, fill_values(&f));
}

ps_status ps_engine_fill_tensor(ps_engine *e, int64_t tensor, int64_t n, ps_dtype dtype, ps_tensor_give_func give,
                                void *user)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "replacing tensors"));
    PS_TRY(check_range(e, tensor, 0, n));
    const bool is_first = e->is_filled != NULL && !e->is_filled[tensor];
    if (is_first && n < e->program->params[tensor].elements) PS_TRY(ps_engine_draw_tensor(e, tensor));
    transfer t = {.tensor = (int32_t)tensor, .dtype = dtype, .give = give, .user = user};
    PS_TRY(for_pieces(e, ps_engine_value_list(e, tensor), t.tensor, 0, n, PS_ACCESS_WRITE, fill_piece, &t));
    if (is_first) e->is_filled[tensor] = true;
    return PS_OK;
}

static ps_status drain_piece(ps_engine *e, void *user, ps_list list, void *values, int64_t first, int64_t n)
{
    const transfer *t = user;
    const ps_dtype dtype = list_dtype(e, list);
    float handed[HANDED_ELEMENTS];
    if (t->take == NULL) return PS_OK;
    if (t->dtype == dtype) return t->take(t->user, first, n, values);
    for (int64_t done = 0; done < n; done += HANDED_ELEMENTS) {
        const int64_t here = ps_min_i64(HANDED_ELEMENTS, n - done);
        PS_TRY(cast(e, handed, t->dtype, (const char *)values + done * (int64_t)ps_dtype_bytes(dtype), dtype, here));
        PS_TRY(t->take(t->user, first + done, here, handed));
    }
    return PS_OK;
}

ps_status ps_engine_drain_tensor(ps_engine *e, int64_t tensor, ps_dtype dtype, ps_tensor_take_func take, void *user)
{
    PS_TRY(check_range(e, tensor, 0, 0));
    transfer t = {.dtype = dtype, .take = take, .user = user};
    return for_all_pieces(e, ps_engine_value_list(e, tensor), (int32_t)tensor, 0, e->program->params[tensor].elements,
                          drain_piece, &t);
}

/* As floats, whatever they are stored as. */
static ps_status hash_piece(ps_engine *e, void *user, ps_list list, void *values, int64_t first, int64_t n)
{
    float room[CAST_ELEMENTS];
    const ps_dtype dtype = list_dtype(e, list);
    (void)first;
    for (int64_t done = 0; done < n; done += CAST_ELEMENTS) {
        const int64_t here = ps_min_i64(CAST_ELEMENTS, n - done);
        const void *at = (const char *)values + done * (int64_t)ps_dtype_bytes(dtype);
        if (dtype != PS_DTYPE_F32) PS_TRY(cast(e, room, PS_DTYPE_F32, at, dtype, here));
        XXH3_64bits_update(user, dtype == PS_DTYPE_F32 ? at : room, (size_t)here * sizeof *room);
    }
    return PS_OK;
}

ps_status ps_engine_get_weights_xxh3(ps_engine *e, uint64_t *hash)
{
    PS_TRY(PS_NEED("engine hash", e, hash));
    static const char call[] = "ps_engine_get_weights_xxh3";
    *hash = 0;
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: an inference engine has no masters", call);
    PS_TRY(enter_call(e, ps_engine_expect_values(e, call), call, 0, 0, 0));
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a hash state");
    XXH3_64bits_reset(state);
    ps_status st = PS_OK;
    for (int32_t t = 0; t < e->program->n_params && st == PS_OK; t++)
        st = for_all_pieces(e, ps_engine_value_list(e, t), t, 0, e->program->params[t].elements, hash_piece, state);
    if (st == PS_OK) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return st;
}
