/* export.h - exports a folder that Hugging Face's transformers loads:
 *
 *     config.json
 *     model.safetensors                                                   when all tensors fit max_shard_bytes, else
 *     model-00001-of-00003.safetensors ..., model.safetensors.index.json
 *     pytorch_model.bin                                                   instead of it, with is_torch; or
 *     pytorch_model-00001-of-00003.bin ..., pytorch_model.bin.index.json
 *     tokenizer.json, vocab.json, merges.txt, ...                         copied where they exist
 *
 * The export streams, with memory for one piece of a tensor. The folder gets its name when it is complete and
 * synced. */
#ifndef PS_WEIGHTS_EXPORT_H
#define PS_WEIGHTS_EXPORT_H

#include <stdbool.h>

#include "weights/weight_copy.h"

#define PS_EXPORT_SHARD_BYTES ((int64_t)5000000000) /* as in transformers */

typedef struct ps_export_options {
    const char *adapter_json; /* NULL: a model. Otherwise an adapter for peft, of the source's tensors: this text as
                                 adapter_config.json, and adapter_model.safetensors in one file; no config.json */
    const struct ps_adapter_merge *merge; /* NULL: none. Otherwise adapters that are added to the source's tensors */
    const char *config_json;      /* text of config.json; its "model_type" determines the prefix of names. NULL: none */
    const char *tokenizer_folder; /* NULL: none */
    const char *chat_template;    /* written as chat_template.jinja, instead of tokenizer_folder's; NULL: none */
    bool has_generation;          /* for models that generate: copy tokenizer_folder's generation_config.json, too */
    bool is_torch;                /* files of torch.save */
    bool ties_head; /* a language model: with is_torch its tied output layer has its own name, too, as in the class's
                       state_dict; safetensors stores it once. The bias of an untied masked_lm head has both names in
                       both formats */
    const ps_dtype *dtype;   /* NULL: as in the source */
    int64_t max_shard_bytes; /* of tensors in a file; a larger tensor gets a separate file. > 0 */
    bool is_replacing;       /* as ps_folder_writer_open */
    bool allows_nonfinite;   /* write infinities and NaNs; otherwise they are PS_ENUMERIC, and no folder is created */
} ps_export_options;

typedef struct ps_export_info {
    int n_tensors, n_shards, n_copied; /* n_copied: files copied from tokenizer_folder */
    int64_t tensor_bytes;
    ps_weight_nonfinite nonfinite;
} ps_export_info;

PS_NODISCARD ps_status ps_export(const ps_weight_source *s, const char *folder, const ps_export_options *o,
                                 ps_export_info *info);

#endif
