/* loader.h - batches from a dataset: which tokens belong to sample number s is a pure function of s.
 *
 *     window w  = tokens [w T, w T + T]: T inputs, and each one's next token as its target
 *     training  = windows 0 .. n - 1 in an order shuffled anew each epoch; validation = the last ones, in order
 *     sample s  = window order(seed, s / n)[s % n], for s = 0, 1, 2, ... without end
 *
 * There is no position to keep: resuming, another batch size, or other ranks go on with the same samples in the same
 * order by asking for the same numbers (rank r of p takes rows r B/p to (r + 1) B/p - 1 of each batch of B).
 *
 * Threads: a loader can be read from several threads at once. */
#ifndef PS_DATA_LOADER_H
#define PS_DATA_LOADER_H

#include <stdbool.h>

#include "base/status.h"
#include "data/dataset.h"

typedef enum ps_split {
    PS_SPLIT_TRAIN,
    PS_SPLIT_VALIDATION,
    PS_SPLIT_COUNT,
} ps_split;

typedef struct ps_loader_options {
    int64_t sequence;           /* T >= 1, tokens a sample */
    double validation_fraction; /* of the windows, in [0, 1); when > 0, at least one window */
    uint64_t seed;              /* of the order of the training windows */
    bool in_file_order;         /* do not shuffle: training windows as they lie in the file, epoch after epoch */
} ps_loader_options;

typedef struct ps_loader ps_loader;

/* The dataset must live as long as the loader. PS_EINVAL with both numbers when it has fewer than one window to train
 * on (and one to validate on, when asked for). */
PS_NODISCARD ps_status ps_loader_create(const ps_dataset *dataset, const ps_loader_options *options, ps_loader **out);
void ps_loader_destroy(ps_loader *l); /* NULL is accepted */

/* Windows, that is samples an epoch; 0 for validation when there is none. */
int64_t ps_loader_window_count(const ps_loader *l, ps_split split);

/* Samples [first_sample, first_sample + n_samples) of a split: tokens [n_samples, T], targets [n_samples, T]; epochs
 * follow each other without a gap. PS_EINVAL when the split is empty. */
PS_NODISCARD ps_status ps_loader_get(const ps_loader *l, ps_split split, int64_t first_sample, int64_t n_samples,
                                     int32_t *tokens, int32_t *targets);

/* The window of a sample. */
int64_t ps_loader_window_of(const ps_loader *l, ps_split split, int64_t sample);

#endif
