#!/bin/sh
# The configurations of PatrickStar's guide and its example train as they stand: no memory section, fp16, embeddings or Adam on the host.
set -u
build=$1
. test/cli/cli_lib.sh

available=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
[ "$available" -gt 3000 ] || { echo "skipped: chunks of 67108864 elements want 3 GB, and $available MB are available"; exit 77; }
run() {
    expect 0 "$pstar" train "$root/test/data/config/$1.json" model.n_positions=16 model.n_embd=32 model.n_layer=2 model.n_head=2 \
        data.train="$root/data/text/moby-dick.txt" data.tokenizer="$root/data/gpt2" train.steps=1 train.output_dir="$work/$1"
    [ -s "$work/$1/model.safetensors" ] || fail "no weights"
}
run patrickstar_readme
run patrickstar_example
says out "host " # both tiers are used
