/* model_folder.h - finds the folder of a Hugging Face model: a path, or the name of a model on the hub that
 * huggingface_hub (transformers, `hf download`) has put into its cache. Nothing is fetched from the network.
 *
 *     <cache>/models--<organisation>--<name>/refs/<revision>        a file with the commit
 *                                            snapshots/<commit>/    the folder
 *
 * <cache> is $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub, whichever is the first that is set. "~" at the beginning of a value is the home, and $NAME
 * and ${NAME} in it are environment variables, as huggingface_hub reads them. */
#ifndef PS_BASE_MODEL_FOLDER_H
#define PS_BASE_MODEL_FOLDER_H

#include "base/status.h"

enum { PS_MODEL_FOLDER_HINT_BYTES = 1000 };

/* The snapshot that "name", "organisation/name" or "organisation/name@revision" stands for, to be freed by ps_mem_free;
 * *out is NULL for what exists as a path, which comes first, and for what is not in the cache. The revision is a
 * branch, a tag or a whole commit, "main" where none is given. PS_ENOMEM_HOST. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_model_folder_find(const char *path, char **out);

/* Hint for a path that does not exist and looks like a name on the hub ("gpt2", "organisation/model") rather than a
 * file or an entry of an existing folder: " in <working folder>, and <cache> has no ...", else "". Returns out. */
PS_PRIVATE_API const char *ps_model_folder_hint(const char *path, char out[PS_MODEL_FOLDER_HINT_BYTES]);

/* Hint for a snapshot of the cache that lacks a file, as a program may have fetched a tokenizer alone: "; this snapshot
 * is not complete: ...", else "". Returns out. */
const char *ps_model_folder_rest_hint(const char *folder, char out[PS_MODEL_FOLDER_HINT_BYTES]);

/* PS_EIO unless `path` is a folder; the message begins with `what` ("model.from_pretrained") and ends
 * with the hint. */
PS_NODISCARD ps_status ps_model_folder_check(const char *what, const char *path);

#endif
