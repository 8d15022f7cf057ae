# gpu_lib.sh - what the scripts for machines with a GPU share; sourced.

# cuBLASLt, cuDNN and NCCL of pip's packages, as PyTorch brings them, go before the system's, which are often older, and after those
# that the user has in LD_LIBRARY_PATH. Those of /usr/local/cuda the library finds itself.
find_cuda_libraries() {
    found=$("${PYTHON:-python3}" python/patrickstar/_nvidia.py 2>/dev/null)
    [ -z "$found" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found"
}
