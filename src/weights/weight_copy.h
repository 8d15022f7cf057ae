/* weight_copy.h - copies tensors of a source to a new file, with memory for one piece of a tensor. The name of the file
 * determines its format (weight_writer.h). */
#ifndef PS_WEIGHTS_WEIGHT_COPY_H
#define PS_WEIGHTS_WEIGHT_COPY_H

#include "base/dtype.h"
#include "weights/weight_source.h"

/* What is added to a matrix: scale B A, of an adapter. */
typedef struct ps_weight_delta {
    float *a, *b; /* [r, n_in], [r, n_out]: B transposed */
    int64_t r, n_in, n_out;
    double scale;
    bool is_in_out; /* the matrix is [n_in, n_out], as Conv1D has it, not [n_out, n_in] */
} ps_weight_delta;

typedef struct ps_weight_copy {
    int weight;                   /* number in the source */
    const char *name;             /* in the new file */
    const ps_weight_source *from; /* NULL: the source of the other copies */
    const ps_weight_delta
        *delta; /* NULL: none. The sum is computed in double, and rounded to fp32, then to the file's type */
} ps_weight_copy;

/* The type of a tensor in the new file: float types are converted to *dtype (NULL: unchanged), other types are
 * unchanged. */
ps_safetensors_dtype ps_weight_copy_dtype(const ps_weight *w, const ps_dtype *dtype);

/* Non-finite values in the new files. */
typedef struct ps_weight_nonfinite {
    int64_t n_values;    /* that were not finite in the source */
    int64_t n_too_large; /* that were finite, and overflow in the new type */
    int n_tensors;
    char first[256]; /* source name of a tensor with such a value, truncated */
} ps_weight_nonfinite;

/* Write the n tensors atomically. In a file of torch.save, tensors that share their bytes in the source, and several
 * copies of one tensor, share a storage. Adds to *found (NULL: no check). */
PS_NODISCARD ps_status ps_weight_copy_file(const ps_weight_source *s, const ps_weight_copy *copies, int n,
                                           const ps_dtype *dtype, const char *path, ps_weight_nonfinite *found);

/* Copy all tensors of the source with their names, as PatrickStar's tools/merge_checkpoint.py does for the files of
 * ranks. */
PS_NODISCARD ps_status ps_weight_merge(const ps_weight_source *s, const char *path);

#endif
