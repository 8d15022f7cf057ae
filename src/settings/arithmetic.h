/* arithmetic.h - what the bits of a run follow from beside its configuration, its weights and its number of ranks: which
 * arithmetic computes. A checkpoint keeps it, so that a run that goes on with another can say so.
 *
 * Algorithms of a GPU's matrix products are in a table of their own (products.h). */
#ifndef PS_SETTINGS_ARITHMETIC_H
#define PS_SETTINGS_ARITHMETIC_H

#include "settings/settings.h"

#define PS_ARITHMETIC_NAME_MAX 64

/* Names; "": there is none of it, or it is not known. */
typedef struct ps_arithmetic {
    char kernels[PS_ARITHMETIC_NAME_MAX];   /* "cuda"; of a processor those that have bits of their own: "cpu" from AVX2
                                              * on, "cpu with vdpbf16ps" in bf16, "cpu portable"; "ref" */
    char attention[PS_ARITHMETIC_NAME_MAX]; /* of a GPU: "cuDNN 9.19.0", "own kernels" */
    char reductions[PS_ARITHMETIC_NAME_MAX]; /* of several ranks: "ordered", "nccl" */
} ps_arithmetic;

/* Of settings whose backend is open and whose ranks are joined. */
void ps_arithmetic_of(const ps_settings *s, ps_arithmetic *out);

/* What another arithmetic computed goes on: in one line what is not as it was, `name` being what was saved, cut to the
 * room; "" when all that both know is the same. */
void ps_arithmetic_compare(const ps_arithmetic *was, const ps_arithmetic *is, const char *name, char *out,
                           size_t out_bytes);

#endif
