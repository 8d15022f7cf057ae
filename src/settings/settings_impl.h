/* settings_impl.h - the parts of ps_settings_read that other files have; for the files of settings/ only. */
#ifndef PS_SETTINGS_SETTINGS_IMPL_H
#define PS_SETTINGS_SETTINGS_IMPL_H

#include "settings/settings.h"

/* settings_machine.c */
PS_NODISCARD ps_status ps_settings_read_backend(const ps_options *o, ps_settings *s);
PS_NODISCARD ps_status ps_settings_read_rates(const ps_config *config, ps_settings *s);

/* settings_memory.c; called last, when s says which tiers are needed. */
PS_NODISCARD ps_status ps_settings_read_budgets(const ps_options *o, ps_settings *s);
/* Budgets on other machines, where the configuration says "auto". */
void ps_settings_use_memory(ps_settings *s, const ps_options *o, const ps_hardware *hw);

#endif
