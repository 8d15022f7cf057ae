/* patrickstar_0_2.h - what program_0_2.c was compiled with: patrickstar.h of 0.2.0, cut down to what the program uses. It
 * is never changed. */
#ifndef PATRICKSTAR_0_2_H
#define PATRICKSTAR_0_2_H

#include <stddef.h>
#include <stdint.h>

#define PS_VERSION_MAJOR 0
#define PS_VERSION_MINOR 2
#define PS_VERSION_PATCH 0

typedef enum ps_status { PS_OK = 0, PS_EINVAL = -1 } ps_status;

const char *ps_version(int *major, int *minor, int *patch);
const char *ps_last_error(void);

typedef struct ps_config ps_config;

ps_status ps_config_parse(const char *text, const char *name, ps_config **out);
void ps_config_destroy(ps_config *config);

typedef struct ps_builder ps_builder;
typedef int32_t ps_value;
typedef ps_status (*ps_model_func)(ps_builder *b, void *user);

ps_value ps_token_embedding(ps_builder *b, const char *name, int64_t n_tokens, int64_t columns);
ps_value ps_layer_norm(ps_builder *b, ps_value x, const char *name, float eps);
ps_value ps_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias);

typedef enum ps_rope_scaling {
    PS_ROPE_UNSCALED,
    PS_ROPE_LINEAR,
    PS_ROPE_LLAMA3,
    PS_ROPE_YARN,
} ps_rope_scaling;

typedef struct ps_rope {
    size_t struct_size;
    double theta;
    ps_rope_scaling scaling;
    int32_t truncate;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_positions;
    double beta_fast, beta_slow;
    double attention_factor, mscale, mscale_all_dim;
} ps_rope;

ps_value ps_rotary_embedding(ps_builder *b, ps_value x, int64_t head_size, const ps_rope *options);

typedef struct ps_attention_options {
    size_t struct_size;
    int64_t n_heads, n_kv_heads;
    int64_t window;
    int32_t causal;
    float dropout_p;
} ps_attention_options;

ps_value ps_grouped_attention(ps_builder *b, ps_value q, ps_value k, ps_value v, const ps_attention_options *options);

typedef struct ps_cross_entropy_options {
    size_t struct_size;
    const float *class_weights;
    float label_smoothing;
    float z_loss;
} ps_cross_entropy_options;

void ps_cross_entropy(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n_classes,
                      const ps_cross_entropy_options *options);

typedef struct ps_engine ps_engine;

typedef struct ps_batch {
    size_t struct_size;
    const int32_t *tokens;
    const int32_t *targets;
    const int32_t *attention_mask;
    const int32_t *token_type_ids;
    const float *values;
} ps_batch;

ps_status ps_initialize_engine(ps_model_func model_func, void *user, int local_rank, const ps_config *config,
                               ps_engine **engine);
void ps_engine_destroy(ps_engine *engine);
ps_status ps_forward(ps_engine *engine, const ps_batch *batch, float *loss);
ps_status ps_backward(ps_engine *engine);
ps_status ps_step(ps_engine *engine);

typedef struct ps_eval_info {
    size_t struct_size;
    double loss;
    int64_t n_targets;
    int64_t n_correct;
    double weight;
} ps_eval_info;

ps_status ps_engine_get_eval_info(const ps_engine *engine, ps_eval_info *out);

typedef struct ps_step_info {
    size_t struct_size;
    int64_t step;
    int32_t is_skipped;
    double learning_rate;
    double grad_norm;
    double loss_scale;
    double loss;
    int64_t nonfinite_steps;
    double next_loss_scale;
    int64_t n_targets;
} ps_step_info;

typedef struct ps_memory_info {
    size_t struct_size;
    int64_t parameters;
    int64_t model_data_bytes;
    int64_t chunk_elements, n_chunks;
    double chunk_waste;
    int64_t device_budget_bytes, host_budget_bytes, disk_budget_bytes;
    int64_t device_peak_bytes, host_peak_bytes, disk_peak_bytes;
    int64_t device_used_bytes, host_used_bytes, disk_used_bytes;
    int64_t non_model_peak_bytes;
    int64_t kept_logits_bytes;
    int64_t host_to_device_bytes, device_to_host_bytes, disk_read_bytes, disk_write_bytes;
    int64_t wait_ns;
    int64_t planned_device_peak_bytes, planned_host_peak_bytes, planned_disk_peak_bytes;
    int64_t planned_step;
    int64_t planned_moved_bytes;
    int64_t planned_sent_bytes;
    int64_t sent_bytes, comm_wait_ns;
    int64_t trained_parameters;
    int64_t checkpoint_bytes;
} ps_memory_info;

ps_status ps_engine_get_step_info(const ps_engine *engine, ps_step_info *out);
ps_status ps_engine_get_memory_info(const ps_engine *engine, ps_memory_info *out);

typedef struct ps_checkpoint_info {
    size_t struct_size;
    int64_t step;
    int64_t bytes;
    double seconds;
    double stall_seconds;
    char name[32];
} ps_checkpoint_info;

ps_status ps_engine_save_checkpoint(ps_engine *engine, const char *folder, const char *caller_json,
                                    ps_checkpoint_info *info);

#endif
