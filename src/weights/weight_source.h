/* weight_source.h - reads named tensors from any supported file or folder:
 *
 *     FILE.safetensors                          safetensors
 *     FILE.bin, FILE.pt, FILE.pth               torch.save of a state_dict, PyTorch 1.6 or later
 *     FOLDER/model.safetensors                  a Hugging Face folder
 *     FOLDER/model.safetensors.index.json       the same in shards
 *     FOLDER/pytorch_model.bin                  an older Hugging Face folder
 *     FOLDER/pytorch_model.bin.index.json       the same in shards
 *     FOLDER/adapter_model.safetensors          adapters, as peft saves them
 *     FOLDER/model-{rank}-of-{n}.safetensors    a checkpoint of pstar, all ranks together
 *     FOLDER/model-{rank}.pt                    a checkpoint of PatrickStar, ranks from 0 on
 *     FOLDER/checkpoints/latest                 the folder of a run: its newest checkpoint
 *     FOLDER/latest                             a folder of checkpoints: the newest
 *
 * A folder is searched in this order; the first match is used. Opening reads and checks all headers, so that all bytes
 * of all tensors are known to exist: shards against the index, in both directions; ranks and pieces of tensors for
 * completeness; names for duplicates. When a single file of several ranks is opened, its pieces are tensors. Threads:
 * several threads can read an open source at once. */
#ifndef PS_WEIGHTS_WEIGHT_SOURCE_H
#define PS_WEIGHTS_WEIGHT_SOURCE_H

#include "weights/read_stream.h"
#include "weights/safetensors.h"

typedef struct ps_weight {
    ps_safetensor tensor; /* offset: in its file */
    int file;             /* of the first byte */
    /* A checkpoint of several ranks has tensors in pieces (tensor_piece.h), which are numbered over all tensors.
     * n_pieces 0: all bytes are contiguous in the file. */
    int first_piece, n_pieces;
} ps_weight;

typedef struct ps_weight_source ps_weight_source;

/* PS_EIO; PS_EFORMAT as the readers of the formats, or naming the tensor or file that does not match. */
PS_NODISCARD ps_status ps_weight_source_open(const char *path, ps_weight_source **out);

/* Open the union of several files. A tensor in two of them must have the same bytes in both (PS_EFORMAT). */
PS_NODISCARD ps_status ps_weight_source_open_files(const char *const *paths, int n, ps_weight_source **out);

void ps_weight_source_close(ps_weight_source *s); /* NULL is accepted */

/* Whether it is the name of a rank's file in a checkpoint of pstar: exactly "model-{rank}-of-{n}.safetensors", without
 * leading zeros (shards have them). */
bool ps_weight_source_is_rank_name(const char *name, int *rank, int *n);

/* Description of the files: "safetensors", "2 shards of safetensors", "torch.save". Valid until close, as all texts
 * here. */
const char *ps_weight_source_kind(const ps_weight_source *s);
int ps_weight_source_n_files(const ps_weight_source *s);
const char *ps_weight_source_path(const ps_weight_source *s, int file);
/* Value of a __metadata__ key in a file, NULL when there is none. */
const char *ps_weight_source_metadata(const ps_weight_source *s, int file, const char *key);

/* Tensors in the order of files and of their data, so that reading in this order is sequential. */
int ps_weight_source_count(const ps_weight_source *s);
const ps_weight *ps_weight_source_get(const ps_weight_source *s, int i);
int ps_weight_source_find(const ps_weight_source *s, const char *name); /* -1: there is none */
/* The first tensor of the same type with the same byte range of the same file as tensor i: i itself, or a tensor that
 * torch.save stored as tied to it. */
int ps_weight_source_same_as(const ps_weight_source *s, int i);

/* Read bytes [offset, offset + n_bytes) of the tensor's data, unconverted. */
PS_NODISCARD ps_status ps_weight_source_read(const ps_weight_source *s, const ps_weight *w, int64_t offset, void *dst,
                                             int64_t n_bytes);

/* Position of byte `at` of the tensor in an open file, and the length of the contiguous range from there, for reading
 * many tensors in one pass. */
ps_read_range ps_weight_source_range(const ps_weight_source *s, const ps_weight *w, int64_t at);

/* Whether two tensors have the same type, shape and bytes. Reads them piece by piece. */
PS_NODISCARD ps_status ps_weight_source_is_equal(const ps_weight_source *s, const ps_weight *a, const ps_weight *b,
                                                 bool *is_equal);

#endif
