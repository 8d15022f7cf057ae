#!/bin/sh
# An MPI program that splits its communicator trains two models side by side (examples/two_models.c): each has the bits that it has
# when its ranks are all that there is. A program that has not asked MPI for threads is refused, with the remedy.
#
# usage: test/cli/test_mpi_groups.sh BUILD_FOLDER
set -u
build=$1
. test/cli/skip_lib.sh
case ${build##*/} in
*minimal*) skip "the shared library, which such a build has not" ;;
*address* | *undefined* | *thread*) skip "programs that do not know of sanitizers" ;;
esac
. test/cli/mpi_env.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    cat "$work/out"
    echo "FAILED: $*"
    exit 1
}
cat >"$work/config.json" <<'END'
{"train_micro_batch_size_per_gpu": 2, "data": {"sequence_length": 16}, "train": {"threads": 1},
 "model": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16},
 "optimizer": {"type": "Adam", "params": {"lr": 0.003}},
 "memory": {"device": "2MB", "host": "8MB"}, "default_chunk_size": 8192}
END
ln -s "$PWD/$build/libpatrickstar.so" "$work/libpatrickstar.so.0.2"

tried=
for mpi in openmpi mpich; do
    command -v "mpicc.$mpi" >/dev/null && command -v "mpirun.$mpi" >/dev/null || continue
    tried="$tried $mpi"
    compile() { "mpicc.$mpi" -std=c11 -Wall -Wextra -Werror -Iinclude -o "$work/$2" "$1" "$work/libpatrickstar.so.0.2" -Wl,-rpath,"$work"; }
    compile examples/two_models.c groups || fail "$mpi: two_models.c does not compile"
    run() {
        n=$1
        shift
        timeout -k 5 120 "mpirun.$mpi" -np "$n" "$@" >"$work/out" 2>&1 || fail "$mpi: $* ended with $?"
    }
    run 4 "$work/groups" "$work/config.json" 2 1
    grep -q '2 ranks over mpi (' "$work/out" || fail "$mpi: not over MPI"
    sort "$work/out" >"$work/both"
    [ "$(wc -l <"$work/both")" -eq 2 ] || fail "$mpi: not two models"
    run 3 "$work/groups" "$work/config.json" 2 1
    grep -q 'seed 2: 1 ranks over mpi (' "$work/out" || fail "$mpi: no group of one"
    run 2 "$work/groups" "$work/config.json" 1 1
    cp "$work/out" "$work/apart"
    run 2 "$work/groups" "$work/config.json" 1 2
    sort "$work/apart" "$work/out" >"$work/each"
    cmp -s "$work/both" "$work/each" || { cat "$work/each"; cp "$work/both" "$work/out"; fail "$mpi: other bits side by side"; }
    [ "$(sed 's/.*weights //' "$work/both" | sort -u | wc -l)" -eq 2 ] || fail "$mpi: both models are the same"

    sed 's/MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level)/level = MPI_Init(\&argc, \&argv), (void)level/' examples/two_models.c >"$work/plain.c"
    compile "$work/plain.c" plain || fail "$mpi: without threads it does not compile"
    timeout -k 5 60 "mpirun.$mpi" -np 2 "$work/plain" "$work/config.json" 1 1 >"$work/out" 2>&1 && fail "$mpi: MPI_Init was enough"
    grep -q 'initialise it by MPI_Init_thread with MPI_THREAD_MULTIPLE' "$work/out" || fail "$mpi: no remedy"

    cat >"$work/null.c" <<'END'
#include <patrickstar_mpi.h>
int main(int argc, char **argv)
{
    int level;
    ps_comm *comm = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    const ps_status st = ps_comm_init_mpi(NULL, MPI_COMM_NULL, &comm);
    printf("%s: %s\n", ps_status_name(st), ps_last_error());
    MPI_Finalize();
    return comm != NULL;
}
END
    compile "$work/null.c" null || fail "$mpi: null.c does not compile"
    run 2 "$work/null"
    [ "$(grep -c 'EINVAL: .*MPI_COMM_NULL' "$work/out")" -eq 2 ] || fail "$mpi: MPI_COMM_NULL is not refused"

    # closed midway
    [ -e "$build/libpatrickstar_$mpi.so" ] || continue
    "mpicc.$mpi" -std=c11 -Wall -Wextra -Werror -Isrc -o "$work/closes" test/cli/mpi_close.c -ldl || fail "$mpi: mpi_close.c does not compile"
    timeout -k 5 60 "mpirun.$mpi" -np 2 "$work/closes" "$build/libpatrickstar_$mpi.so" >"$work/out" 2>&1 # not 0: without MPI_Finalize
    grep -q '^closed' "$work/out" || fail "$mpi: the plug-in's messages"
done
[ -n "$tried" ] || skip "no MPI"
# C++ programs include it too
printf '#include <patrickstar_mpi.h>\nint main() { ps_comm *c = nullptr; return ps_comm_init_mpi(nullptr, MPI_COMM_WORLD, &c) == PS_OK; }\n' >"$work/one.cpp"
for mpi in $tried; do
    command -v "mpicxx.$mpi" >/dev/null || continue
    "mpicxx.$mpi" -std=c++17 -Wall -Wextra -Wno-cast-function-type -Wno-unused-parameter -Iinclude -fsyntax-only "$work/one.cpp" || exit 1
done
