/* unquantized.h - what quantizing the frozen weights (model.frozen_format) does to the loss. */
#ifndef PSTAR_UNQUANTIZED_H
#define PSTAR_UNQUANTIZED_H

#include "client.h"

/* The validation loss, of n_steps micro-batches, of the model as the configuration begins it, before its weights are
 * quantized: by an engine of its own, which is gone on return. *loss is NAN where nothing is quantized, or where there
 * is no room for such an engine, which a line on stderr reports. All ranks call. */
PS_NODISCARD ps_status unquantized_loss(ps_config *config, ps_comm *comm, const ps_data_loader *loader, int64_t n_steps,
                                        double *loss);

#endif
