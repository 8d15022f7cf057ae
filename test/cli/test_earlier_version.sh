#!/bin/sh
# What an earlier version has written (test/golden/run_0_1_0, before YaRN) is resumed, exported, evaluated: options that it did not
# know have their defaults, and a default that has changed is still the default.
set -u
build=$1
. test/cli/cli_lib.sh
cp -r test/golden/run_0_1_0 "$work/old"
cd "$work/old" || exit 1

for model in gpt2 llama; do
    cp -r $model $model.copy
    expect 0 "$pstar" export $model.copy $model.out
    expect 0 "$pstar" export $model.copy/checkpoints/step-000002 $model.step
    cmp -s $model.out/model.safetensors $model.step/model.safetensors || fail "$model: other weights in the last step"
    expect 0 "$pstar" train $model.json --resume train.steps=3 memory.device=20MB train.output_dir=$model.copy
    says out "step 3/3"
    says out "only its first and last samples are compared"
    says err "train.loss_average = micro_batches"
done

# another model is still another, and the option is named
expect 2 "$pstar" train llama.json --resume train.output_dir=llama model.rope_scaling.factor=8
says err "saved with model.rope_scaling.factor = 4, but it is 8 now"
expect 2 "$pstar" train llama.json --resume train.output_dir=llama model.rope_scaling.original_max_position_embeddings=4096
says err "saved with model.rope_scaling.original_max_position_embeddings = 8192, but it is 4096 now"
expect 2 "$pstar" train llama.json --resume train.output_dir=llama model.rope_scaling.rope_type=yarn
says err 'saved with model.rope_scaling.rope_type = "llama3", but it is "yarn" now'
expect 2 "$pstar" train gpt2.json --resume train.output_dir=gpt2 model.layer_norm_eps=1e-6
says err "saved with model.layer_norm_eps = "
expect 0 "$pstar" train gpt2.json --resume train.output_dir=gpt2 model.resid_pdrop=0 memory.device=20MB
# what asks for a context before stretching still has to be stretched
expect 2 "$pstar" config gpt2.json model.rope_scaling.original_max_position_embeddings=4096
says err "has no effect with model.type gpt2"

# the folder that the model came from is gone
sed 's|"from_pretrained": ""|"from_pretrained": "gone"|' gpt2/summary.json >summary.json && mv summary.json gpt2/
rm -r gpt2/checkpoints
expect 0 "$pstar" export gpt2 gpt2.moved
finish
