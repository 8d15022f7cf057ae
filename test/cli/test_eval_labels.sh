#!/bin/sh
# Names of classes for pstar eval: those of the weights, a folder or a file in one, though the data have not all of them, or in another order.
set -u
build=$1
. test/cli/cli_lib.sh
for i in 1 2 3 4 5 6 7 8; do
    echo '{"text": "whale", "label": "zeta"}'
    echo '{"text": "ship", "label": "alpha"}'
done >"$work/both.jsonl"
grep zeta "$work/both.jsonl" >"$work/zeta.jsonl"
set -- bf16.enabled=false model.head=sequence_classification data.validation_split=0
expect 0 "$pstar" train "$work/tiny.json" "$@" data.train="$work/both.jsonl" train.steps=30 train.save_interval=30
grep -q '"labels": "alpha,zeta"' "$work/run/summary.json" || fail "no labels in the summary"

# evaluates ACCURACY WEIGHTS...
evaluates() {
    accuracy=$1
    shift
    expect 0 "$pstar" eval "$work/tiny.json" bf16.enabled=false model.head=sequence_classification \
        data.validation_split=0 data.train="$work/zeta.jsonl" --split train "$@"
    says out "accuracy    $accuracy"
}
evaluates 100.00
step=$work/run/checkpoints/step-000030
for weights in "$work/run" "$work/run/model.safetensors" "$step" "$step/model-0-of-1.safetensors"; do
    evaluates 100.00 --weights "$weights"
done
[ ! -s "$work/err" ] || fail "said: $(cat "$work/err")"
cd "$work/run" || exit 1
evaluates 100.00 --weights model.safetensors
expect 2 "$pstar" eval "$work/tiny.json" "$@" data.train="$work/zeta.jsonl" --split train --weights model.safetensors \
    data.labels=zeta,alpha
says err "data.labels has 'zeta' as class 0, but"
says err "has it as class 1: 0 'alpha', 1 'zeta'"

# weights alone: what is made of the names is said, and the list helps; a config.json with them may be another model's
mkdir "$work/alone"
cp model.safetensors "$work/alone"
echo '{"train": {}}' >"$work/alone/config.json"
evaluates 0.00 --weights "$work/alone/model.safetensors"
says err "numbered in byte order: 0 'zeta'; give data.labels"
evaluates 100.00 --weights "$work/alone/model.safetensors" data.labels=alpha,zeta
[ ! -s "$work/err" ] || fail "said: $(cat "$work/err")"
finish
