"""Time of each operator of a step, summed over the layers: a table in Markdown of a profile that `pstar plan --profile` or
`pstar train --profile` wrote.

usage: python3 tool/operator_times.py PROFILE.json
"""
import collections
import json
import re
import sys

LAYER = re.compile(r"\b(transformer\.h|model\.layers|encoder\.layer)\.\d+\.|(?<=chunk) \d+")


def times(profile):
    """{operator: [times a step, milliseconds a step]} of the lane that computes, and the step's milliseconds."""
    first, last = profile["patrickstar"]["steps"]
    n_steps = last - first + 1
    lanes = {e["tid"]: e["args"]["name"] for e in profile["traceEvents"] if e.get("name") == "thread_name"}
    sums, step = collections.defaultdict(lambda: [0, 0.0]), 0.0
    for e in profile["traceEvents"]:
        if e.get("ph") != "X":
            continue
        if lanes[e["tid"]] == "steps":
            step += e["dur"] / 1e3 / n_steps
        if lanes[e["tid"]] == "compute":
            operator = sums[LAYER.sub("", e["name"])]
            operator[0] += 1 / n_steps
            operator[1] += e["dur"] / 1e3 / n_steps
    return sums, step


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[-1].strip())
    with open(sys.argv[1], encoding="utf-8") as f:
        sums, step = times(json.load(f))
    print("| operator | times a step | ms a step | share |\n|---|--:|--:|--:|")
    for operator, (n, ms) in sorted(sums.items(), key=lambda of: -of[1][1]):
        print("| %s | %.0f | %.2f | %.1f %% |" % (operator, n, ms, 100 * ms / step))
    print("| all that computes | | %.2f | %.1f %% |\n| the step | | %.2f | |" % (
        sum(ms for _, ms in sums.values()), 100 * sum(ms for _, ms in sums.values()) / step, step))


if __name__ == "__main__":
    main()
