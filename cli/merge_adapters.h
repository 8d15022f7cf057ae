/* merge_adapters.h - pstar merge BASE ADAPTER FOLDER. */
#ifndef PSTAR_MERGE_ADAPTERS_H
#define PSTAR_MERGE_ADAPTERS_H

#include <stdbool.h>

#include "base/status.h"

/* paths: base, adapter, new folder. dtype: a name, NULL: as in the base. Prints what was written. */
PS_NODISCARD ps_status merge_adapters(const char *const paths[3], const char *dtype, bool is_replacing);

#endif
