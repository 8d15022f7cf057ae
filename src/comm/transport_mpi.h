/* transport_mpi.h - finds out under which MPI this process was started, and loads the plug-in for it.
 *
 * The library and the program need no MPI: one binary runs alone, under Open MPI and under MPICH. The plug-ins are
 * libpatrickstar_openmpi.so and libpatrickstar_mpich.so. Environment:
 *
 *     PATRICKSTAR_MPI=openmpi|mpich   which, instead of what the launcher's own variables say
 *
 * Where they are looked for: base/plugin_file.h. */
#ifndef PS_COMM_TRANSPORT_MPI_H
#define PS_COMM_TRANSPORT_MPI_H

#include "base/status.h"
#include "comm/transport.h"
#include "patrickstar_comm.h"

/* Ranks that a launcher (mpirun, srun) says it has started, this process among them; 1: there is no launcher. */
int32_t ps_transport_mpi_launched(void);

/* Still to be opened. PS_ENOSYS when there is no plug-in or it cannot be loaded: the message has where it was looked
 * for and what to install; PS_EINVAL when PATRICKSTAR_MPI is neither. */
PS_NODISCARD ps_status ps_transport_mpi_load(ps_transport *out);

#endif
