#!/bin/sh
# Conversations become the ids of transformers' apply_chat_template, and the assistant's tokens are the targets. Needs an interpreter
# with transformers: $PS_TRANSFORMERS_PYTHON, or build/transformers (make test-data); skipped without.
set -u
build=$1
. test/cli/cli_lib.sh

python=${PS_TRANSFORMERS_PYTHON:-$root/build/transformers/bin/python}
[ -x "$python" ] || skip "no $python: make test-data makes it"

export TRANSFORMERS_VERBOSITY=error TRANSFORMERS_OFFLINE=1
mkdir "$work/chat"
expect 0 "$python" -W ignore test/golden/check_chat.py "$pstar" "$work/chat"
cat "$work/out"

# a folder that transformers saved, taught by conversations and exported: the loss over the assistant's words is the one that
# transformers computes
loss_script=$root/test/golden/check_chat_loss.py
expect 0 "$python" -W ignore "$loss_script" make "$work/model"
cat >"$work/walk.json" <<END
{
  "train_micro_batch_size_per_gpu": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "model": {"from_pretrained": "$work/model"},
  "data": {"train": "$root/data/chat/train.jsonl", "validation": "$root/data/chat/validation.jsonl", "pad_to_multiple_of": 8},
  "memory": {"device": "40MB", "host": 0, "disk": 0},
  "train": {"steps": 30, "output_dir": "$work/walked"}
}
END
expect 0 "$pstar" train "$work/walk.json"
says out "80 lines in the form chatml"
expect 0 "$pstar" eval "$work/walk.json" --json
ours=$(sed -n 's/.*"targets": *\([0-9]*\).*"loss": *\([0-9.]*\).*/\2 \1/p' "$work/out")
expect 0 "$pstar" export "$work/walked" "$work/hf"
expect 0 "$python" -W ignore "$loss_script" loss "$work/hf" data/chat/validation.jsonl
theirs=$(cat "$work/out")
echo "pstar $ours, transformers $theirs"
# float sums in another order: 1e-6 or so each way
echo "$ours $theirs" | awk '{ d = $1 - $3; exit !(d < 2e-5 && d > -2e-5 && $2 == $4 && $1 > 0 && $1 < 7) }' || fail "pstar $ours, transformers $theirs"
