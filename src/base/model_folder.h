/* model_folder.h - a folder of a Hugging Face model, as users name it. */
#ifndef PS_BASE_MODEL_FOLDER_H
#define PS_BASE_MODEL_FOLDER_H

#include "base/status.h"

enum { PS_MODEL_FOLDER_HINT_BYTES = 640 };

/* What to do for a path that is not there and reads like a name on the hub ("gpt2", "organisation/model") rather than
 * that of a file or of something in a folder that is there: " in <working folder>; nothing is fetched ...", else "".
 * Returns out. */
const char *ps_model_folder_hint(const char *path, char out[PS_MODEL_FOLDER_HINT_BYTES]);

/* PS_EIO unless `path` is a folder; the message begins with `what` ("model.from_pretrained") and ends
 * with the hint. */
PS_NODISCARD ps_status ps_model_folder_check(const char *what, const char *path);

#endif
