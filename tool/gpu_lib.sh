# gpu_lib.sh - what the scripts for machines with a GPU share; sourced.

# cuBLASLt may lie where only the toolkit, or PyTorch, finds it: its folder is then added to LD_LIBRARY_PATH.
find_cuda_libraries() {
    ! ldconfig -p 2>/dev/null | grep -q 'libcublasLt\.so\.13' || return 0
    sites=$(python3 -c 'import site, sys; print(*site.getsitepackages(), *sys.path)' 2>/dev/null)
    # shellcheck disable=SC2086 # folders without spaces
    found=$(find /usr/local/cuda*/ $sites -maxdepth 5 -name libcublasLt.so.13 2>/dev/null | head -n 1)
    [ -z "$found" ] || export LD_LIBRARY_PATH="$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
