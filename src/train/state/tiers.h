/* tiers.h - the memory of training: device, host and disk with their budgets, and the store over them.
 *
 * For training they are those of the space, and a file; for a trial they are simulated: the same accounting, no
 * payloads. */
#ifndef PS_STATE_TIERS_H
#define PS_STATE_TIERS_H

#include "chunk/store.h"
#include "device/order.h"
#include "device/sim_time.h"
#include "train/settings/tier_options.h"

struct ps_settings;

typedef struct ps_tiers {
    ps_device *ram[PS_RAM_TIER_COUNT];
    ps_queue *compute[PS_RAM_TIER_COUNT]; /* for kernels on the tier */
    bool computes_on_external;            /* compute[PS_TIER_DEVICE] is the space's external queue, and is not
                                           * destroyed */
    ps_disk *disk;                        /* NULL: none */
    int64_t disk_budget_bytes;
    ps_store *store;
    ps_profile *profile; /* NULL: none */
    ps_sim_time *time;   /* of a trial on an asynchronous device: time of its queues; NULL: none */
    ps_tier staging_tier;
    int64_t staging_bytes;
    ps_tier comm_staging_tier;
    int64_t comm_staging_bytes;
    void *staging; /* a block for pieces of a checkpoint that is written; NULL: none */
    /* A block for pieces between ranks, where the host cannot access the device; NULL: the communicator has allocated
     * it, and it is counted here. */
    void *comm_staging;
    void *cache; /* a block of the device for the KV cache; NULL: none */
    int64_t cache_bytes;
    void *batch_copies; /* a block of the staging tier for the micro-batches of a step; NULL: none */
    int64_t batch_copies_bytes;
    void *host_block; /* of the host tier: activations of the host's kernels; NULL: none */
    int64_t host_block_bytes;
    void *results; /* a block of the device for sums of kernels (results.h); NULL: none */
    int64_t results_bytes;
    void *unmanaged; /* a block of the device for unmanaged tensors, outside of chunks; NULL: none */
    int64_t unmanaged_bytes;
    void *update_scratch[PS_RAM_TIER_COUNT]; /* blocks for updates of whole tensors; NULL: none */
    int64_t update_scratch_bytes[PS_RAM_TIER_COUNT];
} ps_tiers;

typedef struct ps_tiers_desc {
    bool simulated; /* no memory, but the same calls as on: */
    const ps_space *space;
    ps_budgets budgets;
    const ps_tier_options *options; /* must outlive the call */
    const ps_layout *layout;
    ps_lists lists;
    const ps_link_bandwidths *throughput; /* must outlive the call */
    int64_t staging_bytes;                /* 0: none */
    int64_t comm_staging_bytes;           /* of a communicator; 0: none */
    bool comm_on_device;                  /* in device memory, from which it sends */
    int64_t batch_copies_bytes;           /* of the micro-batches of a step; 0: none */
    int64_t cache_bytes;                  /* of the KV cache, on the device; 0: none */
    int64_t host_block_bytes;             /* of instructions that the host computes (ps_code.host_bytes); 0: none */
    int64_t results_bytes;                /* of sums of kernels, where the host cannot access the device; 0: none */
    int64_t unmanaged_bytes;              /* of unmanaged tensors, on the device; 0: none */
    int64_t update_scratch_bytes[PS_RAM_TIER_COUNT]; /* for updates of whole tensors on each tier; 0: none */
    bool counts_non_model;                           /* as in ps_store_desc */
    int32_t n_keeping;                               /* as in ps_store_desc, of the optimizer's data */
    ps_list keeping_first;                           /* as there: ps_lists_first_kept */
    ps_profile *profile;                             /* must outlive the tiers; NULL: none */
    ps_order *order; /* checks the order of all that is issued here; must outlive the tiers. NULL: none */
} ps_tiers_desc;

/* Estimated time of a trial: its clock, and sums. On an asynchronous device it is that of the queues, else the store's
 * timeline, on which the host's time is computing. */
const int64_t *ps_tiers_clock(const ps_tiers *t);
ps_sim_sums ps_tiers_sums(const ps_tiers *t);

/* The tier with the staging blocks: the host, or the device where there is no host tier and the host can access it. */
ps_tier ps_tiers_staging_tier(const ps_space *space, const ps_budgets *budgets);

/* Tiers as in the settings, which must outlive them; with blocks for a checkpoint and messages, and no other. */
ps_tiers_desc ps_tiers_desc_of(const struct ps_settings *s, const ps_budgets *budgets, const ps_layout *layout,
                               const ps_lists *lists);

/* The bytes of the tiers outside of chunks: blocks, in whole pages. */
void ps_tiers_count_blocks(const ps_tiers_desc *o, int64_t bytes[PS_RAM_TIER_COUNT]);

/* layout must outlive the tiers. On failure *t is empty. PS_EBUDGET when a tier cannot hold one of its blocks. */
PS_NODISCARD ps_status ps_tiers_open(const ps_tiers_desc *o, ps_tiers *t);
void ps_tiers_close(ps_tiers *t); /* an empty one is accepted */

#endif
