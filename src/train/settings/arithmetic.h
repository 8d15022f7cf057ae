/* arithmetic.h - what determines the bits of a run in addition to its configuration, its weights and its number of
 * ranks: the arithmetic in use. A checkpoint records it, so that a resumed run can report a difference. */
#ifndef PS_SETTINGS_ARITHMETIC_H
#define PS_SETTINGS_ARITHMETIC_H

#include "train/settings/settings.h"

#define PS_ARITHMETIC_NAME_MAX 64

/* Names; "": not used, or not known. */
typedef struct ps_arithmetic {
    char kernels[PS_ARITHMETIC_NAME_MAX];    /* "cuda"; for a processor its kernels with bits that differ: "cpu" from
                                             * AVX2 on, "cpu with vdpbf16ps" in bf16, "cpu portable"; "ref" */
    char attention[PS_ARITHMETIC_NAME_MAX];  /* on a GPU: "cuDNN 9.19.0", "own kernels" */
    char reductions[PS_ARITHMETIC_NAME_MAX]; /* with several ranks: "ordered"; of earlier versions "nccl" too */
} ps_arithmetic;

/* The arithmetic of settings whose backend is open and whose ranks are joined. */
void ps_arithmetic_of(const ps_settings *s, ps_arithmetic *out);

/* For a resumed run: in one line the differences between the arithmetic of `name`, the saved one, and this, truncated
 * to the room; "" when everything that both know is the same. */
void ps_arithmetic_compare(const ps_arithmetic *was, const ps_arithmetic *is, const char *name, char *out,
                           size_t out_bytes);

#endif
