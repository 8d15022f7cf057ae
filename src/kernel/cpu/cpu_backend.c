/* The cpu backend: the tables of isa/, and a pool of threads. */
#include "kernel/cpu/cpu_backend.h"

#include <xmmintrin.h>

#include "base/mem.h"
#include "kernel/cpu/cpu_isa.h"

/* The lowest six bits are exception flags, not settings. */
static bool is_own_rounding(unsigned mxcsr)
{
    return (mxcsr & ~0x3Fu) == PS_CPU_ROUNDING;
}

/* The calling thread may flush subnormal numbers (as programs with -ffast-math do), or have another rounding mode. */
static int64_t begin(ps_backend *self)
{
    const unsigned rounding = _mm_getcsr();
    (void)self;
    if (!is_own_rounding(rounding)) _mm_setcsr(PS_CPU_ROUNDING);
    return rounding;
}

static void end(ps_backend *self, int64_t before)
{
    const unsigned rounding = (unsigned)before;
    (void)self;
    if (!is_own_rounding(rounding)) _mm_setcsr(rounding);
}

static void destroy(ps_backend *self)
{
    ps_cpu_pool_destroy(ps_cpu_of(self)->pool);
    ps_mem_free(self);
}

#define CPU_OPS(isa, objects)                                                                                          \
    {                                                                                                                  \
        .name = "cpu " #isa, .kernels = ps_cpu_kernels_##objects, .epilogues = PS_EPILOGUES_ALL,                       \
        .pairs = PS_CPU_PAIRS, .begin = begin, .end = end, .destroy = destroy                                          \
    }

static const ps_backend_ops backend_ops[PS_CPU_ISA_COUNT] = {[PS_CPU_PORTABLE] = CPU_OPS(portable, portable),
                                                             [PS_CPU_AVX2] = CPU_OPS(avx2, avx2),
                                                             [PS_CPU_AVX512] = CPU_OPS(avx512, avx512),
                                                             [PS_CPU_AVX512_BF16] = CPU_OPS(avx512_bf16, avx512_bf16),
                                                             [PS_CPU_AMX] = CPU_OPS(amx, avx512_bf16)};

/* Kernels of `kind`, to be run if it `computes`, else to be measured. */
static ps_status create_of(const ps_cpu_kind *kind, int n_threads, bool computes, bool same, ps_backend **out)
{
    const ps_cpu_isa isa = kind->isa;
    ps_cpu *cpu = NULL;
    if (same && isa < PS_CPU_AVX2)
        return PS_FAIL(PS_ENOSYS, "the same bits on every processor: the kernels for %s have no FMA, those for avx2 do",
                       ps_cpu_isa_name(isa));
    if (n_threads < 1) return PS_FAIL(PS_EINVAL, "%d threads: at least 1 is needed", n_threads);
    PS_TRY(ps_mem_alloc(1, sizeof *cpu, &cpu));
    *cpu = (ps_cpu){.base.ops = &backend_ops[isa],
                    .isa = isa,
                    .n_threads = n_threads,
                    .uses_dpbf16 = ps_cpu_uses_dpbf16(kind->vendor, isa, same)};
    const ps_status st = computes ? ps_cpu_pool_create(n_threads, &cpu->pool) : PS_OK;
    if (st == PS_OK)
        *out = &cpu->base;
    else
        destroy(&cpu->base);
    return st;
}

static ps_status create(ps_cpu_isa isa, int n_threads, bool computes, bool same, ps_backend **out)
{
    ps_cpu_kind kind;
    *out = NULL;
    PS_TRY(ps_cpu_kind_detect(&kind));
    if (isa > kind.isa)
        return PS_FAIL(PS_ENOSYS, "kernels for %s: this processor goes up to %s%s", ps_cpu_isa_name(isa),
                       ps_cpu_isa_name(kind.isa),
                       isa == PS_CPU_AMX ? " (or the system does not permit tiles: a thread with an alternate signal "
                                           "stack needs one of getauxval(AT_MINSIGSTKSZ) bytes)"
                                         : "");
    kind.isa = isa;
    return create_of(&kind, n_threads, computes, same, out);
}

ps_status ps_backend_create_cpu(ps_cpu_isa isa, int n_threads, ps_backend **out)
{
    return create(isa, n_threads, true, false, out);
}

ps_status ps_backend_create_cpu_for_plans(ps_cpu_isa isa, int n_threads, ps_backend **out)
{
    return create(isa, n_threads, false, false, out);
}

ps_status ps_backend_create_cpu_same(ps_cpu_isa isa, int n_threads, bool plans_only, ps_backend **out)
{
    return create(isa, n_threads, !plans_only, true, out);
}

/* Measuring scratch executes no tile instructions. */
ps_status ps_backend_create_cpu_described(const ps_cpu_kind *kind, int n_threads, bool same, ps_backend **out)
{
    const ps_cpu_isa needed = kind->isa == PS_CPU_AMX ? PS_CPU_AVX512_BF16 : kind->isa;
    ps_cpu_kind own;
    *out = NULL;
    PS_TRY(ps_cpu_kind_detect(&own));
    if (needed > own.isa)
        return PS_FAIL(
            PS_ENOSYS,
            "host.isa = %s cannot be planned on this machine: measuring the workspace of its kernels executes %s code, "
            "and this processor supports up to %s. Set hardware.host.isa = %s (workspace sizes may differ), or plan on "
            "a machine with %s",
            ps_cpu_kind_name(kind), ps_cpu_isa_name(needed), ps_cpu_isa_name(own.isa), ps_cpu_kind_name(&own),
            ps_cpu_isa_name(needed));
    return create_of(kind, n_threads, false, same, out);
}
