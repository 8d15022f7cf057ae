/* torch_optimizer.h - reads the state of a PyTorch optimizer from a file of torch.save(optimizer.state_dict()).
 *
 *     {"state": {0: {"step": tensor or integer, "exp_avg": tensor, ...}, ...},
 *      "param_groups": [{"params": [0, 1, ...], "param_names": ["transformer.wte.weight", ...], "lr": ..., ...}, ...]}
 *
 * torch/optim/optimizer.py: parameters are numbered consecutively over the groups. "param_names" exists when the
 * optimizer was created from named_parameters() (PyTorch 2.6). A parameter without a gradient so far has no entry. The
 * dictionary may be an entry "optimizer" or "optimizer_state_dict" of another one. Learning rates, betas and other
 * options of groups are ignored. */
#ifndef PS_WEIGHTS_TORCH_OPTIMIZER_H
#define PS_WEIGHTS_TORCH_OPTIMIZER_H

#include "weights/torch_pickle.h"

/* A state that is a tensor, such as "exp_avg"; its name is tensor.name. */
typedef struct ps_torch_state {
    ps_torch_tensor stored;
    ps_safetensor tensor; /* offset: in the file; after ps_torch_optimizer_open only */
} ps_torch_state;

typedef struct ps_torch_param {
    int64_t number;
    const char *name;             /* NULL: the file has no names */
    int64_t step;                 /* updates made; -1: unknown, or in the state "step" */
    const ps_torch_state *states; /* [n_states] */
    int n_states;
} ps_torch_param;

typedef struct ps_torch_optimizer ps_torch_optimizer;

/* PS_EFORMAT names the damage or the refused feature, as for state_dicts (torch_pickle.h). */
PS_NODISCARD ps_status ps_torch_optimizer_open(const char *path, ps_torch_optimizer **out);
void ps_torch_optimizer_close(ps_torch_optimizer *o); /* NULL is accepted */

/* The same for a pickle of n bytes, which are not kept. */
PS_NODISCARD ps_status ps_torch_optimizer_parse(const char *path, const char *data, int64_t n,
                                                ps_torch_optimizer **out);

/* In the order of the groups. */
int ps_torch_optimizer_count(const ps_torch_optimizer *o);
const ps_torch_param *ps_torch_optimizer_get(const ps_torch_optimizer *o, int i);
int ps_torch_optimizer_n_groups(const ps_torch_optimizer *o);

/* Read n_bytes of a state from byte `offset` of its elements on; the range must be in the state. */
PS_NODISCARD ps_status ps_torch_optimizer_read(const ps_torch_optimizer *o, const ps_torch_state *s, int64_t offset,
                                               void *dst, int64_t n_bytes);

#endif
