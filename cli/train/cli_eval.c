/* cli_eval.c - loss and accuracy over a split of a data loader. */
#include "cli_eval.h"

#include "cli_data_loader.h"
#include "stop.h"

ps_status cli_evaluate(ps_engine *engine, ps_comm *comm, ps_config *config, const ps_data_loader *loader,
                       ps_split split, int64_t n_steps, int64_t whole, ps_rows *rows, ps_metrics *metrics,
                       bool may_stop, cli_eval *out)
{
    const int64_t B = client_int(config, "train_micro_batch_size_per_gpu");
    const int64_t n_samples = ps_data_loader_sample_count(loader, split);
    const int64_t p = comm != NULL ? ps_comm_size(comm) : 1, rank = comm != NULL ? ps_comm_rank(comm) : 0;
    *out = (cli_eval){.n_micro_batches = min_i64(max_i64((n_samples + B - 1) / B, 1), n_steps)};
    out->n_planned = min_i64(n_samples, out->n_micro_batches * B);
    out->n_samples = out->n_planned;
    enum { LOSS, WEIGHT, TARGETS, CORRECT, N_SUMS };
    double sums[N_SUMS] = {0};
    for (int64_t first = 0; first < out->n_micro_batches; first += p) {
        const int64_t i = first + rank;
        const bool counts = i < out->n_micro_batches; /* else this rank only takes part in the collectives of the
                                                         others */
        float loss;                                   /* also in info */
        ps_eval_info info = {.struct_size = sizeof info};
        if (may_stop) TRY(stop_is_asked(comm, &out->is_stopped));
        if (out->is_stopped) {
            out->n_samples = min_i64(n_samples, first * B);
            return PS_OK;
        }
        TRY(cli_set_length(engine, config, whole, ps_data_loader_length(loader, split, first * B, p * B), rows));
        TRY(ps_rows_fill_once(rows, split, (counts ? i : first) * B, B));
        TRY(ps_evaluate(engine, ps_rows_batch(rows), &loss));
        ps_engine_get_eval_info(engine, &info);
        const int64_t n_real = counts ? min_i64(B, n_samples - i * B) : 0;
        TRY(ps_metrics_take(metrics, engine, ps_rows_batch(rows), i * B, n_real));
        if (!counts) continue;
        sums[LOSS] += info.loss * info.weight;
        sums[WEIGHT] += info.weight;
        sums[TARGETS] += (double)info.n_targets;
        sums[CORRECT] += (double)info.n_correct;
    }
    if (comm != NULL) TRY(ps_comm_all_reduce(comm, sums, N_SUMS, PS_COMM_SUM));
    out->n_targets = (int64_t)sums[TARGETS];
    out->n_correct = (int64_t)sums[CORRECT];
    out->loss = sums[LOSS] / sums[WEIGHT];
    return ps_metrics_finish(metrics, comm);
}
