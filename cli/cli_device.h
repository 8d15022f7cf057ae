/* cli_device.h - words about what computes. */
#ifndef PSTAR_CLI_DEVICE_H
#define PSTAR_CLI_DEVICE_H

#include "engine/engine.h"

/* On stderr, when there is a GPU that is not used, and nobody has decided so: why, and what computes instead. */
void cli_tell_why_no_gpu(const char *command, const ps_engine *e);
/* On stdout, which GPU computes, if one does. */
void cli_show_gpu(const ps_engine *e);
/* Its name; NULL: none computes. */
const char *cli_gpu_name(const ps_engine *e);
/* "cuda", "ref", or the instruction set of the processor's kernels. */
const char *cli_backend_name(const ps_engine *e);

#endif
