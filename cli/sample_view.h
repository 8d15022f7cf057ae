/* sample_view.h - what a configuration trains on, token by token: for the eye, and to compare with other programs. */
#ifndef PSTAR_SAMPLE_VIEW_H
#define PSTAR_SAMPLE_VIEW_H

#include <stdint.h>

#include "base/status.h"

/* Print sample `number` of data.train, from 0, as the samples lie in the file; tokens to be predicted have a mark.
 * PS_EINVAL when there are not as many; else what the configuration and the data say. */
PS_NODISCARD ps_status sample_view_print(const char *config, char *const *overrides, int n_overrides, int64_t number);

#endif
