#!/bin/sh
# make demo-finetune as a test, in half its steps: a published model becomes a classifier in less memory than its model data
# takes, above 90 % on texts it has not seen, and is exported. Needs build/minilm (make test-data); skipped without.
set -u
build=$1
. test/cli/cli_lib.sh

[ -s build/minilm/model.safetensors ] || skip "no build/minilm: make test-data fetches it"

set -- train.output_dir="$work/run" memory.disk_path="$work" train.steps=30
expect 0 "$pstar" train examples/finetune.json "$@"
cat "$work/out"
says out "loaded 103 tensors from build/minilm, 2 initialised at random (classifier"
says out ", 318 MB of model data"
says out "memory    device "
expect 0 "$pstar" eval examples/finetune.json "$@" --json
cat "$work/out"
accuracy=$(sed -n 's/.*"accuracy": *\([0-9.]*\).*/\1/p' "$work/out")
awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }' || fail "accuracy $accuracy, wanted above 0.9"
expect 0 "$pstar" export "$work/run" "$work/hf"
grep -q '"1": "state-of-the-union"' "$work/hf/config.json" || fail "the labels have no names"
for file in model.safetensors tokenizer.json vocab.txt; do
    [ -s "$work/hf/$file" ] || fail "$file is not exported"
done
expect 0 "$pstar" inspect "$work/hf"
says out "classifier.weight"
