#!/bin/sh
# Tables for GPUs that programs print without one: what each operator should reach, which is written into doc/gpu-kernels.md
# (test/cli/test_gpu_bench.sh compares); and what is planned for an H100 and an H200 (examples/hardware), for bench/results/.
#
# usage: tool/gpu_tables.sh BUILD_FOLDER
#        tool/gpu_tables.sh BUILD_FOLDER --planned [NAME]      (to stdout; NAME: of one bench/gpu/NAME.json)
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: tool/gpu_tables.sh BUILD_FOLDER [--planned [NAME]]}
only=${3:-}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export PSTAR_HARDWARE=none

# row GPU NAME KEY=VALUE...: of bench/gpu/NAME.json, what is planned
row() {
    gpu=$1 name=$2
    shift 2
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    "$build/pstar" plan "bench/gpu/$name.json" --hardware "examples/hardware/$gpu-128gb.json" --json --no-advice "$@" >"$work/plan" || return
    "$build/bench/gpu_row" "$name" "$work/plan" "examples/hardware/$gpu-128gb.json" "bench/gpu/$name.json" "$@" |
        sed "s/| ours, as planned |/| $(echo "$gpu" | tr a-z A-Z) |/"
}
planned() {
    "$build/bench/gpu_row" --head | sed 's/| who |/| GPU |/; s/ planned, s | planned \/ measured |//; s/^\(|---|---|\)---|---|/\1/' >"$work/rows"
    for gpu in h100 h200; do
        for name in gpt2-124m gpt2-1.5b qwen2-0.5b qwen2-1.5b; do row $gpu $name >>"$work/rows"; done
    done
    row h200 qwen2-7b >>"$work/rows"
    row h100 llama-13b model.num_hidden_layers=32 client.opts.with_activation_offload=false | sed 's/llama-13b/&, 32 of 40 layers/' >>"$work/rows"
    row h200 llama-13b client.opts.with_activation_offload=false >>"$work/rows"
    # of what is planned and nothing measured, two columns say nothing
    awk -F '|' -v OFS='|' 'NR <= 2 { print; next } { $10 = $11 = ""; sub(/\|\|\|/, "|"); print }' "$work/rows"
}

if [ "${2:-}" = --planned ]; then planned; exit; fi
"$build/bench/bench_op" --table --backend cuda --hardware examples/hardware/h100-128gb.json | sed -n '2,$p' >"$work/operators"
page=doc/gpu-kernels.md
awk -v file="$work/operators" '
    /^<!-- bench_op/ { print; while ((getline line <file) > 0) print line; inside = 1; next }
    /^<!-- end/ { inside = 0 }
    !inside' $page >"$work/page" && cp "$work/page" $page
