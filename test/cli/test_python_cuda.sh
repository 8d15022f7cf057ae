#!/bin/sh
# The wheel with the plug-in for GPUs, in a virtual environment that has nothing else: kernels lie in it, and cuBLASLt is found where
# pip puts NVIDIA's packages, before the system's, without a variable. The driver is the fake one, as a library of its name.
#
# usage: test/cli/test_python_cuda.sh BUILD_FOLDER
set -u
build=$1
. test/cli/cli_lib.sh
case ${build##*/} in
*minimal*) skip "the shared library, which such a build has not" ;;
*address* | *undefined* | *thread*) skip "a Python that does not know of sanitizers" ;;
esac
[ -e "$build/libpatrickstar_cuda.so" ] || skip "libpatrickstar_cuda.so (make CUDA=1, which needs nvcc 13)"
[ -e "$build/test/gpu/driver/libcuda.so.1" ] || skip "the fake driver as a library (make CUDA=1 tests)"
/usr/bin/python3 -m venv "$work/venv" >/dev/null 2>&1 || skip "python3-venv"
unset PATRICKSTAR_LIBRARY PATRICKSTAR_PLUGIN_PATH PYTHONPATH LD_LIBRARY_PATH CUDA_HOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1
python=$work/venv/bin/python

PATRICKSTAR_LIBRARY=$root/$build/libpatrickstar.so expect 0 /usr/bin/python3 "$root/python/build_wheel.py" "$work/wheel"
expect 0 "$python" -m pip install -q --no-deps "$work"/wheel/*.whl
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
[ -e "$site/patrickstar/lib/libpatrickstar_cuda.so" ] || fail "the wheel has no plug-in for GPUs"
cd "$work" || exit 2

# info VARIABLE=VALUE...: the same lines by the program and by the package
info() {
    expect 0 env "$@" "$work/venv/bin/pstar" info --disk-path ''
    grep '^GPU\|^NVIDIA [dcN]' "$work/out" >"$work/program"
    expect 0 env "$@" "$python" -m patrickstar.info --disk-path ''
    grep '^GPU\|^NVIDIA [dcN]' "$work/out" >"$work/package"
    cmp -s "$work/program" "$work/package" || fail "$* the package says $(cat "$work/package"); the program $(cat "$work/program")"
}

# Without a driver both say that it is missing.
info A=
if grep -q '^GPU  *no NVIDIA GPU found' "$work/out"; then
    says out "NVIDIA driver       cannot load NVIDIA's driver: libcuda.so.1: "
else
    untried "no driver: this machine has NVIDIA hardware"
fi

# pip's packages: cuBLASLt has its functions from the fake one; cuDNN and NCCL have none, so that the system's are not used.
mkdir driver
cp -L "$root/$build/test/gpu/driver/libcuda.so.1" "$root/$build/test/gpu/driver/libkernels.so" driver/
for file in cu13/lib/libcublasLt.so.13 cudnn/lib/libcudnn.so.9 nccl/lib/libnccl.so.2; do
    mkdir -p "$site/nvidia/${file%/*}"
    ${CC:-gcc} -shared "-Wl,-soname,${file##*/},--no-as-needed" -o "$site/nvidia/$file" -x c /dev/null -x none driver/libcuda.so.1 ||
        fail "no library ${file##*/}"
done
info LD_LIBRARY_PATH="$work/driver"
says out "Fake 0 (compute capability 9.0)"
says out "NVIDIA driver       for CUDA 13.0, $work/driver/libcuda.so.1"
says out "NVIDIA cuBLASLt     13.1.0, $site/nvidia/cu13/lib/libcublasLt.so.13"
info LD_LIBRARY_PATH="$work/driver" PS_FAKE_GPUS=0
says out "NVIDIA GPU not usable, the CPU computes: NVIDIA's driver finds no GPU"
info LD_LIBRARY_PATH="$work/driver" PATRICKSTAR_PLUGIN_PATH="$work"
says out "NVIDIA GPU not usable, the CPU computes: libpatrickstar_cuda.so, which has the kernels for GPUs, is in none of: $work."

# The GPU computes.
expect 0 env LD_LIBRARY_PATH="$work/driver" "$work/venv/bin/pstar" train --overwrite "$work/tiny.json" model.n_layer=1 model.n_embd=16 \
    train_micro_batch_size_per_gpu=1 model.n_positions=8 train.steps=2 memory.host=40MB train.backend=cuda train.attention=own
[ "$(summary "$work/run" gpu)" = "Fake 0" ] || fail "the summary does not name the GPU"
finish
