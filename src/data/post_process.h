/* post_process.h - adds special tokens around a sequence or a pair, and truncates to a maximum length.
 *
 * A template is a list of parts. Each part is a token or one of the sequences, with the type id of its tokens (BERT: 0
 * for the first sequence and its special tokens, 1 for the second). */
#ifndef PS_DATA_POST_PROCESS_H
#define PS_DATA_POST_PROCESS_H

#include "base/status.h"

enum { PS_TEMPLATE_PARTS_MAX = 32, PS_PART_A = -1, PS_PART_B = -2 };

typedef struct ps_template_part {
    int32_t id; /* a token, PS_PART_A or PS_PART_B */
    int32_t type_id;
} ps_template_part;

typedef struct ps_template {
    ps_template_part parts[PS_TEMPLATE_PARTS_MAX];
    int n;
} ps_template;

typedef struct ps_post_processor {
    ps_template single, pair;
} ps_post_processor;

/* A, and A (type 0) B (type 1), without special tokens. */
void ps_post_processor_init(ps_post_processor *p);

PS_NODISCARD ps_status ps_template_add(ps_template *t, int32_t id, int32_t type_id, const char *where);

int ps_template_token_count(const ps_template *t); /* tokens that it adds */

/* Truncate both sequences to max ids in all, the longer one first (Hugging Face's longest_first; of an odd number to
 * share, the longer one gets the larger half). */
void ps_truncate_longest_first(int64_t max, int64_t *n_a, int64_t *n_b);

#endif
