# gpu_lib.sh - what the scripts for machines with a GPU share; sourced.

# cuBLASLt, cuDNN and NCCL may lie where only the toolkit, or PyTorch, finds them: their folders are then added to
# LD_LIBRARY_PATH. PyTorch's cuDNN goes before the system's, which is often older than what is needed.
find_cuda_libraries() {
    sites=$(python3 -c 'import site, sys; print(*site.getsitepackages(), *sys.path)' 2>/dev/null)
    for library in libcublasLt.so.13 libcudnn.so.9 libnccl.so.2; do
        folders=$sites found=
        if ldconfig -p 2>/dev/null | grep -qF "$library"; then
            [ "$library" = libcudnn.so.9 ] || continue
        else
            folders="$(echo /usr/local/cuda*/) $sites"
        fi
        # shellcheck disable=SC2086 # folders without spaces
        [ -z "$folders" ] || found=$(find $folders -maxdepth 5 -name "$library" 2>/dev/null | head -n 1)
        [ -z "$found" ] || export LD_LIBRARY_PATH="$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    done
}
