/* cli_metrics.h - what pstar eval says of a fine-tuned model beside its loss, from what it gives for each sample.
 *
 *     regression           mse, pearson (of all numbers together)
 *     one label a text     f1_macro
 *     several labels       f1_micro, f1_macro, exact_match (texts with all labels right)
 *     labels of tokens     precision, recall, f1 of entities, as seqeval counts them, where the classes have names of
 *                          BIO ("O", "B-PER", "I-PER"); else f1_macro over tokens
 *     answers              exact_match and f1 of their words, as SQuAD counts them; of the parts of a long context the
 *                          one that the model is surest of
 *
 * F1 of a class that nobody has and nobody predicts is 0, as in scikit-learn. */
#ifndef PSTAR_CLI_METRICS_H
#define PSTAR_CLI_METRICS_H

#include "comm/comm.h"
#include "config/config.h"
#include "data/feed.h"
#include "patrickstar.h"

typedef struct cli_metrics cli_metrics;

typedef struct cli_metric {
    const char *name;
    double value;
} cli_metric;

enum { CLI_METRICS_MAX = 3 };

/* *out = NULL for language models, which have no others. The feed must outlive it. */
PS_NODISCARD ps_status cli_metrics_create(const ps_config *config, const ps_feed *feed, ps_split split,
                                          cli_metrics **out);
void cli_metrics_destroy(cli_metrics *m); /* NULL is accepted */

/* A forward pass over the batch, of samples first to first + n - 1 of the split and then others, which are not counted.
 * All ranks call it together. m may be NULL. */
PS_NODISCARD ps_status cli_metrics_take(cli_metrics *m, ps_engine *engine, const ps_batch *batch, int64_t first,
                                        int64_t n);

/* Of all ranks, which call it together: *n of them. m may be NULL. */
PS_NODISCARD ps_status cli_metrics_finish(cli_metrics *m, ps_comm *comm, cli_metric out[CLI_METRICS_MAX], int *n);

#endif
