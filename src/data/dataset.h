/* dataset.h - one long sequence of token ids, from a token file or from text.
 *
 * A path ending in ".bin" or ".u16" is a token file and stays on disk (token_file.h); anything else is text, encoded
 * when opened. With a cache folder the tokens of a text are kept there, in "<text hash>-<vocabulary hash>.bin", and the
 * next opening of the same text with the same vocabulary reads this file; without one they are held in memory.
 *
 * Threads: an open dataset can be read from several threads at once. */
#ifndef PS_DATA_DATASET_H
#define PS_DATA_DATASET_H

#include "base/status.h"
#include "data/tokenizer.h"

typedef struct ps_dataset ps_dataset;

/* tokenizer: may be NULL for token files, is only used during the call. cache_folder: NULL, or a folder that exists.
 * vocab_size: what the model has; all ids must be below it (token files are read through once to see it).
 * PS_EIO, PS_EFORMAT, PS_EINVAL naming the file; an empty text is PS_EFORMAT. */
PS_NODISCARD ps_status ps_dataset_open(const char *path, ps_tokenizer *tokenizer, const char *cache_folder,
                                       int32_t vocab_size, ps_dataset **out);
void ps_dataset_close(ps_dataset *d); /* NULL is accepted */

int64_t ps_dataset_token_count(const ps_dataset *d);
const char *ps_dataset_path(const ps_dataset *d); /* as given to open, for messages */

/* Tokens [first, first + n) into out; the range must lie in the dataset. */
PS_NODISCARD ps_status ps_dataset_read(const ps_dataset *d, int64_t first, int64_t n, int32_t *out);

#endif
