/* Chunks carried by another than the communicator: what a network of GPUs, or ranks of a calling program's, will be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "comm_conformance.h"
#include "shared_collectives.h"

typedef struct rank_thread {
    pthread_t thread;
    shared_hub *hub;
    ps_comm *comm;
    int (*run)(ps_comm *c);
    int n_failures;
} rank_thread;

static void *rank_main(void *arg)
{
    rank_thread *r = arg;
    ps_comm_set_collectives(r->comm, shared_create(r->hub, ps_comm_rank(r->comm)));
    r->n_failures = r->run(r->comm);
    ps_comm_close(r->comm);
    return NULL;
}

static void run_ranks(int32_t p, int (*run)(ps_comm *c))
{
    const int64_t live_bytes = ps_mem_live_bytes();
    const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 18};
    shared_hub hub;
    ps_comm *comms[SHARED_RANKS_MAX];
    rank_thread ranks[SHARED_RANKS_MAX];
    shared_hub_init(&hub, p);
    assert_int_equal(ps_comm_open_threads(&o, p, comms), PS_OK);
    for (int32_t r = 0; r < p; r++) {
        ranks[r] = (rank_thread){.hub = &hub, .comm = comms[r], .run = run};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < p; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].n_failures, 0);
    }
    shared_hub_deinit(&hub);
    assert_int_equal(ps_mem_live_bytes(), live_bytes);
}

static int conforms(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c);
    if (conformance_run(c, ps_comm_size(c), "thread") != 0) return 1;
    CHECK(rank, ps_comm_get_stats(c).n_transfers == 0); /* no chunk went by messages */
    return 0;
}

static void other_collectives_conform(void **state)
{
    (void)state;
    for (int32_t p = 1; p <= 4; p++) run_ranks(p, conforms);
}

/* Rank 1 does not take part, but fails: no rank waits for it, in transfers or in small things. */
static int one_fails(ps_comm *c)
{
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const layout l = layout_make(6, p);
    payloads x = payloads_new(&l, PS_DTYPE_BF16);
    const ps_transfer t = transfer_of(&x, PS_DTYPE_BF16, "group 7");
    ps_event done;
    if (rank == 1) {
        ps_comm_fail(c, "the disk is full");
    } else {
        CHECK(rank, ps_collectives_gather(ps_comm_collectives(c), &t, &done) == PS_OK);
        CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_ECOMM);
        CHECK(rank, strstr(ps_last_error(), "the disk is full") != NULL);
    }
    CHECK(rank, ps_comm_barrier(c) == PS_ECOMM);
    CHECK(rank, ps_comm_failed_rank(c) == 1);
    CHECK(rank, payloads_free(&x, PS_DTYPE_BF16));
    return 0;
}

static void other_collectives_hear_of_a_failure(void **state)
{
    (void)state;
    run_ranks(3, one_fails);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_collectives_conform),
        cmocka_unit_test(other_collectives_hear_of_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
