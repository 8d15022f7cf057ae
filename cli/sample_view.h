/* sample_view.h - prints training samples token by token, to inspect them and to compare with other programs. */
#ifndef PSTAR_SAMPLE_VIEW_H
#define PSTAR_SAMPLE_VIEW_H

#include <stdint.h>

#include "base/status.h"

/* Print sample `number` of data.train, from 0, in the order of the file; targets are marked. PS_EINVAL when there are
 * fewer samples; other errors as of the configuration and the data. */
PS_NODISCARD ps_status sample_view_print(const char *config, char *const *overrides, int n_overrides, int64_t number);

#endif
