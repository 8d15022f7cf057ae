#include "weights/weight_writer.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "weights/torch_writer.h"

/* One of the two is set. */
struct ps_weight_writer {
    ps_safetensors_writer *safetensors;
    ps_torch_writer *torch;
};

bool ps_weight_writer_is_torch(const char *path)
{
    static const char *const ends[] = {".pt", ".pth", ".bin"};
    const size_t n = strlen(path);
    for (size_t i = 0; i < PS_ARRAY_LEN(ends); i++)
        if (n > strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0) return true;
    return false;
}

ps_status ps_weight_writer_open(const char *path, const ps_safetensor *tensors, int n, const int *same_as,
                                ps_weight_writer **out)
{
    static const ps_safetensors_metadata metadata = {"format", "pt"};
    ps_weight_writer *w;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *w, &w));
    const ps_status st = ps_weight_writer_is_torch(path)
                             ? ps_torch_writer_open(path, tensors, n, same_as, &w->torch)
                             : ps_safetensors_writer_open(path, tensors, n, &metadata, 1, &w->safetensors);
    if (st != PS_OK) {
        ps_mem_free(w);
        return st;
    }
    *out = w;
    return PS_OK;
}

bool ps_weight_writer_wants(const ps_weight_writer *w, int i)
{
    return w->torch == NULL || ps_torch_writer_wants(w->torch, i);
}

ps_status ps_weight_writer_append(ps_weight_writer *w, int i, const void *data, int64_t n_bytes)
{
    return w->torch != NULL ? ps_torch_writer_append(w->torch, i, data, n_bytes)
                            : ps_safetensors_writer_append(w->safetensors, i, data, n_bytes);
}

ps_status ps_weight_writer_commit(ps_weight_writer *w)
{
    const ps_status st =
        w->torch != NULL ? ps_torch_writer_commit(w->torch) : ps_safetensors_writer_commit(w->safetensors);
    ps_mem_free(w);
    return st;
}

void ps_weight_writer_cancel(ps_weight_writer *w)
{
    if (w == NULL) return;
    ps_torch_writer_cancel(w->torch);
    ps_safetensors_writer_cancel(w->safetensors);
    ps_mem_free(w);
}
