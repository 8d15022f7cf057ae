#!/bin/sh
# The program on a GPU and on the processor: losses within rounding; the same bits in any budgets, down to the smallest that
# fits and with the disk, and when run twice; peaks and bytes moved as planned.
#
# usage: test/gpu/check_training.sh PSTAR_OF_GPU PSTAR MODEL FORMAT [small]
# MODEL: gpt2, llama or bert; FORMAT: f32, bf16 or fp16; small: of a size for kernels on an emulator. What failed is said, with the
# figures; exit status 1 then. tool/gpu_check.sh runs it.
set -u
cd "$(dirname "$0")/../.." || exit 2
gpu=$1 cpu=$2 model=$3 format=$4 size=${5:-real}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir "$work/disk"
trap 'exit 1' HUP INT TERM
export PSTAR_HARDWARE=none
failed=0
wrong() { echo "FAILED: $model $format: $*"; failed=1; }
give_up() { wrong "$*"; exit 1; }
LC_ALL=C awk 'BEGIN { for (i = 0; i < 60000; i++) printf "%c%c", i * i % 61 + 1, i % 7 % 2 }' >"$work/tokens.u16"
tokens="data.train=$work/tokens.u16 model.vocab_size=4096"
case $model in
gpt2) set -- model.type=gpt2 $tokens ;;
llama) set -- model.type=llama model.num_key_value_heads=2 $tokens ;;
bert) set -- model.type=bert model.head=masked_lm "data.train=data/text/state-of-the-union-1849-1853.txt" \
    data.tokenizer=test/golden/tokenizers/bert_like.json ;;
*) give_up "no model '$model'" ;;
esac
case $size in
small) steps=3 unit=65536 other_chunk=4096 set_size="model.max_position_embeddings=16 model.hidden_size=32 model.num_hidden_layers=2 model.num_attention_heads=2
    data.sequence_length=16 train_micro_batch_size_per_gpu=2 default_chunk_size=8192" ;;
*) steps=5 unit=4194304 other_chunk=1048576 set_size="model.max_position_embeddings=256 model.hidden_size=512 model.num_hidden_layers=6 model.num_attention_heads=8
    data.sequence_length=256 train_micro_batch_size_per_gpu=4 default_chunk_size=2097152" ;;
esac
if [ "$model" = llama ] && [ "$size" = small ]; then set -- "$@" model.num_key_value_heads=1 model.intermediate_size=96; fi
case $format in
f32) tolerance=1e-5 ;;
bf16) tolerance=2e-2 set_size="$set_size bf16.enabled=true" ;;
fp16) tolerance=2e-2 set_size="$set_size fp16.enabled=true fp16.initial_scale_power=8" ;;
*) give_up "no format '$format'" ;;
esac
echo '{"optimizer": {"type": "AdamW", "params": {"lr": 0.0003, "weight_decay": 0.1}}, "gradient_clipping": 1.0}' >"$work/config.json"
# shellcheck disable=SC2086 # several words
set -- "$@" $set_size train.steps=$steps train.log_interval=1 train.save=false memory.disk=0 "memory.disk_path=$work/disk"

run=0
# train PSTAR KEY=VALUE...: into $work/$run
train() {
    program=$1
    shift
    run=$((run + 1))
    "$program" train "$work/config.json" "$@" "train.output_dir=$work/$run" >"$work/$run.log" 2>&1 || {
        tail -n 5 "$work/$run.log"
        return 1
    }
}
# value RUN KEY: of its summary
value() { sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" "$work/$1/summary.json" | head -n 1; }
# of each step, "loss grad_norm"
losses() { sed -n 's/.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "$work/$1/metrics.jsonl"; }
# of the last step
moved() { sed -n 's/.*"moved_bytes":\([0-9]*\).*/\1/p' "$work/$1/metrics.jsonl" | tail -n 1; }
mb() { awk -v b="${1:-0}" 'BEGIN { printf "%.1f MB", b / 1e6 }'; }

# as_planned WHAT KEY=VALUE...: the last run, which those began. It is made again where it ended before the planned step, from which on
# all steps move as many bytes. Plans are of steps whose early updates are not taken back, while speculation is not paused
# (memory.update_in_backward): a run with others reaches at most the planned peaks.
as_planned() {
    what=$1
    shift
    settled=$(value $run planned_step)
    [ "$settled" -le $steps ] || train "$gpu" "$@" train.steps="$settled" || { wrong "$what: $settled steps do not train"; return; }
    compare='-eq' taken_back=$(value $run taken_back_steps) paused=$(value $run speculation_paused_steps)
    [ $((${taken_back:-0} + ${paused:-0})) -eq 0 ] || compare='-le'
    for tier in device host disk; do
        is=$(value $run ${tier}_peak_bytes) planned=$(value $run planned_${tier}_peak_bytes)
        [ -n "$is" ] && [ "$is" $compare "$planned" ] || wrong "$what: peak of $tier $is bytes, planned $planned"
    done
    [ $compare = '-eq' ] || return 0
    [ -n "$(moved $run)" ] && [ "$(moved $run)" = "$(value $run planned_moved_bytes_per_step)" ] ||
        wrong "$what: $(moved $run) bytes moved in step $settled, planned $(value $run planned_moved_bytes_per_step)"
}

# ---- losses ----
train "$cpu" "$@" train.backend=cpu memory.device=8GB memory.host=0 || give_up "does not train on the processor"
on_cpu=$run
train "$gpu" "$@" train.backend=cuda memory.device=auto memory.host=1GB || give_up "does not train"
resident=$run
[ "$(value $run backend)" = cuda ] || give_up "a GPU was asked for, and $(value $run backend) computed"
as_planned resident "$@" train.backend=cuda memory.device=auto memory.host=1GB
losses $on_cpu >"$work/on_cpu"
losses $resident >"$work/on_gpu"
[ "$(wc -l <"$work/on_gpu")" -eq $steps ] || give_up "$(wc -l <"$work/on_gpu") of $steps steps"
paste -d ' ' "$work/on_cpu" "$work/on_gpu" | awk -v most="$tolerance" -v what="$model $format" '
    function off(a, b) { d = a > b ? a - b : b - a; return a == b ? 0 : d / (a > 0 ? a : -a) }
    {
        l = off($1, $3); n = off($2, $4)
        if (!(l <= worst)) worst = l
        if (!(n <= worst_norm)) worst_norm = n
        if (!(l <= most) || !(n <= 20 * most)) { bad = 1; printf "step %d: loss %s norm %s, processor %s %s\n", NR, $3, $4, $1, $2 }
    }
    END { printf "%s: losses within %.2g, norms within %.2g of the processor'\''s\n", what, worst, worst_norm; exit bad }' ||
    wrong "not the processor's losses (allowed: $tolerance of each)"

# ---- bits ----
# same WHAT KEY=VALUE...: trained with those, compared with the resident run
same() {
    what=$1
    shift
    train "$gpu" "$@" || { wrong "does not train with $*"; return; }
    losses $run >"$work/now"
    cmp -s "$work/now" "$work/on_gpu" || wrong "$what: other losses: $(head -n 1 "$work/now"), first there $(head -n 1 "$work/on_gpu")"
    bits=$(value $run weights_xxh3)
    [ -n "$bits" ] && [ "$bits" = "$(value $resident weights_xxh3)" ] || wrong "$what: other weights"
    echo "$what: $(mb "$(value $run device_peak_bytes)") of the device, $(mb "$(value $run host_peak_bytes)") of the host, $(mb "$(value $run disk_peak_bytes)") of the disk, $(mb "$(moved $run)") moved a step"
    as_planned "$what" "$@"
}

same 'resident, again' "$@" train.backend=cuda memory.device=auto memory.host=1GB
# the least budget by halving, in units
peak=$(value $resident device_peak_bytes)
low=0 high=$(((peak + unit - 1) / unit))
while [ $((high - low)) -gt 1 ]; do
    middle=$(((low + high) / 2))
    if "$gpu" plan "$work/config.json" "$@" train.backend=cuda memory.host=1GB memory.device=$((middle * unit)) --no-advice >/dev/null 2>&1; then
        high=$middle
    else
        low=$middle
    fi
done
least=$((high * unit))
for device in "$peak" $(((peak + least) / 2)) "$least"; do
    same "$(mb "$device")" "$@" train.backend=cuda memory.host=1GB memory.device="$device"
done
# A host tier just large enough for what goes to and from the disk.
for host in 4 8 16 32 64 128; do
    "$gpu" plan "$work/config.json" "$@" train.backend=cuda memory.device="$least" memory.host=$((host * unit / 4)) memory.disk=8GB --no-advice \
        >/dev/null 2>&1 && break
done
same "$(mb "$least"), disk" "$@" train.backend=cuda memory.device="$least" memory.host=$((host * unit / 4)) memory.disk=8GB
[ "$(value $run disk_peak_bytes)" -gt 0 ] || wrong 'nothing was on the disk: the host tier was too large'
same "$(mb "$least"), smaller chunks, no prefetching" "$@" train.backend=cuda memory.device="$least" memory.host=1GB default_chunk_size=$other_chunk memory.prefetch=0
same 'activations again' "$@" train.backend=cuda memory.device="$peak" memory.host=1GB activation_checkpointing.enabled=true
same "$(mb "$least"), activations offloaded" "$@" train.backend=cuda memory.device="$least" memory.host=1GB activation_checkpointing.enabled=true client.opts.with_activation_offload=true
exit $failed
