#!/bin/sh
# A machine with a GPU is measured through the GPU's own queues, described as one, and kept apart from the processor's
# rates. Over the fake driver: what is written is looked at, not how fast anything is.
set -u
build=$1
. test/cli/cli_lib.sh
gpu=$build/test/gpu/pstar
unset PSTAR_HARDWARE
export XDG_CACHE_HOME="$work/cache"

expect 0 "$gpu" info --quick --measure "$work/me.json" --disk-path "" --format bf16
for figure in "host memory: y = a + b" "host memory: Adam" "memory: Adam" "product bf16" \
    "block bf16: of it attention" "copy: both ways at once"; do
    says out "$figure"
done
for key in '"name": "Fake 0"' '"gpus_per_node": 1' '"bytes": 1073741824' '"product_workspace_bytes": ' '"stream_fraction": ' \
    '"to_host_both_ways_bytes_per_s": ' "by pstar info --measure on Fake 0 with " "kernels cuda"; do
    grep -qF "$key" "$work/me.json" || fail "not written: $key"
done
grep -q '"compute_interference"\|"interconnect"\|"f32"' "$work/me.json" && fail "written though not so"
expect 0 "$gpu" plan "$work/tiny.json" --hardware "$work/me.json" bf16.enabled=true --no-advice
says out "machine   Fake 0"

# the processor, when asked for; what is no backend, or not there, is said
expect 0 "$gpu" info --quick --measure "$work/cpu.json" --disk-path "" --format bf16 --backend cpu
grep -q '"gpus_per_node": 0' "$work/cpu.json" || fail "the GPU was measured for the processor"
expect 2 "$gpu" info --measure - --backend gpu
says err "--backend 'gpu' is not auto, cpu or cuda"
expect 2 env PS_FAKE_GPUS=0 "$gpu" info --quick --measure - --disk-path "" --backend cuda
says err "finds no GPU"

# what computes decides whose rates are kept
plan() { expect 0 "$gpu" plan "$work/tiny.json" bf16.enabled=true memory.disk=0 --no-advice "$@"; }
settle() { for f in "$XDG_CACHE_HOME"/patrickstar/*.busy-*.json; do [ ! -e "$f" ] || mv "$f" "${f%.busy-*}.json"; done; }
plan train.backend=cuda
settle
ls "$XDG_CACHE_HOME"/patrickstar/machine-*-fake-0-*-bf16.json >/dev/null || fail "not kept as the GPU's: $(ls "$XDG_CACHE_HOME"/patrickstar)"
plan train.backend=cpu
settle
[ "$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*-bf16.json | wc -l)" = 2 ] || fail "the processor's are the GPU's"
plan train.backend=cuda
[ -s "$work/err" ] && fail "measured twice"
exit 0
