/* fake_cublaslt.h - cuBLASLt without a GPU: a table of functions whose products are plain loops, on streams of the fake
 * driver. What its documentation demands is checked, and refused as it would be, with the reason on stderr: layouts that
 * fit each other, types that it has together, alignment and workspace as said when the algorithm was chosen, matrices
 * in memory of the device. What it chooses follows from the shape, and rounds as no other shape's does: so results
 * depend on whether a product is computed whole or in parts.
 *
 * One at a time in a process. */
#ifndef TEST_CUDA_FAKE_CUBLASLT_H
#define TEST_CUDA_FAKE_CUBLASLT_H

#include "device/cuda/cublaslt.h"

extern const ps_cublaslt fake_cublaslt;

/* Anew, for the driver that was begun last: it gets the kernel of products. */
void fake_cublaslt_begin(void);
/* Each count of what was made and not ended is an error: false, reported on stderr. */
bool fake_cublaslt_end(void);

/* What it lacks: reported by the heuristics as not supported, or as an attribute that they do not know; or not before
 * the product is to be computed. */
typedef enum fake_cublaslt_lack {
    FAKE_CUBLASLT_NOTHING,
    FAKE_CUBLASLT_DGELU,
    FAKE_CUBLASLT_DGELU_UNKNOWN,
    FAKE_CUBLASLT_DGELU_LATE,
    FAKE_CUBLASLT_ADDEND_LATE,
} fake_cublaslt_lack;
/* After fake_cublaslt_begin: nothing. */
void fake_cublaslt_without(fake_cublaslt_lack what);

/* The nth call from now (0: the next) of this function of the table fails so. */
void fake_cublaslt_fail(const char *function, int nth, ps_lt_status s);
/* Calls of a function of the table so far. */
int fake_cublaslt_calls(const char *function);

#endif
