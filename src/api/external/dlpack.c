/* dlpack.c - tensors exported by DLPack, which are released on any thread, perhaps after the client has ended. */
#include <stdatomic.h>
#include <string.h>

#include "api/external/client_calls.h"
#include "base/mem.h"

/* Its binary interface, version 0 (github.com/dmlc/dlpack, dlpack.h), with our names. */
enum { DL_CPU = 1, DL_CUDA = 2, DL_FLOAT = 2, DL_BFLOAT = 4 };

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t n_dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct exported {
    ps_client_returned place; /* first member: its release frees this */
    dl_managed managed;
    ps_client *client;
    int64_t shape[PS_CLIENT_DIMS_MAX], strides[PS_CLIENT_DIMS_MAX];
} exported;

/* On any thread, also that of a communicator which runs functions of the program: the holder of the lock may wait for
 * that thread. So it never waits for the lock; the holder checks for released tensors when it unlocks. */
static void come_back(dl_managed *m)
{
    exported *l = m->context;
    ps_client *c = l->client;
    if (!ps_client_is_here(c)) return; /* a copy in a forked process: the tensor is the parent's */
    ps_client_returned *place = &l->place;
    place->next = atomic_load(&c->returned);
    while (!atomic_compare_exchange_weak(&c->returned, &place->next, place)) {
    }
    ps_client_look_for_returned(c);
    ps_client_leave_unreferenced(c);
}

static void describe(const ps_client_tensor_state *t, const ps_client_place *p, exported *l)
{
    int64_t stride = 1;
    if (t->n_dims > 0) memcpy(l->shape, t->shape, (size_t)t->n_dims * sizeof *l->shape);
    for (int32_t i = t->n_dims - 1; i >= 0; i--) {
        l->strides[i] = stride;
        stride *= t->shape[i];
    }
    l->managed = (dl_managed){.tensor = {.data = p->address,
                                         .device_type = p->gpu >= 0 ? DL_CUDA : DL_CPU,
                                         .device_id = p->gpu >= 0 ? p->gpu : 0,
                                         .n_dims = t->n_dims,
                                         .code = p->dtype == PS_DTYPE_BF16 ? DL_BFLOAT : DL_FLOAT,
                                         .bits = (uint8_t)(8 * ps_dtype_bytes(p->dtype)),
                                         .lanes = 1,
                                         .shape = l->shape,
                                         .strides = l->strides},
                              .context = l,
                              .deleter = come_back};
}

static ps_status export_dlpack(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, void **managed)
{
    ps_client_place place;
    exported *l;
    PS_TRY(ps_mem_alloc(1, sizeof *l, &l));
    const ps_status st = ps_client_pin_place(c, tensor, what, mode, &place);
    if (st != PS_OK) {
        ps_mem_free(l);
        return st;
    }
    l->client = c;
    l->place = (ps_client_returned){.tensor = tensor, .what = what};
    describe(&c->tensors[tensor], &place, l);
    atomic_fetch_add(&c->n_users, 1);
    *managed = &l->managed;
    return PS_OK;
}

ps_status ps_client_export_dlpack(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode,
                                  void **managed)
{
    PS_TRY(PS_NEED_FOR(managed, "client managed", c, managed));
    PS_TRY(ps_client_enter_with(c, "ps_client_export_dlpack", PS_CLIENT_IS_READY, tensor));
    return ps_client_leave(c, ps_client_break_ranks(c, export_dlpack(c, tensor, what, mode, managed)));
}
