#!/bin/sh
# A refusal: the verdict first, sizes as people read them, and remedies, each of which fits as it is given.
set -u
build=$1
. test/cli/cli_lib.sh
. test/cli/mpi_env.sh

# remedies: those of the refusal in $work/err, one a line as arguments
remedies() {
    sed -n 's/.*\(One of: \|Fits with \)\(.*\)/\2/p' "$work/err" | sed 's/\. (--verbose.*//; s/ (the search.*//; s/\.$//; s/, /\n/g' |
        sed 's/ (.*//; / in a memory.disk_path /d'
}

# refused CHANGE...: training is refused for memory, and each remedy makes a plan that fits and a run that trains; with a
# command in $ranks, that starts several
ranks=
refused() {
    # shellcheck disable=SC2086 # words
    expect 2 $ranks "$pstar" train --overwrite "$work/tiny.json" train.steps=1 "$@"
    sed -i '/^pstar train: /!d' "$work/err" # without the lines of mpirun
    head -n 1 "$work/err" | grep -q "^pstar train: ${ranks:+rank [01] (.*): }Does not fit: " || { cat "$work/err"; fail "no verdict first: $*"; }
    grep -E "[0-9]{7}|[0-9]\.[0-9]{3}|[0-9]{4,}[ .]?[kMG]?B" "$work/err" && fail "sizes without units, or with more than three digits"
    remedies >"$work/remedies"
    [ -s "$work/remedies" ] || { cat "$work/err"; fail "no remedies: $*"; }
    cp "$work/err" "$work/refusal"
    while read -r remedy; do
        # shellcheck disable=SC2086 # words
        $ranks "$pstar" train --overwrite "$work/tiny.json" train.steps=1 "$@" $remedy >"$work/out" 2>"$work/err" </dev/null ||
            { cat "$work/refusal" "$work/err"; fail "$*: $remedy does not fit"; }
        [ -z "$ranks" ] || continue
        # shellcheck disable=SC2086 # words
        "$pstar" plan --no-advice "$work/tiny.json" "$@" $remedy >"$work/out" 2>&1 </dev/null || { cat "$work/out"; fail "no plan fits: $* $remedy"; }
    done <"$work/remedies"
    cp "$work/refusal" "$work/err"
}

# not_offered TEXT: the refusal does not say it
not_offered() { grep -qF -- "$1" "$work/err" && { cat "$work/err"; fail "offered: $1"; }; }

# lacks_room CHANGE...: the folder has too little room for the disk tier, and a file system of the size that the refusal
# names has enough
lacks_room() {
    refused memory.host=0 memory.disk=0 memory.disk_path="$work/small" "$@"
    not_offered "memory.disk=auto ("
    says err "memory.disk=auto in a memory.disk_path with "
    bytes=$(sed -n 's/.* a memory.disk_path with \([0-9.]*\)MB free.*/\1/p' "$work/err" | awk 'NR == 1 { printf "%d", $1 * 1000000 }')
    mount -t tmpfs -o size="$bytes" tmpfs "$work/larger" || fail "no file system of $bytes bytes"
    # shellcheck disable=SC2086 # words
    expect 0 $ranks "$pstar" train --overwrite "$work/tiny.json" train.steps=1 memory.host=0 memory.disk=auto \
        memory.disk_path="$work/larger" "$@"
    umount -l "$work/larger"
}

# in mounts of our own: memory.disk = auto takes 80 % of what is free, divided by ranks
if [ "${2-}" = small ]; then
    mkdir "$work/small" "$work/larger" && mount -t tmpfs -o size=20m tmpfs "$work/small" || exit 77
    trap 'umount -l "$work/small" "$work/larger" 2>/dev/null; rm -rf "$work"' EXIT
    lacks_room memory.device=7.2MB
    command -v mpirun.openmpi >/dev/null && [ -e "$build/libpatrickstar_openmpi.so" ] || exit 0
    ranks="mpirun.openmpi -np 2"
    lacks_room memory.device=9MB
    refused memory.device=6MB memory.host=0 memory.disk=0 memory.disk_path="$work/small"
    not_offered "memory.disk=auto ("
    exit 0
fi

refused memory.device=4MB memory.host=1MB memory.disk=0 bf16.enabled=true
says err "Does not fit: 22.9 MB of model data, room for 5 MB (device 4 MB, host 1 MB, no disk)."
refused memory.device=8MB memory.host=4MB memory.disk=0
says err "memory.disk=auto ("
says err " used)"
says err "memory.host="
says err "memory.device="
refused memory.device=1MB memory.host=0 memory.disk=100MB train_micro_batch_size_per_gpu=8
says err " of device memory at once ("
says err " more than there is (device 1 MB, no host, disk 100 MB)"
refused memory.device=8MB memory.host=0 memory.disk=4MB
says err "memory.disk="

# one option that gives both tiers in RAM
refused memory.device=8MB memory.host=auto memory.disk=0
refused memory.device=auto memory.host=8MB memory.disk=0
says err "memory.host="
refused memory.device=8MB memory.host=auto memory.disk=0 optimizer.params.use_hybrid_adam=false
refused memory.device=auto memory.host=8MB memory.disk=0 optimizer.params.use_hybrid_adam=false
refused memory.device=auto memory.host=auto memory.total=40MB memory.disk=0
says err "memory.total="

# what an option refuses, or changes the meaning of, is not offered
refused memory.device=8MB memory.host=0 memory.disk=0 zero.tensor_placement_policy=cuda
not_offered "memory.disk"
not_offered "memory.host="
ratio=$(awk '/^MemAvailable/ { printf "%.9f", 10000 / $2 }' /proc/meminfo) # a device of about 10 MB
refused memory.device=auto memory.host=0 memory.disk=0 client.mem_tracer.overall_gpu_mem_ratio="$ratio"
not_offered "memory.host="
refused memory.device=8MB memory.host=0 memory.disk=100MB train_micro_batch_size_per_gpu=16 train_batch_size=16
says err "train_micro_batch_size_per_gpu=8 train_batch_size=0"
# the two sizes would read the same
refused memory.device=22.86MB memory.host=0 memory.disk=0
says err "Does not fit: 22.9 MB of model data, 18.9 kB more than there is (device 22.9 MB, no host, no disk)."

echo "exec sh test/cli/test_refusal.sh $build small" >"$work/small.sh"
in_own_mounts "$work/small.sh"
case $? in
0) ;;
77) untried "remedies where a folder has too little room: no mounts of our own here" ;;
*) fail "the script failed" ;;
esac
finish
