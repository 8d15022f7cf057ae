/* patrickstar_client.h - parameters of another framework in our chunks: a module of PyTorch, a program's own network.
 *
 * The framework computes; this library keeps what it computes with. The framework says before and after each use of a
 * tensor that it uses it, gives gradients, and asks for the update. Residency over device, host and disk, the
 * optimizer and its states, mixed precision, ranks and knowledge of the future are ours. The first step is watched;
 * from the second on chunks are there before they are asked for. A step that goes another way than the last one is
 * carried out all the same, and watched anew. Bits do not depend on budgets.
 *
 *     ps_client_create(config, NULL, &client);
 *     for each tensor                                  its first values, in memory that need not all be there at once
 *         ps_client_add(client, &tensor, &number, &values);  fill values;  ps_client_rest(client, number);
 *     ps_client_begin(client);                         lays out chunks, and moves the values there
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
 * examples/own_framework.c is such a program. Configurations are those of ps_engine; of what describes a model or its
 * data nothing is read.
 *
 * Threads: any, also several at once; calls wait for each other. With several ranks the calls marked (ranks) are made
 * by all of them in the same order: each exchange begins by comparing which one it is (PS_EINVAL). A process that was
 * forked off has no client: its calls do nothing but fail, with PS_ESTATE, or give 0. */
#ifndef PATRICKSTAR_CLIENT_H
#define PATRICKSTAR_CLIENT_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ps_client ps_client;

/* ---- beginning and end ------------------------------------------------------------------------------------ */

/* A client without tensors. config: optimizer, number format (bf16, fp16, else f32), memory.*, gradient_clipping,
 * fp16.*, scheduler, chunk size, prefetch, comm; it is copied. comm (ranks) NULL: this process alone; else it is kept
 * until ps_client_destroy. PS_EINVAL, PS_ENOSYS, PS_ECOMM, PS_ENOMEM_HOST; *out is NULL then. */
PS_API PS_NODISCARD ps_status ps_client_create(const ps_config *config, ps_comm *comm, ps_client **out);

/* (ranks) Ends what was begun and gives everything back; what is still lent (ps_client_lend) stays readable until it
 * comes back, and keeps the memory of all chunks until then. NULL is accepted. */
PS_API void ps_client_destroy(ps_client *client);

typedef struct ps_client_tensor {
    size_t struct_size;
    const char *name;     /* of its own; copied. NULL: "tensor <number>" until ps_client_name */
    const int64_t *shape; /* [n_dims], each at least 1; copied */
    int32_t n_dims;       /* 0 .. PS_CLIENT_DIMS_MAX; 0: one element */
    ps_dtype dtype;       /* of the values that are given: f32, bf16, or f16 */
    int32_t is_frozen;    /* 1: without gradient for now: no memory for its fp32 value and states until it has
                             one, unless is_apart */
    int32_t is_apart;     /* 1: kept out of chunks, as fp32 in device memory at one address for ever, with its gradient
                             and states, also while it is frozen */
} ps_client_tensor;

enum { PS_CLIENT_DIMS_MAX = 8 };

/* One tensor more, before ps_client_begin. *number counts from 0; *values gets memory for its values, row by row,
 * zeros at first, in a file without a name in memory.disk_path where memory.disk is above 0, or auto while no other
 * tier is given, so that a model that is larger than memory can be built; else in memory. At most 2^40 elements.
 * Neighbours in this order are neighbours in chunks: give parameters in the order of their use. PS_EINVAL, PS_ESTATE
 * after ps_client_begin, PS_EIO when there is no room for the file, PS_ENOMEM_HOST; PS_EBUDGET when values in memory
 * are more than memory.total or the machine has. */
PS_API PS_NODISCARD ps_status ps_client_add(ps_client *client, const ps_client_tensor *tensor, int32_t *number,
                                            void **values);

/* The memory of a tensor's values is not needed for now: pages may leave to the file. They can be read and written as
 * before, until ps_client_begin. */
PS_API void ps_client_rest(ps_client *client, int32_t tensor);

/* It was added in vain (a head, before it is tied): its values' memory is given back, and it takes no part; its number
 * is not given again. Before ps_client_begin, else PS_ESTATE. */
PS_API PS_NODISCARD ps_status ps_client_drop(ps_client *client, int32_t tensor);

/* Before ps_client_begin: its name, and whether it is frozen, when these are known later than its shape. PS_EINVAL: a
 * name that another tensor has, no such tensor. PS_ESTATE. */
PS_API PS_NODISCARD ps_status ps_client_name(ps_client *client, int32_t tensor, const char *name, int32_t is_frozen);

/* Where the device is a GPU (train.backend), before ps_client_begin: the stream (CUstream, cudaStream_t) on which the
 * framework computes, not the default one. What is pinned is there for what is issued to the stream from then on, and
 * stays for what was issued before it is let go: nobody waits. It must outlive the client. PS_EINVAL for NULL,
 * PS_ENOSYS where the device is no GPU. */
PS_API PS_NODISCARD ps_status ps_client_use_stream(ps_client *client, void *stream);

/* Before ps_client_begin: tensors in chunks will have so many elements in all, those added already included; frozen: of
 * them without gradient. PS_EBUDGET where their chunks are more than the budgets, or than this machine has of what the
 * budgets give: what ps_client_begin would say when all values have been made. PS_OK is no promise: chunks take some
 * more. PS_EINVAL, PS_ESTATE. */
PS_API PS_NODISCARD ps_status ps_client_expect(ps_client *client, int64_t trained, int64_t frozen);

/* (ranks) Lays out chunks and moves the values there, a tensor at a time, on all ranks those of rank 0; what
 * ps_client_add gave is zeros from then on, and nothing may write there any more. Groups of optimizer.param_groups get
 * their tensors by name, and train.freeze freezes by name. PS_EBUDGET with what would do: the least that a step needs
 * is the largest tensor on the device, there also one chunk with its fp32 values or gradients (with several ranks:
 * gradients of a chunk of each), and one chunk with its states where updates run. PS_EINVAL: no tensor, a group or
 * pattern without one; tensors that differ between ranks. After a failure the client can only be destroyed, and until
 * then a tensor that ps_client_get_tensor_info does not call dropped still has its values where ps_client_add gave
 * memory for them; budgets are looked at before any moves. */
PS_API PS_NODISCARD ps_status ps_client_begin(ps_client *client);

/* ---- access ----------------------------------------------------------------------------------------------- */

typedef enum ps_client_what {
    PS_CLIENT_PARAM,    /* the parameter as operators read it, of the configuration's number format; apart: fp32 */
    PS_CLIENT_MASTER,   /* its fp32 value. To write there: the parameter follows when it is let go (apart: the same).
                           With several ranks the owner alone has it, and writes between steps only */
    PS_CLIENT_GRADIENT, /* PS_ESTATE when there is none */
} ps_client_what;

typedef enum ps_client_mode {
    PS_CLIENT_READ,
    PS_CLIENT_WRITE, /* read and change. Of PS_CLIENT_PARAM: its fp32 value follows when it is let go */
} ps_client_mode;

/* Where a tensor is: elements row by row. */
typedef struct ps_client_place {
    size_t struct_size;
    void *address;
    ps_dtype dtype;
    int32_t gpu; /* whose memory it is of, by its number for CUDA; -1: the host's */
} ps_client_place;

/* Bring it, and keep it where it is until ps_client_unpin; each success needs one. A gradient that lies over its
 * parameter makes way when the parameter is asked for: the parameter comes back from its fp32 value, and the gradient
 * gets memory of its own, in this step and those to come. (ranks) of PS_CLIENT_PARAM.
 * PS_EBUDGET: there is no room beside what is in use; the message says which moment, how much, and what would do. */
PS_API PS_NODISCARD ps_status ps_client_pin(ps_client *client, int32_t tensor, ps_client_what what, ps_client_mode mode,
                                            ps_client_place *place);
PS_API void ps_client_unpin(ps_client *client, int32_t tensor, ps_client_what what);

/* The same as a tensor of DLPack: *managed gets a DLManagedTensor (dlpack.h of DLPack, before version 1: without
 * flags), whose deleter, called by whoever drops the tensor, on any thread, lets the place go. It may outlive the
 * client. PyTorch: from_dlpack of a capsule named "dltensor". */
PS_API PS_NODISCARD ps_status ps_client_lend(ps_client *client, int32_t tensor, ps_client_what what,
                                             ps_client_mode mode, void **managed);

/* So many times each tensor is pinned or lent as PS_CLIENT_PARAM now: [number of tensors], valid from ps_client_begin
 * to ps_client_destroy, to be read at any time. While it is above 0 the place does not change. */
PS_API const int32_t *ps_client_get_pin_counts(const ps_client *client);

/* ---- moments ---------------------------------------------------------------------------------------------- */

typedef enum ps_client_phase {
    PS_CLIENT_FORWARD,
    PS_CLIENT_BACKWARD, /* recomputation of a checkpointed segment too */
    PS_CLIENT_ASIDE,    /* not part of a step (evaluation): chunks come on demand, and nothing is learnt. (ranks) A pass
                           begins wherever the label returns that the first one began with: all ranks begin as many */
} ps_client_phase;

enum { PS_CLIENT_MEASURE = -1 };

/* The next operator begins: what it is called, and how much device memory the framework itself has in use now
 * (activations: torch.cuda.memory_allocated), or PS_CLIENT_MEASURE: memory of the process beyond that of chunks, and
 * beyond what there was at ps_client_begin, where the device is the processor; with memory.total beyond what the
 * budgets leave to the process, counted from ps_client_create on. It counts in the budget of the device; from the
 * second step on chunks leave before it grows. label is copied when it is new. PS_EBUDGET with a budget that is enough,
 * or about enough where no step was recorded or this one is larger than the recorded one. */
PS_API PS_NODISCARD ps_status ps_client_moment(ps_client *client, ps_client_phase phase, const char *label,
                                               int64_t framework_bytes);

/* ---- gradients and update --------------------------------------------------------------------------------- */

/* The tensor's gradient of one backward pass, carrying the loss scale; added to what there is since the last step, in
 * fp32. gradient: elements row by row, where PS_CLIENT_PARAM is computed (GPU: its memory); copied. is_read_again: 1
 * when the framework will read the parameter again before the step; else the gradient may lie over it, in its number
 * format, when it is the first and nobody has the parameter in use. (ranks) */
PS_API PS_NODISCARD ps_status ps_client_give_gradient(ps_client *client, int32_t tensor, const void *gradient,
                                                      ps_dtype dtype, int32_t is_read_again);

/* (ranks) The step's last backward pass begins; before its first PS_CLIENT_BACKWARD moment. Without
 * memory.update_in_backward = always it does nothing. With it a chunk of this rank's that has all its gradients, with
 * several ranks their sums, is updated in that pass when the recorded step did not use it any more, as long as the step
 * goes as that one; all others by ps_client_step. It computes with the numbers of groups as they are now:
 * ps_client_step refuses others (PS_ESTATE, nothing has changed). From now until ps_client_step gradients can be
 * neither asked for nor dropped, and a tensor that has been updated can be neither used, given a gradient, read nor
 * written: PS_ESTATE, with several ranks on all, whose clients can only be destroyed then. Chunks with a tensor that is
 * not frozen and gets no gradient are not updated early. PS_ESTATE also for a second call before the step, so that
 * accumulation is known beforehand. PS_EBUDGET. */
PS_API PS_NODISCARD ps_status ps_client_begin_last_backward(ps_client *client);

/* Has it a gradient since the last step? 0 also for a tensor that there is not. */
PS_API int32_t ps_client_has_gradient(const ps_client *client, int32_t tensor);

/* The gradient of a tensor, or of all (tensor -1), is dropped; a parameter under it comes back. PS_ESTATE: its place is
 * in use. (ranks) */
PS_API PS_NODISCARD ps_status ps_client_drop_gradients(ps_client *client, int32_t tensor);

/* Numbers of a group of tensors: below 0 (weight_decay: NaN), as the configuration has it; the rate follows scheduler
 * then. All tensors of a group decay. */
typedef struct ps_client_group {
    size_t struct_size;
    double lr, weight_decay, beta1, beta2, eps;
} ps_client_group;

/* Group 0 has all tensors that no pattern of optimizer.param_groups names. _get fills in what is in force in the next
 * step; _set tells what is from then on; _join moves a tensor to another group, new ones (group == count) begin as
 * group 0 is. PS_EINVAL. (ranks: the same on all) */
PS_API int32_t ps_client_get_group_count(const ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_get_group(const ps_client *client, int32_t group, ps_client_group *out);
PS_API PS_NODISCARD ps_status ps_client_set_group(ps_client *client, int32_t group, const ps_client_group *numbers);
PS_API PS_NODISCARD ps_status ps_client_join_group(ps_client *client, int32_t tensor, int32_t group);

/* What the loss of the next backward pass is to be multiplied by; 1 but for fp16. */
PS_API double ps_client_get_loss_scale(const ps_client *client);

typedef struct ps_client_step_info {
    size_t struct_size;
    int64_t step;       /* updates made, this one included */
    int32_t is_skipped; /* 1: gradients were not finite; parameters are as before */
    double grad_norm;   /* of all gradients, without loss scale, before clipping; infinite when skipped */
    double loss_scale;  /* of this step */
    int32_t is_watched; /* 1: the step went another way than the one before, or was the first */
    int64_t n_restored; /* parameters that were asked for after their gradients had overwritten them */
    int64_t n_beside;   /* gradients with memory of their own */
    int64_t n_deferred; /* chunks of this rank's whose updates wait until they are next asked for */
    int64_t n_gathered, n_gathered_ahead; /* all-gathers of groups of chunks, with several ranks; of these, begun before
                                             the group was asked for */
    int64_t n_early;                      /* chunks of this rank's that were updated within the backward pass */
} ps_client_step_info;

/* (ranks) The update of all tensors that have a gradient, averaged over the ranks: clipped, unscaled, by the
 * configured optimizer, with a count of steps for each tensor, as torch has it. Gradients are used up. With
 * memory.defer_updates, where not all chunks fit the device at once, a chunk is updated when the next forward pass,
 * or whatever reads or writes one of its tensors, asks for it: with the numbers of groups, the clipping and the count
 * of this call, so that nothing but the time is another. Where no tensor has one on any rank it is no update: the
 * count, the rates and the loss scale stay. info may be NULL. PS_ESTATE: a gradient's place is in use. PS_EBUDGET,
 * before anything has changed: beside tensors that are in use there is no room for updates. PS_EINVAL on all ranks
 * when they have gone different ways, naming a tensor that has got a gradient on one of them and none on another; one
 * that is kept apart may have. PS_ENUMERIC after train.max_nonfinite_steps skipped steps in a row that no lower loss
 * scale can help: info is filled, and the client goes on. But where early updates (ps_client_begin_last_backward) have
 * changed parameters of a step with gradients that are not finite, on some rank, PS_ENUMERIC is the end: the client can
 * only be destroyed, or with one rank load a checkpoint. */
PS_API PS_NODISCARD ps_status ps_client_step(ps_client *client, ps_client_step_info *info);

/* ---- values and states, by tensor ------------------------------------------------------------------------- */

typedef struct ps_client_tensor_info {
    size_t struct_size;
    const char *name;     /* valid as long as the client, or until ps_client_name gives another one */
    const int64_t *shape; /* likewise, [n_dims] */
    int32_t n_dims;
    int32_t is_dropped, is_frozen, is_apart;
    int64_t elements;
    int32_t group;
    int32_t owner; /* rank that keeps its fp32 value and states; of its first chunk, when it has several */
    int32_t chunk; /* the first; -1: apart, or before ps_client_begin */
    int64_t steps; /* updates made of it */
} ps_client_tensor_info;

PS_API int32_t ps_client_get_tensor_count(const ps_client *client); /* dropped ones too */
PS_API ps_status ps_client_get_tensor_info(const ps_client *client, int32_t tensor, ps_client_tensor_info *out);

/* States by the name that torch gives them, "exp_avg" and "exp_avg_sq" of Adam and AdamW, "momentum_buffer" of SGD with
 * momentum; static. NULL past the last. */
PS_API const char *ps_client_get_state_name(const ps_client *client, int32_t i);

/* n elements from `first` of a tensor's fp32 value (state NULL) or of a state, copied; what has none yet reads as the
 * parameter, and as zeros. Writing a value also changes the parameter; neither touches gradients or counts of steps.
 * (ranks): all get all that is read, each takes what it owns of what is written. PS_EINVAL, PS_ESTATE before
 * ps_client_begin, PS_EBUDGET. */
PS_API PS_NODISCARD ps_status ps_client_read(ps_client *client, int32_t tensor, const char *state, int64_t first,
                                             int64_t n, float *out);
PS_API PS_NODISCARD ps_status ps_client_write(ps_client *client, int32_t tensor, const char *state, int64_t first,
                                              int64_t n, const float *in);

/* Go on with a run that was saved: counts of updates, of a tensor, and of the schedule of rates (tensor -1). */
PS_API PS_NODISCARD ps_status ps_client_set_steps(ps_client *client, int32_t tensor, int64_t steps);
PS_API int64_t ps_client_get_steps(const ps_client *client, int32_t tensor);
/* The scaler of fp16 as a text of JSON, for what a program saves; the caller frees it by ps_free. */
PS_API PS_NODISCARD ps_status ps_client_get_scaler(const ps_client *client, char **json);
/* PS_EFORMAT: no such text; PS_EINVAL: a state that the scaler cannot have. */
PS_API PS_NODISCARD ps_status ps_client_set_scaler(ps_client *client, const char *json);

/* ---- checkpoints ------------------------------------------------------------------------------------------ */

/* What goes into a checkpoint beside tensors, counts, numbers of groups and loss scale. */
typedef struct ps_client_checkpoint {
    size_t struct_size;
    const char *tag;   /* name of its folder: up to 31 letters, digits, '.', '_', '-'; NULL: "step-000100" */
    int64_t keep_last; /* newest checkpoints that stay, of those named by their step; 0: all */
    const char
        *config_json; /* the model's config.json for Hugging Face's transformers, which pstar export writes; NULL */
    const char *caller_json; /* an object of JSON that ps_client_load_checkpoint gives back; NULL */
    const void *extra;   /* [extra_bytes] this rank's own: buffers, generators, in any format; kept with a hash in a */
    int64_t extra_bytes; /* file "extra-<rank>-of-<ranks>.pt"; NULL and 0: none */
} ps_client_checkpoint;

/* (ranks) Save the state as it is now, as ps_engine_save_checkpoint does for an engine, in the same files
 * (doc/checkpoints.md): parameters by name with their fp32 values and states, one file of each kind a rank. what
 * NULL: no more than that. info may be NULL. PS_ESTATE on all ranks where a tensor of one has a gradient, which would
 * be lost. PS_EIO when it could not be written: there is no new checkpoint then, those before are as they were, and
 * training can go on. */
PS_API PS_NODISCARD ps_status ps_client_save_checkpoint(ps_client *client, const char *folder,
                                                        const ps_client_checkpoint *what, ps_checkpoint_info *info);

/* (ranks) The same while training goes on: what is saved is the state at begin, whatever is trained or written
 * afterwards. Each chunk is handed to a thread that writes when it is next updated; with train.save_interval > 0
 * through memory.save_buffer, a part of the budgets, else the update waits for the write. What no update has handed
 * over is read by finish. One at a time (PS_ESTATE); ps_client_destroy gives up one that is not finished. */
PS_API PS_NODISCARD ps_status ps_client_begin_checkpoint(ps_client *client, const char *folder,
                                                         const ps_client_checkpoint *what);
/* (ranks) 1: finish would not wait, as all ranks' files are written, or have failed, or none is under way. 0 also
 * after a failure of the communicator. */
PS_API int ps_client_checkpoint_is_done(ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_finish_checkpoint(ps_client *client, ps_checkpoint_info *info);

/* What was found there; texts are freed by ps_free. */
typedef struct ps_client_loaded {
    size_t struct_size;
    int64_t step;      /* calls of ps_client_step when it was saved */
    int32_t n_ranks;   /* that saved it */
    char *path;        /* its own folder */
    char *caller_json; /* NULL: none */
    /* this rank's extra file, with as many ranks as have saved; with others that of rank modulo n_ranks. NULL: none */
    char *extra_path;
} ps_client_loaded;

/* (ranks) Go on from a checkpoint, its own folder or the folder whose "latest" names it: values, states and counts of
 * tensors by name, what a program has set of groups, loss scale. Budgets, chunk size, number format and number of
 * ranks may differ. A checkpoint of pstar is read too. Before the first step or between steps (PS_ESTATE with
 * gradients). PS_EINVAL: other tensors, shapes, optimizer or sizes of groups; PS_EIO, PS_EFORMAT naming the file.
 * Nothing has changed then, unless a file turns out to be damaged while it is read, after which the client can only
 * be destroyed, or with one rank load another checkpoint. */
PS_API PS_NODISCARD ps_status ps_client_load_checkpoint(ps_client *client, const char *folder, ps_client_loaded *out);

/* ---- looking in ------------------------------------------------------------------------------------------- */

typedef struct ps_client_info {
    size_t struct_size;
    ps_dtype dtype; /* of PS_CLIENT_PARAM */
    int32_t gpu;    /* that computes, by its number for CUDA; -1: the processor does */
    int32_t rank, n_ranks;
    int32_t n_chunks; /* of a list */
    int64_t chunk_elements;
    int64_t parameters;       /* elements in chunks */
    int64_t model_data_bytes; /* parameters, fp32 values and states of what has them: what chunks would take together */
    int64_t budget_bytes[3], used_bytes[3], peak_bytes[3]; /* device, host, disk; of the first two with what is in use
                                                              besides chunks */
    int64_t framework_bytes, framework_peak_bytes; /* of the device's use: the framework's own, as told or measured */
    int64_t moved_bytes[4];                        /* host to device, device to host, disk read, disk written */
    int64_t sent_bytes;                            /* to other ranks */
    int64_t wait_ns;                               /* callers stood still for copies */
    int64_t n_steps, n_watched_steps;              /* calls of ps_client_step, and those of them that set is_watched */
    int64_t n_moments;                             /* of the step that the schedule is of */
} ps_client_info;

PS_API ps_status ps_client_get_info(const ps_client *client, ps_client_info *out);

/* Use by chunk list ("PARAM16", "MASTER", ...), the framework's own, and others; together what is in use. Index from 0;
 * PS_EINVAL behind the last one. */
PS_API ps_status ps_client_get_memory_use(const ps_client *client, int index, ps_memory_use *out);

/* Record what happens from now on: memory by tier, moves of chunks, moments, waits. _save writes a file of Perfetto's
 * that `pstar report` draws. PS_ESTATE: nothing recorded, or recording already. */
PS_API PS_NODISCARD ps_status ps_client_profile_start(ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_profile_stop(ps_client *client);
PS_API PS_NODISCARD ps_status ps_client_profile_save(ps_client *client, const char *path);

#ifdef __cplusplus
}
#endif
#endif
