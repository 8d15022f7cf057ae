/* cli_eval.h - loss and accuracy over a split of a feed. */
#ifndef PSTAR_CLI_EVAL_H
#define PSTAR_CLI_EVAL_H

#include "client.h"

typedef struct cli_eval {
    int64_t n_micro_batches, n_samples;
    int64_t n_planned; /* samples of all n_micro_batches */
    int64_t n_targets, n_correct;
    double loss;     /* mean over all targets, by the weights of their classes */
    bool is_stopped; /* before the end: n_samples were evaluated, and there is no result */
} cli_eval;

/* One pass over the split from its first sample on, at most n_steps micro-batches, each with the length that it needs
 * (cli_set_length; whole: the configured one). Losses are weighted by their targets, and rows behind the end have none,
 * so that the batch size does not matter. PS_EINVAL when the split is empty. Several ranks (comm, or NULL) take turns:
 * micro-batch i is that of rank i mod p, and all get the sums of all. metrics (or NULL; of an inference engine) takes
 * each of them too, and is finished. may_stop: ends between micro-batches when stop_is_asked says so. */
PS_NODISCARD ps_status cli_evaluate(ps_engine *engine, ps_comm *comm, ps_config *config, const ps_feed *feed,
                                    ps_split split, int64_t n_steps, int64_t whole, ps_rows *rows, ps_metrics *metrics,
                                    bool may_stop, cli_eval *out);

#endif
