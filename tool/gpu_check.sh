#!/bin/sh
# Everything that a machine with a GPU of NVIDIA's can show, in ten minutes, what shows most first. The last line reads
# "N passed, N failed, N skipped"; exit status 0 when nothing failed.
#
# usage: tool/gpu_check.sh BUILD_FOLDER [LOG]
#        FAKE=1 tool/gpu_check.sh BUILD_FOLDER [LOG]
# BUILD_FOLDER is one of `make CUDA=1 gpu-tests`, or that of an archive of `make gpu-package`: nothing is compiled here. All output
# goes to LOG too (BUILD_FOLDER/gpu_check.log). What fails is run again, where each launch waits, and by compute-sanitizer. FAKE=1: over the
# fake driver and kernels on an emulator, with small sizes and few of the operators, to try the script and the programs.
#   GPU_CHECK_S   how long it may take in all; 540
#   PYTHON        an interpreter with PyTorch; python3
set -u
cd "$(dirname "$0")/.." || exit 2

# What is worth most stands first; each of JOBS processes takes every JOBSth of them, over one opened GPU.
operators='linear attention lm_loss layernorm adam embedding rope gelu cast dequantize grad_stats attention_cached rmsnorm swiglu elementwise fill pool
sgd lion relu tanh rmsnorm_rope head_loss own'
[ -z "${FAKE:-}" ] || operators='gelu cast fill own head_loss'

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)

# again COMMAND...: what has failed, so that the error names the kernel, and by a tool that names thread, address and line
again() {
    CUDA_LAUNCH_BLOCKING=1 timeout --foreground -k 5 60 "$@" 2>&1 | sed 's/^/again, where each launch waits: /'
    if [ -z "${FAKE:-}" ] && [ -n "$sanitizer" ]; then
        timeout --foreground -k 5 90 "$sanitizer" --tool memcheck --error-exitcode 9 --print-limit 3 "$@" 2>&1 | sed 's/^/sanitizer: /'
    fi
}

# try COMMAND...
try() {
    "$@"
    tried=$?
    case $tried in 0 | 77) ;; *) again "$@" ;; esac
    return $tried
}

# try_operators NAME...: after one that failed the rest by a new process
try_operators() {
    failed=0
    while [ $# -gt 0 ]; do
        "$build/test/gpu/ops" "$@" >"$results/operators.$$" 2>&1
        tried=$?
        cat "$results/operators.$$"
        [ $tried -ne 0 ] || break
        broken=$(sed -n 's/^== op //p' "$results/operators.$$" | tail -n 1)
        echo "FAILED: op ${broken:-$1}"
        failed=1
        again "$build/test/gpu/ops" "${broken:-$1}"
        while [ $# -gt 0 ] && [ "$1" != "${broken:-$1}" ]; do shift; done
        shift
    done
    return $failed
}

# ---- one part, as a process of its own: BUILD NAME ----
if [ "${1:-}" = --part ]; then
    build=$2 name=$3
    case $name in
    machine)
        uname -srm
        sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
        echo "$(nproc) processors"
        sed -n '/^Mem/p' /proc/meminfo | head -n 3
        ulimit -l | sed 's/^/locked memory at most: /'
        cat /sys/kernel/mm/transparent_hugepage/enabled
        echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
        if command -v nvidia-smi >/dev/null && [ -z "${FAKE:-}" ]; then
            nvidia-smi --query-gpu=index,name,driver_version,compute_cap,memory.total,memory.used,pcie.link.gen.max,pcie.link.width.max,ecc.mode.current,compute_mode,clocks.max.sm,power.limit --format=csv
            nvidia-smi topo -m | head -n 12
        fi
        "$gpu_pstar" info
        "$gpu_pstar" info | grep -q '^GPU .* can be used; driver' || { echo 'FAILED: there is no GPU that can be used'; exit 1; }
        ;;
    operators-cudnn)
        "$gpu_pstar" info | grep -q '^GPU .*attention by cuDNN' || { echo 'skipped: there is no cuDNN'; exit 77; }
        export PS_TEST_ATTENTION=cudnn
        try_operators attention
        ;;
    operators-*) # NUMBER/JOBS
        number=${name#*-} jobs=${name#*/}
        # shellcheck disable=SC2046,SC2086 # words
        try_operators $(echo $operators | tr ' ' '\n' | awk -v i="${number%/*}" -v n="$jobs" 'NR % n == i % n')
        ;;
    test\ *) try "$build/test/gpu/test_${name#test }" ;;
    training\ *)
        # shellcheck disable=SC2086 # model and format
        try sh test/gpu/check_training.sh "$gpu_pstar" "$build/pstar" ${name#training } ${FAKE:+small}
        ;;
    sanitizer\ *)
        [ -n "$sanitizer" ] || { echo 'skipped: there is no compute-sanitizer'; exit 77; }
        [ -z "${FAKE:-}" ] || { echo 'skipped: there is no GPU'; exit 77; }
        exec "$sanitizer" --tool "${name#sanitizer }" --error-exitcode 9 --print-limit 20 "$build/test/gpu/test_each_kernel"
        ;;
    rates)
        folder=$(mktemp -d -p "${TMPDIR:-/tmp}") || exit 2
        trap 'rm -rf "$folder"' EXIT
        "$gpu_pstar" info ${FAKE:+--quick --format bf16} --measure "$folder/hardware.json" --disk-path "$folder" || exit 1
        cat "$folder/hardware.json"
        grep -q '"gpus_per_node": 1' "$folder/hardware.json" || { echo 'FAILED: no GPU was measured'; exit 1; }
        [ -n "${FAKE:-}" ] || cp "$folder/hardware.json" "$build/gpu_hardware.json"
        "$gpu_pstar" plan examples/demo.json --hardware "$folder/hardware.json" memory.device=400MB memory.host=400MB
        ;;
    pytorch)
        library=${PATRICKSTAR_LIBRARY:-$folder/libpatrickstar.so}
        [ -f "$library" ] || { echo "skipped: there is no $library"; exit 77; }
        "${PYTHON:-python3}" -c 'import torch' 2>/dev/null || { echo 'skipped: there is no PyTorch (PYTHON names an interpreter)'; exit 77; }
        PATRICKSTAR_LIBRARY=$library exec "${PYTHON:-python3}" python/test/gpu_check.py
        ;;
    demo)
        # As make demo does; over the emulator a few steps of a small one.
        set -- train.backend=cuda
        [ -z "${FAKE:-}" ] || set -- "$@" train.steps=2 train_micro_batch_size_per_gpu=1 data.sequence_length=8 data.validation_split=0 \
            model.n_embd=32 model.n_layer=2 model.n_head=2 memory.device=40MB memory.host=20MB
        tokens=60
        [ -z "${FAKE:-}" ] || tokens=4
        output=$(mktemp -d -p "${TMPDIR:-/tmp}") || exit 2
        trap 'rm -rf "$output"' EXIT
        [ -n "${FAKE:-}" ] || set -- "$@" memory.device=160MiB
        "$gpu_pstar" train examples/demo.json "$@" "train.output_dir=$output" "memory.disk_path=$output" || exit 1
        "$gpu_pstar" generate examples/demo.json "$@" "train.output_dir=$output" "memory.disk_path=$output" --prompt 'Call me' --tokens $tokens
        ;;
    *) echo "FAILED: no part '$name'"; exit 2 ;;
    esac
    exit
fi

# ---- all ----

. tool/gpu_lib.sh
build=${1:?usage: tool/gpu_check.sh BUILD_FOLDER [LOG]}
log=${2:-$build/gpu_check.log}
limit_s=${GPU_CHECK_S:-540}
begin=$(date +%s)
results=$(mktemp -d) || exit 2
trap 'rm -rf "$results"' EXIT
trap 'exit 1' HUP INT TERM
export PSTAR_HARDWARE=none XDG_CACHE_HOME="$results/cache" results log
folder=$(cd "$build" && pwd) || exit 2
if [ -n "${FAKE:-}" ]; then
    gpu_pstar=$build/test/gpu/pstar
    unset PS_TEST_GPU
else
    gpu_pstar=$build/pstar
    export PS_TEST_GPU=hardware PATRICKSTAR_PLUGIN_PATH="$folder"
fi
export gpu_pstar folder
[ -n "${FAKE:-}" ] || find_cuda_libraries
: >"$log" || exit 2
for program in "$build/pstar" "$gpu_pstar" "$build/test/gpu/test_each_kernel" "$build/test/gpu/ops"; do
    [ -x "$program" ] || { echo "$program is missing: make CUDA=1 gpu-tests" >&2; exit 2; }
done

# Of all groups of tests in a log together; nothing where there is none.
count() { sed -n "s/^\[  $2 *\] \([0-9]*\) test(s).*/\1/p" "$1" | awk '{ n += $1 } END { if (NR) print n }'; }

# part SECONDS NAME: at most so long, and no longer than there is time; its output to the log in one piece
part() {
    own_s=$1 name=$2
    left_s=$((limit_s - ($(date +%s) - begin)))
    out=$results/$(echo "$name" | tr ' /' '__')
    if [ "$left_s" -le 0 ]; then
        echo "0 0 1" >"$out.counts"
        printf 'skip  %-28s %s\n' "$name" "$why_skipped" | tee -a "$results/summary"
        return
    fi
    is_cut=
    [ "$own_s" -le "$left_s" ] || own_s=$left_s is_cut=1
    part_begin=$(date +%s)
    timeout -k 5 "$own_s" sh tool/gpu_check.sh --part "$build" "$name" >"$out" 2>&1
    rc=$?
    took_s=$(($(date +%s) - part_begin))
    case $name in
    sanitizer*) # of containers it may not know the device
        if [ "$rc" -ne 0 ] && grep -q 'Device not supported' "$out"; then
            echo 'skipped: compute-sanitizer does not support this device' >>"$out"
            rc=77
        fi
        ;;
    esac
    p=$(count "$out" PASSED) s=$(count "$out" SKIPPED) f=$(count "$out" FAILED)
    p=${p:-0} s=${s:-0} f=${f:-0}
    p=$((p > s ? p - s : 0)) # cmocka 1.1 counts skipped tests as passed
    case $rc in
    0) [ $((p + s + f)) -gt 0 ] || p=1 ;;
    77) p=0 s=1 f=0 ;;
    124 | 137) # the end of all is no failure of the part that ran then
        if [ -n "$is_cut" ] && [ "$f" -eq 0 ] && ! grep -qE '^(\[  FAILED|FAILED)' "$out"; then s=1; else [ "$f" -gt 0 ] || f=1; fi
        ;;
    *) [ "$f" -gt 0 ] || f=1 ;;
    esac
    why=
    [ "$rc" -ne 124 ] && [ "$rc" -ne 137 ] || why=", ended after $own_s s${is_cut:+: the time is over}"
    echo "$p $f $s" >"$out.counts"
    word=ok
    if [ "$f" -gt 0 ]; then word=FAIL; elif [ "$p" -eq 0 ]; then word=skip; fi
    {
        printf '%-5s %-28s %4s s   %s passed, %s failed, %s skipped%s\n' "$word" "$name" "$took_s" "$p" "$f" "$s" "$why"
        if [ "$word" = FAIL ]; then
            {
                grep -m 12 -E '^FAILED: |ERROR' "$out"
                grep -m 12 -E '^again, .*(FAILED: |ERROR)|^sanitizer: =+ +(Invalid|Address|by thread|at )' "$out"
                echo ...
                tail -n 12 "$out"
            } | tr -d '\000' | sed 's/^/      /'
        else
            grep -E '^(skipped|not tried): |^GPU .*|within .* of the processor|^speed: |within .* of plain PyTorch' "$out" | sed 's/^/      /'
        fi
    } >"$out.said"
    cat "$out.said" # in one piece
    cat "$out.said" >>"$results/summary"
    {
        printf '\n==== %s (%s s, status %s)\n' "$name" "$took_s" "$rc"
        tr -d '\000' <"$out"
    } >>"$log"
}

# parts SECONDS JOBS NAME...: several at once
parts() {
    each_s=$1 jobs=$2 n=0
    shift 2
    for one; do
        (part "$each_s" "$one") &
        n=$((n + 1))
        [ $((n % jobs)) -ne 0 ] || wait
    done
    wait
}

why_skipped='the time is over'
jobs=$(nproc)
jobs=$((jobs > 16 ? 8 : jobs > 3 ? jobs / 2 : 1))
part 60 machine
if grep -q '^FAILED: there is no GPU' "$results/machine"; then
    limit_s=0 why_skipped='there is no GPU' # one failure says it
    parts 1 1 'test each_kernel' 'test gpu_device' 'test gpu_engine' rates demo
elif [ -n "${FAKE:-}" ]; then
    parts 150 1 'test each_kernel' 'test gpu_device' operators-1/2 operators-2/2 'training gpt2 bf16' 'training llama f32' \
        'sanitizer memcheck' pytorch rates demo
else
    part 60 'test each_kernel'
    part 90 'test gpu_device'
    # shellcheck disable=SC2046 # words
    parts 200 $((jobs + 1)) $(seq -f "operators-%.0f/$jobs" "$jobs") operators-cudnn
    part 120 'test gpu_engine'
    part 180 'training gpt2 f32'
    part 180 'training gpt2 bf16'
    part 120 pytorch
    part 120 rates
    part 90 demo
    part 90 'sanitizer memcheck'
    part 90 'training llama f32'
    part 90 'training bert bf16'
    part 90 'sanitizer racecheck'
    part 90 'training llama bf16'
    part 90 'training bert f32'
    part 180 'training gpt2 fp16'
    part 60 'sanitizer synccheck'
    part 60 'sanitizer initcheck'
fi

{
    printf '\n'
    cat "$results/summary"
    printf 'in %s s; all of it: %s\n' "$(($(date +%s) - begin))" "$log"
} >>"$log"
printf 'in %s s; all of it: %s\n' "$(($(date +%s) - begin))" "$log"
cat "$results"/*.counts | awk '
    { p += $1; f += $2; s += $3 }
    END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit !(f == 0 && p > 0) }' | tee -a "$log"
# the status of a pipe's first command is lost
tail -n 1 "$log" | grep -q '^[1-9][0-9]* passed, 0 failed'
