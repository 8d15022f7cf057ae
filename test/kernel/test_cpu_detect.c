/* Which instruction set is chosen on processors and systems that are not here: CPUID, XCR0 and arch_prctl are those of
 * a table; and what PS_TEST_CPU makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "config/hardware.h"
#include "kernel/cpu/cpu_backend.h"
#include "kernel/cpu/cpu_tiles.h"

/* CPUID: leaf 1 ECX, leaf 7 EBX and EDX, leaf 7.1 EAX */
#define FMA (1U << 12)
#define OSXSAVE (1U << 27)
#define AVX (1U << 28)
#define F16C (1U << 29)
#define LEAF_1 (FMA | OSXSAVE | AVX | F16C)
#define AVX2 (1U << 5)
#define AVX512 (1U << 16 | 1U << 17 | 1U << 30 | 1U << 31) /* F, DQ, BW, VL */
#define TILES (1U << 22 | 1U << 24)                        /* AMX_BF16, AMX_TILE */
#define AVX512_BF16 (1U << 5)

/* XCR0 as read on such machines */
#define SAVES_AVX 0x7
#define SAVES_AVX512 0x2e7
#define SAVES_TILES 0x602e7

enum { GET_XCOMP_SUPP = 0x1021, REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };

typedef struct machine {
    const char *name;
    const char *vendor;
    uint32_t leaf_1_ecx, leaf_7_ebx, leaf_7_edx, leaf_7_1_eax;
    bool describes_tiles; /* leaf 0x1D has palette 1; else it is empty */
    uint64_t xcr0;
    uint64_t supported;    /* by the system call; 0: Linux before 5.16 has no such call */
    bool refuses;          /* the permission */
    ps_cpu_isa isa;        /* that is to be found */
    const char *kind;      /* and the word for it */
    int n_asked_for_tiles; /* how often the permission is asked for */
} machine;

#define INTEL .vendor = "GenuineIntel"
#define AMD .vendor = "AuthenticAMD"
#define SAPPHIRE_RAPIDS                                                                                                \
    INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512, .leaf_7_edx = TILES, .leaf_7_1_eax = AVX512_BF16,        \
           .describes_tiles = true, .xcr0 = SAVES_TILES, .supported = SAVES_TILES

static const machine machines[] = {
    {"Sapphire Rapids", SAPPHIRE_RAPIDS, .isa = PS_CPU_AMX, .kind = "amx", .n_asked_for_tiles = 1},
    {"Emerald Rapids in a virtual machine that leaves leaf 0x1D empty", INTEL, .leaf_1_ecx = LEAF_1,
     .leaf_7_ebx = AVX2 | AVX512, .leaf_7_edx = TILES, .leaf_7_1_eax = AVX512_BF16, .xcr0 = SAVES_TILES,
     .supported = SAVES_TILES, .isa = PS_CPU_AMX, .kind = "amx", .n_asked_for_tiles = 1},
    {"Sapphire Rapids, permission refused", SAPPHIRE_RAPIDS, .refuses = true, .isa = PS_CPU_AVX512_BF16,
     .kind = "intel-avx512_bf16", .n_asked_for_tiles = 1},
    {"Sapphire Rapids, system that saves no tiles", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512,
     .leaf_7_edx = TILES, .leaf_7_1_eax = AVX512_BF16, .xcr0 = SAVES_AVX512, .supported = SAVES_TILES,
     .isa = PS_CPU_AVX512_BF16, .kind = "intel-avx512_bf16"},
    {"Sapphire Rapids, system that saves the configuration of tiles and not their data", INTEL, .leaf_1_ecx = LEAF_1,
     .leaf_7_ebx = AVX2 | AVX512, .leaf_7_edx = TILES, .leaf_7_1_eax = AVX512_BF16, .xcr0 = SAVES_AVX512 | 0x20000,
     .supported = SAVES_TILES, .isa = PS_CPU_AVX512_BF16, .kind = "intel-avx512_bf16"},
    {"Sapphire Rapids, Linux before 5.16", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512,
     .leaf_7_edx = TILES, .leaf_7_1_eax = AVX512_BF16, .xcr0 = SAVES_TILES, .isa = PS_CPU_AVX512_BF16,
     .kind = "intel-avx512_bf16"},
    {"Sapphire Rapids, Linux that does not give tiles out", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512,
     .leaf_7_edx = TILES, .leaf_7_1_eax = AVX512_BF16, .xcr0 = SAVES_TILES, .supported = SAVES_AVX512,
     .isa = PS_CPU_AVX512_BF16, .kind = "intel-avx512_bf16"},
    {"tiles without products of bf16", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512, .leaf_7_edx = 1U << 24,
     .leaf_7_1_eax = AVX512_BF16, .xcr0 = SAVES_TILES, .supported = SAVES_TILES, .isa = PS_CPU_AVX512_BF16,
     .kind = "intel-avx512_bf16"},
    {"Ice Lake", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512, .xcr0 = SAVES_AVX512,
     .supported = SAVES_AVX512, .isa = PS_CPU_AVX512, .kind = "avx512"},
    {"Ice Lake, system that saves no AVX-512", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512,
     .xcr0 = SAVES_AVX, .isa = PS_CPU_AVX2, .kind = "avx2"},
    {"Knights Landing: AVX-512 without BW, DQ and VL", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | 1U << 16,
     .xcr0 = SAVES_AVX512, .isa = PS_CPU_AVX2, .kind = "avx2"},
    {"Haswell", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2, .xcr0 = SAVES_AVX, .isa = PS_CPU_AVX2, .kind = "avx2"},
    {"Haswell, system that saves no AVX", INTEL, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2, .xcr0 = 0x3,
     .kind = "portable"},
    {"Haswell, system without XSAVE", INTEL, .leaf_1_ecx = LEAF_1 & ~OSXSAVE, .leaf_7_ebx = AVX2, .kind = "portable"},
    {"AVX2 without FMA", INTEL, .leaf_1_ecx = LEAF_1 & ~FMA, .leaf_7_ebx = AVX2, .xcr0 = SAVES_AVX, .kind = "portable"},
    {"AVX2 without F16C", INTEL, .leaf_1_ecx = LEAF_1 & ~F16C, .leaf_7_ebx = AVX2, .xcr0 = SAVES_AVX,
     .kind = "portable"},
    {"Ivy Bridge", INTEL, .leaf_1_ecx = OSXSAVE | AVX | F16C, .xcr0 = SAVES_AVX, .kind = "portable"},
    {"a processor without a name", .vendor = "", .kind = "portable"},
    {"Zen 3", AMD, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2, .xcr0 = SAVES_AVX, .isa = PS_CPU_AVX2, .kind = "avx2"},
    {"Zen 4", AMD, .leaf_1_ecx = LEAF_1, .leaf_7_ebx = AVX2 | AVX512, .leaf_7_1_eax = AVX512_BF16, .xcr0 = SAVES_AVX512,
     .supported = SAVES_AVX512, .isa = PS_CPU_AVX512_BF16, .kind = "amd-avx512_bf16"},
};

/* ---- the probe of such a machine --------------------------------------------------------------------------------- */

static const machine *now;
static int n_asked;

static void fake_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[PS_CPUID_REGISTERS])
{
    memset(out, 0, PS_CPUID_REGISTERS * sizeof *out);
    if (leaf == 0) {
        char vendor[PS_CPU_VENDOR_BYTES] = "";
        strcpy(vendor, now->vendor);
        out[PS_CPUID_EAX] = now->leaf_7_ebx != 0 ? 0x20 : 1;
        memcpy(&out[PS_CPUID_EBX], vendor, 4);
        memcpy(&out[PS_CPUID_EDX], vendor + 4, 4);
        memcpy(&out[PS_CPUID_ECX], vendor + 8, 4);
    } else if (leaf == 1) {
        out[PS_CPUID_ECX] = now->leaf_1_ecx;
    } else if (leaf == 7 && subleaf == 0) {
        out[PS_CPUID_EAX] = now->leaf_7_1_eax != 0 ? 1 : 0;
        out[PS_CPUID_EBX] = now->leaf_7_ebx;
        out[PS_CPUID_EDX] = now->leaf_7_edx;
    } else if (leaf == 7 && subleaf == 1) {
        out[PS_CPUID_EAX] = now->leaf_7_1_eax;
    } else if (leaf == 0x1D && now->describes_tiles) {
        out[PS_CPUID_EAX] = subleaf == 0 ? 1 : 8192U | 1024U << 16;
        out[PS_CPUID_EBX] = subleaf == 0 ? 0 : 64U | 8U << 16;
        out[PS_CPUID_ECX] = subleaf == 0 ? 0 : 16;
    }
}

/* The instruction that reads it faults where the system has not allowed it. */
static uint64_t fake_xcr0(void)
{
    if (!(now->leaf_1_ecx & OSXSAVE)) fail_msg("%s: XCR0 is read without OSXSAVE", now->name);
    return now->xcr0;
}

static long fake_arch_prctl(int code, uintptr_t argument)
{
    if (now->supported == 0) return -1;
    if (code == GET_XCOMP_SUPP) {
        memcpy((void *)argument, &now->supported, sizeof now->supported); // NOLINT: as the system call does
        return 0;
    }
    assert_int_equal(code, REQ_XCOMP_PERM);
    assert_int_equal(argument, TILE_DATA);
    n_asked++;
    return now->refuses ? -1 : 0;
}

static const ps_cpu_probe fake = {.cpuid = fake_cpuid, .xcr0 = fake_xcr0, .arch_prctl = fake_arch_prctl};

static ps_status kind_on(const machine *m, const char *forced, ps_cpu_kind *out)
{
    now = m;
    n_asked = 0;
    return ps_cpu_kind_of(&fake, forced, out);
}

static const machine *named(const char *name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(machines); i++)
        if (strcmp(machines[i].name, name) == 0) return &machines[i];
    fail_msg("no machine %s", name);
    return NULL;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(machines); i++) {
        const machine *m = &machines[i];
        ps_cpu_kind k;
        assert_int_equal(kind_on(m, NULL, &k), PS_OK);
        if (k.isa != m->isa || strcmp(k.vendor, m->vendor) != 0 || strcmp(ps_cpu_kind_name(&k), m->kind) != 0)
            fail_msg("%s: found '%s' of '%s', %s", m->name, ps_cpu_isa_name(k.isa), k.vendor, ps_cpu_kind_name(&k));
        if (n_asked != m->n_asked_for_tiles) fail_msg("%s: tiles were asked for %d times", m->name, n_asked);
        assert_int_equal(ps_cpu_uses_dpbf16(k.vendor, k.isa, false), strcmp(m->name, "Zen 4") == 0);
        assert_false(ps_cpu_uses_dpbf16(k.vendor, k.isa, true));
    }
}

static void test_names(void **state)
{
    (void)state;
    const char *const *const names = &ps_hardware_isa_names[1];
    for (int i = 0; i < PS_HARDWARE_ISA_COUNT - 1; i++) {
        ps_cpu_kind k;
        assert_int_equal(ps_cpu_kind_read(names[i], &k), PS_OK);
        assert_string_equal(ps_cpu_kind_name(&k), names[i]);
        assert_int_equal(ps_cpu_uses_dpbf16(k.vendor, k.isa, false), i == 4);
        /* on the machine that has all of it: the instruction set, and the vendor where the name has one */
        assert_int_equal(kind_on(named("Sapphire Rapids"), names[i], &k), PS_OK);
        assert_string_equal(ps_cpu_kind_name(&k), names[i]);
        assert_string_equal(k.vendor, i == 4 ? "AuthenticAMD" : "GenuineIntel");
        assert_int_equal(n_asked, i == 5); /* the permission, only for tiles */
    }
    /* all names there are are those of hardware descriptions */
    char all[160];
    int n = snprintf(all, sizeof all, "expected one of ");
    for (int i = 0; i < PS_HARDWARE_ISA_COUNT - 1; i++)
        n += snprintf(all + n, sizeof all - (size_t)n, "%s%s", i > 0 ? ", " : "", names[i]);
    ps_cpu_kind k;
    assert_int_equal(ps_cpu_kind_read("auto", &k), PS_EINVAL);
    char said[160]; /* a debug build says where it was, too */
    snprintf(said, sizeof said, "%.*s", n, strstr(ps_last_error(), "expected"));
    assert_string_equal(said, all);
    ps_cpu_kind other = {.isa = PS_CPU_AVX512_BF16, .vendor = "HygonGenuine"};
    assert_string_equal(ps_cpu_kind_name(&other), "intel-avx512_bf16"); /* whose kernels it gets */
}

static void test_another_vendor(void **state)
{
    (void)state;
    ps_cpu_kind k;
    assert_int_equal(kind_on(named("Zen 4"), "intel-avx512_bf16", &k), PS_OK);
    assert_int_equal(k.isa, PS_CPU_AVX512_BF16);
    assert_string_equal(k.vendor, "GenuineIntel");
    assert_int_equal(kind_on(named("Zen 4"), "avx2", &k), PS_OK);
    assert_int_equal(k.isa, PS_CPU_AVX2);
    assert_string_equal(k.vendor, "AuthenticAMD");
    assert_int_equal(kind_on(named("Zen 4"), "", &k), PS_OK); /* as if it were not set */
    assert_string_equal(ps_cpu_kind_name(&k), "amd-avx512_bf16");
}

/* Refused with what was asked for, what there is, and the names; the machine's own kind is named all the same. */
static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *machine, *forced, *own;
        ps_status status;
        const char *says[3];
    } cases[] = {
        {"Haswell", "avx512", "avx2", PS_ENOSYS, {"PS_TEST_CPU = avx512", "at most avx2", "unset the variable"}},
        {"Haswell", "amx", "avx2", PS_ENOSYS, {"PS_TEST_CPU = amx", "at most avx2", ""}},
        {"Ivy Bridge", "avx2", "portable", PS_ENOSYS, {"PS_TEST_CPU = avx2", "at most portable", ""}},
        {"Zen 4", "amx", "amd-avx512_bf16", PS_ENOSYS, {"PS_TEST_CPU = amx", "at most amd-avx512_bf16;", ""}},
        {"Sapphire Rapids, permission refused",
         "amx",
         "intel-avx512_bf16",
         PS_ENOSYS,
         {"PS_TEST_CPU = amx", "at most intel-avx512_bf16;", ""}},
        {"Sapphire Rapids", "avx512_bf16", "amx", PS_EINVAL, {"PS_TEST_CPU: 'avx512_bf16'", "intel-avx512_bf16", ""}},
        {"Sapphire Rapids", "AMX", "amx", PS_EINVAL, {"'AMX'", "portable, avx2, avx512", "amd-avx512_bf16, amx"}},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_cpu_kind k;
        assert_int_equal(kind_on(named(cases[i].machine), cases[i].forced, &k), cases[i].status);
        assert_string_equal(ps_cpu_kind_name(&k), cases[i].own);
        for (int s = 0; s < 3; s++)
            if (strstr(ps_last_error(), cases[i].says[s]) == NULL)
                fail_msg("\"%s\" does not say \"%s\"", ps_last_error(), cases[i].says[s]);
    }
}

/* ---- this machine ------------------------------------------------------------------------------------------------ */

static void set_test_cpu(const char *word)
{
    if (word != NULL)
        setenv("PS_TEST_CPU", word, 1);
    else
        unsetenv("PS_TEST_CPU");
}

/* The library takes what the variable says, at any time; a mistake there is one of creating a backend. */
static void test_the_variable(void **state)
{
    (void)state;
    char before[32] = "";
    ps_cpu_kind own;
    ps_backend *b;
    if (getenv("PS_TEST_CPU") != NULL) snprintf(before, sizeof before, "%s", getenv("PS_TEST_CPU"));
    set_test_cpu(NULL);
    assert_int_equal(ps_cpu_kind_detect(&own), PS_OK);
    assert_int_equal(ps_cpu_isa_detect(), own.isa);
    set_test_cpu("portable");
    assert_int_equal(ps_cpu_isa_detect(), PS_CPU_PORTABLE);
    assert_int_equal(ps_backend_create_cpu(PS_CPU_PORTABLE, 1, &b), PS_OK);
    ps_backend_destroy(b);
    assert_int_equal(ps_backend_create_cpu(PS_CPU_AVX2, 1, &b), PS_ENOSYS);
    assert_null(b);
    set_test_cpu("pentium");
    assert_int_equal(ps_cpu_isa_detect(), own.isa);
    assert_int_equal(ps_backend_create_cpu(PS_CPU_PORTABLE, 1, &b), PS_EINVAL);
    assert_null(b);
    assert_non_null(strstr(ps_last_error(), "PS_TEST_CPU: 'pentium'"));
    for (int amd = 0; amd < 2 && own.isa >= PS_CPU_AVX512_BF16; amd++) {
        set_test_cpu(amd ? "amd-avx512_bf16" : "intel-avx512_bf16");
        assert_int_equal(ps_backend_create_cpu(PS_CPU_AVX512_BF16, 1, &b), PS_OK);
        assert_int_equal(ps_cpu_of(b)->uses_dpbf16, amd);
        ps_backend_destroy(b);
        assert_string_equal(ps_cpu_bf16_gemms(PS_CPU_AVX512_BF16), amd ? "by vdpbf16ps" : "in fp32");
    }
    set_test_cpu(before[0] != '\0' ? before : NULL);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* To measure kernels of another machine: all that this one can execute, tiles among them where only they are
 * missing. */
static void test_described(void **state)
{
    (void)state;
    const char *const *const names = &ps_hardware_isa_names[1];
    const ps_linear_fwd_args a = {.rows = 100, .n_in = 70, .n_out = 90, .dtype = PS_DTYPE_BF16};
    for (int i = 0; i < PS_HARDWARE_ISA_COUNT - 1; i++) {
        ps_cpu_kind k;
        ps_backend *b;
        size_t bytes;
        assert_int_equal(ps_cpu_kind_read(names[i], &k), PS_OK);
        const ps_status st = ps_backend_create_cpu_described(&k, 3, false, &b);
        if (ps_min_i64(k.isa, PS_CPU_AVX512_BF16) > (int64_t)ps_cpu_isa_detect()) {
            assert_int_equal(st, PS_ENOSYS);
            assert_null(b);
            assert_non_null(strstr(ps_last_error(), ps_cpu_isa_name(k.isa)));
            continue;
        }
        assert_int_equal(st, PS_OK);
        assert_int_equal(ps_cpu_of(b)->isa, k.isa);
        assert_int_equal(ps_cpu_of(b)->uses_dpbf16, i == 4);
        assert_null(ps_cpu_of(b)->pool);
        assert_int_equal(ps_kernel_measure(b, PS_OP_linear_fwd, &a, &bytes), PS_OK);
        ps_backend_destroy(b);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_another_vendor), cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_the_variable),   cmocka_unit_test(test_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
