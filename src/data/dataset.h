/* dataset.h - one long sequence of token ids, from a token file, from text, or from the texts of a JSONL file.
 *
 *     llm.c, nanoGPT   a token file, mapped and not copied (token_file.h)
 *     text             encoded when opened
 *     JSONL            the texts of all lines, encoded when opened, the tokenizer's separator between them
 *
 * With a cache folder the tokens of text and JSONL are written to "<content hash>-<vocabulary hash>.bin" there, and the
 * next opening of the same content with the same vocabulary reads this file. Without one they are kept in memory, 4
 * bytes a token. While tokens are made, a text is in memory whole, decompressed; of JSONL, a line. Normalizers need
 * copies of a text in addition.
 *
 * Threads: an open dataset can be read from several threads at once. */
#ifndef PS_DATA_DATASET_H
#define PS_DATA_DATASET_H

#include "base/status.h"
#include "config/config.h"
#include "data/tokenizer.h"

typedef struct ps_dataset ps_dataset;

typedef struct ps_dataset_options {
    ps_config_data_format format; /* AUTO: by name, see ps_dataset_format */
    ps_tokenizer *tokenizer;      /* may be NULL for token files; only used during open */
    bool added_tokens;            /* text that spells an added token becomes it; else it is ordinary text */
    int32_t separator;            /* JSONL: id between texts, -1: none */
    const char *text_key;         /* JSONL */
    const char *cache_folder;     /* NULL, or an existing folder */
    int64_t memory_bytes;         /* memory.total: text and what this process has must fit in it; 0: no limit */
    int32_t vocab_size;           /* of the model; all ids must be below it */
} ps_dataset_options;

/* Resolve AUTO: llm.c for *.bin, nanoGPT for *.u16, JSONL for *.jsonl, else text; the same with .gz or .zst after it, and
 * JSONL for *.json.gz and *.json.zst. */
ps_config_data_format ps_dataset_format(const char *path, ps_config_data_format format);

/* Whether this is a file that can be opened in this format. PS_EIO: there is none. PS_EFORMAT, with the command that makes
 * a file to read: a folder, Parquet and Arrow files; a token file that is compressed. */
PS_NODISCARD ps_status ps_dataset_check_file(const char *path, ps_config_data_format format);

/* Token files are read once to check that all ids are in the vocabulary. PS_EIO, PS_EFORMAT, PS_EINVAL naming the file,
 * and the offset where there is one; a file without tokens is PS_EFORMAT. */
PS_NODISCARD ps_status ps_dataset_open(const char *path, const ps_dataset_options *options, ps_dataset **out);
void ps_dataset_close(ps_dataset *d); /* NULL is accepted */

int64_t ps_dataset_token_count(const ps_dataset *d);
const char *ps_dataset_path(const ps_dataset *d); /* as given to open, for messages */

/* Read tokens [first, first + n) into out; the range must be in the dataset. */
PS_NODISCARD ps_status ps_dataset_read(const ps_dataset *d, int64_t first, int64_t n, int32_t *out);

#endif
