/* softmax_cost.h - what exponentials take beside products: in attention, in the loss of a language model, in gelu.
 *
 * Where products run on a matrix unit, a row of scores or logits takes longer to exponentiate than to multiply, and how
 * much longer depends on how few columns were multiplied; gelu of a product's elements likewise. So it is a time for
 * each of them, added to the cost of the products (cost.h). */
#ifndef PS_KERNEL_SOFTMAX_COST_H
#define PS_KERNEL_SOFTMAX_COST_H

#include "kernel/backend.h"

/* Zeros: nothing is added. */
typedef struct ps_softmax_rates {
    double score_ns; /* of attention: 4 D FLOP are one score */
    double logit_ns; /* of the loss: rows x V in each pass */
    double gelu_ns;  /* of an element, whether gelu stands alone or follows a product in one call */
} ps_softmax_rates;

/* How many scores, logits, or elements of gelu the call has; 0 of other operators. */
double ps_softmax_scores(ps_op op, const void *args);
double ps_softmax_logits(ps_op op, const void *args);
double ps_softmax_gelus(ps_op op, const void *args);

/* Nanoseconds of the call beside its products. */
double ps_softmax_ns(ps_op op, const void *args, const ps_softmax_rates *r);

#endif
