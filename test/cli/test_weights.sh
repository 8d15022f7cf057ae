#!/bin/sh
# inspect, merge and export of what a run leaves, and training on from the exported folder.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" train "$work/tiny.json" train.steps=1
weights=$(summary "$work/run" weights_xxh3)

expect 0 "$pstar" inspect "$work/run"
says out "transformer.h.0.attn.c_attn.weight"
says out "[32, 96]"
says out "1634208 elements"
expect 0 "$pstar" inspect "$work/run/model.safetensors" --json
says out '"dtype": "F32"'
says out '"bytes": 6536832'

# an export needs to know the model: a run's folder has that, a file alone has not
mkdir "$work/alone" && cp "$work/run/model.safetensors" "$work/alone"
expect 3 "$pstar" export "$work/alone" "$work/hf"
says err "name the configuration by --config"
expect 0 "$pstar" export "$work/run" "$work/hf"
rm -r "$work/hf"
expect 0 "$pstar" export "$work/run" "$work/hf" --config "$work/tiny.json" --tokenizer "$root/data/gpt2"
says out "1 file, config.json, 2 files of the tokenizer"
for file in config.json model.safetensors vocab.json merges.txt; do
    [ -s "$work/hf/$file" ] || fail "$file is not exported"
done
grep -q '"model_type": "gpt2"' "$work/hf/config.json" || fail "no model_type"
expect 0 "$pstar" inspect "$work/hf"
says out "model_type     gpt2"
expect 2 "$pstar" export "$work/run" "$work/hf" --config "$work/tiny.json"
says err "--force"
touch "$work/hf/old"
expect 0 "$pstar" export "$work/run" "$work/hf" --config "$work/tiny.json" --dtype bf16 --max-shard-size 2MB --force
[ -s "$work/hf/model-00001-of-00002.safetensors" ] || fail "no shards: $(ls "$work/hf")"
[ -e "$work/hf/old" ] && fail "the old folder is not gone"
ls "$work" | grep -q 'hf\.' && fail "left: $(ls "$work")"
expect 0 "$pstar" inspect "$work/hf"
says out "2 shards of safetensors"
says out "BF16"
expect 2 "$pstar" export "$work/run" "$work/hf2" --config "$work/tiny.json" --dtype f8
expect 2 "$pstar" export "$work/run" "$work/hf2" --config "$work/tiny.json" --max-shard-size 0
expect 3 "$pstar" export "$work/absent" "$work/hf2" --config "$work/tiny.json"
[ -e "$work/hf2" ] && fail "a folder after a failure"

# a checkpoint of two ranks, as training with two processes leaves it: here the shards under other names
ckpt=$work/ck/checkpoints/step-000001
mkdir -p "$ckpt"
expect 0 "$pstar" export "$work/run" "$work/hf3" --config "$work/tiny.json" --max-shard-size 6450000
cp "$work/hf3/model-00001-of-00002.safetensors" "$ckpt/model-0-of-2.safetensors"
expect 3 "$pstar" merge "$ckpt" "$work/merged.safetensors"
says err "model-1-of-2.safetensors"
cp "$work/hf3/model-00002-of-00002.safetensors" "$ckpt/model-1-of-2.safetensors"
touch "$ckpt/model-1-of-2.safetensors.tmp-123-0" # of a writer that was killed
expect 0 "$pstar" merge "$ckpt" "$work/merged.safetensors"
expect 0 "$pstar" merge "$work/run/model.safetensors" "$work/whole.safetensors" # by name, as all merged files
cmp -s "$work/merged.safetensors" "$work/whole.safetensors" || fail "merging does not give the file back"
expect 0 "$pstar" merge --pattern "$ckpt/model-*.safetensors" "$work/merged2.safetensors"
cmp -s "$work/merged.safetensors" "$work/merged2.safetensors" || fail "merging by a pattern gives another file"
expect 3 "$pstar" merge --pattern "$work/none-*" "$work/merged3.safetensors"
expect 2 "$pstar" merge "$ckpt"
expect 0 "$pstar" merge --pattern "$work/run/model.safetensors" "$work/merged3.safetensors"

# the newest checkpoint of a run, and the configuration in its state.json
echo "step-000001 c99ecabf43b30a5d" >"$work/ck/checkpoints/latest"
printf '{"steps": 1, "config": %s}' "$(cat "$work/tiny.json")" >"$ckpt/state.json"
expect 0 "$pstar" inspect "$work/ck"
says out "checkpoint of 2 ranks"
says out "step           1"
expect 0 "$pstar" export "$work/ck" "$work/hf4"
cmp -s "$work/hf4/model.safetensors" "$work/run/model.safetensors" || fail "another export from the checkpoint"

# one step from each is the same step
for from in "$work/run/model.safetensors" "$work/hf3" "$work/ck"; do
    expect 0 "$pstar" train "$work/tiny.json" train.init_from="$from" train.steps=1 train.output_dir="$work/more"
    [ "${first:=$(summary "$work/more" weights_xxh3)}" = "$(summary "$work/more" weights_xxh3)" ] || fail "$from"
done
[ "$first" != "$weights" ] || fail "no step was made"

# damage is named
head -c 2000 "$work/hf/model-00002-of-00002.safetensors" >"$work/cut"
mv "$work/cut" "$work/hf/model-00002-of-00002.safetensors"
expect 2 "$pstar" inspect "$work/hf"
says err "model-00002-of-00002.safetensors"
