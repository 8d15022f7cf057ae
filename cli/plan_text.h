/* plan_text.h - a plan as text: a summary of some lines, with -v tables of memory and time. JSON has every figure
 * (train/plan/simulation_json.h). */
#ifndef PSTAR_PLAN_TEXT_H
#define PSTAR_PLAN_TEXT_H

#include <jansson.h>

#include "train/plan/advise.h"
#include "train/plan/hiding.h"
#include "train/plan/largest.h"

typedef struct plan_text {
    const ps_config *config;
    const ps_hardware *hardware; /* that is described; NULL: this machine */
    const ps_simulation *simulation;
    bool is_verbose;
} plan_text;

/* For JSON, a new reference: what the `machine` line says. */
json_t *plan_text_machine_json(const plan_text *t);

/* The plan, or why it does not fit. */
void plan_text_show(const plan_text *t);
/* What makes it fit, or faster. */
void plan_text_show_advice(const plan_text *t, const ps_advice *advice, int n, bool timed_out);
void plan_text_show_hiding(const ps_hiding *h);
/* The tables of -v, or where they are to be had. */
void plan_text_end(const plan_text *t);

void plan_text_show_sizes(const plan_text *t);
void plan_text_show_largest(const ps_largest *l);

#endif
