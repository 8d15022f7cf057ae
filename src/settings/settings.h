/* settings.h - what the engine takes from a configuration, copied at initialisation: the engine keeps no pointer into
 * it. */
#ifndef PS_SETTINGS_SETTINGS_H
#define PS_SETTINGS_SETTINGS_H

#include "chunk/store.h"
#include "comm/chunk_ranks.h"
#include "config/config.h"
#include "config/param_groups.h"
#include "cuda/open.h"
#include "device/async.h"
#include "device/disk_folders.h"
#include "graph/code.h"
#include "kernel/cpu_kind.h"
#include "optim/loss_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "settings/rates.h"

typedef enum ps_backend_kind {
    PS_BACKEND_CPU,
    PS_BACKEND_CUDA,
    PS_BACKEND_REF,
    PS_BACKEND_CPU_ASYNC, /* debug builds */
    PS_BACKEND_SIM,       /* plans for devices that are not here */
} ps_backend_kind;

const char *ps_backend_kind_name(ps_backend_kind kind); /* as of train.backend */

/* Which this is of the ranks that see the same GPUs of one machine: they take one each, in turn. */
typedef struct ps_gpu_turn {
    int32_t number, n_ranks;
} ps_gpu_turn;

/* The GPU of PS_BACKEND_CUDA. */
typedef struct ps_settings_gpu {
    ps_gpu_turn turn;
    ps_cuda_found found; /* n_gpus 0: none */
    ps_status status;    /* PS_OK: it can be used, or was not looked for */
    char why_not[512];   /* else why, in one line */
    int32_t ordinal;     /* among those that CUDA_VISIBLE_DEVICES leaves */
    int32_t n_sharers;   /* ranks that compute on it */
    ps_cuda_attention_choice attention;
} ps_settings_gpu;

/* What brings chunks from GPU to GPU; else messages do. */
typedef struct ps_settings_nccl {
    bool is_used;
    bool adds;         /* by its own reductions */
    char why_not[512]; /* comm.collectives = auto on several GPUs: in one line; "": not asked */
} ps_settings_nccl;

#define PS_SETTINGS_FOLDER_BYTES 4096
#define PS_SETTINGS_PATTERNS_BYTES 4096
#define PS_SETTINGS_GROUPS_MAX (1 + PS_PARAM_GROUPS_MAX)

/* Parameters with options of the optimizer of their own: optimizer.param_groups. */
typedef struct ps_settings_group {
    int32_t patterns; /* where those of its parameters begin in ps_settings.group_patterns */
    ps_optimizer_setup optimizer;
    ps_lr_schedule lr;
    bool decays_all; /* biases and norms too */
} ps_settings_group;

/* What the configuration bounds RAM by. */
typedef enum ps_memory_dial {
    PS_DIAL_MACHINE, /* by nothing: budgets are a share of what the machine has */
    PS_DIAL_TOTAL,   /* by memory.total */
    PS_DIAL_TIERS,   /* by memory.device or memory.host */
} ps_memory_dial;

/* Where budgets come from. */
typedef struct ps_settings_memory {
    ps_memory_dial dial;
    int64_t total_bytes;          /* PS_DIAL_TOTAL: memory.total */
    int64_t process_bytes;        /* what the process itself takes of it: ps_settings_process_bytes */
    int64_t available_bytes;      /* PS_DIAL_MACHINE: of RAM, when it was read, for all ranks of the machine */
    bool is_share[PS_TIER_COUNT]; /* the budget is one of what the machine has: its ranks divide it */
    int64_t spare_disk_bytes;     /* for a disk tier that is used if RAM does not suffice; 0: none */
    bool uses_spare_disk;         /* it is: ps_settings_take_spare_disk */
    char disk_note[256];          /* why the folder is not the one that was meant; "": it is */
    ps_status status;  /* PS_OK, or what this machine's budgets cannot be for; it may be planned for another */
    char why_not[512]; /* in one line */
} ps_settings_memory;

typedef struct ps_settings {
    bool training; /* false: inference */
    int64_t B, T, accumulation;
    ps_config_loss_average loss_average; /* as configured; an engine may go on by a checkpoint's */
    int64_t cache_positions;             /* inference: tokens whose keys and values are kept; 0: none */
    ps_dtype dtype;
    uint64_t seed;
    ps_backend_kind backend_kind;
    ps_settings_gpu gpu;
    ps_settings_nccl nccl;
    bool measures_products, asks_for_first_products; /* of PS_BACKEND_CUDA: train.product_algorithms (products.h) */
    bool keeps_products;                             /* measures only what can be kept */
    char cache_folder[PS_SETTINGS_FOLDER_BYTES];     /* where what is measured is kept; "": nowhere */
    ps_async_options async;                          /* of PS_BACKEND_CPU_ASYNC */
    bool checks_order;                               /* of tests: what is issued goes by a checker (device/order.h) */
    ps_sim_options sim;                              /* of PS_BACKEND_SIM */
    ps_cpu_isa isa;    /* of the processor's kernels, but for PS_BACKEND_REF and PS_BACKEND_SIM */
    bool is_described; /* plans: kernels are those of `processor`, which is not this machine's */
    ps_cpu_kind processor;
    bool same_bits;      /* on every processor from AVX2 on */
    bool plans_only;     /* nothing will be computed: no threads are started */
    int threads;         /* >= 1 */
    ps_backend *backend; /* NULL until ps_settings_open_backend; copies of the settings borrow it */
    ps_ranks ranks;
    ps_rates rates;

    ps_budgets budgets;
    ps_settings_memory memory;
    const ps_policy *policy;
    int32_t prefetch; /* this and wait_at_once as in ps_store_desc */
    bool wait_at_once, keep_freed_memory;
    ps_disk_backend disk_backend;
    int queue_depth;
    char disk_folders[PS_DISK_FOLDERS_BYTES]; /* disk_folders.h */

    bool fp32_gradients;        /* never over their parameters */
    double gradient_predivide;  /* > 0: losses are divided by it, sums of gradients by ranks.n / gradient_predivide */
    int64_t comm_staging_bytes; /* of the communicator, or of the device: with nccl */

    int64_t chunk_elements; /* 0: search */
    bool embedding_on_host, hybrid_updates;
    double unscheduled_share; /* of the device budget: what chunks may take while there is no schedule */
    bool static_partition;    /* and when there is one */
    double margin_share;      /* of the margin: what optimizer data may take */
    bool checkpointing;
    int32_t n_checkpoints; /* as in ps_code_options */
    bool offloads_inputs;  /* of checkpoint segments, as in ps_code_options */

    ps_loss_scaler_options scaler;           /* static 1 for f32 and bf16 */
    int64_t max_nonfinite_steps;             /* 0: any number */
    char frozen[PS_SETTINGS_PATTERNS_BYTES]; /* train.freeze */
    ps_optimizer_setup optimizer;
    ps_settings_group groups[PS_SETTINGS_GROUPS_MAX]; /* the first: all parameters that are in no other */
    int32_t n_groups;                                 /* >= 1 */
    char group_patterns[PS_SETTINGS_PATTERNS_BYTES];  /* of all groups, each list with a NUL behind it; first "" */
    double clip_norm;
    bool defer_updates;
    bool may_update_early;     /* an update needs nothing that only the end of the backward pass shows */
    bool always_updates_early; /* and no other way is wanted */
    ps_keep_logits keep_logits;
    int32_t placement_trials; /* made at most for a faster blueprint than the first one that fits */

    int64_t save_buffer_bytes; /* as configured: PS_BYTES_AUTO, or fixed; 0 when nothing is saved while training */
    int64_t staging_bytes;     /* in force: the tiers hold a block of this size */
    int64_t keep_checkpoints;  /* 0: all */

    char profile_path[1024];  /* "": no profile */
    int64_t profile_steps[2]; /* first and last */
    char config_name[256];    /* of the configuration's file, cut; "": none */
} ps_settings;

/* Resolves "auto": what computes, a GPU if there is one that can be used; budgets, from the memory that the machine and
 * its control groups leave. Rates are those of the option `hardware`. */
PS_NODISCARD ps_status ps_settings_read(const ps_config *config, bool training, ps_settings *out);
/* The same as one of comm's ranks, all of which call: of GPUs none but its own is opened, since others may have theirs
 * for themselves. What fails here, fails on this rank only. NULL: alone. ps_settings_join comes next. */
PS_NODISCARD ps_status ps_settings_read_of_rank(const ps_config *config, bool training, ps_comm *comm,
                                                ps_settings *out);

/* What train.isa asks for, which may be more than the processor has; with "auto" the best that it has. */
ps_cpu_isa ps_settings_isa(const ps_options *o);
ps_cuda_attention_choice ps_settings_attention(const ps_options *o);

/* What is computed in. */
ps_dtype ps_settings_dtype(const ps_options *o);

/* Where the disk tier has its files (disk_folders.h): memory.disk_path, or what its "" stands for. */
const char *ps_settings_disk_folders(const ps_options *o);
/* The same before budgets are known: also where the disk tier is going to be that memory.disk = auto makes when RAM does
 * not suffice. */
const char *ps_settings_likely_disk_folders(const ps_config *config);

/* What a process has in RAM beside its tiers: what is resident now, in steps of 8 MB, so that a plan and the run that
 * follows it come to the same; and what will come: plans, stacks of threads, buffers of files and messages. With
 * memory.total the budgets of the tiers are what this leaves. */
int64_t ps_settings_process_bytes(int64_t resident_bytes, int threads);

/* The memory.total that gives the tiers at least these budgets, with some room for a process that has grown by the next
 * start. Of a GPU's memory nothing is in it. */
int64_t ps_settings_total_for(const ps_settings *s, int64_t device_bytes, int64_t host_bytes);

/* Does memory.total give the budgets of all tiers in RAM, so that none of them can be given beside it? Not of a GPU. */
bool ps_settings_is_total(const ps_settings *s);

/* RAM does not suffice: from now on there is the disk tier that memory.disk = auto allows. False: there is none to be
 * had, or it is there already. The same on all ranks. */
bool ps_settings_take_spare_disk(ps_settings *s);

/* Which budgets were chosen, and why, in at most two lines without a newline at the end; "" where the configuration gives
 * those of all tiers. Returns text. */
enum { PS_SETTINGS_MEMORY_TEXT_MAX = 1024 };
const char *ps_settings_describe_memory(const ps_settings *s, char text[PS_SETTINGS_MEMORY_TEXT_MAX]);

/* Does this machine have what a plan puts on its tiers? planned_bytes: of one rank, at most at a time; n_sharers: ranks
 * on this machine. PS_EBUDGET naming the option, both numbers and the remedy; PS_EIO for a folder of the disk tier that
 * cannot be asked. */
PS_NODISCARD ps_status ps_settings_check_capacity(const ps_settings *s, const int64_t planned_bytes[PS_TIER_COUNT],
                                                  int32_t n_sharers);

/* What memory.save_buffer asks for: the size configured, of at least 16 KiB, as smaller pieces are not worth a system
 * call; with "auto" 8 MiB, where there is room for them; 0 when nothing is saved while training. */
int64_t ps_settings_save_buffer_bytes(const ps_settings *s);

/* For ps_decode: one sequence, passes of a few tokens, and keys and values kept. */
void ps_settings_use_cache(ps_settings *s, const ps_config *config);

/* This process is rank `rank` of n: what depends on their number is resolved. PS_EINVAL when train_batch_size does not
 * agree. */
PS_NODISCARD ps_status ps_settings_set_ranks(ps_settings *s, const ps_config *config, int32_t rank, int32_t n);

/* How a configuration's section "comm" wants the communicator. */
ps_comm_options ps_settings_comm_options(const ps_config *config);

/* As one of comm's ranks, all of which call. Where the configuration says "auto" the ranks of a machine share its
 * memory and its cores; budgets are the smallest of all ranks', so that all plan the same. */
PS_NODISCARD ps_status ps_settings_join(ps_settings *s, const ps_config *config, ps_comm *comm);

/* Plan as rank `rank` of n on one machine without any of the others: the shares of the machine that ps_settings_join
 * would give. PS_EINVAL when there is no such rank. */
PS_NODISCARD ps_status ps_settings_imagine(ps_settings *s, const ps_config *config, int32_t rank, int32_t n);

/* Plan for other machines than this one: a rank for each device, their rates, and their memory, instruction set and
 * threads where the configuration says "auto". The backend becomes the simulated one when the devices are GPUs.
 * PS_EINVAL naming the key; PS_ENOSYS: train.isa is above the instruction set of these machines. */
PS_NODISCARD ps_status ps_settings_use_hardware(ps_settings *s, const ps_config *config, const ps_hardware *hw);

/* What each rank on the GPU of PS_BACKEND_CUDA can use of its memory at most: each loads kernels and libraries too. */
int64_t ps_settings_gpu_share_bytes(const ps_settings *s);

/* In one line which options were given values that only a GPU has a use for, where none computes; "": there are none. */
void ps_settings_list_unused(const ps_settings *s, const ps_options *o, char *out, size_t out_bytes);

/* Create s->backend, by which plans are measured and steps computed: once the number of threads is final. PS_ENOSYS
 * when the system starts fewer, or a GPU was asked for and cannot be used. */
PS_NODISCARD ps_status ps_settings_open_backend(ps_settings *s);
void ps_settings_close_backend(ps_settings *s); /* none open is accepted */
/* Granularity of the memory that it computes in: of payloads, activations and budgets. */
static inline int64_t ps_settings_page_bytes(const ps_settings *s)
{
    return ps_backend_space(s->backend)->page_bytes;
}

/* Of nccl.is_used, when the backend is open, called by all ranks: what brings chunks from rank to rank by this queue of
 * the backend's device and so much staging memory there. Errors as of ps_nccl_collectives_open. */
PS_NODISCARD ps_status ps_settings_open_nccl(const ps_settings *s, ps_queue *queue, void *staging,
                                             int64_t staging_bytes, ps_collectives **out);

/* Memory that the communicator holds, of ps_tiers_staging_tier; with nccl of the device. */
static inline int64_t ps_settings_comm_bytes(const ps_settings *s)
{
    return s->ranks.n > 1 ? s->comm_staging_bytes : 0;
}

/* Does it compute where the host cannot touch memory? */
static inline bool ps_settings_is_apart(const ps_settings *s)
{
    return s->backend_kind == PS_BACKEND_CUDA || s->backend_kind == PS_BACKEND_CPU_ASYNC;
}

/* How the program is to be planned with these settings; holds pointers into them. */
ps_code_options ps_settings_code_options(const ps_settings *s);

#endif
