#include "weights/torch_file.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"

static ps_status check_byteorder(const char *path, const ps_torch_zip *zip)
{
    char *order = NULL;
    const ps_torch_record *r = ps_torch_zip_find(zip, "byteorder");
    if (r == NULL) return PS_OK; /* older than PyTorch 2.1 */
    PS_TRY(ps_torch_zip_read(zip, r, 64, &order));
    const bool is_little = strcmp(order, "little") == 0;
    ps_mem_free(order);
    return is_little ? PS_OK : PS_FAIL(PS_EFORMAT, "%s: written on a big-endian machine", path);
}

ps_status ps_torch_file_read_pickle(const char *path, const ps_torch_zip *zip, char **data, int64_t *n)
{
    const ps_torch_record *r = ps_torch_zip_find(zip, "data.pkl");
    *data = NULL;
    if (r == NULL || ps_torch_zip_find(zip, "constants.pkl") != NULL)
        return PS_FAIL(PS_EFORMAT, "%s: %s; save the state_dict by torch.save or as safetensors", path,
                       r == NULL ? "no record data.pkl in it: not written by torch.save" : "a TorchScript program");
    PS_TRY(check_byteorder(path, zip));
    *n = r->n_bytes;
    return ps_torch_zip_read(zip, r, PS_TORCH_PICKLE_BYTES_MAX, data);
}

ps_status ps_torch_file_place(const char *path, const ps_torch_zip *zip, const ps_torch_tensor *t, ps_safetensor *out)
{
    char name[256];
    snprintf(name, sizeof name, "data/%s", t->storage);
    const ps_torch_record *r = ps_torch_zip_find(zip, name);
    if (r == NULL || r->n_bytes != t->storage_bytes)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: record %.128s has %lld bytes, expected %lld", path,
                       t->tensor.name, name, r != NULL ? (long long)r->n_bytes : 0, (long long)t->storage_bytes);
    *out = t->tensor;
    out->offset += r->offset;
    return PS_OK;
}
