"""One row of bench/predict.sh: a plan beside the run of the same configuration.

usage: predict.py NAME PLAN.json RUN_FOLDER
"""
import json
import statistics
import sys

WARM_UP = 3
LINKS = {"host->device": "host_to_device", "device->host": "device_to_host", "disk read": "disk_read", "disk write": "disk_write"}

name, plan_path, run = sys.argv[1:]
plan = json.load(open(plan_path))
steps = [json.loads(line) for line in open(run + "/metrics.jsonl")]
steps = [s for s in steps if "step_s" in s]
predicted = plan["step"]["seconds"]
measured = statistics.median(s["step_s"] for s in steps[WARM_UP:])
wrong = []
last = [s for s in steps if s["step"] == plan["simulated_steps"]]
if not last:
    wrong.append("the run is shorter than the simulation: %d steps" % plan["simulated_steps"])
for link, key in LINKS.items():
    for s in last:
        if s[key + "_bytes"] != plan["moved"][link]["bytes"]:
            wrong.append("%s %d, planned %d" % (link, s[key + "_bytes"], plan["moved"][link]["bytes"]))
for tier in ("device", "host", "disk"):
    peak = max(s[tier + "_peak_bytes"] for s in steps)
    if peak != plan["tiers"][tier]["peak_bytes"]:
        wrong.append("%s peak %d, planned %d" % (tier, peak, plan["tiers"][tier]["peak_bytes"]))
print("%-44s %8.4f s %8.4f s %6.2f  %s" % (name, predicted, measured, predicted / measured, "; ".join(wrong) or "equal"))
sys.exit(1 if wrong else 0)
