#!/bin/sh
# memory.total inside a control group: a model of more data than the group has memory trains without its OOM killer, and
# the group's peak stays within what was given. CONTROL_GROUP=large, some minutes: 2 GB and 4 GB of model data; the package for
# PyTorch in 4 GB with 8 GB of model data.
set -u
build=$1
. test/cli/cli_lib.sh

if [ "${CONTROL_GROUP:-small}" = large ]; then
    limit=2000000000 total=1800000000 least=4000000000 sizes='"n_embd": 1024, "n_layer": 16, "n_head": 16'
else
    limit=330000000 total=300000000 least=500000000 sizes='"n_embd": 256, "n_layer": 24, "n_head": 4'
fi

# group_of CONTROLLER ROOT: a new group below that of this process, in $group
group_of() {
    group=$2$(sed -n "s/^[0-9]*:$1://p" /proc/self/cgroup | head -n 1)/pstar-test-$$
    mkdir "$group" 2>/dev/null
}
if group_of memory /sys/fs/cgroup/memory && echo $limit 2>/dev/null >"$group/memory.limit_in_bytes"; then
    peak_file=memory.max_usage_in_bytes
elif group_of "" /sys/fs/cgroup && echo $limit 2>/dev/null >"$group/memory.max"; then
    peak_file=memory.peak
else
    rmdir "$group" 2>/dev/null
    skip "no control group with a limit of memory can be made"
fi
trap 'rmdir "$group"; rm -rf "$work"' EXIT

cat >"$work/large.json" <<EOT
{
  "train_micro_batch_size_per_gpu": 1,
  "model": {"n_positions": 64, $sizes},
  "data": {"train": "$root/data/text/moby-dick.txt", "tokenizer": "$root/data/gpt2", "sequence_length": 16},
  "train": {"steps": 3, "output_dir": "$work/run", "save": false}
}
EOT
expect 0 "$pstar" plan --sizes --json "$work/large.json"
data=$(sed -n 's/.*"model_data_bytes": \([0-9]*\).*/\1/p' "$work/out")
[ "$data" -gt $least ] || fail "$data bytes of model data"
expect 0 sh -c "echo \$\$ >'$group/cgroup.procs' && exec '$pstar' train '$work/large.json' --memory $total"
says out "step 3/3"
says out "for the process itself"
says out "memory.disk auto: at most "
if [ -r "$group/$peak_file" ]; then
    peak=$(cat "$group/$peak_file")
    [ "$peak" -le $limit ] || fail "$peak bytes in a group of $limit"
    echo "$data bytes of model data, $peak bytes at most in a control group of $limit with memory=$total"
fi

[ "${CONTROL_GROUP:-small}" = large ] || exit 0
python=${PS_PYTHON:-/usr/bin/python3}
"$python" -c 'import torch' 2>/dev/null || { echo "not tried: the package for PyTorch: $python has no torch"; exit 0; }
limit=4000000000
# of both versions of control groups: what the kernel has counted so far is let go with the group
rmdir "$group" && mkdir "$group"
echo $limit 2>/dev/null >"$group/memory.limit_in_bytes" || echo $limit >"$group/memory.max"
export PATRICKSTAR_LIBRARY="$root/$build/libpatrickstar.so" PYTHONPATH="$root/python"
expect 0 sh -c "echo \$\$ >'$group/cgroup.procs' &&
    exec '$python' -W ignore '$root/python/test/limit_worker.py' '\"3.8GB\"' 480 8 8 8"
says out '"peak_bytes": '
data=$(sed -n 's/.*"model_data_bytes": \([0-9]*\).*/\1/p' "$work/out")
[ "$data" -gt 8000000000 ] || fail "$data bytes of model data"
peak=$(cat "$group/$peak_file")
[ "$peak" -le $limit ] || fail "$peak bytes in a group of $limit"
echo "PyTorch: $data bytes of model data, $peak bytes at most in a control group of $limit with memory=3.8GB"
