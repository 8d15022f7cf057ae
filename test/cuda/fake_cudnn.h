/* fake_cudnn.h - cuDNN without a GPU: a table of functions that keep descriptors as they are set, and whose plans carry out
 * the graph that was described, operation by operation and in plain loops, on streams of the fake driver. So what is
 * computed is what the graph says: sizes, strides, types, masks. What its documentation demands is checked and refused, with
 * the reason on stderr: attributes of their types, descriptors that are finished, arrays as aligned as was said, every
 * array there.
 *
 * Its first choice is always an engine that calls itself nondeterministic, whose plans' numbers are wrong. Heads of more
 * than 64 elements are not supported. A plan with five products (backward) wants 2 B H T T bytes.
 *
 * One at a time in a process. */
#ifndef TEST_CUDA_FAKE_CUDNN_H
#define TEST_CUDA_FAKE_CUDNN_H

#include "device/cuda/cudnn.h"

extern const ps_cudnn fake_cudnn;

/* Anew, for the driver that was begun last: it gets the kernel of plans. */
void fake_cudnn_begin(void);
/* Each count of what was made and not ended is an error: false, reported on stderr. */
bool fake_cudnn_end(void);

/* The nth call from now (0: the next) of this function of the table fails so. */
void fake_cudnn_fail(const char *function, int nth, ps_dnn_status s);
/* Calls of a function of the table so far. */
int fake_cudnn_calls(const char *function);

#endif
