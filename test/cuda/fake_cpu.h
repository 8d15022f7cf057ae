/* fake_cpu.h - a GPU that computes with the processor's kernels: memory, streams and events are those of the fake
 * driver, so work is late and in any order that events allow, on memory that the host cannot touch; bits, scratch and
 * speed are those of train.backend = cpu in one thread. */
#ifndef TEST_CUDA_FAKE_CPU_H
#define TEST_CUDA_FAKE_CPU_H

#include "cuda/fake_driver.h"
#include "device/cuda/open.h"

/* From now on train.backend = cuda is such a GPU: ps_cuda_use_parts, and fake_driver(o), which it returns. */
const ps_cuda_driver *fake_cpu_begin(const fake_options *o);
/* The parts of the system again. False: something was left (fake_driver_end). */
bool fake_cpu_end(void);
/* Whether engines have a checker of order (ps_cuda_parts.checks_order). */
void fake_cpu_check_order(bool checks);

/* A GPU as the backend has, for tests without an engine. */
ps_status fake_cpu_open(ps_gpu **out);
/* As ps_queue_call, to a queue of its device: the function runs on the stream, and must not fail. */
ps_status fake_cpu_call(ps_queue *q, const ps_call *call);

#endif
