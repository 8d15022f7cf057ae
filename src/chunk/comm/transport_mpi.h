/* transport_mpi.h - finds out under which MPI this process was started, and loads the plug-in for it.
 *
 * The library and the program need no MPI: one binary runs as a single process, under Open MPI and under MPICH. The
 * plug-ins are libpatrickstar_openmpi.so and libpatrickstar_mpich.so. Environment:
 *
 *     PATRICKSTAR_MPI=openmpi|mpich   overrides the launcher's variables
 *
 * The folders that are searched: base/plugin_file.h. */
#ifndef PS_COMM_TRANSPORT_MPI_H
#define PS_COMM_TRANSPORT_MPI_H

#include "base/status.h"
#include "chunk/comm/transport.h"
#include "patrickstar_comm.h"

/* Number of ranks that a launcher (mpirun, srun) has started, according to its variables; 1: no launcher. */
int32_t ps_transport_mpi_launched(void);

/* A transport that is not open yet. PS_ENOSYS when there is no plug-in or it cannot be loaded: the message has the
 * folders searched and the package to install; PS_EINVAL when PATRICKSTAR_MPI is neither. */
PS_NODISCARD ps_status ps_transport_mpi_load(ps_transport *out);

#endif
