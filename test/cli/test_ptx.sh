#!/bin/sh
# Kernels for GPUs as nvcc made them: each instruction that tool/ptx_to_c.py translates computes what it should; where there is
# nvcc, the tests run what it made, and what is kept of it is still that.
# usage: test/cli/test_ptx.sh BUILD_FOLDER
set -u
. test/cli/skip_lib.sh
case $1 in *address* | *thread* | *-minimal*) skip "kernels as nvcc makes them: sanitizers and MINIMAL=1 have their sources" ;; esac
[ -f build/cuda/libptx_cases.so ] || skip "instructions of PTX one by one: build/cuda/libptx_cases.so is made by make test"
fail() {
    echo "FAILED: $*"
    exit 1
}
python3 test/cuda/ptx_cases.py build/cuda/libptx_cases.so || fail "instructions"

[ -f "$1/test/cuda/test_gelu" ] || { untried "which kernels tests run: cuda/test_gelu was left out"; finish; }
found=$(ldd "$1/test/cuda/test_gelu" | sed -n 's/.*libkernels.so => \([^ ]*\).*/\1/p')
[ -n "$found" ] || fail "cuda/test_gelu finds no libkernels.so"
nvcc=${NVCC-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [ "${PTX:-}" = none ] || ! "$nvcc" --version 2>/dev/null | grep -q 'release 13\.'; then
    for test in "$1"/test/cuda/test_*; do
        case $test in *.d | */test_cuda_*) ;; *) untried "cuda/${test##*/} over what nvcc makes: no nvcc of CUDA 13, or PTX=none" ;; esac
    done
    finish
fi
# What is translated says which file it is of.
grep -q 'build/cuda/cuda_elementwise\.[89]0\.ptx' "$found" || fail "cuda/test_gelu runs $found, which is not of what nvcc made"
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
for name in faults counts; do
    file=test/cuda/ptx_$name
    "$nvcc" -std=c++17 -O3 -Iinclude -Isrc -Itest -ptx -gencode arch=compute_80,code=compute_80 -o "$work/$name.ptx" $file.cu ||
        fail "nvcc refuses $file.cu"
    sed '/^\/\//d' "$work/$name.ptx" >"$work/now"
    sed '/^\/\//d' $file.ptx | cmp - "$work/now" ||
        fail "$file.ptx is not what nvcc makes of it: nvcc -std=c++17 -O3 -Iinclude -Isrc -Itest -ptx" \
            "-gencode arch=compute_80,code=compute_80 -o $file.ptx $file.cu"
done
"${nvcc%nvcc}ptxas" -arch=sm_80 -o "$work/cubin" build/cuda/ptx_cases.ptx || fail "ptxas refuses build/cuda/ptx_cases.ptx"
