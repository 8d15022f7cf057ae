/* shard_index.h - model.safetensors.index.json and pytorch_model.bin.index.json: the file of each tensor.
 *
 *     {"metadata": {"total_size": bytes}, "weight_map": {tensor: "model-00001-of-00002.safetensors", ...}}
 *
 * As written by Hugging Face's transformers. File names are entries of the index's folder, never paths. */
#ifndef PS_WEIGHTS_SHARD_INDEX_H
#define PS_WEIGHTS_SHARD_INDEX_H

#include "base/status.h"

typedef struct ps_shard_index ps_shard_index;

/* n bytes of text; `path` is for messages. PS_EFORMAT with file, offset or tensor. */
PS_NODISCARD ps_status ps_shard_index_parse(const char *path, const char *text, int64_t n, ps_shard_index **out);
PS_NODISCARD ps_status ps_shard_index_open(const char *path, ps_shard_index **out);
void ps_shard_index_close(ps_shard_index *x); /* NULL is accepted */

int ps_shard_index_n_files(const ps_shard_index *x);
const char *ps_shard_index_file(const ps_shard_index *x, int i); /* sorted by name */
int ps_shard_index_n_tensors(const ps_shard_index *x);
const char *ps_shard_index_tensor(const ps_shard_index *x, int i, int *file); /* name; *file gets its file's number */
int ps_shard_index_find(const ps_shard_index *x, const char *tensor);         /* its file's number, -1: not found */

#endif
