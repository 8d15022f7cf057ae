/* carrier.h - how chunks go from rank to rank over a device: queues of the device's, and who carries.
 *
 * Messages go from and to memory that the host can touch; of other devices they go by queues of copies and staging
 * memory, or NCCL brings them from GPU to GPU. */
#ifndef PS_STATE_CARRIER_H
#define PS_STATE_CARRIER_H

#include "settings/settings.h"
#include "state/tiers.h"

typedef struct ps_carrier {
    ps_comm *comm;         /* NULL: there is nothing to close */
    ps_queue *exchange;    /* by which NCCL brings chunks from rank to rank; NULL: messages do */
    ps_comm_device copies; /* of a device that the host cannot touch, by a communicator; else of NULLs */
} ps_carrier;

/* As far as this rank does it alone. *x is empty before, must stay where it is, and is to be closed even after a failure;
 * settings without a communicator leave it empty. The tiers must outlive it. */
PS_NODISCARD ps_status ps_carrier_open(ps_carrier *x, const ps_settings *s, const ps_tiers *t);
/* The rest, which all ranks call. */
PS_NODISCARD ps_status ps_carrier_join(ps_carrier *x, const ps_settings *s, const ps_tiers *t);
/* When the communicator touches no payload any more. An empty one is accepted. */
void ps_carrier_close(ps_carrier *x);

#endif
