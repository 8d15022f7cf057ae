/* single_rank.c - collectives of a single rank: every part is its own, and is its own sum. */
#include <stdio.h>

#include "chunk/comm/comm_impl.h"

static ps_comm *comm_of(ps_collectives *x)
{
    return (ps_comm *)x;
}

/* There is no asynchronous work, so the call waits itself. */
static ps_status have_all(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    (void)done;
    PS_TRY(ps_comm_check_failure(comm_of(x)));
    if (t->after != NULL) PS_TRY(ps_events_wait(t->after));
    atomic_fetch_add(&comm_of(x)->n_transfers, 1);
    return PS_OK;
}

static ps_status wait_for(ps_collectives *x, ps_event done)
{
    (void)done;
    return ps_comm_check_failure(comm_of(x));
}

static void fail(ps_collectives *x, const char *text)
{
    ps_comm *c = comm_of(x);
    if (atomic_load(&c->failed_rank) >= 0) return;
    snprintf(c->failure, sizeof c->failure, "rank %d (%s) failed: %s", c->rank, ps_comm_host(c, c->rank), text);
    ps_comm_set_failed(c, c->rank);
}

static void destroy(ps_collectives *x)
{
    ps_comm_destroy(comm_of(x));
}

const ps_collectives_ops ps_comm_single_rank_ops = {.all_gather = have_all,
                                                    .broadcast = have_all,
                                                    .reduce_scatter = have_all,
                                                    .reduce = have_all,
                                                    .all_reduce = have_all,
                                                    .wait = wait_for,
                                                    .fail = fail,
                                                    .destroy = destroy};
