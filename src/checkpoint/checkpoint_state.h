/* checkpoint_state.h - state.json of a checkpoint: everything that is no tensor.
 *
 *     {
 *       "format": "patrickstar checkpoint", "version": 1 (2 with several ranks, 3 with "module" or "extra_files"),
 *       "program": "0.1.0",
 *       "ranks": 1,
 *       "steps": 100,              optimizer steps begun, skipped ones too
 *       "optimizer_steps": 98,     updates made: the optimizer's t, and the position in the learning-rate schedule
 *                                  (more than steps when the run began with another's: ps_engine_set_update_count)
 *       "micro_batches": 200,      that each rank took of the data so far
 *       "samples": 400,            that all ranks together took
 *       "batch": {"micro_batch_size", "sequence_length", "accumulation_steps"},
 *       "generator": {"kind": "philox4x32-10", "seed", "micro_batch"},  counter-based: a seed and a counter are all
 *       "lr_schedule": {"step", "learning_rate"},                       rate of the last step
 *       "loss_scaler": {"dynamic", "scale", "clean_steps", "hysteresis_left", "skipped_steps"},
 *       "dtype": "bf16",
 *       "loss_average": "targets", the rule of train.loss_average that the run goes by; checkpoints from before there
 *                                  was a choice lack it, and go by micro_batches
 *       "files": [{"name": "model-0-of-1.safetensors", "bytes", "xxh3"},
 *                 {"name": "optimizer-0-of-1.safetensors", "bytes", "xxh3"}],
 *       "extra_files": [{"name": "extra-0-of-1.pt", "bytes", "xxh3"}],  only where the program gave some; null: a rank's
 *                                  that gave none
 *       "module": {...},           only of a model that another framework computes (external/client_checkpoint.h)
 *       "arithmetic": {"kernels": "cuda", "attention": "cuDNN 9.19.0", "reductions": ""},  (settings/arithmetic.h)
 *       "products": {...},         only of a GPU: which algorithms multiply (cuda/product_table.h)
 *       "caller": {...} or null,
 *       "config": {...},
 *       "state_xxh3": "0123456789abcdef"
 *     }
 *
 * state_xxh3 is the xxh3 of all bytes before the comma in front of it, so a flipped byte in the file is found in
 * itself. Hashes are xxh3, 64 bit, seed 0, as 16 digits, as `xxhsum -H3` prints them. */
#ifndef PS_CHECKPOINT_STATE_H
#define PS_CHECKPOINT_STATE_H

#include <stdbool.h>

#include "base/status.h"
#include "config/config.h"
#include "optim/loss_scaler.h"
#include "settings/arithmetic.h"

#define PS_CHECKPOINT_RANKS_MAX 65536
#define PS_CHECKPOINT_FILE_NAME_MAX 48

/* Each rank has one file of each kind. */
typedef enum ps_checkpoint_part {
    PS_CHECKPOINT_MODEL,     /* "<name>": masters */
    PS_CHECKPOINT_OPTIMIZER, /* "<name>.exp_avg", "<name>.exp_avg_sq" of Adam: states, as torch calls them */
    PS_CHECKPOINT_PART_COUNT,
} ps_checkpoint_part;

/* "optimizer-0-of-1.safetensors". Returns name. */
const char *ps_checkpoint_file_name(ps_checkpoint_part part, int rank, int n_ranks,
                                    char name[PS_CHECKPOINT_FILE_NAME_MAX]);

/* "extra-0-of-1.pt": what the program of a rank gave to be kept, and only the program reads. Returns name. */
const char *ps_checkpoint_extra_name(int rank, int n_ranks, char name[PS_CHECKPOINT_FILE_NAME_MAX]);

typedef struct ps_checkpoint_file {
    int64_t n_bytes; /* -1: there is none */
    uint64_t xxh3;
} ps_checkpoint_file;

typedef struct ps_checkpoint_state {
    int n_ranks;
    int64_t steps, optimizer_steps, micro_batches;
    int64_t B, T, accumulation;
    int64_t seed;
    double learning_rate;
    bool scale_is_dynamic;
    double scale;
    int64_t n_clean_steps, hysteresis_left, n_skipped_steps;
    char dtype[8];
    bool has_loss_average; /* else loss_average is PS_CONFIG_LOSS_AVERAGE_MICRO_BATCHES */
    ps_config_loss_average loss_average;
    ps_arithmetic arithmetic;  /* not known of checkpoints from before it was kept */
    ps_checkpoint_file *files; /* [n_ranks * PS_CHECKPOINT_PART_COUNT]: rank * PS_CHECKPOINT_PART_COUNT + part */
    ps_checkpoint_file *extra; /* [n_ranks] */
    char *module_json;         /* an object as text, or NULL */
    char *caller_json;         /* the same */
    char *config_json;         /* the same */
    char *products_json;       /* the same: algorithms of matrix products, of a GPU */
} ps_checkpoint_state;

void ps_checkpoint_state_deinit(ps_checkpoint_state *s);

/* Begin with what every checkpoint has of a run: its settings, the loss scaler, the caller's text (NULL: none). On failure
 * *s is to be deinitialised. */
PS_NODISCARD ps_status ps_checkpoint_state_take(ps_checkpoint_state *s, const ps_settings *o,
                                                const ps_loss_scaler *scaler, const char *caller_json);

/* The scaler as it goes on from a checkpoint: a static scale is the configuration's, a dynamic one stays within the bounds
 * that are configured now. */
PS_NODISCARD ps_status ps_checkpoint_state_restore_scaler(const ps_checkpoint_state *s, ps_loss_scaler *scaler);

/* The text of state.json; freed with ps_mem_free. PS_EINVAL when one of the texts is no JSON object. */
PS_NODISCARD ps_status ps_checkpoint_state_render(const ps_checkpoint_state *s, char **out, int64_t *out_bytes);

/* Read a text; messages call it `path`. PS_EFORMAT for damage, for values that cannot be, and for a later version.
 * On failure *s is empty. */
PS_NODISCARD ps_status ps_checkpoint_state_parse(const char *text, int64_t n_bytes, const char *path,
                                                 ps_checkpoint_state *s);

/* Close `body`, a JSON text without its last brace, with its checksum. Freed with ps_mem_free. */
PS_NODISCARD ps_status ps_checkpoint_state_seal(const char *body, int64_t n_bytes, char **out, int64_t *out_bytes);

#endif
