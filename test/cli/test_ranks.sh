#!/bin/sh
# Several ranks train like one: losses, bits under each MPI and budget, predicted figures, evaluation, printing.
# usage: test/cli/test_ranks.sh BUILD_FOLDER
set -u
. test/cli/ranks_lib.sh

# ---- losses near those of one rank; for a number of ranks always the same bits ----

expect 0 "$pstar" train --overwrite "$work/shared.json" gradient_accumulation_steps=12 train.output_dir="$work/alone"
has_mpich=
command -v mpirun.mpich >/dev/null && [ -e "$build/libpatrickstar_mpich.so" ] && has_mpich=1
[ -n "$has_mpich" ] || untried "no MPICH"
for p in 2 3; do
    trained $p openmpi p$p shared default_chunk_size=4096
    says out "$p ranks, mpi (Open MPI"
    near p$p alone 1e-6
    want=$(weights p$p)
    [ -n "$want" ] || fail "no hash"
    if [ -n "$has_mpich" ]; then
        trained $p mpich mpich shared --overwrite default_chunk_size=4096
        says out "$p ranks, mpi (MPICH"
        [ "$(weights mpich)" = "$want" ] || fail "$p ranks: MPICH has other bits"
    fi
    for msc in false true; do
        trained $p openmpi tight shared --overwrite client.opts.with_mem_saving_comm=$msc default_chunk_size=4096 \
            memory.device=560KB memory.disk=4MB memory.update_in_backward=never
        [ "$(weights tight)" = "$want" ] || fail "$p ranks, memory-saving communication $msc: other bits"
        [ "$(summary "$work/tight" disk_write_bytes)" -gt 0 ] || fail "the budget is not tight"
        # what the plan said of each rank is what was measured (steps that take updates back have other figures)
        python3 - "$work/tight" <<'EOP' || fail "$p ranks, memory-saving communication $msc: not as predicted"
import json, sys
s = json.load(open(sys.argv[1] + "/summary.json"))
last = json.loads(open(sys.argv[1] + "/metrics.jsonl").readlines()[-1])
steps = s["steps"]
assert len(s["ranks"]) == len(last["ranks"]) >= 2
for i, (r, step) in enumerate(zip(s["ranks"], last["ranks"])):
    for tier in "device", "host", "disk":
        assert r[f"{tier}_peak_bytes"] == r[f"planned_{tier}_peak_bytes"], (i, tier, r)
    assert step["sent_bytes"] == r["planned_sent_bytes_per_step"] > 0, (i, step, r)
    assert r["device_peak_bytes"] <= s["device_budget_bytes"]
assert last["moved_bytes"] == s["planned_moved_bytes_per_step"] > 0, (last, s)
EOP
    done
done

# ---- evaluation; rank 0 alone prints; every line of metrics.jsonl is there ----

expect 0 "$pstar" train --overwrite "$work/shared.json" gradient_accumulation_steps=12 train.save=true train.output_dir="$work/saved" \
    train.eval_interval=10
trained 3 openmpi evaluated shared train.eval_interval=10 train.log_to=tensorboard
[ "$(grep -c 'validation loss' "$work/out")" -eq 2 ] || { cat "$work/out"; fail "not one line an evaluation"; }
[ "$(grep -c '^step ' "$work/out")" -eq 4 ] || { cat "$work/out"; fail "others than rank 0 print"; }
[ ! -s "$work/err" ] || { cat "$work/err"; fail "something on stderr"; }
python3 - "$work/evaluated/metrics.jsonl" "$work/saved/metrics.jsonl" <<'EOP' || fail "metrics.jsonl"
import json, sys
a, b = ([json.loads(l) for l in open(p)] for p in sys.argv[1:])
assert [l["step"] for l in a] == list(range(1, 21))
assert all(len(l["ranks"]) == 3 for l in a)
for x, y in zip(a, b):
    assert ("eval_loss" in x) == ("eval_loss" in y) == (x["step"] % 10 == 0)
    if "eval_loss" in x: assert abs(x["eval_loss"] / y["eval_loss"] - 1) < 1e-6
EOP
python3 "$root/test/cli/check_events.py" "$work/evaluated" 1 >"$work/out" || { cat "$work/out"; fail "events of 3 ranks"; }
expect 0 "$pstar" eval "$work/shared.json" --json train.output_dir="$work/saved"
cp "$work/out" "$work/eval-alone"
expect 0 timeout -k 5 60 mpirun.openmpi -np 3 "$pstar" eval "$work/shared.json" --json train.output_dir="$work/saved"
python3 - "$work/eval-alone" "$work/out" <<'EOP' || { cat "$work/out"; fail "pstar eval on 3 ranks"; }
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:]) # one object: one rank printed
assert abs(a.pop("loss") / b.pop("loss") - 1) < 1e-6 and abs(a.pop("perplexity") / b.pop("perplexity") - 1) < 1e-5
assert a == b, (a, b)
EOP
finish
