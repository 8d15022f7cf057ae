/* checkpoint_state.h - state.json of a checkpoint: everything but tensors.
 *
 *     {
 *       "format": "patrickstar checkpoint", "version": 1 (2 with several ranks, 3 with "module" or "extra_files", 4
 *                                  and 5 with "state_format", 6 with "base_xxh3"),
 *       "program": "0.1.0",
 *       "ranks": 1,
 *       "steps": 100,              optimizer steps begun, skipped ones too
 *       "optimizer_steps": 98,     updates made: the optimizer's t, and the position in the learning-rate schedule
 *                                  (more than steps when the run began with another's: ps_engine_set_update_count)
 *       "micro_batches": 200,      data that each rank has used so far
 *       "samples": 400,            data that all ranks together have used
 *       "batch": {"micro_batch_size", "sequence_length", "accumulation_steps"},
 *       "generator": {"kind": "philox4x32-10", "seed", "micro_batch"},  counter-based: a seed and a counter are all
 *       "lr_schedule": {"step", "learning_rate"},                       rate of the last step
 *       "loss_scaler": {"dynamic", "scale", "clean_steps", "hysteresis_left", "skipped_steps"},
 *       "dtype": "bf16",
 *       "loss_average": "targets", the run's rule of train.loss_average; checkpoints of versions without this option
 *                                  lack it: their rule is micro_batches
 *       "state_format": "compact", optimizer.params.state_format; absent: fp32. compact_split has the same files, as
 *                                  masters are floats in all of them
 *       "base_xxh3": "0123...",  only with adapters: of the frozen parameters that are not in the files, as floats, in
 *                                  the model's order
 *       "files": [{"name": "model-0-of-1.safetensors", "bytes", "xxh3"},
 *                 {"name": "optimizer-0-of-1.safetensors", "bytes", "xxh3"}],
 *       "extra_files": [{"name": "extra-0-of-1.pt", "bytes", "xxh3"}],  only if the program passed some; null: none of
 *                                  this rank
 *       "module": {...},           only of a model of another framework (external/client_checkpoint.c)
 *       "arithmetic": {"kernels": "cuda", "attention": "cuDNN 9.19.0", "reductions": ""}, (train/settings/arithmetic.h)
 *       "caller": {...} or null,
 *       "config": {...},
 *       "state_xxh3": "0123456789abcdef"
 *     }
 *
 * state_xxh3 is the xxh3 of all bytes before the comma in front of it, so that the file detects damage to itself.
 * Hashes are xxh3, 64 bit, seed 0, as 16 digits, as `xxhsum -H3` prints them. */
#ifndef PS_CHECKPOINT_STATE_H
#define PS_CHECKPOINT_STATE_H

#include <stdbool.h>

#include "base/status.h"
#include "config/config.h"
#include "train/optim/loss_scaler.h"
#include "train/settings/arithmetic.h"

#define PS_CHECKPOINT_RANKS_MAX 65536
#define PS_CHECKPOINT_FILE_NAME_MAX 48

/* Each rank has one file of each kind. */
typedef enum ps_checkpoint_part {
    PS_CHECKPOINT_MODEL,     /* "<name>": masters */
    PS_CHECKPOINT_OPTIMIZER, /* "<name>.exp_avg", "<name>.exp_avg_sq" of Adam: states, with torch's names */
    PS_CHECKPOINT_PART_COUNT,
} ps_checkpoint_part;

/* "optimizer-0-of-1.safetensors". Returns name. */
const char *ps_checkpoint_file_name(ps_checkpoint_part part, int rank, int n_ranks,
                                    char name[PS_CHECKPOINT_FILE_NAME_MAX]);

/* "extra-0-of-1.pt": data of a rank's program, which only the program reads. Returns name. */
const char *ps_checkpoint_extra_name(int rank, int n_ranks, char name[PS_CHECKPOINT_FILE_NAME_MAX]);

typedef struct ps_checkpoint_file {
    int64_t n_bytes; /* -1: no file */
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
    bool has_loss_average; /* otherwise loss_average is PS_CONFIG_LOSS_AVERAGE_MICRO_BATCHES */
    ps_config_loss_average loss_average;
    ps_config_state_format state_format;
    bool has_base; /* its files lack the base, whose hash is base_xxh3 */
    uint64_t base_xxh3;
    ps_arithmetic arithmetic;  /* not known for checkpoints of earlier versions */
    ps_checkpoint_file *files; /* [n_ranks * PS_CHECKPOINT_PART_COUNT]: rank * PS_CHECKPOINT_PART_COUNT + part */
    ps_checkpoint_file *extra; /* [n_ranks] */
    char *module_json;         /* an object as text, or NULL */
    char *caller_json;         /* the same */
    char *config_json;         /* the same */
} ps_checkpoint_state;

void ps_checkpoint_state_deinit(ps_checkpoint_state *s);

/* Begin with the content that is common to all checkpoints of a run: its settings, the loss scaler, the caller's text
 * (NULL: none). On failure *s is to be deinitialised. */
PS_NODISCARD ps_status ps_checkpoint_state_take(ps_checkpoint_state *s, const ps_settings *o,
                                                const ps_loss_scaler *scaler, const char *caller_json);

/* The scaler of a resumed run: a static scale is the configuration's, a dynamic one stays within the bounds that are
 * configured now. */
PS_NODISCARD ps_status ps_checkpoint_state_restore_scaler(const ps_checkpoint_state *s, ps_loss_scaler *scaler);

/* The text of state.json; freed with ps_mem_free. PS_EINVAL when one of the texts is no JSON object. */
PS_NODISCARD ps_status ps_checkpoint_state_render(const ps_checkpoint_state *s, char **out, int64_t *out_bytes);

/* Read a text; messages call it `path`. PS_EFORMAT for damage, invalid values, and a later version. On failure *s is
 * empty. */
PS_NODISCARD ps_status ps_checkpoint_state_parse(const char *text, int64_t n_bytes, const char *path,
                                                 ps_checkpoint_state *s);

/* End `body`, a JSON text without its last brace, with its checksum. Freed with ps_mem_free. */
PS_NODISCARD ps_status ps_checkpoint_state_seal(const char *body, int64_t n_bytes, char **out, int64_t *out_bytes);

#endif
