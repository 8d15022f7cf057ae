/* patrickstar.h - the public interface of libpatrickstar.
 *
 * Train transformers whose model data does not fit in the memory of the device that computes. C99 and C++ clean; opaque
 * handles; no structure is passed by value; no CUDA or MPI types.
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
 * Errors: everything that can fail returns a ps_status; ps_last_error() has the detail. The library never exits, aborts
 * or prints.
 * Callbacks: what the library calls of the program's (models, operators, logs, progress, messages) returns; no
 * exception of C++ and no longjmp may leave it.
 * Pointers: not NULL unless the function says that they may be, or they are arrays of no elements: what returns a
 * ps_status is then PS_EINVAL, naming call and pointer, on this rank alone; a model that misses a name is refused
 * likewise. */
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

/* ---- versions --------------------------------------------------------------------------------------------- */

/* "0.1.0", and its numbers: of the library that is used, where PS_VERSION_ are those of this header. Static; pointers
 * may be NULL. A program runs with every newer library of the same major version; until 1.0 also of the same minor. */
PS_API const char *ps_version(int *major, int *minor, int *patch);

/* Structures begin with their size, so that a program may be older or newer than the library. Before the library gets
 * to see one, whoever declares it sets struct_size to its sizeof, and what it does not know or use to 0:
 *
 *     ps_step_info info = {.struct_size = sizeof info};                C
 *     ps_step_info info = {}; info.struct_size = sizeof info;          C++
 *
 * The library reads and fills what both know. PS_EINVAL, naming the structure, when struct_size was not set, or when a
 * member is set that this library is too old for. */

/* ---- errors ----------------------------------------------------------------------------------------------- */

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
    XX(ECOMM, -11, "another rank failed or cannot be reached")                                                         \
    XX(ECANCELED, -12, "ended by the program")

typedef enum ps_status {
#define XX(name, value, text) PS_##name = (value),
    PS_STATUS_MAP(XX)
#undef XX
} ps_status;

/* "EINVAL" and "invalid argument or configuration"; for unknown values "UNKNOWN" and "unknown status". Static. */
PS_API const char *ps_status_name(ps_status st);
PS_API const char *ps_status_text(ps_status st);

/* Detail of the last failure on this thread ("chunk 12: need 64 MiB, 3 MiB free"). Valid until the next failing call on
 * this thread; never NULL. */
PS_API const char *ps_last_error(void);

/* Make `text` this thread's last error, and return st: for functions of the caller's that the library calls (a model
 * function, an operator), whose failure then says why. text NULL: "". */
PS_API ps_status ps_set_last_error(ps_status st, const char *text);

/* Where the last failure on this thread arose. */
typedef struct ps_failure {
    size_t struct_size;
    ps_status status;
    int32_t rank;      /* that it arose on; -1: ranks have no part in it */
    int32_t is_remote; /* 1: another one than that of this thread */
    int32_t is_shared; /* 1: the call has failed with it on all ranks; 0: the others may not know of it yet */
    char host[64];     /* machine of the rank; "" without one */
} ps_failure;

/* PS_EINVAL when out is no ps_failure: ps_last_error is then about that. */
PS_API ps_status ps_get_last_failure(ps_failure *out);

/* Release text that the library handed out for the caller to free. NULL is accepted. */
PS_API void ps_free(void *memory);

/* Bytes that this process may still take without swapping: of the machine, or of the tightest control group that it
 * is in. Page cache counts as free. PS_EIO where /proc does not say. */
PS_API PS_NODISCARD ps_status ps_get_available_memory(int64_t *bytes);

/* ---- configuration ---------------------------------------------------------------------------------------- */

/* JSON in the format of DeepSpeed and PatrickStar. doc/config.md lists every key with its meaning, unit, range and
 * default. What is not given has its default; an unknown key, a wrong type or a value out of range is an error whose
 * message names the key and, in a file, line and column. One thread at a time may change a configuration. */
typedef struct ps_config ps_config;

/* All options at their defaults. PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_create(ps_config **out);

/* Read a JSON file, at most 16 MiB, and validate it; *out = NULL on failure. path may be the folder of a Hugging Face
 * model instead, which becomes model.from_pretrained, or, where there is no such file, a value of model.preset; all
 * else has its default then. PS_EIO when it cannot be read, PS_EFORMAT when it is no JSON, PS_EINVAL when keys or
 * values are wrong. */
PS_API PS_NODISCARD ps_status ps_config_load(const char *path, ps_config **out);

/* The same with "key=value" assignments that win over the file, a later one over an earlier: of an option that they set
 * the file's value is not looked at, so a wrong one does no harm, and key=null leaves the default. Unknown keys of the
 * file stay errors. */
PS_API PS_NODISCARD ps_status ps_config_load_assigned(const char *path, char *const *assignments, int n,
                                                      ps_config **out);

/* The same for JSON text in memory; messages call it `name`. */
PS_API PS_NODISCARD ps_status ps_config_parse(const char *text, const char *name, ps_config **out);

/* The configuration that weights were trained with. path: a checkpoint's folder, a run's (that of pstar train; before
 * its end its newest checkpoint says it), or that of a Hugging Face model, which is then model.from_pretrained; or a
 * file in one of them. *out is NULL where nothing there says it. PS_EIO when there is no such file or folder;
 * PS_EFORMAT or PS_EINVAL when what says it is damaged, but of what lies beside a file, which may be anybody's, only
 * what can be read counts. */
PS_API PS_NODISCARD ps_status ps_config_load_of_weights(const char *path, ps_config **out);

/* Set one option: ps_config_set(config, "memory.device", "1.5GiB"). value is JSON (null is the default) or, for names,
 * strings and sizes, the bare word. Checks the value alone: call ps_config_validate after the last one. On failure the
 * configuration is as before. PS_EINVAL, PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_set(ps_config *config, const char *key, const char *value);

/* Check what no option can check alone: fp16 against bf16, batch sizes, heads against width, schedule. PS_EINVAL. */
PS_API PS_NODISCARD ps_status ps_config_validate(const ps_config *config);

/* The value in force of an option, by its key or another name of it: ps_config_get_int("train.steps") of whole numbers,
 * sizes in bytes ("auto" is -1), and truth values as 0 and 1; _double of any number; _string of texts and names, valid
 * until the option is set or the configuration destroyed; _range of two whole numbers. PS_EINVAL when there is no such
 * key, or it has values of another kind. */
PS_API PS_NODISCARD ps_status ps_config_get_int(const ps_config *config, const char *key, int64_t *out);
PS_API PS_NODISCARD ps_status ps_config_get_double(const ps_config *config, const char *key, double *out);
PS_API PS_NODISCARD ps_status ps_config_get_string(const ps_config *config, const char *key, const char **out);
PS_API PS_NODISCARD ps_status ps_config_get_range(const ps_config *config, const char *key, int64_t *first,
                                                  int64_t *last);
/* *yes: 1 when the user gave the option, in a file, as an assignment, or with ps_config_set, 0 when it was left to its
 * default. PS_EINVAL when there is no such key. */
PS_API PS_NODISCARD ps_status ps_config_is_given(const ps_config *config, const char *key, int32_t *yes);
/* Tokens in a sequence: data.sequence_length, or what its 0 stands for. */
PS_API int64_t ps_config_get_sequence_length(const ps_config *config);

/* All options with the values in force, as a JSON text that ps_config_parse accepts; the caller frees it with ps_free.
 * *out = NULL and PS_ENOMEM_HOST on failure. */
PS_API PS_NODISCARD ps_status ps_config_dump_json(const ps_config *config, char **out);

/* Every option with its meaning, unit, range and default, as text for people; the caller frees it with ps_free. */
PS_API PS_NODISCARD ps_status ps_config_help(char **out);
/* The same of one option, by its key or another name of it, or of the options of a section: "memory.total", "memory".
 * PS_EINVAL when there is neither, with what was likely meant, or what to do instead. */
PS_API PS_NODISCARD ps_status ps_config_help_of(const char *name, char **out);

/* A folder that is there, in which what is measured on this machine is kept from run to run; copied. Nothing is kept
 * where none was told. */
PS_API PS_NODISCARD ps_status ps_config_set_cache_folder(ps_config *config, const char *folder);
/* Where the disk tier lies when it is used because RAM does not hold the model, and memory.disk_path names no folder;
 * copied, made when it is needed. /var/tmp where none was told, or where this one is RAM itself (tmpfs, ramfs) or
 * cannot be written. */
PS_API PS_NODISCARD ps_status ps_config_set_disk_folder(ps_config *config, const char *folder);

PS_API void ps_config_destroy(ps_config *config); /* NULL is accepted */

/* ---- models ----------------------------------------------------------------------------------------------- */

/* A model is a function that describes one forward pass over a micro-batch of B sequences of T tokens: it calls the
 * functions below on a builder, in the order in which they run. Nothing is computed then; parameters are created in
 * their chunks afterwards, so the whole model never exists twice. Backward, memory and transfers are planned from the
 * description.
 *
 * Values are numbers above 0; a function that cannot be described (wrong shape, double name) returns -1, later calls
 * accept -1, and ps_initialize_engine reports the first failure: a model function need not check each call. Activations
 * are all [B T, columns] (behind ps_pool: [B, columns]), of the type that the configuration names (f32, bf16, f16). */
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

/* Whether the parameters declared from now on are trained (default 1). Those that are not, are frozen: they keep their
 * values to the bit, have no gradient, no fp32 master and no state of the optimizer, and no weight decay; nothing goes
 * backward below the first operator with a trained one. PyTorch calls it requires_grad. A tied table is one parameter,
 * as it was declared. train.freeze of the configuration freezes more of them, by name. A model without a trained
 * parameter cannot be trained (PS_EINVAL); for inference it makes no difference. */
PS_API void ps_set_trainable(ps_builder *b, int is_trainable);

/* Everything between begin and end is one block: with activation checkpointing only its input is kept, and it is run
 * again in the backward pass. Names of parameters and operators inside get the prefix "name.". Blocks nest; the
 * outermost with checkpoint != 0 is the one run again. */
PS_API void ps_begin_block(ps_builder *b, const char *name, int checkpoint);
PS_API void ps_end_block(ps_builder *b);

/* x = w[tokens]: parameter "name.weight" [n_tokens, columns]. Each row that was read gets its gradient; there is no
 * padding_idx as PyTorch's nn.Embedding has it. */
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
    size_t struct_size;
    double theta; /* "rope_theta": 10000, 500000, ... */
    ps_rope_scaling scaling;
    int32_t truncate; /* see below */
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_positions; /* "original_max_position_embeddings" */
    /* yarn: waves of more than beta_fast turns in the original context are kept, those of less than beta_slow divided
     * by factor. attention_factor multiplies cosines and sines; 0: m(mscale) / m(mscale_all_dim) when both are above 0,
     * else m(1), with m(s) = 0.1 s log(factor) + 1, or 1 where factor is at most 1. truncate, 1 in Hugging Face's
     * default, widens the band between to whole dimensions. */
    double beta_fast, beta_slow; /* 32, 1 in Hugging Face's default */
    double attention_factor, mscale, mscale_all_dim;
} ps_rope;

/* Turns each head's pairs (i, i + head_size / 2) by an angle that grows with the position, counted from 0 in each
 * sequence. */
PS_API ps_value ps_rotary_embedding(ps_builder *b, ps_value x, int64_t head_size, const ps_rope *options);

typedef struct ps_attention_options {
    size_t struct_size;
    int64_t n_heads, n_kv_heads; /* n_kv_heads divides n_heads; that many query heads share a key and value head */
    int64_t window;              /* each token sees that many of the latest keys, itself included; 0: all */
    int32_t causal;
    float dropout_p;
} ps_attention_options;

/* As ps_attention for separate q [B T, n_heads D] and k, v [B T, n_kv_heads D]. Keys that the batch's attention_mask
 * has 0 for are masked, here and in ps_attention; a query whose keys are all masked gets 0. */
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
    size_t struct_size;
    const float *class_weights; /* [n_classes], from 0 on, not all 0; copied. NULL: 1 each */
    float label_smoothing;      /* share of each target that is spread over all classes, in [0, 1) */
    float z_loss;               /* coefficient, from 0 on */
} ps_cross_entropy_options;

/* Each of the following ends the model with a product and its mean loss: z = x W^T + bias, in float. The mean is that
 * of a micro-batch; a step's is over the targets of all its micro-batches and ranks (train.loss_average). `weight`
 * [n, columns] and `bias` [n] (NULL: none) name parameters: declared ones (tied to an embedding, with their full
 * names), or new ones. z is never rounded to the configured type; its gradient is, times the loss scale. ps_infer gives
 * z. */

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
/* Where something begins and ends in each sequence: n is 2, the batch's targets [B, 2] are positions, and the softmax
 * is over the T positions of a sequence. The loss is the mean of that of the beginnings and that of the ends, each over
 * the targets that are not PS_IGNORE_INDEX, as in transformers' ...ForQuestionAnswering (where positions behind the
 * sequence take no part). x is [B T, columns]. Of a step the mean is that over all of its targets, each weighted as in
 * its micro-batch: where each sequence has both positions or none, that of one large batch; else a micro-batch whose
 * beginnings and ends are not equally many weighs those that are fewer by more than the whole step would. */
PS_API void ps_span_loss(ps_builder *b, ps_value x, const char *weight, const char *bias);
/* Ends a model without a loss, for inference only: ps_infer gives x. */
PS_API void ps_hidden_states(ps_builder *b, ps_value x);

/* Types of elements: f32, bf16 and f16 (both stored in two bytes). */
typedef enum ps_dtype {
    PS_DTYPE_F32,
    PS_DTYPE_BF16,
    PS_DTYPE_F16,
    PS_DTYPE_COUNT, /* how many there are, no type */
} ps_dtype;

/* The model that a configuration's "model" section describes; `user` is the ps_config. */
PS_API PS_NODISCARD ps_status ps_model_from_config(ps_builder *b, void *user);

/* ---- engine ----------------------------------------------------------------------------------------------- */

typedef struct ps_engine ps_engine;
typedef struct ps_comm ps_comm; /* ranks: patrickstar_comm.h */

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
/* The same without gradients and optimizer, weights as above: for ps_infer and ps_evaluate. 2 bytes a parameter (f32:
 * 4). */
PS_API PS_NODISCARD ps_status ps_initialize_inference_engine(ps_model_func model_func, void *user, int local_rank,
                                                             const ps_config *config, ps_engine **engine);
/* An inference engine for one text that grows by ps_decode: keys and values of its tokens are kept, so that one token
 * more costs one row, not a pass over the text. The cache has room for generation.max_length tokens (0: the sequence
 * length): twice n_kv_heads x head size x that many values for each attention, device memory that is taken at once and
 * that the budget must hold beside the rest (PS_EBUDGET). Micro-batch size and sequence length are not looked at.
 * PS_EINVAL when an attention of the model looks at later tokens, when it ends with one row for a whole sequence, or
 * when its position table has fewer rows. ps_evaluate, ps_infer and ps_engine_set_shape are not for this engine
 * (PS_ESTATE). */
PS_API PS_NODISCARD ps_status ps_initialize_generation_engine(ps_model_func model_func, void *user, int local_rank,
                                                              const ps_config *config, ps_engine **engine);

typedef enum ps_purpose {
    PS_FOR_INFERENCE,  /* as ps_initialize_inference_engine */
    PS_FOR_TRAINING,   /* as ps_initialize_engine */
    PS_FOR_GENERATION, /* as ps_initialize_generation_engine */
} ps_purpose;

typedef struct ps_engine_options {
    size_t struct_size;
    ps_comm *comm; /* whose ranks train together; kept by the engine. NULL: this process alone */
    ps_purpose purpose;
    /* 1: parameters have no values yet, and nothing is drawn or read for them: ps_engine_load_checkpoint,
     * ps_engine_load_pretrained or ps_engine_begin_weights comes first (PS_ESTATE until then) */
    int32_t is_empty;
} ps_engine_options;

/* The same as these three, over ranks of the caller's choice. One process may have engines over several
 * communicators. */
PS_API PS_NODISCARD ps_status ps_initialize_engine_with(ps_model_func model_func, void *user, const ps_config *config,
                                                        const ps_engine_options *options, ps_engine **engine);
PS_API void ps_engine_destroy(ps_engine *engine); /* NULL is accepted */

/* Of the engine: 0 and 1 when it is alone. Pointers may be NULL. */
PS_API void ps_engine_get_ranks(const ps_engine *engine, int32_t *rank, int32_t *size);

/* ---- training --------------------------------------------------------------------------------------------- */

/* A target that takes no part in the loss: PyTorch's ignore_index. */
enum { PS_IGNORE_INDEX = -100 };

/* One micro-batch, B = train_micro_batch_size_per_gpu, T = the sequence length, or as ps_engine_set_shape has it. Only
 * read during the call. */
typedef struct ps_batch {
    size_t struct_size;
    const int32_t *tokens; /* [B T] */
    /* [B T], [B] labels for a classifier, or [B, 2] positions for ps_span_loss; or PS_IGNORE_INDEX */
    const int32_t *targets;
    const int32_t *attention_mask; /* [B T], 1: a token, 0: padding, which nobody looks at; NULL: no padding */
    const int32_t *token_type_ids; /* [B T]; NULL: all 0 */
    /* instead of targets, for ps_mse_loss and ps_bce_with_logits_loss (of these 0 to 1): [rows, n]; NaN: no part */
    const float *values;
} ps_batch;

/* Forward pass of a micro-batch; *loss gets the mean over its own targets (of the step: ps_step_info.loss). With loss
 * NULL nothing is waited for that the device computes: the pass may still be under way when the call returns. The
 * batch is the caller's again at once. A failure inside a step leaves the engine failed for good (PS_ESTATE with its
 * text from then on); wrong arguments do not. */
PS_API PS_NODISCARD ps_status ps_forward(ps_engine *engine, const ps_batch *batch, float *loss);
/* Gradients of the last ps_forward. */
PS_API PS_NODISCARD ps_status ps_backward(ps_engine *engine);
/* Call after each ps_backward. At every gradient_accumulation_steps-th call: unscale, check for overflow, clip, update,
 * go on in the learning-rate schedule; otherwise nothing. A step whose gradients are not finite leaves the weights as
 * they were. PS_ENUMERIC, with what was seen first, after train.max_nonfinite_steps of them in a row that no loss scale
 * could answer by falling; the engine can go on. With memory.update_in_backward weights may have changed by then:
 * PS_ENUMERIC after the first such step, and the engine is failed for good. */
PS_API PS_NODISCARD ps_status ps_step(ps_engine *engine);

/* What the last ps_step at an accumulation boundary did. */
typedef struct ps_step_info {
    size_t struct_size;
    int64_t step;         /* optimizer steps taken, skipped ones not counted */
    int32_t skipped;      /* 1: overflow, weights untouched */
    double learning_rate; /* used in it, of group 0 (ps_engine_get_group_info) */
    double grad_norm;     /* global norm before clipping, unscaled; infinite on overflow */
    double loss_scale;    /* used in it */
    /* mean over the targets of its micro-batches, those of all ranks, as ps_eval_info.weight counts them; 0 where none
     * takes part. With train.loss_average = micro_batches the mean over the micro-batches' means */
    double loss;
    /* steps in a row up to this one that were skipped and that no loss scale could answer by falling; 0: none */
    int64_t nonfinite_steps;
    double next_loss_scale; /* of the next step */
    int64_t n_targets;      /* that took part, in its micro-batches, those of all ranks */
} ps_step_info;

PS_API ps_status ps_engine_get_step_info(const ps_engine *engine, ps_step_info *out);

/* ---- evaluation and inference ----------------------------------------------------------------------------- */

/* Mean loss of a micro-batch without dropout. Changes no parameter, no gradient, no schedule and no random sequence:
 * training goes on with the same bits. Between steps only (PS_ESTATE after ps_backward until ps_step). loss may be
 * NULL. */
PS_API PS_NODISCARD ps_status ps_evaluate(ps_engine *engine, const ps_batch *batch, float *loss);

/* What the model ends with: logits [B, classes] of classifiers, [B T, vocabulary] of language models,
 * [B T, labels or 2] of what has labels or spans of tokens, or hidden states [B T, columns]; of all rows with row
 * PS_ALL_ROWS, or of one of them alone. The batch's targets are not looked at. Inference engines only. */
enum { PS_ALL_ROWS = -1 };
PS_API PS_NODISCARD ps_status ps_infer(ps_engine *engine, const ps_batch *batch, int64_t row, float *output);

/* The last ps_forward or ps_evaluate in numbers. */
typedef struct ps_eval_info {
    size_t struct_size;
    double loss;       /* mean over the targets */
    int64_t n_targets; /* that took part */
    /* for which the largest logit was the target's; of several labels at once: whose logit is above 0 as the value is
     * above 0.5; 0 of ps_mse_loss */
    int64_t n_correct;
    double weight; /* what the mean divides by: n_targets, or the sum of their classes' weights */
} ps_eval_info;

PS_API ps_status ps_engine_get_eval_info(const ps_engine *engine, ps_eval_info *out);

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

/* B, T as they are now, gradient accumulation steps, and the columns of what ps_infer gives: classes, the vocabulary,
 * values a row, 2 of spans, or those of hidden states. Any pointer may be NULL. */
PS_API void ps_engine_get_shape(const ps_engine *engine, int64_t *batch, int64_t *sequence, int64_t *accumulation,
                                int64_t *n_outputs);

/* ---- a text that grows ------------------------------------------------------------------------------------ */

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

/* ---- control ---------------------------------------------------------------------------------------------- */

/* Updates made so far, of this run and of what it began with, skipped steps not counted: Adam's t, torch's "step", is
 * one more in the next, and the learning rate is the schedule's after so many. 0 for an inference engine. Setting it
 * (n_updates >= 0, else PS_EINVAL) is for between steps: PS_ESTATE inside of one, also between the micro-batches that
 * make one, and for an inference engine. All ranks set the same. */
PS_API int64_t ps_engine_get_update_count(const ps_engine *engine);
PS_API PS_NODISCARD ps_status ps_engine_set_update_count(ps_engine *engine, int64_t n_updates);

/* The gradient as it lies there between ps_backward and the update: the sum, over the targets of all ranks and of all
 * micro-batches done so far, of the derivatives of their losses times the weights of their classes (1 without),
 * multiplied by loss_scale / (n A). After the step's last ps_backward
 *     gradient of the step's loss = value / (loss_scale W / (n A))
 * n: the targets that a micro-batch has, ignored ones too: B T of language models and of what labels tokens, B of
 *    classifiers, 2 B of spans, and of values as many as a batch has;
 * A: gradient_accumulation_steps;
 * W: the sum of ps_eval_info.weight over the step's micro-batches, those of all ranks. Of one micro-batch without
 *    ignored targets and weights of classes W / (n A) is 1;
 * loss_scale: the loss scale divided by zero.gradient_predivide_factor.
 * With train.loss_average = micro_batches it is the sum over micro-batches of the gradients of their means, times
 * loss_scale / A. PS_ESTATE at other times, and where updates may run within ps_backward (memory.update_in_backward);
 * PS_EINVAL for a frozen parameter. */
PS_API PS_NODISCARD ps_status ps_engine_read_gradient(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                      float *out);

/* Replace n elements from `first` of it by what `in` has, at the same times; values are such as ps_engine_read_gradient
 * gives, multiplied by the same factors, and of several ranks, which all call with the same values, the sum. Gradients
 * of 16 bits are rounded. After the step's last ps_backward its norm is taken again, of all gradients as they lie
 * there: ps_step reports that one, clips by it, and looks for overflow in it; gradients that are on disk are read for
 * this. */
PS_API PS_NODISCARD ps_status ps_engine_write_gradient(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                       const float *in);

/* Groups of parameters, as PyTorch's param_groups: 0 has all that are in no other; the others are those of
 * optimizer.param_groups in the configuration, in its order. 1 where there are none. */
PS_API int64_t ps_engine_get_group_count(const ps_engine *engine);

typedef struct ps_group_info {
    size_t struct_size;
    const char *params; /* its patterns, with commas between them, "" for group 0; valid as long as the engine */
    int64_t n_tensors;  /* frozen ones too */
    int64_t trained_parameters; /* elements */
    double learning_rate;       /* of the next update */
    double weight_decay;        /* the same; without biases and norms, unless the group has one of its own */
} ps_group_info;

/* PS_EINVAL when there is no such group; PS_ESTATE for inference engines. */
PS_API PS_NODISCARD ps_status ps_engine_get_group_info(const ps_engine *engine, int64_t group, ps_group_info *out);

/* From the next update on the group's learning rate is this, or its weight decay, whatever schedule and configuration
 * say, until it is set again; below 0: as the configuration says, with the schedule where it has got to meanwhile. Not
 * part of checkpoints, and left as it is when one is loaded: a program that sets it sets it again. All ranks call, with
 * the same values (else PS_EINVAL on all, and nothing is set). PS_EINVAL: no such group, or no finite number.
 * PS_ESTATE: between ps_backward and ps_step where updates may run within ps_backward (memory.update_in_backward). */
PS_API PS_NODISCARD ps_status ps_engine_set_learning_rate(ps_engine *engine, int64_t group, double rate);
PS_API PS_NODISCARD ps_status ps_engine_set_weight_decay(ps_engine *engine, int64_t group, double decay);

/* The loss scale of the next step, of any number format: any number above 0; a dynamic one (fp16.loss_scale = 0) goes
 * on from there, within fp16.min_loss_scale and max_loss_scale (else PS_EINVAL), its counters begin anew, and
 * checkpoints have it; a static one stays, and is the caller's to set again. Between steps only (PS_ESTATE); all ranks
 * call, with the same value. */
PS_API PS_NODISCARD ps_status ps_engine_set_loss_scale(ps_engine *engine, double scale);

/* ---- parameters and states -------------------------------------------------------------------------------- */

/* With several ranks a tensor's elements lie with the owners of its chunks. The calls below, down to the checkpoints,
 * are then made by all ranks, with the same arguments: each gives what it owns of what is read, and takes what it owns
 * of what is written. A failure on one rank fails the call on all, with a message that names it ("rank 2 (host):
 * ..."). */

/* xxh3 (64 bit) over the fp32 values as ps_engine_read_tensor gives them, tensor after tensor in the order of
 * declaration: the same on all ranks, and whatever their number is. */
PS_API PS_NODISCARD ps_status ps_engine_get_weights_xxh3(ps_engine *engine, uint64_t *hash);

/* Parameters by number, 0 .. ps_engine_get_tensor_count - 1, in the order of declaration. */
PS_API int64_t ps_engine_get_tensor_count(const ps_engine *engine);

typedef struct ps_tensor_info {
    size_t struct_size;
    const char *name; /* valid as long as the engine */
    int32_t n_dims;   /* 1 or 2 */
    int32_t is_trained;
    int64_t shape[2]; /* [n_dims] */
    int64_t elements;
    int64_t group; /* ps_engine_get_group_info */
} ps_tensor_info;

/* PS_EINVAL when there is no such tensor. */
PS_API ps_status ps_engine_get_tensor_info(const ps_engine *engine, int64_t tensor, ps_tensor_info *out);

/* Read or replace `n` elements from `first` of a tensor's fp32 value (inference engines, and frozen parameters: of its
 * rounded value). All ranks get all that is read. Replacing is for between steps (else PS_ESTATE); so is reading, as
 * for the hash above, where updates may run within the backward pass (memory.update_in_backward). */
PS_API PS_NODISCARD ps_status ps_engine_read_tensor(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                    float *out);
PS_API PS_NODISCARD ps_status ps_engine_write_tensor(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                     const float *in);
/* What the optimizer keeps of each element of a parameter, f32: state i = 0, 1, ... by the name that torch gives it,
 * "exp_avg" and "exp_avg_sq" of Adam and AdamW, "momentum_buffer" of SGD with momentum; static. NULL past the last, and
 * for an inference engine, which has none. */
PS_API const char *ps_engine_get_state_name(const ps_engine *engine, int32_t i);
/* Read or replace `n` elements from `first` of a state of a tensor, as the calls for its value do, and where they may.
 * What a step has put off (deferred updates) is carried out first. PS_EINVAL, with the names there are, for a state
 * that the optimizer does not keep; PS_ESTATE for an inference engine. Writing moves neither the value nor the count of
 * updates. */
PS_API PS_NODISCARD ps_status ps_engine_read_state(ps_engine *engine, int64_t tensor, const char *state, int64_t first,
                                                   int64_t n, float *out);
PS_API PS_NODISCARD ps_status ps_engine_write_state(ps_engine *engine, int64_t tensor, const char *state, int64_t first,
                                                    int64_t n, const float *in);

/* ---- files of weights ------------------------------------------------------------------------------------- */

/* Save all parameters (f32, names as declared) in one file: of safetensors, or, when path ends in .pt, .pth or .bin, a
 * state_dict of torch.save. All or nothing: a file of that name is replaced when the new one is complete. Of several
 * ranks the first writes it. */
PS_API PS_NODISCARD ps_status ps_engine_save_weights(ps_engine *engine, const char *path);

/* What loading did; tensors of the model and of the file. */
typedef struct ps_load_info {
    size_t struct_size;
    int64_t n_loaded;      /* parameters that were read */
    int64_t n_new;         /* parameters that no file has: as they were */
    int64_t n_ignored;     /* tensors of the file that are not used: buffers, copies of tied ones, other heads */
    const char *first_new; /* name of a parameter, valid as long as the engine; NULL when n_new is 0 */
    int64_t n_new_rows;    /* of the token embeddings, which the file has fewer of: as they were */
} ps_load_info;

typedef struct ps_load_options {
    size_t struct_size;
    int32_t allow_new_head; /* 1: parameters of a head may be missing, and those of another head be there (fine-tuning)
                             */
    int32_t allow_new_rows; /* 1: a tensor with a row for each token may have fewer than the model */
} ps_load_options;

/* Read all parameters: path is a safetensors file, a file of torch.save with a state_dict, or a folder with either,
 * also in shards, as Hugging Face's transformers write it, or a checkpoint's folder. Types f64, f32, bf16, f16. Names
 * may lack the base's prefix ("transformer.", "model.", "bert."); doc/file-formats.md has the rules. Missing,
 * unexpected and misshapen tensors are errors that name them (PS_EFORMAT), found before anything is changed. What fails
 * later (PS_EIO, PS_ECANCELED) leaves some replaced and others not: the engine is failed for good then, on all ranks.
 * PS_ESTATE within a step. options (NULL: none) and info may be NULL. */
PS_API PS_NODISCARD ps_status ps_engine_load_pretrained(ps_engine *engine, const char *path,
                                                        const ps_load_options *options, ps_load_info *info);

/* The weights that ps_initialize_engine begins with, for an engine that began empty: model.from_pretrained of the
 * configuration that describes the model, then train.init_from of config; what neither has is drawn. info, which may be
 * NULL, is about the first: n_loaded 0 without it. */
PS_API PS_NODISCARD ps_status ps_engine_begin_weights(ps_engine *engine, const ps_config *described,
                                                      const ps_config *config, ps_load_info *info);

/* Go on with an optimizer of PyTorch's: path is a file of torch.save with optimizer.state_dict(), alone or in a
 * dictionary as "optimizer" or "optimizer_state_dict". Its states replace the engine's, its "step" the count of updates
 * (ps_engine_set_update_count); a file of SGD has none: the count is then at least 1. One that has made no step makes
 * states and count 0. Rates, betas and what else its groups say are the configuration's business. Parameters are found
 * by "param_names" where the file has them (PyTorch 2.6); else by their numbers, which must be those of
 * model.parameters() of the class in transformers (for models of one's own: of declaration), all in one group or in
 * two, of those that decay and those that do not. PS_EFORMAT when numbers or shapes are not the model's, the
 * parameters' steps differ, or the file is damaged; PS_EINVAL when the states are of another optimizer; PS_ESTATE for
 * an inference engine, or inside of a step. All found before anything is changed; a file that cannot be read to its end
 * (PS_EIO) leaves states partly replaced. Of several ranks all call. */
PS_API PS_NODISCARD ps_status ps_engine_load_optimizer(ps_engine *engine, const char *path);

/* ---- checkpoints ------------------------------------------------------------------------------------------ */

/* All that training needs to go on with the same bits: masters, the optimizer's states, counters, loss scale.
 * doc/checkpoints.md has the files. `folder` (made if missing, in a folder that exists) holds one folder a checkpoint,
 * "step-000100", and "latest", which names the newest complete one. A checkpoint is complete or not there at all,
 * whenever the process or the machine stops. Of older ones, train.keep_last of the configuration are kept; what runs
 * that were killed have left there is removed by the next save. */

typedef struct ps_checkpoint_info {
    size_t struct_size;
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

/* Whether there is a checkpoint to go on from in `folder`, as given to ps_engine_save_checkpoint, and which: *path,
 * freed by ps_free, is the folder of the one that "latest" names, or without a "latest" of the newest that is complete;
 * NULL when there is none yet, nor perhaps the folder. is_latest, which may be NULL: 1 where "latest" named it. Changes
 * nothing on disk. PS_EFORMAT when "latest" is damaged. */
PS_API PS_NODISCARD ps_status ps_checkpoint_find(const char *folder, char **path, int32_t *is_latest);

/* Is the checkpoint whose own folder this is as it was saved? Each of its files is read once and compared with the size
 * and the hash that its state.json has. PS_EFORMAT or PS_EIO, naming the file that is damaged or missing. */
PS_API PS_NODISCARD ps_status ps_checkpoint_check(const char *folder);

/* Remove all checkpoints in `folder`, as given to ps_engine_save_checkpoint, with "latest" and what runs that were
 * killed have left; other files stay. Nothing to do where there is no such folder. PS_EIO. */
PS_API PS_NODISCARD ps_status ps_checkpoint_remove_all(const char *folder);

/* Go on from a checkpoint: its own folder, or the folder whose "latest" names it. Chunk size, budgets, number format
 * and the number of ranks it was saved by may differ; PS_EINVAL, naming both values, when the model's options,
 * micro-batch, micro-batches a step (accumulation times ranks), sequence length or seed do, or other parameters are
 * frozen. Every byte is checked: a missing, cut, exchanged or changed file is PS_EIO or PS_EFORMAT naming it. An
 * inference engine takes the parameters only. Training goes on by the checkpoint's train.loss_average, which
 * ps_engine_get_notices tells where another is configured; checkpoints that do not say it have micro_batches.
 * *caller_json (may be NULL) gets what was given to save, NULL if nothing
 * was; freed by ps_free. When damage is found after parameters were replaced, the engine is failed for good. */
PS_API PS_NODISCARD ps_status ps_engine_load_checkpoint(ps_engine *engine, const char *folder, char **caller_json);

/* ---- looking in ------------------------------------------------------------------------------------------- */

typedef struct ps_memory_info {
    size_t struct_size;
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
    /* to other ranks, and how long computing stood still for them, since the ranks met */
    int64_t sent_bytes, comm_wait_ns;
    int64_t trained_parameters; /* of `parameters` those that are not frozen; of an inference engine 0 */
    /* of a checkpoint's arrays, of all ranks: 4 a parameter and 4 a state of the optimizer of a trained one (Adam: 2);
     * headers and state.json come on top. Of an inference engine 0 */
    int64_t checkpoint_bytes;
} ps_memory_info;

PS_API ps_status ps_engine_get_memory_info(const ps_engine *engine, ps_memory_info *out);
PS_API void ps_engine_reset_peaks(ps_engine *engine);

/* What takes memory, now: chunk lists by name ("PARAM16", "MOMENTUM", ...), "activations", "staging", "keys and
 * values", "other". Together they are the bytes in use of each tier; budgets and peaks of tiers are in
 * ps_memory_info. */
typedef struct ps_memory_use {
    size_t struct_size;
    const char *name; /* valid as long as the engine is, and in this shape */
    int64_t device_bytes, host_bytes, disk_bytes;
} ps_memory_use;

/* Number `index` from 0; PS_EINVAL behind the last one. */
PS_API ps_status ps_engine_get_memory_use(const ps_engine *engine, int index, ps_memory_use *out);

/* The same and more as a table for people: budget, peak and use of each tier by chunk list, activations, staging;
 * chunks by state and by where their content is; bytes moved; the moments that need most. The caller frees *out by
 * ps_free. A failed engine can be asked too. *out = NULL and PS_ENOMEM_HOST on failure. */
PS_API PS_NODISCARD ps_status ps_engine_dump_memory(const ps_engine *engine, char **out);
/* The same table as it was in the moment that found no room (PS_EBUDGET, PS_ENOMEM_DEV): in a step, or, when
 * ps_initialize_engine refused the model, in the trial of the plan. "" when no moment has since this thread last
 * initialised an engine; valid until it initialises one again, or another moment finds no room. */
PS_API const char *ps_last_memory_dump(void);

/* What computes, and how it was chosen. Texts are valid as long as the engine. */
typedef struct ps_device_info {
    size_t struct_size;
    const char *backend;     /* "cuda", "ref", or the instruction set of the processor's kernels */
    const char *gpu;         /* name of the GPU that computes; "": none. What follows is about it */
    const char *why_not_gpu; /* why a GPU that is there is not used, where nobody has decided so; "": it is, or was */
    const char *attention;   /* what computes attention there */
    int32_t gpu_number, n_gpus;
    int64_t gpu_bytes, usable_bytes; /* of its memory; that this rank may use */
    int32_t n_sharers;               /* ranks that it is shared by */
    int32_t has_nccl;                /* 1: chunks go from GPU to GPU by NCCL */
    int32_t nccl_adds;               /* 1: which adds gradients, in an order of its own */
    int32_t n_timed_products;        /* algorithms of so many matrix products were timed for this engine, */
    double timed_seconds;            /* in so many seconds */
    const char *why_not_nccl;        /* "": it is used, or was not asked for */
    const char *products_trouble;    /* what should be known of how products were chosen; "": nothing */
    const char *memory;              /* which budgets were chosen and why, in one or two lines; "": all were given */
} ps_device_info;

PS_API ps_status ps_engine_get_device_info(const ps_engine *engine, ps_device_info *out);

/* What the user should know of this engine besides, in one line: options that have no effect, a checkpoint that went on
 * with other kernels than it was saved by. "": nothing. Valid until the next call of the engine. */
PS_API const char *ps_engine_get_notices(const ps_engine *engine);

/* How the disk tier is driven; n_files 0: there is none. */
typedef struct ps_disk_info {
    size_t struct_size;
    const char *backend; /* "io_uring", "threads" */
    const char *ways;    /* of io_uring that the kernel has: "registered files, ...", or "" */
    int32_t n_files;
    int32_t is_direct;    /* 1: O_DIRECT in all files */
    int64_t processor_ns; /* that the threads which move bytes took */
    const char *folders;  /* where its files are, as memory.disk_path has them; "" without files */
} ps_disk_info;

PS_API ps_status ps_engine_get_disk_info(const ps_engine *engine, ps_disk_info *out);

/* What a step of the present shape should take, and what it cannot be faster than, by the rates of `hardware` in the
 * configuration; doc/plan.md has the words. All 0 and "" where the machine is not known. */
typedef struct ps_bound_info {
    size_t struct_size;
    double planned_s, planned_compute_s; /* a step; of it computing, with what copies slow it by */
    double planned_wait_s;               /* and standing still for copies */
    double bound_s;                      /* whoever has most to do, if nobody ever waited for another */
    double disk_phases_s;                /* what the disk's phases take; 0: memory holds all, or updates are early */
    char by[64];                         /* who that is: "the disk" */
    char text[320];                      /* both, for people */
    char between[320];                   /* what stands between bound and plan; "": nothing */
} ps_bound_info;

PS_API ps_status ps_engine_get_bound_info(const ps_engine *engine, const ps_config *config, ps_bound_info *out);

/* Profiles: doc/profile.md describes the file. One is recorded of the steps that profile.path and profile.steps of the
 * configuration ask for, and is written when the last of these steps has ended, or by ps_engine_destroy; that it could
 * not be written fails no step. Or at any time between start and stop. */

/* Record from the next step on, until stop, or until 64 MiB are full. What was recorded before is forgotten. PS_ESTATE
 * while a profile is being recorded, and for engines that do not train. */
PS_API PS_NODISCARD ps_status ps_engine_start_profile(ps_engine *engine);
/* No more; of a step under way what came so far. With profile.path it is written there, as told above, unless steps
 * that the configuration asks for are still to come: when they begin it is forgotten, so write it before
 * (ps_engine_save_profile). PS_ESTATE when nothing is being recorded. */
PS_API PS_NODISCARD ps_status ps_engine_stop_profile(ps_engine *engine);

typedef struct ps_profile_info {
    size_t struct_size;
    const char *path;              /* "": no profile. Valid, like error, as long as the engine */
    int64_t first_step, last_step; /* recorded and complete; 0: none so far */
    int32_t is_written;            /* 1: the file has all of them */
    const char *error;             /* why it could not be written; "": it could, or was not tried yet */
} ps_profile_info;

PS_API ps_status ps_engine_get_profile_info(const ps_engine *engine, ps_profile_info *out);
/* Write what has been recorded so far, of steps that are complete: to `path`, or, NULL, to profile.path. All or
 * nothing. PS_ESTATE when no step was recorded, PS_EIO. */
PS_API PS_NODISCARD ps_status ps_engine_save_profile(ps_engine *engine, const char *path);

/* ---- log and progress ------------------------------------------------------------------------------------- */

typedef enum ps_log_level {
    PS_LOG_INFO,    /* what was decided: the plan of an engine, what computes */
    PS_LOG_WARNING, /* what fails no call, but should be known: a step skipped, a profile that could not be written */
} ps_log_level;

/* A line of text without a newline, valid during the call. It may come from any thread, several at once, and may not
 * call ps_set_log. */
typedef void (*ps_log_func)(void *user, ps_log_level level, const char *line);

/* For all engines of the process, from now on; NULL: nobody is told, as at first. When it returns, the function that
 * was there before is not called any more. */
PS_API void ps_set_log(ps_log_func func, void *user);

typedef enum ps_progress_kind {
    PS_PROGRESS_PLAN, /* ways to run a step that were tried, from 0 for each plan; total 0: not known */
    PS_PROGRESS_LOAD, /* tensors of a file, or of files of a checkpoint */
    PS_PROGRESS_SAVE, /* tensors of a file */
} ps_progress_kind;

typedef struct ps_progress {
    size_t struct_size; /* as the library has it */
    ps_progress_kind what;
    int32_t reserved;
    int64_t done, total;
} ps_progress;

/* Called in the thread that set it, within calls that take long: initialising an engine, another shape, reading and
 * writing weights, loading a checkpoint. Not 0: the call shall end. It then fails with PS_ECANCELED as with any other
 * failure at that place: an engine is not made, a file is not replaced; where parameters are being replaced, the engine
 * is failed for good. Of several ranks one is enough. The function must not use the engine. */
typedef int (*ps_progress_func)(void *user, const ps_progress *progress);

/* For calls of this thread, from now on; NULL: nobody is told. */
PS_API void ps_set_progress(ps_progress_func func, void *user);

#ifdef __cplusplus
}
#endif
#endif
