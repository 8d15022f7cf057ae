/* tensors.c - access to parameters and gradients from outside of a step, piece by piece, on their current tiers. */
#include <xxhash.h>

#include "api/engine/engine.h"
#include "api/engine/tensors.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "train/state/values.h"

int64_t ps_engine_get_tensor_count(const ps_engine *e)
{
    return e->program->n_params;
}

static ps_status check_range(const ps_engine *e, int64_t tensor, int64_t first, int64_t n)
{
    if (tensor < 0 || tensor >= e->program->n_params)
        return PS_FAIL(PS_EINVAL, "tensor %lld of %d", (long long)tensor, e->program->n_params);
    const ps_param *p = &e->program->params[tensor];
    return ps_values_check_range(p->name, p->elements, first, n);
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

static ps_status expect_looked_at(const ps_engine *e)
{
    if (e->state == PS_ENGINE_FAILED) return ps_engine_expect(e, PS_ENGINE_READY, "access to tensors");
    if (e->state == PS_ENGINE_BACKWARD &&
        ps_settings_updates_in_backward(&e->settings)) /* on all ranks, whatever each has planned */
        return PS_FAIL(PS_ESTATE,
                       "between ps_backward and ps_step some parameters may be updated already, and gradients "
                       "used up, as updates may run within the backward pass; set memory.update_in_backward "
                       "= never to look at them");
    return PS_OK;
}

/* To be called before chunks are accessed. */
static ps_status enter_tensors(ps_engine *e)
{
    PS_TRY(expect_looked_at(e));
    return ps_engine_check(e, ps_runner_flush(e->runner));
}

/* For a call that all ranks make with the same range of the same tensor: st is what this rank has found otherwise; all
 * ranks continue, or none does. */
static ps_status enter_call(ps_engine *e, ps_status st, const char *call, int64_t tensor, int64_t first, int64_t n)
{
    if (st == PS_OK) st = check_range(e, tensor, first, n);
    if (st == PS_OK) st = expect_looked_at(e);
    return ps_comm_agree_alike(e->settings.ranks.comm, st, call,
                               (const double[]){(double)tensor, (double)first, (double)n}, 3);
}

/* The KV cache is of other parameters, and maybe the hash of the base. */
static void note_written(ps_engine *e, int64_t tensor)
{
    e->n_decoded = 0;
    if (e->program->params[tensor].is_left_out) e->knows_base = false;
}

/* For parts of a tensor that this rank owns. */
static ps_status for_own(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n, ps_access_mode mode,
                         ps_values_func use, void *user)
{
    PS_TRY(enter_tensors(e));
    if (mode != PS_ACCESS_READ) note_written(e, tensor);
    const ps_model_state s = ps_engine_model_state(e);
    return ps_engine_check_device(e, ps_values_each(&s, list, (int32_t)tensor, first, n, mode, use, user));
}

static ps_status for_all(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n, ps_values_func use,
                         void *user)
{
    PS_TRY(enter_tensors(e));
    const ps_model_state s = ps_engine_model_state(e);
    return ps_engine_check_device(e, ps_values_each_of_all(&s, list, (int32_t)tensor, first, n, use, user));
}

static ps_status read_list(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n, float *out)
{
    PS_TRY(enter_tensors(e));
    const ps_model_state s = ps_engine_model_state(e);
    return ps_engine_check_device(e, ps_values_read(&s, list, (int32_t)tensor, first, n, out));
}

static ps_status write_list(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n, const float *in)
{
    PS_TRY(enter_tensors(e));
    note_written(e, tensor);
    const ps_model_state s = ps_engine_model_state(e);
    return ps_engine_check_device(e, ps_values_write(&s, list, (int32_t)tensor, first, n, in));
}

ps_list ps_engine_value_list(const ps_engine *e, int64_t tensor)
{
    return ps_lists_exists(&e->exec_plan->lists, PS_LIST_MASTER) && !e->program->params[tensor].is_frozen
               ? PS_LIST_MASTER
               : PS_LIST_PARAM16;
}

ps_status ps_engine_read_tensor(ps_engine *e, int64_t tensor, int64_t first, int64_t n, float *out)
{
    PS_TRY(PS_NEED("engine out", e, PS_NEED_IF(n > 0, out)));
    static const char call[] = "ps_engine_read_tensor";
    PS_TRY(enter_call(e, ps_engine_expect_values(e, call), call, tensor, first, n));
    return read_list(e, ps_engine_value_list(e, tensor), tensor, first, n, out);
}

ps_status ps_engine_put_values(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n, const float *in)
{
    PS_TRY(check_range(e, tensor, first, n));
    PS_TRY(write_list(e, list, tensor, first, n, in));
    if (list != PS_LIST_MASTER || e->settings.optimizer.is_split) return PS_OK; /* split: PARAM16 is a part of it */
    return write_list(e, PS_LIST_PARAM16, tensor, first, n, in);
}

ps_status ps_engine_write_tensor(ps_engine *e, int64_t tensor, int64_t first, int64_t n, const float *in)
{
    PS_TRY(PS_NEED("engine in", e, PS_NEED_IF(n > 0, in)));
    static const char call[] = "ps_engine_write_tensor";
    ps_status st = ps_engine_expect(e, PS_ENGINE_READY, call);
    if (st == PS_OK) st = ps_engine_expect_values(e, call);
    PS_TRY(enter_call(e, st, call, tensor, first, n));
    /* a checkpoint being saved has the values before */
    PS_TRY(ps_engine_check_device(e, ps_runner_finish_snapshot(e->runner)));
    return ps_engine_put_values(e, ps_engine_value_list(e, tensor), tensor, first, n, in);
}

typedef struct sum {
    const ps_engine *e;
    ps_grad_sums *sums;
} sum;

/* Frozen tensors have neither gradient nor states. */
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
    return e->settings.training ? ps_optimizer_state_name(&e->settings.optimizer, i) : NULL;
}

static ps_status expect_has_state(const ps_engine *e, int64_t tensor, ps_list list)
{
    if (tensor < 0 || tensor >= e->program->n_params) return PS_OK;
    const ps_param *p = &e->program->params[tensor];
    return ps_values_expect_state(&e->settings, p->name, p->is_whole, list);
}

static ps_status find_state(const ps_engine *e, const char *call, int64_t tensor, const char *state, ps_list *out)
{
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: an inference engine has no optimizer", call);
    PS_TRY(ps_values_find_list(&e->settings, call, state, out));
    PS_TRY(expect_trained(e, tensor));
    return expect_has_state(e, tensor, *out);
}

ps_status ps_engine_read_state(ps_engine *e, int64_t tensor, const char *state, int64_t first, int64_t n, float *out)
{
    PS_TRY(PS_NEED("engine state out", e, state, PS_NEED_IF(n > 0, out)));
    static const char call[] = "ps_engine_read_state";
    ps_list list = 0;
    PS_TRY(enter_call(e, find_state(e, call, tensor, state, &list), call, tensor, first, n));
    return read_list(e, list, tensor, first, n, out);
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
    /* a checkpoint being saved has the values before */
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
    if (ps_runner_micro(e->runner) > 0) return PS_FAIL(PS_ESTATE, "%s: finish the current step first", call);
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
    const ps_list list = ps_exec_plan_sum_list(e->exec_plan, (int32_t)tensor);
    return read_list(e, list, tensor, first, n, out);
}

ps_status ps_engine_write_gradient(ps_engine *e, int64_t tensor, int64_t first, int64_t n, const float *in)
{
    PS_TRY(PS_NEED("engine in", e, PS_NEED_IF(n > 0, in)));
    PS_TRY(enter_gradient(e, "ps_engine_write_gradient", tensor, first, n));
    const ps_list list = ps_exec_plan_sum_list(e->exec_plan, (int32_t)tensor);
    e->has_new_gradients = true;
    return write_list(e, list, tensor, first, n, in);
}

/* A view begins at a multiple of PS_GRAD_STATS_BLOCK elements of its tensor: chunks and views are multiples of it. */
static ps_status sum_piece(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    const sum *s = user;
    PS_ASSERT(p->tensor_offset % PS_GRAD_STATS_BLOCK == 0);
    const ps_grad_stats_args a = {.sums = s->sums, .x = values, .n = p->n, .tensor = p->tensor, .dtype = dtype};
    return ps_run_grad_stats(ps_backend_host(s->e->settings.backend), NULL, &a, 0);
}

ps_status ps_engine_sum_gradients(ps_engine *e, ps_grad_sums *out)
{
    *out = (ps_grad_sums){0};
    for (int32_t t = 0; t < e->program->n_params; t++) {
        const ps_param *p = &e->program->params[t];
        sum s = {.e = e, .sums = out};
        if (p->is_frozen) continue;
        PS_TRY(for_own(e, ps_exec_plan_sum_list(e->exec_plan, t), t, 0, p->elements, PS_ACCESS_READ, sum_piece, &s));
    }
    return PS_OK;
}

/* ---- whole tensors ---- */

/* Elements copied at once: few, so that they are still in the cache when they are rounded. */
#define HANDED_ELEMENTS 32768

typedef struct transfer {
    ps_model_state s;
    ps_dtype dtype;
    ps_tensor_give_func give;
    ps_tensor_take_func take;
    void *user;
} transfer;

/* Elements in chunks: `values`, and the same as operators read them unless `rounded` is NULL. */
typedef struct filling {
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
    if (!in_place) PS_TRY(ps_values_cast(&f->t->s, at, f->dtype, handed, f->t->dtype, n));
    if (f->rounded == NULL) return PS_OK;
    char *const rounded_at = f->rounded + done * (int64_t)ps_dtype_bytes(f->rounded_dtype);
    return ps_values_cast(&f->t->s, rounded_at, f->rounded_dtype, at, f->dtype, n);
}

static ps_status fill_values(const filling *f)
{
    for (int64_t done = 0; done < f->n; done += HANDED_ELEMENTS) PS_TRY(fill_handed(f, done));
    return PS_OK;
}

static ps_status fill_rounded(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    filling *f = user;
    (void)p;
    f->rounded = values;
    f->rounded_dtype = dtype;
    return fill_values(f);
}

/* Masters and 16-bit parameters together. */
static ps_status fill_piece(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    const transfer *t = user;
    filling f = {.t = t, .dtype = dtype, .values = values, .first = p->tensor_offset, .n = p->n};
    const ps_list list = ps_state_value_list(&t->s, p->chunk);
    if (list == PS_LIST_PARAM16 || ps_state_is_split(&t->s, list)) return fill_values(&f);
    return ps_values_each(&t->s, PS_LIST_PARAM16, p->tensor, p->tensor_offset, p->n, PS_ACCESS_WRITE, fill_rounded, &f);
}

typedef struct drawing {
    const ps_runner *runner;
    int32_t tensor;
} drawing;

static ps_status give_drawn(void *user, int64_t first, int64_t n, void *dst)
{
    const drawing *d = user;
    return ps_runner_draw(d->runner, d->tensor, first, n, dst);
}

ps_status ps_engine_draw_tensor(ps_engine *e, int64_t tensor)
{
    drawing d = {.runner = e->runner, .tensor = (int32_t)tensor};
    return ps_engine_fill_tensor(e, tensor, e->program->params[tensor].elements, PS_DTYPE_F32, give_drawn, &d);
}

ps_status ps_engine_fill_tensor(ps_engine *e, int64_t tensor, int64_t n, ps_dtype dtype, ps_tensor_give_func give,
                                void *user)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "replacing tensors"));
    PS_TRY(check_range(e, tensor, 0, n));
    const bool is_first = e->is_filled != NULL && !e->is_filled[tensor];
    if (is_first && n < e->program->params[tensor].elements) PS_TRY(ps_engine_draw_tensor(e, tensor));
    transfer t = {.s = ps_engine_model_state(e), .dtype = dtype, .give = give, .user = user};
    PS_TRY(for_own(e, PS_VALUE_LIST, tensor, 0, n, PS_ACCESS_WRITE, fill_piece, &t));
    if (is_first) e->is_filled[tensor] = true;
    return PS_OK;
}

static ps_status drain_piece(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    const transfer *t = user;
    float handed[HANDED_ELEMENTS];
    if (t->take == NULL) return PS_OK;
    if (t->dtype == dtype) return t->take(t->user, p->tensor_offset, p->n, values);
    for (int64_t done = 0; done < p->n; done += HANDED_ELEMENTS) {
        const int64_t n = ps_min_i64(HANDED_ELEMENTS, p->n - done);
        const void *at = (const char *)values + done * (int64_t)ps_dtype_bytes(dtype);
        PS_TRY(ps_values_cast(&t->s, handed, t->dtype, at, dtype, n));
        PS_TRY(t->take(t->user, p->tensor_offset + done, n, handed));
    }
    return PS_OK;
}

ps_status ps_engine_drain_tensor(ps_engine *e, int64_t tensor, ps_dtype dtype, ps_tensor_take_func take, void *user)
{
    PS_TRY(check_range(e, tensor, 0, 0));
    transfer t = {.s = ps_engine_model_state(e), .dtype = dtype, .take = take, .user = user};
    return for_all(e, PS_VALUE_LIST, tensor, 0, e->program->params[tensor].elements, drain_piece, &t);
}

/* For a training engine; as floats, whatever they are stored as. */
typedef struct hashing {
    ps_model_state s;
    XXH3_state_t *hash;
} hashing;

static ps_status hash_piece(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    const hashing *h = user;
    float room[HANDED_ELEMENTS];
    for (int64_t done = 0; done < p->n; done += HANDED_ELEMENTS) {
        const int64_t n = ps_min_i64(HANDED_ELEMENTS, p->n - done);
        const void *at = (const char *)values + done * (int64_t)ps_dtype_bytes(dtype);
        if (dtype != PS_DTYPE_F32) PS_TRY(ps_values_cast(&h->s, room, PS_DTYPE_F32, at, dtype, n));
        XXH3_64bits_update(h->hash, dtype == PS_DTYPE_F32 ? at : room, (size_t)n * sizeof *room);
    }
    return PS_OK;
}

/* Of all tensors, or of those that are left out of checkpoints. All ranks together. */
static ps_status hash_tensors(ps_engine *e, bool left_out_only, uint64_t *hash)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a hash state");
    XXH3_64bits_reset(state);
    hashing h = {.s = ps_engine_model_state(e), .hash = state};
    ps_status st = PS_OK;
    for (int32_t t = 0; t < e->program->n_params && st == PS_OK; t++)
        if (!left_out_only || e->program->params[t].is_left_out)
            st = for_all(e, PS_VALUE_LIST, t, 0, e->program->params[t].elements, hash_piece, &h);
    if (st == PS_OK) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return st;
}

ps_status ps_engine_get_weights_xxh3(ps_engine *e, uint64_t *hash)
{
    PS_TRY(PS_NEED("engine hash", e, hash));
    static const char call[] = "ps_engine_get_weights_xxh3";
    *hash = 0;
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: an inference engine has no masters", call);
    PS_TRY(enter_call(e, ps_engine_expect_values(e, call), call, 0, 0, 0));
    return hash_tensors(e, false, hash);
}

ps_status ps_engine_hash_base(ps_engine *e, uint64_t *hash)
{
    if (!e->knows_base) PS_TRY(hash_tensors(e, true, &e->base_xxh3));
    e->knows_base = true;
    *hash = e->base_xxh3;
    return PS_OK;
}
