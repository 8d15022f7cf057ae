/* loader.h - reads a checkpoint, of any number of ranks, into a state, of any number of ranks.
 *
 * A driver opens it, checks its state.json, and then has its values put into chunks. All ranks call. */
#ifndef PS_CHECKPOINT_LOADER_H
#define PS_CHECKPOINT_LOADER_H

#include "api/checkpoint/checkpoint_state.h"
#include "train/state/state.h"

typedef struct ps_loader ps_loader;

/* Elements [first, first + n) of a tensor's value (list PS_VALUE_LIST) or of a state of the optimizer become `in`, as
 * far as this rank owns them; operators' parameters follow. */
typedef ps_status (*ps_loader_put)(void *user, int32_t tensor, ps_list list, int64_t first, int64_t n, const float *in);

/* Finds the checkpoint in `folder` (or the folder that is one) and reads its state.json. model: with tensors; must
 * outlive the loader. PS_EIO, PS_EFORMAT; of this rank alone. *out is to be closed in any case. */
PS_NODISCARD ps_status ps_loader_open(const ps_model_state *model, const char *folder, ps_loader **out);
const ps_checkpoint_state *ps_loader_state(const ps_loader *l);
const char *ps_loader_folder(const ps_loader *l); /* of the checkpoint itself */
/* The caller's text in it, owned by the caller from now on; NULL: none. */
char *ps_loader_take_caller_json(ps_loader *l);
/* What continuing in another optimizer.params.state_format than the checkpoint's loses; NULL: it is the same. */
#define PS_LOADER_CONVERSION_MAX 512
const char *ps_loader_describe_conversion(const ps_loader *l, char text[PS_LOADER_CONVERSION_MAX]);
/* Checks that names, shapes and sizes of all files are those of the model: every element of every tensor exists exactly
 * once. On this rank alone; nothing has been replaced. PS_EINVAL, PS_EFORMAT. */
PS_NODISCARD ps_status ps_loader_check(ps_loader *l);
/* Checks that all ranks, together, have found the same checkpoint. PS_EIO, on all. */
PS_NODISCARD ps_status ps_loader_check_same(const ps_loader *l);
/* *path, freed by ps_mem_free: the extra file of a saved rank, compared with its hash; NULL: it has none. PS_EIO,
 * PS_EFORMAT. */
PS_NODISCARD ps_status ps_loader_find_extra(const ps_loader *l, int rank, char **path);
/* Put all values. Fails as `put`; PS_EFORMAT where a hash shows damage, after values have been replaced. */
PS_NODISCARD ps_status ps_loader_load(ps_loader *l, ps_loader_put put, void *user);
void ps_loader_close(ps_loader *l); /* NULL is accepted */

#endif
