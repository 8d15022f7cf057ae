/* Detects the features that CPU and operating system support: CPUID, and XCR0 for whether the system saves the wide
 * registers. PS_TEST_CPU simulates another CPU for tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "kernel/cpu/cpu_backend.h"
#include "kernel/cpu/cpu_tiles.h"

#define AMD "AuthenticAMD"
#define INTEL "GenuineIntel"

/* CPUID leaf 1, ECX */
#define BIT_FMA (1U << 12)
#define BIT_OSXSAVE (1U << 27)
#define BIT_AVX (1U << 28)
#define BIT_F16C (1U << 29)
/* leaf 7, EBX */
#define BIT_AVX2 (1U << 5)
#define BIT_AVX512F (1U << 16)
#define BIT_AVX512DQ (1U << 17)
#define BIT_AVX512BW (1U << 30)
#define BIT_AVX512VL (1U << 31)
/* leaf 7, subleaf 1, EAX */
#define BIT_AVX512_BF16 (1U << 5)

/* States that the system saves: SSE and AVX; and the masks and registers of AVX-512. */
#define STATES_AVX UINT64_C(0x6)
#define STATES_AVX512 UINT64_C(0xe6)

static bool has_all(uint64_t word, uint64_t bits)
{
    return (word & bits) == bits;
}

/* The highest instruction set below AMX. */
static ps_cpu_isa isa_without_tiles(const ps_cpu_probe *probe)
{
    uint32_t one[PS_CPUID_REGISTERS], seven[PS_CPUID_REGISTERS], more[PS_CPUID_REGISTERS];
    probe->cpuid(1, 0, one);
    probe->cpuid(7, 0, seven);
    probe->cpuid(7, 1, more);
    if (!has_all(one[PS_CPUID_ECX], BIT_OSXSAVE | BIT_AVX | BIT_FMA | BIT_F16C)) return PS_CPU_PORTABLE;
    const uint64_t states = probe->xcr0();
    if (!has_all(states, STATES_AVX) || !has_all(seven[PS_CPUID_EBX], BIT_AVX2)) return PS_CPU_PORTABLE;
    if (!has_all(states, STATES_AVX512) ||
        !has_all(seven[PS_CPUID_EBX], BIT_AVX512F | BIT_AVX512BW | BIT_AVX512DQ | BIT_AVX512VL))
        return PS_CPU_AVX2;
    return has_all(more[PS_CPUID_EAX], BIT_AVX512_BF16) ? PS_CPU_AVX512_BF16 : PS_CPU_AVX512;
}

static void read_vendor(const ps_cpu_probe *probe, char out[PS_CPU_VENDOR_BYTES])
{
    uint32_t leaf[PS_CPUID_REGISTERS];
    probe->cpuid(0, 0, leaf);
    memset(out, 0, PS_CPU_VENDOR_BYTES);
    memcpy(out, &leaf[PS_CPUID_EBX], 4);
    memcpy(out + 4, &leaf[PS_CPUID_EDX], 4);
    memcpy(out + 8, &leaf[PS_CPUID_ECX], 4);
}

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

/* vendor "": kernels of that instruction set do not depend on it */
static const struct {
    const char *name;
    ps_cpu_isa isa;
    const char *vendor;
} kinds[] = {{"portable", PS_CPU_PORTABLE, ""},
             {"avx2", PS_CPU_AVX2, ""},
             {"avx512", PS_CPU_AVX512, ""},
             {"intel-avx512_bf16", PS_CPU_AVX512_BF16, INTEL},
             {"amd-avx512_bf16", PS_CPU_AVX512_BF16, AMD},
             {"amx", PS_CPU_AMX, INTEL}};

ps_status ps_cpu_kind_read(const char *name, ps_cpu_kind *out)
{
    char names[128];
    int n = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++) {
        n += snprintf(names + n, sizeof names - (size_t)n, "%s%s", i > 0 ? ", " : "", kinds[i].name);
        if (strcmp(name, kinds[i].name) != 0) continue;
        *out = (ps_cpu_kind){.isa = kinds[i].isa};
        snprintf(out->vendor, sizeof out->vendor, "%s", kinds[i].vendor);
        return PS_OK;
    }
    return PS_FAIL(PS_EINVAL, "'%.40s' is no processor kind, expected one of %s", name, names);
}

const char *ps_cpu_kind_name(const ps_cpu_kind *kind)
{
    const char *name = NULL;
    for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++)
        if (kinds[i].isa == kind->isa && (name == NULL || strcmp(kinds[i].vendor, kind->vendor) == 0))
            name = kinds[i].name;
    return name != NULL ? name : "?";
}

/* The kind called `name`, which `own` must be able to execute. */
static ps_status force(const char *name, const ps_cpu_kind *own, ps_cpu_kind *out)
{
    ps_cpu_kind forced;
    const ps_status st = ps_cpu_kind_read(name, &forced);
    if (st != PS_OK) return PS_FAIL(st, "PS_TEST_CPU: %s", ps_last_error());
    if (forced.isa > own->isa)
        return PS_FAIL(PS_ENOSYS,
                       "PS_TEST_CPU = %s: this machine supports at most %s; set that or a lower one, or unset the "
                       "variable",
                       name, ps_cpu_kind_name(own));
    if (forced.vendor[0] == '\0') memcpy(forced.vendor, own->vendor, sizeof forced.vendor);
    *out = forced;
    return PS_OK;
}

ps_status ps_cpu_kind_of(const ps_cpu_probe *probe, const char *forced, ps_cpu_kind *out)
{
    ps_cpu_kind lower;
    const bool is_forced = forced != NULL && forced[0] != '\0';
    *out = (ps_cpu_kind){.isa = isa_without_tiles(probe)};
    read_vendor(probe, out->vendor);
    /* The permission is for the whole process, so it is requested only where tiles are used. */
    const bool wants_tiles = !is_forced || ps_cpu_kind_read(forced, &lower) != PS_OK || lower.isa == PS_CPU_AMX;
    if (out->isa == PS_CPU_AVX512_BF16 && wants_tiles && ps_cpu_tiles_permit(probe)) out->isa = PS_CPU_AMX;
    if (!is_forced) return PS_OK;
    const ps_cpu_kind own = *out;
    return force(forced, &own, out);
}

ps_status ps_cpu_kind_detect(ps_cpu_kind *out)
{
    return ps_cpu_kind_of(&ps_cpu_probe_machine, getenv("PS_TEST_CPU"), out);
}

/* ---- instruction sets -------------------------------------------------------------------------------------------- */

bool ps_cpu_dpbf16_is_fast(const char *vendor, ps_cpu_isa isa)
{
    static const struct {
        const char *vendor;
        ps_cpu_isa isa;
    } fast[] = {{AMD, PS_CPU_AVX512_BF16}};
    for (size_t i = 0; i < PS_ARRAY_LEN(fast); i++)
        if (fast[i].isa == isa && strcmp(fast[i].vendor, vendor) == 0) return true;
    return false;
}

/* A mistake in PS_TEST_CPU is an error of creating a backend. */
static ps_cpu_kind kind_or_own(void)
{
    ps_cpu_kind kind;
    const ps_status st = ps_cpu_kind_detect(&kind);
    (void)st;
    return kind;
}

const char *ps_cpu_bf16_gemms(ps_cpu_isa isa)
{
    const ps_cpu_kind kind = kind_or_own();
    if (isa == PS_CPU_AMX) return "by tiles of AMX";
    return ps_cpu_uses_dpbf16(kind.vendor, isa, false) ? "by vdpbf16ps" : "in fp32";
}

const char *ps_cpu_isa_name(ps_cpu_isa isa)
{
    static const char *const names[PS_CPU_ISA_COUNT] = {[PS_CPU_PORTABLE] = "portable",
                                                        [PS_CPU_AVX2] = "avx2",
                                                        [PS_CPU_AVX512] = "avx512",
                                                        [PS_CPU_AVX512_BF16] = "avx512_bf16",
                                                        [PS_CPU_AMX] = "amx"};
    return isa < PS_CPU_ISA_COUNT ? names[isa] : "?";
}

ps_cpu_isa ps_cpu_isa_detect(void)
{
    return kind_or_own().isa;
}

int ps_cpu_threads(void)
{
    return ps_machine_cores(NULL);
}
