/* tiers.h - the memory that training may use: device, host and disk with their budgets, and the store over them.
 *
 * For training they are those of the space, and a file; for a trial they are simulated: the same accounting, no
 * payloads. */
#ifndef PS_STATE_TIERS_H
#define PS_STATE_TIERS_H

#include "chunk/store.h"
#include "device/order.h"
#include "device/sim_time.h"

struct ps_settings;

typedef struct ps_tiers {
    ps_device *ram[PS_RAM_TIER_COUNT];
    ps_queue *compute[PS_RAM_TIER_COUNT]; /* kernels on what lies on the tier */
    bool computes_on_foreign;             /* compute[PS_TIER_DEVICE] is the space's, and stays */
    ps_disk *disk;                        /* NULL: none */
    int64_t disk_budget_bytes;
    ps_store *store;
    ps_profile *profile; /* NULL: none */
    ps_sim_time *time;   /* of a trial on a device that works later: what its queues would take; NULL: none */
    ps_tier staging_tier;
    int64_t staging_bytes;
    ps_tier comm_staging_tier;
    int64_t comm_staging_bytes;
    void *staging; /* a block for pieces on their way into a checkpoint; NULL: none */
    /* A block for pieces on their way from rank to rank, where the host cannot touch the device; NULL: the communicator
     * has its own, which is counted here. */
    void *comm_staging;
    void *cache; /* a block of the device for keys and values of a text; NULL: none */
    int64_t cache_bytes;
    void *host_block; /* of the host tier: in which the host's kernels compute what activations need; NULL: none */
    int64_t host_block_bytes;
    void *results; /* a block of the device for what kernels sum up (results.h); NULL: none */
    int64_t results_bytes;
    void *apart; /* a block of the device for tensors that are kept out of chunks; NULL: none */
    int64_t apart_bytes;
} ps_tiers;

typedef struct ps_tiers_options {
    bool simulated; /* no memory, but what is asked of it is as on: */
    const ps_space *space;
    ps_budgets budgets;
    const char *disk_folders;
    ps_disk_backend disk_backend;
    int queue_depth;
    bool keep_freed_memory;
    const ps_layout *layout;
    ps_lists lists;
    const ps_policy *policy;
    int32_t prefetch; /* this and the next two as in ps_store_desc */
    bool spares_writes, wait_at_once;
    const ps_link_rates *rates; /* must outlive the call */
    int64_t staging_bytes;      /* 0: none */
    int64_t comm_staging_bytes; /* that a communicator holds; 0: none */
    bool comm_on_device;        /* of the device: that is where it sends from */
    int64_t cache_bytes;        /* of keys and values, on the device; 0: none */
    int64_t host_block_bytes;   /* of instructions that the host computes (ps_code.host_bytes); 0: none */
    int64_t results_bytes;      /* of what kernels sum up, where the host cannot touch the device; 0: none */
    int64_t apart_bytes;        /* of tensors that are kept out of chunks, on the device; 0: none */
    bool counts_non_model;      /* as in ps_store_desc */
    ps_profile *profile;        /* must outlive the tiers; NULL: none */
    ps_order *order; /* looks at the order of all that is issued here; must outlive the tiers. NULL: nobody */
} ps_tiers_options;

/* The tier that holds the staging blocks: the host, or the device where there is no host tier and the host can touch
 * it. */
ps_tier ps_tiers_staging_tier(const ps_space *space, const ps_budgets *budgets);

/* As the settings have them, which must outlive the tiers; blocks for a checkpoint and messages among them, and no
 * other. */
ps_tiers_options ps_tiers_options_of(const struct ps_settings *s, const ps_budgets *budgets, const ps_layout *layout,
                                     const ps_lists *lists);

/* What of the tiers is no chunk's: blocks, in whole pages. */
void ps_tiers_count_blocks(const ps_tiers_options *o, int64_t bytes[PS_RAM_TIER_COUNT]);

/* layout must outlive the tiers. On failure *t is empty. PS_EBUDGET when a tier cannot hold one of its blocks. */
PS_NODISCARD ps_status ps_tiers_open(const ps_tiers_options *o, ps_tiers *t);
void ps_tiers_close(ps_tiers *t); /* an empty one is accepted */

#endif
