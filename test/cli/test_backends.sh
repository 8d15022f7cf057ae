#!/bin/sh
# For a fixed number of ranks, Open MPI, MPICH and threads give the same bits.
set -u
build=$1
. test/cli/skip_lib.sh
case $build in *thread*) skip "MPI is not built for that sanitizer" ;; esac
[ -e "$build/libpatrickstar_openmpi.so" ] && command -v mpirun.openmpi >/dev/null || skip "no Open MPI"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. test/cli/mpi_env.sh
export PATRICKSTAR_PLUGIN_PATH="$build"

mpis=openmpi
if [ -e "$build/libpatrickstar_mpich.so" ] && command -v mpirun.mpich >/dev/null; then
    mpis="openmpi mpich"
else
    untried "no MPICH"
fi

# same N KEY=VALUE...: in each back end
same() {
    n=$1
    shift
    "$build/test/engine/train_ranks" "$n" train.threads=1 "$@" >"$work/threads" || exit 1
    for mpi in $mpis; do
        timeout 120 "mpirun.$mpi" -np "$n" "$build/test/engine/train_ranks" 0 train.threads=1 "$@" >"$work/$mpi" || exit 1
        cmp -s "$work/threads" "$work/$mpi" && continue
        echo "FAILED: $n ranks, $*: $mpi gives other bits than threads"
        cat "$work/threads" "$work/$mpi"
        exit 1
    done
}

for n in 2 3 4; do
    same $n
    same $n bf16.enabled=true client.opts.with_mem_saving_comm=true
done
same 3 bf16.enabled=true gradient_accumulation_steps=2 default_chunk_size=4096
same 3 bf16.enabled=true
cp "$work/threads" "$work/cpu"
same 3 bf16.enabled=true train.backend=cuda memory.host=65536
cmp "$work/cpu" "$work/threads" || { echo "FAILED: ranks over the fake driver have other bits"; exit 1; }
same 2 fp16.enabled=true
[ "$(wc -w <"$work/threads")" -eq 9 ] || { echo "FAILED: a hash and eight losses expected"; exit 1; }
finish
