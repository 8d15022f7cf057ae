#!/bin/sh
# Several ranks on one machine. usage: examples/cluster/local.sh RANKS CONFIG [key=value ...]
# As root, and with more ranks than cores, Open MPI needs these variables: OMPI_ALLOW_RUN_AS_ROOT=1,
# OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, OMPI_MCA_rmaps_base_oversubscribe=1, OMPI_MCA_mpi_yield_when_idle=1.
set -eu
[ $# -ge 2 ] || { sed -n 2p "$0"; exit 2; }
ranks=$1
shift
# Ranks divide the cores among themselves, so the launcher must not bind each rank to one core.
exec "${MPIRUN:-mpirun}" -n "$ranks" -bind-to none "${PSTAR:-build/pstar}" train "$@"
