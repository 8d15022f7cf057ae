/* fake_nccl.h - NCCL without GPUs: ranks are threads of this process, each with a GPU of fake_driver.h, whose streams
 * carry transfers from one's memory to another's. It refuses what the real one refuses: two ranks on one GPU, calls
 * while one is in progress; takes its time, so that work that is not after a call is found. NCCL's own sums go from the
 * last rank to the first, and are rounded after each addition. */
#ifndef TEST_CUDA_FAKE_NCCL_H
#define TEST_CUDA_FAKE_NCCL_H

#include "device/cuda/nccl.h"

extern const ps_nccl fake_nccl;

/* Everything anew, after fake_driver. */
void fake_nccl_begin(void);
/* Before fake_driver_end. Communicators that are left are an error: false, reported on stderr. */
bool fake_nccl_end(void);

/* The nth call from now (0: the next) of this function of the table fails so. */
void fake_nccl_fail(const char *function, int nth, ps_nccl_result r);
int fake_nccl_calls(const char *function);
/* From now on communicators say of themselves that this went wrong, as of a network. */
void fake_nccl_sicken(ps_nccl_result r);

typedef struct fake_nccl_stats {
    int n_groups;     /* that streams have come to */
    int n_urgent;     /* of these, on streams that go before others */
    int n_reductions; /* and that bring values to be added */
} fake_nccl_stats;

fake_nccl_stats fake_nccl_get_stats(void);
/* Until so many reductions have begun on streams. False: they have not in 20 s. */
bool fake_nccl_await_reductions(int n);

#endif
