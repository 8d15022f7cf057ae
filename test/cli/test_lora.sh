#!/bin/sh
# Adapters from the program: trained over a folder, killed and resumed, in little memory, with the same bits; exported for peft, merged into
# the base and trained further, each with the loss of the run. What is saved is what is trained. examples/lora.json is a configuration.
set -u
build=$1
. test/cli/cli_lib.sh

set -- model.initializer_range=0.1 bf16.enabled=false
expect 0 "$pstar" train "$work/tiny.json" "$@" train.steps=0 train.output_dir="$work/random"
expect 0 "$pstar" export "$work/random" "$work/base"
sed 's|"model": {.*}|"model": {"from_pretrained": "'"$work/base"'"}, "lora": {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1,\
 "rank_pattern": {"c_fc": 2}}|; s|"bf16": {"enabled": true}|"gradient_clipping": 1|; s|"lr": 0.003|"lr": 0.02|' \
    "$work/tiny.json" >"$work/lora.json"
set -- train.steps=12 data.validation_split=0.001

# The plan counts what is trained.
expect 0 "$pstar" plan "$work/lora.json" "$@"
says out ", 3456 of them trained"
says out "a checkpoint takes 41.5 kB on disk"

expect 0 "$pstar" train "$work/lora.json" "$@"
says out "loaded 28 tensors from $work/base"
says out ", 3456 of them trained"
trained=$(summary "$work/run" weights_xxh3)
bytes=$(wc -c <"$work/run/model.safetensors")
[ "$bytes" -lt 20000 ] || fail "model.safetensors has $bytes bytes: the base, too?"

# Killed, and resumed in other memory.
begin "$pstar" train "$work/lora.json" "$@" train.output_dir="$work/killed" train.save_interval=2 train.log_interval=1
await "$work/killed/checkpoints/latest"
kill -9 "$pid"
wait "$pid" 2>/dev/null
expect 0 "$pstar" train "$work/lora.json" "$@" train.output_dir="$work/killed" memory.device=14MB memory.host=2MB memory.disk=100MB --resume
says out "resumed from"
[ "$(summary "$work/killed" weights_xxh3)" = "$trained" ] || fail "other weights after kill -9"

# A checkpoint goes with its base.
expect 0 "$pstar" train "$work/tiny.json" model.initializer_range=0.1 bf16.enabled=false train.seed=5 train.steps=0 train.output_dir="$work/random2"
expect 0 "$pstar" export "$work/random2" "$work/base2"
expect 2 "$pstar" train "$work/lora.json" "$@" train.steps=13 model.from_pretrained="$work/base2" --resume
says err "trained on a base whose weights have the xxh3"

# evaluates FILE ARGUMENTS...: the loss, in $loss
evaluates() {
    expect 0 "$pstar" eval "$@" data.validation_split=0.001
    loss=$(sed -n 's/^loss  *//p' "$work/out")
}
evaluates "$work/lora.json" --weights "$work/base"
before=$loss
evaluates "$work/lora.json"
after=$loss
awk -v a="$before" -v b="$after" 'BEGIN { exit !(b < a - 0.01) }' || fail "the loss went from $before to $after"
evaluates "$work/lora.json" --weights "$work/run/checkpoints/step-000012"
[ "$loss" = "$after" ] || fail "the checkpoint has a loss of $loss, the run $after"

# For peft, and back: on a base alone, whose configuration has no adapters.
expect 0 "$pstar" export "$work/run" "$work/adapter"
says out "adapter: 16 tensors"
for word in '"peft_type": "LORA"' '"fan_in_fan_out": true' '"c_fc": 2' '"task_type": "CAUSAL_LM"'; do
    grep -q "$word" "$work/adapter/adapter_config.json" || fail "no $word in adapter_config.json"
done
expect 0 "$pstar" inspect "$work/adapter/adapter_model.safetensors"
says out "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"
sed 's|, "lora": {.*|,|; /rank_pattern/d' "$work/lora.json" >"$work/plain.json"
evaluates "$work/plain.json" --weights "$work/base"
[ "$loss" = "$before" ] || fail "the base alone has a loss of $loss"
evaluates "$work/plain.json" --weights "$work/base" lora.from_pretrained="$work/adapter"
[ "$loss" = "$after" ] || fail "the exported adapter has a loss of $loss, the run $after"
expect 2 "$pstar" eval "$work/plain.json" --weights "$work/adapter"
says err "lora.from_pretrained"
expect 0 "$pstar" generate "$work/plain.json" --weights "$work/base" lora.from_pretrained="$work/adapter" --prompt "The" --tokens 4

# Modules that an adapter saves count whatever the base is called, and begin another run.
set -- train.steps=4 lora.modules_to_save=ln_f train.output_dir="$work/saved"
expect 0 "$pstar" train "$work/lora.json" data.validation_split=0.001 "$@"
expect 0 "$pstar" export "$work/saved" "$work/saved_adapter"
evaluates "$work/lora.json" lora.modules_to_save=ln_f --weights "$work/saved"
saved=$loss
for base in "$work/base" "$work/base/" "$work/../${work##*/}/base"; do
    evaluates "$work/plain.json" --weights "$base" lora.from_pretrained="$work/saved_adapter"
    [ "$loss" = "$saved" ] || fail "over $base the adapter has a loss of $loss, the run $saved"
done
expect 2 "$pstar" eval "$work/lora.json" data.validation_split=0.001 --weights "$work/saved"
says err "name its module in lora.modules_to_save"
set -- train.steps=12 data.validation_split=0.001

# Merged into the base, from either.
expect 0 "$pstar" merge "$work/base" "$work/adapter" "$work/merged"
says out "28 tensors, 8 of them with an adapter added"
evaluates "$work/plain.json" --weights "$work/merged"
awk -v a="$loss" -v b="$after" 'BEGIN { exit !(a < b + 1e-5 && a > b - 1e-5) }' || fail "merged: $loss, the run: $after"
expect 0 "$pstar" merge "$work/base" "$work/run" "$work/merged2"
cmp "$work/merged/model.safetensors" "$work/merged2/model.safetensors" || fail "the run and its export are merged to other weights"
expect 2 "$pstar" merge "$work/base" "$work/base" "$work/merged3"
says err "no adapter_config.json in it"

# Training goes on with the exported adapter.
expect 0 "$pstar" train "$work/plain.json" "$@" lora.from_pretrained="$work/adapter" train.output_dir="$work/more"
first=$(sed -n 's/^step 1\/.* loss \([0-9.]*\) .*/\1/p' "$work/out")
expect 0 "$pstar" train "$work/plain.json" "$@" lora.r=4 train.output_dir="$work/fresh"
fresh=$(sed -n 's/^step 1\/.* loss \([0-9.]*\) .*/\1/p' "$work/out")
[ -n "$first" ] && [ "$first" != "$fresh" ] || fail "training begins with a loss of $first, as without the adapter"

[ -s build/minilm/model.safetensors ] || exit 0
expect 0 "$pstar" train examples/lora.json train.steps=2 train.output_dir="$work/example" memory.disk_path="$work"
says out ", 74498 of them trained"

# Over a base in 4 bits: its loss before and after, in as many bytes less; evaluated and resumed in the same format.
set -- train.steps=12 train.eval_interval=6 train.eval_steps=4 data.validation_split=0.1 model.frozen_format=nf4
expect 0 "$pstar" plan "$work/lora.json" "$@"
says out ", 3456 of them trained"
expect 0 "$pstar" train "$work/lora.json" "$@" train.output_dir="$work/nf4"
says out "with weights in nf4,"
says out "before they were quantized"
expect 0 "$pstar" train "$work/lora.json" "$@" train.output_dir="$work/nf4b" memory.device=14MB memory.host=2MB memory.disk=100MB
[ "$(summary "$work/nf4" weights_xxh3)" = "$(summary "$work/nf4b" weights_xxh3)" ] || fail "nf4: other weights in little memory"
expect 0 "$pstar" train "$work/lora.json" "$@" train.output_dir="$work/nf4" train.steps=13 --resume
expect 2 "$pstar" train "$work/lora.json" "$@" model.frozen_format=int8 train.output_dir="$work/nf4" train.steps=14 --resume
says err "model.frozen_format"
expect 0 "$pstar" eval "$work/lora.json" data.validation_split=0.1 model.frozen_format=nf4 --weights "$work/nf4"
expect 2 "$pstar" train "$work/tiny.json" model.frozen_format=nf4 train.output_dir="$work/no"
says err "set lora.r for adapters"
