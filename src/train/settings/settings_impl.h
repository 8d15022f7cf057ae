/* settings_impl.h - the parts of ps_settings_read that are in other files; for the files of settings/ only. */
#ifndef PS_SETTINGS_SETTINGS_IMPL_H
#define PS_SETTINGS_SETTINGS_IMPL_H

#include "train/settings/settings.h"

/* settings_machine.c */
PS_NODISCARD ps_status ps_settings_read_backend(const ps_options *o, ps_settings *s);
PS_NODISCARD ps_status ps_settings_read_throughput(const ps_config *config, ps_settings *s);

/* settings_gpu.c */
void ps_settings_find_gpu(const ps_options *o, ps_settings *s);
int64_t ps_settings_gpu_bytes(const ps_settings *s, const ps_options *o); /* of the device, for one rank: "auto" */
/* Is NCCL used for chunks? To be called when budgets and ranks are known: they may change by it. All of comm's ranks
 * call; NULL: a plan, for ranks that are not running. */
PS_NODISCARD ps_status ps_settings_choose_nccl(ps_settings *s, const ps_options *o, ps_comm *comm, int32_t n_ranks);

/* settings_ranks.c: PS_EINVAL for a train_batch_size that n ranks contradict. */
PS_NODISCARD ps_status ps_settings_check_batch(const ps_settings *s, const ps_options *o, int32_t n);
/* PS_EINVAL for options that n ranks do not support. */
PS_NODISCARD ps_status ps_settings_check_ranks(const ps_settings *s, int32_t n);

/* settings_memory.c; called last, when the tiers that are needed are known. */
PS_NODISCARD ps_status ps_settings_read_budgets(const ps_config *config, ps_settings *s);
/* For ps_settings_change: the budgets of a changed configuration. */
PS_NODISCARD ps_status ps_settings_change_budgets(const ps_config *config, ps_settings *s);
/* Refuses a memory.total that is too small (PS_EBUDGET), or set together with options that it replaces (PS_EINVAL). */
PS_NODISCARD ps_status ps_settings_check_memory(const ps_settings *s);
/* Budgets on other machines. Errors as for a memory.total that is too small. */
PS_NODISCARD ps_status ps_settings_use_memory(ps_settings *s, const ps_options *o, const ps_hardware *hw);
/* This machine has `here` ranks, which divide shares of it. */
void ps_settings_share_memory(ps_settings *s, int32_t here);
/* The minimum over comm's ranks. */
PS_NODISCARD ps_status ps_settings_agree_on_memory(ps_settings *s, ps_comm *comm);

#endif
