/* What oneDNN may use, decided from faked processors; and that a process has one level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "kernel/cpu/cpu_dnnl_level.h"
#include "own_process.h"

/* What CPUID, XGETBV and the system say; XCR0 as read on such machines. */
static const ps_cpu_tiles sapphire_rapids = {.has_tile = true,
                                             .has_bf16 = true,
                                             .max_palette = 1,
                                             .row_bytes = 64,
                                             .rows = 16,
                                             .n_names = 8,
                                             .xcr0 = 0x602e7,
                                             .is_permitted = true};
static const ps_cpu_tiles emerald_rapids_firecracker = {
    .has_tile = true, .has_bf16 = true, .xcr0 = 0x602e7, .is_permitted = true};
static const ps_cpu_tiles zen4 = {.xcr0 = 0x2e7};
static const ps_cpu_tiles haswell = {.xcr0 = 0x7};

static void faked_processors(void **state)
{
    (void)state;
    ps_cpu_tiles refused = sapphire_rapids, not_saved = sapphire_rapids, half_saved = sapphire_rapids,
                 odd = sapphire_rapids, tiles_only = sapphire_rapids;
    refused.is_permitted = false;
    not_saved.xcr0 = 0x2e7;
    half_saved.xcr0 = 0x202e7;
    odd.row_bytes = 128;
    tiles_only.has_bf16 = false;
    const struct {
        const ps_cpu_tiles *tiles;
        ps_cpu_isa isa;
        ps_dnnl_level level;
    } cases[] = {
        {&sapphire_rapids, PS_CPU_AVX512_BF16, PS_DNNL_AS_IS},
        {&emerald_rapids_firecracker, PS_CPU_AVX512_BF16, PS_DNNL_AVX512_BF16},
        {&refused, PS_CPU_AVX512_BF16, PS_DNNL_AVX512_BF16},
        {&not_saved, PS_CPU_AVX512_BF16, PS_DNNL_AVX512_BF16},
        {&half_saved, PS_CPU_AVX512_BF16, PS_DNNL_AVX512_BF16},
        {&odd, PS_CPU_AVX512_BF16, PS_DNNL_AVX512_BF16},
        {&tiles_only, PS_CPU_AVX512_BF16, PS_DNNL_AVX512_BF16},
        {&zen4, PS_CPU_AVX512_BF16, PS_DNNL_AS_IS},
        /* train.isa caps oneDNN whatever the processor has */
        {&sapphire_rapids, PS_CPU_AVX512, PS_DNNL_AVX512},
        {&sapphire_rapids, PS_CPU_PORTABLE, PS_DNNL_SSE41},
        {&emerald_rapids_firecracker, PS_CPU_AVX2, PS_DNNL_AVX2},
        {&zen4, PS_CPU_AVX512, PS_DNNL_AVX512},
        {&haswell, PS_CPU_AVX2, PS_DNNL_AVX2},
        {&haswell, PS_CPU_PORTABLE, PS_DNNL_SSE41},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        if (ps_dnnl_level_of(cases[i].isa, cases[i].tiles, NULL) != cases[i].level) fail_msg("case %zu", i);
}

/* A user who asks for less has it; one who asks for more than works does not. */
static void the_environment_may_ask_for_less(void **state)
{
    (void)state;
    const ps_cpu_tiles *vm = &emerald_rapids_firecracker, *healthy = &sapphire_rapids;
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX512_BF16, vm, "AVX512_CORE_AMX"), PS_DNNL_AVX512_BF16);
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX512_BF16, vm, "ALL"), PS_DNNL_AVX512_BF16);
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX512_BF16, vm, "no such thing"), PS_DNNL_AVX512_BF16);
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX512_BF16, vm, "AVX512_CORE_BF16"), PS_DNNL_AS_IS);
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX512_BF16, vm, "avx2"), PS_DNNL_AS_IS);
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX512_BF16, healthy, "AVX512_CORE_AMX"), PS_DNNL_AS_IS);
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX2, healthy, "AVX2_VNNI"), PS_DNNL_AVX2);
    assert_int_equal(ps_dnnl_level_of(PS_CPU_AVX2, healthy, "AVX"), PS_DNNL_AS_IS);
}

static void tiles_of_this_processor(void **state)
{
    (void)state;
    const ps_cpu_tiles t = ps_cpu_tiles_detect();
    if (!ps_cpu_tiles_are_announced(&t)) assert_false(ps_cpu_tiles_work(&t));
    if (t.max_palette == 0) assert_false(ps_cpu_tiles_work(&t));
}

enum { N = 256 }; /* large enough for oneDNN to take tiles */

/* One product of N x N x N, each element the sum of N ones. */
static ps_status try_product(ps_cpu_isa isa, ps_dtype t)
{
    static _Alignas(64) char x[N * N * 4], w[N * N * 4], y[N * N * 4], scratch[1 << 24];
    ps_backend *b;
    for (int i = 0; i < N * N; i++) ps_dtype_store(t, x, i, 1), ps_dtype_store(t, w, i, 1);
    const ps_linear_fwd_args a = {
        .y = y, .x = x, .w = w, .rows = N, .n_in = N, .n_out = N, .dtype = t, .y_dtype = t, .workspace = scratch};
    PS_TRY(ps_backend_create_cpu(isa, 1, &b));
    const ps_status st = ps_run_linear_fwd(b, NULL, &a, sizeof scratch);
    for (int i = 0; st == PS_OK && i < N * N; i++) assert_true(ps_dtype_load(t, y, i) == N);
    ps_backend_destroy(b);
    return st;
}

/* The first product decides; and without AMX's tiles products of bf16 run where they are announced only. */
static int one_level(const char *word)
{
    const ps_cpu_isa isa = (ps_cpu_isa)atoi(word), other = isa == PS_CPU_PORTABLE ? PS_CPU_AVX2 : PS_CPU_PORTABLE;
    if (try_product(isa, PS_DTYPE_F32) != PS_OK || try_product(isa, PS_DTYPE_BF16) != PS_OK) return 1;
    if (other > ps_cpu_isa_detect()) return 0;
    if (try_product(other, PS_DTYPE_F32) != PS_ESTATE) return 2;
    const char *says[] = {ps_cpu_isa_name(isa), ps_cpu_isa_name(other), "another process"};
    for (size_t i = 0; i < PS_ARRAY_LEN(says); i++)
        if (strstr(ps_last_error(), says[i]) == NULL) return 3;
    return try_product(isa, PS_DTYPE_F32) == PS_OK ? 0 : 4;
}

static void a_process_has_one_level(void **state)
{
    (void)state;
    char all[] = "ONEDNN_MAX_CPU_ISA=ALL";
    for (int isa = 0; isa <= (int)ps_cpu_isa_detect(); isa++) {
        const char word[] = {(char)('0' + isa), '\0'};
        assert_int_equal(own_process(word, (char *[]){all, NULL}), 0);
    }
}

static void the_environment_bounds_the_kernels(void **state)
{
    (void)state;
    assert_int_equal(ps_dnnl_level_allows(NULL), PS_CPU_AVX512_BF16);
    assert_int_equal(ps_dnnl_level_allows("no such thing"), PS_CPU_AVX512_BF16);
    assert_int_equal(ps_dnnl_level_allows("AVX512_CORE_AMX"), PS_CPU_AVX512_BF16);
    assert_int_equal(ps_dnnl_level_allows("avx512_core_bf16"), PS_CPU_AVX512_BF16);
    assert_int_equal(ps_dnnl_level_allows("AVX512_CORE_VNNI"), PS_CPU_AVX512);
    assert_int_equal(ps_dnnl_level_allows("AVX512_CORE"), PS_CPU_AVX512);
    assert_int_equal(ps_dnnl_level_allows("AVX2_VNNI"), PS_CPU_AVX2);
    assert_int_equal(ps_dnnl_level_allows("AVX2"), PS_CPU_AVX2);
    assert_int_equal(ps_dnnl_level_allows("AVX"), PS_CPU_PORTABLE);
    assert_int_equal(ps_dnnl_level_allows("SSE41"), PS_CPU_PORTABLE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faked_processors),
        cmocka_unit_test(the_environment_bounds_the_kernels),
        cmocka_unit_test(the_environment_may_ask_for_less),
        cmocka_unit_test(tiles_of_this_processor),
        cmocka_unit_test(a_process_has_one_level),
    };
    return argc > 1 ? one_level(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
