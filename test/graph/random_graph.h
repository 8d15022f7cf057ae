/* random_graph.h - models whose operators and their inputs are drawn at random, with segments here and there. */
#ifndef RANDOM_GRAPH_H
#define RANDOM_GRAPH_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "patrickstar.h"

typedef struct random_graph {
    uint32_t seed;
    /* Drawn with equal odds: l linear, c conv1d, n layer norm, g gelu, p position embedding, h RMS norm of heads of two
     * columns, r rotation of these, d dropout; after them + for add, of two values. */
    const char *operators;
    bool is_chained; /* two of three read what the one before has made, else any value */
    int64_t V, T, C;
} random_graph;

static uint32_t random_draw(uint32_t *state, int64_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 10) % (uint32_t)n;
}

static ps_value random_operator(ps_builder *b, const random_graph *g, char kind, ps_value x, ps_value y,
                                const char *name)
{
    switch (kind) {
    case 'l': return ps_linear(b, x, name, g->C, 1);
    case 'c': return ps_conv1d(b, x, name, g->C, 0);
    case 'n': return ps_layer_norm(b, x, name, 1e-3f);
    case 'g': return ps_gelu(b, x, PS_ACTIVATION_GELU_ERF);
    case 'p': return ps_position_embedding(b, x, name, g->T);
    case 'h': return ps_rms_norm(b, x, name, 2, 1e-3f);
    case 'r': return ps_rotary_embedding(b, x, 2, &(ps_rope){.struct_size = sizeof(ps_rope), .theta = 100});
    case 'd': return ps_dropout(b, x, 0.25f);
    default: return ps_add(b, x, y);
    }
}

/* A ps_model_func; user is the random_graph. Every value is read. */
static ps_status model_random(ps_builder *b, void *user)
{
    const random_graph *const g = user;
    const int64_t n_kinds = (int64_t)strlen(g->operators), n_alone = (int64_t)strcspn(g->operators, "+");
    uint32_t state = g->seed * 2654435761u + 12345u;
    ps_value values[64];
    bool read[64] = {false}, open = false;
    uint32_t n = 0;
    ps_set_initializer_range(b, 0.3);
    values[n++] = ps_token_embedding(b, "wte", g->V, g->C);
    for (uint32_t left = 4 + random_draw(&state, 11); left > 0; left--) {
        char name[16];
        snprintf(name, sizeof name, "n%u", (unsigned)n);
        if (random_draw(&state, 4) == 0) {
            if (open) ps_end_block(b);
            open = !open;
            if (open) ps_begin_block(b, name, 1);
        }
        const bool is_next = g->is_chained && random_draw(&state, 3) > 0;
        const uint32_t x = is_next ? n - 1 : random_draw(&state, n), y = random_draw(&state, n);
        const char kind = g->operators[random_draw(&state, x == y ? n_alone : n_kinds)];
        read[x] = true;
        if (kind == '+') read[y] = true;
        values[n++] = random_operator(b, g, kind, values[x], values[y], name);
    }
    if (open) ps_end_block(b);
    ps_value sum = values[n - 1];
    for (uint32_t i = 0; i < n - 1; i++)
        if (!read[i]) sum = ps_add(b, sum, values[i]);
    ps_cross_entropy(b, ps_layer_norm(b, sum, "last", 1e-3f), "wte.weight", NULL, g->V, NULL);
    return PS_OK;
}

#endif
