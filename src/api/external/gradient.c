/* gradient.c - gradients of the framework: the first of a step overwrites its parameter, if that is not read before the
 * update; otherwise it is separate, in fp32, where further ones are added. */
#include "api/external/client_calls.h"
#include "base/mem.h"

/* ---- adding ---- */

/* Alignment that kernels require. A framework's gradient may be a view into something larger. */
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

/* Copies n elements of a tensor's gradient to their place, with their sums; adds: to the content there. A processor
 * does a part at a time, which is still in its caches when it is summed: the sums are those of the whole, as
 * PS_GRAD_STATS_BLOCK divides the parts. */
static ps_status take(ps_client *c, ps_grad_sums *sums, int32_t tensor, void *dst, ps_dtype dst_dtype, const void *src,
                      ps_dtype dtype, int64_t n, bool adds)
{
    _Static_assert(PS_CLIENT_SCRATCH_ELEMENTS % PS_GRAD_STATS_BLOCK == 0, "sums of parts are those of the whole");
    const int64_t item = (int64_t)ps_dtype_bytes(dtype), dst_item = (int64_t)ps_dtype_bytes(dst_dtype);
    const bool is_aligned = (uintptr_t)src % align_bytes == 0;
    const bool is_whole =
        ps_device_is_asynchronous(c->tiers.ram[PS_TIER_DEVICE]) && is_aligned && (!adds || dtype == PS_DTYPE_F32);
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
        PS_TRY(ps_client_add_sums(c, sums, tensor, to, dst_dtype, here, done == 0));
    }
    return PS_OK;
}

/* *has_changed: some data of the tensor has changed, also on failure. */
static ps_status take_piece(ps_client *c, const ps_piece *p, const void *gradient, ps_dtype dtype, bool is_narrow,
                            bool *has_changed)
{
    ps_client_gradient *g = ps_client_gradient_of(c, p);
    const bool adds = g->place != PS_GRADIENT_NONE;
    const char *src = (const char *)gradient + p->tensor_offset * (int64_t)ps_dtype_bytes(dtype);
    const ps_client_gradient before = *g;
    if (!adds) g->place = is_narrow ? ps_client_narrow_place(c) : PS_GRADIENT_SEPARATE;
    const ps_list list = ps_client_gradient_list(c, p);
    const ps_status pinned = ps_client_pin_chunk(c, list, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (pinned != PS_OK) {
        *g = before;
        return pinned;
    }
    *has_changed = true;
    g->is_narrow = false;
    const ps_status st =
        take(c, &c->sums[p - c->pieces.all], p->tensor, ps_state_element(&c->state, list, p->chunk, p->chunk_offset),
             ps_client_gradient_dtype(c, p), src, dtype, p->n, adds);
    ps_client_unpin_chunk(c, list, p->chunk);
    return st;
}

static ps_status take_unmanaged(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    PS_TRY(take(c, &c->sums[c->pieces.n + tensor], tensor, ps_client_unmanaged(t, ps_lists_grad(&c->lists)),
                PS_DTYPE_F32, gradient, dtype, t->elements, t->has_gradient));
    t->has_gradient = true;
    return PS_OK;
}

/* In the parameter's type: over the parameter, if that is in no use, or in list GRAD16. */
static bool may_be_narrow(const ps_client *c, int32_t tensor, bool is_read_again)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    const bool is_over = ps_client_narrow_place(c) == PS_GRADIENT_IN_PLACE;
    return !is_read_again && !t->keeps_param && !c->settings.fp32_gradients && (!is_over || c->pin_counts[tensor] == 0);
}

/* A failure here has not changed the gradient. */
static ps_status make_place(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (t->has_gradient && !t->keeps_param) ps_client_reshard_tensor(c, tensor);
    if (t->has_gradient) PS_TRY(ps_client_restore_param(c, tensor));
    /* several gradients a step, which in later steps are added up in fp32 from the first one on */
    if (t->has_gradient && ps_settings_separates_gradients(&c->settings)) t->keeps_param = true;
    PS_TRY(ps_client_need_master(c, tensor));
    /* before it is overwritten */
    return ps_client_sync_value(c, tensor);
}

static ps_status give(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype, bool is_read_again,
                      bool *has_changed)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    t->is_given = true;
    *has_changed = t->is_unmanaged;
    if (t->is_unmanaged) return take_unmanaged(c, tensor, gradient, dtype);
    const bool is_narrow = !t->has_gradient && may_be_narrow(c, tensor, is_read_again);
    for (int32_t k = 0; k < t->n_pieces; k++)
        PS_TRY(take_piece(c, ps_client_piece_of(c, t, k), gradient, dtype, is_narrow, has_changed));
    if (!t->has_gradient && !is_narrow) c->n_separate++;
    t->has_gradient = true;
    PS_TRY(ps_client_note_gradient(c, tensor));
    return ps_client_issue_prefetch(c);
}

/* After a failure in the middle of a tensor, part of its parameter or of an earlier sum is lost; with several ranks the
 * others continue until they wait for this one. */
ps_status ps_client_give_gradient(ps_client *c, int32_t tensor, const void *gradient, ps_dtype dtype,
                                  int32_t is_read_again)
{
    const char *call = "ps_client_give_gradient";
    PS_TRY(PS_NEED("client gradient", c, gradient));
    if (dtype < 0 || dtype >= PS_DTYPE_COUNT) return PS_FAIL(PS_EINVAL, "%s: %d is no ps_dtype", call, (int)dtype);
    PS_TRY(ps_client_enter_with(c, call, PS_CLIENT_IS_READY, tensor));
    /* with several ranks gradients of others may be reduced with it, to its owner */
    ps_status st = ps_client_check_gradient_unpinned(c, c->comm != NULL ? -1 : tensor, call);
    if (st == PS_OK) st = ps_client_check_not_updated_early(c, tensor, "another gradient has come");
    if (st == PS_OK && !c->tensors[tensor].is_unmanaged) {
        st = ps_client_flush_tensor(c, tensor);
        if (st == PS_OK) st = ps_client_prepare_for_gradient(c, tensor);
        if (st == PS_OK) st = make_place(c, tensor);
        if (c->comm != NULL) (void)ps_client_break(c, st);
    }
    if (st == PS_OK) {
        bool has_changed;
        st = give(c, tensor, gradient, dtype, is_read_again != 0, &has_changed);
        if (has_changed || c->comm != NULL) (void)ps_client_break(c, st);
    }
    return ps_client_leave(c, st);
}

/* ---- dropping ---- */

/* The parameter is restored when it is next used. */
static void drop(ps_client *c, ps_client_tensor_state *t)
{
    ps_client_reshard_tensor(c, (int32_t)(t - c->tensors));
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        if (c->updates.is_waiting[p->chunk]) continue; /* of an earlier step */
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        t->is_master_newer = t->is_master_newer || g->place == PS_GRADIENT_IN_PLACE;
        const ps_client_gradient_place was = g->place;
        g->place = PS_GRADIENT_NONE;
        ps_client_discard_unused(c, p->chunk, was);
        if (g->is_unreduced) c->sharding.n_unreduced[ps_client_chunk_group_of(c, p->chunk)]--;
        g->is_unreduced = false;
    }
    t->has_gradient = t->is_given = t->is_gradient_changed = false;
}

static ps_status drop_all(ps_client *c)
{
    bool had_any = false;
    for (int32_t i = 0; i < c->n_tensors; i++) {
        /* each rank has its own gradients of unmanaged tensors */
        had_any = had_any || (c->tensors[i].has_gradient && (c->comm == NULL || !c->tensors[i].is_unmanaged));
        drop(c, &c->tensors[i]);
    }
    if (had_any) ps_client_abandon_step(c); /* otherwise the step is about to begin, or between forward and backward */
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        for (int i = 0; i < 2 && !c->updates.is_waiting[k]; i++)
            ps_client_discard_unused(c, k, i == 0 ? PS_GRADIENT_SEPARATE : PS_GRADIENT_KEPT);
    return ps_client_reshard_all(c);
}

ps_status ps_client_drop_gradients(ps_client *c, int32_t tensor)
{
    const char *call = "ps_client_drop_gradients";
    PS_TRY(PS_NEED("client", c));
    PS_TRY(tensor == -1 ? ps_client_enter(c, call, PS_CLIENT_IS_READY)
                        : ps_client_enter_with(c, call, PS_CLIENT_IS_READY, tensor));
    ps_status st = ps_client_check_gradients_complete(c, "ps_client_drop_gradients (zero_grad)");
    if (st == PS_OK) st = ps_client_check_gradient_unpinned(c, -1, call);
    if (st == PS_OK && tensor == -1) st = drop_all(c);
    if (st == PS_OK && tensor >= 0) drop(c, &c->tensors[tensor]);
    return ps_client_leave(c, st);
}
