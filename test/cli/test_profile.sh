#!/bin/sh
# pstar train --overwrite with profile.path: the file, the line that names it, the same weights; steps that the run does not have; and the
# table of memory when a model is refused.
set -u
build=$1
. test/cli/cli_lib.sh

small="memory.device=6MB memory.host=1MB memory.disk=100MB"
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small train.output_dir="$work/plain"
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small profile.path="$work/profile.json" profile.steps=2,3
says out "profile of steps 2 to 3: $work/profile.json"
[ "$(summary "$work/run" weights_xxh3)" = "$(summary "$work/plain" weights_xxh3)" ] || fail "other weights with a profile"
for key in moved_bytes device_peak_bytes host_peak_bytes disk_read_bytes disk_write_bytes; do
    [ "$(summary "$work/run" $key)" = "$(summary "$work/plain" $key)" ] || fail "other $key with a profile"
done
python3 - "$work/profile.json" "$work/tiny.json" <<'EOT' || fail "the profile is not as doc/profile.md says"
import json, sys
profile = json.load(open(sys.argv[1]))
facts, events = profile["patrickstar"], profile["traceEvents"]
assert facts["steps"] == [2, 3] and facts["title"] == sys.argv[2] and facts["simulated"] is False
assert facts["budgets"] == {"device": 6000000, "host": 1000000, "disk": 100000000}
categories = {e.get("cat") for e in events}
assert categories == {None, "step", "phase", "op", "wait", "copy", "chunk", "memory"}, categories
assert [e["name"] for e in events if e.get("cat") == "step"] == ["step 2", "step 3"]
names = {e["name"] for e in events if e.get("cat") == "op"}
assert "update" in names and "transformer.h.0.attn.c_attn backward" in names
rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert rows == dict(enumerate(["steps", "phases", "compute", "waits", "host->device", "device->host", "disk read",
                               "disk write", "collectives", "chunks", "host compute"]))
EOT

# a run that ends before the last of the steps
expect 0 "$pstar" train --overwrite "$work/tiny.json" profile.path="$work/short.json" profile.steps=3,9
says out "profile of steps 3 to 4: $work/short.json"
expect 0 "$pstar" train --overwrite "$work/tiny.json" profile.path="$work/none.json" profile.steps=8,9
says err "no profile: the run had none of the steps 8 to 9"
[ ! -e "$work/none.json" ] || fail "a profile of nothing"

# refused before the first step
expect 3 "$pstar" train --overwrite "$work/tiny.json" profile.path="$work/missing/profile.json"
says err "profile.path cannot be written"
expect 2 "$pstar" train --overwrite "$work/tiny.json" profile.path="$work/p.json" profile.steps=3,2
says err "profile.steps must be"
expect 2 "$pstar" train --overwrite "$work/tiny.json" memory.device=2MB memory.disk=100MB
says err "Does not fit: "
expect 2 "$pstar" train --overwrite "$work/tiny.json" --verbose memory.device=2MB memory.disk=100MB
says err "no room in moment"
says err "activations"
says err "  empty"
