#include "run/results.h"

#include "base/mem.h"

int64_t ps_results_bytes(int64_t n_micro)
{
    return (int64_t)sizeof(ps_step_sums) + (n_micro + 1) * (int64_t)sizeof(ps_loss_sums);
}

ps_status ps_results_init(ps_results *r, const ps_tiers *tiers, int64_t n_micro)
{
    *r = (ps_results){.queue = tiers->compute[PS_TIER_DEVICE], .sums = tiers->results};
    r->bytes = ps_results_bytes(n_micro);
    ps_status st = ps_mem_alloc((size_t)r->bytes, 1, &r->read);
    if (st == PS_OK && r->sums == NULL) {
        PS_ASSERT(ps_device_host_can_touch(tiers->ram[PS_TIER_DEVICE]));
        r->sums = r->read;
    }
    if (st == PS_OK) st = ps_queue_fill(r->queue, r->sums, 0, r->bytes);
    if (st != PS_OK) ps_results_deinit(r);
    return st;
}

void ps_results_deinit(ps_results *r)
{
    if (r->queue != NULL && r->sums == r->read) (void)!ps_event_wait(ps_queue_event(r->queue));
    ps_mem_free(r->read);
    *r = (ps_results){0};
}

ps_status ps_results_clear_grads(ps_results *r)
{
    r->is_read = false;
    return ps_queue_fill(r->queue, &r->sums->grads, 0, sizeof r->sums->grads);
}

ps_step_sums *ps_results_write(ps_results *r)
{
    r->is_read = false;
    return r->sums;
}

ps_status ps_results_read(ps_results *r, const ps_step_sums **out)
{
    *out = r->read;
    if (r->is_read) return PS_OK;
    if (r->sums == r->read)
        PS_TRY(ps_event_wait(ps_queue_event(r->queue)));
    else
        PS_TRY(ps_queue_get(r->queue, r->read, r->sums, r->bytes));
    r->is_read = true;
    return PS_OK;
}
