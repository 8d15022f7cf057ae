/* weight_copy.h - tensors of a source into a new file, piece by piece: memory for one piece, never for a model. The
 * file's name says its format (weight_writer.h). */
#ifndef PS_WEIGHTS_WEIGHT_COPY_H
#define PS_WEIGHTS_WEIGHT_COPY_H

#include "tensor/dtype.h"
#include "weights/weight_source.h"

typedef struct ps_weight_copy {
    int weight;       /* number in the source */
    const char *name; /* in the new file */
} ps_weight_copy;

/* The type that a tensor gets: floats are rounded to *dtype (NULL: nothing changes), all else stays as it is. */
ps_safetensors_dtype ps_weight_copy_dtype(const ps_weight *w, const ps_dtype *dtype);

/* Values in new files that are not finite. */
typedef struct ps_weight_nonfinite {
    int64_t n_values;    /* that were not in the source */
    int64_t n_too_large; /* that were finite, and are too large for the type that they were rounded to */
    int n_tensors;
    char first[256]; /* name of one in the source, cut */
} ps_weight_nonfinite;

/* Write the n tensors; all or nothing. In a file of torch.save those that share their bytes in the source, and several
 * copies of one tensor, share them again. Adds to *found (NULL: does not look). */
PS_NODISCARD ps_status ps_weight_copy_file(const ps_weight_source *s, const ps_weight_copy *copies, int n,
                                           const ps_dtype *dtype, const char *path, ps_weight_nonfinite *found);

/* All tensors of the source with their names, as PatrickStar's tools/merge_checkpoint.py does with the files of
 * ranks. */
PS_NODISCARD ps_status ps_weight_merge(const ps_weight_source *s, const char *path);

#endif
