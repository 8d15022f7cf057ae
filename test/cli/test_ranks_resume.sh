#!/bin/sh
# Four ranks train what none of them could hold; others, fewer, resume from their checkpoint.
# usage: test/cli/test_ranks_resume.sh BUILD_FOLDER
set -u
. test/cli/ranks_lib.sh

# 0.4 M parameters, 6.5 MB of model data; each rank may use 3.8 MB.
cat >"$work/large.json" <<EOT
{
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "gradient_clipping": 1.0,
  "activation_checkpointing": {"enabled": true},
  "default_chunk_size": 8192,
  "model": {"vocab_size": 127, "n_positions": 16, "n_embd": 64, "n_layer": 8, "n_head": 2},
  "data": {"train": "$work/bytes.u16"},
  "memory": {"device": "2.8MB", "host": "1MB", "disk": 0, "save_buffer": 0},
  "train": {"steps": 12, "threads": 1, "save": false, "output_dir": "$work/run", "save_interval": 8, "keep_last": 9,
            "log_interval": 1000},
  "comm": {"timeout_s": 5, "staging": "70KB"}
}
EOT
roomy="memory.device=20MB"

trained 4 openmpi four large
budget=$(($(summary "$work/four" device_budget_bytes) + $(summary "$work/four" host_budget_bytes)))
[ "$(summary "$work/four" model_data_bytes)" -gt $budget ] || fail "a rank could hold the model"
expect 2 "$pstar" train "$work/large.json" gradient_accumulation_steps=12 train.output_dir="$work/refused"
says err "Does not fit: "

# ---- as many micro-batches a step, on fewer ranks ----

for p in 4 2 1; do
    mkdir "$work/on$p"
    cp -r "$work/four/checkpoints" "$work/on$p/"
    rm -r "$work/on$p/checkpoints/step-000012"
    trained $p openmpi on$p large $([ $p -eq 4 ] || echo $roomy) \
        --resume="$work/on$p/checkpoints/step-000008"
    says out "after step 8"
    near on$p four "$([ $p -eq 4 ] && echo 0 || echo 1e-6)" 9
done
[ "$(weights on4)" = "$(weights four)" ] || fail "resumed on as many ranks: other bits"

# ---- no step more, saved by others: merged, the same file ----

merged() { expect 0 "$pstar" merge "$work/$1" "$work/$1.safetensors"; }
merged four
for p in 1 2 3; do
    trained $p openmpi again$p large $roomy train.init_from="$work/four.safetensors" train.steps=1 \
        optimizer.params.lr=0
    says out "1/1"
    [ "$(ls "$work/again$p/checkpoints/step-000001" | grep -c '^model-')" -eq $p ] || fail "not a file a rank"
    merged again$p
    cmp "$work/again$p.safetensors" "$work/four.safetensors" || fail "merged from $p ranks: other bytes"
done
exit 0
