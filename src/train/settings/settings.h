/* settings.h - the engine's settings, copied from a configuration at initialisation: no pointer into it is kept. */
#ifndef PS_SETTINGS_SETTINGS_H
#define PS_SETTINGS_SETTINGS_H

#include "chunk/comm/chunk_ranks.h"
#include "chunk/store.h"
#include "config/config.h"
#include "config/config_param_groups.h"
#include "device/cuda/gpu_choice.h"
#include "device/cuda/nccl_choice.h"
#include "device/stall.h"
#include "kernel/cpu_kind.h"
#include "train/graph/code.h"
#include "train/optim/loss_scaler.h"
#include "train/optim/lr_schedule.h"
#include "train/optim/optimizer.h"
#include "train/settings/throughput.h"
#include "train/settings/tier_options.h"

typedef enum ps_backend_kind {
    PS_BACKEND_CPU,
    PS_BACKEND_CUDA,
    PS_BACKEND_REF,
    PS_BACKEND_SIM, /* plans for devices of another machine */
} ps_backend_kind;

const char *ps_backend_kind_name(ps_backend_kind kind); /* as of train.backend */

#define PS_SETTINGS_PATTERNS_BYTES 4096
#define PS_SETTINGS_GROUPS_MAX (1 + PS_PARAM_GROUPS_MAX)

/* A parameter group: parameters with separate options of the optimizer: optimizer.param_groups. */
typedef struct ps_settings_group {
    int32_t patterns; /* offset of its patterns in ps_settings.group_patterns */
    ps_optimizer_setup optimizer;
    ps_lr_schedule lr;
    bool decays_all;                    /* biases and norms too */
    const char *of_whole, *of_elements; /* as of ps_config_param_group */
} ps_settings_group;

/* How the configuration limits RAM. */
typedef enum ps_memory_limit_kind {
    PS_LIMIT_MACHINE, /* not: budgets are a share of the machine's memory */
    PS_LIMIT_TOTAL,   /* by memory.total */
    PS_LIMIT_TIERS,   /* by memory.device or memory.host */
} ps_memory_limit_kind;

/* The source of budgets. */
typedef struct ps_settings_memory {
    ps_memory_limit_kind limit_kind;
    int64_t total_bytes;          /* PS_LIMIT_TOTAL: memory.total */
    int64_t process_bytes;        /* the part for the process itself: ps_settings_process_bytes */
    int64_t available_bytes;      /* PS_LIMIT_MACHINE: available RAM, when it was read, for all ranks of the machine */
    bool is_share[PS_TIER_COUNT]; /* the budget is a share of the machine's: its ranks divide it */
    ps_tier split;            /* the tier whose option gives the budgets of both tiers in RAM; PS_TIER_COUNT: none */
    int64_t spare_disk_bytes; /* of a disk tier that is used if RAM does not suffice; 0: none */
    bool uses_spare_disk;     /* it is in use: ps_settings_take_spare_disk */
    char disk_note[256];      /* why another folder is used than the preferred one; "": it is that */
    ps_status status;  /* PS_OK, or why budgets of this machine are impossible; plans for another machine are not */
    char why_not[512]; /* in one line */
} ps_settings_memory;

/* How a step is carried out whose speculative updates turn out to be wrong. */
typedef enum ps_wrong_steps {
    PS_WRONG_STEPS_AUTO,       /* whichever is estimated to be faster */
    PS_WRONG_STEPS_KEEP_GRADS, /* by gradients that were kept */
    PS_WRONG_STEPS_RECOMPUTE,  /* by second passes: the tiers have no list KEPT_GRAD */
} ps_wrong_steps;

typedef struct ps_settings {
    bool training; /* false: inference */
    int64_t B, T, accumulation;
    ps_config_loss_average loss_average; /* as configured; a checkpoint may override it */
    int64_t cache_positions;             /* inference: tokens of the KV cache; 0: none */
    ps_dtype dtype;
    uint64_t seed;
    ps_backend_kind backend_kind;
    ps_gpu_choice gpu; /* of PS_BACKEND_CUDA */
    ps_nccl_choice nccl;
    int64_t stall_ns;   /* nothing goes on for so long: it is reported (device/stall.h); 0: never */
    bool checks_order;  /* for tests: a checker observes what is issued (device/order.h) */
    ps_sim_options sim; /* of PS_BACKEND_SIM */
    ps_cpu_isa isa;     /* of the processor's kernels, except for PS_BACKEND_REF and PS_BACKEND_SIM */
    bool is_described;  /* plans: kernels are those of `processor`, another machine's */
    ps_cpu_kind processor;
    bool same_bits;      /* on every processor from AVX2 on */
    bool plans_only;     /* never computes: starts no threads */
    int threads;         /* >= 1 */
    ps_backend *backend; /* NULL until ps_settings_open_backend; copies of the settings borrow it */
    ps_ranks ranks;
    ps_throughput throughput;

    ps_budgets budgets;
    ps_settings_memory memory;
    ps_tier_options tiers;

    bool fp32_gradients;        /* never overwrite their parameters */
    double gradient_predivide;  /* > 0: losses are divided by it, sums of gradients by ranks.n / gradient_predivide */
    int64_t comm_staging_bytes; /* of the communicator, or of the device: with nccl */

    int64_t chunk_elements; /* 0: search */
    bool embedding_on_host, hybrid_updates;
    double unscheduled_share; /* share of the device budget for chunks while there is no schedule */
    bool static_partition;    /* and with a schedule: placement "cpu" */
    double margin_share;      /* share of the margin for optimizer data */
    bool checkpointing;
    int32_t n_checkpoints; /* as in ps_code_options */
    bool offloads_inputs;  /* of checkpoint segments, as in ps_code_options */

    ps_loss_scaler_options scaler;           /* static 1 for f32 and bf16 */
    int64_t max_nonfinite_steps;             /* 0: any number */
    char frozen[PS_SETTINGS_PATTERNS_BYTES]; /* train.freeze */
    ps_adapter_choice adapters;              /* lora */
    ps_quant frozen_format;                  /* model.frozen_format */
    ps_optimizer_setup optimizer;
    char updated_by_elements[PS_SETTINGS_PATTERNS_BYTES]; /* optimizer.params.adamw_names */
    bool names_updated_by_elements; /* given, so that each is of a tensor; the default has names of all families */
    ps_settings_group groups[PS_SETTINGS_GROUPS_MAX]; /* the first: all parameters of no other group */
    int32_t n_groups;                                 /* >= 1 */
    char group_patterns[PS_SETTINGS_PATTERNS_BYTES];  /* of all groups, each list with a NUL after it; first "" */
    double clip_norm;
    bool defer_updates;
    bool may_update_early;     /* no clipping, no loss scale of fp16, and no skipped steps (max_nonfinite_steps = 1) */
    bool always_updates_early; /* and only early updates are permitted */
    bool may_speculate; /* early updates are allowed that are taken back when the step turns out to be clipped or not
                         * finite; in the engine never with may_update_early */
    bool wants_speculation;     /* ... by name, not by auto */
    ps_wrong_steps wrong_steps; /* of later shapes as of the first one that was planned */
    int64_t batch_copies_bytes; /* of copies of a step's micro-batches, with which passes can be made again, where
                                 * updates may be speculative; 0: they cannot */
    ps_keep_logits keep_logits;
    bool takes_first_plan; /* use the first plan that fits */

    int64_t save_buffer_bytes; /* as configured: PS_BYTES_AUTO, or fixed; 0 when nothing is saved while training */
    int64_t staging_bytes;     /* in use: the tiers have a block of this size */
    int64_t keep_checkpoints;  /* 0: all */

    char profile_path[1024];  /* "": no profile */
    int64_t profile_steps[2]; /* first and last */
    char config_name[256];    /* name of the configuration's file, truncated; "": none */
} ps_settings;

/* Resolves "auto": the backend, a GPU if a usable one is found; budgets, from the free memory of the machine and its
 * control groups. Throughput is that of the option `hardware`. */
PS_NODISCARD ps_status ps_settings_read(const ps_config *config, bool training, ps_settings *out);
/* The same as one of comm's ranks, all of which call: only this rank's GPU is opened, since other ranks may use theirs
 * exclusively. A failure is one of this rank only. NULL: a single rank. ps_settings_join comes next. */
PS_NODISCARD ps_status ps_settings_read_of_rank(const ps_config *config, bool training, ps_comm *comm,
                                                ps_settings *out);

/* The value of train.isa, which may be more than the processor has; with "auto" the best that it has. */
ps_cpu_isa ps_settings_isa(const ps_options *o);
ps_cuda_attention_choice ps_settings_attention(const ps_options *o);

/* The type of computation. */
ps_dtype ps_settings_dtype(const ps_options *o);

/* ps_tier_options_disk_folders before budgets are known: also the folder of the disk tier that memory.disk = auto
 * creates when RAM does not suffice. */
const char *ps_settings_likely_disk_folders(const ps_config *config);

/* RAM of a process outside of its tiers: resident memory now, in steps of 8 MB, so that a plan and the run after it get
 * the same number; and later allocations: plans, stacks of threads, buffers of files and messages. With memory.total
 * the budgets of the tiers are the rest. */
int64_t ps_settings_process_bytes(int64_t resident_bytes, int threads);

/* Both tiers are one memory of `bytes`: the device has all of it, or half if the host is needed. */
void ps_settings_split(const ps_settings *s, int64_t bytes, ps_budgets *out);

/* The memory.total that gives the tiers at least these budgets, with some room for growth of the process until the next
 * start. It does not include GPU memory. */
int64_t ps_settings_total_for(const ps_settings *s, int64_t device_bytes, int64_t host_bytes);

/* Does memory.total determine the budgets of all tiers in RAM, so that these cannot be set separately? Not of a GPU. */
bool ps_settings_is_total(const ps_settings *s);

/* Is memory.total no more than the process itself takes? Then no model fits. */
bool ps_settings_is_total_used_up(const ps_settings *s);

/* PS_EBUDGET if so, with what the process takes: for callers that do not know the model yet. */
PS_NODISCARD ps_status ps_settings_check_total(const ps_settings *s);

/* Called when RAM does not suffice: from now on the disk tier that memory.disk = auto allows is used. False: there is
 * none, or it is in use already. The same on all ranks. */
bool ps_settings_take_spare_disk(ps_settings *s);

/* The chosen budgets, and the reason, in at most two lines without a newline at the end; "" where the configuration
 * sets those of all tiers. Returns text. */
enum { PS_SETTINGS_MEMORY_TEXT_MAX = 1024 };
const char *ps_settings_describe_memory(const ps_settings *s, char text[PS_SETTINGS_MEMORY_TEXT_MAX]);

/* Does this machine have the memory and disk space for a plan's tiers? planned_bytes: peak of one rank; n_sharers:
 * ranks on this machine. PS_EBUDGET naming the option, both numbers and the remedy; PS_EIO for a folder of the disk
 * tier that cannot be examined. */
PS_NODISCARD ps_status ps_settings_check_capacity(const ps_settings *s, const int64_t planned_bytes[PS_TIER_COUNT],
                                                  int32_t n_sharers);

/* The size that memory.save_buffer requests: the configured one, of at least 16 KiB, as smaller pieces are not worth a
 * system call; with "auto" 8 MiB, where there is room; 0 when nothing is saved while training. */
int64_t ps_settings_save_buffer_bytes(const ps_settings *s);

/* The same with options of `changed`: budgets, folders of the disk tier, micro-batch, recomputation, kept logits, as a
 * new start with it would have them, from the memory that the machine had when *s was read. *s: of `config`, with its
 * ranks. Options that `changed` leaves to "auto" have "auto" in `config` too; but memory.disk, whose folder is examined
 * now. Errors as of the start. */
PS_NODISCARD ps_status ps_settings_change(ps_settings *s, const ps_config *config, const ps_config *changed);

/* For ps_decode: one sequence, passes of a few tokens, and a KV cache. */
void ps_settings_use_cache(ps_settings *s, const ps_config *config);

/* This process is rank `rank` of n: resolves what depends on their number. PS_EINVAL when train_batch_size contradicts
 * it. */
PS_NODISCARD ps_status ps_settings_set_ranks(ps_settings *s, const ps_config *config, int32_t rank, int32_t n);

/* Watches for stalls of train.stall_s, of which the ranks are told. *out NULL: that is off. */
PS_NODISCARD ps_status ps_settings_watch(const ps_settings *s, ps_stall_watch **out);

/* The options of the communicator in a configuration's section "comm". */
ps_comm_options ps_settings_comm_options(const ps_config *config);

/* As one of comm's ranks, all of which call. Where the configuration has "auto" the ranks of a machine share its memory
 * and its cores; budgets are the minimum over all ranks, so that all plan the same. */
PS_NODISCARD ps_status ps_settings_join(ps_settings *s, const ps_config *config, ps_comm *comm);

/* Plan as rank `rank` of n on one machine without running ranks: the shares of the machine are those of
 * ps_settings_join. PS_EINVAL for an invalid rank. */
PS_NODISCARD ps_status ps_settings_plan_as_rank(ps_settings *s, const ps_config *config, int32_t rank, int32_t n);

/* Plan for other machines than this one: a rank for each device, their throughput, and their memory, instruction set
 * and threads where the configuration has "auto". The backend becomes the simulated one when the devices are GPUs.
 * PS_EINVAL naming the key; PS_ENOSYS: train.isa is above the instruction set of these machines. */
PS_NODISCARD ps_status ps_settings_use_hardware(ps_settings *s, const ps_config *config, const ps_hardware *hw);

/* In one line the options that are set but only have an effect on a GPU, where none computes; "": none. */
void ps_settings_list_unused(const ps_settings *s, const ps_options *o, char *out, size_t out_bytes);

/* Create s->backend, which measures plans and computes steps: once the number of threads is final. PS_ENOSYS when the
 * system starts fewer, or a GPU was requested and cannot be used. */
PS_NODISCARD ps_status ps_settings_open_backend(ps_settings *s);
void ps_settings_close_backend(ps_settings *s); /* none open is accepted */
/* Does a GPU compute, or one that is simulated? Otherwise device and host are the same RAM. */
static inline bool ps_settings_has_gpu(const ps_settings *s)
{
    return s->backend_kind == PS_BACKEND_CUDA || s->backend_kind == PS_BACKEND_SIM;
}

/* Bandwidth of updates on the tier, of the bytes that they read and write; those whose states are not floats are bound
 * by arithmetic. */
static inline double ps_settings_update_bytes_per_s(const ps_settings *s, ps_tier tier)
{
    return (ps_optimizer_format(&s->optimizer) != PS_CONFIG_STATE_FORMAT_FP32 ? s->throughput.compact_update_bytes_per_s
                                                                              : s->throughput.update_bytes_per_s)[tier];
}

/* Do gradients that would overwrite their parameters lie beside them, in 16 bits? */
static inline bool ps_settings_separates_gradients(const ps_settings *s)
{
    return !ps_optimizer_has_whole_masters(&s->optimizer);
}

/* Of those gradients, bytes an element: none where each is used up at once. */
static inline int64_t ps_settings_separate_gradient_bytes(const ps_settings *s)
{
    return ps_settings_separates_gradients(s) && !s->always_updates_early ? (int64_t)ps_dtype_bytes(s->dtype) : 0;
}

/* May updates run within the backward pass? Then nothing that they depend on may change between it and the step, and
 * gradients and weights may not be read there: whatever each rank has planned. */
static inline bool ps_settings_updates_in_backward(const ps_settings *s)
{
    return s->may_update_early || s->may_speculate;
}

/* Page size of the backend's memory: of payloads, activations and budgets. */
static inline int64_t ps_settings_page_bytes(const ps_settings *s)
{
    return ps_backend_space(s->backend)->page_bytes;
}

/* Staging memory of the communicator, on ps_tiers_staging_tier; with nccl on the device. */
static inline int64_t ps_settings_comm_bytes(const ps_settings *s)
{
    return s->ranks.n > 1 ? s->comm_staging_bytes : 0;
}

/* Options for planning the program with these settings; holds pointers into them. */
ps_code_options ps_settings_code_options(const ps_settings *s);

#endif
