#!/bin/sh
# Ranks that Open MPI starts: see mpi_lib.sh. usage: test/cli/test_mpi_openmpi.sh BUILD_FOLDER
mpi=openmpi library='Open MPI' other=mpich let_live=--enable-recovery
. test/cli/mpi_lib.sh
