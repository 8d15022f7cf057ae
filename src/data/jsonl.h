/* jsonl.h - reads JSON Lines: one JSON object per line, UTF-8.
 *
 *     {"text": "A fine film.", "label": 1}
 *     {"text": "Is it open?", "text_pair": "It closes at six.", "label": "entailment"}
 *
 * Lines end in \n or \r\n; the last one may end with the file. Empty lines and a byte order mark at the beginning are
 * skipped. Other keys are ignored with any value: integers of any size, NaN. Memory holds one line, not the file. A file
 * that gzip or zstd has compressed is decompressed (byte_source.h); offsets are then those of the text.
 *
 * Every error is "file: line n, offset m: ...". The offset is the byte after the word that could not be parsed, the
 * byte of invalid UTF-8, or otherwise the first byte of the line. */
#ifndef PS_DATA_JSONL_H
#define PS_DATA_JSONL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct ps_jsonl ps_jsonl;

/* Names of the keys that ps_jsonl_next reads. text is required; NULL for the others: not read. */
typedef struct ps_jsonl_keys {
    const char *text;
    const char *text_pair; /* may be absent or null in a line */
    const char *label;     /* must be in each line */
} ps_jsonl_keys;

/* Strings are UTF-8, may contain zero bytes, and are valid until the next call. */
typedef struct ps_jsonl_record {
    int64_t line, offset; /* lines count from 1; offset of the line's first byte */
    const char *text;
    int64_t text_bytes;
    const char *text_pair; /* NULL: none */
    int64_t text_pair_bytes;
    const char *label_name; /* a label that is a string; NULL: it is an integer */
    int64_t label_name_bytes;
    int64_t label;
} ps_jsonl_record;

/* The keys must live until close, or be NULL for ps_jsonl_next_object only. PS_EIO; PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_jsonl_open(const char *path, const ps_jsonl_keys *keys, ps_jsonl **out);

/* Read the next record; *has_record = false at the end. PS_EFORMAT: not JSON, not an object, a key that is duplicate,
 * missing, or of another type; invalid UTF-8; a line above 256 MiB; a file without records. PS_EIO. */
PS_NODISCARD ps_status ps_jsonl_next(ps_jsonl *r, ps_jsonl_record *record, bool *has_record);

/* The same for any object, whose keys the caller reads; only line and offset of the record are set. *root is valid
 * until the next call. */
PS_NODISCARD ps_status ps_jsonl_next_object(ps_jsonl *r, ps_jsonl_record *record, json_t **root, bool *has_record);

/* PS_EFORMAT: the value of a key (NULL when it is missing) is not of the expected type ("a string"). */
PS_NODISCARD ps_status ps_jsonl_fail_key(const ps_jsonl *r, const ps_jsonl_record *at, const char *key,
                                         const json_t *value, const char *expected);

/* Type of a JSON value for messages: "a string", "missing". */
const char *ps_jsonl_type_name(const json_t *value);

void ps_jsonl_close(ps_jsonl *r); /* NULL is accepted */

#endif
