#!/bin/sh
# Predicted and measured: ten configurations, planned with a description of this machine and then run.
#
# usage: [ROUNDS=N] bench/predict.sh BUILD_FOLDER [HARDWARE.json] [STEPS] [NAME...]
#        default: measures first; 16 steps; all configurations, else those whose names begin so
# ROUNDS: so often is measured (quickly, as pstar does by itself; not where HARDWARE.json is a file) and then run, since a machine's
# speed may drift meanwhile; a second table has the median, least and most of a configuration's ratios.
# Prints a row each: seconds a step as predicted and as measured (median, without the first three), their ratio, and whether peak
# bytes of each tier and bytes moved on each link in the last step are equal; below it, which rate was off (predict.py). Exit status 1
# when bytes are not equal.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: bench/predict.sh BUILD_FOLDER [HARDWARE.json] [STEPS]}
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
hardware=${2:-$folder/hardware.json}
steps=${3:-16}
if [ $# -gt 3 ]; then shift 3; else shift $#; fi
wanted=$(printf '%s\n' "$@")
rounds=${ROUNDS:-1}
case $rounds in '' | *[!0-9]* | 0) echo "ROUNDS=$rounds is no number from 1 on" >&2; exit 2 ;; esac
if [ -f "$hardware" ]; then measures=false; else measures=true; fi
failed=0

# Of this round: for some seconds where it is the only one.
measure() {
    if [ "$rounds" -gt 1 ]; then set -- --quick; else set --; fi
    "$build/pstar" info "$@" --measure "$hardware" --disk-path "$folder" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
    [ "$rounds" -gt 1 ] || cat "$folder/log" >&2
    grep "^the machine was busy" "$folder/log" >&2
}

# Is it one of those that were asked for, or were none?
is_wanted() {
    [ -n "$wanted" ] || return 0
    while IFS= read -r begin; do
        case $1 in "$begin"*) return 0 ;; esac
    done <<NAMES
$wanted
NAMES
    return 1
}

# row NAME KEY=VALUE...: examples/demo.json so changed
row() {
    name=$1
    shift
    is_wanted "$name" || return 0
    # no evaluation, no weights: steps only
    set -- "$@" "hardware=$hardware" "memory.disk_path=$folder" "train.output_dir=$folder/run" data.validation_split=0 "train.steps=$steps" \
        train.log_interval=1
    rm -rf "$folder/run"
    "$build/pstar" plan examples/demo.json --json --timeout 0 "$@" >"$folder/plan.json" || { failed=1; return; }
    "$build/pstar" train examples/demo.json "$@" profile.path="$folder/profile.json" profile.steps="[$((steps - 3)), $steps]" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; failed=1; return; }
    python3 bench/predict.py "$name" "$folder/plan.json" "$folder/run" "$folder/profile.json" "$folder/rows" || failed=1
}

all_rows() {
    row 'demo: 90 MB + 32 MB + disk'
    row 'demo: in memory' memory.device=400MB memory.host=0 memory.disk=0
    row 'demo: 120 MB + 250 MB host' memory.device=120MB memory.host=250MB memory.disk=0
    row 'demo: no checkpointing, 160 MB + disk' memory.device=160MB memory.host=0 activation_checkpointing.enabled=false
    row 'demo: f32, 200 MB + 200 MB' bf16.enabled=false memory.device=200MB memory.host=200MB memory.disk=0
    row 'demo: 2 micro-batches a step, in memory' memory.device=600MB memory.host=0 memory.disk=0 gradient_accumulation_steps=2
    row 'demo: small chunks, 100 MB + disk' memory.device=100MB memory.host=0 default_chunk_size=524288
    row 'GPT 85M: in memory' memory.device=3GB memory.host=0 memory.disk=0 model.n_embd=768 model.n_layer=6 model.n_head=12 \
        train_micro_batch_size_per_gpu=2
    row 'GPT 85M: 400 MB + 1100 MB host' memory.device=400MB memory.host=1100MB memory.disk=0 model.n_embd=768 model.n_layer=6 \
        model.n_head=12 train_micro_batch_size_per_gpu=2
    row 'GPT 85M: 400 MB + disk' memory.device=400MB memory.host=0 memory.disk=4GB model.n_embd=768 model.n_layer=6 model.n_head=12 \
        train_micro_batch_size_per_gpu=2
}

printf '%-44s %10s %10s %6s  %s\n' configuration 'predicted' 'measured' ratio 'peaks and moved bytes'
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    if "$measures"; then measure; fi
    all_rows
done
[ "$rounds" = 1 ] || python3 bench/predict.py --table "$folder/rows" || failed=1
exit $failed
