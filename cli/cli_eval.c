/* cli_eval.c - loss and accuracy over a split of a feed. */
#include "cli_eval.h"

#include "base/base.h"
#include "cli_feed.h"

ps_status cli_evaluate(ps_engine *engine, ps_config *config, const ps_feed *feed, ps_split split, int64_t n_steps,
                       ps_feed_batch *batch, cli_eval *out)
{
    const int64_t B = ps_config_options(config)->train_micro_batch_size_per_gpu;
    const int64_t n_samples = ps_feed_sample_count(feed, split);
    *out = (cli_eval){.n_micro_batches = ps_min_i64(ps_max_i64(ps_ceil_div(n_samples, B), 1), n_steps)};
    out->n_samples = ps_min_i64(n_samples, out->n_micro_batches * B);
    double sum = 0;
    for (int64_t i = 0; i < out->n_micro_batches; i++) {
        float part;
        ps_eval_info info;
        PS_TRY(cli_set_length(engine, config, ps_feed_length(feed, split, i * B, B), batch));
        PS_TRY(ps_feed_get_once(feed, split, i * B, B, batch));
        const ps_batch rows = cli_batch(batch);
        PS_TRY(ps_evaluate(engine, &rows, &part));
        ps_engine_get_eval_info(engine, &info);
        sum += info.loss * (double)info.n_targets;
        out->n_targets += info.n_targets;
        out->n_correct += info.n_correct;
    }
    out->loss = sum / (double)out->n_targets;
    return PS_OK;
}
