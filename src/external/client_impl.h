/* client_impl.h - what a client is made of; for the files of external/ only.
 *
 *     client.c     its beginning and end, tensors before there are chunks (nursery.h)
 *     begin.c      chunks are laid out (client_layout.c, client_budget.c; client_advice.c: which budget would be enough),
 *                  and first values, the same on all ranks
 *                  (same_start.c), move there
 *     access.c     places of tensors: pinned; lent (lend.c); parameter and fp32 value stay the same (settle.c)
 *     moment.c     operators as moments: watched in one step, foretold in the next (resident.h)
 *     gradient.c   gradients come: over their parameters, or beside them
 *     sharing.c    chunks go from rank to rank; announce.c: as all ranks expect it; ahead.c: before they are needed
 *     update.c     the optimizer's step, chunk by chunk, and early updates; update_room.c: whether there is room for it
 *     group.c      groups of parameters: rates, decay, betas; unused.c: options that have no effect
 *     values.c     values and states from outside
 *     client_checkpoint.c  checkpoints
 *     looking_in.c what it says of itself
 *     client_profile.c what it does, as a profile
 *
 * Each public function enters, does its work, and leaves: one thread at a time is inside. */
#ifndef PS_EXTERNAL_CLIENT_IMPL_H
#define PS_EXTERNAL_CLIENT_IMPL_H

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/name_index.h"
#include "chunk/trace.h"
#include "external/nursery.h"
#include "external/resident.h"
#include "kernel/kernel.h"
#include "patrickstar_client.h"
#include "settings/settings.h"
#include "state/group_collectives.h"
#include "state/groups.h"
#include "state/snapshot.h"
#include "state/state.h"
#include "state/step_decision.h"
#include "state/work_time.h"

#define PS_CLIENT_WHAT_COUNT 3
#define PS_CLIENT_SCRATCH_ELEMENTS ((int64_t)1 << 16)

typedef enum ps_client_gradient_place {
    PS_GRADIENT_NONE,
    PS_GRADIENT_OVER,   /* where its parameter was */
    PS_GRADIENT_BESIDE, /* in list GRAD, or in memory of its own where the tensor is apart */
} ps_client_gradient_place;

/* Of a piece. */
typedef struct ps_client_gradient {
    ps_client_gradient_place place; /* with several ranks: of this one's own, or for the owner of the sum of all */
    bool is_narrow;                 /* beside, but rounded to the parameter's type, over which it lay */
    bool is_fresh;                  /* other ranks do not know of it yet */
    bool is_used_up;                /* by an update within the backward pass of the step under way */
} ps_client_gradient;

typedef struct ps_client_tensor_state {
    char *name;
    int64_t *shape, elements; /* [n_dims], which stays where it is */
    int32_t n_dims, group;
    ps_dtype given_dtype; /* of its first values */
    bool is_frozen, is_apart, is_dropped;
    bool has_joined;        /* the program has chosen its group */
    ps_nursery_piece given; /* first values; without address once they are in chunks */
    int32_t in_layout;      /* its number there; -1: none */
    int32_t n_pieces;       /* an apart one has none */
    int64_t steps;
    bool has_gradient;                     /* since the last step */
    bool is_given;                         /* the program of this rank has given one since then */
    bool keeps_param;                      /* was asked for after its gradient once: gradients come beside it */
    ps_list gradient_list;                 /* that has the gradient's place, while it is pinned */
    bool is_gradient_changed;              /* by the program: its sums are to be taken again */
    bool is_param_newer, is_master_newer;  /* the other one is to follow */
    int32_t pins[PS_CLIENT_WHAT_COUNT];    /* those of PS_CLIENT_PARAM are the client's pin_counts */
    bool is_writing[PS_CLIENT_WHAT_COUNT]; /* one of them may write */
    float *apart;                          /* value, states, gradient, one after the other: ps_client_apart */
} ps_client_tensor_state;

typedef enum ps_client_stage {
    PS_CLIENT_IS_BUILDING, /* before ps_client_begin */
    PS_CLIENT_IS_READY,
    PS_CLIENT_IS_BROKEN, /* a failure that leaves tensors half done */
    PS_CLIENT_ANY_STAGE,
} ps_client_stage;

/* Chunks that are pinned now. */
typedef struct ps_client_held {
    int32_t *count;   /* [chunk ids] pins */
    ps_chunk_id *ids; /* [n] those with pins */
    int32_t n;
} ps_client_held;

/* Watching a step, and telling the store of the next one. */
typedef struct ps_client_steps {
    ps_trace *trace;    /* of the step under way; NULL between steps */
    ps_trace *foretold; /* that of the schedule */
    ps_schedule *schedule;
    bool is_installed;                       /* the store has the schedule */
    bool follows;                            /* the step has gone as foretold so far */
    bool is_recording;                       /* a moment of the step is under way, */
    int64_t wanted_bytes[PS_RAM_TIER_COUNT]; /* whose accesses take so much */
    int64_t began_ns, waited_ns;
    char **labels; /* all there have been; traces point to them */
    size_t n_labels;
    ps_resident resident;
    int64_t base_bytes;  /* private memory of the process that is neither chunks' nor the framework's own */
    bool counts_process; /* base_bytes is what memory.total leaves to the process: all that grows counts */
    /* Of the framework's own: in the present moment, in the last one of the step, and at most; and when the step or the
     * evaluation began, so before there were activations */
    int64_t told_bytes, step_bytes, peak_bytes, outside_bytes;
    const char *evaluation; /* label that the passes of the evaluation under way begin with; NULL: there is none */
} ps_client_steps;

/* What a rank announces, or records of a step; up to STEP it is part of one. The last two are recorded only. */
typedef enum ps_client_exchange_kind {
    PS_CLIENT_GATHER = 1,
    PS_CLIENT_REDUCE,
    PS_CLIENT_STEP,
    PS_CLIENT_READ_VALUE,
    PS_CLIENT_EVALUATE,
    PS_CLIENT_GIVE_GRADIENT, /* to a group that is not here */
    PS_CLIENT_DROP,          /* all that was gathered goes */
} ps_client_exchange_kind;

/* What a rank is about to do. Places of gradients follow it. */
typedef struct ps_client_message {
    int64_t kind, number; /* ps_client_exchange_kind; of a group, a step, a tensor */
    int64_t tensor;       /* GATHER, REDUCE: whose parameter or gradient it is for; -1: none */
    int64_t lacks_room;   /* STEP: a group was to be gathered ahead, and there was no room */
    uint64_t trained;     /* STEP: hash of which tensors have got a gradient on this rank */
    uint64_t record;      /* STEP: hash of what the step has exchanged */
} ps_client_message;

/* Of a step. */
typedef struct ps_client_exchange {
    ps_client_exchange_kind kind;
    int32_t group;   /* -1: all */
    int32_t moment;  /* index in the step's trace */
    bool goes_ahead; /* GATHER: all ranks have room for it before */
    bool lacks_room; /* this rank turned out to have none */
} ps_client_exchange;

typedef struct ps_client_record {
    ps_client_exchange *all; /* [n] */
    int32_t n;
    bool follows; /* of the step under way: it has gone as the recorded one so far */
} ps_client_record;

typedef enum ps_client_ahead_state {
    PS_CLIENT_AHEAD_NONE,
    PS_CLIENT_AHEAD_POSTPONED, /* not now on this rank; before its next exchange, as the others have begun */
    PS_CLIENT_AHEAD_UNDER_WAY, /* its chunks are held */
    PS_CLIENT_AHEAD_HERE,      /* they are let go */
} ps_client_ahead_state;

/* A group that is gathered ahead of its use. */
typedef struct ps_client_ahead {
    ps_client_ahead_state state;
    int32_t group, tensor; /* its first tensor */
    ps_group_collective gather;
    ps_event announced;
    char *messages; /* [n_ranks] */
} ps_client_ahead;

enum { PS_CLIENT_GROUPS_HERE = 2 };

/* With several ranks: groups of chunks (state/group_collectives.h). */
typedef struct ps_client_sharing {
    int32_t n_groups;
    int32_t most_pieces;                   /* of a group */
    bool *is_here;                         /* [n_groups] every rank has the parameters of its chunks */
    int32_t recent[PS_CLIENT_GROUPS_HERE]; /* the groups that were gathered last, and stay; -1: none */
    int32_t *n_fresh, *n_trained;          /* [n_groups] pieces with is_fresh; those that wait for a gradient */
    char *messages;                        /* [n_ranks] the latest announcement of all ranks */
    ps_client_record now, recorded; /* of the step under way; that the next ones are expected to go as, n 0: none */
    uint64_t recorded_hash;
    bool lacks_room;                      /* in the step under way */
    int64_t n_gathered, n_gathered_ahead; /* since the last step; those that were used */
    ps_client_ahead ahead;
} ps_client_sharing;

/* The updates of the last step, by numbers as they were at the call of ps_client_step. Chunks that wait are updated when
 * they are next asked for. Early ones are of the step under way, by numbers as they were at the call of
 * ps_client_begin_last_backward, before which none waits any more. */
typedef struct ps_client_updates {
    bool *is_waiting; /* [n_chunks] its gradients are not used up yet */
    int32_t n_waiting;
    bool are_early;       /* the last backward pass of the step under way has begun, with early updates */
    int32_t first_moment; /* of that pass, in the step's trace */
    int32_t n_early;      /* chunks updated within it */
    /* [n_chunks] after which moment of the step's trace the update, which came at the step's end, could have come; -1:
     * after none */
    int32_t *could_follow;
} ps_client_updates;

/* What a profile gets to know of operators and steps. */
typedef struct ps_client_recording {
    bool is_asked;     /* by the program; the recorder may be full meanwhile */
    const char *label; /* of the moment under way; NULL: none, or it began before */
    ps_phase phase;
    int32_t number; /* in its step, as far as that is recorded */
    int64_t framework_bytes, waited_ns;
    ps_work_time began, step_began;
    bool is_in_step;
} ps_client_recording;

struct ps_client {
    pthread_mutex_t lock;
    pid_t process;
    ps_client_stage stage;
    char failure[512];

    ps_settings settings;
    ps_comm *comm; /* NULL: alone */

    ps_client_tensor_state *tensors;
    int32_t n_tensors;
    ps_name_index names;     /* of those that are not dropped */
    int32_t *pin_counts;     /* [n_tensors] from ps_client_begin on */
    int64_t n_gradient_pins; /* of all tensors together */
    ps_nursery *nursery;

    ps_layout *layout;
    ps_lists lists;
    int32_t *in_order; /* [layout->n_tensors] tensor of each of the layout's */
    ps_pieces pieces;
    ps_client_gradient *gradients; /* [pieces.n] */
    bool *has_master;              /* [n_chunks] this rank keeps fp32 values of the chunk */
    ps_tier *update_tier;          /* [n_chunks] as of the last look: ps_client_update_tier */
    ps_client_sharing sharing;
    ps_group_collectives between_ranks;
    ps_order *order; /* looks at the order of all that is issued; NULL: nobody does */
    ps_tiers tiers;
    ps_model_state state;           /* of the above */
    ps_state_tensor *saved_tensors; /* [n_tensors] as files have them, since the first checkpoint */
    ps_snapshot snapshot;
    struct ps_saver *saver; /* NULL: no checkpoint is being saved */
    bool is_half_made;      /* values of a checkpoint that is damaged, or of a step, are here in part */
    ps_queue *stream;       /* the framework's own; NULL: none */
    ps_profile *profile;

    ps_groups groups;
    ps_loss_scaler scaler;
    ps_client_updates updates;
    int64_t n_updates;
    ps_grad_sums *sums; /* [number of pieces], then of tensors [n_tensors] that are apart: where kernels write */
    float *scratch;     /* likewise, two of PS_CLIENT_SCRATCH_ELEMENTS each */

    ps_client_held held;
    ps_client_steps steps;
    ps_client_recording recording;
    int64_t patience_ns; /* a rank that waits longer to read or evaluate, with several, says so */
    ps_nonfinite nonfinite;
    int32_t n_margin; /* this rank's first chunks are updated on the device, where that is apart; see moment.c */
    int64_t n_restored, n_beside, n_steps, n_watched_steps;
    /* the program, until ps_client_destroy, and each tensor of DLPack that is out */
    _Atomic int64_t n_users;
    /* tensors that came back, to be let go by who has the lock */
    _Atomic(struct ps_client_lent *) returned;
};

/* ---- client.c ---- */

/* Not in a process that was forked off? There a client is of no use, and may not be touched. */
static inline bool ps_client_is_here(const ps_client *c)
{
    return c->process == getpid();
}

/* As the first of a public function of that name: PS_ESTATE, and not entered, in another stage than wanted. */
PS_NODISCARD ps_status ps_client_enter(ps_client *c, const char *call, ps_client_stage wanted);
void ps_client_leave(ps_client *c);
/* The same for a call that has this tensor. */
PS_NODISCARD ps_status ps_client_enter_with(ps_client *c, const char *call, ps_client_stage wanted, int32_t tensor);
/* For what only looks: its lock, until ps_client_leave; false, and not entered, for NULL and in a process that was forked
 * off. */
bool ps_client_look(const ps_client *client, ps_client **out);
/* st, and when it is no PS_OK the client is of no more use. */
ps_status ps_client_break(ps_client *c, ps_status st);
/* One user less; with the last one all memory goes. */
void ps_client_leave_for_good(ps_client *c);

/* ---- lend.c ---- */

/* Let go what has come back; by who has the lock. */
void ps_client_take_returned(ps_client *c);
/* By who has just given the lock up: what came back meanwhile may be nobody's to take. */
void ps_client_look_for_returned(ps_client *c);

/* ---- same_start.c ---- */

/* First values of all ranks become the first rank's. PS_EINVAL, on all, where they have not added the same tensors. */
PS_NODISCARD ps_status ps_client_start_alike(ps_client *c);

/* ---- client_layout.c, in this order ---- */

/* As train.freeze says. PS_EINVAL for a pattern without a tensor. */
PS_NODISCARD ps_status ps_client_freeze(ps_client *c);
PS_NODISCARD ps_status ps_client_create_layout(ps_client *c);
PS_NODISCARD ps_status ps_client_cut_pieces(ps_client *c);

/* ---- client_budget.c ---- */

int64_t ps_client_update_bytes(const ps_client *c); /* what the update of a chunk has in memory at once */
/* Of a tensor that is kept apart: value, states and gradient. */
int64_t ps_client_apart_bytes(const ps_client *c, const ps_client_tensor_state *t);
/* Where the host cannot touch the device, else 0: what kernels sum up, the first *sums_bytes, and scratch. */
int64_t ps_client_results_bytes(const ps_client *c, int64_t *sums_bytes);
/* What the client's tiers are; and what of them is no chunk's, in pages. */
ps_tiers_options ps_client_tiers(const ps_client *c);
void ps_client_count_blocks(const ps_client *c, int64_t blocks[PS_RAM_TIER_COUNT]);
/* Whole pages of memory.device that are left to chunks and the framework. */
int64_t ps_client_device_room(const ps_client *c);
/* settings.staging_bytes of memory.save_buffer; 0 where nothing is saved while training goes on. */
void ps_client_choose_save_buffer(ps_client *c);
/* Where a parameter follows its fp32 value, or a gradient that lay over it makes way, both are there at once; with
 * several ranks also the gradients of a group, which are summed up in fp32. */
int64_t ps_client_fp32_beside_bytes(const ps_client *c);
/* Of memory.device, without what the framework itself takes. */
int64_t ps_client_least_device_bytes(const ps_client *c);
/* So much of the device a moment of the trace has in chunks, each rounded up to a multiple of `grain` bytes. */
int64_t ps_client_moment_bytes(const ps_client *c, const ps_trace *t, int32_t moment, int64_t grain);
/* memory.total for so many bytes of the device tier, and the host's as it is. */
int64_t ps_client_total_for(const ps_client *c, int64_t device_bytes);
/* The option that the program chose budgets by, for messages: "memory.total = 418 MB (418000000 bytes)", or
 * memory.device, for so many bytes of the device tier. Returns text. */
enum { PS_CLIENT_ADVICE_TEXT_MAX = 120 };
const char *ps_client_advice(const ps_client *c, int64_t device_bytes, char text[PS_CLIENT_ADVICE_TEXT_MAX]);
/* The same for the step under way, which has framework_bytes now and is about to have more_bytes of chunks in use: all
 * moments of the recorded step, or "about ..." those to come, where none was recorded or this one is larger; not below
 * least_bytes. */
const char *ps_client_step_advice(const ps_client *c, int64_t framework_bytes, int64_t more_bytes, int64_t least_bytes,
                                  char text[PS_CLIENT_ADVICE_TEXT_MAX]);
/* May chunks of all lists be on the device at once, beside so much of the framework's? */
bool ps_client_has_room_for_all(const ps_client *c, int64_t framework_bytes);
/* Chunks may take this much of the device until the framework's own need is known; but one update fits in any case. */
int64_t ps_client_first_limit(const ps_client *c);
/* PS_EBUDGET: what can be told before a step has been watched; of the machine too, which may have less than budgets. */
PS_NODISCARD ps_status ps_client_check_budgets(ps_client *c);
/* The same of so many elements, before there are tensors, by the least that they take. */
PS_NODISCARD ps_status ps_client_check_expected(ps_client *c, int64_t trained, int64_t frozen);
/* Where optimizer data of a chunk is worked on now. */
ps_tier ps_client_update_tier(const ps_client *c, int32_t chunk);
/* So many of this rank's chunks the device keeps between steps, because host and disk cannot; and can keep beside what
 * a step wants there. */
int32_t ps_client_least_margin(const ps_client *c);
int32_t ps_client_count_margin(const ps_client *c, const ps_trace *step);

/* ---- update.c ---- */

/* Updates that wait are carried out: of a chunk; of this rank's chunks of a group; of what is about to be used of a tensor,
 * with several ranks of the groups that are gathered for it; of all. PS_EBUDGET: there is no room now, and they wait on.
 * What else fails breaks the client. */
PS_NODISCARD ps_status ps_client_flush_chunk(ps_client *c, int32_t chunk);
PS_NODISCARD ps_status ps_client_flush_group(ps_client *c, int32_t group);
PS_NODISCARD ps_status ps_client_flush_tensor(ps_client *c, int32_t tensor);
PS_NODISCARD ps_status ps_client_flush(ps_client *c);
/* Those that wait are not carried out: all values and states are about to be replaced. */
void ps_client_drop_updates(ps_client *c);
/* A moment of the program's is about to begin, before which the recorded step has updates: those that wait, and early
 * ones of chunks that have all their gradients. */
PS_NODISCARD ps_status ps_client_update_as_foretold(ps_client *c, int64_t framework_bytes);
/* The program wants something of the tensor, `what`, for which it would have to be as before its update: PS_ESTATE where
 * that has come early. With several ranks this one is broken, as others may wait for it. */
PS_NODISCARD ps_status ps_client_expect_no_early_update(ps_client *c, int32_t tensor, const char *what);
/* PS_ESTATE: the program wants to look at gradients, or to drop them, when early updates may have used them up. */
PS_NODISCARD ps_status ps_client_expect_gradients_whole(const ps_client *c, const char *what);

/* ---- update_room.c ---- */

/* May updates wait until the next forward pass asks for their chunks? There is room for them beside what that of the step
 * under way had in use, and something to be gained: not all chunks are on the device at once. */
bool ps_client_may_defer(const ps_client *c);

/* The same of the chunk's update right after a moment of the backward pass of the step under way. */
bool ps_client_may_update_after(const ps_client *c, int32_t chunk, int32_t moment);

/* PS_EBUDGET: the updates of a step would find no room beside what the program has in use. */
PS_NODISCARD ps_status ps_client_check_update_room(ps_client *c);

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
/* Of the chunk, before they are rounded to pages. */
static inline int64_t ps_client_id_bytes(const ps_client *c, ps_chunk_id id)
{
    return ps_lists_chunk_bytes(&c->lists, c->layout, ps_lists_list_of(&c->lists, c->layout, id));
}
/* Does a gradient of one of its tensors lie there? */
static inline bool ps_client_chunk_has_gradient(const ps_client *c, int32_t chunk, ps_client_gradient_place place)
{
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        if (c->gradients[i].place == place) return true;
    return false;
}
static inline bool ps_client_chunk_has_any_gradient(const ps_client *c, int32_t chunk)
{
    return ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_OVER) ||
           ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_BESIDE);
}
static inline int32_t ps_client_group_of(const ps_client *c, int32_t chunk)
{
    return ps_group_of_chunk(c->layout, &c->settings.ranks, chunk);
}
static inline ps_chunk_group ps_client_chunks_of(const ps_client *c, int32_t group)
{
    return ps_group_at(c->layout, &c->settings.ranks, group);
}
static inline ps_place ps_client_place_of(const ps_client *c, int32_t tensor)
{
    return c->layout->places[c->tensors[tensor].in_layout];
}

/* ---- access.c ---- */

/* Pin a chunk, as an access of the moment under way. */
PS_NODISCARD ps_status ps_client_hold(ps_client *c, ps_list list, int32_t chunk, ps_tier tier, ps_access_mode mode);
/* The same, if there is room beside what the step is about to want. */
PS_NODISCARD ps_status ps_client_try_hold(ps_client *c, ps_list list, int32_t chunk, ps_tier tier, ps_access_mode mode);
void ps_client_let_go(ps_client *c, ps_list list, int32_t chunk);
/* Pinned as ps_client_pin, and let go as ps_client_unpin, by who is inside. */
PS_NODISCARD ps_status ps_client_pin_place(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode,
                                           ps_client_place *place);
void ps_client_unpin_place(ps_client *c, int32_t tensor, ps_client_what what);
/* What failed where other ranks are about to wait for this one in an exchange that it does not come to. Gives st. */
ps_status ps_client_tell_ranks(ps_client *c, ps_status st);

/* ---- settle.c ---- */

/* Does a gradient lie where the parameter was? */
bool ps_client_is_overwritten(const ps_client *c, const ps_client_tensor_state *t);
/* What the program has written to one of parameter and master, the other one has too. */
PS_NODISCARD ps_status ps_client_settle(ps_client *c, int32_t tensor);
/* Is there such a thing? A place that the program holds for writing may have been written to at any time. */
bool ps_client_is_written(ps_client_tensor_state *t, int32_t param_pins);
/* Chunks of the tensor have masters from now on. */
PS_NODISCARD ps_status ps_client_need_master(ps_client *c, int32_t tensor);

/* ---- moment.c ---- */

/* What the process has in memory now, besides chunks, does not count as the framework's. */
PS_NODISCARD ps_status ps_client_begin_measuring(ps_client *c);
/* With memory.total, when it has been read: what the process takes beyond memory.process_bytes counts, from now on. */
PS_NODISCARD ps_status ps_client_count_process(ps_client *c);
PS_NODISCARD ps_status ps_client_begin_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes);
/* Of the step under way; NULL: none. */
const ps_moment *ps_client_present_moment(const ps_client *c);
/* It has no accesses, and is to begin later. */
void ps_client_retract_moment(ps_client *c);
/* The recorded step has an update next, of this chunk; -1: something else. */
int32_t ps_client_foretold_update(const ps_client *c);
/* After which moment of the last backward pass the chunk's update could have come, as nothing of the step has used the
 * chunk since; -1: none with another moment of the program's after it, or there was no room. */
int32_t ps_client_last_use(const ps_client *c, int32_t chunk);
/* Has the framework clearly more in use than in the next moment of the recorded step? */
bool ps_client_takes_more_than_foretold(const ps_client *c, int64_t framework_bytes);
/* What the framework has of the device's memory, for messages: what the program held before the step, and activations.
 * Returns text. */
enum { PS_CLIENT_FRAMEWORK_TEXT_MAX = 240 };
const char *ps_client_framework_text(const ps_client *c, int64_t framework_bytes,
                                     char text[PS_CLIENT_FRAMEWORK_TEXT_MAX]);
/* There is no room as long as the store keeps what is foretold of this moment; for the rest of the step nothing is. False:
 * nothing was. */
bool ps_client_stop_following(ps_client *c);
/* The moment under way is about to access the chunk. */
PS_NODISCARD ps_status ps_client_note_access(ps_client *c, ps_chunk_id id, ps_tier tier, ps_access_mode mode);
/* What was watched of the step under way is of no use: its gradients were dropped. */
void ps_client_abandon_step(ps_client *c);
/* The step has ended: *was_watched when it went another way than foretold. */
void ps_client_end_step(ps_client *c, bool *was_watched);
void ps_client_steps_deinit(ps_client_steps *s);

/* ---- client_profile.c ---- */

/* An operator begins, and the one before it has ended. label: kept as long as the client. is_in_step: not aside. */
void ps_client_record_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes, bool is_in_step);
/* The step has ended, before it counts. */
void ps_client_record_step(ps_client *c);
/* The moment begins later. */
void ps_client_unrecord_moment(ps_client *c);
/* Nothing comes any more. */
void ps_client_end_recording(ps_client *c);

/* ---- gradient.c ---- */

/* Gradients that lie over the parameter make way. PS_ESTATE: the program has their place in use. */
PS_NODISCARD ps_status ps_client_restore(ps_client *c, int32_t tensor);
/* A gradient that is beside its parameter, and held, becomes what it would be there. */
PS_NODISCARD ps_status ps_client_round_gradient(ps_client *c, const ps_piece *p);
/* PS_ESTATE naming the call when the program has some gradient's place in use. */
PS_NODISCARD ps_status ps_client_expect_gradients_free(const ps_client *c, const char *call);
/* Take the sums of a piece's gradient, which is held. */
PS_NODISCARD ps_status ps_client_sum_piece(ps_client *c, const ps_piece *p);
/* What all gradients amount to that this rank has; waits for it. */
PS_NODISCARD ps_status ps_client_sum_gradients(ps_client *c, ps_grad_sums *all);
static inline ps_list ps_client_gradient_list(const ps_client *c, const ps_piece *p)
{
    return ps_client_gradient_of(c, p)->place == PS_GRADIENT_OVER ? PS_LIST_PARAM16 : ps_lists_grad(&c->lists);
}
static inline float *ps_client_apart(const ps_client_tensor_state *t, ps_list list)
{
    return t->apart + (list - PS_LIST_MASTER) * ps_round_up(t->elements, PS_TENSOR_ALIGN_ELEMENTS);
}

/* ---- sharing.c: with several ranks; with one all return at once ---- */

PS_NODISCARD ps_status ps_client_sharing_init(ps_client *c);
void ps_client_sharing_deinit(ps_client_sharing *s);
/* Every rank has the parameters of the group of one of the tensor's chunks. */
PS_NODISCARD ps_status ps_client_gather(ps_client *c, int32_t tensor, int32_t chunk);
/* The group can be gathered: its parameters are up to date, and its chunks held. insists: where there is no room what is
 * foretold of the step makes way. PS_EBUDGET: nothing is held. */
PS_NODISCARD ps_status ps_client_prepare_gather(ps_client *c, int32_t group, bool insists);
void ps_client_let_go_gathered(ps_client *c, int32_t group);
/* The tensor's gradient makes way: only its owner has the parameter, the others gather it anew. */
void ps_client_unshare(ps_client *c, int32_t tensor);
/* The tensor's parameter is about to be written to: a gathering of it that is under way is waited for. */
PS_NODISCARD ps_status ps_client_finish_coming(ps_client *c, int32_t tensor);
/* The tensor is about to get a gradient, which may lie over its parameter. */
PS_NODISCARD ps_status ps_client_expect_gradient(ps_client *c, int32_t tensor);
/* The tensor has got a gradient: groups that have all of theirs are summed up, each piece to its owner. */
PS_NODISCARD ps_status ps_client_note_gradient(ps_client *c, int32_t tensor);
/* Before the update: what is not summed up yet. */
PS_NODISCARD ps_status ps_client_reduce_rest(ps_client *c);
/* Parameters change: all copies of other ranks' chunks are invalid. */
PS_NODISCARD ps_status ps_client_forget_others(ps_client *c);

/* ---- announce.c ---- */

int64_t ps_client_message_bytes(const ps_client *c);
const ps_client_message *ps_client_message_of(const ps_client *c, const char *messages, int32_t rank);
const uint8_t *ps_client_places_of(const ps_client *c, const char *messages, int32_t rank);
/* All ranks say what they are about to do, which sharing.messages has afterwards; places: of gradients [n_places, at most
 * sharing.most_pieces]. PS_EINVAL, on all, where it is not the same. */
PS_NODISCARD ps_status ps_client_announce(ps_client *c, const ps_client_message *m, const uint8_t *places,
                                          int32_t n_places);
/* The same in two parts; messages must stay. */
PS_NODISCARD ps_status ps_client_begin_announcing(ps_client *c, const ps_client_message *m, const uint8_t *places,
                                                  int32_t n_places, char *messages, ps_event *done);
PS_NODISCARD ps_status ps_client_finish_announcing(ps_client *c, const char *messages, ps_event done);

/* With one rank they return at once. All ranks read this tensor; begin a pass of an evaluation. */
PS_NODISCARD ps_status ps_client_announce_read(ps_client *c, int32_t tensor);
PS_NODISCARD ps_status ps_client_announce_evaluation(ps_client *c);
/* All ranks make a step: PS_EINVAL naming a tensor that has a gradient on some only. */
PS_NODISCARD ps_status ps_client_announce_step(ps_client *c);

/* ---- ahead.c: what fails here breaks the client ---- */

/* The step under way has done this; group -1: to all. */
PS_NODISCARD ps_status ps_client_note_exchange(ps_client *c, ps_client_exchange_kind kind, int32_t group);
void ps_client_begin_record(ps_client *c);
uint64_t ps_client_hash_record(const ps_client *c);
/* The step under way ends, and all ranks have announced it. */
PS_NODISCARD ps_status ps_client_agree_on_record(ps_client *c);
/* Begin with what the recorded step gathers next, unless something is under way. */
PS_NODISCARD ps_status ps_client_gather_ahead(ps_client *c);
/* Before anything else is exchanged: gather what was postponed. */
PS_NODISCARD ps_status ps_client_do_postponed(ps_client *c);
/* What has begun is here, and need not stay on the device. */
PS_NODISCARD ps_status ps_client_finish_ahead(ps_client *c);
/* The group is used: *was_ahead, and it is here. */
PS_NODISCARD ps_status ps_client_take_ahead(ps_client *c, int32_t group, bool *was_ahead);
/* Does the recorded step gather this group now? */
bool ps_client_expects_gather(const ps_client *c, int32_t group);
bool ps_client_is_coming(const ps_client *c, int32_t group);
/* The client ends. */
void ps_client_end_ahead(ps_client *c);

/* ---- group.c ---- */

/* Tensors come to those that are configured, by name. */
PS_NODISCARD ps_status ps_client_deal_groups(ps_client *c);
/* As ps_client_set_group, of a group that there is. */
PS_NODISCARD ps_status ps_client_set_numbers(ps_client *c, int32_t group, const ps_client_group *numbers);

/* ---- values.c ---- */

/* Elements [first, first + n) of the tensor's value (list PS_VALUE_LIST), which the parameter follows, or of a state,
 * which has memory. */
PS_NODISCARD ps_status ps_client_put(ps_client *c, int32_t tensor, ps_list list, int64_t first, int64_t n,
                                     const float *in);

/* ---- client_checkpoint.c ---- */

/* The fp32 values or states of the chunk, or of the tensor, are about to change, other than by an update: what is being
 * saved has the ones before. */
PS_NODISCARD ps_status ps_client_save_first(ps_client *c, int32_t chunk);
PS_NODISCARD ps_status ps_client_save_tensor_first(ps_client *c, int32_t tensor);
/* Give up what is being saved. */
void ps_client_drop_checkpoint(ps_client *c);

#endif
