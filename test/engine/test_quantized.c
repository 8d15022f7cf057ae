/* Frozen weights in 8 or 4 bits: values and losses of a model with these values in the run's format; the same bits in
 * any memory and with several ranks; checkpoints; evaluation; what is refused. */
#include "base/quantized.h"
#include "checkpoint/checkpoint_fixture.h"
#include "engine/ranks_fixture.h"
#include "train/plan/simulate.h"
#include "weights/safetensors.h"

enum { STEPS = 3, ELEMENTS_MAX = 48 * 192 };

#define BF16 "bf16.enabled=true"
#define F32 "bf16.enabled=false"
#define NF4 "model.frozen_format=nf4"
#define INT8 "model.frozen_format=int8"
#define LORA                                                                                                           \
    "lora.r=3", "lora.lora_alpha=12", "lora.lora_dropout=0.1", "optimizer.params.lr=0.01", "model.initializer_range=0.1"
#define FREEZE "train.freeze=*h.0.*", "optimizer.params.lr=0.01", "model.initializer_range=0.1"
#define SMALL "memory.device=600KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=6144"

static work_folder work;

static ps_quant quant_of(const char *name)
{
    return strcmp(name, NF4) == 0 ? PS_QUANT_NF4 : PS_QUANT_INT8;
}

/* The four matrices of each layer. */
static bool is_matrix(const char *name)
{
    static const char *const ends[] = {"c_attn.weight", "c_proj.weight", "c_fc.weight"};
    for (size_t i = 0; i < PS_ARRAY_LEN(ends); i++) {
        const size_t n = strlen(name), m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}

static float *read_all(ps_engine *e, int32_t t, float out[ELEMENTS_MAX])
{
    assert_in_range(e->program->params[t].elements, 1, ELEMENTS_MAX);
    assert_ok(ps_engine_read_tensor(e, t, 0, e->program->params[t].elements, out));
    return out;
}

/* Matrices have the values of ps_quantize of what is drawn, before it is rounded; and products those of matrices with these values, in every bit. */
static void check_values(const char *format, const char *dtype)
{
    ps_config *c = TINY(format, dtype, LORA), *plain = TINY(dtype, LORA), *exact = TINY(F32, LORA);
    ps_engine *e = engine_of(c), *f = engine_of(plain), *g = engine_of(exact);
    static float have[ELEMENTS_MAX], values[ELEMENTS_MAX];
    static ps_int8_record records[ELEMENTS_MAX / PS_QUANT_RECORD + 1]; /* the larger one */
    float losses[STEPS], want[STEPS];
    int n_quantized = 0;
    for (int32_t t = 0; t < e->program->n_params; t++) {
        const ps_param *p = &e->program->params[t];
        const int64_t n = p->elements;
        read_all(e, t, have), read_all(is_matrix(p->name) ? g : f, t, values);
        assert_int_equal(p->quant, is_matrix(p->name) ? quant_of(format) : PS_QUANT_NONE);
        if (is_matrix(p->name)) {
            ps_quantize(quant_of(format), records, values, n);
            ps_dequantize(quant_of(format), records, 0, values, n);
            assert_ok(ps_engine_write_tensor(f, t, 0, n, values));
            n_quantized++;
        }
        assert_memory_equal(have, values, (size_t)n * sizeof *have);
    }
    assert_int_equal(n_quantized, 8);
    train_steps(e, 0, STEPS, losses);
    train_steps(f, 0, STEPS, want);
    assert_memory_equal(losses, want, sizeof losses);
    for (int32_t t = 0; t < e->program->n_params; t++)
        if (!e->program->params[t].is_frozen)
            assert_memory_equal(read_all(e, t, have), read_all(f, t, values),
                                (size_t)e->program->params[t].elements * sizeof *have);
    ps_engine_destroy(e), ps_engine_destroy(f), ps_engine_destroy(g);
    ps_config_destroy(c), ps_config_destroy(plain), ps_config_destroy(exact);
}

static void test_values(void **state)
{
    (void)state;
    check_values(NF4, F32);
    check_values(NF4, BF16);
    check_values(INT8, F32);
    check_values(INT8, BF16);
}

/* A part of a tensor; what is beside it in a group is quantized again, other groups keep their bits. */
static void test_write_part(void **state)
{
    (void)state;
    ps_config *c = TINY(NF4, BF16, LORA, SMALL);
    ps_engine *e = engine_of(c);
    static float before[ELEMENTS_MAX], after[ELEMENTS_MAX];
    int32_t t = 0;
    while (!is_matrix(e->program->params[t].name)) t++;
    read_all(e, t, before);
    const float part[3] = {-2, 0, 2};
    assert_ok(ps_engine_write_tensor(e, t, 700, 3, part));
    read_all(e, t, after);
    assert_memory_equal(after + 700, part, sizeof part); /* largest magnitude, and 0, are exact */
    assert_memory_equal(after, before, 640 * sizeof *after);
    assert_memory_equal(after + 704, before + 704, (size_t)(e->program->params[t].elements - 704) * sizeof *after);
    assert_ok(ps_engine_write_tensor(e, t, 640, 64, after + 640));
    read_all(e, t, before);
    assert_memory_equal(after, before, (size_t)e->program->params[t].elements * sizeof *after);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void assert_same(const char *what, const run_result *a, const run_result *b)
{
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0 || a->norms[s] != b->norms[s])
            fail_msg("%s: step %d has loss %.9g and norm %g, not %.9g and %g", what, s, (double)b->losses[s],
                     b->norms[s], (double)a->losses[s], a->norms[s]);
    if (a->hash != b->hash) fail_msg("%s: other weights", what);
}

static void vary_memory(const char *format, const char *dtype, const char *const *more)
{
#define RUN(...) train(TINY(format, dtype, more[0], more[1], more[2], more[3], more[4], __VA_ARGS__), STEPS)
    const run_result base = RUN("train.threads=2");
#define SAME(what, ...)                                                                                                \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        const run_result r_ = RUN(__VA_ARGS__);                                                                        \
        assert_same(what, &base, &r_);                                                                                 \
    } while (0)
    SAME("a thread", "train.threads=1");
    SAME("three threads", "train.threads=3");
    SAME("small chunks", "default_chunk_size=6144");
    SAME("large chunks", "default_chunk_size=262144");
    SAME("checkpointing", "activation_checkpointing.enabled=true");
    SAME("host tier", "memory.device=600KB", "memory.host=4MB", "default_chunk_size=6144");
    SAME("disk tier", "memory.device=600KB", "memory.disk=20MB", "default_chunk_size=6144");
    SAME("three tiers", SMALL);
    SAME("placement cpu", "memory.host=4MB", "zero.tensor_placement_policy=cpu");
#undef SAME
#undef RUN
}

#define FIVE(...) ((const char *const[5]){__VA_ARGS__})

static void test_same_bits(void **state)
{
    (void)state;
    vary_memory(NF4, BF16, FIVE(LORA));
    vary_memory(INT8, BF16, FIVE(LORA));
    vary_memory(NF4, F32, FIVE(LORA));
    vary_memory(NF4, BF16, FIVE(FREEZE, "gradient_accumulation_steps=2", "train.seed=3"));
}

static void test_ranks(void **state)
{
    (void)state;
    const rank_result base = RANKS(2, STEPS, FOR_BITS, BF16, LORA, NF4)->result;
    const rank_result *r =
        &RANKS(2, STEPS, BF16, LORA, NF4, "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=6144")->result;
    assert_true(r->hash == base.hash);
    assert_memory_equal(r->losses, base.losses, sizeof r->losses);
}

/* Bytes as the formats have them, in the plan and in the run. */
static void test_plan(void **state)
{
    (void)state;
    const int64_t matrices = 2 * (48 * 144 + 48 * 48 + 2 * 48 * 192);
    ps_config *of[] = {TINY(BF16, LORA), TINY(BF16, LORA, INT8), TINY(BF16, LORA, NF4)};
    int64_t bytes[3];
    for (size_t i = 0; i < PS_ARRAY_LEN(of); i++) {
        ps_simulation plan;
        assert_ok(ps_simulate(of[i], NULL, false, NULL, &plan));
        bytes[i] = plan.model_data_bytes;
        const ps_memory_info m = train(of[i], STEPS).memory;
        assert_int_equal(m.model_data_bytes, bytes[i]);
        assert_int_equal(m.device_peak_bytes, plan.forecast.peak_bytes[PS_TIER_DEVICE]);
    }
    /* matrices of 6912, 2304 and 9216 elements are 13.5, 4.5 and 18 records */
    const int64_t n_records = 2 * (14 + 5 + 18 + 18);
    assert_int_equal(bytes[0] - bytes[1], 2 * matrices - n_records * 528);
    assert_int_equal(bytes[0] - bytes[2], 2 * matrices - n_records * 272);
}

/* With adapters the matrices are not in it, otherwise as floats, from which they become the same. */
static void check_resume(const char *const *saving, const char *const *resuming, bool at_once)
{
    float losses[STEPS], again[STEPS];
    ps_config *c = tiny_with(saving), *d = tiny_with(resuming);
    ps_engine *e = engine_of(c), *f = engine_of(d);
    ps_checkpoint_info info = {.struct_size = sizeof info};
    uint64_t hash[2];
    work = work_make();
    train_steps(e, 0, 1, losses);
    if (at_once)
        assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, &info));
    else
        assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
    train_steps(e, 1, STEPS, losses);
    if (!at_once) assert_ok(ps_engine_finish_checkpoint(e, &info));
    assert_ok(ps_engine_load_checkpoint(f, work.path, NULL));
    train_steps(f, 1, STEPS, again);
    assert_memory_equal(losses + 1, again + 1, (STEPS - 1) * sizeof *losses);
    assert_ok(ps_engine_get_weights_xxh3(e, &hash[0]));
    assert_ok(ps_engine_get_weights_xxh3(f, &hash[1]));
    assert_true(hash[0] == hash[1]);
    work_remove(work.path);
    ps_engine_destroy(e), ps_engine_destroy(f);
    ps_config_destroy(c), ps_config_destroy(d);
}

static void test_resume(void **state)
{
    (void)state;
    check_resume(CHANGES(LORA, NF4, BF16), CHANGES(LORA, NF4, BF16, SMALL), true);
    check_resume(CHANGES(FREEZE, NF4, BF16, SMALL), CHANGES(FREEZE, NF4, BF16), false);
    check_resume(CHANGES(FREEZE, INT8), CHANGES(FREEZE, INT8, SMALL), true);
    check_resume(CHANGES(FREEZE, INT8, BF16), CHANGES(FREEZE, INT8, BF16), false);
}

/* Without training the same weights are quantized; without adapters all matrices are. */
static void test_inference(void **state)
{
    (void)state;
    static float have[ELEMENTS_MAX], want[ELEMENTS_MAX];
    ps_config *c = TINY(LORA, NF4, BF16), *plain = TINY(NF4, BF16);
    ps_engine *e = engine_of(c), *f = NULL, *all = NULL;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &f));
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, plain, 0, plain, &all));
    for (int32_t t = 0; t < e->program->n_params; t++) {
        assert_int_equal(e->program->params[t].quant, f->program->params[t].quant);
        if (e->program->params[t].is_frozen)
            assert_memory_equal(read_all(e, t, have), read_all(f, t, want),
                                (size_t)e->program->params[t].elements * sizeof *have);
    }
    for (int32_t t = 0; t < all->program->n_params; t++)
        assert_int_equal(all->program->params[t].quant != PS_QUANT_NONE, is_matrix(all->program->params[t].name));
    ps_engine_destroy(e), ps_engine_destroy(f), ps_engine_destroy(all);
    ps_config_destroy(c), ps_config_destroy(plain);
}

/* ---- files of bitsandbytes --------------------------------------------------------------------------------------- */

enum { TENSORS_MAX = 64 };

/* A model's weights, the matrices in 4 bits; values [n]: those of matrix t. */
static void write_bitsandbytes(ps_engine *e, const char *path, float (*values)[ELEMENTS_MAX])
{
    static float nf4[16] = {PS_NF4_VALUES}, data[TENSORS_MAX][ELEMENTS_MAX], absmax[TENSORS_MAX][ELEMENTS_MAX / 64];
    static char names[TENSORS_MAX][3][128], states[TENSORS_MAX][128];
    static uint8_t codes[TENSORS_MAX][ELEMENTS_MAX / 2];
    ps_safetensor all[4 * TENSORS_MAX] = {0};
    const void *bytes[4 * TENSORS_MAX];
    ps_safetensors_writer *w = NULL;
    int n = 0;
#define ADD(name_, dtype_, count_, data_)                                                                              \
    all[n] = (ps_safetensor){.name = name_, .dtype = dtype_, .n_dims = 1, .shape = {count_}}, bytes[n++] = data_
    for (int32_t t = 0; t < e->program->n_params; t++) {
        const ps_param *p = &e->program->params[t];
        read_all(e, t, data[t]);
        if (!is_matrix(p->name)) {
            ADD(p->name, PS_SAFETENSORS_F32, p->shape[0], data[t]);
            all[n - 1].n_dims = p->n_dims, all[n - 1].shape[1] = p->shape[1];
            continue;
        }
        for (int64_t i = 0; i < p->elements; i += 64) {
            float most = 0;
            for (int k = 0; k < 64; k++) most = fmaxf(most, fabsf(data[t][i + k]));
            absmax[t][i / 64] = most;
            for (int k = 0; k < 64; k++) {
                uint8_t code;
                ps_nf4_codes(&data[t][i + k], 1.0f / most, &code, 1);
                codes[t][(i + k) / 2] = (uint8_t)(k % 2 == 0 ? code << 4 : codes[t][(i + k) / 2] | code);
                values[t][i + k] = nf4[code] * most;
            }
        }
        snprintf(names[t][0], sizeof names[t][0], "%s.absmax", p->name);
        snprintf(names[t][1], sizeof names[t][1], "%s.quant_map", p->name);
        snprintf(names[t][2], sizeof names[t][2], "%s.quant_state.bitsandbytes__nf4", p->name);
        snprintf(states[t], sizeof states[t], "{\"blocksize\": 64, \"shape\": [%d, %d]}", (int)p->shape[0],
                 (int)p->shape[1]);
        ADD(p->name, PS_SAFETENSORS_U8, p->elements / 2, codes[t]);
        ADD(names[t][0], PS_SAFETENSORS_F32, p->elements / 64, absmax[t]);
        ADD(names[t][1], PS_SAFETENSORS_F32, 16, nf4);
        ADD(names[t][2], PS_SAFETENSORS_U8, (int64_t)strlen(states[t]), states[t]);
    }
#undef ADD
    assert_ok(ps_safetensors_writer_open(path, all, n, NULL, 0, &w));
    for (int i = 0; i < n; i++) {
        int64_t count = all[i].shape[0];
        if (all[i].n_dims == 2) count *= all[i].shape[1];
        assert_ok(ps_safetensors_writer_append(w, i, bytes[i], count * ps_safetensors_dtype_bytes(all[i].dtype)));
    }
    assert_ok(ps_safetensors_writer_commit(w));
}

/* They are loaded as their values; quantized again they have the same codes, and scales that are rounded. */
static void test_bitsandbytes(void **state)
{
    (void)state;
    static float values[TENSORS_MAX][ELEMENTS_MAX], have[ELEMENTS_MAX];
    static ps_nf4_record records[ELEMENTS_MAX / PS_QUANT_RECORD + 1];
    work = work_make();
    const work_path path = work_file(work.path, "model.safetensors");
    ps_config *of[] = {TINY(F32, "model.initializer_range=0.1"), TINY(F32, "train.seed=3", SMALL),
                       TINY(F32, LORA, NF4, "train.seed=3")};
    ps_engine *e[] = {engine_of(of[0]), engine_of(of[1]), engine_of(of[2])};
    write_bitsandbytes(e[0], path.text, values);
    for (int i = 1; i < 3; i++) assert_ok(ps_engine_load_pretrained(e[i], path.text, NULL, NULL));
    for (int32_t t = 0; t < e[1]->program->n_params; t++) {
        const ps_param *p = &e[1]->program->params[t];
        if (!is_matrix(p->name)) read_all(e[0], t, values[t]);
        read_all(e[1], t, have);
        assert_memory_equal(have, values[t], (size_t)p->elements * sizeof *have);
    }
    for (int32_t t = 0, of_plain = 0; t < e[2]->program->n_params; t++) {
        const ps_param *p = &e[2]->program->params[t];
        if (strstr(p->name, ".lora_") != NULL) continue;
        read_all(e[2], t, have);
        if (is_matrix(p->name)) {
            ps_quantize(PS_QUANT_NF4, records, values[of_plain], p->elements);
            ps_dequantize(PS_QUANT_NF4, records, 0, values[of_plain], p->elements);
        }
        assert_memory_equal(have, values[of_plain++], (size_t)p->elements * sizeof *have);
    }
    work_remove(work.path);
    for (int i = 0; i < 3; i++) ps_engine_destroy(e[i]), ps_config_destroy(of[i]);
}

static void test_refusals(void **state)
{
    (void)state;
#define REFUSED(words, ...)                                                                                            \
    do {                                                                                                               \
        ps_config *c_ = TINY(__VA_ARGS__);                                                                             \
        ps_engine *e_ = NULL;                                                                                          \
        assert_int_equal(ps_initialize_engine(ps_model_from_config, c_, 0, c_, &e_), PS_EINVAL);                       \
        if (strstr(ps_last_error(), words) == NULL) fail_msg("%s", ps_last_error());                                   \
        ps_config_destroy(c_);                                                                                         \
    } while (0)
    REFUSED("set lora.r for adapters", NF4);
    REFUSED("set lora.r for adapters", NF4, "train.freeze=*.bias,*wte.weight");
    REFUSED("set it to at least 2448", NF4, BF16, LORA, "default_chunk_size=2048");
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_write_part),   cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_ranks),     cmocka_unit_test(test_plan),         cmocka_unit_test(test_resume),
        cmocka_unit_test(test_inference), cmocka_unit_test(test_bitsandbytes), cmocka_unit_test(test_refusals),
    };
    return RUN_ON_BACKENDS(tests);
}
