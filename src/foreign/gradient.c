/* gradient.c - gradients come from the framework: the first of a step over its parameter, where nobody needs that
 * before the update; else beside it, in fp32, where further ones are added. */
#include <string.h>

#include "base/mem.h"
#include "foreign/client_impl.h"

/* ---- what they amount to ---- */

static ps_status clear_sums(ps_client *c, int32_t tensor)
{
    return ps_queue_fill(c->tiers.compute[PS_TIER_DEVICE], &c->sums[tensor], 0, sizeof *c->sums);
}

static ps_status add_sums(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype, int64_t n)
{
    return ps_run_grad_stats(
        c->settings.backend, c->tiers.compute[PS_TIER_DEVICE],
        &(ps_grad_stats_args){.sums = &c->sums[tensor], .x = gradient, .n = n, .tensor = tensor, .dtype = dtype}, 0);
}

/* As for a gradient that has just come. */
static ps_status sum_again(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    PS_TRY(clear_sums(c, tensor));
    if (t->is_apart)
        return add_sums(c, tensor, ps_client_apart(t, ps_lists_grad(&c->lists)), PS_DTYPE_F32, t->elements);
    const ps_list list = ps_client_gradient_list(c, tensor);
    const ps_dtype dtype = t->gradient == PS_GRADIENT_OVER ? c->settings.dtype : PS_DTYPE_F32;
    for (int64_t at = 0; at < t->elements;) {
        const ps_client_piece p = ps_client_piece_at(c, tensor, at);
        PS_TRY(ps_client_hold(c, list, p.chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
        const ps_status st = add_sums(c, tensor, ps_client_element(c, list, p.chunk, p.chunk_offset), dtype, p.n);
        ps_client_let_go(c, list, p.chunk);
        PS_TRY(st);
        at += p.n;
    }
    t->is_gradient_changed = false;
    return PS_OK;
}

static void join(ps_grad_sums *all, ps_grad_sums *one)
{
    ps_exact_sum_carry(&one->sum_squares);
    for (int i = 0; i < PS_EXACT_SUM_DIGITS; i++) all->sum_squares.digit[i] += one->sum_squares.digit[i];
    if (one->n_nonfinite > 0) ps_grad_sums_count(all, one->n_nonfinite, one->first_nonfinite);
}

ps_status ps_client_sum_gradients(ps_client *c, ps_grad_sums *all)
{
    *all = (ps_grad_sums){0};
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].gradient != PS_GRADIENT_NONE && c->tensors[i].is_gradient_changed) PS_TRY(sum_again(c, i));
    ps_grad_sums *read = c->sums;
    const int64_t bytes = c->n_tensors * (int64_t)sizeof *read;
    if (c->tiers.results != NULL) PS_TRY(ps_mem_alloc((size_t)c->n_tensors, sizeof *read, &read));
    const ps_status st = c->tiers.results != NULL ? ps_queue_get(c->tiers.compute[PS_TIER_DEVICE], read, c->sums, bytes)
                                                  : ps_event_wait(ps_queue_event(c->tiers.compute[PS_TIER_DEVICE]));
    for (int32_t i = 0; i < c->n_tensors && st == PS_OK; i++)
        if (c->tensors[i].gradient != PS_GRADIENT_NONE) join(all, &read[i]);
    if (read != c->sums) ps_mem_free(read);
    return st;
}

/* ---- makes way ---- */

static ps_status restore_piece(ps_client *c, const ps_client_piece *p)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    ps_status st;
    PS_TRY(ps_client_hold(c, PS_LIST_PARAM16, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE));
    void *place = ps_client_element(c, PS_LIST_PARAM16, p->chunk, p->chunk_offset);
    st = ps_client_hold(c, grad, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = ps_client_cast(c, PS_TIER_DEVICE, ps_client_element(c, grad, p->chunk, p->chunk_offset), PS_DTYPE_F32,
                            place, c->settings.dtype, p->n);
        ps_client_let_go(c, grad, p->chunk);
    }
    if (st == PS_OK) st = ps_client_hold(c, PS_LIST_MASTER, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ);
    if (st == PS_OK) {
        st = ps_client_cast(c, PS_TIER_DEVICE, place, c->settings.dtype,
                            ps_client_element(c, PS_LIST_MASTER, p->chunk, p->chunk_offset), PS_DTYPE_F32, p->n);
        ps_client_let_go(c, PS_LIST_MASTER, p->chunk);
    }
    ps_client_let_go(c, PS_LIST_PARAM16, p->chunk);
    return st;
}

/* A failure in the midst of a tensor of several chunks leaves it half moved. */
ps_status ps_client_restore(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    PS_ASSERT(t->gradient == PS_GRADIENT_OVER && !t->is_apart);
    if (t->pins[PS_CLIENT_GRADIENT] > 0)
        return PS_FAIL(PS_ESTATE,
                       "%.200s: its gradient, which lies where the parameter was, is in use: let it go before the "
                       "parameter is asked for",
                       t->name);
    for (int64_t at = 0; at < t->elements;) {
        const ps_client_piece p = ps_client_piece_at(c, tensor, at);
        const ps_status st = restore_piece(c, &p);
        if (st != PS_OK) return at == 0 ? st : ps_client_break(c, st);
        at += p.n;
    }
    t->gradient = PS_GRADIENT_BESIDE;
    t->keeps_param = true;
    t->is_master_newer = false; /* it comes from there */
    c->n_restored++;
    c->n_beside++;
    return PS_OK;
}

/* ---- comes ---- */

/* dst[i] += src[i] */
static ps_status add(ps_client *c, float *dst, const void *src, ps_dtype dtype, int64_t n)
{
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    ps_add_args a = {.dtype = PS_DTYPE_F32};
    for (int64_t done = 0; done < n; done += a.n) {
        const char *from = (const char *)src + done * (int64_t)ps_dtype_bytes(dtype);
        a.n = dtype == PS_DTYPE_F32 ? n : ps_min_i64(PS_CLIENT_SCRATCH_ELEMENTS, n - done);
        a.y = dst + done;
        a.a = a.y;
        a.b = from;
        if (dtype != PS_DTYPE_F32) {
            PS_TRY(ps_client_cast(c, PS_TIER_DEVICE, c->scratch, PS_DTYPE_F32, from, dtype, a.n));
            a.b = c->scratch;
        }
        PS_TRY(ps_run_add(c->settings.backend, q, &a, 0));
    }
    return PS_OK;
}

/* n elements of a gradient, to where they stay; adds: to what is there. */
static ps_status take(ps_client *c, int32_t tensor, void *dst, ps_dtype dst_dtype, const void *src, ps_dtype dtype,
                      int64_t n, bool adds)
{
    PS_TRY(adds ? add(c, dst, src, dtype, n) : ps_client_cast(c, PS_TIER_DEVICE, dst, dst_dtype, src, dtype, n));
    return add_sums(c, tensor, dst, dst_dtype, n);
}

static ps_status take_pieces(ps_client *c, int32_t tensor, ps_list list, const void *gradient, ps_dtype dtype,
                             bool adds)
{
    const ps_dtype own = list == PS_LIST_PARAM16 ? c->settings.dtype : PS_DTYPE_F32;
    for (int64_t at = 0; at < c->tensors[tensor].elements;) {
        const ps_client_piece p = ps_client_piece_at(c, tensor, at);
        const char *src = (const char *)gradient + at * (int64_t)ps_dtype_bytes(dtype);
        PS_TRY(ps_client_hold(c, list, p.chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE));
        const ps_status st =
            take(c, tensor, ps_client_element(c, list, p.chunk, p.chunk_offset), own, src, dtype, p.n, adds);
        ps_client_let_go(c, list, p.chunk);
        PS_TRY(st);
        at += p.n;
    }
    return PS_OK;
}

static bool may_overwrite(const ps_client *c, int32_t tensor, bool is_read_again)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    return !is_read_again && !t->keeps_param && !c->settings.fp32_gradients && c->pin_counts[tensor] == 0;
}

static ps_status give(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype, bool is_read_again)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (dtype < 0 || dtype >= PS_DTYPE_COUNT)
        return PS_FAIL(PS_EINVAL, "ps_client_give_gradient: %d is no ps_dtype", (int)dtype);
    const bool adds = t->gradient != PS_GRADIENT_NONE;
    if (t->gradient == PS_GRADIENT_OVER) PS_TRY(ps_client_restore(c, tensor));
    if (t->is_apart) {
        PS_TRY(clear_sums(c, tensor));
        PS_TRY(take(c, tensor, ps_client_apart(t, ps_lists_grad(&c->lists)), PS_DTYPE_F32, gradient, dtype, t->elements,
                    adds));
        t->gradient = PS_GRADIENT_BESIDE;
        return PS_OK;
    }
    PS_TRY(ps_client_need_master(c, tensor));
    if (t->is_param_newer) PS_TRY(ps_client_settle(c, tensor)); /* before what is new there is overwritten */
    PS_TRY(clear_sums(c, tensor));
    const bool is_over = !adds && may_overwrite(c, tensor, is_read_again);
    PS_TRY(take_pieces(c, tensor, is_over ? PS_LIST_PARAM16 : ps_lists_grad(&c->lists), gradient, dtype, adds));
    if (!adds && !is_over) c->n_beside++;
    t->gradient = is_over ? PS_GRADIENT_OVER : PS_GRADIENT_BESIDE;
    return PS_OK;
}

/* Where it fails in the midst of a tensor, part of its parameter or of an earlier sum is gone. */
ps_status ps_client_give_gradient(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype,
                                  int32_t is_read_again)
{
    PS_TRY(PS_NEED("client gradient", c, gradient));
    PS_TRY(ps_client_enter_with(c, "ps_client_give_gradient", PS_CLIENT_READY, tensor));
    const ps_status st = give(c, tensor, gradient, dtype, is_read_again != 0);
    if (st != PS_EINVAL && st != PS_ESTATE) (void)ps_client_break(c, st);
    ps_client_leave(c);
    return st;
}

/* ---- goes ---- */

ps_status ps_client_expect_gradients_free(const ps_client *c, const char *call)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].pins[PS_CLIENT_GRADIENT] > 0)
            return PS_FAIL(PS_ESTATE, "%s: the gradient of %.200s is in use: let it go before", call,
                           c->tensors[i].name);
    return PS_OK;
}

/* The parameter under it comes when it is asked for. */
static void drop(ps_client_tensor_state *t)
{
    t->is_master_newer = t->is_master_newer || t->gradient == PS_GRADIENT_OVER;
    t->gradient = PS_GRADIENT_NONE;
    t->is_gradient_changed = false;
}

static void drop_all(ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++) drop(&c->tensors[i]);
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, ps_lists_grad(&c->lists), k));
}

ps_status ps_client_drop_gradients(ps_client *c, int32_t tensor)
{
    const char *call = "ps_client_drop_gradients";
    PS_TRY(PS_NEED("client", c));
    PS_TRY(tensor == -1 ? ps_client_enter(c, call, PS_CLIENT_READY)
                        : ps_client_enter_with(c, call, PS_CLIENT_READY, tensor));
    const ps_status st = ps_client_expect_gradients_free(c, call);
    if (st == PS_OK && tensor == -1) drop_all(c);
    if (st == PS_OK && tensor >= 0) drop(&c->tensors[tensor]);
    ps_client_leave(c);
    return st;
}
