#!/bin/sh
# What ptxas says of the kernels for GPUs that build/cuda has for these architectures, and what test/cuda/kernel_limits.txt
# allows: registers of a thread, shared memory, and how many blocks a multiprocessor then has at once. Fails where a kernel goes
# beyond its limits or has none, where a limit has no kernel, where registers are spilled to memory, where an architecture
# cannot launch a kernel, and where a name is not among those of cuda_kernels.h.
#
# usage: [CC=gcc] tool/check_cuda.sh [--write] ARCHITECTURE...   (of 80 90 100 120)
# --write: writes the limits again, as the compiler has them now, and needs all four architectures. What stands under `dynamic` stays.
# LIMITS names another file of limits, IMAGES another folder than build/cuda.
set -u
cd "$(dirname "$0")/.." || exit 2
limits=${LIMITS:-test/cuda/kernel_limits.txt}
images=${IMAGES:-build/cuda}
write=0
if [ "${1:-}" = --write ]; then
    write=1
    shift
    [ "$*" = '80 90 100 120' ] || { echo "$limits is written for sm_80, sm_90, sm_100 and sm_120 together, not for: $*" >&2; exit 2; }
fi
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
[ "$write" = 1 ] || [ -f "$limits" ] || { echo "$limits does not exist: make cuda TABLE=write" >&2; exit 2; }
[ -f "$limits" ] && cp "$limits" "$folder/limits"

# "symbol:threads" of the header's lists, by the preprocessor.
${CC:-gcc} -E -P -Iinclude -Isrc -x c - <<'EOT' | tr ' ' '\n' | grep '^ps_gpu_' >"$folder/kernels"
#include "kernel/cuda/cuda_kernels.h"
#define XX(symbol, args, threads) symbol:threads
#include "kernel/cuda/cuda_kernels.def"
EOT

for arch; do
    echo "architecture $arch"
    cat "$images"/*."$arch".cubin.ptxas
done | awk -v folder="$folder" -v limits="$limits" -v write="$write" '
    function number(before, after) {
        if (!match($0, before "[0-9]+" after)) return 0
        value = substr($0, RSTART, RLENGTH)
        gsub(/[^0-9]/, "", value)
        return value + 0
    }
    function wrong(text) { print text >"/dev/stderr"; bad = 1 }
    function up(n, unit) { return int((n + unit - 1) / unit) * unit }
    function least(a, b) { return a < b ? a : b }
    # The kernel without what its arrays are of: its line of the limits.
    function base_of(symbol) {
        sub(/^ps_gpu_/, "", symbol)
        while (sub(/_(f32|bf16|f16)$/, "", symbol)) {}
        return symbol
    }
    # Blocks at once, of 65536 registers, given out to warps in units of 256, and to four warps at a time; 1 KiB of a block'\''s shared memory is
    # the system'\''s. Table "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide, CUDA 13; units of the
    # occupancy calculator.
    function blocks_of(arch, threads, registers, shared,    warps, n) {
        if (shared > shared_block_max[arch]) return 0
        warps = up(threads, 32) / 32
        n = int(int(65536 / up(registers * 32, 256) / 4) * 4 / warps)
        n = least(n, int(int(threads_max[arch] / 32) / warps))
        n = least(n, blocks_max[arch])
        return least(n, int(shared_max[arch] / up(shared + 1024, 128)))
    }
    BEGIN {
        n_arch = split("80 90 100 120", archs, " ")
        for (i = 1; i <= n_arch; i++) {
            threads_max[archs[i]] = 2048; blocks_max[archs[i]] = 32; shared_max[archs[i]] = 228 * 1024
        }
        shared_max[80] = 164 * 1024
        threads_max[120] = 1536; blocks_max[120] = 24; shared_max[120] = 100 * 1024
        for (i = 1; i <= n_arch; i++) shared_block_max[archs[i]] = shared_max[archs[i]] - 1024
        while ((getline line <(folder "/kernels")) > 0) {
            split(line, part, ":")
            threads_of[part[1]] = part[2]
            base = base_of(part[1])
            if (!(base in is_base)) { is_base[base] = 1; bases[++n_bases] = base }
        }
        while ((getline line <(folder "/limits")) > 0) {
            if (line ~ /^ *(#|$)/) continue
            n = split(line, part, " ")
            if (n != 8) { wrong(limits ": 8 columns are expected: " line); continue }
            if (part[1] in has_limits) wrong(limits ": " part[1] " stands there twice")
            has_limits[part[1]] = 1
            registers_most[part[1]] = part[2]; fixed_most[part[1]] = part[3]; dynamic[part[1]] = part[4]
            for (i = 1; i <= n_arch; i++) blocks_least[part[1], archs[i]] = part[4 + i]
        }
        if (!write) for (base in has_limits) if (!(base in is_base)) wrong(limits ": there is no kernel " base ": make cuda TABLE=write")
        if (!write) for (base in is_base) if (!(base in has_limits)) wrong(limits ": the kernel " base " has no line: make cuda TABLE=write")
    }
    /^architecture / {
        arch = $2
        if (!(arch in threads_max)) { wrong("sm_" arch ": its multiprocessor is not known to tool/check_cuda.sh"); exit }
        tried[++n_tried] = arch
        if (!write) printf "%-43s registers   shared  dynamic   blocks  spilled\n", "sm_" arch
    }
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; spilled = 0 }
    /bytes spill stores/ { spilled = number("", " bytes spill stores") + number("", " bytes spill loads") }
    /: Used [0-9]+ registers/ {
        registers = number("Used ", " registers"); fixed = number("", " bytes smem")
        base = base_of(kernel)
        if (!(kernel in threads_of)) { wrong(kernel ": not in cuda_kernels.h"); next }
        seen[kernel, arch] = 1
        blocks = blocks_of(arch, threads_of[kernel], registers, fixed + dynamic[base])
        if (!write) printf "%-43s %9d %8d %8d %8d %8d\n", kernel, registers, fixed, dynamic[base], blocks, spilled
        if (spilled) wrong(kernel ": registers of sm_" arch " do not suffice: " spilled " bytes are spilled")
        if (blocks == 0)
            wrong(kernel ": cannot be launched on sm_" arch ": " fixed + dynamic[base] " bytes of shared memory, and a block has " \
                shared_block_max[arch] " at most")
        if (!(base in found_registers) || up(registers, 8) > found_registers[base]) found_registers[base] = up(registers, 8)
        if (!(base in found_fixed) || fixed > found_fixed[base]) found_fixed[base] = fixed
        if (!((base, arch) in found_blocks) || blocks < found_blocks[base, arch]) found_blocks[base, arch] = blocks
        if (write || !(base in has_limits)) next
        if (up(registers, 8) > registers_most[base])
            wrong(kernel ": " registers " registers on sm_" arch ", " limits " allows " registers_most[base])
        if (fixed > fixed_most[base])
            wrong(kernel ": " fixed " bytes of shared memory of fixed size on sm_" arch ", " limits " allows " fixed_most[base])
        if (blocks < blocks_least[base, arch])
            wrong(kernel ": " blocks " blocks at once on sm_" arch ", " limits " wants " blocks_least[base, arch])
    }
    END {
        if (n_tried == 0) wrong("no architecture was named")
        for (i = 1; i <= n_tried; i++)
            for (kernel in threads_of)
                if (!((kernel, tried[i]) in seen)) wrong("sm_" tried[i] ": " kernel " is missing")
        if (!write) exit bad
        if (bad) { print limits " is left as it was" >"/dev/stderr"; exit 1 }
        out = folder "/written"
        print "# What the kernels for GPUs may take, and how many blocks a multiprocessor has of them at once; checked by" >out
        print "# tool/check_cuda.sh (`make cuda`, of sm_90 `make test`) and written by `make cuda TABLE=write`, but for `dynamic`." >out
        print "#   registers   at most, of a thread; of any number format and architecture; in the units of 8 in which they are given out" >out
        print "#   fixed       bytes of shared memory of fixed size, at most" >out
        print "#   dynamic     bytes of shared memory that the host asks for, at most: by hand; tests over the emulator hold launches to it" >out
        print "#   sm_*        blocks at once, at least" >out
        printf "%-22s %9s %6s %8s %6s %6s %6s %6s\n", "# kernel", "registers", "fixed", "dynamic", "sm_80", "sm_90", "sm_100", "sm_120" >out
        for (i = 1; i <= n_bases; i++) {
            base = bases[i]
            printf "%-22s %9d %6d %8d", base, found_registers[base], found_fixed[base], dynamic[base] >out
            for (a = 1; a <= n_arch; a++) printf " %6d", found_blocks[base, archs[a]] >out
            printf "\n" >out
        }
    }' || exit 1
[ "$write" = 0 ] || cp "$folder/written" "$limits"
