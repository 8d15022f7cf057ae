/* simulation_json.h - a simulation as JSON, for other programs. */
#ifndef PS_PLAN_SIMULATION_JSON_H
#define PS_PLAN_SIMULATION_JSON_H

#include <jansson.h>

#include "train/plan/advise.h"
#include "train/plan/hiding.h"
#include "train/plan/largest.h"

/* New references; NULL when memory allocation fails. Sizes are bytes, times seconds, keys as in doc/plan.md. */
json_t *ps_simulation_json(const ps_simulation *s);
json_t *ps_sizes_json(const ps_simulation *s); /* the part that does not depend on memory */
json_t *ps_advice_json(const ps_advice *advice, int n);
json_t *ps_hiding_json(const ps_hiding *h); /* for a B other than 0 */
json_t *ps_largest_json(const ps_largest *l);

#endif
