/* queue_now.c - a queue without delay: an item is done when the call that issues it returns, on the caller's thread; or
 * nothing is done at all, for devices of addresses without memory. */
#include <string.h>

#include "base/mem.h"
#include "device/queue_impl.h"

typedef struct now_queue {
    ps_queue base;
    bool does_nothing;
} now_queue;

static ps_status carry_out(const ps_item *item)
{
    switch (item->kind) {
    case PS_ITEM_COPY:
        if (item->copy.bytes > 0) memcpy(item->copy.dst, item->copy.src, (size_t)item->copy.bytes);
        return PS_OK;
    case PS_ITEM_FILL:
        if (item->fill.bytes > 0) memset(item->fill.dst, item->fill.byte, (size_t)item->fill.bytes);
        return PS_OK;
    case PS_ITEM_CALL: return item->call.run(item->call.self, item->call.args);
    case PS_ITEM_WAIT: return item->wait.queue->ops->wait(item->wait.queue, item->wait.ticket);
    }
    return PS_OK;
}

static ps_status submit(ps_queue *q, const ps_item *item, ps_ticket *out)
{
    const now_queue *n = (const now_queue *)q;
    const int64_t begin_ns = ps_profile_now(q->profile);
    if (!n->does_nothing) PS_TRY(carry_out(item));
    *out = q->issued + 1;
    if (!n->does_nothing && item->kind == PS_ITEM_COPY) ps_queue_record_copy(q, *out, begin_ns);
    return PS_OK;
}

static ps_status wait_for(ps_queue *q, ps_ticket t)
{
    PS_ASSERT(t <= q->issued);
    (void)q, (void)t;
    return PS_OK;
}

static bool is_done(ps_queue *q, ps_ticket t)
{
    (void)q, (void)t;
    return true;
}

static void destroy(ps_queue *q)
{
    ps_mem_free(q);
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy};

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
