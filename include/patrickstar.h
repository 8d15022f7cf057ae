/* patrickstar.h - the public interface of libpatrickstar.
 *
 * Train transformers whose model data does not fit in the memory of the device that computes.
 * C99 and C++ clean; opaque handles; no structure is passed by value; no CUDA or MPI types.
 *
 *     ps_config *config = NULL;
 *     ps_engine *engine = NULL;
 *     if (ps_config_load("config.json", &config) != PS_OK ||
 *         ps_initialize_engine(ps_model_from_config, config, 0, config, &engine) != PS_OK) {
 *         fprintf(stderr, "%s\n", ps_last_error());
 *         ...
 *     }
 *     for (int step = 0; step < 100; step++) {
 *         float loss;
 *         ps_forward(engine, &batch, &loss);
 *         ps_backward(engine);
 *         ps_step(engine);
 *     }
 *     ps_engine_destroy(engine);
 *     ps_config_destroy(config);
 *
 * Threads: one thread at a time may use an engine; different engines may be used from different threads.
 * Errors: everything that can fail returns a ps_status; ps_last_error() has the detail. The library never
 * exits, aborts or prints. */
#ifndef PATRICKSTAR_H
#define PATRICKSTAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PS_API __attribute__((visibility("default")))
#define PS_NODISCARD __attribute__((warn_unused_result))
#else
#define PS_API
#define PS_NODISCARD
#endif

#define PS_VERSION_MAJOR 0
#define PS_VERSION_MINOR 1
#define PS_VERSION_PATCH 0

/* ---- status -------------------------------------------------------------------------------------- */

/* name, value, text. Values are part of the ABI: append only, never renumber. Sorted by who must act. */
#define PS_STATUS_MAP(XX)                                                                                              \
    XX(OK, 0, "success")                                                                                               \
    XX(EINVAL, -1, "invalid argument or configuration")                                                                \
    XX(EFORMAT, -2, "file content is malformed")                                                                       \
    XX(EBUDGET, -3, "the memory budget cannot hold the model")                                                         \
    XX(EIO, -4, "file could not be read or written")                                                                   \
    XX(ENOMEM_HOST, -5, "host memory exhausted")                                                                       \
    XX(ENOMEM_DEV, -6, "device memory exhausted")                                                                      \
    XX(EDEVICE, -7, "device runtime failed")                                                                           \
    XX(ENUMERIC, -8, "loss or gradient is not finite")                                                                 \
    XX(ENOSYS, -9, "not supported by this build or device")                                                            \
    XX(ESTATE, -10, "call not allowed in this state")                                                                  \
    XX(ECOMM, -11, "another rank failed or cannot be reached")

typedef enum ps_status {
#define XX(name, value, text) PS_##name = (value),
    PS_STATUS_MAP(XX)
#undef XX
} ps_status;

/* "EINVAL" and "invalid argument or configuration"; for unknown values "UNKNOWN" and "unknown status". Static. */
PS_API const char *ps_status_name(ps_status st);
PS_API const char *ps_status_text(ps_status st);

/* Detail of the last failure on this thread ("chunk 12: need 64 MiB, 3 MiB free").
 * Valid until the next failing call on this thread; never NULL. */
PS_API const char *ps_last_error(void);

/* Release text that the library handed out for the caller to free. NULL is accepted. */
PS_API void ps_free(void *memory);

/* ---- configuration ------------------------------------------------------------------------------- */

/* JSON in the format of DeepSpeed and PatrickStar. doc/config.md lists every key with its meaning, unit, range and
 * default. What is not given has its default; an unknown key, a wrong type or a value out of range is an error whose
 * message names the key and, in a file, line and column. One thread at a time may change a configuration. */
typedef struct ps_config ps_config;

/* All options at their defaults. PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_create(ps_config **out);

/* Read a JSON file, at most 16 MiB, and validate it; *out = NULL on failure.
 * PS_EIO when it cannot be read, PS_EFORMAT when it is no JSON, PS_EINVAL when keys or values are wrong. */
PS_API PS_NODISCARD ps_status ps_config_load(const char *path, ps_config **out);

/* The same for JSON text in memory; messages call it `name`. */
PS_API PS_NODISCARD ps_status ps_config_parse(const char *text, const char *name, ps_config **out);

/* Set one option: ps_config_set(config, "memory.device", "1.5GiB"). value is JSON (null is the default) or, for names,
 * strings and sizes, the bare word. Checks the value alone: call ps_config_validate after the last one.
 * On failure the configuration is as before. PS_EINVAL, PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_set(ps_config *config, const char *key, const char *value);

/* Check what no option can check alone: fp16 against bf16, batch sizes, heads against width, schedule. PS_EINVAL. */
PS_API PS_NODISCARD ps_status ps_config_validate(const ps_config *config);

/* All options with the values in force, as a JSON text that ps_config_parse accepts; the caller frees it with ps_free.
 * *out = NULL and PS_ENOMEM_HOST on failure. */
PS_API PS_NODISCARD ps_status ps_config_dump_json(const ps_config *config, char **out);

PS_API void ps_config_destroy(ps_config *config); /* NULL is accepted */

/* ---- models ---------------------------------------------------------------------------------------- */

/* A model is a function that describes one forward pass over a micro-batch of B sequences of T tokens: it calls the
 * functions below on a builder, in the order in which they run. Nothing is computed then; parameters are created
 * in their chunks afterwards, so the whole model never exists twice. Backward, memory and transfers are planned from
 * the description.
 *
 * Values are numbers; a function that cannot be described (wrong shape, double name) returns -1, later calls accept -1,
 * and ps_initialize_engine reports the first failure: a model function need not check each call. Activations are all
 * [B T, columns] (behind ps_pool: [B, columns]), of the type that the configuration names (f32, bf16, f16). */
typedef struct ps_builder ps_builder;
typedef int32_t ps_value;

/* Return PS_OK, or an error with which initialisation fails. `user` is the pointer given to ps_initialize_engine. */
typedef ps_status (*ps_model_func)(ps_builder *b, void *user);

typedef enum ps_activation {
    PS_ACTIVATION_GELU_TANH, /* "gelu_new" */
    PS_ACTIVATION_GELU_ERF,  /* "gelu" */
} ps_activation;

PS_API int64_t ps_builder_batch_size(const ps_builder *b);      /* B */
PS_API int64_t ps_builder_sequence_length(const ps_builder *b); /* T */

/* Standard deviation of the normal distribution that the weights declared from now on start with (default 0.02). */
PS_API void ps_set_initializer_range(ps_builder *b, double std);

/* Everything between begin and end is one block: with activation checkpointing only its input is kept, and it is run
 * again in the backward pass. Names of parameters and operators inside get the prefix "name.". Blocks nest; the
 * outermost with checkpoint != 0 is the one run again. */
PS_API void ps_begin_block(ps_builder *b, const char *name, int checkpoint);
PS_API void ps_end_block(ps_builder *b);

/* x = w[tokens]: parameter "name.weight" [n_tokens, columns]. */
PS_API ps_value ps_token_embedding(ps_builder *b, const char *name, int64_t n_tokens, int64_t columns);
/* x[b, t] = w[type of token b, t]: parameter "name.weight" [n_types, columns]. */
PS_API ps_value ps_token_type_embedding(ps_builder *b, const char *name, int64_t n_types, int64_t columns);
/* y[b, t] = x[b, t] + w[t]: parameter "name.weight" [n_positions, columns]; n_positions >= T. */
PS_API ps_value ps_position_embedding(ps_builder *b, ps_value x, const char *name, int64_t n_positions);
/* Parameters "name.weight" (ones), "name.bias" (zeros) [columns]. */
PS_API ps_value ps_layer_norm(ps_builder *b, ps_value x, const char *name, float eps);
/* y = x / sqrt(avg(x^2) + eps) w over each `group` of columns (0: all of them): parameter "name.weight" (ones)
 * [group]. */
PS_API ps_value ps_rms_norm(ps_builder *b, ps_value x, const char *name, int64_t group, float eps);
/* y = x W^T + b: "name.weight" [n_out, n_in] as torch.nn.Linear, "name.bias" [n_out] (zeros) when has_bias. */
PS_API ps_value ps_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias);
/* y = x W + b: "name.weight" [n_in, n_out], as Conv1D of Hugging Face's GPT-2. */
PS_API ps_value ps_conv1d(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias);
PS_API ps_value ps_gelu(ps_builder *b, ps_value x, ps_activation kind);
/* y = x > 0 ? x : 0 */
PS_API ps_value ps_relu(ps_builder *b, ps_value x);
/* y = gate sigmoid(gate) up, of equal shape. */
PS_API ps_value ps_swiglu(ps_builder *b, ps_value gate, ps_value up);
PS_API ps_value ps_tanh(ps_builder *b, ps_value x);
/* y = x + y, of equal shape. */
PS_API ps_value ps_add(ps_builder *b, ps_value x, ps_value y);
/* Zeroes a share p of the elements while training and scales the others by 1 / (1 - p); p = 0 adds nothing. */
PS_API ps_value ps_dropout(ps_builder *b, ps_value x, float p);
/* Multi-head self-attention on packed projections qkv [B T, 3 C], each of q, k, v with n_heads heads; y [B T, C].
 * Scores are scaled by 1 / sqrt(C / n_heads); dropout_p acts on the probabilities while training. */
PS_API ps_value ps_attention(ps_builder *b, ps_value qkv, int64_t n_heads, int causal, float dropout_p);

typedef enum ps_rope_scaling {
    PS_ROPE_UNSCALED,
    PS_ROPE_LINEAR, /* all frequencies divided by factor */
    PS_ROPE_LLAMA3, /* only the low ones: Llama 3.1 */
    PS_ROPE_YARN,   /* only the low ones, and queries and keys get longer: YaRN (Peng et al. 2023) */
} ps_rope_scaling;

/* Frequencies theta^(-2 i / head_size); names as in a Hugging Face configuration. Members that the scaling does not use
 * are ignored. */
typedef struct ps_rope {
    double theta; /* "rope_theta": 10000, 500000, ... */
    ps_rope_scaling scaling;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_positions; /* "original_max_position_embeddings" */
    /* yarn: waves of more than beta_fast turns in the original context are kept, those of less than beta_slow divided
     * by factor. attention_factor multiplies cosines and sines; 0: m(mscale) / m(mscale_all_dim) when both are above 0,
     * else m(1), with m(s) = 0.1 s log(factor) + 1, or 1 where factor is at most 1. truncate widens the band between to
     * whole dimensions. */
    double beta_fast, beta_slow; /* 32, 1 in Hugging Face's default */
    double attention_factor, mscale, mscale_all_dim;
    int truncate; /* 1 in Hugging Face's default */
} ps_rope;

/* Turns each head's pairs (i, i + head_size / 2) by an angle that grows with the position, counted from 0 in each
 * sequence. */
PS_API ps_value ps_rotary_embedding(ps_builder *b, ps_value x, int64_t head_size, const ps_rope *options);

typedef struct ps_attention_options {
    int64_t n_heads, n_kv_heads; /* n_kv_heads divides n_heads; that many query heads share a key and value head */
    int causal;
    int64_t window; /* each token sees that many of the latest keys, itself included; 0: all */
    float dropout_p;
} ps_attention_options;

/* As ps_attention for separate q [B T, n_heads D] and k, v [B T, n_kv_heads D]. Keys that the batch's attention_mask
 * has 0 for are seen by nobody, here and in ps_attention. */
PS_API ps_value ps_grouped_attention(ps_builder *b, ps_value q, ps_value k, ps_value v,
                                     const ps_attention_options *options);

typedef enum ps_pooling {
    PS_POOLING_FIRST, /* the first token: [CLS] */
    PS_POOLING_LAST,  /* the last one that the attention_mask has 1 for */
} ps_pooling;

/* One row for each sequence: y [B, columns]. */
PS_API ps_value ps_pool(ps_builder *b, ps_value x, ps_pooling kind);

/* Of a cross-entropy. Members of 0, and NULL in place of the structure: nothing of the kind. */
typedef struct ps_cross_entropy_options {
    size_t size;                /* sizeof(ps_cross_entropy_options) */
    const float *class_weights; /* [n_classes], from 0 on, not all 0; copied. NULL: 1 each */
    float label_smoothing;      /* share of each target that is spread over all classes, in [0, 1) */
    float z_loss;               /* coefficient, from 0 on */
} ps_cross_entropy_options;

/* Each of the following ends the model with a product and its mean loss: z = x W^T + bias, in float. `weight`
 * [n, columns] and `bias` [n] (NULL: none) name parameters: declared ones (tied to an embedding, with their full names),
 * or new ones. z is never rounded to the configured type; its gradient is, times the loss scale. ps_infer gives z. */

/* Cross-entropy of softmax(z) against the batch's targets, one for each row of x: a language model, a label for each
 * token, or behind ps_pool a classifier. With u the weights of classes, e the label smoothing and q z_loss a row with
 * target t counts
 *     (1 - e) u_t (lse - z_t) + e / n sum_c u_c (lse - z_c) + q u_t lse^2,    lse = log sum_c exp(z_c),
 * and the mean divides by the sum of u_t: torch.nn.CrossEntropyLoss(weight, label_smoothing), and the z-loss of PaLM
 * (Chowdhery et al. 2022). options may be NULL. */
PS_API void ps_cross_entropy(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n_classes,
                             const ps_cross_entropy_options *options);
/* Mean of (z - v)^2 over the batch's values v [rows of x, n] that are not NaN: torch.nn.MSELoss. */
PS_API void ps_mse_loss(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n);
/* Mean of max(z, 0) - z v + log(1 + exp(-|z|)) over the batch's values v [rows of x, n] that are not NaN, of [0, 1]:
 * torch.nn.BCEWithLogitsLoss, of several labels that may be true at once. */
PS_API void ps_bce_with_logits_loss(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n);
/* Where something begins and ends in each sequence: n is 2, the batch's targets [B, 2] are positions, and the softmax is
 * over the T positions of a sequence. The loss is the mean of that of the beginnings and that of the ends, each over the
 * targets that are not -100, as in transformers' ...ForQuestionAnswering (where positions behind the sequence take no
 * part). x is [B T, columns]. */
PS_API void ps_span_loss(ps_builder *b, ps_value x, const char *weight, const char *bias);
/* Ends a model without a loss, for inference only: ps_infer gives x. */
PS_API void ps_hidden_states(ps_builder *b, ps_value x);

/* The model that a configuration's "model" section describes; `user` is the ps_config. */
PS_API PS_NODISCARD ps_status ps_model_from_config(ps_builder *b, void *user);

/* ---- engine ---------------------------------------------------------------------------------------- */

typedef struct ps_engine ps_engine;

/* One micro-batch, B = train_micro_batch_size_per_gpu, T = the sequence length, or as ps_engine_set_shape has it. Only
 * read during the call. */
typedef struct ps_batch {
    const int32_t *tokens; /* [B T] */
    /* [B T], [B] labels for a classifier, or [B, 2] positions for ps_span_loss; -100 takes no part in the loss */
    const int32_t *targets;
    const int32_t *attention_mask; /* [B T], 1: a token, 0: padding, which nobody looks at; NULL: no padding */
    const int32_t *token_type_ids; /* [B T]; NULL: all 0 */
    const float *values; /* instead of targets, for ps_mse_loss and ps_bce_with_logits_loss: [rows, n]; NaN: no part */
} ps_batch;

/* Build the model, plan memory and transfers, create the parameters. Keeps nothing of config or user. PS_EBUDGET when
 * no schedule fits the budgets: the message names the moment and operator that need most, the bytes, and the smallest
 * changes that fit; or when the plan puts more on disk than memory.disk_path has free. On failure *engine is NULL.
 *
 * PS_ENOSYS when the system starts fewer threads than train.threads. They are the engine's own: OpenMP in the program
 * around it, and its variables, have no part in it.
 *
 * Weights begin as the configuration says: drawn from train.seed; then those of model.from_pretrained, as
 * ps_engine_load_pretrained reads them (heads may differ with model.new_head, or with model.head none); then those of
 * train.init_from. model.from_pretrained is that of the configuration which describes the model: with
 * ps_model_from_config that is user, with other functions config, and parameters are matched by the names that the
 * function gives them. What these loads refuse fails the call: nothing is begun with less than was asked for.
 *
 * A process that mpirun or srun started as one of several is a rank: all of them call this, and then all functions of
 * the engine that say so, in the same order, each with its own micro-batches; together they train one model, each with
 * its share of the chunks. local_rank counts the ranks of a machine from 0 (0 when there is one process). What a rank
 * finds wrong fails on all: PS_ECOMM when another one failed or cannot be reached. */
PS_API PS_NODISCARD ps_status ps_initialize_engine(ps_model_func model_func, void *user, int local_rank,
                                                   const ps_config *config, ps_engine **engine);
/* The same without gradients and optimizer, weights as above: for ps_logits and ps_evaluate. 2 bytes a parameter (f32:
 * 4). */
PS_API PS_NODISCARD ps_status ps_initialize_inference_engine(ps_model_func model_func, void *user, int local_rank,
                                                             const ps_config *config, ps_engine **engine);
/* An inference engine for one text that grows by ps_decode: keys and values of its tokens are kept, so that one token
 * more costs one row, not a pass over the text. The cache has room for generation.max_length tokens (0: the sequence
 * length): twice n_kv_heads x head size x that many values for each attention, device memory that is taken at once and
 * that the budget must hold beside the rest (PS_EBUDGET). Micro-batch size and sequence length are not looked at.
 * PS_EINVAL when an attention of the model looks at later tokens, when it ends with one row for a whole sequence, or
 * when its position table has fewer rows. ps_evaluate, ps_logits, ps_infer and ps_engine_set_shape are not for this
 * engine (PS_ESTATE). */
PS_API PS_NODISCARD ps_status ps_initialize_generation_engine(ps_model_func model_func, void *user, int local_rank,
                                                              const ps_config *config, ps_engine **engine);
PS_API void ps_engine_destroy(ps_engine *engine); /* NULL is accepted */

/* Forward pass of a micro-batch; *loss gets its mean loss. With loss NULL nothing is waited for that the
 * device computes: the pass may still be under way when the call returns. The batch is the caller's again at once. A
 * failure inside a step leaves the engine failed for good (PS_ESTATE from then on); wrong arguments do not. */
PS_API PS_NODISCARD ps_status ps_forward(ps_engine *engine, const ps_batch *batch, float *loss);
/* Gradients of the last ps_forward. */
PS_API PS_NODISCARD ps_status ps_backward(ps_engine *engine);
/* Call after each ps_backward. At every gradient_accumulation_steps-th call: unscale, check for overflow, clip, update,
 * go on in the learning-rate schedule; otherwise nothing. A step whose gradients are not finite leaves the weights as
 * they were. PS_ENUMERIC, with what was seen first, after train.max_nonfinite_steps of them in a row that no loss scale
 * could answer by falling; the engine can go on. With memory.update_in_backward weights may have changed by then:
 * PS_ENUMERIC after the first such step, and the engine is failed for good. */
PS_API PS_NODISCARD ps_status ps_step(ps_engine *engine);
/* Mean loss of a micro-batch without dropout. Changes no parameter, no gradient, no schedule and no random sequence:
 * training goes on with the same bits. Between steps only (PS_ESTATE after ps_backward until ps_step). */
PS_API PS_NODISCARD ps_status ps_evaluate(ps_engine *engine, const ps_batch *batch, float *loss);
/* Next-token logits [n_tokens of the vocabulary] at position `row` of B T, after a forward pass over tokens[B T].
 * Inference engines only. */
PS_API PS_NODISCARD ps_status ps_logits(ps_engine *engine, const int32_t *tokens, int64_t row, float *logits);
/* What the model ends with, for all its rows: logits [B, classes] of a classifier, [B T, vocabulary] of a language
 * model, [B T, labels or 2] of what has labels or spans of tokens, or hidden states [B T, columns]. The batch's targets are not looked at. Inference engines only. */
PS_API PS_NODISCARD ps_status ps_infer(ps_engine *engine, const ps_batch *batch, float *output);

/* Append n >= 1 tokens to the text; logits [n_tokens of the vocabulary] (of a model without a head: hidden states
 * [columns]) are those after the last one. A long prompt goes through the model in a few passes. The bits depend on how
 * many tokens each call had, not on budgets. PS_EINVAL when there is no room for them all (ps_decode_get_length) or a
 * token is not in the vocabulary: the text is then as before. Generation engines only (PS_ESTATE). */
PS_API PS_NODISCARD ps_status ps_decode(ps_engine *engine, const int32_t *tokens, int64_t n, float *logits);
/* Keep the first n tokens of the text and forget the others; 0 begins another text. PS_EINVAL when it has fewer.
 * Replacing parameters forgets the whole text. */
PS_API PS_NODISCARD ps_status ps_decode_rewind(ps_engine *engine, int64_t n);
/* Tokens of the text, and the most it may have; 0 for other engines. Pointers may be NULL. */
PS_API void ps_decode_get_length(const ps_engine *engine, int64_t *length, int64_t *max_length);

/* The last ps_forward or ps_evaluate in numbers. */
typedef struct ps_eval_info {
    double loss;       /* mean over the targets */
    int64_t n_targets; /* that took part */
    int64_t
        n_correct; /* for which the largest logit was the target's; of several labels at once: whose logit is above 0
                        * as the value is above 0.5; 0 of ps_mse_loss */
    double weight; /* what the mean divides by: n_targets, or the sum of their classes' weights */
} ps_eval_info;

PS_API void ps_engine_get_eval_info(const ps_engine *engine, ps_eval_info *out);

/* From now on micro-batches are batch x sequence: call it between steps (PS_ESTATE inside of one, also between the
 * micro-batches that make one), then give ps_forward, ps_evaluate and the others batches of that size. Parameters,
 * optimizer state, counters, random sequences, chunks and budgets stay; activations, and which chunk is where when, are
 * planned anew. The bits of training through a sequence of shapes do not depend on budgets, chunk size or prefetch.
 * Checkpoints belong to the configured shape: one that is begun in another loads where the configuration is the same.
 *
 * model: as for ps_initialize_engine, giving the same parameters by name, shape and order (and with
 * client.opts.with_activation_offload as many values that enter its checkpoint segments), else PS_EINVAL. The last
 * shapes are kept (32, and the configured one), recognised by model, user and size: for these the function is not
 * called, and nothing planned. PS_EBUDGET, as from ps_initialize_engine, when the new shape does not fit the budgets
 * with this chunk size beside memory.save_buffer: configure the largest. After either refusal the engine goes on in the
 * shape it had. Where model data fill device and host to the last chunk and the disk tier cannot hold them all, each
 * change is tried from where chunks are, which takes the time of planning.
 *
 * ps_engine_get_shape and the planned_ members of ps_memory_info tell of the new shape; they are those of a run that
 * begins with it. In the steps after a change chunks lie elsewhere: peaks are within the budgets, but may be above the
 * planned ones, and moved bytes differ.
 *
 * Of several ranks all call, with the same sizes. What one refuses all refuse, with a message that names it ("rank 2
 * (host): ..."). */
PS_API PS_NODISCARD ps_status ps_engine_set_shape(ps_engine *engine, ps_model_func model, void *user, int64_t batch,
                                                  int64_t sequence);

/* What the last ps_step at an accumulation boundary did. */
typedef struct ps_step_info {
    int64_t step;         /* optimizer steps taken, skipped ones not counted */
    int skipped;          /* 1: overflow, weights untouched */
    double learning_rate; /* used in it */
    double grad_norm;     /* global norm before clipping, unscaled; infinite on overflow */
    double loss_scale;    /* used in it */
    double loss;          /* mean over its micro-batches, those of all ranks */
} ps_step_info;

typedef struct ps_memory_info {
    int64_t parameters;
    int64_t model_data_bytes; /* all lists */
    int64_t chunk_elements, n_chunks;
    double chunk_waste; /* share of chunk memory without tensors */
    int64_t device_budget_bytes, host_budget_bytes, disk_budget_bytes;
    int64_t device_peak_bytes, host_peak_bytes, disk_peak_bytes; /* since ps_engine_reset_peaks */
    int64_t device_used_bytes, host_used_bytes, disk_used_bytes;
    int64_t non_model_peak_bytes; /* activations and workspace, planned; with the keys and values of ps_decode */
    /* among activations: logits that wait for the backward pass. 0: it computes them again, or there are none */
    int64_t kept_logits_bytes;
    int64_t host_to_device_bytes, device_to_host_bytes, disk_read_bytes, disk_write_bytes; /* since creation */
    int64_t wait_ns; /* computing stood still for copies, since creation */
    /* of a run in the present shape from its beginning on */
    int64_t planned_device_peak_bytes, planned_host_peak_bytes, planned_disk_peak_bytes;
    int64_t planned_step;        /* steps that the plan tried; later ones go round in the same circle */
    int64_t planned_moved_bytes; /* over all links between tiers, in step number planned_step */
    int64_t planned_sent_bytes;  /* to other ranks, in the same step */
} ps_memory_info;

PS_API void ps_engine_get_step_info(const ps_engine *engine, ps_step_info *out);
PS_API void ps_engine_get_memory_info(const ps_engine *engine, ps_memory_info *out);
PS_API void ps_engine_reset_peaks(ps_engine *engine);

/* Who takes which memory, as a table for people: budget, peak and use of each tier by chunk list, activations, staging;
 * chunks by state and by where their content is; bytes moved; the moments that need most. The caller frees *out by
 * ps_free. A failed engine can be asked too. *out = NULL and PS_ENOMEM_HOST on failure. */
PS_API PS_NODISCARD ps_status ps_dump_memory_stats(const ps_engine *engine, char **out);
/* The same table as it was in the moment that found no room (PS_EBUDGET, PS_ENOMEM_DEV): in a step, or, when
 * ps_initialize_engine refused the model, in the trial of the plan. "" when no moment has since this thread last
 * initialised an engine; valid until it initialises one again, or another moment finds no room. */
PS_API const char *ps_last_memory_dump(void);

/* The profile that profile.path and profile.steps of the configuration ask for; doc/profile.md describes the file. It
 * is written when the last of these steps has ended, or by ps_engine_destroy. That it could not be written fails no
 * step. */
typedef struct ps_profile_info {
    const char *path;              /* "": no profile. Valid, like error, as long as the engine */
    int64_t first_step, last_step; /* recorded and complete; 0: none so far */
    int is_written;                /* 1: the file has all of them */
    const char *error;             /* why it could not be written; "": it could, or was not tried yet */
} ps_profile_info;

PS_API void ps_engine_get_profile_info(const ps_engine *engine, ps_profile_info *out);
/* Write what has been recorded so far, of steps that are complete: to `path`, or, NULL, to profile.path. All or
 * nothing. PS_ESTATE when no step was recorded, PS_EIO. */
PS_API PS_NODISCARD ps_status ps_engine_write_profile(ps_engine *engine, const char *path);

/* B, T as they are now, gradient accumulation steps and vocabulary size of the engine's program; any pointer may be
 * NULL. */
PS_API void ps_engine_get_shape(const ps_engine *engine, int64_t *batch, int64_t *sequence, int64_t *accumulation,
                                int64_t *vocabulary);

/* With several ranks a tensor's elements lie with the owners of its chunks. The calls below, down to the
 * checkpoints, are then made by all ranks, with the same arguments: each gives what it owns of what is read, and
 * takes what it owns of what is written. A failure on one rank fails the call on all, with a message that names it
 * ("rank 2 (host): ..."). */

/* xxh3 (64 bit) over the fp32 masters, tensor after tensor in the order of declaration: the same on all ranks, and
 * whatever their number is. */
PS_API PS_NODISCARD ps_status ps_engine_weights_xxh3(ps_engine *engine, uint64_t *hash);

/* Parameters by number, 0 .. ps_engine_n_tensors - 1, in the order of declaration. The name is valid as long as the
 * engine; shape has n_dims (1 or 2) entries. */
PS_API int64_t ps_engine_n_tensors(const ps_engine *engine);
PS_API PS_NODISCARD ps_status ps_engine_tensor_info(const ps_engine *engine, int64_t tensor, const char **name,
                                                    int *n_dims, int64_t shape[2]);
/* Read or replace `n` elements from `first` of a tensor's fp32 value (inference engines: of its rounded value). All
 * ranks get all that is read. PS_ESTATE between ps_backward and ps_step where updates may run within the backward pass
 * (memory.update_in_backward), as for the hash above. */
PS_API PS_NODISCARD ps_status ps_engine_read_tensor(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                    float *out);
PS_API PS_NODISCARD ps_status ps_engine_write_tensor(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                     const float *in);
/* The gradient (times the loss scale) as it stands between ps_backward and the update. PS_ESTATE at other times, and
 * where updates may run within ps_backward (memory.update_in_backward). */
PS_API PS_NODISCARD ps_status ps_engine_read_gradient(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                      float *out);

/* Save all parameters (f32, names as declared) as one safetensors file. All or nothing: a file of that name is replaced
 * when the new one is complete. Of several ranks the first writes it. */
PS_API PS_NODISCARD ps_status ps_engine_save_weights(ps_engine *engine, const char *path);

/* What loading did; tensors of the model and of the file. */
typedef struct ps_load_info {
    int64_t n_loaded;      /* parameters that were read */
    int64_t n_new;         /* parameters that no file has: as they were */
    int64_t n_ignored;     /* tensors of the file that are not used: buffers, copies of tied ones, other heads */
    const char *first_new; /* name of a parameter, valid as long as the engine; NULL when n_new is 0 */
} ps_load_info;

/* Read all parameters: path is a safetensors file, a file of torch.save with a state_dict, or a folder with either,
 * also in shards, as Hugging Face's transformers write it, or a checkpoint's folder. Types f64, f32, bf16, f16. Names
 * may lack the base's prefix ("transformer.", "model.", "bert."); doc/file-formats.md has the rules. Missing,
 * unexpected and misshapen tensors are errors that name them (PS_EFORMAT), found before anything is changed. With
 * allow_new_head (fine-tuning) parameters of a head may be missing, and those of another head be there. info may be
 * NULL. */
PS_API PS_NODISCARD ps_status ps_engine_load_pretrained(ps_engine *engine, const char *path, int allow_new_head,
                                                        ps_load_info *info);
/* The same without allow_new_head and info. */
PS_API PS_NODISCARD ps_status ps_engine_load_weights(ps_engine *engine, const char *path);

/* ---- checkpoints ----------------------------------------------------------------------------------- */

/* All that training needs to go on with the same bits: masters, the optimizer's states, counters, loss scale.
 * doc/checkpoints.md has the files. `folder` (made if missing, in a folder that exists) holds one folder a checkpoint,
 * "step-000100", and "latest", which names the newest complete one. A checkpoint is complete or not there at all,
 * whenever the process or the machine stops. Of older ones, train.keep_last of the configuration are kept. */

typedef struct ps_checkpoint_info {
    int64_t step;         /* optimizer steps begun, skipped ones too */
    int64_t bytes;        /* of all files */
    double seconds;       /* from the call of begin until it was complete on disk */
    double stall_seconds; /* of these the caller stood still */
    char name[32];        /* of its folder: "step-000100" */
} ps_checkpoint_info;

/* Save the state as it is now, between steps (else PS_ESTATE). caller_json: NULL, or a JSON object that
 * ps_engine_load_checkpoint gives back, such as the position in the data. info may be NULL. PS_EIO when it could not be
 * written (disk full): there is no new checkpoint then, those of before and "latest" are as they were, and the engine
 * can go on. Of several ranks, which all call, each writes what it owns; `folder` must be on a file system that all
 * see. */
PS_API PS_NODISCARD ps_status ps_engine_save_checkpoint(ps_engine *engine, const char *folder, const char *caller_json,
                                                        ps_checkpoint_info *info);

/* The same while training goes on: begin takes note of the state, the following step hands it to a thread that writes.
 * What is saved is the state at begin, and training has the same bits and moves the same bytes as without. With
 * train.save_interval > 0 in the configuration, memory.save_buffer lies between the two; without it each piece is
 * written before the step goes on. One at a time: finish comes before the next begin (PS_ESTATE). Destroying the engine
 * gives up a save that no further step has completed. */
PS_API PS_NODISCARD ps_status ps_engine_begin_checkpoint(ps_engine *engine, const char *folder,
                                                         const char *caller_json);
/* 1 when finish would not wait: the checkpoint is complete, has failed, or none is under way. With several ranks: this
 * rank's part; the others' may take longer, and only finish makes a checkpoint of all parts. */
PS_API int ps_engine_checkpoint_is_done(const ps_engine *engine);
/* Wait until the checkpoint under way is complete; what no step has handed over yet is read now, which needs the engine
 * to be between steps. Errors as ps_engine_save_checkpoint; PS_ESTATE when none is under way. */
PS_API PS_NODISCARD ps_status ps_engine_finish_checkpoint(ps_engine *engine, ps_checkpoint_info *info);

/* Go on from a checkpoint: its own folder, or the folder whose "latest" names it. Chunk size, budgets, number format
 * and the number of ranks it was saved by may differ; PS_EINVAL, naming both values, when the model's options,
 * micro-batch, micro-batches a step (accumulation times ranks), sequence length or seed do. Every byte is checked: a
 * missing, cut, exchanged or changed file is PS_EIO or PS_EFORMAT naming it. An inference engine takes the parameters
 * only. *caller_json (may be NULL) gets what was given to save, NULL if nothing was; freed by ps_free. When damage is
 * found after parameters were replaced, the engine is failed for good. */
PS_API PS_NODISCARD ps_status ps_engine_load_checkpoint(ps_engine *engine, const char *folder, char **caller_json);

#ifdef __cplusplus
}
#endif
#endif
