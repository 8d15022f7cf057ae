/* settings_impl.h - what ps_settings_read takes from where; for the files of settings/ only. */
#ifndef PS_SETTINGS_SETTINGS_IMPL_H
#define PS_SETTINGS_SETTINGS_IMPL_H

#include "settings/settings.h"

/* settings_machine.c */
PS_NODISCARD ps_status ps_settings_read_backend(const ps_options *o, ps_settings *s);
PS_NODISCARD ps_status ps_settings_read_rates(const ps_options *o, ps_settings *s);

/* settings_memory.c: after what says which tiers are needed. */
PS_NODISCARD ps_status ps_settings_read_budgets(const ps_options *o, ps_settings *s);
/* Of other machines, where the configuration says "auto". */
void ps_settings_use_memory(ps_settings *s, const ps_options *o, const ps_hardware *hw);

#endif
