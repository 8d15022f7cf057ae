#include <omp.h>

#include "kernel/kernel.h"

void ps_kernels_set_threads(int n_threads)
{
    omp_set_num_threads(n_threads);
}
