/* settings_impl.h - the parts of ps_settings_read that other files have; for the files of settings/ only. */
#ifndef PS_SETTINGS_SETTINGS_IMPL_H
#define PS_SETTINGS_SETTINGS_IMPL_H

#include "settings/settings.h"

/* settings_machine.c */
PS_NODISCARD ps_status ps_settings_read_backend(const ps_options *o, ps_settings *s);
PS_NODISCARD ps_status ps_settings_read_rates(const ps_config *config, ps_settings *s);

/* settings_gpu.c */
void ps_settings_find_gpu(const ps_options *o, ps_settings *s);
int64_t ps_settings_gpu_bytes(const ps_settings *s, const ps_options *o); /* of the device, for one rank: "auto" */
/* As ps_settings_imagine; of s whose backend is a GPU. */
void ps_settings_imagine_gpu(ps_settings *s, const ps_options *o, int32_t rank, int32_t n);
/* All of comm's ranks call; NULL: alone. */
PS_NODISCARD ps_status ps_settings_find_turn(ps_comm *comm, ps_gpu_turn *out);
/* Of s whose backend is a GPU: PS_OK when it can be used. */
PS_NODISCARD ps_status ps_settings_check_gpu(const ps_settings *s);
/* Is it NCCL that brings chunks from rank to rank? When budgets and ranks are known: they may change by it. All of comm's
 * ranks call; NULL: of a plan, for ranks that are not there. */
PS_NODISCARD ps_status ps_settings_choose_nccl(ps_settings *s, const ps_options *o, ps_comm *comm, int32_t n_ranks);
void ps_settings_imagine_cudnn(ps_settings *s); /* of PS_BACKEND_SIM: it computes attention where it can */
PS_NODISCARD ps_status ps_settings_open_gpu(ps_settings *s, ps_backend *host); /* which is s->backend's then */

/* settings_memory.c; called last, when s says which tiers are needed. */
PS_NODISCARD ps_status ps_settings_read_budgets(const ps_config *config, ps_settings *s);
/* memory.total that is too small (PS_EBUDGET), or beside what it takes the place of (PS_EINVAL). */
PS_NODISCARD ps_status ps_settings_check_memory(const ps_settings *s);
/* Budgets on other machines. Errors as of memory.total that is too small. */
PS_NODISCARD ps_status ps_settings_use_memory(ps_settings *s, const ps_options *o, const ps_hardware *hw);
/* This machine has `here` ranks, which divide what is a share of it. */
void ps_settings_share_memory(ps_settings *s, int32_t here);
/* What all of comm's ranks have. */
PS_NODISCARD ps_status ps_settings_agree_on_memory(ps_settings *s, ps_comm *comm);

#endif
