/* client_impl.h - what a client is made of; for the files of foreign/ only.
 *
 *     client.c     its beginning and end, tensors before there are chunks (nursery.h)
 *     begin.c      chunks are laid out, and first values move there
 *     access.c     places of tensors: pinned, lent
 *     moment.c     operators as moments: watched in one step, foretold in the next (resident.h)
 *     gradient.c   gradients come: over their parameters, or beside them
 *     update.c     the optimizer's step, chunk by chunk
 *     group.c      its numbers
 *     values.c     values and states from outside
 *     looking_in.c what it says of itself
 *
 * Each public function enters, does its work, and leaves: one thread at a time is inside. */
#ifndef PS_FOREIGN_CLIENT_IMPL_H
#define PS_FOREIGN_CLIENT_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "chunk/trace.h"
#include "foreign/nursery.h"
#include "foreign/resident.h"
#include "kernel/kernel.h"
#include "optim/loss_scaler.h"
#include "patrickstar_client.h"
#include "run/lists.h"
#include "run/tiers.h"
#include "settings/settings.h"

#define PS_CLIENT_WHAT_COUNT 3

typedef enum ps_client_gradient_place {
    PS_GRADIENT_NONE,
    PS_GRADIENT_OVER,   /* where its parameter was */
    PS_GRADIENT_BESIDE, /* in list GRAD, or in memory of its own where the tensor is apart */
} ps_client_gradient_place;

typedef struct ps_client_tensor_state {
    char *name;
    int64_t shape[PS_CLIENT_DIMS_MAX], elements;
    int32_t n_dims, group;
    ps_dtype given_dtype; /* of its first values */
    bool is_frozen, is_apart, is_dropped;
    ps_nursery_piece given; /* first values; without address once they are in chunks */
    int32_t in_layout;      /* its number there; -1: none */
    int64_t steps;
    ps_client_gradient_place gradient;
    bool keeps_param;                      /* was asked for after its gradient once: gradients come beside it */
    bool is_gradient_changed;              /* by the program: its sums are to be taken again */
    bool is_param_newer, is_master_newer;  /* the other one is to follow */
    int32_t pins[PS_CLIENT_WHAT_COUNT];    /* those of PS_CLIENT_PARAM are the client's pin_counts */
    bool is_writing[PS_CLIENT_WHAT_COUNT]; /* one of them may write */
    float *apart;                          /* value, states, gradient: `elements` of each, one after the other */
} ps_client_tensor_state;

/* What of a tensor lies in one chunk. */
typedef struct ps_client_piece {
    int32_t tensor, chunk;
    int64_t chunk_offset, tensor_offset, n; /* elements */
} ps_client_piece;

typedef struct ps_client_group_state {
    ps_options options; /* of which the optimizer's numbers are read */
    ps_optimizer_setup optimizer;
    double lr; /* NaN: by the schedule */
    ps_lr_schedule schedule;
    double configured_decay, configured_betas[2], configured_eps;
} ps_client_group_state;

typedef enum ps_client_stage {
    PS_CLIENT_BUILDING, /* before ps_client_begin */
    PS_CLIENT_READY,
    PS_CLIENT_BROKEN, /* a failure that leaves tensors half done */
} ps_client_stage;

/* Watching a step, and telling the store of the next one. */
typedef struct ps_client_steps {
    ps_trace *trace;    /* of the step under way; NULL between steps */
    ps_trace *foretold; /* that of the schedule */
    ps_schedule *schedule;
    bool follows;      /* the step has gone as foretold so far */
    bool is_recording; /* a moment of the step is under way */
    int64_t began_ns, waited_ns;
    char **labels; /* all there have been; traces point to them */
    size_t n_labels;
    ps_resident resident;
    int64_t base_bytes;             /* private memory of the process that is neither chunks' nor the framework's own */
    int64_t told_bytes, peak_bytes; /* of the framework's own: in the present moment, and at most */
} ps_client_steps;

struct ps_client {
    pthread_mutex_t lock;
    pid_t process;
    ps_client_stage stage;
    char failure[512];

    ps_config *config;
    ps_settings settings;
    ps_comm *comm; /* NULL: alone */

    ps_client_tensor_state *tensors;
    int32_t n_tensors;
    int32_t *pin_counts; /* [n_tensors] from ps_client_begin on */
    ps_nursery *nursery;

    ps_layout *layout;
    ps_lists lists;
    int32_t *in_order;       /* [layout->n_tensors] tensor of each of the layout's */
    ps_client_piece *pieces; /* by chunk: those of chunk i are [first_piece[i], first_piece[i + 1]) */
    int32_t *first_piece;
    bool *has_master; /* [n_chunks] */
    ps_tiers tiers;
    ps_queue *stream; /* the framework's own; NULL: none */
    ps_profile *profile;

    ps_client_group_state *groups;
    int32_t n_groups;
    ps_loss_scaler scaler;
    int64_t n_updates;
    ps_grad_sums *sums; /* [n_tensors] where the device's kernels write */
    float *scratch;     /* likewise, of PS_CLIENT_SCRATCH_ELEMENTS */

    ps_client_steps steps;
    int64_t n_restored, n_beside, n_steps, n_watched_steps;
    int64_t n_lent; /* tensors of DLPack that are out */
    bool is_closing;
};

#define PS_CLIENT_SCRATCH_ELEMENTS ((int64_t)1 << 16)

/* ---- client.c ---- */

/* As the first of a public function of that name: PS_ESTATE, and not entered, in another stage than wanted. */
PS_NODISCARD ps_status ps_client_enter(ps_client *c, const char *call, ps_client_stage wanted);
void ps_client_leave(ps_client *c);
/* The same for a call that has this tensor. */
PS_NODISCARD ps_status ps_client_enter_with(ps_client *c, const char *call, ps_client_stage wanted, int32_t tensor);
/* st, and when it is no PS_OK the client is of no more use. */
ps_status ps_client_break(ps_client *c, ps_status st);
/* The last that is lent came back, or nothing ever was: all memory goes. */
void ps_client_free(ps_client *c);

/* ---- begin.c ---- */

ps_backend *ps_client_backend(const ps_client *c, ps_tier tier);
/* Where optimizer data of a chunk is worked on now. */
ps_tier ps_client_update_tier(const ps_client *c, int32_t chunk);
/* The piece of a tensor that begins with element `at`. */
ps_client_piece ps_client_piece_at(const ps_client *c, int32_t tensor, int64_t at);
static inline ps_place ps_client_place_of(const ps_client *c, int32_t tensor)
{
    return c->layout->places[c->tensors[tensor].in_layout];
}

/* ---- access.c ---- */

/* Pin a chunk, as an access of the moment under way. */
PS_NODISCARD ps_status ps_client_hold(ps_client *c, ps_list list, int32_t chunk, ps_tier tier, ps_access_mode mode);
void ps_client_let_go(ps_client *c, ps_list list, int32_t chunk);
/* An element of a chunk that is held. */
void *ps_client_element(const ps_client *c, ps_list list, int32_t chunk, int64_t offset);
PS_NODISCARD ps_status ps_client_cast(ps_client *c, ps_tier tier, void *dst, ps_dtype dst_dtype, const void *src,
                                      ps_dtype src_dtype, int64_t n);
/* What the program has written to one of parameter and master, the other one has too. */
PS_NODISCARD ps_status ps_client_settle(ps_client *c, int32_t tensor);
/* Chunks of the tensor have masters from now on. */
PS_NODISCARD ps_status ps_client_need_master(ps_client *c, int32_t tensor);

/* ---- moment.c ---- */

/* What the process has in memory now, besides chunks, does not count as the framework's. */
PS_NODISCARD ps_status ps_client_begin_measuring(ps_client *c);
PS_NODISCARD ps_status ps_client_begin_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes);
/* The moment under way accesses the chunk. */
PS_NODISCARD ps_status ps_client_note_access(ps_client *c, ps_chunk_id id, ps_tier tier, ps_access_mode mode);
/* The step has ended: *was_watched when it went another way than foretold. */
PS_NODISCARD ps_status ps_client_end_step(ps_client *c, bool *was_watched);
void ps_client_steps_deinit(ps_client_steps *s);

/* ---- gradient.c ---- */

/* A gradient that lies over its parameter makes way. PS_ESTATE: the program has its place in use. */
PS_NODISCARD ps_status ps_client_restore(ps_client *c, int32_t tensor);
/* The list that has it. */
static inline ps_list ps_client_gradient_list(const ps_client *c, int32_t tensor)
{
    return c->tensors[tensor].gradient == PS_GRADIENT_OVER ? PS_LIST_PARAM16 : ps_lists_grad(&c->lists);
}
/* PS_ESTATE naming the call when the program has some gradient's place in use. */
PS_NODISCARD ps_status ps_client_expect_gradients_free(const ps_client *c, const char *call);
/* What all gradients amount to, and this rank has; waits for it. */
PS_NODISCARD ps_status ps_client_sum_gradients(ps_client *c, ps_grad_sums *all);
static inline float *ps_client_apart(const ps_client_tensor_state *t, ps_list list)
{
    return t->apart + (list - PS_LIST_MASTER) * t->elements;
}

/* ---- group.c ---- */

/* From the configuration; then tensors by name. */
PS_NODISCARD ps_status ps_client_read_groups(ps_client *c);
PS_NODISCARD ps_status ps_client_deal_groups(ps_client *c);
double ps_client_learning_rate(const ps_client *c, int32_t group);

#endif
