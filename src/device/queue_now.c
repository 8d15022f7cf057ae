/* queue_now.c - a queue without delay: an item is done when the call that issues it returns, on the caller's thread; or
 * nothing is done at all, for devices of addresses without memory. */
#include "base/mem.h"
#include "device/queue_impl.h"
#include "device/sim_time_impl.h"

typedef struct now_queue {
    ps_queue base;
    bool does_nothing;
} now_queue;

static ps_status submit(ps_queue *q, const ps_queue_item *item, ps_ticket *out)
{
    const now_queue *n = (const now_queue *)q;
    if (!n->does_nothing) PS_TRY(ps_queue_execute(q, item, q->issued + 1));
    *out = q->issued + 1;
    return PS_OK;
}

static ps_status wait_for(ps_queue *q, ps_ticket t, bool tells)
{
    (void)q, (void)t, (void)tells;
    return PS_OK;
}

static bool is_done(ps_queue *q, ps_ticket t)
{
    (void)q, (void)t;
    return true;
}

static void destroy(ps_queue *q)
{
    ps_sim_clock_destroy(q->observed.clock);
    ps_mem_free(q);
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy, NULL};

ps_status ps_queue_now_create(bool does_nothing, ps_queue **out)
{
    now_queue *n = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *n, &n));
    n->base.ops = &ops;
    n->base.is_at_once = true;
    n->does_nothing = does_nothing;
    *out = &n->base;
    return PS_OK;
}
