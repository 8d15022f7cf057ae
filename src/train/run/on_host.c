#include "train/run/on_host.h"

#include "device/order.h"

ps_status ps_on_host_begin(ps_runner *r, const ps_instr *instr, ps_node_run *run, ps_host_copies *copies)
{
    ps_queue *device = r->tiers->compute[PS_TIER_DEVICE], *host = r->tiers->compute[PS_TIER_HOST];
    ps_code_bind_host(r->plan->code, instr, r->tiers->host_block, run, copies);
    PS_TRY(ps_queue_wait_at(device, r->host_block_free, PS_WAIT_BLOCK));
    for (int i = 0; i < copies->n_in; i++) {
        const ps_host_copy *c = &copies->in[i];
        PS_TRY(ps_queue_copy(device, c->host, c->device, c->bytes));
    }
    return ps_queue_wait_at(host, ps_queue_event(device), PS_WAIT_BROUGHT);
}

ps_status ps_on_host_end(ps_runner *r, const ps_host_copies *copies)
{
    ps_queue *device = r->tiers->compute[PS_TIER_DEVICE];
    r->host_block_free = ps_queue_event(r->tiers->compute[PS_TIER_HOST]);
    if (copies->out.bytes == 0) return PS_OK;
    PS_TRY(ps_queue_wait_at(device, r->host_block_free, PS_WAIT_RESULT));
    return ps_queue_copy(device, copies->out.device, copies->out.host, copies->out.bytes);
}
