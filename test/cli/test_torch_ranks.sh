#!/bin/sh
# Ranks over a process group of PyTorch (torch_ranks.py) have the bits that they have over MPI (examples/two_models.c).
#
# usage: test/cli/test_torch_ranks.sh BUILD_FOLDER
set -u
build=$1
. test/cli/skip_lib.sh
case ${build##*/} in
*minimal*) skip "the shared library, which such a build has not" ;;
*address* | *undefined* | *thread*) skip "a Python that does not know of sanitizers" ;;
esac
/usr/bin/python3 -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null || skip "torch.distributed with gloo"
. test/cli/mpi_env.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/config.json" <<'END'
{"train_micro_batch_size_per_gpu": 2, "data": {"sequence_length": 16}, "train": {"threads": 1, "seed": 1},
 "model": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16},
 "optimizer": {"type": "Adam", "params": {"lr": 0.003}},
 "memory": {"device": "2MB", "host": "8MB"}, "default_chunk_size": 8192}
END
ln -s "$PWD/$build/libpatrickstar.so" "$work/libpatrickstar.so.0.2"
ranks="0 1"
for rank in $ranks; do
    timeout -k 5 300 /usr/bin/python3 test/cli/torch_ranks.py "$work/libpatrickstar.so.0.2" "$work/config.json" "$rank" 2 "$work/meet" \
        >"$work/$rank" 2>&1 &
done
wait
cmp -s "$work/0" "$work/1" && grep -Eq '^[0-9a-f]{16}$' "$work/0" || { tail -n 5 "$work/0" "$work/1"; echo "FAILED: over PyTorch"; exit 1; }

command -v mpicc.openmpi >/dev/null && command -v mpirun.openmpi >/dev/null || { untried "MPI beside it"; finish; }
mpicc.openmpi -std=c11 -Iinclude -o "$work/groups" examples/two_models.c "$work/libpatrickstar.so.0.2" -Wl,-rpath,"$work" || exit 1
timeout -k 5 120 mpirun.openmpi -np 2 "$work/groups" "$work/config.json" 1 1 >"$work/mpi" 2>&1 || { cat "$work/mpi"; exit 1; }
grep -q "weights $(cat "$work/0")$" "$work/mpi" || { cat "$work/0" "$work/mpi"; echo "FAILED: other bits than over MPI"; exit 1; }
