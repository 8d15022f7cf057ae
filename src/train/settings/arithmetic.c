#include "train/settings/arithmetic.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/backend_cuda.h"

/* From AVX2 on all levels have one arithmetic, except for bf16 multiplication by vdpbf16ps (kernel/cpu/cpu_amx.h). */
static const char *processor(const ps_settings *s)
{
    if (s->isa == PS_CPU_PORTABLE) return "cpu portable";
    const bool has_own_gemms =
        s->dtype == PS_DTYPE_BF16 && !s->same_bits && strcmp(ps_cpu_bf16_gemms(s->isa), "by vdpbf16ps") == 0;
    return has_own_gemms ? "cpu with vdpbf16ps" : "cpu";
}

static const char *kernels(const ps_settings *s)
{
    switch (s->backend_kind) {
    case PS_BACKEND_CUDA:
    case PS_BACKEND_REF:
    case PS_BACKEND_SIM: return ps_backend_kind_name(s->backend_kind);
    case PS_BACKEND_CPU: break;
    }
    return processor(s);
}

/* f32 attention is never a library's. */
static const char *attention(const ps_settings *s)
{
    const char *name = ps_backend_cuda_attention(s->backend);
    return name == NULL ? "" : s->dtype == PS_DTYPE_F32 ? "own kernels" : name;
}

void ps_arithmetic_of(const ps_settings *s, ps_arithmetic *out)
{
    snprintf(out->kernels, sizeof out->kernels, "%s", kernels(s));
    snprintf(out->attention, sizeof out->attention, "%s", attention(s));
    snprintf(out->reductions, sizeof out->reductions, "%s", s->ranks.n == 1 ? "" : "ordered");
}

typedef struct text {
    char *to;
    size_t n, room;
} text;

static void compare(text *t, const char *what, const char *was, const char *is)
{
    if (was[0] == '\0' || is[0] == '\0' || strcmp(was, is) == 0 || t->n >= t->room) return;
    const int n = snprintf(t->to + t->n, t->room - t->n, "%s%s %s instead of %s", t->n > 0 ? ", " : "", what, is, was);
    t->n += n > 0 ? (size_t)n : 0;
}

void ps_arithmetic_compare(const ps_arithmetic *was, const ps_arithmetic *is, const char *name, char *out,
                           size_t out_bytes)
{
    char differs[4 * (2 * PS_ARITHMETIC_NAME_MAX + 32)];
    text t = {.to = differs, .room = sizeof differs};
    compare(&t, "kernels:", was->kernels, is->kernels);
    compare(&t, "attention:", was->attention, is->attention);
    compare(&t, "reductions among ranks:", was->reductions, is->reductions);
    out[0] = '\0';
    if (t.n > 0)
        snprintf(out, out_bytes,
                 "%.200s continues with other arithmetic (%s): bits may differ from a run that was not "
                 "interrupted",
                 name, differs);
}
