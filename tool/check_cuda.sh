#!/bin/sh
# What ptxas says of the kernels for GPUs that build/cuda has for these architectures, as a table: registers of a thread,
# shared memory of fixed size, bytes that registers spill to memory. Fails where a kernel spills, or where its name is not
# among those of cuda_kernels.h.
#
# usage: [CC=gcc] tool/check_cuda.sh ARCHITECTURE...   (90 ...)
set -u
cd "$(dirname "$0")/.." || exit 2
names=$(mktemp)
trap 'rm -f "$names"' EXIT

# The lists of the header, by the preprocessor.
${CC:-gcc} -E -P -Iinclude -Isrc -x c - <<'EOT' | tr ' ' '\n' | grep '^ps_gpu_' | sort >"$names"
#include "kernel/cuda/cuda_kernels.h"
#define XX(symbol, args, threads) symbol
#include "kernel/cuda/cuda_kernels.def"
EOT

bad=0
for arch; do
    cat build/cuda/*."$arch".cubin.ptxas | awk -v arch="$arch" -v names="$names" '
        function number(before, after) {
            if (!match($0, before "[0-9]+" after)) return 0
            value = substr($0, RSTART, RLENGTH)
            gsub(/[^0-9]/, "", value)
            return value + 0
        }
        BEGIN {
            while ((getline line <names) > 0) { n_missing++; expected[line] = 1 }
            printf "%-43s registers   shared   spilled\n", "sm_" arch
        }
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
        /bytes spill stores/ { spilled = number("", " bytes spill stores") + number("", " bytes spill loads") }
        /: Used [0-9]+ registers/ {
            printf "%-43s %9d %8d %9d\n", kernel, number("Used ", " registers"), number("", " bytes smem"), spilled
            if (spilled) { print kernel ": registers of sm_" arch " do not suffice" >"/dev/stderr"; bad = 1 }
            if (!(kernel in expected)) { print kernel ": not in cuda_kernels.h" >"/dev/stderr"; bad = 1 }
            n_missing--
        }
        END {
            if (n_missing != 0) { print "sm_" arch ": " n_missing " kernels are missing" >"/dev/stderr"; bad = 1 }
            exit bad
        }' || bad=1
done
exit $bad
