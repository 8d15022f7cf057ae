#include "kernel/cost.h"

const ps_compute_throughput ps_compute_throughput_default = {
    .flops_per_s = 400e9, .bytes_per_s = 15e9, .latency_ns = 3000};

ps_cost ps_cost_of_gemm(int64_t m, int64_t n, int64_t k, ps_dtype t)
{
    const double M = (double)m, N = (double)n, K = (double)k;
    return (ps_cost){.flops = 2 * M * N * K, .bytes = (M * N + M * K + N * K) * (double)ps_dtype_bytes(t)};
}

ps_cost ps_cost_of_stream(int64_t n, double streams, double work, ps_dtype t)
{
    return (ps_cost){.flops = (double)n * work, .bytes = (double)n * streams * (double)ps_dtype_bytes(t)};
}

double ps_cost_seconds(const ps_cost *cost, const ps_compute_throughput *throughput)
{
    const double arithmetic = cost->flops / throughput->flops_per_s, traffic = cost->bytes / throughput->bytes_per_s;
    return (arithmetic > traffic ? arithmetic : traffic) + (double)throughput->latency_ns * 1e-9;
}
