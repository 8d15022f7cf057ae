#!/bin/sh
# One archive of all that tool/gpu_check.sh and tool/gpu_bench.sh run, for a machine with a GPU that has neither compiler nor our
# libraries: programs stripped, the package for PyTorch with what its library needs, scripts, examples and texts.
#
# usage: tool/gpu_package.sh BUILD_FOLDER ARCHIVE.tar.xz
# `make gpu-package` calls it for a build with MINIMAL=1. Too large an archive (60 MiB) is an error; it is left, to be looked at.
set -eu
[ $# -eq 2 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=$1 archive=$2
most_bytes=$((60 << 20))
name=patrickstar-gpu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
there=$work/$name/build/gpu
mkdir -p "$there/test/gpu" "$there/bench"

for file in pstar libpatrickstar_cuda.so libpatrickstar.so test/gpu/pstar test/gpu/ops bench/gpu_row bench/bench_op \
    $(cd "$build" && ls test/gpu/test_each_kernel test/gpu/test_gpu_*[!.]? | grep -v '\.[a-z]*$'); do
    strip -o "$there/$file" "$build/$file"
done
mkdir "$there/test/cuda"
strip -o "$there/test/cuda/libkernels.so" "$build/test/cuda/libkernels.so" # the emulator, for FAKE=1
cp "$build/libcmocka.so.0" "$build/commit" "$there/"
# What libpatrickstar.so is linked with, but for libc's, lies beside it.
ldd "$build/libpatrickstar.so" | awk '$3 ~ "^/" && $1 !~ "^lib(c|m|pthread|dl)[.]so" { print $1, $3 }' | while read -r soname path; do
    cp -L "$path" "$there/$soname"
done
git ls-files -- LICENSE doc/gpu.md data/text data/books data/gpt2 examples bench/gpu bench/gpu_peer.py tool/gpu_check.sh tool/gpu_bench.sh tool/gpu_lib.sh \
    test/gpu/check_training.sh test/golden/tokenizers/bert_like.json python/patrickstar python/test/gpu_check.py |
    tar -cf - -T - | tar -C "$work/$name" -xf -

tar --sort=name --owner=0 --group=0 -C "$work" -cf - $name | xz -9 -T0 >"$archive"
bytes=$(wc -c <"$archive")
echo "$archive: $bytes bytes; there: tar xf ${archive##*/}; sh $name/tool/gpu_check.sh build/gpu"
[ "$bytes" -le "$most_bytes" ] || { echo "gpu_package: more than $most_bytes bytes: name one architecture, GPU_ARCH=90" >&2; exit 1; }
