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
 * Callbacks: functions of the program that the library calls (models, operators, logs, progress, messages) must return.
 * No C++ exception and no longjmp may leave them.
 * Pointers: must not be NULL, unless the function says that they may be, or the array has no elements. A function that
 * returns a ps_status otherwise returns PS_EINVAL, on this rank only, with a message that names the call and the
 * pointer. A missing name in a model is refused in the same way. */
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
#define PS_VERSION_MINOR 2
#define PS_VERSION_PATCH 0

/* ---- versions (src/base) ---------------------------------------------------------------------------------- */

/* Version of the library in use as "0.2.0" and as numbers; PS_VERSION_* is the version of this header. The text is
 * static; pointers may be NULL. A program runs with every newer library of the same major version; before 1.0 the minor
 * version must be the same too. */
PS_API const char *ps_version(int *major, int *minor, int *patch);

/* Structures begin with their size, so that a program may be older or newer than the library. The program sets
 * struct_size to the sizeof of the structure, and members that it does not use to 0, before it passes the structure:
 *
 *     ps_step_info info = {.struct_size = sizeof info};                C
 *     ps_step_info info = {}; info.struct_size = sizeof info;          C++
 *
 * The library reads and fills the members that both versions have. PS_EINVAL, naming the structure, when struct_size
 * was not set, or when a member is set that this library is too old for. */

/* ---- errors (src/base) ------------------------------------------------------------------------------------ */

/* name, value, text. Values are part of the ABI: append only, never renumber. */
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

/* Set this thread's last error to `text` (NULL: "") and return st. For callbacks of the program (a model function, an
 * operator), so that their failure has a reason. */
PS_API ps_status ps_set_last_error(ps_status st, const char *text);

/* Where the last failure on this thread arose. */
typedef struct ps_failure {
    size_t struct_size;
    ps_status status;
    int32_t rank;      /* on which it arose; -1: not related to ranks */
    int32_t is_remote; /* 1: on another rank than this thread's */
    int32_t is_shared; /* 1: the call failed on all ranks with this failure; 0: other ranks may not have seen it yet */
    char host[64];     /* machine of that rank; "" when rank is -1 */
} ps_failure;

/* PS_EINVAL when *out is not a ps_failure; ps_last_error then describes that error. */
PS_API ps_status ps_get_last_failure(ps_failure *out);

/* Free text or memory that a function of this library returned to the caller for ps_free. NULL is accepted. */
PS_API void ps_free(void *memory);

/* Bytes that this process can still allocate without swapping, limited by the machine and by the tightest control group
 * of the process. Page cache counts as free. PS_EIO where /proc does not say. */
PS_API PS_NODISCARD ps_status ps_get_available_memory(int64_t *bytes);

/* ---- configuration (src/config, src/weights) -------------------------------------------------------------- */

/* JSON in the format of DeepSpeed and PatrickStar. doc/config.md lists every key with its meaning, unit, range and
 * default. An option that is not given has its default. An unknown key, a wrong type or a value out of range is an
 * error; the message names the key and, in a file, line and column. One thread at a time may change a configuration. */
typedef struct ps_config ps_config;

/* All options at their defaults. PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_create(ps_config **out);

/* Read a JSON file, at most 16 MiB, and validate it; *out = NULL on failure. path may also be the folder of a Hugging
 * Face model, which becomes model.from_pretrained, or, where no such file exists, a value of model.preset; all other
 * options then have their defaults. PS_EIO when the file cannot be read, PS_EFORMAT when it is not JSON, PS_EINVAL when
 * keys or values are wrong. */
PS_API PS_NODISCARD ps_status ps_config_load(const char *path, ps_config **out);

/* The same with "key=value" assignments, which override the file; a later assignment overrides an earlier one. The
 * file's value of an assigned option is ignored, even when it is wrong. key=null sets the default. Unknown keys of the
 * file stay errors. */
PS_API PS_NODISCARD ps_status ps_config_load_assigned(const char *path, char *const *assignments, int n,
                                                      ps_config **out);

/* The same for JSON text in memory. Messages name the text `name`. */
PS_API PS_NODISCARD ps_status ps_config_parse(const char *text, const char *name, ps_config **out);

/* The configuration that weights were trained with. path is the folder of a checkpoint, of a run of pstar train (an
 * unfinished run has it in its newest checkpoint), or of a Hugging Face model, which then becomes
 * model.from_pretrained; or a file in one of these folders. *out is NULL where none of these has a configuration.
 * PS_EIO when there is no such file or folder; PS_EFORMAT or PS_EINVAL when the configuration is damaged. Where path is
 * a file, other files of its folder may be unrelated, and are ignored when they cannot be read. */
PS_API PS_NODISCARD ps_status ps_config_load_of_weights(const char *path, ps_config **out);

/* Set data.labels to the labels that trained weights were trained with (ps_config_load_of_weights). Call it before the
 * data are opened. Otherwise data that lack a class, or list the classes in another order, number the classes
 * differently than the model does. Does nothing for models without labels, and where the weights come without label
 * names. PS_EINVAL when data.labels is given and has a name under another number; other errors as of
 * ps_config_load_of_weights for a folder. */
PS_API PS_NODISCARD ps_status ps_config_take_labels(ps_config *config, const char *weights);
/* Set data.chat_format, where it is auto, to the format that trained weights were trained with. Call it before a
 * conversation. Errors as of ps_config_load_of_weights. */
PS_API PS_NODISCARD ps_status ps_config_take_chat_format(ps_config *config, const char *weights);

/* Set one option: ps_config_set(config, "memory.device", "1.5GiB"). value is JSON (null is the default) or, for names,
 * strings and sizes, the bare word. Checks the value alone: call ps_config_validate after the last one. On failure the
 * configuration is as before. PS_EINVAL, PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_set(ps_config *config, const char *key, const char *value);

/* Check the relations between options: fp16 against bf16, batch sizes, heads against width, schedule. PS_EINVAL. */
PS_API PS_NODISCARD ps_status ps_config_validate(const ps_config *config);

/* The current value of an option, by its key or an alias. _int: integers, sizes in bytes ("auto" is -1), and booleans
 * as 0 and 1. _double: any number. _string: texts and names; valid until the option is set or the configuration is
 * destroyed. _range: two integers. PS_EINVAL when there is no such key, or its values are of another type. */
PS_API PS_NODISCARD ps_status ps_config_get_int(const ps_config *config, const char *key, int64_t *out);
PS_API PS_NODISCARD ps_status ps_config_get_double(const ps_config *config, const char *key, double *out);
PS_API PS_NODISCARD ps_status ps_config_get_string(const ps_config *config, const char *key, const char **out);
PS_API PS_NODISCARD ps_status ps_config_get_range(const ps_config *config, const char *key, int64_t *first,
                                                  int64_t *last);
/* *yes: 1 when the option was set by a file, an assignment or ps_config_set, 0 when it has its default. PS_EINVAL when
 * there is no such key. */
PS_API PS_NODISCARD ps_status ps_config_is_given(const ps_config *config, const char *key, int32_t *yes);
/* Tokens in a sequence: data.sequence_length, or the length that its default 0 resolves to. */
PS_API int64_t ps_config_get_sequence_length(const ps_config *config);

/* All options with their current values, as JSON text that ps_config_parse accepts; the caller frees it with ps_free.
 * *out = NULL and PS_ENOMEM_HOST on failure. */
PS_API PS_NODISCARD ps_status ps_config_dump_json(const ps_config *config, char **out);

/* Every option with its meaning, unit, range and default, as readable text; the caller frees it with ps_free. */
PS_API PS_NODISCARD ps_status ps_config_help(char **out);
/* The same for one option, by its key or an alias, or for the options of a section: "memory.total", "memory". PS_EINVAL
 * when there is neither; the message has the closest name, or the replacement. */
PS_API PS_NODISCARD ps_status ps_config_help_of(const char *name, char **out);

/* Folder of the disk tier when the tier is used because RAM does not hold the model, and memory.disk_path names no
 * folder. The path is copied; the folder is created when it is needed. The default is /var/tmp, which also replaces a
 * folder that is RAM itself (tmpfs, ramfs) or cannot be written. */
PS_API PS_NODISCARD ps_status ps_config_set_disk_folder(ps_config *config, const char *folder);

/* memory.update_in_backward = auto may do what speculate does, where the step is estimated to be faster. For programs
 * that between ps_backward and ps_step neither access gradients and parameters nor change learning rates, which is then
 * refused (PS_ESTATE). pstar is one. */
PS_API PS_NODISCARD ps_status ps_config_allow_speculation(ps_config *config);

PS_API void ps_config_destroy(ps_config *config); /* NULL is accepted */

/* ---- models (src/train/graph, src/config) ----------------------------------------------------------------- */

/* A model is a function that describes one forward pass over a micro-batch of B sequences of T tokens: it calls the
 * functions below on a builder, in the order in which they run. Nothing is computed during this call. Parameters are
 * created in their chunks afterwards, so the whole model never exists twice. Backward, memory and transfers are planned
 * from the description.
 *
 * A ps_value is a number above 0. A function that fails (wrong shape, duplicate name) returns -1, later functions
 * accept -1, and ps_initialize_engine reports the first failure, so a model function need not check each call.
 * Activations are [B T, columns] (after ps_pool: [B, columns]), of the type that the configuration names (f32, bf16,
 * f16). */
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

/* Standard deviation of the normal distribution that weights declared from now on are initialised from (default
 * 0.02). */
PS_API void ps_set_initializer_range(ps_builder *b, double std);

/* Whether the parameters declared from now on are trained (default 1): PyTorch's requires_grad. Frozen parameters keep
 * their values to the bit, and have no gradient, fp32 master, optimizer state or weight decay. The backward pass ends
 * at the first operator with a trained parameter. A tied table is one parameter, trained or frozen as it was declared.
 * train.freeze of the configuration freezes more parameters, by name. A model without a trained parameter cannot be
 * trained (PS_EINVAL); inference ignores the setting. */
PS_API void ps_set_trainable(ps_builder *b, int is_trainable);

/* A low-rank adapter of a linear layer (LoRA: Hu et al. 2021). */
typedef struct ps_adapter {
    size_t struct_size;
    int64_t r;        /* rank, at least 1 */
    double scale;     /* peft's lora_alpha / r, or with use_rslora lora_alpha / sqrt(r) */
    float dropout;    /* of the adapter's input in training, 0 to below 1 */
    int32_t gaussian; /* first values of A: 1: normal with deviation 1 / r; 0: uniform within 1 / sqrt(n_in). B begins
                         at 0 */
} ps_adapter;

/* The adapter of the linear layers (ps_linear, ps_conv1d) that are declared from now on; NULL (the default): none. Such
 * a layer is y = x W + b + scale (dropout(x) A) B, with parameters "name.lora_A.weight" [r, n_in] and
 * "name.lora_B.weight" [n_out, r]. Its W and b are frozen (ps_set_trainable), A and B are not. The section lora of the
 * configuration adapts layers by name, of any model; a program has one or the other (PS_EINVAL). */
PS_API void ps_set_adapter(ps_builder *b, const ps_adapter *adapter);

/* Everything between begin and end is one block. With activation checkpointing only the block's input is kept, and the
 * backward pass recomputes the block. Names of parameters and operators inside get the prefix "name.". Blocks nest; the
 * outermost block with checkpoint != 0 is recomputed. */
PS_API void ps_begin_block(ps_builder *b, const char *name, int checkpoint);
PS_API void ps_end_block(ps_builder *b);

/* x = w[tokens]: parameter "name.weight" [n_tokens, columns]. Each row that was read gets a gradient; there is no
 * padding_idx as in PyTorch's nn.Embedding. */
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
/* In training, zeroes each element with probability p and scales the others by 1 / (1 - p). p = 0 adds no operator. */
PS_API ps_value ps_dropout(ps_builder *b, ps_value x, float p);
/* Multi-head self-attention on packed projections qkv [B T, 3 C], each of q, k, v with n_heads heads; y [B T, C].
 * Scores are scaled by 1 / sqrt(C / n_heads); dropout_p acts on the probabilities while training. */
PS_API ps_value ps_attention(ps_builder *b, ps_value qkv, int64_t n_heads, int causal, float dropout_p);

typedef enum ps_rope_scaling {
    PS_ROPE_UNSCALED,
    PS_ROPE_LINEAR, /* all frequencies divided by factor */
    PS_ROPE_LLAMA3, /* only the low ones: Llama 3.1 */
    PS_ROPE_YARN,   /* only the low ones; queries and keys are scaled, too: YaRN (Peng et al. 2023) */
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
    /* yarn: frequencies with more than beta_fast rotations in the original context are kept, those with less than
     * beta_slow are divided by factor. attention_factor multiplies cosines and sines; 0: m(mscale) / m(mscale_all_dim)
     * when both are above 0, else m(1), with m(s) = 0.1 s log(factor) + 1, or 1 where factor is at most 1. truncate (1
     * in Hugging Face's default) rounds the band between them outwards to whole dimensions. */
    double beta_fast, beta_slow; /* 32, 1 in Hugging Face's default */
    double attention_factor, mscale, mscale_all_dim;
} ps_rope;

/* Rotates each head's pairs (i, i + head_size / 2) by an angle proportional to the position, which counts from 0 in
 * each sequence. */
PS_API ps_value ps_rotary_embedding(ps_builder *b, ps_value x, int64_t head_size, const ps_rope *options);

typedef struct ps_attention_options {
    size_t struct_size;
    int64_t n_heads, n_kv_heads; /* n_kv_heads divides n_heads; n_heads / n_kv_heads query heads share a key and value
                                    head */
    int64_t window;              /* each token attends to that many latest keys, its own included; 0: all */
    int32_t causal;
    float dropout_p;
} ps_attention_options;

/* As ps_attention for separate q [B T, n_heads D] and k, v [B T, n_kv_heads D]. Here and in ps_attention, keys for
 * which the batch's attention_mask is 0 are masked; the output of a query whose keys are all masked is 0. */
PS_API ps_value ps_grouped_attention(ps_builder *b, ps_value q, ps_value k, ps_value v,
                                     const ps_attention_options *options);

typedef enum ps_pooling {
    PS_POOLING_FIRST, /* the first token: [CLS] */
    PS_POOLING_LAST,  /* the last token for which the attention_mask is 1 */
} ps_pooling;

/* One row for each sequence: y [B, columns]. */
PS_API ps_value ps_pool(ps_builder *b, ps_value x, ps_pooling kind);

/* Options of a cross-entropy. A member of 0 disables its feature; NULL in place of the structure disables all. */
typedef struct ps_cross_entropy_options {
    size_t struct_size;
    const float *class_weights; /* [n_classes], at least 0, not all 0; copied. NULL: 1 each */
    float label_smoothing;      /* probability mass spread over all classes, in [0, 1) */
    float z_loss;               /* coefficient, at least 0 */
} ps_cross_entropy_options;

/* Each of the following ends the model with a linear layer z = x W^T + bias, in float, and a mean loss. The mean is
 * over a micro-batch; the loss of a step is the mean over the targets of all its micro-batches and ranks
 * (train.loss_average). `weight` [n, columns] and `bias` [n] (NULL: none) name declared parameters (tied to an
 * embedding, by their full names), or new ones. z is never rounded to the configured type; its gradient times the loss
 * scale is. ps_infer returns z. */

/* Cross-entropy of softmax(z) against the batch's targets, one for each row of x: a language model, a token classifier,
 * or after ps_pool a sequence classifier. With class weights u, label smoothing e and z_loss q, a row with target t
 * adds
 *     (1 - e) u_t (lse - z_t) + e / n sum_c u_c (lse - z_c) + q u_t lse^2,    lse = log sum_c exp(z_c),
 * and the mean divides by the sum of u_t. This is torch.nn.CrossEntropyLoss(weight, label_smoothing) plus the z-loss of
 * PaLM (Chowdhery et al. 2022). options may be NULL. */
PS_API void ps_cross_entropy(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n_classes,
                             const ps_cross_entropy_options *options);
/* Mean of (z - v)^2 over the batch's values v [rows of x, n] that are not NaN: torch.nn.MSELoss. */
PS_API void ps_mse_loss(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n);
/* Mean of max(z, 0) - z v + log(1 + exp(-|z|)) over the batch's values v [rows of x, n] that are not NaN, in [0, 1]:
 * torch.nn.BCEWithLogitsLoss, for multi-label classification. */
PS_API void ps_bce_with_logits_loss(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n);
/* Loss of the start and end positions of a text span in each sequence, as in transformers' ...ForQuestionAnswering. n
 * is 2, the batch's targets [B, 2] are positions, and the softmax is over the T positions of a sequence. The loss is
 * the average of the start loss and the end loss, each a mean over the targets that are not PS_IGNORE_INDEX. x is [B T,
 * columns]. The loss of a step is the mean over all of its targets, with the weights of their micro-batches. It equals
 * the loss of one large batch where each sequence has both positions or none; otherwise a micro-batch with fewer starts
 * than ends (or the reverse) gives the rarer ones more weight than one large batch would. */
PS_API void ps_span_loss(ps_builder *b, ps_value x, const char *weight, const char *bias);
/* Ends a model without a loss, for inference only. ps_infer returns x. */
PS_API void ps_hidden_states(ps_builder *b, ps_value x);

/* Element types: f32, and bf16 and f16 of two bytes. */
typedef enum ps_dtype {
    PS_DTYPE_F32,
    PS_DTYPE_BF16,
    PS_DTYPE_F16,
    PS_DTYPE_COUNT, /* number of types */
} ps_dtype;

/* The model that a configuration's "model" section describes; `user` is the ps_config. */
PS_API PS_NODISCARD ps_status ps_model_from_config(ps_builder *b, void *user);

/* ---- engine (src/api/engine) ------------------------------------------------------------------------------ */

typedef struct ps_engine ps_engine;
typedef struct ps_comm ps_comm; /* ranks: patrickstar_comm.h */

/* Build the model, plan memory and transfers, create the parameters. The engine keeps no pointer to config or user.
 * PS_EBUDGET when no schedule fits the budgets; the message says what is needed and what there is, which operator needs
 * most, and the smallest changes that fit. PS_EBUDGET also when the plan puts more on disk than memory.disk_path has
 * free. On failure *engine is NULL.
 *
 * PS_ENOSYS when the system starts fewer threads than train.threads. The engine has its own threads and ignores OpenMP
 * and its environment variables.
 *
 * Weights are initialised in three steps: random values from train.seed; then the weights of model.from_pretrained,
 * read as by ps_engine_load_pretrained (heads may differ with model.new_head, or with model.head none); then those of
 * train.init_from. model.from_pretrained is read from the configuration that describes the model: `user` with
 * ps_model_from_config, `config` with other functions. Parameters are matched by the names that the function gives
 * them. The call fails when one of these loads fails.
 *
 * A process that mpirun or srun started as one of several is a rank. All ranks call this function, and then all
 * functions of the engine that say so, in the same order, each with its own micro-batches: calls in another order are
 * not detected and may hang. Together they train one model; each rank owns a share of the chunks. local_rank counts the
 * ranks of a machine from 0 (0 when there is one process). A failure on one rank fails the call on all: PS_ECOMM when
 * another rank failed or cannot be reached. */
PS_API PS_NODISCARD ps_status ps_initialize_engine(ps_model_func model_func, void *user, int local_rank,
                                                   const ps_config *config, ps_engine **engine);
/* The same without gradients and optimizer, for ps_infer and ps_evaluate; weights as above. 2 bytes a parameter (f32:
 * 4). */
PS_API PS_NODISCARD ps_status ps_initialize_inference_engine(ps_model_func model_func, void *user, int local_rank,
                                                             const ps_config *config, ps_engine **engine);
/* An inference engine for incremental decoding of one text by ps_decode. It keeps a KV cache, so that another token
 * costs one row, not a pass over the text. The cache has room for generation.max_length tokens (0: the sequence
 * length): twice n_kv_heads x head size x that many values for each attention. It is allocated in device memory at once
 * and counts in the budget (PS_EBUDGET). Micro-batch size and sequence length are ignored. PS_EINVAL when an attention
 * of the model is not causal, when the model ends with one row for a whole sequence, or when its position table has
 * fewer rows. ps_evaluate, ps_infer and ps_engine_set_shape refuse this engine (PS_ESTATE). */
PS_API PS_NODISCARD ps_status ps_initialize_generation_engine(ps_model_func model_func, void *user, int local_rank,
                                                              const ps_config *config, ps_engine **engine);

typedef enum ps_purpose {
    PS_FOR_INFERENCE,  /* as ps_initialize_inference_engine */
    PS_FOR_TRAINING,   /* as ps_initialize_engine */
    PS_FOR_GENERATION, /* as ps_initialize_generation_engine */
} ps_purpose;

typedef struct ps_engine_options {
    size_t struct_size;
    ps_comm *comm; /* its ranks train together; the engine keeps a reference. NULL: single rank */
    ps_purpose purpose;
    /* 1: parameters are left uninitialised. Calls other than ps_engine_load_checkpoint, ps_engine_load_pretrained and
     * ps_engine_begin_weights are PS_ESTATE until one of these has loaded them */
    int32_t is_empty;
} ps_engine_options;

/* The same as the three functions above, over the ranks of options->comm. One process may have engines over several
 * communicators. */
PS_API PS_NODISCARD ps_status ps_initialize_engine_with(ps_model_func model_func, void *user, const ps_config *config,
                                                        const ps_engine_options *options, ps_engine **engine);
PS_API void ps_engine_destroy(ps_engine *engine); /* NULL is accepted */

/* This rank and the number of ranks: 0 and 1 for a single rank. Pointers may be NULL. */
PS_API void ps_engine_get_ranks(const ps_engine *engine, int32_t *rank, int32_t *size);

/* ---- training (src/api/engine) ---------------------------------------------------------------------------- */

/* A target that is left out of the loss: PyTorch's ignore_index. */
enum { PS_IGNORE_INDEX = -100 };

/* One micro-batch: B = train_micro_batch_size_per_gpu, T = the sequence length, or both as set by ps_engine_set_shape.
 * Read during the call only. */
typedef struct ps_batch {
    size_t struct_size;
    const int32_t *tokens; /* [B T] */
    /* [B T], [B] labels for a classifier, or [B, 2] positions for ps_span_loss; or PS_IGNORE_INDEX */
    const int32_t *targets;
    const int32_t *attention_mask; /* [B T], 1: a token, 0: padding, which is masked; NULL: no padding */
    const int32_t *token_type_ids; /* [B T]; NULL: all 0 */
    /* instead of targets, for ps_mse_loss and ps_bce_with_logits_loss (the latter in [0, 1]): [rows, n]; NaN:
     * ignored */
    const float *values;
} ps_batch;

/* Forward pass of a micro-batch. *loss is set to the mean over the micro-batch's targets (ps_step_info.loss has that of
 * the step). With loss NULL the call does not synchronize with the device, which may still be computing when it
 * returns. The batch may be changed as soon as the call returns. A failure inside a step leaves the engine permanently
 * failed (PS_ESTATE with the text of that failure from then on); wrong arguments do not. */
PS_API PS_NODISCARD ps_status ps_forward(ps_engine *engine, const ps_batch *batch, float *loss);
/* Gradients of the last ps_forward. */
PS_API PS_NODISCARD ps_status ps_backward(ps_engine *engine);
/* Call after each ps_backward. Every gradient_accumulation_steps-th call unscales, checks for overflow, clips, updates
 * and advances the learning-rate schedule; other calls do nothing. A step whose gradients are not finite leaves the
 * weights unchanged. PS_ENUMERIC, with the first cause in the message, after train.max_nonfinite_steps such steps in a
 * row in which the loss scale could not be lowered; the engine stays usable. With memory.update_in_backward weights may
 * have changed by then, so the first such step is PS_ENUMERIC and leaves the engine permanently failed. */
PS_API PS_NODISCARD ps_status ps_step(ps_engine *engine);

/* Results of the last ps_step at an accumulation boundary. */
typedef struct ps_step_info {
    size_t struct_size;
    int64_t step;         /* optimizer steps made, skipped ones not counted */
    int32_t is_skipped;   /* 1: overflow, weights untouched */
    double learning_rate; /* used in it, of group 0 (ps_engine_get_group_info) */
    double grad_norm;     /* global norm before clipping, unscaled; infinite on overflow */
    double loss_scale;    /* used in it */
    /* mean over the targets of all its micro-batches and ranks, weighted as in ps_eval_info.weight; 0 without targets.
     * With train.loss_average = micro_batches the mean of the micro-batches' means */
    double loss;
    /* steps in a row, up to this one, that were skipped and in which the loss scale could not be lowered; 0: none */
    int64_t nonfinite_steps;
    double next_loss_scale; /* of the next step */
    int64_t n_targets;      /* that were not ignored, of all its micro-batches and ranks */
    /* with memory.update_in_backward = speculate: chunks of this rank that were updated within the backward pass, and
     * of these the ones whose updates were taken back, all or none, as the step was clipped or skipped */
    int64_t n_speculated, n_taken_back;
    int64_t speculation_paused; /* 1: no chunk was, as too many of the last steps were clipped or skipped */
    int64_t recomputed;         /* 1: after updates were taken back, the step's passes were made a second time */
} ps_step_info;

PS_API ps_status ps_engine_get_step_info(const ps_engine *engine, ps_step_info *out);

/* ---- evaluation and inference (src/api/engine) ------------------------------------------------------------ */

/* Mean loss of a micro-batch without dropout. Changes no parameter, gradient, schedule or random sequence, so training
 * continues with the same bits. Between steps only (PS_ESTATE after ps_backward until ps_step). loss may be NULL. */
PS_API PS_NODISCARD ps_status ps_evaluate(ps_engine *engine, const ps_batch *batch, float *loss);

/* Output of the model: logits [B, classes] of sequence classifiers, [B T, vocabulary] of language models, [B T, labels]
 * of token classifiers, [B T, 2] of question answering, or hidden states [B T, columns]. row: one row of these, or
 * PS_ALL_ROWS. The batch's targets are ignored. Of an engine for training one row, between steps as ps_evaluate. */
enum { PS_ALL_ROWS = -1 };
PS_API PS_NODISCARD ps_status ps_infer(ps_engine *engine, const ps_batch *batch, int64_t row, float *output);

/* Results of the last ps_forward or ps_evaluate. */
typedef struct ps_eval_info {
    size_t struct_size;
    double loss;       /* mean over the targets */
    int64_t n_targets; /* that were not ignored */
    /* targets with the largest logit; multi-label: values for which (logit > 0) equals (value > 0.5); ps_mse_loss: 0 */
    int64_t n_correct;
    double weight; /* divisor of the mean: n_targets, or the sum of their class weights */
} ps_eval_info;

PS_API ps_status ps_engine_get_eval_info(const ps_engine *engine, ps_eval_info *out);

/* Set the shape of micro-batches to batch x sequence, for ps_forward, ps_evaluate and the other calls from now on. Call
 * it between steps (PS_ESTATE inside a step, also between its micro-batches). Parameters, optimizer state, counters,
 * random sequences, chunks and budgets stay; activations and the placement of chunks over time are planned anew. The
 * bits of training through a sequence of shapes do not depend on budgets, chunk size or prefetch. A checkpoint that is
 * saved in another shape loads where the configuration is the same.
 *
 * model: as for ps_initialize_engine. It must describe the same parameters by name, shape and order (and with
 * client.opts.with_activation_offload as many inputs of checkpoint segments), else PS_EINVAL. The plans of the last 32
 * shapes and of the configured shape are cached by model, user and size; for these the function is not called, and
 * nothing is planned. PS_EBUDGET, as from ps_initialize_engine, when the new shape does not fit the budgets with this
 * chunk size and memory.save_buffer: configure the largest shape. After either refusal the engine keeps its shape.
 * Where model data fill device and host to the last chunk, and the disk tier cannot hold them all, each change is
 * planned from the present placement of chunks, which takes as long as planning.
 *
 * ps_engine_get_shape and the planned_ members of ps_memory_info then describe a run that begins with the new shape. In
 * the steps right after a change chunks are placed differently: peaks stay within the budgets, but may exceed the
 * planned ones, and moved bytes differ.
 *
 * All ranks call it, with the same sizes. When one rank refuses, all refuse, with a message that names that rank ("rank
 * 2 (host): ..."). */
PS_API PS_NODISCARD ps_status ps_engine_set_shape(ps_engine *engine, ps_model_func model, void *user, int64_t batch,
                                                  int64_t sequence);

/* Present B and T, gradient accumulation steps, and the columns of ps_infer's output: classes, the vocabulary, values a
 * row, 2 for question answering, or those of hidden states. Any pointer may be NULL. */
PS_API void ps_engine_get_shape(const ps_engine *engine, int64_t *batch, int64_t *sequence, int64_t *accumulation,
                                int64_t *n_outputs);

/* ---- incremental decoding (src/api/engine) ---------------------------------------------------------------- */

/* Append n >= 1 tokens to the text. logits [n_tokens of the vocabulary] are those after the last token (of a model
 * without a head: hidden states [columns]). A long prompt is processed in a few passes. The bits depend on the number
 * of tokens of each call, not on budgets. PS_EINVAL when the KV cache has no room for all of them
 * (ps_decode_get_length) or a token is not in the vocabulary; the text is then unchanged. Generation engines only
 * (PS_ESTATE). */
PS_API PS_NODISCARD ps_status ps_decode(ps_engine *engine, const int32_t *tokens, int64_t n, float *logits);
/* Keep the first n tokens of the text and drop the others; 0 begins another text. PS_EINVAL when the text has fewer.
 * Replacing parameters drops the whole text. */
PS_API PS_NODISCARD ps_status ps_decode_rewind(ps_engine *engine, int64_t n);
/* Number of tokens of the text, and its maximum; 0 for other engines. Pointers may be NULL. */
PS_API void ps_decode_get_length(const ps_engine *engine, int64_t *length, int64_t *max_length);

/* ---- files of weights (src/api/engine) -------------------------------------------------------------------- */

/* Save all parameters (f32, names as declared) in one file: safetensors, or, when path ends in .pt, .pth or .bin, a
 * state_dict as torch.save writes it. The write is atomic: an existing file is replaced when the new one is complete.
 * Of several ranks, rank 0 writes the file. */
PS_API PS_NODISCARD ps_status ps_engine_save_weights(ps_engine *engine, const char *path);

/* Result of loading: counts of tensors. */
typedef struct ps_load_info {
    size_t struct_size;
    int64_t n_loaded;      /* parameters that were read */
    int64_t n_new;         /* parameters that no file has; their values are unchanged */
    int64_t n_ignored;     /* tensors of the file that are not used: buffers, copies of tied parameters, other heads */
    const char *first_new; /* name of one of the n_new parameters, valid as long as the engine; NULL when n_new is 0 */
    int64_t n_new_rows;    /* rows of the token embeddings that the file lacks; their values are unchanged */
} ps_load_info;

typedef struct ps_load_options {
    size_t struct_size;
    int32_t allow_new_head; /* 1: the file may lack the head's parameters, or have another head's */
    int32_t allow_new_rows; /* 1: a tensor with a row for each token may have fewer rows than in the model */
} ps_load_options;

/* Read all parameters. path is a safetensors file, a file of torch.save with a state_dict, a folder with either (also
 * in shards) as Hugging Face's transformers write it, or a checkpoint's folder. Types f64, f32, bf16, f16. Names may
 * lack the base model's prefix ("transformer.", "model.", "bert."); doc/file-formats.md has the rules. Missing and
 * unexpected tensors and wrong shapes are errors that name them (PS_EFORMAT), found before anything is changed. A later
 * failure (PS_EIO, PS_ECANCELED) leaves some parameters replaced and others not; the engine is then permanently failed
 * on all ranks. PS_ESTATE inside a step. options (NULL: none) and info may be NULL. */
PS_API PS_NODISCARD ps_status ps_engine_load_pretrained(ps_engine *engine, const char *path,
                                                        const ps_load_options *options, ps_load_info *info);

/* Initialise the weights of an engine with is_empty as ps_initialize_engine does: from model.from_pretrained of
 * `described`, the configuration that describes the model, then from train.init_from of config; all other weights are
 * random. info, which may be NULL, is about model.from_pretrained (n_loaded is 0 without it). */
PS_API PS_NODISCARD ps_status ps_engine_begin_weights(ps_engine *engine, const ps_config *described,
                                                      const ps_config *config, ps_load_info *info);

/* Load the state of a PyTorch optimizer. path is a file of torch.save with optimizer.state_dict(), alone or in a
 * dictionary as "optimizer" or "optimizer_state_dict". Its states replace the engine's, and its "step" the count of
 * updates (ps_engine_set_update_count). States of SGD and Lion have no "step"; the count then becomes at least 1. An
 * optimizer that has made no step sets states and count to 0. Learning rates, betas and other options of its groups are
 * ignored; the configuration has them. Parameters are matched by "param_names" where the file has them (PyTorch 2.6),
 * else by number. Numbers must follow the order of model.parameters() of the class in transformers (for other models:
 * of declaration), in one group or in two, with and without weight decay. PS_EFORMAT when numbers or shapes do not
 * match the model, the parameters' steps differ, or the file is damaged; PS_EINVAL when the states are of another
 * optimizer; PS_ESTATE for an inference engine, or inside a step. These errors are found before anything is changed; a
 * file that cannot be read to its end (PS_EIO) leaves states partly replaced. All ranks call it. */
PS_API PS_NODISCARD ps_status ps_engine_load_optimizer(ps_engine *engine, const char *path);

/* ---- checkpoints (src/api, src/weights) ------------------------------------------------------------------- */

/* A checkpoint has all that training needs to continue with the same bits: fp32 masters, optimizer states, counters,
 * loss scale. doc/checkpoints.md describes the files. `folder` (created if missing, in an existing folder) holds a
 * folder for each checkpoint, "step-000100", and "latest", which names the newest complete one. A checkpoint is
 * complete or absent, whenever the process or the machine stops. The newest train.keep_last checkpoints are kept. The
 * next save removes incomplete files of runs that were killed. */

typedef struct ps_checkpoint_info {
    size_t struct_size;
    int64_t step;         /* optimizer steps begun, skipped ones included */
    int64_t bytes;        /* of all files */
    double seconds;       /* from the call of begin until the checkpoint was complete on disk */
    double stall_seconds; /* of these, time for which the caller was blocked */
    char name[32];        /* of its folder: "step-000100" */
} ps_checkpoint_info;

/* Save the present state, between steps (else PS_ESTATE). caller_json: NULL, or a JSON object that
 * ps_engine_load_checkpoint returns, such as the position in the data. info may be NULL. PS_EIO when writing failed
 * (disk full): no new checkpoint exists then, earlier ones and "latest" are unchanged, and the engine stays usable. All
 * ranks call it; each writes what it owns, so `folder` must be on a file system that all ranks share. */
PS_API PS_NODISCARD ps_status ps_engine_save_checkpoint(ps_engine *engine, const char *folder, const char *caller_json,
                                                        ps_checkpoint_info *info);

/* The same, asynchronously: begin marks the state, and the following step passes it to a writer thread. The checkpoint
 * has the state at begin. Training has the same bits and moves the same bytes as without a save. With
 * train.save_interval > 0 in the configuration, the step copies to a buffer of memory.save_buffer bytes; otherwise the
 * step waits until each piece is written. One save at a time: call finish before the next begin (PS_ESTATE). Destroying
 * the engine discards a save that no further step has completed. */
PS_API PS_NODISCARD ps_status ps_engine_begin_checkpoint(ps_engine *engine, const char *folder,
                                                         const char *caller_json);
/* 1 when finish would not block: the checkpoint is complete, has failed, or none is in progress. With several ranks
 * this is about this rank's part only; the checkpoint exists after finish, which waits for all parts. */
PS_API int ps_engine_checkpoint_is_done(const ps_engine *engine);
/* Wait until the checkpoint in progress is complete. Data that no step has passed to the writer yet are read now, so
 * the engine must be between steps. Errors as of ps_engine_save_checkpoint; PS_ESTATE when none is in progress. */
PS_API PS_NODISCARD ps_status ps_engine_finish_checkpoint(ps_engine *engine, ps_checkpoint_info *info);

/* Find the checkpoint to resume from in `folder`, as given to ps_engine_save_checkpoint. *path, freed by ps_free, is
 * the folder of the checkpoint that "latest" names, or without a "latest" of the newest complete one; NULL when there
 * is none, or `folder` does not exist. is_latest, which may be NULL: 1 where "latest" names it. Nothing on disk
 * changes. PS_EFORMAT when "latest" is damaged. */
PS_API PS_NODISCARD ps_status ps_checkpoint_find(const char *folder, char **path, int32_t *is_latest);

/* Verify the checkpoint whose own folder this is: each file is read once and compared with its size and hash in
 * state.json. PS_EFORMAT or PS_EIO, naming the file that is damaged or missing. */
PS_API PS_NODISCARD ps_status ps_checkpoint_check(const char *folder);

/* Remove all checkpoints in `folder`, as given to ps_engine_save_checkpoint, with "latest" and the incomplete files of
 * runs that were killed; other files stay. Does nothing where there is no such folder. PS_EIO. */
PS_API PS_NODISCARD ps_status ps_checkpoint_remove_all(const char *folder);

/* Resume from a checkpoint: its own folder, or the folder whose "latest" names it. Chunk size, budgets, number format
 * and the number of ranks may differ from those of the save. PS_EINVAL, naming both values, when the model's options,
 * micro-batch, micro-batches a step (accumulation times ranks), sequence length, seed or frozen parameters differ.
 * Every byte is verified: a missing, truncated, swapped or changed file is PS_EIO or PS_EFORMAT naming it. An inference
 * engine reads the parameters only. Training continues with the checkpoint's train.loss_average (micro_batches where
 * the checkpoint has none); ps_engine_get_notices reports it when another one is configured. *caller_json (caller_json
 * may be NULL) is the caller_json of the save, or NULL; freed by ps_free. When damage is found after parameters were
 * replaced, the engine is permanently failed. */
PS_API PS_NODISCARD ps_status ps_engine_load_checkpoint(ps_engine *engine, const char *folder, char **caller_json);

/* ---- parameters and states (src/api/engine) --------------------------------------------------------------- */

/* With several ranks the elements of a tensor are stored on the ranks that own its chunks. All ranks then make the
 * calls of this section and of the two before it with the same arguments. A read collects the elements from their
 * owners; a write stores them there. A failure on one rank fails the call on all, with a message that names that rank
 * ("rank 2 (host): ..."). */

/* xxh3 (64 bit) over the fp32 values as ps_engine_read_tensor returns them, tensor by tensor in the order of
 * declaration. It is the same on all ranks, and does not depend on their number. */
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
 * rounded value). All ranks get all elements that are read. Replace values between steps only (else PS_ESTATE). Where
 * updates may run within the backward pass (memory.update_in_backward), the same holds for reading, and for the hash
 * above. */
PS_API PS_NODISCARD ps_status ps_engine_read_tensor(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                    float *out);
PS_API PS_NODISCARD ps_status ps_engine_write_tensor(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                     const float *in);
/* Name of the optimizer's state i = 0, 1, ..., as in torch: "exp_avg" and "exp_avg_sq" for Adam and AdamW,
 * "momentum_buffer" for SGD with momentum, "exp_avg" for Lion; for Muon "momentum_buffer", which matrices have, then
 * "exp_avg" and "exp_avg_sq", which other tensors have. A state has one number for each element of a parameter. The
 * text is static. NULL past the last state, and for an inference engine, which has none. */
PS_API const char *ps_engine_get_state_name(const ps_engine *engine, int32_t i);
/* Read or replace `n` elements from `first` of a tensor's state, under the same conditions as its value. Deferred
 * updates are carried out first. PS_EINVAL, with the valid names, for a state that the optimizer or the tensor lacks;
 * PS_ESTATE for an inference engine. Writing changes neither the value nor the count of updates. Compact states
 * (optimizer.params.state_format) are decoded, and rounded when they are written, in groups of 32 elements from the
 * first on: of a group that is written in part the rest is rounded again. */
PS_API PS_NODISCARD ps_status ps_engine_read_state(ps_engine *engine, int64_t tensor, const char *state, int64_t first,
                                                   int64_t n, float *out);
PS_API PS_NODISCARD ps_status ps_engine_write_state(ps_engine *engine, int64_t tensor, const char *state, int64_t first,
                                                    int64_t n, const float *in);

/* ---- control (src/api/engine) ----------------------------------------------------------------------------- */

/* Number of updates made so far, including those of a checkpoint that was loaded; skipped steps are not counted. In the
 * next update Adam's t (torch's "step") is this plus one, and the learning rate is the schedule's after that many
 * updates. 0 for an inference engine. Set it between steps (n_updates >= 0, else PS_EINVAL): PS_ESTATE inside a step,
 * also between its micro-batches, and for an inference engine. All ranks set the same number. */
PS_API int64_t ps_engine_get_update_count(const ps_engine *engine);
PS_API PS_NODISCARD ps_status ps_engine_set_update_count(ps_engine *engine, int64_t n_updates);

/* Read n elements from `first` of a parameter's stored gradient, between ps_backward and the update. It is the sum,
 * over the targets of all ranks and of all micro-batches done so far, of the derivatives of their losses times their
 * class weights (1 without), multiplied by loss_scale / (n A). After the step's last ps_backward
 *     gradient of the step's loss = value / (loss_scale W / (n A))
 * n: the targets of a micro-batch, ignored ones too: B T for language models and token classifiers, B for sequence
 *    classifiers, 2 B for question answering, and the number of values of ps_mse_loss and ps_bce_with_logits_loss;
 * A: gradient_accumulation_steps;
 * W: the sum of ps_eval_info.weight over the step's micro-batches of all ranks; n A for one micro-batch without
 *    ignored targets and class weights;
 * loss_scale: the loss scale divided by zero.gradient_predivide_factor.
 * With train.loss_average = micro_batches the stored gradient is the sum over micro-batches of the gradients of their
 * means, times loss_scale / A. PS_ESTATE at other times, and where updates may run within ps_backward
 * (memory.update_in_backward); PS_EINVAL for a frozen parameter. */
PS_API PS_NODISCARD ps_status ps_engine_read_gradient(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                      float *out);

/* Replace n elements from `first` of the stored gradient by `in`, at the same times. Values have the same factors as
 * those that ps_engine_read_gradient returns. All ranks call with the same values, which are the sum over ranks.
 * Gradients of 16 bits are rounded. After the step's last ps_backward the gradient norm is computed again from all
 * stored gradients, which reads those on disk; ps_step reports this norm, clips by it, and checks it for overflow. */
PS_API PS_NODISCARD ps_status ps_engine_write_gradient(ps_engine *engine, int64_t tensor, int64_t first, int64_t n,
                                                       const float *in);

/* Number of parameter groups (PyTorch's param_groups). Groups from 1 on are those of optimizer.param_groups in the
 * configuration, in its order; group 0 has all other parameters. */
PS_API int64_t ps_engine_get_group_count(const ps_engine *engine);

typedef struct ps_group_info {
    size_t struct_size;
    const char *params;         /* its patterns, separated by commas, "" for group 0; valid as long as the engine */
    int64_t n_tensors;          /* frozen ones too */
    int64_t trained_parameters; /* elements */
    double learning_rate;       /* of the next update */
    double weight_decay;        /* of the next update; not applied to biases and norms, unless the group sets it */
} ps_group_info;

/* PS_EINVAL when there is no such group; PS_ESTATE for inference engines. */
PS_API PS_NODISCARD ps_status ps_engine_get_group_info(const ps_engine *engine, int64_t group, ps_group_info *out);

/* Override the learning rate or the weight decay of a group from the next update on, until it is set again. A value
 * below 0 ends the override: configuration and schedule then apply as if it had never been set. Checkpoints do not
 * contain overrides, and loading one does not change them. All ranks call with the same values (else PS_EINVAL on all,
 * and nothing is set). PS_EINVAL: no such group, or not a finite number. PS_ESTATE: between ps_backward and ps_step
 * where updates may run within ps_backward (memory.update_in_backward). */
PS_API PS_NODISCARD ps_status ps_engine_set_learning_rate(ps_engine *engine, int64_t group, double rate);
PS_API PS_NODISCARD ps_status ps_engine_set_weight_decay(ps_engine *engine, int64_t group, double decay);

/* Set the loss scale of the next step, a number above 0, in any number format. A dynamic loss scale (fp16.loss_scale =
 * 0) continues from this value, which must be within fp16.min_loss_scale and max_loss_scale (else PS_EINVAL); its
 * counters are reset, and checkpoints store it. A static loss scale keeps the value; checkpoints do not store it.
 * Between steps only (PS_ESTATE); all ranks call with the same value. */
PS_API PS_NODISCARD ps_status ps_engine_set_loss_scale(ps_engine *engine, double scale);

/* ---- introspection (src/api/engine, src/train/run) -------------------------------------------------------- */

typedef struct ps_memory_info {
    size_t struct_size;
    int64_t parameters;
    int64_t model_data_bytes; /* of all chunk lists */
    int64_t chunk_elements, n_chunks;
    double chunk_waste; /* share of chunk memory without tensors */
    int64_t device_budget_bytes, host_budget_bytes, disk_budget_bytes;
    int64_t device_peak_bytes, host_peak_bytes, disk_peak_bytes; /* since ps_engine_reset_peaks */
    int64_t device_used_bytes, host_used_bytes, disk_used_bytes;
    int64_t non_model_peak_bytes; /* activations and workspace, planned; includes the KV cache of ps_decode */
    /* of the activations: logits kept for the backward pass. 0: they are recomputed, or there are none */
    int64_t kept_logits_bytes;
    int64_t host_to_device_bytes, device_to_host_bytes, disk_read_bytes, disk_write_bytes; /* since creation */
    int64_t wait_ns; /* computing waited for copies, since creation */
    /* planned for a run in the present shape from its beginning on */
    int64_t planned_device_peak_bytes, planned_host_peak_bytes, planned_disk_peak_bytes;
    int64_t planned_step;        /* steps that the plan simulated; later steps repeat */
    int64_t planned_moved_bytes; /* over all links between tiers, in step number planned_step */
    int64_t planned_sent_bytes;  /* to other ranks, in the same step */
    /* bytes sent to other ranks, and time for which computing waited for other ranks, since the rendezvous */
    int64_t sent_bytes, comm_wait_ns;
    int64_t trained_parameters; /* of `parameters`, those that are not frozen; 0 for an inference engine */
    /* of a checkpoint's arrays on all ranks: 4 bytes a parameter, and for trained ones each state of the optimizer as
     * optimizer.params.state_format stores it (fp32: 4). Headers and state.json come in addition. 0 for inference */
    int64_t checkpoint_bytes;
} ps_memory_info;

PS_API ps_status ps_engine_get_memory_info(const ps_engine *engine, ps_memory_info *out);
PS_API void ps_engine_reset_peaks(ps_engine *engine);

/* Present use of memory: chunk lists by name ("PARAM16", "MOMENTUM", ...), "activations", "staging", "keys and values",
 * "other". Their sum is the bytes in use of each tier; ps_memory_info has budgets and peaks. */
typedef struct ps_memory_use {
    size_t struct_size;
    const char *name; /* valid until the shape changes or the engine is destroyed */
    int64_t device_bytes, host_bytes, disk_bytes;
} ps_memory_use;

/* index counts from 0; PS_EINVAL past the last entry. */
PS_API ps_status ps_engine_get_memory_use(const ps_engine *engine, int index, ps_memory_use *out);

/* The same and more as a readable table: budget, peak and use of each tier by chunk list, activations, staging; chunks
 * by state and by the tiers that hold their content; bytes moved; the moments that need most memory. The caller frees
 * *out by ps_free. Works on a failed engine, too. *out = NULL and PS_ENOMEM_HOST on failure. */
PS_API PS_NODISCARD ps_status ps_engine_dump_memory(const ps_engine *engine, char **out);
/* The same table, taken at the moment that ran out of memory (PS_EBUDGET, PS_ENOMEM_DEV) in a step, or, when
 * ps_initialize_engine refused the model, in the simulation of the plan. "" when no moment has run out of memory since
 * this thread last initialised an engine. Valid until this thread initialises another engine, or another moment runs
 * out of memory. */
PS_API const char *ps_last_memory_dump(void);

/* The device that computes, and why it was chosen. Texts are valid as long as the engine. */
typedef struct ps_device_info {
    size_t struct_size;
    const char *backend;     /* "cuda", "ref", or the instruction set of the CPU kernels */
    const char *gpu;         /* name of the GPU that computes; "": none. The members below describe it */
    const char *why_not_gpu; /* why an available GPU is not used, unless the configuration asked for that; "": no such
                                case */
    const char *attention;   /* implementation of attention on it */
    int32_t gpu_number, n_gpus;
    int64_t gpu_bytes, usable_bytes; /* of its memory; of these, what this rank may use */
    int32_t n_sharers;               /* number of ranks that share it */
    int32_t has_nccl;                /* 1: NCCL transfers chunks between GPUs */
    const char *why_not_nccl;        /* "": NCCL is used, or was not asked for */
    const char *memory;              /* budgets that were chosen automatically and why, in one or two lines; "": all
                                        were given */
} ps_device_info;

PS_API ps_status ps_engine_get_device_info(const ps_engine *engine, ps_device_info *out);

/* Notices for the user, in one line: options that have no effect, a checkpoint resumed with other kernels than it was
 * saved with. "": none. Valid until the next call of the engine. */
PS_API const char *ps_engine_get_notices(const ps_engine *engine);

/* I/O of the disk tier. n_files is 0 when there is none. */
typedef struct ps_disk_info {
    size_t struct_size;
    const char *backend; /* "io_uring", "threads" */
    const char *ways;    /* io_uring features that the kernel has: "registered files, ...", or "" */
    int32_t n_files;
    int32_t is_direct;    /* 1: O_DIRECT in all files */
    int64_t processor_ns; /* CPU time of the I/O threads */
    const char *folders;  /* folders of its files, as in memory.disk_path; "" without files */
} ps_disk_info;

PS_API ps_status ps_engine_get_disk_info(const ps_engine *engine, ps_disk_info *out);

/* Planned time of a step in the present shape, and its lower bound, from the throughput and bandwidth of `hardware` in
 * the configuration; doc/plan.md explains both. All 0 and "" where the machine is not known. */
typedef struct ps_bound_info {
    size_t struct_size;
    double planned_s, planned_compute_s; /* a step; of it computing, slowed by concurrent copies */
    double planned_wait_s;               /* of it waiting for copies */
    double bound_s;                      /* lower bound: time of the busiest resource when none waits for another */
    double disk_phases_s;                /* lower bound of the passes with the disk traffic of their updates; 0: memory
                                            holds all */
    char by[64];                         /* the busiest resource: "the disk" */
    char text[320];                      /* the lower bound: "0.993 s for computing alone; 0.103 s for the disk" */
    char between[320];                   /* reasons for the gap between bound and plan; "": none */
} ps_bound_info;

PS_API ps_status ps_engine_get_bound_info(const ps_engine *engine, const ps_config *config, ps_bound_info *out);

/* Profiles; doc/profile.md describes the file. The engine records the steps that profile.path and profile.steps of the
 * configuration name, and writes the profile after the last of them, or in ps_engine_destroy; a failure to write it
 * fails no step. Programs can also record between start and stop. */

/* Record from the next step on, until stop, or until 64 MiB are full. Discards an earlier recording. PS_ESTATE while a
 * profile is being recorded, and for engines that do not train. */
PS_API PS_NODISCARD ps_status ps_engine_start_profile(ps_engine *engine);
/* Stop recording, also inside a step. With profile.path the profile is written there, unless steps that the
 * configuration names are still to come. When these begin, the recording is discarded, so save it before
 * (ps_engine_save_profile). PS_ESTATE when nothing is being recorded. */
PS_API PS_NODISCARD ps_status ps_engine_stop_profile(ps_engine *engine);

typedef struct ps_profile_info {
    size_t struct_size;
    const char *path;              /* "": no profile. Valid, like error, as long as the engine */
    int64_t first_step, last_step; /* recorded to their end; 0: none so far */
    int32_t is_written;            /* 1: the file has all these steps */
    const char *error;             /* why writing failed; "": it did not, or was not tried yet */
} ps_profile_info;

PS_API ps_status ps_engine_get_profile_info(const ps_engine *engine, ps_profile_info *out);
/* Write the complete steps that have been recorded to `path`, or, if NULL, to profile.path. The write is atomic.
 * PS_ESTATE when no step was recorded, PS_EIO. */
PS_API PS_NODISCARD ps_status ps_engine_save_profile(ps_engine *engine, const char *path);

/* ---- stalls (src/device) ---------------------------------------------------------------------------------- */

/* text: what does not go on, who waits for what since when, and the checkpoint to continue from. Valid during the
 * call. */
typedef void (*ps_stall_func)(void *user, const char *text);

/* When nothing has gone on for train.stall_s within a call of an engine or a client, func is called, on a thread of the
 * library. The call that hangs cannot return an error, so func usually ends the process (_exit). When it returns, the
 * library waits on, and calls again after that time. Calls of the engine in func hang, too. With several ranks the
 * others have been told by then: their calls fail with the text. NULL, the default: the text goes to the log, as a
 * warning. */
PS_API void ps_set_stall(ps_stall_func func, void *user);

/* ---- log, progress and sizes as text (src/base) ----------------------------------------------------------- */

typedef enum ps_log_level {
    PS_LOG_INFO,    /* decisions: the plan of an engine, the device that computes */
    PS_LOG_WARNING, /* problems that fail no call: a skipped step, a profile that could not be written */
} ps_log_level;

/* line: without a newline, valid during the call. The function may be called from any thread, by several at once, and
 * must not call ps_set_log. */
typedef void (*ps_log_func)(void *user, ps_log_level level, const char *line);

/* Set the log function for all engines of the process; NULL, the default, disables logging. The previous function is
 * not called any more after this returns. */
PS_API void ps_set_log(ps_log_func func, void *user);

typedef enum ps_progress_kind {
    PS_PROGRESS_PLAN, /* candidate plans that were tried, from 0 for each search; total 0: not known */
    PS_PROGRESS_LOAD, /* tensors of a file, or of files of a checkpoint */
    PS_PROGRESS_SAVE, /* tensors of a file */
} ps_progress_kind;

typedef struct ps_progress {
    size_t struct_size; /* as the library has it */
    ps_progress_kind what;
    int32_t reserved;
    int64_t done, total;
} ps_progress;

/* Called on the thread that set it, during long calls: initialising an engine, changing the shape, reading and writing
 * weights, loading a checkpoint. A return value other than 0 cancels the call, which then fails with PS_ECANCELED as
 * with any other failure at that place: no engine is created, no file is replaced; where parameters are being replaced,
 * the engine is permanently failed. One rank is enough to cancel on all. The function must not use the engine. */
typedef int (*ps_progress_func)(void *user, const ps_progress *progress);

/* Set the progress function for calls of this thread; NULL: none. */
PS_API void ps_set_progress(ps_progress_func func, void *user);

enum { PS_BYTES_TEXT_MAX = 24 };

/* A size as all messages of the library print it: in powers of 1000, rounded to nearest, three digits at most: "999 B",
 * "96 MB", "31.5 MB", "-1.25 GB". Returns text. */
PS_API const char *ps_bytes_format(int64_t bytes, char text[PS_BYTES_TEXT_MAX]);

#ifdef __cplusplus
}
#endif
#endif
