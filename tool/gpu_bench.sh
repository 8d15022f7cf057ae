#!/bin/sh
# How fast training is on this machine's GPU, against PyTorch and what the machine allows: one of three tables, in ten minutes
# at most. bench/README.md says what the columns mean.
#
# usage: tool/gpu_bench.sh PART BUILD_FOLDER [OUT.md]
#        FAKE=1 tool/gpu_bench.sh PART BUILD_FOLDER [OUT.md]
# PART  resident   models that the GPU holds, in turns with PyTorch; then single operators
#       offloaded  the shape of a 13B model with host memory, exact clipping, 32768 tokens a step
#       largest    two steps of the largest model that the planner finds for this machine
# BUILD_FOLDER is one of `make CUDA=1 gpu-bench-programs`, or that of an archive of `make gpu-package`: nothing is compiled here. The table is written again after each of its rows, to OUT.md (BUILD_FOLDER/gpu_bench_PART.md), so a run that is ended
# leaves what it had; all output goes with it, to *.log. FAKE=1: over the fake driver and kernels on an emulator, with
# tiny models, to try the script and the programs.
#   GPU_BENCH_S   how long it may take in all; 570
#   PYTHON        an interpreter whose PyTorch takes part; python3. Where it has none, the table says so. With FAKE=1 what stands for one
#   HOST_BYTES    host memory for `offloaded` and `largest`; 85 % of what is available
set -u
cd "$(dirname "$0")/.." || exit 2
. tool/gpu_lib.sh
part=${1:?usage: tool/gpu_bench.sh PART BUILD_FOLDER [OUT.md]}
build=${2:?usage: tool/gpu_bench.sh PART BUILD_FOLDER [OUT.md]}
case $part in resident | offloaded | largest) ;; *) echo "PART '$part' is none of resident, offloaded, largest" >&2; exit 2 ;; esac
out=${3:-$build/gpu_bench_$part.md}
log=${out%.md}.log
fake=${FAKE:-}
limit_s=${GPU_BENCH_S:-570}
python=${PYTHON:-python3}
begin=$(date +%s)
work=$(mktemp -d -p "${TMPDIR:-/tmp}") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
export PSTAR_HARDWARE=none XDG_CACHE_HOME="$work/cache" TORCHINDUCTOR_CACHE_DIR="$work/inductor"
if [ -n "$fake" ]; then
    pstar=$build/test/gpu/pstar bench_op=$build/test/gpu/bench_op
    unset PS_TEST_GPU
else
    pstar=$build/pstar bench_op=$build/bench/bench_op
    case $build in
    /*) export PATRICKSTAR_PLUGIN_PATH="$build" ;;
    *) export PATRICKSTAR_PLUGIN_PATH="$PWD/$build" ;;
    esac
    find_cuda_libraries
fi
row=$build/bench/gpu_row
for program in "$pstar" "$bench_op" "$row"; do
    [ -x "$program" ] || { echo "$program is missing: make CUDA=1 gpu-bench-programs" >&2; exit 2; }
done
: >"$log" || exit 2
mkdir "$work/rows" "$work/cache"
failed=0

# ---- the table ----

left_s() { echo $((limit_s - ($(date +%s) - begin))); }

# note TEXT: a line below the table
note() {
    printf '%s\n' "- $*" >>"$work/notes"
    echo "$*" >&2
}

# write_out: what there is so far
write_out() {
    {
        cat "$work/head"
        "$row" --head
        cat "$work"/rows/* 2>/dev/null
        [ ! -f "$work/notes" ] || { echo; cat "$work/notes"; }
        for section in "$work"/section_*; do [ ! -f "$section" ] || { echo; cat "$section"; }; done
        printf '\n%s s of at most %s.\n' "$(($(date +%s) - begin))" "$limit_s"
    } >"$work/out" && cp "$work/out" "$out"
}

# fail TEXT: a note of what did not go as it should
fail() {
    note "FAILED: $*"
    failed=1
}

# limited SECONDS COMMAND...: at most so long, and no longer than there is time; output to the log. What failed it with is in $why.
limited() {
    most_s=$1
    shift
    left=$(left_s)
    [ "$left" -gt 5 ] || { why='the time is over'; return 1; }
    [ "$most_s" -le "$left" ] || most_s=$left
    printf '\n==== %s\n' "$*" >>"$log"
    timeout -k 5 "$most_s" "$@" >"$work/said" 2>&1 </dev/null
    status=$?
    tr -d '\000' <"$work/said" >>"$log"
    why=
    [ "$status" -ne 0 ] || return 0
    why=$(grep -v '^ *$' "$work/said" | tail -n 1 | tr '|\n' '  ' | cut -c 1-200 | sed 's/ *$//')
    [ "$status" -ne 124 ] && [ "$status" -ne 137 ] || why="ended after $most_s s"
    return 1
}

# ---- the machine ----

# JSON with a key a line: the first value of it
json_value() { sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" "$1" | head -n 1; }

write_head() {
    {
        printf '# Training on a GPU, %s, %s\n\n' "$part" "$(date -u +%Y-%m-%d)"
        [ -z "$fake" ] || printf '**Over the fake driver, with kernels on an emulator and tiny models: none of these times says anything of a GPU.**\n\n'
        printf '| machine | |\n|---|---|\n'
        printf '| GPU | %s |\n' "$("$pstar" info 2>/dev/null | sed -n 's/^GPU  *//p' | tr '|' '/')"
        if [ -z "$fake" ] && command -v nvidia-smi >/dev/null; then
            printf '| driver, link, limits | %s |\n' "$(nvidia-smi --query-gpu=driver_version,pcie.link.gen.max,pcie.link.width.max,power.limit,clocks.max.sm --format=csv,noheader | head -n 1)"
        fi
        printf '| processor | %s, %s processors |\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
        printf '| memory | %s |\n' "$(awk '/^MemTotal/ { t = $2 } /^MemAvailable/ { a = $2 } END { printf "%.1f GiB, %.1f available", t / 1048576, a / 1048576 }' /proc/meminfo)"
        printf '| pstar | %s, commit %s |\n' "$("$pstar" info 2>/dev/null | sed -n 's/^pstar  *//p')" "$(git describe --always --dirty 2>/dev/null || cat "$build/commit" 2>/dev/null || echo unknown)"
        printf '| PyTorch | %s |\n' "$torch"
        printf '| command | `%stool/gpu_bench.sh %s %s` |\n' "${fake:+FAKE=1 }" "$part" "$build"
        printf '| probe | %s |\n\n' "$probed"
        printf 'MFU: (6 N + 6 L C T) tokens/s / the data sheet'"'"'s 16-bit products (H100 SXM, H200: 989.5 TFLOP/s); what is computed again does not count.\n'
        printf 'Roofline: what a step takes at least by the rates of the probe (bench/roofline.h): large products / products as in a step.\n\n'
    } >"$work/head"
}

torch=$("$python" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else "", sep="|")' 2>/dev/null)
can_peer=
case $torch in
'') torch="not tried: $python has none" ;;
*\|) torch="not tried: ${torch%|} sees no GPU" ;;
*) torch=${torch%%|*} can_peer=1 ;;
esac
[ -z "$fake" ] || [ -n "${PYTHON:-}" ] || { can_peer='' torch='not tried: there is no GPU'; }

# The rates with which this run is planned and judged.
probe=$work/hardware.json
probed='not yet'
write_head
write_out
# shellcheck disable=SC2046 # words
limited 120 "$pstar" info --backend cuda --format bf16 $([ -z "$fake" ] || echo --quick) --measure "$probe" --disk-path "$work" || {
    echo "FAILED: the machine cannot be measured: $why" | tee -a "$log" >&2
    exit 1
}
giga() { awk -v x="${1:-0}" 'BEGIN { printf "%.4g", x * 1e-9 }'; }
probed="bf16 products $(awk -v x="$(json_value "$probe" flop_per_s)" 'BEGIN { printf "%.4g", x * 1e-12 }') TFLOP/s, GPU memory $(giga "$(json_value "$probe" memory_bytes_per_s)") GB/s, host memory $(giga "$(sed -n '/"host"/,$p' "$probe" | sed -n 's/^ *"memory_bytes_per_s": *\([^,]*\),*$/\1/p' | head -n 1)") GB/s, link $(giga "$(json_value "$probe" to_device_bytes_per_s)") GB/s to the GPU and $(giga "$(json_value "$probe" to_host_bytes_per_s)") from it, both ways at once $(giga "$(json_value "$probe" to_device_both_ways_bytes_per_s)") and $(giga "$(json_value "$probe" to_host_both_ways_bytes_per_s)")"
write_head
write_out

# Random tokens below 50000.
LC_ALL=C awk -v n="$([ -n "$fake" ] && echo 4000 || echo 2000000)" -v most="$([ -n "$fake" ] && echo 200 || echo 50000)" \
    'BEGIN { srand(17); for (i = 0; i < n; i++) { t = int(rand() * most); printf "%c%c", t % 256, int(t / 256) } }' >"$work/tokens.u16"

# Of kernels on an emulator.
tiny() {
    [ -n "$fake" ] || return 0
    echo model.hidden_size=32 model.num_hidden_layers=2 model.num_attention_heads=2 model.vocab_size=256 model.max_position_embeddings=16 \
        data.sequence_length=16 train_micro_batch_size_per_gpu=1
    grep -q '"gpt2"' "$1" || echo model.num_key_value_heads=1 model.intermediate_size=64
}

# ---- ours and the peer ----

# plan CASE CONFIG KEY=VALUE...: as it will run
plan() {
    name=$1
    config=$2
    shift 2
    if ! limited 60 "$pstar" plan "$config" --json --no-advice "$@"; then
        refusal=$(sed -n 's/^ *"refusal": "\(.*\)".*/\1/p' "$work/said")
        [ -z "$refusal" ] || why=$refusal
        return 1
    fi
    cp "$work/said" "$work/$name.plan"
}

# ours CASE ROUND SECONDS CONFIG KEY=VALUE...
ours() {
    name=$1 round=$2 own_s=$3 config=$4
    shift 4
    run=$work/$name.run$round
    limited "$own_s" "$pstar" train "$config" "$@" "train.output_dir=$run"
    status=$?
    # of a run that was ended its steps count, of one that failed none
    n_done=$(grep -c step_s "$run/metrics.jsonl" 2>/dev/null)
    case $status$why in
    0* | *'ended after'*) [ "${n_done:-0}" -lt 2 ] || echo "--run $run" >>"$work/$name.made" ;;
    esac
    return $status
}

# peer CASE ROUND SECONDS CONFIG KIND STEPS KEY=VALUE...
peer() {
    name=$1 round=$2 own_s=$3 config=$4 kind=$5 n_steps=$6
    shift 6
    limited "$own_s" "$python" bench/gpu_peer.py "$config" "$kind" "$n_steps" "$work/$name.$kind.$round" "$@" || return 1
    echo "--peer PyTorch,$kind $work/$name.$kind.$round" >>"$work/$name.made"
}

# fails CASE WHO: with $why
fails() {
    name=$1
    printf '%s\n%s\n' "$2" "$why" >"$work/$name.failed_$(echo "$2" | tr -c 'A-Za-z0-9\n' _)"
    echo "$name, $2: $why" >&2
    failed=1
}

# show NUMBER CASE CONFIG KEY=VALUE...: its rows
show() {
    number=$1 name=$2 config=$3
    shift 3
    # shellcheck disable=SC2046 # words without spaces
    set -- "$@" $(cat "$work/$name.made" 2>/dev/null)
    for file in "$work/$name".failed_*; do
        [ -f "$file" ] || continue
        set -- "$@" --failed "$(sed -n 1p "$file")" "$(sed -n 2p "$file")"
    done
    "$row" "$name" "$work/$name.plan" "$probe" "$config" "$@" >"$work/rows/$number" 2>>"$log" || { failed=1; echo "$name: no row, see $log" >&2; }
    write_out
}

common="train.backend=cuda hardware=$probe data.train=$work/tokens.u16 data.format=nanogpt memory.disk_path=$work"
steps=8
[ -z "$fake" ] || steps=5

# ---- resident ----

# Those that tell most first; with the seconds that a run may take, and host memory for what has no place while a run begins.
# On an emulator the host updates faster than the device, so there it has no room for that.
cases() {
    [ -z "$fake" ] || { printf '%s 60 200KB\n' qwen2-1.5b gpt2-124m qwen2-7b; return; }
    cat <<'CASES'
qwen2-1.5b 70 4GB
gpt2-124m 50 4GB
qwen2-0.5b 50 4GB
gpt2-1.5b 70 4GB
qwen2-7b 140 40GB
CASES
}

# arguments CONFIG HOST
# shellcheck disable=SC2046,SC2086 # several words
arguments() {
    echo $common memory.device=auto "memory.host=$2" $(tiny "$1") train.steps=$steps
}

# is_held CASE: by the GPU, as planned: next to nothing moves in a step
is_held() {
    moved=$(sed -n '/"host->device": {/,/}/s/^ *"bytes": *\([0-9]*\).*/\1/p' "$work/$1.plan" | head -n 1)
    awk -v m="$moved" -v all="$(json_value "$work/$1.plan" model_data_bytes)" 'BEGIN { exit !(m <= all / 20) }' && return 0
    why="the GPU does not hold it: $moved bytes would move in each step"
    return 1
}

# peer_turn CASE ROUND SECONDS: compiled, or, where that fails the first time, not compiled
peer_turn() {
    if [ ! -f "$work/$1.eager" ]; then
        # compiling takes a minute, the first time
        # shellcheck disable=SC2046 # words
        ! peer "$1" "$2" $(($3 + 90)) "bench/gpu/$1.json" autocast+compile 5 $(tiny "bench/gpu/$1.json") || return 0
        fails "$1" 'PyTorch,autocast+compile'
        [ "$2" = 1 ] || return 0
        : >"$work/$1.eager"
    fi
    # shellcheck disable=SC2046 # words
    peer "$1" "$2" "$3" "bench/gpu/$1.json" autocast 5 $(tiny "bench/gpu/$1.json") || fails "$1" 'PyTorch,autocast'
}

# Ours before and after the peer.
resident() {
    cases >"$work/cases"
    number=10
    while read -r case seconds host; do
        number=$((number + 1))
        config=bench/gpu/$case.json
        # shellcheck disable=SC2046 # words
        set -- $(arguments "$config" "$host")
        [ "$(left_s)" -gt 30 ] || { note "$case: not run: the time is over"; continue; }
        if ! plan "$case" "$config" "$@" || ! is_held "$case"; then
            note "$case: not run: $why"
            write_out
            continue
        fi
        ours "$case" 1 "$seconds" "$config" "$@" || fails "$case" ours
        show "$number" "$case" "$config" "$@"
        [ -n "$can_peer" ] || continue
        peer_turn "$case" 1 "$seconds"
        show "$number" "$case" "$config" "$@"
        ours "$case" 2 "$seconds" "$config" "$@" || fails "$case" ours
        show "$number" "$case" "$config" "$@"
    done <"$work/cases"
    # shellcheck disable=SC2046 # words
    if limited 90 "$bench_op" --backend cuda --hardware "$probe" $([ -n "$fake" ] && echo --small 1 || echo 7); then
        { printf '## Operators\n\n'; cat "$work/said"; } >"$work/section_op"
    else
        fail "operators: $why"
    fi
    write_out
    [ -n "$can_peer" ] || return 0
    number=10
    while read -r case seconds host; do
        number=$((number + 1))
        [ -f "$work/$case.made" ] && [ "$(left_s)" -gt 60 ] || continue
        config=bench/gpu/$case.json
        # shellcheck disable=SC2046 # words
        set -- $(arguments "$config" "$host")
        peer_turn "$case" 2 "$seconds"
        show "$number" "$case" "$config" "$@"
    done <"$work/cases"
}

# ---- with host memory ----

host_bytes() {
    [ -z "${HOST_BYTES:-}" ] || { echo "$HOST_BYTES"; return; }
    awk '/^MemAvailable/ { printf "%.0f", 0.85 * $2 * 1024 }' /proc/meminfo
}
device_bytes() {
    awk '/"bytes"/ && !b { gsub(/[^0-9]/, ""); b = $0 } /"reserved_bytes"/ && !r { gsub(/[^0-9]/, ""); r = $0 } END { printf "%.0f", 0.98 * (b - r) }' "$probe"
}

offloaded() {
    config=bench/gpu/llama-13b.json
    host=$(host_bytes) device=auto
    [ -z "$fake" ] || host=100MB device=200KB
    # Both ways of keeping what checkpoints keep: the planner says which is faster; layers as many as fit.
    all=40
    for layers in 40 38 36 34 32 30 28 26 24 20 16; do
        best=
        for offload in true false; do
            # shellcheck disable=SC2046,SC2086 # several words
            set -- $common "memory.device=$device" "memory.host=$host" $(tiny "$config") "client.opts.with_activation_offload=$offload"
            [ -n "$fake" ] || set -- "$@" "model.num_hidden_layers=$layers"
            plan "13b-$offload" "$config" "$@" || continue
            seconds=$(sed -n '/"step": {/,/}/s/^ *"seconds": *\([^,]*\),*$/\1/p' "$work/13b-$offload.plan" | head -n 1)
            if [ -z "$best" ] || awk -v a="$seconds" -v b="$best" 'BEGIN { exit !(a < b) }'; then best=$seconds chosen=$offload; fi
        done
        [ -z "$best" ] || break
    done
    [ -n "$best" ] || { fail "not even 16 of 40 layers fit: $why"; return; }
    case=llama-13b
    mv "$work/13b-$chosen.plan" "$work/$case.plan"
    # shellcheck disable=SC2046,SC2086 # several words
    set -- $common "memory.device=$device" "memory.host=$host" $(tiny "$config") "client.opts.with_activation_offload=$chosen" train.steps=$steps
    [ -n "$fake" ] || set -- "$@" "model.num_hidden_layers=$layers"
    [ "$layers" = $all ] || note "$layers of $all layers: more do not fit $host bytes of host memory beside the GPU (85 % of what is available)"
    note "activation offload: $chosen, which is faster as planned; gradients are clipped exactly, at norm 1"
    show 1 "$case" "$config" "$@" # as planned, until it has run
    ours "$case" 1 400 "$config" "$@" || fails "$case" ours
    show 1 "$case" "$config" "$@"
}

largest() {
    config=bench/gpu/largest.json
    host=$(host_bytes) device=$(device_bytes)
    [ -z "$fake" ] || host=400MB device=60MB
    memory="memory.device=$device memory.host=$host"
    more=
    [ -z "$fake" ] || more='data.sequence_length=16 train_micro_batch_size_per_gpu=1'
    # shellcheck disable=SC2086 # several words
    limited 120 "$pstar" plan "$config" --hardware "$probe" --max-model gpt2 --json $memory $more || { fail "no largest model: $why"; return; }
    width=$(json_value "$work/said" hidden_size) layers=$(json_value "$work/said" layers) parameters=$(json_value "$work/said" parameters)
    [ "${parameters:-0}" -gt 0 ] || { fail 'no model fits'; return; }
    note "the largest GPT-2 that fits $device bytes of the GPU and $host of the host: $parameters parameters, $width wide, $layers layers (pstar plan --max-model gpt2)"
    heads=$((width / 128))
    if [ -n "$fake" ]; then
        width=32 layers=2 heads=1 more="$more model.vocab_size=256"
        note "run with $width columns and $layers layers, for the emulator"
    fi
    case=largest
    # The machine as it is now may have a little less than its description.
    for fewer in 0 1 2 3; do
        # shellcheck disable=SC2086 # several words
        set -- $common $memory $more model.hidden_size="$width" model.num_hidden_layers=$((layers - fewer)) model.num_attention_heads=$heads \
            model.max_position_embeddings="$([ -n "$fake" ] && echo 16 || echo 1024)" train.steps=2
        ! plan "$case" "$config" "$@" || break
        note "$((layers - fewer)) layers do not fit now: $why"
    done
    [ -f "$work/$case.plan" ] || { fail 'none of these fits'; return; }
    show 1 "$case" "$config" "$@"
    ours "$case" 1 420 "$config" "$@" || fails "$case" ours
    show 1 "$case" "$config" "$@"
    note 'two steps, of which the second counts'
}

case $part in
resident) resident ;;
offloaded) offloaded ;;
largest) largest ;;
esac
write_out
cat "$out"
echo "in $(($(date +%s) - begin)) s: $out, $log" >&2
exit $failed
