/* JSON Lines with labels, compressed too: read record by record; places within the file, strings with their ends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/jsonl.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                                \
    if (!(condition)) abort()

/* data NULL: of compressed bytes, whose text is not at hand. */
static void check_record(const ps_jsonl_record *r, const uint8_t *data, size_t n)
{
    MUST(r->offset >= 0 && r->line >= 1);
    int64_t n_newlines = 0;
    for (int64_t i = 0; data != NULL && i < r->offset; i++) n_newlines += data[i] == '\n';
    if (data != NULL) {
        MUST((size_t)r->offset < n && r->line == n_newlines + 1);
        MUST(r->offset == 0 || data[r->offset - 1] == '\n' || (r->offset == 3 && data[0] == 0xEF));
    }
    MUST(r->text != NULL && r->text[r->text_bytes] == '\0');
    if (r->text_pair != NULL) MUST(r->text_pair[r->text_pair_bytes] == '\0');
    if (r->label_name != NULL) MUST(r->label_name[r->label_name_bytes] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const fuzz_file file = fuzz_file_make(data, n);
    ps_jsonl *r = NULL;
    ps_status st = ps_jsonl_open(file.path, &(ps_jsonl_keys){"text", "text_pair", "label"}, &r);
    const bool is_compressed = n >= 2 && ((data[0] == 0x1f && data[1] == 0x8b) || data[0] == 0x28 || data[0] >> 4 == 5);
    const bool is_pointer = st == PS_EFORMAT && strstr(ps_last_error(), "git-lfs") != NULL;
    MUST(st == PS_OK || is_pointer);
    ps_jsonl_record record;
    bool has_record = true;
    int64_t n_records = 0;
    while (st == PS_OK && has_record) {
        st = ps_jsonl_next(r, &record, &has_record);
        if (st == PS_OK && has_record) check_record(&record, is_compressed ? NULL : data, n);
        n_records += st == PS_OK && has_record;
    }
    MUST(st == PS_OK || st == PS_EFORMAT);
    MUST(n_records > 0 || st == PS_EFORMAT);
    if (st != PS_OK && !is_pointer)
        MUST(strstr(ps_last_error(), "offset ") != NULL || strstr(ps_last_error(), "without --long") != NULL);
    ps_jsonl_close(r);
    close(file.fd);
    MUST(ps_mem_live_bytes() == 0);
    return 0;
}
