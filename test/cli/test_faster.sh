#!/bin/sh
# The change that a run names as faster is the one that pstar plan finds for the same options, whatever the run itself
# has taken of the memory; without a known machine none is named.
set -u
build=$1
. test/cli/cli_lib.sh
export XDG_CACHE_HOME="$work/cache"
total="memory.device=auto memory.host=auto memory.disk=0 memory.total=70MB"

# same_change OPTION...: plan's and train's. A busy machine may cut a search short: then again
same_change() {
    for _ in 1 2 3 4 5; do
        expect 0 "$pstar" plan "$work/tiny.json" hardware=laptop "$@"
        planned=$(sed -n 's/^faster    \(.*\): .* tokens\/s, \(.* x as fast\).*/\1 \2/p' "$work/out")
        expect 0 "$pstar" train --overwrite "$work/tiny.json" train.save=false hardware=laptop "$@"
        named=$(sed -n 's/^faster    \(.*\): \(.* x as fast\), as simulated.*/\1 \2/p' "$work/out")
        stored=$(python3 -c 'import json, sys; f = json.load(open(sys.argv[1])).get("faster")
print("%s %.2f x as fast" % (f["change"], f["gain"]) if f else "")' "$work/run/summary.json")
        [ "$stored" = "$named" ] || fail "summary.json has '$stored', and '$named' is printed"
        # rounded budgets may differ by a page: the change is the same, the gain nearly
        [ "${named% * x as fast}" = "${planned% * x as fast}" ] && echo "$named $planned" |
            awk '{ exit !(NF == 0 || ($2 < 1.05 * $(NF - 3) && $(NF - 3) < 1.05 * $2)) }' && return 0
    done
    fail "$*: train names '$named', plan '$planned'"
}

# the process takes most of memory.total at the end of the run
same_change $total activation_checkpointing.enabled=true
same_change $total memory.disk=100MB activation_checkpointing.enabled=true
[ "$planned" != "" ] || fail "nothing to compare with memory.total"
same_change memory.device=100MB memory.host=0
[ "$planned" != "" ] || fail "nothing to compare with budgets of tiers"
same_change memory.device=6MB memory.host=1MB memory.disk=100MB
[ "$planned" != "" ] || fail "nothing to compare with a disk tier"

expect 0 "$pstar" train --overwrite "$work/tiny.json" train.save=false hardware=none
grep "^faster" "$work/out" && fail "a gain at the speeds of a typical PC"
python3 - "$work/run" "$work/out" <<'EOT' || fail "summary.json does not have what is printed"
import json, re, sys
run, lines = json.load(open(sys.argv[1] + "/summary.json")), open(sys.argv[2]).read()
assert "faster" not in run and "bound" not in run
steps = sorted(json.loads(line)["step_s"] for line in open(sys.argv[1] + "/metrics.jsonl") if '"loss"' in line)
assert abs(run["step_s"] - 0.5 * (steps[1] + steps[2])) < 1e-9 and len(steps) == 4
assert abs(run["step_computing_s"] + run["step_waiting_s"] - run["step_s"]) < 1e-9
assert abs(run["tokens_per_s"] * run["seconds"] - run["tokens"]) < 1e-6
printed = float(re.search(r"^time .* ([0-9.]+) tokens/s$", lines, re.M).group(1))
assert abs(printed - run["tokens_per_s"]) <= 0.006 * printed, (printed, run["tokens_per_s"])
EOT
exit 0
