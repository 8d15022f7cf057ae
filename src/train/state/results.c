#include "train/state/results.h"

#include "base/mem.h"
#include "device/blocking.h"

int64_t ps_results_bytes(int64_t n_micro)
{
    return (int64_t)sizeof(ps_step_sums) + (n_micro + 1) * (int64_t)sizeof(ps_loss_sums);
}

ps_status ps_results_init(ps_results *r, const ps_tiers *tiers, int64_t n_micro)
{
    *r = (ps_results){
        .queue = tiers->compute[PS_TIER_DEVICE], .sums = tiers->results, .host_queue = tiers->compute[PS_TIER_HOST]};
    r->bytes = ps_results_bytes(n_micro);
    ps_status st = ps_mem_alloc((size_t)r->bytes, 1, &r->read);
    if (st == PS_OK && r->sums == NULL) {
        PS_ASSERT(ps_device_host_can_touch(tiers->ram[PS_TIER_DEVICE]));
        r->sums = r->read;
    } else if (st == PS_OK)
        st = ps_mem_alloc(1, sizeof *r->host_grads, &r->host_grads);
    if (st == PS_OK) st = ps_queue_fill(r->queue, r->sums, 0, r->bytes);
    if (st != PS_OK) ps_results_deinit(r);
    return st;
}

void ps_results_deinit(ps_results *r)
{
    if (r->queue != NULL && r->sums == r->read) (void)!ps_event_wait(ps_queue_event(r->queue));
    (void)!ps_event_wait(r->host_done);
    ps_mem_free(r->host_grads);
    ps_mem_free(r->read);
    *r = (ps_results){0};
}

/* Only if anything was added there: otherwise there is no need to wait for the host's queue. */
static ps_status clear_host_grads(ps_results *r)
{
    if (r->host_done.queue == NULL) return PS_OK;
    PS_TRY(ps_queue_fill(r->host_queue, r->host_grads, 0, sizeof *r->host_grads));
    r->host_done = ps_queue_event(r->host_queue);
    return PS_OK;
}

ps_status ps_results_clear_grads(ps_results *r)
{
    r->is_read = false;
    PS_TRY(clear_host_grads(r));
    return ps_queue_fill(r->queue, &r->sums->grads, 0, sizeof r->sums->grads);
}

ps_step_sums *ps_results_write(ps_results *r)
{
    r->is_read = false;
    return r->sums;
}

ps_grad_sums *ps_results_write_grads(ps_results *r, ps_tier tier)
{
    ps_grad_sums *of_device = &ps_results_write(r)->grads;
    return tier == PS_TIER_HOST && r->host_grads != NULL ? r->host_grads : of_device;
}

void ps_results_note_grads(ps_results *r, ps_tier tier)
{
    if (tier == PS_TIER_HOST && r->host_grads != NULL) r->host_done = ps_queue_event(r->host_queue);
}

/* The sums are exact, so the split into two does not change them. */
static ps_status add_host_grads(ps_results *r)
{
    if (r->host_done.queue == NULL) return PS_OK;
    PS_TRY(ps_event_wait_as(r->host_done, PS_BLOCK_READ));
    ps_grad_sums host = *r->host_grads;
    ps_grad_sums_join(&r->read->grads, &host);
    return PS_OK;
}

ps_status ps_results_read(ps_results *r, const ps_step_sums **out)
{
    *out = r->read;
    if (r->is_read) return PS_OK;
    if (r->sums == r->read)
        PS_TRY(ps_event_wait_as(ps_queue_event(r->queue), PS_BLOCK_READ));
    else
        PS_TRY(ps_queue_get(r->queue, r->read, r->sums, r->bytes));
    PS_TRY(add_host_grads(r));
    r->is_read = true;
    return PS_OK;
}
