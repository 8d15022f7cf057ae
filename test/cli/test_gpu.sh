#!/bin/sh
# The program where there is a GPU: over the fake driver, with kernels on the emulator. It is found, used and named;
# where it cannot be used that is said, and what computes instead.
set -u
build=$1
. test/cli/cli_lib.sh
pstar=$root/$build/test/gpu/pstar
small="model.n_layer=1 model.n_embd=16 train_micro_batch_size_per_gpu=1 model.n_positions=8 train.steps=2"

expect 0 "$pstar" info
says out "Fake 0 (compute capability 9.0)"
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=40MB -v
says out "GPU 0 of 1: Fake 0, "
[ "$(summary "$work/run" backend)" = cuda ] || fail "the summary names another backend"
[ "$(summary "$work/run" gpu)" = "Fake 0" ] || fail "the summary does not name the GPU"
for tier in device host; do
    row=$(sed -n "s/^$tier  *\([0-9.]* [kMGT]\{0,1\}B\)  *\([0-9.]* [kMGT]\{0,1\}B\)  *[0-9.]* [kMGT]\{0,1\}B$/\1, planned \2/p" "$work/out")
    [ -n "$row" ] && [ "${row%, planned *}" = "${row#*, planned }" ] || fail "peak of the $tier: $row"
done
gpu=$(summary "$work/run" weights_xxh3)
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=40MB train.backend=cpu
grep -q "^GPU" "$work/out" && fail "a GPU is named, and the processor computes"
[ "$(summary "$work/run" weights_xxh3)" != "$gpu" ] || fail "the processor's bits: it was not the GPU that computed"

# the program itself, with drivers and cuBLASLt of the fake as libraries, which it looks for as for NVIDIA's
with_driver() { LD_LIBRARY_PATH=$root/$build/test/gpu/driver "$root/$build/pstar" "$@"; }
if [ -e "$build/libpatrickstar_cuda.so" ]; then
    expect 0 with_driver info
    says out "Fake 0 (compute capability 9.0)"
    # shellcheck disable=SC2086
    expect 0 with_driver train --overwrite "$work/tiny.json" $small memory.host=40MB train.backend=cuda train.attention=own
    [ "$(summary "$work/run" weights_xxh3)" = "$gpu" ] || fail "over the fake driver as a library the bits are others"
else
    echo "skipped: the fake driver as a library: there is no libpatrickstar_cuda.so (make CUDA=1)"
fi

# it cannot be used: auto says so and continues, cuda is an error
export PS_FAKE_GPUS=0
expect 0 "$pstar" info
says out "NVIDIA GPU not usable, the CPU computes: NVIDIA's driver finds no GPU"
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=40MB
says err "pstar train: the processor computes, as the GPU cannot be used: NVIDIA's driver finds no GPU"
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.backend=cuda
says err "train.backend = cuda: NVIDIA's driver finds no GPU"
says err "; or set train.backend = cpu"

# without hardware of NVIDIA's there is no word about it
pstar=$root/$build/pstar
"$pstar" info | grep -q "^GPU  *no NVIDIA GPU found" || exit 0
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=0
[ ! -s "$work/err" ] || fail "a word: $(cat "$work/err")"
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.backend=cuda
says err "train.backend = cuda: "
