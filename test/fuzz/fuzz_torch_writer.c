/* A state_dict of the fuzzer's making, written as torch.save does and read again: the same tensors, or refused for a
 * reason that the header names. Each tensor takes of the bytes: type, dimensions, their sizes, how long its name is, the name, and
 * whose storage it shares. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "temp_folder.h"
#include "weights/torch_writer.h"
#include "weights/weight_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TENSORS_MAX = 40, NAME_MAX_BYTES = 16 };

typedef struct fuzz_dict {
    ps_safetensor tensors[TENSORS_MAX];
    char names[TENSORS_MAX][NAME_MAX_BYTES + 1];
    int64_t n_bytes[TENSORS_MAX];
    int same_as[TENSORS_MAX], n;
} fuzz_dict;

static int take(const uint8_t **p, const uint8_t *end)
{
    return *p < end ? *(*p)++ : 0;
}

static void make_dict(fuzz_dict *d, const uint8_t *p, const uint8_t *end)
{
    for (d->n = 0; p < end && d->n < TENSORS_MAX; d->n++) {
        ps_safetensor *t = &d->tensors[d->n];
        char *name = d->names[d->n];
        t->dtype = (ps_safetensors_dtype)(take(&p, end) % PS_SAFETENSORS_DTYPE_COUNT);
        t->n_dims = take(&p, end) % 5;
        d->n_bytes[d->n] = ps_safetensors_dtype_bytes(t->dtype);
        for (int i = 0; i < t->n_dims; i++) d->n_bytes[d->n] *= t->shape[i] = take(&p, end) % 9;
        const int n_name = take(&p, end) % NAME_MAX_BYTES;
        for (int i = 0; i < n_name; i++) name[i] = (char)take(&p, end);
        t->name = name;
        const int other = d->n > 0 ? take(&p, end) % (2 * d->n) : 0;
        d->same_as[d->n] = d->n;
        if (other < d->n && d->same_as[other] == other && d->tensors[other].dtype == t->dtype &&
            d->n_bytes[other] == d->n_bytes[d->n])
            d->same_as[d->n] = other;
    }
}

static uint8_t byte_of(int tensor, int64_t i)
{
    return (uint8_t)(37 * tensor + 11 * i);
}

static void append(ps_torch_writer *w, const fuzz_dict *d, int i)
{
    uint8_t *bytes = malloc((size_t)d->n_bytes[i] + 1);
    for (int64_t k = 0; k < d->n_bytes[i]; k++) bytes[k] = byte_of(i, k);
    if (ps_torch_writer_append(w, i, bytes, d->n_bytes[i]) != PS_OK) abort();
    free(bytes);
}

static void expect_same(const ps_weight_source *s, const fuzz_dict *d)
{
    if (ps_weight_source_count(s) != d->n) abort();
    for (int i = 0; i < d->n; i++) {
        const ps_safetensor *t = &d->tensors[i];
        const int found = ps_weight_source_find(s, t->name);
        if (found < 0) abort();
        const ps_weight *w = ps_weight_source_get(s, found);
        if (w->tensor.dtype != t->dtype || w->tensor.n_dims != t->n_dims || w->tensor.n_bytes != d->n_bytes[i] ||
            memcmp(w->tensor.shape, t->shape, (size_t)t->n_dims * sizeof *t->shape) != 0)
            abort();
        uint8_t *bytes = malloc((size_t)d->n_bytes[i] + 1);
        if (ps_weight_source_read(s, w, 0, bytes, d->n_bytes[i]) != PS_OK) abort();
        for (int64_t k = 0; k < d->n_bytes[i]; k++)
            if (bytes[k] != byte_of(d->same_as[i], k)) abort();
        free(bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static temp_folder folder;
    fuzz_dict *d = calloc(1, sizeof *d);
    ps_torch_writer *w;
    ps_weight_source *s;
    if (folder.path[0] == '\0') folder = temp_folder_make();
    const temp_path path = temp_folder_file(&folder, "fuzz.pt");
    make_dict(d, data, data + n);
    const ps_status st = ps_torch_writer_open(path.text, d->tensors, d->n, d->same_as, &w);
    if (st != PS_OK && st != PS_EINVAL) abort();
    if (st == PS_OK) {
        for (int i = 0; i < d->n; i++)
            if (ps_torch_writer_wants(w, i)) append(w, d, i);
        if (ps_torch_writer_commit(w) != PS_OK || ps_weight_source_open(path.text, &s) != PS_OK) abort();
        expect_same(s, d);
        ps_weight_source_close(s);
    }
    free(d);
    temp_folder_remove(&folder);
    folder.path[0] = '\0';
    if (ps_mem_live_bytes() != 0) abort();
    return 0;
}
