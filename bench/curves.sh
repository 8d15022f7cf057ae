#!/bin/sh
# Training curves of optimizers and of their states' formats: a GPT-2 of 30 million parameters in bf16, 512 tokens a
# step, 1000 steps; the validation loss every 100. What a run that was stopped has done is not done again.
#
# usage: bench/curves.sh BUILD_FOLDER OUTPUT_FOLDER [RUN ...]     (RUN: fp32-1, compact-2, ... as below; default all)
#        bench/curves.sh --table OUTPUT_FOLDER                    (Markdown, of the runs that have ended)
# KEYS: more options for all runs ("train.threads=1").
set -u
cd "$(dirname "$0")/.." || exit 2
runs='fp32-1 compact-1 compact_split-1 bf16_stochastic-1 fp32-2 compact-2 fp32-3 compact-3 Muon-1 Lion-1'

options() { # of run $1
    case ${1%-*} in
    Muon) echo optimizer.type=Muon optimizer.params.adjust_lr_fn=match_rms_adamw ;;
    Lion) echo optimizer.type=Lion optimizer.params.lr=1e-4 optimizer.params.weight_decay=1 optimizer.params.betas='[0.9,0.99]' ;;
    *) echo "optimizer.params.state_format=${1%-*}" ;;
    esac
    echo "train.seed=${1##*-}"
}

# Validation losses of a run, "STEP LOSS" a line.
losses() { sed -n 's/.*"step": *\([0-9]*\).*"eval_loss": *\([0-9.]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

if [ "$1" = --table ]; then
    printf '| run | step 100 | 200 | 300 | 400 | 500 | 600 | 700 | 800 | 900 | 1000 |\n|---|---|---|---|---|---|---|---|---|---|---|\n'
    for run in $runs; do
        [ -f "$2/$run/ended" ] || continue
        losses "$2/$run" | awk -v run="$run" 'BEGIN { printf "| %s", run } { printf " | %.4f", $2 } END { print " |" }'
    done
    exit 0
fi

build=$1 folder=$2
shift 2
for run in ${*:-$runs}; do
    [ ! -f "$folder/$run/ended" ] || continue
    resume=
    [ ! -d "$folder/$run/checkpoints" ] || resume=--resume
    # shellcheck disable=SC2046,SC2086
    "$build/pstar" train examples/demo.json $resume train_micro_batch_size_per_gpu=4 data.sequence_length=128 \
        model.n_embd=384 model.n_head=6 optimizer.params.lr=1e-3 activation_checkpointing.enabled=false \
        memory.device=4GB memory.host=0 memory.disk=0 \
        train.steps=1000 train.eval_interval=100 train.eval_steps=100 train.save_minutes=5 train.output_dir="$folder/$run" \
        $(options "$run") ${KEYS:-} || exit 1
    touch "$folder/$run/ended"
done
