/* bnb_weight.h - weights that bitsandbytes has quantized to 4 bits, in a file or folder that transformers saved so
 * (load_in_4bit). Of a weight NAME there are
 *
 *     NAME                                 codes, two a byte, the first in the high 4 bits, of the matrix row by row
 *     NAME.quant_map                       [16] the value of each code
 *     NAME.absmax                          scales of blocks of codes: floats; with double quantization bytes, codes of
 *     NAME.nested_quant_map                [256] these values,
 *     NAME.nested_absmax                   and scales of blocks of them
 *     NAME.quant_state.bitsandbytes__nf4   JSON: shape, sizes of blocks, and what is added to each scale; or __fp4
 *
 * A value is quant_map[code] absmax, in fp32. Facts of the format: bitsandbytes 0.45, functional.py, QuantState. */
#ifndef PS_WEIGHTS_BNB_WEIGHT_H
#define PS_WEIGHTS_BNB_WEIGHT_H

#include "weights/weight_source.h"

typedef struct ps_bnb_weight {
    int codes, absmax; /* numbers of tensors in the source */
    int nested_absmax; /* -1: absmax are floats */
    int n_dims;
    int64_t shape[PS_SAFETENSORS_DIMS_MAX], elements;
    int64_t block, nested_block; /* elements with a scale; scales with a scale */
    float map[16], nested_map[256], nested_offset;
} ps_bnb_weight;

/* Is tensor i a part of such a weight other than its codes? */
bool ps_bnb_is_part(const ps_weight_source *s, int i);

/* *out describes tensor i if it has the codes of such a weight, else it is NULL; ps_mem_free. PS_EFORMAT names a part
 * that is missing, or is not as large or of the type that the others make it. Reads the small parts. */
PS_NODISCARD ps_status ps_bnb_weight_read(const ps_weight_source *s, int i, ps_bnb_weight **out);

/* Bytes with the codes of elements [first, first + n); first is even. */
static inline int64_t ps_bnb_code_bytes(int64_t n)
{
    return n / 2 + n % 2;
}

/* to[n]: values of the elements from `first` on, which is even, of these codes. Reads their scales. PS_EIO. */
PS_NODISCARD ps_status ps_bnb_weight_values(const ps_weight_source *s, const ps_bnb_weight *w, int64_t first,
                                            const uint8_t *codes, float *to, int64_t n);

/* Reads what the JSON of quant_state says into *out: n_dims to nested_offset, but for the maps; nested_block 0: scales
 * are floats. what: for messages. PS_EFORMAT. */
PS_NODISCARD ps_status ps_bnb_state_parse(const char *what, const char *text, int64_t n, ps_bnb_weight *out);

#endif
