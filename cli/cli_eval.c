/* cli_eval.c - loss and accuracy over a split of a feed. */
#include "cli_eval.h"

#include "base/base.h"
#include "cli_feed.h"

ps_status cli_evaluate(ps_engine *engine, ps_comm *comm, ps_config *config, const ps_feed *feed, ps_split split,
                       int64_t n_steps, ps_feed_batch *batch, cli_metrics *metrics, cli_eval *out)
{
    const int64_t B = ps_config_options(config)->train_micro_batch_size_per_gpu;
    const int64_t n_samples = ps_feed_sample_count(feed, split);
    const int64_t p = comm != NULL ? ps_comm_size(comm) : 1, rank = comm != NULL ? ps_comm_rank(comm) : 0;
    *out = (cli_eval){.n_micro_batches = ps_min_i64(ps_max_i64(ps_ceil_div(n_samples, B), 1), n_steps)};
    out->n_samples = ps_min_i64(n_samples, out->n_micro_batches * B);
    enum { LOSS, WEIGHT, TARGETS, CORRECT, N_SUMS };
    double sums[N_SUMS] = {0};
    for (int64_t first = 0; first < out->n_micro_batches; first += p) {
        const int64_t i = first + rank;
        const bool counts = i < out->n_micro_batches; /* else it computes for others, who need its chunks */
        float loss;                                   /* is in info, too */
        ps_eval_info info;
        PS_TRY(cli_set_length(engine, config, ps_feed_length(feed, split, first * B, p * B), batch));
        PS_TRY(ps_feed_get_once(feed, split, (counts ? i : first) * B, B, batch));
        const ps_batch rows = cli_batch(batch);
        PS_TRY(ps_evaluate(engine, &rows, &loss));
        ps_engine_get_eval_info(engine, &info);
        const int64_t n_real = counts ? ps_min_i64(B, n_samples - i * B) : 0;
        PS_TRY(cli_metrics_take(metrics, engine, &rows, i * B, n_real));
        if (!counts) continue;
        sums[LOSS] += info.loss * info.weight;
        sums[WEIGHT] += info.weight;
        sums[TARGETS] += (double)info.n_targets;
        sums[CORRECT] += (double)info.n_correct;
    }
    if (comm != NULL) PS_TRY(ps_comm_all_reduce(comm, sums, N_SUMS, PS_COMM_SUM));
    out->n_targets = (int64_t)sums[TARGETS];
    out->n_correct = (int64_t)sums[CORRECT];
    out->loss = sums[LOSS] / sums[WEIGHT];
    return cli_metrics_finish(metrics, comm, out->metrics, &out->n_metrics);
}
