/* client_impl.h - the state of a client; for the files of external/ only.
 *
 * The files have levels (tool/layers.txt), each with a header. No level calls a higher one: a lower level records what
 * happened, and its caller calls the higher level.
 *
 *     client_enter.c       the lowest level: enter and leave; release of exported tensors
 *     client_budget.h      budgets that would suffice, and room; no chunk moves there
 *     moment_trace.h       announcements of ranks (announce.c, gather_order.c), moments, and chunks pinned in them
 *     chunk_update.h       updates of chunks, now or later; synchronization of fp32 values, parameters and gradients
 *     sharding.h           groups of chunks are gathered and reduced, at their use or before (prefetch.c)
 *     client_calls.h       the public calls
 *
 * Each public function enters, does its work, and leaves: only one thread at a time has entered. */
#ifndef PS_EXTERNAL_CLIENT_IMPL_H
#define PS_EXTERNAL_CLIENT_IMPL_H

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include "api/external/staging_file.h"
#include "base/name_index.h"
#include "chunk/store_stats.h"
#include "chunk/trace.h"
#include "kernel/kernel.h"
#include "patrickstar_client.h"
#include "train/settings/params.h"
#include "train/state/group_collectives.h"
#include "train/state/param_groups.h"
#include "train/state/snapshot.h"
#include "train/state/state.h"
#include "train/state/step_decision.h"
#include "train/state/work_time.h"

#define PS_CLIENT_WHAT_COUNT 3
#define PS_CLIENT_SCRATCH_ELEMENTS ((int64_t)1 << 16)

typedef enum ps_client_gradient_place {
    PS_GRADIENT_NONE,
    PS_GRADIENT_IN_PLACE, /* overwrites its parameter */
    PS_GRADIENT_SEPARATE, /* in list GRAD, or in separate memory of an unmanaged tensor */
    PS_GRADIENT_KEPT,     /* in list KEPT_GRAD: an early update that may be taken back has overwritten it; or in
                           * list GRAD16, where a gradient may not overwrite its parameter */
} ps_client_gradient_place;

/* Gradient of a piece. */
typedef struct ps_client_gradient {
    ps_client_gradient_place place; /* with several ranks: of this rank's, or for the owner of the sum */
    bool is_narrow;                 /* separate, but rounded to the parameter's type, as it was in place before */
    bool is_unreduced;              /* not reduced over ranks yet */
    bool is_used_up;                /* by an early update of the current step */
} ps_client_gradient;

typedef struct ps_client_tensor_state {
    char *name;
    int64_t *shape, elements; /* [n_dims], at a fixed address */
    int32_t n_dims, group;
    ps_dtype given_dtype; /* of its initial values */
    bool is_frozen, is_unmanaged, is_dropped;
    bool has_joined;             /* the program has chosen its group */
    bool is_whole;               /* a matrix that the optimizer updates as a whole */
    ps_staging_file_piece given; /* initial values; without address once they are in chunks */
    int32_t in_layout;           /* its number there; -1: none */
    int32_t n_pieces;            /* 0 for an unmanaged one */
    int64_t steps;
    bool has_gradient;                     /* since the last step */
    bool is_given;                         /* the program of this rank has added one since then */
    bool keeps_param;                      /* was read after its gradient once: its gradients are separate */
    ps_list gradient_list;                 /* that has the gradient, while it is pinned */
    bool is_gradient_changed;              /* by the program: its sums must be computed again */
    bool is_param_newer, is_master_newer;  /* the other one must be updated */
    int32_t pins[PS_CLIENT_WHAT_COUNT];    /* those of PS_CLIENT_PARAM are the client's pin_counts */
    bool is_writing[PS_CLIENT_WHAT_COUNT]; /* one of them may write */
    float *unmanaged;                      /* value, states, gradient, contiguous: ps_client_unmanaged */
} ps_client_tensor_state;

typedef enum ps_client_stage {
    PS_CLIENT_IS_BUILDING, /* before ps_client_begin */
    PS_CLIENT_IS_READY,
    PS_CLIENT_IS_BROKEN, /* after a failure that left tensors inconsistent */
    PS_CLIENT_ANY_STAGE,
} ps_client_stage;

/* Chunks that are pinned now. */
typedef struct ps_client_pinned {
    ps_chunk_id *ids; /* [n] */
    int32_t n;
} ps_client_pinned;

/* Recording of a step, and prediction of the next one for the store. */
typedef struct ps_client_steps {
    ps_trace *trace;     /* of the current step; NULL between steps */
    ps_trace *predicted; /* the schedule's trace */
    ps_schedule *schedule;
    bool is_installed;                       /* the store has the schedule */
    bool matches;                            /* the step has been as predicted so far */
    bool is_recording;                       /* a moment of the step has begun, */
    int64_t wanted_bytes[PS_RAM_TIER_COUNT]; /* whose accesses need so much */
    int64_t began_ns, waited_ns;
    char **labels; /* all labels so far; traces point to them */
    size_t n_labels;
    int statm;           /* ps_machine_open_statm; -1: not open */
    int64_t base_bytes;  /* private memory of the process other than chunks and framework */
    bool counts_process; /* base_bytes is the process's part of memory.total: growth counts as the framework's */
    /* The framework's memory: in the current moment, in the last one of the step, and its peak; and when the step or
     * the evaluation began, before there were activations */
    int64_t framework_bytes, step_bytes, peak_bytes, outside_bytes;
    const char *evaluation; /* first label of the passes of the current evaluation; NULL: none */
} ps_client_steps;

/* An action that a rank announces, or records; up to STEP it is part of a step. The last two are recorded only. */
typedef enum ps_client_action_kind {
    PS_CLIENT_GATHER = 1,
    PS_CLIENT_REDUCE,
    PS_CLIENT_STEP,
    PS_CLIENT_READ_VALUE,
    PS_CLIENT_EVALUATE,
    PS_CLIENT_SAVE,
    PS_CLIENT_LOAD,
    PS_CLIENT_GIVE_GRADIENT,    /* to a group that is not gathered */
    PS_CLIENT_RELEASE_GATHERED, /* all gathered groups are dropped */
} ps_client_action_kind;

/* Numbers of a step that must be the same on all ranks; from learning_rate on, those of the first group. */
typedef struct ps_client_numbers {
    double clip_norm, loss_scale, learning_rate, weight_decay, beta1, beta2, eps;
} ps_client_numbers;

/* The next action of a rank. Places of gradients follow it. */
typedef struct ps_client_message {
    int64_t kind, number;          /* ps_client_action_kind; number of a group, a step, a tensor */
    int64_t tensor;                /* GATHER, REDUCE: the tensor that causes it; -1: none */
    int64_t refuses;               /* GATHER, of a prefetch: this rank cannot take the group now */
    uint64_t trained_hash;         /* STEP: hash of the tensors with a gradient on this rank */
    uint64_t gather_order_hash;    /* STEP: hash of the order in which the step has gathered and reduced */
    uint64_t hyperparameters_hash; /* STEP: hash of the numbers for its updates */
    ps_client_numbers numbers;     /* STEP: those of them that messages name */
} ps_client_message;

/* An action of the current step, or of a recorded one. */
typedef struct ps_client_action {
    ps_client_action_kind kind;
    int32_t group;          /* -1: all */
    int32_t moment;         /* index in the step's trace */
    bool may_be_prefetched; /* GATHER, GIVE_GRADIENT: all ranks have room for the group before */
} ps_client_action;

/* The order in which a step gathers and reduces groups, and other changes of their chunks. */
typedef struct ps_client_gather_order {
    ps_client_action *all; /* [n] */
    int32_t n;
    bool matches; /* for the current step: it equals the recorded one so far */
} ps_client_gather_order;

typedef enum ps_client_prefetch_state {
    PS_CLIENT_PREFETCH_NONE,
    PS_CLIENT_PREFETCH_ISSUED,  /* announced; its chunks are pinned, except on a rank that refuses */
    PS_CLIENT_PREFETCH_READY,   /* they are unpinned */
    PS_CLIENT_PREFETCH_REFUSED, /* by one rank or more: it is gathered when it is used */
} ps_client_prefetch_state;

/* The announcements of all ranks for a prefetch. */
typedef struct ps_client_votes {
    const struct ps_client *client;
    char *messages; /* [n_ranks] */
} ps_client_votes;

/* A group that is gathered before it is used. */
typedef struct ps_client_prefetch {
    ps_client_prefetch_state state;
    bool refuses; /* this rank */
    int32_t group;
    ps_group_request gather;
    ps_event announced;
    /* two, used alternately: a thread of the communicator reads those of the one before until the latest have
     * arrived */
    ps_client_votes votes[2];
    int turn;
} ps_client_prefetch;

enum { PS_CLIENT_GROUPS_KEPT = 2 };

/* With several ranks: groups of chunks (train/state/chunk_groups.h). */
typedef struct ps_client_sharding {
    int32_t n_groups;
    int32_t most_pieces;                   /* largest number in a group */
    bool *is_gathered;                     /* [n_groups] every rank has the parameters of its chunks */
    int32_t recent[PS_CLIENT_GROUPS_KEPT]; /* the groups that were gathered last, which are kept; -1: none */
    int32_t *n_unreduced, *n_trained;      /* [n_groups] pieces with is_unreduced; trained pieces */
    char *messages;                        /* [n_ranks] the latest announcement of all ranks */
    ps_client_gather_order now;            /* of the current step */
    ps_client_gather_order recorded;       /* expected of the next steps; n 0: none */
    uint64_t recorded_hash;
    int64_t n_gathered, n_prefetched; /* since the last step; those that were used */
    ps_client_prefetch prefetch;
} ps_client_sharding;

/* The updates of the last step, with the numbers at the call of ps_client_step. Chunks with a deferred update are
 * updated at their next use. Early updates belong to the current step, with the numbers at the call of
 * ps_client_begin_last_backward, before which all deferred ones are carried out. With settings.may_speculate they are
 * made as if the step were neither clipped nor skipped, and may be taken back: early_validation.c. */
typedef struct ps_client_updates {
    bool *is_waiting; /* [n_chunks] its update is deferred */
    int32_t n_waiting;
    bool are_early;       /* the last backward pass of the current step has begun, with early updates */
    int32_t first_moment; /* of that pass, in the step's trace */
    int32_t n_early;      /* chunks updated within it */
    /* [n_chunks] the moment of the step's trace after which the update at the step's end could have been made early;
     * -1: none */
    int32_t *could_follow;

    /* with settings.may_speculate: */
    float unclipped_scale; /* the factor of early updates */
    bool *may_keep;        /* [n_chunks] the disk has second places for its optimizer data */
    bool *is_unvalidated;  /* [n_chunks] its early update may be taken back, or has just been */
    bool *writes_ahead;    /* [n_chunks] an early update is expected again, which will keep its optimizer data */
} ps_client_updates;

/* Records of operators and steps for a profile. */
typedef struct ps_client_profiling {
    bool is_asked;     /* by the program; the recorder may be full meanwhile */
    const char *label; /* of the current moment; NULL: none, or it began before recording */
    ps_phase phase;
    int32_t number; /* in its step, counting recorded ones */
    int64_t framework_bytes, waited_ns;
    ps_work_time began, step_began;
    bool is_in_step;
} ps_client_profiling;

/* An exported tensor (DLPack) that was released. */
typedef struct ps_client_returned {
    struct ps_client_returned *next;
    int32_t tensor;
    ps_client_what what;
} ps_client_returned;

struct ps_client {
    pthread_mutex_t lock;
    pid_t process;
    ps_client_stage stage;
    char failure[512];

    ps_settings settings;
    ps_comm *comm;         /* NULL: a single rank */
    ps_stall_watch *watch; /* NULL: a stall is not looked for */

    ps_client_tensor_state *tensors;
    int32_t n_tensors;
    ps_name_index names;     /* of tensors that are not dropped */
    int32_t *pin_counts;     /* [n_tensors] from ps_client_begin on */
    int64_t n_gradient_pins; /* over all tensors */
    ps_staging_file *staging_file;

    ps_layout *layout;
    ps_lists lists;
    int32_t *in_order; /* [layout->n_tensors] tensor of each of the layout's */
    ps_pieces pieces;
    ps_client_gradient *gradients; /* [pieces.n] */
    bool *has_master;              /* [n_chunks] this rank keeps fp32 values of the chunk */
    ps_tier *update_tier;          /* [n_chunks] as of the last ps_client_update_tier */
    uint32_t *chunk_states;        /* [n_chunks] as in ps_model_state */
    int64_t update_bytes;          /* memory of the largest update, without scratch */
    ps_update_scratch update_scratch;
    ps_client_sharding sharding;
    ps_group_collectives between_ranks;
    ps_order *order; /* checks the order of all that is issued; NULL: none */
    ps_tiers tiers;
    ps_model_state state;           /* of the members above */
    ps_state_tensor *saved_tensors; /* [n_tensors] as files have them, since the first checkpoint */
    ps_snapshot snapshot;
    struct ps_saver *saver; /* NULL: no checkpoint is being saved */
    bool is_incomplete;     /* values of a damaged checkpoint, or of a step, are stored in part */
    ps_queue *stream;       /* the framework's stream; NULL: none */
    ps_profile *profile;

    ps_param_groups groups;
    double clip_norm; /* of the next step: the configured one, or ps_client_set_gradient_clipping's */
    ps_loss_scaler scaler;
    ps_client_updates updates;
    int64_t n_updates;
    ps_grad_sums *sums; /* [number of pieces], then of unmanaged tensors [n_tensors]: written by kernels */
    float *scratch;     /* likewise, two of PS_CLIENT_SCRATCH_ELEMENTS each */

    ps_client_pinned pinned;
    ps_client_steps steps;
    ps_client_profiling recording;
    int64_t report_after_ns; /* with several ranks: one that waits longer to read or evaluate logs it */
    ps_nonfinite nonfinite;
    int32_t n_keeping; /* as in ps_store_desc: chunks whose optimizer data the disk can keep over an early update */
    int32_t n_margin;  /* this rank's first chunks are updated on a discrete device; see step_prediction.c */
    int64_t n_restored, n_separate, n_steps, n_recorded_steps;
    /* references: the program, until ps_client_destroy, and each exported DLPack tensor */
    _Atomic int64_t n_users;
    _Atomic(ps_client_returned *) returned; /* to be released by the holder of the lock */
};

/* ---- client_enter.c ---- */

/* False in a forked process: there a client is unusable, and must not be touched. */
static inline bool ps_client_is_here(const ps_client *c)
{
    return c->process == getpid();
}

/* Begins a public function of that name: PS_ESTATE, and not entered, in another stage than wanted. */
PS_NODISCARD ps_status ps_client_enter(ps_client *c, const char *call, ps_client_stage wanted);
/* The same for a call with this tensor. */
PS_NODISCARD ps_status ps_client_enter_with(ps_client *c, const char *call, ps_client_stage wanted, int32_t tensor);
/* For functions that only read: its lock, until ps_client_leave; false, and not entered, for NULL and in a forked
 * process. */
bool ps_client_lock(const ps_client *client, ps_client **out);
/* Ends a public function: returns st. */
ps_status ps_client_leave(ps_client *c, ps_status st);
/* Returns st, and if it is not PS_OK the client is unusable. */
ps_status ps_client_break(ps_client *c, ps_status st);
/* The same for a failure after which other ranks would wait for this one in a collective that it does not make. */
ps_status ps_client_break_ranks(ps_client *c, ps_status st);

/* Called after releasing the lock: tensors released meanwhile may have been missed. */
void ps_client_look_for_returned(ps_client *c);
void ps_client_take_returned(ps_client *c); /* the lock is held */
void ps_client_unpin_chunk(ps_client *c, ps_list list, int32_t chunk);
void ps_client_unpin_place(ps_client *c, int32_t tensor, ps_client_what what);

/* Was a value written to parameter or master that the other one does not have? Memory that the program has pinned for
 * writing may have been written at any time. */
bool ps_client_is_written(ps_client *c, int32_t tensor);

/* ---- pieces ---- */

static inline const ps_piece *ps_client_piece_of(const ps_client *c, const ps_client_tensor_state *t, int32_t k)
{
    return &c->pieces.all[c->pieces.by_tensor[c->pieces.first_of_tensor[t->in_layout] + k]];
}
static inline ps_client_gradient *ps_client_gradient_of(const ps_client *c, const ps_piece *p)
{
    return &c->gradients[p - c->pieces.all];
}
static inline ps_client_gradient_place ps_client_place_of_gradient(const ps_client *c, const ps_client_tensor_state *t,
                                                                   int32_t k)
{
    return ps_client_gradient_of(c, ps_client_piece_of(c, t, k))->place;
}
static inline bool ps_client_owns(const ps_client *c, int32_t chunk)
{
    return ps_ranks_owns(&c->settings.ranks, chunk);
}
/* Is the chunk in the list? In one of a state if the optimizer keeps that of a tensor there. */
static inline bool ps_client_has_list(const ps_client *c, ps_list list, int32_t chunk)
{
    if (list < PS_LIST_STATES || list >= ps_lists_grad(&c->lists)) return ps_lists_exists(&c->lists, list);
    return c->chunk_states[chunk] >> (list - PS_LIST_STATES) & 1;
}
/* Bytes of the chunk, before rounding to pages. */
static inline int64_t ps_client_id_bytes(const ps_client *c, ps_chunk_id id)
{
    return ps_lists_chunk_bytes(&c->lists, c->layout, ps_lists_list_of(&c->lists, c->layout, id));
}
/* Is a gradient of one of its tensors in that list? */
static inline bool ps_client_chunk_has_gradient(const ps_client *c, int32_t chunk, ps_client_gradient_place place)
{
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        if (c->gradients[i].place == place) return true;
    return false;
}
static inline bool ps_client_chunk_has_any_gradient(const ps_client *c, int32_t chunk)
{
    return ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_IN_PLACE) ||
           ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_SEPARATE) ||
           ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_KEPT);
}
static inline int32_t ps_client_chunk_group_of(const ps_client *c, int32_t chunk)
{
    return ps_chunk_group_of(c->layout, &c->settings.ranks, chunk);
}
static inline ps_chunk_group ps_client_chunk_group(const ps_client *c, int32_t group)
{
    return ps_chunk_group_at(c->layout, &c->settings.ranks, group);
}
static inline int32_t ps_client_first_chunk(const ps_client *c, int32_t group)
{
    return ps_client_chunk_group(c, group).chunk;
}
static inline int32_t ps_client_end_chunk(const ps_client *c, int32_t group)
{
    return ps_client_chunk_group(c, group).chunk + ps_client_chunk_group(c, group).n_chunks;
}
static inline ps_place ps_client_place_of(const ps_client *c, int32_t tensor)
{
    return c->layout->places[c->tensors[tensor].in_layout];
}
/* Where a step's first gradient of a tensor goes, in the parameter's type, unless another one is to come. */
static inline ps_client_gradient_place ps_client_narrow_place(const ps_client *c)
{
    return ps_settings_separates_gradients(&c->settings) ? PS_GRADIENT_KEPT : PS_GRADIENT_IN_PLACE;
}
static inline ps_list ps_client_gradient_list(const ps_client *c, const ps_piece *p)
{
    const ps_client_gradient_place place = ps_client_gradient_of(c, p)->place;
    if (place == PS_GRADIENT_KEPT) return ps_lists_kept_grad(&c->lists);
    return place == PS_GRADIENT_IN_PLACE ? PS_LIST_PARAM16 : ps_lists_grad(&c->lists);
}
static inline float *ps_client_unmanaged(const ps_client_tensor_state *t, ps_list list)
{
    return t->unmanaged + (list - PS_LIST_MASTER) * ps_round_up(t->elements, PS_TENSOR_ALIGN_ELEMENTS);
}
/* Does a gradient overwrite the parameter? */
static inline bool ps_client_is_overwritten(const ps_client *c, const ps_client_tensor_state *t)
{
    for (int32_t k = 0; k < t->n_pieces; k++)
        if (ps_client_place_of_gradient(c, t, k) == PS_GRADIENT_IN_PLACE) return true;
    return false;
}
/* A failure has left the gradient partly moved: move the rest before it is used as a whole. */
static inline bool ps_client_is_torn(const ps_client *c, const ps_client_tensor_state *t)
{
    for (int32_t k = 1; k < t->n_pieces; k++)
        if (ps_client_place_of_gradient(c, t, k) != ps_client_place_of_gradient(c, t, 0)) return true;
    return false;
}
static inline bool ps_client_is_pinned(const ps_client *c, ps_list list, int32_t chunk)
{
    return ps_store_get_chunk(c->tiers.store, ps_store_chunk(c->layout, list, chunk)).pins > 0;
}
static inline int32_t *ps_client_pins_of(ps_client *c, int32_t tensor, ps_client_what what)
{
    return what == PS_CLIENT_PARAM ? &c->pin_counts[tensor] : &c->tensors[tensor].pins[what];
}
/* The list with the place. */
static inline ps_list ps_client_list_of(const ps_client *c, int32_t tensor, ps_client_what what)
{
    if (what == PS_CLIENT_PARAM) return PS_LIST_PARAM16;
    if (what == PS_CLIENT_MASTER) return PS_LIST_MASTER;
    const ps_client_tensor_state *t = &c->tensors[tensor];
    return t->pins[what] > 0 ? t->gradient_list : ps_client_gradient_list(c, ps_client_piece_of(c, t, 0));
}
/* The option that asks for early updates, for messages. */
static inline const char *ps_client_early_option(const ps_client *c)
{
    return c->settings.may_speculate ? "memory.update_in_backward = speculate" : "memory.update_in_backward = always";
}
/* Of the current step; NULL: none. */
static inline const ps_moment *ps_client_present_moment(const ps_client *c)
{
    const ps_client_steps *s = &c->steps;
    return s->is_recording && s->trace->n_moments > 0 ? &s->trace->moments[s->trace->n_moments - 1] : NULL;
}

#endif
