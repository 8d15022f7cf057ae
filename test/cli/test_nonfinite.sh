#!/bin/sh
# NaNs and infinities are never trained on, or exported, without a word.
set -u
build=$1
. test/cli/cli_lib.sh

# patch FILE VALUE COPY: a file of weights in f32 with one element of transformer.h.0.mlp.c_fc.weight replaced
patch() {
    python3 - "$@" <<'PYTHON' || fail "cannot patch $1"
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n, = struct.unpack_from("<Q", data, 0)
tensor = json.loads(data[8:8 + n])["transformer.h.0.mlp.c_fc.weight"]
struct.pack_into("<f", data, 8 + n + tensor["data_offsets"][0] + 40, float(sys.argv[2]))
open(sys.argv[3], "wb").write(data)
PYTHON
}

expect 0 "$pstar" train "$work/tiny.json" train.steps=2
weights=$work/run/model.safetensors
patch "$weights" nan "$work/nan.safetensors"
patch "$weights" 1e6 "$work/large.safetensors"

# training: an error that says what was seen first, at once or at the end of a short run
expect 1 "$pstar" train "$work/tiny.json" train.steps=50 train.init_from="$work/nan.safetensors" train.output_dir="$work/bad"
says err "5 steps in a row have gradients that are not finite"
says err "first seen: a loss of "
says err "in step 1."
says out "gradients are not finite: step skipped"
[ ! -e "$work/bad/model.safetensors" ] || fail "weights of a run that failed"
expect 1 "$pstar" train "$work/tiny.json" train.steps=3 train.init_from="$work/nan.safetensors" train.output_dir="$work/short"
says err "the last 3 steps had gradients that are not finite"
expect 1 "$pstar" train "$work/tiny.json" train.steps=50 train.max_nonfinite_steps=2 \
    train.init_from="$work/nan.safetensors" train.output_dir="$work/two"
says err "2 steps in a row"

# updates that ran within the backward pass: what was on its way to disk is complete all the same
expect 1 "$pstar" train "$work/tiny.json" train.steps=9 train.save_interval=1 train.output_dir="$work/early" gradient_clipping=0 \
    train.max_nonfinite_steps=1 memory.update_in_backward=always optimizer.params.lr=1e30
says err "Updates run within the backward pass here"
says err "continue from the last checkpoint"
says out "checkpoint step-000001: "
[ -e "$work/early/checkpoints/step-000001/state.json" ] || fail "the checkpoint of the last good step is lost"

# exporting
export_file() { "$pstar" export "$1" "$2" --config "$work/tiny.json" $3; }
expect 1 export_file "$work/nan.safetensors" "$work/hf" ""
says err "1 values in 1 tensors (the first: transformer.h.0.mlp.c_fc.weight) are infinite or NaN"
expect 1 export_file "$work/large.safetensors" "$work/hf" "-d f16"
says err "1 values in 1 tensors (the first: transformer.h.0.mlp.c_fc.weight) would be infinite in f16"
[ ! -e "$work/hf" ] || fail "a folder although the export failed"
expect 0 export_file "$work/large.safetensors" "$work/hf" "-d bf16"
expect 0 export_file "$work/large.safetensors" "$work/hf-large" "-d f16 --allow-nonfinite"
says err "1 values in 1 tensors are infinite or NaN, 1 of them by rounding"
expect 0 export_file "$weights" "$work/hf-f16" "-d f16"

# generating
for k in 0 40; do
    expect 1 "$pstar" generate "$work/tiny.json" --weights "$work/nan.safetensors" --prompt "x" --tokens 3 --top-k $k
    says err "the model's output is not finite: "
done
