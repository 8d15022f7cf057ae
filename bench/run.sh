#!/bin/sh
# Run the benchmarks of a build and keep what they print, with the commands and the machine, in bench/results/.
#
# usage: bench/run.sh BUILD_FOLDER [STEPS]        (`make bench` does: build/gcc-d0, 8 steps)
# DISK_FOLDER (build) is where chunks go on disk. PyTorch next to it: make bench-peers.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: bench/run.sh BUILD_FOLDER [STEPS]}
steps=${2:-8}
disk=${DISK_FOLDER:-build}
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
slug=$(printf '%s' "$cpu" | tr -cs 'A-Za-z0-9' '-' | sed 's/^-//; s/-$//')
result=bench/results/$(date -u +%Y-%m-%d)-$slug.md
failed=0

# section NAME TITLE COMMAND...: the command and its output, kept in $scratch/NAME
section() {
    name=$1 title=$2
    shift 2
    printf '%s ...\n' "$title" >&2
    "$@" >"$scratch/$name" 2>&1 || { failed=1; echo "failed: status $?" >>"$scratch/$name"; }
    {
        printf '\n## %s\n\n```\n$ %s\n' "$title" "$*"
        cat "$scratch/$name"
        printf '```\n'
    } >>"$scratch/sections"
}

# field NAME PATTERN COLUMN: a column of the first line that begins so
field() {
    [ -f "$scratch/$1" ] && awk -v p="$2" -v c="$3" 'index($0, p) == 1 { print $c; exit }' "$scratch/$1"
}

# row WHAT VALUE: a line of the summary, unless the value is missing
row() {
    printf '| %s | %s |\n' "$1" "${2:-not measured}"
}

load=$(cut -d ' ' -f 1-3 /proc/loadavg)
section step4 'Whole step and offloading, B = 4, T = 64' "$build/bench/bench_step" --offload "$steps" memory.disk_path="$disk"
section step1 'Whole step, B = 1, T = 1024' "$build/bench/bench_step" "$steps" train_micro_batch_size_per_gpu=1 \
    data.sequence_length=1024
# As root, and without binding, which would put a rank's threads on one core.
if command -v mpirun.openmpi >/dev/null && [ -e "$build/libpatrickstar_openmpi.so" ]; then
    section ranks 'Two ranks on this machine, GPT-2 with 4 layers' env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_mpi_yield_when_idle=1 PATRICKSTAR_PLUGIN_PATH="$build" \
        mpirun.openmpi -n 2 --oversubscribe --bind-to none "$build/bench/bench_ranks" 3 model.n_layer=4
fi
section adam 'Adam against memory' "$build/bench/bench_adam"
section checkpoint 'Checkpoints against plain files' "$build/bench/bench_checkpoint" "$disk"
section load 'Weights against plain files' "$build/bench/bench_load" "$disk" 5
section copy 'Copies between tiers' "$build/bench/bench_copy" "$disk"
section disk 'The disk tier beside fio' "$build/bench/bench_disk" "$disk"
section op 'Kernels' "$build/bench/bench_op"
section tokenize 'Text to tokens' "$build/bench/bench_tokenize"

ours=$(field step4 step 2)
{
    printf '# Benchmarks of %s\n\n' "$(date -u +%Y-%m-%d)"
    printf '| machine | |\n|---|---|\n'
    row processor "$cpu, $(nproc) cores"
    row memory "$(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo)"
    row kernel "$(uname -sr)"
    row compiler "$(${CC:-gcc} --version | head -n 1)"
    row commit "$(git describe --always --dirty 2>/dev/null)"
    row 'load before the run' "$load"
    printf '\nThe load should be near 0: others who compute at the same time make every figure below worse, and not equally.\n'
    printf '\n| measured | |\n|---|---|\n'
    row 'step, B = 4, T = 64, median' "${ours:+$ours s}"
    row 'step, B = 1, T = 1024, median' "$(field step1 step 2 | sed 's/$/ s/')"
    row 'Adam / read-modify-write stream, same bytes' "$(sed -n 's/^adam runs at \([0-9.]*\).*/\1/p' "$scratch/adam" | tail -n 1)"
    row '1/4 device, rest in host (+ 1/32 of the need) / all in memory' "$(field step4 '1/4 device, rest in host ' 8)"
    row '1/4 device, rest on disk / all in memory' "$(field step4 '1/4 device, rest on disk ' 8)"
    row '2 ranks: talking a step, and of it exposed, groups gathered ahead' "$(field ranks 'groups, ahead ' 6 | sed 's/$/ s/'), $(field ranks 'groups, ahead ' 8 | sed 's/$/ s/')"
    row 'the same, gathered when they are needed' "$(field ranks 'groups, when needed ' 7 | sed 's/$/ s/'), $(field ranks 'groups, when needed ' 9 | sed 's/$/ s/')"
    row 'checkpoint: save / plain write and fsync' "$(field checkpoint 'save ' 8)"
    row 'checkpoint: load / plain read' "$(field checkpoint 'load ' 8)"
    row 'disk / fio, 4.7 MB, as many reads as writes' "$(field disk '    4.72  both ' 9)"
    cat "$scratch/sections"
} >"$scratch/report"
mkdir -p bench/results && cp "$scratch/report" "$result" && cat "$scratch/report"
echo "kept in $result" >&2
exit $failed
