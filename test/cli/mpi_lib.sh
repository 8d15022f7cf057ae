# mpi_lib.sh - what ranks of one MPI must do; sourced with the build folder in $1 and the MPI's name in $mpi.
set -u
build=$1
. test/cli/skip_lib.sh
case $build in *thread*) skip "MPI is not built for that sanitizer" ;; esac
[ -e "$build/libpatrickstar_$mpi.so" ] && command -v "mpirun.$mpi" >/dev/null || skip "no $mpi"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. test/cli/mpi_env.sh
export PATRICKSTAR_PLUGIN_PATH="$build"

fail() {
    cat "$work/out"
    echo "FAILED: $mpi: $*"
    exit 1
}
# ranks N CASE [OPTION...]: output in $work/out, exit status in $rc, 124 when it took more than a minute
ranks() {
    n=$1 case=$2
    shift 2
    RANKS=$n timeout -k 5 60 "mpirun.$mpi" "$@" -np "$n" "$build/test/comm/mpi_ranks" "$case" >"$work/out" 2>&1
    rc=$?
    [ $rc -ne 124 ] || fail "$case with $n ranks does not end"
}
says() { grep -q -- "$1" "$work/out" || fail "$case: not said: $1"; }
# The case ends, with another status than 0, and something says why.
ends_badly() {
    [ $rc -ne 0 ] || fail "$case: status 0"
    says "$1"
}

for n in 1 2 3 4; do
    ranks $n conformance
    [ $rc -eq 0 ] || fail "conformance with $n ranks: status $rc"
    says "ok: mpi ($library"
done
case $build in
*address*) ;; # gigabytes, slowly
*)
    ranks 2 big
    [ $rc -eq 0 ] || fail "big: status $rc"
    ;;
esac

ranks 3 fail
ends_badly '^rank . heard: rank 1 (.*) failed: the disk is full'
ranks 3 leave
ends_badly '^rank . heard: rank 1 (.*) failed: it ended, or left before the others'
ranks 3 stop
ends_badly '^rank . heard: rank 1 (.*) has not been heard of for 2 s, .*while waiting for the all-gather of group 7'
ranks 3 kill
ends_badly 'signal 9\|EXIT CODE: 9'
# There the launcher ended the others. One with the option not to leaves it to them to notice.
if [ -n "$let_live" ]; then
    ranks 3 kill "$let_live"
    says '^rank . heard: rank 1 (.*) has not been heard of for 2 s'
fi

PATRICKSTAR_PLUGIN_PATH=$work/nowhere ranks 2 conformance
ends_badly "cannot open: libpatrickstar_$mpi.so is in none of: $work/nowhere. Build it with .make MPI=$mpi."
PATRICKSTAR_MPI=lam ranks 2 conformance
ends_badly 'cannot open: PATRICKSTAR_MPI is "lam": it must be openmpi or mpich'
if [ -e "$build/libpatrickstar_$other.so" ]; then
    PATRICKSTAR_MPI=$other ranks 2 conformance
    ends_badly "the launcher has started 2 processes, but mpi (.*) sees one"
else
    untried "PATRICKSTAR_MPI=$other under $mpi: it has no plug-in"
fi
finish
