/* test_uses.c - the memory that operators say they use, of each backend: no address of the arguments is missing, ranges
 * are the arrays of the contract, and nothing is written outside of what is said to be written. */
#include "kernel/op_check.h"
#include "kernel/own.h"

#define T16 PS_DTYPE_BF16 /* of activations; gradients and states are f32, so that sizes differ */

enum { B = 2, T = 3, H = 4, KV = 2, D = 2, C = H * D, V = 21, ROWS = B * T, N = ROWS * C };

static ps_backend *backend;
static bool is_covered[PS_OP_COUNT];

static const op_array *array_at(const void *address)
{
    const unsigned char *p = address;
    for (int i = 0; i < op_now.n_arrays; i++) {
        const op_array *a = &op_now.arrays[i];
        if (a->bytes > 0 && p >= a->data && p < a->data + a->bytes) return a;
    }
    return NULL;
}

/* The words of the arguments that are addresses of arrays. */
static void check_addresses(ps_op op, const void *args, const ps_uses *u)
{
    for (size_t at = 0; at + sizeof(void *) <= ps_op_args_bytes(op); at += sizeof(void *)) {
        const void *word;
        memcpy(&word, (const char *)args + at, sizeof word);
        if (array_at(word) == NULL) continue;
        int i = 0;
        while (i < u->n && u->use[i].address != word) i++;
        if (i == u->n) fail_msg("%s: the address at byte %zu of the arguments is not named", ps_op_name(op), at);
    }
}

/* Each use is in an array, and together they are all of it. */
static void check_ranges(ps_op op, const ps_uses *u)
{
    for (int i = 0; i < op_now.n_arrays; i++) {
        const op_array *a = &op_now.arrays[i];
        const unsigned char *first = a->data + a->bytes, *last = a->data;
        for (int k = 0; k < u->n; k++) {
            const unsigned char *begin = u->use[k].address, *end = begin + u->use[k].bytes;
            if (array_at(begin) != a) continue;
            if (begin < first) first = begin;
            if (end > last) last = end;
        }
        if (a->bytes > 0 && (first != a->data || last != a->data + a->bytes))
            fail_msg("%s: array %d has %zu bytes, but those used end at %td", ps_op_name(op), i, a->bytes,
                     last - a->data);
    }
    for (int k = 0; k < u->n; k++)
        if (array_at(u->use[k].address) == NULL) fail_msg("%s: %s lies in no array", ps_op_name(op), u->use[k].name);
}

static bool is_written(const ps_uses *u, const unsigned char *byte)
{
    for (int k = 0; k < u->n; k++) {
        const unsigned char *begin = u->use[k].address;
        if (u->use[k].is_write && byte >= begin && byte < begin + u->use[k].bytes) return true;
    }
    return false;
}

/* Against copies of all arrays as they were. */
static void check_writes(ps_op op, const ps_uses *u, unsigned char *const *before)
{
    bool wrote[PS_USES_MAX] = {false};
    for (int i = 0; i < op_now.n_arrays; i++) {
        const op_array *a = &op_now.arrays[i];
        for (size_t b = 0; b < a->bytes; b++) {
            if (a->data[b] == before[i][b]) continue;
            if (!is_written(u, a->data + b))
                fail_msg("%s: wrote byte %zu of array %d, which is not named as written", ps_op_name(op), b, i);
            for (int k = 0; k < u->n; k++) {
                const ptrdiff_t at = a->data + b - (const unsigned char *)u->use[k].address;
                if (u->use[k].is_write && at >= 0 && at < u->use[k].bytes) wrote[k] = true;
            }
        }
    }
    for (int k = 0; k < u->n; k++)
        if (u->use[k].is_write && !wrote[k] && strcmp(u->use[k].name, "workspace") != 0)
            fail_msg("%s: %s is named as written, but was not", ps_op_name(op), u->use[k].name);
}

static void check(ps_op op, const void *args, size_t workspace_bytes)
{
    unsigned char *before[PS_ARRAY_LEN(op_now.arrays)];
    ps_uses u;
    is_covered[op] = true;
    ps_op_uses(op, args, workspace_bytes, &u);
    check_addresses(op, args, &u);
    check_ranges(op, &u);
    for (int i = 0; i < op_now.n_arrays; i++) {
        before[i] = malloc(op_now.arrays[i].bytes + 1);
        memcpy(before[i], op_now.arrays[i].data, op_now.arrays[i].bytes);
    }
    op_expect_ok(ps_kernel_run(backend, op, NULL, args, workspace_bytes));
    check_writes(op, &u, before);
    for (int i = 0; i < op_now.n_arrays; i++) free(before[i]);
    op_release();
}

#define CHECK(op, ...)                                                                                                 \
    do {                                                                                                               \
        const ps_##op##_args args = {__VA_ARGS__};                                                                     \
        check(PS_OP_##op, &args, 0);                                                                                   \
    } while (0)

#define CHECK_SCRATCH(op, ...)                                                                                         \
    do {                                                                                                               \
        ps_##op##_args args = {__VA_ARGS__};                                                                           \
        args.workspace = op_workspace(backend, PS_OP_##op, &args);                                                     \
        check(PS_OP_##op, &args, op_bytes(backend, PS_OP_##op, &args));                                                \
    } while (0)

static void *in(int64_t n)
{
    return op_input(T16, n, 1.0, 1);
}

static float *in_f32(int64_t n)
{
    return op_input(PS_DTYPE_F32, n, 1.0, 2);
}

static void *out(int64_t n)
{
    return op_output(T16, n, false, 0);
}

static float *out_f32(int64_t n)
{
    return op_output(PS_DTYPE_F32, n, false, 0);
}

static void *sum_f32(int64_t n)
{
    return op_output(PS_DTYPE_F32, n, true, 3);
}

static int32_t *ids(int64_t n)
{
    return op_indices(n, V, 0, 4);
}

static int32_t *mask(void)
{
    return op_indices(ROWS, 2, 0, 5);
}

static void check_gemms(void)
{
    enum { OUT = 5, M = ROWS * OUT };
    CHECK_SCRATCH(linear_fwd, .y = out(M), .x = in(N), .w = in(C * OUT), .b = in(OUT), .rows = ROWS, .n_in = C,
                  .n_out = OUT, .dtype = T16, .y_dtype = T16);
    CHECK_SCRATCH(linear_fwd, .y = out_f32(M), .x = in(N), .w = in(C * OUT), .rows = ROWS, .n_in = C, .n_out = OUT,
                  .dtype = T16, .y_dtype = PS_DTYPE_F32);
    CHECK_SCRATCH(linear_fwd, .y = out(M), .x = in(N), .w = in(C * OUT), .rows = ROWS, .n_in = C, .n_out = OUT,
                  .dtype = T16, .y_dtype = T16, .epilogue = {.kind = PS_EPILOGUE_GELU, .other = out(M)});
    CHECK_SCRATCH(linear_fwd, .y = out(M), .x = in(N), .w = in(C * OUT), .rows = ROWS, .n_in = C, .n_out = OUT,
                  .dtype = T16, .y_dtype = T16, .epilogue = {.kind = PS_EPILOGUE_ADD, .other = in(M)});
    CHECK_SCRATCH(linear_bwd_input, .dx = out(N), .dy = in(M), .w = in(C * OUT), .rows = ROWS, .n_in = C, .n_out = OUT,
                  .dtype = T16, .epilogue = {.kind = PS_EPILOGUE_GELU_BWD, .other = in(N)});
    CHECK_SCRATCH(linear_bwd_weight, .dw = out_f32(C * OUT), .db = out_f32(OUT), .dy = in(M), .x = in(N), .rows = ROWS,
                  .n_in = C, .n_out = OUT, .dtype = T16, .grad_dtype = PS_DTYPE_F32);
}

static void check_norms(void)
{
    CHECK(layernorm_fwd, .y = out(N), .mean = out_f32(ROWS), .rstd = out_f32(ROWS), .x = in(N), .w = in(C), .b = in(C),
          .rows = ROWS, .cols = C, .eps = 1e-5f, .dtype = T16);
    CHECK_SCRATCH(layernorm_bwd, .dx = out(N), .dw = out_f32(C), .db = out_f32(C), .dy = in(N), .x = in(N), .w = in(C),
                  .mean = in_f32(ROWS), .rstd = in_f32(ROWS), .rows = ROWS, .cols = C, .dtype = T16,
                  .grad_dtype = PS_DTYPE_F32);
    CHECK(rmsnorm_fwd, .y = out(N), .rstd = out_f32(ROWS), .x = in(N), .w = in(C), .rows = ROWS, .cols = C,
          .eps = 1e-5f, .dtype = T16);
    CHECK_SCRATCH(rmsnorm_bwd, .dx = out(N), .dw = out_f32(C), .dy = in(N), .x = in(N), .w = in(C),
                  .rstd = in_f32(ROWS), .rows = ROWS, .cols = C, .dtype = T16, .grad_dtype = PS_DTYPE_F32);
}

static void check_elementwise(void)
{
    CHECK(gelu_fwd, .y = out(N), .x = in(N), .n = N, .dtype = T16);
    CHECK(gelu_bwd, .dx = out(N), .dy = in(N), .x = in(N), .n = N, .dtype = T16);
    CHECK(swiglu_fwd, .y = out(N), .gate = in(N), .up = in(N), .n = N, .dtype = T16);
    CHECK(swiglu_bwd, .dgate = out(N), .dup = out(N), .dy = in(N), .gate = in(N), .up = in(N), .n = N, .dtype = T16);
    CHECK(tanh_fwd, .y = out(N), .x = in(N), .n = N, .dtype = T16);
    CHECK(tanh_bwd, .dx = out(N), .dy = in(N), .y = in(N), .n = N, .dtype = T16);
    CHECK(relu_fwd, .y = out(N), .x = in(N), .n = N, .dtype = T16);
    CHECK(relu_bwd, .dx = out(N), .dy = in(N), .y = in(N), .n = N, .dtype = T16);
    CHECK(add, .y = out(N), .a = in(N), .b = in(N), .n = N, .dtype = T16);
    CHECK(dropout, .y = out(N), .x = in(N), .n = N, .p = 0.5f, .dtype = T16);
    CHECK(dropout, .y = out(N), .x = in(N), .residual = in(N), .n = N, .p = 0.5f, .dtype = T16, .has_residual = true);
    CHECK(cast, .dst = out_f32(N), .src = in(N), .n = N, .dst_dtype = PS_DTYPE_F32, .src_dtype = T16);
    CHECK(dequantize, .y = out(N), .x = in(ps_item_bytes(ps_quant_item(PS_QUANT_NF4), N) / 2), .n = N,
          .quant = PS_QUANT_NF4, .dtype = T16);
    CHECK(fill, .dst = out_f32(N), .n = N, .std = 1.0f);
    CHECK_SCRATCH(rope, .y = out(N), .x = in(N), .inv_freq = in_f32(D / 2), .B = B, .T = T, .H = H, .D = D, .first = 1,
                  .scale = 1.0f, .dtype = T16);
    CHECK_SCRATCH(rmsnorm_rope_fwd, .y = out(N), .rstd = out_f32(ROWS * H), .x = in(N), .w = in(D),
                  .inv_freq = in_f32(D / 2), .B = B, .T = T, .H = H, .D = D, .first = 1, .eps = 1e-5f, .scale = 1.0f,
                  .dtype = T16);
    CHECK_SCRATCH(rmsnorm_rope_bwd, .dx = out(N), .dw = out_f32(D), .dy = in(N), .x = in(N), .w = in(D),
                  .rstd = in_f32(ROWS * H), .inv_freq = in_f32(D / 2), .B = B, .T = T, .H = H, .D = D, .first = 1,
                  .scale = 1.0f, .dtype = T16, .grad_dtype = PS_DTYPE_F32);
}

/* Queries, keys and values apart; and packed in one array, as their gradients then are. */
static void check_attention(void)
{
    enum { NKV = ROWS * KV * D };
    CHECK_SCRATCH(attention_fwd, .y = out(N), .lse = out_f32(B * H * T), .q = in(N), .k = in(NKV), .v = in(NKV),
                  .mask = mask(), .B = B, .T = T, .H = H, .KV = KV, .D = D, .q_stride = H * D, .kv_stride = KV * D,
                  .scale = 0.5f, .causal = true, .dtype = T16);
    const char *qkv = in(3 * N);
    CHECK_SCRATCH(attention_fwd, .y = out(N), .lse = out_f32(B * H * T), .q = qkv, .k = qkv + 2 * C, .v = qkv + 4 * C,
                  .B = B, .T = T, .H = H, .KV = H, .D = D, .q_stride = 3 * C, .kv_stride = 3 * C, .scale = 0.5f,
                  .dtype = T16);
    CHECK_SCRATCH(attention_bwd, .dq = out(N), .dk = out(NKV), .dv = out(NKV), .dy = in(N), .y = in(N), .q = in(N),
                  .k = in(NKV), .v = in(NKV), .lse = in_f32(B * H * T), .mask = mask(), .B = B, .T = T, .H = H,
                  .KV = KV, .D = D, .q_stride = H * D, .kv_stride = KV * D, .scale = 0.5f, .dtype = T16);
    qkv = in(3 * N);
    char *grads = out(3 * N);
    CHECK_SCRATCH(attention_bwd, .dq = grads, .dk = grads + 2 * C, .dv = grads + 4 * C, .dy = in(N), .y = in(N),
                  .q = qkv, .k = qkv + 2 * C, .v = qkv + 4 * C, .lse = in_f32(B * H * T), .B = B, .T = T, .H = H,
                  .KV = H, .D = D, .q_stride = 3 * C, .kv_stride = 3 * C, .scale = 0.5f, .dtype = T16);
    enum { POSITIONS = 7, CACHE = KV * POSITIONS * D };
    CHECK_SCRATCH(attention_cached, .y = out(T * C), .k_cache = op_output(T16, CACHE, true, 6),
                  .v_cache = op_output(T16, CACHE, true, 7), .q = in(T * C), .k = in(T * KV * D), .v = in(T * KV * D),
                  .T = T, .H = H, .KV = KV, .D = D, .q_stride = C, .kv_stride = KV * D, .n_positions = POSITIONS,
                  .first = 2, .scale = 0.5f, .dtype = T16);
}

static void check_rows(void)
{
    enum { POSITIONS = T + 2 };
    CHECK(embedding_fwd, .y = out(N), .w = in(V * C), .ids = ids(ROWS), .rows = ROWS, .cols = C, .V = V, .dtype = T16);
    CHECK_SCRATCH(embedding_bwd, .dw = out_f32(V * C), .dy = in(N), .ids = ids(ROWS), .rows = ROWS, .cols = C, .V = V,
                  .dtype = T16, .grad_dtype = PS_DTYPE_F32);
    CHECK(position_fwd, .y = out(N), .x = in(N), .w = in(POSITIONS * C), .B = B, .T = T, .cols = C,
          .n_positions = POSITIONS, .first = 1, .dtype = T16);
    CHECK(position_bwd, .dw = out_f32(POSITIONS * C), .dy = in(N), .B = B, .T = T, .cols = C, .n_positions = POSITIONS,
          .dtype = T16, .grad_dtype = PS_DTYPE_F32);
    CHECK(pool_fwd, .y = out(B * C), .x = in(N), .mask = mask(), .B = B, .T = T, .cols = C, .kind = PS_POOL_LAST,
          .dtype = T16);
    CHECK(pool_bwd, .dx = out(N), .dy = in(B * C), .mask = mask(), .B = B, .T = T, .cols = C, .kind = PS_POOL_LAST,
          .dtype = T16);
}

/* Writes all that it should. */
static ps_status write_all(const ps_own_call *c)
{
    const size_t row_bytes = (size_t)c->rows * 4;
    const bool is_backward = c->dy != NULL;
    for (int i = 0; i < 2 && is_backward; i++) {
        memset(c->dx[i], 0, (size_t)(c->rows * c->x_columns[i]) * 2);
        if (c->dw[i] != NULL) memset(c->dw[i], 0, (size_t)c->w_elements[i] * sizeof(float));
    }
    memset(c->scratch, 0, (size_t)c->scratch_bytes);
    if (is_backward) return PS_OK;
    memset(c->y, 0, (size_t)(c->rows * c->y_columns) * 2);
    memset(c->saved[0], 0, 2 * row_bytes);
    memset(c->row_loss, 0, row_bytes);
    memset(c->predicted, 0, row_bytes);
    return PS_OK;
}

static int64_t some_bytes(const ps_own_call *call, int is_backward)
{
    (void)call;
    return is_backward ? 100 : 60;
}

static void check_loss(void)
{
    for (int keeps = 0; keeps < 2; keeps++) {
        const int64_t n_logits = keeps ? ps_lm_logits_count(ROWS, V) : 0;
        CHECK_SCRATCH(lm_loss_fwd, .row_loss = out_f32(ROWS), .lse = out_f32(ROWS),
                      .predicted = (int32_t *)(void *)out_f32(ROWS), .logits = out_f32(n_logits), .x = in(N),
                      .w = in(V * C), .b = in(V), .targets = ids(ROWS), .rows = ROWS, .C = C, .V = V, .dtype = T16,
                      .keeps_logits = keeps != 0);
        CHECK_SCRATCH(lm_loss_bwd, .dx = out(N), .dw = out_f32(V * C), .db = out_f32(V), .x = in(N), .w = in(V * C),
                      .b = in(V), .lse = in_f32(ROWS), .logits = in_f32(n_logits), .targets = ids(ROWS), .rows = ROWS,
                      .C = C, .V = V, .scale = 1.0f, .dtype = T16, .grad_dtype = PS_DTYPE_F32,
                      .keeps_logits = keeps != 0);
    }
#define TERMS ((ps_loss_terms){.class_weights = in_f32(V), .mean_weight = 1.0f, .smoothing = 0.1f, .z_loss = 0.1f})
    CHECK_SCRATCH(lm_loss_fwd, .row_loss = out_f32(ROWS), .lse = out_f32(ROWS), .x = in(N), .w = in(V * C),
                  .targets = ids(ROWS), .rows = ROWS, .C = C, .V = V, .terms = TERMS, .dtype = T16);
    CHECK_SCRATCH(lm_loss_bwd, .dx = out(N), .dw = out_f32(V * C), .x = in(N), .w = in(V * C), .lse = in_f32(ROWS),
                  .targets = ids(ROWS), .rows = ROWS, .C = C, .V = V, .scale = 1.0f, .terms = TERMS, .dtype = T16,
                  .grad_dtype = PS_DTYPE_F32);
    CHECK(values_loss_fwd, .loss = out_f32(N), .predicted = (int32_t *)(void *)out_f32(N), .z = in_f32(N),
          .values = in_f32(N), .n = N, .kind = PS_VALUES_LOGISTIC);
    CHECK(values_loss_bwd, .dz = out(N), .z = in_f32(N), .values = in_f32(N), .n = N, .scale = 1.0f, .dtype = T16);
    CHECK(span_loss_fwd, .loss = out_f32(2 * B), .predicted = (int32_t *)(void *)out_f32(2 * B), .z = in_f32(2 * B * T),
          .targets = op_indices(2 * B, T, 0, 3), .B = B, .T = T, .weight = {1.0f, 1.0f});
    CHECK(span_loss_bwd, .dz = out(2 * B * T), .z = in_f32(2 * B * T), .targets = op_indices(2 * B, T, 0, 3), .B = B,
          .T = T, .scale = {1.0f, 1.0f}, .dtype = T16);
    const ps_own_operator op = {.struct_size = sizeof op,
                                .name = "uses",
                                .forward = write_all,
                                .backward = write_all,
                                .cuda_forward = write_all,
                                .cuda_backward = write_all,
                                .scratch_bytes = some_bytes};
    CHECK_SCRATCH(own_fwd, .op = ps_own_functions_of(&op, false),
                  .call = {.dtype = T16,
                           .rows = ROWS,
                           .x_columns = {C, V},
                           .y_columns = C,
                           .w_elements = {C, V},
                           .x = {in(N), in(ROWS * V)},
                           .w = {in(C), in(V)},
                           .y = out(N),
                           .saved = {out_f32(2 * ROWS)},
                           .targets = ids(ROWS),
                           .row_loss = out_f32(ROWS),
                           .predicted = (int32_t *)(void *)out_f32(ROWS)},
                  .saved_columns = {2});
    for (int skips = 0; skips < 2; skips++)
        CHECK_SCRATCH(own_bwd, .op = ps_own_functions_of(&op, true),
                      .call = {.dtype = T16,
                               .rows = ROWS,
                               .x_columns = {C, V},
                               .y_columns = C,
                               .w_elements = {C, V},
                               .x = {in(N), in(ROWS * V)},
                               .w = {in(C), in(V)},
                               .y = (void *)(uintptr_t)in(N),
                               .dy = in(N),
                               .dx = {out(N), out(ROWS * V)},
                               .saved = {sum_f32(2 * ROWS)},
                               .targets = ids(ROWS)},
                      .saved_columns = {2}, .dw = {out_f32(C), skips ? NULL : out_f32(V)}, .grad_dtype = PS_DTYPE_F32,
                      .skips_dw = {false, skips});
    CHECK(loss_sums, .sums = op_alloc(sizeof(ps_loss_sums)), .row_loss = in_f32(ROWS), .targets = ids(ROWS),
          .predicted = ids(ROWS), .class_weights = in_f32(V), .rows = ROWS, .n_classes = V);
    CHECK(loss_sums, .sums = op_alloc(sizeof(ps_loss_sums)), .row_loss = in_f32(ROWS), .values = in_f32(ROWS),
          .predicted = ids(ROWS), .rows = ROWS);
}

static void check_steps(void)
{
    CHECK(adam, .param = out(N), .grad = in_f32(N), .master = sum_f32(N), .m = sum_f32(N),
          .v = op_random(PS_DTYPE_F32, N, 4.0, 1.0, 8), .n = N, .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.9f, .eps = 1e-8f,
          .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.1f, .bias1 = 1.0f, .bias2 = 1.0f, .grad_scale = 1.0f,
          .param_dtype = T16, .grad_dtype = PS_DTYPE_F32);
    CHECK(sgd, .param = out(N), .grad = in_f32(N), .master = sum_f32(N), .buffer = sum_f32(N), .n = N, .lr = 0.1f,
          .momentum = 0.9f, .one_minus_dampening = 1.0f, .grad_scale = 1.0f, .param_dtype = T16,
          .grad_dtype = PS_DTYPE_F32);
    CHECK(sgd, .param = out(N), .grad = in_f32(N), .master = sum_f32(N), .n = N, .lr = 0.1f, .grad_scale = 1.0f,
          .param_dtype = T16, .grad_dtype = PS_DTYPE_F32);
    CHECK(lion, .param = out(N), .grad = in_f32(N), .master = sum_f32(N), .m = sum_f32(N), .n = N, .lr = 0.1f,
          .beta1 = 0.9f, .beta2 = 0.99f, .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.01f, .grad_scale = 1.0f,
          .param_dtype = T16, .grad_dtype = PS_DTYPE_F32);
    ps_grad_sums *sums = op_alloc(sizeof *sums);
    memset(sums, 0, sizeof *sums);
    CHECK(grad_stats, .sums = sums, .x = in(N), .n = N, .dtype = T16);
}

static void test_all_operators(void **state)
{
    (void)state;
    char name[64];
    for (int i = 0; op_backend(i, &backend, name); i++) {
        memset(is_covered, 0, sizeof is_covered);
        op_label("%s", name);
        check_gemms();
        check_norms();
        check_elementwise();
        check_attention();
        check_rows();
        check_loss();
        check_steps();
        for (int op = 0; op < PS_OP_COUNT; op++)
            if (!is_covered[op]) fail_msg("%s is not tested", ps_op_name((ps_op)op));
    }
}

/* Nothing is named where there is nothing. */
static void test_no_rows(void **state)
{
    (void)state;
    ps_uses u;
    const float x = 0;
    const ps_attention_fwd_args a = {.q = &x, .k = &x, .v = &x, .q_stride = 3, .kv_stride = 3, .H = 1, .KV = 1, .D = 1};
    ps_op_uses(PS_OP_attention_fwd, &a, 0, &u);
    assert_int_equal(u.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_operators),
        cmocka_unit_test(test_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
