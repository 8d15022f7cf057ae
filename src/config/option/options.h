/* options.h - the options of options.def as ps_options, a flat structure that the other layers read, and as numbers for
 * the table of option.h. src/config/ reads the values. */
#ifndef PS_OPTION_OPTIONS_H
#define PS_OPTION_OPTIONS_H

#include "base/base.h"
#include "base/bytes.h"

/* ---- enumerations: XX(value, text in the configuration) --------------------------------------------------------- */

/* Optimizers have more columns: XX(value, text, name, params). name: of ps_optimizer_<name> (src/train/optim/). params:
 * its optimizer.params in addition to lr, weight_decay and use_hybrid_adam, each as PARAM(last part of the key). */
#define PS_CONFIG_OPTIMIZER_MAP(XX)                                                                                    \
    XX(PS_CONFIG_OPTIMIZER_ADAM, "Adam", adam, PARAM(betas) PARAM(eps) PARAM(state_format))                            \
    XX(PS_CONFIG_OPTIMIZER_ADAMW, "AdamW", adamw, PARAM(betas) PARAM(eps) PARAM(state_format))                         \
    XX(PS_CONFIG_OPTIMIZER_SGD, "SGD", sgd, PARAM(momentum) PARAM(dampening) PARAM(nesterov) PARAM(state_format))      \
    XX(PS_CONFIG_OPTIMIZER_LION, "Lion", lion, PARAM(betas) PARAM(state_format))                                       \
    XX(PS_CONFIG_OPTIMIZER_MUON, "Muon", muon,                                                                         \
       PARAM(betas) PARAM(eps) PARAM(momentum) PARAM(nesterov) PARAM(ns_coefficients) PARAM(ns_eps) PARAM(ns_steps)    \
           PARAM(ns_gemms) PARAM(adjust_lr_fn) PARAM(adamw_names))
#define PS_CONFIG_NS_GEMMS_MAP(XX) XX(PS_CONFIG_NS_GEMMS_BF16, "bf16") XX(PS_CONFIG_NS_GEMMS_FP32, "fp32")
#define PS_CONFIG_ADJUST_LR_MAP(XX)                                                                                    \
    XX(PS_CONFIG_ADJUST_LR_ORIGINAL, "original") XX(PS_CONFIG_ADJUST_LR_MATCH_RMS_ADAMW, "match_rms_adamw")
#define PS_CONFIG_STATE_FORMAT_MAP(XX)                                                                                 \
    XX(PS_CONFIG_STATE_FORMAT_FP32, "fp32")                                                                            \
    XX(PS_CONFIG_STATE_FORMAT_COMPACT, "compact")                                                                      \
    XX(PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT, "compact_split")                                                          \
    XX(PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC, "bf16_stochastic")
#define PS_CONFIG_SCHEDULER_MAP(XX)                                                                                    \
    XX(PS_CONFIG_SCHEDULER_WARMUP_LR, "WarmupLR")                                                                      \
    XX(PS_CONFIG_SCHEDULER_WARMUP_DECAY_LR, "WarmupDecayLR")                                                           \
    XX(PS_CONFIG_SCHEDULER_WARMUP_COSINE_LR, "WarmupCosineLR")                                                         \
    XX(PS_CONFIG_SCHEDULER_CONSTANT, "constant")                                                                       \
    XX(PS_CONFIG_SCHEDULER_CONSTANT_WITH_WARMUP, "constant_with_warmup")                                               \
    XX(PS_CONFIG_SCHEDULER_LINEAR, "linear")                                                                           \
    XX(PS_CONFIG_SCHEDULER_COSINE, "cosine")
#define PS_CONFIG_WARMUP_MAP(XX) XX(PS_CONFIG_WARMUP_LOG, "log") XX(PS_CONFIG_WARMUP_LINEAR, "linear")
/* Families of models. The third column names their object ps_family_<third>, in src/config/model/. */
#define PS_CONFIG_MODEL_MAP(XX)                                                                                        \
    XX(PS_CONFIG_MODEL_GPT2, "gpt2", gpt2)                                                                             \
    XX(PS_CONFIG_MODEL_LLAMA, "llama", llama)                                                                          \
    XX(PS_CONFIG_MODEL_MISTRAL, "mistral", mistral)                                                                    \
    XX(PS_CONFIG_MODEL_QWEN2, "qwen2", qwen2)                                                                          \
    XX(PS_CONFIG_MODEL_QWEN3, "qwen3", qwen3)                                                                          \
    XX(PS_CONFIG_MODEL_BERT, "bert", bert)                                                                             \
    XX(PS_CONFIG_MODEL_OLMO2, "olmo2", olmo2)
#define PS_CONFIG_HEAD_MAP(XX)                                                                                         \
    XX(PS_CONFIG_HEAD_CAUSAL_LM, "causal_lm")                                                                          \
    XX(PS_CONFIG_HEAD_MASKED_LM, "masked_lm")                                                                          \
    XX(PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION, "sequence_classification")                                              \
    XX(PS_CONFIG_HEAD_TOKEN_CLASSIFICATION, "token_classification")                                                    \
    XX(PS_CONFIG_HEAD_QUESTION_ANSWERING, "question_answering")                                                        \
    XX(PS_CONFIG_HEAD_NONE, "none")
/* Tasks of sequence_classification, with Hugging Face's names. */
#define PS_CONFIG_PROBLEM_MAP(XX)                                                                                      \
    XX(PS_CONFIG_PROBLEM_AUTO, "auto")                                                                                 \
    XX(PS_CONFIG_PROBLEM_SINGLE_LABEL, "single_label_classification")                                                  \
    XX(PS_CONFIG_PROBLEM_MULTI_LABEL, "multi_label_classification")                                                    \
    XX(PS_CONFIG_PROBLEM_REGRESSION, "regression")
#define PS_CONFIG_ROPE_MAP(XX)                                                                                         \
    XX(PS_CONFIG_ROPE_DEFAULT, "default")                                                                              \
    XX(PS_CONFIG_ROPE_LINEAR, "linear") XX(PS_CONFIG_ROPE_LLAMA3, "llama3") XX(PS_CONFIG_ROPE_YARN, "yarn")
/* Presets have a name, a type and sizes: XX(value, text, type, positions, hidden size, layers, heads). */
#define PS_CONFIG_PRESET_MAP(XX)                                                                                       \
    XX(PS_CONFIG_PRESET_NONE, "none", GPT2, 0, 0, 0, 0)                                                                \
    XX(PS_CONFIG_PRESET_GPT2, "gpt2", GPT2, 1024, 768, 12, 12)                                                         \
    XX(PS_CONFIG_PRESET_GPT2_MEDIUM, "gpt2-medium", GPT2, 1024, 1024, 24, 16)                                          \
    XX(PS_CONFIG_PRESET_GPT2_LARGE, "gpt2-large", GPT2, 1024, 1280, 36, 20)                                            \
    XX(PS_CONFIG_PRESET_GPT2_XL, "gpt2-xl", GPT2, 1024, 1600, 48, 25)                                                  \
    XX(PS_CONFIG_PRESET_LLAMA_3_1_8B, "llama-3.1-8b", LLAMA, 131072, 4096, 32, 32)                                     \
    XX(PS_CONFIG_PRESET_QWEN3_0_6B, "qwen3-0.6b", QWEN3, 40960, 1024, 28, 16)                                          \
    XX(PS_CONFIG_PRESET_BERT, "Bert", BERT, 512, 768, 6, 12)                                                           \
    XX(PS_CONFIG_PRESET_BERTLARGE, "Bertlarge", BERT, 512, 1024, 24, 16)                                               \
    XX(PS_CONFIG_PRESET_GPT2SMALL, "GPT2small", GPT2, 128, 1536, 24, 16)                                               \
    XX(PS_CONFIG_PRESET_GPT2_1B, "GPT2_1B", GPT2, 1024, 2048, 20, 16)                                                  \
    XX(PS_CONFIG_PRESET_MEGATRON_1_3B, "megatron_1.3B", GPT2, 1024, 2048, 24, 32)                                      \
    XX(PS_CONFIG_PRESET_GPT2_2B, "GPT2_2B", GPT2, 1024, 2048, 40, 16)                                                  \
    XX(PS_CONFIG_PRESET_MEGATRON_3_9B, "megatron_3.9B", GPT2, 1024, 2560, 24, 40)                                      \
    XX(PS_CONFIG_PRESET_GPT2_4B, "GPT2_4B", GPT2, 1024, 2304, 64, 16)                                                  \
    XX(PS_CONFIG_PRESET_GPT3_6B, "GPT3_6B", GPT2, 1024, 3072, 53, 16)                                                  \
    XX(PS_CONFIG_PRESET_GPT3_8B, "GPT3_8B", GPT2, 1024, 3072, 72, 16)                                                  \
    XX(PS_CONFIG_PRESET_GPT3_10B, "GPT3_10B", GPT2, 1024, 4096, 50, 16)                                                \
    XX(PS_CONFIG_PRESET_GPT3_11B, "GPT3_11B", GPT2, 1024, 4096, 55, 16)                                                \
    XX(PS_CONFIG_PRESET_GPT3_12B, "GPT3_12B", GPT2, 1024, 4096, 60, 16)                                                \
    XX(PS_CONFIG_PRESET_GPT3_13B, "GPT3_13B", GPT2, 1024, 4096, 65, 16)                                                \
    XX(PS_CONFIG_PRESET_GPT3_15B, "GPT3_15B", GPT2, 1024, 4096, 78, 16)                                                \
    XX(PS_CONFIG_PRESET_GPT3_18B, "GPT3_18B", GPT2, 1024, 4096, 90, 16)                                                \
    XX(PS_CONFIG_PRESET_GPT_NV_18B, "GPT_NV_18B", GPT2, 1024, 6144, 40, 16)                                            \
    XX(PS_CONFIG_PRESET_GPT_NV_39B, "GPT_NV_39B", GPT2, 1024, 8192, 48, 16)                                            \
    XX(PS_CONFIG_PRESET_GPT_NV_76B, "GPT_NV_76B", GPT2, 1024, 10240, 60, 16)                                           \
    XX(PS_CONFIG_PRESET_GPT_DS_20B, "GPT_DS_20B", GPT2, 1024, 8192, 25, 16)                                            \
    XX(PS_CONFIG_PRESET_GPT_DS_40B, "GPT_DS_40B", GPT2, 1024, 8192, 50, 16)                                            \
    XX(PS_CONFIG_PRESET_GPT_DS_50B, "GPT_DS_50B", GPT2, 1024, 8192, 62, 16)                                            \
    XX(PS_CONFIG_PRESET_GPT_DS_60B, "GPT_DS_60B", GPT2, 1024, 8192, 75, 16)                                            \
    XX(PS_CONFIG_PRESET_GPT_DS_68B, "GPT_DS_68B", GPT2, 1024, 9216, 66, 16)                                            \
    XX(PS_CONFIG_PRESET_GPT_175B, "GPT_175B", GPT2, 1024, 12288, 96, 96)                                               \
    XX(PS_CONFIG_PRESET_GPT_220B, "GPT_220B", GPT2, 1024, 12288, 120, 96)                                              \
    XX(PS_CONFIG_PRESET_GPT_250B, "GPT_250B", GPT2, 1024, 12288, 137, 96)                                              \
    XX(PS_CONFIG_PRESET_GPT_310B, "GPT_310B", GPT2, 1024, 16384, 128, 128)                                             \
    XX(PS_CONFIG_PRESET_GPT_454B, "GPT_454B", GPT2, 1024, 20480, 90, 128)
#define PS_CONFIG_ACTIVATION_MAP(XX)                                                                                   \
    XX(PS_CONFIG_ACTIVATION_GELU_NEW, "gelu_new")                                                                      \
    XX(PS_CONFIG_ACTIVATION_GELU_PYTORCH_TANH, "gelu_pytorch_tanh")                                                    \
    XX(PS_CONFIG_ACTIVATION_GELU_FAST, "gelu_fast")                                                                    \
    XX(PS_CONFIG_ACTIVATION_GELU, "gelu")                                                                              \
    XX(PS_CONFIG_ACTIVATION_SILU, "silu")                                                                              \
    XX(PS_CONFIG_ACTIVATION_RELU, "relu")
#define PS_CONFIG_DATA_FORMAT_MAP(XX)                                                                                  \
    XX(PS_CONFIG_DATA_FORMAT_AUTO, "auto")                                                                             \
    XX(PS_CONFIG_DATA_FORMAT_TEXT, "text")                                                                             \
    XX(PS_CONFIG_DATA_FORMAT_JSONL, "jsonl")                                                                           \
    XX(PS_CONFIG_DATA_FORMAT_LLMC, "llmc")                                                                             \
    XX(PS_CONFIG_DATA_FORMAT_NANOGPT, "nanogpt")
#define PS_CONFIG_JSONL_FORM_MAP(XX)                                                                                   \
    XX(PS_CONFIG_JSONL_FORM_AUTO, "auto")                                                                              \
    XX(PS_CONFIG_JSONL_FORM_TEXT, "text")                                                                              \
    XX(PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION, "prompt_completion")                                                    \
    XX(PS_CONFIG_JSONL_FORM_MESSAGES, "messages")                                                                      \
    XX(PS_CONFIG_JSONL_FORM_ALPACA, "alpaca")                                                                          \
    XX(PS_CONFIG_JSONL_FORM_SHAREGPT, "sharegpt")
#define PS_CONFIG_CHAT_FORMAT_MAP(XX)                                                                                  \
    XX(PS_CONFIG_CHAT_FORMAT_AUTO, "auto")                                                                             \
    XX(PS_CONFIG_CHAT_FORMAT_CHATML, "chatml")                                                                         \
    XX(PS_CONFIG_CHAT_FORMAT_LLAMA2, "llama2")                                                                         \
    XX(PS_CONFIG_CHAT_FORMAT_LLAMA3, "llama3")                                                                         \
    XX(PS_CONFIG_CHAT_FORMAT_MISTRAL, "mistral")                                                                       \
    XX(PS_CONFIG_CHAT_FORMAT_ALPACA, "alpaca")
#define PS_CONFIG_EARLY_UPDATES_MAP(XX)                                                                                \
    XX(PS_CONFIG_EARLY_UPDATES_AUTO, "auto")                                                                           \
    XX(PS_CONFIG_EARLY_UPDATES_ALWAYS, "always")                                                                       \
    XX(PS_CONFIG_EARLY_UPDATES_NEVER, "never")                                                                         \
    XX(PS_CONFIG_EARLY_UPDATES_SPECULATE, "speculate")
#define PS_CONFIG_KEEP_LOGITS_MAP(XX)                                                                                  \
    XX(PS_CONFIG_KEEP_LOGITS_AUTO, "auto")                                                                             \
    XX(PS_CONFIG_KEEP_LOGITS_ALWAYS, "always")                                                                         \
    XX(PS_CONFIG_KEEP_LOGITS_NEVER, "never")
#define PS_CONFIG_DISK_BACKEND_MAP(XX)                                                                                 \
    XX(PS_CONFIG_DISK_BACKEND_AUTO, "auto")                                                                            \
    XX(PS_CONFIG_DISK_BACKEND_IO_URING, "io_uring")                                                                    \
    XX(PS_CONFIG_DISK_BACKEND_THREADS, "threads")
#define PS_CONFIG_PLACEMENT_MAP(XX)                                                                                    \
    XX(PS_CONFIG_PLACEMENT_AUTO, "auto")                                                                               \
    XX(PS_CONFIG_PLACEMENT_CPU, "cpu")                                                                                 \
    XX(PS_CONFIG_PLACEMENT_CUDA, "cuda")
#define PS_CONFIG_COMM_MAP(XX)                                                                                         \
    XX(PS_CONFIG_COMM_AUTO, "auto") XX(PS_CONFIG_COMM_SINGLE, "single") XX(PS_CONFIG_COMM_MPI, "mpi")
#define PS_CONFIG_COLLECTIVES_MAP(XX)                                                                                  \
    XX(PS_CONFIG_COLLECTIVES_AUTO, "auto")                                                                             \
    XX(PS_CONFIG_COLLECTIVES_MESSAGES, "messages") XX(PS_CONFIG_COLLECTIVES_NCCL, "nccl")
#define PS_CONFIG_BACKEND_MAP(XX)                                                                                      \
    XX(PS_CONFIG_BACKEND_AUTO, "auto")                                                                                 \
    XX(PS_CONFIG_BACKEND_CPU, "cpu")                                                                                   \
    XX(PS_CONFIG_BACKEND_CUDA, "cuda")                                                                                 \
    XX(PS_CONFIG_BACKEND_REF, "ref")
#define PS_CONFIG_ISA_MAP(XX)                                                                                          \
    XX(PS_CONFIG_ISA_AUTO, "auto")                                                                                     \
    XX(PS_CONFIG_ISA_PORTABLE, "portable")                                                                             \
    XX(PS_CONFIG_ISA_AVX2, "avx2")                                                                                     \
    XX(PS_CONFIG_ISA_AVX512, "avx512")                                                                                 \
    XX(PS_CONFIG_ISA_AVX512_BF16, "avx512_bf16")                                                                       \
    XX(PS_CONFIG_ISA_AMX, "amx")
#define PS_CONFIG_ATTENTION_MAP(XX)                                                                                    \
    XX(PS_CONFIG_ATTENTION_AUTO, "auto")                                                                               \
    XX(PS_CONFIG_ATTENTION_OWN, "own")                                                                                 \
    XX(PS_CONFIG_ATTENTION_CUDNN, "cudnn")
#define PS_CONFIG_LOSS_AVERAGE_MAP(XX)                                                                                 \
    XX(PS_CONFIG_LOSS_AVERAGE_TARGETS, "targets") XX(PS_CONFIG_LOSS_AVERAGE_MICRO_BATCHES, "micro_batches")
#define PS_CONFIG_FROZEN_FORMAT_MAP(XX)                                                                                \
    XX(PS_CONFIG_FROZEN_FORMAT_NONE, "none")                                                                           \
    XX(PS_CONFIG_FROZEN_FORMAT_INT8, "int8")                                                                           \
    XX(PS_CONFIG_FROZEN_FORMAT_NF4, "nf4")
#define PS_CONFIG_ADAPTER_INIT_MAP(XX)                                                                                 \
    XX(PS_CONFIG_ADAPTER_INIT_TRUE, "true") XX(PS_CONFIG_ADAPTER_INIT_GAUSSIAN, "gaussian")
#define PS_CONFIG_REPRODUCIBLE_MAP(XX)                                                                                 \
    XX(PS_CONFIG_REPRODUCIBLE_RUN, "run") XX(PS_CONFIG_REPRODUCIBLE_MACHINE, "machine")

/* All enumerations: XX(type, map). A new one needs a map above and a line here. */
#define PS_CONFIG_ENUMS(XX)                                                                                            \
    XX(ps_config_optimizer, PS_CONFIG_OPTIMIZER_MAP)                                                                   \
    XX(ps_config_state_format, PS_CONFIG_STATE_FORMAT_MAP)                                                             \
    XX(ps_config_ns_gemms, PS_CONFIG_NS_GEMMS_MAP)                                                                     \
    XX(ps_config_adjust_lr, PS_CONFIG_ADJUST_LR_MAP)                                                                   \
    XX(ps_config_scheduler, PS_CONFIG_SCHEDULER_MAP)                                                                   \
    XX(ps_config_warmup, PS_CONFIG_WARMUP_MAP)                                                                         \
    XX(ps_config_model, PS_CONFIG_MODEL_MAP)                                                                           \
    XX(ps_config_head, PS_CONFIG_HEAD_MAP)                                                                             \
    XX(ps_config_problem, PS_CONFIG_PROBLEM_MAP)                                                                       \
    XX(ps_config_rope, PS_CONFIG_ROPE_MAP)                                                                             \
    XX(ps_config_preset, PS_CONFIG_PRESET_MAP)                                                                         \
    XX(ps_config_activation, PS_CONFIG_ACTIVATION_MAP)                                                                 \
    XX(ps_config_data_format, PS_CONFIG_DATA_FORMAT_MAP)                                                               \
    XX(ps_config_jsonl_form, PS_CONFIG_JSONL_FORM_MAP)                                                                 \
    XX(ps_config_chat_format, PS_CONFIG_CHAT_FORMAT_MAP)                                                               \
    XX(ps_config_early_updates, PS_CONFIG_EARLY_UPDATES_MAP)                                                           \
    XX(ps_config_keep_logits, PS_CONFIG_KEEP_LOGITS_MAP)                                                               \
    XX(ps_config_disk_backend, PS_CONFIG_DISK_BACKEND_MAP)                                                             \
    XX(ps_config_placement, PS_CONFIG_PLACEMENT_MAP)                                                                   \
    XX(ps_config_comm, PS_CONFIG_COMM_MAP)                                                                             \
    XX(ps_config_collectives, PS_CONFIG_COLLECTIVES_MAP)                                                               \
    XX(ps_config_backend, PS_CONFIG_BACKEND_MAP)                                                                       \
    XX(ps_config_isa, PS_CONFIG_ISA_MAP)                                                                               \
    XX(ps_config_attention, PS_CONFIG_ATTENTION_MAP)                                                                   \
    XX(ps_config_loss_average, PS_CONFIG_LOSS_AVERAGE_MAP)                                                             \
    XX(ps_config_adapter_init, PS_CONFIG_ADAPTER_INIT_MAP)                                                             \
    XX(ps_config_frozen_format, PS_CONFIG_FROZEN_FORMAT_MAP)                                                           \
    XX(ps_config_reproducible, PS_CONFIG_REPRODUCIBLE_MAP)

#define VALUE(name, ...) name,
#define XX(type, map) typedef enum type { map(VALUE) } type;
PS_CONFIG_ENUMS(XX)
#undef XX
#undef VALUE

/* The text of a value: ps_config_scheduler_names[PS_CONFIG_SCHEDULER_LINEAR] is "linear". */
#define XX(type, map) PS_PRIVATE_API extern const char *const type##_names[];
PS_CONFIG_ENUMS(XX)
#undef XX

/* Are there whole masters, so that a gradient may overwrite its parameter? */
static inline bool ps_config_format_has_whole_masters(ps_config_state_format f)
{
    return f == PS_CONFIG_STATE_FORMAT_FP32 || f == PS_CONFIG_STATE_FORMAT_COMPACT;
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* All options by key, '.' written '_': options->optimizer_params_lr. Meanings, units and ranges: options.def.
 * Strings belong to the ps_config, are never NULL, and are valid until their option is set again. */
typedef struct ps_options {
#define OPT_BOOL(field, ...) bool field;
#define OPT_INT(field, ...) int64_t field;
#define OPT_DOUBLE(field, ...) double field;
#define OPT_PAIR(field, ...) double field[2];
#define OPT_RANGE(field, ...) int64_t field[2];
#define OPT_STRING(field, ...) const char *field;
#define OPT_ENUM(field, key, type, ...) type field;
#define OPT_BYTES(field, ...) int64_t field; /* PS_BYTES_AUTO where the option allows it */
#include "config/option/options.def"
} ps_options;

/* PS_OPTION_optimizer_params_lr, ...: positions in the table of option.h. */
typedef enum ps_option_id {
#define OPT_BOOL(field, ...) PS_OPTION_##field,
#define OPT_INT(field, ...) PS_OPTION_##field,
#define OPT_DOUBLE(field, ...) PS_OPTION_##field,
#define OPT_PAIR(field, ...) PS_OPTION_##field,
#define OPT_RANGE(field, ...) PS_OPTION_##field,
#define OPT_STRING(field, ...) PS_OPTION_##field,
#define OPT_ENUM(field, ...) PS_OPTION_##field,
#define OPT_BYTES(field, ...) PS_OPTION_##field,
#include "config/option/options.def"
    PS_OPTION_COUNT
} ps_option_id;

#endif
