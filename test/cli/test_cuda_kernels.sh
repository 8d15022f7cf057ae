#!/bin/sh
# The kernels for GPUs, compiled by nvcc: all of them, without a warning, and with registers enough.
# usage: test/cli/test_cuda_kernels.sh BUILD_FOLDER
set -u
. test/cli/skip_lib.sh
set -- build/cuda/*.90.cubin.ptxas
[ -e "$1" ] || skip "kernels by nvcc, of which there is none"
sh tool/check_cuda.sh 90
