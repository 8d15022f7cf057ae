/* optimizer_params.h - which options of optimizer.params each optimizer has, and the coefficients of Muon. */
#ifndef PS_OPTION_OPTIMIZER_PARAMS_H
#define PS_OPTION_OPTIMIZER_PARAMS_H

#include <stdbool.h>

#include "config/option/options.h"

/* Whether the optimizer has the option. id: of the section optimizer, before optimizer.param_groups. */
bool ps_optimizer_has_param(ps_config_optimizer type, ps_option_id id);

/* The tensors that an option of Muon is for: all, those that it updates as a whole, or those of its AdamW. */
typedef enum ps_param_use { PS_PARAM_OF_ALL, PS_PARAM_OF_WHOLE, PS_PARAM_OF_ELEMENTS } ps_param_use;
ps_param_use ps_muon_param_use(ps_option_id id);

/* optimizer.params.ns_coefficients. False: they are not three numbers, or in ns_steps steps singular values of at most 1
 * do not stay bounded; problem is a text such as "is \"1,2\", expected ...". */
enum { PS_NS_PROBLEM_MAX = 320 };
bool ps_ns_coefficients_read(const ps_options *o, double out[3], char problem[PS_NS_PROBLEM_MAX]);

#endif
