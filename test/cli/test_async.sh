#!/bin/sh
# The program on a GPU of the fake driver, with the processor's kernels: trained, saved, resumed, evaluated, exported, with
# the bits and words of the cpu; and what a plan says is what happens.
set -u
build=$1
. test/cli/cli_lib.sh

pstar=$root/$build/test/async/pstar
cpu=train.backend=cpu

# on_gpu SEED BYTES: the GPU has this seed from now on, and pages of so many bytes
on_gpu() { export PS_FAKE_SEED="$1" PS_FAKE_PAGE="$2"; }

expect 0 "$pstar" train --overwrite "$work/tiny.json" $cpu train.steps=6
cp -r "$work/run" "$work/cpu"
expected=$(summary "$work/cpu" weights_xxh3)
expect 0 "$pstar" eval "$work/tiny.json" $cpu
cp "$work/out" "$work/eval"
expect 0 "$pstar" generate "$work/tiny.json" $cpu --prompt "Call me" --tokens 12
cp "$work/out" "$work/text"
expect 0 "$pstar" export "$work/cpu" "$work/cpu-hf"

for seed in 1 2 3; do
    case $seed in
    1) on_gpu 1 2097152; memory="memory.device=100MB" ;;
    2) on_gpu 2 65536; memory="memory.device=16MB memory.host=40MB" ;;
    3) on_gpu 3 4096; memory="memory.device=16MB memory.host=20MB memory.disk=100MB" ;;
    esac
    # shellcheck disable=SC2086
    set -- train.backend=cuda $memory train.save_interval=2 train.output_dir="$work/run$seed"
    # in two pieces, the second on the cpu or on the GPU
    expect 0 "$pstar" train --overwrite "$work/tiny.json" "$@" train.steps=3
    if [ $seed = 1 ]; then
        expect 0 "$pstar" train "$work/tiny.json" $cpu --resume train.save_interval=2 train.output_dir="$work/run$seed" train.steps=6
    else
        expect 0 "$pstar" train "$work/tiny.json" "$@" --resume train.steps=6
    fi
    [ "$(summary "$work/run$seed" weights_xxh3)" = "$expected" ] || fail "seed $seed: other weights"
    cmp "$work/cpu/model.safetensors" "$work/run$seed/model.safetensors" || fail "seed $seed: another file of weights"
    expect 0 "$pstar" eval "$work/tiny.json" "$@"
    grep -E '^(loss|validation)' "$work/eval" >"$work/a"
    grep -E '^(loss|validation)' "$work/out" | cmp - "$work/a" || fail "seed $seed: another loss"
    expect 0 "$pstar" generate "$work/tiny.json" "$@" --prompt "Call me" --tokens 12
    cmp "$work/out" "$work/text" || fail "seed $seed: another text"
    expect 0 "$pstar" export "$work/run$seed" "$work/hf$seed"
    cmp "$work/cpu-hf/model.safetensors" "$work/hf$seed/model.safetensors" || fail "seed $seed: another export"
done

# the GPU continues what the cpu began
expect 0 "$pstar" train --overwrite "$work/tiny.json" $cpu train.steps=2 train.save_interval=2 train.output_dir="$work/begun"
on_gpu 4 2097152
expect 0 "$pstar" train "$work/tiny.json" train.backend=cuda --resume train.save_interval=2 train.output_dir="$work/begun" train.steps=6
[ "$(summary "$work/begun" weights_xxh3)" = "$expected" ] || fail "begun on the cpu: other weights"

# too little memory: before the first step, with what would fit
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.backend=cuda memory.device=2MB
says err "Does not fit: "

# peaks as planned, and a profile of it
on_gpu 5 65536
set -- train.backend=cuda memory.device=16MB memory.host=40MB train.steps=8
expect 0 "$pstar" plan "$work/tiny.json" --json "$@"
cp "$work/out" "$work/plan"
expect 0 "$pstar" train --overwrite "$work/tiny.json" "$@" profile.path="$work/profile.json" profile.steps=3,5 \
    train.output_dir="$work/profiled"
for tier in device host; do
    planned=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tiers"][sys.argv[2]]["peak_bytes"])' "$work/plan" $tier)
    peaks="$(summary "$work/profiled" ${tier}_peak_bytes), $(summary "$work/profiled" planned_${tier}_peak_bytes)"
    [ "$peaks" = "$planned, $planned" ] || fail "peaks of the $tier: $peaks, planned $planned"
done
expect 0 "$pstar" report "$work/profile.json" -o "$work/report.html"
