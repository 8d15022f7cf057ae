/* weight_source_impl.h - the members of a weight source. */
#ifndef PS_WEIGHTS_WEIGHT_SOURCE_IMPL_H
#define PS_WEIGHTS_WEIGHT_SOURCE_IMPL_H

#include "base/name_index.h"
#include "weights/tensor_piece.h"
#include "weights/torch_pickle.h"
#include "weights/weight_source.h"

/* One of the two formats. */
typedef struct source_file {
    char *path;
    ps_safetensors *safetensors;
    ps_file *torch_file;
    ps_torch_pickle *pickle; /* owns the names */
} source_file;

/* A piece of a tensor in a file. */
typedef struct source_piece {
    ps_tensor_piece piece; /* owns the name of the whole tensor */
    ps_safetensor stored;
    int file;
} source_piece;

struct ps_weight_source {
    source_file *files; /* [n_files] */
    int n_files;
    ps_weight *weights; /* [n], by file and offset */
    int n;
    source_piece *pieces; /* [n_pieces], by name and first element; weights name them by index */
    int n_pieces;
    ps_name_index index;
    char kind[64];
    bool may_repeat; /* a tensor may be in several files, with the same bytes */
};

/* Read the headers of a file. Takes ownership of the path, also after a failure. */
PS_NODISCARD ps_status ps_weight_source_add_file(ps_weight_source *s, char *path);
/* Call after all files are added: combine pieces to tensors, sort and index them. */
PS_NODISCARD ps_status ps_weight_source_finish(ps_weight_source *s);

#endif
