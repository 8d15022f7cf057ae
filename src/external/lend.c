/* lend.c - places lent as tensors of DLPack, which come back on any thread, perhaps after the client has ended. */
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "external/client_impl.h"

/* Its binary interface, version 0 (github.com/dmlc/dlpack, dlpack.h): names are ours. */
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

struct ps_client_lent {
    dl_managed managed; /* first: that is who comes back */
    ps_client *client;
    struct ps_client_lent *next; /* of those that came back */
    int32_t tensor;
    ps_client_what what;
    int64_t shape[PS_CLIENT_DIMS_MAX], strides[PS_CLIENT_DIMS_MAX];
};

typedef struct ps_client_lent lent;

void ps_client_take_returned(ps_client *c)
{
    lent *l = atomic_exchange(&c->returned, NULL);
    while (l != NULL) {
        lent *next = l->next;
        ps_client_unpin_place(c, l->tensor, l->what);
        ps_mem_free(l);
        l = next;
    }
}

void ps_client_look_for_returned(ps_client *c)
{
    while (atomic_load(&c->returned) != NULL && pthread_mutex_trylock(&c->lock) == 0) {
        ps_client_take_returned(c);
        pthread_mutex_unlock(&c->lock);
    }
}

/* On any thread, that of a communicator which runs the program's functions too: who has the lock may be waiting for
 * just that one. So it never waits for the lock; who has it looks when it gives it up. */
static void come_back(dl_managed *m)
{
    lent *l = (lent *)m;
    ps_client *c = l->client;
    if (!ps_client_is_here(c)) return; /* a copy in a process that was forked off: the tensor is the parent's */
    l->next = atomic_load(&c->returned);
    while (!atomic_compare_exchange_weak(&c->returned, &l->next, l)) {
    }
    ps_client_look_for_returned(c);
    ps_client_leave_for_good(c);
}

static void describe(const ps_client_tensor_state *t, const ps_client_place *p, lent *l)
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

static ps_status lend(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, void **managed)
{
    ps_client_place place;
    lent *l;
    PS_TRY(ps_mem_alloc(1, sizeof *l, &l));
    const ps_status st = ps_client_pin_place(c, tensor, what, mode, &place);
    if (st != PS_OK) {
        ps_mem_free(l);
        return st;
    }
    l->client = c;
    l->tensor = tensor;
    l->what = what;
    describe(&c->tensors[tensor], &place, l);
    atomic_fetch_add(&c->n_users, 1);
    *managed = &l->managed;
    return PS_OK;
}

ps_status ps_client_lend(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, void **managed)
{
    PS_TRY(PS_NEED_FOR(managed, "client managed", c, managed));
    PS_TRY(ps_client_enter_with(c, "ps_client_lend", PS_CLIENT_IS_READY, tensor));
    const ps_status st = ps_client_tell_ranks(c, lend(c, tensor, what, mode, managed));
    ps_client_leave(c);
    return st;
}
