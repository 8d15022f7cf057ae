#!/bin/sh
# The largest model for a given memory is of as many parameters as a state format's bytes say; it trains, and one with a
# layer more is refused, by plan and by train.
set -u
build=$1
. test/cli/cli_lib.sh

steps="train.steps=2 train.save=false --overwrite"
budgets="memory.device=3MB memory.host=0 memory.disk=12MB"
shape="model.vocab_size=256 model.n_positions=64 model.n_embd=64 model.n_head=2 data.train=$work/tokens.u16 data.tokenizer= data.sequence_length=16"
python3 -c 'import sys, struct
sys.stdout.buffer.write(struct.pack("<8000H", *(i * i % 251 for i in range(8000))))' >"$work/tokens.u16"
command() { # NAME LAYERS OPTION...
    name=$1 layers=$2
    shift 2
    # shellcheck disable=SC2086
    "$pstar" "$name" "$work/tiny.json" $shape $budgets model.n_layer="$layers" gradient_clipping=0 \
        train.max_nonfinite_steps=1 train_micro_batch_size_per_gpu=1 hardware=none "$@"
}
plans() { command plan "$@" --no-advice >"$work/out" 2>"$work/err"; }

# OPTION...: the number of layers of the largest model, in $n
find_largest() {
    low=1 high=200
    plans $low "$@" || { cat "$work/out" "$work/err"; fail "one layer does not fit with $*"; }
    plans $high "$@" && fail "$high layers fit with $*"
    while [ $((high - low)) -gt 1 ]; do
        n=$(((low + high) / 2))
        if plans $n "$@"; then low=$n; else high=$n; fi
    done
    n=$low
}

# FORMAT WHEN BYTES: of model data for a parameter
check() {
    options="optimizer.params.state_format=$1 memory.update_in_backward=$2"
    # shellcheck disable=SC2086
    find_largest $options
    # shellcheck disable=SC2086
    expect 0 command train $n $options $steps
    # shellcheck disable=SC2086
    expect 2 command train $((n + 1)) $options $steps
    says err "Does not fit"
    # within an eighth of what the bytes say, as chunks and activations take room, too
    python3 -c 'import sys; n, first, size = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
sys.exit(not 0.875 < n * size / (first * 14) < 1.125)' "$n" "${first:=$n}" "$3" ||
        fail "$n layers fit with $1, and $first with fp32"
    echo "$1, $2: $n layers"
}
check fp32 never 14
check compact never 8.25
check compact_split never 8.25
check compact_split always 6.25
check bf16_stochastic never 8
check bf16_stochastic always 6
