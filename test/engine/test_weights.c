/* Weights of an engine from files of all kinds, and into them: the same bits, little memory, and errors before any
 * change. */
#include "engine/engine_fixture.h"

#include "api/engine/engine.h"
#include "api/engine/tensors.h"
#include "api/engine/weight_files.h"
#include "base/fault.h"
#include "base/file.h"
#include "temp_folder.h"
#include "weights/export.h"
#include "weights/weight_copy.h"
#include "weights/weight_source.h"

static temp_folder folder;

static uint64_t hash_of(ps_engine *e)
{
    uint64_t hash;
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    return hash;
}

static void expect_fails(ps_status st, ps_status wanted, const char *message)
{
    if (st != wanted || strstr(ps_last_error(), message) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", ps_status_name(st), ps_last_error(), message);
}

/* Masters through a file come back with the same bits, wherever the chunks are; f32 masters are rounded as when written
 * one by one. */
static void test_save_and_load(void **state)
{
    (void)state;
    static const char *const files[] = {"a.safetensors", "a.pt",
                                        "a.pth"}; /* the latter two as torch.save writes them */
    static const char *const formats[] = {"bf16.enabled=false", "bf16.enabled=true", "fp16.enabled=true"};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        const temp_path p = temp_folder_file(&folder, files[f]);
        ps_weight_source *s;
        ps_config *from_config = TINY("train.threads=1", formats[f], "train.seed=3");
        ps_config *to_config = TINY("train.threads=1", formats[f], "train.seed=4", "default_chunk_size=2048",
                                    "memory.device=700KB", "memory.disk=20MB");
        ps_engine *from = engine_of(from_config), *to = engine_of(to_config);
        static int32_t tokens[32], targets[32];
        float losses[2];
        fill_batch(tokens, targets, 2, 16, 131, 1);
        assert_true(hash_of(from) != hash_of(to));
        assert_ok(ps_engine_save_weights(from, p.text));
        assert_ok(ps_weight_source_open(p.text, &s));
        assert_string_equal(ps_weight_source_kind(s), f == 0 ? "safetensors" : "torch.save");
        ps_weight_source_close(s);
        assert_ok(ps_engine_load_pretrained(to, p.text, NULL, NULL));
        const int64_t live_bytes = ps_mem_live_bytes(); /* with what queues keep since their first use */
        assert_ok(ps_engine_load_pretrained(to, p.text, NULL, NULL));
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
        assert_true(hash_of(from) == hash_of(to));
        assert_ok(ps_evaluate(from, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                              &losses[0]));
        assert_ok(ps_evaluate(to, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                              &losses[1]));
        assert_memory_equal(&losses[0], &losses[1], sizeof losses[0]); /* the rounded parameters are the same, too */
        ps_engine_destroy(from), ps_engine_destroy(to);
        ps_config_destroy(from_config), ps_config_destroy(to_config);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Rounded to 16 bits in the file, by saving or by export: loading gives the rounded values; once more changes
 * nothing. */
static void test_types(void **state)
{
    (void)state;
    const temp_path whole = temp_folder_file(&folder, "whole"), half = temp_folder_file(&folder, "half");
    const temp_path again = temp_folder_file(&folder, "again");
    ps_config *c = TINY("train.threads=1", "bf16.enabled=true");
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_save_weights(e, whole.text));
    for (int t = PS_DTYPE_F32; t < PS_DTYPE_COUNT; t++) {
        const ps_dtype dtype = (ps_dtype)t;
        ps_weight_source *s;
        char *a, *b;
        int64_t n_a, n_b;
        assert_ok(ps_engine_load_pretrained(e, whole.text, NULL, NULL));
        assert_ok(ps_weights_save(e, half.text, dtype));
        assert_ok(ps_weight_source_open(whole.text, &s));
        const int n = ps_weight_source_count(s);
        ps_weight_copy *copies = calloc((size_t)n, sizeof *copies);
        for (int i = 0; i < n; i++)
            copies[i] = (ps_weight_copy){.weight = i, .name = ps_weight_source_get(s, i)->tensor.name};
        assert_ok(ps_weight_copy_file(s, copies, n, &dtype, again.text, NULL));
        free(copies);
        ps_weight_source_close(s);
        assert_ok(ps_file_read_all(half.text, 1 << 22, &a, &n_a));
        assert_ok(ps_file_read_all(again.text, 1 << 22, &b, &n_b));
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, (size_t)n_a);
        ps_mem_free(a), ps_mem_free(b);
        const uint64_t before = hash_of(e);
        assert_ok(ps_engine_load_pretrained(e, half.text, NULL, NULL));
        const uint64_t rounded = hash_of(e);
        assert_true((before == rounded) == (dtype == PS_DTYPE_F32));
        assert_ok(ps_weights_save(e, half.text, dtype));
        assert_ok(ps_engine_load_pretrained(e, half.text, NULL, NULL));
        assert_true(hash_of(e) == rounded);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Through an exported folder, in shards; and memory for a few pieces, not for the model. */
static void test_export(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "a.safetensors"), hf = temp_folder_file(&folder, "hf");
    const temp_path merged = temp_folder_file(&folder, "merged");
    ps_config *c = TINY("train.threads=1");
    ps_engine *e = engine_of(c);
    ps_weight_source *s;
    ps_export_info info;
    const uint64_t hash = hash_of(e);
    assert_ok(ps_engine_save_weights(e, p.text));
    assert_ok(ps_weight_source_open(p.text, &s));
    const ps_export_options o = {.config_json = "{\"model_type\": \"gpt2\"}", .max_shard_bytes = 24000};
    assert_ok(ps_export(s, hf.text, &o, &info));
    const ps_export_info whole = info;
    ps_weight_source_close(s);
    assert_true(info.n_shards > 3);
    expect_fails(ps_weight_source_open(hf.text, &s) == PS_OK ? ps_export(s, hf.text, &o, &info) : PS_OK, PS_EINVAL,
                 "is there and not empty");
    assert_true(ps_weight_source_n_files(s) > 3);
    assert_ok(ps_weight_merge(s, merged.text));
    ps_weight_source_close(s);
    float zero[131 * 48] = {0};
    assert_ok(ps_engine_write_tensor(e, 0, 0, 131 * 48, zero));
    assert_ok(ps_engine_load_pretrained(e, hf.text, NULL, NULL));
    assert_true(hash_of(e) == hash);
    assert_ok(ps_engine_write_tensor(e, 0, 0, 131 * 48, zero));
    assert_ok(ps_engine_load_pretrained(e, merged.text, NULL, NULL));
    assert_true(hash_of(e) == hash);
    temp_folder inner;
    snprintf(inner.path, sizeof inner.path, "%.60s", hf.text);
    temp_folder_remove(&inner);
    /* as torch.save writes them: the same shards, but the tied output layer is there, in that of the embedding */
    ps_export_options torch = {
        .config_json = "{\"model_type\": \"gpt2\"}", .is_torch = true, .ties_head = true, .max_shard_bytes = 24000};
    assert_ok(ps_weight_source_open(p.text, &s));
    assert_ok(ps_export(s, hf.text, &torch, &info));
    ps_weight_source_close(s);
    assert_int_equal(info.n_tensors, whole.n_tensors + 1);
    assert_int_equal(info.n_shards, whole.n_shards);
    assert_int_equal(info.tensor_bytes, whole.tensor_bytes);
    assert_ok(ps_weight_source_open(hf.text, &s));
    const int head = ps_weight_source_find(s, "lm_head.weight");
    assert_true(head >= 0);
    assert_int_equal(ps_weight_source_same_as(s, head),
                     ps_weight_source_same_as(s, ps_weight_source_find(s, "transformer.wte.weight")));
    /* once more it is there already; another class has none */
    for (int k = 0; k < 2; k++) {
        const temp_path again = temp_folder_file(&folder, k == 0 ? "again-hf" : "headless-hf");
        temp_folder next;
        ps_weight_source *from = s;
        torch.ties_head = k == 0;
        if (k == 1) assert_ok(ps_weight_source_open(p.text, &from));
        assert_ok(ps_export(from, again.text, &torch, &info));
        assert_int_equal(info.n_tensors, whole.n_tensors + (k == 0));
        assert_int_equal(info.tensor_bytes, whole.tensor_bytes);
        if (k == 1) ps_weight_source_close(from);
        snprintf(next.path, sizeof next.path, "%.60s", again.text);
        temp_folder_remove(&next);
    }
    ps_weight_source_close(s);
    assert_ok(ps_engine_write_tensor(e, 0, 0, 131 * 48, zero));
    assert_ok(ps_engine_load_pretrained(e, hf.text, NULL, NULL));
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    temp_folder_remove(&inner);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Whatever is wrong is found before anything is changed, and named. */
static void test_wrong_files(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "a.safetensors"), bad = temp_folder_file(&folder, "bad.safetensors");
    ps_config *c = TINY("train.threads=1"), *tied = TINY("train.threads=1", "train.seed=9");
    ps_config *untied = TINY("train.threads=1", "model.tie_word_embeddings=false");
    ps_engine *e = engine_of(tied), *other = engine_of(c), *with_head = engine_of(untied);
    ps_weight_source *s;
    ps_load_info info = {.struct_size = sizeof info};
    const uint64_t hash = hash_of(e);
    assert_ok(ps_engine_save_weights(other, p.text));
    /* one parameter less, one more, a head that is not tied */
    assert_ok(ps_weight_source_open(p.text, &s));
    const int n = ps_weight_source_count(s);
    ps_weight_copy *copies = calloc((size_t)n + 1, sizeof *copies);
    for (int i = 0; i < n; i++)
        copies[i] = (ps_weight_copy){.weight = i, .name = ps_weight_source_get(s, i)->tensor.name};
    char first[128];
    snprintf(first, sizeof first, "tensor %s is missing", copies[0].name);
    assert_ok(ps_weight_copy_file(s, copies + 1, n - 1, NULL, bad.text, NULL));
    expect_fails(ps_engine_load_pretrained(e, bad.text, NULL, NULL), PS_EFORMAT, first);
    copies[n] = (ps_weight_copy){.name = "h.9.extra"};
    assert_ok(ps_weight_copy_file(s, copies, n + 1, NULL, bad.text, NULL));
    expect_fails(ps_engine_load_pretrained(e, bad.text, NULL, NULL), PS_EFORMAT,
                 "tensor h.9.extra is not one of the model's");
    copies[0].name = copies[1].name, copies[1].name = ps_weight_source_get(s, 0)->tensor.name;
    assert_ok(ps_weight_copy_file(s, copies, n, NULL, bad.text, NULL));
    expect_fails(ps_engine_load_pretrained(e, bad.text, NULL, NULL), PS_EFORMAT, "the model's");
    free(copies);
    ps_weight_source_close(s);
    assert_ok(ps_engine_save_weights(with_head, bad.text));
    expect_fails(ps_engine_load_pretrained(e, bad.text, NULL, NULL), PS_EFORMAT, "lm_head.weight differs from");
    assert_true(hash_of(e) == hash);
    /* a head the file lacks */
    expect_fails(ps_engine_load_pretrained(with_head, p.text, NULL, NULL), PS_EFORMAT,
                 "lm_head.weight is missing; with model.new_head");
    assert_ok(ps_engine_load_pretrained(
        with_head, p.text, &(ps_load_options){.struct_size = sizeof(ps_load_options), .allow_new_head = 1}, &info));
    assert_int_equal(info.n_new, 1);
    assert_int_equal(info.n_ignored, 0);
    assert_int_equal(info.n_loaded, n);
    assert_string_equal(info.first_new, "lm_head.weight");
    ps_engine_destroy(e), ps_engine_destroy(other), ps_engine_destroy(with_head);
    ps_config_destroy(c), ps_config_destroy(tied), ps_config_destroy(untied);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* No memory, or a file that cannot be read: an error, no leak, and all parameters are as they were, or the engine is
 * failed; never some of the file and some not. */
static void test_faults(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "a.safetensors");
    over.checks_order = false; /* the checker has no memory then either, which is another failure */
    ps_config *c = TINY("train.threads=1"), *other = TINY("train.threads=1", "train.seed=2");
    over.checks_order = true;
    const int64_t live_bytes = ps_mem_live_bytes();
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_save_weights(e, p.text));
    const uint64_t loaded = hash_of(e);
    ps_engine_destroy(e);
    e = engine_of(other);
    const uint64_t own = hash_of(e);
    assert_true(own != loaded);
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO};
    int n_usable = 0, n_failed = 0;
    for (int kind = 0; kind < 2; kind++) {
        for (long n = 0;; n++) {
            uint64_t hash = 0;
            ps_fault_arm(kinds[kind], n, false);
            const ps_status st = ps_engine_load_pretrained(e, p.text, NULL, NULL);
            const bool has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            if (st != (has_struck ? codes[kind] : PS_OK))
                fail_msg("%ld: %s %s", n, ps_status_name(st), ps_last_error());
            if (!has_struck) break;
            const ps_status is_usable = ps_engine_get_weights_xxh3(e, &hash);
            if (is_usable == PS_OK) {
                assert_true(hash == own);
                n_usable++;
                continue;
            }
            assert_int_equal(is_usable, PS_ESTATE);
            n_failed++;
            ps_engine_destroy(e);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
            e = engine_of(other);
        }
        assert_true(hash_of(e) == loaded);
        ps_engine_destroy(e);
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
        e = engine_of(other);
    }
    assert_true(n_usable > 10 && n_failed > 0);
    ps_engine_destroy(e);
    ps_config_destroy(c), ps_config_destroy(other);
}

static ps_status give_index(void *user, int64_t first, int64_t n, void *dst)
{
    (void)user;
    for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = 0.001f * (float)((first + i) % 61);
    return PS_OK;
}

/* One tensor whole, one in part. */
static void fill_two(ps_engine *e)
{
    const char *name;
    int n_dims;
    int64_t shape[2];
    assert_ok(get_tensor(e, 3, &name, &n_dims, shape));
    assert_ok(ps_engine_fill_tensor(e, 3, shape[0] * (n_dims > 1 ? shape[1] : 1), PS_DTYPE_F32, give_index, NULL));
    assert_ok(ps_engine_fill_tensor(e, 0, 500, PS_DTYPE_F32, give_index, NULL));
}

/* An engine that was created empty ends as one that was drawn first and filled then, in memory and on disk. */
static void test_empty(void **state)
{
    (void)state;
    static const char *const memory[] = {"memory.device=8MB", "memory.device=700KB"};
    static int32_t tokens[32], targets[32];
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    fill_batch(tokens, targets, 2, 16, 131, 1);
    for (size_t m = 0; m < PS_ARRAY_LEN(memory); m++)
        for (int p = PS_FOR_INFERENCE; p <= PS_FOR_TRAINING; p++) {
            ps_config *c =
                TINY("train.threads=1", "bf16.enabled=true", "default_chunk_size=2048", "memory.disk=20MB", memory[m]);
            ps_engine *drawn, *empty;
            float losses[2];
            assert_ok(ps_engine_create(ps_model_from_config, c, c, (ps_purpose)p, NULL, &drawn));
            assert_ok(ps_engine_create_empty(ps_model_from_config, c, c, (ps_purpose)p, NULL, &empty));
            fill_two(drawn);
            fill_two(empty);
            assert_ok(ps_engine_init_remaining(empty));
            assert_ok(ps_engine_init_remaining(drawn)); /* nothing to do */
            if (p == PS_FOR_TRAINING) assert_true(hash_of(drawn) == hash_of(empty));
            assert_ok(ps_evaluate(drawn, &batch, &losses[0]));
            assert_ok(ps_evaluate(empty, &batch, &losses[1]));
            assert_memory_equal(&losses[0], &losses[1], sizeof losses[0]);
            ps_engine_destroy(drawn), ps_engine_destroy(empty);
            ps_config_destroy(c);
        }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load), cmocka_unit_test(test_types),  cmocka_unit_test(test_export),
        cmocka_unit_test(test_wrong_files),   cmocka_unit_test(test_faults), cmocka_unit_test(test_empty),
    };
    folder = temp_folder_make();
    const int n_failed = RUN_ON_BACKENDS(tests);
    temp_folder_remove(&folder);
    return n_failed;
}
