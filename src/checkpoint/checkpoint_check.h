/* checkpoint_check.h - are the files of a checkpoint those that were saved? By size and hash, as its state.json has
 * them. Any thread. */
#ifndef PS_CHECKPOINT_CHECK_H
#define PS_CHECKPOINT_CHECK_H

#include "checkpoint/checkpoint_state.h"
#include "weights/weight_source.h"

/* state.json of the checkpoint in `folder`. PS_EIO; PS_EFORMAT as ps_checkpoint_state_parse. */
PS_NODISCARD ps_status ps_checkpoint_state_load(const char *folder, ps_checkpoint_state *s);

/* The checkpoint that the files of a source are of is one of a module of another framework: *is_module, and *config, freed
 * by ps_mem_free, gets the text of the config.json that the program gave with it, or NULL. */
PS_NODISCARD ps_status ps_checkpoint_module_config(const ps_weight_source *s, bool *is_module, char **config);

/* PS_EFORMAT when the file at `path` has another size or hash than the state says. */
PS_NODISCARD ps_status ps_checkpoint_check_bytes(const char *path, int64_t n_bytes, const ps_checkpoint_file *expected);
PS_NODISCARD ps_status ps_checkpoint_check_xxh3(const char *path, uint64_t xxh3, const ps_checkpoint_file *expected);

/* Both, of a file that is read from its first byte to its last. PS_EIO. */
PS_NODISCARD ps_status ps_checkpoint_check_file(const char *path, const ps_checkpoint_file *expected);

/* Each file of the source that is a rank's, beside a state.json, is read from its first byte to its last and compared
 * with it; others have no hash that is known. PS_EFORMAT names the file that is damaged; PS_EIO. */
PS_NODISCARD ps_status ps_checkpoint_check_source(const ps_weight_source *s);

#endif
