/* patrickstar_client.h - parameters of another framework in chunks of this library: a PyTorch module, a program's own
 * network.
 *
 * The framework computes; this library stores parameters, gradients and optimizer states. The framework pins and unpins
 * a tensor around each use, passes gradients, and calls for the update. The library moves chunks between device, host
 * and disk, and has the optimizer, mixed precision and ranks. It records the first step; from the second step on it
 * prefetches chunks. A step that differs from the recorded one is carried out all the same, and recorded anew. Bits do
 * not depend on budgets.
 *
 *     ps_client_create(config, NULL, &client);
 *     for each tensor                                  its first values, in memory that need not all be there at once
 *         ps_client_add(client, &tensor, &number, &values);  fill values;  ps_client_release(client, number);
 *     ps_client_begin(client);                         lays out chunks, and moves the values into them
 *     for each step
 *         for each operator, forward, then backward
 *             ps_client_moment(client, PS_CLIENT_FORWARD, "h.3.mlp", bytes);
 *             ps_client_pin(client, number, PS_CLIENT_PARAM, PS_CLIENT_READ, &place);
 *             compute with place.address;
 *             ps_client_unpin(client, number, PS_CLIENT_PARAM);
 *             backward also: ps_client_give_gradient(client, number, gradient, PS_DTYPE_F32, 0);
 *         ps_client_step(client, &info);
 *     ps_client_destroy(client);
 *
 * examples/own_framework.c is such a program. Configurations are those of ps_engine; options of the model and of data
 * are ignored.
 *
 * Threads: any, also several at once; calls are serialised. With several ranks all of them make the calls marked
 * (ranks) in the same order; each collective first compares its call between ranks (PS_EINVAL). After fork, the child
 * process cannot use the client: its calls fail with PS_ESTATE, or return 0. */
#ifndef PATRICKSTAR_CLIENT_H
#define PATRICKSTAR_CLIENT_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ps_client ps_client;

/* ---- creation and destruction (src/api/external) ---------------------------------------------------------- */

/* A client without tensors. config: optimizer, number format (bf16, fp16, else f32), memory.*, gradient_clipping,
 * fp16.*, scheduler, chunk size, prefetch, comm; it is copied. comm (ranks) NULL: single rank; else the client holds a
 * reference until ps_client_destroy. PS_EINVAL, PS_ENOSYS, PS_ECOMM, PS_ENOMEM_HOST; *out is NULL then. */
PS_API PS_NODISCARD ps_status ps_client_create(const ps_config *config, ps_comm *comm, ps_client **out);

/* (ranks) Completes pending operations and frees everything. A tensor that is still exported (ps_client_export_dlpack)
 * stays readable until its deleter is called, and keeps the memory of all chunks until then. NULL is accepted. */
PS_API void ps_client_destroy(ps_client *client);

typedef struct ps_client_tensor {
    size_t struct_size;
    const char *name;     /* unique; copied. NULL: "tensor <number>" until ps_client_name */
    const int64_t *shape; /* [n_dims], each at least 1; copied */
    int32_t n_dims;       /* 0 .. PS_CLIENT_DIMS_MAX; 0: one element */
    ps_dtype dtype;       /* type of the initial values: f32, bf16, or f16 */
    int32_t is_frozen;    /* 1: has no gradient yet: its fp32 value and states get memory when it has one, or at once if
                             is_unmanaged */
    int32_t is_unmanaged; /* 1: kept out of chunks, as fp32 at a fixed address in device memory, with its gradient and
                             states, also while it is frozen */
} ps_client_tensor;

enum { PS_CLIENT_DIMS_MAX = 8 };

/* Add a tensor, before ps_client_begin. *number counts from 0. *values is set to zeroed memory for its initial values,
 * row by row. The memory maps an unnamed file in memory.disk_path, so that a model larger than memory can be built,
 * where memory.disk is above 0, or is auto while no other tier is given; else it is RAM. At most 2^40 elements. Chunks
 * keep the order in which tensors are added: add parameters in the order of their use. PS_EINVAL, PS_ESTATE after
 * ps_client_begin, PS_EIO when there is no room for the file, PS_ENOMEM_HOST; PS_EBUDGET when values in RAM exceed
 * memory.total or the machine's memory. */
PS_API PS_NODISCARD ps_status ps_client_add(ps_client *client, const ps_client_tensor *tensor, int32_t *number,
                                            void **values);

/* Advise that the initial values of a tensor are not needed now, so that their pages may be written to the file. They
 * can still be read and written until ps_client_begin. */
PS_API void ps_client_release(ps_client *client, int32_t tensor);

/* Remove a tensor (such as a head that was tied later), and free its initial values. Its number is not used again.
 * Before ps_client_begin, else PS_ESTATE. */
PS_API PS_NODISCARD ps_status ps_client_drop(ps_client *client, int32_t tensor);

/* Set a tensor's name and whether it is frozen, when these are known later than its shape. PS_EINVAL: another tensor
 * has the name, or there is no such tensor. PS_ESTATE after ps_client_begin. */
PS_API PS_NODISCARD ps_status ps_client_name(ps_client *client, int32_t tensor, const char *name, int32_t is_frozen);

/* Where the device is a GPU (train.backend), before ps_client_begin: set the stream (CUstream, cudaStream_t) on which
 * the framework computes, which is not the default stream. A pinned tensor is valid for work that is issued to the
 * stream between ps_client_pin and ps_client_unpin; neither call waits for the stream. It must outlive the client.
 * PS_EINVAL for NULL, PS_ENOSYS where the device is not a GPU. */
PS_API PS_NODISCARD ps_status ps_client_use_stream(ps_client *client, void *stream);

/* Check early whether a model fits. trained, frozen: elements with and without gradient that tensors in chunks will
 * have in all, those added already included. PS_EBUDGET where their chunks exceed the budgets, or the memory that this
 * machine has for them, as ps_client_begin would report after all values have been computed. PS_OK guarantees nothing,
 * as chunks have padding. PS_EINVAL, PS_ESTATE after ps_client_begin. */
PS_API PS_NODISCARD ps_status ps_client_expect(ps_client *client, int64_t trained, int64_t frozen);

/* (ranks) Lay out chunks and move the initial values of rank 0 into them, a tensor at a time. The memory of
 * ps_client_add then reads as zeros, and must not be written any more. Groups of optimizer.param_groups get their
 * tensors by name, and train.freeze freezes by name. PS_EBUDGET, with budgets that suffice. A step needs at least the
 * largest tensor on the device, there also one chunk with its fp32 values or gradients (with several ranks: gradients
 * of a chunk of each), and one chunk with its states where updates run. PS_EINVAL: no tensor; a group or pattern
 * without a tensor; tensors that differ between ranks. After a failure the client can only be destroyed. Until then a
 * tensor that is not dropped (ps_client_get_tensor_info) still has its values in the memory of ps_client_add; budgets
 * are checked before any value moves. */
PS_API PS_NODISCARD ps_status ps_client_begin(ps_client *client);

/* ---- access (src/api/external) ---------------------------------------------------------------------------- */

typedef enum ps_client_what {
    PS_CLIENT_PARAM,    /* the parameter as operators read it, in the configured number format; unmanaged: fp32 */
    PS_CLIENT_MASTER,   /* its fp32 value. After a write, ps_client_unpin updates the parameter (unmanaged: both are
                           one). With several ranks only the owner has it, and writes between steps only */
    PS_CLIENT_GRADIENT, /* PS_ESTATE when there is none */
} ps_client_what;

typedef enum ps_client_mode {
    PS_CLIENT_READ,
    PS_CLIENT_WRITE, /* read and write. For PS_CLIENT_PARAM, ps_client_unpin updates the fp32 value */
} ps_client_mode;

/* Location of a pinned tensor; elements row by row. */
typedef struct ps_client_place {
    size_t struct_size;
    void *address;
    ps_dtype dtype;
    int32_t gpu; /* CUDA device number of the memory; -1: host memory */
} ps_client_place;

/* Move a tensor to the device and keep it at one address until ps_client_unpin; each success needs one unpin. When a
 * parameter is pinned whose gradient has overwritten it in place, the parameter is restored from its fp32 value, and
 * the gradient gets separate memory, in this step and in later ones. (ranks) for PS_CLIENT_PARAM. PS_EBUDGET: there is
 * no room in addition to memory in use; the message names the moment, the bytes, and a budget that suffices. */
PS_API PS_NODISCARD ps_status ps_client_pin(ps_client *client, int32_t tensor, ps_client_what what, ps_client_mode mode,
                                            ps_client_place *place);
PS_API void ps_client_unpin(ps_client *client, int32_t tensor, ps_client_what what);

/* Pin and export as a DLPack tensor: *managed is set to a DLManagedTensor (dlpack.h of DLPack before version 1, without
 * flags). The consumer calls its deleter, on any thread, which unpins. The tensor may outlive the client. PyTorch:
 * from_dlpack of a capsule named "dltensor". */
PS_API PS_NODISCARD ps_status ps_client_export_dlpack(ps_client *client, int32_t tensor, ps_client_what what,
                                                      ps_client_mode mode, void **managed);

/* Present number of pins and exports of each tensor as PS_CLIENT_PARAM: [number of tensors], valid from ps_client_begin
 * to ps_client_destroy; may be read at any time. While a count is above 0 the address does not change. */
PS_API const int32_t *ps_client_get_pin_counts(const ps_client *client);

/* ---- moments (src/api/external) --------------------------------------------------------------------------- */

typedef enum ps_client_phase {
    PS_CLIENT_FORWARD,
    PS_CLIENT_BACKWARD,     /* recomputation of a checkpointed segment too */
    PS_CLIENT_OUTSIDE_STEP, /* not part of a step (evaluation): chunks move on demand, and nothing is recorded. (ranks)
                               A pass begins at each moment with the label of the first pass's first moment; all ranks
                               begin equally many */
} ps_client_phase;

enum { PS_CLIENT_MEASURE = -1 };

/* The next operator begins. label names it; a new label is copied. framework_bytes is the device memory that the
 * framework itself uses now (activations: torch.cuda.memory_allocated), which counts in the budget of the device. From
 * the second step on chunks are evicted before it grows. PS_CLIENT_MEASURE, where the device is the CPU: the memory of
 * the process without chunks and without its memory at ps_client_begin; with memory.total, its memory in excess of what
 * the budgets leave to the process, counted from ps_client_create on. With several ranks the first moment of a step,
 * and the first one after an evaluation, come between the same (ranks) calls on all ranks. PS_EBUDGET, with a budget
 * that suffices; it is an estimate where no step was recorded or this step is larger than the recorded one. */
PS_API PS_NODISCARD ps_status ps_client_moment(ps_client *client, ps_client_phase phase, const char *label,
                                               int64_t framework_bytes);

/* ---- gradients and update (src/api/external) -------------------------------------------------------------- */

/* Add the tensor's gradient of one backward pass, multiplied by the loss scale, to its gradient since the last step, in
 * fp32. gradient: elements row by row, in memory of the device that computes; copied. is_read_again: 1 when the
 * framework will read the parameter again before the step. Otherwise the first gradient may overwrite the parameter in
 * place, in its number format, when the parameter is not pinned. (ranks) */
PS_API PS_NODISCARD ps_status ps_client_give_gradient(ps_client *client, int32_t tensor, const void *gradient,
                                                      ps_dtype dtype, int32_t is_read_again);

/* (ranks) The step's last backward pass begins. Call it before the pass's first PS_CLIENT_BACKWARD moment. Without
 * memory.update_in_backward = always or speculate it does nothing. Otherwise this pass updates a chunk of this rank
 * when the chunk has all its gradients (with several ranks: their sums) and the recorded step did not use it any more,
 * as long as the step replays the recorded one; ps_client_step updates the other chunks. Updates use the present
 * numbers of groups; ps_client_step fails when these have changed (PS_ESTATE, and nothing else changes). From now until
 * ps_client_step gradients can be neither read nor dropped, and a tensor that has been updated can be neither pinned,
 * given a gradient, read nor written: PS_ESTATE, with several ranks on all, whose clients can only be destroyed then.
 * Chunks with a trained tensor that gets no gradient are not updated early. PS_ESTATE also for a second call before the
 * step, so the caller must know the last micro-batch beforehand. PS_EBUDGET.
 *
 * With speculate updates are made as if the step were neither clipped nor skipped, and the disk keeps what they
 * replace; if it is clipped or skipped after all, ps_client_step takes them back and makes them again as decided. That
 * needs memory.disk for all chunks and for second places of masters and states; where one rank lacks that room it is
 * without effect on all, and ps_client_begin logs why. */
PS_API PS_NODISCARD ps_status ps_client_begin_last_backward(ps_client *client);

/* 1 when the tensor has got a gradient since the last step; 0 otherwise, also for an invalid number. */
PS_API int32_t ps_client_has_gradient(const ps_client *client, int32_t tensor);

/* Drop the gradient of a tensor, or of all (tensor -1). A parameter that an in-place gradient has overwritten is
 * restored. PS_ESTATE: the gradient is pinned. (ranks) */
PS_API PS_NODISCARD ps_status ps_client_drop_gradients(ps_client *client, int32_t tensor);

/* Numbers of a parameter group. Below 0 (weight_decay: NaN): as configured; the learning rate then follows the
 * scheduler. Weight decay applies to all tensors of a group. */
typedef struct ps_client_group {
    size_t struct_size;
    double learning_rate, weight_decay, beta1, beta2, eps;
} ps_client_group;

/* Group 0 has all tensors that match no pattern of optimizer.param_groups. _get_group returns the numbers of the next
 * step; _set_group sets them from the next step on; _join_group moves a tensor to another group, and creates one with
 * the numbers of group 0 when group == count. PS_EINVAL. (ranks: the same on all) */
PS_API int32_t ps_client_get_group_count(const ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_get_group(const ps_client *client, int32_t group, ps_client_group *out);
PS_API PS_NODISCARD ps_status ps_client_set_group(ps_client *client, int32_t group, const ps_client_group *numbers);
PS_API PS_NODISCARD ps_status ps_client_join_group(ps_client *client, int32_t tensor, int32_t group);

/* Clip gradients by this global 2-norm from the next step on; 0: do not clip; below 0: as configured
 * (gradient_clipping). PS_EINVAL: NaN; or above 0 with memory.update_in_backward = always, which updates chunks before
 * the norm is known. (ranks: the same on all) */
PS_API PS_NODISCARD ps_status ps_client_set_gradient_clipping(ps_client *client, double max_norm);

/* Factor for the loss of the next backward pass; 1 except for fp16. */
PS_API double ps_client_get_loss_scale(const ps_client *client);

typedef struct ps_client_step_info {
    size_t struct_size;
    int64_t step;        /* updates made, this one included */
    int32_t is_skipped;  /* 1: gradients were not finite; parameters are as before */
    double grad_norm;    /* of all gradients, without loss scale, before clipping; infinite when skipped */
    double loss_scale;   /* of this step */
    int32_t is_recorded; /* 1: the step differed from the recorded one, or was the first */
    int64_t n_restored;  /* parameters that were pinned after their gradients had overwritten them */
    int64_t n_separate;  /* gradients in separate memory */
    int64_t n_deferred;  /* chunks of this rank whose updates are deferred until their next use */
    int64_t n_gathered, n_gathered_ahead; /* all-gathers of groups of chunks, with several ranks; of these,
                                             prefetched */
    int64_t n_early;                      /* chunks of this rank that were updated within the backward pass */
    /* with memory.update_in_backward = speculate: of these, updates made before it was known whether they are right,
     * and those taken back, as the step was clipped or skipped */
    int64_t n_speculated, n_taken_back;
} ps_client_step_info;

/* (ranks) Update all tensors that have a gradient. Gradients are averaged over the ranks, unscaled, clipped, and
 * dropped after the update; the configured optimizer counts steps for each tensor, as torch does. With
 * memory.defer_updates, where not all chunks fit the device at once, a chunk is updated at its next use by a forward
 * pass or by a read or write of one of its tensors, with the group numbers, clipping and count of this call, so that
 * results are the same. Where no tensor has a gradient on any rank, nothing is updated: count, learning rates and loss
 * scale stay. info may be NULL. PS_ESTATE: a gradient is pinned. PS_EBUDGET, before anything has changed: there is no
 * room for updates in addition to pinned tensors. PS_EINVAL on all ranks when they have diverged, naming a tensor that
 * has a gradient on one rank and none on another; for unmanaged tensors this is allowed. PS_ENUMERIC after
 * train.max_nonfinite_steps skipped steps in a row in which the loss scale could not be lowered: info is filled, and
 * the client stays usable. But where early updates (ps_client_begin_last_backward) have changed parameters, on some
 * rank, in a step whose gradients are not finite, PS_ENUMERIC is permanent: the client can only be destroyed, or with
 * one rank load a checkpoint. */
PS_API PS_NODISCARD ps_status ps_client_step(ps_client *client, ps_client_step_info *info);

/* ---- values and states, by tensor (src/api/external) ------------------------------------------------------ */

typedef struct ps_client_tensor_info {
    size_t struct_size;
    const char *name;     /* valid as long as the client, or until ps_client_name changes it */
    const int64_t *shape; /* likewise, [n_dims] */
    int32_t n_dims;
    int32_t is_dropped, is_frozen, is_unmanaged;
    int64_t elements;
    int32_t group;
    int32_t owner; /* rank that has its fp32 value and states; that of its first chunk, when it has several */
    int32_t chunk; /* the first; -1: unmanaged, or before ps_client_begin */
    int64_t steps; /* updates of this tensor */
    /* bit i: the tensor has state i (ps_client_get_state_name); with Muon matrices have others than the rest */
    int64_t states;
} ps_client_tensor_info;

PS_API int32_t ps_client_get_tensor_count(const ps_client *client); /* dropped ones too */
PS_API ps_status ps_client_get_tensor_info(const ps_client *client, int32_t tensor, ps_client_tensor_info *out);

/* Name of the optimizer's state i, as in torch: "exp_avg" and "exp_avg_sq" for Adam and AdamW, "momentum_buffer" for
 * SGD with momentum, "exp_avg" for Lion; for Muon "momentum_buffer" of matrices, "exp_avg" and "exp_avg_sq" of other
 * tensors. Static. NULL past the last state. */
PS_API const char *ps_client_get_state_name(const ps_client *client, int32_t i);

/* Copy n elements from `first` of a tensor's fp32 value (state NULL) or of a state. A tensor that has no fp32 value or
 * states yet reads as the parameter and as zeros. Writing a value also changes the parameter. Gradients and counts of
 * steps do not change. (ranks): all ranks get all elements that are read; a write stores each element on its owner.
 * Compact states (optimizer.params.state_format) are decoded, and rounded when they are written, in groups of 32
 * elements from the first on: of a group that is written in part the rest is rounded again. PS_EINVAL, PS_ESTATE before
 * ps_client_begin, PS_EBUDGET. */
PS_API PS_NODISCARD ps_status ps_client_read_state(ps_client *client, int32_t tensor, const char *state, int64_t first,
                                                   int64_t n, float *out);
PS_API PS_NODISCARD ps_status ps_client_write_state(ps_client *client, int32_t tensor, const char *state, int64_t first,
                                                    int64_t n, const float *in);

/* Counts of updates, of a tensor, and of the learning-rate schedule (tensor -1); set them to resume a run that was
 * saved. */
PS_API PS_NODISCARD ps_status ps_client_set_update_count(ps_client *client, int32_t tensor, int64_t steps);
PS_API int64_t ps_client_get_update_count(const ps_client *client, int32_t tensor);
/* State of the fp16 loss scaler as JSON text, for the program's own files; the caller frees it by ps_free. */
PS_API PS_NODISCARD ps_status ps_client_get_scaler(const ps_client *client, char **json);
/* PS_EFORMAT: malformed text; PS_EINVAL: a state that the scaler cannot have; PS_ESTATE between
 * ps_client_begin_last_backward and the step. */
PS_API PS_NODISCARD ps_status ps_client_set_scaler(ps_client *client, const char *json);

/* ---- checkpoints (src/api/external) ----------------------------------------------------------------------- */

/* Contents of a checkpoint in addition to tensors, counts, numbers of groups and loss scale. */
typedef struct ps_client_checkpoint {
    size_t struct_size;
    const char *tag;   /* name of its folder: up to 31 letters, digits, '.', '_', '-'; NULL: "step-000100" */
    int64_t keep_last; /* number of newest checkpoints to keep, of those named by their step; 0: all */
    const char
        *config_json; /* the model's config.json for Hugging Face's transformers, which pstar export writes; NULL */
    const char *caller_json; /* a JSON object that ps_client_load_checkpoint returns; NULL */
    const void *extra;   /* [extra_bytes] this rank's own: buffers, generators, in any format; kept with a hash in a */
    int64_t extra_bytes; /* file "extra-<rank>-of-<ranks>.pt"; NULL and 0: none */
} ps_client_checkpoint;

/* (ranks) Save the present state, as ps_engine_save_checkpoint does for an engine, in the same files
 * (doc/checkpoints.md): parameters by name with their fp32 values and states, one file of each kind for each rank. what
 * may be NULL: no additional contents. info may be NULL. PS_ESTATE on all ranks where a tensor of one has a gradient,
 * which would be lost. PS_EIO when writing failed: no new checkpoint exists then, earlier ones are unchanged, and
 * training can continue. */
PS_API PS_NODISCARD ps_status ps_client_save_checkpoint(ps_client *client, const char *folder,
                                                        const ps_client_checkpoint *what, ps_checkpoint_info *info);

/* (ranks) The same, asynchronously. The checkpoint has the state at begin, whatever is trained or written afterwards.
 * Before a chunk's next update, its content is passed to a writer thread. With train.save_interval > 0 it is copied to
 * a buffer of memory.save_buffer bytes, a part of the budgets; otherwise the update waits for the write. finish reads
 * the chunks that no update has passed on. One save at a time (PS_ESTATE); ps_client_destroy discards an unfinished
 * one. */
PS_API PS_NODISCARD ps_status ps_client_begin_checkpoint(ps_client *client, const char *folder,
                                                         const ps_client_checkpoint *what);
/* (ranks) 1: finish would not block, as all ranks' files are written or have failed, or no save is in progress. 0 also
 * after a failure of the communicator. */
PS_API int ps_client_checkpoint_is_done(ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_finish_checkpoint(ps_client *client, ps_checkpoint_info *info);

/* Contents of a loaded checkpoint; texts are freed by ps_free. */
typedef struct ps_client_loaded {
    size_t struct_size;
    int64_t step;      /* calls of ps_client_step when it was saved */
    int32_t n_ranks;   /* of the save */
    char *path;        /* its own folder */
    char *caller_json; /* NULL: none */
    /* this rank's extra file; with another number of ranks than in the save, that of rank modulo n_ranks. NULL: none */
    char *extra_path;
} ps_client_loaded;

/* (ranks) Resume from a checkpoint: its own folder, or the folder whose "latest" names it. Loads values, states and
 * counts of tensors by name, group numbers that a program has set, and the loss scale. Budgets, chunk size, number
 * format and number of ranks may differ. Checkpoints of pstar are accepted, too. Before the first step or between steps
 * (PS_ESTATE with gradients). PS_EINVAL: other tensors, shapes, optimizer or sizes of groups; PS_EIO, PS_EFORMAT naming
 * the file. A failure changes nothing, unless a file turns out to be damaged while it is read, after which the client
 * can only be destroyed, or with one rank load another checkpoint. */
PS_API PS_NODISCARD ps_status ps_client_load_checkpoint(ps_client *client, const char *folder, ps_client_loaded *out);

/* ---- introspection (src/api/external) --------------------------------------------------------------------- */

typedef struct ps_client_info {
    size_t struct_size;
    ps_dtype dtype; /* of PS_CLIENT_PARAM */
    int32_t gpu;    /* CUDA number of the GPU that computes; -1: the CPU does */
    int32_t rank, n_ranks;
    int32_t n_chunks; /* of a list */
    int64_t chunk_elements;
    int64_t parameters;       /* elements in chunks */
    int64_t model_data_bytes; /* bytes of all chunks: parameters, and fp32 values and states of trained tensors */
    int64_t budget_bytes[3], used_bytes[3], peak_bytes[3]; /* device, host, disk; device and host include memory in use
                                                              outside of chunks */
    int64_t framework_bytes, framework_peak_bytes;         /* of the device's use: the framework's own, as reported or
                                                      measured */
    int64_t moved_bytes[4];                                /* host to device, device to host, disk read, disk written */
    int64_t sent_bytes;                                    /* to other ranks */
    int64_t wait_ns;                                       /* time for which callers waited for copies */
    int64_t n_steps, n_recorded_steps;                     /* calls of ps_client_step, and those that set is_recorded */
    int64_t n_moments;                                     /* of the recorded step */
    const char *why_not_gpu; /* why an available GPU is not used, unless the configuration asked for that; "": no such.
                                Valid until ps_client_destroy */
} ps_client_info;

PS_API ps_status ps_client_get_info(const ps_client *client, ps_client_info *out);

/* Use by chunk list ("PARAM16", "MASTER", ...), by the framework itself, and by others; their sum is all memory in use.
 * index counts from 0; PS_EINVAL past the last entry. */
PS_API ps_status ps_client_get_memory_use(const ps_client *client, int index, ps_memory_use *out);

/* Record a profile: memory by tier, moves of chunks, moments, waits. _save_profile writes a Perfetto trace, which
 * `pstar report` draws. PS_ESTATE: nothing recorded, or recording already. */
PS_API PS_NODISCARD ps_status ps_client_start_profile(ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_stop_profile(ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_save_profile(ps_client *client, const char *path);

#ifdef __cplusplus
}
#endif
#endif
