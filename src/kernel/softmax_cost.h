/* softmax_cost.h - time of exponentials in addition to matrix multiplication: in attention, in a language model's loss,
 * in gelu.
 *
 * With a matrix unit, exponentials of a row of scores or logits take longer than its multiplications, the more so the
 * fewer columns were multiplied; likewise gelu. So their time is modelled per element, and added to the cost of matrix
 * multiplication (cost.h). */
#ifndef PS_KERNEL_SOFTMAX_COST_H
#define PS_KERNEL_SOFTMAX_COST_H

#include "kernel/backend.h"

/* Zeros: nothing is added. */
typedef struct ps_softmax_throughput {
    double score_ns; /* of attention: one score per 4 D FLOP */
    double logit_ns; /* of the loss: rows x V in each pass */
    double gelu_ns;  /* of an element, for gelu alone and as an epilogue */
} ps_softmax_throughput;

/* Number of scores, logits, or elements of gelu of the call; 0 for other operators. */
double ps_softmax_scores(ps_op op, const void *args);
double ps_softmax_logits(ps_op op, const void *args);
double ps_softmax_gelus(ps_op op, const void *args);

/* Nanoseconds of the call in addition to its matrix multiplication. */
double ps_softmax_ns(ps_op op, const void *args, const ps_softmax_throughput *r);

#endif
