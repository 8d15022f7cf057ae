/* model_folder.h - messages for a folder of a Hugging Face model that does not exist. */
#ifndef PS_BASE_MODEL_FOLDER_H
#define PS_BASE_MODEL_FOLDER_H

#include "base/status.h"

enum { PS_MODEL_FOLDER_HINT_BYTES = 640 };

/* Hint for a path that does not exist and looks like a name on the hub ("gpt2", "organisation/model") rather than a
 * file or an entry of an existing folder: " in <working folder>; nothing is fetched ...", else "". Returns out. */
PS_PRIVATE_API const char *ps_model_folder_hint(const char *path, char out[PS_MODEL_FOLDER_HINT_BYTES]);

/* PS_EIO unless `path` is a folder; the message begins with `what` ("model.from_pretrained") and ends
 * with the hint. */
PS_NODISCARD ps_status ps_model_folder_check(const char *what, const char *path);

#endif
