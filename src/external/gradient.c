/* gradient.c - gradients come from the framework: the first of a step over its parameter, where nobody needs that
 * before the update; else beside it, in fp32, where further ones are added. */
#include "base/mem.h"
#include "external/client_impl.h"

/* ---- what they amount to ---- */

static ps_status clear_sums(ps_client *c, ps_grad_sums *sums)
{
    return ps_queue_fill(c->tiers.compute[PS_TIER_DEVICE], sums, 0, sizeof *sums);
}

static ps_status add_sums(ps_client *c, ps_grad_sums *sums, int32_t tensor, const void *gradient, ps_dtype dtype,
                          int64_t n)
{
    return ps_run_grad_stats(
        c->settings.backend, c->tiers.compute[PS_TIER_DEVICE],
        &(ps_grad_stats_args){.sums = sums, .x = gradient, .n = n, .tensor = tensor, .dtype = dtype}, 0);
}

static ps_status sum(ps_client *c, ps_grad_sums *sums, int32_t tensor, const void *gradient, ps_dtype dtype, int64_t n)
{
    PS_TRY(clear_sums(c, sums));
    return add_sums(c, sums, tensor, gradient, dtype, n);
}

static ps_dtype gradient_dtype(const ps_client *c, const ps_piece *p)
{
    return ps_client_gradient_of(c, p)->place == PS_GRADIENT_OVER ? c->settings.dtype : PS_DTYPE_F32;
}

ps_status ps_client_sum_piece(ps_client *c, const ps_piece *p)
{
    const void *gradient = ps_state_element(&c->state, ps_client_gradient_list(c, p), p->chunk, p->chunk_offset);
    return sum(c, &c->sums[p - c->pieces.all], p->tensor, gradient, gradient_dtype(c, p), p->n);
}

static ps_status sum_apart(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    const float *gradient = ps_client_apart(t, ps_lists_grad(&c->lists));
    return sum(c, &c->sums[c->pieces.n + tensor], tensor, gradient, PS_DTYPE_F32, t->elements);
}

static ps_status sum_again(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    t->is_gradient_changed = false;
    if (t->is_apart) return sum_apart(c, tensor);
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        if (ps_client_gradient_of(c, p)->place == PS_GRADIENT_NONE) continue;
        const ps_list list = ps_client_gradient_list(c, p);
        PS_TRY(ps_client_hold(c, list, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
        const ps_status st = ps_client_sum_piece(c, p);
        ps_client_let_go(c, list, p->chunk);
        PS_TRY(st);
    }
    return PS_OK;
}

/* Those that are apart are the same on all ranks; the first counts them. */
static void join_all(const ps_client *c, ps_grad_sums *sums, ps_grad_sums *all)
{
    const int32_t n_pieces = c->pieces.n;
    *all = (ps_grad_sums){0};
    for (int32_t i = 0; i < n_pieces; i++)
        if (c->gradients[i].place != PS_GRADIENT_NONE || c->gradients[i].is_used_up) ps_grad_sums_join(all, &sums[i]);
    for (int32_t i = 0; i < c->n_tensors && c->settings.ranks.rank == 0; i++)
        if (c->tensors[i].is_apart && c->tensors[i].has_gradient) ps_grad_sums_join(all, &sums[n_pieces + i]);
}

ps_status ps_client_sum_gradients(ps_client *c, ps_grad_sums *all)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].has_gradient && c->tensors[i].is_gradient_changed) PS_TRY(sum_again(c, i));
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    const int64_t n = c->pieces.n + c->n_tensors;
    ps_grad_sums *read = c->sums;
    if (c->tiers.results != NULL) PS_TRY(ps_mem_alloc((size_t)n, sizeof *read, &read));
    const ps_status st = c->tiers.results != NULL ? ps_queue_get(q, read, c->sums, n * (int64_t)sizeof *read)
                                                  : ps_event_wait(ps_queue_event(q));
    if (st == PS_OK) join_all(c, read, all);
    if (read != c->sums) ps_mem_free(read);
    return st;
}

/* ---- makes way ---- */

/* Another rank's parameter is gathered anew by who wants it. */
static ps_status bring_back(ps_client *c, const ps_piece *p)
{
    if (!c->has_master[p->chunk]) return PS_OK;
    PS_TRY(ps_client_hold(c, PS_LIST_MASTER, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    const ps_status st = ps_state_round_master(&c->state, PS_TIER_DEVICE, p);
    ps_client_let_go(c, PS_LIST_MASTER, p->chunk);
    return st;
}

static ps_status restore_piece(ps_client *c, const ps_piece *p)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    PS_TRY(ps_client_hold(c, PS_LIST_PARAM16, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE));
    void *place = ps_state_element(&c->state, PS_LIST_PARAM16, p->chunk, p->chunk_offset);
    ps_status st = ps_client_hold(c, grad, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = ps_state_cast(&c->state, PS_TIER_DEVICE, ps_state_element(&c->state, grad, p->chunk, p->chunk_offset),
                           PS_DTYPE_F32, place, c->settings.dtype, p->n);
        ps_client_let_go(c, grad, p->chunk);
    }
    if (st == PS_OK) st = bring_back(c, p);
    ps_client_let_go(c, PS_LIST_PARAM16, p->chunk);
    if (st != PS_OK) return st;
    ps_client_gradient *g = ps_client_gradient_of(c, p);
    g->place = PS_GRADIENT_BESIDE;
    g->is_narrow = true;
    return PS_OK;
}

ps_status ps_client_restore(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (t->pins[PS_CLIENT_GRADIENT] > 0)
        return PS_FAIL(PS_ESTATE,
                       "%.200s: its gradient, which lies where the parameter was, is in use: let it go before the "
                       "parameter is asked for",
                       t->name);
    bool was_over = false;
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        if (ps_client_gradient_of(c, p)->place != PS_GRADIENT_OVER) continue;
        PS_TRY(restore_piece(c, p));
        was_over = true;
    }
    if (was_over) t->is_master_newer = false; /* it comes from there */
    c->n_beside += was_over;
    return PS_OK;
}

ps_status ps_client_round_gradient(ps_client *c, const ps_piece *p)
{
    const ps_dtype dtype = c->settings.dtype;
    float *gradient = ps_state_element(&c->state, ps_lists_grad(&c->lists), p->chunk, p->chunk_offset);
    for (int64_t done = 0; done < p->n && dtype != PS_DTYPE_F32; done += PS_CLIENT_SCRATCH_ELEMENTS) {
        const int64_t n = ps_min_i64(PS_CLIENT_SCRATCH_ELEMENTS, p->n - done);
        PS_TRY(ps_state_cast(&c->state, PS_TIER_DEVICE, c->scratch, dtype, gradient + done, PS_DTYPE_F32, n));
        PS_TRY(ps_state_cast(&c->state, PS_TIER_DEVICE, gradient + done, PS_DTYPE_F32, c->scratch, dtype, n));
    }
    return PS_OK;
}

/* ---- comes ---- */

/* What kernels want of addresses. A framework's gradient may be a view into something larger. */
static const uintptr_t align_bytes = 64;

/* dst[i] += src[i], of at most PS_CLIENT_SCRATCH_ELEMENTS when that is not fp32 */
static ps_status add(ps_client *c, float *dst, const void *src, ps_dtype dtype, int64_t n)
{
    float *widened = c->scratch + PS_CLIENT_SCRATCH_ELEMENTS;
    if (dtype != PS_DTYPE_F32) PS_TRY(ps_state_cast(&c->state, PS_TIER_DEVICE, widened, PS_DTYPE_F32, src, dtype, n));
    const ps_add_args a = {
        .y = dst, .a = dst, .b = dtype != PS_DTYPE_F32 ? widened : src, .n = n, .dtype = PS_DTYPE_F32};
    return ps_run_add(c->settings.backend, c->tiers.compute[PS_TIER_DEVICE], &a, 0);
}

/* n elements of a gradient to where they stay; adds: to what is there. */
static ps_status take(ps_client *c, void *dst, ps_dtype dst_dtype, const void *src, ps_dtype dtype, int64_t n,
                      bool adds)
{
    const int64_t item = (int64_t)ps_dtype_bytes(dtype), dst_item = (int64_t)ps_dtype_bytes(dst_dtype);
    const bool is_aligned = (uintptr_t)src % align_bytes == 0;
    const bool is_whole = is_aligned && (!adds || dtype == PS_DTYPE_F32);
    const int64_t at_once = is_whole ? n : PS_CLIENT_SCRATCH_ELEMENTS;
    for (int64_t done = 0; done < n; done += at_once) {
        const int64_t here = ps_min_i64(at_once, n - done);
        const void *from = (const char *)src + done * item;
        char *to = (char *)dst + done * dst_item;
        if (!is_aligned) {
            PS_TRY(ps_queue_copy(c->tiers.compute[PS_TIER_DEVICE], c->scratch, from, here * item));
            from = c->scratch;
        }
        PS_TRY(adds ? add(c, (float *)(void *)to, from, dtype, here)
                    : ps_state_cast(&c->state, PS_TIER_DEVICE, to, dst_dtype, from, dtype, here));
    }
    return PS_OK;
}

/* What is taken of a processor's gradient at once: it is still in the caches when it is summed up. The sums are those of
 * the whole: a multiple of PS_GRAD_STATS_BLOCK. */
static const int64_t cached_elements = 64 * PS_GRAD_STATS_BLOCK;

static ps_status take_and_sum(ps_client *c, const ps_piece *p, char *dst, const char *src, ps_dtype dtype, bool adds)
{
    const ps_dtype dst_dtype = gradient_dtype(c, p);
    const int64_t item = (int64_t)ps_dtype_bytes(dtype), dst_item = (int64_t)ps_dtype_bytes(dst_dtype);
    const int64_t at_once = ps_device_works_later(c->tiers.ram[PS_TIER_DEVICE]) ? p->n : cached_elements;
    ps_grad_sums *sums = &c->sums[p - c->pieces.all];
    PS_TRY(clear_sums(c, sums));
    for (int64_t done = 0; done < p->n; done += at_once) {
        const int64_t n = ps_min_i64(at_once, p->n - done);
        char *to = dst + done * dst_item;
        PS_TRY(take(c, to, dst_dtype, src + done * item, dtype, n, adds));
        PS_TRY(add_sums(c, sums, p->tensor, to, dst_dtype, n));
    }
    return PS_OK;
}

/* *has_changed: also when it fails, something of the tensor is not as before. */
static ps_status take_piece(ps_client *c, const ps_piece *p, const void *gradient, ps_dtype dtype, bool is_over,
                            bool *has_changed)
{
    ps_client_gradient *g = ps_client_gradient_of(c, p);
    const bool adds = g->place != PS_GRADIENT_NONE;
    const char *src = (const char *)gradient + p->tensor_offset * (int64_t)ps_dtype_bytes(dtype);
    const ps_list list = !adds && is_over ? PS_LIST_PARAM16 : ps_lists_grad(&c->lists);
    PS_TRY(ps_client_hold(c, list, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE));
    *has_changed = true;
    if (!adds) g->place = is_over ? PS_GRADIENT_OVER : PS_GRADIENT_BESIDE;
    g->is_narrow = false;
    const ps_status st =
        take_and_sum(c, p, ps_state_element(&c->state, list, p->chunk, p->chunk_offset), src, dtype, adds);
    ps_client_let_go(c, list, p->chunk);
    return st;
}

static ps_status take_apart(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    float *dst = ps_client_apart(t, ps_lists_grad(&c->lists));
    PS_TRY(take(c, dst, PS_DTYPE_F32, gradient, dtype, t->elements, t->has_gradient));
    t->has_gradient = true;
    return sum_apart(c, tensor);
}

static bool may_overwrite(const ps_client *c, int32_t tensor, bool is_read_again)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    return !is_read_again && !t->keeps_param && !c->settings.fp32_gradients && c->pin_counts[tensor] == 0;
}

/* What fails here has changed nothing of the gradient. */
static ps_status make_place(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (t->has_gradient && !t->keeps_param) ps_client_unshare(c, tensor);
    if (t->has_gradient) PS_TRY(ps_client_restore(c, tensor));
    PS_TRY(ps_client_need_master(c, tensor));
    /* before what is new there is overwritten */
    return ps_client_is_written(t, c->pin_counts[tensor]) ? ps_client_settle(c, tensor) : PS_OK;
}

static ps_status give(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype, bool is_read_again,
                      bool *has_changed)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    t->is_given = true;
    *has_changed = t->is_apart;
    if (t->is_apart) return take_apart(c, tensor, gradient, dtype);
    const bool is_over = !t->has_gradient && may_overwrite(c, tensor, is_read_again);
    for (int32_t k = 0; k < t->n_pieces; k++)
        PS_TRY(take_piece(c, ps_client_piece_of(c, t, k), gradient, dtype, is_over, has_changed));
    if (!t->has_gradient && !is_over) c->n_beside++;
    t->has_gradient = true;
    return ps_client_note_gradient(c, tensor);
}

static ps_status expect_gradient_free(const ps_client *c, int32_t tensor, const char *call)
{
    if (c->tensors[tensor].pins[PS_CLIENT_GRADIENT] == 0) return PS_OK;
    return PS_FAIL(PS_ESTATE, "%s: the gradient of %.200s is in use: let it go before", call, c->tensors[tensor].name);
}

/* Where it fails in the midst of a tensor, part of its parameter or of an earlier sum is gone; with several ranks the
 * others go on to where they would wait for this one. */
ps_status ps_client_give_gradient(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype,
                                  int32_t is_read_again)
{
    const char *call = "ps_client_give_gradient";
    PS_TRY(PS_NEED("client gradient", c, gradient));
    if (dtype < 0 || dtype >= PS_DTYPE_COUNT) return PS_FAIL(PS_EINVAL, "%s: %d is no ps_dtype", call, (int)dtype);
    PS_TRY(ps_client_enter_with(c, call, PS_CLIENT_IS_READY, tensor));
    /* with several ranks that of others may be summed up along with it, and go to its owner */
    ps_status st = c->comm != NULL ? ps_client_expect_gradients_free(c, call) : expect_gradient_free(c, tensor, call);
    if (st == PS_OK) st = ps_client_expect_no_early_update(c, tensor, "another gradient has come");
    if (st == PS_OK && !c->tensors[tensor].is_apart) {
        st = ps_client_flush_tensor(c, tensor);
        if (st == PS_OK) st = ps_client_expect_gradient(c, tensor);
        if (st == PS_OK) st = make_place(c, tensor);
        if (c->comm != NULL) (void)ps_client_break(c, st);
    }
    if (st == PS_OK) {
        bool has_changed;
        st = give(c, tensor, gradient, dtype, is_read_again != 0, &has_changed);
        if (has_changed || c->comm != NULL) (void)ps_client_break(c, st);
    }
    ps_client_leave(c);
    return st;
}

/* ---- goes ---- */

ps_status ps_client_expect_gradients_free(const ps_client *c, const char *call)
{
    if (c->n_gradient_pins == 0) return PS_OK;
    for (int32_t i = 0; i < c->n_tensors; i++) PS_TRY(expect_gradient_free(c, i, call));
    return PS_OK;
}

/* List GRAD of a chunk in which no gradient is beside its parameter any more. */
static void discard_unused(ps_client *c, int32_t chunk)
{
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        if (c->gradients[i].place == PS_GRADIENT_BESIDE) return;
    ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, ps_lists_grad(&c->lists), chunk));
}

/* The parameter under it comes when it is asked for. */
static void drop(ps_client *c, ps_client_tensor_state *t)
{
    ps_client_unshare(c, (int32_t)(t - c->tensors));
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        if (c->updates.is_waiting[p->chunk]) continue; /* they are of a step that has been made */
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        t->is_master_newer = t->is_master_newer || g->place == PS_GRADIENT_OVER;
        const bool was_beside = g->place == PS_GRADIENT_BESIDE;
        g->place = PS_GRADIENT_NONE;
        if (was_beside) discard_unused(c, p->chunk);
        if (g->is_fresh) c->sharing.n_fresh[ps_client_group_of(c, p->chunk)]--;
        g->is_fresh = false;
    }
    t->has_gradient = t->is_given = t->is_gradient_changed = false;
}

static ps_status drop_all(ps_client *c)
{
    bool had_any = false;
    for (int32_t i = 0; i < c->n_tensors; i++) {
        /* of those that are apart each rank has its own */
        had_any = had_any || (c->tensors[i].has_gradient && (c->comm == NULL || !c->tensors[i].is_apart));
        drop(c, &c->tensors[i]);
    }
    if (had_any) ps_client_abandon_step(c); /* else it is about to begin, or between forward and backward */
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        if (!c->updates.is_waiting[k])
            ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, ps_lists_grad(&c->lists), k));
    return ps_client_forget_others(c);
}

ps_status ps_client_drop_gradients(ps_client *c, int32_t tensor)
{
    const char *call = "ps_client_drop_gradients";
    PS_TRY(PS_NEED("client", c));
    PS_TRY(tensor == -1 ? ps_client_enter(c, call, PS_CLIENT_IS_READY)
                        : ps_client_enter_with(c, call, PS_CLIENT_IS_READY, tensor));
    ps_status st = ps_client_expect_gradients_whole(c, "ps_client_drop_gradients (zero_grad)");
    if (st == PS_OK) st = ps_client_expect_gradients_free(c, call);
    if (st == PS_OK && tensor == -1) st = drop_all(c);
    if (st == PS_OK && tensor >= 0) drop(c, &c->tensors[tensor]);
    ps_client_leave(c);
    return st;
}
