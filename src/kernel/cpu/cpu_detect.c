/* What this processor and its operating system allow. The compiler's runtime reads cpuid, and XGETBV for whether the
 * system saves the wide registers. */
#include <cpuid.h>
#include <string.h>

#include "base/machine.h"
#include "kernel/cpu/cpu_backend.h"
#include "kernel/cpu/cpu_tiles.h"

/* clang 14 does not know the word "f16c". With AVX2 the wide registers are saved, so the processor's bit is enough. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

void ps_cpu_vendor(char out[13])
{
    unsigned a, b, c, d;
    memset(out, 0, 13);
    if (!__get_cpuid(0, &a, &b, &c, &d)) return;
    memcpy(out, &b, 4);
    memcpy(out + 4, &d, 4);
    memcpy(out + 8, &c, 4);
}

bool ps_cpu_dpbf16_is_fast(const char *vendor, ps_cpu_isa isa)
{
    static const struct {
        const char *vendor;
        ps_cpu_isa isa;
    } fast[] = {{"AuthenticAMD", PS_CPU_AVX512_BF16}};
    for (size_t i = 0; i < PS_ARRAY_LEN(fast); i++)
        if (fast[i].isa == isa && strcmp(fast[i].vendor, vendor) == 0) return true;
    return false;
}

const char *ps_cpu_bf16_products(ps_cpu_isa isa)
{
    char vendor[13];
    ps_cpu_vendor(vendor);
    if (isa == PS_CPU_AMX) return "by tiles of AMX";
    return ps_cpu_uses_dpbf16(vendor, isa, false) ? "by vdpbf16ps" : "in f32";
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
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return PS_CPU_PORTABLE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return PS_CPU_AVX2;
    if (!__builtin_cpu_supports("avx512bf16")) return PS_CPU_AVX512;
    return ps_cpu_tiles_permit() ? PS_CPU_AMX : PS_CPU_AVX512_BF16;
}

int ps_cpu_threads(void)
{
    return ps_machine_cores(NULL);
}
