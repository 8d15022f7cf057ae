#include "state/carrier.h"

static ps_status create_copies(const ps_tiers *t, const char *name, ps_queue **out)
{
    PS_TRY(ps_queue_create(t->ram[PS_TIER_DEVICE], name, PS_QUEUE_COPY, out));
    ps_queue_set_order(*out, NULL); /* what is looked at is the transfer that they are part of */
    return PS_OK;
}

ps_status ps_carrier_open(ps_carrier *x, const ps_settings *s, const ps_tiers *t)
{
    if (s->ranks.comm == NULL) return PS_OK;
    x->comm = s->ranks.comm;
    ps_comm_set_order(x->comm, ps_device_order(t->ram[PS_TIER_DEVICE]));
    if (s->nccl.is_used) return ps_queue_create(t->ram[PS_TIER_DEVICE], "exchange", PS_QUEUE_EXCHANGE, &x->exchange);
    if (t->comm_staging == NULL) return PS_OK;
    PS_TRY(create_copies(t, "messages-out", &x->copies.out));
    PS_TRY(create_copies(t, "messages-in", &x->copies.in));
    x->copies.staging = t->comm_staging;
    ps_comm_set_device(x->comm, &x->copies);
    return PS_OK;
}

ps_status ps_carrier_join(ps_carrier *x, const ps_settings *s, const ps_tiers *t)
{
    ps_collectives *nccl;
    if (x->exchange == NULL) return PS_OK;
    PS_TRY(ps_settings_open_nccl(s, x->exchange, t->comm_staging, t->comm_staging_bytes, &nccl));
    ps_comm_set_collectives(x->comm, nccl);
    return PS_OK;
}

void ps_carrier_close(ps_carrier *x)
{
    if (x->comm == NULL) return;
    if (x->exchange != NULL) ps_comm_set_collectives(x->comm, NULL);
    ps_queue_destroy(x->exchange);
    ps_comm_set_device(x->comm, NULL);
    ps_comm_set_order(x->comm, NULL);
    ps_queue_destroy(x->copies.out);
    ps_queue_destroy(x->copies.in);
    *x = (ps_carrier){0};
}
