#!/bin/sh
# pstar plan --ranks N --rank R: peaks and moved bytes of every rank are those of mpirun -n N.
set -u
build=$1
. test/cli/skip_lib.sh
case $build in *thread*) skip "MPI is not built for that sanitizer" ;; esac
[ -e "$build/libpatrickstar_openmpi.so" ] && command -v mpirun.openmpi >/dev/null || skip "no Open MPI"
. test/cli/cli_lib.sh
. test/cli/mpi_env.sh
export PATRICKSTAR_PLUGIN_PATH="$build"

# same N OPTION...: plan each rank, run as many steps as were simulated, compare
same() {
    n=$1
    shift
    steps=0
    for r in $(seq 0 $((n - 1))); do
        expect 0 "$pstar" plan "$work/tiny.json" --ranks "$n" --rank "$r" --no-advice --json comm.staging=64KiB "$@"
        cp "$work/out" "$work/plan-$r.json"
    done
    steps=$(python3 -c 'import json, sys; print(max(json.load(open(p))["simulated_steps"] for p in sys.argv[1:]))' \
        "$work"/plan-[0-9].json)
    rm -rf "$work/run"
    expect 0 timeout 120 mpirun.openmpi -n "$n" "$pstar" train --overwrite "$work/tiny.json" train.steps="$steps" comm.staging=64KiB "$@"
    python3 - "$work" "$n" <<'EOT2' || fail "$n ranks, $*: the plan is not what happened"
import json, sys
work, n = sys.argv[1], int(sys.argv[2])
run = json.load(open(work + "/run/summary.json"))
steps = {}
for line in open(work + "/run/metrics.jsonl"):
    s = json.loads(line)
    if "ranks" in s:
        steps[s["step"]] = s
links = {"host->device": "host_to_device_bytes", "device->host": "device_to_host_bytes", "disk read": "disk_read_bytes",
         "disk write": "disk_write_bytes", "collectives": "sent_bytes"}
bad = 0
for r in range(n):
    plan = json.load(open("%s/plan-%d.json" % (work, r)))
    assert plan["fits"] and plan["ranks"] == n and plan["rank"] == r
    assert plan["chunks"]["elements"] == run["chunk_elements"], (plan["chunks"], run["chunk_elements"])
    pairs = [(t, plan["tiers"][t]["peak_bytes"], run["ranks"][r][t + "_peak_bytes"]) for t in ("device", "host", "disk")]
    measured = steps[plan["simulated_steps"]]["ranks"][r]
    pairs += [(l, plan["moved"][l]["bytes"], measured[links[l]]) for l in links]
    for what, planned, was in pairs:
        if planned != was:
            print("rank %d: %s: %d planned, %d in the run" % (r, what, planned, was))
            bad = 1
    assert plan["moved"]["collectives"]["bytes"] > 0
sys.exit(bad)
EOT2
}

msc=client.opts.with_mem_saving_comm=true
for n in 2 3; do
    same $n
    same $n $msc
    same $n memory.device=5MB memory.host=1MB memory.disk=100MB
    same $n memory.device=5MB memory.disk=100MB $msc
done
sed '/"isa"/d; /"cores"/d' "$root/examples/hardware/laptop.json" >"$work/rates.json" # this machine computes
same 2 hardware="$work/rates.json" memory.device=6MB memory.host=1MB memory.disk=100MB
same 2 memory.device=5MB memory.host=20MB memory.prefetch=0
same 2 memory.device=16MB memory.host=30MB default_chunk_size=20000 gradient_accumulation_steps=2
# a rank that owns fewer chunks could have larger ones
same 2 memory.device=15MB
same 3 memory.device=12MB $msc

# with the rates of this machine, which mpirun's ranks measure with the cores of all of them, as the plan does
(
    unset PSTAR_HARDWARE
    export XDG_CACHE_HOME="$work/cache"
    settle() { for f in "$work"/cache/patrickstar/*.busy-*.json; do [ ! -e "$f" ] || mv "$f" "${f%.busy-*}.json"; done; }
    expect 0 mpirun.openmpi -n 2 "$pstar" train --overwrite "$work/tiny.json" train.steps=1 comm.staging=64KiB train.threads=1 memory.disk=100MB
    settle
    before=$(ls "$work/cache/patrickstar")
    same 2 train.threads=1 memory.device=5MB memory.host=1MB memory.disk=100MB
    [ "$before" = "$(ls "$work/cache/patrickstar")" ] || fail "plan and run measure apart: $before, $(ls "$work/cache/patrickstar")"
    case $before in *-2-threads-*) ;; *) fail "two ranks of a thread each are not two threads: $before" ;; esac
) || exit 1

# what is asked of a plan for ranks
expect 0 "$pstar" plan "$work/tiny.json" --ranks 2 --rank 1 --no-advice
says out "2 ranks; figures are of rank 1"
expect 2 "$pstar" plan "$work/tiny.json" --ranks 2 --rank 2 --no-advice
says err "there is no rank 2 of 2"
expect 2 "$pstar" plan "$work/tiny.json" --hardware examples/hardware/a100-40gb-x8.json --ranks 2 --no-advice memory.device=auto
says err "a rank for each of its devices, 8"
expect 2 "$pstar" plan "$work/tiny.json" --hardware examples/hardware/a100-40gb-x8.json --ranks 8 --max-model gpt2
says err "--ranks and --rank are for one plan"
expect 0 "$pstar" plan "$work/tiny.json" --hardware examples/hardware/a100-40gb-x8.json --rank 7 --no-advice \
    memory.device=auto memory.host=auto --json
grep -q '"rank": 7' "$work/out" || fail "not rank 7"
exit 0
