/* cli_device.h - prints which device computes. */
#ifndef PSTAR_CLI_DEVICE_H
#define PSTAR_CLI_DEVICE_H

#include "client.h"

/* On stderr, when an available GPU is not used although the configuration allows it: the reason, and the device that
 * computes. */
void cli_report_why_no_gpu(const char *command, const ps_engine *e);
/* On stdout, the GPU that computes, if any. */
void cli_show_gpu(const ps_engine *e);
/* On stdout, the budgets that were chosen automatically, and why. */
void cli_show_memory(const ps_engine *e);
/* On stderr, the notices of the engine; call it after a checkpoint, if any, is loaded. */
void cli_report_notices(const char *command, const ps_engine *e);
#endif
