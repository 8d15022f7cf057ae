"""One row of bench/predict.sh: a plan and the run of the same configuration.

Below it what of the prediction was off: seconds waiting as planned and as they were, and of the steps that the profile has each rate as
seen, divided by the rate that was reckoned with.

usage: predict.py NAME PLAN.json RUN_FOLDER PROFILE.json ROWS      (adds the ratio to the file ROWS)
       predict.py --table ROWS      (the ratios of all rounds)
"""
import json
import statistics
import sys

WARM_UP = 3
LINKS = {"host->device": "host_to_device", "device->host": "device_to_host", "disk read": "disk_read", "disk write": "disk_write"}



def show_table(path):
    ratios = {}
    for line in open(path):
        name, ratio = line.rsplit("\t", 1)
        ratios.setdefault(name, []).append(float(ratio))
    print("\n%-44s %8s %8s %8s  %s" % ("predicted / measured", "median", "least", "most", "rounds"))
    for name, r in ratios.items():
        print("%-44s %8.2f %8.2f %8.2f  %d" % (name, statistics.median(r), min(r), max(r), len(r)))
    medians = [statistics.median(r) for r in ratios.values()]
    print("%-44s %8d of %d" % ("medians within 15 %", sum(0.85 <= m <= 1.15 for m in medians), len(medians)))


if sys.argv[1] == "--table":
    show_table(sys.argv[2])
    sys.exit(0)
name, plan_path, run, profile, rows = sys.argv[1:]
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
with open(rows, "a") as f:
    print("%s\t%g" % (name, predicted / measured), file=f)
bound = json.load(open(run + "/summary.json"))["bound"]
rates = json.load(open(profile))["patrickstar"]["rates"]
print("    bound %.4f s by %s; waiting %.4f s, %.4f s; %s" % (bound["bound_s"], bound["by"], bound["planned_waiting_s"], bound["waiting_s"],
      ", ".join("%s %.2f" % (r["of"], r["seen"] / r["reckoned"]) for r in rates)))
sys.exit(1 if wrong else 0)
