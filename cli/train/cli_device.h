/* cli_device.h - words about what computes. */
#ifndef PSTAR_CLI_DEVICE_H
#define PSTAR_CLI_DEVICE_H

#include "client.h"

/* On stderr, when there is a GPU that is not used, and nobody has decided so: why, and what computes instead. */
void cli_tell_why_no_gpu(const char *command, const ps_engine *e);
/* On stdout, which GPU computes, if one does. */
void cli_show_gpu(const ps_engine *e);
/* On stdout, which budgets of memory were chosen and why, where the configuration leaves them open. */
void cli_show_memory(const ps_engine *e);
/* On stdout, what was timed of matrix products for this run; nothing when nothing was. */
void cli_show_products(const ps_engine *e);
/* On stderr, what the user should know of products and of the engine: once a checkpoint, if any, has had its say. */
void cli_tell_notices(const char *command, const ps_engine *e);
#endif
