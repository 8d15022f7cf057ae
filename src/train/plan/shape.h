/* shape.h - the sizes of micro-batches of an engine: the program, code and execution plan of each, all over the chunk
 * layout of the first, configured one. They are kept, so that switching between sizes plans nothing. */
#ifndef PS_PLAN_SHAPE_H
#define PS_PLAN_SHAPE_H

#include "train/plan/trial.h"
#include "train/plan/variation.h"

/* One needs a few hundred bytes for each operator and chunk. 32: sequences up to 512 tokens, padded to multiples of
 * 16. */
#define PS_SHAPES_MAX 32

typedef struct ps_shape {
    ps_model_func model; /* a shape is identified by model, user and the program's B and T */
    void *user;
    ps_program *program;
    ps_code *code;
    ps_exec_plan *exec_plan;
    ps_forecast forecast;
    int64_t last_use; /* n_changes at that time */
} ps_shape;

typedef struct ps_shapes {
    ps_shape **all; /* the first is the configured one, which is never dropped: the store uses its layout */
    size_t n;
    int64_t n_changes;       /* calls of ps_shapes_get */
    ps_variation configured; /* a copy of the configuration, for the remedies of refusals */
} ps_shapes;

/* Plan the first shape. settings: those of config, which is copied. Chunk size, staging and what is done in wrong steps
 * may still be undetermined: the chosen values are stored in settings, so that later shapes have the same. s begins as
 * zeros. PS_EBUDGET with a configuration that fits. s is closed even after a failure. */
PS_NODISCARD ps_status ps_shapes_open(ps_shapes *s, ps_settings *settings, const ps_config *config, ps_model_func model,
                                      void *user);
void ps_shapes_close(ps_shapes *s);

/* The shape of [B, T], kept or planned now; s owns it. When there are PS_SHAPES_MAX, the least recently used one is
 * dropped, but never the first, nor `present`, which is in use; with keep_all none is (a profile uses their operators'
 * names). PS_EINVAL when the parameters differ from those of the first; PS_EBUDGET with a configuration that fits. */
PS_NODISCARD ps_status ps_shapes_get(ps_shapes *s, const ps_settings *settings, ps_model_func model, void *user,
                                     int64_t B, int64_t T, const ps_shape *present, bool keep_all,
                                     const ps_shape **out);

#endif
