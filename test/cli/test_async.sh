#!/bin/sh
# The program on the fake GPU: trained, saved, resumed, evaluated, exported, with the bits and words of the cpu; and what a
# plan says is what happens. Builds for users refuse it.
set -u
build=$1
. test/cli/cli_lib.sh

plain=$pstar
[ "$(echo "$build" | sed -n 's|.*-d\([0-9]\).*|\1|p')" -gt 0 ] || {
    expect 2 "$plain" train "$work/tiny.json" train.backend=cpu_async
    says err "train.backend = cpu_async is there in debug builds only"
}
pstar=$root/$build/test/async/pstar

# seeded N: what turns a configuration to the fake GPU
seeded() { echo "train.backend=cpu_async cpu_async.seed=$1 cpu_async.check_order=true"; }

expect 0 "$pstar" train --overwrite "$work/tiny.json" train.steps=6
cp -r "$work/run" "$work/cpu"
expected=$(summary "$work/cpu" weights_xxh3)
expect 0 "$pstar" eval "$work/tiny.json"
cp "$work/out" "$work/eval"
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 12
cp "$work/out" "$work/text"
expect 0 "$pstar" export "$work/cpu" "$work/cpu-hf"

for seed in 1 2 3; do
    case $seed in
    1) memory="memory.device=100MB cpu_async.page_size=2MiB" ;;
    2) memory="memory.device=16MB memory.host=40MB cpu_async.page_size=64KiB" ;;
    3) memory="memory.device=16MB memory.host=20MB memory.disk=100MB cpu_async.page_size=4KiB" ;;
    esac
    # shellcheck disable=SC2046,SC2086
    set -- $(seeded $seed) $memory train.save_interval=2 train.output_dir="$work/run$seed"
    # in two pieces, the second on the cpu or on the fake GPU
    expect 0 "$pstar" train --overwrite "$work/tiny.json" "$@" train.steps=3
    if [ $seed = 1 ]; then
        expect 0 "$pstar" train "$work/tiny.json" --resume train.save_interval=2 train.output_dir="$work/run$seed" train.steps=6
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

# what the cpu began the fake GPU goes on with
expect 0 "$pstar" train --overwrite "$work/tiny.json" train.steps=2 train.save_interval=2 train.output_dir="$work/begun"
# shellcheck disable=SC2046
expect 0 "$pstar" train "$work/tiny.json" $(seeded 4) --resume train.save_interval=2 train.output_dir="$work/begun" train.steps=6
[ "$(summary "$work/begun" weights_xxh3)" = "$expected" ] || fail "begun on the cpu: other weights"

# too little memory: before the first step, with what would fit
# shellcheck disable=SC2046
expect 2 "$pstar" train --overwrite "$work/tiny.json" $(seeded 1) memory.device=2MB
says err "Any one of these changes fits"

# peaks as planned, and a profile of it
# shellcheck disable=SC2046
set -- $(seeded 5) memory.device=16MB memory.host=40MB cpu_async.page_size=64KiB train.steps=8
expect 0 "$pstar" plan "$work/tiny.json" "$@"
cp "$work/out" "$work/plan"
expect 0 "$pstar" train --overwrite "$work/tiny.json" "$@" profile.path="$work/profile.json" profile.steps=3,5 \
    train.output_dir="$work/profiled"
for tier in device host; do
    planned=$(sed -n "s/^$tier  *\([0-9.]* .B\) .*/\1/p" "$work/plan")
    peaks=$(sed -n "s/^$tier  *\([0-9.]* .B\)  *\([0-9.]* .B\) .*/\1, \2/p" "$work/out")
    [ "$peaks" = "$planned, $planned" ] || fail "peaks of the $tier: $peaks, planned $planned"
done
expect 0 "$pstar" report "$work/profile.json" -o "$work/report.html"
