#!/bin/sh
# Ranks that MPICH starts: see mpi_lib.sh. usage: test/cli/test_mpi_mpich.sh BUILD_FOLDER
mpi=mpich library=MPICH other=openmpi let_live=
. test/cli/mpi_lib.sh
