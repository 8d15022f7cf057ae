/* hf_config_impl.h - shared by reading and writing of a config.json; for the hf_ files only. */
#ifndef PS_CONFIG_HF_CONFIG_IMPL_H
#define PS_CONFIG_HF_CONFIG_IMPL_H

#include "config/config_state.h"

/* A key of "rope_parameters" (version 5) or "rope_scaling"; written for the types of scaling in the mask. */
typedef struct ps_hf_rope_key {
    const char *key;
    ps_option_id id;
    unsigned scalings;
} ps_hf_rope_key;

extern const ps_hf_rope_key ps_hf_rope_keys[];
extern const size_t ps_hf_n_rope_keys;

/* Parse a file's text as JSON; PS_EFORMAT with file, line and column. */
PS_NODISCARD ps_status ps_hf_config_parse(const char *text, int64_t n_bytes, const char *path, json_t **root);

/* Read the classes that the file of a classifier names. PS_EFORMAT. */
PS_NODISCARD ps_status ps_hf_classes_read(json_t *root, const char *path, ps_config_classes *out);

void ps_hf_classes_forget(ps_config_classes *c);

/* Write id2label, label2id and num_labels of a classifier; nothing for other models. */
PS_NODISCARD ps_status ps_hf_classes_write(const ps_options *o, json_t *root);

#define PS_HF_CONFIG_BYTES_MAX (16 * PS_MIB)

#endif
