#!/bin/sh
# A disk that does not answer any more: the run ends with a message that names it, the checkpoint and exit status 4; with
# two ranks the other one names the rank. From that checkpoint the run continues with the same bits.
set -u
. test/cli/ranks_lib.sh
case $build in *address*) skip "a library that is preloaded comes before AddressSanitizer's" ;; esac
${CC:-cc} -shared -fPIC -o "$work/hang_disk.so" test/cli/hang_disk.c || fail "the library does not compile"
threads="memory.disk_backend=threads train.stall_s=5"

# shellcheck disable=SC2086
expect 0 "$pstar" train "$work/mini.json" $threads train.steps=8 train.output_dir="$work/whole"
expected=$(summary "$work/whole" weights_xxh3)

# until the first checkpoint is there the disk answers
LD_PRELOAD=$work/hang_disk.so HANG_AFTER=$work/run/checkpoints/step-000003
export LD_PRELOAD HANG_AFTER
# shellcheck disable=SC2086
expect 4 "$pstar" train "$work/mini.json" $threads train.steps=8 train.keep_last=0
unset LD_PRELOAD
says err "pstar train: no progress for 5"
says err "of queue disk ("
says err "temporary file in $work"
says err ". Continue from checkpoint $work/run/checkpoints/step-0000"
# shellcheck disable=SC2086
expect 0 "$pstar" train "$work/mini.json" $threads train.steps=8 --resume
[ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights after resuming"

# one of two ranks, before any checkpoint
export HANG_RANK=1 HANG_AFTER="$work/two/metrics.jsonl" LD_PRELOAD="$work/hang_disk.so"
# shellcheck disable=SC2086
train 2 openmpi two shared $threads memory.device=600KB memory.disk=20MB default_chunk_size=4096 \
    train.log_interval=1 train.steps=1000
unset LD_PRELOAD
[ $rc -ne 0 ] || fail "a rank hangs, and all end with 0"
says err "of queue disk ("
says err ". There is no checkpoint to continue from"
says err "rank 1 ("
says err ") failed: no progress for 5"
exit 0
