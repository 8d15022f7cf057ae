/* own_framework.c - a network that this program computes itself, with parameters, gradients and optimizer states in
 * chunks: 1.6 MB, of which 320 kB minus activations are on the device, 100 kB on the host, the rest in a file.
 *
 *     x = E[token]                                      B rows of WIDTH
 *     x = x + D tanh(U x + u) + d                       a block, LAYERS times
 *     loss = cross entropy of E x                       the embedding again, as the head
 *
 * Build and run:
 *     cc -std=c11 own_framework.c -lpatrickstar -lm -o own_framework
 *     ./own_framework
 *     ./own_framework memory.device=16MB memory.host=0 memory.disk=0      the same losses with all in memory */
#include <math.h>
#include <patrickstar_client.h>
#include <patrickstar_own.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != PS_OK) return fprintf(stderr, "%s\n", ps_last_error()), 1;                                       \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const ps_status st_ = (call);                                                                                  \
        if (st_ != PS_OK) return st_;                                                                                  \
    } while (0)

enum { B = 16, VOCABULARY = 128, WIDTH = 64, HIDDEN = 128, LAYERS = 4, MICRO_BATCHES = 2, STEPS = 30 };

typedef struct block {
    int32_t up, up_bias, down, down_bias; /* numbers of tensors */
} block;

typedef struct network {
    ps_client *client;
    int32_t embedding;
    block blocks[LAYERS];
    int is_last_pass; /* no other backward pass comes before the step */
} network;

/* ---- activations: memory of this program, which counts in addition to the chunks ---- */

static int64_t activation_bytes;

static float *take(int64_t n)
{
    float *x = calloc((size_t)n, sizeof *x);
    if (x == NULL) exit(2);
    activation_bytes += n * (int64_t)sizeof *x;
    return x;
}

static void give(float *x, int64_t n)
{
    free(x);
    activation_bytes -= n * (int64_t)sizeof *x;
}

/* ---- parameters ---- */

/* A value in [-1, 1) of a tensor's element. */
static float first_value(int32_t tensor, int64_t i)
{
    uint64_t z = ((uint64_t)tensor << 32) + (uint64_t)i + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)(z >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

/* rows 0: a bias, initialised to zero. */
static ps_status add_parameter(ps_client *client, const char *name, int64_t rows, int64_t columns, int32_t *number)
{
    const int64_t shape[2] = {rows > 0 ? rows : columns, columns};
    const ps_client_tensor tensor = {
        .struct_size = sizeof tensor, .name = name, .shape = shape, .n_dims = rows > 0 ? 2 : 1, .dtype = PS_DTYPE_F32};
    void *memory;
    TRY(ps_client_add(client, &tensor, number, &memory));
    float *values = memory;
    for (int64_t i = 0; i < rows * columns; i++) values[i] = first_value(*number, i) / sqrtf((float)columns);
    ps_client_release(client, *number);
    return PS_OK;
}

/* In the order of their use. */
static ps_status add_parameters(network *n)
{
    char name[32];
    TRY(add_parameter(n->client, "embedding", VOCABULARY, WIDTH, &n->embedding));
    for (int l = 0; l < LAYERS; l++) {
        block *b = &n->blocks[l];
        snprintf(name, sizeof name, "block.%d.up.weight", l);
        TRY(add_parameter(n->client, name, HIDDEN, WIDTH, &b->up));
        snprintf(name, sizeof name, "block.%d.up.bias", l);
        TRY(add_parameter(n->client, name, 0, HIDDEN, &b->up_bias));
        snprintf(name, sizeof name, "block.%d.down.weight", l);
        TRY(add_parameter(n->client, name, WIDTH, HIDDEN, &b->down));
        snprintf(name, sizeof name, "block.%d.down.bias", l);
        TRY(add_parameter(n->client, name, 0, WIDTH, &b->down_bias));
    }
    return PS_OK;
}

static ps_status pin(network *n, int32_t tensor, ps_client_place *place)
{
    *place = (ps_client_place){.struct_size = sizeof *place};
    return ps_client_pin(n->client, tensor, PS_CLIENT_PARAM, PS_CLIENT_READ, place);
}

static void unpin(network *n, int32_t tensor)
{
    ps_client_unpin(n->client, tensor, PS_CLIENT_PARAM);
}

static ps_status give_gradient(network *n, int32_t tensor, const float *gradient)
{
    return ps_client_give_gradient(n->client, tensor, gradient, PS_DTYPE_F32, !n->is_last_pass);
}

/* ---- operators ---- */

/* y[B][n_out] = x[B][n_in] W^T + b; bias -1: none */
static ps_status linear(network *n, ps_client_phase phase, const char *label, int32_t weight, int32_t bias, int n_in,
                        int n_out, const float *x, float *y)
{
    ps_client_place w, b;
    float row[HIDDEN], offset = 0;
    TRY(ps_client_moment(n->client, phase, label, activation_bytes));
    TRY(pin(n, weight, &w));
    if (bias >= 0) TRY(pin(n, bias, &b));
    for (int o = 0; o < n_out; o++) {
        ps_to_floats(w.dtype, w.address, (int64_t)o * n_in, n_in, row);
        if (bias >= 0) ps_to_floats(b.dtype, b.address, o, 1, &offset);
        for (int r = 0; r < B; r++) {
            float sum = offset;
            for (int i = 0; i < n_in; i++) sum += x[r * n_in + i] * row[i];
            y[r * n_out + o] = sum;
        }
    }
    if (bias >= 0) unpin(n, bias);
    unpin(n, weight);
    return PS_OK;
}

/* dx += dy W; dW = dy^T x, db = the sum of dy's rows */
static ps_status linear_backward(network *n, const char *label, int32_t weight, int32_t bias, int n_in, int n_out,
                                 const float *x, const float *dy, float *dx)
{
    ps_client_place w;
    float row[HIDDEN], *dw = take(n_out * n_in), *db = take(n_out);
    TRY(ps_client_moment(n->client, PS_CLIENT_BACKWARD, label, activation_bytes));
    TRY(pin(n, weight, &w));
    for (int o = 0; o < n_out; o++) {
        ps_to_floats(w.dtype, w.address, (int64_t)o * n_in, n_in, row);
        for (int r = 0; r < B; r++) {
            const float d = dy[r * n_out + o];
            for (int i = 0; i < n_in; i++) {
                dx[r * n_in + i] += d * row[i];
                dw[o * n_in + i] += d * x[r * n_in + i];
            }
            db[o] += d;
        }
    }
    unpin(n, weight); /* before its gradient, which may overwrite it */
    TRY(give_gradient(n, weight, dw));
    if (bias >= 0) TRY(give_gradient(n, bias, db));
    give(dw, n_out * n_in);
    give(db, n_out);
    return PS_OK;
}

static ps_status embed(network *n, ps_client_phase phase, const int *tokens, float *x)
{
    ps_client_place e;
    TRY(ps_client_moment(n->client, phase, "embedding", activation_bytes));
    TRY(pin(n, n->embedding, &e));
    for (int r = 0; r < B; r++) ps_to_floats(e.dtype, e.address, (int64_t)tokens[r] * WIDTH, WIDTH, x + r * WIDTH);
    unpin(n, n->embedding);
    return PS_OK;
}

/* Does not read the parameter; this is the tensor's second gradient, and is added to that of the head. */
static ps_status embed_backward(network *n, const int *tokens, const float *dx)
{
    float *de = take(VOCABULARY * WIDTH);
    TRY(ps_client_moment(n->client, PS_CLIENT_BACKWARD, "embedding", activation_bytes));
    for (int r = 0; r < B; r++)
        for (int i = 0; i < WIDTH; i++) de[tokens[r] * WIDTH + i] += dx[r * WIDTH + i];
    TRY(give_gradient(n, n->embedding, de));
    give(de, VOCABULARY * WIDTH);
    return PS_OK;
}

/* The mean over the rows; z becomes scale x d loss / d z. */
static float cross_entropy(float *z, const int *targets, float scale)
{
    double loss = 0;
    for (int r = 0; r < B; r++, z += VOCABULARY) {
        double sum = 0;
        float largest = z[0];
        for (int v = 1; v < VOCABULARY; v++) largest = fmaxf(largest, z[v]);
        for (int v = 0; v < VOCABULARY; v++) sum += exp((double)(z[v] - largest));
        loss += (log(sum) + (double)(largest - z[targets[r]])) / B;
        for (int v = 0; v < VOCABULARY; v++) {
            const double p = exp((double)(z[v] - largest)) / sum;
            z[v] = (float)((p - (v == targets[r] ? 1 : 0)) / B) * scale;
        }
    }
    return (float)loss;
}

/* ---- passes ---- */

/* x: of each block's input, and the last one's output; h: tanh of each block. */
typedef struct activations {
    float *x[LAYERS + 1], *h[LAYERS], *z;
} activations;

static ps_status forward(network *n, ps_client_phase phase, const int *tokens, activations *a)
{
    char label[32];
    a->x[0] = take(B * WIDTH);
    TRY(embed(n, phase, tokens, a->x[0]));
    for (int l = 0; l < LAYERS; l++) {
        const block *b = &n->blocks[l];
        a->h[l] = take(B * HIDDEN);
        snprintf(label, sizeof label, "block.%d.up", l);
        TRY(linear(n, phase, label, b->up, b->up_bias, WIDTH, HIDDEN, a->x[l], a->h[l]));
        for (int i = 0; i < B * HIDDEN; i++) a->h[l][i] = tanhf(a->h[l][i]);
        a->x[l + 1] = take(B * WIDTH);
        snprintf(label, sizeof label, "block.%d.down", l);
        TRY(linear(n, phase, label, b->down, b->down_bias, HIDDEN, WIDTH, a->h[l], a->x[l + 1]));
        for (int i = 0; i < B * WIDTH; i++) a->x[l + 1][i] += a->x[l][i];
    }
    a->z = take(B * VOCABULARY);
    return linear(n, phase, "head", n->embedding, -1, WIDTH, VOCABULARY, a->x[LAYERS], a->z);
}

/* z is the gradient of the loss; activations are freed after their use. */
static ps_status backward(network *n, const int *tokens, activations *a)
{
    char label[32];
    float *dx = take(B * WIDTH);
    TRY(linear_backward(n, "head", n->embedding, -1, WIDTH, VOCABULARY, a->x[LAYERS], a->z, dx));
    give(a->z, B * VOCABULARY);
    for (int l = LAYERS - 1; l >= 0; l--) {
        const block *b = &n->blocks[l];
        float *dh = take(B * HIDDEN);
        give(a->x[l + 1], B * WIDTH);
        snprintf(label, sizeof label, "block.%d.down", l);
        TRY(linear_backward(n, label, b->down, b->down_bias, HIDDEN, WIDTH, a->h[l], dx, dh));
        for (int i = 0; i < B * HIDDEN; i++) dh[i] *= 1 - a->h[l][i] * a->h[l][i];
        give(a->h[l], B * HIDDEN);
        snprintf(label, sizeof label, "block.%d.up", l);
        TRY(linear_backward(n, label, b->up, b->up_bias, WIDTH, HIDDEN, a->x[l], dh, dx)); /* added to dx: x + ... */
        give(dh, B * HIDDEN);
    }
    TRY(embed_backward(n, tokens, dx));
    give(a->x[0], B * WIDTH);
    give(dx, B * WIDTH);
    return PS_OK;
}

/* Gradients are those of the mean over MICRO_BATCHES passes, times the loss scale. */
static ps_status train(network *n, const int *tokens, const int *targets, float *loss)
{
    activations a;
    TRY(forward(n, PS_CLIENT_FORWARD, tokens, &a));
    *loss = cross_entropy(a.z, targets, (float)ps_client_get_loss_scale(n->client) / MICRO_BATCHES);
    return backward(n, tokens, &a);
}

/* Evaluation, outside of steps: neither trains the network nor records the use of chunks. */
static ps_status evaluate(network *n, const int *tokens, const int *targets, float *loss)
{
    activations a;
    TRY(forward(n, PS_CLIENT_OUTSIDE_STEP, tokens, &a));
    *loss = cross_entropy(a.z, targets, 1);
    for (int l = 0; l < LAYERS; l++) give(a.h[l], B * HIDDEN);
    for (int l = 0; l <= LAYERS; l++) give(a.x[l], B * WIDTH);
    give(a.z, B * VOCABULARY);
    return PS_OK;
}

/* ---- the program ---- */

/* Training data: each token is the previous one plus 7. */
static void next_batch(int number, int tokens[B], int targets[B])
{
    for (int r = 0; r < B; r++) {
        tokens[r] = (number * 13 + r * 8) % VOCABULARY;
        targets[r] = (tokens[r] + 7) % VOCABULARY;
    }
}

static ps_status step(network *n, int number, float *loss)
{
    int tokens[B], targets[B];
    ps_client_step_info info = {.struct_size = sizeof info};
    *loss = 0;
    for (int micro = 0; micro < MICRO_BATCHES; micro++) {
        float one;
        n->is_last_pass = micro + 1 == MICRO_BATCHES;
        next_batch(number * MICRO_BATCHES + micro, tokens, targets);
        TRY(train(n, tokens, targets, &one));
        *loss += one / MICRO_BATCHES;
    }
    return ps_client_step(n->client, &info);
}

/* FNV-1a of all fp32 values. */
static ps_status hash_parameters(network *n, uint64_t *hash)
{
    float values[256];
    *hash = 0xcbf29ce484222325u;
    for (int32_t t = 0; t < ps_client_get_tensor_count(n->client); t++) {
        ps_client_tensor_info info = {.struct_size = sizeof info};
        TRY(ps_client_get_tensor_info(n->client, t, &info));
        for (int64_t first = 0; first < info.elements; first += 256) {
            const int64_t count = info.elements - first < 256 ? info.elements - first : 256;
            TRY(ps_client_read_state(n->client, t, NULL, first, count, values));
            const unsigned char *bytes = (const unsigned char *)values;
            for (int64_t i = 0; i < count * 4; i++) *hash = (*hash ^ bytes[i]) * 0x100000001b3u;
        }
    }
    return PS_OK;
}

static void print_memory(const ps_client *client)
{
    ps_client_info info = {.struct_size = sizeof info};
    if (ps_client_get_info(client, &info) != PS_OK) return;
    fprintf(
        stderr,
        "model data %lld bytes; at most %lld on the device, %lld of them activations; %lld on the host, %lld on disk\n",
        (long long)info.model_data_bytes, (long long)info.peak_bytes[0], (long long)info.framework_peak_bytes,
        (long long)info.peak_bytes[1], (long long)info.peak_bytes[2]);
}

static const char options[] = "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.003}},"
                              " \"train\": {\"backend\": \"cpu\", \"threads\": 1}, \"default_chunk_size\": 8192,"
                              " \"memory\": {\"device\": \"320KB\", \"host\": \"100KB\", \"disk\": \"16MB\"}}";

/* "key=value" */
static ps_status set(ps_config *config, const char *change)
{
    char key[128];
    const char *equals = strchr(change, '=');
    if (equals == NULL || equals - change >= (int)sizeof key) {
        fprintf(stderr, "%s: expected key=value\n", change);
        exit(1);
    }
    snprintf(key, sizeof key, "%.*s", (int)(equals - change), change);
    return ps_config_set(config, key, equals + 1);
}

int main(int argc, char **argv)
{
    ps_config *config = NULL;
    network n = {0};
    int tokens[B], targets[B];
    float before, loss, after;
    uint64_t hash;
    CHECK(ps_config_parse(options, "options", &config));
    for (int i = 1; i < argc; i++) CHECK(set(config, argv[i]));
    CHECK(ps_config_validate(config));
    CHECK(ps_client_create(config, NULL, &n.client));
    CHECK(add_parameters(&n));
    CHECK(ps_client_begin(n.client));
    next_batch(1000, tokens, targets);
    CHECK(evaluate(&n, tokens, targets, &before));
    for (int i = 0; i < STEPS; i++) {
        CHECK(step(&n, i, &loss));
        if (i % 5 == 4) printf("step %d loss %.9g\n", i + 1, (double)loss);
    }
    CHECK(evaluate(&n, tokens, targets, &after));
    CHECK(hash_parameters(&n, &hash));
    printf("another batch: loss %.4f before, %.4f after\nparameters %016llx\n", (double)before, (double)after,
           (unsigned long long)hash);
    print_memory(n.client);
    ps_client_destroy(n.client);
    ps_config_destroy(config);
    return 0;
}
