/* shape.h - the sizes of micro-batches that an engine is ready for: of each its program, code and blueprint, all over
 * the chunk layout of the first, the configured one. They are kept, so that going back and forth between sizes plans
 * nothing. */
#ifndef PS_PLAN_SHAPE_H
#define PS_PLAN_SHAPE_H

#include "plan/trial.h"

/* One costs a few hundred bytes an operator and chunk. 32: sequences up to 512 tokens, padded to multiples of 16. */
#define PS_SHAPES_MAX 32

typedef struct ps_shape {
    ps_model_func model; /* a shape is recognised by model, user and the program's B and T */
    void *user;
    ps_program *program;
    ps_code *code;
    ps_blueprint *blueprint;
    ps_forecast forecast;
    int64_t last_use; /* n_changes at that time */
} ps_shape;

typedef struct ps_shapes {
    ps_shape **all; /* the first is the configured one: it stays, the store has its layout */
    size_t n;
    int64_t n_changes; /* calls of ps_shapes_get */
} ps_shapes;

/* Plan the first shape. Chunk size and staging may still be open: what is chosen goes into settings, so that shapes to
 * come have the same. s begins as zeros. PS_EBUDGET with what would fit. s is closed even
 * after a failure. */
PS_NODISCARD ps_status ps_shapes_open(ps_shapes *s, ps_settings *settings, ps_model_func model, void *user);
void ps_shapes_close(ps_shapes *s);

/* The shape of [B, T], kept or planned now; s owns it. When there are PS_SHAPES_MAX, the one that was not in use for
 * longest is given up for it, but never the first, nor `present`, which is in use; with keep_all none is (a profile has
 * their operators' names). PS_EINVAL when the parameters are not those of the first; PS_EBUDGET with what would fit. */
PS_NODISCARD ps_status ps_shapes_get(ps_shapes *s, const ps_settings *settings, ps_model_func model, void *user,
                                     int64_t B, int64_t T, const ps_shape *present, bool keep_all,
                                     const ps_shape **out);

#endif
