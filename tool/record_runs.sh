#!/bin/sh
# Record what runs of both front ends give, to be compared before and after a change that shall alter none of it:
#
#     sh tool/record_runs.sh BUILD > before.txt; ...; sh tool/record_runs.sh BUILD | diff before.txt -
#
# Of each run over {dtype, ranks, threads, budgets}: the hash of each file, losses, and the peak of each tier.
# BUILD is the folder of a build with pstar and libpatrickstar.so. The PyTorch part needs a python3 that has torch.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
. test/cli/mpi_env.sh
export PSTAR_HARDWARE=none # peaks follow the rates of the machine, which may be measured again in between
export OMP_NUM_THREADS=1 PATRICKSTAR_LIBRARY="$build/libpatrickstar.so" PYTHONPATH=python:python/test
python=${PYTHON:-/usr/bin/python3}

# In f16 the first steps are skipped: their gradients are larger than it can hold.
cat > "$work/native.json" <<'END'
{
  "train_micro_batch_size_per_gpu": 2, "default_chunk_size": 8192,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1}}, "gradient_clipping": 1.0,
  "model": {"type": "gpt2", "vocab_size": 50257, "n_positions": 32, "n_embd": 16, "n_layer": 3, "n_head": 2},
  "data": {"train": "data/text/moby-dick.txt", "tokenizer": "data/gpt2", "validation_split": 0.05},
  "train": {"steps": 4, "save_interval": 2, "keep_last": 0, "eval_interval": 2, "log_interval": 1}
}
END

# native NAME RANKS OPTION...: one run, and what it left.
native() {
    name=$1 ranks=$2
    shift 2
    out="$work/$(printf '%s' "$name" | tr ' ' _)"
    if ! mpirun.openmpi -n "$ranks" "$build/pstar" train "$work/native.json" train.output_dir="$out" \
        memory.disk_path="$work" "$@" > "$work/log" 2>&1; then
        printf '%s: %s\n' "$name" "$(grep -a 'pstar train:' "$work/log" | head -n 1 | sed "s|$work||g")"
        return
    fi
    printf '%s\n' "$name"
    (cd "$out" && find . -name '*.safetensors' | sort | xargs sha256sum | cut -c 1-16,65-)
    grep -ho '"\(loss\|grad_norm\|loss_scale\|skipped\|[a-z_]*_bytes\)":[^,}]*' "$out/metrics.jsonl" |
        grep -v rss_peak | sha256sum | cut -c 1-16
    grep step_s "$out/metrics.jsonl" | tail -n 1 | grep -o '"[a-z]*_peak_bytes":[0-9]*' | grep -v rss_peak | tr '\n' ' '
    echo
}

for dtype in f32 bf16 f16; do
    case $dtype in
    f32) options= ;;
    bf16) options=bf16.enabled=true ;;
    f16) options=fp16.enabled=true ;;
    esac
    for ranks in 1 2 3; do
        for threads in 1 2; do
            for budget in "64MB 64MB 0" "10MB 6MB 256MB" "10MB 0 256MB"; do
                # shellcheck disable=SC2086 # words of a budget
                set -- $budget
                # shellcheck disable=SC2086 # options has none or one
                native "pstar $dtype, $ranks ranks, $threads threads, $1 $2 $3" $ranks $options \
                    train.threads=$threads memory.device=$1 memory.host=$2 memory.disk=$3
            done
        done
    done
done
native "pstar deferred" 1 memory.update_in_backward=never memory.device=10MB memory.host=0 memory.disk=256MB
native "pstar early" 1 gradient_clipping=0 memory.update_in_backward=always \
    train.max_nonfinite_steps=1 memory.device=10MB memory.host=6MB memory.disk=256MB
native "pstar SGD, averaged" 2 optimizer.type=SGD optimizer.params.momentum=0.9 optimizer.params.weight_decay=0 \
    memory.device=16MB memory.host=6MB memory.disk=256MB
native "pstar accumulation" 2 gradient_accumulation_steps=3 memory.device=16MB memory.host=6MB memory.disk=256MB

for ranks in 1 2 3; do
    for dtype in f32 bf16; do
        for threads in 1 2; do
            for budget in "64MB 64MB 0" "256KB 128KB 64MB" "192KB 0 64MB"; do
                # shellcheck disable=SC2086 # words of a budget
                set -- $budget
                printf 'PyTorch %s, %d ranks, %d threads, %s\n' $dtype $ranks $threads "$budget"
                mpirun.openmpi -n $ranks "$python" -W ignore tool/record_torch.py $dtype $threads "$@" \
                    > "$work/out" 2> "$work/log" ||
                    grep -v '^$' "$work/log" | tail -n 3
                sort "$work/out"
            done
        done
    done
done
