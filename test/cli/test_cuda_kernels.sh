#!/bin/sh
# What the kernels for GPUs may take is checked: by reports that are made up here, of which each breaks one rule; then, where there is
# nvcc, by those of the compiler.
# usage: test/cli/test_cuda_kernels.sh BUILD_FOLDER
set -u
. test/cli/skip_lib.sh
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}
kernels=$(printf '#include "kernel/cuda/cuda_kernels.h"\n#define XX(symbol, args, threads) symbol\n#include "kernel/cuda/cuda_kernels.def"\n' |
    ${CC:-gcc} -E -P -Iinclude -Isrc -x c - | tr ' ' '\n' | grep '^ps_gpu_')
# reports ARCH: every kernel with 40 registers, 16 bytes of shared memory and nothing spilled
reports() {
    for kernel in $kernels; do
        echo "ptxas info    : Compiling entry function '$kernel' for 'sm_$1'"
        echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
        echo "ptxas info    : Used 40 registers, used 1 barriers, 16 bytes smem"
    done >"$work/all.$1.cubin.ptxas"
}
check() { IMAGES=$work LIMITS=$work/limits sh tool/check_cuda.sh "$@" >"$work/out" 2>&1; }
passes() { check "$@" || { tail -n 5 "$work/out"; fail "check_cuda.sh $* of sound reports"; }; }
# refuses WORDS: sm_90, with these words
refuses() {
    ! check 90 || fail "passed, where it should have said: $1"
    grep -q -- "$1" "$work/out" || { tail -n 5 "$work/out"; fail "not said: $1"; }
}
# change SCRIPT: of the reports for sm_90
change() { sed -i "$1" "$work/all.90.cubin.ptxas"; }

for arch in 80 90 100 120; do reports $arch; done
refuses 'limits does not exist'
echo 'add 0 0 50000 0 0 0 0' >"$work/limits" # what is by hand stays
passes --write 80 90 100 120
passes 80 90 100 120
# 256 threads of 40 registers: 65536 / (40 x 256) = 6; with 50016 bytes and 1 KiB of a multiprocessor's 164, 228, 228, 100 KiB: 3, 4, 4, 2
[ "$(sed -n 's/^add  *//p' "$work/limits" | tr -s ' ')" = '40 16 50000 3 4 4 2' ] || fail "limits of add: $(grep '^add ' "$work/limits")"
[ "$(sed -n 's/^sgd  *//p' "$work/limits" | tr -s ' ')" = '40 16 0 6 6 6 6' ] || fail "limits of sgd: $(grep '^sgd ' "$work/limits")"
# 1024 threads: 1 block, of 1.6; 128 threads: 12 of 12.8
grep -q '^embedding_scan  *40  *16  *0  *1  *1  *1  *1$' "$work/limits" || fail "limits of embedding_scan"
grep -q '^columns  *40  *16  *0  *12  *12  *12  *12$' "$work/limits" || fail "limits of columns"

change '/add_bf16/,/Used/s/Used 40/Used 41/'
refuses 'ps_gpu_add_bf16: 41 registers on sm_90, .* allows 40'
reports 90
change '/relu_fwd_f16/,/Used/s/16 bytes smem/20 bytes smem/'
refuses 'ps_gpu_relu_fwd_f16: 20 bytes of shared memory of fixed size on sm_90, .* allows 16'
reports 90
change '/adam_f32_f16/,/Used/s/0 bytes spill stores, 0/8 bytes spill stores, 4/'
refuses 'ps_gpu_adam_f32_f16: registers of sm_90 do not suffice: 12 bytes'
reports 90
change "s/'ps_gpu_fill'/'ps_gpu_flll'/"
refuses 'ps_gpu_flll: not in cuda_kernels.h'
refuses 'sm_90: ps_gpu_fill is missing'
reports 90
cp "$work/limits" "$work/limits.good"
sed -i '/^swiglu_fwd /d' "$work/limits"
refuses 'the kernel swiglu_fwd has no line'
sed 's/^swiglu_fwd /swiglu_fwf /' "$work/limits.good" >"$work/limits"
refuses 'there is no kernel swiglu_fwf'
sed 's/^sgd  *40  *16  *0  *6  *6/sgd 40 16 0 6 7/' "$work/limits.good" >"$work/limits"
refuses 'ps_gpu_sgd_f32_f32: 6 blocks at once on sm_90, .* wants 7'
sed 's/^sgd  *40  *16  *0/sgd 40 16 300000/' "$work/limits.good" >"$work/limits"
refuses 'ps_gpu_sgd_f32_f32: cannot be launched on sm_90: 300016 bytes'

set -- build/cuda/*.90.cubin.ptxas
[ -e "$1" ] || skip "kernels by nvcc, of which there is none"
sh tool/check_cuda.sh 90
