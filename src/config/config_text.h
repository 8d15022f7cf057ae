/* config_text.h - the text of a configuration, from a file or for a model. */
#ifndef PS_CONFIG_CONFIG_TEXT_H
#define PS_CONFIG_CONFIG_TEXT_H

#include <stddef.h>

#include "base/status.h"

/* The text with a terminating NUL, to be freed with ps_mem_free. path: a file; a folder with a config.json, which
 * becomes model.from_pretrained; or, where neither exists, a value of model.preset. PS_EIO when it is none of these or
 * cannot be read, PS_EINVAL when a file is larger than 16 MiB. */
PS_NODISCARD ps_status ps_config_text(const char *path, char **text, size_t *n_bytes);

#endif
