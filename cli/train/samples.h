/* samples.h - texts that the model continues while it is trained: train.sample_prompts. */
#ifndef PSTAR_SAMPLES_H
#define PSTAR_SAMPLES_H

#include "client.h"

typedef struct samples {
    int64_t interval; /* in steps; 0: there are none */
    int64_t n_tokens; /* of a continuation, at most */
    int n;
    char **prompts; /* [n] */
    int32_t **ids;  /* [n] of n_ids[n] tokens, with room for n_tokens more */
    int64_t *n_ids;
    int32_t *ends; /* [n] the token that ends an answer; -1: no conversation */
    ps_tokenizer *tokenizer;
    ps_sample_options options;
} samples;

/* Reads the prompts, a line each; of a conversation (data.chat_format) each is what a user says. PS_EIO, PS_EINVAL. */
PS_NODISCARD ps_status samples_open(const ps_config *config, samples *out);
void samples_close(samples *s); /* an empty one is accepted */

/* Between steps, on all ranks: each prompt is continued, by a pass for each token, and training goes on with the same
 * bits. Rank 0 prints it, and appends {"step", "prompt", "text"} to samples.jsonl in `folder`. whole, rows: as
 * cli_set_length. */
PS_NODISCARD ps_status samples_write(const samples *s, ps_engine *engine, ps_comm *comm, ps_config *config,
                                     int64_t whole, ps_rows *rows, int64_t step, const char *folder);

#endif
