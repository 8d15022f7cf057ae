/* checkpoint_check.h - verifies files of a checkpoint: by size and hash, against its state.json. Any thread. */
#ifndef PS_CHECKPOINT_CHECK_H
#define PS_CHECKPOINT_CHECK_H

#include "api/checkpoint/checkpoint_state.h"
#include "weights/weight_source.h"

/* state.json of the checkpoint in `folder`. PS_EIO; PS_EFORMAT as ps_checkpoint_state_parse. */
PS_NODISCARD ps_status ps_checkpoint_state_load(const char *folder, ps_checkpoint_state *s);

/* Whether the checkpoint that a source's files are part of is one of a module of another framework: *is_module, and
 * *config, freed by ps_mem_free, gets the text of the config.json that the program saved with it, or NULL. */
PS_NODISCARD ps_status ps_checkpoint_module_config(const ps_weight_source *s, bool *is_module, char **config);

/* PS_EFORMAT when the file at `path` has another size or hash than in the state. */
PS_NODISCARD ps_status ps_checkpoint_check_bytes(const char *path, int64_t n_bytes, const ps_checkpoint_file *expected);
PS_NODISCARD ps_status ps_checkpoint_check_xxh3(const char *path, uint64_t xxh3, const ps_checkpoint_file *expected);

/* Size and hash of a file, which is read from its first byte to its last. PS_EIO. */
PS_NODISCARD ps_status ps_checkpoint_check_file(const char *path, const ps_checkpoint_file *expected);

/* Each file of the source that is a rank's, with a state.json in its folder, is read completely and compared with it;
 * for other files no hash is known. PS_EFORMAT names the file that is damaged; PS_EIO. */
PS_NODISCARD ps_status ps_checkpoint_check_source(const ps_weight_source *s);

#endif
