/* simulation_json.h - a simulation as JSON, for other programs. */
#ifndef PS_PLAN_SIMULATION_JSON_H
#define PS_PLAN_SIMULATION_JSON_H

#include <jansson.h>

#include "plan/advise.h"
#include "plan/hiding.h"
#include "plan/largest.h"

/* New references; NULL when there is no memory. Sizes are bytes, times seconds, keys as in doc/plan.md. */
json_t *ps_simulation_json(const ps_simulation *s);
json_t *ps_sizes_json(const ps_simulation *s); /* what does not depend on memory */
json_t *ps_advice_json(const ps_advice *advice, int n);
json_t *ps_hiding_json(const ps_hiding *h); /* of one whose B is not 0 */
json_t *ps_largest_json(const ps_largest *l);

#endif
