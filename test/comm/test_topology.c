/* What collectives cost over ranks and nodes. */
#include "chunk/comm/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const ps_topology node = {.n_ranks = 4, .ranks_per_node = 4, .node_bytes_per_s = 1e9, .node_latency_ns = 5};
static const ps_topology nodes = {.n_ranks = 8,
                                  .ranks_per_node = 4,
                                  .node_bytes_per_s = 1e9,
                                  .node_latency_ns = 5,
                                  .network_bytes_per_s = 0.5e9,
                                  .network_latency_ns = 20};

static void a_ring_takes_a_step_for_each_other_rank(void **state)
{
    (void)state;
    assert_int_equal(ps_collective_ns(&node, PS_ALL_GATHER, 1000), 3 * (5 + 1000));
    assert_int_equal(ps_collective_ns(&node, PS_REDUCE_SCATTER, 1000), 3 * (5 + 1000));
}

static void a_broadcast_goes_round_in_pieces(void **state)
{
    (void)state;
    assert_int_equal(ps_collective_ns(&node, PS_BROADCAST, 1000), 3 * 5 + 1000);
    assert_int_equal(ps_collective_ns(&node, PS_REDUCE, 1000), 3 * 5 + 1000);
}

static void the_slowest_wire_of_the_ring_counts(void **state)
{
    (void)state;
    assert_int_equal(ps_collective_ns(&nodes, PS_ALL_GATHER, 1000), 7 * (20 + 2000));
    ps_topology fast_network = nodes;
    fast_network.network_bytes_per_s = 4e9;
    fast_network.network_latency_ns = 1;
    assert_int_equal(ps_collective_ns(&fast_network, PS_ALL_GATHER, 1000), 7 * (5 + 1000));
    /* one rank a node: there is no wire within it */
    const ps_topology single = {.n_ranks = 2, .ranks_per_node = 1, .network_bytes_per_s = 1e9, .network_latency_ns = 3};
    assert_int_equal(ps_collective_ns(&single, PS_ALL_GATHER, 1000), 3 + 1000);
}

static void one_rank_takes_no_time(void **state)
{
    (void)state;
    const ps_topology one = {.n_ranks = 1, .ranks_per_node = 1};
    assert_int_equal(ps_collective_ns(&one, PS_ALL_GATHER, 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_takes_a_step_for_each_other_rank),
        cmocka_unit_test(a_broadcast_goes_round_in_pieces),
        cmocka_unit_test(the_slowest_wire_of_the_ring_counts),
        cmocka_unit_test(one_rank_takes_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
