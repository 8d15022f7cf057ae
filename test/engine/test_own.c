/* test_own.c - models with a user's operator, that of examples/own_operator.c: the same bits in all budgets, with peaks and
 * moved bytes as planned; no gradient is asked of what is frozen; what an operator cannot do is refused. */
int main_of_example(int argc, char **argv);
#define main main_of_example
#define B EXAMPLE_B
#define T EXAMPLE_T
#include "../../examples/own_operator.c"
#undef main
#undef B
#undef T

#include "engine/engine_fixture.h"
#include "kernel/own_everywhere.h"

enum { N_STEPS = 6 };

/* ---- what backward is asked for, by block ---- */

enum { BLOCKS = 3 };

/* Of the engine to be created; false where there is none. */
static struct {
    bool snake_runs[BLOCKS], snake_dx[BLOCKS], snake_dw[BLOCKS], gate_dx[BLOCKS][2], gate_dw[BLOCKS][2];
} wanted;
static int n_unwanted; /* not seen over CUDA: what a function returns */

static void want_all(void)
{
    memset(&wanted, true, sizeof wanted);
    n_unwanted = 0;
}

static ps_status unwanted(const char *what, int block)
{
    n_unwanted++;
    fprintf(stderr, "block %d: %s\n", block, what);
    return ps_set_last_error(PS_ESTATE, what);
}

static ps_status checked_snake_backward(const ps_own_call *c)
{
    const int block = *(const int *)c->options;
    if (!wanted.snake_runs[block]) return unwanted("backward of snake is run", block);
    if ((c->dx[0] != NULL) != wanted.snake_dx[block]) return unwanted("dx of snake", block);
    if ((c->dw[0] != NULL) != wanted.snake_dw[block]) return unwanted("dw of snake", block);
    return snake_backward(c);
}

static ps_own_operator op, checked_snake;

typedef struct gate_options {
    double factor;
    int block;
} gate_options;

/* Two inputs, two parameters, statistics of rows and options: y = s (u x + b z), s = row's scale 1 / (1 + mean |x|) */
static ps_status gate_forward(const ps_own_call *c)
{
    const int64_t n = c->y_columns;
    const double factor = ((const gate_options *)c->options)->factor;
    float *x = c->scratch, *z = x + n, *u = z + n, *b = u + n;
    if (factor < 1.5 || factor > 3.5 || c->batch * c->sequence < c->rows) return PS_EINVAL;
    ps_to_floats(c->dtype, c->w[0], 0, n, u);
    ps_to_floats(c->dtype, c->w[1], 0, n, b);
    for (int64_t row = 0; row < c->rows; row++) {
        double sum = 0;
        ps_to_floats(c->dtype, c->x[0], row * n, n, x);
        ps_to_floats(c->dtype, c->x[1], row * n, n, z);
        for (int64_t i = 0; i < n; i++) sum += fabs((double)z[i]);
        const float s = (float)(factor / (1 + sum / (double)n));
        c->saved[0][row] = s;
        for (int64_t i = 0; i < n; i++) x[i] = s * (u[i] * x[i] + b[i] * z[i]);
        ps_from_floats(c->dtype, c->y, row * n, n, x);
    }
    return PS_OK;
}

/* s is taken as constant, as a stop-gradient has it. */
static ps_status gate_backward(const ps_own_call *c)
{
    const int64_t n = c->y_columns;
    float *x = c->scratch, *z = x + n, *u = z + n, *b = u + n, *d = b + n;
    ps_to_floats(c->dtype, c->w[0], 0, n, u);
    ps_to_floats(c->dtype, c->w[1], 0, n, b);
    const int block = ((const gate_options *)c->options)->block;
    for (int k = 0; k < 2; k++) {
        if ((c->dx[k] != NULL) != wanted.gate_dx[block][k]) return unwanted("dx of gate", block);
        if ((c->dw[k] != NULL) != wanted.gate_dw[block][k]) return unwanted("dw of gate", block);
        if (c->dw[k] != NULL) memset(c->dw[k], 0, (size_t)n * sizeof(float));
    }
    for (int64_t row = 0; row < c->rows; row++) {
        const float s = c->saved[0][row];
        ps_to_floats(c->dtype, c->x[0], row * n, n, x);
        ps_to_floats(c->dtype, c->x[1], row * n, n, z);
        ps_to_floats(c->dtype, c->dy, row * n, n, d);
        for (int64_t i = 0; i < n; i++) {
            if (c->dw[0] != NULL) c->dw[0][i] += d[i] * s * x[i];
            if (c->dw[1] != NULL) c->dw[1][i] += d[i] * s * z[i];
            x[i] = d[i] * s * u[i];
            z[i] = d[i] * s * b[i];
        }
        if (c->dx[0] != NULL) ps_from_floats(c->dtype, c->dx[0], row * n, n, x);
        if (c->dx[1] != NULL) ps_from_floats(c->dtype, c->dx[1], row * n, n, z);
    }
    return PS_OK;
}

static int64_t gate_scratch(const ps_own_call *c, int is_backward)
{
    return (is_backward ? 5 : 4) * c->y_columns * (int64_t)sizeof(float);
}

static const ps_own_operator gate_of_cpu = {.struct_size = sizeof gate_of_cpu,
                                            .name = "gate",
                                            .n_inputs = 2,
                                            .n_parameters = 2,
                                            .dtypes = 7,
                                            .backward_reads = PS_READS_X | PS_READS_W,
                                            .is_by_row = 1,
                                            .forward = gate_forward,
                                            .backward = gate_backward,
                                            .scratch_bytes = gate_scratch};
static ps_own_operator gate;

/* A block has a snake, and a gate where the residual would be added. user: NULL, or not: snakes are declared frozen. */
static ps_status own_model(ps_builder *b, void *user)
{
    enum { C = 48 };
    ps_value x = ps_position_embedding(b, ps_token_embedding(b, "wte", TINY_VOCABULARY, C), "wpe", 16);
    for (int i = 0; i < BLOCKS; i++) {
        char name[16];
        const gate_options gate_has = {.factor = 1.5 + i, .block = i};
        snprintf(name, sizeof name, "h.%d", i);
        ps_begin_block(b, name, 1);
        ps_value y = ps_linear(b, ps_layer_norm(b, x, "ln", 1e-5f), "qkv", 3 * C, 1);
        x = ps_add(b, x, ps_linear(b, ps_attention(b, y, 3, 1, 0), "out", C, 1));
        y = ps_linear(b, x, "up", 2 * C, 1);
        ps_set_trainable(b, user == NULL);
        y = ps_own_apply(b, "snake",
                         &(ps_own_use){.struct_size = sizeof(ps_own_use),
                                       .op = &op,
                                       .x = {y},
                                       .parameters = {{.suffix = "a", .columns = 2 * C, .mean = 1, .std = 0.1}},
                                       .options = &i,
                                       .options_bytes = sizeof i});
        ps_set_trainable(b, 1);
        y = ps_linear(b, y, "down", C, 1);
        /* two parameters need another operator over the fake GPU, which has one a program */
        x = OVER_GPU ? ps_add(b, x, y)
                     : ps_own_apply(b, "gate",
                                    &(ps_own_use){.struct_size = sizeof(ps_own_use),
                                                  .op = &gate,
                                                  .x = {x, y},
                                                  .parameters = {{.suffix = "u", .columns = C, .mean = 1},
                                                                 {.suffix = "b", .columns = C, .mean = 1}},
                                                  .saved_columns = {1},
                                                  .options = &gate_has,
                                                  .options_bytes = sizeof gate_has});
        ps_end_block(b);
    }
    ps_cross_entropy(b, ps_layer_norm(b, x, "ln_f", 1e-5f), "wte.weight", NULL, TINY_VOCABULARY, NULL);
    return PS_OK;
}

static ps_engine *own_engine(ps_config *c, void *user)
{
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(own_model, user, 0, c, &e));
    return e;
}

static void pass(ps_engine *e, int step, float *loss)
{
    int32_t tokens[32], targets[32];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, step);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, loss));
    assert_ok(ps_backward(e));
}

static run_result train_model(ps_config *c, void *user, int n_steps)
{
    run_result r = {.memory.struct_size = sizeof r.memory};
    ps_engine *e = own_engine(c, user);
    for (int step = 0; step < n_steps; step++) {
        pass(e, step, &r.losses[step]);
        assert_ok(ps_step(e));
    }
    assert_ok(ps_engine_get_memory_info(e, &r.memory));
    assert_ok(ps_engine_get_weights_xxh3(e, &r.hash));
    assert_ordered(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(n_unwanted, 0);
    return r;
}

static run_result train_own(ps_config *c, int n_steps)
{
    return train_model(c, NULL, n_steps);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const formats[] = {"train.seed=7", "bf16.enabled=true"};
    static const char *const budgets[][4] = {
        {"memory.device=64MB", "memory.host=1MB", "memory.disk=0", "default_chunk_size=4096"},
        {"memory.device=900KB", "memory.host=8MB", "memory.disk=0", "default_chunk_size=4096"},
        {"memory.device=900KB", "memory.host=400KB", "memory.disk=20MB", "default_chunk_size=4096"},
        {"memory.device=64MB", "memory.host=8MB", "activation_checkpointing.enabled=true", "default_chunk_size=16384"},
        {"memory.device=900KB", "memory.host=8MB", OFFLOAD}};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        const run_result want = train_own(TINY(formats[f], budgets[0][0], budgets[0][1]), N_STEPS);
        assert_true(want.losses[N_STEPS - 1] != want.losses[0]);
        for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
            if (!is_my_share()) continue;
            ps_config *c = TINY(formats[f], budgets[i][0], budgets[i][1], budgets[i][2], budgets[i][3]);
            const run_result got = train_own(c, N_STEPS);
            assert_memory_equal(got.losses, want.losses, sizeof want.losses);
            assert_true(got.hash == want.hash);
            if (got.memory.planned_step > N_STEPS) continue;
            assert_int_equal(got.memory.device_peak_bytes, got.memory.planned_device_peak_bytes);
            assert_int_equal(got.memory.host_peak_bytes, got.memory.planned_host_peak_bytes);
            assert_int_equal(got.memory.disk_peak_bytes, got.memory.planned_disk_peak_bytes);
        }
    }
}

/* ---- frozen ---- */

#define BLOCK_1_BELOW_SNAKE "w?e.*,h.0.*,h.1.ln.*,h.1.qkv.*,h.1.out.*,h.1.up.*"

/* Gradients after one backward pass, or values: one array a tensor, NULL where it has no gradient. */
static float **read_all(ps_engine *e, bool gradients)
{
    const int64_t n = ps_engine_get_tensor_count(e);
    float **out = calloc((size_t)n, sizeof *out);
    for (int64_t t = 0; t < n; t++) {
        const int64_t elements = e->program->params[t].elements;
        if (gradients && e->program->params[t].is_frozen) continue;
        out[t] = calloc((size_t)elements, sizeof **out);
        assert_ok(gradients ? ps_engine_read_gradient(e, t, 0, elements, out[t])
                            : ps_engine_read_tensor(e, t, 0, elements, out[t]));
    }
    return out;
}

static void free_all(float **arrays, int64_t n)
{
    for (int64_t t = 0; t < n; t++) free(arrays[t]);
    free(arrays);
}

/* What is trained has the gradient that it has where all is, to the bit; what is frozen has none, and keeps its value. The
 * functions are asked for what is wanted (`wanted`, of the frozen engine), and nothing below the first trained one. */
static void check_frozen(const char *format, const char *freeze, void *user)
{
    const char *const changes[] = {format, "memory.host=1MB", NULL}, *const frozen[] = {format, freeze,
                                                                                        "memory.host=1MB", NULL};
    ps_config *c = tiny_with(changes), *d = tiny_with(frozen);
    const size_t bytes = sizeof wanted;
    char mine[sizeof wanted];
    memcpy(mine, &wanted, bytes);
    want_all();
    ps_engine *e = own_engine(c, NULL);
    const int64_t n = ps_engine_get_tensor_count(e);
    pass(e, 0, NULL);
    float **want = read_all(e, true);
    ps_engine_destroy(e);
    memcpy(&wanted, mine, bytes);
    e = own_engine(d, user);
    float **before = read_all(e, false);
    pass(e, 0, NULL);
    float **have = read_all(e, true);
    assert_ok(ps_step(e));
    float **after = read_all(e, false);
    int n_frozen = 0;
    for (int64_t t = 0; t < n; t++) {
        const ps_param *param = &e->program->params[t];
        const size_t size = (size_t)param->elements * sizeof(float);
        n_frozen += param->is_frozen;
        if (!param->is_frozen && memcmp(have[t], want[t], size) != 0)
            fail_msg("%s: %s changes its gradient", param->name, freeze);
        if ((memcmp(before[t], after[t], size) == 0) != param->is_frozen)
            fail_msg("%s: %s, and its value is another or the same", param->name, freeze);
    }
    assert_int_equal(n_unwanted, 0);
    assert_true(n_frozen > 0);
    free_all(want, n), free_all(before, n), free_all(have, n), free_all(after, n);
    assert_ordered(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    ps_config_destroy(d);
}

/* The same bits in other memory, and what is predicted. */
static void check_frozen_budgets(const char *format, const char *freeze)
{
    static const char *const budgets[][4] = {
        {"memory.device=900KB", "memory.host=8MB", "memory.disk=0", "default_chunk_size=4096"},
        {"memory.device=900KB", "memory.host=400KB", "memory.disk=20MB", "default_chunk_size=4096"},
        {"memory.device=64MB", "memory.host=8MB", "activation_checkpointing.enabled=true", "default_chunk_size=16384"},
        {"memory.device=900KB", "memory.host=8MB", OFFLOAD}};
    const run_result want = train_own(TINY(format, freeze, "memory.host=1MB"), N_STEPS);
    for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
        ps_config *c = TINY(format, freeze, budgets[i][0], budgets[i][1], budgets[i][2], budgets[i][3]);
        const run_result got = train_own(c, N_STEPS);
        assert_memory_equal(got.losses, want.losses, sizeof want.losses);
        assert_true(got.hash == want.hash);
        if (got.memory.planned_step > N_STEPS) continue;
        assert_int_equal(got.memory.device_peak_bytes, got.memory.planned_device_peak_bytes);
        assert_int_equal(got.memory.host_peak_bytes, got.memory.planned_host_peak_bytes);
        assert_int_equal(got.memory.disk_peak_bytes, got.memory.planned_disk_peak_bytes);
    }
}

static const char *const frozen_formats[] = {"bf16.enabled=false", "bf16.enabled=true"};

/* Parameters of operators: by the configuration, and as the model declares them. */
static void test_frozen_parameters(void **state)
{
    (void)state;
    for (size_t f = 0; f < PS_ARRAY_LEN(frozen_formats); f++) {
        want_all();
        memset(wanted.snake_dw, false, sizeof wanted.snake_dw);
        check_frozen(frozen_formats[f], "train.freeze=*.snake.a", NULL);
        check_frozen(frozen_formats[f], "train.seed=7", &op);
        const uint64_t hash = train_own(TINY(frozen_formats[f], "train.freeze=*.snake.a"), 3).hash;
        assert_true(train_model(TINY(frozen_formats[f]), &op, 3).hash == hash);
        if (OVER_GPU) continue; /* there is no gate */
        for (int i = 0; i < BLOCKS; i++) wanted.gate_dw[i][1] = false;
        check_frozen(frozen_formats[f], "train.freeze=*.snake.a,*.gate.b", NULL);
        check_frozen_budgets(frozen_formats[f], "train.freeze=*.snake.a,*.gate.b");
    }
}

/* Below the first trained parameter nothing is called; it may be an operator's, whose dx is not wanted then; and of two
 * inputs one may come from below it. */
static void test_first_trained(void **state)
{
    (void)state;
    for (size_t f = 0; f < PS_ARRAY_LEN(frozen_formats); f++) {
        want_all();
        wanted.snake_runs[0] = wanted.snake_dx[1] = false;
        if (OVER_GPU) {
            check_frozen(frozen_formats[f], "train.freeze=" BLOCK_1_BELOW_SNAKE, NULL);
            continue;
        }
        wanted.gate_dx[1][0] = false;
        check_frozen(frozen_formats[f], "train.freeze=" BLOCK_1_BELOW_SNAKE, NULL);
        check_frozen_budgets(frozen_formats[f], "train.freeze=" BLOCK_1_BELOW_SNAKE);
    }
}

/* ---- a head with a loss ---- */

/* -log softmax(W x)[target], W [classes, x_columns]; f32 only */
static void softmax_of_row(const ps_own_call *c, int64_t row, double *p)
{
    const int64_t n = c->x_columns[0], n_classes = c->w_elements[0] / n;
    const float *x = (const float *)c->x[0] + row * n, *w = c->w[0];
    double sum = 0;
    for (int64_t k = 0; k < n_classes; k++) {
        p[k] = 0;
        for (int64_t i = 0; i < n; i++) p[k] += (double)w[k * n + i] * (double)x[i];
        p[k] = exp(p[k]);
        sum += p[k];
    }
    for (int64_t k = 0; k < n_classes; k++) p[k] /= sum;
}

static ps_status head_forward(const ps_own_call *c)
{
    double *p = c->scratch;
    for (int64_t row = 0; row < c->rows; row++) {
        const int32_t target = c->targets[row];
        softmax_of_row(c, row, p);
        c->predicted[row] = -1;
        c->row_loss[row] = target == -100 ? 0 : (float)-log(p[target]);
    }
    return PS_OK;
}

static ps_status head_backward(const ps_own_call *c)
{
    const int64_t n = c->x_columns[0], n_classes = c->w_elements[0] / n;
    double *p = c->scratch;
    memset(c->dw[0], 0, (size_t)c->w_elements[0] * sizeof(float));
    for (int64_t row = 0; row < c->rows; row++) {
        const int32_t target = c->targets[row];
        const float *x = (const float *)c->x[0] + row * n, *w = c->w[0];
        float *dx = (float *)c->dx[0] + row * n;
        memset(dx, 0, (size_t)n * sizeof *dx);
        if (target == -100) continue;
        softmax_of_row(c, row, p);
        p[target] -= 1;
        for (int64_t k = 0; k < n_classes; k++)
            for (int64_t i = 0; i < n; i++) {
                const float d = c->scale * (float)p[k];
                dx[i] += d * w[k * n + i];
                c->dw[0][k * n + i] += d * x[i];
            }
    }
    return PS_OK;
}

static int64_t head_scratch(const ps_own_call *c, int is_backward)
{
    (void)is_backward;
    return c->w_elements[0] / c->x_columns[0] * (int64_t)sizeof(double);
}

static ps_own_operator head;

typedef struct head_model_options {
    int64_t n_rows, n_classes;
} head_model_options;

static ps_status head_model(ps_builder *b, void *user)
{
    enum { C = 8 };
    const head_model_options *o = user;
    const ps_value x = ps_token_embedding(b, "wte", TINY_VOCABULARY, C);
    ps_own_end(b, "head",
               &(ps_own_use){.struct_size = sizeof(ps_own_use),
                             .op = &head,
                             .x = {x},
                             .parameters = {{.suffix = "weight", .rows = o->n_rows, .columns = C, .std = 0.02}},
                             .n_classes = o->n_classes});
    return PS_OK;
}

/* A loss with the head in it has other classes than x has columns; targets are looked at before anything is computed. */
static void test_head_with_loss(void **state)
{
    (void)state;
    static const head_model_options cases[] = {{TINY_VOCABULARY, TINY_VOCABULARY}, {8, 0}, {5, 5}};
    if (OVER_GPU) skip(); /* another operator, of which the fake GPU has one a program */
    const ps_own_operator of_cpu = {.struct_size = sizeof of_cpu,
                                    .name = "head and loss",
                                    .n_inputs = 1,
                                    .n_parameters = 1,
                                    .dtypes = 1u << PS_DTYPE_F32,
                                    .backward_reads = PS_READS_X | PS_READS_W,
                                    .forward = head_forward,
                                    .backward = head_backward,
                                    .scratch_bytes = head_scratch};
    head = own_everywhere(&of_cpu);
    for (size_t k = 0; k < PS_ARRAY_LEN(cases); k++) {
        head_model_options o = cases[k];
        const int32_t n = (int32_t)(o.n_classes > 0 ? o.n_classes : 8);
        int32_t tokens[32], targets[32];
        char want[64];
        ps_config *c = TINY("memory.host=1MB", "optimizer.params.lr=0.02");
        ps_engine *e = NULL;
        assert_ok(ps_initialize_engine(head_model, &o, 0, c, &e));
        for (int i = 0; i < 32; i++) tokens[i] = i % 7, targets[i] = i % 5 == 0 ? -100 : n - 1 - i % 4;
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
        float first = 0, last = 0;
        for (int s = 0; s < 40; s++) {
            assert_ok(ps_forward(e, &batch, s == 0 ? &first : &last));
            assert_ok(ps_backward(e));
            assert_ok(ps_step(e));
        }
        assert_true(fabs((double)first - log(n)) < 0.1 && last < 0.8F * first);
        for (int wrong = 0; wrong < 2; wrong++) {
            targets[7] = wrong == 0 ? n : -1;
            snprintf(want, sizeof want, "target 7 of the batch is %d, the model has %d", targets[7], n);
            assert_int_equal(ps_forward(e, &batch, NULL), PS_EINVAL);
            assert_non_null(strstr(ps_last_error(), want));
        }
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
}

/* ---- refusals ---- */

static int64_t scratch_below_0(const ps_own_call *c, int is_backward)
{
    (void)c;
    return is_backward ? 0 : -1;
}

static int64_t scratch_without_end(const ps_own_call *c, int is_backward)
{
    (void)c;
    return is_backward ? INT64_MAX : 64;
}

typedef struct wrong_use {
    ps_own_operator op;
    ps_own_use use;
    bool is_loss, repeats_x, forgets_x;
    const char *want;
} wrong_use;

static ps_status wrong_model(ps_builder *b, void *user)
{
    const wrong_use *w = user;
    ps_own_use use = w->use;
    ps_value x = ps_token_embedding(b, "wte", TINY_VOCABULARY, 8);
    if (w->forgets_x) x = ps_relu(b, x);
    use.op = &w->op;
    use.x[0] = x;
    use.x[1] = w->repeats_x ? x : w->forgets_x ? 0 : 99;
    if (w->is_loss) {
        ps_own_end(b, "mine", &use);
        return PS_OK;
    }
    ps_cross_entropy(b, ps_own_apply(b, "mine", &use), "wte.weight", NULL, TINY_VOCABULARY, NULL);
    return PS_OK;
}

static void test_refusals(void **state)
{
    (void)state;
    const ps_own_operator good = {.struct_size = sizeof good,
                                  .name = "mine",
                                  .n_inputs = 1,
                                  .dtypes = 1,
                                  .forward = gate_forward,
                                  .backward = gate_backward};
    wrong_use cases[32];
    int n = 0;
#define CASE(text, change)                                                                                             \
    do {                                                                                                               \
        wrong_use *const w = &cases[n++];                                                                              \
        *w = (wrong_use){.op = good, .use = {.struct_size = sizeof(ps_own_use)}, .want = (text)};                      \
        change;                                                                                                        \
    } while (0)
    CASE("inputs", w->op.n_inputs = 4);
    CASE("inputs", w->op.n_inputs = 0);
    CASE("parameters", w->op.n_parameters = 3);
    CASE("without a name", w->op.name = NULL);
    CASE("struct_size", w->op.struct_size = 0);
    CASE("struct_size", w->use.struct_size = 8);
    CASE("forward without backward", w->op.backward = NULL);
    CASE("no functions", (w->op.forward = NULL, w->op.backward = NULL));
    CASE("dtypes", w->op.dtypes = 8);
    CASE("backward_reads", w->op.backward_reads = 8);
    CASE("longer than 64", w->use.options_bytes = 65);
    CASE("negative", w->use.saved_columns[1] = -1);
    CASE("both value", (w->op.n_inputs = 2, w->repeats_x = true));
    CASE("not a value", w->op.n_inputs = 2);
    CASE("input 0 is not a value of this model: it was not set", (w->op.n_inputs = 2, w->forgets_x = true));
    CASE("operator mine: scratch_bytes gives -1 for forward", w->op.scratch_bytes = scratch_below_0);
    CASE("operator mine: scratch_bytes gives 9223372036854775807 for backward",
         w->op.scratch_bytes = scratch_without_end);
    CASE("suffix", w->op.n_parameters = 1);
    CASE("std -1",
         (w->op.n_parameters = 1, w->use.parameters[0] = (ps_own_parameter){.suffix = "a", .columns = 8, .std = -1}));
    CASE("mean nan", (w->op.n_parameters = 1,
                      w->use.parameters[0] = (ps_own_parameter){.suffix = "a", .columns = 8, .mean = (double)NAN}));
    CASE("saved[0] only", (w->is_loss = true, w->use.saved_columns[1] = 1));
    CASE("n_classes -1", (w->is_loss = true, w->use.n_classes = -1));
    CASE("n_classes is of losses", w->use.n_classes = 8);
    CASE("no y", (w->is_loss = true, w->op.backward_reads = PS_READS_Y));
    CASE("does not compute in f32 (its dtypes are 0x2): set bf16.enabled or fp16.enabled",
         w->op.dtypes = 1u << PS_DTYPE_BF16);
    for (int i = 0; i < n; i++) {
        ps_config *c = TINY("memory.host=1MB", "train.backend=cpu"); /* it has no functions for a GPU */
        ps_engine *e = NULL;
        const ps_status st = ps_initialize_engine(wrong_model, &cases[i], 0, c, &e);
        if (st == PS_OK || strstr(ps_last_error(), cases[i].want) == NULL)
            fail_msg("case %d, '%s': %s, %s", i, cases[i].want, ps_status_name(st), ps_last_error());
        assert_null(e);
        ps_config_destroy(c);
    }
}

/* An operator that a GPU has no functions for is refused there, and where it has no others, here. */
static void test_device(void **state)
{
    (void)state;
    const ps_own_operator saved = op;
    ps_engine *e = NULL;
    ps_config *c = TINY("memory.host=1MB");
    if (OVER_GPU)
        op.cuda_forward = op.cuda_backward = NULL;
    else
        op.forward = op.backward = NULL;
    assert_int_equal(ps_initialize_engine(own_model, NULL, 0, c, &e), PS_ENOSYS);
    assert_non_null(strstr(ps_last_error(), OVER_GPU ? "train.backend = cpu" : "train.backend = cuda"));
    op = saved;
    ps_config_destroy(c);
}

/* A text grows through operators that work row by row; through others it cannot. */
static void test_decode(void **state)
{
    (void)state;
    ps_config *c = TINY("memory.host=1MB", "generation.max_length=16");
    ps_engine *whole = NULL, *grows = NULL;
    const int32_t tokens[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    float want[TINY_VOCABULARY], got[TINY_VOCABULARY];
    assert_ok(ps_initialize_generation_engine(own_model, NULL, 0, c, &grows));
    ps_config *one = TINY("memory.host=1MB", "train_micro_batch_size_per_gpu=1");
    assert_ok(ps_initialize_inference_engine(own_model, NULL, 0, one, &whole));
    assert_ok(ps_infer(whole, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, 15, want));
    for (int i = 0; i < 16; i++) assert_ok(ps_decode(grows, &tokens[i], 1, got));
    for (int i = 0; i < TINY_VOCABULARY; i++) assert_true(fabsf(want[i] - got[i]) < 1e-4f);
    ps_engine_destroy(whole);
    ps_engine_destroy(grows);
    op.is_by_row = 0;
    grows = NULL;
    assert_int_equal(ps_initialize_generation_engine(own_model, NULL, 0, c, &grows), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "is_by_row"));
    op.is_by_row = 1;
    ps_config_destroy(one);
    ps_config_destroy(c);
}

static int begin(void **state)
{
    (void)state;
    want_all();
    checked_snake = snake;
    checked_snake.backward = checked_snake_backward;
    op = own_everywhere(&checked_snake);
    if (!OVER_GPU) gate = own_everywhere(&gate_of_cpu);
    own_add_kernels();
    return 0;
}

/* An operator of the program may compute something else the second time, so that the passes of a step whose speculative
 * updates were wrong are not made again. */
static void test_passes_are_made_once(void **state)
{
    (void)state;
#define SPECULATES                                                                                                     \
    "bf16.enabled=true", "memory.update_in_backward=speculate", "gradient_clipping=1", "memory.device=2MB",            \
        "memory.disk=20MB", "default_chunk_size=4096"
    ps_config *c = TINY(SPECULATES);
    ps_engine *e = own_engine(c, NULL);
    assert_true(e->exec_plan->n_keeping > 0 && e->settings.batch_copies_bytes == 0 && e->passes == NULL);
    ps_engine_destroy(e);
    e = engine_of(c);
    assert_true(e->settings.batch_copies_bytes > 0 && e->passes != NULL);
    ps_engine_destroy(e);
    ps_config_destroy(c);
#undef SPECULATES
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_bits, begin),      cmocka_unit_test_setup(test_frozen_parameters, begin),
        cmocka_unit_test_setup(test_first_trained, begin),  cmocka_unit_test_setup(test_refusals, begin),
        cmocka_unit_test_setup(test_device, begin),         cmocka_unit_test_setup(test_decode, begin),
        cmocka_unit_test_setup(test_head_with_loss, begin), cmocka_unit_test_setup(test_passes_are_made_once, begin),
    };
    return RUN_ON_BACKENDS(tests);
}
