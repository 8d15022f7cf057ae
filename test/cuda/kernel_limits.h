/* kernel_limits.h - what kernel_limits.txt says of a kernel's launches; the rest of it is for the compiler's report, which
 * tool/check_cuda.sh holds to it. */
#ifndef TEST_CUDA_KERNEL_LIMITS_H
#define TEST_CUDA_KERNEL_LIMITS_H

#include <stdio.h>
#include <string.h>

#include "kernel/cuda/cuda_operator.h"

#define KERNEL_LIMITS_PATH "test/cuda/kernel_limits.txt"

/* Does this line's kernel, "attention_fwd_64", have the symbol ps_gpu_attention_fwd_64, or that with types after it? */
static inline bool kernel_limits_means(const char *line_name, const char *symbol)
{
    const size_t n = strlen(line_name);
    if (strncmp(symbol, "ps_gpu_", 7) != 0 || strncmp(symbol + 7, line_name, n) != 0) return false;
    for (const char *rest = symbol + 7 + n; *rest != '\0';) {
        const size_t length = strncmp(rest, "_bf16", 5) == 0                                   ? 5
                              : strncmp(rest, "_f32", 4) == 0 || strncmp(rest, "_f16", 4) == 0 ? 4
                                                                                               : 0;
        if (length == 0) return false;
        rest += length;
    }
    return true;
}

/* Bytes of shared memory that the host may ask for; -1 where the kernel has no line. */
static inline int64_t kernel_limits_dynamic(ps_cuda_kernel kernel)
{
    static int64_t known[PS_CUDA_KERNEL_COUNT]; /* and 1 more; 0: not looked up yet */
    if (known[kernel] != 0) return known[kernel] - 1;
    char line[256], name[64];
    long long dynamic, found = -1;
    FILE *f = fopen(KERNEL_LIMITS_PATH, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (line[0] != '#' && sscanf(line, "%63s %*s %*s %lld", name, &dynamic) == 2 &&
            kernel_limits_means(name, ps_cuda_kernel_table[kernel].name))
            found = dynamic;
    if (f != NULL) fclose(f);
    if (found >= 0) known[kernel] = found + 1;
    return found;
}

#endif
