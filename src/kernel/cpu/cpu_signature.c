#include <stdio.h>

#include "base/base.h"
#include "kernel/cpu/cpu_dnnl_level.h"
#include "kernel/cpu/cpu_signature.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Leaves that say what the processor can do, and what is left of each: no number of the core that runs this. */
static const struct {
    unsigned leaf, subleaf, mask[4];
} signature_leaves[] = {
    {0x0, 0, {~0U, ~0U, ~0U, ~0U}},                                   /* vendor */
    {0x1, 0, {~0U, 0, ~0U, ~0U}},                                     /* family, model, stepping; features */
    {0x7, 0, {~0U, ~0U, ~0U, ~0U}},                                   /* features */
    {0x7, 1, {~0U, ~0U, ~0U, ~0U}},  {0x1D, 0, {~0U, ~0U, ~0U, ~0U}}, /* tiles */
    {0x1D, 1, {~0U, ~0U, ~0U, ~0U}},
};

static int signature_cpuid(char *out, size_t size)
{
    int n = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(signature_leaves); i++) {
        unsigned r[4] = {0};
        if (!__get_cpuid_count(signature_leaves[i].leaf, signature_leaves[i].subleaf, &r[0], &r[1], &r[2], &r[3]))
            continue;
        const unsigned *m = signature_leaves[i].mask;
        n += snprintf(out + n, size - (size_t)n, "%x.%x:%x,%x,%x,%x ", signature_leaves[i].leaf,
                      signature_leaves[i].subleaf, r[0] & m[0], r[1] & m[1], r[2] & m[2], r[3] & m[3]);
    }
    return n;
}
#else
static int signature_cpuid(char *out, size_t size)
{
    (void)size;
    out[0] = '\0';
    return 0;
}
#endif

void ps_cpu_signature(char out[PS_CPU_SIGNATURE_MAX])
{
    const ps_cpu_tiles tiles = ps_cpu_tiles_detect();
    const char *asked = ps_dnnl_level_asked();
    char version[96];
    ps_dnnl_version(version, sizeof version);
    const int n = signature_cpuid(out, PS_CPU_SIGNATURE_MAX);
    snprintf(out + n, PS_CPU_SIGNATURE_MAX - (size_t)n, "xcr0:%llx tiles:%d asked:%.40s %s",
             (unsigned long long)tiles.xcr0, tiles.is_permitted, asked != NULL ? asked : "", version);
}
