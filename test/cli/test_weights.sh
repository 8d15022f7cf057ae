#!/bin/sh
# inspect, merge and export of what a run leaves, and training on from the exported folder.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" train --overwrite "$work/tiny.json" train.steps=1
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
says out "1 file, config.json, 2 files copied from $root/data/gpt2"
for file in config.json model.safetensors vocab.json merges.txt; do
    [ -s "$work/hf/$file" ] || fail "$file is not exported"
done
mkdir "$work/one" && cp test/golden/tokenizers/qwen_like.json "$work/one/tokenizer.json"
expect 0 "$pstar" export "$work/run" "$work/hf-one" --tokenizer "$work/one"
[ "$(sed -n 's/.*config.json, //p' "$work/out")" = "1 file copied from $work/one" ] || { cat "$work/out"; fail "one file of it"; }
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
expect 2 "$pstar" export "$work/run" "$work/hf2" --config "$work/tiny.json" --format onnx
says err "expected safetensors or pt"
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
# sorted by name, whatever the files
expect 0 "$pstar" merge "$work/run/model.safetensors" "$work/whole.safetensors"
cmp -s "$work/merged.safetensors" "$work/whole.safetensors" || fail "merging does not give the file back"
expect 0 "$pstar" merge --pattern "$ckpt/model-*.safetensors" "$work/merged2.safetensors"
cmp -s "$work/merged.safetensors" "$work/merged2.safetensors" || fail "merging by a pattern gives another file"
expect 0 "$pstar" merge --num 2 --pattern "$ckpt/model-*-of-2.safetensors" "$work/merged4.safetensors"
cmp -s "$work/merged.safetensors" "$work/merged4.safetensors" || fail "merging two numbered files gives another file"
expect 3 "$pstar" merge --num 3 --pattern "$ckpt/model-*-of-2.safetensors" "$work/merged5.safetensors"
says err "model-2-of-2.safetensors"
expect 2 "$pstar" merge --num 1 --pattern "$ckpt/model-*-of-2.safetensors" "$work/merged5.safetensors"
says err "model-1-of-2.safetensors is there too, but --num says 1 files"
expect 2 "$pstar" merge --num 2 --pattern "$ckpt/*-*" "$work/merged5.safetensors"
says err "with --num it has one '*'"
expect 0 "$pstar" merge --num 2 "$ckpt" "$work/merged5.safetensors"
expect 2 "$pstar" merge --num 4 "$ckpt" "$work/merged6.safetensors"
says err "2 files of weights, but --num says 4"
expect 2 "$pstar" merge --num 4294967298 "$ckpt" "$work/merged6.safetensors"
[ ! -e "$work/merged6.safetensors" ] || fail "a file was written that should have been refused"
# those of PatrickStar's ranks, and what all of them have once
mkdir "$work/parts"
cp test/golden/torch_old_rank-0.pt "$work/parts/model-0.pt"
cp test/golden/torch_old_rank-1.pt "$work/parts/model-1.pt"
expect 0 "$pstar" merge --num 2 --pattern "$work/parts/model-*.pt" "$work/merged7.safetensors"
says out "merged7.safetensors: 5 tensors"
# its own command line names the result; .pt is torch.save's format
expect 0 "$pstar" merge --pattern="$work/parts/model-*.pt" --num=2
says out "model-merged.pt: 5 tensors"
expect 0 "$pstar" merge "$work/parts/model-merged.pt" "$work/merged8.safetensors"
cmp -s "$work/merged7.safetensors" "$work/merged8.safetensors" || fail "other tensors by way of torch.save's format"
expect 2 "$pstar" merge --pattern "$work/parts/model-*.pt"
expect 0 "$pstar" inspect "$work/parts"
says out "PatrickStar's files of 2 ranks"
expect 3 "$pstar" merge --pattern "$work/none-*" "$work/merged3.safetensors"
expect 2 "$pstar" merge "$ckpt"
expect 0 "$pstar" merge --pattern "$work/run/model.safetensors" "$work/merged3.safetensors"

# the newest checkpoint of a run, and the configuration in its state.json
echo "step-000001 c99ecabf43b30a5d" >"$work/ck/checkpoints/latest"
printf '{"steps": 1, "config": %s}' "$(cat "$work/tiny.json")" >"$ckpt/state.json"
expect 0 "$pstar" inspect "$work/ck"
says out "checkpoint of 2 ranks"
says out "step           1"
# that state.json has no hashes, nor its own
for command in "export $work/ck $work/hf4" "merge $work/ck $work/merged9.safetensors"; do
    # shellcheck disable=SC2086 # words
    expect 2 "$pstar" $command
    says err "state.json: the content has xxh3 "
done
rm "$ckpt/state.json"
expect 0 "$pstar" export "$work/ck" "$work/hf4" --config "$work/tiny.json"
cmp -s "$work/hf4/model.safetensors" "$work/run/model.safetensors" || fail "another export from the checkpoint"
# one that was saved: its files are compared with the hashes before anything is written
expect 0 "$pstar" train --overwrite "$work/tiny.json" train.steps=1 train.save_interval=1 train.output_dir="$work/saved"
saved=$work/saved/checkpoints/step-000001
expect 0 "$pstar" export "$saved" "$work/hf5"
cmp -s "$work/hf5/model.safetensors" "$work/run/model.safetensors" || fail "another export from a checkpoint of one rank"
# flip FILE: a bit in the middle of its data
flip() {
    python3 - "$1" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    data = f.read()
    f.seek(len(data) // 2)
    f.write(bytes([data[len(data) // 2] ^ 1]))
END
}
flip "$saved/model-0-of-1.safetensors"
for command in "export $saved $work/hf6" "merge $saved $work/merged9.safetensors" \
    "merge --pattern $saved/model-*.safetensors $work/merged9.safetensors"; do
    # shellcheck disable=SC2086
    (set -f && expect 2 "$pstar" $command) || exit 1
    says err "model-0-of-1.safetensors: damaged: xxh3 "
done
[ ! -e "$work/hf6" ] && [ ! -e "$work/merged9.safetensors" ] || fail "damaged weights were written"
# nor do a new run, an evaluation or a text begin with them
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.init_from="$saved" train.output_dir="$work/began"
says err "model-0-of-1.safetensors: damaged: xxh3 "
expect 2 "$pstar" eval "$work/tiny.json" --weights "$saved"
says err "model-0-of-1.safetensors: damaged: xxh3 "
expect 2 "$pstar" generate "$work/tiny.json" --weights "$saved" --prompt x
says err "model-0-of-1.safetensors: damaged: xxh3 "
flip "$saved/model-0-of-1.safetensors"
expect 0 "$pstar" merge "$saved" "$work/merged9.safetensors"
cp "$saved/state.json" "$ckpt/"
expect 2 "$pstar" merge "$ckpt" "$work/merged10.safetensors"
says err "model-0-of-2.safetensors: its name says 2 ranks, but state.json in this folder says 1: the folder mixes two checkpoints"
rm "$ckpt/state.json"

# one step from each is the same step
for from in "$work/run/model.safetensors" "$work/hf3" "$work/ck"; do
    expect 0 "$pstar" train --overwrite "$work/tiny.json" train.init_from="$from" train.steps=1 train.output_dir="$work/more"
    [ "${first:=$(summary "$work/more" weights_xxh3)}" = "$(summary "$work/more" weights_xxh3)" ] || fail "$from"
done
[ "$first" != "$weights" ] || fail "no step was made"

# torch.save's format, with the tied output layer under its own name, but once; in one file and in shards
expect 0 "$pstar" export "$work/run" "$work/pt" --config "$work/tiny.json" --format pt
says out "1 file, config.json"
expect 0 "$pstar" inspect "$work/pt"
says out "torch.save"
says out "lm_head.weight"
bytes=$(($(wc -c <"$work/pt/pytorch_model.bin") - $(wc -c <"$work/hf4/model.safetensors")))
[ "$bytes" -lt 10000 ] || fail "pytorch_model.bin has $bytes bytes more than model.safetensors"
expect 0 "$pstar" export "$work/run" "$work/pt2" --config "$work/tiny.json" --format pt --max-shard-size 2MB
[ -s "$work/pt2/pytorch_model-00001-of-00002.bin" ] || fail "no shards: $(ls "$work/pt2")"
expect 0 "$pstar" inspect "$work/pt2"
says out "2 shards of torch.save"
for from in "$work/pt" "$work/pt2"; do
    expect 0 "$pstar" train --overwrite "$work/tiny.json" train.init_from="$from" train.steps=1 train.output_dir="$work/more"
    [ "$first" = "$(summary "$work/more" weights_xxh3)" ] || fail "$from"
done
mv "$work/pt2/pytorch_model-00002-of-00002.bin" "$work/aside"
expect 3 "$pstar" inspect "$work/pt2"
says err "pytorch_model-00002-of-00002.bin"
cp "$work/pt2/pytorch_model-00001-of-00002.bin" "$work/pt2/pytorch_model-00002-of-00002.bin"
expect 2 "$pstar" inspect "$work/pt2"
says err "pytorch_model.bin.index.json: tensor"

# an output table of its own: its bias has both names, which transformers 5 takes for two tensors
bert="model.type=bert model.head=masked_lm model.hidden_act=relu"
for tie in false true; do
    # shellcheck disable=SC2086
    expect 0 "$pstar" train --overwrite "$work/tiny.json" $bert model.tie_word_embeddings=$tie train.steps=0 train.output_dir="$work/bert-$tie"
    expect 0 "$pstar" export "$work/bert-$tie" "$work/bert-hf-$tie"
    grep -q '"hidden_act": "relu"' "$work/bert-hf-$tie/config.json" || fail "relu is not in config.json"
    expect 0 "$pstar" inspect "$work/bert-hf-$tie"
    grep -q "^cls.predictions.bias " "$work/out" || fail "no bias"
    [ "$(grep -c "^cls.predictions.decoder.\(weight\|bias\) " "$work/out")" = "$([ $tie = true ] && echo 0 || echo 2)" ] ||
        { cat "$work/out"; fail "names of the output layer, tied: $tie"; }
    # shellcheck disable=SC2086
    expect 0 "$pstar" train --overwrite "$work/tiny.json" $bert model.tie_word_embeddings=$tie train.steps=0 train.seed=5 \
        train.init_from="$work/bert-hf-$tie" train.output_dir="$work/bert-again-$tie"
    [ "$(summary "$work/bert-$tie" weights_xxh3)" = "$(summary "$work/bert-again-$tie" weights_xxh3)" ] || fail "other weights, tied: $tie"
done

# damage is named
head -c 2000 "$work/hf/model-00002-of-00002.safetensors" >"$work/cut"
mv "$work/cut" "$work/hf/model-00002-of-00002.safetensors"
expect 2 "$pstar" inspect "$work/hf"
says err "model-00002-of-00002.safetensors"

# a folder that is none, or not what it seems
expect 3 "$pstar" train --overwrite "$work/tiny.json" model.from_pretrained=meta-llama/Llama-3.2-1B
says err "hf download meta-llama/Llama-3.2-1B"
expect 3 "$pstar" tokenize --vocab nowhere/such-model "$root/README.md" -o "$work/t.bin"
says err "hf download nowhere/such-model"
cp -r "$work/hf" "$work/pointer" && rm "$work/pointer"/model*
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n' \
    >"$work/pointer/model.safetensors"
cp "$work/pointer/model.safetensors" "$work/pointer.bin"
for path in "$work/pointer" "$work/pointer/model.safetensors" "$work/pointer.bin"; do
    expect 2 "$pstar" inspect "$path"
    says err "git lfs pull"
done
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.init_from="$work/pointer.bin" train.steps=1 train.output_dir="$work/other"
says err "git lfs pull"
# weights of another type: one F32 in the header becomes two I8
python3 - "$work/run/model.safetensors" "$work/i8.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + n])
name = "transformer.ln_f.weight"
begin = header[name]["data_offsets"][0]
header[name].update(dtype="I8", shape=[header[name]["shape"][0] * 4])
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n :])
END
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.init_from="$work/i8.safetensors" train.steps=1 train.output_dir="$work/other"
says err "transformer.ln_f.weight is I8"

# a tokenizer that is not found from here is missed aloud
sed 's,"tokenizer": "[^"]*","tokenizer": "absent",' "$work/tiny.json" >"$work/lost.json"
grep -q absent "$work/lost.json" || fail "no tokenizer in tiny.json"
expect 0 "$pstar" export "$work/run" "$work/hf-lost" --config "$work/lost.json"
says err "no tokenizer is copied: there is no folder absent (data.tokenizer; "
