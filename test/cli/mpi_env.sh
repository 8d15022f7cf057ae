# mpi_env.sh - how tests start ranks; sourced.
# As root, with more ranks than processors, whose waiting may not take the time of those with work.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep what they have
unset PATRICKSTAR_MPI
