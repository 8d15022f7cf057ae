/* cli_eval.h - loss and accuracy over a split of a data loader. */
#ifndef PSTAR_CLI_EVAL_H
#define PSTAR_CLI_EVAL_H

#include "client.h"

typedef struct cli_eval {
    int64_t n_micro_batches, n_samples;
    int64_t n_planned; /* samples of all n_micro_batches */
    int64_t n_targets, n_correct;
    double loss;     /* mean over all targets, with class weights */
    bool is_stopped; /* stopped early: n_samples were evaluated, and there is no result */
} cli_eval;

/* Evaluate at most n_steps micro-batches of the split from its first sample on, each with the length that it needs
 * (cli_set_length; whole: the configured one). Losses are weighted by their targets, and rows past the end have none,
 * so the batch size does not affect the result. PS_EINVAL when the split is empty. With several ranks (comm, or NULL)
 * rank i mod p evaluates micro-batch i, and all get the sums over ranks. metrics (or NULL; for an inference engine)
 * counts all micro-batches, and is finished. may_stop: end between micro-batches when stop_is_asked. */
PS_NODISCARD ps_status cli_evaluate(ps_engine *engine, ps_comm *comm, ps_config *config, const ps_data_loader *loader,
                                    ps_split split, int64_t n_steps, int64_t whole, ps_rows *rows, ps_metrics *metrics,
                                    bool may_stop, cli_eval *out);

#endif
